"""Looks at a run step by step and says each trouble once."""

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

# Tests of a look, in plain Python. A detector's memory is JSON, so a resumed run goes on exactly.
#
# Each takes (detector, memory, figures, step, baseline) and returns a `Look`, or None when the
# look
# says nothing yet.

Memory = dict[str, Any]
Figures = Mapping[str, float]
MARGIN = 0.2  # a trouble is over a fifth of the limit inside it


@dataclass(frozen=True, slots=True)
class Look:
    """`off`: beyond the limit; `clear`: well inside; `onset`, where the test knows it better."""

    value: float
    expected: str
    off: bool
    clear: bool
    onset: int | None = None
    detail: str = ""


Test = Callable[[Detector, Memory, Figures, int, Baseline | None], Look | None]


def level(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look:
    """The figure (or its size, with `size`) against `above` or `below`."""
    value = figures[detector.metrics[0]]
    value = abs(value) if detector.given.get("size") else value
    return _against(detector, value)


def average(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """The median of the last `window` looks against `above` or `below`: one look of a small batch
    says little, and a median does not hear a single outlier. It began with the first of them that
    was itself beyond the limit. With `unless_rising`, a figure whose newer half lies that much over
    its older half is left alone."""
    value = figures[detector.metrics[0]]
    value = abs(value) if detector.given.get("size") else value
    kept = _keep(memory, [step, value], detector.given["window"])
    if len(kept) < detector.given.get("least", detector.given["window"]):
        return None
    look = _against(detector, median(one for _, one in kept))
    half = len(kept) // 2
    older, newer = (median(one for _, one in part) for part in (kept[:half], kept[half:]))
    rises = newer - older > detector.given.get("unless_rising", math.inf)
    if rises:  # it is on its way: no trouble yet, and no all-clear
        look = replace(look, off=False, clear=False)
    if not look.off:
        memory.pop("since", None)
        return look
    begun = next(at for at, one in kept if _against(detector, one).off)
    return replace(look, onset=memory.setdefault("since", begun))


def burst(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """How often in the last `window` looks the figure was over `times` their median: a heavy tail
    makes single batches many times wilder than the batches around them. `above` is how often."""
    kept = _keep(memory, [step, figures[detector.metrics[0]]], detector.given["window"])
    if len(kept) < detector.given.get("least", 4):
        return None
    usual = median(one for _, one in kept)
    limit = detector.given["times"] * usual
    wild = [at for at, one in kept if one > limit]
    calm = next((at for at, one in kept if one <= limit), step)
    if not wild or wild[-1] < calm:  # wild and then calm for good: a figure that fell
        wild = []
    look = _against(detector, float(len(wild)))
    return replace(look, onset=wild[0]) if look.off else look


def pooled(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """The last `window` looks of a figure that is a standard normal deviate when all is well,
    pooled: |Σz|/√n, from the second look on. Several looks that are each a little off are one that
    is far off."""
    kept = _keep(memory, [step, figures[detector.metrics[0]]], detector.given["window"])
    if len(kept) < 2:
        return None
    total = abs(math.fsum(z for _, z in kept)) / math.sqrt(len(kept))
    return replace(_against(detector, total), onset=kept[0][0])


def share_of(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """The first figure over the second."""
    whole = figures[detector.metrics[1]]
    return _against(detector, figures[detector.metrics[0]] / whole) if whole > 0 else None


def of_first(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """The figure over its mean in the first `first` looks."""
    value = figures[detector.metrics[0]]
    begun = memory.setdefault("begun", [])
    if len(begun) < detector.given.get("first", 3):
        begun.append(value)
        return None
    base = math.fsum(begun) / len(begun)
    return _against(detector, value / base) if base > 0 else None


def changed(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look:
    """Any departure from the first value. Exact."""
    value = figures[detector.metrics[0]]
    first = memory.setdefault("first", value)
    off = value != first
    return Look(value, f"{first:.9g}, as at first", off, not off, onset=step if off else None)


def at_start(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """The figure at the first look alone; resumed runs have had theirs, and a record that begins
    later, such as one of every tenth step, has no start to judge."""
    if memory.setdefault("judged", False) or step > 1:
        return None
    memory["judged"] = True
    return _against(detector, figures[detector.metrics[0]])


def never_moves(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """The first figure is still 0 although the second says that the weights have moved."""
    memory["moved"] = memory.get("moved", 0) + (figures[detector.metrics[1]] > 0)
    if memory["moved"] <= detector.given.get("after", 2):
        return None
    value = abs(figures[detector.metrics[0]])
    still = value < detector.given["below"]
    return Look(value, "over 0 once the weights have moved", still, not still, onset=1)


def canaries(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """Accuracy on pairs whose better answer is known, pooled over nothing: every evaluation asks
    the same pairs. `pairs` is their number, for the standard error √(¼/n) of a blind reward.

    `reads`: swapped (wrong on known pairs, right on those it learned from), inverted (wrong on
    both, or on the known ones where there are no others), blind (not above chance).
    """
    known = figures[detector.metrics[0]]
    own = figures.get("eval/reward_data_accuracy")
    pairs = figures.get("eval/canary_pairs", 64.0)
    error = 0.5 / math.sqrt(max(1.0, pairs))
    wrong = known < 0.5 - 2 * error
    off = {
        "swapped": wrong and own is not None and own > 0.5 + error,
        "inverted": wrong and (own is None or own <= 0.5 + error),
        "blind": not wrong and known < 0.5 + detector.given.get("errors", 1.5) * error,
    }[detector.given["reads"]]
    beside = "" if own is None else f"{own:.0%} on the pairs it learned from"
    return Look(known, f"over {0.5 + 2 * error:.2f}", off, not off, onset=0, detail=beside)


def unusual(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """Against healthy runs at the same step: z of the mean of the last `WIDTH` looks past `z` in
    the direction `side` (+1, −1, 0 both), and an effect of at least `effect` (of the figure), or
    `times` the usual mean. None without a baseline."""
    usual = baseline.at(detector.metrics[0], step) if baseline else None
    kept = _keep(memory, figures[detector.metrics[0]], WIDTH)
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
    return Look(
        value,
        f"{usual.mean:.3g} ± {usual.deviation:.2g} in {usual.runs} healthy runs at this step",
        off,
        abs(z) < (1 - MARGIN) * given["z"],
        detail=f"z = {z:+.1f}",
    )


def gap(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look | None:
    """The first figure less the second, against its own past: the median of what it was and the
    median deviation from it. Both move when the model learns; their difference does not."""
    value = figures[detector.metrics[0]] - figures[detector.metrics[1]]
    past = memory.setdefault("past", [])
    if len(past) < detector.given.get("least", 3):
        past.append(value)
        return None
    centre = median(past)
    spread = max(
        1.4826 * median(abs(one - centre) for one in past),
        detector.given.get("least_effect", 0.0) * abs(figures.get(detector.given["scale"], 1.0)),
    )
    z = (value - centre) / spread if spread > 0 else 0.0
    off = abs(z) > detector.given["z"]
    if not off:
        past.append(value)
        del past[:-20]
    return Look(value, f"{centre:.3g} ± {spread:.2g}, as before", off, not off)


def together(
    detector: Detector, memory: Memory, figures: Figures, step: int, baseline: Baseline | None
) -> Look:
    """Every metric over its own limit in `limits`."""
    limits = detector.given["limits"]
    values = [figures[name] for name in detector.metrics]
    off = all(value > limit for value, limit in zip(values, limits, strict=True))
    words = " and ".join(
        f"{name} at most {limit:g}" for name, limit in zip(detector.metrics, limits, strict=True)
    )
    return Look(values[0], words, off, not off)


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


def _against(detector: Detector, value: float) -> Look:
    given = detector.given
    if "above" in given:
        limit = given["above"]
        off, clear = value > limit, value <= limit - MARGIN * abs(limit)
        return Look(value, f"at most {limit:g}", off, clear)
    limit = given["below"]
    off, clear = value < limit, value >= limit + MARGIN * abs(limit)
    return Look(value, f"at least {limit:g}", off, clear)


def _keep(memory: Memory, value: Any, length: int) -> list[Any]:
    kept: list[Any] = memory.setdefault("kept", [])
    kept.append(value)
    del kept[:-length]
    return kept


CLEAR_AFTER = 10  # looks well inside that end a trouble
COOLDOWN = 20  # looks before the same detector speaks again


class Detective:
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

    def see(self, step: int, figures: Mapping[str, float | None]) -> list[Finding]:
        """Judge the figures of one step; what newly speaks, the outermost link first.

        A step may come in parts, its own figures and then those of the evaluation after it: what
        needs both looks once both are there, as it does when they come together. None is a figure
        that was not measured; NaN and infinity are one trouble.
        """
        known = {name: float(value) for name, value in figures.items() if value is not None}
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

    def breach(self, step: int, kind: str, message: str) -> Finding | None:
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
        """Whether a detector of this link that reads `metric` first has spoken of a trouble that
        lasts."""
        return any(
            self._memory.get(one.rule, {}).get("raised", False)
            for one in self.detectors
            if (one.link, one.metrics[0]) == (link, metric)
        )

    def looks(self, rule: str) -> int:
        return int(self._memory.get(rule, {}).get("looks", 0))

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` of it in a new object goes on exactly here."""
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
        self, detector: Detector, memory: Memory, figures: Mapping[str, float], step: int
    ) -> Finding | None:
        look = TESTS[detector.test](detector, memory, figures, step, self.baseline)
        memory["looks"] = memory.get("looks", 0) + 1
        if look is None or memory["looks"] <= detector.grace:
            return None
        judged_from = memory.setdefault("judged_from", step if detector.grace else 0)
        k, n = detector.patience
        recent: list[list[int]] = memory.setdefault("recent", [])
        recent.append([step, int(look.off)])
        del recent[:-n]
        if memory.get("raised"):
            memory["calm"] = memory["calm"] + 1 if look.clear else 0
            memory["raised"] = memory["calm"] < CLEAR_AFTER
            return None
        since = memory["looks"] - memory.get("spoke_at", -COOLDOWN)
        if sum(off for _, off in recent) < k or since < COOLDOWN:
            return None
        memory.update(raised=True, calm=0, spoke_at=memory["looks"])
        first_off = next(at for at, off in recent if off)
        onset = look.onset if look.onset is not None else first_off
        return _finding(detector, look, step, max(onset, judged_from))


def _finding(detector: Detector, look: Look, step: int, onset: int) -> Finding:
    return Finding(
        link=detector.link,
        rule=detector.rule,
        evidence_class=detector.evidence_class,
        step=step,
        onset=onset,
        slack=detector.slack,
        title=detector.title,
        value=look.value if math.isfinite(look.value) else None,
        expected=look.expected,
        unit=detector.unit,
        detail=look.detail or detector.why,
        suspects=detector.suspects,
        experiment=detector.experiment,
    )
