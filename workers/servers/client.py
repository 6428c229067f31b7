"""One request to an OpenAI-compatible inference server, tried until it is answered or hopeless.

    POST url/chat/completions   {"model", "messages", "max_tokens", "temperature", "seed" …}
    POST url/completions        {"model", "prompt", …}

Only hosts that the worker's INFERENCE_HOSTS names are asked, a redirect is followed nowhere, and a
token goes to the configured address alone.
"""

import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from workers.config.server import CHAT, ServerSettings
from workers.contract.events import Fault, RecipeError
from workers.service import (
    Encoded,
    Reply,
    TooLong,
    TryAgain,
    client,
    pause_before,
    request,
    require_allowed,
    token_of,
)

# What an inference server answered, believed nothing: one wrong field and the answer is none.

LONGEST = 200_000  # characters of one text
LONGEST_NAME = 200  # of a model's name, and of a fingerprint
MOST_FINGERPRINTS = 20  # that are remembered of one server
EVENTS = "text/event-stream"
ENDED = {"stop": True, "eos_token": True, "stop_sequence": True, "length": False}


class BadAnswer(ValueError):
    """The answer is not what the interface promises; the text names the field."""


@dataclass(frozen=True, slots=True)
class Given:
    """One text. `ended`: it came to its end within the tokens it was allowed. `tokens`: as the
    server counts; None where it does not say, or counts several texts together. `seconds`: from the
    request that was answered to the last byte of its answer; None of answers kept before that was
    measured."""

    text: str
    ended: bool
    tokens: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """`model`: what the server says that it is; `fingerprint`: of the software and weights behind
    it (`system_fingerprint`). Each is empty where it says nothing."""

    given: list[Given]
    model: str
    fingerprint: str = ""


def read_answer(body: bytes, *, chat: bool, count: int) -> Read:
    """The `count` texts of a chat completion, or of a completion. Raises `BadAnswer`."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"is no JSON ({str(error)[:80]})") from error
    if not isinstance(answer, Mapping):
        raise BadAnswer("is no object")
    choices = answer.get("choices")
    if not isinstance(choices, list):
        raise BadAnswer("choices: is no list")
    if len(choices) != count:
        hint = ": it gives one at a time, so set server.n to 1" if len(choices) == 1 else ""
        raise BadAnswer(f"choices: are {len(choices)}, and {count} were asked for{hint}")
    tokens = _tokens(answer.get("usage")) if count == 1 else None
    given = [_choice(choice, f"choices[{i}]", chat) for i, choice in enumerate(choices)]
    return Read(
        [Given(text, ended, tokens) for text, ended in given],
        _name(answer.get("model")),
        _name(answer.get("system_fingerprint")),
    )


def _choice(choice: Any, where: str, chat: bool) -> tuple[str, bool]:
    if not isinstance(choice, Mapping):
        raise BadAnswer(f"{where}: is no object")
    if chat:
        message = choice.get("message")
        text = message.get("content") if isinstance(message, Mapping) else None
        field = f"{where}.message.content"
    else:
        text, field = choice.get("text"), f"{where}.text"
    if not isinstance(text, str):
        raise BadAnswer(f"{field}: is no text")
    if len(text) > LONGEST:
        raise BadAnswer(f"{field}: has {len(text):,} characters, over {LONGEST:,}")
    reason = choice.get("finish_reason")
    if not isinstance(reason, str) or reason not in ENDED:
        words = ", ".join(ENDED)
        raise BadAnswer(f"{where}.finish_reason: is {str(reason)[:40]!r}, none of {words}")
    return _written(text), ENDED[reason]


class Streamed:
    """An answer that comes in pieces, as server-sent events: what there is of it so far.

    Source: OpenAI's API reference, chat completion chunks; completions have `text` for `delta`."""

    def __init__(self, *, chat: bool) -> None:
        self.text = ""
        self.finish_reason: str | None = None
        self.tokens: int | None = None
        self.model = self.fingerprint = ""
        self.is_over = False  # `[DONE]` came
        self._chat = chat
        self._rest = b""  # a line that has not ended

    def add(self, part: bytes) -> None:
        """Raises `BadAnswer`."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            name, _, value = line.strip().partition(b":")
            if name != b"data" or self.is_over:  # comments keep connections open
                continue
            if value.strip() == b"[DONE]":
                self.is_over = True
            else:
                self._event(value)

    def _event(self, value: bytes) -> None:
        try:
            event = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise BadAnswer(f"has an event that is no JSON ({str(error)[:80]})") from error
        if not isinstance(event, Mapping):
            raise BadAnswer("has an event that is no object")
        if error_said := event.get("error"):
            raise BadAnswer(f"breaks off with an error: {str(error_said)[:200]}")
        self.tokens = _tokens(event.get("usage")) or self.tokens
        self.model = _name(event.get("model")) or self.model
        self.fingerprint = _name(event.get("system_fingerprint")) or self.fingerprint
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        if not isinstance(choice, Mapping):
            raise BadAnswer("choices[0]: is no object")
        said = choice.get("delta") if self._chat else choice
        piece = said.get("content" if self._chat else "text") if isinstance(said, Mapping) else None
        if isinstance(piece, str):
            self.text += piece
        if len(self.text) > LONGEST:
            raise BadAnswer(f"has over {LONGEST:,} characters")
        if (reason := choice.get("finish_reason")) is not None:
            self.finish_reason = str(reason)

    def given(self) -> Given:
        """Once it is over. Raises `BadAnswer` where it has no end."""
        if self.finish_reason not in ENDED:
            words = ", ".join(ENDED)
            raise BadAnswer(f"finish_reason: is {str(self.finish_reason)[:40]!r}, none of {words}")
        return Given(_written(self.text), ENDED[self.finish_reason], self.tokens)


def _kind(headers: httpx2.Headers) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _name(value: Any) -> str:
    return _written(value)[:LONGEST_NAME] if isinstance(value, str) else ""


def _written(text: str) -> str:
    """What can be stored: JSON may name halves of characters, which become the sign that our own
    decoding gives them, and the character 0."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", "")


def _tokens(usage: Any) -> int | None:
    """usage.completion_tokens, where it is a number that can be one."""
    found = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if math.isfinite(found) and 0 <= found < 10**9 else None


HOSTS_VARIABLE = "INFERENCE_HOSTS"
# This one prompt is not answered, too long for the model for instance.
REFUSED = frozenset({400, 413, 422})


class Unanswered(Exception):
    """This request fails for good; others may not. `passing`: another day it may succeed."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.passing = passing


class Stopped(Exception):
    """Nobody waits for the answer any more."""


class Server:
    """Asks; safe to use from several threads. `requests` counts tries, `model` is what the server
    says that it is, `fingerprints` are those it gave."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        pause: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `RecipeError` if the worker does not allow the host, or has no such token."""
        self.settings = settings
        self.requests = 0
        self.model = ""
        self.fingerprints: set[str] = set()
        self.stop = threading.Event()
        self._wait = pause or self.stop.wait
        self._clock = clock
        self._lock = threading.Lock()
        self._random = random.Random()  # waits only: no draw of the run depends on it
        self._chat = settings.api == CHAT
        path = "chat/completions" if self._chat else "completions"
        self._url = httpx2.URL(settings.url.rstrip("/") + "/" + path)
        self._token = token_of(settings.token_env, field="server.token_env")
        require_allowed(
            self._url, variable=HOSTS_VARIABLE, field="server.url", what="inference servers"
        )

    @property
    def place(self) -> str:
        """Host and path, without what might be secret in it."""
        return f"{self._url.netloc.decode()}{self._url.path}"

    def open(self) -> httpx2.Client:
        own = self.settings
        return client(token=self._token, timeout_s=own.timeout_s, at_once=own.concurrency)

    def ask(self, by: httpx2.Client, body: dict[str, Any]) -> list[Given]:
        """As many answers as `body` asks for. Raises `Unanswered`, `Stopped` and, where every other
        request would fail too, `RecipeError`."""
        for attempt in range(self.settings.retries + 1):
            if self.stop.is_set():
                raise Stopped
            try:
                return self._once(by, body)
            except (TryAgain, httpx2.TransportError) as error:
                last = error
            if attempt < self.settings.retries:
                after = getattr(last, "after", 0.0)
                self._wait(max(pause_before(attempt, self._random), after))
        if self.stop.is_set():
            raise Stopped
        what = str(last) or type(last).__name__
        raise Unanswered(
            f"no answer after {self.settings.retries + 1} tries, the last one: {what}", passing=True
        ) from last

    def stream(
        self, by: httpx2.Client, body: dict[str, Any], tell: Callable[[str], bool]
    ) -> Given | None:
        """One answer, asked for once, as it is written: `tell` is given what there is so far and
        says whether the rest is not wanted; None then. A server that does not stream is asked for
        the whole answer, or gives it. Errors as of `ask`."""
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        events = Streamed(chat=self._chat)
        stopped = False

        def arrived(status: int, headers: httpx2.Headers, part: bytes) -> bool:
            nonlocal stopped
            if status != 200 or _kind(headers) != EVENTS:
                return False
            before = len(events.text)
            events.add(part)
            stopped = len(events.text) > before and tell(_written(events.text))
            return stopped or events.is_over

        try:
            began = self._clock()
            reply = self._reply(by, asked, arrived)
            if reply.status in REFUSED:
                return self._once(by, body)[0]
            if reply.status != 200 or _kind(reply.headers) != EVENTS:
                return self._given(reply, began, 1)[0]
            if stopped:
                return None
            self.recognise(events.model, [events.fingerprint])
            return replace(events.given(), seconds=self._clock() - began)
        except BadAnswer as error:
            told = str(error).replace(self._token, "…") if self._token else str(error)
            raise Unanswered(f"the answer {told}") from error
        except (TryAgain, httpx2.TransportError) as error:
            raise Unanswered(str(error) or type(error).__name__, passing=True) from error

    def _once(self, by: httpx2.Client, body: dict[str, Any]) -> list[Given]:
        began = self._clock()
        return self._given(self._reply(by, body), began, body.get("n", 1))

    def _reply(
        self,
        by: httpx2.Client,
        body: dict[str, Any],
        arrived: Callable[[int, httpx2.Headers, bytes], bool] = lambda status, headers, part: False,
    ) -> Reply:
        with self._lock:
            self.requests += 1
        seconds = self.settings.timeout_s
        until = self._clock() + seconds

        def expired() -> str | None:
            return f"no whole answer within {seconds:g} s" if self._clock() > until else None

        try:
            return request(
                by,
                "POST",
                self._url,
                data=body,
                seconds=seconds,
                expired=expired,
                arrived=arrived,
            )
        except (TooLong, Encoded) as error:
            raise Unanswered(str(error)) from error

    def _given(self, reply: Reply, began: float, count: int) -> list[Given]:
        if reply.status == 200:
            took = self._clock() - began
            given = self._understood(reply.body, reply.headers, count)
            return [replace(one, seconds=took) for one in given]
        reply.raise_if_passing(self._token)
        told = reply.told(self._token)
        if 300 <= reply.status < 400:
            told = (
                f"{reply.status}: a redirect, which is not followed. Give the address it leads to"
            )
        if reply.status in REFUSED:
            raise Unanswered(told)
        raise RecipeError("inference_server_refused", Fault.CONFIGURATION, self.told(told))

    def _understood(self, body: bytes, headers: httpx2.Headers, count: int) -> list[Given]:
        kind = _kind(headers)
        if kind and kind != "application/json":
            raise Unanswered(f"the answer is {kind[:60]}, not application/json")
        try:
            read = read_answer(body, chat=self._chat, count=count)
        except BadAnswer as error:
            raise Unanswered(f"the answer {error}") from error
        self.recognise(read.model, [read.fingerprint])
        return read.given

    def version(self) -> str:
        """Of the server's software, where `GET /version` beside its API says so, as vLLM's does;
        empty where nothing does. One try: nothing depends on it but what results are kept by."""
        root = self.settings.url.rstrip("/").removesuffix("/v1")
        try:
            with self.open() as by:
                reply = request(
                    by,
                    "GET",
                    httpx2.URL(f"{root}/version"),
                    seconds=min(10.0, self.settings.timeout_s),
                )
            told = json.loads(reply.body) if reply.status == 200 else None
        except (TryAgain, TooLong, Encoded, httpx2.HTTPError, ValueError, RecursionError):
            return ""
        version = told.get("version") if isinstance(told, Mapping) else None
        return _name(version)

    @property
    def fingerprint(self) -> str:
        """The fingerprints that the server gave, in order, joined by commas; empty where it gave
        none. Several are no error: one address may have several machines behind it."""
        with self._lock:
            return ",".join(sorted(self.fingerprints))

    def recognise(self, model: str, fingerprints: Iterable[str] = ()) -> None:
        """Hear what the server says that it is, or said in an earlier attempt; nothing, if it said
        nothing. Raises `RecipeError` once it says it is another model than before."""
        with self._lock:
            new = sorted({one for one in fingerprints if one} - self.fingerprints)
            self.fingerprints.update(new[: MOST_FINGERPRINTS - len(self.fingerprints)])
            self.model = self.model or model
            if model and model != self.model:
                told = f"says it is {model[:80]!r}, and was {self.model[:80]!r}"
                raise RecipeError("inference_server_changed", Fault.DATA, self.told(told))

    def told(self, what: str) -> str:
        """Never with headers or a query in it: those may hold secrets."""
        return f"inference server {self.place}: {what}"
