"""Live dialogues: the campaigns of engineers, and the conversations of those who label."""

import json
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.http import Request
from apps.common.row_files import MEDIA, Export, download_response
from apps.evaluation.forms.dialogues import DialogueForm
from apps.evaluation.models import Conversation, DialogueCampaign
from apps.evaluation.screens import dialogues as screen
from apps.evaluation.selectors.dialogues import (
    conversation_get,
    conversation_read,
    conversations_of,
    conversations_rows,
    dialogue_get,
    dialogues,
    dialogues_open,
    progress_of,
)
from apps.evaluation.services.dialogues import (
    answerer_alive,
    conversation_end,
    conversation_start,
    dialogue_open,
    dialogue_set_open,
    message_send,
    turn_ask,
    turn_judge,
    turn_pass,
)
from apps.labeling.forms import AnswerForm
from apps.labeling.services import LABELERS
from apps.labeling.services.leasing import closed_reason

_LATEST = 200  # conversations on a campaign's page

# Campaigns.


@require_safe
@project_page(STAFF)
def dialogue_list(request: Request) -> HttpResponse:
    context = {
        "page_title": "Dialogues",
        "nav": "dialogues",
        "rows": [screen.listed(one) for one in dialogues(project=request.project)],
    }
    return render(request, "evaluation/dialogues.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def dialogue_new(request: Request) -> HttpResponse:
    sent = request.method == "POST"
    form = DialogueForm(request.POST if sent else None, project=request.project)
    if sent and form.is_valid():
        try:
            made = dialogue_open(project=request.project, user=request.user, asked=form.asked())
        except DomainError as error:
            form.take(error)
        else:
            messages.success(request, "The campaign is open. Annotators find it under My work.")
            return redirect("evaluation:dialogue", request.project.slug, made.pk)
    context = {
        "page_title": "New dialogue campaign",
        "nav": "dialogues",
        "form": form,
        "alive": answerer_alive(),
    }
    status = 422 if form.errors else 200
    return render(request, "evaluation/dialogue_new.html", context, status=status)


@require_safe
@project_page(STAFF)
def dialogue(request: Request, dialogue_id: str) -> HttpResponse:
    found = _campaign(request, dialogue_id)
    latest = Conversation.objects.filter(campaign=found).select_related("annotator")
    context = {
        "page_title": found.name,
        "nav": "dialogues",
        "campaign": found,
        "progress": progress_of(found),
        "result": screen.result(found),
        "conversations": latest.prefetch_related("turns")[:_LATEST],
    }
    return render(request, "evaluation/dialogue.html", context)


@require_POST
@project_page(STAFF)
def dialogue_act(request: Request, dialogue_id: str) -> HttpResponse:
    """Close or open it."""
    found = _campaign(request, dialogue_id)
    is_open = request.POST.get("action") == "open"
    dialogue_set_open(campaign=found, by=request.user, is_open=is_open)
    messages.success(request, "The campaign is open." if is_open else "The campaign is closed.")
    return redirect("evaluation:dialogue", request.project.slug, found.pk)


@require_safe
@project_page(STAFF)
def dialogue_file(request: Request, dialogue_id: str) -> HttpResponseBase:
    """Every conversation with both branches, a line each."""
    found = _campaign(request, dialogue_id)
    lines = (
        json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in conversations_rows(found)
    )
    return download_response(Export(f"dialogue-{found.pk}.jsonl", MEDIA["jsonl"], lines))


@require_safe
@project_page(STAFF)
def dialogue_conversation(request: Request, dialogue_id: str, key: str) -> HttpResponse:
    found = _campaign(request, dialogue_id)
    try:
        talk = conversation_read(campaign=found, key=key)
    except Missing as error:
        raise Http404(error.message) from error
    context = {
        "page_title": f"Conversation {talk.key[:8]}",
        "nav": "dialogues",
        "campaign": found,
        "talk": talk,
        "rows": screen.read(found, talk),
    }
    return render(request, "evaluation/dialogue_conversation.html", context)


def _campaign(request: Request, dialogue_id: str) -> DialogueCampaign:
    try:
        return dialogue_get(project=request.project, dialogue=dialogue_id)
    except Missing as error:
        raise Http404(error.message) from error


# Conversations.


@never_cache
@require_safe
@project_page(LABELERS)
def conversations(request: Request) -> HttpResponse:
    """What can be begun or gone on with, and what one has said so far."""
    return _listed(request)


def _listed(request: Request, refused: DomainError | None = None) -> HttpResponse:
    blocked = closed_reason(project=request.project, annotator=request.user)
    context = {
        "page_title": screen.gettext("Conversations"),
        "nav": "conversations",
        "offers": dialogues_open(project=request.project, user=request.user),
        "mine": conversations_of(project=request.project, user=request.user)[:100],
        "blocked": blocked,
        "refused": refused,
        "key": screen.new_key(),
    }
    return render(request, "evaluation/conversations.html", context, status=409 if refused else 200)


@require_POST
@project_page(LABELERS)
def conversation_begin(request: Request, dialogue_id: str) -> HttpResponse:
    campaign = _campaign(request, dialogue_id)
    given = {name: request.POST.get(name, "") for name in ("key", "topic")}
    try:
        talk = conversation_start(campaign=campaign, user=request.user, **given)
    except DomainError as error:
        return _listed(request, error)
    return redirect("evaluation:conversation", request.project.slug, talk.key)


@never_cache
@require_safe
@project_page(LABELERS)
def conversation(request: Request, key: str) -> HttpResponse:
    """The page; for htmx what is written so far, again until both answers are there."""
    context = screen.conversation(_talk(request, key))
    if not request.htmx:
        return render(request, "evaluation/conversation.html", context)
    if context["part"] == "live":
        return render(request, "evaluation/_conversation_live.html", context)
    response = render(request, "evaluation/_conversation.html", context)
    response["HX-Retarget"] = "#pair"
    response["HX-Reswap"] = "outerHTML"
    return response


@require_POST
@project_page(LABELERS)
def conversation_act(request: Request, key: str) -> HttpResponse:
    """Send a message, choose an answer, try again, go on without comparing, report, end."""
    talk = _talk(request, key)
    try:
        _acted(request, talk)
    except (Http404, Missing) as error:
        raise Http404(str(error)) from error
    except DomainError as error:
        confirms = error.code == "personal_data"
        typed = request.POST.get("message", "")
        context = screen.conversation(talk, typed, confirms=confirms) | {"refused": error}
        status = 409 if isinstance(error, Conflict) else 422
        return render(request, "evaluation/conversation.html", context, status=status)
    return redirect("evaluation:conversation", request.project.slug, talk.key)


def _acted(request: Request, talk: Conversation) -> None:
    given, user = request.POST, request.user
    text = given.get("turn", "")[:4]
    number = int(text) if text.isdecimal() else 0
    match given.get("action", ""):
        case "send":
            message_send(
                conversation=talk,
                user=user,
                text=given.get("message", ""),
                key=given.get("key", ""),
                confirmed=given.get("confirmed") == "1",
            )
        case "choose":
            form = AnswerForm(given)
            form.check()
            turn_judge(conversation=talk, user=user, number=number, answer=form.answer_fields())
        case "again":
            turn_ask(conversation=talk, user=user, number=number)
        case "pass":
            turn_pass(conversation=talk, user=user, number=number)
        case "report":
            conversation_end(conversation=talk, user=user, problem=given.get("problem", ""))
            messages.success(request, screen.gettext("Thank you. Your report is stored."))
        case "end":
            conversation_end(conversation=talk, user=user)
        case _:
            raise DomainError("An unknown action.", field="action")


def _talk(request: Request, key: str) -> Any:
    try:
        return conversation_get(project=request.project, user=request.user, key=key)
    except Missing as error:
        raise Http404(error.message) from error
