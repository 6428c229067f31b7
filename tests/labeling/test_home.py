"""An annotator's home: what there is to do in each project, without taking any of it."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services import membership_pause
from apps.labeling import services
from apps.labeling.models import Annotator, LabelingSettings, Slot
from tests.labeling.pairs import leased, pairs_make, rows_make, vote
from tests.labeling.practice import practice_make
from tests.labeling.rating_tasks import tasks_make

SignIn = Callable[[User], Client]


def text_of(html: str) -> str:
    """The words of a page, without its markup."""
    main = html.split('<main id="main"')[1].split("</main>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", main))


@pytest.fixture
def look(signed_in: SignIn, ana: User) -> Callable[[], str]:
    return lambda: text_of(signed_in(ana).get("/my-work/").content.decode())


def test_looking_takes_no_pair(project: Project, look: Callable[[], str]) -> None:
    pairs_make(project, 3)
    assert "Left for you 3" in look()
    assert not Slot.objects.exclude(state="free").exists()


def test_what_was_answered_today_and_in_all_is_counted(
    project: Project, ana: User, look: Callable[[], str]
) -> None:
    pairs_make(project, 3)
    vote(project, ana)
    vote(project, ana)
    Annotator.objects.filter(user=ana).update(votes_day=timezone.now().date() - timedelta(days=1))
    assert "Today 0 In all 2 Left for you 1" in look()


def test_a_project_with_answers_to_rate_says_so(project: Project, look: Callable[[], str]) -> None:
    assert "to rate" not in look()
    tasks_make(project, 1)
    said = look()
    assert "This project has answers to rate, and no pairs to compare." in said
    assert "Rate in Arguments" in said
    assert "No comparisons have been imported" not in said


def test_one_pair_of_a_daily_cap_is_called_one_pair(
    project: Project, ana: User, look: Callable[[], str]
) -> None:
    pairs_make(project, 2, daily_cap=1)
    vote(project, ana)
    assert "You have answered 1 pair today, as many as this project takes" in look()


def test_a_pair_in_hand_can_be_gone_on_with(
    project: Project, ana: User, look: Callable[[], str]
) -> None:
    pairs_make(project, 2)
    lease = leased(project, ana)
    said = look()
    assert f"You hold a pair until {lease.leased_until:%H:%M} UTC" in said
    assert "Go on with your pair" in said


def test_a_pair_whose_time_ran_out_is_not_promised(
    project: Project, ana: User, look: Callable[[], str]
) -> None:
    pairs_make(project, 2)
    lease = leased(project, ana)
    Slot.objects.filter(pk=lease.slot).update(leased_until=timezone.now() - timedelta(minutes=1))
    assert "yours until somebody else takes it" in look()


@pytest.mark.parametrize("state", ["paused", "guideline", "qualification", "daily_cap", "all_done"])
def test_the_reason_is_the_one_the_label_screen_gives(
    project: Project, ana: User, ada: User, signed_in: SignIn, state: str
) -> None:
    pairs_make(project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    if state == "paused":
        membership_pause(project=project, user=ana, reason="Please call me.", by=ada)
    elif state == "guideline":
        services.guideline_publish(project=project, body="New.", by=ada, is_major=True)
    elif state == "qualification":
        practice_make(project)
    elif state == "daily_cap":
        LabelingSettings.objects.update(daily_cap=1)
        vote(project, ana)
    else:
        vote(project, ana)
    screen = services.slot_lease_next(project=project, annotator=ana)
    assert screen.code == state
    html = signed_in(ana).get("/my-work/").content.decode()
    assert screen.text.replace("'", "&#x27;") in html


def test_others_who_hold_the_rest_are_said_with_the_time(
    project: Project, ana: User, ben: User, look: Callable[[], str]
) -> None:
    pairs_make(project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    leased(project, ben)
    said = look()
    assert "1 pair is with other annotators right now" in said
    assert "in at most 15 minutes" in said


def test_a_cap_of_the_day_bounds_what_is_left(
    project: Project, ana: User, look: Callable[[], str]
) -> None:
    pairs_make(project, 5, daily_cap=3)
    vote(project, ana)
    said = look()
    assert "Today 1 of 3" in said
    assert "Left for you 2 today, 4 in all" in said


def test_what_is_left_minds_a_persons_topics(
    project: Project, ana: User, look: Callable[[], str]
) -> None:
    rows = [row | {"topic": topic} for row, topic in zip(rows_make(3), "xxy", strict=True)]
    services.comparisons_import(project=project, rows=rows)
    Annotator.objects.filter(user=ana).update(topics=["y"])
    assert "Left for you 1" in look()


def test_projects_of_other_roles_and_other_people_are_not_listed(
    project: Project, ana: User, olga: User, look: Callable[[], str]
) -> None:
    engineering = Project.objects.create(slug="engineering", name="Engineering")
    Membership.objects.create(project=engineering, user=ana, role=Role.ENGINEER)
    said = look()
    assert "Arguments" in said
    assert "Engineering" not in said
    assert "Elsewhere" not in said


def test_somebody_in_no_project_reads_what_to_do(project: Project, signed_in: SignIn) -> None:
    noa = User.objects.create_user("noa")
    said = text_of(signed_in(noa).get("/my-work/").content.decode())
    assert "You are in no project yet" in said
    assert "noa" in said


def test_an_engineer_reads_that_they_label_nowhere(
    project: Project, emil: User, signed_in: SignIn
) -> None:
    assert "You label in no project" in text_of(signed_in(emil).get("/my-work/").content.decode())


def test_who_annotates_in_one_project_lands_on_its_pairs_and_in_two_on_their_work(
    project: Project, ana: User, signed_in: SignIn
) -> None:
    browser = signed_in(ana)
    assert browser.get("/").url == "/p/arguments/"
    assert browser.get("/p/arguments/").url == "/p/arguments/label/"
    second = Project.objects.create(slug="second", name="Second")
    Membership.objects.create(project=second, user=ana, role=Role.ANNOTATOR)
    assert browser.get("/").url == "/my-work/"


def test_the_switcher_leads_labelers_to_their_work(
    project: Project, ana: User, emil: User, signed_in: SignIn
) -> None:
    assert 'href="/my-work/"' in signed_in(ana).get("/account/").content.decode()
    assert 'href="/my-work/"' not in signed_in(emil).get("/account/").content.decode()


def test_a_page_that_waits_is_left_alone_until_there_is_news(
    project: Project, ana: User, ben: User, signed_in: SignIn
) -> None:
    pairs_make(project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    lease = leased(project, ben)
    browser, asked = signed_in(ana), {"HX-Request": "true"}
    html = browser.get("/p/arguments/label/").content.decode()
    address = re.search(r'hx-get="([^"]*waiting=[^"]*)"', html)[1]
    assert browser.get(address, headers=asked).status_code == 204
    assert browser.get(address).status_code == 200  # a page asked for as a whole is sent
    Slot.objects.filter(pk=lease.slot).update(
        state="free", annotator=None, leased_until=None, leased_at=None, left_is=""
    )
    assert "Pair 1" in browser.get(address, headers=asked).content.decode()


def test_the_cap_of_the_day_says_when_it_ends(
    project: Project, ana: User, signed_in: SignIn
) -> None:
    pairs_make(project, 3, daily_cap=1)
    vote(project, ana)
    html = signed_in(ana).get("/p/arguments/label/").content.decode()
    assert "More come after midnight UTC." in html
    assert re.search(r"That is <time [^>]*T00:00:00\+00:00[^>]*>in \d+ (h|min|s)</time>", html)
