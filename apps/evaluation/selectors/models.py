"""Reward models of a project, and what people decided about them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.core.cache import cache
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.urls import reverse

from apps.accounts.identity import membership_get
from apps.accounts.models import Project, User
from apps.accounts.permissions import STAFF
from apps.common.errors import Missing, Refused
from apps.common.registry import JudgeLine, JudgeStanding
from apps.evaluation.lines import LINES
from apps.evaluation.models import ModelReview
from apps.evaluation.selectors.assessments import Assessment, assess_runs, assessment_of, storable
from apps.evaluation.selectors.ceiling import HumanCeiling, freshness_finding, human_ceiling
from apps.evaluation.selectors.ranking import people_rank_finding
from apps.training.models import Checkpoint, Run
from measures.trust.findings import Finding, Verdict, finding_from_json, finding_to_json, unmeasured


def reward_models(*, project: Project, search: str = "", status: str = "") -> QuerySet[Checkpoint]:
    """Checkpoints of reward runs that are best, last or final of their run, newest first; with
    `decided_by` and `decided_at` of the newest review."""
    newest = ModelReview.objects.filter(checkpoint=OuterRef("pk")).order_by("-pk")
    rows = Checkpoint.objects.filter(project=project, run__kind__in=Run.REWARD_KINDS).exclude(
        tags=[]
    )
    if status:
        rows = rows.filter(status=status)
    if search:
        rows = rows.filter(
            Q(run__name__icontains=search)
            | Q(pk__startswith=search)
            | Q(run__pk__startswith=search)
        )
    return (
        rows.select_related("run", "project")
        .annotate(
            decided_by=Subquery(newest.values("by_name")[:1]),
            decided_at=Subquery(newest.values("at")[:1]),
        )
        .order_by("-created_at", "-pk")
    )


def reward_model_get(*, project: Project, checkpoint_id: str) -> Checkpoint:
    """Raises `Missing`, also for a model of another kind of run."""
    rows = Checkpoint.objects.filter(
        project=project,
        pk=checkpoint_id.replace("\x00", "?"),  # no text of the database holds a NUL
        run__kind__in=Run.REWARD_KINDS,
    )
    row = rows.select_related("run__created_by", "project").first()
    if row is None:
        raise Missing("There is no such reward model in this project.", field="checkpoint")
    return row


def reviews_of(checkpoint: Checkpoint) -> list[ModelReview]:
    """Newest first: the first one counts. Without the kept pages, which are large."""
    rows = ModelReview.objects.filter(checkpoint=checkpoint).defer("state")
    return list(rows.select_related("by", "assessment").order_by("-pk"))


def review_get(*, checkpoint: Checkpoint, review_id: int) -> ModelReview:
    """Raises `Missing`."""
    row = ModelReview.objects.filter(checkpoint=checkpoint, pk=review_id).first()
    if row is None:
        raise Missing("There is no such decision about this model.", field="review")
    return row


# Which reward models a person may have score text.


def scoring_model_get(*, user: User, checkpoint_id: str) -> Checkpoint:
    """A reward model of a project in which the person is staff. Raises `Missing` for outsiders as
    for models there are none of, `Refused` for other roles."""
    row = (
        Checkpoint.objects.filter(pk=checkpoint_id, run__kind__in=Run.REWARD_KINDS)
        .select_related("project")
        .first()
    )
    membership = membership_get(user=user, slug=row.project.slug) if row else None
    if row is None or membership is None:
        raise Missing("There is no such reward model, or not for you.", field="checkpoint_id")
    if membership.role not in STAFF:
        raise Refused(f"Your role here is {membership.role}; this needs one of: admin, engineer.")
    return row


# The lines that only this side can measure: whether people agree with the model's ranking of its
# outputs, and whether it still knows what they say.

_KEPT_S = 60


def web_findings(checkpoint: Checkpoint, *, quick: bool = False) -> dict[str, Finding]:
    """{line: Finding}; `quick`, for lists, takes a freshness that may be a minute old."""
    fresh = _freshness(checkpoint) if quick else freshness_finding(checkpoint)
    return {one.line: one for one in (fresh, people_rank_finding(checkpoint))}


def _freshness(checkpoint: Checkpoint) -> Finding:
    """It counts votes, which takes a while for each model of a list."""
    key = f"freshness:{checkpoint.pk}"
    kept = cache.get(key)
    if kept is None:
        kept = finding_to_json(freshness_finding(checkpoint))
        cache.set(key, kept, _KEPT_S)
    return finding_from_json(kept)


# Every line of a reward model's page as it stands now: its assessment, and what only this side
# knows. A line that nobody measured is there too, and says what to do.


NOBODY = "Nobody has assessed this model yet. Press “Assess”."
REFUSED = "Nobody assessed this model before it was rejected."
UNDER_WAY = "Not measured yet: an assessment is running."
UNANSWERED = "The last assessment did not run this check. Assess the model again."
_MOVING = frozenset({"freshness", "people_rank"})
# What a line needs beyond the dataset, for those who have to choose it.
NEEDS = {
    "other_domain": "Choose an out-of-domain dataset when you assess the model.",
    "policy_range": "Choose prompts and a policy when you assess the model.",
    "score_shape": "Assess the model on a dataset; with prompts and a policy it shows more.",
    "best_of_n": "Choose prompts, a policy and a held-out judge when you assess the model.",
    "disagreement": "Train and assess an ensemble to see where its members disagree.",
    "people_rank": "Send outputs of an assessment to people.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """findings: one for each of `LINES`, in their order."""

    assessment: Assessment | None
    findings: tuple[Finding, ...]
    ceiling: HumanCeiling | None

    def named(self, *verdicts: Verdict) -> list[Finding]:
        return [one for one in self.findings if one.verdict in verdicts]

    @property
    def red(self) -> list[Finding]:
        return self.named(Verdict.RED)

    @property
    def green(self) -> list[Finding]:
        return self.named(Verdict.GREEN)

    @property
    def unmeasured(self) -> list[Finding]:
        return self.named(Verdict.UNMEASURED)

    def finding(self, line: str) -> Finding:
        return next(one for one in self.findings if one.line == line)

    @property
    def state(self) -> dict[str, Any]:
        """The page as plain JSON, as a review keeps it."""
        run = self.assessment.run if self.assessment else None
        return storable(
            {
                "version": 1,
                "assessment": run.pk if run else None,
                "findings": [finding_to_json(one) for one in self.findings],
                "ceiling": asdict(self.ceiling) if self.ceiling else None,
            }
        )

    @property
    def sha256(self) -> str:
        """Of what a decision rests on: whoever decides sends back the one that they saw."""
        return page_sha256(self.state)


def judgement_of(checkpoint: Checkpoint, *, quick: bool = False) -> Judgement:
    """`quick`, for lists, leaves out the ceiling and takes a freshness that may be a minute old."""
    assessment = assessment_of(checkpoint)
    found = dict(assessment.findings) if assessment else {}
    found |= web_findings(checkpoint, quick=quick)
    missing = _missing_words(checkpoint, assessment)
    return Judgement(
        assessment=assessment,
        findings=tuple(found.get(line) or _missing(line, missing) for line in LINES),
        ceiling=None if quick else human_ceiling(checkpoint),
    )


# Of a judge: what is to be known before what it says of a policy counts. It scores each answer by
# itself, so it has no order of two answers to prefer.
JUDGE_LINES = ("accuracy", "people_rank", "length_taste", "length_matched", "format_taste")


def judge_standing(checkpoint: Checkpoint) -> JudgeStanding:
    """From its newest assessment and what people said of its ranking."""
    found = judgement_of(checkpoint, quick=True)
    by_line = {one.line: one for one in found.findings}
    return JudgeStanding(
        model=checkpoint.pk,
        name=checkpoint.run.name,
        url=reverse("evaluation:reward_model", args=[checkpoint.project.slug, checkpoint.pk]),
        assessed=found.assessment is not None,
        lines=[
            JudgeLine(line, LINES[line].title, by_line[line].verdict.value, by_line[line].says)
            for line in JUDGE_LINES
        ],
    )


def _missing_words(checkpoint: Checkpoint, assessment: Assessment | None) -> str:
    """Why lines are missing; empty where the assessment could be read and left out only some."""
    if assessment is None:
        live = assess_runs(checkpoint).filter(state__in=Run.LIVE_STATES).exists()
        rejected = checkpoint.status == Checkpoint.Status.REJECTED
        return UNDER_WAY if live else REFUSED if rejected else NOBODY
    return f"{assessment.broken} Assess the model again." if assessment.broken else ""


def _missing(line: str, why: str) -> Finding:
    return unmeasured(line, why or NEEDS.get(line, UNANSWERED))


def findings_of_state(state: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The lines of a kept page; of one that this version cannot read, what it was called."""
    kept = {}
    for data in state.get("findings") or ():
        try:
            one = finding_from_json(data)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        kept[one.line] = one
    missing = "This check was not on the page when it was stored."
    return tuple(kept.get(line) or unmeasured(line, missing) for line in LINES)


def state_sha256(state: Mapping[str, Any]) -> str:
    """Of a kept page as a whole."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def page_sha256(state: Mapping[str, Any]) -> str:
    """Of the part of a page that must not change under the hands of somebody who decides. The
    lines of this side are counted again with every vote; of those the verdict is what matters."""
    return state_sha256(
        {
            "assessment": state["assessment"],
            "findings": [
                {"line": one["line"], "verdict": one["verdict"]} if one["line"] in _MOVING else one
                for one in state["findings"]
            ],
        }
    )
