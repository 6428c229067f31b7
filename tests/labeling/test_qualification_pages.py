"""The qualification as its pages show it: start, pair, verdict, result."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.accounts.services import membership_pause
from apps.labeling.models import LabelingSettings, QualificationAnswer, QualificationAttempt
from tests.labeling.practice import answer_all, practice_make, qualified, right_side

PATH = "/p/arguments/qualification/"


@pytest.fixture
def browser(project: Project, ana: User, signed_in: Callable[[User], Client]) -> Client:
    practice_make(project)
    return signed_in(ana)


def page(browser: Client, query: str = "") -> str:
    return browser.get(PATH + query).content.decode()


def judge(browser: Client, *, right: bool) -> str:
    """Answer the pair that is shown; returns the page that follows."""
    pair = int(re.search(r'name="pair" value="(\d+)"', page(browser))[1])
    row = QualificationAnswer.objects.select_related("comparison").get(pk=pair)
    side = right_side(row)
    sent = side if right else {"left": "right", "right": "left"}[side]
    answer = browser.post(f"{PATH}answer/", {"pair": pair, "answer": sent}, follow=True)
    return answer.content.decode()


def test_a_whole_round_without_script(browser: Client, project: Project, ana: User) -> None:
    start = page(browser)
    assert "3 pairs" in start
    assert "With <strong>2 right</strong> you have passed" in start
    browser.post(f"{PATH}start/")
    assert "Practice 1" in page(browser)
    first = judge(browser, right=True)
    assert "Right: " in first
    assert "Because of arithmetic" in first
    second = judge(browser, right=False)
    assert "Not right: you said" in second
    assert "2 of 3 judged, 1 right" in second
    assert "To the result" in judge(browser, right=True)
    result = page(browser)
    assert "You passed" in result
    assert "<strong>2 of 3</strong> right" in result
    assert "Start labeling" in result
    assert qualified(project, ana)


def test_the_label_screen_leads_there(browser: Client) -> None:
    html = browser.get("/p/arguments/label/").content.decode()
    assert f'href="{PATH}"' in html
    browser.post(f"{PATH}start/")
    assert "Go on with the qualification" in browser.get("/p/arguments/label/").content.decode()


def test_the_page_of_a_pair_does_not_tell_the_answer(browser: Client) -> None:
    browser.post(f"{PATH}start/")
    html = page(browser)
    assert "arithmetic" not in html
    assert "gold" not in html
    assert "practice-" not in html


def test_a_pair_that_is_not_answered_cannot_be_looked_up(browser: Client) -> None:
    browser.post(f"{PATH}start/")
    assert "arithmetic" not in page(browser, "?answered=1")
    assert "arithmetic" not in page(browser, "?answered=x")


def test_a_choice_the_project_does_not_offer_has_no_button(browser: Client) -> None:
    LabelingSettings.objects.update(show_tie=False, show_strength=True)
    browser.post(f"{PATH}start/")
    values = re.findall(r'name="answer" value="([\w-]+)"', page(browser))
    assert values == ["left", "right", "both_bad"]


def test_failing_says_when_the_next_attempt_can_begin(
    browser: Client, project: Project, ana: User
) -> None:
    answer_all(project, ana, [False] * 3)
    html = page(browser)
    assert "Not passed this time" in html
    assert "The next one can begin" in html
    assert "1 of 2 attempts are left" in html
    assert f'action="{PATH}start/"' not in html
    refused = browser.post(f"{PATH}start/", follow=True).content.decode()
    assert "The next attempt can begin at" in refused
    assert QualificationAttempt.objects.count() == 1


def test_all_attempts_used_says_who_can_help(browser: Client, project: Project, ana: User) -> None:
    LabelingSettings.objects.update(qualification_attempts=1)
    answer_all(project, ana, [False] * 3)
    assert "An admin of this project can grant you another" in page(browser)
    assert "can grant you another" in browser.get("/my-work/").content.decode()


def test_a_round_that_is_not_ready_says_so(browser: Client) -> None:
    LabelingSettings.objects.update(qualification_pairs=9)
    html = page(browser)
    assert "4 of the 9 practice pairs" in html
    assert f'action="{PATH}start/"' not in html


def test_who_is_paused_reads_that_first(
    browser: Client, project: Project, ana: User, ada: User
) -> None:
    membership_pause(project=project, user=ana, reason="Call me.", by=ada)
    assert "Call me." in browser.get(PATH, follow=True).content.decode()


@pytest.mark.parametrize("sent", [{}, {"pair": "x"}, {"pair": "9" * 30}, {"pair": "0"}])
def test_a_pair_that_is_not_there_is_not_found(browser: Client, sent: dict[str, str]) -> None:
    assert browser.post(f"{PATH}answer/", sent | {"answer": "left"}).status_code == 404


def test_an_answer_that_is_no_answer_is_said_and_the_pair_stays(browser: Client) -> None:
    browser.post(f"{PATH}start/")
    pair = re.search(r'name="pair" value="(\d+)"', page(browser))[1]
    html = browser.post(f"{PATH}answer/", {"pair": pair, "answer": "up"}, follow=True)
    assert "is unknown" in html.content.decode()
    assert f'name="pair" value="{pair}"' in html.content.decode()
