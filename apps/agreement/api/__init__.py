"""The API of agreement."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.permissions import READERS, project_for
from apps.agreement.selectors import votes
from apps.agreement.services.reports import report_refresh

router = Router(tags=["agreement"])


class EstimateOut(Schema):
    """A statistic: a value with its 95 % interval, or the reason why there is none."""

    value: float | None
    low: float | None
    high: float | None
    n_items: int = Field(description="comparisons with at least two votes")
    n_votes: int
    undefined: str | None = None
    no_interval: str | None = None
    level: str
    sentence: str = Field(description="how to read the number")


class CountedOut(Schema):
    """Which votes the statistics are computed on."""

    n_votes: int
    n_comparisons: int
    n_annotators: int
    left_out: dict[str, int] = Field(
        description="votes that were asked for for other reasons: repeat, audit, gold, priority, "
        "round (second rounds), extra (on contested comparisons), later (after an early stop)"
    )


class ClusteringOut(Schema):
    """What intervals treat as independent: groups, answers (that recur) or comparisons."""

    by: str
    n_groups: int
    n_answers: int | None
    reason: str | None = Field(description="why groups were not used")
    wider: float | None = Field(description="the interval of percent agreement over the naive one")


class ShareOut(Schema):
    value: float | None
    low: float | None
    high: float | None
    undefined: str | None = None
    no_interval: str | None = None


class GapOut(Schema):
    """Percent agreement in a slice minus that of the rest."""

    value: float | None
    low: float | None
    high: float | None
    adjusted: float | None = Field(description="one-sided p after Holm over all slices")
    untested: str | None
    is_worse: bool


class AgreementSliceOut(Schema):
    label: str
    n_items: int
    n_votes: int
    percent: ShareOut
    alpha: ShareOut
    gap: GapOut


class AgreementDimensionOut(Schema):
    """One way to slice: time, guideline, topic, language, prompt_length, length_gap, source."""

    key: str
    unit: str = Field(description="of time: what a slice is")
    others: int = Field(description="values that the last slice holds together")
    slices: list[AgreementSliceOut]


class PositionOut(ShareOut):
    """The chance that the left one of two equally good answers is chosen (side-flip estimate)."""

    p: float | None
    left_rate: ShareOut = Field(description="share of choices that fell on the left")
    n: int
    n_flipped: int
    sentence: str


class AmountOut(Schema):
    value: float | None
    undefined: str | None


class CostOut(Schema):
    """What labels cost; money in `currency`, by the price of a vote that the settings state."""

    n_votes: int
    by_purpose: dict[str, int]
    n_again: int
    n_kept: int
    votes_per_kept: AmountOut
    timed: int
    hours: AmountOut
    seconds_per_kept: AmountOut
    money: AmountOut
    money_per_kept: AmountOut
    currency: str
    vote_price: float


class AgreementOut(Schema):
    computed_at: datetime
    newer_votes: bool = Field(description="votes were cast since")
    n_votes: int
    n_comparisons: int
    n_annotators: int
    counted: CountedOut
    statistics: dict[str, EstimateOut] = Field(description="percent, cohen, alpha, fleiss, ac1")
    cohen_pairs: dict[str, int] = Field(
        description="pairs of people: used, sparse (under ten in common), undefined"
    )
    clustering: ClusteringOut
    two_way: dict[str, Any] = Field(
        description="percent agreement of A-or-B votes, and the ceiling against single votes"
    )
    slices: list[AgreementDimensionOut]
    position: PositionOut
    cost: CostOut
    decisions: dict[str, Any]
    rule: dict[str, Any]
    chance: dict[str, float | None] = Field(
        description="what random voters would get through the rule"
    )


PARTS = (
    "n_annotators",
    "counted",
    "statistics",
    "cohen_pairs",
    "clustering",
    "two_way",
    "position",
    "cost",
    "decisions",
    "rule",
    "chance",
)


@router.get(
    "/projects/{slug}/agreement",
    auth=needs("read"),
    response=AgreementOut,
    summary="Agreement on randomly drawn comparisons",
)
def agreement(request: HttpRequest, slug: str) -> dict[str, Any]:
    project, _role = project_for(request.user, slug, READERS)
    report = votes.report_get(project=project) or report_refresh(project=project)
    return {
        "computed_at": report.computed_at,
        "newer_votes": votes.newest_vote_id(project=project) > report.last_vote_id,
        "n_votes": report.n_votes,
        "n_comparisons": report.n_comparisons,
        "slices": report.figures["slices"]["dimensions"],
    } | {name: report.figures[name] for name in PARTS}
