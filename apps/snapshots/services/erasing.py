"""Which frozen datasets hold votes or texts of a person, and what freezing them again would
change."""

from collections import Counter, defaultdict

from django.db.models import Count, Q
from django.urls import reverse

from apps.accounts.models import User
from apps.common.registry import PersonDataset
from apps.labeling.models import Vote
from apps.labeling.services.erasing import discard_looked_at
from apps.snapshots.models import Snapshot, SnapshotRow, SnapshotText
from apps.snapshots.selectors.lineage import made_from, runs_used

_PART = 5_000


def person_datasets(user: User) -> list[PersonDataset]:
    """Newest first. Decisions are those of the project's rule today; a dataset with a rule of its
    own may come out otherwise."""
    would = discard_looked_at(user)
    pairs: dict[str, set[int]] = defaultdict(set)
    alone: dict[str, int] = defaultdict(int)
    mine = dict(Vote.objects.filter(annotator=user).values_list("pk", "comparison_id"))
    rows = SnapshotRow.objects.filter(
        comparison__in=set(mine.values()), snapshot__state=Snapshot.State.FROZEN
    ).exclude(split="")
    for snapshot, comparison, votes in rows.values_list(
        "snapshot_id", "comparison_id", "vote_ids"
    ).iterator(chunk_size=_PART):
        if found := mine.keys() & set(votes):
            pairs[snapshot].add(comparison)
            alone[snapshot] += len(found) == len(set(votes))
    texts = texts_in(user)
    snapshots = Snapshot.objects.filter(pk__in={*pairs, *texts}).select_related("project")
    return [
        PersonDataset(
            project=one.project.name,
            name=one.name,
            url=reverse("snapshots:detail", args=[one.project.slug, one.pk]),
            pairs=len(pairs[one.pk]) + texts[one.pk],
            changed=texts[one.pk]
            + len(
                pairs[one.pk] & would[one.project_id].changed_pairs
                if one.project_id in would
                else ()
            ),
            alone=alone[one.pk] + texts[one.pk],
            uses=runs_used(made_from(one)),
        )
        for one in snapshots.order_by("-created_at")
    ]


def texts_in(user: User) -> Counter[str]:
    """{frozen dataset: rows that this person wrote, or wrote before a reviewer edited them}."""
    mine = SnapshotText.objects.filter(
        Q(version__author=user) | Q(version__edits__author=user),
        snapshot__state=Snapshot.State.FROZEN,
    )
    rows = mine.values_list("snapshot").annotate(n=Count("pk")).order_by()
    return Counter(dict(rows))
