"""Answers by a server over real sockets: what is asked, in what order, what a hostile one gets."""

import gzip
import json
import threading
from collections import Counter

import pytest

from tests.workers.recipes.language import user
from tests.workers.servers.conftest import SECRET, Asking
from tests.workers.servers.stub import (
    completion,
    cut,
    dripping,
    never_begun,
    raw,
    slow,
    status,
    text,
)
from workers.contract.events import Fault, RecipeError
from workers.rollouts.local import Sampling
from workers.servers.asking import Cancelled
from workers.service import MOST_BYTES

SAMPLING = Sampling(8, temperature=0.7, top_p=0.9, seed=11)
BOMB = gzip.compress(gzip.compress(b" " * 10_000_000))
PROMPTS = [user(word) for word in ("cat", "dog", "sun", "rain", "red", "blue")]


def said(body: dict) -> str:
    return body["messages"][-1]["content"]


def echo(body, k):
    return text(f"the {said(body)}")


def failure(served, prompts=PROMPTS) -> RecipeError:
    with pytest.raises(RecipeError) as raised:
        served.answer(prompts, SAMPLING)
    assert SECRET not in str(raised.value)
    return raised.value


def test_every_prompt_is_asked_once_with_its_own_seed_and_answers_keep_their_order(
    asking: Asking, stub
) -> None:
    server = stub(lambda body, k: slow(0.05 * (k % 3), echo(body, k)))
    served = asking.served(
        server.url, token_env="INFERENCE_TOKEN_LAB", stop=["\n\n"], extra={"min_p": 0.1}
    )
    answers = served.answer(PROMPTS, SAMPLING)
    assert [one.text for one in answers] == [f"the {p[0]['content']}" for p in PROMPTS]
    assert {(one.tokens, one.ended, one.kl) for one in answers} == {(3, True, None)}
    assert len({body["seed"] for body in server.bodies}) == len(PROMPTS)
    body = next(body for body in server.bodies if said(body) == "cat")
    del body["seed"]
    assert body == {
        "path": "/v1/chat/completions",
        "model": "tiny",
        "messages": user("cat"),
        "max_tokens": 8,
        "temperature": 0.7,
        "top_p": 0.9,
        "stop": ["\n\n"],
        "min_p": 0.1,
    }
    assert {h["Authorization"] for h in server.headers} == {f"Bearer {SECRET}"}
    assert served.as_summary() == {
        "role": "policy",
        "at": f"127.0.0.1:{server.port}/v1/chat/completions",
        "model": "tiny",
        "says": "stub",
    }
    again = asking.served(server.url, attempt=9, stop=["\n\n"], extra={"min_p": 0.1})
    again._kept._found.clear()
    again.answer(PROMPTS, SAMPLING)
    seeds = Counter(body["seed"] for body in server.bodies if "seed" in body)
    assert set(seeds.values()) <= {1, 2}
    assert len(seeds) == len(PROMPTS), "a seed is a function of run, purpose and row"


def test_no_more_requests_than_allowed_are_under_way(asking: Asking, stub) -> None:
    server = stub(lambda body, k: slow(0.05, echo(body, k)))
    asking.served(server.url, concurrency=2).answer(PROMPTS, SAMPLING)
    assert server.most_at_once <= 2


def test_draws_of_one_prompt_share_requests_up_to_n(asking: Asking, stub) -> None:
    def reply(body, k):
        return text(*[f"{said(body)} {i}" for i in range(body.get("n", 1))])

    server = stub(reply)
    draws = [prompt for prompt in PROMPTS[:2] for _ in range(5)]
    answers = asking.served(server.url, n=4).answer(draws, SAMPLING)
    assert sorted(body.get("n", 1) for body in server.bodies) == [1, 1, 4, 4]
    assert [one.text for one in answers] == [
        "cat 0",
        "cat 1",
        "cat 2",
        "cat 3",
        "cat 0",
        "dog 0",
        "dog 1",
        "dog 2",
        "dog 3",
        "dog 0",
    ]
    # The server counted four texts together; the tokenizer counts each, its end token included.
    assert [one.tokens for one in answers] == [3, 3, 3, 3, 3] * 2


def test_a_server_that_gives_one_where_n_were_asked_is_told_apart(asking: Asking, stub) -> None:
    error = failure(asking.served(stub(echo).url, n=4), [PROMPTS[0]] * 4)
    assert "choices: are 1, and 4" in error.message


def test_plain_completions_send_the_template_of_the_models_own_tokenizer(
    asking: Asking, stub
) -> None:
    def reply(body, k):
        choice = {"text": "runs", "finish_reason": "length"}
        return raw(json.dumps({"choices": [choice], "usage": {"completion_tokens": 8}}).encode())

    server = stub(reply)
    (answer,) = asking.served(server.url + "/", api="completions").answer(PROMPTS[:1], SAMPLING)
    (body,) = server.bodies
    assert (body["path"], body["prompt"]) == ("/v1/completions", "[user] cat [end] [assistant] ")
    assert (answer.text, answer.ended, answer.tokens) == ("runs", False, 8)


def test_what_may_pass_is_tried_again_and_retry_after_is_heard(asking: Asking, stub) -> None:
    replies = [
        status(500, "boom"),
        status(429, "busy", Retry_After="7"),
        cut,
        text("done"),
    ]
    server = stub(lambda body, k: replies[k])
    served = asking.served(server.url, retries=3, concurrency=1)
    assert [one.text for one in served.answer(PROMPTS[:1], SAMPLING)] == ["done"]
    assert len(server.bodies) == 4
    first, second, third = asking.waits
    assert 0.25 <= first <= 0.5
    assert second == 7.0
    assert 1.0 <= third <= 2.0


@pytest.mark.parametrize(
    ("reply", "words", "kind"),
    [
        (status(500, "boom"), "500 boom", "inference_server"),
        (status(503, "x" * 5000), "503 " + "x" * 200, "inference_server"),
        (cut, "no answer after 1 tries", "inference_server"),
        (dripping(5.0), "no whole answer within 0.3 s", "inference_server"),
        (slow(2.0, text("late")), "no answer after 1 tries", "inference_server"),
        (status(400, "prompt is too long"), "400 prompt is too long", "inference_server_answer"),
        (raw(b"<html>", kind="text/html"), "is text/html, not application/json", "_answer"),
        (raw(b"{nonsense"), "is no JSON", "_answer"),
        (raw(b"[" * 100_000), "is no JSON", "_answer"),
        (raw(b'{"choices": null}'), "choices: is no list", "_answer"),
        (raw(json.dumps(completion()).encode()), "choices: are 0", "_answer"),
        (raw(json.dumps(completion(None)).encode()), "message.content: is no text", "_answer"),
        (text("x", reason="content_filter"), "finish_reason: is 'content_filter'", "_answer"),
        (raw(b" " * (MOST_BYTES + 1)), "longer than 8,000,000 bytes", "_answer"),
        (text("x" * 200_001), "has 200,001 characters", "_answer"),
        (raw(b"junk", Content_Encoding="gzip"), "encoded as gzip, which was not", "_answer"),
        (raw(BOMB, Content_Encoding="gzip, gzip"), "encoded as gzip, gzip", "_answer"),
        (never_begun(20.0), "no whole answer within 0.3 s", "inference_server"),
        (status(503, "down", Retry_After="\xb2"), "503 down", "inference_server"),
    ],
)
def test_a_hostile_answer_fails_the_run_with_the_row_and_the_reason(
    asking: Asking, stub, reply, words: str, kind: str
) -> None:
    error = failure(asking.served(stub(lambda body, k: reply).url, timeout_s=0.3), PROMPTS[:1])
    assert error.kind.endswith(kind)
    assert "1 of 1 requests" in error.message
    assert "(row 1: " in error.message
    assert words in error.message
    assert error.retryable is (error.kind == "inference_server")
    assert len(error.message) < 900


def test_what_cannot_be_written_down_is_replaced_and_every_answer_is_kept(
    asking: Asking, stub
) -> None:
    """JSON may name half of a character, which no file and no table takes."""
    server = stub(lambda body, k: text("a\ud83d \ud83d\ude00\x00", model="m\ud800" + "x" * 1000))
    first = asking.served(server.url)
    assert {one.text for one in first.answer(PROMPTS, SAMPLING)} == {"a\ufffd \U0001f600"}
    assert first.as_summary()["says"] == "m\ufffd" + "x" * 198
    server.bodies.clear()
    again = asking.served(server.url, attempt=2)
    assert {one.text for one in again.answer(PROMPTS, SAMPLING)} == {"a\ufffd \U0001f600"}
    assert server.bodies == []


@pytest.mark.parametrize("code", [401, 403, 404, 307])
def test_what_no_request_can_pass_ends_the_run_at_once(asking: Asking, stub, code: int) -> None:
    told = f"wrong key {SECRET}"
    server = stub(lambda body, k: status(code, told, Location="http://elsewhere.example/"))
    served = asking.served(server.url, retries=5, concurrency=1, token_env="INFERENCE_TOKEN_LAB")
    error = failure(served)
    assert (error.kind, error.fault) == ("inference_server_refused", Fault.CONFIGURATION)
    assert str(code) in error.message
    assert len(server.bodies) == 1


def test_a_server_whose_model_changes_meanwhile_ends_the_run(asking: Asking, stub) -> None:
    server = stub(lambda body, k: text("a", model="old" if k < 2 else "new"))
    error = failure(asking.served(server.url, concurrency=1))
    assert error.kind == "inference_server_changed"
    assert "'new', and was 'old'" in error.message


def test_answers_of_an_earlier_attempt_and_of_another_model_are_never_mixed(
    asking: Asking, stub
) -> None:
    server = stub(lambda body, k: text("a", model="old" if k < 2 else "new"))
    assert failure(asking.served(server.url, concurrency=1)).kind == "inference_server_changed"
    error = failure(asking.served(server.url, attempt=2, concurrency=1))
    assert error.kind == "inference_server_changed"
    assert "'new', and was 'old'" in error.message
    same = asking.served(server.url, attempt=3)
    same.answer(PROMPTS[:2], SAMPLING)  # all of them kept: nobody is asked who it is
    assert same.as_summary()["says"] == "old"


def test_failures_that_are_allowed_leave_their_rows_empty_and_named(asking: Asking, stub) -> None:
    def reply(body, k):
        return status(400, "no cats") if said(body) == "cat" else echo(body, k)

    served = asking.served(stub(reply).url, failed_share=0.2)
    answers = served.answer_most(PROMPTS, SAMPLING)
    assert [one and one.text for one in answers][:2] == [None, "the dog"]
    assert served.failed == 1
    assert "row 1:" in asking.logged()
    assert "400 no cats" in asking.logged()


def test_the_share_that_may_fail_is_counted_exactly(asking: Asking, stub) -> None:
    """In floating point 0.29 × 100 is a little under 29."""
    server = stub(lambda body, k: status(400, "no") if k < 29 else echo(body, k))
    served = asking.served(server.url, failed_share=0.29, concurrency=1)
    served.answer_most([PROMPTS[0]] * 100, SAMPLING)
    assert served.failed == 29


def test_one_failure_too_many_ends_the_run_and_the_next_attempt_asks_the_rest_only(
    asking: Asking, stub
) -> None:
    down = threading.Event()

    def reply(body, k):
        if k >= 4:
            down.set()
        return status(503, "down") if down.is_set() else echo(body, k)

    server = stub(reply)
    error = failure(asking.served(server.url, concurrency=1))
    assert (error.kind, error.fault, error.retryable) == ("inference_server", Fault.MACHINE, True)
    assert "row 5:" in error.message
    assert "1 tries, the last one: 503" in error.message
    assert "4 answers are kept" in error.message
    for thread in threading.enumerate():
        if thread.name.startswith("inference-"):
            thread.join(60)
    down.clear()
    server.bodies.clear()
    answers = asking.served(server.url, attempt=2).answer(PROMPTS, SAMPLING)
    assert [one.text for one in answers] == [f"the {p[0]['content']}" for p in PROMPTS]
    assert sorted(said(body) for body in server.bodies) == ["blue", "red"]
    assert "4 of 6 requests" in asking.logged()


def test_other_sampling_another_model_and_a_damaged_part_are_asked_anew(
    asking: Asking, stub
) -> None:
    server = stub(echo)
    asking.served(server.url).answer(PROMPTS, SAMPLING)
    for fields, sampling in (
        ({}, Sampling(8, temperature=0.7, top_p=0.9, seed=12)),
        ({}, Sampling(9, temperature=0.7, top_p=0.9, seed=11)),
        ({"model": "other"}, SAMPLING),
    ):
        server.bodies.clear()
        asking.served(server.url, attempt=2, **fields).answer(PROMPTS, sampling)
        assert len(server.bodies) == len(PROMPTS)
    part = max((asking.root / "store" / "runs" / "r" / "answers").glob("attempt-1-*"))
    part.write_bytes(part.read_bytes()[:-40])  # the last line is cut off
    server.bodies.clear()
    asking.served(server.url, attempt=3).answer(PROMPTS, SAMPLING)
    assert len(server.bodies) == 1


def test_a_cancelled_run_waits_for_no_answer(asking: Asking, stub) -> None:
    asking.command = "cancel"
    server = stub(lambda body, k: slow(30.0, text("late")))
    with pytest.raises(Cancelled):
        asking.served(server.url).answer(PROMPTS, SAMPLING)


def test_a_host_that_the_worker_does_not_name_is_never_asked(
    asking: Asking, stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = stub(echo)
    monkeypatch.setenv("INFERENCE_HOSTS", "gpu.example, 127.0.0.1:1")
    with pytest.raises(RecipeError, match=r"server\.url: .* 127"):
        asking.served(server.url)
    monkeypatch.setenv("INFERENCE_HOSTS", f"127.0.0.1:{server.port}")
    asking.served(server.url)
    with pytest.raises(RecipeError, match="INFERENCE_TOKEN_GONE"):
        asking.served(server.url, token_env="INFERENCE_TOKEN_GONE")
    assert server.bodies == []
