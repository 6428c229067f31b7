"""Guidelines on their pages: read first, changed with consequences said."""

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.labeling import services
from apps.labeling.models import Annotator, Guideline
from apps.labeling.screens.label import changed_lines
from tests.labeling.pairs import pairs_make

SignIn = Callable[[User], Client]


def publish(project: Project, ada: User, body: str, *, major: bool = True) -> int:
    return services.guideline_publish(project=project, body=body, by=ada, is_major=major).version


def test_the_label_screen_shows_what_changed_and_one_button(
    project: Project, ana: User, ada: User, signed_in: SignIn
) -> None:
    pairs_make(project)
    publish(project, ada, Guideline.objects.get().body + "\n- **Sources** count.")
    browser = signed_in(ana)
    html = browser.get("/p/arguments/label/").content.decode()
    assert "- **Sources** count.</ins>" in html
    assert "<del>" not in html
    assert "<strong>Sources</strong>" in html
    assert html.count('name="version" value="2"') == 1
    answer = browser.post("/p/arguments/guidelines/acknowledge/", {"version": "2"}, follow=True)
    assert "Pair 1" in answer.content.decode()


def test_who_has_read_none_is_not_told_of_changes(
    project: Project, ana: User, signed_in: SignIn
) -> None:
    pairs_make(project)
    Annotator.objects.filter(user=ana).delete()
    page = signed_in(ana).get("/p/arguments/label/")
    assert page.context["nothing"].code == "guideline"
    assert "What has changed" not in page.content.decode()


@pytest.mark.parametrize("version", ["", "x", "-1", "9" * 30, "1"])
def test_a_version_that_does_not_count_leads_back_to_the_text(
    project: Project, ana: User, ada: User, signed_in: SignIn, version: str
) -> None:
    pairs_make(project)
    publish(project, ada, "New.")
    answer = signed_in(ana).post(
        "/p/arguments/guidelines/acknowledge/", {"version": version}, follow=True
    )
    assert 'name="version" value="2"' in answer.content.decode()


def test_a_newer_version_meanwhile_is_said(
    project: Project, ana: User, ada: User, signed_in: SignIn
) -> None:
    pairs_make(project)
    publish(project, ada, "New.")
    publish(project, ada, "Newer.")
    answer = signed_in(ana).post(
        "/p/arguments/guidelines/acknowledge/", {"version": "2"}, follow=True
    )
    assert [said.level_tag for said in answer.context["messages"]] == ["warning"]
    assert 'name="version" value="3"' in answer.content.decode()


def test_a_preview_publishes_nothing_and_counts_who_must_read_it(
    project: Project, ana: User, rita: User, ada: User, signed_in: SignIn
) -> None:
    pairs_make(project)
    sent = {"body": "Be **brief**.", "is_major": "on", "action": "preview"}
    html = signed_in(ada).post("/p/arguments/guidelines/edit/", sent).content.decode()
    assert "<strong>brief</strong>" in html
    assert "<strong>2 people" in html
    assert "Be **brief**.</ins>" in html
    assert Guideline.objects.count() == 1
    minor = sent | {"is_major": ""}
    html = signed_in(ada).post("/p/arguments/guidelines/edit/", minor).content.decode()
    assert "<strong>2" not in html


def test_the_page_says_who_has_read_what_to_admins_only(
    project: Project, ana: User, rita: User, ada: User, signed_in: SignIn
) -> None:
    pairs_make(project)
    version = publish(project, ada, "New.")
    services.guideline_acknowledge(project=project, user=rita, version=version)
    said = "1 of 2 who label have read version 2 or later"
    assert said in signed_in(ada).get("/p/arguments/guidelines/").content.decode()
    assert said not in signed_in(rita).get("/p/arguments/guidelines/").content.decode()


def test_each_version_shows_what_it_changed(
    project: Project, ana: User, ada: User, signed_in: SignIn
) -> None:
    pairs_make(project)
    publish(project, ada, "One.\nTwo.")
    publish(project, ada, "One.\nThree.", major=False)
    page = signed_in(ana).get("/p/arguments/guidelines/?version=3")
    assert page.context["before"].version == 2
    html = page.content.decode()
    assert "Two.</del>" in html
    assert "Three.</ins>" in html


def test_guidelines_over_the_api_say_what_waits(
    project: Project, ana: User, ada: User, signed_in: SignIn
) -> None:
    pairs_make(project)
    publish(project, ada, "New.")
    browser = signed_in(ana)
    read = browser.get("/api/v1/projects/arguments/guidelines").json()
    assert (read["version"], read["is_major"], read["body"]) == (2, True, "New.\n")
    assert (read["acknowledged_version"], read["must_acknowledge"]) == (1, True)
    address = "/api/v1/projects/arguments/guidelines/acknowledge"
    done = browser.post(address, {"version": 2}, "application/json").json()
    assert (done["acknowledged_version"], done["must_acknowledge"]) == (2, False)
    publish(project, ada, "Newer.")
    late = browser.post(address, {"version": 3}, "application/json")
    assert late.json()["must_acknowledge"] is False
    publish(project, ada, "Newest.")
    publish(project, ada, "The very newest.")
    late = browser.post(address, {"version": 4}, "application/json")
    assert (late.status_code, late.json()["code"]) == (409, "guideline_outdated")


# --- lines ---------------------------------------------------------------------------------------


def test_lines_that_stay_are_shown_around_a_change_only() -> None:
    old = "\n".join("abcdefgh")
    kinds = [(line.kind, line.text) for line in changed_lines(old, old.replace("d", "x"))]
    assert kinds == [
        ("gap", ""),
        ("same", "b"),
        ("same", "c"),
        ("removed", "d"),
        ("added", "x"),
        ("same", "e"),
        ("same", "f"),
        ("gap", ""),
    ]


def test_a_change_at_an_end_has_no_gap_there() -> None:
    lines = changed_lines("a\nb\nc", "a\nb\nc\nd")
    assert [line.kind for line in lines] == ["gap", "same", "same", "added"]


def test_blanks_nobody_sees_are_no_change() -> None:
    assert changed_lines("a  \nb\n", "a\nb") == []
