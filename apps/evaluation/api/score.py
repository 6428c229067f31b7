"""The API of scores: a reward model's opinion of answers."""

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.evaluation.services.scoring import LONGEST_WAIT_S, Scoring, scores_get, scores_request
from workers.contract.jobs import PRECISIONS
from workers.contract.scores import MAX_CHARACTERS, MAX_ITEM_CHARACTERS, MAX_ITEMS

router = Router(tags=["scores"])


class ScoreIn(Schema):
    items: list[dict[str, Any]] = Field(
        description=f"1 to {MAX_ITEMS} of {{prompt, response}}: prompt a text or a list of "
        "{role, content} that ends with the user's, response a text; at most "
        f"{MAX_ITEM_CHARACTERS:,} characters an item and {MAX_CHARACTERS:,} together"
    )
    precision: str = Field(
        "float32",
        description=f"{', '.join(PRECISIONS)}; others than float32 are used once they were seen to "
        "order this model's answers alike, and refused where they do not",
    )
    wait_s: float = Field(
        5.0, ge=0, le=LONGEST_WAIT_S, description="seconds to wait for the scores"
    )


class ScoreOut(Schema):
    score: float = Field(description="raw, without origin or unit: compare differences")
    parts: dict[str, float] = Field(description="of an ensemble each member's raw score")
    disagreement: float | None = Field(
        description="of an ensemble: deviation between its members, in validation deviations"
    )
    truncated: bool = Field(description="whether the model could not read the answer to its end")


class ScoresOut(Schema):
    id: str
    model: str = Field(description="the checkpoint's id")
    scores: list[ScoreOut] = Field(description="in the order of the items")
    cached: int = Field(description="how many of them were made before")
    precision: str = Field(description="the one the scores were really made in")


class WaitingOut(Schema):
    id: str = Field(description="ask for the scores under /scores/{id}")
    model: str
    scorer_alive: bool = Field(description="whether a scorer gave a sign of life just now")


def _told(scoring: Scoring) -> Status:
    reply = scoring.reply
    if reply is None:
        body = {"id": scoring.id, "model": scoring.model, "scorer_alive": scoring.scorer_alive}
        return Status(202, body)
    body = {"id": scoring.id, "model": scoring.model, "scores": reply.scores}
    return Status(200, body | {"cached": reply.cached, "precision": reply.precision})


@router.post(
    "/models/{checkpoint_id}/score",
    auth=needs("read"),
    response={200: ScoresOut, 202: WaitingOut},
    summary="Have a reward model score answers",
)
def score(request: HttpRequest, checkpoint_id: str, payload: ScoreIn) -> Status:
    """202 with an id when the scores are not ready in time: fetch them under `/scores/{id}`.

    Requests of several callers are scored together. 503 `no_scorer` when no scorer runs,
    `scorer_busy` when too many requests wait; nothing was sent then.
    """
    return _told(scores_request(user=request.user, checkpoint_id=checkpoint_id, **payload.dict()))


@router.get(
    "/scores/{score_id}",
    auth=needs("read"),
    response={200: ScoresOut, 202: WaitingOut},
    summary="Scores that were asked for before",
)
def scores(request: HttpRequest, score_id: str) -> Status:
    """202 while they are not ready. Answers are kept for ten minutes."""
    return _told(scores_get(user=request.user, request_id=score_id))
