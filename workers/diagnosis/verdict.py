"""What broke first: the earliest start, and of several at once the outermost link.

A problem further out explains those behind it: labels teach the reward model, which teaches the
policy, and so on inwards. So the finding that began first is the cause, what began later is listed
under it, and where two began together as far as can be told, the outer one goes first and the
other is an alternative that the next experiment must rule out. A guardrail's threshold is a
symptom: it is the cause only where no detector names one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from workers.contract.events import Evidence
from workers.contract.guards import LINKS

# One piece of evidence: what was measured, what was expected, and when the problem began.

CONTRACT, PROBE, TREND = "contract", "probe", "trend"
CLASSES = (CONTRACT, PROBE, TREND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem that a detector found at `step` and that began at `onset`.

    A contract is exact and never wrong by chance; a probe is a statistic on fixed prompts; a trend
    is the run's own course against its past. `value` and `expected` are in `unit`. The start may
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


OK, FIRST, CONSEQUENCE, UNKNOWN = "ok", "first", "consequence", "unknown"


@dataclass(frozen=True, slots=True)
class LinkState:
    """One link of the chain: ok, first, consequence, or unknown where nothing was judged."""

    link: str
    state: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """`alternatives` began together with `first`, as far as their onsets can be told."""

    first: Finding
    alternatives: tuple[Finding, ...] = ()
    consequences: tuple[Finding, ...] = ()
    chain: tuple[LinkState, ...] = field(default=())

    @property
    def links(self) -> list[str]:
        """The links that may have broken first, the likeliest first."""
        return list(dict.fromkeys([self.first.link, *(one.link for one in self.alternatives)]))


def verdict(findings: Sequence[Finding], *, judged: Sequence[str] = LINKS) -> Verdict | None:
    """None when nothing was found. `judged` are the links that any detector could look at."""
    if not findings:
        return None
    causes = [one for one in findings if not one.symptom] or list(findings)
    together = _began_first(causes)
    # A contract never fires by chance: of those that began together it is the better witness of
    # its link, and nothing statistical is put before it.
    certain = [one for one in together if one.evidence_class == CONTRACT]
    first = min(certain or together, key=_order)
    others = [one for one in together if one is not first]
    others += [one for one in findings if one.symptom and one.onset < first.onset]
    alternatives = _one_per_link([one for one in others if one.link != first.link])
    later = sorted(
        (one for one in findings if one is not first and one not in alternatives), key=_when
    )
    return Verdict(
        first, tuple(alternatives), tuple(later), _chain(first, findings, frozenset(judged))
    )


def _began_first(findings: Sequence[Finding]) -> list[Finding]:
    """Those that may have begun before all others."""
    latest = min(one.onset + one.slack for one in findings)
    return [one for one in findings if one.onset <= latest]


def _order(finding: Finding) -> tuple[int, int, int]:
    return finding.depth, finding.onset, finding.step


def _when(finding: Finding) -> tuple[int, int, int]:
    return finding.onset, finding.depth, finding.step


def _one_per_link(findings: Sequence[Finding]) -> list[Finding]:
    found: dict[str, Finding] = {}
    for one in sorted(findings, key=_order):
        found.setdefault(one.link, one)
    return list(found.values())


def _chain(
    first: Finding, findings: Sequence[Finding], judged: frozenset[str]
) -> tuple[LinkState, ...]:
    states = []
    for link in LINKS:
        own = tuple(sorted((one for one in findings if one.link == link), key=_when))
        if link == first.link:
            states.append(LinkState(link, FIRST, own))
        elif own:
            states.append(LinkState(link, CONSEQUENCE, own))
        else:
            states.append(LinkState(link, OK if link in judged else UNKNOWN))
    return tuple(states)


# Contracts that end a run: by the stable code of its failure, which link they stand for.

# failure kind -> (link, title, what must hold, experiment)
CONTRACTS: dict[str, tuple[str, str, str, str]] = {
    "contract_mask": (
        "policy",
        "The loss covers tokens that are no answer",
        "as many tokens under the mask as the answer has",
        "minimal",
    ),
    "contract_score_position": (
        "policy",
        "The score does not lie on the answer's last token",
        "the score on the last real token, nothing elsewhere",
        "minimal",
    ),
    "contract_done": (
        "policy",
        "An answer does not end its episode",
        "no value beyond the last token",
        "minimal",
    ),
    "contract_kl_at_start": (
        "policy",
        "The reference is not the model the policy began as",
        "no divergence before the first update",
        "kl_reference",
    ),
    "contract_reference_aliased": (
        "policy",
        "The reference is the policy itself",
        "two models with memory of their own",
        "kl_reference",
    ),
    "contract_reference_trains": (
        "policy",
        "The reference is being trained",
        "a frozen reference",
        "kl_reference",
    ),
    "contract_reference_changed": (
        "policy",
        "The reference's weights have changed",
        "the hash it was loaded with",
        "kl_reference",
    ),
    "contract_first_ratio": (
        "freshness",
        "The answers were drawn by another policy than the one that learns",
        "a ratio of 1 before the first step of an update",
        "sampler",
    ),
    "contract_stale_rollout": (
        "freshness",
        "The answers are of an older policy",
        "the present policy's answers",
        "sampler",
    ),
    "contract_sampler": (
        "freshness",
        "Answers come from another distribution than the one that learns",
        "surprise equal to entropy within four standard errors",
        "sampler",
    ),
    "non_finite": (
        "numerics",
        "NaN or infinity",
        "finite losses, gradients and rewards",
        "minimal",
    ),
}


def finding_of_failure(step: int, kind: str, message: str) -> Finding | None:
    """The finding behind a failed run; None for a failure that says nothing about the loop.

    A run that a guardrail stopped has said why before, by its evidence.
    """
    known = CONTRACTS.get(kind)
    if known is None:
        return None
    link, title, expected, experiment = known
    return Finding(
        link=link,
        rule=kind,
        evidence_class=CONTRACT,
        step=step,
        onset=step,
        title=title,
        expected=expected,
        detail=message,
        experiment=experiment,
    )
