"""The page each role lands on, and the bell."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import Membership, Notice, Project, Role, User
from apps.accounts.services import notice_give
from apps.agreement.models import AnnotatorReport
from apps.agreement.services.annotators import annotator_reports_refresh
from apps.common.errors import Conflict
from apps.common.registry import run_ended
from apps.labeling.models import Annotator, Comparison, LabelingSettings, Slot, Vote
from apps.labeling.services import (
    guideline_publish,
    labeling_settings_update,
    vote_revise,
    vote_withdraw,
)
from apps.labeling.services.review import comparison_adjudicate
from apps.monitoring.models import Incident
from apps.monitoring.services.incidents import incident_open
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run
from tests.labeling.pairs import (
    annotators_make,
    answer_all,
    pairs_make,
    practice_make,
    vote,
    votes_age,
)
from tests.people import person_make
from workers.contract.pretrained import ENCODER, MANIFEST, POLICY

OVERVIEW, NEWS = "/p/arguments/overview/", "/p/arguments/notifications/"
API = "/api/v1/projects/arguments/overview"
OWN = "/api/v1/projects/arguments/progress"
SignedIn = Callable[[User], Client]


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    """What pages keep for some seconds is of the test before."""
    cache.clear()
    yield
    cache.clear()


def needs(page: str) -> dict[str, int]:
    return {key: int(n) for key, n in re.findall(r'data-need="(\w+)" data-n="(\d+)"', page)}


def shown(client: Client, address: str = OVERVIEW) -> str:
    cache.clear()
    return client.get(address).content.decode()


def test_everybody_lands_on_the_overview(
    project: Project, ana: User, rita: User, emil: User, ada: User, signed_in: SignedIn
) -> None:
    for person in (ana, rita, emil, ada):
        assert signed_in(person).get("/", follow=True).redirect_chain[-1][0] == OVERVIEW


def test_a_new_project_needs_nobody_and_promises_nothing(
    project: Project, ada: User, signed_in: SignedIn
) -> None:
    client = signed_in(ada)
    assert needs(shown(client)) == {}
    said = client.get(API).json()
    assert said["progress"]["finish"] is None
    assert said["progress"]["votes"] == said["progress"]["to_go"] == 0


def test_the_bar_has_a_date_once_enough_people_voted_and_none_before(
    project: Project, ada: User, ana: User, rita: User, signed_in: SignedIn
) -> None:
    pairs_make(project, 20, overlap=2, max_overlap=2, least_votes=2, least_agreeing=2)
    client = signed_in(ada)
    vote(project, ana)
    page = shown(client)
    assert 'data-votes="1"' in page
    assert 'data-to-go="39"' in page
    assert 'data-forecast="none"' in page
    for _ in range(12):
        vote(project, ana)
    votes_age(2)
    finish = timezone.now() + timedelta(days=27 / (13 / 2))
    assert f'data-forecast="{finish:%Y-%m-%d}"' in shown(client)
    votes_age(10)
    assert 'data-forecast="none"' in shown(client)


def test_people_are_held_against_their_share_who_is_furthest_behind_first(
    project: Project, ada: User, ana: User, signed_in: SignedIn
) -> None:
    ben, _cleo = annotators_make(project, 2)
    pairs_make(project, 6, overlap=3, max_overlap=3)
    for _ in range(5):
        vote(project, ana)
    vote(project, ben)
    assert re.findall(r'data-behind="([\w-]+)"', shown(signed_in(ada))) == [
        "annotator-1",
        "annotator-0",
        "ana",
    ]
    said = signed_in(ada).get(API).json()["progress"]
    assert (said["share"], said["people"]) == (6, 3)
    assert [one["behind"] for one in said["behind"]] == [6, 5, 1]
    Membership.objects.filter(user=ben).update(paused_reason="a holiday")
    assert "annotator-0" not in shown(signed_in(ada))


@pytest.fixture
def busy(project: Project, ana: User) -> dict[str, int]:
    """One or more of everything that waits."""
    states = Comparison.State
    pairs_make(project, 6)
    vote(project, ana)
    ids = list(Comparison.objects.filter(n_votes=0).order_by("pk").values_list("pk", flat=True))
    Comparison.objects.filter(pk__in=ids[:3]).update(state=states.CONTESTED)
    Comparison.objects.filter(pk=ids[2]).update(review_reason="nobody is left to vote on it")
    Comparison.objects.filter(pk=ids[3]).update(state=states.REVIEW)
    guideline_publish(project=project, body="Be fair.", by=ana, is_major=True)
    now = timezone.now()
    annotator_reports_refresh(project=project)
    AnnotatorReport.objects.update(flags=[{"kind": "x", "label": "fast", "sentence": "Fast."}])
    common = {"project": project, "ended_at": now}
    Run.objects.create(
        **common, name="dpo", kind=Run.Kind.DPO, state=Run.State.FAILED, failure_kind="bug"
    )
    reward = Run.objects.create(
        **common, name="rewards", kind=Run.Kind.REWARD, state=Run.State.FINISHED
    )
    Checkpoint.objects.create(
        project=project, run=reward, attempt=1, step=5, uri="x", sha256="1" * 64, tags=["final"]
    )
    Incident.objects.create(
        project=project,
        key="run:1",
        link="reward",
        rule="drift",
        title="It drifts",
        severity="warning",
        opened_at=now,
        heard_at=now,
    )
    return {
        "contested": 3,
        "stuck": 1,
        "review": 1,
        "unread": 2,
        "flagged": 1,
        "failed": 1,
        "approvals": 1,
        "incidents": 1,
    }


def test_each_role_is_shown_what_needs_it_and_every_link_leads_to_what_was_counted(
    project: Project,
    ada: User,
    ana: User,
    rita: User,
    emil: User,
    busy: dict[str, int],
    signed_in: SignedIn,
) -> None:
    assert needs(shown(signed_in(ada))) == busy
    assert needs(shown(signed_in(rita))) == {"contested": 3, "review": 1}
    assert needs(shown(signed_in(emil))) == {"failed": 1, "approvals": 1, "incidents": 1}
    page = shown(signed_in(ana))
    assert needs(page) == {}
    assert "contested" not in page
    assert "Annotators flagged" not in page
    for need in signed_in(ada).get(API).json()["needs"]:
        listed = signed_in(ada).get(need["url"])
        assert listed.status_code == 200, need
        found = listed.context.get("page")
        assert found is None or found.paginator.count == need["n"], need


def test_an_engineer_sees_runs_models_and_fresh_votes(
    project: Project, emil: User, ana: User, busy: dict[str, int], signed_in: SignedIn
) -> None:
    Annotator.objects.update(acknowledged_version=9)
    Run.objects.create(
        project=project,
        name="ppo",
        kind=Run.Kind.PPO,
        state=Run.State.RUNNING,
        total_steps=100,
        step=40,
        eta_s=90.0,
    )
    vote(project, ana)
    votes_age(2)
    Run.objects.filter(name="rewards").update(created_at=timezone.now() - timedelta(days=3))
    Snapshot.objects.create(
        project=project,
        name="pairs",
        kind=Snapshot.Kind.PREFERENCES,
        state=Snapshot.State.FROZEN,
        uri="snapshots/none",
        sha256="0" * 64,
        frozen_at=timezone.now() - timedelta(days=1),
        counts={"rows": {"train": 1}},
    )
    vote(project, ana)
    cache.clear()
    said = signed_in(emil).get(API).json()["engineering"]
    assert [(run["name"], run["seconds_left"]) for run in said["runs"]] == [("ppo", 90.0)]
    assert [model["status"] for model in said["models"]] == ["candidate"]
    assert said["fresh_votes"] == {"dataset": 1, "reward_model": 3}
    assert len(said["incidents"]) == 1
    assert "90 s" not in shown(signed_in(ana))


def test_an_annotator_sees_their_own_work_and_an_agreement_of_yesterday(
    project: Project, ana: User, signed_in: SignedIn
) -> None:
    ben = annotators_make(project, 1)[0]
    pairs_make(project, 25, overlap=2, max_overlap=2, least_votes=2, least_agreeing=2)
    for number in range(24):
        vote(project, ana, "a")
        vote(project, ben, "b" if number % 4 == 0 else "a")
    client = signed_in(ana)
    cache.clear()
    own = client.get(API).json()["own"]
    assert (own["today"], own["answers"], own["share"], own["goal"]) == (24, 24, 25, 25)
    assert own["agreement"] is None  # today's votes tell nothing of the others'
    votes_age(1.5)
    shared = [
        {vote.choice for vote in pair.votes.all()} for pair in Comparison.objects.filter(n_votes=2)
    ]
    own = client.get(API).json()["own"]
    assert own["minutes_per_ten"] == 1.0
    assert own["agreement_pairs"] == len(shared) >= 20
    assert own["agreement"] == pytest.approx(sum(len(c) == 1 for c in shared) / len(shared))
    page = shown(client)
    assert client.get(API).json()["progress"] is None
    assert "annotator-0" not in page


def test_statements_do_not_grow_with_the_project(
    project: Project, ada: User, ana: User, busy: dict[str, int], signed_in: SignedIn
) -> None:
    client = signed_in(ada)
    shown(client)
    with CaptureQueriesContext(connection) as few:
        shown(client)
    assert len(few) <= 40
    annotators_make(project, 30)
    now = timezone.now()
    for number in range(10):
        Run.objects.create(
            project=project,
            name=f"run {number}",
            kind=Run.Kind.DPO,
            state=Run.State.FAILED,
            failure_kind="bug",
            ended_at=now,
        )
    Annotator.objects.update(acknowledged_version=9)
    for _ in range(3):
        vote(project, ana)
    with CaptureQueriesContext(connection) as many:
        shown(client)
    assert len(many) <= len(few) + 1
    with CaptureQueriesContext(connection) as kept:
        client.get(OVERVIEW)
    assert len(kept) < len(many)


# The bell.


def test_the_bell_rings_once_for_what_is_new_to_a_person(
    project: Project, ada: User, emil: User, ana: User, busy: dict[str, int], signed_in: SignedIn
) -> None:
    def rings(person: User) -> int:
        found = re.search(r'class="bell-count"[^>]*>(\d+)<', shown(signed_in(person), "/account/"))
        return int(found[1]) if found else 0

    assert rings(emil) == 3
    notice_give(project=project, roles=[Role.ENGINEER], kind="x", text="Look.", path="/")
    notice_give(project=project, user=ada, kind="y", text="Only you.", path="/")
    assert rings(emil) == 4
    page = shown(signed_in(emil), NEWS)
    assert page.count("data-new") == 1
    assert "Only you." not in page
    assert rings(emil) == 0
    assert "data-new" not in shown(signed_in(emil), NEWS)
    assert rings(ada) == len(busy) + 1
    Incident.objects.update(key="run:0")
    Incident.objects.create(
        project=project,
        key="run:2",
        link="reward",
        rule="drift",
        title="Again",
        severity="warning",
        opened_at=timezone.now(),
        heard_at=timezone.now(),
    )
    assert rings(emil) == 1
    assert rings(ana) == 1  # pairs came in; that there are new guidelines is her own doing


def test_nobody_hears_of_other_projects_of_times_before_they_came_or_of_their_own_deeds(
    project: Project, ada: User, emil: User, olga: User, signed_in: SignedIn
) -> None:
    notice_give(project=project, roles=[Role.ENGINEER], kind="old", text="Before.", path="/")
    notice_give(project=project, roles=[Role.ENGINEER], kind="own", text="Mine.", path="/", by=emil)
    Membership.objects.filter(user=emil).update(created_at=timezone.now() + timedelta(seconds=9))
    assert "data-notice" not in shown(signed_in(emil), NEWS)
    Membership.objects.filter(user=emil).update(created_at=timezone.now() - timedelta(days=9))
    said = signed_in(emil).get("/api/v1/projects/arguments/notifications").json()
    assert [(one["kind"], one["seen"]) for one in said] == [("old", False)]
    assert "Before." not in shown(signed_in(olga), "/p/elsewhere/notifications/")
    ben = person_make("Ben", project, Role.ANNOTATOR)
    assert "data-notice" not in shown(signed_in(ben), NEWS)


def test_what_comes_in_many_parts_is_told_once(project: Project) -> None:
    for _ in range(3):
        notice_give(
            project=project,
            roles=[Role.ANNOTATOR],
            kind="work",
            text="New pairs.",
            path="/",
            every=timedelta(hours=1),
        )
    assert Notice.objects.count() == 1
    assert not Slot.objects.exists()
    assert not Vote.objects.exists()


def told(person: User, kind: str) -> list[str]:
    rows = Notice.objects.filter(user=person, kind=kind)
    return [notice.sentence for notice in rows.order_by("pk")]


def test_those_who_answered_a_pair_are_told_of_the_ruling_on_the_sides_they_saw_if_it_is_shown(
    project: Project, ana: User, ada: User
) -> None:
    ben = annotators_make(project, 1)[0]
    pairs_make(project, 2, overlap=2, max_overlap=2, least_votes=2, least_agreeing=2)
    for person, choice in ((ana, "a"), (ben, "b")):
        vote(project, person, choice)
        vote(project, person, choice)
    first, second = Comparison.objects.order_by("pk")
    comparison_adjudicate(comparison=first, choice="a", reason="", by=ada)
    assert not told(ana, "ruling")
    labeling_settings_update(project=project, by=ada, show_rulings=True)
    comparison_adjudicate(comparison=second, choice="a", reason="", by=ada)
    for person, agrees in ((ana, True), (ben, False)):
        [text] = told(person, "ruling")
        side = Vote.objects.get(annotator=person, comparison=second).left_is
        assert ("A is better" if side == "a" else "B is better") in text
        assert ("as you did" in text) == agrees
    assert Notice.objects.filter(kind="ruling").count() == 2


def test_staff_hear_of_runs_that_end_and_of_incidents_and_nobody_else(
    project: Project, emil: User, ana: User, signed_in: SignedIn
) -> None:
    run = Run.objects.create(
        project=project,
        name="dpo",
        kind=Run.Kind.DPO,
        state="failed",
        failure_kind="bug",
        ended_at=timezone.now(),
    )
    run_ended(run)
    incident_open(
        project=project,
        key="k",
        link="reward",
        rule="r",
        title="It drifts",
        message="",
        severity="critical",
    )
    page = shown(signed_in(emil), NEWS)
    assert re.findall(r'data-notice="([\w.]+)"', page) == ["incident.opened", "run.failed"]
    assert "data-notice" not in shown(signed_in(ana), NEWS)


def test_gold_pairs_are_shown_where_an_admin_says_so_a_day_later_and_then_stay_as_they_are(
    project: Project, ana: User, signed_in: SignedIn
) -> None:
    pairs_make(project, 3, acknowledge_guidelines=False)
    for choice in ("a", "b", "a"):
        vote(project, ana, choice)
    first, second, third = Vote.objects.order_by("pk")
    Comparison.objects.update(gold="a", gold_explanation="Twice **two**.")
    Slot.objects.filter(pk__in=(first.slot_id, second.slot_id)).update(kind=Slot.Kind.GOLD)

    def gold() -> tuple[list[str], list[str]]:
        page = shown(signed_in(ana), "/p/arguments/progress/")
        return re.findall(r'data-gold="(\d+)"', page), re.findall(r'data-right="(\d+)"', page)

    change = {"annotator": ana, "choice": "tie"}
    LabelingSettings.objects.update(show_gold=True)
    assert gold() == ([], [])  # today's
    second = vote_revise(vote=second.pk, idempotency_key="early", **change).vote
    votes_age(days=1.1)
    assert gold() == ([str(second.pk), str(first.pk)], ["1"])
    assert "<strong>two</strong>" in shown(signed_in(ana), "/p/arguments/progress/")
    said = signed_in(ana).get(f"{OWN}?limit=1").json()
    assert (said["gold_count"], said["gold_right"], said["after"]) == (2, 1, 1)
    (newest,) = said["gold"]
    assert newest["vote"] == second.pk
    assert newest["yours"] == "tie"
    assert newest["known"] == ("left" if second.left_is == "a" else "right")
    assert newest["explanation"] == "Twice **two**."
    (oldest,) = signed_in(ana).get(f"{OWN}?after=1").json()["gold"]
    assert oldest["yours"] == oldest["known"]
    for late in (first, second):
        with pytest.raises(Conflict) as refused:
            vote_revise(vote=late.pk, idempotency_key="late", **change)
        assert refused.value.code == "gold_shown"
        with pytest.raises(Conflict):
            vote_withdraw(vote=late.pk, annotator=ana)
    vote_revise(vote=third.pk, idempotency_key="late", **change)
    LabelingSettings.objects.update(show_gold=False)
    assert gold() == ([], [])
    said = signed_in(ana).get(OWN).json()
    assert (said["shows_gold"], said["gold_count"], said["gold"]) == (False, 0, [])
    vote_revise(vote=first.pk, idempotency_key="off", **change)


def test_practice_is_in_ones_own_progress(project: Project, ana: User, signed_in: SignedIn) -> None:
    practice_make(project)
    answer_all(project, ana, [False, False, True])
    page = shown(signed_in(ana), "/p/arguments/progress/")
    assert re.findall(r'data-attempt="(\w+)"', page) == ["failed"]
    (attempt,) = signed_in(ana).get(OWN).json()["attempts"]
    assert attempt["finished_at"]
    assert (attempt["state"], attempt["right"], attempt["pairs"]) == ("failed", 1, 3)


# --- the demo's models ---


def test_the_demo_says_how_to_get_pretrained_models_until_they_are_there(
    project: Project, emil: User, signed_in: SignedIn, settings, tmp_path
) -> None:
    settings.VAR_DIR = tmp_path
    assert "make models" in shown(signed_in(emil))
    for name in (POLICY, ENCODER):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text("{}")
    (tmp_path / "models" / MANIFEST).write_text("{}")
    assert "make models" not in shown(signed_in(emil))
