"""What has been tried to find out what broke in a run, and what could be."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.monitoring.models import ProbeResult, Watch
from apps.monitoring.selectors.run_outputs import RunOutputs
from apps.training.models import Alert, Run, RunEvent
from measures.drift import Level, Shift
from workers.config import recipe_fields
from workers.rules.experiments import EXPERIMENTS, Experiment, present_id

CONFIRMS, REFUTES, UNDECIDED = "confirms", "refutes", "undecided"
ONE_CHANGE = "one_change"
REPEATS = ("minimal", ONE_CHANGE)  # launch the run's own kind again
LONGER, LEAST_STEPS = 1.5, 4  # than until the problem showed; optimizer steps
IN_SMALL = {"steps": 4, "max_steps": 8}  # of a minimal run: workers.preflight.minimal
_EXACT = ("contract_", "non_finite")  # failures that need no more than a step to come back
_RECENT = 400  # checks of one run that are looked through


@dataclass(frozen=True, slots=True)
class ExperimentState:
    """An experiment for one run. `why_not` is empty where it can be launched. `run` is its newest
    one; `outcome` (confirms, refutes, undecided) and `words` are empty until it has ended. `needs`
    says how long one that changes a setting must run to decide."""

    experiment: Experiment
    why_not: str
    run: Run | None
    outcome: str
    words: str
    needs: str = ""

    @property
    def available(self) -> bool:
        return not self.why_not

    @property
    def is_live(self) -> bool:
        return self.run is not None and self.run.is_live


def experiment_states(run: Run, *, step: int | None = None) -> list[ExperimentState]:
    """Of every experiment, in their order."""
    left = RunOutputs(run, step)
    newest = newest_by_experiment(run)
    rules, needs = _rules(run), needs_words(run)
    return [
        ExperimentState(
            one,
            why_not(left, one),
            newest.get(one.id),
            *_result(one, newest, rules),
            needs if one.check == ONE_CHANGE else "",
        )
        for one in EXPERIMENTS.values()
    ]


def deciding_steps(run: Run) -> int | None:
    """Steps after which a repetition without the problem says that it has gone: half as many again
    as the run took until it showed. None where nothing was found."""
    alerts = Alert.objects.filter(run=run).exclude(severity="info").values_list("step", flat=True)
    said = RunEvent.objects.filter(run=run, type="Evidence").values_list("body__step", flat=True)
    found = [step for step in (*alerts, *said) if isinstance(step, int)]
    if not found and run.state == Run.State.FAILED:
        found = [run.step]
    return max(LEAST_STEPS, ceil(LONGER * min(found))) if found else None


def needs_words(run: Run) -> str:
    """How long a run with one change must be to decide, in words; empty where nothing was found."""
    steps = deciding_steps(run)
    if steps is None:
        return ""
    told = f"To decide it must run {steps:,} steps, since the problem showed by step "
    told += f"{round(steps / LONGER):,}"
    if run.started_at is not None and run.step:
        end = run.ended_at or timezone.now()
        minutes = steps * (end - run.started_at).total_seconds() / run.step / 60
        told += f": about {max(1, round(minutes)):,} min at this run's pace"
    return told + "."


def why_not(left: RunOutputs, experiment: Experiment) -> str:
    """Why an experiment cannot be made of this run, and what to do; empty where it can."""
    try:
        if experiment.check in REPEATS:
            repeated_config(left, experiment)
        else:
            left.plan(experiment)
    except DomainError as error:
        return error.message
    return ""


def repeated_config(left: RunOutputs, experiment: Experiment) -> dict[str, Any]:
    """The run's configuration in small, with the one change of the experiment. Raises
    `DomainError`."""
    run = left.run
    known = {option.name: option for option in recipe_fields(run.kind)}
    if "minimal" not in known:
        raise DomainError(
            f"A {run.get_kind_display()} run has no small form.", code="no_minimal", field="run"
        )
    changed: dict[str, Any] = {}
    small: dict[str, Any] = {"minimal": True}
    if experiment.check == ONE_CHANGE and (steps := deciding_steps(run)) is not None:
        length = next(name for name in ("steps", "max_steps") if name in known)
        if steps > IN_SMALL[length]:
            small = {length: steps}  # as large as the run was, and as long as is needed
    for name, change in experiment.changes.items():
        option, before = known.get(name), left.config.get(name)
        if option is None or not isinstance(before, int | float):
            raise DomainError(
                f"A {run.get_kind_display()} run has no setting '{name}' to change.",
                code="no_setting",
                field=name,
            )
        after = before * change if isinstance(change, float) else float(change)
        after = round(after) if option.type == "int" else after
        if after == before:
            raise DomainError(
                f"'{name}' is {before:g} already, so there is nothing to change.",
                code="no_change",
                field=name,
            )
        changed[name] = after
    return {**run.config, **small, **changed}


def newest_by_experiment(run: Run) -> dict[str, Run]:
    """experiment id -> the newest run about this one that makes it."""
    found: dict[str, Run] = {}
    rows = Run.objects.filter(about=run).select_related("project").order_by("-created_at")
    for row in rows[:_RECENT]:
        name = experiment_of(row)
        if name:
            found.setdefault(name, row)
    return found


def experiment_of(run: Run) -> str:
    """Which experiment a run makes: the key it was launched by says it."""
    sort, _, rest = run.launch_key.partition(":")
    name = present_id(rest.partition(":")[0])
    return name if sort == "check" and name in EXPERIMENTS else ""


def _result(one: Experiment, newest: dict[str, Run], rules: frozenset[str]) -> tuple[str, str]:
    """(outcome, words) of the newest run of an experiment."""
    made = newest.get(one.id)
    if made is None or made.is_live:
        return "", ""
    if one.check in REPEATS:
        return repeated_result(made, rules, is_fix=one.check == ONE_CHANGE)
    return check_result(made)


def check_result(made: Run) -> tuple[str, str]:
    """(outcome, words) of an ended check; a trainer wrote them, so they are checked."""
    if made.state != Run.State.FINISHED:
        why = made.failure_message or f"It was {made.get_state_display()}."
        if made.failure_kind == "damaged_input" and "missing" in why:
            why += ". Newer ones took its place while the check waited; launch it again."
        return UNDECIDED, f"The check gave no answer: {why}"
    outcome, words = made.summary.get("outcome"), made.summary.get("words")
    if outcome not in (CONFIRMS, REFUTES, UNDECIDED) or not isinstance(words, str):
        return UNDECIDED, "The check ended without an answer."
    return outcome, words


def repeated_result(made: Run, rules: frozenset[str], *, is_fix: bool) -> tuple[str, str]:
    """Whether the problem came back. That it did not proves something only for what needs a step
    or two: in a minute no trend can show."""
    if made.state == Run.State.CANCELLED:
        return UNDECIDED, "It was cancelled."
    back = sorted(_rules(made) & rules)
    if back:
        told = f"The problem came back within {made.step:,} steps: {', '.join(back)}."
        return (REFUTES if is_fix else CONFIRMS), told
    if made.state == Run.State.FAILED and made.fault != "guard":
        return UNDECIDED, f"It failed for another reason. {made.failure_message}"
    exact = bool(rules) and all(rule.startswith(_EXACT) for rule in rules)
    if exact:
        return (
            CONFIRMS if is_fix else REFUTES
        ), f"The problem did not come back in {made.step:,} steps."
    if is_fix and made.state == Run.State.FINISHED and not made.config.get("minimal"):
        return CONFIRMS, (
            f"In {made.step:,} steps, half as many again as the run took to show it, the problem "
            "did not come back."
        )
    return UNDECIDED, (
        f"In {made.step:,} steps none of the run's alerts came back. That is too short for a trend "
        "to show: compare its curves with the run's."
    )


def _rules(run: Run) -> frozenset[str]:
    """What fired in a run, and what it failed of."""
    said = Q(run=run)
    found: Iterable[str] = [
        *Alert.objects.filter(said).exclude(severity="info").values_list("rule", flat=True),
        *RunEvent.objects.filter(said, type="Evidence").values_list("body__rule", flat=True),
        run.failure_kind if run.state == Run.State.FAILED else "",
    ]
    return frozenset(rule for rule in found if rule)


# Monitored models and what their probes found.

REWARD = "score"  # the figure that a reward model gives, raw


def watches_of(project: Project) -> QuerySet[Watch]:
    """By name, those that are paused last."""
    rows = Watch.objects.filter(project=project)
    rows = rows.select_related("checkpoint__run", "reward__run", "prompts", "probe", "baseline_run")
    return rows.order_by("-enabled", "name")


def probe_results(watch: Watch) -> QuerySet[ProbeResult]:
    """Newest first."""
    return ProbeResult.objects.filter(watch=watch).select_related("run").order_by("-at", "-pk")


def shift_of(figure: Mapping[str, Any] | None) -> Shift | None:
    """The comparison with the baseline as it was kept with a figure."""
    kept = (figure or {}).get("shift")
    if not isinstance(kept, Mapping):
        return None
    return Shift(**{**kept, "level": Level(kept.get("level", "none"))})
