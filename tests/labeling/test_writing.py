"""Writing work: who gets a place, drafts, submitted versions, reviews by another person."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client

from apps.accounts.models import AuditEvent, Membership, Notice, Project, Role, User
from apps.accounts.services import person_erase
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.labeling import services as labeling
from apps.labeling.formats.prompts import MOST_BYTES, prompts_read
from apps.labeling.models import (
    Annotator,
    Guideline,
    LabelingSettings,
    Prompt,
    Slot,
    Task,
    WrittenDraft,
    WrittenText,
    WrittenVersion,
)
from apps.labeling.personal_data import KINDS
from apps.labeling.selectors import writing as reads
from apps.labeling.services import writing as services
from apps.labeling.services.leasing import writing_lease_next, writing_left
from apps.labeling.services.results import Lease, NothingReason
from tests.labeling.pairs import annotators_make, lapse, leased, pairs_make
from tests.labeling.writing import ROWS, accepted, batch_make, submitted, taken
from tests.people import person_make


def refused(code: str, act: Any, *given: Any, **named: Any) -> DomainError:
    with pytest.raises(DomainError) as caught:
        act(*given, **named)
    assert caught.value.code == code, caught.value.message
    return caught.value


def why_nothing(project: Project, user: User) -> str:
    got = writing_lease_next(project=project, annotator=user)
    assert isinstance(got, NothingReason), got
    return got.code


@pytest.fixture
def ben(project: Project) -> User:
    return person_make("Ben", project, Role.ANNOTATOR)


def review(
    text: WrittenText, reviewer: User, verdict: str = "accepted", **more: Any
) -> WrittenText:
    given = {"version": text.versions.count(), "verdict": verdict} | more
    return services.text_review(text=text.pk, reviewer=reviewer, **given)


# Asking for texts.


def test_each_prompt_becomes_a_task_with_its_places(project: Project, emil: User) -> None:
    batch = batch_make(project, emil, per_task=2, licence="CC0-1.0")
    assert Task.objects.filter(project=project, kind="write").count() == 3
    assert batch.texts.count() == 6
    assert set(Slot.objects.filter(project=project).values_list("kind", "state")) == {
        ("write", "free")
    }
    assert Prompt.objects.get(project=project, topic="physics").group_key == "sky"
    event = AuditEvent.objects.get(action="writing.batch_created")
    assert (event.subject, event.details["texts"]) == (batch.pk, 6)
    assert Notice.objects.filter(project=project, kind="writing").count() == 1


def test_prompts_of_the_project_are_asked_about_once(project: Project) -> None:
    batch_make(project)
    Prompt.objects.create(
        project=project,
        messages=[{"role": "user", "content": "New?"}],
        text_hash="x",
        group_key="g",
    )
    free = reads.prompts_free(project=project, most=10)
    assert len(free) == 1
    batch_make(project, prompts=[], prompt_ids=free, name="More")
    assert reads.prompts_free(project=project, most=10) == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": " "}, "name"),
        ({"name": "a\x00"}, "name"),
        ({"name": "n" * 121}, "name"),
        ({"prompts": []}, "prompts"),
        ({"prompts": [{"prompt": "a\x00b"}]}, "prompts"),
        ({"prompts": [{"prompt": "Fine?"}, {"prompt": ""}]}, "prompts"),
        ({"prompts": [{"prompt": "Fine?", "topic": "t" * 201}]}, "prompts"),
        ({"prompts": [{"prompt": [{"role": "assistant", "content": "Hm."}]}]}, "prompts"),
        ({"prompts": [{"prompt": f"Look: ![a cat](image:{'0' * 64})"}]}, "prompts"),
        ({"least_characters": 10, "most_characters": 9}, "most_characters"),
        ({"per_task": 0}, "per_task"),
        ({"per_task": 100, "prompts": [{"prompt": f"Number {n}?"} for n in range(51)]}, "prompts"),
        ({"review": "cat"}, "review"),
        ({"kind": "poems"}, "kind"),
        ({"kind": "prompts", "instruction": ""}, "instruction"),
        ({"kind": "prompts", "instruction": "Riddles.", "n_prompts": 0}, "n_prompts"),
    ],
)
def test_a_bad_request_names_its_field_and_leaves_nothing(
    project: Project, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(DomainError) as caught:
        batch_make(project, **given)
    assert caught.value.field == field
    assert not reads.has_writing(project)
    assert not Task.objects.exists()
    assert not Prompt.objects.exists()


# Having a place.


def test_a_place_is_one_persons_and_reloading_gives_the_same(
    project: Project, ana: User, ben: User
) -> None:
    batch_make(project, prompts=ROWS[:1])
    mine = taken(project, ana)
    assert taken(project, ana) == mine
    assert why_nothing(project, ben) == "held"
    lapse(mine.slot_id)
    assert taken(project, ben) == mine
    refused("lease_lost", submitted, mine, ana)


def test_a_person_writes_one_answer_to_a_prompt_and_several_prompts(
    project: Project, ana: User
) -> None:
    batch_make(project, prompts=ROWS[:1], per_task=2)
    submitted(taken(project, ana), ana)
    assert why_nothing(project, ana) == "yours_done"
    batch_make(project, kind="prompts", name="Riddles", instruction="A riddle.", n_prompts=2)
    submitted(taken(project, ana), ana, "What has keys?")
    submitted(taken(project, ana), ana, "What has teeth?")


def test_pairs_and_texts_do_not_get_in_each_others_way(project: Project, ana: User) -> None:
    pairs_make(project, 2)
    batch_make(project)
    text = taken(project, ana)
    pair = leased(project, ana)
    assert pair.kind == "pair"
    assert leased(project, ana).slot == pair.slot
    assert taken(project, ana) == text
    with pytest.raises(Missing):
        labeling.vote_cast(slot=text.slot_id, annotator=ana, idempotency_key="k", choice="a")
    with pytest.raises(Missing):
        labeling.slot_skip(slot=text.slot_id, annotator=ana)
    status = labeling.labeling_status(project=project, annotator=ana)
    assert status.leased_until == pair.leased_until


def test_who_may_not_label_may_not_write(
    project: Project, ana: User, emil: User, olga: User
) -> None:
    batch_make(project)
    with pytest.raises(Refused):
        writing_lease_next(project=project, annotator=emil)
    with pytest.raises(Missing):
        writing_lease_next(project=project, annotator=olga)
    LabelingSettings.objects.create(
        project=project, data_statement="For models.", data_statement_version=1
    )
    assert why_nothing(project, ana) == "consent"
    Annotator.objects.filter(user=ana).update(consent_version=1)
    Guideline.objects.create(project=project, version=2, body="New.", is_major=True)
    assert why_nothing(project, ana) == "guideline"
    Annotator.objects.filter(user=ana).update(acknowledged_version=2)
    LabelingSettings.objects.update(qualification_pairs=3)
    assert why_nothing(project, ana) == "qualification"
    LabelingSettings.objects.update(qualification_pairs=0, daily_cap=1)
    submitted(taken(project, ana), ana)
    assert why_nothing(project, ana) == "daily_cap"
    Membership.objects.filter(user=ana).update(paused_reason="a pause")
    assert why_nothing(project, ana) == "paused"


def test_texts_count_against_the_projects_quota(
    project: Project, ana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labeling.eligibility, "_lately", {})
    LabelingSettings.objects.create(project=project, votes_quota=1)
    batch_make(project)
    submitted(taken(project, ana), ana)
    labeling.eligibility._lately.clear()
    assert why_nothing(project, ana) == "quota"


def test_a_persons_topics_and_choices_hold_for_texts(project: Project, ana: User) -> None:
    batch_make(project)
    Annotator.objects.filter(user=ana).update(topics=["biology"])
    assert taken(project, ana).slot.topic == "biology"
    assert writing_left(project=project, annotator=ana).n_free == 0
    Annotator.objects.filter(user=ana).update(topics=[], avoids_topics=["physics"])
    left = writing_left(project=project, annotator=ana)
    assert (left.n_held, left.n_free) == (1, 1)


def test_a_closed_batch_hands_out_nothing_and_leaves_what_is_held(
    project: Project, ana: User, ben: User, emil: User
) -> None:
    batch = batch_make(project, emil)
    mine = taken(project, ana)
    services.writing_batch_open(batch=batch, is_open=False, by=emil)
    assert why_nothing(project, ben) == "yours_done"
    assert taken(project, ana) == mine
    services.text_pass_on(text=mine.pk, author=ana, reason="Not my subject")
    assert why_nothing(project, ben) == "yours_done"
    services.writing_batch_open(batch=batch, is_open=True, by=emil)
    assert taken(project, ben) == mine
    actions = AuditEvent.objects.filter(subject=batch.pk).values_list("action", flat=True)
    assert {"writing.batch_closed", "writing.batch_opened"} <= set(actions)


def test_a_text_passed_on_goes_to_others_and_not_back(
    project: Project, ana: User, ben: User
) -> None:
    batch_make(project, prompts=ROWS[:1])
    text = taken(project, ana)
    services.draft_save(text=text.pk, author=ana, body="Half")
    services.text_pass_on(text=text.pk, author=ana, reason="Not my subject")
    services.text_pass_on(text=text.pk, author=ana)  # again
    assert not WrittenDraft.objects.exists()
    assert why_nothing(project, ana) == "yours_done"
    assert taken(project, ben) == text
    assert text.slot.task.skips.get().reason == "Not my subject"
    error = refused("invalid", services.text_pass_on, text=text.pk, author=ben, reason="r" * 301)
    assert error.field == "reason"


@pytest.mark.django_db(transaction=True)
def test_people_who_ask_at_once_never_get_the_same_place() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    people = annotators_make(project, 6)
    batch_make(project, prompts=[{"prompt": f"Question {n}?"} for n in range(4)])
    start = Barrier(len(people))

    def take(user: User) -> int | None:
        try:
            start.wait(timeout=30)
            got = writing_lease_next(project=project, annotator=user)
            return got.slot if isinstance(got, Lease) else None
        finally:
            connection.close()

    with ThreadPoolExecutor(len(people)) as pool:
        slots = [slot for slot in pool.map(take, people) if slot is not None]
    assert len(slots) == len(set(slots)) == 4


# Drafts.


def test_an_older_draft_does_not_overwrite_a_newer_one(project: Project, ana: User) -> None:
    batch_make(project)
    text = taken(project, ana)

    def save(body: str, number: int, editor: str) -> int:
        kept = services.draft_save(
            text=text.pk, author=ana, body=body, number=number, editor=editor
        )
        return kept.number

    assert save("One", 0, "tab-1") == 1
    assert save("One two", 1, "tab-1") == 2
    assert save("One two three", 1, "tab-1") == 3  # the page overtook its own answer
    assert save("Other", 3, "tab-2") == 4
    error = refused("draft_newer", save, "One two three four", 3, "tab-1")
    assert error.details == {"number": 4}
    assert WrittenDraft.objects.get().body == "Other"
    refused("draft_newer", submitted, text, ana, "One two three four", number=3, editor="tab-1")
    assert not WrittenVersion.objects.exists()
    assert save("One two three four", 4, "tab-1") == 5  # seen, and meant
    submitted(text, ana, "One two three four", number=5, editor="tab-1")
    assert not WrittenDraft.objects.exists()


def test_a_draft_keeps_the_place(project: Project, ana: User, ben: User) -> None:
    batch_make(project, prompts=ROWS[:1])
    text = taken(project, ana)
    lapse(text.slot_id)
    services.draft_save(text=text.pk, author=ana, body="Still here")
    assert why_nothing(project, ben) == "held"
    refused("lease_lost", services.draft_save, text=text.pk, author=ben, body="Mine")
    error = refused("invalid", services.draft_save, text=text.pk, author=ana, body="a\x00")
    assert error.field == "body"
    error = refused("invalid", services.draft_save, text=text.pk, author=ana, body="a" * 400_001)
    assert error.field == "body"


def test_outsiders_know_of_no_text(project: Project, ana: User, olga: User) -> None:
    batch_make(project)
    text = taken(project, ana)
    for act in (
        lambda: services.draft_save(text=text.pk, author=olga, body="x"),
        lambda: submitted(text, olga),
        lambda: services.text_pass_on(text=text.pk, author=olga),
        lambda: services.text_review(text=text.pk, reviewer=olga, version=1, verdict="accepted"),
    ):
        with pytest.raises(Missing):
            act()


# Submitting.


def test_the_same_submit_twice_is_one_version(project: Project, ana: User) -> None:
    batch_make(project)
    text = taken(project, ana)
    first = services.text_submit(text=text.pk, author=ana, body="Blue.", idempotency_key="k1")
    again = services.text_submit(text=text.pk, author=ana, body="Blue.", idempotency_key="k1")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.version == first.version
    assert WrittenVersion.objects.count() == 1
    assert Annotator.objects.get(user=ana).votes_of_day == 1
    refused("key_reused", submitted, text, ana, "Red.", idempotency_key="k1")
    refused("lease_lost", submitted, text, ana, "Red.", idempotency_key="k2")


@pytest.mark.django_db(transaction=True)
def test_two_submits_at_once_are_one_version() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    [ana] = annotators_make(project, 1)
    batch_make(project)
    text, start = taken(project, ana), Barrier(2)

    def send(_: int) -> bool:
        try:
            start.wait(timeout=30)
            return services.text_submit(
                text=text.pk, author=ana, body="Blue.", idempotency_key="k"
            ).replayed
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(send, range(2))) == [False, True]
    assert WrittenVersion.objects.count() == 1


@pytest.mark.parametrize(
    "body", ["", "   \n", "Too short", "x" * 61, "A NUL \x00 is in this one here"]
)
def test_a_text_that_is_none_is_refused_by_its_field(
    project: Project, ana: User, body: str
) -> None:
    batch_make(project, least_characters=10, most_characters=60)
    text = taken(project, ana)
    assert refused("invalid", submitted, text, ana, body).field == "body"
    assert WrittenText.objects.get(pk=text.pk).state == "open"


def test_personal_data_is_shown_to_the_author_first_and_reviewed_always(
    project: Project, ana: User
) -> None:
    LabelingSettings.objects.create(project=project, constraint_phrases=["trust me"])
    batch_make(project, review="none")
    text = taken(project, ana)
    error = refused("personal_data", submitted, text, ana, "Write to jo.doe@corp.com.")
    assert error.field == "body"
    assert "jo.doe" not in error.message
    version = submitted(text, ana, "Write to jo.doe@corp.com.", confirmed=True)
    assert version.warnings == ["email:j•••@c•••.com"]
    assert version.text.state == "waiting"
    text = taken(project, ana)
    blocked = submitted(text, ana, "Trust  me, it is blue.")
    assert blocked.warnings == ["phrase:trust me"]
    assert blocked.text.state == "waiting"
    plain = submitted(taken(project, ana), ana, "It is blue.")
    assert (plain.warnings, plain.text.state) == ([], "accepted")


def test_every_kind_of_personal_data_has_its_words() -> None:
    assert set(services.FOUND) == {*KINDS, services.PHRASE}


def test_an_accepted_prompt_is_one_of_the_project_and_written_once(
    project: Project, ana: User, rita: User
) -> None:
    batch_make(
        project, kind="prompts", name="Riddles", instruction="A riddle.", n_prompts=3, topic="fun"
    )
    text = accepted(project, ana, rita, "What has keys?")
    made = text.made_prompt
    assert made is not None
    assert (made.topic, made.source, made.metadata) == (
        "fun",
        "Riddles",
        {"writing": text.batch_id},
    )
    text = taken(project, ana)
    assert refused("known_prompt", submitted, text, ana, "What has keys?").field == "body"
    assert made.pk in reads.prompts_free(project=project, most=10)


# Review.


def test_nobody_reviews_their_own_text(project: Project, rita: User, ada: User) -> None:
    batch_make(project)
    text = taken(project, rita)
    version = submitted(text, rita)
    refused("own_text", review, text, rita)
    with pytest.raises(IntegrityError, match="reviewed_by_another"), transaction.atomic():
        WrittenVersion.objects.filter(pk=version.pk).update(
            verdict="accepted", reviewed_by=rita, reviewed_at=version.submitted_at
        )
    assert review(text, ada).state == "accepted"


def test_annotators_review_where_the_batch_says_so(
    project: Project, ana: User, ben: User, emil: User
) -> None:
    batch_make(project)
    text = taken(project, ana)
    submitted(text, ana)
    with pytest.raises(Refused):
        review(text, ben)
    text.batch.review = "peers"
    text.batch.save()
    assert reads.reviewable(project=project, user=ana, role="annotator").count() == 0
    assert reads.reviewable(project=project, user=ben, role="annotator").count() == 1
    assert review(text, ben).state == "accepted"
    again = taken(project, ana)
    submitted(again, ana)
    assert review(again, emil).state == "accepted"


def test_an_edit_is_another_version_with_its_own_author(
    project: Project, ana: User, rita: User
) -> None:
    batch_make(project)
    text = taken(project, ana)
    submitted(text, ana, "The sky is blu.")
    done = review(text, rita, "edited", body="The sky is blue.")
    assert (done.state, done.n_versions, done.author) == ("accepted", 2, ana)
    first, second = reads.versions_of(text)
    assert (first.verdict, first.reviewed_by, first.body) == ("edited", rita, "The sky is blu.")
    assert (second.author, second.edits, second.body) == (rita, first, "The sky is blue.")
    event = AuditEvent.objects.get(action="writing.reviewed")
    assert event.details["verdict"] == "edited"
    assert review(text, rita, "edited", version=1, body="Other") == text  # again
    assert text.versions.count() == 2


def test_a_text_sent_back_is_its_authors_again_with_the_reason(
    project: Project, ana: User, ben: User, rita: User
) -> None:
    batch_make(project, prompts=ROWS[:1])
    text = taken(project, ana)
    submitted(text, ana, "Because.")
    assert refused("invalid", review, text, rita, "rejected").field == "reason"
    error = refused("invalid", review, text, rita, "rejected", reason="r" * 1001)
    assert error.field == "reason"
    review(text, rita, "rejected", reason="Say why.")
    assert Notice.objects.get(kind="returned").user == ana
    assert why_nothing(project, ben) == "held"
    again = taken(project, ana)
    assert (again.pk, again.state, again.n_versions) == (text.pk, "rejected", 1)
    assert WrittenDraft.objects.get(text=text, author=ana).body == "Because."
    submitted(again, ana, "Because light is scattered.")
    assert Annotator.objects.get(user=ana).votes_of_day == 1  # the same work
    assert review(text, rita).n_versions == 2


def test_a_text_sent_back_goes_to_others_where_its_author_is_gone(
    project: Project, ana: User, ben: User, rita: User, django_capture_on_commit_callbacks: Any
) -> None:
    batch_make(project, prompts=ROWS[:1])
    text = taken(project, ana)
    submitted(text, ana)
    with django_capture_on_commit_callbacks(execute=True):
        Membership.objects.get(user=ana).delete()
    done = review(text, rita, "rejected", reason="Longer.")
    assert (done.state, done.author) == ("open", None)
    assert taken(project, ben) == text
    with django_capture_on_commit_callbacks(execute=True):
        Membership.objects.get(user=ben).delete()
    assert Slot.objects.get(pk=text.slot_id).state == "free"
    version = submitted(taken(project, rita), rita, "Longer now.")
    assert (version.number, version.author) == (2, rita)


def test_a_text_sent_back_goes_to_others_where_its_author_lets_the_time_pass(
    project: Project, ana: User, ben: User, rita: User
) -> None:
    batch_make(project, prompts=ROWS[:1])
    text = taken(project, ana)
    submitted(text, ana)
    review(text, rita, "rejected", reason="Longer.")
    lapse(text.slot_id)
    again = taken(project, ben)
    assert (again.pk, again.state, again.author) == (text.pk, "open", None)
    refused("lease_lost", services.draft_save, text=text.pk, author=ana, body="Late")
    assert submitted(again, ben, "Longer now.").number == 2


def test_one_of_two_reviewers_is_first(project: Project, ana: User, rita: User, ada: User) -> None:
    batch_make(project)
    text = taken(project, ana)
    submitted(text, ana)
    review(text, rita, "rejected", reason="Why?")
    refused("reviewed_already", review, text, ada)
    submitted(text, ana, "New words.", idempotency_key="second")
    refused("reviewed_already", review, text, ada, version=1)
    assert review(text, ada).state == "accepted"


@pytest.mark.django_db(transaction=True)
def test_two_verdicts_at_once_are_one() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    [ana] = annotators_make(project, 1)
    reviewers = [person_make(name, project, Role.REVIEWER) for name in ("Rita", "Rosa")]
    batch_make(project)
    text, start = taken(project, ana), Barrier(2)
    submitted(text, ana)

    def send(reviewer: User) -> str:
        try:
            start.wait(timeout=30)
            verdict = "accepted" if reviewer == reviewers[0] else "rejected"
            review(text, reviewer, verdict, version=1, reason="Hm.")
        except Conflict as error:
            return error.code
        finally:
            connection.close()
        return "done"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(send, reviewers)) == ["done", "reviewed_already"]


def test_a_version_is_never_overwritten(project: Project, ana: User, rita: User) -> None:
    batch_make(project)
    text = accepted(project, ana, rita, "Blue.")
    for change in ({"body": "Red."}, {"author": rita}, {"verdict": "rejected", "reason": "No."}):
        with pytest.raises(IntegrityError), transaction.atomic():
            WrittenVersion.objects.filter(text=text).update(**change)


# Erasure.


def test_an_erased_authors_words_go_and_their_texts_are_withdrawn(
    project: Project, ana: User, rita: User, ada: User
) -> None:
    batch_make(project)
    text = accepted(project, ana, rita, "Blue.")
    held = taken(project, ana)
    services.draft_save(text=held.pk, author=ana, body="Half")
    person_erase(user=ana, by=ada, votes="keep", remarks="remove")
    text.refresh_from_db()
    assert text.state == "withdrawn"
    assert text.versions.get().body == "(removed)"
    assert not WrittenDraft.objects.exists()
    assert Slot.objects.get(pk=held.slot_id).state == "free"


def test_an_erased_author_may_leave_their_texts(
    project: Project, ana: User, rita: User, ada: User
) -> None:
    batch_make(project)
    text = accepted(project, ana, rita, "Blue, says Ana.")
    person_erase(user=ana, by=ada, votes="keep", remarks="keep")
    text.refresh_from_db()
    assert text.state == "accepted"
    assert text.versions.get().body == "Blue, says Ana."


def test_names_of_others_leave_the_reasons_of_reviews(
    project: Project, ana: User, rita: User, ada: User
) -> None:
    batch_make(project)
    text = taken(project, ana)
    submitted(text, ana)
    review(text, rita, "rejected", reason="Ask ana@example.org why.")
    person_erase(user=ana, by=ada, votes="keep", remarks="keep")
    assert text.versions.get().reason == f"Ask erased person {ana.pk} why."


# Pages.


SignIn = Callable[[User], Client]
ROOT = "/p/arguments"


def test_a_text_is_written_submitted_and_accepted_on_the_pages(
    project: Project, ana: User, rita: User, emil: User, signed_in: SignIn
) -> None:
    engineer, writer, reviewer = (signed_in(user) for user in (emil, ana, rita))
    sent = {
        "name": "Answers",
        "kind": "demonstrations",
        "instruction": "Be **brief**.",
        "source": "lines",
        "lines": "Why is the sky blue?\n\nWhy is grass green?",
        "review": "staff",
        "least_characters": "5",
        "most_characters": "100",
    }
    assert "/writing/" in engineer.post(f"{ROOT}/writing/new/", sent)["Location"]
    work = writer.get("/my-work/").content.decode()
    assert "2 texts to write" in work
    page = writer.get(f"{ROOT}/write/").content.decode()
    assert "Why is the sky blue?" in page
    assert "<strong>brief</strong>" in page
    text = reads.held_by(project=project, user=ana).get()
    drafted = writer.post(
        f"{ROOT}/write/{text.pk}/draft/", {"body": "Light", "draft": "0", "editor": "tab-1"}
    )
    assert 'name="draft" value="1"' in drafted.content.decode()
    other = writer.post(
        f"{ROOT}/write/{text.pk}/draft/", {"body": "Older", "draft": "0", "editor": "tab-2"}
    ).content.decode()
    assert "A newer draft" in other
    assert WrittenDraft.objects.get().body == "Light"
    given = {"body": "Light", "draft": "1", "editor": "tab-1", "key": "k1"}
    short = writer.post(f"{ROOT}/write/{text.pk}/submit/", given | {"body": "No"})
    assert short.status_code == 400
    assert "No</textarea>" in short.content.decode()
    for _again in range(2):  # a double click, or a browser that asks again after a crash
        done = writer.post(f"{ROOT}/write/{text.pk}/submit/", given)
        assert (done.status_code, done["Location"]) == (302, f"{ROOT}/write/")
    assert WrittenVersion.objects.count() == 1
    assert "Why is grass green?" in writer.get(f"{ROOT}/write/").content.decode()
    assert "waiting for review" in writer.get(f"{ROOT}/write/mine/").content.decode()
    own = writer.get(f"{ROOT}/write/{text.pk}/").content.decode()
    assert "Your review" not in own
    assert "Why is the sky blue?" in reviewer.get(f"{ROOT}/write/review/").content.decode()
    assert "Your review" in reviewer.get(f"{ROOT}/write/{text.pk}/").content.decode()
    verdict = {"version": "1", "verdict": "edited", "body": "Light is scattered."}
    assert reviewer.post(f"{ROOT}/write/{text.pk}/review/", verdict).status_code == 302
    text.refresh_from_db()
    assert text.state == "accepted"
    own = writer.get(f"{ROOT}/write/{text.pk}/").content.decode()
    assert "<ins>" in own
    assert "Rita" not in own
    listed = engineer.get(f"{ROOT}/writing/{text.batch_id}/?state=accepted").content.decode()
    assert "Light is scattered." in listed
    assert "Ana" not in listed


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"source": "lines", "lines": " "}, "Write a prompt a line."),
        ({"source": "file"}, "Choose a file."),
        ({"source": "project"}, "No prompt of the project is left"),
        ({"least_characters": "9", "most_characters": "8"}, "no maximum under the minimum"),
        ({"kind": "prompts"}, "Say what prompts are wanted."),
    ],
)
def test_what_is_wrong_with_writing_work_is_said_beside_its_field(
    project: Project, emil: User, signed_in: SignIn, sent: dict[str, str], said: str
) -> None:
    given = {
        "name": "Answers",
        "kind": "demonstrations",
        "source": "lines",
        "lines": "Why?",
        "review": "staff",
        "least_characters": "1",
        "most_characters": "100",
        "n_prompts": "3",
    }
    answer = signed_in(emil).post(f"{ROOT}/writing/new/", given | sent)
    assert answer.status_code == 422
    html = answer.content.decode()
    assert said in html
    assert 'value="Answers"' in html
    assert not reads.has_writing(project)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", "Why?\nHow?\n"),
        ("p.csv", 'prompt,topic,extra\nWhy?,a,x\n"How?",b,y\n'),
        ("p.jsonl", '{"prompt": "Why?"}\n\n{"prompt": [{"role": "user", "content": "How?"}]}\n'),
    ],
)
def test_a_file_of_prompts_is_read(name: str, content: str) -> None:
    assert len(prompts_read(name, content.encode())) == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", b"\xff\xfe"),
        ("p.csv", b"question\nWhy?\n"),
        ("p.csv", b'prompt\n"Why\n'),
        ("p.jsonl", b"{}\n"),
        ("p.jsonl", b"[" * 100_000),
        ("p.txt", b"x" * (MOST_BYTES + 1)),
    ],
)
def test_a_file_that_holds_none_is_refused_by_its_field(name: str, content: bytes) -> None:
    with pytest.raises(DomainError) as caught:
        prompts_read(name, content)
    assert caught.value.field == "file"


def test_a_text_of_others_is_not_there_for_annotators(
    project: Project, ana: User, ben: User, olga: User, signed_in: SignIn
) -> None:
    batch_make(project)
    text = taken(project, ana)
    submitted(text, ana)
    for user in (ben, olga):
        client = signed_in(user)
        assert client.get(f"{ROOT}/write/{text.pk}/").status_code == 404
        sent = {"version": "1", "verdict": "accepted"}
        assert client.post(f"{ROOT}/write/{text.pk}/review/", sent).status_code == 404


def test_hostile_markdown_is_shown_as_text(project: Project, ana: User, signed_in: SignIn) -> None:
    batch_make(project)
    body = "<script>alert(1)</script> [x](javascript:alert(1))"
    html = signed_in(ana).post(f"{ROOT}/write/preview/", {"body": body}).content.decode()
    assert "<script" not in html
    assert "href" not in html


def test_the_guidelines_lead_back_to_the_text(
    project: Project, ana: User, signed_in: SignIn
) -> None:
    batch_make(project)
    Guideline.objects.create(project=project, version=2, body="New.", is_major=True)
    client = signed_in(ana)
    assert 'name="back_to" value="write"' in client.get(f"{ROOT}/write/").content.decode()
    sent = {"version": "2", "back_to": "write"}
    done = client.post(f"{ROOT}/guidelines/acknowledge/", sent)
    assert done["Location"] == f"{ROOT}/write/"


def test_the_api_asks_writes_submits_and_reviews(
    project: Project, ana: User, rita: User, emil: User, ada: User, signed_in: SignIn
) -> None:
    api = f"/api/v1/projects/{project.slug}/writing"

    def send(user: User, path: str, given: dict[str, Any], method: str = "post") -> Any:
        ask = getattr(signed_in(user), method)
        return ask(f"{api}{path}", given, content_type="application/json")

    asked = {"name": "Answers", "prompts": [{"prompt": "Why?", "id": 7}, {"prompt": "How?"}]}
    batch = send(emil, "", asked).json()
    assert batch["texts"]["open"] == 2
    text = send(ana, "/next", {}).json()["text"]
    assert [(turn["role"], turn["content"]) for turn in text["prompt"]] == [("user", "Why?")]
    draft = send(ana, f"/texts/{text['text']}/draft", {"body": "Half"}, "put").json()
    assert draft["number"] == 1
    stale = send(ana, f"/texts/{text['text']}/draft", {"body": "Other"}, "put")
    assert (stale.status_code, stale.json()["code"]) == (409, "draft_newer")
    given = {"body": "Because of 8.8.8.8.", "idempotency_key": text["key"]}
    warned = send(ana, f"/texts/{text['text']}/submit", given)
    assert (warned.status_code, warned.json()["code"]) == (409, "personal_data")
    done = send(ana, f"/texts/{text['text']}/submit", given | {"confirm_personal": True}).json()
    assert (done["version"], done["state"], done["replayed"]) == (1, "waiting", False)
    [listed] = signed_in(rita).get(f"{api}/texts?state=waiting").json()["items"]
    assert (listed["author"], len(listed["warnings"])) == (None, 1)
    assert signed_in(ada).get(f"{api}/texts").json()["items"][0]["author"] == ana.pk
    own = send(ana, f"/texts/{text['text']}/review", {"version": 1, "verdict": "accepted"})
    assert own.status_code == 403
    verdict = {"version": 1, "verdict": "edited", "body": "Because."}
    reviewed = send(rita, f"/texts/{text['text']}/review", verdict).json()
    assert (reviewed["state"], reviewed["version"], reviewed["body"]) == ("accepted", 2, "Because.")
    closed = send(emil, f"/batches/{batch['id']}", {"is_open": False}, "patch").json()
    assert closed["is_open"] is False
    assert send(ana, "/next", {}).json()["nothing"]["code"] == "yours_done"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": "a\x00"}, "name"),
        ({"prompts": [{"prompt": "Why?", "topic": 3}]}, "prompts"),
        ({"prompts": [{"prompt": "Why?", "id": "a\x00"}]}, "prompts"),
        ({"prompts": [{"prompt": "Why?", "id": {"a": 1}}]}, "prompts"),
        ({"prompts": [], "own_prompts": 5, "own_topic": "a\x00"}, "prompts"),
        ({"instruction": "a\x00"}, "instruction"),
        ({"per_task": 10**30}, "per_task"),
        ({"most_characters": 10**30}, "most_characters"),
    ],
)
def test_what_no_database_holds_is_refused_by_its_field(
    project: Project, emil: User, signed_in: SignIn, given: dict[str, Any], field: str
) -> None:
    asked = {"name": "Answers", "prompts": [{"prompt": "Why?"}]} | given
    answer = signed_in(emil).post(
        f"/api/v1/projects/{project.slug}/writing", asked, content_type="application/json"
    )
    assert 400 <= answer.status_code < 500
    assert (answer.json()["field"] or "").startswith(field), answer.json()


@pytest.mark.parametrize("milliseconds", [-1, 10**12])
def test_a_time_that_nobody_can_have_taken_is_refused(
    project: Project, ana: User, milliseconds: int
) -> None:
    batch_make(project)
    text = taken(project, ana)
    error = refused("invalid", submitted, text, ana, active_ms=milliseconds)
    assert error.field == "active_ms"
    version = submitted(text, ana, active_ms=600_000, wall_ms=600_000)
    assert (version.active_ms or 0) < 600_000, "no longer than it was in their hands"
