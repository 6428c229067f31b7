"""Looks at a run step by step and says each trouble once."""

import copy
import math
from collections.abc import Mapping
from typing import Any

from workers.contract.guards import LINKS
from workers.diagnosis.baseline import Baseline
from workers.diagnosis.contracts import finding_of_failure
from workers.diagnosis.detector import Detector
from workers.diagnosis.detectors import detectors_of
from workers.diagnosis.evidence import Finding, finding_from_json
from workers.diagnosis.looks import TESTS, Look, Memory

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
    def judged_links(self) -> list[str]:
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
