"""How many pairs are left for a person: exact up to a limit, and not counted anew for each vote."""

import pytest
from django.core.cache import cache
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import Project, User
from apps.labeling import selectors
from tests.labeling.pairs import annotators_make, pairs_make, vote


def left_for(project: Project, person: User, n_today: int) -> int:
    return selectors.remaining_for(project=project, annotator=person, n_today=n_today)


def test_every_pair_that_is_new_to_a_person_counts_once_however_many_slots_it_has(
    project: Project, ana: User
) -> None:
    cache.clear()
    pairs_make(project, 5)
    (ben,) = annotators_make(project, 1)
    vote(project, ben)
    assert left_for(project, ana, 0) == 5
    assert left_for(project, ben, 1) == 3  # one voted on, one in hand


def test_votes_since_the_count_are_taken_off_without_counting_anew(
    project: Project, ana: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    cache.clear()
    pairs_make(project, 5)
    assert left_for(project, ana, 0) == 5
    vote(project, ana)
    with django_assert_num_queries(0):
        assert left_for(project, ana, 1) == 4


def test_from_the_limit_on_the_number_stays_at_the_limit(
    project: Project, ana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.clear()
    monkeypatch.setattr(selectors, "REMAINING_CAP", 3)
    pairs_make(project, 5)
    assert left_for(project, ana, 0) == 3
    vote(project, ana)
    assert left_for(project, ana, 1) == 3
