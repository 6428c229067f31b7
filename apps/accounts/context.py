"""What every page's frame shows. Values are computed when a template asks: fragments ask for none.

`nav` is the view's own context variable: the section that is current in the rail.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from apps.accounts.models import Membership
from apps.common import registry

THEMES = ("system", "light", "dark")


def frame(request: HttpRequest) -> dict[str, Any]:
    user = getattr(request, "user", None)
    theme = user.theme if user is not None and user.is_authenticated else "system"
    return {
        "active_project": getattr(request, "project", None),
        "role": getattr(request, "role", None),
        "theme": theme,
        "next_theme": THEMES[(THEMES.index(theme) + 1) % len(THEMES)],
        "rail_nav": _once(lambda: rail_nav(request)),
        "rail_projects": _once(lambda: rail_projects(request)),
    }


def _once(read: Callable[[], Any]) -> Callable[[], Any]:
    """Templates call callables; this one reads at most once a page."""
    return cache(read)


def rail_nav(request: HttpRequest) -> list[dict[str, str]]:
    """The entries of the role's rail in the active project."""
    project, role = getattr(request, "project", None), getattr(request, "role", None)
    if project is None or role is None:
        return []
    entries = []
    for item in registry.nav_for(role):
        try:
            url = reverse(item.url_name, args=[project.slug])
        except NoReverseMatch:
            continue
        entries.append(
            {"label": item.label, "icon": item.icon, "section": item.section, "url": url}
        )
    return entries


def rail_projects(request: HttpRequest) -> list[Membership]:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return []
    return list(
        Membership.objects.select_related("project")
        .filter(user=user, project__archived_at__isnull=True)
        .order_by("project__name")
    )
