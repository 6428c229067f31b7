"""Demonstrations out of labeling: the better answers as annotators would have them.

A row is the prompt and the improved answer, with the vote it came with and its annotator as a
number. Rows are split by group with the hash and seed of preference datasets, so that a prompt that
is tested on is not learned from here either; prompts of the smoke split and of the private ones are
left out and counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.labeling.models import Comparison, Slot, Vote
from apps.snapshots.assembling.rows import Row, demonstration_row
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import DEV, PUBLIC_TEST, TRAIN, SnapshotRecipe, in_order
from apps.snapshots.storage import dataset_key, names_under
from measures.messages import Messages
from measures.splits import split_of

_BATCH = 5_000
_SPLITS = (TRAIN, DEV, PUBLIC_TEST)


@dataclass(frozen=True, slots=True)
class Improved:
    """A current vote that came with an improved answer."""

    vote: int
    comparison: int
    person: int
    prompt: Messages
    answer: Messages
    group: str
    source: str
    licence: str
    external_id: str = ""
    own: Mapping[str, Any] | None = None  # the comparison's metadata, then its prompt's
    shared: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Rows by split, the votes behind each row by (split, ordinal), what was left out, and the key
    of the names that stand for people."""

    files: Mapping[str, list[Row]]
    votes: Mapping[tuple[str, int], list[Improved]]
    dropped: Mapping[str, int]
    pseudonyms: str

    @property
    def counts(self) -> dict[str, Any]:
        people = {one.person for votes in self.votes.values() for one in votes}
        groups = {name: len({row["group"] for row in rows}) for name, rows in self.files.items()}
        return {
            "rows": {name: len(rows) for name, rows in self.files.items()},
            "groups": groups,
            "annotators": len(people),
            "dropped": dict(self.dropped),
            "warnings": [],
        }


def _improved(project: Project) -> QuerySet[Vote]:
    """Votes that stand, on comparisons that were not dropped."""
    return (
        Vote.objects.filter(project=project, is_current=True, improvement__isnull=False)
        .exclude(comparison__state=Comparison.State.DROPPED)
        .exclude(slot__kind=Slot.Kind.DISCARD)
    )


def improved_answers(*, project: Project) -> Iterator[Improved]:
    """In order of the votes."""
    rows = (
        _improved(project)
        .order_by("pk")
        .values_list(
            *("pk", "comparison_id", "annotator_id"),
            *("comparison__prompt__messages", "improvement__messages"),
            *("comparison__prompt__group_key", "comparison__prompt__source"),
            "comparison__prompt__licence",
            *("comparison__external_id", "comparison__metadata", "comparison__prompt__metadata"),
        )
    )
    for row in rows.iterator(_BATCH):
        yield Improved(*row)


def improved_count(*, project: Project) -> int:
    return _improved(project).count()


def improved_is_trained_on(*, project: Project, recipe: SnapshotRecipe) -> bool:
    """Whether any of them is of a group of the training split."""
    groups = _improved(project).order_by().values_list("comparison__prompt__group_key", flat=True)
    return any(split_of(group, recipe.shares, recipe.seed) == TRAIN for group in groups.distinct())


def demonstrations_from(*, project: Project, recipe: SnapshotRecipe) -> Demonstrations:
    """What a freeze would write now, by the seed and the shares of `recipe`."""
    files: dict[str, list[Row]] = {}
    votes: dict[tuple[str, int], list[Improved]] = {}
    places: dict[tuple[str, str], tuple[str, int]] = {}
    dropped: Counter[str] = Counter()
    improved = list(improved_answers(project=project))
    key = dataset_key(
        project=project.pk, recipe=recipe.to_json(), votes=[one.vote for one in improved]
    )
    name_of = names_under(key)
    for one in improved:
        *before, last = one.answer
        if last["role"] != "assistant":
            dropped["does not end with the assistant"] += 1
            continue
        asked = [*one.prompt, *before]
        split = split_of(one.group, recipe.shares, recipe.seed)
        if split not in _SPLITS:
            dropped[f"its prompt is kept for {split}"] += 1
            continue
        seen = (repr(asked), last["content"])
        if seen in places:
            dropped["repeats an earlier row"] += 1
            votes[places[seen]].append(one)
            continue
        rows = files.setdefault(split, [])
        place = places[seen] = (split, len(rows))
        votes[place] = [one]
        about = {
            "group": one.group,
            "source": one.source,
            "licence": one.licence,
            "id": one.external_id,
            "metadata": one.shared if one.own is None else one.own,
        }
        rows.append(
            demonstration_row(asked, last["content"], about)
            | {"vote": str(one.vote), "annotator": name_of(one.person)}
        )
    return Demonstrations(in_order(files), votes, dropped, key)


def demonstration_lineage(snapshot: Snapshot, made: Demonstrations) -> list[SnapshotRow]:
    """One row per (comparison, file), naming every vote that its lines came with."""
    rows: dict[tuple[int, str], SnapshotRow] = {}
    for (split, ordinal), votes in sorted(made.votes.items()):
        for one in votes:
            row = rows.setdefault(
                (one.comparison, split),
                SnapshotRow(
                    snapshot=snapshot, comparison_id=one.comparison, split=split, ordinal=ordinal
                ),
            )
            row.vote_ids = [*row.vote_ids, one.vote]
    return list(rows.values())
