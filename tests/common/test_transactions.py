"""A transaction that the database ends to resolve a deadlock is run again."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connection, transaction

from apps.accounts.models import Project
from apps.common.transactions import after_commit, retried


@pytest.mark.django_db(transaction=True)
def test_two_who_lock_crosswise_both_get_through() -> None:
    for slug in ("one", "two"):
        Project.objects.create(slug=slug, name=slug)
    both_hold_one = threading.Barrier(2)
    tries: list[str] = []

    @retried
    @transaction.atomic
    def rename(first: str, second: str) -> None:
        tries.append(first)
        Project.objects.select_for_update().get(slug=first)
        if len(tries) <= 2:
            both_hold_one.wait(timeout=5)
        Project.objects.filter(slug=second).update(name=f"renamed by {first}")

    def run(first: str, second: str) -> None:
        try:
            rename(first, second)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ("one", "two"), ("two", "one")))

    names = set(Project.objects.values_list("name", flat=True))
    assert names == {"renamed by one", "renamed by two"}
    assert len(tries) >= 3  # one of them was ended, and began again; under load perhaps twice


@pytest.mark.django_db(transaction=True)
def test_another_failure_is_not_tried_again() -> None:
    tries = []

    @retried
    def fail() -> None:
        tries.append(1)
        raise OperationalError("the disk is full")

    with pytest.raises(OperationalError, match="disk"):
        fail()
    assert len(tries) == 1


@pytest.mark.django_db(transaction=True)
def test_what_fails_after_a_commit_holds_up_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []

    def burst(*, name: str) -> None:
        raise ValueError(name)

    with transaction.atomic():
        after_commit(burst, name="ring")
        after_commit(lambda word: done.append(word), word="sent")
        assert done == [], "nothing happens before the commit"
    assert done == ["sent"]
    assert "ring" in caplog.text
