"""Questions as the web side puts them into Redis, and small models that answer."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from tests.training.stack import Process, wait_until
from tests.workers.recipes.language import tiny_llama, word_tokenizer
from tests.workers.scored import put_tree
from workers.contract import asking as contract
from workers.contract.asking import AskReply, AskRequest
from workers.contract.channel import to_json
from workers.contract.wire import alive_key
from workers.models.loading import save_model


def emptied() -> Iterator["redis.Redis[Any]"]:
    """Redis without a trace of questions, before and after."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    for before in (True, False):
        if keys := list(client.scan_iter("concord:ask:*", count=1000)):
            client.delete(*keys)
        if before:
            yield client
    client.close()


@contextmanager
def answerer_runs(client: "redis.Redis[Any]", folder: Path, **environment: str) -> Iterator[None]:
    """The answerer as a process of its own."""
    known = {"WORK_DIR": str(folder), "OMP_NUM_THREADS": "1", "LOG_LEVEL": ""}
    program = [sys.executable, "-m", "workers.answering"]
    answerer = Process(program, known | environment, folder / "log")
    answerer.start()
    wait_until(lambda: client.exists(alive_key(contract.ANSWERER)), seconds=60)
    yield
    answerer.close()
    client.delete(alive_key(contract.ANSWERER))


def put_model(root: Path, name: str, *, seed: int) -> tuple[str, dict[str, str]]:
    """(the store's URL, what a question calls the model). One that writes to the longest answer:
    its end token is never the likeliest."""
    model = tiny_llama(seed)
    model.lm_head.weight.data[1] = 0.0
    save_model(model, word_tokenizer(), root / name)
    url, uri, sha256 = put_tree(root, root / name, name)
    return url, {"uri": uri, "sha256": sha256}


def ask(
    client: "redis.Redis[Any]", name: str, url: str, *models: dict[str, str], **more: Any
) -> AskRequest:
    messages = more.pop("messages", [{"role": "user", "content": "the cat"}])
    request = AskRequest(name, models, messages, url, **more)
    client.set(contract.asked_key(name), "{}", ex=60)
    client.xadd(contract.STREAM, {"id": name, "request": to_json(request)})
    return request


def reply(client: "redis.Redis[Any]", name: str) -> AskReply | None:
    text = client.get(contract.reply_key(name))
    return contract.reply_from_json(text) if text else None


def said(client: "redis.Redis[Any]", name: str) -> AskReply | None:
    text = client.get(contract.said_key(name))
    return contract.reply_from_json(text) if text else None
