"""A gauge of `/metrics`, and how its series stay few."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MOST_SERIES = 200  # of a family; the smallest are added up as "other"


@dataclass(frozen=True, slots=True)
class Family:
    """A gauge: `rows` are (values of `labels`, value). All times are seconds."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    rows: Sequence[tuple[tuple[str, ...], float]] = field(default_factory=list)


def capped(
    rows: Iterable[tuple[tuple[str, ...], float]] | Mapping[tuple[str, ...], float],
    most: int = MOST_SERIES,
) -> list[tuple[tuple[str, ...], float]]:
    """At most `most` series, largest first; what is left over is one series, "other"."""
    known: Sequence[tuple[tuple[str, ...], float]] = sorted(
        rows.items() if isinstance(rows, Mapping) else rows, key=lambda row: (-row[1], row[0])
    )
    if len(known) <= most:
        return list(known)
    rest = known[most - 1 :]
    other = ("other",) * len(rest[0][0])
    return [*known[: most - 1], (other, sum(value for _, value in rest))]
