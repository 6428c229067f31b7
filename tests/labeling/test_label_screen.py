"""The label screen as HTML: what it shows, what it never shows, and how it works without script."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import Membership, Project, User
from apps.labeling import services
from apps.labeling.models import Comparison, Decision, LabelingSettings, Skip, Slot, Vote
from apps.snapshots.models import Snapshot, SnapshotRow
from tests.labeling.pairs import annotators_make, lapse, leased, pairs_make, rows_make, vote

SignIn = Callable[[User], Client]
HTMX = {"HX-Request": "true"}


@pytest.fixture
def browser(signed_in: SignIn, ana: User) -> Client:
    return signed_in(ana)


def fields(html: str) -> dict[str, str]:
    """The hidden fields of the answer form."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html))


def test_a_vote_without_script_is_stored_and_leads_to_the_next_pair(
    project: Project, browser: Client
) -> None:
    pairs_make(project, 2)
    page = browser.get("/p/arguments/label/").content.decode()
    answer = browser.post("/p/arguments/label/vote/", fields(page) | {"answer": "left"})
    assert answer.status_code == 302
    assert Vote.objects.get().left_is == Vote.objects.get().choice
    following = browser.get(answer.url).content.decode()
    assert "Pair 2" in following
    assert fields(following)["slot"] != fields(page)["slot"]


def test_a_vote_by_htmx_is_answered_with_the_next_pair_alone(
    project: Project, browser: Client
) -> None:
    pairs_make(project, 2)
    page = browser.get("/p/arguments/label/").content.decode()
    answer = browser.post(
        "/p/arguments/label/vote/", fields(page) | {"answer": "tie"}, headers=HTMX
    )
    html = answer.content.decode()
    assert html.lstrip().startswith('<section id="pair"')
    assert "Pair 2" in html
    assert f"?answer={Vote.objects.get().pk}" in html


def test_the_page_names_no_model_and_no_other_vote(project: Project, browser: Client) -> None:
    row = rows_make(1)[0] | {"model_a": "secret-model", "model_b": "other-model", "gold": "a"}
    services.comparisons_import(
        project=project, rows=[row | {"source": "the-source"}], batch="the-batch"
    )
    for person, choice in zip(annotators_make(project, 2), ("a", "b"), strict=True):
        vote(project, person, choice, rationale="seen by me", flags=["unsafe"])
    html = browser.get("/p/arguments/label/").content.decode()
    assert "Question 1" in html
    for secret in (
        "secret-model",
        "other-model",
        "annotator-",
        "seen by me",
        "the-source",
        "the-batch",
        "gold",
        "random",
        "needs_votes",
        "pair-1",
    ):
        assert secret not in html, secret


def test_a_gold_pair_looks_like_any_other(project: Project, browser: Client) -> None:
    LabelingSettings.objects.create(project=project, overlap=1)
    services.comparisons_import(project=project, rows=rows_make(1))
    plain = browser.get("/p/arguments/label/").content.decode()
    Slot.objects.update(kind="gold")
    gold = browser.get("/p/arguments/label/").content.decode()
    changing = re.compile(r'csrf\S+ value="\w+"|"X-CSRFToken": "\w+"|data-leased-until="\S+"')
    assert changing.sub("", plain) == changing.sub("", gold)


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg/onload=alert(1)>",
        "[press](javascript:alert(1))",
        "![x](https://elsewhere.example/pixel.png)",
        "<a href='javascript:alert(1)'>x</a>",
        "</textarea></form><form action='https://elsewhere.example'>",
        "<style>body{display:none}</style>",
        "<iframe src='https://elsewhere.example'></iframe>",
        "<input name=slot value=1>",
        "<b hx-get='/account/' hx-trigger=load>x</b>",
    ],
)
def test_hostile_text_stays_text(project: Project, browser: Client, hostile: str) -> None:
    services.comparisons_import(
        project=project,
        rows=[{"prompt": f"p {hostile}", "response_a": f"a {hostile}", "response_b": hostile}],
    )
    pair = browser.get("/p/arguments/label/").content.decode().split('id="pair"')[1]
    pair = pair.rpartition("</section>")[0]
    assert not re.search(r"<(script|img|svg/|iframe|style|b[ >]|/textarea></form)", pair)
    assert not re.search(r"<[^>]*(javascript:|onerror|onload|src=)", pair)
    # the answer, and the question to the reviewers
    assert (pair.count("<form"), pair.count('name="slot"')) == (2, 2)
    assert pair.count("hx-trigger") == pair.count("hx-trigger=load&gt;")


def test_a_choice_the_project_does_not_offer_has_no_button(
    project: Project, browser: Client
) -> None:
    pairs_make(project, 1, show_tie=False, show_both_bad=False, show_strength=True)
    html = browser.get("/p/arguments/label/").content.decode()
    values = re.findall(r'name="answer" value="([\w-]+)"', html)
    assert values == ["left-2", "left-1", "right-1", "right-2"]


def test_the_strength_of_a_preference_is_stored(project: Project, browser: Client) -> None:
    pairs_make(project, 1, show_strength=True)
    page = browser.get("/p/arguments/label/").content.decode()
    browser.post("/p/arguments/label/vote/", fields(page) | {"answer": "right-2"})
    assert Vote.objects.get().strength == 2


def test_a_note_and_flags_are_kept_with_the_vote(project: Project, browser: Client) -> None:
    pairs_make(project)
    page = browser.get("/p/arguments/label/").content.decode()
    sent = {"answer": "left", "rationale": "Names itself.", "flags": ["model_revealed", "unsafe"]}
    browser.post("/p/arguments/label/vote/", fields(page) | sent)
    stored = Vote.objects.get()
    assert (stored.rationale, stored.flags) == ("Names itself.", ["model_revealed", "unsafe"])


def test_times_that_no_page_can_have_measured_are_left_out(
    project: Project, browser: Client
) -> None:
    pairs_make(project)
    page = browser.get("/p/arguments/label/").content.decode()
    sent = fields(page) | {"answer": "left", "active_ms": "-5", "wall_ms": "99999999999999"}
    assert browser.post("/p/arguments/label/vote/", sent).status_code == 302
    assert (Vote.objects.get().active_ms, Vote.objects.get().wall_ms) == (None, None)


def test_a_double_click_counts_once(project: Project, browser: Client) -> None:
    pairs_make(project, 3)
    page = browser.get("/p/arguments/label/").content.decode()
    pages = [
        browser.post(
            "/p/arguments/label/vote/", fields(page) | {"answer": "left"}, headers=HTMX
        ).content.decode()
        for _ in range(2)
    ]
    assert fields(pages[0])["slot"] == fields(pages[1])["slot"]
    assert Vote.objects.count() == 1


def test_a_lost_lease_is_said_plainly_and_what_was_typed_is_not_put_elsewhere(
    project: Project, browser: Client, ben: User
) -> None:
    pairs_make(project, 3, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    page = browser.get("/p/arguments/label/").content.decode()
    lapse(int(fields(page)["slot"]))
    vote(project, ben)
    sent = fields(page) | {"answer": "left", "rationale": "about the lost pair"}
    answer = browser.post("/p/arguments/label/vote/", sent, headers=HTMX).content.decode()
    assert "not counted" in answer
    assert "about the lost pair" not in answer
    assert fields(answer)["slot"] != fields(page)["slot"]
    assert Vote.objects.get().annotator == ben


def test_what_was_typed_is_kept_when_it_could_not_be_stored(
    project: Project, browser: Client
) -> None:
    pairs_make(project)
    page = browser.get("/p/arguments/label/").content.decode()
    sent = fields(page) | {"answer": "left", "rationale": "x" * 5000, "flags": ["unsafe"]}
    answer = browser.post("/p/arguments/label/vote/", sent)
    html = answer.content.decode()
    assert answer.status_code == 400
    assert "x" * 5000 in html
    assert 'value="unsafe" checked' in html
    assert not Vote.objects.exists()


def test_skipping_asks_for_a_reason_and_brings_the_next_pair(
    project: Project, browser: Client, ana: User
) -> None:
    pairs_make(project, 2)
    page = browser.get("/p/arguments/label/").content.decode()
    assert "Not my subject" in page
    answer = browser.post(
        "/p/arguments/label/skip/",
        {"slot": fields(page)["slot"], "reason": "Not my subject"},
        headers=HTMX,
    ).content.decode()
    assert fields(answer)["slot"] != fields(page)["slot"]
    assert Skip.objects.get().reason == "Not my subject"
    assert Skip.objects.get().annotator == ana


def test_undo_opens_the_last_answer_and_a_new_choice_revises_it(
    project: Project, browser: Client, ana: User
) -> None:
    pairs_make(project, 3)
    cast = vote(project, ana, "a").vote
    in_hand = leased(project, ana).slot
    page = browser.get(f"/p/arguments/label/?answer={cast.pk}").content.decode()
    pressed = "left" if cast.left_is == "a" else "right"
    assert re.search(rf'value="{pressed}"[^>]*aria-pressed="true"', page)
    answer = browser.post(
        f"/p/arguments/answers/{cast.pk}/revise/",
        fields(page) | {"answer": "both_bad"},
        headers=HTMX,
    ).content.decode()
    assert fields(answer)["slot"] == str(in_hand)
    assert Vote.objects.get(is_current=True, comparison=cast.comparison_id).choice == "both_bad"


def test_undo_after_a_skip_brings_that_pair_back(
    project: Project, browser: Client, ana: User, ben: User
) -> None:
    pairs_make(project, 3)
    vote(project, ana, "a")
    skipped = fields(browser.get("/p/arguments/label/").content.decode())["slot"]
    answer = browser.post("/p/arguments/label/skip/", {"slot": skipped, "reason": ""}, headers=HTMX)
    (undo,) = set(re.findall(r'href="\?(unskip=\d+)"', answer.content.decode()))
    back = browser.get(f"/p/arguments/label/?{undo}", headers=HTMX).content.decode()
    assert fields(back)["slot"] == skipped
    assert not Skip.objects.exists()
    assert Slot.objects.filter(annotator=ana, state="leased").count() == 1
    assert f"?answer={Vote.objects.get().pk}" in back  # and then the answer before it
    gone = browser.get(f"/p/arguments/label/?{undo}")
    assert gone.status_code == 404


def test_a_skip_is_not_undone_once_others_have_the_pair(
    project: Project, browser: Client, ana: User, ben: User
) -> None:
    (comparison,) = pairs_make(project, 1)
    page = fields(browser.get("/p/arguments/label/").content.decode())
    browser.post("/p/arguments/label/skip/", {"slot": page["slot"], "reason": ""}, headers=HTMX)
    Comparison.objects.update(state="decided")
    answer = browser.get(f"/p/arguments/label/?unskip={comparison.pk}", headers=HTMX)
    assert answer.status_code == 200
    assert answer.context["notice"]
    assert Skip.objects.count() == 1


def test_an_answer_opened_from_the_list_leads_back_to_the_list(
    project: Project, browser: Client, ana: User
) -> None:
    pairs_make(project)
    cast = vote(project, ana, "a").vote
    page = browser.get(f"/p/arguments/label/?answer={cast.pk}&from=answers").content.decode()
    sent = fields(page) | {"answer": "tie"}
    by_htmx = browser.post(f"/p/arguments/answers/{cast.pk}/revise/", sent, headers=HTMX)
    assert by_htmx.headers["HX-Redirect"] == "/p/arguments/answers/"


def test_taking_an_answer_back_leaves_it_in_nobodys_count(
    project: Project, browser: Client, ana: User
) -> None:
    pairs_make(project)
    cast = vote(project, ana, "a").vote
    answer = browser.post(f"/p/arguments/answers/{cast.pk}/withdraw/")
    assert answer.status_code == 302
    assert not Vote.objects.filter(is_current=True).exists()
    assert Decision.objects.get().n_a == 0


def test_the_answer_of_another_cannot_be_opened(
    project: Project, browser: Client, ben: User
) -> None:
    pairs_make(project)
    bens = vote(project, ben, "a").vote
    assert browser.get(f"/p/arguments/label/?answer={bens.pk}").status_code == 404
    sent = {"key": "k", "answer": "left"}
    assert browser.post(f"/p/arguments/answers/{bens.pk}/revise/", sent).status_code == 404
    assert browser.post(f"/p/arguments/answers/{bens.pk}/withdraw/").status_code == 404


@pytest.mark.parametrize("state", ["empty", "held", "paused", "all_done", "yours_done"])
def test_an_empty_queue_says_why(
    project: Project, browser: Client, ana: User, ben: User, state: str
) -> None:
    if state != "empty":
        pairs_make(project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    if state == "held":
        leased(project, ben)
    elif state == "all_done":
        vote(project, ben)
    elif state == "yours_done":
        services.slot_skip(slot=leased(project, ana).slot, annotator=ana)
    elif state == "paused":
        Membership.objects.filter(user=ana).update(paused_reason="Talk to Ada first.")
    html = browser.get("/p/arguments/label/").content.decode()
    expected = {
        "empty": "No comparisons have been imported",
        "held": "in at most 15 minutes",
        "paused": "Talk to Ada first.",
        "all_done": "has the votes it needs",
        "yours_done": "nobody judges a pair twice",
    }[state]
    assert expected in html
    assert ("every 20s" in html) is (state == "held")


def test_holding_on_prolongs_the_lease_of_the_pair_in_hand(
    project: Project, browser: Client, ana: User
) -> None:
    pairs_make(project)
    lease = leased(project, ana)
    lapse(lease.slot)
    answer = browser.post("/p/arguments/label/hold/").json()
    assert answer["slot"] == lease.slot
    assert Slot.objects.get(pk=lease.slot).leased_until.isoformat() == answer["leased_until"]


@pytest.mark.django_db(transaction=True)
def test_a_vote_takes_few_statements(
    signed_in: SignIn, django_assert_num_queries: Callable[[int], object]
) -> None:
    """Counted with BEGIN and COMMIT; the session lies in Redis."""
    project = Project.objects.create(slug="arguments", name="Arguments")
    pairs_make(project, 3)
    (ana,) = annotators_make(project, 1)
    browser = signed_in(ana)
    page = browser.get("/p/arguments/label/").content.decode()
    with django_assert_num_queries(8):  # person, membership; lock, vote, decision, next pair
        answer = browser.post(
            "/p/arguments/label/vote/", fields(page) | {"answer": "left"}, headers=HTMX
        )
    assert answer.status_code == 200
    following = leased(project, ana)
    with django_assert_num_queries(6):
        services.vote_cast(
            slot=following.slot, annotator=ana, idempotency_key=following.key, choice="a"
        )
    with django_assert_num_queries(4):
        services.slot_lease_next(project=project, annotator=ana)


# The answer form as HTML: what a project asks, kept when it could not be stored, shown again later.


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
def labeler(signed_in: Callable[[User], Client], ana: User) -> Client:
    return signed_in(ana)


def checked(html: str) -> set[tuple[str, str]]:
    """(name, value) of every radio and checkbox that is set."""
    found = re.findall(
        r'<input type="(?:radio|checkbox)" name="([\w-]+)" value="(\w+)" *checked', html
    )
    return set(found)


def test_only_what_the_project_asks_is_on_the_page(project: Project, labeler: Client) -> None:
    pairs_make(project, 1, show_flags=False)
    plain = labeler.get(LABEL).content.decode()
    assert 'name="rationale"' in plain  # a note is always possible
    for absent in ("criterion-", 'name="reasons"', 'name="improvement"', 'name="flags"'):
        assert absent not in plain, absent
    pairs_make(project, 1, **WHOLE, show_flags=True)
    whole = labeler.get(LABEL).content.decode()
    for present in ("criterion-correct", 'value="Safer"', 'name="improvement"', 'name="flags"'):
        assert present in whole, present


def test_a_whole_answer_without_script_is_stored_in_canonical_terms(
    project: Project, labeler: Client
) -> None:
    pairs_make(project, 2, **WHOLE)
    page = labeler.get(LABEL).content.decode()
    assert labeler.post(f"{LABEL}vote/", fields(page) | JUDGED).status_code == 302
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
    project: Project, labeler: Client, left_out: dict, said: str
) -> None:
    pairs_make(project, 1, **WHOLE)
    page = labeler.get(LABEL).content.decode()
    sent = JUDGED | left_out
    answer = labeler.post(f"{LABEL}vote/", fields(page) | sent)
    html = answer.content.decode()
    assert (answer.status_code, Vote.objects.count()) == (400, 0)
    assert said in html
    assert "24 hours." in html.split('name="improvement"')[1]
    expected = {
        (name, value) for name, value in sent.items() if name.startswith("criterion") and value
    } | {("reasons", value) for value in sent["reasons"]}
    assert checked(html) == expected


def test_a_reason_nobody_offers_is_refused(project: Project, labeler: Client) -> None:
    pairs_make(project, 1, **WHOLE)
    page = labeler.get(LABEL).content.decode()
    answer = labeler.post(f"{LABEL}vote/", fields(page) | JUDGED | {"reasons": ["Because"]})
    assert answer.status_code == 400
    assert not Vote.objects.exists()


@pytest.mark.parametrize("left_is", ["a", "b"])
def test_a_stored_answer_is_shown_on_the_sides_it_was_given(
    project: Project, labeler: Client, ana: User, left_is: str
) -> None:
    pairs_make(project, 1, **WHOLE)
    lease = leased(project, ana)
    Slot.objects.filter(pk=lease.slot).update(left_is=left_is)
    page = labeler.get(LABEL).content.decode()
    labeler.post(f"{LABEL}vote/", fields(page) | JUDGED)
    cast = Vote.objects.get()
    assert cast.choice == left_is
    html = labeler.get(f"{LABEL}?answer={cast.pk}").content.decode()
    assert checked(html) == {
        ("criterion-correct", "left"),
        ("criterion-clear", "tie"),
        ("reasons", "Shorter"),
    }
    assert "24 hours." in html.split('name="improvement"')[1]


def test_a_change_that_lacks_something_leaves_the_answer_open(
    project: Project, labeler: Client
) -> None:
    pairs_make(project, 3, **WHOLE)
    labeler.post(f"{LABEL}vote/", fields(labeler.get(LABEL).content.decode()) | JUDGED)
    cast = Vote.objects.get()
    page = labeler.get(f"{LABEL}?answer={cast.pk}&from=answers").content.decode()
    sent = fields(page) | JUDGED | {"answer": "right", "criterion-correct": ""}
    html = labeler.post(f"/p/arguments/answers/{cast.pk}/revise/", sent).content.decode()
    assert "Judge “Correct” too." in html
    assert "Change your answer" in html
    assert re.search(r'value="right"[^>]*aria-pressed="true"', html)
    assert 'name="back_to" value="answers"' in html


def test_the_outbox_hears_what_is_stored_and_what_is_refused(
    project: Project, labeler: Client
) -> None:
    pairs_make(project, 3)
    sent = fields(labeler.get(LABEL).content.decode())
    stored = labeler.post(f"{LABEL}vote/", sent | {"answer": "left"}, headers=HTMX)
    assert stored["Concord-Stored"] == sent["key"]
    differently = labeler.post(f"{LABEL}vote/", sent | {"answer": "right"}, headers=HTMX)
    assert differently["Concord-Refused"] == "key_reused"
    assert "Concord-Stored" not in differently
    slot = fields(stored.content.decode())["slot"]
    skipped = labeler.post(f"{LABEL}skip/", {"slot": slot}, headers=HTMX)
    assert skipped["Concord-Stored"] == f"skip.{slot}"


def test_the_outbox_can_ask_who_is_signed_in(
    project: Project,
    labeler: Client,
    ana: User,
    olga: User,
    signed_in: Callable[[User], Client],
) -> None:
    mine = labeler.get(f"{LABEL}who/").json()
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
    project: Project, labeler: Client, ana: User
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
    html = labeler.get(f"{LABEL}?answer={frozen.pk}").content.decode()
    assert "1 frozen dataset" in html
    assert "frozen dataset" not in labeler.get(f"{LABEL}?answer={free.pk}").content.decode()
    listed = labeler.get("/p/arguments/answers/").content.decode()
    assert listed.count("in a frozen dataset") == 1


@pytest.mark.parametrize(
    ("only", "expected"),
    [("", 4), ("noted", 2), ("improved", 1), ("changed", 1)],
)
def test_my_answers_can_be_narrowed(
    project: Project, labeler: Client, ana: User, only: str, expected: int
) -> None:
    pairs_make(project, 4, show_rationale=True, reasons=["Safer"], show_improve=True)
    vote(project, ana, "a", reasons=["Safer"])
    vote(project, ana, "b", flags=["unsafe"])
    cast = vote(project, ana, "a", improvement="Better.").vote
    changed = vote(project, ana, "a").vote
    sent = {"key": "changed", "answer": "both_bad"}
    labeler.post(f"/p/arguments/answers/{changed.pk}/revise/", sent)
    html = labeler.get(f"/p/arguments/answers/?only={only}").content.decode()
    assert f"{expected} answer" in html
    assert (f"?answer={cast.pk}&" in html) is (only in ("", "improved"))
