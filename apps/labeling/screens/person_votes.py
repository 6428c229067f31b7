"""What the page of a person's votes shows."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.labeling.forms.person_votes import VotesForm
from apps.labeling.models import Choice, Comparison, Decision, Slot, Vote
from apps.labeling.services import Discarded
from apps.labeling.texts import excerpt

_PURPOSE = {
    Slot.Kind.DISCARD: "discarded",
    Slot.Kind.FORMER: "earlier round",
    Slot.Kind.REPEAT: "hidden repeat",
    Slot.Kind.AUDIT: "audit",
}
_DECIDED = (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)


@dataclass(frozen=True, slots=True)
class VoteRow:
    """decided: the winner in words, "" where there is none; `agrees` None then. seconds: looked at
    it, None where unknown; purpose: "" for a vote that counts."""

    vote: Vote
    prompt: str
    decided: str
    agrees: bool | None
    seconds: float | None
    purpose: str


def rows(votes: Iterable[Vote]) -> list[VoteRow]:
    found = list(votes)
    comparisons = Comparison.objects.filter(pk__in=[vote.comparison_id for vote in found])
    about = comparisons.select_related("prompt", "decision").in_bulk()
    slots = Slot.objects.in_bulk([vote.slot_id for vote in found])
    return [_row(vote, about[vote.comparison_id], slots[vote.slot_id]) for vote in found]


def _row(vote: Vote, comparison: Comparison, slot: Slot) -> VoteRow:
    decision = getattr(comparison, "decision", None)
    winner = decision.winner if decision and decision.outcome in _DECIDED else ""
    return VoteRow(
        vote=vote,
        prompt=excerpt(comparison.prompt.brief),
        decided=str(Choice(winner).label) if winner else "",
        agrees=winner == vote.choice if winner else None,
        seconds=None if vote.active_ms is None else vote.active_ms / 1000,
        purpose=_PURPOSE.get(Slot.Kind(slot.kind), ""),
    )


def changes(done: Discarded) -> list[dict[str, object]]:
    """What becomes of comparisons, the most frequent first."""
    pairs = sorted(done.changed.items(), key=lambda one: -one[1])
    return [{"n": n, "before": _words(a), "after": _words(b)} for (a, b), n in pairs]


def _words(standing: str) -> str:
    state, _, winner = standing.partition(": ")
    label = str(Comparison.State(state).label)
    return f"{label}: {Choice(winner).label}" if winner else label


def filter_words(form: VotesForm) -> list[str]:
    """The filter, a few words each."""
    wanted = form.wanted().as_dict()
    found = []
    for name, value in wanted.items():
        field = form.fields[name]
        said = dict(getattr(field, "choices", ())).get(value, value)
        found.append(f"{field.label}: {said}")
    return found
