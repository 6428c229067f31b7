"""What a person has read, what they may get, and who may say so."""

import pytest

from apps.accounts.models import AuditEvent, Membership, Project, User
from apps.accounts.services import membership_pause, membership_resume
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.labeling import services
from apps.labeling.models import Annotator
from apps.labeling.services import NothingReason
from apps.labeling.services.eligibility import (
    annotator_disqualify,
    annotator_limits_set,
    annotator_qualify,
    guideline_acknowledge,
)
from tests.labeling.pairs import leased, pairs_make, rows_make, vote


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
