"""Freezing decided pairs into files."""

import json
from pathlib import Path

import pytest
from django.conf import settings
from django.db import IntegrityError, transaction

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.labeling.models import Comparison, Vote
from apps.snapshots.formats.writing import vote_rows
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import Filters, SnapshotRecipe
from apps.snapshots.selectors import snapshots
from apps.snapshots.services import freezing
from apps.snapshots.storage import names_in, read_rows
from measures.splits import fold_of
from tests.snapshots.conftest import argument, crowd_make, revote

pytestmark = pytest.mark.django_db

SPLITS = {"train": 0.6, "dev": 0.2, "public_test": 0.2}


def recipe(**changes) -> SnapshotRecipe:
    return SnapshotRecipe(
        **{"splits": SPLITS, "least_votes": 2, "least_agreeing": 2, "seed": "seed-2"} | changes
    )


def freeze(project: Project, user: User, **changes) -> Snapshot:
    return freezing.snapshot_freeze(
        project=project, name="pairs", recipe=recipe(**changes), user=user
    )


def folder(snapshot: Snapshot) -> Path:
    return Path(settings.ARTIFACTS_URL) / snapshot.uri


def rows(snapshot: Snapshot, split: str) -> list[dict]:
    return list(read_rows(folder(snapshot) / f"{split}.jsonl"))


def test_the_same_recipe_over_the_same_votes_gives_the_same_files(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    first, second = (freeze(project, emil, heldout_groups=("debate-03",)) for _ in range(2))
    assert first.pk != second.pk
    assert first.sha256 == second.sha256
    manifests = [json.loads((folder(s) / "manifest.json").read_text()) for s in (first, second)]
    assert manifests[0] == manifests[1]
    assert {"train.jsonl", "heldout_groups.jsonl", "parquet/train.parquet", "card.json"} <= set(
        manifests[0]
    )


def test_one_more_vote_gives_another_hash(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    before = freeze(project, emil, heldout_annotators=0.0)
    revote(crowd[0], ["b", "b", "b", "b", "a"])
    after = freeze(project, emil, heldout_annotators=0.0)
    assert before.sha256 != after.sha256


def test_a_row_says_who_won_by_which_share(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    revote(crowd[0], ["a", "a", "a", "a", "tie"])
    snapshot = freeze(project, emil, heldout_annotators=0.0, splits={"train": 1.0})
    row = next(r for r in rows(snapshot, "train") if r["comparison"] == str(crowd[0].pk))
    assert row["chosen"] == [{"role": "assistant", "content": argument(0, 0)}]
    assert row["rejected"] == [{"role": "assistant", "content": argument(0, 1)}]
    assert row["prompt"] == crowd[0].prompt.messages
    assert row["confidence"] == pytest.approx(4 / 5)  # the tie is in the denominator
    assert row["votes"] == 5


def test_no_vote_of_a_held_out_annotator_decides_anything(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    snapshot = freeze(project, emil)
    held = {
        name
        for name in User.objects.filter(is_imported=True).values_list("username", flat=True)
        if fold_of(f"import:{name}", 0.2, "seed-2")
    }
    assert 0 < len(held) < 20
    decided = SnapshotRow.objects.filter(snapshot=snapshot).exclude(split="heldout_annotators")
    voters = {
        Vote.objects.get(pk=vote).annotator.username for row in decided for vote in row.vote_ids
    }
    assert voters
    assert not voters & held
    kept = SnapshotRow.objects.filter(snapshot=snapshot, split="heldout_annotators")
    assert {
        Vote.objects.get(pk=vote).annotator.username for row in kept for vote in row.vote_ids
    } <= held
    assert kept.exists()


def test_a_decision_that_hung_on_held_out_votes_is_decided_anew(
    project: Project, crowd: list[Comparison], emil: User, votes_of
) -> None:
    target, held, choices = next(
        (c, held, people)
        for c in crowd
        if (people := list(votes_of(c).values()))
        and 2 <= (held := sum(fold_of(f"import:{p.username}", 0.4, "seed-2") for p in people)) <= 3
    )
    # Held-out people all say a, the others all say b: with everyone it could go either way.
    revote(
        target, ["a" if fold_of(f"import:{p.username}", 0.4, "seed-2") else "b" for p in choices]
    )
    snapshot = freeze(project, emil, heldout_annotators=0.4)
    row = SnapshotRow.objects.exclude(split="heldout_annotators").get(
        snapshot=snapshot, comparison=target
    )
    assert (row.winner, row.share, len(row.vote_ids)) == ("b", 1.0, 5 - held)


def test_held_out_annotators_are_measured_on_texts_that_were_not_trained_on(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    snapshot = freeze(project, emil, heldout_groups=("debate-05",))

    def texts(split: str) -> set[str]:
        return {
            r[side][0]["content"] for r in rows(snapshot, split) for side in ("chosen", "rejected")
        }

    assert texts("heldout_annotators")
    assert not texts("heldout_annotators") & (texts("train") | texts("dev"))
    people = {r["annotator"] for r in rows(snapshot, "heldout_annotators")}
    assert {r["annotator"] for r in rows(snapshot, "train")} == {""}
    voters = set(Vote.objects.values_list("annotator_id", flat=True))
    name_of = names_in(snapshot.counts)
    assert people <= {name_of(voter) for voter in voters}
    assert not people & {f"person-{voter}" for voter in voters}
    # The export of single votes calls them the same; another dataset does not.
    exported = vote_rows(snapshot, "heldout_annotators")
    assert {row["annotator"] for row in exported} == people
    later = freeze(project, emil, heldout_groups=("debate-04",))
    assert not people & {r["annotator"] for r in rows(later, "heldout_annotators")}


def test_a_dataset_of_before_keeps_the_names_of_its_files():
    assert names_in({"rows": {}})(17) == "person-17"


def test_ties_are_dropped_and_counted(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    revote(crowd[0], ["tie"] * 5)
    revote(crowd[1], ["both_bad"] * 5)
    revote(crowd[2], ["a", "a", "b", "b", "tie"])
    snapshot = freeze(project, emil, heldout_annotators=0.0)
    assert snapshot.counts["dropped"] == {
        "decided: both bad": 1,
        "decided: tie": 1,
        "too little agreement": 1,
    }
    fates = SnapshotRow.objects.filter(snapshot=snapshot, comparison=crowd[0])
    assert [(f.split, f.dropped_because, len(f.vote_ids)) for f in fates] == [
        ("", "decided: tie", 5)
    ]


def test_every_comparison_is_kept_or_dropped_for_a_reason(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    snapshot = freeze(project, emil, filters=Filters(without_groups=("debate-00",)))
    fates = SnapshotRow.objects.filter(snapshot=snapshot).exclude(split="heldout_annotators")
    assert set(fates.values_list("comparison_id", flat=True)) == {c.pk for c in crowd}
    assert snapshot.counts["kept"] + sum(snapshot.counts["dropped"].values()) == len(crowd)
    assert snapshot.counts["dropped"]["left out by group"] == 6


def test_a_frozen_snapshot_and_its_rows_cannot_be_changed(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    snapshot = freeze(project, emil)
    assert snapshot.state == "frozen"
    row = SnapshotRow.objects.filter(snapshot=snapshot).first()
    with pytest.raises(IntegrityError, match="is frozen"), transaction.atomic():
        SnapshotRow.objects.filter(pk=row.pk).update(winner="a")
    with pytest.raises(IntegrityError, match="is frozen"), transaction.atomic():
        Snapshot.objects.filter(pk=snapshot.pk).update(counts={})


def test_a_recipe_that_keeps_nothing_fails_and_says_why(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    with pytest.raises(DomainError, match="Nothing is left to train on"):
        freeze(project, emil, filters=Filters(groups=("nowhere",)))
    failed = Snapshot.objects.get(project=project)
    assert (failed.state, failed.sha256) == ("failed", "")
    assert "Nothing is left to train on" in failed.error
    assert not failed.rows.exists()
    assert not (Path(settings.ARTIFACTS_URL) / "snapshots" / failed.pk).exists()


def test_a_crash_while_writing_leaves_no_file_and_no_row(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(SnapshotRow.objects, "bulk_create", full)
    with pytest.raises(OSError, match="No space left"):
        freeze(project, emil)
    failed = Snapshot.objects.get(project=project)
    assert failed.state == "failed"
    assert not (Path(settings.ARTIFACTS_URL) / "snapshots" / failed.pk).exists()


def test_the_annotators_of_another_snapshots_training_rows_can_be_left_out(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    first = freeze(project, emil, heldout_annotators=0.5)
    trained = snapshots.voters(snapshots.training_votes([first.pk]))
    second = freeze(
        project,
        emil,
        heldout_annotators=0.0,
        least_votes=1,
        least_agreeing=1,
        filters=Filters(without_annotators_of=(first.pk,)),
    )
    judged = snapshots.voters(
        vote for row in second.rows.exclude(split="") for vote in row.vote_ids
    )
    assert trained
    assert judged
    assert not trained & judged


def test_verifying_notices_one_changed_byte(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    snapshot = freeze(project, emil)
    assert freezing.snapshot_verify(snapshot=snapshot).ok
    path = folder(snapshot) / "train.jsonl"
    path.write_text(path.read_text().replace("argument 1", "argument 7", 1))
    verified = freezing.snapshot_verify(snapshot=snapshot)
    assert not verified.ok
    assert "train.jsonl" in verified.problem


def test_a_later_snapshot_keeps_every_group_where_it_was(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    before = freeze(project, emil)
    crowd_make(project, debates=6, start=12)
    after = freeze(project, emil)

    def places(snapshot: Snapshot) -> dict[str, str]:
        kept = snapshot.rows.filter(split__in=SPLITS).select_related("comparison__prompt")
        return {row.comparison.prompt.group_key: row.split for row in kept}

    assert places(after).items() >= places(before).items()
    assert len(places(after)) == len(places(before)) + 6
