"""The queue of scoring requests (SPEC D14): a scorer in this process, and a model of letters."""

import json

import pytest

from tests.workers.scored import CountingModel, Shelf, ask, emptied, item, reply, scorer, stats
from workers.contract import scores as contract
from workers.contract.scores import CHANNEL, ScoreReply
from workers.request_queue import MAX_DELIVERIES, RequestQueue
from workers.scoring.scorer import ROWS

client = pytest.fixture(emptied)
PROMPT = len(json.dumps(item("")["prompt"]))


def test_requests_of_several_callers_for_one_model_share_a_batch(client) -> None:
    model = CountingModel()
    for caller in range(8):
        ask(client, f"r{caller}", *(item("x" * (10 * caller + k)) for k in range(4)))
    worker = scorer(client, Shelf(one_float32=model))
    assert worker.turn() == 8
    assert model.batches == [32]
    for caller in range(8):
        answer = reply(client, f"r{caller}")
        assert [s["score"] for s in answer.scores] == [PROMPT + 10 * caller + k for k in range(4)]
        assert answer.scores[0]["disagreement"] == 0.5
        assert answer.scores[0]["parts"] == {"model": answer.scores[0]["score"]}
    assert client.xlen(contract.STREAM) == 0
    assert client.xpending(contract.STREAM, contract.GROUP)["pending"] == 0


def test_a_batch_is_closed_at_64_rows_so_that_nobody_waits_for_everybody(client) -> None:
    model = CountingModel()
    for caller in range(10):
        ask(client, f"r{caller}", *(item(f"{caller} {k}") for k in range(16)))
    worker = scorer(client, Shelf(one_float32=model))
    assert [worker.turn() for _ in range(3)] == [4, 4, 2]
    assert model.batches == [64, 64, 32]


def test_models_are_never_mixed_in_a_batch(client) -> None:
    one, two = CountingModel(), CountingModel(scale=-1.0)
    ask(client, "a", item("x"), item("xx"))
    ask(client, "b", item("x"), uri="models/two", sha256="2" * 64)
    ask(client, "c", item("xxx"))
    scorer(client, Shelf(one_float32=one, two_float32=two)).turn()
    assert (one.batches, two.batches) == ([3], [1])
    assert reply(client, "b").scores[0]["score"] == -(PROMPT + 1)


def test_what_was_scored_before_is_said_again_and_counted_as_cached(client) -> None:
    model = CountingModel()
    worker = scorer(client, Shelf(one_float32=model))
    ask(client, "first", item("x"), item("y"))
    worker.turn()
    ask(client, "second", item("x"), item("x", prompt="How?"), item("x "))
    worker.turn()
    assert reply(client, "first").cached == 0
    assert reply(client, "second").cached == 1  # another prompt, and more white space, are new
    assert model.batches == [2, 2]
    assert reply(client, "second").scores[0] == reply(client, "first").scores[0]
    assert stats(client) == {
        "answered": 2,
        "texts_memory": 1,
        "texts_shared": 0,
        "texts_misses": 4,
    }


def test_another_version_of_the_model_is_asked_again(client) -> None:
    model = CountingModel()
    worker = scorer(client, Shelf(one_float32=model))
    ask(client, "old", item("x"))
    worker.turn()
    ask(client, "new", item("x"), sha256="9" * 64)
    worker.turn()
    assert reply(client, "new").cached == 0
    assert model.batches == [1, 1]


def test_one_bad_request_fails_alone(client) -> None:
    ask(client, "good", item("x"))
    ask(client, "bad", item("x?"))
    ask(client, "fine", item("xx"))
    scorer(client, Shelf(one_float32=CountingModel(fails_on="?"))).turn()
    assert reply(client, "bad").error["code"] == "scorer_failed"
    assert "no such letter" not in reply(client, "bad").error["message"]  # of our inside
    assert reply(client, "good").error is None
    assert reply(client, "fine").scores[0]["score"] == PROMPT + 2


def test_a_score_that_is_no_number_is_an_error_and_no_score(client) -> None:
    ask(client, "odd", item("x"))
    scorer(client, Shelf(one_float32=CountingModel(scale=float("nan")))).turn()
    assert reply(client, "odd").error["code"] == "non_finite"


def test_who_was_killed_long_ago_leaves_the_list_and_who_left_work_stays_on_it(
    client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, owing = RequestQueue(client, CHANNEL), RequestQueue(client, CHANNEL)
    gone.join()
    ask(client, "left", item("x"))
    assert len(owing.take()) == 1
    assert gone.take() == []
    monkeypatch.setattr("workers.request_queue.FORGET_MS", -1)
    RequestQueue(client, CHANNEL).join()
    names = [c["name"].decode() for c in client.xinfo_consumers(contract.STREAM, contract.GROUP)]
    assert names == [owing.consumer]


def test_what_is_no_request_is_answered_and_does_not_stay(client) -> None:
    client.xadd(contract.STREAM, {"id": "odd", "request": "no json"})
    client.xadd(contract.STREAM, {"what": "ever"})
    ask(client, "next", item("x"))
    worker = scorer(client, Shelf(one_float32=CountingModel()))
    for _ in range(3):
        worker.turn()
    assert reply(client, "odd").error["code"] == "unreadable"
    assert reply(client, "next").error is None
    assert client.xlen(contract.STREAM) == 0


# --- what a dead scorer leaves ---


def test_a_request_a_dead_scorer_left_is_taken_over_and_one_still_at_work_is_not(client) -> None:
    dead = RequestQueue(client, CHANNEL)
    dead.join()
    ask(client, "left", item("x"))
    assert len(dead.take()) == 1  # and then it is killed
    young = scorer(client, Shelf(one_float32=CountingModel()), retake_s=60)
    young.turn()
    assert reply(client, "left") is None
    heir = scorer(client, Shelf(one_float32=CountingModel()), retake_s=0)
    assert heir.turn() == 1
    assert reply(client, "left").scores[0]["score"] == PROMPT + 1


def test_a_scorer_that_is_slow_keeps_what_it_works_on(client) -> None:
    slow = RequestQueue(client, CHANNEL)
    slow.join()
    ask(client, "slow", item("x"))
    taken = slow.take()
    with slow.holding(taken):
        client.xclaim(
            contract.STREAM,
            contract.GROUP,
            slow.consumer,
            0,
            [taken[0].entry],
            idle=20_000,
            justid=True,
        )
        slow.refresh()  # the keeper's thread
        assert RequestQueue(client, CHANNEL, retake_s=15).take_over() is None


def test_a_request_answered_twice_keeps_its_first_answer(client) -> None:
    """The first scorer was only slow: both come to an end."""
    first = RequestQueue(client, CHANNEL)
    first.join()
    ask(client, "twice", item("x"))
    (taken,) = first.take()
    second = RequestQueue(client, CHANNEL, retake_s=0)
    again = second.take_over()
    assert again.deliveries == 2
    assert second.answer(again, ScoreReply("twice", [{"score": 2.0}]))
    assert not first.answer(taken, ScoreReply("twice", [{"score": 1.0}]))
    assert reply(client, "twice").scores == [{"score": 2.0}]
    assert stats(client) == {"answered": 1, "answered_before": 1}


def test_a_request_that_ends_its_scorer_three_times_is_answered_with_an_error_alone(client) -> None:
    """The poison lay in one batch with an innocent request; nobody else pays for it."""
    first = RequestQueue(client, CHANNEL)
    first.join()
    ask(client, "poison", item("x"))
    ask(client, "innocent", item("xx"))
    assert len(first.take()) == 2  # killed
    deaths = 1
    while reply(client, "poison") is None:
        heir = RequestQueue(client, CHANNEL, retake_s=0)
        while (taken := heir.take_over()) is not None and taken.request.id != "poison":
            heir.answer(taken, ScoreReply(taken.request.id, [{"score": 0.0}]))
        deaths += taken is not None
        assert deaths <= MAX_DELIVERIES
    assert deaths == MAX_DELIVERIES
    assert reply(client, "poison").error["code"] == "poisoned"
    heir = scorer(client, Shelf(one_float32=CountingModel()), retake_s=0)
    if reply(client, "innocent") is None:
        heir.turn()
    assert reply(client, "innocent").error is None


def test_no_more_than_so_many_requests_may_wait(client) -> None:
    submit = client.register_script(contract.SUBMIT)

    def send(name: str) -> int:
        keys = [contract.STREAM, contract.asked_key(name)]
        return submit(keys=keys, args=[3, 600, "{}", name, "{}"])

    assert [send(f"r{i}") for i in range(5)] == [1, 1, 1, 0, 0]
    assert client.xlen(contract.STREAM) == 3
    assert client.exists(contract.asked_key("r4")) == 0


# --- precisions ---


class Shuffled(CountingModel):
    """A precision that orders the texts otherwise."""

    def score_rows(self, texts):
        scores = super().score_rows(texts)
        scores.values[:] = [(7919 * v) % 101 for v in scores.values]
        return scores


def asked_in_int8(client, worker, name: str, count: int) -> ScoreReply:
    ask(client, name, *(item("x" * k) for k in range(count)), precision="int8")
    worker.turn()
    return reply(client, name)


def test_float32_is_served_until_enough_texts_show_that_int8_orders_alike(client) -> None:
    shelf = Shelf(one_float32=CountingModel(), one_int8=CountingModel(scale=0.5))
    worker = scorer(client, shelf)
    few = asked_in_int8(client, worker, "few", ROWS - 1)
    assert few.precision == "float32"
    assert few.scores[3]["score"] == PROMPT + 3
    assert asked_in_int8(client, worker, "enough", ROWS).precision == "float32"
    after = asked_in_int8(client, worker, "after", 5)
    assert after.precision == "int8"
    assert after.cached == 0  # float32's scores are another entry
    assert after.scores[3]["score"] == 0.5 * (PROMPT + 3)


def test_a_precision_that_orders_otherwise_is_refused_also_by_the_next_scorer(client) -> None:
    shelf = Shelf(one_float32=CountingModel(), one_int8=Shuffled())
    assert asked_in_int8(client, scorer(client, shelf), "check", ROWS).precision == "float32"
    for attempt in ("a", "b"):
        refused = asked_in_int8(client, scorer(client, shelf), attempt, 3)
        assert refused.error["code"] == "precision_refused"
        assert "Ask for float32" in refused.error["message"]
        assert refused.scores == []
