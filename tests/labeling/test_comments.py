"""Comments on comparisons, mentions, and questions from the pair."""

from collections.abc import Callable

import pytest
from django.core import mail
from django.test import Client

from apps.accounts.models import AuditEvent, Notice, Project, Role, User
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.labeling.models import Comment, Comparison
from apps.labeling.services import slot_lease_next
from apps.labeling.services.comments import (
    LONGEST_COMMENT,
    comment_add,
    comment_delete,
    comment_edit,
    question_ask,
)
from tests.labeling.pairs import annotators_make, leased, pairs_make, vote
from tests.people import person_make

SignedIn = Callable[[User], Client]


@pytest.fixture
def pair(project: Project, ana: User) -> Comparison:
    return pairs_make(project, 1)[0]


def told(user: User) -> list[str]:
    return list(Notice.objects.filter(user=user).order_by("pk").values_list("kind", flat=True))


def test_a_thread_is_for_reviewers_and_admins_and_shows_plain_text(
    pair: Comparison, rita: User, ada: User, emil: User, ana: User, signed_in: SignedIn
) -> None:
    page = f"/p/arguments/comparisons/{pair.pk}/"
    answer = signed_in(rita).post(f"{page}comments/", {"text": "<b>Why</b> is B shorter?"})
    assert answer.url == f"{page}#comments"
    for reader in (rita, ada):
        shown = signed_in(reader).get(page).content.decode()
        assert 'data-comment="comment"' in shown
        assert "&lt;b&gt;Why" in shown
    assert "data-comment" not in signed_in(emil).get(page).content.decode()
    for author in (emil, ana):
        with pytest.raises(Refused):
            comment_add(comparison=pair, author=author, text="Me too.")


@pytest.mark.parametrize("text", ["", "  \n", "x" * (LONGEST_COMMENT + 1)])
def test_a_bad_comment_marks_its_field_and_keeps_what_was_typed(
    text: str, pair: Comparison, ada: User, signed_in: SignedIn
) -> None:
    answer = signed_in(ada).post(f"/p/arguments/comparisons/{pair.pk}/comments/", {"text": text})
    assert answer.status_code == 422
    assert 'aria-invalid="true"' in answer.content.decode()
    assert not Comment.objects.exists()
    with pytest.raises(DomainError):
        comment_add(comparison=pair, author=ada, text=text)


def test_a_comment_is_changed_by_its_author_and_deleted_by_them_or_an_admin_on_the_record(
    project: Project, pair: Comparison, rita: User, ada: User
) -> None:
    mine = comment_add(comparison=pair, author=ada, text="Mine.")
    comment_edit(comment=mine, by=ada, text="Mine still.")
    assert mine.edited_at is not None
    with pytest.raises(Refused):
        comment_edit(comment=mine, by=rita, text="Ours.")
    with pytest.raises(Refused):
        comment_delete(comment=mine, by=rita)
    theirs = comment_add(comparison=pair, author=rita, text="Theirs.")
    comment_delete(comment=theirs, by=ada)
    comment_delete(comment=mine, by=ada)
    assert not Comment.objects.exists()
    events = AuditEvent.objects.filter(action="comment.deleted").order_by("pk")
    assert [event.details["author"]["person"] for event in events] == [rita.pk, ada.pk]
    assert {event.subject for event in events} == {pair.external_id}


def test_people_who_may_read_a_thread_hear_when_they_are_mentioned_and_nobody_else(
    project: Project,
    pair: Comparison,
    rita: User,
    ada: User,
    ana: User,
    olga: User,
    settings,
    django_capture_on_commit_callbacks,
) -> None:
    settings.EMAIL_URL = "smtp://mail.example.org"
    gone = person_make("Gil", project, Role.REVIEWER)
    gone.is_active = False
    gone.save()
    with django_capture_on_commit_callbacks(execute=True):
        said = comment_add(
            comparison=pair,
            author=ada,
            text="@Rita, look; so should @ana, @olga, @gil, @nobody and @ada. me@rita.org is mail.",
        )
    assert told(rita) == ["mention"]
    assert not any(told(person) for person in (ana, olga, gone, ada))
    assert [message.to for message in mail.outbox] == [["rita@example.org"]]
    assert f"/comparisons/{pair.pk}/#comments" in mail.outbox[0].body
    comment_edit(comment=said, by=ada, text="@rita, look again.")
    assert told(rita) == ["mention"]
    settings.EMAIL_URL = ""
    with django_capture_on_commit_callbacks(execute=True):
        comment_add(comparison=pair, author=ada, text="@rita.")
    assert told(rita) == ["mention", "mention"]
    assert len(mail.outbox) == 1


def test_a_question_from_the_pair_is_answered_by_the_bell_and_shows_no_votes(
    project: Project, pair: Comparison, ana: User, rita: User, ada: User, signed_in: SignedIn
) -> None:
    ben = annotators_make(project, 1)[0]
    vote(project, ben)
    lease, client = leased(project, ana), signed_in(ana)
    sent = client.post(
        "/p/arguments/label/ask/",
        {"slot": lease.slot, "text": "Does length count?"},
        headers={"HX-Request": "true"},
    )
    assert 'data-asked="yes"' in sent.content.decode()
    assert leased(project, ana).slot == lease.slot
    question = Comment.objects.get(kind="question")
    waiting = signed_in(rita).get("/p/arguments/questions/").content.decode()
    assert 'data-question="open"' in waiting
    assert "An annotator" in waiting
    assert "Ana" not in waiting
    assert "Ana" in signed_in(ada).get("/p/arguments/questions/").content.decode()
    overview = signed_in(rita).get("/api/v1/projects/arguments/overview").json()
    assert {need["key"]: need["n"] for need in overview["needs"]}["questions"] == 1
    signed_in(rita).post(
        f"/p/arguments/comparisons/{pair.pk}/comments/",
        {"text": "No, it does not.", "answers": question.pk},
    )
    comment_add(comparison=pair, author=rita, text="Ben chose A, by the way.")
    assert told(ana) == ["answer"]
    mine = client.get("/p/arguments/questions/").content.decode()
    assert "No, it does not." in mine
    assert "Ben chose" not in mine
    assert (
        'data-question="open"'
        not in signed_in(rita).get("/p/arguments/questions/").content.decode()
    )
    comment_delete(comment=Comment.objects.get(kind="answer"), by=rita)
    question.refresh_from_db()
    assert question.answered_at is None


def test_one_asks_about_ones_own_pairs_only_and_answers_questions_of_the_same_comparison_only(
    project: Project, ana: User, ada: User, rita: User
) -> None:
    first, second = pairs_make(project, 2)
    ben = annotators_make(project, 1)[0]
    lease = leased(project, ana)
    with pytest.raises(Missing):
        question_ask(project=project, annotator=ben, slot=lease.slot, text="Mine?")
    question = question_ask(project=project, annotator=ana, slot=lease.slot, text="Why?")
    other = second if question.comparison_id == first.pk else first
    with pytest.raises(Missing):
        comment_add(comparison=other, author=ada, text="So.", answers=question.pk)
    plain = comment_add(comparison=question.comparison, author=ada, text="Hm.")
    with pytest.raises(Conflict):
        comment_add(comparison=question.comparison, author=rita, text="So.", answers=plain.pk)
    vote(project, ana)
    question_ask(project=project, annotator=ana, slot=lease.slot, text="And afterwards?")
    assert Comment.objects.filter(kind="question").count() == 2


def test_the_same_by_programs(
    project: Project, pair: Comparison, ana: User, rita: User, ada: User, signed_in: SignedIn
) -> None:
    lease = slot_lease_next(project=project, annotator=ana)
    asked = signed_in(ana).post(
        "/api/v1/projects/arguments/questions",
        {"slot": lease.slot, "text": "Which?"},
        content_type="application/json",
    )
    assert asked.status_code == 201
    address = f"/api/v1/projects/arguments/comparisons/{pair.pk}/comments"
    answered = signed_in(rita).post(
        address,
        {"text": "The first.", "answers": asked.json()["id"]},
        content_type="application/json",
    )
    assert answered.status_code == 201
    [thread] = signed_in(ada).get(address).json()
    assert (thread["kind"], thread["who"]) == ("question", "Ana")
    assert [reply["text"] for reply in thread["replies"]] == ["The first."]
    [own] = signed_in(ana).get("/api/v1/projects/arguments/questions").json()
    assert own["replies"][0]["text"] == "The first."
    assert signed_in(rita).get("/api/v1/projects/arguments/questions").json() == []
