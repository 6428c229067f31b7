"""The answerer: what it writes, what it tells meanwhile, and what goes wrong."""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.stack import Process, wait_until
from tests.workers.asked import ask, emptied, put_model, reply, said
from tests.workers.recipes.language import tiny_gpt2, word_tokenizer
from tests.workers.scored import put_tree
from tests.workers.servers.stub import Body, Stub, cut, events, raw, status, text
from workers.answering import answerer as module
from workers.answering.__main__ import main as answering_main
from workers.answering.answerer import Answerer, Models
from workers.config.server import ServedModelSettings
from workers.contract import asking as contract
from workers.contract import fleet
from workers.contract.asking import CHANNEL
from workers.contract.fleet import WorkerReport, report_to_json
from workers.contract.wire import alive_key
from workers.data.batches import encode_prompt
from workers.models.loading import load_causal, load_tokenizer, stop_ids
from workers.request_queue import Keeper, RequestQueue
from workers.rollouts.local import Sampling, generate
from workers.servers.answers import write_served

client = pytest.fixture(emptied)
Two = tuple[str, dict[str, str], dict[str, str]]
DRAWN = {"temperature": 1.0, "top_p": 0.9, "max_new_tokens": 12, "seed": 7}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Two:
    """The store's URL and two models in it."""
    root = tmp_path_factory.mktemp("asked")
    url, first = put_model(root, "first", seed=1)
    return url, first, put_model(root, "second", seed=2)[1]


def answerer(client: Any, tmp_path: Path, **more: Any) -> Answerer:
    queue = RequestQueue(client, CHANNEL, retake_s=more.pop("retake_s", 15.0))
    queue.join()
    return Answerer(client, queue, Models(tmp_path / "models"), **more)


def drawn_by_a_run(root: Path, name: str) -> str:
    """The answer that `generate` draws from the files of the model."""
    model, tokenizer = load_causal(root / name), load_tokenizer(root / name)
    ids = encode_prompt(tokenizer, [{"role": "user", "content": "the cat"}])
    sampling = Sampling(12, temperature=1.0, top_p=0.9, seed=7)
    stop = stop_ids(model, tokenizer)
    return str(generate(model, tokenizer, [ids], sampling, stop=stop).texts[0])


def test_each_model_answers_what_a_run_would_draw_with_the_same_seed(
    client, models: Two, tmp_path: Path
) -> None:
    url, first, second = models
    ask(client, "q", url, first, second, **DRAWN)
    assert answerer(client, tmp_path).turn() == 1
    told = reply(client, "q")
    root = Path(url).parent
    texts = [drawn_by_a_run(root, "first"), drawn_by_a_run(root, "second")]
    assert [one.text for one in told.answers] == texts
    assert texts[0] != texts[1]
    assert {one.state for one in told.answers} <= {contract.CUT, contract.ENDED}
    assert all(0 < one.tokens <= 12 for one in told.answers)
    assert client.ttl(contract.reply_key("q")) > contract.KEPT_SECONDS - 60
    assert client.xlen(contract.STREAM) == 0


def test_what_is_written_so_far_is_told_and_a_stop_keeps_it(
    client, models: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, first, second = models
    monkeypatch.setattr(module, "TOLD_EVERY_S", 0.0)
    seen: list[tuple[str, int]] = []
    say = module._Told.say

    def looked_at(self, place: int, answer: contract.Answer) -> None:
        say(self, place, answer)
        seen.append((answer.state, answer.tokens))
        if answer.tokens == 3:
            client.set(contract.stop_key("q"), 1)

    monkeypatch.setattr(module._Told, "say", looked_at)
    ask(client, "q", url, first, second, temperature=0.0, max_new_tokens=20)
    answerer(client, tmp_path).turn()
    one, other = reply(client, "q").answers
    assert seen[:5] == [("loading", 0), *(("writing", n) for n in range(4))]
    assert (one.state, one.tokens) == (contract.STOPPED, 3)
    assert one.text
    assert (other.state, other.text) == (contract.STOPPED, "")
    assert said(client, "q").answers == reply(client, "q").answers


def test_transformers_own_loop_is_watched_too() -> None:
    model, tokenizer = tiny_gpt2(), word_tokenizer()
    model.generation_config.eos_token_id = None
    seen: list[int] = []

    def watch(drawn: torch.Tensor) -> bool:
        seen.append(drawn.shape[1])
        return drawn.shape[1] == 4

    ids = encode_prompt(tokenizer, [{"role": "user", "content": "the cat"}])
    from workers.rollouts import local

    given: Any = {"stop": (1,), "pad_id": 0, "keep_logprobs": False, "watch": watch}
    prompt = torch.tensor([ids])
    model.lm_head.weight.data[1] = -10.0
    drawn = local._by_transformers(
        model, prompt, torch.ones_like(prompt), Sampling(9, temperature=0), **given
    )
    assert (drawn.ids.shape[1], seen) == (4, [1, 2, 3, 4])


def test_an_answer_that_takes_too_long_ends_there(client, models: Two, tmp_path: Path) -> None:
    url, first, _ = models
    ask(client, "q", url, first, temperature=0.0, max_new_tokens=20, answer_seconds=1e-9)
    answerer(client, tmp_path).turn()
    (one,) = reply(client, "q").answers
    assert (one.state, one.tokens) == (contract.OUT_OF_TIME, 1)


def test_a_model_that_fails_says_why_and_the_other_one_answers(
    client, models: Two, tmp_path: Path
) -> None:
    url, first, _ = models
    gone = {"uri": "models/gone", "sha256": "1" * 64}
    ask(client, "q", url, gone, first, max_new_tokens=3)
    ask(
        client,
        "long",
        url,
        first,
        messages=[{"role": "user", "content": "the cat " * 40}],
    )
    worker = answerer(client, tmp_path)
    assert [worker.turn(), worker.turn()] == [1, 1]
    lost, well = reply(client, "q").answers
    assert (lost.state, lost.error["code"]) == (contract.FAILED, "model_missing")
    assert url not in lost.error["message"]
    assert well.tokens > 0
    (long,) = reply(client, "long").answers
    assert long.error["code"] == "prompt_too_long"
    assert "this model reads 64" in long.error["message"]


@pytest.fixture
def served(
    models: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[[Body, int], Any]], Any]]:
    """A model at a server that answers as it is told."""
    monkeypatch.setenv("INFERENCE_HOSTS", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "*")
    url, stubs = models[0], []

    def make(told: Callable[[Body, int], Any], tokenizer: Any = None) -> Any:
        stubs.append(Stub(told))
        name = f"at{stubs[-1].port}"
        write_served(tmp_path / name, ServedModelSettings(url=stubs[-1].url, model="m"), tokenizer)
        _, uri, sha256 = put_tree(Path(url).parent, tmp_path / name, name)
        return {"uri": uri, "sha256": sha256}

    yield make
    for stub in stubs:
        stub.close()


def test_a_server_that_streams_is_read_while_it_writes(
    client, models: Two, tmp_path: Path, served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOLD_EVERY_S", 0.0)
    seen: list[str] = []

    def look(n: int) -> None:
        wanted = "".join(PIECES[:n])
        for _ in range(3_000):
            if said(client, "q").answers[0].text == wanted:
                seen.append(wanted)
                return
            time.sleep(0.02)

    usage = {"completion_tokens": 4}
    theirs = served(lambda body, k: events(*PIECES, then=look, usage=usage))
    ask(client, "q", models[0], theirs)
    answerer(client, tmp_path).turn()
    assert seen == ["Tea", "Tea ☕", "Tea ☕ please"]
    (one,) = reply(client, "q").answers
    assert (one.text, one.state, one.tokens) == ("Tea ☕ please", contract.ENDED, 4)


PIECES = ("Tea", " ☕", " please")


@pytest.mark.parametrize(
    ("told", "state", "text_kept", "code"),
    [
        (lambda: events("Te", "a", reason="length"), contract.CUT, "Tea", ""),
        (lambda: events("Te", "a", reason=None), contract.FAILED, "Tea", "broken"),
        (lambda: raw(b"data: {\n\n", kind="text/event-stream"), contract.FAILED, "", "broken"),
        (
            lambda: raw(b'data: {"error": {"message": "out"}}\n', kind="text/event-stream"),
            contract.FAILED,
            "",
            "broken",
        ),
        (lambda: cut, contract.FAILED, "", "broken"),
    ],
)
def test_streams_that_break_off_are_told(
    client, models: Two, tmp_path: Path, served, told, state: str, text_kept: str, code: str
) -> None:
    ask(client, "q", models[0], served(lambda body, k: told()))
    answerer(client, tmp_path).turn()
    (one,) = reply(client, "q").answers
    assert (one.state, one.text) == (state, text_kept)
    assert (one.error is not None) == bool(code)


def test_a_token_is_never_part_of_what_a_stream_says_went_wrong(
    client, models: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_HOSTS", "127.0.0.1")
    monkeypatch.setenv("INFERENCE_TOKEN_LAB", "very-secret-token")
    said_back = b'data: {"error": "no such key: very-secret-token"}\n'
    stub = Stub(lambda body, k: raw(said_back, kind="text/event-stream"))
    settings = ServedModelSettings(url=stub.url, model="m", token_env="INFERENCE_TOKEN_LAB")
    write_served(tmp_path / "lab", settings, None)
    _, uri, sha256 = put_tree(Path(models[0]).parent, tmp_path / "lab", "lab")
    ask(client, "q", models[0], {"uri": uri, "sha256": sha256})
    answerer(client, tmp_path).turn()
    stub.close()
    (one,) = reply(client, "q").answers
    assert "no such key" in one.error["message"]
    assert "very-secret-token" not in one.error["message"]


def test_a_stream_ends_when_it_is_stopped_and_when_its_time_is_over(
    client, models: Two, tmp_path: Path, served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOLD_EVERY_S", 0.0)
    given_up = threading.Event()

    def stop(n: int) -> None:
        client.set(contract.stop_key("q"), 1)

    def wait(n: int) -> None:
        given_up.wait(60 if n == 2 else 0)

    ask(client, "q", models[0], served(lambda body, k: events("Te", "a", then=stop)))
    slow_one = served(lambda body, k: events("Te", "a", "pot", then=wait))
    ask(client, "slow", models[0], slow_one, answer_seconds=2.0)
    worker = answerer(client, tmp_path)
    assert [worker.turn(), worker.turn()] == [1, 1]
    given_up.set()
    (stopped,), (late,) = reply(client, "q").answers, reply(client, "slow").answers
    assert stopped.state == contract.STOPPED
    assert stopped.text in ("Te", "Tea")
    assert (late.state, late.text) == (contract.OUT_OF_TIME, "Tea")


def test_a_server_that_refuses_to_stream_is_asked_for_the_whole_answer(
    client, models: Two, tmp_path: Path, served
) -> None:
    theirs = served(lambda body, k: status(422, "stream") if "stream" in body else text("Tea"))
    ask(client, "q", models[0], theirs)
    answerer(client, tmp_path).turn()
    (one,) = reply(client, "q").answers
    assert (one.text, one.state) == ("Tea", contract.ENDED)


def test_two_servers_are_asked_at_the_same_time(
    client, models: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answers once the other was asked too."""
    url, _, _ = models
    monkeypatch.setenv("INFERENCE_HOSTS", "127.0.0.1")
    both = threading.Barrier(2)

    def answer(body: Body, k: int) -> Any:
        both.wait(60)
        return text(f"from {body['model']}")

    stub = Stub(answer)
    named = []
    try:
        for name in ("one", "other"):
            settings = ServedModelSettings(url=stub.url, model=name)
            write_served(tmp_path / name, settings, None)
            _, uri, sha256 = put_tree(Path(url).parent, tmp_path / name, f"served-{name}")
            named.append({"uri": uri, "sha256": sha256})
        ask(client, "q", url, *named)
        answerer(client, tmp_path).turn()
    finally:
        stub.close()
    assert [one.text for one in reply(client, "q").answers] == ["from one", "from other"]


def test_a_served_model_is_asked_at_its_server_beside_one_that_is_loaded(
    client, models: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_HOSTS", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "*")
    url, first, _ = models

    def told(body: Body, k: int) -> Any:
        return text("good dog", reason="length", usage=None) if k == 0 else status(429, "busy")

    stub = Stub(told)
    try:
        settings = ServedModelSettings(url=stub.url, model="large", stop=("!",))
        write_served(tmp_path / "served", settings, word_tokenizer())
        _, uri, sha256 = put_tree(Path(url).parent, tmp_path / "served", "served")
        theirs = {"uri": uri, "sha256": sha256}
        worker = answerer(client, tmp_path)
        ask(client, "q", url, theirs, first, **DRAWN)
        ask(client, "again", url, theirs, **DRAWN)
        assert [worker.turn(), worker.turn()] == [1, 1]
    finally:
        stub.close()
    said, here = reply(client, "q").answers
    assert (said.text, said.state, said.tokens) == ("good dog", contract.CUT, 2), "counted here"
    assert here.text
    assert stub.bodies[0] == {
        "path": "/v1/chat/completions",
        "model": "large",
        "messages": [{"role": "user", "content": "the cat"}],
        "max_tokens": 12,
        "temperature": 1.0,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["!"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    (busy,) = reply(client, "again").answers
    assert (busy.state, busy.error["code"]) == (contract.FAILED, "inference_server_answer")
    assert "429" in busy.error["message"]
    assert len(stub.bodies) == 2, "somebody waits: it is asked once"


def test_a_question_that_cannot_be_read_is_answered_with_the_field(client, tmp_path: Path) -> None:
    request = {"version": 1, "id": "odd", "models": [], "messages": [], "artifacts_url": ""}
    client.xadd(contract.STREAM, {"id": "odd", "request": json.dumps(request)})
    answerer(client, tmp_path).turn()
    told = reply(client, "odd")
    assert told.error["code"] == "unreadable"
    assert "question.models" in told.error["message"]


def test_models_give_way_after_a_while_and_at_once_to_a_training_on_this_machine(
    client, models: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, first, _ = models
    now = 1000.0
    worker = answerer(client, tmp_path, idle_s=300.0, clock=lambda: now)
    worker.turn()
    assert not worker.must_let_go  # nothing is loaded
    ask(client, "q", url, first, max_new_tokens=2)
    assert worker.turn() == 1
    worker.turn()
    assert not worker.must_let_go
    now += 301
    worker.turn()
    assert worker.must_let_go

    worker = answerer(client, tmp_path, idle_s=300.0, clock=lambda: now)
    ask(client, "r", url, first, max_new_tokens=2)
    worker.turn()
    elsewhere = {"name": "train@x", "host": "other", "runs": ("r1",), "queues": ("gpu",)}
    looking = elsewhere | {"host": socket.gethostname(), "queues": ("short",)}
    training = looking | {"queues": ("cpu", "gpu")}
    for report, gives_way in ((elsewhere, False), (looking, False), (training, True)):
        now += module.FLEET_EVERY_S
        told = WorkerReport(pid=1, at=time.time(), instance="test", **report)
        client.zadd(fleet.WORKERS_KEY, {"test": told.at})
        client.set(fleet.worker_key("test"), report_to_json(told), ex=20)
        try:
            worker.turn()
            assert worker.must_let_go is gives_way
        finally:
            client.zrem(fleet.WORKERS_KEY, "test")
            client.delete(fleet.worker_key("test"))


@pytest.mark.stack
@pytest.mark.spread
def test_an_answerer_killed_while_it_writes_leaves_its_question_to_the_next_and_begins_again_idle(
    client, models: Two, tmp_path: Path
) -> None:
    url, first, second = models
    quick = {"ANSWERER_RETAKE_SECONDS": "1", "ANSWERER_IDLE_SECONDS": "1", "OMP_NUM_THREADS": "1"}
    environment = quick | {"WORK_DIR": str(tmp_path), "LOG_LEVEL": ""}
    argv = [sys.executable, "-m", "workers.answering"]
    workers = [Process(argv, environment, tmp_path / f"{n}.log") for n in range(2)]
    ask(client, "q", url, first, second, **DRAWN)
    try:
        workers[0].start()
        wait_until(lambda: said(client, "q"), seconds=120, what="the first word")
        workers[0].kill()
        if reply(client, "q") is not None:
            pytest.fail("it was answered before the kill: the test shows nothing")
        workers[1].start()
        wait_until(lambda: reply(client, "q"), seconds=120, what="the other's answer")
        root = Path(url).parent
        texts = [drawn_by_a_run(root, "first"), drawn_by_a_run(root, "second")]
        assert [one.text for one in reply(client, "q").answers] == texts
        pid = workers[1].pid
        log = workers[1].output
        wait_until(
            lambda: log.read_text().count("waiting for requests") == 2, seconds=60, what="the idle"
        )
        assert workers[1].pid == pid  # the same process, a fresh program
        assert workers[1].runs()
        assert "Traceback" not in log.read_text()
    finally:
        for worker in workers:
            worker.close()
        client.delete(alive_key(contract.ANSWERER))


@pytest.mark.parametrize("told_to_end", [False, True])
def test_an_answerer_that_lets_its_models_go_begins_again_unless_it_was_told_to_end(
    told_to_end: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[list[str]] = []

    def turn(self: Answerer) -> int:
        self.must_let_go = True
        if told_to_end:
            signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setenv("WORK_DIR", str(tmp_path))
    monkeypatch.setattr(Answerer, "turn", turn)
    monkeypatch.setattr(Keeper, "start", lambda self: None)  # its signs of life would outlive this
    monkeypatch.setattr(os, "execv", lambda _, argv: begun.append(argv))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert answering_main() == 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert len(begun) == (not told_to_end)
