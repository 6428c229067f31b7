"""The pages of disputes: what is listed in which order, who may rule, and what rulings answer."""

from collections.abc import Callable

import pytest
from django.http import HttpResponse
from django.test import Client

from apps.accounts.models import AuditEvent, Project, User
from apps.agreement.models import Ruling
from apps.agreement.selectors.disputes import Filters, batches, disputes
from apps.labeling import services as labeling
from apps.labeling.models import Comparison, Decision, Guideline, Prompt, Skip, Vote
from tests.agreement.crowd import cast, disputed_make, newer_guideline

SignedIn = Callable[[User], Client]
LIST = "/p/arguments/disputes/"


def listed(project: Project, **filters: str) -> list[str]:
    found = disputes(project=project, filters=Filters(**filters))
    names = dict(Comparison.objects.values_list("pk", "external_id"))
    return [names[pk] for pk in found.ids]


def ruled(client: Client, pair: Comparison, query: str = "", **sent: object):
    data = {"action": "adjudicate", "choice": "a", "cause": "taste", "note": "", "seen": 0}
    return client.post(f"{LIST}{pair.pk}/rule/{query}", data | sent)


def test_the_most_undecided_votes_come_first_and_settled_ones_do_not_come(
    project: Project,
) -> None:
    (even,), _ = disputed_make(project, votes="ab", overlap=2, max_overlap=2)
    Comparison.objects.filter(pk=even.pk).update(external_id="even")
    rows = {"three": "aabbt", "clear": "aaaab", "six": "aaabbb"}
    for name, votes in rows.items():
        (pair,) = counted_make(project, name, votes)
        state = "decided" if name == "clear" else "contested"
        Comparison.objects.filter(pk=pair.pk).update(state=state)
    assert listed(project) == ["three", "six", "even"]
    assert listed(project, show="contested", ruled="yes") == []
    assert listed(project, search="even") == ["even"]


def counted_make(project: Project, name: str, votes: str) -> list[Comparison]:
    """A comparison whose decision has counted these votes."""
    prompt = Prompt.objects.create(project=project, messages=[], text_hash=name, group_key=name)
    a, b = (prompt.responses.create(messages=[], text_hash=f"{side}{name}") for side in "ab")
    pair = Comparison.objects.create(
        project=project, prompt=prompt, response_a=a, response_b=b, external_id=name
    )
    Decision.objects.create(
        comparison=pair,
        project=project,
        outcome="contested",
        n_a=votes.count("a"),
        n_b=votes.count("b"),
        n_tie=votes.count("t"),
    )
    return [pair]


def test_equal_entropies_are_in_the_order_the_page_says(project: Project) -> None:
    for name in ("first", "second", "third"):
        (pair,) = counted_make(project, name, "ab" if name != "third" else "ba")
        Comparison.objects.filter(pk=pair.pk).update(state="contested")
    assert listed(project) == ["first", "second", "third"]


def test_what_waits_for_review_is_listed_and_says_why(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    Comparison.objects.filter(pk=pair.pk).update(
        state="review", review_reason="skipped by 3 people"
    )
    Skip.objects.create(project=project, task=pair, annotator=rita, reason="Prompt is unclear")
    assert listed(project, show="review") == ["pair-1"]
    assert "skipped by 3 people" in signed_in(rita).get(LIST).content.decode()
    page = signed_in(rita).get(f"{LIST}{pair.pk}/").content.decode()
    assert "skipped by 3 people." in page
    assert "Prompt is unclear" in page


def test_serious_flags_bring_a_pair_here(project: Project) -> None:
    _, people = disputed_make(project, votes="aab", least_agreeing=2)
    assert listed(project) == []
    assert listed(project, show="split") == ["pair-1"]
    assert listed(project, show="flagged") == []
    labeling.vote_revise(
        vote=Vote.objects.get(annotator=people[0]).pk,
        annotator=people[0],
        idempotency_key="flagged",
        choice="a",
        flags=["unsafe"],
    )
    assert listed(project, show="flagged") == ["pair-1"]


def test_votes_are_anonymous_even_for_admins(
    project: Project, ada: User, signed_in: SignedIn
) -> None:
    (pair,), people = disputed_make(project)
    client = signed_in(ada)
    assert client.post(f"{LIST}{pair.pk}/votes/").status_code == 302
    page = client.get(f"{LIST}{pair.pk}/").content.decode()
    assert "Annotator 1" in page
    assert "Annotator 2" in page
    for person in people:
        assert person.username not in page
    assert "It depends, says answer 1." in page


SHOWN_LATER = ("Annotator 1", "votes-bar", "Because of gold", "Model estimate", "history-title")


def shows(client: Client, pair: Comparison) -> set[str]:
    page = client.get(f"{LIST}{pair.pk}/").content.decode()
    assert "It depends, says answer 1." in page
    return {words for words in SHOWN_LATER if words in page}


def test_votes_and_labels_are_shown_after_the_ruling(
    project: Project, rita: User, ada: User, emil: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    Comparison.objects.filter(pk=pair.pk).update(gold="a", gold_explanation="Because of gold")
    Decision.objects.update(posteriors=[0.7, 0.1, 0.1, 0.1])
    rita_s = signed_in(rita)
    assert shows(rita_s, pair) == set()
    assert 'class="num">Both bad' not in rita_s.get(LIST).content.decode()
    assert shows(signed_in(emil), pair) == {*SHOWN_LATER} - {"history-title"}  # he does not rule
    ruled(rita_s, pair)
    assert shows(rita_s, pair) == shows(signed_in(ada), pair) == {*SHOWN_LATER}
    assert Ruling.objects.get().saw_votes is False


def test_looking_at_the_votes_first_is_recorded(
    project: Project, rita: User, ada: User, emil: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    client = signed_in(rita)
    for _ in range(2):
        client.post(f"{LIST}{pair.pk}/votes/")
    assert signed_in(emil).post(f"{LIST}{pair.pk}/votes/").status_code == 403
    assert "votes-bar" in shows(client, pair)
    assert shows(signed_in(ada), pair) == set()  # another reviewer decides for herself
    assert AuditEvent.objects.filter(action="dispute.votes_shown").count() == 1
    ruled(client, pair)
    assert Ruling.objects.get().saw_votes is True


def test_a_program_rules_as_the_page_does(
    project: Project, rita: User, emil: User, signed_in: SignedIn
) -> None:
    first, second = disputed_make(project, n=2)[0]
    client, root = signed_in(rita), f"/api/v1/projects/{project.slug}/disputes"

    def post(pair: Comparison, **said: object) -> HttpResponse:
        path = f"{root}/{pair.pk}/rulings"
        return client.post(path, {"cause": "taste"} | said, content_type="application/json")

    listed = client.get(root, {"limit": 1, "offset": 1}).json()
    assert (listed["total"], len(listed["items"])) == (2, 1)
    assert listed["items"][0]["votes"] is None  # she judges first
    assert signed_in(emil).get(root).json()["items"][0]["votes"]["a"] == 1  # he does not rule
    found = client.get(f"{root}/{first.pk}").json()
    assert (found["votes"], found["rulings"], found["seen"]) == (None, None, 0)
    for said, status, field in (
        ({"choice": "a", "cause": ""}, 400, "cause"),
        ({}, 400, "choice"),
        ({"choice": "best"}, 422, "choice"),
        ({"action": "send_again", "version": 9}, 400, "version"),
    ):
        refused = post(first, **said)
        assert (refused.status_code, refused.json()["field"]) == (status, field)
    made = post(first, choice="b", comment="It answers.").json()
    stored = Ruling.objects.get()
    assert (stored.choice, stored.note, stored.saw_votes, stored.by) == (
        "b",
        "It answers.",
        False,
        rita,
    )
    assert Decision.objects.get(comparison=first).winner == "b"
    found = client.get(f"{root}/{first.pk}").json()
    assert (found["votes"]["a"], found["rulings"], found["seen"]) == (1, [made], made["id"])
    late = post(first, choice="a")
    assert (late.status_code, late.json()["code"]) == (409, "ruled_meanwhile")
    assert client.post(f"{root}/{second.pk}/votes").json()["votes"]["b"] == 1
    assert post(second, action="drop", cause="").json()["saw_votes"] is True
    assert client.get(root).json()["total"] == 0
    assert client.get(root, {"ruled": "yes", "show": "settled"}).json()["total"] == 2


def test_a_project_may_show_votes_at_once(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project, judge_first=False)
    assert "votes-bar" in shows(signed_in(rita), pair)


def test_an_error_stands_at_its_field_without_script(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    page = ruled(signed_in(rita), pair, cause="").content.decode()
    assert 'aria-describedby="cause-error" autofocus' in page
    assert page.count("Choose what caused the dispute.</p>") == 1


def test_a_ruling_goes_on_to_the_next_of_the_same_list(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    pairs, _ = disputed_make(project, n=3)
    client = signed_in(rita)
    answer = ruled(client, pairs[0], "?show=contested")
    assert answer.status_code == 302
    assert answer.url == f"{LIST}{pairs[1].pk}/?show=contested"
    assert "pair-1" in client.get(answer.url).content.decode()
    assert listed(project) == ["pair-2", "pair-3"]
    assert listed(project, show="settled", cause="taste") == ["pair-1"]
    assert ruled(client, pairs[2]).url == LIST  # the last one


def test_what_is_missing_is_said_and_what_was_typed_is_kept(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    for sent, said in (
        ({"cause": ""}, "Choose what caused the dispute."),
        ({"choice": ""}, "Choose A, B, tie or both bad."),
        ({"action": "make_gold"}, "Explain why, for the people who are tested with it."),
        ({"note": "x" * 1001}, "at most 1000 characters"),
        ({"seen": "never"}, "whole number"),
        ({"action": "explode"}, "not one of the available choices"),
    ):
        answer = ruled(signed_in(rita), pair, **{"note": ""} | sent)
        assert answer.status_code == 400, sent
        assert said in answer.content.decode(), sent
    kept = ruled(signed_in(rita), pair, cause="", note="Read the second sentence.")
    assert "Read the second sentence.</textarea>" in kept.content.decode()
    assert not Ruling.objects.exists()


def test_who_comes_second_is_told_and_sees_it_as_it_is_now(
    project: Project, rita: User, ada: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    ruled(signed_in(rita), pair, note="Because.")
    answer = ruled(signed_in(ada), pair, choice="b")
    assert answer.status_code == 409
    assert answer.context["refused"].code == "ruled_meanwhile"
    assert f'name="seen" value="{Ruling.objects.get().pk}"' in answer.content.decode()
    assert Ruling.objects.count() == 1


def test_each_act_of_the_page_does_what_it_says(
    project: Project, rita: User, ada: User, signed_in: SignedIn
) -> None:
    pairs, _ = disputed_make(project, n=3)
    client = signed_in(rita)
    ruled(client, pairs[0], action="drop", cause="", choice="")
    ruled(client, pairs[1], action="make_gold", note="Because.")
    newest = newer_guideline(project, ada)
    ruled(client, pairs[2], action="send_again", version=newest.version)
    states = Comparison.objects.order_by("pk").values_list("state", "stratum")
    assert list(states) == [("dropped", "random"), ("decided", "gold"), ("open", "random")]
    seen = Ruling.objects.get(comparison=pairs[0]).pk
    ruled(client, pairs[0], action="reopen", seen=seen)
    assert Comparison.objects.get(pk=pairs[0].pk).state == "contested"
    assert listed(project, show="waiting") == ["pair-3"]


def test_without_a_newer_guideline_the_page_links_to_its_editor(
    project: Project, ada: User, rita: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    page = signed_in(ada).get(f"{LIST}{pair.pk}/").content.decode()
    assert 'value="send_again"' not in page
    assert "Write version 2" in page
    assert "Write version 2" not in signed_in(rita).get(f"{LIST}{pair.pk}/").content.decode()
    newer_guideline(project, ada)
    page = signed_in(rita).get(f"{LIST}{pair.pk}/").content.decode()
    assert 'value="send_again"' in page


def test_engineers_read_and_do_not_rule(
    project: Project, emil: User, ana: User, olga: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    page = signed_in(emil).get(f"{LIST}{pair.pk}/").content.decode()
    assert 'id="ruling"' not in page
    assert ruled(signed_in(emil), pair).status_code == 403
    for person, status in ((ana, 403), (olga, 404)):
        assert signed_in(person).get(LIST).status_code == status
        assert signed_in(person).get(f"{LIST}{pair.pk}/").status_code == status
        assert ruled(signed_in(person), pair).status_code == status


def test_the_page_of_a_comparison_leads_judges_to_its_dispute(
    project: Project, rita: User, emil: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    address = f"{LIST}{pair.pk}/"
    for person, leads in ((rita, True), (emil, False)):
        page = signed_in(person).get(f"/p/arguments/comparisons/{pair.pk}/").content.decode()
        assert (address in page) == leads


def test_another_projects_dispute_leads_nowhere(
    project: Project, olga: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    there = "/p/elsewhere/disputes/"
    assert signed_in(olga).get(f"{there}{pair.pk}/").status_code == 404
    sent = {"action": "drop", "seen": 0}
    assert signed_in(olga).post(f"{there}{pair.pk}/rule/", sent).status_code == 404
    assert signed_in(olga).get(f"{there}again/?show=contested").status_code == 200
    assert Comparison.objects.get(pk=pair.pk).state == "contested"


def test_qualification_pairs_are_nobodys_dispute(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    (pair,), _ = disputed_make(project)
    Comparison.objects.filter(pk=pair.pk).update(stratum="practice")
    assert listed(project) == []
    assert signed_in(rita).get(f"{LIST}{pair.pk}/").status_code == 404


# --- many at once ---------------------------------------------------------------------------------


def test_sending_many_says_the_numbers_first_and_does_exactly_that(
    project: Project, ada: User, signed_in: SignedIn
) -> None:
    pairs, people = disputed_make(project, n=4, votes="abab", least_agreeing=3)
    newer_guideline(project, ada)
    client = signed_in(ada)
    said = client.get(f"{LIST}again/?show=contested").context
    assert (said["newest"].version, said["n"], said["n_votes"], said["n_wanted"]) == (2, 4, 16, 16)
    sent = {"version": 2, "comparisons": 4, "votes": 16, "cause": "guideline_gap", "note": ""}
    Comparison.objects.filter(pk=pairs[0].pk).update(state="decided")  # meanwhile
    answer = client.post(f"{LIST}again/?show=contested", sent)
    assert answer.status_code == 409
    assert answer.context["n"] == 3
    assert not Ruling.objects.exists()
    answer = client.post(f"{LIST}again/?show=contested", sent | {"comparisons": 3, "votes": 12})
    assert answer.url == f"{LIST}re-annotation/"
    assert "12 votes" in client.get(answer.url).content.decode()
    # a second click finds nothing left of that list
    answer = client.post(f"{LIST}again/?show=contested", sent | {"comparisons": 3, "votes": 12})
    assert answer.status_code == 409
    assert Ruling.objects.count() == 3
    assert people


def test_many_need_a_cause_and_a_newer_guideline(
    project: Project, ada: User, signed_in: SignedIn
) -> None:
    disputed_make(project, n=2)
    client = signed_in(ada)
    page = client.get(f"{LIST}again/")
    assert (page.context["n"], [n for n, _ in page.context["left_out"]]) == (0, [2])
    assert "/guidelines/edit/" in page.content.decode()
    newer_guideline(project, ada)
    sent = {"version": 2, "comparisons": 2, "votes": 4, "cause": "", "note": ""}
    answer = client.post(f"{LIST}again/", sent)
    assert (answer.status_code, Ruling.objects.count()) == (400, 0)
    assert answer.context["refused"].field == "cause"


def test_before_and_after_stand_side_by_side(
    project: Project, ada: User, rita: User, signed_in: SignedIn
) -> None:
    _, people = disputed_make(project, n=12)
    newest = newer_guideline(project, ada)
    client = signed_in(ada)
    sent = {"version": 2, "comparisons": 12, "votes": 24, "cause": "guideline_gap", "note": ""}
    client.post(f"{LIST}again/", sent)
    for person in people:
        for _ in range(11):
            cast(project, person, "a")
    (batch,) = batches(project=project)
    assert (batch.guideline, batch.n, batch.votes, batch.wanted) == (newest, 12, 22, 24)
    both = batch.compared.n
    assert (batch.n_settled, batch.n_open) == (both, 12 - both)
    assert both in (10, 11)
    assert (batch.compared.before.value, batch.compared.after.value) == (0.0, 1.0)
    assert batch.compared.difference.value == 1.0
    page = client.get(f"{LIST}re-annotation/").content.decode()
    assert "22 of at least 24" in page
    assert "+100.0 points" in page
    csv = b"".join(client.get(f"{LIST}re-annotation.csv").streaming_content).decode()
    assert csv.splitlines()[1].startswith('"2","12","22","24"')
    # sent again under a third version: what came of the second stays as it was
    newer_guideline(project, ada, "Three.")
    judged = Comparison.objects.filter(n_votes=2).earliest("pk")  # which is left out is by lot
    last = Ruling.objects.filter(comparison=judged).get()
    ruled(signed_in(rita), judged, action="send_again", version=3, seen=last.pk)
    newer, older = batches(project=project)
    assert (newer.n, older.n, older.n_again) == (1, 12, 1)
    assert older.compared.n >= both - 1


# --- causes ---------------------------------------------------------------------------------------


def test_causes_are_counted_once_for_each_dispute_and_by_guideline(
    project: Project, rita: User, ada: User, signed_in: SignedIn
) -> None:
    pairs, _ = disputed_make(project, n=3)
    client = signed_in(rita)
    assert 'data-empty="chart-column"' in client.get(f"{LIST}causes/").content.decode()
    ruled(client, pairs[0], cause="taste")
    seen = Ruling.objects.get().pk
    ruled(client, pairs[0], action="adjudicate", cause="annotator_error", seen=seen)
    Guideline.objects.filter(version=1).update(created_at="2026-01-01T00:00Z")
    newer_guideline(project, ada)
    ruled(client, pairs[1], cause="guideline_gap", note="=cmd()")
    drawn = client.get(f"{LIST}causes/").context
    counts = {row.label: row.words for row in drawn["chart"].bars}
    assert counts["Ambiguous prompt"] == "0 (0 %)"
    assert counts["Guideline gap"] == counts["Annotator error"] == "1 (50 %)"
    over = {row.label: [said for *_, said in row.pieces] for row in drawn["over"].bars}
    assert over == {"Version 1": ["Annotator error: 1"], "Version 2": ["Guideline gap: 1"]}
    csv = b"".join(client.get(f"{LIST}causes.csv").streaming_content).decode()
    assert '"2","guideline gap","1"' in csv
    rulings = b"".join(client.get(f"{LIST}rulings.csv").streaming_content).decode()
    assert len(rulings.splitlines()) == 4
    assert '"\'=cmd()"' in rulings  # no formula
    assert "Rita" not in rulings


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "Nothing is disputed"),
        ("?show=settled", "None of these"),
        ("?q=nowhere", "No comparison matches this filter"),
        ("?show=nonsense&page=99&cause=x", "Nothing is disputed"),
    ],
)
def test_an_empty_list_says_why(
    project: Project, rita: User, signed_in: SignedIn, query: str, said: str
) -> None:
    answer = signed_in(rita).get(f"{LIST}{query}")
    assert answer.status_code == 200
    assert said in answer.content.decode()
