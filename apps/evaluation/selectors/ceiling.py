"""How right a reward model could be at most, for the kind of label that it is measured against."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from apps.agreement.selectors.votes import report_get
from apps.evaluation.findings import freshness
from apps.labeling.models import ONE_VOTE, Decision, Slot, Vote
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import HELDOUT_ANNOTATORS, HELDOUT_GROUPS, PUBLIC_TEST, TRAIN
from apps.training.models import Checkpoint
from measures.ceiling import ceiling_from_agreement, decided_ceiling
from measures.trust.findings import Finding, unmeasured
from workers.contract.numbers import percent
from workers.contract.reasons import reason_words

SINGLE, DECIDED = "single votes", "decided pairs"
_UNSEEN = (PUBLIC_TEST, HELDOUT_GROUPS)
_NOT_BY_VOTES = ("ruling", "vote")  # a person's word, and one held-out vote


@dataclass(frozen=True, slots=True)
class LabelCeiling:
    """The ceiling against one kind of label, as fractions.

    low: what people reach (another vote, a second crowd); high: what a model that knew everybody's
    mind would reach. Both None where `undefined` says why. `n`: pairs behind it.
    """

    label: str  # SINGLE or DECIDED
    low: float | None
    high: float | None
    n: int
    says: str
    undefined: str | None = None


@dataclass(frozen=True, slots=True)
class HumanCeiling:
    """Like is compared with like: single held-out votes with `single`, decided pairs with
    `decided`."""

    single: LabelCeiling
    decided: LabelCeiling

    def of_split(self, split: str) -> LabelCeiling:
        return self.single if split == HELDOUT_ANNOTATORS else self.decided


def human_ceiling(checkpoint: Checkpoint) -> HumanCeiling:
    """From the project's agreement report and the votes behind the model's unseen pairs."""
    report = report_get(project=checkpoint.project)
    if report is None:
        why = "Votes have not been compared with each other yet: two votes on some pairs are needed"
        return HumanCeiling(_none(SINGLE, why), _none(DECIDED, why))
    two_way = report.figures["two_way"]["percent"]
    if two_way["value"] is None:
        why = "No pair has two A-or-B votes, so human agreement is unknown"
        return HumanCeiling(_none(SINGLE, why), _none(DECIDED, why))
    return HumanCeiling(_single(two_way), _decided(checkpoint, float(two_way["value"])))


def _single(agreement: dict[str, float]) -> LabelCeiling:
    found, n = ceiling_from_agreement(agreement["value"]), int(agreement["n_items"])
    if found.low is None or found.high is None:
        return _none(SINGLE, reason_words(found.undefined).capitalize(), n)
    says = (
        f"Two votes on one pair agree in {percent(found.low)} (n = {n:,} pairs), so against single "
        f"votes even the best model is right in {percent(found.low)} to {percent(found.high)}."
    )
    return LabelCeiling(SINGLE, found.low, found.high, n, says)


def _decided(checkpoint: Checkpoint, agreement: float) -> LabelCeiling:
    dataset = dataset_of(checkpoint)
    if dataset is None:
        return _none(DECIDED, "The model's run names no dataset of this project")
    won, lost = _votes_behind(dataset)
    found = decided_ceiling(won, lost, agreement=agreement)
    if found.again is None or found.best is None:
        return _none(DECIDED, reason_words(found.undefined).capitalize(), found.n_pairs)
    says = (
        f"A second crowd of the same size would decide {percent(found.again)} of the "
        f"{found.n_pairs:,} unseen pairs alike; a perfect model would be right in "
        f" {percent(found.best)}."
    )
    return LabelCeiling(DECIDED, found.again, found.best, found.n_pairs, says)


def dataset_of(checkpoint: Checkpoint, role: str = "data") -> Snapshot | None:
    """The dataset that the model's run read."""
    link = checkpoint.run.inputs.filter(role=role, snapshot__isnull=False)
    found = link.select_related("snapshot").first()
    return found.snapshot if found else None


def _votes_behind(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray]:
    """A-or-B votes (for, against) the label of each pair that the model never saw. What a person
    ruled was decided by nobody's votes and is left out, and so are pairs that were drawn or chosen
    to train on, with a single vote."""
    rows = SnapshotRow.objects.filter(
        snapshot=snapshot, split__in=_UNSEEN, winner__in=("a", "b")
    ).exclude(Q(decided_by__in=_NOT_BY_VOTES) | Q(comparison__slice__in=ONE_VOTE))
    decided = list(rows.values_list("winner", "vote_ids"))
    ids = [vote for _, votes in decided for vote in votes]
    choices = dict(Vote.objects.filter(pk__in=ids).values_list("pk", "choice"))
    counts = np.zeros((len(decided), 2), dtype=np.int64)
    for row, (winner, votes) in enumerate(decided):
        for choice in (choices.get(vote) for vote in votes):
            if choice in ("a", "b"):
                counts[row, int(choice != winner)] += 1
    return counts[:, 0], counts[:, 1]


def _none(label: str, why: str, n: int = 0) -> LabelCeiling:
    return LabelCeiling(label, None, None, n, f"{why}.", why)


# Whether a reward model still knows what people say: its age, and the votes that came since.


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
