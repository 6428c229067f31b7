"""What the audits page prints: a sample in, rates with their intervals and SVG geometry out."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from apps.agreement.screens.disputes import percent, spread
from apps.agreement.selectors.audits import AuditSample, ReviewerError
from apps.common.report.blocks import Part
from apps.common.report.shares import shares
from apps.labeling.models import Choice
from measures.audit import (
    Corrected,
    Rate,
    corrected_rate,
    simple_rate,
    stratified_rate,
    weighted_rate,
)
from measures.estimate import Interval
from workers.contract.reasons import reason_words

WORDS = dict(Choice.choices)


@dataclass(frozen=True, slots=True)
class Figures:
    """votes, decisions: as the reviewers found them; the others with their own error taken out."""

    votes: Rate
    votes_corrected: Corrected
    decisions: Rate
    decisions_corrected: Corrected


def figures(sample: AuditSample, reviewers: ReviewerError, kappa: float) -> Figures:
    people = sorted(sample.population)
    audited = Counter(row.annotator for row in sample.done)
    wrong = Counter(row.annotator for row in sample.done if row.differs)
    votes = stratified_rate(
        [wrong[person] for person in people],
        [audited[person] for person in people],
        [sample.population[person] for person in people],
    )
    # A comparison with more votes is more often in the sample, in proportion to them.
    decided = [row for row in sample.done if row.decided]
    decisions = weighted_rate(
        [float(row.decision_differs) for row in decided], [1 / row.n_votes for row in decided]
    )
    return Figures(
        votes=votes,
        votes_corrected=corrected_rate(votes, reviewers.rate, kappa=kappa),
        decisions=decisions,
        decisions_corrected=corrected_rate(decisions, reviewers.rate, kappa=kappa),
    )


@dataclass(frozen=True, slots=True)
class Headline:
    """The error rate one would quote: `value` with `spread`, and what it is."""

    value: str
    spread: str
    basis: str


def headline(found: Corrected) -> Headline:
    rate = found.rate
    if rate.value is None:
        return Headline("—", "", reason_words(rate.undefined))
    basis = f"n = {rate.n:,} audits; "
    basis += "not corrected" if found.not_corrected else "reviewers’ own error taken out"
    return Headline(percent(rate.value), spread(rate), basis)


def chart(found: Figures) -> Part | None:
    lines: list[tuple[str, Interval, str]] = []
    for label, plain, corrected in (
        ("Votes", found.votes, found.votes_corrected),
        ("Decisions", found.decisions, found.decisions_corrected),
    ):
        if plain.value is None:
            continue
        lines.append((f"{label}, as reviewers found", plain.interval, "plain"))
        if corrected.not_corrected is None:
            lines.append((f"{label}, corrected", corrected.rate, "accent"))
    if not lines:
        return None
    return shares(lines)


def reviewers_said(error: ReviewerError, kappa: float) -> str:
    """How good the reviewers are known to be, and from what."""
    if not error.source or error.rate.value is None:
        why = reason_words(error.rate.undefined)
        return f"Not corrected for the reviewers’ own error: {why}."
    interval = error.rate.interval
    where = (
        f"from {error.rate.n:,} answers of theirs on pairs with a known answer"
        if error.source == "gold"
        else f"from {error.rate.n:,} pairs they judged twice; what they get wrong the same way "
        "both times does not show, so it may be more"
    )
    kept = "" if kappa > 0.999 else f" Two wrong answers coincide in {percent(kappa)}."
    return (
        f"The reviewers who did the audits err in {percent(error.rate.value)} "
        f"({spread(interval)}), {where}.{kept}"
    )


@dataclass(frozen=True, slots=True)
class AnnotatorAudits:
    """One annotator's line."""

    who: str
    votes: int
    audited: int
    differed: int
    rate: str
    spread: str
    due: int
    overdue: int


def strata_order(sample: AuditSample) -> list[tuple[int, int]]:
    """(annotator, their number by votes): those with overdue and due audits first, then those with
    most votes."""
    people = sorted(sample.population, key=lambda person: (-sample.population[person], person))

    def due(place: tuple[int, int]) -> tuple[int, int, int]:
        waiting = sample.waiting.get(place[0])
        return (-waiting.overdue, -waiting.due, place[1]) if waiting else (0, 0, place[1])

    return sorted(((person, number) for number, person in enumerate(people, start=1)), key=due)


def strata(
    sample: AuditSample, people: Iterable[tuple[int, int]], names: dict[int, str]
) -> list[AnnotatorAudits]:
    """These of `strata_order`, by their numbers where no names are given."""
    audited = Counter(row.annotator for row in sample.done)
    wrong = Counter(row.annotator for row in sample.done if row.differs)
    lines = []
    for person, number in people:
        waiting = sample.waiting.get(person)
        rate = simple_rate(wrong[person], audited[person]).interval
        lines.append(
            AnnotatorAudits(
                who=names.get(person, f"Annotator {number}"),
                votes=sample.population[person],
                audited=audited[person],
                differed=wrong[person],
                rate="—" if rate.value is None else percent(rate.value),
                spread=spread(rate) if rate.low is not None else "too few" * bool(rate.n),
                due=waiting.due if waiting else 0,
                overdue=waiting.overdue if waiting else 0,
            )
        )
    return lines
