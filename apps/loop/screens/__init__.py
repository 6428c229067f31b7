"""A project's overview, role by role: what needs somebody, how far the votes are, what is new."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.core.cache import cache
from django.db.models import F, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.screens import AuditLine, audit_lines
from apps.accounts.selectors import invitations_open, notices_of, notices_seen_by
from apps.agreement.selectors.annotators import LEAST_SHARED, own_agreement, reports_list
from apps.agreement.selectors.audits import MOST_DUE, audits_due
from apps.evaluation.models import AuditSheet
from apps.evaluation.selectors.head_to_head import overdue
from apps.evaluation.selectors.inbox import MOST_COUNTED, inbox_count
from apps.evaluation.selectors.models import reward_models
from apps.evaluation.selectors.promotion import requests_waiting
from apps.evaluation.selectors.sheets import sheets_of
from apps.labeling.models import Choice, QualificationAttempt, Vote
from apps.labeling.rendering import text_html
from apps.labeling.screens.annotators import readers_of
from apps.labeling.screens.work import ProjectWork, project_work
from apps.labeling.selectors import settings_get
from apps.labeling.selectors.batches import SentPairs
from apps.labeling.selectors.comments import questions_open
from apps.labeling.selectors.forecast import Work, minutes_per_ten, votes_since, work_of
from apps.labeling.selectors.own import attempts_of, gold_of
from apps.labeling.services import LABELERS
from apps.labeling.texts import excerpt
from apps.loop.demo import SLUG, pretrained_models
from apps.loop.selectors import batch_of, evaluations_of_rounds, pairs_file, pairs_sent
from apps.monitoring.models import Incident
from apps.monitoring.selectors.incidents import bell_count as incidents_open
from apps.monitoring.selectors.incidents import incidents
from apps.snapshots.models import UNDECIDED, Snapshot
from apps.snapshots.storage import artifact_store
from apps.training.display import RunProgress, progress
from apps.training.models import Checkpoint, Run, RunAttempt
from apps.training.selectors.queueing import queue_words
from apps.training.selectors.space import space_used
from measures.estimate import Interval
from measures.pace import WINDOW_DAYS, Forecast, forecast
from workers.artifacts import ArtifactError
from workers.config import recipe_config

_STAFF = frozenset({Role.ENGINEER, Role.ADMIN})
_JUDGES = frozenset({Role.REVIEWER, Role.ADMIN})
_READERS = frozenset({Role.REVIEWER, Role.ENGINEER, Role.ADMIN})
_ADMIN = frozenset({Role.ADMIN})
SHOWN = 8  # rows of a list
LEAST_FRESH = 100  # decided pairs that no dataset has, from which a new one is worth it …
FRESH_SHARE = 0.1  # … if they are as many for what the last one has
FAILED_DAYS = 7
_BELL_SECONDS = 30
_LOOKS = (Run.Kind.CHECK, Run.Kind.PROBE, Run.Kind.JUDGE)  # they train nothing
# What an approved, a candidate … reward model, or another model, is good for next.
_USES = {
    Checkpoint.Status.CANDIDATE: "assess it, then decide",
    Checkpoint.Status.APPROVED: "train a policy against it",
    Checkpoint.Status.REJECTED: "rejected: not for training",
    Checkpoint.Status.RETIRED: "retired: not for training",
}
_OTHER_USES = {
    Run.Kind.SFT: "train a reward model or a policy from it",
    Run.Kind.REGISTER_POLICY: "train a reward model or a policy from it",
    Run.Kind.REGISTER_ENCODER: "train a reward model from it",
    Run.Kind.SERVED: "ask it, or compare a policy with it",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A kind of thing that waits for people of some roles, and the page that lists it."""

    key: str
    roles: frozenset[Role]
    one: str
    many: str
    page: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """So many of them, in words."""

    key: str
    n: int
    words: str
    url: str


_MOST_COUNTED = {"audits": MOST_DUE, "verdicts": MOST_COUNTED}
WAITING = (
    Waiting(
        "contested",
        _JUDGES,
        "contested comparison",
        "contested comparisons",
        "agreement:disputes",
        "show=contested",
    ),
    Waiting(
        "stuck",
        _ADMIN,
        "comparison has nobody left to vote",
        "comparisons have nobody left to vote",
        "agreement:disputes",
        "show=stuck",
    ),
    Waiting(
        "review",
        _JUDGES,
        "comparison needs review",
        "comparisons need review",
        "agreement:disputes",
        "show=review",
    ),
    Waiting("questions", _JUDGES, "open question", "open questions", "labeling:questions"),
    Waiting("audits", _JUDGES, "audit due", "audits due", "agreement:audits"),
    Waiting(
        "verdicts",
        _READERS,
        "flagged answer waits for a verdict",
        "flagged answers wait for a verdict",
        "evaluation:inbox",
    ),
    Waiting(
        "sheets",
        _JUDGES,
        "audit sheet wants judges",
        "audit sheets want judges",
        "evaluation:sheets",
    ),
    Waiting(
        "unread",
        _ADMIN,
        "person has not read the guidelines",
        "people have not read the guidelines",
        "labeling:annotators",
        "state=guideline",
    ),
    Waiting(
        "flagged",
        _ADMIN,
        "annotator flagged",
        "annotators flagged",
        "agreement:annotators",
        "show=flagged",
    ),
    Waiting(
        "freeze",
        _STAFF,
        "decided pair is in no dataset",
        "decided pairs are in no dataset",
        "snapshots:create",
    ),
    Waiting(
        "failed",
        _STAFF,
        f"run failed in the last {FAILED_DAYS} days",
        f"runs failed in the last {FAILED_DAYS} days",
        "training:runs",
        "state=failed",
    ),
    Waiting(
        "approvals",
        _STAFF,
        "reward model waits for a decision",
        "reward models wait for a decision",
        "evaluation:reward_models",
        "status=candidate",
    ),
    Waiting(
        "compared",
        _STAFF,
        "head-to-head is due again",
        "head-to-heads are due again",
        "evaluation:head_to_heads",
    ),
    Waiting(
        "promotions",
        _ADMIN,
        "request for a promotion waits",
        "requests for promotions wait",
        "evaluation:service",
    ),
    Waiting(
        "space",
        _STAFF,
        "% of the quota of disk space is used",
        "% of the quota of disk space is used",
        "training:space",
    ),
    Waiting("incidents", _STAFF, "open incident", "open incidents", "monitoring:incidents"),
)


def needs_of(project: Project, role: str) -> list[Need]:
    """What waits for the role; nothing of which there is none."""
    kinds = [kind for kind in WAITING if role in kind.roles]
    counts = _counts(project) if kinds else {}
    return [_need(project, kind, counts[kind.key]) for kind in kinds if counts[kind.key]]


def _need(project: Project, kind: Waiting, n: int) -> Need:
    url = reverse(kind.page, args=[project.slug]) + (f"?{kind.query}" if kind.query else "")
    most = _MOST_COUNTED.get(kind.key, n)
    said = f"{most:,}+" if n > most else f"{n:,}"
    return Need(kind.key, n, f"{said} {kind.one if n == 1 else kind.many}", url)


def _counts(project: Project) -> dict[str, int]:
    """How many there are of each kind in `WAITING`; kept for the bell of the next pages."""
    work = work_of(project)
    week = timezone.now() - timedelta(days=FAILED_DAYS)
    failed = Run.objects.filter(project=project, state=Run.State.FAILED, ended_at__gte=week)
    unread = readers_of(project=project)
    space = space_used(project)
    counts = {
        "contested": work.states["contested"],
        "stuck": work.stuck,
        "review": work.states["review"],
        "questions": questions_open(project=project).count(),
        "audits": audits_due(project=project),
        "verdicts": inbox_count(project),
        "sheets": sheets_of(project).filter(state=AuditSheet.State.OPEN).count(),
        "unread": unread.n_waiting if unread.asked and unread.version else 0,
        "flagged": reports_list(project=project, with_names=False, show="flagged").count(),
        "freeze": _fresh_pairs(project, work),
        "failed": failed.exclude(kind__in=_LOOKS).count(),
        "approvals": reward_models(project=project, status=Checkpoint.Status.CANDIDATE).count(),
        "compared": len(overdue(project=project, now=timezone.now())),
        "promotions": requests_waiting(project),
        "space": space.percent if space and space.is_nearly_full else 0,
        "incidents": incidents_open(project),
    }
    cache.set(f"loop:needs:{project.pk}", counts, _BELL_SECONDS)
    return counts


def _fresh_pairs(project: Project, work: Work) -> int:
    """Decided pairs beyond those of the newest dataset, where they are enough for another."""
    last = _last_dataset(project)
    kept = sum(last.counts.get("rows", {}).values()) if last else 0
    fresh = work.states["decided"] - kept
    return fresh if fresh >= max(LEAST_FRESH, FRESH_SHARE * kept) else 0


def _last_dataset(project: Project) -> Snapshot | None:
    rows = Snapshot.objects.filter(
        project=project, kind=Snapshot.Kind.PREFERENCES, state=Snapshot.State.FROZEN
    ).exclude(recipe__has_any_keys=UNDECIDED)
    return rows.order_by("-frozen_at").first()


def bell_count(project: Project, user: User, role: str) -> int:
    """Notices that the person has not seen, and things that wait of which there are more than when
    they looked; the latter may be half a minute old."""
    membership = Membership.objects.filter(project=project, user=user).first()
    if membership is None:
        return 0
    seen = notices_seen_by(membership)
    fresh = notices_of(membership).filter(pk__gt=seen.notice).count()
    if role == Role.ANNOTATOR:
        return fresh
    counts = cache.get(f"loop:needs:{project.pk}") or _counts(project)
    waiting = (kind.key for kind in WAITING if role in kind.roles)
    return fresh + sum(counts.get(key, 0) > seen.needs.get(key, 0) for key in waiting)


# The sections. A role has its own; admins have those of reviewers and engineers too.


_NO_FORECAST = {
    "": "",
    "no_votes": f"nobody has voted in the last {WINDOW_DAYS:.0f} days",
    "few_votes": "the votes of the last days are too few",
    "nothing_wanted": "no vote is wanted",
    "too_far": "more than a year at this pace",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the votes are; `finish` is when they are all in, at the pace of `forecast`;
    `no_forecast` why there is no date."""

    work: Work
    forecast: Forecast
    finish: datetime | None

    @property
    def no_forecast(self) -> str:
        return _NO_FORECAST[self.forecast.why_not]


@dataclass(frozen=True, slots=True)
class Own:
    """How one annotator does. goal: answers to reach today, by their cap, or by what they lack for
    their share; minutes: for ten pairs."""

    place: ProjectWork
    goal: int
    share: int
    n: int
    minutes: float | None
    agreement: Interval
    least_shared: int = LEAST_SHARED


@dataclass(frozen=True, slots=True)
class LiveRun:
    run: Run
    progress: RunProgress
    waits: str


@dataclass(frozen=True, slots=True)
class NewModel:
    model: Checkpoint
    use: str
    url: str


@dataclass(frozen=True, slots=True)
class Engineering:
    """fresh: votes since the last dataset, and since what the last reward model was trained on.
    without_models: a demo on the small model that it builds, for `make models` was not run."""

    live: Sequence[LiveRun]
    models: Sequence[NewModel]
    incidents: Sequence[Incident]
    fresh: dict[str, int]
    dataset: Snapshot | None
    reward: Run | None
    without_models: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """A section is None for roles that do not have it."""

    role: str
    needs: Sequence[Need]
    progress: Progress | None
    own: Own | None
    engineering: Engineering | None
    events: Sequence[AuditLine]
    # Invitations that nobody has taken yet; for admins of a project without people.
    invited: int = 0
    has_results: bool = False  # of the demo: whether one of its rounds was evaluated


def overview_of(membership: Membership) -> Overview:
    project, role = membership.project, membership.role
    work = work_of(project)
    return Overview(
        role=role,
        needs=needs_of(project, role),
        progress=_progress(work) if role != Role.ANNOTATOR else None,
        own=own_of(membership, work) if _labels(membership, work) else None,
        engineering=_engineering(project) if role in _STAFF else None,
        events=_events(project) if role == Role.ADMIN else (),
        invited=invitations_open(project).count() if role == Role.ADMIN and not work.people else 0,
        has_results=project.slug == SLUG
        and role in _READERS
        and evaluations_of_rounds(project).exists(),
    )


def _labels(membership: Membership, work: Work) -> bool:
    """Annotators; reviewers, where there is work. Admins see everybody's instead of their own."""
    return membership.role == Role.ANNOTATOR or (
        membership.role in LABELERS - {Role.ADMIN} and bool(work.wanted)
    )


def _progress(work: Work) -> Progress:
    now = timezone.now()
    days = (now - work.first).total_seconds() / 86_400 if work.first else 0.0
    found = forecast(work.to_go, work.recent, days)
    finish = now + timedelta(days=found.days) if found.days is not None else None
    return Progress(work, found, finish)


def own_of(membership: Membership, work: Work) -> Own:
    project, user = membership.project, membership.user
    place = project_work(membership, user)
    lacking = max(0, work.share - place.n_total)
    goal = place.cap or place.n_today + min(lacking, place.n_left)
    return Own(
        place=place,
        goal=goal,
        share=work.share,
        n=place.n_total,
        minutes=minutes_per_ten(project=project, annotator=user),
        agreement=own_agreement(project=project, user=user),
    )


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold pair that somebody answered, on the sides of their screen."""

    vote: Vote
    prompt: str
    yours: str | Promise
    right: str | Promise
    explanation: str

    @property
    def is_right(self) -> bool:
        return self.vote.choice == self.vote.comparison.gold


@dataclass(frozen=True, slots=True)
class OwnResults:
    """What one labeler may know of their own work. gold: newest first, whose number right is
    `n_right`; None where the project does not show it."""

    own: Own
    attempts: QuerySet[QualificationAttempt]
    gold: QuerySet[Vote] | None
    n_right: int


def results_of(membership: Membership) -> OwnResults:
    project, user = membership.project, membership.user
    shows = settings_get(project=project).show_gold
    gold = gold_of(project=project, user=user) if shows else None
    return OwnResults(
        own=own_of(membership, work_of(project)),
        attempts=attempts_of(project=project, user=user),
        gold=gold,
        n_right=0 if gold is None else gold.filter(choice=F("comparison__gold")).count(),
    )


def gold_shown(vote: Vote) -> Gold:
    asked = vote.comparison
    return Gold(
        vote=vote,
        prompt=excerpt(asked.prompt.brief),
        yours=Choice.as_seen(vote.choice, vote.left_is).label,
        right=Choice.as_seen(asked.gold, vote.left_is).label,
        explanation=text_html(asked.gold_explanation) if asked.gold_explanation else "",
    )


def _engineering(project: Project) -> Engineering:
    dataset, reward = _last_dataset(project), _last_reward(project)
    known = reward.inputs.filter(snapshot__isnull=False).first() if reward else None
    since = known.snapshot.frozen_at if known and known.snapshot else None
    if reward is not None and since is None:
        since = reward.created_at
    return Engineering(
        live=_live(project),
        models=_models(project),
        incidents=list(incidents(project=project).filter(muted=False)[:SHOWN]),
        fresh=votes_since(
            project, {"dataset": dataset.frozen_at if dataset else None, "reward_model": since}
        ),
        dataset=dataset,
        reward=reward,
        without_models=project.slug == SLUG and pretrained_models() is None,
    )


def _last_reward(project: Project) -> Run | None:
    rows = Run.objects.filter(project=project, kind=Run.Kind.REWARD, state=Run.State.FINISHED)
    return rows.order_by("-created_at").first()


def _live(project: Project) -> list[LiveRun]:
    rows = Run.objects.filter(project=project, state__in=Run.LIVE_STATES).exclude(kind__in=_LOOKS)
    runs = list(rows.order_by("-created_at")[:SHOWN])
    waits = queue_words() if any(run.state == Run.State.QUEUED for run in runs) else {}
    newest = {
        row.run_id: row
        for row in RunAttempt.objects.filter(run__in=runs)
        .order_by("number")
        .only("run", "number", "opened_at", "resumed_from_step")
    }
    return [LiveRun(run, progress(run, newest.get(run.pk)), waits.get(run.pk, "")) for run in runs]


def _models(project: Project) -> list[NewModel]:
    rows = (
        Checkpoint.objects.filter(project=project, files_removed_at=None)
        .exclude(tags=[])
        .exclude(status__in=(Checkpoint.Status.REJECTED, Checkpoint.Status.RETIRED))
        .select_related("run")
        .order_by("-created_at")
    )
    return [_new_model(project, row) for row in rows[:SHOWN]]


def _new_model(project: Project, model: Checkpoint) -> NewModel:
    is_reward = model.run.trained_kind in Run.REWARD_KINDS
    page = "evaluation:reward_model" if model.run.kind in Run.REWARD_KINDS else "training:model"
    use = (
        _USES[Checkpoint.Status(model.status)]
        if is_reward
        else _OTHER_USES.get(Run.Kind(model.run.kind), "evaluate it, or generate answers with it")
    )
    return NewModel(model, use, reverse(page, args=[project.slug, model.pk]))


def _events(project: Project) -> list[AuditLine]:
    """The newest of what people did and of what runs came to."""
    rows = AuditEvent.objects.filter(project=project).exclude(action="guideline.acknowledged")
    lines = audit_lines(project, rows.select_related("actor").order_by("-at", "-id")[:SHOWN])
    ended = Run.objects.filter(project=project, ended_at__isnull=False).exclude(kind__in=_LOOKS)
    lines += [
        AuditLine(
            at=run.ended_at,
            who="The run",
            before="",
            subject=run.name,
            url=reverse("training:run", args=[project.slug, run.pk]),
            after=f" {run.get_state_display()}",
            action=f"run.{run.state}",
            details={},
        )
        for run in ended.order_by("-ended_at")[:SHOWN]
    ]
    return sorted(lines, key=lambda line: line.at, reverse=True)[:SHOWN]


# A run's page: the pairs that it wrote for people.


@dataclass(frozen=True, slots=True)
class PairOfRun:
    """`answers`: (who answered, the answer), twice."""

    prompt: Sequence[Mapping[str, str]]
    answers: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PairsOfRun:
    """`missing` says why there is nothing to show. votes, priority: what sending starts with;
    most: votes that a comparison may get."""

    rows: Sequence[PairOfRun]
    missing: str
    sent: SentPairs
    votes: int
    most: int
    priority: float
    list_url: str

    @property
    def price(self) -> int:
        return len(self.rows) * self.votes


def pairs_of(run: Run) -> PairsOfRun:
    rows, missing = _pairs_read(run)
    asked = recipe_config(run.kind, run.config)
    rules = settings_get(project=run.project)
    query = urlencode({"batch": batch_of(run)})
    return PairsOfRun(
        rows=rows,
        missing=missing,
        sent=pairs_sent(run),
        votes=asked.get("votes_each") or rules.overlap,
        most=rules.max_overlap,
        priority=asked.get("queue_priority", 0.0),
        list_url=f"{reverse('labeling:comparisons', args=[run.project.slug])}?{query}",
    )


def _pairs_read(run: Run) -> tuple[list[PairOfRun], str]:
    found = pairs_file(run)
    if run.kind != Run.Kind.GENERATE or found is None:
        return [], "The run has not written its pairs yet." if run.is_live else "It wrote none."
    try:
        text = artifact_store().read_bytes(found.uri, sha256=found.sha256).decode("utf-8")
    except ArtifactError as error:
        return [], f"The file of the pairs cannot be read: {error}"
    rows = [
        PairOfRun(pair["prompt"], [_answer_of(pair[f"response_{side}"]) for side in "ab"])
        for pair in map(json.loads, text.splitlines())
    ]
    return rows, "" if rows else "It wrote none."


def _answer_of(response: Mapping[str, Any]) -> tuple[str, str]:
    role = response["origin"]["role"]
    return _ANSWERED.get(role, role), response["text"]


_ANSWERED = {"policy": "Policy", "sft": "Baseline"}
