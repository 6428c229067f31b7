"""Questions to models by hand: page, API and client, what is refused, and the pair for people."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import AuditEvent, Project, Role, User
from apps.evaluation import dispatch
from apps.labeling.models import Comparison, Response
from apps.training.models import Checkpoint, Run
from tests.evaluation.assessed import HOSTILE, model_make
from tests.people import person_make
from tests.workers.asked import emptied
from workers.contract import asking
from workers.contract.asking import Answer, AskReply
from workers.contract.channel import to_json
from workers.contract.wire import alive_key

redis_client = pytest.fixture(emptied)
HERE = "/p/arguments/playground/"
API = "/api/v1/projects/arguments/playground"
TYPED = {
    "prompt": "Why is the sky blue?",
    "temperature": "0.5",
    "top_p": "1",
    "max_new_tokens": "20",
    "seed": "3",
}
Answers = Callable[..., AskReply]


@pytest.fixture
def models(project: Project, emil: User) -> list[Checkpoint]:
    made = [model_make(project, by=emil, name=name) for name in ("first", "second")]
    Run.objects.filter(project=project).update(kind=Run.Kind.SFT)
    return made


@pytest.fixture
def alive(redis_client):
    """An answerer gives signs of life; the tests answer in its place."""
    redis_client.set(alive_key(asking.ANSWERER), "here:1", ex=60)
    yield redis_client
    redis_client.delete(alive_key(asking.ANSWERER))


@pytest.fixture
def as_emil(signed_in, emil: User) -> Client:
    return signed_in(emil)


def posted(client: Client, *models: Checkpoint, **more: str) -> Any:
    names = dict(zip(("model", "other"), (one.pk for one in models), strict=False))
    return client.post(HERE, TYPED | names | more)


def asked(client: Client, *models: Checkpoint, **more: str) -> str:
    """The id of a question that was asked on the page."""
    answer = posted(client, *models, **more)
    assert answer.status_code == 302, answer.content.decode()
    return answer["Location"].rstrip("/").rpartition("/")[2]


def answered(redis_client: Any, name: str, *texts: str, state: str = asking.ENDED) -> None:
    answers = tuple(Answer(state, text, len(text.split()), 0.5) for text in texts)
    redis_client.set(asking.reply_key(name), to_json(AskReply(name, answers)))


def test_a_question_goes_to_both_models_and_their_answers_stand_beside_each_other(
    as_emil: Client, models: list[Checkpoint], alive
) -> None:
    name = asked(as_emil, *models, system="Be brief.")
    ((_, sent),) = alive.xrange(asking.STREAM)
    request = asking.request_from_json(sent[b"request"])
    assert [one["uri"] for one in request.models] == [one.uri for one in models]
    assert [one["role"] for one in request.messages] == ["system", "user"]
    assert (request.temperature, request.max_new_tokens, request.seed) == (0.5, 20, 3)
    page = as_emil.get(f"{HERE}{name}/").content.decode()
    assert "Waiting for its turn" in page
    assert "every 500ms" in page
    half = AskReply(name, (Answer(asking.WRITING, "Because of", 2, 0.1), Answer()))
    alive.set(asking.said_key(name), to_json(half))
    part = as_emil.get(f"{HERE}{name}/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert "Because of" in part
    assert "every 500ms" in part
    answered(alive, name, "Because of <b>air</b>.", HOSTILE)
    part = as_emil.get(f"{HERE}{name}/", headers={"HX-Request": "true"}).content.decode()
    assert "every 500ms" not in part
    assert "&lt;b&gt;air&lt;/b&gt;" in part
    assert "<script>" not in part
    assert "&lt;script&gt;" in part
    assert "Send to people" in part


def test_a_person_has_one_question_at_a_time_and_a_stopped_one_makes_room(
    as_emil: Client, signed_in, project: Project, models: list[Checkpoint], alive
) -> None:
    name = asked(as_emil, models[0])
    refused = posted(as_emil, models[0])
    assert refused.status_code == 422
    assert "still being answered" in refused.content.decode()
    other = signed_in(person_make("Enno", project, Role.ENGINEER))
    assert asked(other, models[0]) != name
    stopped = as_emil.post(f"{HERE}{name}/act/", {"action": "stop"}, headers={"HX-Request": "true"})
    assert "Stopped" in stopped.content.decode()
    assert alive.exists(asking.stop_key(name))
    again = asked(as_emil, models[0])
    alive.set(asking.said_key(again), to_json(AskReply(again, (Answer(asking.WRITING, "So", 1),))))
    as_emil.post(f"{HERE}{again}/act/", {"action": "stop"})
    assert not alive.exists(asking.reply_key(again))  # who writes it says how it ended
    assert posted(as_emil, models[0]).status_code == 422


def test_an_answerer_that_hangs_is_given_up_and_keeps_nobody_from_asking(
    as_emil: Client, models: list[Checkpoint], alive
) -> None:
    name = asked(as_emil, models[0])
    alive.delete(alive_key(asking.ANSWERER))
    page = as_emil.get(f"{HERE}{name}/").content.decode()
    assert "no sign of life" in page
    key = asking.asked_key(name)
    kept = json.loads(alive.get(key))
    kept["at"] = time.time() - asking.GIVEN_UP_SECONDS - 1
    alive.set(key, json.dumps(kept))
    assert alive.ttl(asking.person_key(str(as_emil.session["_auth_user_id"]))) > 0
    page = as_emil.get(f"{HERE}{name}/").content.decode()
    assert "Not answered within 15 minutes" in page
    assert "every 500ms" not in page


def test_without_an_answerer_nothing_is_sent_and_that_is_said(
    as_emil: Client, models: list[Checkpoint], redis_client
) -> None:
    redis_client.delete(alive_key(asking.ANSWERER))
    page = posted(as_emil, models[0])
    assert page.status_code == 422
    assert "No answerer gives a sign of life" in page.content.decode()
    body = {"models": [models[0].pk], "messages": "Why?"}
    told = as_emil.post(API, body, content_type="application/json")
    assert (told.status_code, told.json()["code"]) == (503, "no_answerer")
    assert redis_client.xlen(asking.STREAM) == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"models": []}, "models"),
        ({"models": ["A", "A"]}, "models"),
        ({"models": ["A", "B", "C"]}, "models"),
        ({"models": ["reward"]}, "models"),
        ({"models": ["none"]}, "models"),
        ({"models": ["\x00"]}, "models"),
        ({"messages": " "}, "messages"),
        ({"messages": [{"role": "assistant", "content": "So."}]}, "messages"),
        ({"messages": "x" * (asking.MAX_CHARACTERS + 1)}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}] * 51}, "messages"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_new_tokens": asking.MAX_NEW_TOKENS + 1}, "max_new_tokens"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_field_and_nothing_is_sent(
    as_emil: Client,
    project: Project,
    emil: User,
    models: list[Checkpoint],
    alive,
    change: dict[str, Any],
    field: str,
) -> None:
    names = {"A": models[0].pk, "B": models[1].pk, "C": "c"}
    names["reward"] = model_make(project, by=emil).pk
    body = {"models": ["A"], "messages": "Why?"} | change
    body["models"] = [names.get(name, name) for name in body["models"]]
    told = as_emil.post(API, body, content_type="application/json")
    assert told.status_code in (400, 404), told.content
    assert told.json()["field"] == field
    assert alive.xlen(asking.STREAM) == 0


def test_the_form_marks_the_field_that_is_wrong_and_keeps_what_was_typed(
    as_emil: Client, models: list[Checkpoint], alive
) -> None:
    page = posted(as_emil, models[0], models[0]).content.decode()
    assert "choose another one" in page
    page = posted(as_emil, models[0], max_new_tokens="99999", prompt="Tell me.").content.decode()
    assert re.search(r'id="id_max_new_tokens_error"', page)
    assert "Tell me." in page
    assert alive.xlen(asking.STREAM) == 0


def test_a_conversation_continues_with_the_answer_of_one_side(
    as_emil: Client, models: list[Checkpoint], alive
) -> None:
    name = asked(as_emil, *models)
    answered(alive, name, "Because of air.", "It is not.")
    page = as_emil.get(f"{HERE}?after={name}&side=b").content.decode()
    assert "It is not." in page
    assert "Because of air." not in page
    more = asked(as_emil, *models, prompt="Really?", after=name, side="b")
    told = json.loads(alive.get(asking.asked_key(more)))
    assert [one["content"] for one in told["messages"]] == [
        TYPED["prompt"],
        "It is not.",
        "Really?",
    ]
    answered(alive, more, "Yes.", "No.")
    alive.delete(asking.asked_key(name))
    gone = posted(as_emil, *models, after=name, side="b")
    assert gone.status_code == 422
    assert "no longer kept" in gone.content.decode()


def test_a_pair_goes_to_people_once_and_is_taken_back_while_nobody_has_voted(
    as_emil: Client, project: Project, models: list[Checkpoint], alive
) -> None:
    name = asked(as_emil, *models)
    act = f"{HERE}{name}/act/"
    send = {"action": "send", "votes": "2", "priority": "1"}
    answered(alive, name, "Because of air.", " ")
    assert as_emil.post(act, send).status_code == 422
    assert "Answer B is empty" in as_emil.get(f"{HERE}{name}/").content.decode()
    answered(alive, name, "Because of air.", "Cut by", state=asking.STOPPED)
    assert "Answer A was stopped" in as_emil.post(act, send).content.decode()
    answered(alive, name, "Because of air.", "It is not.")
    assert as_emil.post(act, send | {"votes": "99"}).status_code == 422
    assert Comparison.objects.count() == 0
    as_emil.post(act, send)
    pair = Comparison.objects.get()
    assert (pair.overlap, pair.priority, pair.stratum) == (2, 1.0, Comparison.Stratum.PRIORITY)
    assert pair.prompt.source == "playground"
    sides = [pair.response_a, pair.response_b]
    assert [one.origin for one in sides] == [Response.Origin.MODEL] * 2
    assert {one.messages[-1]["content"]: one.origin_ref for one in sides} == {
        "Because of air.": models[0].pk,
        "It is not.": models[1].pk,
    }
    assert as_emil.post(act, send).status_code == 422
    alive.delete(asking.asked_key(name), asking.reply_key(name))  # an hour later
    page = as_emil.get(f"{HERE}{name}/").content.decode()
    assert "0 of 2 votes cast" in page
    Comparison.objects.update(n_votes=1)
    assert "Somebody has voted" in as_emil.get(f"{HERE}{name}/").content.decode()
    Comparison.objects.update(n_votes=0)
    as_emil.post(act, {"action": "take_back"})
    assert Comparison.objects.count() == 0
    actions = AuditEvent.objects.filter(action__startswith="playground.")
    assert sorted(actions.values_list("action", flat=True)) == [
        "playground.sent",
        "playground.taken_back",
    ]
    assert as_emil.get(f"{HERE}{name}/").status_code == 404


def test_a_question_of_another_project_is_not_there(
    as_emil: Client, emil: User, models: list[Checkpoint], alive, signed_in
) -> None:
    name = asked(as_emil, *models)
    answered(alive, name, "Because of air.", "It is not.")
    other = Project.objects.create(slug="others", name="Others")
    olga = signed_in(person_make("Olga", other, Role.ENGINEER))
    for address in (f"{HERE}{name}/", f"/p/others/playground/{name}/", f"{API}/{name}"):
        assert olga.get(address).status_code == 404
    assert olga.get(f"/api/v1/projects/others/playground/{name}").status_code == 404
    body = {"models": [models[0].pk], "messages": "Why?"}
    path = "/api/v1/projects/others/playground"
    assert olga.post(path, body, content_type="application/json").json()["field"] == "models"


def test_the_api_tells_what_is_written_so_far_stops_and_sends_the_pair(
    as_emil: Client, models: list[Checkpoint], alive
) -> None:
    body = {"models": [one.pk for one in models], "messages": "Why?", "seed": 5}
    told = as_emil.post(API, body, content_type="application/json")
    assert told.status_code == 202
    name = told.json()["id"]
    assert told.json()["live"] is True
    assert [one["state"] for one in told.json()["answers"]] == ["waiting", "waiting"]
    answered(alive, name, "So.", "Because.")
    found = as_emil.get(f"{API}/{name}").json()
    assert [(one["model"], one["text"]) for one in found["answers"]] == [
        (models[0].pk, "So."),
        (models[1].pk, "Because."),
    ]
    assert found["live"] is False
    sent = as_emil.post(f"{API}/{name}/pair", {"votes": 1}, content_type="application/json")
    assert sent.json() == {"queued": 1, "voted": 0, "votes": 0, "asked": 1}
    assert as_emil.delete(f"{API}/{name}/pair").json()["queued"] == 0


def test_too_many_questions_are_turned_away(
    as_emil: Client, models: list[Checkpoint], alive
) -> None:
    for _ in range(asking.MAX_WAITING):
        alive.xadd(asking.STREAM, {"id": "x", "request": "{}"})
    page = posted(as_emil, models[0])
    assert "questions wait already" in page.content.decode()


def test_where_redis_is_away_the_page_says_so(
    as_emil: Client, models: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    import redis

    nowhere = redis.Redis(host="127.0.0.1", port=9, socket_connect_timeout=0.1)
    monkeypatch.setattr(dispatch, "redis_now", lambda: nowhere)
    page = posted(as_emil, models[0])
    assert page.status_code == 422
    assert "does not answer" in page.content.decode()
