"""What reviewers, engineers and admins see of comparisons, and what admins may do."""

import pytest

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict
from apps.labeling import services
from apps.labeling.forms.settings import LabelingSettingsForm
from apps.labeling.models import Guideline, LabelingSettings, Slot
from tests.labeling.pairs import annotators_make, leased, pairs_make, vote


@pytest.fixture
def decided(project: Project) -> object:
    (pair,) = pairs_make(project, 1)
    for person, choice in zip(annotators_make(project, 3), ("a", "a", "a"), strict=True):
        vote(project, person, choice, rationale="Because.")
    return pair


def test_a_reviewer_sees_numbers_where_an_admin_sees_names(
    project: Project, rita: User, ada: User, signed_in, decided
) -> None:
    path = f"/p/arguments/comparisons/{decided.pk}/"
    ritas = signed_in(rita).get(path).content.decode()
    adas = signed_in(ada).get(path).content.decode()
    assert "Annotator 1" in ritas
    assert "annotator-0" not in ritas
    assert "annotator-0" in adas
    for page in (ritas, adas):
        assert "A has 3 of 3 votes (100%)" in page
        assert "Because." in page


def test_all_that_came_with_a_vote_is_shown_to_readers(
    project: Project, ana: User, rita: User, signed_in
) -> None:
    (pair,) = pairs_make(
        project, 1, criteria=[{"key": "clear", "label": "Clearer"}], show_rationale=True,
        reasons=["To the point"], show_improve=True,
    )  # fmt: skip
    vote(
        project, ana, "b", criteria={"clear": "a"}, reasons=["To the point"],
        improvement="Better <b>so</b>.",
    )  # fmt: skip
    html = signed_in(rita).get(f"/p/arguments/comparisons/{pair.pk}/").content.decode()
    assert "Clearer: A" in html
    assert "To the point" in html
    assert "Better &lt;b&gt;so&lt;/b&gt;." in html


def test_every_revision_is_shown_and_the_old_one_struck_through(
    project: Project, ana: User, rita: User, signed_in
) -> None:
    (pair,) = pairs_make(project, 1)
    cast = vote(project, ana, "a").vote
    services.vote_revise(vote=cast.pk, annotator=ana, idempotency_key="k", choice="b")
    html = signed_in(rita).get(f"/p/arguments/comparisons/{pair.pk}/").content.decode()
    assert html.count('class="past"') == 1
    assert "revision 2" in html
    assert "Annotator 2" not in html


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", 3),
        ("state=decided", 1),
        ("state=open", 2),
        ("winner=b", 1),
        ("winner=a", 0),
        ("q=pair-2", 1),
        ("q=Question 3", 1),
        ("q=nothing like it", 0),
        ("stratum=gold", 0),
        ("state=nonsense", 3),
        ("page=99", 3),
    ],
)
def test_the_list_filters_and_searches(
    project: Project, rita: User, signed_in, query: str, shown: int
) -> None:
    pairs = pairs_make(project, 3)
    for person in annotators_make(project, 3):
        slot = services.slot_lease_for(comparison=pairs[0], annotator=person)
        services.vote_cast(slot=slot, annotator=person, idempotency_key="k", choice="b")
    html = signed_in(rita).get(f"/p/arguments/comparisons/?{query}").content.decode()
    assert html.count('class="primary-link"') == shown
    if not shown:
        assert "No comparison fits this filter" in html


def test_an_empty_project_says_how_comparisons_come_in(rita: User, signed_in) -> None:
    assert "No comparisons yet" in signed_in(rita).get("/p/arguments/comparisons/").content.decode()


def test_a_comparison_of_another_project_is_not_found(
    project: Project, olga: User, rita: User, signed_in
) -> None:
    elsewhere = Project.objects.get(slug="elsewhere")
    (theirs,) = pairs_make(elsewhere, 1)
    assert signed_in(rita).get(f"/p/arguments/comparisons/{theirs.pk}/").status_code == 404


def test_a_dropped_comparison_leaves_the_queue_and_can_come_back(
    project: Project, ada: User, ana: User, signed_in
) -> None:
    (pair,) = pairs_make(project, 1)
    browser, path = signed_in(ada), f"/p/arguments/comparisons/{pair.pk}/"
    browser.post(f"{path}state/", {"action": "drop"})
    pair.refresh_from_db()
    assert pair.state == "dropped"
    assert isinstance(
        services.slot_lease_next(project=project, annotator=ana), services.NothingReason
    )
    browser.post(f"{path}state/", {"action": "reopen"})
    pair.refresh_from_db()
    assert (pair.state, pair.slots.filter(state="free").count()) == ("open", 3)
    assert leased(project, ana).comparison == pair.pk
    actions = set(AuditEvent.objects.values_list("action", flat=True))
    assert {"comparison.dropped", "comparison.reopened"} <= actions


def test_what_was_sent_to_review_shows_why_and_is_put_back(
    project: Project, ada: User, signed_in
) -> None:
    (pair,) = pairs_make(project, 1)
    for person in annotators_make(project, 3):
        services.slot_skip(slot=leased(project, person).slot, annotator=person, reason="cut off")
    html = signed_in(ada).get(f"/p/arguments/comparisons/{pair.pk}/").content.decode()
    assert "Skipped by 3 people: cut off; cut off; cut off." in html
    services.comparison_reopen(comparison=pair, by=ada)
    assert Slot.objects.filter(comparison=pair, state="free").count() == 3


def test_a_decided_comparison_comes_back_decided(project: Project, ada: User, decided) -> None:
    services.comparison_drop(comparison=decided, by=ada)
    with pytest.raises(Conflict):
        services.comparison_drop(comparison=decided, by=ada)
    services.comparison_reopen(comparison=decided, by=ada)
    decided.refresh_from_db()
    assert decided.state == "decided"
    with pytest.raises(Conflict):
        services.comparison_reopen(comparison=decided, by=ada)


def test_my_answers_lists_mine_alone_and_filters(
    project: Project, ana: User, ben: User, signed_in
) -> None:
    pairs_make(project, 4)
    mine = [vote(project, ana, choice).vote for choice in ("a", "b", "tie")]
    vote(project, ben, "both_bad")
    browser = signed_in(ana)
    page = browser.get("/p/arguments/answers/").content.decode()
    assert page.count("?answer=") == 3
    assert "Both are bad</span>" not in page
    sides = ["left" if v.choice == v.left_is else "right" for v in mine[:2]]
    for side in ("left", "right"):
        found = browser.get(f"/p/arguments/answers/?choice={side}").content.decode()
        assert found.count("?answer=") == sides.count(side)
    assert browser.get("/p/arguments/answers/?choice=tie").content.decode().count("?answer=") == 1
    assert "No answer fits" in browser.get("/p/arguments/answers/?q=zzz").content.decode()


def test_a_published_guideline_is_what_votes_are_cast_under(
    project: Project, ada: User, ana: User, signed_in
) -> None:
    pairs_make(project, 2)
    first = vote(project, ana).vote
    browser = signed_in(ada)
    sent = {"body": "# Be **strict**\n<script>alert(1)</script>", "is_major": "on"}
    assert browser.post("/p/arguments/guidelines/edit/", sent).status_code == 302
    page = browser.get("/p/arguments/guidelines/").content.decode()
    assert "<strong>strict</strong>" in page
    assert "<script>alert" not in page
    assert "Version 2" in page
    services.guideline_acknowledge(project=project, user=ana, version=2)
    assert vote(project, ana).vote.guideline.version == 2
    assert first.guideline.version == 1
    old = browser.get("/p/arguments/guidelines/?version=1").content.decode()
    assert "This is version 1" in old
    services.guideline_publish(project=project, body=sent["body"], by=ada)
    assert Guideline.objects.filter(project=project).count() == 2  # the same text is no version


def test_an_empty_guideline_is_refused_with_the_field_marked(ada: User, signed_in) -> None:
    answer = signed_in(ada).post("/p/arguments/guidelines/edit/", {"body": "  "})
    assert answer.status_code == 422
    assert "required" in answer.content.decode()


def test_a_rule_that_cannot_work_is_refused_and_what_was_typed_is_kept(
    project: Project, ada: User, signed_in
) -> None:
    stored = LabelingSettings.objects.create(project=project, show_both_bad=False)
    shown = LabelingSettingsForm(current=stored)
    form = {bound.name: bound.value() for bound in shown if bound.value() is not False}
    form |= {"least_votes": 7}
    browser = signed_in(ada)
    answer = browser.post("/p/arguments/settings/", form)
    assert answer.status_code == 422
    html = answer.content.decode()
    assert "nothing could ever be accepted" in html
    assert 'value="7"' in html
    fewer = browser.post("/p/arguments/settings/", form | {"least_votes": 2, "max_overlap": 2})
    assert "At most 2 votes, but 3 are asked for at once." in fewer.content.decode()
    assert browser.post("/p/arguments/settings/", form | {"least_votes": 5}).status_code == 302
    saved = LabelingSettings.objects.get(project=project)
    assert (saved.least_votes, saved.show_tie, saved.show_both_bad) == (5, True, False)
    assert AuditEvent.objects.get(action="labeling.settings_changed").details["least_votes"] == [
        3,
        5,
    ]


def test_a_new_project_is_ready_for_labeling(ada: User) -> None:
    made = services.project_create(
        slug="second", name="Second", created_by=ada, overlap=1, max_overlap=3
    )
    assert LabelingSettings.objects.get(project=made).overlap == 1
    assert Guideline.objects.get(project=made).version == 1
    assert made.memberships.get(user=ada).role == "admin"
