"""POST /models/{id}/score and GET /scores/{id}: what is refused, who may ask, what comes back."""

import json
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.evaluation import dispatch
from apps.evaluation.services import scoring
from apps.training.models import Checkpoint, Run
from tests.evaluation.assessed import model_make
from tests.workers.scored import CountingModel, Shelf, emptied, scorer
from workers.contract import scores as contract
from workers.contract.scores import CHANNEL, ScoreReply
from workers.contract.wire import alive_key
from workers.request_queue import RequestQueue

redis_client = pytest.fixture(emptied)
ITEM = {"prompt": "Why?", "response": "So."}


@pytest.fixture
def model(project: Project, emil: User) -> Checkpoint:
    return model_make(project, by=emil)


@pytest.fixture
def alive(redis_client):
    """A scorer gives signs of life; the tests answer in its place."""
    redis_client.set(alive_key(contract.SCORER), "here:1", ex=60)
    yield redis_client
    redis_client.delete(alive_key(contract.SCORER))


@pytest.fixture
def as_emil(signed_in, emil: User) -> Client:
    return signed_in(emil)


def post(client: Client, model: Checkpoint | str, **body: Any):
    name = model if isinstance(model, str) else model.pk
    body = {"items": [ITEM], "wait_s": 0} | body
    return client.post(f"/api/v1/models/{name}/score", body, content_type="application/json")


def work(client) -> None:
    """One turn of a scorer in whose hands every model counts letters."""
    shelf = Shelf()
    shelf.get = lambda request, precision: (CountingModel(), "template")
    scorer(client, shelf).turn()


def test_scores_come_back_in_order_with_parts_disagreement_and_what_was_cached(
    as_emil: Client, model: Checkpoint, alive
) -> None:
    items = [ITEM, ITEM | {"response": "Because it is."}]
    asked = post(as_emil, model, items=items)
    assert asked.status_code == 202, asked.json()
    assert asked.json()["scorer_alive"] is True
    work(alive)
    answer = as_emil.get(f"/api/v1/scores/{asked.json()['id']}")
    assert answer.status_code == 200
    told = answer.json()
    assert (told["model"], told["cached"], told["precision"]) == (model.pk, 0, "float32")
    first, second = told["scores"]
    assert second["score"] - first["score"] == len("Because it is.") - len("So.")
    assert set(first) == {"score", "parts", "disagreement", "truncated"}
    again = post(as_emil, model, items=items)
    work(alive)
    told = as_emil.get(f"/api/v1/scores/{again.json()['id']}").json()
    assert told["scores"] == [first, second]


def test_who_waits_gets_the_scores_at_once_when_they_come_in_time(
    as_emil: Client, model: Checkpoint, alive, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = dispatch.reply_get

    def works_at_the_third_look(request_id: str) -> ScoreReply | None:
        looks.append(request_id)
        if len(looks) == 3:
            work(alive)
        return look(request_id)

    looks: list[str] = []
    monkeypatch.setattr(dispatch, "reply_get", works_at_the_third_look)
    answer = post(as_emil, model, wait_s=20)
    assert answer.status_code == 200
    assert len(looks) == 3


def test_few_may_hold_a_thread_of_the_web_server_and_the_others_are_told_to_come_back(
    as_emil: Client, model: Checkpoint, alive
) -> None:
    assert scoring._waiters.acquire(blocking=False)
    assert scoring._waiters.acquire(blocking=False)
    try:
        assert post(as_emil, model, wait_s=30).status_code == 202
    finally:
        scoring._waiters.release()
        scoring._waiters.release()


def test_a_message_list_is_sent_to_the_scorer_as_it_is(
    as_emil: Client, model: Checkpoint, alive
) -> None:
    prompt = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": "No, why?"},
    ]
    assert post(as_emil, model, items=[{"prompt": prompt, "response": ""}]).status_code == 202
    queue = RequestQueue(alive, CHANNEL)
    queue.join()
    (taken,) = queue.take()
    assert taken.request.items == [{"prompt": prompt, "response": ""}]
    assert (taken.request.sha256, taken.request.uri) == (model.sha256, model.uri)


@pytest.mark.parametrize(
    ("items", "row", "field"),
    [
        ([], None, "items"),
        ([ITEM] * 257, None, "items"),
        ([ITEM, {"prompt": "Why?"}], 2, "response"),
        ([ITEM, ITEM, {"response": "So."}], 3, "prompt"),
        ([ITEM | {"response": 7}], 1, "response"),
        ([ITEM | {"prompt": []}], 1, "prompt"),
        ([ITEM | {"prompt": [{"role": "wizard", "content": "x"}]}], 1, "prompt"),
        ([ITEM | {"prompt": [{"role": "user", "content": 3}]}], 1, "prompt"),
        ([ITEM | {"prompt": [{"role": "assistant", "content": "x"}]}], 1, "prompt"),
        ([ITEM | {"answer": "x"}], 1, "answer"),
        ([ITEM, ITEM | {"response": "x" * 100_001}], 2, "response"),
        ([ITEM | {"response": "x" * 90_000}] * 5, None, "items"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_item_and_field_and_nothing_is_sent(
    as_emil: Client, model: Checkpoint, alive, items: list, row: int | None, field: str
) -> None:
    answer = post(as_emil, model, items=items)
    assert answer.status_code == 400, answer.json()
    assert (answer.json()["row"], answer.json()["field"]) == (row, field)
    if row:
        assert f"item {row}" in answer.json()["message"]
    assert alive.xlen(contract.STREAM) == 0


@pytest.mark.parametrize("wait_s", [-1, 31, "long"])
def test_a_wait_that_is_none_is_refused(
    as_emil: Client, model: Checkpoint, alive, wait_s: object
) -> None:
    answer = post(as_emil, model, wait_s=wait_s)
    assert (answer.status_code, answer.json()["field"]) == (422, "wait_s")


def test_an_unknown_precision_is_refused(as_emil: Client, model: Checkpoint, alive) -> None:
    answer = post(as_emil, model, precision="int2")
    assert (answer.status_code, answer.json()["field"]) == (400, "precision")


def test_without_a_scorer_nothing_is_sent_and_that_is_said(
    as_emil: Client, model: Checkpoint, redis_client
) -> None:
    answer = post(as_emil, model)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_scorer")
    assert redis_client.xlen(contract.STREAM) == 0


def test_when_too_many_requests_wait_the_next_one_is_told_so(
    as_emil: Client, model: Checkpoint, alive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "MAX_WAITING", 2)
    assert [post(as_emil, model).status_code for _ in range(3)] == [202, 202, 503]
    assert post(as_emil, model).json()["code"] == "scorer_busy"


def test_a_redis_that_is_away_is_a_sentence_and_no_crash(
    as_emil: Client, model: Checkpoint, settings
) -> None:
    settings.REDIS_URL = "unix:///nonexistent/redis.sock"
    answer = post(as_emil, model)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "nonexistent" not in json.dumps(answer.json())


@pytest.mark.parametrize(
    ("code", "status"), [("precision_refused", 409), ("model_missing", 502), ("poisoned", 502)]
)
def test_what_the_scorer_refused_is_told_with_its_code(
    as_emil: Client, model: Checkpoint, alive, code: str, status: int
) -> None:
    asked = post(as_emil, model).json()["id"]
    queue = RequestQueue(alive, CHANNEL)
    queue.join()
    (taken,) = queue.take()
    queue.refuse(taken, code, "It will not do.")
    answer = as_emil.get(f"/api/v1/scores/{asked}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["message"] == "It will not do."


def test_models_and_answers_of_other_projects_and_other_roles_stay_theirs(
    signed_in, as_emil: Client, model: Checkpoint, ana: User, rita: User, olga: User, alive
) -> None:
    asked = post(as_emil, model).json()["id"]
    for person, status in ((ana, 403), (rita, 403), (olga, 404)):
        other = signed_in(person)
        assert post(other, model).status_code == status
        assert other.get(f"/api/v1/scores/{asked}").status_code == status
    assert post(as_emil, "nobody").json() == post(signed_in(olga), model).json()  # no difference


def test_only_reward_models_score(as_emil: Client, model: Checkpoint, alive) -> None:
    Run.objects.filter(pk=model.run_id).update(kind=Run.Kind.PPO)
    assert post(as_emil, model).status_code == 404


def test_an_answer_nobody_asked_for_is_not_there(as_emil: Client, alive) -> None:
    answer = as_emil.get("/api/v1/scores/0123")
    assert answer.status_code == 404
    assert "10 minutes" in answer.json()["message"]
