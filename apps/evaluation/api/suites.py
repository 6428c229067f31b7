"""The API of regression suites: which prompts of an evaluation its policy was trained on, and the
suite that every policy is evaluated on.
"""

from datetime import datetime

from django.http import HttpRequest
from ninja import Field, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.models import Project
from apps.accounts.permissions import READERS, STAFF, project_for
from apps.evaluation.models import SuiteLaunch
from apps.evaluation.selectors.overlap import overlap_of, overlap_words
from apps.evaluation.selectors.suites import automatic_suite, suite_launches
from apps.evaluation.services import suites as services
from apps.training.selectors import run_get

router = Router(tags=["evaluation"])


class OverlapDatasetOut(Schema):
    id: str
    name: str
    sha256: str
    rows: int | None = Field(description="training rows that were compared; null: its file is gone")
    exact: int = Field(description="prompts of the evaluation that stand in it")
    near: int = Field(description="prompts of which a near-duplicate does (Jaccard at least 0.8)")


class OverlapMatchOut(Schema):
    prompt: str
    trained: str
    dataset: str
    similarity: float


class OverlapOut(Schema):
    run: str
    checked_at: datetime | None = Field(
        description="null: not yet; evaluations are compared within minutes of their end"
    )
    says: str
    prompts: int = Field(0, description="distinct prompts that the evaluation's dataset holds out")
    exact: int = 0
    near: int = 0
    rows: int = Field(0, description="training rows of all datasets that were compared")
    datasets: list[OverlapDatasetOut] = []
    unknown: list[str] = Field([], description="models whose training data nobody here knows")
    matches: list[OverlapMatchOut] = Field([], description="a few, the most alike first")


@router.get(
    "/projects/{slug}/runs/{run_id}/prompt-overlap",
    auth=needs("read"),
    response=OverlapOut,
    summary="Prompts of an evaluation that its policy was trained on",
)
def prompt_overlap(request: HttpRequest, slug: str, run_id: str) -> OverlapOut:
    """Exact and near-duplicates among the training rows of every dataset of the policy's lineage:
    of its run, the models it began as and the reward models it was optimised against."""
    project, _ = project_for(request.user, slug, READERS)
    run = run_get(project=project, run_id=run_id)
    found = overlap_of(run)
    told = {} if found is None else found.to_json() | {"rows": found.rows}
    return OverlapOut(
        run=run.pk,
        checked_at=None if found is None else run.prompt_overlap.checked_at,
        says=overlap_words(found),
        **told,
    )


AUTOMATIC = "/projects/{slug}/automatic-suite"
_RECENT = 50


class AutomaticSuiteIn(Schema):
    dataset: str = Field(description="frozen prompts with checks")
    baseline: str = Field(description="a model that every policy is compared with")
    max_new_tokens: int = Field(256, ge=1, description="of both models' answers")
    temperature: float = Field(0.0, ge=0, le=5, description="0: the likeliest token each time")


class SuiteLaunchOut(Schema):
    run: str = Field(description="the policy run that ended")
    evaluation: str | None = Field(description="what was launched; null: refused, or deleted since")
    code: str = Field(description="of the refusal; empty for none")
    problem: str = Field(description="why nothing was launched; empty for none")
    at: datetime


class AutomaticSuiteOut(Schema):
    since: datetime | None = Field(
        description="policies whose training ended from then on are evaluated; null: it is off"
    )
    dataset: str | None
    baseline: str | None
    max_new_tokens: int
    temperature: float
    launches: list[SuiteLaunchOut] = Field(description="newest first, at most 50")


def _launch_out(row: SuiteLaunch) -> SuiteLaunchOut:
    return SuiteLaunchOut(
        run=row.run_id,
        evaluation=row.evaluation_id,
        code=row.code,
        problem=row.problem,
        at=row.at,
    )


def _automatic(project: Project) -> AutomaticSuiteOut:
    row = automatic_suite(project)
    return AutomaticSuiteOut(
        since=row.since if row else None,
        dataset=row.dataset_id if row else None,
        baseline=row.baseline_id if row else None,
        max_new_tokens=row.max_new_tokens if row else 256,
        temperature=row.temperature if row else 0.0,
        launches=[_launch_out(one) for one in suite_launches(project)[:_RECENT]],
    )


@router.get(
    AUTOMATIC,
    auth=needs("read"),
    response=AutomaticSuiteOut,
    summary="The suite that every policy is evaluated on",
)
def automatic_suite_get(request: HttpRequest, slug: str) -> AutomaticSuiteOut:
    """The setting, and what became of it after the newest policy runs."""
    project, _ = project_for(request.user, slug, STAFF)
    return _automatic(project)


@router.put(
    AUTOMATIC,
    auth=needs("train"),
    response=AutomaticSuiteOut,
    summary="Evaluate every policy on a suite",
)
def automatic_suite_set(
    request: HttpRequest, slug: str, payload: AutomaticSuiteIn
) -> AutomaticSuiteOut:
    """From now on each SFT, DPO, KTO, PPO and GRPO run that ends well is followed by an evaluation
    on the suite. A launch that is refused (quota, prompts it learned from) is listed with its
    reason."""
    project, _ = project_for(request.user, slug, STAFF)
    services.automatic_suite_set(
        project=project,
        dataset_id=payload.dataset,
        baseline_id=payload.baseline,
        max_new_tokens=payload.max_new_tokens,
        temperature=payload.temperature,
        user=request.user,
    )
    return _automatic(project)


@router.delete(
    AUTOMATIC, auth=needs("train"), response=AutomaticSuiteOut, summary="Stop evaluating by itself"
)
def automatic_suite_stop(request: HttpRequest, slug: str) -> AutomaticSuiteOut:
    """Evaluations under way go on."""
    project, _ = project_for(request.user, slug, STAFF)
    services.automatic_suite_stop(project=project, user=request.user)
    return _automatic(project)


@router.post(
    AUTOMATIC + "/{run_id}",
    auth=needs("train"),
    response=SuiteLaunchOut,
    summary="Launch a suite that was refused",
)
def automatic_suite_again(request: HttpRequest, slug: str, run_id: str) -> SuiteLaunchOut:
    """After the policy run `run_id`, now that the reason may be gone."""
    project, _ = project_for(request.user, slug, STAFF)
    row = services.suite_try_again(project=project, run_id=run_id, user=request.user)
    return _launch_out(row)
