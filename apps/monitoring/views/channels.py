"""Where incidents are told: e-mail addresses and webhooks of a project."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.timezone import localtime
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.sealing import unseal
from apps.monitoring import forms
from apps.monitoring.models import Channel, Mute
from apps.monitoring.screens.incidents import EVENT_WORDS, stages
from apps.monitoring.selectors import incidents as reads
from apps.monitoring.services import channels as services
from apps.monitoring.services.notifications import delivery_again
from apps.monitoring.stages import stage_name
from apps.training import selectors as training

_Tells = Channel.Tells
_SECRET = "channel_secret"  # noqa: S105 - the session's key of a secret to be shown once


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def channel_list(request: Request) -> HttpResponse:
    """The channels and their last messages; POST adds one."""
    refused: DomainError | None = None
    sent = {name: request.POST.get(name, "") for name in ("kind", "address", "least_severity")}
    tells = request.POST.getlist("tells") if request.method == "POST" else [_Tells.INCIDENTS]
    if request.method == "POST":
        try:
            made = services.channel_create(
                project=request.project, user=request.user, tells=tells, **sent
            )
        except DomainError as error:
            refused = error
        else:
            _show_once(request, made)
            messages.success(request, "Added. Send a test to see that it arrives.")
            return redirect("monitoring:channels", request.project.slug)
    rows = list(reads.channels(project=request.project))
    context = {
        "page_title": "Alert channels",
        "nav": "monitoring",
        "tab": "channels",
        "rows": [{"channel": one, "messages": _messages(one)} for one in rows],
        "fresh": request.session.pop(_SECRET, None) if request.method == "GET" else None,
        "mail_missing": reads.mail_missing(),
        "tells": _Tells.choices,
        "refused": refused,
        "typed": sent | {"tells": tells},
    }
    return render(request, "monitoring/channels.html", context, status=422 if refused else 200)


def _messages(channel: Channel) -> list[dict[str, object]]:
    return [
        {"one": row, "what": EVENT_WORDS.get(row.event, "another alert")}
        for row in reads.messages_to(channel)
    ]


def _show_once(request: Request, channel: Channel) -> None:
    """The secret waits in the session, on the server, for the one page that shows it."""
    if channel.secret:
        request.session[_SECRET] = {"address": channel.address, "secret": unseal(channel.secret)}


@require_POST
@project_page(STAFF)
def channel_change(request: Request, channel_id: int) -> HttpResponse:
    enabled = request.POST.get("enabled")
    services.channel_update(
        project=request.project,
        channel_id=channel_id,
        user=request.user,
        least_severity=request.POST.get("least_severity") or None,
        tells=request.POST.getlist("tells") or None,
        enabled=None if enabled is None else enabled == "yes",
    )
    messages.success(request, "Changed.")
    return redirect("monitoring:channels", request.project.slug)


@require_POST
@project_page(STAFF)
def channel_rotate(request: Request, channel_id: int) -> HttpResponse:
    channel = services.channel_secret_rotate(
        project=request.project, channel_id=channel_id, user=request.user
    )
    _show_once(request, channel)
    messages.success(request, "The next message is signed with the new secret.")
    return redirect("monitoring:channels", request.project.slug)


@require_POST
@project_page(STAFF)
def channel_test(request: Request, channel_id: int) -> HttpResponse:
    services.channel_test(project=request.project, channel_id=channel_id, user=request.user)
    messages.success(request, "A test was sent. Reload to see its state.")
    return redirect("monitoring:channels", request.project.slug)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def channel_delete(request: Request, channel_id: int) -> HttpResponse:
    """GET asks, POST deletes."""
    channel = reads.channel_get(project=request.project, channel_id=channel_id)
    if request.method != "POST":
        context = {"page_title": "Delete this channel?", "nav": "monitoring", "channel": channel}
        return render(request, "monitoring/channel_delete.html", context)
    services.channel_delete(project=request.project, channel_id=channel_id, user=request.user)
    messages.success(request, "Deleted.")
    return redirect("monitoring:channels", request.project.slug)


@require_POST
@project_page(STAFF)
def channel_again(request: Request, channel_id: int, delivery_id: int) -> HttpResponse:
    channel = reads.channel_get(project=request.project, channel_id=channel_id)
    delivery_again(channel=channel, delivery_id=delivery_id, user=request.user)
    messages.success(request, "It is sent again.")
    return redirect("monitoring:channels", request.project.slug)


# What is muted, and until when.

_FIELDS = ("run", "link", "rule", "until", "until_date", "reason")


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def mute_list(request: Request) -> HttpResponse:
    """Active and ended mutes; POST adds one."""
    refused: DomainError | None = None
    if request.method == "POST":
        try:
            mute = _create(request)
        except DomainError as error:
            refused = error
        else:
            messages.success(request, f"Muted until {localtime(mute.until):%-d %b %Y %H:%M %Z}.")
            return redirect("monitoring:mutes", request.project.slug)
    context = {
        "page_title": "Mutes",
        "nav": "monitoring",
        "tab": "mutes",
        "mutes": [_shown(one) for one in reads.mutes_now(project=request.project)],
        "past": [_shown(one) for one in reads.mutes_past(project=request.project)],
        "stages": stages(),
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
    parts.append(f"stage {stage_name(mute.link)}" if mute.link else "")
    return {"mute": mute, "what": ", ".join(filter(None, parts)) or "everything in the project"}


@require_POST
@project_page(STAFF)
def mute_lift(request: Request, mute_id: int) -> HttpResponse:
    services.mute_lift(project=request.project, mute_id=mute_id, user=request.user)
    messages.success(request, "Mute ended: new alerts send notifications again.")
    return redirect("monitoring:mutes", request.project.slug)
