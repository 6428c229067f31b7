"""The rows of one dataset, kept and left out, to look through."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import PRIVATE_SPLITS
from apps.snapshots.selectors.comparing import changed_votes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWanted:
    """Empty filters nothing. `split`: a file's name, or "dropped"; `changed`: only rows with votes
    that were changed since."""

    split: str = ""
    reason: str = ""
    winner: str = ""
    search: str = ""
    changed: bool = False


DROPPED = "dropped"


def rows_of(snapshot: Snapshot, wanted: RowsWanted) -> QuerySet[SnapshotRow]:
    """Rows with comparison and prompt, in order of the comparison's number; none for a text with a
    NUL, which the database cannot hold. Private files are not looked through: an admin downloads
    them, which is written down."""
    rows = SnapshotRow.objects.filter(snapshot=snapshot).select_related("comparison__prompt")
    rows = rows.exclude(split__in=PRIVATE_SPLITS)
    if "\x00" in wanted.split + wanted.reason + wanted.winner + wanted.search:
        return rows.none()
    if wanted.split == DROPPED:
        rows = rows.filter(split="")
    elif wanted.split:
        rows = rows.filter(split=wanted.split)
    if wanted.reason:
        rows = rows.filter(dropped_because=wanted.reason)
    if wanted.winner:
        rows = rows.filter(winner=wanted.winner)
    if wanted.search:
        number = wanted.search.lstrip("#")
        said = Q(comparison__external_id__icontains=wanted.search) | Q(
            comparison__prompt__messages__icontains=wanted.search
        )
        rows = rows.filter(said | Q(comparison=number) if _is_id(number) else said)
    if wanted.changed:
        touched = {one.comparison for one in changed_votes([snapshot])}
        rows = rows.filter(comparison__in=touched).exclude(split="")
    return rows.order_by("comparison_id", "split")


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def drop_reasons(snapshot: Snapshot) -> list[tuple[str, int]]:
    """(reason, rows), most frequent first."""
    rows = SnapshotRow.objects.filter(snapshot=snapshot, split="")
    counted = rows.values_list("dropped_because").annotate(n=Count("pk"))
    return [(reason, n) for reason, n in counted.order_by("-n", "dropped_because")]


def has_rows(snapshot: Snapshot) -> bool:
    """Imported demonstrations and prompts have files, but no comparisons behind them."""
    return SnapshotRow.objects.filter(snapshot=snapshot).exists()


def votes_behind(snapshot: Snapshot) -> int:
    """Distinct votes behind the rows of its files."""
    rows = SnapshotRow.objects.filter(snapshot=snapshot).exclude(split="")
    return len({vote for ids in rows.values_list("vote_ids", flat=True) for vote in ids})


def changed_by_comparison(snapshot: Snapshot, comparisons: Iterable[int]) -> dict[int, int]:
    """{comparison: votes behind its rows that were changed since}, of those that have any."""
    wanted = set(comparisons)
    found: dict[int, set[int]] = {}
    for one in changed_votes([snapshot]):
        if one.comparison in wanted:
            found.setdefault(one.comparison, set()).add(one.vote)
    return {pair: len(votes) for pair, votes in found.items()}
