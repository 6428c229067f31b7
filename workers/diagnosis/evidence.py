"""One piece of evidence: what was measured, what was expected, and when the trouble began."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from workers.contract.events import Evidence
from workers.contract.guards import LINKS

CONTRACT, PROBE, TREND = "contract", "probe", "trend"
CLASSES = (CONTRACT, PROBE, TREND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A trouble that a detector found at `step` and that began at `onset`.

    A contract is exact and never wrong by chance; a probe is a statistic on fixed prompts; a trend
    is the run's own course against its past. `value` and `expected` are in `unit`. The onset may
    lie up to `slack` steps later than it says. `suspects` are links further out that would show in
    the same way; `experiment` tells them apart. A `symptom` is what a guardrail crossed: it says
    that something is wrong, and not what.
    """

    link: str
    rule: str
    evidence_class: str
    step: int
    onset: int
    title: str
    value: float | None = None
    expected: str = ""
    unit: str = ""
    detail: str = ""
    slack: int = 0
    symptom: bool = False
    samples: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    experiment: str = ""

    @property
    def depth(self) -> int:
        """0 is the outermost link."""
        return LINKS.index(self.link)

    def to_event(self) -> Evidence:
        return Evidence(
            link=self.link,
            rule=self.rule,
            evidence_class=self.evidence_class,
            step=self.step,
            value=self.value,
            expected=self.expected,
            unit=self.unit,
            detail=self.detail,
            onset=self.onset,
            samples=list(self.samples),
            experiment=self.experiment,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def finding_from_json(data: Mapping[str, Any]) -> Finding:
    return Finding(
        **{
            **data,
            "samples": tuple(data.get("samples", ())),
            "suspects": tuple(data.get("suspects", ())),
        }
    )


@dataclass(frozen=True, slots=True)
class Experiment:
    """A short run that tells one cause from another: one variable, and what each answer means.

    `check` is the recipe `check`'s own name of it, `minimal` or `one_change`; `changes` is the one
    setting of a fix experiment, as a factor or a value.
    """

    id: str
    title: str
    question: str
    confirms: str
    refutes: str
    check: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # inputs of the run that must be there
