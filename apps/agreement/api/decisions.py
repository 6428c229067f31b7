"""The API of the decision rule: preview one, apply one, compare the methods."""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Router, Schema
from pydantic import ConfigDict

from apps.accounts.api_auth import needs
from apps.accounts.permissions import ADMIN, READERS, STAFF, project_for
from apps.agreement.selectors.decisions import consensus_get, consensus_report_get, rule_preview
from apps.agreement.services.consensus import consensus_compare, decide_by_switch
from apps.common.errors import DomainError, Missing
from apps.labeling.services.projects import setting_checked
from apps.labeling.services.redeciding import policy_of

router = Router(tags=["agreement"])


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
    chance: float | None = Field(description="share that coin-flippers would get through")
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
    ways: list[dict[str, Any]]
    fit: FitOut | None


@router.post(
    "/projects/{slug}/decisions/preview",
    auth=needs("read"),
    response=RulePreviewOut,
    summary="What a decision rule would make of the votes there are",
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
    } | {name: figures[name] for name in ("recommended", "proposed", "reason", "ways")}
