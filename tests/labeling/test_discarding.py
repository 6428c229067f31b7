"""A bad annotator's votes are set aside and asked again of others, and come back when undone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.agreement.selectors.slices import crowd_of
from apps.agreement.selectors.votes import vote_columns
from apps.common.errors import Conflict, DomainError, Missing
from apps.labeling import services
from apps.labeling.models import Comparison, Decision, Discard, Slot, Vote
from apps.labeling.selectors.person_votes import VoteFilter, person_votes
from tests.labeling.pairs import annotators_make, leased, pairs_make, vote
from tests.people import person_make

WRONG = {"reason": "Clicks without reading."}


def crowd(project: Project, votes: list[str], n: int = 2, **settings: Any) -> list[User]:
    """n comparisons, each with these votes, one a person; the first person is the bad one."""
    pairs_make(project, n, **({"overlap": len(votes), "max_overlap": len(votes)} | settings))
    people = annotators_make(project, len(votes))
    for _ in range(n):
        for person, choice in zip(people, votes, strict=True):
            vote(project, person, choice)
    return people


def standing() -> list[Any]:
    """Everything that voting has made, but for when."""
    slots = Slot.objects.exclude(state="withdrawn").order_by("task", "position")
    return [
        list(Comparison.objects.order_by("pk").values_list("pk", "state", "n_votes")),
        list(Decision.objects.order_by("pk").values_list("pk", "outcome", "winner", "n_a", "n_b")),
        list(slots.values_list("task", "kind", "state", "annotator")),
        list(Vote.objects.order_by("pk").values()),
    ]


@pytest.fixture
def zoe(project: Project) -> User:
    """Somebody who has not voted yet: without her nobody is left to ask."""
    return person_make("Zoe", project, Role.ANNOTATOR)


def test_others_are_asked_where_a_decision_falls(project: Project, ada: User, zoe: User) -> None:
    bad, *others = crowd(project, ["a", "a", "b", "a"], overlap=4, max_overlap=5)
    votes = list(Vote.objects.order_by("pk").values())
    done = services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    assert (done.n_votes, done.n_comparisons, done.n_asked) == (2, 2, 2)
    assert done.changed == {("decided: a", "open"): 2}
    assert list(Vote.objects.order_by("pk").values()) == votes  # nothing is deleted or changed
    assert set(Comparison.objects.values_list("state", "n_votes")) == {("open", 3)}
    vote(project, zoe, "a")
    assert Comparison.objects.filter(state="decided", n_votes=4).count() == 1
    for person in (bad, *others):
        assert isinstance(
            services.slot_lease_next(project=project, annotator=person), services.NothingReason
        )
    event = AuditEvent.objects.get(action="votes.discarded")
    assert (event.about, event.details["votes"]) == (bad, 2)
    assert event.details["decisions_changed"] == 2


def test_a_decision_that_holds_without_them_asks_nobody(project: Project, ada: User) -> None:
    bad, *_ = crowd(project, ["b", "a", "a", "a"])
    done = services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    assert (done.n_asked, done.changed) == (0, {})
    assert set(Decision.objects.values_list("winner", "n_a", "n_b", "share")) == {("a", 3, 0, 1.0)}


def test_a_pair_without_another_vote_is_open_as_if_never_voted_on(
    project: Project, ada: User, ben: User
) -> None:
    pairs_make(project, 1)
    vote(project, ben)
    done = services.votes_discard(project=project, annotator=ben, by=ada, **WRONG)
    assert (done.n_votes, done.n_asked) == (1, 1)
    assert not Decision.objects.exists()
    assert Slot.objects.filter(state="free").count() == 3


def test_a_preview_says_the_same_and_changes_nothing(project: Project, ada: User) -> None:
    bad, *_ = crowd(project, ["a", "a", "b", "a"], max_overlap=5)
    before = standing()
    preview = services.votes_discard(project=project, annotator=bad, by=ada, dry_run=True)
    assert standing() == before
    assert not Discard.objects.exists()
    assert not AuditEvent.objects.filter(action="votes.discarded").exists()
    done = services.votes_discard(
        project=project, annotator=bad, by=ada, expected=preview.n_votes, **WRONG
    )
    assert (done.changed, done.n_asked) == (preview.changed, preview.n_asked)


def test_where_nobody_is_left_to_ask_the_pair_is_contested(project: Project, ada: User) -> None:
    bad, *_ = crowd(project, ["a", "a", "b", "a"], n=1, max_overlap=5)
    done = services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    assert (done.n_asked, done.changed) == (0, {("decided: a", "contested"): 1})


def test_undone_everything_is_as_it_was(project: Project, ada: User, zoe: User) -> None:
    bad, *_ = crowd(project, ["a", "a", "b", "a"], max_overlap=5)
    before = standing()
    done = services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    undone = services.discard_undo(project=project, discard=done.discard, by=ada)
    assert standing() == before
    assert undone.changed == {("open", "decided: a"): 2}
    assert AuditEvent.objects.filter(action="votes.discard_undone").count() == 1
    with pytest.raises(Conflict) as caught:
        services.discard_undo(project=project, discard=done.discard, by=ada)
    assert caught.value.code == "discard_undone"
    again = services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    assert again.n_votes == 2


def test_votes_cast_meanwhile_stay_when_it_is_undone(
    project: Project, ada: User, zoe: User
) -> None:
    bad, *_ = crowd(project, ["a", "a", "b", "a"], n=1, max_overlap=5)
    done = services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    vote(project, zoe, "b")
    services.discard_undo(project=project, discard=done.discard, by=ada)
    decision = Decision.objects.get()
    assert (decision.winner, decision.n_a, decision.n_b) == ("a", 3, 2)
    assert Comparison.objects.get().overlap == 5


def test_a_ruling_stays_and_its_counts_follow(project: Project, ada: User) -> None:
    bad, *_ = crowd(project, ["b", "a", "b"], n=1)
    services.comparison_adjudicate(
        comparison=Comparison.objects.get(), choice="a", reason="Seen.", by=ada
    )
    done = services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    decision = Decision.objects.get()
    assert (decision.outcome, decision.winner, decision.n_b) == ("adjudicated", "a", 1)
    assert (done.n_asked, done.changed) == (0, {})


def test_only_the_chosen_votes_are_discarded(project: Project, ada: User) -> None:
    bad, *_ = crowd(project, ["b", "a", "a", "a"], n=3)
    decided = {"project": project, "annotator": bad}
    against = VoteFilter(decision="against")
    assert person_votes(**decided, wanted=against).count() == 3
    assert person_votes(**decided, wanted=VoteFilter(decision="with")).count() == 0
    assert person_votes(**decided, wanted=VoteFilter(choice="a")).count() == 0
    assert person_votes(**decided, wanted=VoteFilter(state="decided")).count() == 3
    today = timezone.now().date()
    assert person_votes(**decided, wanted=VoteFilter(since=today, until=today)).count() == 3
    tomorrow = VoteFilter(since=today + timedelta(days=1))
    assert person_votes(**decided, wanted=tomorrow).count() == 0
    with pytest.raises(Conflict) as caught:
        services.votes_discard(**decided, by=ada, wanted=tomorrow, **WRONG)
    assert caught.value.code == "nothing_to_discard"
    services.votes_discard(**decided, by=ada, wanted=against, **WRONG)
    assert Discard.objects.get().filters == {"decision": "against"}
    assert person_votes(**decided, wanted=VoteFilter(status="discarded")).count() == 3


def test_a_reason_is_needed_and_the_numbers_are_those_that_were_shown(
    project: Project, ada: User
) -> None:
    bad, *_ = crowd(project, ["b", "a", "a"])
    given = {"project": project, "annotator": bad, "by": ada}
    for reason in (" ", "x" * 301, "\x00"):
        with pytest.raises(DomainError) as refused:
            services.votes_discard(**given, reason=reason)
        assert refused.value.field == "reason"
    with pytest.raises(Conflict) as caught:
        services.votes_discard(**given, expected=3, **WRONG)
    assert caught.value.code == "numbers_changed"
    with pytest.raises(Missing):
        services.discard_undo(project=project, discard=999, by=ada)
    assert not Discard.objects.exists()


def test_statistics_leave_discarded_votes_out(project: Project, ada: User) -> None:
    bad, *_ = crowd(project, ["b", "a", "a", "a"])
    services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    assert bad.pk not in vote_columns(project=project).annotator
    assert bad.pk not in crowd_of(project=project).people


def test_the_person_can_neither_change_nor_take_back_such_a_vote(
    project: Project, ada: User
) -> None:
    bad, *_ = crowd(project, ["b", "a", "a"], n=1)
    services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    mine = Vote.objects.get(annotator=bad)
    for act in (
        lambda: services.vote_withdraw(vote=mine.pk, annotator=bad),
        lambda: services.vote_revise(vote=mine.pk, annotator=bad, idempotency_key="k", choice="a"),
    ):
        with pytest.raises(Conflict) as caught:
            act()
        assert caught.value.code == "vote_discarded"


def test_a_discarded_vote_of_an_earlier_round_comes_back_to_that_round(
    project: Project, ada: User
) -> None:
    bad, *_ = crowd(project, ["b", "a", "a"], n=1)
    done = services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
    guideline = services.guideline_publish(project=project, body="Newer.", by=ada)
    pair = Comparison.objects.get()
    services.comparisons_send_again(
        project=project, comparisons=[pair.pk], guideline=guideline, by=ada
    )
    services.discard_undo(project=project, discard=done.discard, by=ada)
    assert Slot.objects.get(votes__annotator=bad).kind == "former"
    assert Comparison.objects.get().n_votes == 0


def test_the_person_can_be_paused_with_it(project: Project, ada: User) -> None:
    bad, *_ = crowd(project, ["b", "a", "a"], n=1)
    services.votes_discard(project=project, annotator=bad, by=ada, pause=True, **WRONG)
    assert Membership.objects.get(user=bad).paused_reason == WRONG["reason"]


@pytest.mark.django_db(transaction=True)
def test_a_vote_cast_at_the_same_moment_comes_after_and_counts() -> None:
    """It waits for the person's row, which discarding holds."""
    project = Project.objects.create(slug="arguments", name="Arguments")
    ada = person_make("Ada", project, Role.ADMIN)
    pairs_make(project, 2)
    (bad,) = annotators_make(project, 1)
    vote(project, bad)
    lease = leased(project, bad)

    def cast() -> str:
        try:
            services.vote_cast(
                slot=lease.slot, annotator=bad, idempotency_key=lease.key, choice="a"
            )
            return "cast"
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        done = services.votes_discard(project=project, annotator=bad, by=ada, **WRONG)
        waiting = pool.submit(cast)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.5)
    assert waiting.result(timeout=10) == "cast"
    assert done.n_votes == 1
    assert dict(Vote.objects.values_list("slot", "slot__kind"))[lease.slot] == "regular"
    assert Decision.objects.filter(n_a=1).count() == 1


# The page and the API.


SignedIn = Callable[[User], Client]


def test_ada_finds_a_bad_annotator_discards_their_votes_and_brings_them_back(
    signed_in: SignedIn, project: Project, ada: User, zoe: User
) -> None:
    bad, *_ = crowd(project, ["a", "a", "b", "a"], max_overlap=5)
    client, page = signed_in(ada), f"/p/arguments/annotators/{bad.pk}/votes/"
    shown = client.get(page, {"decision": "with"})
    assert [row.agrees for row in shown.context["rows"]] == [True, True]
    assert client.get(page, {"decision": "against"}).context["rows"] == []
    assert page in client.get("/p/arguments/annotators/").content.decode()
    confirm = client.get(f"{page}discard/?decision=with")
    assert (confirm.context["preview"].n_votes, confirm.context["preview"].n_asked) == (2, 2)
    refused = client.post(f"{page}discard/?decision=with", {"reason": "", "expected": 2})
    assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["reason"])
    client.post(f"{page}discard/?decision=with", WRONG | {"expected": 2, "pause": "on"})
    assert Comparison.objects.filter(state="open").count() == 2
    assert Membership.objects.get(user=bad).paused_reason
    (discard,) = client.get(page).context["discards"]
    client.post(f"{page}discards/{discard.pk}/undo/")
    assert Comparison.objects.filter(state="decided").count() == 2
    assert client.get(f"{page}discard/?choice=tie").status_code == 302  # there are none


def test_an_unknown_filter_narrows_nothing(
    signed_in: SignedIn, project: Project, ada: User
) -> None:
    bad, *_ = crowd(project, ["a", "a", "a"])
    odd = {"choice": "c", "since": "yesterday", "page": "x", "decision": "with"}
    page, client = f"/p/arguments/annotators/{bad.pk}/votes/", signed_in(ada)
    assert client.get(f"{page}discard/", odd).status_code == 302  # but discards nothing either
    answer = client.get(page, odd)
    assert (answer.status_code, len(answer.context["rows"])) == (200, 2)


def test_votes_are_listed_discarded_and_brought_back_by_api(
    signed_in: SignedIn, project: Project, ada: User, zoe: User
) -> None:
    bad, *_ = crowd(project, ["a", "a", "b", "a"], max_overlap=5)
    client, root = signed_in(ada), "/api/v1/projects/arguments"
    path = f"{root}/annotators/{bad.pk}/votes"

    def post(address: str, given: dict[str, Any]) -> Any:
        answer = client.post(address, given, content_type="application/json")
        assert answer.status_code == 200, answer.content
        return answer.json()

    listed = client.get(f"{path}?decision=with").json()
    assert (listed["count"], listed["votes"][0]["winner"]) == (2, "a")
    would = post(f"{path}/discard", {"dry_run": True})
    assert would["changed"] == [{"before": "decided: a", "after": "open", "comparisons": 2}]
    assert not Discard.objects.exists()
    done = post(f"{path}/discard", WRONG | {"expected": 2})
    assert done["n_asked"] == 2
    (row,) = client.get(f"{root}/discards").json()
    assert (row["id"], row["annotator"], row["undone_at"]) == (done["discard"], bad.pk, None)
    back = post(f"{root}/discards/{row['id']}/undo", {})
    assert back["changed"] == [{"before": "open", "after": "decided: a", "comparisons": 2}]
    assert signed_in(zoe).get(path).status_code == 403
