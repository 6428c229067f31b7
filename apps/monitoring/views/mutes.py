"""What is muted, and until when."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.monitoring.chain import link_name
from apps.monitoring.forms import incidents as forms
from apps.monitoring.models import Mute
from apps.monitoring.screens.incidents import links
from apps.monitoring.selectors import mutes as reads
from apps.monitoring.services import mutes as services
from apps.training import selectors as training

_FIELDS = ("run", "link", "rule", "until", "until_date", "reason")


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def mute_list(request: Request) -> HttpResponse:
    """The mutes in force and those that are over; POST adds one."""
    refused: DomainError | None = None
    if request.method == "POST":
        try:
            mute = _create(request)
        except DomainError as error:
            refused = error
        else:
            messages.success(request, f"Muted until {mute.until:%-d %b %Y %H:%M} UTC.")
            return redirect("monitoring:mutes", request.project.slug)
    context = {
        "page_title": "Mutes",
        "nav": "monitoring",
        "tab": "mutes",
        "mutes": [_shown(one) for one in reads.mutes_now(project=request.project)],
        "past": [_shown(one) for one in reads.mutes_past(project=request.project)],
        "links": links(),
        "presets": forms.presets(),
        "refused": refused,
        "typed": {name: request.POST.get(name, "") for name in _FIELDS},
    }
    return render(request, "monitoring/mutes.html", context, status=422 if refused else 200)


def _create(request: Request) -> Mute:
    sent = {name: request.POST.get(name, "").replace("\x00", "").strip() for name in _FIELDS}
    try:
        run = training.run_get(project=request.project, run_id=sent["run"]) if sent["run"] else None
    except DomainError as error:
        raise DomainError(error.message, field="run") from None
    return services.mute_create(
        project=request.project,
        user=request.user,
        until=forms.mute_end(request.POST),
        reason=sent["reason"],
        run=run,
        link=sent["link"],
        rule=sent["rule"],
    )


def _shown(mute: Mute) -> dict[str, Any]:
    parts = [f"run {mute.run.name}" if mute.run else "", mute.rule and f"rule {mute.rule}"]
    parts.append(f"link {link_name(mute.link)}" if mute.link else "")
    return {"mute": mute, "what": ", ".join(filter(None, parts)) or "everything in the project"}


@require_POST
@project_page(STAFF)
def mute_lift(request: Request, mute_id: int) -> HttpResponse:
    services.mute_lift(project=request.project, mute_id=mute_id, user=request.user)
    messages.success(request, "Lifted: new alerts are told again.")
    return redirect("monitoring:mutes", request.project.slug)
