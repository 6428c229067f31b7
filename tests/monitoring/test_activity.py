"""Votes, decisions, datasets and ended runs reach the channels that ask for them, once."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.labeling.models import Decision
from apps.loop.services import run_end_tell
from apps.monitoring.models import Channel, Delivery
from apps.monitoring.services.activity import SETTLED, activity_tell
from apps.snapshots.models import Snapshot
from tests.labeling.pairs import annotators_make, pairs_make, vote
from tests.training.conftest import snapshot_make as snapshot_make
from tests.web.world import run_make

_BOTH = ["votes", "decisions"]


def channel(project: Project, *tells: str, at: datetime | None = None) -> Channel:
    return Channel.objects.create(
        project=project,
        kind="webhook",
        address=f"https://example.org/{'-'.join(tells)}",
        tells=list(tells),
        told_until=at or timezone.now(),
    )


def said(one: Channel) -> list[tuple[str, Any]]:
    return list(Delivery.objects.filter(channel=one).order_by("pk").values_list("event", "body"))


def settled(minutes: int = 0) -> int:
    return activity_tell(now=timezone.now() + SETTLED + timedelta(minutes=minutes, seconds=1))


def test_votes_and_decisions_are_counted_and_told_once(project: Project) -> None:
    before = timezone.now() - timedelta(minutes=1)  # the database's clock stands in a test
    votes, both = (channel(project, *tells, at=before) for tells in (["votes"], _BOTH))
    pairs_make(project, 2, overlap=2, least_votes=2)
    for person in annotators_make(project, 2):
        vote(project, person)
        vote(project, person)
    assert activity_tell() == 0, "not settled"
    assert settled() == 3
    ((event, body),) = said(votes)
    assert (event, body["votes"]["n"]) == ("votes.cast", 4)
    (_, (event, body)) = said(both)
    outcomes = dict.fromkeys(Decision.objects.values_list("outcome", flat=True), 2)
    assert event == "decisions.changed"
    assert body["decisions"]["by_outcome"] == outcomes
    assert settled(1) == 0


def test_what_came_before_a_channel_is_not_told(project: Project, emil: User) -> None:
    pairs_make(project, 1)
    vote(project, annotators_make(project, 1)[0])
    made = channel(project, "votes", at=timezone.now() + timedelta(seconds=0.5))
    assert settled() == 0
    assert said(made) == []


def test_a_frozen_dataset_is_told_with_its_hash(
    project: Project, snapshot_make: Callable[..., Snapshot]
) -> None:
    made = channel(project, "datasets", at=timezone.now() - timedelta(minutes=1))
    frozen = snapshot_make("preferences")
    assert settled() == 1
    ((event, body),) = said(made)
    assert (event, body["dataset"]["sha256"]) == ("dataset.frozen", frozen.sha256)
    assert body["dataset"]["url"].endswith(f"/p/{project.slug}/datasets/{frozen.pk}/")


def test_an_ended_run_is_told_and_a_check_is_not(project: Project) -> None:
    made, other = channel(project, "runs"), channel(project, "votes")
    run = run_make(project, kind="ppo", state="failed", name="A policy")
    run_end_tell(run)
    run_end_tell(run_make(project, kind="check", state="finished"))
    ((event, body),) = said(made)
    assert (event, body["run"]["id"], body["run"]["name"]) == ("run.failed", run.pk, "A policy")
    assert said(other) == []
