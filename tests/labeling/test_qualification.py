"""The qualification round: drawn at its start, answered once, counted honestly."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, Role, User
from apps.accounts.services import membership_pause
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.labeling import services
from apps.labeling.models import (
    Annotator,
    Answer,
    Comparison,
    LabelingSettings,
    QualificationAnswer,
    QualificationAttempt,
    Slot,
    Vote,
)
from apps.labeling.services import NothingReason
from apps.labeling.services.qualification import (
    attempt_answer,
    attempt_grant,
    attempt_start,
    qualification_of,
)
from tests.labeling.pairs import (
    answer_all,
    leased,
    practice_make,
    qualified,
    right_side,
    rows_make,
    tasks_make,
)
from tests.people import person_make


def code(project: Project, user: User) -> str:
    got = services.slot_lease_next(project=project, annotator=user)
    return got.code if isinstance(got, NothingReason) else "pair"


def cool_down() -> None:
    """An hour and more passes."""
    QualificationAttempt.objects.update(finished_at=timezone.now() - timedelta(hours=2))


def test_passing_opens_the_queue_and_leaves_no_vote(project: Project, ana: User) -> None:
    practice_make(project)
    services.comparisons_import(project=project, rows=rows_make(1))
    assert code(project, ana) == "qualification"
    attempt = answer_all(project, ana, [True, False, True])
    assert (attempt.state, attempt.n_right) == ("passed", 2)
    assert code(project, ana) == "pair"
    assert not Vote.objects.exists()


def test_failing_keeps_it_closed_until_the_cool_down_is_over(project: Project, ana: User) -> None:
    practice_make(project)
    attempt = answer_all(project, ana, [True, False, False])
    assert (attempt.state, attempt.n_right) == ("failed", 1)
    assert code(project, ana) == "qualification"
    with pytest.raises(Conflict) as refused:
        attempt_start(project=project, user=ana)
    assert refused.value.code == "qualification_cooling_down"
    cool_down()
    assert attempt_start(project=project, user=ana).number == 2


def test_the_mark_of_the_day_it_began_holds(project: Project, ana: User) -> None:
    practice_make(project)
    attempt_start(project=project, user=ana)
    LabelingSettings.objects.update(qualification_pass=1.0, qualification_pairs=1)
    attempt = answer_all(project, ana, [True, False, True])
    assert attempt.state == "passed"


def test_a_mark_met_exactly_is_met(project: Project, ana: User) -> None:
    practice_make(project, 10, qualification_pairs=10, qualification_pass=0.7)
    attempt = answer_all(project, ana, [True] * 7 + [False] * 3)
    assert attempt.state == "passed"


def test_an_attempt_survives_a_reload(project: Project, ana: User) -> None:
    practice_make(project)
    first = attempt_start(project=project, user=ana)
    shown = list(first.answers.values_list("comparison", "left_is"))
    again = attempt_start(project=project, user=ana)
    assert again == first
    assert list(again.answers.values_list("comparison", "left_is")) == shown


def test_nobody_has_two_attempts_at_once(project: Project, ana: User) -> None:
    practice_make(project)
    attempt_start(project=project, user=ana)
    with pytest.raises(IntegrityError), transaction.atomic():
        QualificationAttempt.objects.create(
            project=project, user=ana, number=2, pass_share=0.5, n_pairs=1
        )


def test_pairs_met_least_come_first(project: Project, ana: User) -> None:
    practice_make(project, 6)
    first = answer_all(project, ana, [False] * 3)
    cool_down()
    second = attempt_start(project=project, user=ana)
    met = set(first.answers.values_list("comparison", flat=True))
    assert not met & set(second.answers.values_list("comparison", flat=True))


def test_the_first_answer_stands(project: Project, ana: User) -> None:
    practice_make(project)
    attempt = attempt_start(project=project, user=ana)
    row = attempt.answers.select_related("comparison").first()
    wrong = "right" if right_side(row) == "left" else "left"
    first = attempt_answer(project=project, user=ana, answer=row.pk, side=wrong)
    again = attempt_answer(project=project, user=ana, answer=row.pk, side=right_side(row))
    assert (first.is_right, again.is_right) == (False, False)
    attempt.refresh_from_db()
    assert (attempt.n_right, attempt.state) == (0, "running")


def test_all_attempts_used_says_who_can_help_and_a_grant_does(
    project: Project, ana: User, ada: User
) -> None:
    practice_make(project)
    for _ in range(2):
        answer_all(project, ana, [False] * 3)
        cool_down()
    with pytest.raises(Conflict) as refused:
        attempt_start(project=project, user=ana)
    assert refused.value.code == "qualification_used_up"
    granted = attempt_grant(project=project, user=ana, by=ada)
    assert granted.number == 3
    assert attempt_grant(project=project, user=ana, by=ada) == granted
    assert answer_all(project, ana, [True] * 3) == granted
    assert qualified(project, ana)


def test_too_few_practice_pairs_let_nobody_through(project: Project, ana: User) -> None:
    practice_make(project, 2)
    with pytest.raises(Conflict, match="2 of the 3") as refused:
        attempt_start(project=project, user=ana)
    assert refused.value.code == "qualification_not_ready"
    assert code(project, ana) == "qualification"
    assert not QualificationAttempt.objects.exists()


def test_a_pair_whose_right_answer_has_no_button_is_not_drawn(project: Project, ana: User) -> None:
    practice_make(project, 3)
    Comparison.objects.filter(external_id="practice-1").update(gold="tie")
    assert qualification_of(project=project, user=ana).ready
    LabelingSettings.objects.update(show_tie=False)
    assert qualification_of(project=project, user=ana).n_ready == 2


def test_practice_pairs_are_never_in_the_queue(project: Project, ana: User, ada: User) -> None:
    practice_make(project)
    assert not Slot.objects.exists()
    services.comparisons_import(project=project, rows=rows_make(1))
    Annotator.objects.filter(user=ana).update(qualified_at=timezone.now())
    assert "Question 1" in leased(project, ana).prompt[0]["content"]


def test_practice_alone_is_no_work_that_is_done(project: Project, ana: User) -> None:
    practice_make(project)
    answer_all(project, ana, [True] * 3)
    assert code(project, ana) == "empty"


def test_another_persons_pair_cannot_be_answered(project: Project, ana: User, rita: User) -> None:
    practice_make(project)
    row = attempt_start(project=project, user=rita).answers.first()
    with pytest.raises(Missing):
        attempt_answer(project=project, user=ana, answer=row.pk, side="left")


def test_engineers_and_outsiders_do_not_qualify(project: Project, emil: User, olga: User) -> None:
    practice_make(project)
    with pytest.raises(Refused):
        attempt_start(project=project, user=emil)
    with pytest.raises(Missing):
        attempt_start(project=project, user=olga)


def test_a_side_that_does_not_exist_is_named(project: Project, ana: User) -> None:
    practice_make(project)
    row = attempt_start(project=project, user=ana).answers.first()
    with pytest.raises(DomainError, match="'up' is unknown"):
        attempt_answer(project=project, user=ana, answer=row.pk, side="up")


def test_who_has_qualified_does_not_start_again(project: Project, ana: User, ada: User) -> None:
    practice_make(project)
    answer_all(project, ana, [True] * 3)
    for start in (
        lambda: attempt_start(project=project, user=ana),
        lambda: attempt_grant(project=project, user=ana, by=ada),
    ):
        with pytest.raises(Conflict) as refused:
            start()
        assert refused.value.code == "qualification_passed"


# The qualification as its pages show it: start, pair, verdict, result.


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
    assert "<strong>2 right</strong>" in start
    browser.post(f"{PATH}start/")
    assert "Practice 1" in page(browser)
    first = judge(browser, right=True)
    assert "Right: " in first
    assert "Because of arithmetic" in first
    second = judge(browser, right=False)
    assert "2 of 3 judged, 1 right" in second
    assert "To the result" in judge(browser, right=True)
    result = page(browser)
    assert "You passed" in result
    assert "<strong>2 of 3</strong>" in result
    assert "Start labeling" in result
    assert qualified(project, ana)


def test_the_label_screen_leads_there(browser: Client) -> None:
    html = browser.get("/p/arguments/label/").content.decode()
    assert f'href="{PATH}"' in html
    browser.post(f"{PATH}start/")
    assert "Continue the qualification" in browser.get("/p/arguments/label/").content.decode()


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
    shown = browser.get(PATH)
    state = shown.context["state"]
    assert (state.attempt.state, state.n_left, state.most_attempts) == ("failed", 1, 2)
    for answer in (shown, browser.post(f"{PATH}start/", follow=True)):
        html = answer.content.decode()
        assert f"{state.may_start_at:%H:%M}" in html
        assert f'action="{PATH}start/"' not in html
    assert QualificationAttempt.objects.count() == 1


def test_all_attempts_used_says_who_can_help(browser: Client, project: Project, ana: User) -> None:
    LabelingSettings.objects.update(qualification_attempts=1)
    answer_all(project, ana, [False] * 3)
    assert browser.get(PATH).context["state"].used_up
    assert browser.get("/my-work/").context["places"][0].qualification.used_up


def test_a_round_that_is_not_ready_says_so(browser: Client) -> None:
    LabelingSettings.objects.update(qualification_pairs=9)
    html = page(browser)
    assert "4 of 9 practice pairs" in html
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


# Impatient people: the same thing pressed many times at once happens once.

AT_ONCE = 8


def together(deed: Callable[[int], Any]) -> list[Any]:
    """What AT_ONCE threads got from doing the same thing."""

    def run(number: int) -> Any:
        try:
            return deed(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, range(AT_ONCE)))


@pytest.mark.django_db(transaction=True)
def test_pressing_at_once_starts_one_attempt_and_keeps_one_answer() -> None:
    project = Project.objects.create(slug="arguments", name="Arguments")
    ana = person_make("Ana", project, Role.ANNOTATOR)
    practice_make(project, 1, qualification_pairs=1)
    Annotator.objects.all().delete()  # so that the row is made in the race too
    started = together(lambda _: services.attempt_start(project=project, user=ana).pk)
    assert set(started) == {QualificationAttempt.objects.get().pk}
    row = QualificationAttempt.objects.get().answers.select_related("comparison").get()
    sides = [right_side(row), "tie"] * (AT_ONCE // 2)
    answers = together(
        lambda number: (
            services.attempt_answer(
                project=project, user=ana, answer=row.pk, side=sides[number]
            ).choice
        )
    )
    row.refresh_from_db()
    assert set(answers) == {row.choice}
    ends = AuditEvent.objects.filter(action__startswith="qualification.")
    assert [event.action for event in ends] == [
        "qualification.passed" if row.is_right else "qualification.failed"
    ]
    services.guideline_publish(project=project, body="New.", by=ana, is_major=True)
    together(lambda _: services.guideline_acknowledge(project=project, user=ana, version=2).pk)
    assert AuditEvent.objects.filter(action="guideline.acknowledged").count() == 1


def test_values_are_no_answer_to_a_pair(browser: Client, project: Project, ana: User) -> None:
    browser.post(f"{PATH}start/")
    pair = int(re.search(r'name="pair" value="(\d+)"', page(browser))[1])
    sent = {"pair": pair, "cards": "2", "value-1": "1", "value-2": "2"}
    assert browser.post(f"{PATH}answer/", sent).status_code == 302
    assert not QualificationAnswer.objects.filter(answered_at__isnull=False).exists()
    assert "Practice 1" in page(browser)


# Gradings and rankings are practised too, by whoever is to give them.


def test_gradings_and_rankings_are_practised_as_they_are_asked(
    project: Project, ana: User, signed_in: Callable[[User], Client]
) -> None:
    asked = {"qualification_pairs": 2, "qualification_pass": 0.5, "qualification_attempts": 2}
    known = {"gold": [2, 6, 4], "stratum": "practice", "explanation": "The second is **right**."}
    tasks_make(project, n=1, k=3, settings=asked, name="practice", **known)
    tasks_make(project, n=1, kind="rank", name="order", **known | {"gold": [3, 1, 2]})
    assert not Slot.objects.exists()  # practice is never in the queue
    browser = signed_in(ana)
    browser.post(f"{PATH}start/")
    for number in (1, 2):
        shown = page(browser)
        row = QualificationAnswer.objects.select_related("comparison").get(position=number)
        right = [row.comparison.gold_values[place - 1] for place in row.shown]
        if number == 2:  # the wrong way round
            high, low = max(right), min(right)
            right = [high + low - value for value in right]
        assert f'name="pair" value="{row.pk}"' in shown
        sent = {f"value-{n}": str(value) for n, value in enumerate(right, start=1)}
        half = browser.post(f"{PATH}answer/", {"pair": row.pk, "cards": "3", "value-1": "1"})
        assert half.status_code == 302
        row.refresh_from_db()
        assert row.answered_at is None
        after = browser.post(f"{PATH}answer/", sent | {"pair": row.pk, "cards": "3"}, follow=True)
        assert "<strong>right</strong>" in after.content.decode()
        row.refresh_from_db()
        assert row.is_right is (number == 1)
    attempt = QualificationAttempt.objects.get()
    assert (attempt.state, attempt.n_right) == ("passed", 1)
    assert len(re.findall(r"A \d · B \d · C \d", page(browser))) == 4
    assert not Answer.objects.exists()
