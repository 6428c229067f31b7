"""Live dialogues: campaigns, a conversation turn by turn, what is stored, and who may see what."""

import itertools
import json
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, Role, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.registry import ErasureWish, run_uses
from apps.evaluation.models import Conversation, DialogueCampaign, DialogueTurn
from apps.evaluation.selectors.dialogues import result_of, turns_of, votes_of
from apps.evaluation.services import dialogues as services
from apps.evaluation.services.dialogues import CampaignAsked, dialogue_open
from apps.labeling.models import Comparison, LabelingSettings, Prompt, Response, Slot, Task, Vote
from apps.labeling.services import comparisons_import, labeling_status, slot_lease_next
from apps.labeling.services.results import Lease
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services.freezing import snapshot_freeze
from apps.snapshots.storage import read_rows
from apps.training.models import Checkpoint, Run
from measures.model_ranking import ModelVotes, two_way_rate
from tests.evaluation.assessed import HOSTILE, model_make
from tests.people import person_make
from tests.workers.asked import emptied
from workers.contract import asking
from workers.contract.asking import Answer, AskReply, AskRequest
from workers.contract.channel import to_json
from workers.contract.wire import alive_key

redis_client = pytest.fixture(emptied)
TALKS = "/p/arguments/conversations/"
API = "/api/v1/projects/arguments/dialogues"


@pytest.fixture
def models(project: Project, emil: User) -> list[Checkpoint]:
    made = [model_make(project, by=emil, name=name) for name in ("Secretus", "Tacitus", "Third")]
    Run.objects.filter(project=project).update(kind=Run.Kind.SFT)
    return made


@pytest.fixture
def alive(redis_client):
    """An answerer gives signs of life; the tests answer in its place."""
    redis_client.set(alive_key(asking.ANSWERER), "here:1", ex=60)
    yield redis_client
    redis_client.delete(alive_key(asking.ANSWERER))


@pytest.fixture
def campaign(project: Project, emil: User, models: list[Checkpoint]) -> DialogueCampaign:
    return opened(project, emil, models[:2])


def opened(project: Project, by: User, models: list[Checkpoint], **more: Any) -> DialogueCampaign:
    asked = CampaignAsked(name="Tea talk", models=[one.pk for one in models], **more)
    return dialogue_open(project=project, user=by, asked=asked, seed=7)


def last_request(client: Any) -> AskRequest:
    (_, sent) = client.xrange(asking.STREAM)[-1]
    return asking.request_from_json(sent[b"request"])


def answer(client: Any, *answers: str | Answer) -> None:
    """The last question, left answer first."""
    said = [Answer(asking.ENDED, one, 3, 0.5) if isinstance(one, str) else one for one in answers]
    name = last_request(client).id
    client.xtrim(asking.STREAM, maxlen=1)
    client.set(asking.reply_key(name), to_json(AskReply(name, tuple(said))))


def begun(campaign: DialogueCampaign, user: User, key: str = "k") -> Conversation:
    return services.conversation_start(campaign=campaign, user=user, key=key)


def said(talk: Conversation, user: User, text: str = "Why tea?", key: str = "") -> DialogueTurn:
    return services.message_send(
        conversation=talk, user=user, text=text, key=key or text, confirmed=False
    )


def judged(
    client: Any, talk: Conversation, user: User, text: str, side: str = "left", **more: Any
) -> DialogueTurn:
    """A whole turn."""
    turn = said(talk, user, text)
    answer(client, *more.pop("answers", (f"left to {text}", f"right to {text}")))
    fields = {"side": side, **more}
    return services.turn_judge(conversation=talk, user=user, number=turn.number, answer=fields)


# A conversation on its pages.


def test_an_annotator_talks_blind_and_the_choice_continues_the_thread(
    signed_in: Callable[[User], Client], ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    page = signed_in(ana)
    assert "Tea talk" in page.get(reverse("work")).content.decode()
    listed = page.get(TALKS).content.decode()
    key = re.search(r'name="key" value="(\w+)"', listed)[1]
    here = page.post(f"{TALKS}begin/{campaign.pk}/", {"key": key})["Location"]
    assert page.post(f"{TALKS}begin/{campaign.pk}/", {"key": key})["Location"] == here
    sent = {"action": "send", "key": "one", "message": "Why tea?"}
    assert page.post(f"{here}act/", sent).status_code == 302
    request = last_request(alive)
    assert list(request.messages) == [{"role": "user", "content": "Why tea?"}]
    assert request.answer_seconds == 60
    live = page.get(here).content.decode()
    assert "every 500ms" in live
    half = AskReply(request.id, (Answer(asking.WRITING, "Because <b>"), Answer()))
    alive.set(asking.said_key(request.id), to_json(half))
    part = page.get(here, headers={"HX-Request": "true"})
    assert "Because &lt;b&gt;" in part.content.decode()
    assert "<html" not in part.content.decode()
    answer(alive, "Because it is warm.", HOSTILE)
    whole = page.get(here, headers={"HX-Request": "true"})
    assert whole["HX-Retarget"] == "#pair"
    text = whole.content.decode()
    assert 'data-keys="1 a ArrowLeft"' in text
    assert "<script>" not in text
    assert "every 500ms" not in text
    choice = {"action": "choose", "turn": "1", "key": "c", "answer": "left"}
    assert page.post(f"{here}act/", choice).status_code == 302
    after = page.get(here).content.decode()
    assert "Because it is warm." in after
    assert "alert(" not in after  # the other branch is stored and stands in no thread
    page.post(f"{here}act/", {"action": "send", "key": "two", "message": "And coffee?"})
    assert [one["content"] for one in last_request(alive).messages] == [
        "Why tea?",
        "Because it is warm.",
        "And coffee?",
    ]
    for shown in (listed, live, text, after):
        for name in ("Secretus", "Tacitus"):
            assert name not in shown
        for pk in campaign.systems.values_list("checkpoint_id", flat=True):
            assert pk not in shown


def test_a_judged_turn_is_a_pair_with_the_persons_vote_and_both_answers(
    ana: User, project: Project, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    first = judged(alive, talk, ana, "Why tea?", "right")
    second = judged(alive, talk, ana, "And coffee?", "tie")
    pair = Comparison.objects.get(pk=first.task_id)
    assert pair.prompt.messages == [{"role": "user", "content": "Why tea?"}]
    systems = services.systems_of(talk)
    assert (pair.response_a.origin, pair.response_a.origin_ref) == (
        Response.Origin.MODEL,
        systems["a"].checkpoint.pk,
    )
    assert pair.response_b.origin_ref == systems["b"].checkpoint.pk
    vote = Vote.objects.get(comparison=pair)
    assert (vote.annotator, vote.left_is) == (ana, first.left_is)
    chosen = vote.chosen.messages[-1]["content"]
    assert chosen == "right to Why tea?" == first.answers[first.continued]["text"]
    assert vote.choice == first.choice == first.continued
    later = Comparison.objects.get(pk=second.task_id)
    assert [one["content"] for one in later.prompt.messages] == [
        "Why tea?",
        "right to Why tea?",
        "And coffee?",
    ]
    assert later.prompt.group_key == pair.prompt.group_key
    assert second.is_drawn
    assert second.continued in "ab"
    assert {one.protocol_sha256 for one in turns_of(talk)} == {campaign.protocol_sha256}
    for one in (pair, later):
        assert one.metadata["protocol"] == campaign.protocol_sha256
        assert one.overlap == 1
        assert not one.slots.filter(state=Slot.State.FREE).exists()


def test_a_pair_of_a_dialogue_is_handed_to_nobody_unless_the_campaign_asks_others(
    ana: User, emil: User, project: Project, models: list[Checkpoint], alive: Any
) -> None:
    other = person_make("Anton", project, Role.ANNOTATOR)
    alone = opened(project, emil, models[:2])
    judged(alive, begun(alone, ana), ana, "Why tea?")
    assert not isinstance(slot_lease_next(project=project, annotator=other), Lease)
    asks = opened(project, emil, models[:2], others=2)
    turn = judged(alive, begun(asks, ana, "other"), ana, "Why coffee?")
    lease = slot_lease_next(project=project, annotator=other)
    assert isinstance(lease, Lease)
    assert lease.prompt == [{"role": "user", "content": "Why coffee?"}]
    assert Comparison.objects.get(pk=turn.task_id).overlap == 3
    assert not isinstance(slot_lease_next(project=project, annotator=ana), Lease)


def test_judged_turns_freeze_with_no_conversation_in_two_splits(
    ana: User,
    emil: User,
    project: Project,
    models: list[Checkpoint],
    alive: Any,
    settings: Any,
    tmp_path: Path,
) -> None:
    settings.ARTIFACTS_URL = str(tmp_path)
    talks = [opened(project, emil, models[:2], most_turns=2) for _ in range(2)]
    blind = opened(project, emil, models[:2], in_datasets=False)
    for number in range(12):
        talk = begun(talks[number % 2], ana, f"{number}")
        for text in (f"What about number {number}?", f"And is {number} any better?"):
            judged(alive, talk, ana, text, "left", answers=(f"Yes, {text}", f"No, not {text}"))
    judged(alive, begun(blind, ana), ana, "Never to be trained on?")
    recipe = SnapshotRecipe(
        least_votes=1, least_agreeing=1, seed="seed-2", splits={"train": 0.5, "dev": 0.5}
    )
    frozen = snapshot_freeze(project=project, name="Talks", recipe=recipe, user=emil)
    splits = {path.stem: list(read_rows(path)) for path in (tmp_path / frozen.uri).glob("*.jsonl")}
    assert sum(map(len, splits.values())) == 24
    held = {name: {row["group"] for row in rows} for name, rows in splits.items()}
    assert all(held.values())
    assert not held["train"] & held["dev"]
    assert len(held["train"] | held["dev"]) == 12
    longer = [row for row in splits["train"] if len(row["prompt"]) == 3]
    assert longer
    for row in longer:  # the thread went on with the answer that was chosen
        assert row["prompt"][1]["content"].startswith("Yes, ")
        assert row["chosen"][0]["content"].startswith("Yes, And")
        assert row["rejected"][0]["content"].startswith("No, not And")


def test_what_datasets_may_not_hold_is_a_blind_pair(
    ana: User, emil: User, project: Project, models: list[Checkpoint], alive: Any
) -> None:
    closed = opened(project, emil, models[:2], in_datasets=False)
    turn = judged(alive, begun(closed, ana), ana, "Why tea?")
    assert Task.objects.get(pk=turn.task_id).kind == Task.Kind.BLIND
    assert not Comparison.objects.filter(pk=turn.task_id).exists()
    assert len(votes_of(closed)) == 1
    with pytest.raises(DomainError) as refused:
        opened(project, emil, models[:2], in_datasets=False, others=1)
    assert refused.value.field == "others"


# Nothing lost, nothing doubled.


def test_the_same_submit_again_changes_nothing_and_another_choice_is_refused(
    ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    turn = said(talk, ana, "Why tea?", key="one")
    assert said(talk, ana, "Why tea?", key="one") == turn
    assert alive.xlen(asking.STREAM) == 1
    with pytest.raises(Conflict) as open_turn:
        said(talk, ana, "From a second tab", key="two")
    assert open_turn.value.code == "turn_open"
    answer(alive, "one", "two")
    given = {"conversation": talk, "user": ana, "number": 1}
    services.turn_judge(**given, answer={"side": "left"})
    services.turn_judge(**given, answer={"side": "left"})
    assert Vote.objects.count() == 1
    with pytest.raises(Conflict) as judged_before:
        services.turn_judge(**given, answer={"side": "right"})
    assert judged_before.value.code == "judged"
    assert said(talk, ana, "Why tea?", key="one").number == 1  # back, and sent again
    assert talk.turns.count() == 1


def test_what_could_not_be_sent_is_still_in_the_field(
    signed_in: Callable[[User], Client], ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    said(talk, ana)
    answer(alive, "one", "two")
    services.turn_judge(conversation=talk, user=ana, number=1, answer={"side": "left"})
    mail = {"action": "send", "key": "x", "message": "Write to jane.doe@somewhere-real.org now"}
    page = signed_in(ana).post(f"{TALKS}{talk.key}/act/", mail)
    text = page.content.decode()
    assert page.status_code == 409
    assert "jane.doe@somewhere-real.org now</textarea>" in text
    assert 'name="confirmed"' in text
    assert talk.turns.count() == 1
    signed_in(ana).post(f"{TALKS}{talk.key}/act/", mail | {"confirmed": "1"})
    assert talk.turns.get(number=2).personal == ["email"]


@pytest.mark.django_db(transaction=True)
def test_two_tabs_at_once_write_one_turn(ana: User, campaign: DialogueCampaign, alive: Any) -> None:
    talk = begun(campaign, ana)
    together, ends = threading.Barrier(2), []

    def send(key: str) -> None:
        try:
            together.wait(20)
            said(talk, ana, f"From tab {key}", key=key)
            ends.append("sent")
        except Conflict as error:
            ends.append(error.code)
        finally:
            connection.close()

    tabs = [threading.Thread(target=send, args=(key,)) for key in "ab"]
    for tab in tabs:
        tab.start()
    for tab in tabs:
        tab.join(60)
    assert sorted(ends) == ["sent", "turn_open"]
    assert talk.turns.count() == 1


def test_the_database_itself_keeps_one_unjudged_turn_and_one_open_conversation(
    ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    turn = said(talk, ana)
    for one in (turn, talk):
        one.pk = None
    turn.number, turn.key = 2, "another"
    talk.key, talk.start_key = "k2", "another"
    for one in (turn, talk):
        with pytest.raises(IntegrityError), transaction.atomic():
            one.save(force_insert=True)


# Servers that are dead, slow, or say who they are.


def test_an_answer_that_does_not_come_is_said_and_the_page_never_waits(
    signed_in: Callable[[User], Client], ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    page, talk = signed_in(ana), begun(campaign, ana)
    here = f"{TALKS}{talk.key}/"
    turn = said(talk, ana)
    secret = {"code": "inference_server", "message": "inference server secret.example: refused"}
    answer(alive, "I came.", Answer(asking.FAILED, error=secret))
    text = page.get(here).content.decode()
    for words in ("One answer did not come", "Try again", "Go on without comparing", "I came."):
        assert words in text
    assert "secret.example" not in text
    page.post(f"{here}act/", {"action": "again", "turn": "1"})
    page.post(f"{here}act/", {"action": "again", "turn": "1"})  # a double click
    turn.refresh_from_db()
    assert turn.attempt == 2
    assert alive.xlen(asking.STREAM) == 2
    left = turn.earlier[0]["answers"][turn.left_is]
    assert (left["text"], left["state"]) == ("I came.", asking.ENDED)
    assert "secret.example" not in json.dumps(turn.earlier)
    answer(alive, Answer(asking.FAILED), "Only the right one.")
    page.post(f"{here}act/", {"action": "pass", "turn": "1"})
    turn.refresh_from_db()
    assert turn.state == DialogueTurn.State.PASSED
    assert turn.answers[turn.continued]["text"] == "Only the right one."
    assert turn.task_id is None
    assert "Only the right one." in page.get(here).content.decode()
    assert not Comparison.objects.exists()


def test_a_turn_whose_time_is_over_is_live_no_more(
    signed_in: Callable[[User], Client], ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    turn = said(talk, ana)
    assert services.turn_now(turn).is_live
    seconds = 2 * campaign.answer_seconds + 31
    early = timezone.now() - timedelta(seconds=seconds)
    DialogueTurn.objects.filter(pk=turn.pk).update(asked_at=early)
    text = signed_in(ana).get(f"{TALKS}{talk.key}/").content.decode()
    assert "No answer came" in text
    assert "every 500ms" not in text


def test_without_an_answerer_the_message_is_kept_and_can_be_asked_later(
    signed_in: Callable[[User], Client], ana: User, campaign: DialogueCampaign, redis_client: Any
) -> None:
    redis_client.delete(alive_key(asking.ANSWERER))
    talk = begun(campaign, ana)
    page = signed_in(ana)
    here = f"{TALKS}{talk.key}/"
    sent = {"action": "send", "key": "one", "message": "Anybody there?"}
    assert page.post(f"{here}act/", sent).status_code == 302
    text = page.get(here).content.decode()
    assert "Anybody there?" in text
    assert "No answer came" in text
    redis_client.set(alive_key(asking.ANSWERER), "here:1", ex=60)
    page.post(f"{here}act/", {"action": "again", "turn": "1"})
    redis_client.delete(alive_key(asking.ANSWERER))
    assert redis_client.xlen(asking.STREAM) == 1


def test_a_model_that_names_itself_is_flagged(
    ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    turn = judged(alive, talk, ana, "Who are you?", answers=("I am ChatGPT.", "Nobody."))
    assert turn.names_itself == {turn.left_is: "I am ChatGPT"}
    own = judged(alive, talk, ana, "Again?", answers=("I am Secretus.", "Nobody."))
    assert len(own.names_itself) <= 1  # its own name counts, another's does not


def test_answers_that_wait_for_a_choice_outlive_the_line(
    ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    turn = said(talk, ana)
    assert services.answers_sweep() == 0
    answer(alive, "one", "two")
    assert services.answers_sweep() == 1
    alive.delete(asking.asked_key(turn.question), asking.reply_key(turn.question))
    turn.refresh_from_db()
    assert services.turn_now(turn).may_choose


# Draws.


def test_sides_are_drawn_for_each_turn_balanced_and_given_again_by_the_record(
    campaign: DialogueCampaign,
) -> None:
    sides = [
        services.side_drawn(campaign, f"talk {n // 20}", n % 20 + 1, "left") for n in range(2000)
    ]
    assert abs(sides.count("a") - 1000) < 134  # six standard deviations of a fair coin
    follows = sum(one == other for one, other in itertools.pairwise(sides))
    assert abs(follows - 1000) < 134
    again = DialogueCampaign.objects.get(pk=campaign.pk)
    assert sides[:40] == [
        services.side_drawn(again, f"talk {n // 20}", n % 20 + 1, "left") for n in range(40)
    ]
    assert campaign.protocol["seed"] == campaign.seed


def test_the_left_answer_is_asked_for_first_whosever_it_is(
    ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    for n in range(6):
        turn = judged(alive, talk, ana, f"turn {n}")
        systems = services.systems_of(talk)
        left = systems[turn.left_is].checkpoint
        assert last_request(alive).models[0]["uri"] == left.uri
        assert turn.left_is == services.side_drawn(campaign, talk.key, turn.number, "left")
    assert {one.left_is for one in turns_of(talk)} <= {"a", "b"}


def test_every_two_of_several_systems_meet_as_often(
    project: Project, emil: User, models: list[Checkpoint]
) -> None:
    three = opened(project, emil, models)
    people = [person_make(f"P{n}", project, Role.ANNOTATOR) for n in range(6)]
    met = [(talk.first, talk.second) for talk in (begun(three, one) for one in people)]
    assert sorted(met) == [(0, 1), (0, 1), (0, 2), (0, 2), (1, 2), (1, 2)]


# Clusters.


def test_conversations_that_begin_alike_are_one_group(
    ana: User, rita: User, project: Project, campaign: DialogueCampaign, alive: Any
) -> None:
    one, other = begun(campaign, ana), begun(campaign, rita)
    first = judged(alive, one, ana, "Why tea?")
    judged(alive, one, ana, "And coffee?")
    judged(alive, other, rita, "Something else")
    groups = {turn.task.prompt.group_key for turn in turns_of(one)}
    assert len(groups) == 1
    assert turns_of(other)[0].task.prompt.group_key not in groups
    services.conversation_end(conversation=other, user=rita)
    third = begun(campaign, rita, "another")
    alike = judged(alive, third, rita, "Why tea?")
    assert alike.task.prompt_id == first.task.prompt_id
    more = judged(alive, third, rita, "And milk?")
    assert more.task.prompt.group_key in groups


def test_a_prompt_that_is_known_draws_the_earlier_ones_of_its_conversation_into_its_group(
    ana: User, project: Project, campaign: DialogueCampaign, alive: Any
) -> None:
    known = [
        {"role": "user", "content": "Why tea?"},
        {"role": "assistant", "content": "left to Why tea?"},
        {"role": "user", "content": "And coffee?"},
    ]
    row = {"prompt": known, "response_a": "x", "response_b": "y", "group": "imported"}
    comparisons_import(project=project, rows=[row])
    talk = begun(campaign, ana)
    judged(alive, talk, ana, "Why tea?")
    judged(alive, talk, ana, "And coffee?")
    judged(alive, talk, ana, "And milk?")
    groups = set(Prompt.objects.filter(project=project).values_list("group_key", flat=True))
    assert groups == {"imported"}


def test_votes_of_one_conversation_give_no_narrower_interval_than_by_conversation(
    project: Project, campaign: DialogueCampaign, alive: Any
) -> None:
    """24 conversations of 4 turns, the same side throughout each: 96 votes say as little as 24."""
    for n in range(24):
        person = person_make(f"P{n}", project, Role.ANNOTATOR)
        talk = begun(campaign, person)
        for number in range(1, 5):
            wanted = "a" if n % 3 else "b"
            left = services.side_drawn(campaign, talk.key, number, "left")
            side = "left" if left == wanted else "right"
            judged(alive, talk, person, f"{n} {number}", side)
    votes = votes_of(campaign)
    assert (len(votes), len(set(votes.prompt.tolist()))) == (96, 24)
    rate = result_of(campaign).rates[0]
    assert (rate.n, rate.n_prompts) == (96, 24)
    by_turn = two_way_rate(votes.score, _numbered(votes), _numbered(votes))
    one_each = votes.only(_first_of_each(votes))
    by_talk = two_way_rate(one_each.score, one_each.prompt, one_each.person)
    width = rate.high - rate.low
    assert width > 1.8 * (by_turn.high - by_turn.low)
    assert width == pytest.approx(by_talk.high - by_talk.low, rel=0.01)


def _numbered(votes: ModelVotes) -> Any:
    return np.arange(len(votes))


def _first_of_each(votes: ModelVotes) -> Any:
    _, first = np.unique(votes.prompt, return_index=True)
    return np.isin(np.arange(len(votes)), first)


# Who may.


def test_another_annotator_and_an_outsider_find_nothing(
    signed_in: Callable[[User], Client],
    ana: User,
    olga: User,
    emil: User,
    project: Project,
    campaign: DialogueCampaign,
    alive: Any,
) -> None:
    talk = begun(campaign, ana)
    said(talk, ana)
    answer(alive, "one", "two")
    anton = person_make("Anton", project, Role.ANNOTATOR)
    choice = {"action": "choose", "turn": "1", "key": "c", "answer": "left"}
    for who, status in ((anton, 404), (olga, 404), (emil, 403)):
        assert signed_in(who).get(f"{TALKS}{talk.key}/").status_code == status
        assert signed_in(who).post(f"{TALKS}{talk.key}/act/", choice).status_code == status
    with pytest.raises(Missing):
        services.turn_judge(conversation=talk, user=anton, number=1, answer={"side": "left"})
    assert not Vote.objects.exists()
    for name in ("dialogues", f"dialogues/{campaign.pk}"):
        assert signed_in(ana).get(f"/p/arguments/{name}/").status_code == 403


def test_guidelines_caps_and_pauses_hold_here_too(
    ana: User, project: Project, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    judged(alive, talk, ana, "Why tea?")
    LabelingSettings.objects.filter(project=project).update(daily_cap=1)
    with pytest.raises(Conflict) as capped:
        said(talk, ana, "More?")
    assert capped.value.code == "daily_cap"
    assert labeling_status(project=project, annotator=ana).n_today == 1


def test_limits_of_a_campaign_hold_and_a_closed_one_takes_no_message(
    ana: User, rita: User, emil: User, project: Project, models: list[Checkpoint], alive: Any
) -> None:
    small = opened(project, emil, models[:2], per_person=1, in_all=2, least_turns=1, most_turns=2)
    talk = begun(small, ana)
    judged(alive, talk, ana, "one")
    judged(alive, talk, ana, "two")
    talk.refresh_from_db()
    assert talk.ended_at is not None
    with pytest.raises(Conflict) as ended:
        said(talk, ana, "three")
    assert ended.value.code == "ended"
    with pytest.raises(Conflict) as enough:
        begun(small, ana, "again")
    assert enough.value.code == "enough_of_yours"
    other = begun(small, rita)
    with pytest.raises(Conflict) as full:
        begun(small, person_make("Anton", project, Role.ANNOTATOR))
    assert full.value.code == "enough"
    turn = said(other, rita, "At hand")
    services.dialogue_set_open(campaign=small, by=emil, is_open=False)
    answer(alive, "one", "two")
    services.turn_judge(conversation=other, user=rita, number=turn.number, answer={"side": "left"})
    with pytest.raises(Conflict) as closed:
        said(other, rita, "More")
    assert closed.value.code == "closed"


def test_a_conversation_is_ended_and_a_problem_reported(
    signed_in: Callable[[User], Client],
    ana: User,
    emil: User,
    campaign: DialogueCampaign,
    alive: Any,
) -> None:
    talk = begun(campaign, ana)
    turn = said(talk, ana)
    half = AskReply(turn.question, (Answer(asking.WRITING, "Half"), Answer()))
    alive.set(asking.said_key(turn.question), to_json(half))
    page = signed_in(ana)
    report = {"action": "report", "problem": HOSTILE}
    assert page.post(f"{TALKS}{talk.key}/act/", report).status_code == 302
    page.post(f"{TALKS}{talk.key}/act/", {"action": "end"})
    talk.refresh_from_db()
    turn.refresh_from_db()
    assert talk.ended_at is not None
    assert alive.exists(asking.stop_key(turn.question))
    assert "has ended" in page.get(f"{TALKS}{talk.key}/").content.decode()
    shown = signed_in(emil).get(f"/p/arguments/dialogues/{campaign.pk}/").content.decode()
    assert "&lt;script&gt;" in shown
    assert "<script>alert" not in shown
    read = signed_in(emil).get(f"/p/arguments/dialogues/{campaign.pk}/conversations/{talk.key}/")
    assert "Why tea?" in read.content.decode()
    assert AuditEvent.objects.filter(action="dialogue.problem").count() == 1


# Engineers: pages, API, erasure.


def test_an_engineer_opens_a_campaign_and_reads_its_result(
    signed_in: Callable[[User], Client],
    ana: User,
    emil: User,
    models: list[Checkpoint],
    alive: Any,
) -> None:
    page = signed_in(emil)
    form = page.get("/p/arguments/dialogues/new/").content.decode()
    assert "Secretus" in form
    given = {
        "name": "Talk",
        "models": [one.pk for one in models[:2]],
        "topics": "Tea\nCoffee\n",
        "temperature": "0.5",
        "top_p": "1",
        "max_new_tokens": "64",
        "answer_seconds": "20",
        "least_turns": "1",
        "most_turns": "5",
        "per_person": "3",
        "in_all": "9",
        "in_datasets": "on",
        "others": "0",
    }
    assert page.post("/p/arguments/dialogues/new/", given | {"models": []}).status_code == 422
    assert page.post("/p/arguments/dialogues/new/", given | {"most_turns": "0"}).status_code == 422
    here = page.post("/p/arguments/dialogues/new/", given)["Location"]
    campaign = DialogueCampaign.objects.get()
    assert campaign.topics == ["Tea", "Coffee"]
    talk = services.conversation_start(campaign=campaign, user=ana, key="k", topic="Tea")
    judged(alive, talk, ana, "Why tea?", answers=("I am ChatGPT.", "Nobody."))
    shown = page.get(here).content.decode()
    assert "Secretus" in shown
    assert "not blind" in shown
    assert "no interval" in shown
    page.post(f"{here}act/", {"action": "close"})
    campaign.refresh_from_db()
    assert not campaign.is_open
    assert list(
        AuditEvent.objects.filter(action__startswith="dialogue.")
        .order_by("pk")
        .values_list("action", flat=True)
    ) == ["dialogue.opened", "dialogue.closed"]


def test_the_api_opens_tells_and_exports_both_branches(
    signed_in: Callable[[User], Client],
    ana: User,
    emil: User,
    models: list[Checkpoint],
    alive: Any,
) -> None:
    page = signed_in(emil)
    body = {"name": "By API", "models": [one.pk for one in models[:2]]}
    made = page.post(API, body, content_type="application/json")
    assert made.status_code == 201, made.content
    bad = page.post(API, body | {"models": [models[0].pk]}, content_type="application/json")
    assert (bad.status_code, bad.json()["field"]) == (400, "models")
    key = made.json()["id"]
    talk = begun(DialogueCampaign.objects.get(pk=key), ana)
    judged(alive, talk, ana, "Why tea?", "tie")
    told = page.get(f"{API}/{key}").json()
    assert told["progress"]["judged"] == 1
    assert told["rates"][0]["value"] == 0.5
    sent = page.get(f"{API}/{key}/conversations")
    (line,) = [json.loads(one) for one in b"".join(sent.streaming_content).splitlines()]
    (turn,) = line["turns"]
    assert {one["text"] for one in turn["answers"].values()} == {
        "left to Why tea?",
        "right to Why tea?",
    }
    assert (turn["choice"], turn["drawn"]) == ("tie", True)
    assert line["systems"] == {"a": models[0].pk, "b": models[1].pk}
    assert "ana" not in json.dumps(line)
    assert page.post(f"{API}/{key}/close").json()["open"] is False
    assert page.post(f"{API}/{key}/open").json()["open"] is True


def test_an_erased_persons_reports_and_unjudged_messages_go_and_pairs_stay(
    ana: User, campaign: DialogueCampaign, alive: Any
) -> None:
    talk = begun(campaign, ana)
    paired = judged(alive, talk, ana, "Why tea?")
    alone = said(talk, ana, "My name is Ana Annotator")
    services.conversation_end(conversation=talk, user=ana, problem="I, Ana, dislike it")
    services.dialogues_erase(ana, None, ErasureWish())
    talk.refresh_from_db()
    alone.refresh_from_db()
    paired.refresh_from_db()
    assert (talk.problem, alone.message, paired.message) == ("(removed)", "(removed)", "Why tea?")
    assert talk.ended_at is not None


def test_a_model_that_a_campaign_asks_is_not_deleted_unnoticed(campaign: DialogueCampaign) -> None:
    run = campaign.systems.all()[0].checkpoint.run
    assert any("Tea talk" in one for one in run_uses(run))
