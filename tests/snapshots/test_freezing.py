"""Freezing decided pairs into files."""

import datetime as dt
import errno
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.db import IntegrityError, connections, transaction
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison, Vote
from apps.snapshots import dispatch, progress
from apps.snapshots.assembling.assembly import OTHER_GROUP
from apps.snapshots.formats.votes_behind import vote_rows
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import RecipeFilters, SnapshotRecipe
from apps.snapshots.selectors import snapshots
from apps.snapshots.services import drafts, freezing
from apps.snapshots.storage import artifact_store, names_in, read_rows
from measures.splits import fold_of
from tests.snapshots.conftest import argument, crowd_make, revote
from workers.artifacts import StoreUnreachable
from workers.config import settings_for
from workers.data.snapshot import read_preferences
from workers.trainers.reward_data import plan_parts

pytestmark = pytest.mark.django_db

SPLITS = {"train": 0.6, "dev": 0.2, "public_test": 0.2}


def recipe(**changes) -> SnapshotRecipe:
    return SnapshotRecipe(
        **{
            "splits": SPLITS,
            "least_votes": 2,
            "least_agreeing": 2,
            "seed": "seed-2",
            "heldout_annotators": 0.2,
        }
        | changes
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
    snapshot = freeze(project, emil, filters=RecipeFilters(without_groups=("debate-00",)))
    fates = SnapshotRow.objects.filter(snapshot=snapshot).exclude(split="heldout_annotators")
    assert set(fates.values_list("comparison_id", flat=True)) == {c.pk for c in crowd}
    assert snapshot.counts["kept"] + sum(snapshot.counts["dropped"].values()) == len(crowd)
    assert snapshot.counts["dropped"][OTHER_GROUP] == 6


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
    with pytest.raises(DomainError) as refused:
        freeze(project, emil, filters=RecipeFilters(groups=("nowhere",)))
    failed = Snapshot.objects.get(project=project)
    assert (failed.state, failed.sha256) == ("failed", "")
    assert refused.value.code == "empty_snapshot"
    assert refused.value.message in failed.error
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
        filters=RecipeFilters(without_annotators_of=(first.pk,)),
    )
    judged = snapshots.voters(
        vote for row in second.rows.exclude(split="") for vote in row.vote_ids
    )
    assert trained
    assert judged
    assert not trained & judged


def test_each_half_of_the_groups_has_what_the_other_leaves_out(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    """Where nobody can be held out: one half for the reward model, one for the judge."""
    weak = {"splits": {"train": 1.0}, "heldout_groups": (), "heldout_annotators": 0.0}
    halves = [
        freeze(project, emil, filters=RecipeFilters(half=half), seed=half, **weak)
        for half in ("first", "second")
    ]
    first, second = ({row["group"] for row in rows(one, "train")} for one in halves)
    assert first
    assert second
    assert not first & second
    votes = [snapshots.training_votes([one.pk]) for one in halves]
    assert not votes[0] & votes[1]
    assert snapshots.voters(votes[0]) & snapshots.voters(votes[1])
    assert "half" not in SnapshotRecipe().to_json()["filters"]
    with pytest.raises(DomainError, match="first, second"):
        SnapshotRecipe(filters=RecipeFilters(half="third"))


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


# Freezing in the background: queued, at work, cancelled, killed, tried again.


RECIPE = SnapshotRecipe(
    least_votes=2, least_agreeing=2, seed="seed-2", splits={"train": 0.8, "dev": 0.2}
)


@pytest.fixture(autouse=True)
def sent(monkeypatch) -> list[str]:
    """The messages to workers, which nobody reads here."""
    messages: list[str] = []
    monkeypatch.setattr(freezing, "CHECKED_AT_ONCE", -1)
    monkeypatch.setattr(dispatch, "freeze_send", lambda pk: not messages.append(pk))
    return messages


def start(project: Project, emil: User, recipe: SnapshotRecipe = RECIPE) -> Snapshot:
    return freezing.snapshot_start(project=project, name="pairs", recipe=recipe, user=emil)[0]


def run(snapshot: Snapshot) -> Snapshot:
    freezing.snapshot_run(snapshot=snapshot.pk)
    snapshot.refresh_from_db()
    return snapshot


def test_a_worker_freezes_what_was_queued_as_it_would_be_at_once(
    project: Project, crowd: list[Comparison], emil: User, sent: list[str]
) -> None:
    queued = start(project, emil)
    assert (queued.state, sent) == ("draft", [queued.pk])
    made = run(queued)
    at_once = freezing.snapshot_freeze(project=project, name="x", recipe=RECIPE, user=emil)
    assert (made.state, made.sha256, made.created_by) == ("frozen", at_once.sha256, emil)
    assert progress.progress_read(made.pk) == {}


def test_a_doubled_message_changes_nothing(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    made = run(start(project, emil))
    assert freezing.snapshot_run(snapshot=made.pk) == "frozen"
    assert made.rows.count() == Snapshot.objects.get().rows.count()


def test_a_freeze_that_fails_says_why_and_keeps_nothing(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    failed = run(start(project, emil, SnapshotRecipe(least_votes=6, least_agreeing=6)))
    assert failed.state == "failed"
    assert "Nothing is left" in failed.error
    assert not failed.rows.exists()


def test_what_fails_for_want_of_rows_is_refused_at_once_where_votes_are_few(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    monkeypatch.setattr(freezing, "CHECKED_AT_ONCE", 10_000)
    with pytest.raises(DomainError) as refused:
        start(project, emil, SnapshotRecipe(least_votes=6, least_agreeing=6))
    assert refused.value.code == "empty_snapshot"
    assert not Snapshot.objects.exists()


def test_a_fault_of_our_own_is_said_in_words(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    def broken(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(freezing, "preferences_write", broken)
    failed = run(start(project, emil))
    assert failed.state == "failed"
    assert "Concord's own" in failed.error
    assert "No space left" in failed.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "disk of this server is full"),
        (StoreUnreachable("the artifact store failed at /srv/x"), "artifact store does not answer"),
    ],
)
def test_a_disk_or_store_that_fails_a_freeze_is_named_and_no_fault_of_ours(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch, error, words
) -> None:
    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr(freezing, "preferences_write", broken)
    failed = run(start(project, emil))
    assert failed.state == "failed"
    assert words in failed.error
    assert "/srv" not in failed.error


def test_cancelling_before_a_worker_took_it_ends_it_at_once(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    queued = start(project, emil)
    freezing.snapshot_cancel(snapshot=queued, by=emil)
    queued.refresh_from_db()
    assert (queued.state, queued.error) == ("failed", "It was cancelled.")
    assert run(queued).state == "failed"
    assert AuditEvent.objects.filter(action="snapshot.cancelled", actor=emil).exists()
    with pytest.raises(Conflict):
        freezing.snapshot_cancel(snapshot=queued, by=emil)


@pytest.mark.parametrize("step", progress.STEPS)
def test_cancelling_at_any_step_keeps_nothing(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch, step: str
) -> None:
    queued = start(project, emil)
    real = progress.teller

    def cancelling(pk: str) -> Callable[[str], None]:
        told = real(pk)

        def tell(now: str) -> None:
            if now == step:
                freezing.snapshot_cancel(snapshot=queued, by=emil)
            told(now)

        return tell

    monkeypatch.setattr(progress, "teller", cancelling)
    assert run(queued).error == "It was cancelled."
    assert (queued.state, queued.rows.count()) == ("failed", 0)
    assert not artifact_store().exists(f"snapshots/{queued.pk}/manifest.json")


def test_a_cancel_during_the_last_step_wins_over_the_seal(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    queued = start(project, emil)
    rows_of = freezing.rows_of

    def late(*args, **kwargs):
        freezing.snapshot_cancel(snapshot=queued, by=emil)
        return rows_of(*args, **kwargs)

    monkeypatch.setattr(freezing, "rows_of", late)
    assert run(queued).error == "It was cancelled."


def test_a_killed_worker_leaves_a_failed_draft_that_says_so(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    """Nobody holds the lock of a draft that was begun: its process is gone."""
    killed = start(project, emil)
    Snapshot.objects.filter(pk=killed.pk).update(
        started_at=timezone.now() - dt.timedelta(minutes=1)
    )
    assert freezing.snapshots_sweep() == 1
    killed.refresh_from_db()
    assert killed.state == "failed"
    assert "memory" in killed.error
    assert freezing.snapshots_sweep() == 0


def test_a_draft_that_has_just_begun_is_left_alone(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    begun = start(project, emil)
    Snapshot.objects.filter(pk=begun.pk).update(started_at=timezone.now())
    assert freezing.snapshots_sweep() == 0


def test_a_message_that_was_lost_is_sent_again(
    project: Project, crowd: list[Comparison], emil: User, sent: list[str]
) -> None:
    queued = start(project, emil)
    Snapshot.objects.filter(pk=queued.pk).update(queued_at=timezone.now() - dt.timedelta(minutes=1))
    assert freezing.snapshots_sweep() == 1
    assert sent == [queued.pk, queued.pk]
    assert freezing.snapshots_sweep() == 0


def test_a_failed_freeze_can_be_tried_again_by_its_own_recipe(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    failed = start(project, emil)
    freezing.snapshot_cancel(snapshot=failed, by=emil)
    failed.refresh_from_db()
    again, _ = freezing.snapshot_start_again(snapshot=failed, user=emil)
    assert (again.recipe, again.name) == (failed.recipe, failed.name)
    assert run(again).state == "frozen"
    with pytest.raises(Conflict):
        freezing.snapshot_start_again(snapshot=again, user=emil)


@pytest.mark.django_db(transaction=True)
def test_a_draft_at_work_is_seen_from_other_processes(project: Project, emil: User) -> None:
    draft = start(project, emil)
    other = connections.create_connection("default")
    try:
        with other.cursor() as cursor:
            cursor.execute(
                "select pg_advisory_lock(hashtextextended(%s, %s))", [draft.pk, drafts._LOCK_SEED]
            )
        assert drafts.is_made(draft.pk)
        Snapshot.objects.filter(pk=draft.pk).update(
            started_at=timezone.now() - dt.timedelta(minutes=1)
        )
        assert freezing.snapshots_sweep() == 0
    finally:
        other.close()
    deadline = time.monotonic() + 10  # the server notices a connection's end in its own time
    while drafts.is_made(draft.pk) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert freezing.snapshots_sweep() == 1


def test_rows_that_name_their_voters_can_be_folded_over_annotators(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    plain = freeze(project, emil, heldout_annotators=0.0)
    assert "annotators" not in rows(plain, "train")[0]
    named = freeze(project, emil, heldout_annotators=0.0, name_annotators=True)
    name_of, row = names_in(named.counts), rows(named, "train")[0]
    cast = Vote.objects.filter(comparison=row["comparison"], is_current=True)
    won = {"a": "chosen", "b": "rejected"} if row["chosen_side"] == "a" else {}
    won = won or {"b": "chosen", "a": "rejected"}
    told = dict(zip(row["annotators"], row["annotator_votes"], strict=True))
    assert told == {name_of(v.annotator_id): won.get(v.choice, v.choice) for v in cast}
    written = (folder(named) / "train.jsonl").read_text()
    people = User.objects.filter(pk__in=cast.values("annotator"))
    assert not [one for one in people if one.username in written]
    read = read_preferences(folder(named))
    assert {len(one.voters) for one in read} == {5}
    # Two people a fold: whoever they are, half of the rows are without both.
    parts = plan_parts(settings_for("reward", {"folds": 10}), read, seed=0)
    assert all(part.people for part in parts if part.kind == "fold")


def test_votes_that_do_not_say_whose_they_are_name_nobody(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    User.objects.filter(username="crowd-00").update(username=f"imported.{project.pk}.unknown")
    with pytest.raises(DomainError) as refused:
        freeze(project, emil, heldout_annotators=0.0, name_annotators=True)
    assert (refused.value.code, refused.value.field) == ("anonymous_votes", "name_annotators")
