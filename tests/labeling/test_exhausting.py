"""A pair that nobody is left to vote on says so, and opens again when somebody joins."""

import random
from dataclasses import replace

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.services import (
    invitation_create,
    invitation_revoke,
    membership_pause,
    membership_remove,
    membership_resume,
)
from apps.labeling import services
from apps.labeling.models import (
    NOBODY_LEFT,
    Annotator,
    Comparison,
    Decision,
    LabelingSettings,
    Skip,
    Slot,
    Vote,
)
from apps.labeling.services import Lease, eligibility
from apps.labeling.services.exhausting import Staffing, staffing
from tests.labeling.pairs import annotators_make, leased, pairs_make, vote
from tests.people import person_make

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh(monkeypatch) -> None:
    """Who labels changes within a test."""
    monkeypatch.setattr(eligibility, "_COUNT_SECONDS", -1.0)


def label_all(project: Project, people: list[User], choose) -> None:
    """Everybody votes, taking turns, until nobody gets a pair."""
    left = list(people)
    while left:
        for person in list(left):
            if not isinstance(
                lease := services.slot_lease_next(project=project, annotator=person), Lease
            ):
                left.remove(person)
                continue
            services.vote_cast(
                slot=lease.slot,
                annotator=person,
                idempotency_key=lease.key,
                choice=choose(),
                lease_next=False,
            )


def halves(project: Project, n: int = 1, **settings: object) -> list[User]:
    """Four people who vote two against two on n pairs."""
    pairs_make(project, n, **settings)
    people = annotators_make(project, 4)
    for choice, person in zip("aabb", people, strict=True):
        for _ in range(n):
            vote(project, person, choice, lease_next=False)
    return people


def test_four_coin_flippers_leave_no_pair_open_under_the_default_rule(
    project: Project, ada: User
) -> None:
    pairs_make(project, 60)
    coin = random.Random(7)
    label_all(project, annotators_make(project, 4), lambda: coin.choice("ab"))
    assert not Comparison.objects.filter(state="open").exists()
    assert not Slot.objects.filter(state="free").exists()
    split = Comparison.objects.filter(state="contested")
    assert 8 < split.count() < 40
    assert set(split.values_list("review_reason", "n_votes")) == {(NOBODY_LEFT, 4)}
    assert set(split.values_list("decision__outcome", flat=True)) == {"contested"}
    kept = Comparison.objects.filter(state="decided")
    assert not kept.exclude(review_reason="").exists()
    assert services.comparisons_sweep() == 0


def test_a_newcomer_gets_what_was_contested_for_want_of_people(
    project: Project, django_capture_on_commit_callbacks
) -> None:
    halves(project, 3)
    assert Comparison.objects.filter(state="contested").count() == 3
    with django_capture_on_commit_callbacks(execute=True):
        eve = person_make("Eve", project, Role.ANNOTATOR)
    assert set(Comparison.objects.values_list("state", "review_reason")) == {("open", "")}
    assert Slot.objects.filter(state="free").count() == 3
    assert set(Decision.objects.values_list("outcome", flat=True)) == {"needs_votes"}
    for _ in range(3):
        vote(project, eve, "b", lease_next=False)
    assert set(Comparison.objects.values_list("state", "decision__winner")) == {("decided", "b")}


def test_it_stays_contested_where_a_newcomer_could_not_settle_it(project: Project) -> None:
    halves(project)
    LabelingSettings.objects.update(least_share=0.9)
    person_make("Eve", project, Role.ANNOTATOR)
    assert services.comparisons_sweep() == 1
    found = Comparison.objects.get()
    assert (found.state, found.review_reason) == ("contested", "")
    assert not Slot.objects.filter(state="free").exists()


def test_whoever_goes_or_is_paused_is_not_waited_for(
    project: Project, ada: User, django_capture_on_commit_callbacks
) -> None:
    eve = person_make("Eve", project, Role.ANNOTATOR)
    halves(project)
    assert Comparison.objects.get().state == "open"
    with django_capture_on_commit_callbacks(execute=True):
        membership_pause(project=project, user=eve, reason="on leave", by=ada)
    assert Comparison.objects.get().state == "contested"
    with django_capture_on_commit_callbacks(execute=True):
        membership_resume(project=project, user=eve, by=ada)
    assert Comparison.objects.get().state == "open"
    with django_capture_on_commit_callbacks(execute=True):
        membership_remove(project=project, user=eve, by=ada)
    assert Comparison.objects.get().state == "contested"


def test_topics_and_skips_count_and_a_cap_of_the_day_does_not(project: Project) -> None:
    eve = person_make("Eve", project, Role.ANNOTATOR)
    halves(project)
    mine = Annotator.objects.filter(project=project, user=eve)
    mine.update(daily_cap=1)
    assert services.comparisons_sweep() == 0
    mine.update(topics=["cooking"])
    assert services.comparisons_sweep() == 1
    mine.update(topics=[])
    assert services.comparisons_sweep() == 1
    assert Comparison.objects.get().state == "open"
    Skip.objects.create(project=project, task=Comparison.objects.get(), annotator=eve)
    assert services.comparisons_sweep() == 1
    assert Comparison.objects.get().state == "contested"


def test_a_lease_that_is_out_is_a_vote_to_come(project: Project) -> None:
    eve = person_make("Eve", project, Role.ANNOTATOR)
    halves(project)
    lease = leased(project, eve)
    Membership.objects.filter(user=eve).update(paused_reason="on leave")
    assert services.comparisons_sweep() == 0
    services.vote_cast(
        slot=lease.slot, annotator=eve, idempotency_key=lease.key, choice="a", lease_next=False
    )
    assert Comparison.objects.get().state == "decided"


def test_an_admin_counts_once_they_label(project: Project, ada: User) -> None:
    halves(project)
    assert Comparison.objects.get().state == "contested"
    vote(project, ada, "a", lease_next=False)  # who opens the label screen gets it
    assert Comparison.objects.get().state == "decided"
    assert Comparison.objects.get().review_reason == ""


def test_nobody_is_missed_where_nobody_has_voted(project: Project) -> None:
    pairs_make(project, 2)
    assert services.comparisons_sweep() == 0
    assert Comparison.objects.filter(state="open").count() == 2


def test_an_answer_changed_afterwards_is_decided_and_leaves_no_pair_without_places(
    project: Project,
) -> None:
    people = halves(project)
    mine = Vote.objects.get(annotator=people[3])

    def change(vote: Vote, choice: str) -> Vote:
        return services.vote_revise(
            vote=vote.pk, annotator=people[3], idempotency_key=f"{vote.pk}", choice=choice
        ).vote

    tie = change(mine, "tie")
    found = Comparison.objects.get()
    assert (found.state, found.review_reason) == ("contested", NOBODY_LEFT)
    eve = person_make("Eve", project, Role.ANNOTATOR)  # who joins before anybody has looked
    again = change(tie, "b")
    assert Comparison.objects.get().state == "open"
    services.comparisons_sweep()
    assert isinstance(leased(project, eve), Lease)
    change(again, "a")
    found = Comparison.objects.get()
    assert (found.state, found.review_reason) == ("decided", "")


def test_another_rule_decides_what_nobody_is_left_for(project: Project, ada: User) -> None:
    halves(project)
    services.labeling_settings_update(project=project, by=ada, max_overlap=7)
    assert Comparison.objects.get().state == "contested"
    Decision.objects.update(n_a=3, n_b=1)
    services.labeling_settings_update(project=project, by=ada, least_share=0.7)
    found = Comparison.objects.get()
    assert (found.state, found.review_reason) == ("decided", "")


# What the pages say of it, and how many votes a pair is to get.


def test_the_pages_say_how_many_pairs_need_a_fifth_person(
    project: Project, ada: User, signed_in
) -> None:
    halves(project, 3)
    for name in ("comparisons", "settings"):
        page = signed_in(ada).get(reverse(f"labeling:{name}", args=[project.slug]))
        text = page.content.decode()
        assert "3 pairs need a 5th person; you have 4." in text
        assert "One further person could settle at most 3 of them" in text
    assert "The rule asks for up to 5 votes on a pair, and 4 people label here" in text
    listed = signed_in(ada).get(reverse("labeling:comparisons", args=[project.slug]))
    assert NOBODY_LEFT in listed.content.decode()


@pytest.mark.parametrize(
    ("people", "said"),
    [(2, "none can be decided"), (4, "what 4 leave undecided becomes contested"), (5, "")],
)
def test_a_rule_is_held_against_the_size_of_the_team(people: int, said: str) -> None:
    words = Staffing(people=people, most=5, least=3, waiting={}).rule_words
    assert said in words
    assert bool(words) == bool(said)
    invited = Staffing(people=1, most=5, least=3, waiting={}, invited=people - 1).rule_words
    assert said in invited
    assert bool(invited) == bool(said)


def test_whoever_is_invited_counts_while_the_link_is_open(project: Project, ada: User) -> None:
    annotators_make(project, 4)
    invite = {"project": project, "by": ada}
    for role, n in ((Role.ANNOTATOR, 3), (Role.REVIEWER, 1)):
        for _ in range(n):
            invitation_create(role=role, **invite)
    assert (staffing(project=project).people, staffing(project=project).invited) == (4, 3)
    assert (
        "4 people label here and 3 are invited"
        in replace(staffing(project=project), most=9).rule_words
    )
    mine = project.invitations.filter(role=Role.ANNOTATOR)
    mine.filter(pk=mine[0].pk).update(expires_at=timezone.now())
    invitation_revoke(invitation=mine[1], by=ada)
    assert staffing(project=project).invited == 1


def test_persons_are_counted_in_english() -> None:
    numbers = (1, 2, 3, 4, 11, 12, 13, 21, 22)
    said = {n: Staffing(n - 1, 5, 3, {1: 1}).pairs_words for n in numbers}
    ends = {n: text.split(" a ", 1)[1].split(" person")[0] for n, text in said.items()}
    assert list(ends.values()) == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "22nd",
    ]


def places(comparison: Comparison) -> tuple[int, int]:
    """(its overlap, its places that are not withdrawn)."""
    comparison.refresh_from_db()
    return comparison.overlap, comparison.slots.exclude(state="withdrawn").count()


@pytest.mark.parametrize(("votes", "left"), [(2, (2, 2)), (4, (4, 4)), (1, (1, 1))])
def test_another_number_of_votes_is_applied_to_open_pairs(
    project: Project, ada: User, signed_in, votes: int, left: tuple[int, int]
) -> None:
    untouched, begun, decided = pairs_make(project, 3)
    people = annotators_make(project, 6)
    for person in people[:3]:
        slot = services.slot_lease_for(comparison=decided, annotator=person)
        key = f"{slot}-{person.pk}"
        services.vote_cast(
            slot=slot, annotator=person, idempotency_key=key, choice="a", lease_next=False
        )
    slot = services.slot_lease_for(comparison=begun, annotator=people[0])
    services.vote_cast(
        slot=slot, annotator=people[0], idempotency_key="begun", choice="a", lease_next=False
    )
    client = signed_in(ada)
    address = reverse("labeling:settings", args=[project.slug])
    form = client.get(address).context["form"]
    assert form["apply_overlap"].label == "Apply to the 2 open comparisons"
    assert form["apply_overlap"].value() is True
    filled = {field.html_name: field.value() for field in form}
    sent = {name: value for name, value in filled.items() if value is not False}
    sent |= {"overlap": votes}
    assert client.post(address, sent).status_code == 302
    assert places(untouched) == left
    # with as many votes as are asked for, and undecided, there is room for one more
    assert places(begun) == (max(votes, 2), max(votes, 2))
    assert places(decided) == (3, 3)
    told = AuditEvent.objects.get(action="labeling.overlap_applied").details
    assert (told["votes"], told["comparisons"]) == (votes, 2)
    assert told["places_added"] == 2 * max(0, votes - 3)


def test_without_the_tick_and_by_program_by_default_only_new_pairs_get_it(
    project: Project, ada: User, signed_in
) -> None:
    (pair,) = pairs_make(project, 1)
    address = f"/api/v1/projects/{project.slug}/labeling"
    client = signed_in(ada)
    said = client.patch(address, {"overlap": 2}, content_type="application/json")
    assert (said.status_code, places(pair)) == (200, (3, 3))
    client.patch(address, {"overlap": 1, "apply_overlap": True}, content_type="application/json")
    assert places(pair) == (1, 1)
