"""An annotator's home: what there is to do in each project, without taking any of it."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services import membership_pause
from apps.common.errors import DomainError
from apps.labeling import selectors, services
from apps.labeling.forms.settings import LabelingSettingsForm
from apps.labeling.models import Annotator, LabelingSettings, Slot
from apps.labeling.screens import label
from apps.labeling.screens.work import ProjectWork
from apps.labeling.services import Questions
from apps.labeling.services.results import Criterion
from tests.labeling.pairs import (
    annotators_make,
    leased,
    pairs_make,
    practice_make,
    rows_make,
    tasks_make,
    vote,
)

SignIn = Callable[[User], Client]


def text_of(html: str) -> str:
    """The words of a page, without its markup."""
    main = html.split('<main id="main"')[1].split("</main>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", main))


@pytest.fixture
def look(signed_in: SignIn, ana: User) -> Callable[[], str]:
    return lambda: text_of(signed_in(ana).get("/my-work/").content.decode())


@pytest.fixture
def place(signed_in: SignIn, ana: User) -> Callable[[], ProjectWork]:
    return lambda: signed_in(ana).get("/my-work/").context["places"][0]


def test_looking_takes_no_pair(project: Project, look: Callable[[], str]) -> None:
    pairs_make(project, 3)
    assert "Left for you 3" in look()
    assert not Slot.objects.exclude(state="free").exists()


def test_what_was_answered_today_and_in_all_is_counted(
    project: Project, ana: User, place: Callable[[], ProjectWork]
) -> None:
    pairs_make(project, 3)
    vote(project, ana)
    vote(project, ana)
    Annotator.objects.filter(user=ana).update(votes_day=timezone.now().date() - timedelta(days=1))
    work = place()
    assert (work.n_today, work.n_total, work.n_left_today) == (0, 2, 1)


def test_a_project_with_answers_to_rate_says_so(
    project: Project, look: Callable[[], str], place: Callable[[], ProjectWork]
) -> None:
    assert "to rate" not in look()
    tasks_make(project, 1)
    assert place().nothing is None
    assert "Label" in look()


def test_one_pair_of_a_daily_cap_is_called_one_pair(
    project: Project, ana: User, look: Callable[[], str]
) -> None:
    pairs_make(project, 2, daily_cap=1)
    vote(project, ana)
    assert "1 pair today" in look()


def test_a_pair_in_hand_can_be_gone_on_with(
    project: Project, ana: User, look: Callable[[], str]
) -> None:
    pairs_make(project, 2)
    lease = leased(project, ana)
    said = look()
    assert f"{lease.leased_until:%H:%M}" in said
    assert "Continue" in said


def test_a_pair_whose_time_ran_out_is_not_promised(
    project: Project, ana: User, place: Callable[[], ProjectWork]
) -> None:
    pairs_make(project, 2)
    lease = leased(project, ana)
    Slot.objects.filter(pk=lease.slot).update(leased_until=timezone.now() - timedelta(minutes=1))
    assert place().lapsed


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
    assert "1 pair" in said
    assert "15 minutes" in said


def test_a_cap_of_the_day_bounds_what_is_left(
    project: Project, ana: User, place: Callable[[], ProjectWork]
) -> None:
    pairs_make(project, 5, daily_cap=3)
    vote(project, ana)
    work = place()
    assert (work.n_today, work.cap, work.n_left_today, work.n_left) == (1, 3, 2, 4)


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
    page = signed_in(noa).get("/my-work/")
    assert (page.context["places"], page.context["others"]) == ([], [])
    assert "noa" in text_of(page.content.decode())


def test_an_engineer_reads_that_they_label_nowhere(
    project: Project, emil: User, signed_in: SignIn
) -> None:
    page = signed_in(emil).get("/my-work/")
    assert not page.context["places"]
    assert [at.project for at in page.context["others"]] == [project]


def test_who_annotates_in_one_project_lands_on_its_overview_and_in_two_on_their_work(
    project: Project, ana: User, signed_in: SignIn
) -> None:
    browser = signed_in(ana)
    assert browser.get("/").url == "/p/arguments/"
    assert browser.get("/p/arguments/").url == "/p/arguments/overview/"
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
    assert re.search(r"<time [^>]*T00:00:00\+00:00[^>]*>in \d+ (h|min|s)<", html)


# The bar that is kept from pair to pair says exactly what one made each time would.


ASKED = [
    Questions(),
    Questions(tie=False, both_bad=False, strength=True, flags=False),
    Questions(
        rationale=True,
        require_rationale=True,
        improve=True,
        reasons=("Safer", "<b>Clearer</b>"),
        criteria=(Criterion("facts", "Facts & figures"),),
    ),
]


def made(slug: str, questions: Questions, undo: str) -> str:
    context = label.answer_form(questions, {}) | {
        "active_project": {"slug": slug},
        "skip_reasons": label.SKIP_REASONS,
        "undo": undo,
    }
    return render_to_string("labeling/_bar.html", context)


@pytest.mark.parametrize("questions", ASKED)
@pytest.mark.parametrize("undo", ["", "answer=7", "unskip=12345"])
def test_what_is_kept_equals_what_is_made_each_time(questions: Questions, undo: str) -> None:
    for _ in range(2):  # the second time it comes from what was kept
        kept = label.bar_html(slug="arguments", questions=questions, undo=undo)
        assert kept == made("arguments", questions, undo)
    assert (f'href="?{undo}"' in kept) == bool(undo)


def test_projects_do_not_get_each_others_bars() -> None:
    for slug in ("arguments", "elsewhere", "arguments"):
        html = label.bar_html(slug=slug, questions=Questions(), undo="answer=3")
        assert f"/p/{slug}/label/skip/" in html
        assert html.count("/p/") == html.count(f"/p/{slug}/")
        assert label.addresses(slug)["vote"] == f"/p/{slug}/label/vote/"


# How many pairs are left for a person: exact up to a limit, and not counted again for each vote.


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


def test_votes_since_the_count_are_taken_off_without_counting_again(
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


# The labeling settings: what may be set, what must fit together, and the page's long form.


Refuse = Callable[..., DomainError]
CORRECT = {"key": "correct", "label": "Correct"}


@pytest.fixture
def refused(project: Project, ada: User) -> Refuse:
    def change(**changes: Any) -> DomainError:
        with pytest.raises(DomainError) as caught:
            services.labeling_settings_update(project=project, by=ada, **changes)
        assert not LabelingSettings.objects.filter(project=project).exists()
        return caught.value

    return change


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"gold_share": 0.6}, "gold_share"),
        ({"gold_share": 0.2, "repeat_share": 0.3, "audit_share": 0.1}, "repeat_share"),
        ({"gold_share": float("nan")}, "gold_share"),
        ({"daily_cap": -1}, "daily_cap"),
        ({"daily_cap": float("inf")}, "daily_cap"),
        ({"skips_to_review": 1.5}, "skips_to_review"),
        ({"require_criteria": True}, "criteria"),
        ({"require_rationale": True}, "require_rationale"),
        ({"show_improve": "yes"}, "show_improve"),
        ({"criteria": [CORRECT, CORRECT]}, "criteria"),
        ({"criteria": [CORRECT, {"key": "other", "label": "Correct"}]}, "criteria"),
        ({"criteria": [{"key": "Not a key", "label": "x"}]}, "criteria"),
        ({"criteria": [{"key": "x", "label": ""}]}, "criteria"),
        ({"criteria": [{"key": "x"}]}, "criteria"),
        ({"criteria": "correct"}, "criteria"),
        ({"criteria": [{"key": f"k{n}", "label": f"l{n}"} for n in range(9)]}, "criteria"),
        ({"reasons": ["Clear", "Clear"]}, "reasons"),
        ({"reasons": ["x" * 41]}, "reasons"),
        ({"reasons": [""]}, "reasons"),
        ({"constraint_phrases": ["x" * 201]}, "constraint_phrases"),
        ({"qualification_pass": 0}, "qualification_pass"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_what_cannot_work_is_refused_at_its_field_and_changes_nothing(
    refused: Refuse, changes: dict[str, Any], field: str
) -> None:
    assert refused(**changes).field == field


def test_shares_that_the_database_takes_are_taken(project: Project, ada: User) -> None:
    current = services.labeling_settings_update(
        project=project, by=ada, gold_share=0.25, repeat_share=0.125, audit_share=0.125
    )
    assert (current.gold_share, current.audit_share) == (0.25, 0.125)


def test_the_form_shows_lists_as_lines_and_reads_them_back_unchanged(project: Project) -> None:
    current = LabelingSettings(
        project=project,
        criteria=[CORRECT, {"key": "safe", "label": "Safe: no harm"}],
        reasons=["Clear", "Safer"],
    )
    shown = LabelingSettingsForm(current=current)
    data = {bound.name: bound.value() for bound in shown}
    assert data["criteria"] == "correct: Correct\nsafe: Safe: no harm"
    assert data["reasons"] == "Clear\nSafer"
    again = LabelingSettingsForm(
        {name: value for name, value in data.items() if value is not False}, current=current
    )
    assert again.is_valid(), again.errors
    assert again.changes() == {}


def test_ada_writes_criteria_a_line_each_and_a_label_alone_gets_a_key(
    project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ada)
    form = LabelingSettingsForm(current=LabelingSettings(project=project))
    sent = {bound.name: bound.value() for bound in form if bound.value() is not False}
    sent |= {"criteria": "ok: Correct\r\n\r\nÜber alles kläger", "require_criteria": "on"}
    answer = browser.post("/p/arguments/settings/", sent)
    assert answer.status_code == 302, answer.context["form"].errors
    stored = LabelingSettings.objects.get()
    assert stored.criteria == [
        {"key": "ok", "label": "Correct"},
        {"key": "uber_alles_klager", "label": "Über alles kläger"},
    ]
    assert stored.require_criteria
    refused = browser.post("/p/arguments/settings/", sent | {"criteria": "ok: A\nok: B"})
    html = refused.content.decode()
    assert refused.status_code == 422
    assert "is there twice" in html
    assert 'href="#id_criteria"' in html
    assert "ok: A\nok: B" in html


def test_the_api_changes_and_shows_every_setting(
    project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ada)
    url = "/api/v1/projects/arguments/labeling"
    shown = browser.get(url).json()
    columns = {f.name for f in LabelingSettings._meta.get_fields()}
    assert set(shown) == columns - {"project", "created_at", "updated_at"}
    changed = browser.patch(
        url,
        {"criteria": [CORRECT], "reasons": ["Clear"], "daily_cap": 200, "audit_share": 0.1},
        content_type="application/json",
    ).json()
    assert (changed["criteria"], changed["reasons"]) == (
        [CORRECT | {"definition": ""}],
        ["Clear"],
    )
    assert (changed["daily_cap"], changed["audit_share"]) == (200, 0.1)
    refused = browser.patch(url, {"gold_share": 0.5}, content_type="application/json")
    assert (refused.status_code, refused.json()["field"]) == (400, "gold_share")
