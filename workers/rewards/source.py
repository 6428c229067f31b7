"""What every source of rewards answers: text in, one number per response out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from workers.data.snapshot import Messages


@dataclass(frozen=True, slots=True)
class Scores:
    """Raw scores, one per response, and the parts they are made of (by component).

    Every list has one entry per response. None where the source has nothing to say of it.
    """

    values: list[float]
    parts: Mapping[str, list[float]] = field(default_factory=dict)
    truncated: int = 0  # responses of which the source could not read the end
    # An ensemble's: the deviation over its members after each was standardised on its validation
    # answers (measures.ensembles).
    disagreement: list[float] | None = None
    cut: list[bool] | None = None  # which responses were not read to the end
    reviews: list[str | None] | None = None  # why people must see a response
    blocked: list[bool] | None = None  # which responses break a hard constraint
    # Those of the blocked whose value says nothing of it, as the rule they break has no penalty:
    # they must give no gradient, or breaking the rule would be rewarded.
    withheld: list[bool] | None = None
    known: list[bool] | None = None  # which scores a cache had

    @property
    def asked(self) -> int | None:
        """Texts that a cache was asked for; None without one."""
        return None if self.known is None else len(self.known)

    @property
    def cache_hits(self) -> int | None:
        return None if self.known is None else sum(self.known)

    def parts_of(self, index: int) -> dict[str, float]:
        return {name: values[index] for name, values in self.parts.items()}


class RewardSource(Protocol):
    """Scores text, so a source may use any tokenizer or none. Same text, same score."""

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores: ...


def join(pieces: Sequence[Scores]) -> Scores:
    """Scores of one source, asked piece by piece, as one answer in that order."""
    pieces = [piece for piece in pieces if piece.values]  # of no text, nothing is known
    if len(pieces) < 2:
        return pieces[0] if pieces else Scores([])
    names = pieces[0].parts
    return Scores(
        [value for piece in pieces for value in piece.values],
        {name: [v for piece in pieces for v in piece.parts[name]] for name in names},
        sum(piece.truncated for piece in pieces),
        _joined([piece.disagreement for piece in pieces]),
        _joined([piece.cut for piece in pieces]),
        _joined([piece.reviews for piece in pieces]),
        _joined([piece.blocked for piece in pieces]),
        _joined([piece.withheld for piece in pieces]),
        _joined([piece.known for piece in pieces]),
    )


def take(scores: Scores, start: int, stop: int) -> Scores:
    """The scores of the responses `start` to `stop`. A source that counts what it could not read
    says which, or the count would be nobody's."""

    def cut(values: list[Any] | None) -> list[Any] | None:
        return None if values is None else values[start:stop]

    which = cut(scores.cut)
    return Scores(
        scores.values[start:stop],
        {name: values[start:stop] for name, values in scores.parts.items()},
        sum(which or ()),
        cut(scores.disagreement),
        which,
        cut(scores.reviews),
        cut(scores.blocked),
        cut(scores.withheld),
        cut(scores.known),
    )


def _joined(lists: Sequence[list[Any] | None]) -> list[Any] | None:
    """None unless every piece has it: one source says it of every text or of none."""
    if not lists or any(values is None for values in lists):
        return None
    return [value for values in lists for value in values or []]
