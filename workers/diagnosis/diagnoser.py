"""Looks at a run step by step and says each problem once."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from workers.contract.guards import LINKS
from workers.diagnosis.baseline import WIDTH, Baseline
from workers.diagnosis.detectors import Detector, detectors_of
from workers.diagnosis.verdict import Finding, finding_from_json, finding_of_failure

# Tests of a check, in plain Python. A detector's memory is JSON, resumed runs continue exactly.
#
# Each takes (detector, memory, metrics, step, baseline) and returns a `Check`, or None when the
# check
# says nothing yet.

Memory = dict[str, Any]
MetricValues = Mapping[str, float]
MARGIN = 0.2  # a problem is over a fifth of the limit inside it


@dataclass(frozen=True, slots=True)
class Check:
    """`off`: beyond the limit; `clear`: well inside; `start_step`, if the test knows it better."""

    value: float
    expected: str
    off: bool
    clear: bool
    start_step: int | None = None
    detail: str = ""


Test = Callable[[Detector, Memory, MetricValues, int, Baseline | None], Check | None]


def level(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check:
    """The figure (or its size, with `size`) against `above` or `below`."""
    value = metrics[detector.metrics[0]]
    value = abs(value) if detector.given.get("size") else value
    return _against(detector, value)


def average(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """The median of the last `window` checks against `above` or `below`: one check of a small batch
    says little, and a median does not hear a single outlier. It began with the first of them that
    was itself beyond the limit. With `unless_rising`, a figure whose newer half lies that much over
    its older half is left alone."""
    value = metrics[detector.metrics[0]]
    value = abs(value) if detector.given.get("size") else value
    kept = _keep(memory, [step, value], detector.given["window"])
    if len(kept) < detector.given.get("least", detector.given["window"]):
        return None
    check = _against(detector, median(one for _, one in kept))
    half = len(kept) // 2
    older, newer = (median(one for _, one in part) for part in (kept[:half], kept[half:]))
    rises = newer - older > detector.given.get("unless_rising", math.inf)
    if rises:  # it is on its way: no problem yet, and no all-clear
        check = replace(check, off=False, clear=False)
    if not check.off:
        memory.pop("since", None)
        return check
    begun = next(at for at, one in kept if _against(detector, one).off)
    return replace(check, start_step=memory.setdefault("since", begun))


def burst(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """How often in the last `window` checks the figure was over `times` their median: a heavy tail
    makes single batches many times wilder than the batches around them. `above` is how often."""
    kept = _keep(memory, [step, metrics[detector.metrics[0]]], detector.given["window"])
    if len(kept) < detector.given.get("least", 4):
        return None
    usual = median(one for _, one in kept)
    limit = detector.given["times"] * usual
    wild = [at for at, one in kept if one > limit]
    calm = next((at for at, one in kept if one <= limit), step)
    if not wild or wild[-1] < calm:  # wild and then calm for good: a figure that fell
        wild = []
    check = _against(detector, float(len(wild)))
    return replace(check, start_step=wild[0]) if check.off else check


def pooled(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """The last `window` checks of a figure that is a standard normal deviate when all is well,
    pooled: |Σz|/√n, from the second check on. Several checks that are each a little off are one
    that is far off."""
    kept = _keep(memory, [step, metrics[detector.metrics[0]]], detector.given["window"])
    if len(kept) < 2:
        return None
    total = abs(math.fsum(z for _, z in kept)) / math.sqrt(len(kept))
    return replace(_against(detector, total), start_step=kept[0][0])


def share_of(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """The first figure over the second."""
    whole = metrics[detector.metrics[1]]
    return _against(detector, metrics[detector.metrics[0]] / whole) if whole > 0 else None


def of_first(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """The figure over its mean in the first `first` checks."""
    value = metrics[detector.metrics[0]]
    begun = memory.setdefault("begun", [])
    if len(begun) < detector.given.get("first", 3):
        begun.append(value)
        return None
    base = math.fsum(begun) / len(begun)
    return _against(detector, value / base) if base > 0 else None


def changed(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check:
    """Any departure from the first value. Exact."""
    value = metrics[detector.metrics[0]]
    first = memory.setdefault("first", value)
    off = value != first
    return Check(value, f"{first:.9g}, as at first", off, not off, start_step=step if off else None)


def at_start(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """The figure at the first check alone; resumed runs have had theirs, and a record that begins
    later, such as one of every tenth step, has no start to judge."""
    if memory.setdefault("judged", False) or step > 1:
        return None
    memory["judged"] = True
    return _against(detector, metrics[detector.metrics[0]])


def never_moves(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """The first figure is still 0 although the second says that the weights have moved."""
    memory["moved"] = memory.get("moved", 0) + (metrics[detector.metrics[1]] > 0)
    if memory["moved"] <= detector.given.get("after", 2):
        return None
    value = abs(metrics[detector.metrics[0]])
    still = value < detector.given["below"]
    return Check(value, "over 0 once the weights have moved", still, not still, start_step=1)


def canaries(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """Accuracy on pairs whose better answer is known, pooled over nothing: every evaluation asks
    the same pairs. `pairs` is their number, for the standard error √(¼/n) of a blind reward.

    `reads`: swapped (wrong on known pairs, right on those it learned from), inverted (wrong on
    both, or on the known ones where there are no others), blind (not above chance).
    """
    known = metrics[detector.metrics[0]]
    own = metrics.get("eval/reward_data_accuracy")
    pairs = metrics.get("eval/canary_pairs", 64.0)
    error = 0.5 / math.sqrt(max(1.0, pairs))
    wrong = known < 0.5 - 2 * error
    off = {
        "swapped": wrong and own is not None and own > 0.5 + error,
        "inverted": wrong and (own is None or own <= 0.5 + error),
        "blind": not wrong and known < 0.5 + detector.given.get("errors", 1.5) * error,
    }[detector.given["reads"]]
    beside = "" if own is None else f"{own:.0%} on the pairs it learned from"
    return Check(known, f"over {0.5 + 2 * error:.2f}", off, not off, start_step=0, detail=beside)


def unusual(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """Against healthy runs at the same step: z of the mean of the last `WIDTH` checks past `z` in
    the direction `side` (+1, −1, 0 both), and an effect of at least `effect` (of the figure), or
    `times` the usual mean. None without a baseline."""
    usual = baseline.at(detector.metrics[0], step) if baseline else None
    kept = _keep(memory, metrics[detector.metrics[0]], WIDTH)
    if usual is None or len(kept) < detector.given.get("least", 3):
        return None
    given = detector.given
    value = math.fsum(kept) / len(kept)
    gap, side = value - usual.mean, given.get("side", 0)
    z = usual.z(value, given.get("spread", 0.0))
    far = abs(gap) >= given.get("effect", 0.0)
    if given.get("times"):
        far = far and value >= given["times"] * abs(usual.mean)
    off = far and abs(z) > given["z"] and (side == 0 or side * gap > 0)
    return Check(
        value,
        f"{usual.mean:.3g} ± {usual.deviation:.2g} in {usual.runs} healthy runs at this step",
        off,
        abs(z) < (1 - MARGIN) * given["z"],
        detail=f"z = {z:+.1f}",
    )


def gap(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check | None:
    """The first figure less the second, against its own past: the median of what it was and the
    median deviation from it. Both move when the model learns; their difference does not."""
    value = metrics[detector.metrics[0]] - metrics[detector.metrics[1]]
    past = memory.setdefault("past", [])
    if len(past) < detector.given.get("least", 3):
        past.append(value)
        return None
    centre = median(past)
    spread = max(
        1.4826 * median(abs(one - centre) for one in past),
        detector.given.get("least_effect", 0.0) * abs(metrics.get(detector.given["scale"], 1.0)),
    )
    z = (value - centre) / spread if spread > 0 else 0.0
    off = abs(z) > detector.given["z"]
    if not off:
        past.append(value)
        del past[:-20]
    return Check(value, f"{centre:.3g} ± {spread:.2g}, as before", off, not off)


def together(
    detector: Detector, memory: Memory, metrics: MetricValues, step: int, baseline: Baseline | None
) -> Check:
    """Every metric over its own limit in `limits`."""
    limits = detector.given["limits"]
    values = [metrics[name] for name in detector.metrics]
    off = all(value > limit for value, limit in zip(values, limits, strict=True))
    words = " and ".join(
        f"{name} at most {limit:g}" for name, limit in zip(detector.metrics, limits, strict=True)
    )
    return Check(values[0], words, off, not off)


TESTS: dict[str, Test] = {
    "level": level,
    "average": average,
    "burst": burst,
    "pooled": pooled,
    "share_of": share_of,
    "of_first": of_first,
    "changed": changed,
    "at_start": at_start,
    "never_moves": never_moves,
    "canaries": canaries,
    "unusual": unusual,
    "gap": gap,
    "together": together,
}


def _against(detector: Detector, value: float) -> Check:
    given = detector.given
    if "above" in given:
        limit = given["above"]
        off, clear = value > limit, value <= limit - MARGIN * abs(limit)
        return Check(value, f"at most {limit:g}", off, clear)
    limit = given["below"]
    off, clear = value < limit, value >= limit + MARGIN * abs(limit)
    return Check(value, f"at least {limit:g}", off, clear)


def _keep(memory: Memory, value: Any, length: int) -> list[Any]:
    kept: list[Any] = memory.setdefault("kept", [])
    kept.append(value)
    del kept[:-length]
    return kept


CLEAR_AFTER = 10  # checks well inside that end a problem
COOLDOWN = 20  # checks before the same detector speaks again


class Diagnoser:
    """All detectors of a kind of run. `baseline` are healthy runs of the same kind."""

    def __init__(
        self,
        kind: str,
        config: Mapping[str, Any] | None = None,
        baseline: Baseline | None = None,
    ) -> None:
        self.kind = kind
        self.config = dict(config or {})
        self.baseline = baseline
        self.detectors = detectors_of(kind, self.config)
        self.findings: list[Finding] = []
        self._memory: dict[str, Memory] = {}
        self._step = -1
        self._at_step: dict[str, float] = {}

    def see(self, step: int, metrics: Mapping[str, float | None]) -> list[Finding]:
        """Judge the metrics of one step; what newly speaks, the outermost link first.

        A step may come in parts, its own metrics and then those of the evaluation after it: what
        needs both checks once both are there, as it does when they come together. None is a figure
        that was not measured; NaN and infinity are one problem.
        """
        known = {name: float(value) for name, value in metrics.items() if value is not None}
        broken = sorted(name for name, value in known.items() if not math.isfinite(value))
        numbers = {name: value for name, value in known.items() if math.isfinite(value)}
        if broken:
            numbers["numerics/non_finite"] = 1.0
        if step != self._step:
            self._step, self._at_step = step, {}
        self._at_step |= numbers
        new = []
        for detector in self.detectors:
            here = all(name in self._at_step for name in detector.metrics)
            if here and any(name in numbers for name in detector.metrics):
                memory = self._memory.setdefault(detector.rule, {})
                found = self._look(detector, memory, self._at_step, step)
                new += [found] if found else []
        new.sort(key=lambda one: (one.depth, one.onset))
        self.findings += new
        return new

    def violation(self, step: int, kind: str, message: str) -> Finding | None:
        """A contract that ended the run, by its failure kind; None for another kind of failure."""
        found = finding_of_failure(step, kind, message)
        if found is not None and found.rule not in {one.rule for one in self.findings}:
            self.findings.append(found)
            return found
        return None

    @property
    def judged_stages(self) -> list[str]:
        """Links that at least one detector has looked at."""
        looked = {one.link for one in self.detectors if self._memory.get(one.rule, {}).get("looks")}
        return [link for link in LINKS if link in looked]

    def is_raised(self, link: str, metric: str) -> bool:
        """Whether a detector of this link that reads `metric` first has spoken of a problem that
        lasts."""
        return any(
            self._memory.get(one.rule, {}).get("raised", False)
            for one in self.detectors
            if (one.link, one.metrics[0]) == (link, metric)
        )

    def checks(self, rule: str) -> int:
        return int(self._memory.get(rule, {}).get("looks", 0))

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` of it in a new object continues exactly here."""
        return copy.deepcopy(
            {
                "memory": self._memory,
                "findings": [one.to_json() for one in self.findings],
                "step": self._step,
                "at_step": self._at_step,
            }
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        state = copy.deepcopy(dict(state))
        self._memory = state.get("memory", {})
        self.findings = [finding_from_json(one) for one in state.get("findings", [])]
        self._step, self._at_step = state.get("step", -1), state.get("at_step", {})

    def _look(
        self, detector: Detector, memory: Memory, metrics: Mapping[str, float], step: int
    ) -> Finding | None:
        check = TESTS[detector.test](detector, memory, metrics, step, self.baseline)
        memory["looks"] = memory.get("looks", 0) + 1
        if check is None or memory["looks"] <= detector.grace:
            return None
        judged_from = memory.setdefault("judged_from", step if detector.grace else 0)
        k, n = detector.patience
        recent: list[list[int]] = memory.setdefault("recent", [])
        recent.append([step, int(check.off)])
        del recent[:-n]
        if memory.get("raised"):
            memory["calm"] = memory["calm"] + 1 if check.clear else 0
            memory["raised"] = memory["calm"] < CLEAR_AFTER
            return None
        since = memory["looks"] - memory.get("spoke_at", -COOLDOWN)
        if sum(off for _, off in recent) < k or since < COOLDOWN:
            return None
        memory.update(raised=True, calm=0, spoke_at=memory["looks"])
        first_off = next(at for at, off in recent if off)
        start_step = check.start_step if check.start_step is not None else first_off
        return _finding(detector, check, step, max(start_step, judged_from))


def _finding(detector: Detector, check: Check, step: int, start_step: int) -> Finding:
    return Finding(
        link=detector.link,
        rule=detector.rule,
        evidence_class=detector.evidence_class,
        step=step,
        onset=start_step,
        slack=detector.slack,
        title=detector.title,
        value=check.value if math.isfinite(check.value) else None,
        expected=check.expected,
        unit=detector.unit,
        detail=check.detail or detector.why,
        suspects=detector.suspects,
        experiment=detector.experiment,
    )
