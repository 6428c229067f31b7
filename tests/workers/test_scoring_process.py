"""The scorer as a process, with a real model: killed in the middle, and another continues (D14)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.stack import Process, wait_until
from tests.workers.recipes.language import WORDS, tiny_llama, user, word_tokenizer
from tests.workers.scored import ask, emptied, put_tree, reply, stats
from workers.contract import scores as contract
from workers.contract.wire import alive_key
from workers.models.loading import load_scorer, save_model
from workers.rewards.build import load_reward

pytestmark = [pytest.mark.stack, pytest.mark.spread]
client = pytest.fixture(emptied)
REQUESTS, ROWS = 500, 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A reward model's folder, and what a request calls it."""
    root = tmp_path_factory.mktemp("scoring")
    save_model(tiny_llama(), word_tokenizer(), root / "base")
    torch.manual_seed(0)
    save_model(load_scorer(root / "base", word_tokenizer()), word_tokenizer(), root / "scorer")
    url, uri, sha256 = put_tree(root, root / "scorer", "scorer")
    return root / "scorer", {"artifacts_url": url, "uri": uri, "sha256": sha256}


def text(number: int) -> str:
    """The number in words: another text for every number."""
    words = []
    for _ in range(5):
        number, digit = divmod(number, len(WORDS))
        words.append(WORDS[digit])
    return " ".join(words)


def process(folder: Path, name: str) -> Process:
    quick = {"SCORER_RETAKE_SECONDS": "1", "OMP_NUM_THREADS": "1", "WORK_DIR": str(folder)}
    environment = quick | {"LOG_LEVEL": ""}  # as make hands on what nobody has set
    return Process([sys.executable, "-m", "workers.scoring"], environment, folder / f"{name}.log")


def test_a_scorer_killed_in_the_middle_of_500_requests_loses_and_doubles_none(
    client, model: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, name = model
    rows = [[text(ROWS * r + k) for k in range(ROWS)] for r in range(REQUESTS)]
    for r, responses in enumerate(rows):
        items = [{"prompt": user("the cat"), "response": response} for response in responses]
        ask(client, f"r{r}", *items, **name)
    first, second = process(tmp_path, "first"), process(tmp_path, "second")
    try:
        first.start()
        wait_until(lambda: stats(client).get("answered", 0) >= 20, seconds=180, what="20 answers")
        first.kill()
        answered = stats(client)["answered"]
        assert answered < REQUESTS  # it was the middle
        left = client.xpending(contract.STREAM, contract.GROUP)["pending"]
        second.start()
        wait_until(
            lambda: client.xlen(contract.STREAM) == 0, seconds=180, what="the stream to empty"
        )
        replies = [reply(client, f"r{r}") for r in range(REQUESTS)]
        assert [r for r, answer in enumerate(replies) if answer is None or answer.error] == []
        figures = stats(client)
        assert figures["answered"] == REQUESTS  # each once
        assert figures.get("answered_before", 0) == 0
        assert client.xpending(contract.STREAM, contract.GROUP)["pending"] == 0
        assert left <= 64 // ROWS + 1  # at most the batch at hand was taken over
        # and each has the scores of its own texts
        source = load_reward(folder, name="model", batch_size=64)
        for r in range(0, REQUESTS, 25):
            expected = source.score([user("the cat")] * ROWS, rows[r]).values
            found = [score["score"] for score in replies[r].scores]
            assert found == pytest.approx(expected, abs=1e-5)
        assert client.get(alive_key(contract.SCORER)) is not None
        assert second.terminate() == 0
        assert second.output.read_text().count("Traceback") == 0
    finally:
        first.close()
        second.close()
        client.delete(alive_key(contract.SCORER))


@pytest.mark.parametrize("program", ["scoring", "answering"])
def test_the_program_loads_no_model_library_and_no_django_before_it_is_asked(program: str) -> None:
    code = f"""
import sys
import workers.{program}.__main__
heavy = ("torch", "transformers", "trl", "django.conf", "apps", "config")
print(*(name for name in heavy if name in sys.modules))
"""
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"REDIS_URL": "unix:///nonexistent?db=0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == []


def test_a_model_that_is_not_in_the_store_is_said_to_be_missing(
    client, model: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    worker = process(tmp_path, "missing")
    ask(client, "gone", {"prompt": user("x"), "response": "y"}, **model[1] | {"uri": "models/no"})
    ask(
        client, "damaged", {"prompt": user("x"), "response": "y"}, **model[1] | {"sha256": "0" * 64}
    )
    try:
        worker.start()
        wait_until(lambda: reply(client, "damaged") and reply(client, "gone"), seconds=180)
        assert reply(client, "gone").error["code"] == "model_missing"
        assert reply(client, "damaged").error["code"] == "model_missing"
        assert str(tmp_path) not in reply(client, "gone").error["message"]
    finally:
        worker.close()
        client.delete(alive_key(contract.SCORER))
