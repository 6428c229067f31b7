"""The API of what people are asked about a reward model: graded outputs, adversarial rounds."""

from dataclasses import asdict
from datetime import datetime

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.evaluation.api.models import finding_json
from apps.evaluation.models import AdversarialRound, OutputRanking
from apps.evaluation.selectors import adversarial, ranking
from apps.evaluation.selectors.models import reward_model_get
from apps.evaluation.services.ranking import (
    N_PAIRS,
    OVERLAP,
    hard_pairs_freeze,
    outputs_send,
    round_open,
)
from apps.training.models import Checkpoint
from apps.training.selectors import run_get
from workers.contract.reasons import in_words

router = Router(tags=["reward models"])
ONE = "/projects/{slug}/reward-models/{checkpoint_id}"
_SHOWN = 50


class RankingIn(Schema):
    assessment: str = Field(max_length=40, description="the id of a finished run of kind assess")
    overlap: int = Field(OVERLAP, description="grades wanted per output, 2 to 20")


class RankingOut(Schema):
    id: str
    assessment: str
    overlap: int
    created_at: datetime
    n_outputs: int
    n_done: int = Field(description="graded by everybody asked")
    n_out: int = Field(description="left the queue: dropped, or waiting for review")
    n_grades: int
    finding: dict = Field(description="the line people_rank, from these outputs")

    @classmethod
    def of(cls, row: OutputRanking) -> "RankingOut":
        outputs = ranking.graded_outputs(row)
        progress = ranking.progress_of(row, outputs)
        return cls(
            id=row.pk,
            assessment=row.assessment_id,
            overlap=row.overlap,
            created_at=row.created_at,
            n_outputs=progress.n,
            n_done=progress.done,
            n_out=progress.out,
            n_grades=progress.grades,
            finding=finding_json(ranking.finding_of(row, outputs)),
        )


class RoundIn(Schema):
    source: str = Field(max_length=40, description="the id of a finished run of kind assess")
    n_pairs: int = Field(N_PAIRS, description="at most so many, the highest scores first; 1 to 500")


class FooledShareOut(Schema):
    value: float | None
    low: float | None
    high: float | None
    n: int


class RoundOut(Schema):
    id: str
    source: str
    batch: str = Field(description="of its comparisons")
    created_at: datetime
    n_pairs: int
    n_voted: int
    n_decided: int
    n_fooled: int = Field(description="decided for the answer that the model scores lower")
    fooled: FooledShareOut = Field(description="of the decided pairs, with Wilson's 95 % interval")

    @classmethod
    def of(cls, row: AdversarialRound) -> "RoundOut":
        counts = adversarial.round_counts(adversarial.round_pairs(row))
        share = {name: in_words(asdict(counts.share))[name] for name in FooledShareOut.model_fields}
        return cls(
            id=row.pk,
            source=row.source_id,
            batch=row.batch,
            created_at=row.created_at,
            n_pairs=counts.n,
            n_voted=counts.voted,
            n_decided=counts.decided,
            n_fooled=counts.fooled,
            fooled=FooledShareOut(**share),
        )


class HardPairsOut(Schema):
    snapshot: str = Field(description="a dataset for a reward run's input `hard`")
    state: str
    n_pairs: int


def _model(request: HttpRequest, slug: str, checkpoint_id: str) -> Checkpoint:
    project, _ = project_for(request.user, slug, STAFF)
    return reward_model_get(project=project, checkpoint_id=checkpoint_id.replace("\x00", ""))


@router.post(
    f"{ONE}/rankings",
    response={200: RankingOut, 201: RankingOut},
    auth=needs("write"),
    summary="Send outputs to people",
)
def outputs_send_to_people(
    request: HttpRequest, slug: str, checkpoint_id: str, data: RankingIn
) -> Status:
    """Send up to 100 of an assessment's outputs to people for grading. 201 the first time; 200
    with the first one's outputs afterwards."""
    model = _model(request, slug, checkpoint_id)
    run = run_get(project=model.project, run_id=data.assessment.replace("\x00", ""))
    made, is_new = outputs_send(
        checkpoint=model, assessment=run, user=request.user, overlap=data.overlap
    )
    return Status(201 if is_new else 200, RankingOut.of(made))


@router.get(
    f"{ONE}/rankings",
    response=list[RankingOut],
    auth=needs("read"),
    summary="Outputs that people grade",
)
def rankings(
    request: HttpRequest, slug: str, checkpoint_id: str, limit: int = Query(10, ge=1, le=_SHOWN)
) -> list[RankingOut]:
    """What was sent, newest first, and how far people are."""
    rows = ranking.rankings_of(_model(request, slug, checkpoint_id))
    return [RankingOut.of(row) for row in rows[:limit]]


@router.post(
    f"{ONE}/adversarial-rounds",
    response={200: RoundOut, 201: RoundOut},
    auth=needs("write"),
    summary="Open an adversarial round",
)
def round_open_for_model(
    request: HttpRequest, slug: str, checkpoint_id: str, data: RoundIn
) -> Status:
    """Ask people about the answers the model likes best. 201 the first time; 200 with the first
    one's round afterwards."""
    model = _model(request, slug, checkpoint_id)
    run = run_get(project=model.project, run_id=data.source.replace("\x00", ""))
    made, is_new = round_open(checkpoint=model, source=run, user=request.user, n_pairs=data.n_pairs)
    return Status(201 if is_new else 200, RoundOut.of(made))


@router.get(
    f"{ONE}/adversarial-rounds",
    response=list[RoundOut],
    auth=needs("read"),
    summary="Adversarial rounds, newest first",
)
def rounds(
    request: HttpRequest, slug: str, checkpoint_id: str, limit: int = Query(10, ge=1, le=_SHOWN)
) -> list[RoundOut]:
    """Rounds of the model, newest first, and how often it was fooled."""
    rows = adversarial.rounds_of(_model(request, slug, checkpoint_id))
    return [RoundOut.of(row) for row in rows[:limit]]


@router.post(
    f"{ONE}/adversarial-rounds/{{round_id}}/hard-pairs",
    response={202: HardPairsOut},
    auth=needs("write"),
    summary="Freeze what fooled the model",
)
def round_freeze_hard_pairs(
    request: HttpRequest, slug: str, checkpoint_id: str, round_id: str
) -> Status:
    """Have the pairs frozen that fooled the model; the same pairs give the same dataset."""
    model = _model(request, slug, checkpoint_id)
    found = adversarial.round_get(checkpoint=model, round_id=round_id.replace("\x00", ""))
    made, _ = hard_pairs_freeze(round_=found, user=request.user)
    n_pairs = len(made.recipe["filters"]["comparisons"])
    return Status(202, HardPairsOut(snapshot=made.pk, state=made.state, n_pairs=n_pairs))
