"""Rewards from code that is not Concord's: a scoring service, or a Python function of an installed
package (docs/rewards.md). Neither is believed: what it returns is read row by row.

A service gets batches as JSON:

    POST url   {"items": [{"prompt": [{"role", "content"}, …], "response": "…"}, …]}

Concord's own `POST /api/v1/models/ID/score` is such a service, its 202 included. Only hosts that
the worker's REWARD_HOSTS names are asked, a redirect is followed nowhere, and a token goes to the
configured address alone.
"""

import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from importlib.metadata import entry_points
from typing import Any

import httpx2

from measures.messages import Messages
from workers.config.rewards import (
    FUNCTIONS,
    FunctionSettings,
    HttpSettings,
    installed_functions,
)
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import Prompt, prompt_key
from workers.rewards.cache import TextRow
from workers.rewards.source import Scores, join
from workers.service import (
    FIRST_PAUSE_S,
    Encoded,
    TooLong,
    TryAgain,
    client,
    pause_before,
    request,
    require_allowed,
    token_of,
)

# What a scoring service answered, read field by field: a service is not believed.
#
#     {"scores": [{"score": 1.73, "parts": {…}, "disagreement": …, "truncated": …, "blocked": …,
#                  "review": …}, …], "version": "2026-11"}
#
# `scores` has an entry per item, in order: a number, or an object of which only `score` is needed.
# `version` may be called `model`. Fields that are not named here are not read.


class BadAnswer(Exception):
    """The field that is wrong, and what is wrong with it."""


def read_answer(body: bytes, count: int) -> tuple[Scores, str | None]:
    """(scores of `count` items, the version the service says it is). Raises `BadAnswer`."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadAnswer("is no object")
    entries = data.get("scores")
    if not isinstance(entries, list):
        raise BadAnswer("scores: must be a list")
    if len(entries) != count:
        raise BadAnswer(f"scores: has {len(entries)} entries for {count} items")
    rows = [_row(entry, f"scores[{i}]") for i, entry in enumerate(entries)]
    return _scores(rows), _version(data)


def read_id(body: bytes) -> str:
    """The id in a 202, which becomes part of an address. Raises `BadAnswer`."""
    try:
        name = json.loads(body).get("id")
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadAnswer("is no object with an id") from error
    if not isinstance(name, str) or not name.replace("-", "").isalnum():
        raise BadAnswer(f"id: must be letters, digits and -, not {name!r:.60}")
    return name


def _row(entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        entry = {"score": entry}
    parts = entry.get("parts") or {}
    if not isinstance(parts, dict):
        raise BadAnswer(f"{where}.parts: must be an object")
    spread = entry.get("disagreement")
    return {
        "score": _number(entry.get("score"), f"{where}.score"),
        "parts": {name: _number(v, f"{where}.parts.{name}") for name, v in parts.items()},
        "disagreement": None if spread is None else _number(spread, f"{where}.disagreement"),
        "truncated": _flag(entry, "truncated", where),
        "blocked": _flag(entry, "blocked", where),
        "review": _reason(entry.get("review"), f"{where}.review"),
    }


def _scores(rows: Sequence[dict[str, Any]]) -> Scores:
    names = list(rows[0]["parts"]) if rows else []
    for i, row in enumerate(rows):
        if set(row["parts"]) != set(names):
            raise BadAnswer(f"scores[{i}].parts: must have the same names as those of scores[0]")
    spreads = [row["disagreement"] for row in rows]
    if None in spreads and any(spread is not None for spread in spreads):
        raise BadAnswer("disagreement: must be given for every item or for none")
    values = [row["score"] for row in rows]
    reviews = [row["review"] for row in rows]
    blocked = [row["blocked"] for row in rows]
    cut = [row["truncated"] for row in rows]
    return Scores(
        values,
        {name: [row["parts"][name] for row in rows] for name in names} or {"http": values},
        sum(cut),
        None if None in spreads or not spreads else spreads,
        cut,
        reviews,
        blocked,
    )


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadAnswer(f"{where}: must be a finite number, not {value!r:.60}")
    return float(value)


def _flag(entry: dict[str, Any], name: str, where: str) -> bool:
    value = entry.get(name, False)
    if not isinstance(value, bool):
        raise BadAnswer(f"{where}.{name}: must be true or false, not {value!r:.60}")
    return value


def _reason(value: Any, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise BadAnswer(f"{where}: must be a text or null, not {value!r:.60}")


def _version(data: dict[str, Any]) -> str | None:
    value = data.get("version", data.get("model"))
    if value is None or isinstance(value, str):
        return value
    raise BadAnswer(f"version: must be a text, not {value!r:.60}")


HOSTS_VARIABLE = "REWARD_HOSTS"
MOST_ITEM_CHARACTERS = 100_000
MOST_CHARACTERS = 400_000  # of a request, as Concord's own API has it


class HttpReward:
    """Asks the service in batches, several at a time. `parts`: what the service names, or `http`.

    `tries` counts requests, further tries included.
    """

    def __init__(
        self,
        settings: HttpSettings,
        *,
        transport: httpx2.BaseTransport | None = None,
        pause: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        """Raises `RecipeError` if the worker does not allow the host, or has no such token."""
        self.tries = 0
        self._settings = settings
        self._transport = transport
        self._stop = threading.Event()
        self._wait = pause or self._stop.wait
        self._clock = clock
        self._random = random.Random(seed)  # its own: a run's draws must not depend on a network
        self._version = settings.version
        self._names: tuple[str, ...] | None = None
        self._lock = threading.Lock()
        self._url = httpx2.URL(settings.url)
        self._token = token_of(settings.token_env, field="reward.token_env")
        require_allowed(
            self._url, variable=HOSTS_VARIABLE, field="reward.url", what="reward services"
        )

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        return self.score_rows(self.encode(prompts, responses))

    def encode(
        self, prompts: Sequence[Messages], responses: Sequence[str]
    ) -> list[tuple[TextRow, ...]]:
        rows = zip(prompts, responses, strict=True)
        return [(TextRow(prompt, response),) for prompt, response in rows]

    def score_rows(self, texts: Sequence[tuple[TextRow, ...]]) -> Scores:
        """All or nothing: the first batch that fails for good ends the others."""
        batches = list(self._batches([row for (row,) in texts]))
        if not batches:
            return Scores([])
        self._stop.clear()
        workers = min(self._settings.concurrency, len(batches))
        with self._client() as client, ThreadPoolExecutor(workers, "reward-service") as pool:
            pending = [pool.submit(self._ask, client, batch) for batch in batches]
            try:
                done, _ = wait(pending, return_when=FIRST_EXCEPTION)
                for one in done:
                    one.result()  # raises the first failure there was
                return join([one.result() for one in pending])
            finally:
                self._stop.set()  # ends what still waits to try again
                for one in pending:
                    one.cancel()

    def _client(self) -> httpx2.Client:
        return client(
            token=self._token,
            timeout_s=self._settings.timeout_s,
            at_once=self._settings.concurrency,
            transport=self._transport,
        )

    def _batches(self, rows: Sequence[TextRow]) -> Iterator[list[dict[str, Any]]]:
        batch: list[dict[str, Any]] = []
        characters = 0
        for row in rows:
            size = len(row.response) + sum(len(message["content"]) for message in row.prompt)
            if size > MOST_ITEM_CHARACTERS:
                raise RecipeError(
                    "reward_service_limit",
                    Fault.DATA,
                    self._told(
                        f"a prompt and its response have {size:,} characters, over the "
                        f"{MOST_ITEM_CHARACTERS:,} that are sent"
                    ),
                )
            full = len(batch) == self._settings.batch_size
            if batch and (full or characters + size > MOST_CHARACTERS):
                yield batch
                batch, characters = [], 0
            batch.append({"prompt": row.prompt, "response": row.response})
            characters += size
        if batch:
            yield batch

    def _ask(self, by: httpx2.Client, items: list[dict[str, Any]]) -> Scores:
        for attempt in range(self._settings.retries + 1):
            if self._stop.is_set():
                break
            try:
                return self._understood(self._answered(by, items), len(items))
            except (TryAgain, httpx2.TransportError) as error:
                last = error
            if attempt < self._settings.retries:
                after = getattr(last, "after", 0.0)
                self._wait(max(pause_before(attempt, self._random), after))
        else:
            what = str(last) or type(last).__name__
            told = f"no scores after {self._settings.retries + 1} tries, the last one: {what}"
            raise RecipeError("reward_service", Fault.MACHINE, self._told(told)) from last
        raise RecipeError("reward_service", Fault.MACHINE, self._told("another batch failed"))

    def _answered(self, by: httpx2.Client, items: list[dict[str, Any]]) -> bytes:
        """The body of a 200; asks again under the given address while the service says 202."""
        until = self._clock() + self._settings.timeout_s
        status, body, location = self._request(by, "POST", self._url, until, {"items": items})
        pause = FIRST_PAUSE_S
        while status == 202:
            if self._clock() >= until:
                raise TryAgain(f"not ready within {self._settings.timeout_s:g} s")
            self._wait(pause)
            pause = min(2.0, 2 * pause)
            address = self._later(body, location)
            status, body, _ = self._request(by, "GET", address, until)
        return body

    def _request(
        self, by: httpx2.Client, method: str, url: httpx2.URL, until: float, data: Any = None
    ) -> tuple[int, bytes, str]:
        """(200 or 202, body, Location). Any other status raises."""
        with self._lock:
            self.tries += 1
        seconds = self._settings.timeout_s

        def expired() -> str | None:
            return f"no whole answer within {seconds:g} s" if self._clock() > until else None

        try:
            reply = request(by, method, url, data=data, seconds=seconds, expired=expired)
        except (TooLong, Encoded) as error:
            raise RecipeError(
                "reward_service_answer", Fault.DATA, self._told(str(error))
            ) from error
        if reply.status in (200, 202):
            return reply.status, reply.body, reply.headers.get("Location", "")
        reply.raise_if_passing(self._token)
        told = reply.told(self._token)
        if 300 <= reply.status < 400:
            told = (
                f"{reply.status}: a redirect, which is not followed. Give the address it leads to"
            )
        raise RecipeError("reward_service_refused", Fault.CONFIGURATION, self._told(told))

    def _later(self, body: bytes, location: str) -> httpx2.URL:
        """Where the scores of a 202 will be: its Location on the same origin, or as Concord has
        it, /scores/ID beside /models/…"""
        if location:
            url = self._url.join(location)
            if (url.scheme, url.host, url.port) == (
                self._url.scheme,
                self._url.host,
                self._url.port,
            ):
                return url
            raise RecipeError(
                "reward_service_refused",
                Fault.CONFIGURATION,
                self._told("202 points to another host"),
            )
        before, found, _ = self._url.path.rpartition("/models/")
        try:
            name = read_id(body)
        except BadAnswer as error:
            raise RecipeError(
                "reward_service_answer", Fault.DATA, self._told(f"202: {error}")
            ) from error
        if not found:
            told = "202 without a Location: there is nowhere to ask for the scores"
            raise RecipeError("reward_service_answer", Fault.DATA, self._told(told))
        return self._url.copy_with(path=f"{before}/scores/{name}", query=None)

    def _understood(self, body: bytes, count: int) -> Scores:
        try:
            scores, version = read_answer(body, count)
        except BadAnswer as error:
            raise RecipeError(
                "reward_service_answer", Fault.DATA, self._told(str(error))
            ) from error
        with self._lock:
            if self._settings.version and version is None:
                told = f"says no version, and should be {self._settings.version!r}"
                raise RecipeError("reward_service_version", Fault.DATA, self._told(told))
            self._version = self._version or version
            if version != self._version and version is not None:
                told = f"says it is version {version!r}, and was {self._version!r}"
                raise RecipeError("reward_service_version", Fault.DATA, self._told(told))
            self._names = self._names or tuple(scores.parts)
            if set(scores.parts) != set(self._names):
                told = f"parts: are {sorted(scores.parts)}, and were {sorted(self._names)} before"
                raise RecipeError("reward_service_answer", Fault.DATA, self._told(told))
        return scores

    def _told(self, what: str) -> str:
        """Never with headers or a query in it: those may hold secrets."""
        return f"reward service {self._url.host}{self._url.path}: {what}"


class FunctionReward:
    """`prompts`: whose rows the function is given beside each answer; {} for any other prompt. An
    answer that it gives None is withheld: it gives no gradient."""

    def __init__(
        self, settings: FunctionSettings, prompts: Sequence[Prompt] = (), *, where: str = "reward"
    ) -> None:
        """Raises `RecipeError`: no_function where it is not installed here or is none,
        reward_failed where its package does not load."""
        self._settings = settings
        self._where = f"{where}.name"
        self._rows = {prompt_key(one.messages): one.columns for one in prompts}
        self._call = self._loaded()

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        given = [[dict(message) for message in prompt] for prompt in prompts]
        rows = [dict(self._rows.get(prompt_key(prompt), {})) for prompt in prompts]
        answers = [str(text) for text in responses]
        found = self._returned(prompts=given, answers=answers, rows=rows)
        if len(found) != len(answers):
            raise self._failed(f"gave {len(found)} scores for {len(answers)} answers")
        values = [self._number(value, i, prompts[i]) for i, value in enumerate(found)]
        unknown = [value is None for value in values]
        scores = [0.0 if value is None else value for value in values]
        return Scores(
            scores, {self._settings.name: scores}, withheld=unknown if any(unknown) else None
        )

    def _returned(self, **asked: Any) -> list[Any]:
        """What the function gives, within the time it has. Nothing can end a thread from outside,
        so one that is late is left behind: the run fails, and the process ends with it."""
        found: list[Any] = []
        raised: list[BaseException] = []

        def call() -> None:
            try:
                found.extend(self._call(**asked, **dict(self._settings.options)))
            except BaseException as error:  # whatever it raises is the function's own
                raised.append(error)

        thread = threading.Thread(target=call, name=self._settings.name, daemon=True)
        thread.start()
        thread.join(self._settings.timeout_s)
        if thread.is_alive():
            n, seconds = len(asked["answers"]), self._settings.timeout_s
            raise self._failed(f"gave nothing within {seconds:g} s for {n} answers (timeout_s)")
        if raised:
            error = raised[0]
            raise self._failed(f"raised {type(error).__name__}: {error}") from error
        return found

    def _number(self, value: Any, i: int, prompt: Messages) -> float | None:
        if value is None:
            return None
        try:
            number = math.nan if isinstance(value, str) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            asked = prompt[-1]["content"] if prompt else ""
            raise self._failed(
                f"gave {value!r:.60} for row {i + 1}, which is no finite number "
                f"(prompt {asked[-80:]!r})"
            )
        return number

    def _loaded(self) -> Callable[..., Any]:
        name = self._settings.name
        found = [one for one in entry_points(group=FUNCTIONS) if one.name == name]
        if not found:
            known = ", ".join(installed_functions()) or "none"
            raise RecipeError(
                "no_function",
                Fault.CONFIGURATION,
                f"{self._where}: no reward function {name!r} is installed on this worker "
                f"(installed: {known})",
            )
        if len({one.value for one in found}) > 1:
            told = ", ".join(sorted(one.value for one in found))
            told = self._told(f"is declared by several packages ({told})")
            raise RecipeError("no_function", Fault.CONFIGURATION, told)
        try:
            loaded = found[0].load()
        except Exception as error:
            raise self._failed(f"does not load: {type(error).__name__}: {error}") from error
        if not callable(loaded):
            told = self._told(f"is no function ({found[0].value})")
            raise RecipeError("no_function", Fault.CONFIGURATION, told)
        call: Callable[..., Any] = loaded
        return call

    def _failed(self, what: str) -> RecipeError:
        return RecipeError("reward_failed", Fault.BUG, self._told(what))

    def _told(self, what: str) -> str:
        return f"{self._where}: the reward function {self._settings.name!r} {what}"
