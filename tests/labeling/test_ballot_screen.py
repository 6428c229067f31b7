"""The ballot as HTML: what a project asks, kept when it could not be stored, shown again later."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.labeling.models import Slot, Vote
from apps.snapshots.models import Snapshot, SnapshotRow
from tests.labeling.pairs import leased, pairs_make, vote
from tests.labeling.test_label_screen import HTMX, fields

LABEL = "/p/arguments/label/"
CRITERIA = [{"key": "correct", "label": "Correct"}, {"key": "clear", "label": "Clear"}]
WHOLE = {
    "criteria": CRITERIA,
    "require_criteria": True,
    "show_rationale": True,
    "require_rationale": True,
    "reasons": ["Safer", "Shorter"],
    "show_improve": True,
}
JUDGED = {
    "answer": "left",
    "criterion-correct": "left",
    "criterion-clear": "tie",
    "reasons": ["Shorter"],
    "improvement": "A day has\r\n24 hours.",
}


@pytest.fixture
def browser(signed_in: Callable[[User], Client], ana: User) -> Client:
    return signed_in(ana)


def checked(html: str) -> set[tuple[str, str]]:
    """(name, value) of every radio and checkbox that is set."""
    found = re.findall(
        r'<input type="(?:radio|checkbox)" name="([\w-]+)" value="(\w+)" *checked', html
    )
    return set(found)


def test_only_what_the_project_asks_is_on_the_page(project: Project, browser: Client) -> None:
    pairs_make(project, 1, show_flags=False)
    plain = browser.get(LABEL).content.decode()
    assert 'name="rationale"' in plain  # a note is always possible
    for absent in ("criterion-", 'name="reasons"', 'name="improvement"', 'name="flags"'):
        assert absent not in plain, absent
    pairs_make(project, 1, **WHOLE, show_flags=True)
    whole = browser.get(LABEL).content.decode()
    for present in ("criterion-correct", 'value="Safer"', 'name="improvement"', 'name="flags"'):
        assert present in whole, present


def test_a_whole_ballot_without_script_is_stored_in_canonical_terms(
    project: Project, browser: Client
) -> None:
    pairs_make(project, 2, **WHOLE)
    page = browser.get(LABEL).content.decode()
    assert browser.post(f"{LABEL}vote/", fields(page) | JUDGED).status_code == 302
    stored = Vote.objects.get()
    assert stored.criteria == {"correct": stored.left_is, "clear": "tie"}
    assert stored.reasons == ["Shorter"]
    assert stored.improvement.messages[-1]["content"] == "A day has\n24 hours."
    assert stored.improvement.prompt == stored.comparison.prompt


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ({"criterion-clear": ""}, "Judge “Clear” too."),
        ({"reasons": []}, "Say why: choose a reason or write one."),
        ({"answer": "tie"}, "Say which answer is better to improve it"),
    ],
)
def test_what_is_missing_is_named_and_all_that_was_entered_stays(
    project: Project, browser: Client, left_out: dict, said: str
) -> None:
    pairs_make(project, 1, **WHOLE)
    page = browser.get(LABEL).content.decode()
    sent = JUDGED | left_out
    answer = browser.post(f"{LABEL}vote/", fields(page) | sent)
    html = answer.content.decode()
    assert (answer.status_code, Vote.objects.count()) == (400, 0)
    assert said in html
    assert "24 hours." in html.split('name="improvement"')[1]
    expected = {
        (name, value) for name, value in sent.items() if name.startswith("criterion") and value
    } | {("reasons", value) for value in sent["reasons"]}
    assert checked(html) == expected


def test_a_reason_nobody_offers_is_refused(project: Project, browser: Client) -> None:
    pairs_make(project, 1, **WHOLE)
    page = browser.get(LABEL).content.decode()
    answer = browser.post(f"{LABEL}vote/", fields(page) | JUDGED | {"reasons": ["Because"]})
    assert answer.status_code == 400
    assert not Vote.objects.exists()


@pytest.mark.parametrize("left_is", ["a", "b"])
def test_a_stored_answer_is_shown_on_the_sides_it_was_given(
    project: Project, browser: Client, ana: User, left_is: str
) -> None:
    pairs_make(project, 1, **WHOLE)
    lease = leased(project, ana)
    Slot.objects.filter(pk=lease.slot).update(left_is=left_is)
    page = browser.get(LABEL).content.decode()
    browser.post(f"{LABEL}vote/", fields(page) | JUDGED)
    cast = Vote.objects.get()
    assert cast.choice == left_is
    html = browser.get(f"{LABEL}?answer={cast.pk}").content.decode()
    assert checked(html) == {
        ("criterion-correct", "left"), ("criterion-clear", "tie"), ("reasons", "Shorter"),
    }  # fmt: skip
    assert "24 hours." in html.split('name="improvement"')[1]


def test_a_change_that_lacks_something_leaves_the_answer_open(
    project: Project, browser: Client
) -> None:
    pairs_make(project, 3, **WHOLE)
    browser.post(f"{LABEL}vote/", fields(browser.get(LABEL).content.decode()) | JUDGED)
    cast = Vote.objects.get()
    page = browser.get(f"{LABEL}?answer={cast.pk}&from=answers").content.decode()
    sent = fields(page) | JUDGED | {"answer": "right", "criterion-correct": ""}
    html = browser.post(f"/p/arguments/answers/{cast.pk}/revise/", sent).content.decode()
    assert "Judge “Correct” too." in html
    assert "Change your answer" in html
    assert re.search(r'value="right"[^>]*aria-pressed="true"', html)
    assert 'name="back_to" value="answers"' in html


def test_the_outbox_hears_what_is_stored_and_what_is_refused(
    project: Project, browser: Client
) -> None:
    pairs_make(project, 3)
    sent = fields(browser.get(LABEL).content.decode())
    stored = browser.post(f"{LABEL}vote/", sent | {"answer": "left"}, headers=HTMX)
    assert stored["Concord-Stored"] == sent["key"]
    differently = browser.post(f"{LABEL}vote/", sent | {"answer": "right"}, headers=HTMX)
    assert differently["Concord-Refused"] == "key_reused"
    assert "Concord-Stored" not in differently
    slot = fields(stored.content.decode())["slot"]
    skipped = browser.post(f"{LABEL}skip/", {"slot": slot}, headers=HTMX)
    assert skipped["Concord-Stored"] == f"skip.{slot}"


def test_the_outbox_can_ask_who_is_signed_in(
    project: Project, browser: Client, ana: User, olga: User, signed_in: Callable[[User], Client]
) -> None:
    mine = browser.get(f"{LABEL}who/").json()
    assert mine["person"] == ana.pk
    assert signed_in(olga).get(f"{LABEL}who/").json()["person"] == olga.pk
    assert Client().get(f"{LABEL}who/").json()["person"] is None
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ana)
    token = strict.get(f"{LABEL}who/").json()["csrf"]
    pairs_make(project)
    sent = {"slot": leased(project, ana).slot}
    assert strict.post(f"{LABEL}skip/", sent).status_code == 403
    assert strict.post(f"{LABEL}skip/", sent, headers={"X-CSRFToken": token}).status_code == 302


def test_an_answer_that_is_in_a_frozen_dataset_says_so_before_it_is_changed(
    project: Project, browser: Client, ana: User
) -> None:
    pairs_make(project, 2)
    frozen, free = (vote(project, ana, "a").vote for _ in range(2))
    for state in ("frozen", "failed"):
        snapshot = Snapshot.objects.create(
            project=project, name=state, kind="preferences", uri="x", sha256="0"
        )
        SnapshotRow.objects.create(
            snapshot=snapshot, comparison=frozen.comparison, split="train", vote_ids=[frozen.pk]
        )
        Snapshot.objects.filter(pk=snapshot.pk).update(state=state, frozen_at=frozen.cast_at)
    html = browser.get(f"{LABEL}?answer={frozen.pk}").content.decode()
    assert "already in 1 frozen dataset, which stays as it is" in html
    assert "frozen dataset" not in browser.get(f"{LABEL}?answer={free.pk}").content.decode()
    listed = browser.get("/p/arguments/answers/").content.decode()
    assert listed.count("in a frozen dataset") == 1


@pytest.mark.parametrize(
    ("only", "expected"),
    [("", 4), ("noted", 2), ("improved", 1), ("changed", 1)],
)
def test_my_answers_can_be_narrowed(
    project: Project, browser: Client, ana: User, only: str, expected: int
) -> None:
    pairs_make(project, 4, show_rationale=True, reasons=["Safer"], show_improve=True)
    vote(project, ana, "a", reasons=["Safer"])
    vote(project, ana, "b", flags=["unsafe"])
    cast = vote(project, ana, "a", improvement="Better.").vote
    changed = vote(project, ana, "a").vote
    sent = {"key": "changed", "answer": "both_bad"}
    browser.post(f"/p/arguments/answers/{changed.pk}/revise/", sent)
    html = browser.get(f"/p/arguments/answers/?only={only}").content.decode()
    assert f"{expected} answer" in html
    assert (f"?answer={cast.pk}&" in html) is (only in ("", "improved"))
