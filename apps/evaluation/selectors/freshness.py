"""Whether a reward model still knows what people say: its age, and the votes that came since."""

from collections.abc import Iterator
from datetime import datetime

from django.db.models import F, Q, QuerySet
from django.utils import timezone

from apps.evaluation.selectors.ceiling import dataset_of
from apps.labeling.models import Decision, Slot, Vote
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import TRAIN
from apps.training.models import Checkpoint
from measures.trust.findings import Finding, unmeasured
from measures.trust.freshness import freshness

# Hidden repeats and audit re-votes train nothing, so they make no model old.
_TRAINING = (Slot.Kind.REGULAR, Slot.Kind.GOLD)
_SETTLED = (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)


def freshness_finding(checkpoint: Checkpoint) -> Finding:
    """The line "freshness": how old the model is, and how much has been said since its dataset was
    frozen."""
    dataset = dataset_of(checkpoint)
    if dataset is None or dataset.frozen_at is None:
        return unmeasured(
            "freshness",
            "Not measured: the model's run names no dataset of this project, so the votes "
            "it was trained on are unknown.",
        )
    ended = checkpoint.run.ended_at or checkpoint.created_at
    age_days = max(0.0, (timezone.now() - ended).total_seconds() / 86_400)
    at_training, since = votes_then_and_since(checkpoint, dataset)
    return freshness(age_days, at_training, since, flipped=flipped_since(dataset))


def votes_then_and_since(checkpoint: Checkpoint, dataset: Snapshot) -> tuple[int, int]:
    """(votes there were when the dataset was frozen, votes that came since and were not trained
    on). A changed vote counts as new: it is what its person says now."""
    votes = Vote.objects.filter(
        project=checkpoint.project, is_current=True, slot__kind__in=_TRAINING
    )
    later = votes.filter(_later(dataset))
    learned = _trained_on(dataset_of(checkpoint, "hard"))
    since = later.exclude(pk__in=learned).count() if learned else later.count()
    return votes.count() - since, since


def flipped_since(dataset: Snapshot) -> tuple[int, int]:
    """(training pairs that people decide the other way now, training pairs)."""
    rows = SnapshotRow.objects.filter(snapshot=dataset, split=TRAIN, winner__in=("a", "b"))
    decided = rows.filter(
        comparison__decision__outcome__in=_SETTLED, comparison__decision__winner__in=("a", "b")
    )
    turned = decided.exclude(comparison__decision__winner=F("winner"))
    return turned.count(), rows.count()


def _later(dataset: Snapshot) -> Q:
    """Cast after the freeze; of imported votes, whose time is that of their source, those numbered
    after every vote that the freeze looked at, unless its filters passed over some."""
    cast: datetime = dataset.frozen_at or dataset.created_at
    after = Q(cast_at__gt=cast)
    filters = dataset.recipe.get("filters") or {}
    if any(value for name, value in filters.items() if name != "left_out"):
        return after
    newest = max(_used(SnapshotRow.objects.filter(snapshot=dataset)), default=0)
    return after | Q(source=Vote.Source.IMPORT, pk__gt=newest) if newest else after


def _trained_on(snapshot: Snapshot | None) -> list[int]:
    if snapshot is None:
        return []
    return list(_used(SnapshotRow.objects.filter(snapshot=snapshot, split=TRAIN)))


def _used(rows: QuerySet[SnapshotRow]) -> Iterator[int]:
    for votes in rows.values_list("vote_ids", flat=True).iterator(5_000):
        yield from votes
