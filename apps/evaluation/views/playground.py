"""Asking one or two models by hand, their answers side by side, and the pair sent to people."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.models import Project
from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError, Missing
from apps.common.http import Request
from apps.evaluation.forms import QuestionForm
from apps.evaluation.services.playground import (
    Question,
    batch_of,
    question_ask,
    question_get,
    question_stop,
    question_take_back,
    question_to_people,
)
from apps.labeling.forms.sending import SendPairsForm
from apps.labeling.selectors import settings_get
from apps.labeling.selectors.batches import batch_sent
from apps.training.models import Checkpoint
from apps.training.selectors.pages import checkpoint_get
from workers.contract import asking

_STATES = {
    asking.WAITING: "Waiting",
    asking.LOADING: "The model is being loaded",
    asking.WRITING: "Writing",
    asking.ENDED: "Ended by itself",
    asking.CUT: "Cut at the longest answer",
    asking.OUT_OF_TIME: f"Ended after {asking.ANSWER_SECONDS:.0f} s",
    asking.STOPPED: "Stopped",
    asking.FAILED: "Failed",
}


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def playground(request: Request) -> HttpResponse:
    """The form; what is typed is asked and leads to the page of the question."""
    given = request.POST if request.method == "POST" else request.GET
    before, earlier = _earlier(request.project, given)
    form = QuestionForm(
        request.POST if request.method == "POST" else None,
        project=request.project,
        model=_named(request.project, given.get("model", "")),
        initial=_initial(given, before),
        has_earlier=bool(earlier),
    )
    if request.method == "POST" and form.is_valid():
        try:
            if form.cleaned_data["after"] and not earlier:
                raise Missing("The conversation before this is no longer kept.")
            asked = question_ask(project=request.project, user=request.user, **form.asked(earlier))
            return redirect("evaluation:question", request.project.slug, asked.id)
        except DomainError as error:
            form.take(error)
    return _page(request, form, earlier=earlier)


@require_http_methods(["GET", "HEAD"])
@project_page(STAFF)
def question(request: Request, question_id: str) -> HttpResponse:
    """The answers, for htmx alone and again while they are written; after the question was
    forgotten, what became of its pair."""
    try:
        found = question_get(project=request.project, question_id=question_id)
    except Missing:
        if not batch_sent(project_id=request.project.pk, batch=batch_of(question_id)).n:
            raise
        context = _to_people(request.project, question_id, None) | {"nav": "models"}
        context["page_title"] = "A pair of the playground"
        return render(request, "evaluation/question_sent.html", context)
    return _shown(request, found)


@require_POST
@project_page(STAFF)
def question_act(request: Request, question_id: str) -> HttpResponse:
    """Stop it; send its pair to people; take that back."""
    action = request.POST.get("action", "")
    page = reverse("evaluation:question", args=[request.project.slug, question_id])
    if action == "take_back":
        n = question_take_back(project=request.project, question_id=question_id, by=request.user)
        messages.success(request, "The pair was taken back." if n else "It was not in the queue.")
        kept = reverse("evaluation:playground", args=[request.project.slug])
        try:
            question_get(project=request.project, question_id=question_id)
        except Missing:
            return redirect(kept)
        return redirect(page)
    found = question_get(project=request.project, question_id=question_id)
    if action == "stop":
        question_stop(question=found)
        if request.htmx:
            return _shown(request, question_get(project=request.project, question_id=question_id))
    elif action == "send":
        form = _send_form(request.project, request.POST)
        if not form.is_valid():
            return _shown(request, found, form=form)
        try:
            question_to_people(question=found, by=request.user, **form.cleaned_data)
        except DomainError as error:
            return _shown(request, found, form=form, refused=error.message)
        messages.success(request, "The pair is in the label queue.")
    return redirect(page)


def _shown(
    request: Request, found: Question, *, form: SendPairsForm | None = None, refused: str = ""
) -> HttpResponse:
    context = {"question": found, "answers": _answers(request.project, found), "refused": refused}
    context |= _to_people(request.project, found.id, found, form)
    if request.htmx:
        return render(request, "evaluation/_question.html", context)
    initial = {**found.sampling, "prompt": found.messages[-1]["content"]}
    initial |= dict(zip(("model", "other"), (one.pk for one in found.models), strict=False))
    initial["system"] = _system(found.messages)
    again = QuestionForm(
        project=request.project,
        model=found.models[0] if found.models else None,
        initial=initial,
    )
    earlier = [one for one in found.messages[:-1] if one["role"] != "system"]
    context |= {"earlier_asked": earlier, "asked": found.messages[-1]["content"]}
    return _page(
        request, again, status=422 if refused or (form and form.errors) else 200, **context
    )


def _page(
    request: Request, form: QuestionForm, *, status: int = 200, **context: Any
) -> HttpResponse:
    context |= {
        "form": form,
        "kept_minutes": asking.KEPT_SECONDS // 60,
        "page_title": "Playground",
        "nav": "models",
    }
    status = 422 if form.errors else status
    return render(request, "evaluation/playground.html", context, status=status)


def _answers(project: Project, found: Question) -> list[dict[str, Any]]:
    """Beside each other, each with what can be done next."""
    here = reverse("evaluation:playground", args=[project.slug])
    rows = []
    for place, (model, said) in enumerate(zip(found.models, found.answers, strict=False)):
        side = "ab"[place]
        rows.append(
            {
                "side": side,
                "letter": side.upper(),
                "model": model,
                "said": said,
                "state": _STATES.get(said.state, said.state),
                "error": said.error["message"] if said.error else "",
                "is_live": found.is_live and said.state not in asking.FINAL,
                "per_second": said.tokens / said.seconds if said.seconds > 0 else None,
                "continue_url": f"{here}?{urlencode({'after': found.id, 'side': side})}"
                if said.text.strip() and not found.is_live
                else "",
            }
        )
    return rows


def _to_people(
    project: Project, question_id: str, found: Question | None, form: SendPairsForm | None = None
) -> dict[str, Any]:
    votes = settings_get(project=project).overlap
    batch = batch_of(question_id)
    return {
        "sent": batch_sent(project_id=project.pk, batch=batch),
        "n": 1 if found is not None and not found.not_a_pair else 0,
        "not_a_pair": found.not_a_pair if found is not None else "",
        "votes": votes,
        "price": votes,
        "send_form": form or _send_form(project),
        "here": reverse("evaluation:question_act", args=[project.slug, question_id]),
        "list_url": f"{reverse('labeling:comparisons', args=[project.slug])}"
        f"?{urlencode({'batch': batch})}",
    }


def _send_form(project: Project, data: QueryDict | None = None) -> SendPairsForm:
    rules = settings_get(project=project)
    initial = {"votes": rules.overlap, "priority": 0.0}
    return SendPairsForm(data, most=rules.max_overlap, initial=initial)


def _earlier(
    project: Project, given: QueryDict
) -> tuple[Question | None, Sequence[Mapping[str, str]]]:
    """The question that this one continues, and all its turns with the answer of one side."""
    name, side = given.get("after", ""), given.get("side", "")
    if not name or side not in ("a", "b"):
        return None, ()
    try:
        before = question_get(project=project, question_id=name)
    except Missing:
        return None, ()
    place = "ab".index(side)
    if before.is_live or place >= len(before.answers):
        return None, ()
    said = {"role": "assistant", "content": before.answers[place].text}
    return before, [*before.messages, said]


def _initial(given: QueryDict, before: Question | None) -> dict[str, Any]:
    if before is None:
        return {"model": given.get("model", "")}
    models = dict(zip(("model", "other"), (one.pk for one in before.models), strict=False))
    return {**before.sampling, **models, "after": before.id, "side": given.get("side", "")}


def _named(project: Project, name: str) -> Checkpoint | None:
    if not name or "\x00" in name:
        return None
    try:
        return checkpoint_get(project=project, checkpoint_id=name)
    except Missing:
        return None


def _system(turns: Sequence[Mapping[str, str]]) -> str:
    return turns[0]["content"] if turns[0]["role"] == "system" else ""
