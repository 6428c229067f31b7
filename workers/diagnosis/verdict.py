"""What broke first: the earliest onset, and of several at once the outermost link.

A trouble further out explains those behind it: labels teach the reward model, which teaches the
policy, and so on inwards. So the finding that began first is the cause, what began later is listed
under it, and where two began together as far as can be told, the outer one goes first and the
other is an alternative that the next experiment must rule out. A guardrail's threshold is a
symptom: it is the cause only where no detector names one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from workers.contract.guards import LINKS
from workers.diagnosis.evidence import CONTRACT, Finding

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
