"""One question after another: each model in turn writes its answer, and what is there so far is
told while it is written."""

import contextlib
import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from workers.artifacts import ArtifactError, Store
from workers.contract import asking as contract
from workers.contract import fleet
from workers.contract.asking import Answer, AskReply, AskRequest
from workers.contract.channel import to_json
from workers.contract.events import Fault, RecipeError
from workers.contract.wire import QUEUE_SHORT, ContractError
from workers.request_queue import RequestQueue, Taken

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from workers.config.server import ServerSettings

log = logging.getLogger(__name__)
TOLD_EVERY_S = 0.25
IDLE_S = 300.0  # after which models that nobody asks are let go
FLEET_EVERY_S = 5.0
KEPT = contract.MAX_MODELS


class TooLong(Exception):
    """The model cannot read the conversation and write an answer to it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that answers."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    stop: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A model that answers at its server; `tokenizer` where it was registered with one."""

    settings: "ServerSettings"
    tokenizer: "PreTrainedTokenizerBase | None"


class Models:
    """The last models asked, by content hash."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._loaded: OrderedDict[str, Loaded | Elsewhere] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def has(self, sha256: str) -> bool:
        return sha256 in self._loaded

    def get(self, named: Any, artifacts_url: str) -> Loaded | Elsewhere:
        """Loads, and lets go of the one unused longest. Raises `ArtifactError`, `RecipeError`."""
        sha256 = named["sha256"]
        if sha256 not in self._loaded:
            while len(self._loaded) >= KEPT:
                self._loaded.popitem(last=False)
            self._loaded[sha256] = self._load(named["uri"], sha256, artifacts_url)
        self._loaded.move_to_end(sha256)
        return self._loaded[sha256]

    def _load(self, uri: str, sha256: str, artifacts_url: str) -> Loaded | Elsewhere:
        from workers.models.loading import freeze, load_causal, load_tokenizer, stop_ids
        from workers.servers.answers import is_served, read_served

        store = Store(artifacts_url)
        folder = store.get_tree(uri, sha256=sha256, cache=self._cache, with_state=False)
        if is_served(folder):
            settings, tokenizer = read_served(folder)
            return Elsewhere(settings, tokenizer)
        tokenizer = load_tokenizer(folder)
        model = freeze(load_causal(folder))
        return Loaded(model, tokenizer, stop_ids(model, tokenizer))


class Answerer:
    """Works on the questions. `turn` returns after at most about a second without one."""

    def __init__(
        self,
        client: redis.Redis,
        queue: RequestQueue,
        models: Models,
        *,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._queue = queue
        self._models = models
        self._idle_s = idle_s
        self._clock = clock
        self._look_at = 0.0
        self._fleet_at = float("-inf")
        self._used_at = clock()
        self.must_let_go = False

    def turn(self) -> int:
        """What a dead answerer left comes first; returns the questions answered."""
        taken: Sequence[Taken] = ()
        if self._clock() >= self._look_at:
            left = self._queue.take_over()
            taken = [left] if left is not None else ()
            self._look_at = self._clock() + self._queue.retake_s / 3
        for item in taken or self._queue.take():
            with self._queue.holding([item]):
                self._queue.answer(item, self._reply(item.request))
            self._used_at = self._clock()
            return 1
        self.must_let_go = self.must_let_go or self._is_in_the_way()
        return 0

    def _is_in_the_way(self) -> bool:
        """Whether models lie here that nobody has asked for a while, or beside a training."""
        if not len(self._models):
            return False
        if self._clock() - self._used_at > self._idle_s:
            return True
        if self._clock() - self._fleet_at < FLEET_EVERY_S:
            return False
        self._fleet_at = self._clock()
        return training_here(self._client)

    def _reply(self, asked: AskRequest) -> AskReply:
        """Of every model; one that fails leaves the other its turn, and servers are asked at the
        same time, so that nobody waits for a dead one."""
        told = _Told(self._client, asked)
        with ThreadPoolExecutor(max_workers=contract.MAX_MODELS) as pool:
            waiting: dict[int, Future[Answer]] = {}
            for place, named in enumerate(asked.models):
                if told.stop_is_wanted():
                    told.say(place, Answer(contract.STOPPED))
                    continue
                with self._failing(place, told):
                    found = self._answer(asked, named, place, told, pool)
                    if found is not None:
                        waiting[place] = found
            for done in as_completed(waiting.values()):
                place = next(place for place, one in waiting.items() if one is done)
                with self._failing(place, told):
                    told.say(place, done.result())
        return AskReply(asked.id, tuple(told.answers))

    @contextlib.contextmanager
    def _failing(self, place: int, told: "_Told") -> Iterator[None]:
        """What goes wrong with one model is said as its answer."""
        try:
            yield
        except redis.RedisError:
            raise  # the question stays on our list, and is taken from it again
        except Exception as error:
            code, message = self._failure(error)
            error_said = {"code": code, "message": message}
            told.say(place, replace(told.answers[place], state=contract.FAILED, error=error_said))

    def _answer(
        self, asked: AskRequest, named: Any, place: int, told: "_Told", pool: ThreadPoolExecutor
    ) -> "Future[Answer] | None":
        """The answer that a server will give; None of a model that has written its own here."""
        if not self._models.has(named["sha256"]):
            told.say(place, Answer(contract.LOADING))
        loaded = self._models.get(named, asked.artifacts_url)
        told.say(place, Answer(contract.WRITING))
        if isinstance(loaded, Elsewhere):
            return pool.submit(ask_there, asked, loaded, lambda answer: told.watch(place, answer))
        write(asked, loaded, lambda answer: told.watch(place, answer))
        return None

    def _failure(self, error: Exception) -> tuple[str, str]:
        match error:
            case TooLong():
                return "prompt_too_long", str(error)
            case RecipeError():
                return error.kind, error.message
            case ArtifactError():
                return "model_missing", f"The model cannot be read from the store: {error}"
        if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
            self.must_let_go = True
            return "out_of_memory", "The model does not fit into the memory that is free now."
        log.error("answering failed", exc_info=error)
        return "answerer_failed", "Answering failed on the worker's side. It was logged."


class _Told:
    """What was said so far, written where the web side reads it, by several threads."""

    def __init__(self, client: redis.Redis, asked: AskRequest) -> None:
        self._client = client
        self._id = asked.id
        self._lock = threading.Lock()
        self.answers = [Answer() for _ in asked.models]

    def stop_is_wanted(self) -> bool:
        return bool(self._client.exists(contract.stop_key(self._id)))

    def say(self, place: int, answer: Answer) -> None:
        with self._lock:  # or an older reply would be written over a newer one
            self.answers[place] = answer
            said = to_json(AskReply(self._id, tuple(self.answers)))
            self._client.set(contract.said_key(self._id), said, ex=contract.KEPT_SECONDS)

    def watch(self, place: int, answer: Answer) -> bool:
        """Say it; whether the rest is not wanted any more."""
        self.say(place, answer)
        return answer.state == contract.WRITING and self.stop_is_wanted()


def write(asked: AskRequest, loaded: Loaded, tell: Callable[[Answer], bool]) -> None:
    """Draw an answer as a run does, telling now and then what is there; `tell` says whether to
    stop. Raises `TooLong` where the conversation leaves no room."""
    from workers.data.batches import encode_prompt
    from workers.models.loading import readable_length
    from workers.rollouts.local import Sampling, generate

    ids = encode_prompt(loaded.tokenizer, [dict(one) for one in asked.messages])
    readable = readable_length(loaded.model, loaded.tokenizer)
    room = min(asked.max_new_tokens, readable - len(ids))
    if room < 1:
        raise TooLong(
            f"The conversation has {len(ids):,} tokens; this model reads {readable:,}, its answer "
            "included."
        )
    begun, told_at, why = time.monotonic(), float("-inf"), ""

    def watch(drawn: "Tensor") -> bool:
        nonlocal told_at, why
        now = time.monotonic()
        if now - begun > asked.answer_seconds:
            why = contract.OUT_OF_TIME
        elif now - told_at >= TOLD_EVERY_S:
            told_at = now
            text = str(loaded.tokenizer.decode(drawn[0], skip_special_tokens=True))
            so_far = Answer(
                contract.WRITING, text.rstrip("\ufffd"), int(drawn.shape[1]), now - begun
            )
            if tell(so_far):
                why = contract.STOPPED
        return bool(why)

    sampling = Sampling(room, asked.temperature, asked.top_p, seed=asked.seed)
    found = generate(loaded.model, loaded.tokenizer, [ids], sampling, stop=loaded.stop, watch=watch)
    ended = contract.ENDED if bool(found.ended[0]) else why or contract.CUT
    seconds = time.monotonic() - begun
    tell(Answer(ended, str(found.texts[0]), int(found.lengths[0]), seconds))


def ask_there(asked: AskRequest, model: Elsewhere, tell: Callable[[Answer], bool]) -> Answer:
    """The answer of a server, telling now and then what is there where it streams; `tell` says
    whether to stop. Raises `RecipeError` where the server gives none."""
    from workers.rollouts.local import Sampling
    from workers.servers.answers import request_body, token_count
    from workers.servers.client import Server, Unanswered

    # Somebody waits for it: a question is asked once, and given up as any other is.
    seconds = min(model.settings.timeout_s, asked.answer_seconds)
    begun, told_at = time.monotonic(), float("-inf")
    so_far = Answer(contract.WRITING)
    server = Server(replace(model.settings, timeout_s=seconds, retries=0))
    sampling = Sampling(asked.max_new_tokens, asked.temperature, asked.top_p, seed=asked.seed)
    messages = [dict(one) for one in asked.messages]
    body = request_body(model.settings, model.tokenizer, messages, sampling)

    def watch(text: str) -> bool:
        nonlocal told_at, so_far
        now = time.monotonic()
        so_far = replace(so_far, text=text, seconds=now - begun)
        if now - told_at < TOLD_EVERY_S:
            return False
        told_at = now
        return tell(so_far)

    try:
        with server.open() as client:
            said = server.stream(client, body, watch)
    except Unanswered as error:
        if so_far.text and time.monotonic() - begun >= seconds:
            return replace(so_far, state=contract.OUT_OF_TIME)
        if so_far.text:
            tell(so_far)  # all that came is kept beside what went wrong
        raise RecipeError(
            "inference_server_answer", Fault.DATA, server.told(f"gave no answer: {error}")
        ) from error
    if said is None:
        return replace(so_far, state=contract.STOPPED)
    ended = contract.ENDED if said.ended else contract.CUT
    known = said.tokens is not None or model.tokenizer is not None
    tokens = token_count(said, model.tokenizer) if known else 0
    return Answer(ended, said.text, tokens, time.monotonic() - begun)


def training_here(client: redis.Redis) -> bool:
    """Whether a worker of this machine is at a run that is more than a look."""
    names: Any = client.zrange(fleet.WORKERS_KEY, 0, -1)
    if not names:
        return False
    for text in client.mget([fleet.worker_key(name.decode()) for name in names]):
        with contextlib.suppress(ContractError):
            report = fleet.report_from_json(text) if text else None
            if report is None or report.host != socket.gethostname() or not report.runs:
                continue
            if tuple(report.queues) != (QUEUE_SHORT,):
                return True
    return False
