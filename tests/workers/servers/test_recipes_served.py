"""Recipes that ask models: the server of `transformers serve`, a self-made model, loopback."""

import contextlib
import json
import multiprocessing
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from transformers.cli.serve import Serve

from tests.workers.recipes.conftest import SUBJECTS, preference_rows
from tests.workers.recipes.language import Workshop, tiny_llama, user, word_tokenizer
from tests.workers.servers.stub import slow, text
from workers.supervisor.child import end_with_parent

pytestmark = pytest.mark.spread
SHORT = {"max_new_tokens": 6, "max_prompt_length": 16, "max_prompts": 6}
COUNT = {"reward": {"type": "token_count", "token": "a"}}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    shop = Workshop(tmp_path_factory.mktemp("served"))
    shop.put_snapshot("prompts", train=[{"prompt": user(subject)} for subject in SUBJECTS])
    shop.put_snapshot("preferences", train=preference_rows(0), dev=preference_rows(1))
    shop.put_model("base", tiny_llama())
    policy = tiny_llama(seed=5)
    policy.generation_config.do_sample = True  # else the server takes the likeliest token
    shop.put_model("policy", policy)
    return shop


def _serve(folder: str, port: int, log: str) -> None:
    """What `transformers serve FOLDER --host 127.0.0.1 --port PORT --device cpu` does."""
    end_with_parent()
    warnings.simplefilter("ignore")  # theirs
    with Path(log).open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        Serve(folder, host="127.0.0.1", port=port, device="cpu")


@pytest.fixture(scope="module")
def server(shop: Workshop) -> Iterator[dict[str, str]]:
    """The setting `server` for the policy, served by a child process: forked, since a fresh one
    would import for longer than all tests of this file take."""
    folder, log = str(shop.root / "models" / "policy"), shop.root / "serve.log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(folder, port, str(log)), daemon=True
    )
    process.start()
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", process, log)
        yield {"url": f"http://127.0.0.1:{port}/v1", "model": folder}
    finally:
        process.kill()
        process.join(30)


def _wait_for(url: str, process: Any, log: Path) -> None:
    until = time.monotonic() + 240
    while time.monotonic() < until:
        assert process.is_alive(), log.read_text()[-3000:]
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(url, timeout=5).status_code == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"the server never came up:\n{log.read_text()[-3000:]}")


def test_candidates_come_from_the_server_and_say_so(shop: Workshop, server: dict) -> None:
    config = SHORT | {"server": server, "max_prompts": 8}
    spec = shop.spec("pairs", "generate", config, policy="policy", prompts="prompts")
    outcome = shop.run_here(spec)
    (generated,) = outcome.all("Generated")
    rows = list(shop.store.lines(generated["uri"]))
    assert len(rows) + outcome.summary["identical"] == 8
    assert len(rows) >= 4, "a policy that samples hardly ever says the same twice"
    words = set(word_tokenizer().get_vocab())
    for row in rows:
        for side in ("response_a", "response_b"):
            assert set(row[side]["text"].split()) <= words
            assert row[side]["origin"]["checkpoint"] == "policy"
            assert row[side]["origin"]["server"]["model"] == server["model"]
    assert outcome.summary["server"]["says"].startswith(server["model"])
    assert outcome.summary["unanswered"] == 0


def test_at_temperature_0_the_server_says_word_for_word_what_the_worker_says(
    shop: Workshop, server: dict
) -> None:
    greedy = SHORT | COUNT | {"temperature": 0.0, "latency_requests": 2}
    roles = {"policy": "policy", "sft": "base", "prompts": "prompts"}
    said = {}
    for name, config in (
        ("here", greedy),
        ("chat", greedy | {"server": server}),
        ("completions", greedy | {"server": server | {"api": "completions"}}),
    ):
        outcome = shop.run_here(shop.spec(f"greedy-{name}", "evaluate", config, **roles))
        said[name] = [sample["response"] for sample in outcome.all("Sample")]
        report = outcome.summary
        assert report["policy"]["kl"] is None
        assert (report.get("server") is None) == (name == "here")
        assert report["latency"]["without_score"]["requests"] == 2, "timed where it answers"
    assert said["chat"] == said["completions"] == said["here"]
    assert len(set(said["here"])) > 1


def test_an_evaluation_can_ask_the_server_for_the_sft_model(shop: Workshop, server: dict) -> None:
    config = (
        SHORT | COUNT | {"draws": 2, "latency_requests": 0, "server": server | {"serves": "sft"}}
    )
    roles = {"policy": "base", "sft": "policy", "prompts": "prompts"}
    report = shop.run_here(shop.spec("served-sft", "evaluate", config, **roles)).summary
    assert report["prompts"] == 12
    assert report["policy"]["kl"] is not None, "the policy was asked here"
    assert report["server"]["role"] == "sft"
    assert 1 <= report["sft"]["response_length"] <= 6


def test_a_probe_of_a_served_policy_has_figures_and_no_hash_of_its_weights(
    shop: Workshop, server: dict
) -> None:
    config = COUNT | {"server": server, "eval_prompts": 6, "max_new_tokens": 6, "draws": 2}
    spec = shop.spec("probe", "probe", config, policy="policy", prompts="prompts")
    outcome = shop.run_here(spec)
    assert outcome.summary["weights_sha256"] == {}
    assert outcome.summary["server"]["model"] == server["model"]
    figures = outcome.summary["figures"]
    assert figures["score"]["n"] == 6
    assert 0 <= figures["distinct"]["mean"] <= 1
    assert 1 <= figures["response_length"]["mean"] <= 6


def test_best_of_n_is_drawn_from_the_server(shop: Workshop, server: dict) -> None:
    from workers.config import settings_for
    from workers.context import RunContext
    from workers.recipes.assess import Models

    config = SHORT | {"server": server}
    del config["max_prompts"]
    spec = shop.spec("assess", "assess", config, policy="policy", prompts="prompts")
    folder = shop.folder(spec)
    folder.mkdir(parents=True)
    drawn: list[float] = []
    models = Models(
        RunContext(spec, shop.store, folder), settings_for("assess", config), drawn=drawn.append
    )
    prompts = [row.messages for row in models.prompts()][:2]
    texts = models.answers("policy", [p for p in prompts for _ in range(8)], purpose="draws")
    assert len(texts) == 16
    assert len(set(texts[:8])) > 1, "draws of one prompt have seeds of their own"
    assert models.served["policy"].requests == 16
    assert sum(drawn) > 0
    assert models._held is None, "no weights were loaded here"


def test_a_trainer_killed_on_the_way_asks_the_rest_only(shop: Workshop, stub) -> None:
    """kill -9 after some answers; the next attempt finds those in the store."""
    stub_server = stub(lambda body, k: slow(0.3, text(f"a {k} cat")))
    config = SHORT | {
        "max_prompts": 12,
        "server": {"url": stub_server.url, "model": "tiny", "concurrency": 1},
    }
    roles = {"policy": "policy", "prompts": "prompts"}
    first = shop.spec("killed", "generate", config, **roles)
    process = multiprocessing.get_context("fork").Process(target=shop.run_here, args=(first,))
    process.start()
    kept = shop.root / "store" / "runs" / "killed" / "answers"
    until = time.monotonic() + 500
    while not (kept.is_dir() and len(_rows(kept)) >= 4):
        assert process.is_alive()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.kill()
    process.join(30)
    answered = len(_rows(kept))
    assert 4 <= answered < 24
    stub_server.bodies.clear()
    outcome = shop.run_here(shop.spec("killed", "generate", config, attempt=2, **roles))
    assert outcome.summary["pairs"] == 12
    # What was under way when the trainer died still reaches the stub, so one may be on top.
    assert 24 - answered <= len(stub_server.bodies) <= 24 - answered + 1
    assert f"{min(answered, 12)} of 12 requests were" in json.dumps(outcome.all("Log"))


def _rows(folder: Path) -> list[str]:
    return [line for part in folder.iterdir() for line in part.read_text().splitlines()]
