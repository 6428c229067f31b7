"""Before an erasure: which frozen datasets hold the votes, and what refreezing changes."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.services import person_erase
from apps.common.registry import person_datasets
from apps.labeling.models import LabelingSettings, Slot, Vote
from apps.labeling.services.redeciding import votes_recount
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services import freezing


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create_user("boss", password="x", is_superuser=True)


@pytest.fixture
def frozen(project: Project, crowd: list[Any], emil: User) -> Snapshot:
    LabelingSettings.objects.update_or_create(
        project=project,
        defaults={"overlap": 5, "max_overlap": 5, "least_votes": 5, "least_agreeing": 5},
    )
    votes_recount(project=project, comparisons=[one.pk for one in crowd])
    recipe = SnapshotRecipe(least_votes=2, least_agreeing=2)
    return freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=emil)


def rows_with(snapshot: Snapshot, user: User) -> int:
    votes = set(Vote.objects.filter(annotator=user).values_list("pk", flat=True))
    rows = SnapshotRow.objects.filter(snapshot=snapshot).exclude(split="")
    return sum(1 for row in rows if votes & set(row.vote_ids))


def test_the_datasets_of_a_person_are_listed_with_what_would_change(
    frozen: Snapshot, boss: User, emil: User, signed_in: Any
) -> None:
    person = User.objects.get(username="crowd-03")
    [dataset] = person_datasets(person)
    n = rows_with(frozen, person)
    assert n > 0
    # Each pair needs all its five votes, so each would fall.
    assert (dataset.name, dataset.pairs, dataset.changed, dataset.alone) == ("pairs", n, n, 0)
    assert person_datasets(emil) == []
    assert not Slot.objects.filter(kind="discard").exists(), "looking changes nothing"
    page = signed_in(boss).get(f"/site/people/{person.pk}/erase/").content.decode()
    assert dataset.url in page


def test_what_is_discarded_enters_no_new_dataset(
    project: Project, frozen: Snapshot, emil: User, boss: User
) -> None:
    person = User.objects.get(username="crowd-03")
    before = rows_with(frozen, person)
    person_erase(user=person, by=boss, votes="discard", remarks="remove")
    again = freezing.snapshot_freeze(
        project=project,
        name="again",
        recipe=SnapshotRecipe(least_votes=2, least_agreeing=2),
        user=emil,
    )
    assert rows_with(again, person) == 0
    assert rows_with(frozen, person) == before, "a frozen dataset stays as it was"
    assert freezing.snapshot_verify(snapshot=frozen).ok


@pytest.mark.parametrize(
    "change",
    [
        "update snapshots_snapshot set name = 'other'",
        "update labeling_answer set rationale = 'other'",
        "update accounts_auditevent set details = '{}', erased_by = 1",
    ],
)
def test_texts_that_are_kept_go_in_an_erasure_only(
    change: str, frozen: Snapshot, project: Project
) -> None:
    AuditEvent.objects.create(project=project, action="test.done")
    with (
        pytest.raises(IntegrityError, match=r"frozen|overwritten|append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(change)


@pytest.mark.parametrize(
    "change",
    [
        "update snapshots_snapshot set sha256 = repeat('0', 64)",
        "update labeling_answer set active_ms = 1",
        "update accounts_auditevent set action = 'other', erased_by = 1",
    ],
)
def test_an_erasure_changes_nothing_but_texts(
    change: str, frozen: Snapshot, project: Project
) -> None:
    AuditEvent.objects.create(project=project, action="test.done")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("select set_config('concord.erasing', '1', true)")
        with (
            pytest.raises(IntegrityError, match=r"frozen|overwritten|append-only"),
            transaction.atomic(),
        ):
            cursor.execute(change)
        cursor.execute("select set_config('concord.erasing', '', true)")
