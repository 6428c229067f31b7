"""What every page's frame shows."""

from django.http import HttpRequest


def frame(request: HttpRequest) -> dict[str, object]:
    return {
        "active_project": getattr(request, "project", None),
        "role": getattr(request, "role", None),
    }
