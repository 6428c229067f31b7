"""What speaks for promoting a policy, a function for each line: read from rows, never typed in.

A line is `green` (it holds), `red` (it does not), `missing` (nobody has measured it, which is never
a yes) or `noted` (figures that nothing here can call good or bad). A later app or module adds one
by decorating a function of a checkpoint:

    @provider("regression", "Regression suite")
    def regression(checkpoint: Checkpoint) -> Evidence:
        return missing("No suite was run on this model.")
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils import translation

from apps.common.numbers import duration, figure, filesize, share
from apps.evaluation.models import ModelReview, Stage
from apps.evaluation.selectors.assessments import storable
from apps.evaluation.selectors.models import state_sha256
from apps.monitoring.models import Incident
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.lineage import origins
from apps.training.models import Artifact, Checkpoint, Run, RunInput
from apps.training.selectors import checkpoint_for_use
from apps.training.selectors.results import MOST_EVALUATIONS, alerts_that_count, is_suite
from apps.training.services.kinds import OPTIMISED

ENOUGH_SEEDS = 3
VERSION = 1
EVERY_STAGE = frozenset(Stage.values)
SERVING = frozenset({Stage.STAGING, Stage.PRODUCTION})


class Verdict(StrEnum):
    GREEN = "green"
    RED = "red"
    MISSING = "missing"
    NOTED = "noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One line. url: path of the page it is from; facts: its numbers and ids, plain JSON; `source`
    among them is the hash or run id that a card prints."""

    name: str = ""
    label: str = ""
    verdict: Verdict
    says: str
    url: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def green(says: str, *, url: str = "", **facts: Any) -> Evidence:
    return Evidence(verdict=Verdict.GREEN, says=says, url=url, facts=facts)


def red(says: str, *, url: str = "", **facts: Any) -> Evidence:
    return Evidence(verdict=Verdict.RED, says=says, url=url, facts=facts)


def missing(says: str, *, url: str = "", **facts: Any) -> Evidence:
    return Evidence(verdict=Verdict.MISSING, says=says, url=url, facts=facts)


def noted(says: str, *, url: str = "", **facts: Any) -> Evidence:
    return Evidence(verdict=Verdict.NOTED, says=says, url=url, facts=facts)


Find = Callable[[Checkpoint], Evidence]


@dataclass(frozen=True, slots=True)
class Provider:
    """`required`: the stages whose gate stays closed while the line is not green."""

    name: str
    label: str
    find: Find
    required: frozenset[str]


PROVIDERS: dict[str, Provider] = {}


def provider(
    name: str, label: str, *, required: Collection[str] = SERVING
) -> Callable[[Find], Find]:
    """Register a line under its name; lines stand in the order in which they were registered."""

    def register(find: Find) -> Find:
        PROVIDERS[name] = Provider(name, label, find, frozenset(required))
        return find

    return register


@dataclass(frozen=True, slots=True)
class Gate:
    """The lines for one stage; `blocking` are required there and not green."""

    stage: str
    lines: Sequence[Evidence]
    required: frozenset[str]

    @property
    def blocking(self) -> list[Evidence]:
        return [
            one for one in self.lines if one.name in self.required and one.verdict != Verdict.GREEN
        ]

    @property
    def is_open(self) -> bool:
        return not self.blocking

    @property
    def why_closed(self) -> str:
        """The blocking lines by name, as a refusal says them; empty of an open gate."""
        return "; ".join(f"{one.label} ({one.verdict}): {one.says}" for one in self.blocking)


def evidence_of(checkpoint: Checkpoint) -> list[Evidence]:
    """Every line as it stands now, in English whoever asks: what is kept of it has a hash."""
    with translation.override("en"):
        return _evidence_of(checkpoint)


def _evidence_of(checkpoint: Checkpoint) -> list[Evidence]:
    return [
        replace(one.find(checkpoint), name=one.name, label=one.label) for one in PROVIDERS.values()
    ]


def gate_of(checkpoint: Checkpoint, stage: str) -> Gate:
    return Gate(stage, evidence_of(checkpoint), _required(stage))


def _required(stage: str) -> frozenset[str]:
    return frozenset(one.name for one in PROVIDERS.values() if stage in one.required)


def gate_frozen(gate: Gate, checkpoint: Checkpoint) -> tuple[dict[str, Any], str]:
    """(the gate as plain JSON, its SHA-256), as a request keeps it."""
    state = storable(
        {
            "version": VERSION,
            "stage": gate.stage,
            "checkpoint": checkpoint.pk,
            "checkpoint_sha256": checkpoint.sha256,
            "required": sorted(gate.required),
            "evidence": [asdict(one) for one in gate.lines],
        }
    )
    return state, state_sha256(state)


def gate_kept(state: Mapping[str, Any]) -> Gate:
    """The gate of a request, as it was when it was made; what another version kept of a line beyond
    what this one knows is left out."""
    known = {one.name for one in fields(Evidence)}
    lines = [
        Evidence(**{name: value for name, value in one.items() if name in known})
        for one in state["evidence"]
    ]
    lines = [replace(one, verdict=Verdict(one.verdict)) for one in lines]
    return Gate(state["stage"], lines, frozenset(state["required"]))


def _run_url(run: Run, tab: str = "") -> str:
    address = reverse("training:run", args=[run.project.slug, run.pk])
    return f"{address}?tab={tab}" if tab else address


# The lines.


def evaluations_of(checkpoint: Checkpoint) -> list[Run]:
    """Finished evaluations of this very checkpoint against its baseline, newest first."""
    rows = Run.objects.filter(
        inputs__role="policy",
        inputs__checkpoint=checkpoint,
        kind=Run.Kind.EVALUATE,
        state=Run.State.FINISHED,
    )
    return list(rows.select_related("project").order_by("-ended_at", "-pk")[:MOST_EVALUATIONS])


def evaluation_of(checkpoint: Checkpoint) -> Run | None:
    """The newest of them that is no regression suite."""
    return next((one for one in evaluations_of(checkpoint) if not is_suite(one)), None)


@provider("evaluation", "Win rate against the baseline, by the judge")
def evaluation(checkpoint: Checkpoint) -> Evidence:
    """Holds when the lower end of the 95 % interval is over ½. The judge is a reward model that the
    policy was not trained on; what its own reward says of it is no evidence."""
    run = evaluation_of(checkpoint)
    if run is None:
        return missing("This checkpoint has not been evaluated. Press “Evaluate” on its page.")
    found = run.summary.get("judge")
    rate = found.get("win_rate") if isinstance(found, dict) else None
    facts: dict[str, Any] = {
        "source": run.pk,
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
    }
    report = Artifact.objects.filter(run=run, name="evaluation.json").order_by("-pk").first()
    if report is not None:
        facts["sha256"] = report.sha256
    url = _run_url(run)
    if not isinstance(rate, dict) or rate.get("value") is None:
        return missing("The newest evaluation had no judge.", url=url, **facts)
    value, low, high, n = (rate.get(key) for key in ("value", "low", "high", "n"))
    prompts = RunInput.objects.filter(run=run, role="prompts").select_related("snapshot").first()
    if prompts is not None and prompts.snapshot is not None:
        facts |= {"prompts": prompts.snapshot.name, "prompts_sha256": prompts.snapshot.sha256}
    facts |= {"value": value, "low": low, "high": high, "n": n}
    if low is None or high is None:
        return missing(f"{share(value)} of {n:,} prompts, without an interval.", url=url, **facts)
    says = f"{share(value)} (95 %: {share(low)} to {share(high)}) of {n:,} prompts"
    if low > 0.5:
        return green(f"{says}: the lower end is over 50 %.", url=url, **facts)
    return red(f"{says}: the lower end is not over 50 %.", url=url, **facts)


def _rewards_behind(run: Run) -> tuple[list[Checkpoint], int]:
    """(the reward models that the policy and those before it were optimised against, how many of
    these runs had a rule as their reward instead)."""
    models: dict[str, Checkpoint] = {}
    ruled = 0
    for one in [run, *origins(run).runs]:
        if one.kind not in OPTIMISED or one.project_id != run.project_id:
            continue
        row = RunInput.objects.filter(run=one, role="reward").select_related(
            "checkpoint__run__project", "upstream"
        )
        given = row.first()
        if given is None:
            ruled += 1
            continue
        model = given.checkpoint or (given.upstream and checkpoint_for_use(given.upstream))
        if model:
            models[model.pk] = model
    return list(models.values()), ruled


@provider("reward_model", "Reward model that it was optimised against is approved")
def reward_model(checkpoint: Checkpoint) -> Evidence:
    """Holds when each of them is approved now; a policy of SFT, DPO or KTO has none."""
    if checkpoint.run.kind == Run.Kind.REGISTER_POLICY:
        return missing("It was trained elsewhere: what it was optimised against is not known.")
    models, ruled = _rewards_behind(checkpoint.run)
    if not models:
        return green(
            "Its reward is a rule, not a model." if ruled else "It was not optimised by a reward."
        )
    facts: list[dict[str, Any]] = []
    for model in models:
        review = ModelReview.objects.filter(checkpoint=model).order_by("-pk").first()
        facts.append(
            {
                "model": model.pk,
                "sha256": model.sha256,
                "status": model.status,
                "by": review.by_name if review else "",
                "page_sha256": review.state_sha256 if review else "",
            }
        )
    first = models[0]
    url = reverse("evaluation:reward_model", args=[first.project.slug, first.pk])
    source = facts[0]["page_sha256"] or first.pk
    doubtful = [one for one in models if one.status != Checkpoint.Status.APPROVED]
    if doubtful:
        words = ", ".join(f"{one.run.name}, step {one.step:,} is {one.status}" for one in doubtful)
        return red(f"{words}, not approved.", url=url, source=source, models=facts)
    by = ", ".join(
        f"{one.run.name}, step {one.step:,} by {fact['by'] or 'nobody named'}"
        for one, fact in zip(models, facts, strict=True)
    )
    return green(f"Approved: {by}.", url=url, source=source, models=facts)


@provider("alerts", "No open critical alert or incident", required=EVERY_STAGE)
def alerts(checkpoint: Checkpoint) -> Evidence:
    """Of the run that made it, and incidents of the run or any of its checkpoints. An alert is open
    until somebody acknowledges it, an incident until it is resolved."""
    run = checkpoint.run
    fired = [
        one
        for one in alerts_that_count(run)
        if one.severity == "critical" and one.acknowledged_at is None
    ]
    incidents = list(
        Incident.objects.filter(Q(run=run) | Q(checkpoint__run=run), severity="critical")
        .exclude(state=Incident.State.RESOLVED)
        .order_by("-opened_at")
    )
    facts: dict[str, Any] = {
        "alerts": [one.pk for one in fired],
        "incidents": [one.pk for one in incidents],
    }
    if incidents:
        first = incidents[0]
        url = reverse("monitoring:incident", args=[run.project.slug, first.pk])
        words = f"{len(incidents)} open critical incident{'' if len(incidents) == 1 else 's'}"
        return red(f"{words}: {first.title}.", url=url, source=first.pk, **facts)
    if fired:
        words = f"{len(fired)} open critical alert{'' if len(fired) == 1 else 's'}"
        return red(
            f"{words}: {fired[0].rule} at step {fired[0].step:,}.",
            url=_run_url(run, "alerts"),
            source=run.pk,
            **facts,
        )
    return green("None is open.", url=_run_url(run, "alerts"), source=run.pk, **facts)


@provider("preflight", "Preflight of its run")
def preflight(checkpoint: Checkpoint) -> Evidence:
    """Holds when no check blocked; what it warned of is named. Where checks could not be made, it
    is not measured."""
    run = checkpoint.run
    found = run.summary.get("preflight")
    levels = found.get("checks") if isinstance(found, dict) else None
    if not isinstance(levels, dict) or not levels:
        return missing("Its run left no preflight.", url=_run_url(run))
    url = _run_url(run, "checks")
    facts: dict[str, Any] = {"source": run.pk, "checks": levels}

    def named(level: str) -> str:
        return ", ".join(name for name, one in levels.items() if one == level)

    if blocked := named("block"):
        return red(f"Blocked by {blocked}.", url=url, **facts)
    if unknown := named("unknown"):
        return missing(f"Could not be checked: {unknown}.", url=url, **facts)
    if warned := named("warn"):
        return green(f"{len(levels)} checks, none blocked; warned of {warned}.", url=url, **facts)
    return green(f"All {len(levels)} checks are in order.", url=url, **facts)


def seeds_of(run: Run) -> list[Run]:
    """The runs of its group with its very configuration, itself included, by seed."""
    if not run.group:
        return [run]
    rows = Run.objects.filter(project=run.project_id, group=run.group, kind=run.kind)
    return [one for one in rows.order_by("seed", "created_at") if one.config == run.config]


@provider("seeds", f"At least {ENOUGH_SEEDS} seeds of the same configuration")
def seeds(checkpoint: Checkpoint) -> Evidence:
    """Finished runs of its group that differ in nothing else. Seeds that failed are told."""
    run = checkpoint.run
    runs = seeds_of(run)
    finished = sorted({one.seed for one in runs if one.state == Run.State.FINISHED})
    failed = sum(one.state == Run.State.FAILED for one in runs)
    url = reverse("training:group", args=[run.project.slug, run.group]) if run.group else ""
    facts: dict[str, Any] = {"source": run.group or run.pk, "seeds": finished, "failed": failed}
    lost = f" {failed} failed." if failed else ""
    if len(finished) < ENOUGH_SEEDS:
        words = "One seed has" if len(finished) == 1 else f"{len(finished)} seeds have"
        return missing(
            f"{words} finished: this may be chance. “Add seeds” on the page of the group, or "
            f"launch the run with {ENOUGH_SEEDS} seeds.{lost}",
            url=url or _run_url(run),
            **facts,
        )
    return green(f"{len(finished)} seeds finished.{lost}", url=url, **facts)


@provider("lineage", "Lineage complete, its datasets frozen", required=EVERY_STAGE)
def lineage(checkpoint: Checkpoint) -> Evidence:
    """Holds when every run behind it names what it read, by hash, and the code it ran."""
    run = checkpoint.run
    if run.kind == Run.Kind.IMPORTED:
        return missing("Its run was imported: what it read is not known.", url=_run_url(run))
    if checkpoint.files_removed_at is not None:
        return red("Its files were removed.", url=_run_url(run))
    behind = origins(run)
    runs = [run, *behind.runs]
    problems = [
        f"the dataset {one.name} is {one.state}"
        for one in behind.snapshots
        if one.state != Snapshot.State.FROZEN or not one.sha256
    ]
    loose = RunInput.objects.filter(
        run__in=runs, snapshot=None, checkpoint=None, artifact=None
    ).select_related("run")
    problems += [f"{one.run.name} does not say which {one.role} it read" for one in loose]
    problems += [
        f"the code of {one.name} is not known"
        for one in runs
        if not one.code_version and not one.kind.startswith("register_")
    ]
    facts: dict[str, Any] = {
        "source": checkpoint.sha256,
        "runs": [one.pk for one in runs],
        "datasets": {one.name: one.sha256 for one in behind.snapshots},
        "votes": behind.n_votes,
    }
    url = _run_url(run, "lineage")
    if problems:
        words = "; ".join(problems)
        return red(f"{words[0].upper()}{words[1:]}.", url=url, **facts)
    return green(
        f"{len(runs)} run{'' if len(runs) == 1 else 's'}, {len(behind.snapshots)} frozen "
        f"dataset{'' if len(behind.snapshots) == 1 else 's'}, {behind.n_votes:,} votes.",
        url=url,
        **facts,
    )


@provider("size_latency", "Size and latency", required=())
def size_latency(checkpoint: Checkpoint) -> Evidence:
    """What it costs to serve; no stage requires it, since how fast is fast enough is not known."""
    run = evaluation_of(checkpoint)
    told = run.summary.get("latency") if run is not None else None
    alone = told.get("without_score") if isinstance(told, dict) else None
    size = filesize(checkpoint.size_bytes)
    facts: dict[str, Any] = {"source": checkpoint.sha256, "size_bytes": checkpoint.size_bytes}
    if run is None or not isinstance(alone, dict) or alone.get("p50_ms") is None:
        return missing(f"{size}; how long an answer takes was not measured.", **facts)
    p50, p99 = alone["p50_ms"], alone.get("p99_ms")
    facts |= {"source": run.pk, "p50_ms": p50, "p99_ms": p99, "requests": alone.get("requests")}
    slow = f", 99 % within {_ms(p99)}" if p99 is not None else ""
    return green(
        f"{size}; half of the answers within {_ms(p50)}{slow}.",
        url=_run_url(run, "checks"),
        **facts,
    )


def _ms(value: float) -> str:
    return duration(value / 1000) if value >= 60_000 else f"{figure(value)} ms"
