"""How right a reward model could be at most, for the kind of label that it is measured against."""

from dataclasses import dataclass

import numpy as np

from apps.agreement.selectors.votes import report_get
from apps.labeling.models import Vote
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import HELDOUT_ANNOTATORS, HELDOUT_GROUPS, PUBLIC_TEST
from apps.training.models import Checkpoint
from measures.ceiling import ceiling_from_agreement, decided_ceiling
from measures.trust.findings import percent

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
        return _none(SINGLE, (found.undefined or "").capitalize(), n)
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
        return _none(DECIDED, (found.undefined or "").capitalize(), found.n_pairs)
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
    ruled was decided by nobody's votes and is left out."""
    rows = SnapshotRow.objects.filter(
        snapshot=snapshot, split__in=_UNSEEN, winner__in=("a", "b")
    ).exclude(decided_by__in=_NOT_BY_VOTES)
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
