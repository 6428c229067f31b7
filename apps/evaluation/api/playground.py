"""The API of the playground: questions to models by hand."""

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.evaluation.services.playground import (
    DEFAULTS,
    Question,
    batch_of,
    question_ask,
    question_get,
    question_stop,
    question_take_back,
    question_to_people,
)
from apps.labeling.selectors.batches import batch_sent
from apps.labeling.services import HIGHEST_PRIORITY
from workers.contract import asking

router = Router(tags=["playground"])
QUESTION = "/projects/{slug}/playground/{question_id}"


class ModelQuestionIn(Schema):
    models: list[str] = Field(description="ids of one or two models that answer")
    messages: str | list[dict[str, Any]] = Field(
        description="a text, or a list of {role, content} that ends with the user's; at most "
        f"{asking.MAX_CHARACTERS:,} characters"
    )
    temperature: float = Field(
        DEFAULTS["temperature"], description=f"0 to {asking.MAX_TEMPERATURE:g}"
    )
    top_p: float = Field(DEFAULTS["top_p"], description="0.01 to 1")
    max_new_tokens: int = Field(
        DEFAULTS["max_new_tokens"], description=f"1 to {asking.MAX_NEW_TOKENS:,}"
    )
    seed: int = Field(DEFAULTS["seed"], description="the same seed draws the same answer")


class ModelAnswerOut(Schema):
    model: str = Field(description="the checkpoint's id")
    state: str = Field(
        description="waiting, loading, writing; ended, cut, out_of_time, stopped, failed"
    )
    text: str = Field(description="as far as it is written")
    tokens: int
    seconds: float = Field(description="of writing")
    error: str = Field(description="why it failed")


class ModelQuestionOut(Schema):
    id: str
    live: bool = Field(description="whether answers are still to come")
    answers: list[ModelAnswerOut] = Field(description="in the order of the models")
    error: str = Field(description="why no model was asked")
    note: str = Field(description="what it waits for")


class SentPairOut(Schema):
    """The two answers as a comparison in the label queue."""

    queued: int
    voted: int
    votes: int = Field(description="votes cast")
    asked: int = Field(description="votes asked for")


class SendPairIn(Schema):
    votes: int | None = Field(None, ge=1, description="the project's own unless set")
    priority: float = Field(0.0, ge=0, le=HIGHEST_PRIORITY, description="over 0: before all others")


def _question(request: HttpRequest, slug: str, question_id: str) -> Question:
    project, _ = project_for(request.user, slug, STAFF)
    return question_get(project=project, question_id=question_id)


def _told(question: Question) -> ModelQuestionOut:
    answers = [
        ModelAnswerOut(
            model=model.pk,
            state=said.state,
            text=said.text,
            tokens=said.tokens,
            seconds=said.seconds,
            error=said.error["message"] if said.error else "",
        )
        for model, said in zip(question.models, question.answers, strict=False)
    ]
    return ModelQuestionOut(
        id=question.id,
        live=question.is_live,
        answers=answers,
        error=question.error,
        note=question.note,
    )


def _sent(project_id: str, question_id: str) -> SentPairOut:
    found = batch_sent(project_id=project_id, batch=batch_of(question_id))
    return SentPairOut(queued=found.n, voted=found.voted, votes=found.votes, asked=found.asked)


@router.post(
    "/projects/{slug}/playground",
    auth=needs("train"),
    response={202: ModelQuestionOut},
    summary="Ask one or two models by hand",
)
def ask(request: HttpRequest, slug: str, payload: ModelQuestionIn) -> Status:
    """Look at the question until it is not `live`. 409 `question_running` while your last one is
    being answered, 503 `no_answerer` where no answerer runs; nothing was sent then."""
    project, _ = project_for(request.user, slug, STAFF)
    return Status(202, _told(question_ask(project=project, user=request.user, **payload.dict())))


@router.get(
    QUESTION, auth=needs("read"), response=ModelQuestionOut, summary="What models answered so far"
)
def question(request: HttpRequest, slug: str, question_id: str) -> ModelQuestionOut:
    """Kept for an hour."""
    return _told(_question(request, slug, question_id))


@router.post(
    f"{QUESTION}/stop",
    auth=needs("train"),
    response=ModelQuestionOut,
    summary="Stop models that answer",
)
def stop(request: HttpRequest, slug: str, question_id: str) -> ModelQuestionOut:
    """What is written until then is kept."""
    found = _question(request, slug, question_id)
    question_stop(question=found)
    return _told(question_get(project=found.project, question_id=question_id))


@router.post(
    f"{QUESTION}/pair",
    auth=needs("train"),
    response=SentPairOut,
    summary="Have people compare the two answers",
)
def send_pair(
    request: HttpRequest, slug: str, question_id: str, payload: SendPairIn | None = None
) -> SentPairOut:
    """409 `no_pair` where two models have not answered, or the pair is there already."""
    found = _question(request, slug, question_id)
    question_to_people(question=found, by=request.user, **(payload.dict() if payload else {}))
    return _sent(found.project.pk, question_id)


@router.delete(
    f"{QUESTION}/pair",
    auth=needs("train"),
    response=SentPairOut,
    summary="Take the pair out of the label queue",
)
def take_back_pair(request: HttpRequest, slug: str, question_id: str) -> SentPairOut:
    """Also after the question itself was forgotten. 409 once somebody has voted."""
    project, _ = project_for(request.user, slug, STAFF)
    question_take_back(project=project, question_id=question_id, by=request.user)
    return _sent(project.pk, question_id)
