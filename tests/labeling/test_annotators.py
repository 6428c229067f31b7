"""The admin's list of annotators, and what can be done about one of them."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.services import membership_pause, membership_resume
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.labeling import services
from apps.labeling.models import Annotator, LabelingSettings, Vote
from apps.labeling.screens.annotators import annotators_list
from apps.labeling.services import NothingReason, eligibility
from apps.labeling.services.eligibility import (
    annotator_disqualify,
    annotator_limits_set,
    annotator_qualify,
    guideline_acknowledge,
)
from tests.labeling.pairs import (
    annotators_make,
    answer_all,
    leased,
    pairs_make,
    practice_make,
    qualified,
    rows_make,
    vote,
    votes_age,
)

SignIn = Callable[[User], Client]
PATH = "/p/arguments/annotators/"


def names(project: Project, **wanted: str) -> list[str]:
    return [row.user.username for row in annotators_list(project=project, **wanted)]


def test_everybody_who_labels_is_listed_with_their_numbers(
    project: Project, ana: User, rita: User, emil: User, ada: User
) -> None:
    pairs_make(project, 3)
    for choice in "ab":
        vote(project, ana, choice)
    old = Vote.objects.earliest("id").pk
    services.vote_revise(vote=old, annotator=ana, idempotency_key="again", choice="tie")
    rows = {row.user.username: row for row in annotators_list(project=project)}
    assert sorted(rows) == ["ada", "ana", "rita"]
    assert (rows["ana"].n_votes, rows["ana"].n_today) == (2, 2)
    assert (rows["rita"].n_votes, rows["rita"].last_seen) == (0, None)
    assert rows["ana"].last_seen == rows["ana"].last_vote is not None


def test_last_seen_is_the_later_of_signing_in_and_answering(project: Project, ana: User) -> None:
    pairs_make(project)
    vote(project, ana)
    soon = timezone.now() + timedelta(minutes=5)
    User.objects.filter(pk=ana.pk).update(last_login=soon)
    assert annotators_list(project=project).get().last_seen == soon


def test_people_of_imported_votes_are_counted_and_not_listed(
    project: Project, ada: User, signed_in: SignIn
) -> None:
    pairs_make(project, 1)
    rows = [{"comparison": "pair-1", "annotator": "w1", "choice": "a"}]
    services.votes_import(project=project, rows=rows)
    Membership.objects.get_or_create(
        project=project, user=User.objects.get(is_imported=True), defaults={"role": Role.ANNOTATOR}
    )
    assert names(project) == ["ada"]
    assert signed_in(ada).get(PATH).context["n_imported"] == 1


def test_the_states_filter_and_the_columns_sort(
    project: Project, ana: User, rita: User, ada: User
) -> None:
    pairs_make(project)
    vote(project, rita)
    membership_pause(project=project, user=rita, reason="Ill.", by=ada)
    services.guideline_publish(project=project, body="New.", by=ada, is_major=True)
    services.guideline_acknowledge(project=project, user=ana, version=2)
    services.annotator_limits_set(project=project, user=ada, by=ada, daily_cap=0)
    assert names(project, state="paused") == ["rita"]
    assert names(project, state="guideline") == ["rita"]  # Ana has read it, Ada wrote it
    assert names(project, state="unqualified") == ["ana"]
    assert names(project, state="limited") == ["ada"]
    assert names(project, sort="votes") == ["rita", "ada", "ana"]
    assert names(project, search="RIT") == ["rita"]


def test_a_filter_nobody_fits_says_so(project: Project, ada: User, signed_in: SignIn) -> None:
    html = signed_in(ada).get(f"{PATH}?q=nobody").content.decode()
    assert 'data-empty="funnel"' in html
    assert signed_in(ada).get(f"{PATH}?state=nonsense&sort=x&page=99").status_code == 200


def test_the_list_costs_the_same_for_three_people_and_for_thirty(
    project: Project, ada: User, signed_in: SignIn, django_assert_max_num_queries
) -> None:
    pairs_make(project)
    browser = signed_in(ada)
    browser.get(PATH)
    annotators_make(project, 30)
    with django_assert_max_num_queries(14):
        html = browser.get(PATH).content.decode()
    assert "31 people" in html


@pytest.fixture
def browser(project: Project, ana: User, ada: User, signed_in: SignIn) -> Client:
    rows = [row | {"topic": "law", "language": "en"} for row in rows_make(2)]
    services.comparisons_import(project=project, rows=rows)
    return signed_in(ada)


def test_limits_are_saved_from_the_page(browser: Client, ana: User) -> None:
    sent = {"daily_cap": "5", "topics": ["law"], "languages": []}
    assert browser.post(f"{PATH}{ana.pk}/limits/", sent).status_code == 302
    stored = Annotator.objects.get(user=ana)
    assert (stored.daily_cap, stored.topics, stored.languages) == (5, ["law"], [])
    html = browser.get(PATH).content.decode()
    assert "5 a day" in html
    assert "1 topic" in html


def test_a_wrong_limit_is_named_at_its_field_and_what_was_typed_stays(
    browser: Client, ana: User
) -> None:
    answer = browser.post(f"{PATH}{ana.pk}/limits/", {"daily_cap": "-3", "topics": ["cooking"]})
    assert answer.status_code == 422
    assert 'value="-3"' in answer.content.decode()
    assert set(answer.context["limits"].errors) == {"daily_cap", "topics"}
    assert Annotator.objects.get(user=ana).daily_cap is None


def test_a_person_is_paused_with_a_reason_and_resumed(browser: Client, ana: User) -> None:
    refused = browser.post(f"{PATH}{ana.pk}/pause/", {"reason": " "})
    assert refused.status_code == 422
    browser.post(f"{PATH}{ana.pk}/pause/", {"reason": "Call me."})
    assert "“Call me.”" in browser.get(f"{PATH}{ana.pk}/").content.decode()
    browser.post(f"{PATH}{ana.pk}/pause/", {"action": "resume"})
    assert not Membership.objects.get(user=ana).paused_reason


def test_an_admin_qualifies_by_hand_and_grants_attempts(
    browser: Client, project: Project, ana: User
) -> None:
    practice_make(project, qualification_attempts=1)
    answer_all(project, ana, [False] * 3)
    html = browser.get(f"{PATH}{ana.pk}/").content.decode()
    assert "1 of 1" in html
    browser.post(f"{PATH}{ana.pk}/qualification/", {"action": "grant"})
    browser.post(f"{PATH}{ana.pk}/qualification/", {"action": "qualify"})
    assert Annotator.objects.get(user=ana).qualified_at
    actions = AuditEvent.objects.filter(actor__username="ada").values_list("action", flat=True)
    assert {"qualification.granted", "annotator.qualified"} <= set(actions)
    assert browser.post(f"{PATH}{ana.pk}/qualification/", {"action": "x"}).status_code == 404


def test_too_few_practice_pairs_are_an_error_the_admin_sees(
    browser: Client, project: Project
) -> None:
    practice_make(project, 2)
    page = browser.get(PATH)
    assert (page.context["practice_wanted"], page.context["practice_ready"]) == (3, 2)
    assert 'role="alert"' in page.content.decode()


def test_somebody_who_does_not_label_has_no_page(browser: Client, emil: User) -> None:
    assert browser.get(f"{PATH}{emil.pk}/").status_code == 404


def test_people_at_work_are_qualified_at_once_and_newcomers_are_not(
    browser: Client, project: Project, ana: User, ben: User
) -> None:
    vote(project, ana)
    practice_make(project)
    assert browser.get(PATH).context["n_stopped"] == 1
    answer = browser.post(f"{PATH}qualify/", follow=True)
    assert "1 person qualified." in answer.content.decode()
    assert answer.context["n_stopped"] == 0
    assert qualified(project, ana)
    assert not qualified(project, ben)


# What a person has read, what they may get, and who may say so.


def publish(project: Project, ada: User, body: str, *, major: bool = True) -> int:
    return services.guideline_publish(project=project, body=body, by=ada, is_major=major).version


def reason(project: Project, user: User) -> NothingReason:
    got = services.slot_lease_next(project=project, annotator=user)
    assert isinstance(got, NothingReason), got
    return got


def test_a_major_version_waits_to_be_read_and_the_pair_in_hand_waits_with_it(
    project: Project, ana: User, ada: User
) -> None:
    pairs_make(project)
    before = leased(project, ana)
    version = publish(project, ada, "Read the sources too.")
    assert reason(project, ana).code == "guideline"
    guideline_acknowledge(project=project, user=ana, version=version)
    assert leased(project, ana).slot == before.slot


def test_a_minor_version_stops_nobody(project: Project, ana: User, ada: User) -> None:
    pairs_make(project)
    publish(project, ada, "A comma.", major=False)
    leased(project, ana)


def test_saying_it_twice_is_noted_once(project: Project, ana: User, ada: User) -> None:
    pairs_make(project)
    version = publish(project, ada, "New.")
    first = guideline_acknowledge(project=project, user=ana, version=version)
    again = guideline_acknowledge(project=project, user=ana, version=version)
    assert again.acknowledged_at == first.acknowledged_at
    event = AuditEvent.objects.get(action="guideline.acknowledged")
    assert (event.actor, event.details) == (ana, {"version": version})


def test_the_current_text_after_a_major_version_counts_for_it(
    project: Project, ana: User, ada: User
) -> None:
    pairs_make(project)
    publish(project, ada, "New.")
    version = publish(project, ada, "New, with a comma.", major=False)
    guideline_acknowledge(project=project, user=ana, version=version)
    leased(project, ana)


def test_a_version_that_a_newer_major_one_replaced_is_not_enough(
    project: Project, ana: User, ada: User
) -> None:
    pairs_make(project)
    opened = publish(project, ada, "New.")
    newest = publish(project, ada, "Newer.")
    with pytest.raises(Conflict, match=f"Version {newest} .* has come out"):
        guideline_acknowledge(project=project, user=ana, version=opened)
    assert reason(project, ana).code == "guideline"


def test_a_version_that_does_not_exist_cannot_be_acknowledged(project: Project, ana: User) -> None:
    pairs_make(project)
    with pytest.raises(DomainError, match="no version 9"):
        guideline_acknowledge(project=project, user=ana, version=9)


def test_outsiders_and_engineers_acknowledge_nothing(
    project: Project, emil: User, olga: User
) -> None:
    pairs_make(project)
    with pytest.raises(Missing):
        guideline_acknowledge(project=project, user=olga, version=1)
    with pytest.raises(Refused):
        guideline_acknowledge(project=project, user=emil, version=1)


def topics_make(project: Project) -> None:
    rows = rows_make(2)
    rows[0] |= {"topic": "law", "language": "en"}
    rows[1] |= {"topic": "cooking", "language": "de"}
    services.comparisons_import(project=project, rows=rows)


def test_a_person_limited_to_a_topic_gets_no_other(project: Project, ana: User, ada: User) -> None:
    topics_make(project)
    annotator_limits_set(project=project, user=ana, by=ada, daily_cap=None, topics=["cooking"])
    assert "Question 2" in leased(project, ana).prompt[0]["content"]
    vote(project, ana)
    assert reason(project, ana).code != "all_done"


def test_a_person_limited_to_a_language_gets_no_other(
    project: Project, ana: User, ada: User
) -> None:
    topics_make(project)
    annotator_limits_set(project=project, user=ana, by=ada, daily_cap=None, languages=["en"])
    assert "Question 1" in leased(project, ana).prompt[0]["content"]


@pytest.mark.parametrize(("field", "value"), [("topics", ["lwa"]), ("languages", ["xx", ""])])
def test_a_topic_or_language_that_no_prompt_has_is_refused(
    project: Project, ana: User, ada: User, field: str, value: list[str]
) -> None:
    topics_make(project)
    with pytest.raises(DomainError) as refused:
        annotator_limits_set(project=project, user=ana, by=ada, daily_cap=None, **{field: value})
    assert refused.value.field == field
    assert not AuditEvent.objects.filter(action="annotator.limited").exists()


def test_a_daily_cap_of_their_own_stops_a_person_and_only_them(
    project: Project, ana: User, ben: User, ada: User
) -> None:
    pairs_make(project)
    annotator_limits_set(project=project, user=ana, by=ada, daily_cap=1)
    vote(project, ana)
    assert reason(project, ana).code == "daily_cap"
    vote(project, ben)
    leased(project, ben)


def test_the_projects_quota_of_answers_stops_everybody_until_they_are_older(
    project: Project, ana: User, ben: User, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eligibility, "_COUNT_SECONDS", -1.0)
    pairs_make(project, votes_quota=2)
    vote(project, ana)
    vote(project, ben)
    nothing = reason(project, ben)
    assert (nothing.code, "2 answers" in nothing.text) == ("quota", True)
    settings.PROJECT_VOTES = 1
    LabelingSettings.objects.update(votes_quota=0)
    assert reason(project, ben).code == "quota", "the site's holds where the project has none"
    votes_age(31)
    leased(project, ben)


def test_limits_that_change_nothing_leave_no_trace(project: Project, ana: User, ada: User) -> None:
    pairs_make(project)
    for _ in range(2):
        annotator_limits_set(project=project, user=ana, by=ada, daily_cap=7)
    events = AuditEvent.objects.filter(action="annotator.limited")
    assert [event.details for event in events] == [{"daily_cap": [None, 7]}]


def test_a_cap_below_zero_is_refused(project: Project, ana: User, ada: User) -> None:
    with pytest.raises(DomainError, match="Between 0"):
        annotator_limits_set(project=project, user=ana, by=ada, daily_cap=-1)


def test_somebody_qualified_by_hand_labels_until_it_is_taken_back(
    project: Project, ana: User, ada: User
) -> None:
    pairs_make(project, qualification_pairs=3)
    assert reason(project, ana).code == "qualification"
    annotator_qualify(project=project, user=ana, by=ada)
    leased(project, ana)
    annotator_disqualify(project=project, user=ana, by=ada)
    assert Annotator.objects.get(project=project, user=ana).qualified_at is None
    assert reason(project, ana).code == "qualification"


def test_a_paused_person_reads_why_until_they_are_resumed(
    project: Project, ana: User, ada: User
) -> None:
    pairs_make(project)
    membership_pause(project=project, user=ana, reason=" Please call me. ", by=ada)
    assert "Please call me." in reason(project, ana).text
    membership_resume(project=project, user=ana, by=ada)
    membership_resume(project=project, user=ana, by=ada)
    leased(project, ana)
    done = AuditEvent.objects.filter(action__startswith="membership.").order_by("pk")
    assert list(done.values_list("action", flat=True)) == [
        "membership.paused",
        "membership.resumed",
    ]


@pytest.mark.parametrize("text", ["  ", "x" * 301, "a\x00b"])
def test_a_pause_needs_a_reason_that_can_be_read(
    project: Project, ana: User, ada: User, text: str
) -> None:
    with pytest.raises(DomainError) as refused:
        membership_pause(project=project, user=ana, reason=text, by=ada)
    assert refused.value.field == "reason"
    assert not Membership.objects.get(project=project, user=ana).paused_reason
