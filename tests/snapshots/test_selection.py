"""The replay of a project's votes, from the button to the verdict."""

from datetime import timedelta

import numpy as np
import pytest
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison, Prompt, Slot, Vote
from apps.snapshots.models import SelectionReplay
from apps.snapshots.services import selection
from apps.snapshots.services.selection import (
    pool_of_project,
    selection_replay_run,
    selection_replay_start,
    voted_pairs,
)
from apps.snapshots.tasks import replay_selections
from measures.selection import RIDGES
from tests.snapshots.conftest import crowd_make, revote

pytestmark = pytest.mark.django_db

PAGE = "/p/arguments/ready/selection/"
API = "/api/v1/projects/arguments/selection-replays"


@pytest.fixture
def votes(project: Project) -> list[Comparison]:
    """600 pairs of 100 debates, whose longer argument won 5 to 0."""
    return crowd_make(project, debates=100)


@pytest.fixture
def few(crowd: list[Comparison], monkeypatch) -> list[Comparison]:
    """72 pairs, which are enough to start a replay with here."""
    monkeypatch.setattr(selection, "LEAST_PAIRS", 50)
    return crowd


def test_too_few_votes_are_refused_with_the_number_needed(
    project: Project, crowd: list[Comparison], emil: User, signed_in
) -> None:
    with pytest.raises(DomainError, match=r"72 pairs have a vote .* needs 500") as refused:
        selection_replay_start(project=project, by=emil)
    assert refused.value.code == "few_voted_pairs"
    assert not SelectionReplay.objects.exists()
    page = signed_in(emil).get(PAGE).content.decode()
    assert refused.value.message in page
    assert "Start the replay" not in page


def test_too_few_groups_are_refused_before_a_replay_is_queued(
    project: Project, votes: list[Comparison], emil: User, signed_in
) -> None:
    """Groups are what is held out; pairs without one go by their prompt."""
    first = votes[0].prompt
    Prompt.objects.filter(project=project).exclude(pk=first.pk).update(group_key="one")
    Prompt.objects.filter(pk=first.pk).update(group_key="")
    found = voted_pairs(project)
    assert (found.groups, found.problem[0]) == (2, "few_groups")
    with pytest.raises(DomainError, match=r"2 groups.* needs 5"):
        selection_replay_start(project=project, by=emil)
    assert not SelectionReplay.objects.exists()
    assert found.problem[1] in signed_in(emil).get(PAGE).content.decode()


def test_a_replay_is_started_on_the_page_run_by_the_scheduler_and_shown(
    project: Project, votes: list[Comparison], emil: User, signed_in
) -> None:
    client = signed_in(emil)
    assert "6,400 pairs took" in client.get(PAGE).content.decode(), "how long, before it is run"
    assert client.post(f"{PAGE}start/", {"most_per_prompt": "2"}).status_code == 302
    row = SelectionReplay.objects.get()
    assert (row.state, row.most_per_prompt, row.created_by) == ("queued", 2, emil)
    assert AuditEvent.objects.filter(action="selection.replay_started").count() == 1
    assert "A replay is under way" in client.get(PAGE).content.decode()
    assert replay_selections() == 1
    row.refresh_from_db()
    assert row.state == "finished"
    assert row.verdict in ("no_evidence", "saves", "worse", "refused")
    assert (row.result["n"], row.result["n_votes"], row.result["seeds"]) == (600, 3_000, 20)
    page = client.get(PAGE).content.decode()
    for curve in row.result["curves"]:
        assert f"{curve['log_loss'][-1]:.4f}" in page
    assert replay_selections() == 0, "nothing is run twice"


def test_programs_start_and_read_it(
    project: Project, votes: list[Comparison], emil: User, signed_in, monkeypatch
) -> None:
    real = selection.replay
    monkeypatch.setattr(
        selection,
        "replay",
        lambda pool, **named: real(pool, ridges=[1e-4, 2e-4, 3e-4], most_votes=150, **named),
    )
    client = signed_in(emil)
    made = client.post(API, {"most_per_prompt": 2}, content_type="application/json")
    assert (made.status_code, made.json()["state"]) == (202, "queued")
    again = client.post(API, {"most_per_prompt": 2}, content_type="application/json")
    assert again.json()["id"] == made.json()["id"], "one at a time"
    other = client.post(API, {}, content_type="application/json")
    assert (other.status_code, other.json()["code"]) == (409, "replay_under_way")
    bad = client.post(API, {"most_per_prompt": 0}, content_type="application/json")
    assert (bad.status_code, bad.json()["field"]) == (400, "most_per_prompt")
    replay_selections()
    (read,) = client.get(API).json()
    assert read["state"] == "finished"
    assert read["verdict"] == "refused"
    assert "under-tuned" in read["words"]
    assert "under-tuned" in client.get(PAGE).content.decode()


def test_votes_of_another_project_never_enter(project: Project, crowd: list[Comparison]) -> None:
    other = Project.objects.create(slug="other", name="Other")
    crowd_make(other, debates=3, start=200)
    assert voted_pairs(project).n == len(crowd)
    assert voted_pairs(other).n == 18
    pool = pool_of_project(other)
    assert (len(pool.x), int(pool.votes.sum())) == (18, 90)
    assert len(pool_of_project(project).x) == len(crowd)


def test_ties_audits_and_dropped_pairs_do_not_enter(
    project: Project, crowd: list[Comparison]
) -> None:
    tied, repeated, dropped = crowd[:3]
    revote(tied, ["tie"] * 5)
    measured = Vote.objects.filter(comparison=tied).first()
    Slot.objects.filter(task=repeated).update(kind=Slot.Kind.AUDIT, measures=measured)
    Comparison.objects.filter(pk=dropped.pk).update(state=Comparison.State.DROPPED)
    assert len(pool_of_project(project).x) == len(crowd) - 3 == voted_pairs(project).n


def test_a_replay_whose_process_ended_is_run_again_and_an_old_try_writes_nothing(
    project: Project, few: list[Comparison], emil: User, monkeypatch
) -> None:
    row = selection_replay_start(project=project, by=emil)
    old = timezone.now() - timedelta(hours=1)
    SelectionReplay.objects.filter(pk=row.pk).update(started_at=old, state="running", tries=1)
    row.refresh_from_db()
    monkeypatch.setattr(selection, "pool_of_project", _broken)
    assert selection_replay_run(replay_id=row.pk)
    selection._end(row, "finished", verdict="saves")
    row.refresh_from_db()
    assert (row.state, row.tries, row.verdict) == ("failed", 2, "")
    assert not selection_replay_run(replay_id=row.pk), "it has ended"
    assert selection_replay_start(project=project, by=emil).pk != row.pk


def test_one_that_is_at_work_is_not_run_twice_and_a_third_death_ends_it(
    project: Project, few: list[Comparison], emil: User, monkeypatch
) -> None:
    row = selection_replay_start(project=project, by=emil)
    monkeypatch.setattr(selection, "pool_of_project", _broken)
    now = timezone.now()
    SelectionReplay.objects.filter(pk=row.pk).update(started_at=now, state="running", tries=1)
    assert replay_selections() == 0
    SelectionReplay.objects.filter(pk=row.pk).update(started_at=now - timedelta(hours=1), tries=3)
    assert replay_selections() == 1
    row.refresh_from_db()
    assert (row.state, "three times" in row.error) == ("failed", True)


def test_another_limit_waits_for_the_replay_that_is_under_way(
    project: Project, few: list[Comparison], emil: User
) -> None:
    selection_replay_start(project=project, by=emil)
    with pytest.raises(Conflict):
        selection_replay_start(project=project, by=emil, most_per_prompt=1)


def test_votes_of_a_pair_are_counted_by_side(project: Project, crowd: list[Comparison]) -> None:
    pool = pool_of_project(project)
    assert np.array_equal(pool.votes, np.full(len(crowd), 5))
    assert not pool.first.any(), "the longer argument is the second"
    assert len(np.unique(pool.group)) == 12
    assert len(RIDGES) >= 3


def _broken(_project: Project) -> None:
    raise RuntimeError("planted")
