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


class AgreementOut(Schema):
    computed_at: datetime
    newer_votes: bool = Field(description="votes were cast since")
    n_votes: int
    n_comparisons: int
    n_annotators: int
    statistics: dict[str, EstimateOut] = Field(description="percent, alpha, fleiss, ac1")
    decisions: dict[str, Any]
    rule: dict[str, Any]
    chance: dict[str, float | None] = Field(
        description="what random voters would get through the rule"
    )


@router.get(
    "/projects/{slug}/agreement",
    auth=needs("read"),
    response=AgreementOut,
    summary="Agreement of the random stratum",
)
def agreement(request: HttpRequest, slug: str) -> dict[str, Any]:
    project, _role = project_for(request.user, slug, READERS)
    report = votes.report_get(project=project) or report_refresh(project=project)
    return {
        "computed_at": report.computed_at,
        "newer_votes": votes.newest_vote_id(project=project) > report.last_vote_id,
        "n_votes": report.n_votes,
        "n_comparisons": report.n_comparisons,
    } | {
        name: report.figures[name]
        for name in ("n_annotators", "statistics", "decisions", "rule", "chance")
    }
