"""Asking models by hand: a question to one or two, its answers, and the pair sent to people."""

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing, Unavailable
from apps.evaluation import dispatch
from apps.evaluation.services.scoring import messages_checked
from apps.labeling.models import Comparison, Response
from apps.labeling.services import batch_queue, batch_take_back
from apps.training.models import Checkpoint
from apps.training.services.kinds import ANSWERING
from workers.contract import asking
from workers.contract.asking import Answer, AskReply, AskRequest

SOURCE = "playground"  # of the prompts, and how their batches begin
_ID = re.compile(r"[0-9a-f]{32}")
USABLE = frozenset({asking.ENDED, asking.CUT})  # what the model itself made of the question
_WHY_NOT = {
    asking.STOPPED: "was stopped",
    asking.OUT_OF_TIME: "ran out of time",
    asking.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked of which models, and what they have answered so far. `sampling`: temperature,
    top_p, max_new_tokens, seed. `error`: why no model was asked; `note`: what it waits for."""

    id: str
    project: Project
    models: Sequence[Checkpoint]
    messages: Sequence[Mapping[str, str]]
    sampling: Mapping[str, Any]
    answers: Sequence[Answer]
    is_live: bool
    error: str = ""
    note: str = ""

    @property
    def batch(self) -> str:
        return batch_of(self.id)

    @property
    def not_a_pair(self) -> str:
        """Why it cannot be sent to people; "" where it can."""
        if self.is_live or len(self.models) != 2:
            return "Two models must have answered."
        for name, one in zip("AB", self.answers, strict=False):
            if one.state not in USABLE:
                return f"Answer {name} {_WHY_NOT.get(one.state, 'is not there')}."
            if not one.text.strip():
                return f"Answer {name} is empty."
        return "" if len(self.answers) == 2 else "Two models must have answered."


DEFAULTS: Mapping[str, Any] = {
    one.name: one.default
    for one in fields(AskRequest)
    if one.default is not MISSING and one.name != "answer_seconds"
}
LIMITS: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, asking.MAX_TEMPERATURE),
    "top_p": (0.01, 1.0),
    "max_new_tokens": (1, asking.MAX_NEW_TOKENS),
    "seed": (0, asking.MAX_SEED),
}


def sampling_checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of how answers are drawn. Raises `DomainError` naming the field."""
    found = {**DEFAULTS, **given}
    for name, (low, high) in LIMITS.items():
        value, whole = found[name], isinstance(high, int)
        fits = type(value) is int or (type(value) is float and not whole)
        if not fits or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise DomainError(f"{name}: must be {kind} from {low:,} to {high:,}", field=name)
    return found


def batch_of(question_id: str) -> str:
    return f"{SOURCE} {question_id}"


def question_ask(
    *,
    project: Project,
    user: User,
    models: Sequence[str],
    messages: Any,
    **sampling: Any,
) -> Question:
    """Ask one or two policies of the project the same. `messages`: a text, or messages that end
    with one of the user; `sampling`: what differs from `DEFAULTS`. Errors name the field. Raises
    `Unavailable` where no answerer runs and `Conflict` while the person's last question is being
    answered; nothing is sent then."""
    drawn = sampling_checked(sampling)
    policies = policies_named(project, models)
    name = models_ask(
        project=project,
        models=policies,
        messages=messages,
        sampling=drawn,
        person=str(user.pk),
        source=SOURCE,
    )
    return question_get(project=project, question_id=name)


def models_ask(
    *,
    project: Project,
    models: Sequence[Checkpoint],
    messages: Any,
    sampling: Mapping[str, Any],
    person: str,
    source: str,
    answer_seconds: float = asking.ANSWER_SECONDS,
) -> str:
    """Put a question into the answerer's line; returns its id. person: whoever has one question
    at a time; source: what it is asked for, which `question_get` has to name again. Errors as of
    `question_ask`."""
    checked = _messages(messages)
    if not dispatch.answerer_alive():
        raise Unavailable(
            "No answerer gives a sign of life. It runs as 'answerer' beside the other workers.",
            code="no_answerer",
        )
    request = AskRequest(
        id=uuid.uuid4().hex,
        models=[{"uri": one.uri, "sha256": one.sha256} for one in models],
        messages=checked,
        artifacts_url=settings.ARTIFACTS_URL,
        answer_seconds=answer_seconds,
        **sampling,
    )
    kept = {
        "project": project.pk,
        "source": source,
        "models": [one.pk for one in models],
        "messages": checked,
        "sampling": dict(sampling),
        "at": time.time(),
    }
    dispatch.question_send(request, person=person, asked=kept)
    return request.id


def question_get(*, project: Project, question_id: str, source: str = SOURCE) -> Question:
    """Raises `Missing` for another project's, one asked for something else, and when it was
    forgotten."""
    asked = told = None
    is_final = alive = False
    if _ID.fullmatch(question_id):
        asked, told, is_final, alive = dispatch.question_read(question_id)
    if asked is None or (asked["project"], asked.get("source", SOURCE)) != (project.pk, source):
        minutes = asking.KEPT_SECONDS // 60
        raise Missing(f"There is no such question; they are kept for {minutes} minutes.")
    rows = Checkpoint.objects.filter(pk__in=asked["models"]).select_related("run").in_bulk()
    waited = time.time() - asked["at"]
    given_up = not is_final and waited > asking.GIVEN_UP_SECONDS
    error = "" if told is None or told.error is None else told.error["message"]
    if given_up:
        error = (
            f"Not answered within {asking.GIVEN_UP_SECONDS // 60} minutes: the answerer hangs or "
            "has died. Its log says more."
        )
    note = ""
    if not is_final and not given_up:
        note = _note(told, alive)
    said = told.answers if told is not None and told.answers else [Answer()] * len(asked["models"])
    found = [  # a model may have been deleted meanwhile
        (rows[pk], answer) for pk, answer in zip(asked["models"], said, strict=False) if pk in rows
    ]
    return Question(
        id=question_id,
        project=project,
        models=[model for model, _ in found],
        messages=asked["messages"],
        sampling=asked["sampling"],
        answers=[answer for _, answer in found],
        is_live=not is_final and not given_up,
        error=error,
        note=note,
    )


def _note(told: AskReply | None, alive: bool) -> str:
    if not alive:
        return "The answerer gives no sign of life. Another one answers from the beginning."
    return "Waiting for its turn" if told is None else ""


def question_stop(*, question: Question) -> None:
    """What is written until then is kept."""
    stopped = tuple(Answer(asking.STOPPED) for _ in question.answers)
    dispatch.question_stop(question.id, unbegun=AskReply(question.id, stopped))


def question_to_people(
    *, question: Question, by: User, votes: int | None = None, priority: float = 0.0
) -> None:
    """Put the two answers into the label queue as a comparison. Raises `Conflict` where they are no
    pair or are there already."""
    if why := question.not_a_pair:
        raise Conflict(f"{why} So there is nothing to compare.", code="no_pair")
    first, second = question.answers
    row = {
        "id": f"{SOURCE}-{question.id}",
        "prompt": list(question.messages),
        "response_a": first.text,
        "response_b": second.text,
        "origin": Response.Origin.MODEL.value,
        "origin_ref_a": question.models[0].pk,
        "origin_ref_b": question.models[1].pk,
        "source": SOURCE,
        # Out of the random stratum, on which agreement is computed: somebody chose this prompt.
        "stratum": Comparison.Stratum.PRIORITY.value,
    }
    with transaction.atomic():
        report = batch_queue(
            project=question.project,
            rows=[row],
            batch=question.batch,
            votes=votes,
            priority=priority,
        )
        if not report.n_created:
            why = report.problems[0].message if report.problems else "The pair is known"
            raise Conflict(f"Nothing was sent: {why.rstrip('.')}.", code="no_pair")
        audit_record(
            action="playground.sent",
            actor=by,
            project=question.project,
            subject=question.id,
            details={"models": [one.pk for one in question.models], **question.sampling},
        )


def question_take_back(*, project: Project, question_id: str, by: User) -> int:
    """Out of the queue again; how many pairs that were. `Conflict` once somebody has voted. Also
    after the question itself was forgotten."""
    with transaction.atomic():
        n = batch_take_back(project=project, batch=batch_of(question_id))
        if n:
            audit_record(
                action="playground.taken_back", actor=by, project=project, subject=question_id
            )
    return n


def policies_named(
    project: Project, names: Sequence[str], *, least: int = 1, most: int = asking.MAX_MODELS
) -> list[Checkpoint]:
    """Raises `DomainError` or `Missing`, with the field "models"."""
    if not least <= len(names) <= most:
        raise DomainError(f"models: name {least} to {most}", field="models")
    if len(set(names)) < len(names):
        raise DomainError(
            "models: a model is named twice; choose another one, or leave it out", field="models"
        )
    if any("\x00" in name for name in names):
        raise DomainError("models: an id holds no NUL", field="models")
    rows = Checkpoint.objects.filter(project=project, pk__in=names).select_related("run").in_bulk()
    for place, name in enumerate(names):
        if name not in rows:
            raise Missing(f"models: there is no model '{name}' in this project", field="models")
        if rows[name].run.kind not in ANSWERING:
            raise DomainError(
                f"models: number {place + 1} is of a run of the kind {rows[name].run.kind} and "
                "writes no answers",
                field="models",
            )
    return [rows[name] for name in names]


def _messages(given: Any) -> list[dict[str, str]]:
    try:
        found = messages_checked(given)
    except ValueError as error:
        raise DomainError(f"messages: {error}", field="messages") from error
    if len(found) > asking.MAX_MESSAGES:
        raise DomainError(f"messages: are more than {asking.MAX_MESSAGES}", field="messages")
    if not found[-1]["content"].strip():
        raise DomainError("messages: the last one is empty", field="messages")
    size = sum(len(one["content"]) for one in found)
    if size > asking.MAX_CHARACTERS:
        raise DomainError(
            f"messages: {size:,} characters are more than {asking.MAX_CHARACTERS:,}",
            field="messages",
            code="too_large",
        )
    return found
