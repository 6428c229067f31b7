"""Freezing in the background: queued, at work, cancelled, killed, tried again."""

import datetime as dt
import time
from collections.abc import Callable

import pytest
from django.db import connections
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison
from apps.snapshots import dispatch, progress
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services import drafts, freezing
from apps.snapshots.storage import artifact_store

pytestmark = pytest.mark.django_db

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
    assert "Nothing is left to train on" in failed.error
    assert not failed.rows.exists()


def test_what_fails_for_want_of_rows_is_refused_at_once_where_votes_are_few(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    monkeypatch.setattr(freezing, "CHECKED_AT_ONCE", 10_000)
    with pytest.raises(DomainError, match="Nothing is left to train on"):
        start(project, emil, SnapshotRecipe(least_votes=6, least_agreeing=6))
    assert not Snapshot.objects.exists()


def test_a_fault_of_our_own_is_said_in_words(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    def broken(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(freezing, "preferences_write", broken)
    failed = run(start(project, emil))
    assert failed.state == "failed"
    assert "An error of Concord's own" in failed.error
    assert "No space left" in failed.error


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
    assert "ran out of memory" in killed.error
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
