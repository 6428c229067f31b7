"""The API of agreement: figures, and the decision rule."""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Router, Schema
from pydantic import ConfigDict

from apps.accounts.api_auth import needs
from apps.accounts.permissions import ADMIN, READERS, STAFF, project_for
from apps.agreement.screens.results import pair_rows, ranking_rows
from apps.agreement.selectors import votes
from apps.agreement.selectors.decisions import consensus_get, consensus_report_get, rule_preview
from apps.agreement.services.consensus import consensus_compare, decide_by_switch
from apps.agreement.services.reports import report_refresh
from apps.common.errors import DomainError, Missing
from apps.labeling.services.projects import setting_checked
from apps.labeling.services.redeciding import policy_of

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


# Which model is better.


class WinRateOut(Schema):
    """Of a model over the votes on it, ties as half; intervals 95 %, by prompts and people."""

    win_rate: float | None
    low: float | None
    high: float | None
    votes: int
    prompts: int
    people: int
    no_interval: str = Field(description="too_few_people, too_few_prompts, all_alike… or empty")


class PairOfModelsOut(WinRateOut):
    model: str = Field(description="whose wins and win rate these are")
    against: str
    wins: int
    losses: int
    ties: int
    both_bad: int


class RankedModelOut(Schema):
    model: str
    rank_best: int = Field(description="by differences between models, Holm over all pairs")
    rank_worst: int
    strength: float = Field(description="log odds against a model of average strength")
    strength_low: float | None
    strength_high: float | None


class ControlOut(Schema):
    name: str = Field(description="side: the left answer; length: per factor e in characters")
    value: float = Field(description="log odds")
    low: float | None
    high: float | None


class OrderOut(Schema):
    reason: str = Field(
        description="why there is no order (no_votes, not_connected, separated) or none with "
        "intervals (too_few_people, too_few_prompts, unstable); empty where there is"
    )
    n: int = Field(description="votes, without those that both answers are bad")
    n_both_bad: int
    n_prompts: int
    n_people: int
    models: list[RankedModelOut]
    controls: list[ControlOut]


class TopicRateOut(WinRateOut):
    topic: str
    model: str


class ModelRankingOut(Schema):
    computed_at: datetime
    newer_votes: bool = Field(description="votes were cast since")
    votes_without_models: int
    as_voted: OrderOut
    controlled: OrderOut = Field(description="at equal length, and on no side")
    pairs: list[PairOfModelsOut]
    by_topic: list[TopicRateOut]


@router.get(
    "/projects/{slug}/ranking",
    auth=needs("read"),
    response=ModelRankingOut,
    summary="Which model is better: pairs, Bradley–Terry order, topics",
)
def ranking(request: HttpRequest, slug: str) -> dict[str, Any]:
    project, _role = project_for(request.user, slug, READERS)
    report = votes.report_get(project=project) or report_refresh(project=project)
    figures = report.figures["models"]
    rows = list(ranking_rows(figures))
    return {
        "computed_at": report.computed_at,
        "newer_votes": votes.newest_vote_id(project=project) > report.last_vote_id,
        "votes_without_models": figures["n_unnamed"],
        "as_voted": figures["orders"]["plain"]
        | {"models": [row for row in rows if not row["topic"] and not row["controlled"]]},
        "controlled": figures["orders"]["controlled"]
        | {"models": [row for row in rows if row["controlled"]]},
        "pairs": pair_rows(figures),
        "by_topic": [row for row in rows if row["topic"]],
    }


# The API of the decision rule: preview one, apply one, compare the methods.


class RuleIn(Schema):
    """What is left out is as in the current rule; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")

    decide_by: Literal["votes", "one_coin", "dawid_skene", "mace"] | None = None
    least_votes: int | None = None
    least_agreeing: int | None = None
    least_share: float | None = None
    least_posterior: float | None = None
    max_overlap: int | None = None
    stop_early: bool | None = None


class GoldShareOut(Schema):
    value: float | None
    low: float | None
    high: float | None
    n: int


class RulePreviewOut(Schema):
    """Over the comparisons that votes may decide."""

    n: int
    outcomes: dict[str, int] = Field(description="comparisons by outcome under this rule")
    chance: float | None = Field(description="share that random voters would get through")
    gold: GoldShareOut | None = Field(description="right on known answers, of what is kept")
    accepted_now: int
    newly_accepted: int
    taken_back: int
    flipped: int


class RuleChangedOut(Schema):
    before: dict[str, int] = Field(description="comparisons by outcome")
    after: dict[str, int]


class FitOut(Schema):
    method: str
    n_votes: int
    fitted_at: datetime
    priors: list[float] = Field(description="probability of a, b, tie, both_bad")


class WaysOut(Schema):
    """Counting and every model on the project's own votes."""

    computed_at: datetime
    n_votes: int
    recommended: str
    proposed: str = Field(description="the model worth switching to; empty where there is none")
    reason: str
    trusted: bool | None = Field(
        description="whether posteriors of the recommended model may be read as probabilities; "
        "null: it predicts votes well, and no known answers tell how often it is right"
    )
    trust: str = Field(description="that as a sentence")
    caution: str | None = Field(description="where many clear majorities are overruled")
    ways: list[dict[str, Any]]
    fit: FitOut | None


@router.post(
    "/projects/{slug}/decisions/preview",
    auth=needs("read"),
    response=RulePreviewOut,
    summary="Preview a decision rule on the existing votes",
)
def decisions_preview(request: HttpRequest, slug: str, payload: RuleIn) -> dict[str, Any]:
    project, _role = project_for(request.user, slug, READERS)
    named = payload.dict(exclude_none=True)
    checked = {name: setting_checked(name, value) for name, value in named.items()}
    policy = replace(policy_of(project=project), **checked)
    try:
        policy.rule(), policy.posterior_rule()
    except ValueError as error:
        field = str(error).split(" ", 1)[0]
        raise DomainError(f"This rule cannot work: {error}.", field=field) from error
    shown = rule_preview(project=project, policy=policy)
    return asdict(shown)


@router.post(
    "/projects/{slug}/decisions/rule",
    auth=needs("admin"),
    response=RuleChangedOut,
    summary="Apply a decision rule; everything is decided again",
)
def decisions_rule(request: HttpRequest, slug: str, payload: RuleIn) -> Any:
    project, _role = project_for(request.user, slug, frozenset({ADMIN}))
    return decide_by_switch(project=project, by=request.user, **payload.dict(exclude_none=True))


@router.get(
    "/projects/{slug}/decisions/ways",
    auth=needs("read"),
    response=WaysOut,
    summary="The ways to decide, compared on the project's own votes",
)
def decisions_ways(request: HttpRequest, slug: str) -> dict[str, Any]:
    project, _role = project_for(request.user, slug, READERS)
    report = consensus_report_get(project=project)
    if report is None:
        raise Missing("The ways to decide were not compared yet.", code="not_compared")
    return _ways(report, project)


@router.post(
    "/projects/{slug}/decisions/ways",
    auth=needs("write"),
    response=WaysOut,
    summary="Compare the ways to decide again, on the votes as they are now",
)
def decisions_compare(request: HttpRequest, slug: str) -> dict[str, Any]:
    project, _role = project_for(request.user, slug, STAFF)
    report = consensus_compare(project=project)
    if report is None:
        raise Missing("There are no votes yet.", code="no_votes")
    return _ways(report, project)


def _ways(report: Any, project: Any) -> dict[str, Any]:
    figures = report.figures
    return {
        "computed_at": report.computed_at,
        "n_votes": report.n_votes,
        "fit": consensus_get(project=project),
        "trust": figures.get("trust", ""),
        "caution": figures.get("caution"),
    } | {name: figures[name] for name in ("recommended", "proposed", "reason", "trusted", "ways")}
