"""Judges a run's metrics by the table of rules: one problem is one alert, not a hundred.

    engine = Engine("ppo", config, per_check=64)
    for violation in engine.check(step, metrics): ...

A rule fires when k of its last n checks were beyond the limit. It then stays raised, silently,
until ten checks in a row lay well inside, and fires again twenty checks later at the earliest. A
rule that adjusts does so again after ten checks if the problem stays, three times at most. None is
a metric that was not measured, which is no check; NaN or infinity is a finding of its own.
"""

import copy
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workers.contract.events import Alert, Event, Fault, RecipeError
from workers.contract.jobs import JobSpec
from workers.rules.choices import BY_NAME, failure_kind, rules_of
from workers.rules.diagnosis import (
    Baseline,
    Finding,
    baseline_from_json,
    finding_from_json,
    finding_of_failure,
    verdict,
)
from workers.rules.rule import (
    ADJUST,
    OFF,
    STAGES,
    STOP,
    WARN,
    Adjustment,
    Reading,
    Rule,
    exact,
    number,
)
from workers.rules.tests import TESTS, Check, Memory, MetricValues

log = logging.getLogger(__name__)

CLEAR_AFTER = 10  # checks well inside that end a problem
CALM = 3  # such checks from which a finding is said to have cleared
COOLDOWN = 20  # checks between two alerts of a rule
ADJUST_AGAIN = 10  # checks after which a problem that stays is adjusted again
MOST_ADJUSTMENTS = 3  # per problem
UNLIKE = 3.5  # z beyond which a level is not that of healthy runs
FORM = 2  # of the state; another one's memory cannot be read
SKIP = "skip"  # the action of a step whose loss or gradient was no number, the first time
NON_FINITE = BY_NAME["non_finite"]
PASSES = "epoch"  # over the training rows, of the model that is being trained
CUT_ANSWERS = "cut_answers"  # while this rule stands, no checkpoint is called best
_DONE = {
    STOP: "The run was stopped; its state is kept as the checkpoint tagged failed.",
    WARN: "The run continues.",
    OFF: "",
    "": "",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that fired; `value` and `limit` are in its unit. `action` is warn, adjust, stop, skip,
    or empty for a rule that only explains. What `repeats` another rule's problem brings no evidence
    of its own; what `is_quiet` no alert."""

    rule: Rule
    action: str
    step: int
    value: float
    limit: float
    message: str
    expected: str
    start_step: int
    detail: str = ""
    repeats: bool = False
    is_quiet: bool = False

    @property
    def adjustment(self) -> tuple[Adjustment, ...]:
        """What to change now: nothing unless the action is adjust."""
        return self.rule.adjustment if self.action == ADJUST else ()

    @property
    def severity(self) -> str:
        return "critical" if self.action == STOP else self.rule.severity

    @property
    def finding(self) -> Finding:
        rule = self.rule
        return Finding(
            stage=rule.stage,
            rule=rule.name,
            evidence_class=rule.evidence_class,
            step=self.step,
            start_step=self.start_step,
            slack=rule.slack,
            title=rule.title,
            value=float(self.value) if math.isfinite(self.value) else None,
            expected=self.expected,
            unit=rule.unit,
            detail=self.detail,
            suspects=rule.suspects,
            experiment=rule.experiment,
            symptom=not rule.diagnoses,
        )


def first_stop(violations: Sequence[Violation]) -> Violation | None:
    """The violation that ends the run: of several, that of the outermost stage."""
    return next((violation for violation in violations if violation.action == STOP), None)


def stop_error(violation: Violation) -> RecipeError:
    """The failure of a run that this violation stopped."""
    return RecipeError(failure_kind(violation.rule.name), Fault.GUARD, violation.message)


def report(emit: Callable[[Event], None], violations: Iterable[Violation]) -> None:
    """An alert for people and, where it is new, a piece of evidence, of each violation. A rule that
    is off tells nobody, and still explains."""
    for violation in violations:
        is_said = violation.repeats and not violation.rule.actions
        if violation.action != OFF and not violation.is_quiet and not is_said:
            emit(_alert(violation))
        if not violation.repeats:
            emit(violation.finding.to_event())


def _alert(violation: Violation) -> Alert:
    return Alert(
        rule=violation.rule.name,
        severity=violation.severity,
        step=violation.step,
        message=violation.message,
        value=_finite(violation.value),
        threshold=_finite(violation.limit) if violation.rule.actions else None,
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def with_unit(value: float, unit: str) -> str:
    """A value with its unit; a unit that describes rather than measures stands in brackets."""
    measures = unit.startswith(("×", "nats", "standard errors", "minibatches", "policy versions"))
    return f"{number(value)} {unit}" if measures else f"{number(value)} ({unit})"


# A loss or gradient that is no number: the first step is skipped, then the run stops.

WINDOW = 50  # steps within which so many skips are too many
MOST = 2


class FiniteGuard:
    """Decides between skipping and stopping, and remembers.

    Skipping means that the step leaves the weights and the optimizer's moments as they were: the
    caller drops the gradients (`zero_grad(set_to_none=True)`) and takes no optimizer step. A zero
    gradient would not do, for AdamW moves on by momentum.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []  # those skipped, of the last WINDOW

    def skip_or_stop(
        self,
        step: int,
        what: str,
        *,
        skipped: bool = True,
        again: bool = False,
        value: float = math.nan,
    ) -> Violation:
        """The violation of `what` ("the loss") at `step`; its action is `skip` or `stop`.

        It stops when the step before was bad too, or this one a second time, or when two of the
        last fifty were. `skipped` says whether the step itself is dropped: a metric that is only
        looked at is not. `again`: the caller knows that it is the second time in a row.
        """
        recent = [s for s in self.steps if step - s <= WINDOW]
        again = again or (bool(recent) and step - recent[-1] <= 1)
        stop = again or len(recent) >= MOST
        self.steps = [*recent, step]
        found, done = f"{what} is not finite at step {step}", "The run continues."
        if stop:
            why = "for the second time in a row" if again else f"{len(self.steps)} times of late"
            found = f"{found}, {why}"
            done = "The run was stopped; the checkpoint tagged failed holds the weights."
        elif skipped:
            done = f"The step was skipped: weights and moments are those before it. {done}"
        return _unfinite(
            STOP if stop else SKIP,
            step,
            value,
            f"{found[0].upper()}{found[1:]}. {done}",
            f"found {what}, steps {', '.join(map(str, self.steps))}",
        )

    def reported_since(self, step: int) -> bool:
        """Whether a step from `step` on was already reported."""
        return bool(self.steps) and self.steps[-1] >= step

    def state(self) -> dict[str, Any]:
        return {"steps": list(self.steps)}

    def restore(self, state: dict[str, Any]) -> None:
        self.steps = [int(step) for step in state["steps"]]


def _unfinite(action: str, step: int, value: float, message: str, detail: str) -> Violation:
    limit = NON_FINITE.limit
    expected = f"at most {number(limit)}"
    return Violation(NON_FINITE, action, step, value, limit, message, expected, step, detail)


class Engine:
    """The rules of one run. `finite` decides about steps that give no numbers, `findings` are those
    of the rules that diagnose, in the order in which they came."""

    def __init__(
        self,
        kind: str,
        config: Mapping[str, Any] | None = None,
        *,
        baseline: Baseline | None = None,
        per_check: int = 64,
        is_live: bool = True,
    ) -> None:
        """`config` is the run's: its `guards` choose actions and limits. `per_check` is the number
        of answers behind the metrics of one check: rules that pool answers look back over 1,000 of
        them and judge nothing before 100. A run that is over is judged by what diagnoses."""
        every = [rule for rule in rules_of(kind, config) if is_live or rule.diagnoses]
        self.baseline = baseline
        self.per_check = per_check
        self.rules = [rule for rule in every if rule.has_limit]
        self.finite = FiniteGuard()
        self.findings: list[Finding] = []
        self._is_live = is_live
        self._cause = next((one for one in every if one.test == "diagnosed"), None)
        self._watched = {name for rule in self.rules if rule.actions for name in rule.metrics}
        self._memory: dict[str, Memory] = {}
        self._step, self._at_step = -1, dict[str, float]()
        self._passes = 0.0
        self._last_step = 0
        self._broken_evaluations = 0
        self._named = ""  # the stage that was reported as the cause

    def check(
        self,
        step: int,
        metrics: Mapping[str, float | None],
        violations: Sequence[Violation] = (),
    ) -> list[Violation]:
        """Judge the metrics of a step; `violations` were found while it was made. Returns them and
        what newly fires, the outermost stage first.

        A step may come in parts, its own metrics and then those of the evaluation after it: what
        needs both checks once both are there, as it does when they come together. What was measured
        before the first step shows what a run began with; only rules that diagnose judge it.
        """
        known = {name: float(v) for name, v in metrics.items() if v is not None}
        if self._is_next_model(known.get(PASSES)):
            self._memory = {}
            return list(violations)
        numbers = {name: value for name, value in known.items() if math.isfinite(value)}
        if step != self._step:
            self._step, self._at_step = step, {}
        self._at_step |= numbers
        found = self._non_finite(step, known)
        new: list[Finding] = []
        for rule in self.rules:
            if not rule.diagnoses and (rule.action == OFF or step < 1):
                continue
            here = all(name in self._at_step for name in rule.metrics)
            if not here or not any(name in numbers for name in rule.metrics):
                continue
            violation = self._judge(rule, step, self._at_step)
            if violation is not None:
                found.append(violation)
                is_new = self._memory[rule.name]["times"] == 1  # and not adjusted once more
                new += [violation.finding] if rule.diagnoses and is_new else []
        self.findings += sorted(new, key=lambda one: (one.depth, one.start_step))
        self._last_step = step
        return self._with_cause([*violations, *found], step)

    def _is_next_model(self, passes: float | None) -> bool:
        """A run that trains several models one after another begins each at its first pass: what
        was remembered of the one before says nothing of the next, nor do the figures of that step,
        which are of both."""
        before, self._passes = self._passes, self._passes if passes is None else passes
        return self._passes < before

    def ended(self, step: int, kind: str, message: str) -> Finding | None:
        """A contract that ended the run, by its failure kind; None for another kind of failure."""
        found = finding_of_failure(step, kind, message)
        if found is None or found.rule in {one.rule for one in self.findings}:
            return None
        self.findings.append(found)
        return found

    @property
    def judged_stages(self) -> list[str]:
        """Stages that at least one diagnosing rule has judged."""
        judged = {one.stage for one in self.rules if one.diagnoses and self.checks(one.name)}
        if self.checks(NON_FINITE.name):
            judged.add(NON_FINITE.stage)
        return [stage for stage in STAGES if stage in judged]

    def checks(self, rule: str) -> int:
        """How often a rule has judged."""
        return int(self._memory.get(rule, {}).get("checks", 0))

    def cleared(self, rule: str) -> int | None:
        """Since which step a rule that fired has lain well inside its limit, for `CALM` checks at
        least; None where it does not."""
        memory = self._memory.get(rule, {})
        return memory.get("calm_since") if memory.get("calm", 0) >= CALM else None

    def memory_of(self, rule: str) -> Memory:
        """What is remembered of a rule: whether it is `raised`, and `calm`, how many checks in a
        row lay well inside since; empty before its first check."""
        return copy.deepcopy(self._memory.get(rule, {}))

    def is_crossed(self, rule: str) -> bool:
        """Whether the last check of a rule that warns or stops was beyond its limit."""
        acts = any(one.name == rule and one.action not in ("", OFF) for one in self.rules)
        recent = self._memory.get(rule, {}).get("recent") or [[0, 0]]
        return acts and bool(recent[-1][1])

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` of it in a new object continues exactly here."""
        return copy.deepcopy(
            {
                "form": FORM,
                "memory": self._memory,
                "findings": [one.to_json() for one in self.findings],
                "finite": self.finite.state(),
                "step": self._step,
                "at_step": self._at_step,
                "last_step": self._last_step,
                "broken_evaluations": self._broken_evaluations,
                "named": self._named,
                "passes": self._passes,
            }
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`; one of another form is left alone, and said so."""
        if not state:
            return
        if state.get("form") != FORM:
            log.warning(
                "The checkpoint's memory of rules has form %s, not %s: the rules start fresh, so a "
                "problem that was reported before may be reported again.",
                state.get("form", 1),
                FORM,
            )
            return
        state = copy.deepcopy(dict(state))
        self._memory = state["memory"]
        self.findings = [finding_from_json(one) for one in state["findings"]]
        self.finite.restore(state["finite"])
        self._step, self._at_step = state["step"], state["at_step"]
        self._last_step = state["last_step"]
        self._broken_evaluations = state["broken_evaluations"]
        self._named = state["named"]
        self._passes = state.get("passes", 0.0)

    # --- one rule ---

    def _judge(self, rule: Rule, step: int, metrics: MetricValues) -> Violation | None:
        memory = self._memory.setdefault(rule.name, {})
        memory["checks"] = memory.get("checks", 0) + 1
        check = Check(step, memory["checks"], self.per_check, self.baseline)
        reading = TESTS[rule.test](rule, memory, metrics, check)
        if reading is None or memory["checks"] <= rule.grace:
            return None
        judged_from = memory.setdefault("judged_from", step if rule.grace else 0)
        if not _fires(rule, memory, step, reading):
            return None
        rule, beside = self._beside_healthy(rule, reading, step)
        start = reading.start_step
        if start is None:
            start = next(at for at, crossed in memory["recent"] if crossed)
        return Violation(
            rule=rule,
            action=rule.action,
            step=step,
            value=reading.value,
            limit=reading.limit,
            message=f"{_message(rule, reading)}{beside}",
            expected=reading.expected,
            start_step=max(start, judged_from) if rule.diagnoses else step,
            detail=reading.detail,
            repeats=memory["times"] > 1 or self._repeats(rule),
        )

    def _beside_healthy(self, rule: Rule, reading: Reading, step: int) -> tuple[Rule, str]:
        """A level that healthy runs may reach as well (`healthy`, the least difference from them)
        informs; it warns where they were elsewhere at this step. Returns the rule with its severity
        and what the message says of it."""
        if "healthy" not in rule.given or rule.severity != "info" or rule.action != WARN:
            return rule, ""
        usual = self.baseline.at(rule.metric, step) if self.baseline is not None else None
        if usual is None:
            return rule, (
                " There is no baseline of healthy runs of this recipe at this step, so this is a "
                "note and opens no incident."
            )
        beyond = (reading.value - usual.mean) * (1 if rule.bound == "above" else -1)
        were = f" {usual.runs} healthy runs were at {usual.mean:.3g} ± {usual.deviation:.2g} here"
        if beyond >= rule.given["healthy"] and abs(usual.z(reading.value)) > UNLIKE:
            return replace(rule, severity="warning"), f"{were}."
        return rule, f"{were}: this is no different, so it is a note and opens no incident."

    def _repeats(self, rule: Rule) -> bool:
        """Whether a rule of the other sort, one acts and one only explains, has already spoken of
        this metric on this side; one that only informs does not count."""
        return any(
            self._memory.get(one.name, {}).get("raised", False)
            for one in self.rules
            if (one.stage, one.metric, one.bound) == (rule.stage, rule.metric, rule.bound)
            and bool(one.actions) != bool(rule.actions)
            and one.severity != "info"
        )

    # --- what is no number ---

    def _non_finite(self, step: int, known: Mapping[str, float]) -> list[Violation]:
        """A metric that is no number, unless its step was reported when it was skipped.

        One that a guardrail watches counts as a bad step; any other is reported where runs of the
        kind are diagnosed. An evaluation that is no number a second time in a row stops the run:
        nothing can be chosen by it any more.
        """
        broken = sorted(name for name, value in known.items() if not math.isfinite(value))
        is_new = self._is_newly_non_finite(step, known, bool(broken))
        what = broken[0] if broken else NON_FINITE.metric
        message = f"{NON_FINITE.title}: {what} at step {step}."
        plain = _unfinite("", step, 1.0, message, f"found {what}")
        self.findings += [plain.finding] if is_new else []
        if self._is_live and step > 0:
            watched = [name for name in broken if name in self._watched]
            evaluations = [name for name in watched if name.startswith("eval/")]
            if evaluations:
                self._broken_evaluations += 1
                again = self._broken_evaluations > 1
                return [self._bad(step, evaluations[0], known, again=again)]
            if any(name.startswith("eval/") and name in self._watched for name in known):
                self._broken_evaluations = 0
            if watched and not self.finite.reported_since(self._last_step + 1):
                return [self._bad(step, watched[0], known)]
        reported = self.finite.reported_since(min(step, self._last_step + 1))
        explained = not self._is_live or any(rule.diagnoses for rule in self.rules)
        return [plain] if is_new and explained and not reported else []

    def _bad(
        self, step: int, name: str, known: Mapping[str, float], *, again: bool = False
    ) -> Violation:
        return self.finite.skip_or_stop(
            step, f"the metric {name}", skipped=False, again=again, value=known[name]
        )

    def _is_newly_non_finite(self, step: int, known: Mapping[str, float], broken: bool) -> bool:
        said = known.get(NON_FINITE.metric)
        if not broken and said is None:
            return False
        off = broken or (said or 0.0) > 0
        memory = self._memory.setdefault(NON_FINITE.name, {})
        memory["checks"] = memory.get("checks", 0) + 1
        at_once = replace(NON_FINITE, patience=(1, 1))
        return _fires(at_once, memory, step, exact(float(off), "", off))

    # --- the cause ---

    def _with_cause(self, violations: list[Violation], step: int) -> list[Violation]:
        """What broke first as a violation of its own, once for each stage that is named, where the
        rule of it is on. It stands for the alert of the finding that it names."""
        rule = self._cause if self._is_live else None
        named = verdict(self.findings) if rule is not None and rule.action != OFF else None
        if rule is None or named is None or named.first.stage == self._named:
            return violations
        self._named, first = named.first.stage, named.first
        value = "" if first.value is None else f": {with_unit(first.value, first.unit)}"
        expected = f", expected {first.expected}" if first.expected else ""
        cause = Violation(
            rule=replace(rule, stage=first.stage),
            action=rule.action,
            step=step,
            value=math.nan,
            limit=math.nan,
            message=f"{rule.title}: the stage {first.stage}, from step {first.start_step} on. "
            f"{first.title}{value}{expected}. {_DONE[rule.action]}",
            expected="",
            start_step=step,
            repeats=True,
        )
        quiet = [
            replace(one, is_quiet=True)
            if not one.rule.actions and one.rule.name == first.rule
            else one
            for one in violations
        ]
        return [*quiet, cause]


def live_engine(spec: JobSpec, settings: Any) -> Engine:
    """The rules of this run as its settings choose them, with the healthy runs that it is compared
    with."""
    chosen = {name: getattr(settings, name, None) for name in ("guards", "reward")}
    healthy = baseline_from_json(spec.baseline) if spec.baseline else None
    return Engine(spec.kind, chosen, baseline=healthy, per_check=settings.batch_size)


def _fires(rule: Rule, memory: Memory, step: int, reading: Reading) -> bool:
    """Whether this check raises the rule; keeps count of checks, alerts and calm."""
    k, n = rule.patience
    recent: list[list[int]] = memory.setdefault("recent", [])
    recent.append([step, int(reading.crossed)])
    del recent[:-n]
    often = sum(crossed for _, crossed in recent) >= k
    now = memory["checks"]
    since = now - memory.get("fired_at", -COOLDOWN)
    if memory.get("raised"):
        _count_calm(memory, step, reading)
        memory["raised"] = memory["calm"] < CLEAR_AFTER
        again = rule.action == ADJUST and memory["times"] < MOST_ADJUSTMENTS
        if not (again and often and since >= ADJUST_AGAIN):
            return False
        memory["times"] += 1
    else:
        if not often or since < COOLDOWN:
            return False
        memory.update(raised=True, calm=0, calm_since=None, times=1)
    memory["fired_at"] = now
    memory.pop("trend", None)  # what is off the trend now begins a new one
    return True


def _count_calm(memory: Memory, step: int, reading: Reading) -> None:
    """Checks in a row that lay well inside, and since which step."""
    if not reading.clear:
        memory.update(calm=0, calm_since=None)
        return
    memory["calm"] += 1
    if memory["calm"] == 1:
        memory["calm_since"] = step


def _message(rule: Rule, reading: Reading) -> str:
    """What was measured, and what was done; what to do about it stands in the playbook."""
    value, how_often = with_unit(reading.value, rule.unit), ""
    if math.isfinite(reading.limit):
        side = "over" if rule.bound == "above" else "under"
        against = f", {side} {number(reading.limit)}"
        how_often = f" ({rule.patience_words})" if rule.patience[1] > 1 else ""
    else:
        against = f", expected {reading.expected}"
        against += f" ({reading.detail})" if reading.detail else ""
    done = f"Changed: {rule.adjustment_words}." if rule.action == ADJUST else _DONE[rule.action]
    return f"{rule.title}: {rule.metric} at {value}{against}{how_often}. {done}".strip()
