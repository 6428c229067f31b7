"""Where incidents are told: e-mail addresses and webhooks of a project."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.monitoring.models import Channel
from apps.monitoring.screens.incidents import EVENT_WORDS
from apps.monitoring.selectors import channels as reads
from apps.monitoring.services import channels as services
from apps.monitoring.services.deliveries import delivery_again

_SECRET = "channel_secret"  # noqa: S105 - the session's key of a secret to be shown once


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def channel_list(request: Request) -> HttpResponse:
    """The channels and their last messages; POST adds one."""
    refused: DomainError | None = None
    sent = {name: request.POST.get(name, "") for name in ("kind", "address", "least_severity")}
    if request.method == "POST":
        try:
            made = services.channel_create(project=request.project, user=request.user, **sent)
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
        "refused": refused,
        "typed": sent,
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
        request.session[_SECRET] = {"address": channel.address, "secret": channel.secret}


@require_POST
@project_page(STAFF)
def channel_change(request: Request, channel_id: int) -> HttpResponse:
    enabled = request.POST.get("enabled")
    services.channel_update(
        project=request.project,
        channel_id=channel_id,
        user=request.user,
        least_severity=request.POST.get("least_severity") or None,
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
    messages.success(request, "A test is on its way. Reload to see what became of it.")
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
