"""Many requests to a server, some at a time: kept as they are answered, named where they fail."""

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.servers.client import Given, Server, Stopped, Unanswered

# Answers of a server, kept in the artifact store as they come, so that an attempt that was cut off
# is not paid for twice.
#
# They lie beside the attempts of the run, `runs/RUN/answers/…`, as parts of JSON Lines that are
# never
# changed, for stores like S3 append nothing. An answer is found by the whole request it was given
# to.

SOONEST_S = 1.0
SHARE = 0.05  # of the time so far that may be lost: parts stay few when a run takes long


def request_key(where: str, body: Mapping[str, Any]) -> str:
    """SHA-256 of everything that decides an answer."""
    text = json.dumps([where, body], sort_keys=True, ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


class KeptAnswers:
    """What earlier attempts of this run were answered, and what this one is."""

    def __init__(self, context: RunContext, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = context.store
        self._folder = f"runs/{context.spec.run}/answers"
        self._attempt = f"attempt-{context.spec.attempt}"
        self._clock = clock
        self._began = self._flushed = clock()
        self._found: dict[str, list[Given]] = {}
        self._models: dict[str, str] = {}
        self._fingerprints: dict[str, list[str]] = {}
        self._fresh: list[dict[str, Any]] = []
        names = self._store.names(self._folder)
        self._parts = sum(name.startswith(self._attempt + "-") for name in names)
        for name in names:
            for key, given, model, prints in self._read(f"{self._folder}/{name}"):
                self._found[key], self._models[key] = given, model
                self._fingerprints[key] = prints

    def get(self, key: str) -> list[Given] | None:
        return self._found.get(key)

    def model(self, key: str) -> str:
        """What the server said that it is when it answered; empty where it said nothing."""
        return self._models.get(key, "")

    def fingerprints(self, key: str) -> list[str]:
        """Those that the server had given by then."""
        return self._fingerprints.get(key, [])

    def add(
        self,
        key: str,
        given: list[Given],
        *,
        model: str = "",
        fingerprints: Collection[str] = (),
    ) -> None:
        self._found[key], self._models[key] = given, model
        self._fingerprints[key] = sorted(fingerprints)
        row = {"key": key, "model": model, "answers": [asdict(one) for one in given]}
        if fingerprints:
            row["fingerprints"] = sorted(fingerprints)
        self._fresh.append(row)
        now = self._clock()
        if now - self._flushed >= max(SOONEST_S, SHARE * (now - self._began)):
            self.flush()

    def flush(self) -> None:
        """Everything that was added is in the store."""
        if self._fresh:
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self._fresh)
            name = f"{self._attempt}-{self._parts:05}.jsonl"
            self._store.write_bytes(f"{self._folder}/{name}", lines.encode())
            self._parts += 1
            self._fresh = []
        self._flushed = self._clock()

    def _read(self, path: str) -> Iterator[tuple[str, list[Given], str, list[str]]]:
        """A line that is not whole is asked again: the machine may have died while it wrote."""
        for line in self._store.read_bytes(path).splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                given = [Given(**one) for one in row["answers"]]
                prints = [str(one) for one in row.get("fingerprints") or ()]
                yield row["key"], given, str(row.get("model") or ""), prints


LOOK_S = 0.5  # how long a command to cancel may wait
SHOWN = 5  # failures told in the run's error
LOGGED = 20


class Cancelled(Exception):
    """Somebody cancelled the run while answers were waited for. What came is kept."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`row`: which of the caller's rows it is, counted from 1, for people to find it."""

    row: int
    body: Mapping[str, Any]


def ask_all(
    context: RunContext,
    server: Server,
    asked: Sequence[Asked],
    *,
    kept: KeptAnswers,
    doing: str,
    allowed: int = 0,
) -> list[list[Given] | None]:
    """The answers to each request, None where one failed for good and no more than `allowed` did.

    Raises `RecipeError` once more fail, with the rows and why; what was answered is kept then, as
    after a kill, and another attempt of the run asks the rest only. Raises `Cancelled`.
    """
    keys = [request_key(server.place, one.body) for one in asked]
    found = {i: given for i, key in enumerate(keys) if (given := kept.get(key)) is not None}
    if found:
        context.log(f"{len(found)} of {len(asked)} requests were answered in an earlier attempt")
        for i in found:
            server.recognise(kept.model(keys[i]), kept.fingerprints(keys[i]))
    failed: dict[int, Unanswered] = {}
    crew = _Crew(server, {i: dict(one.body) for i, one in enumerate(asked) if i not in found})
    try:
        while len(found) + len(failed) < len(asked):
            context.progress(0, 1, f"{doing}: {len(found):,} of {len(asked):,}"[:60])
            if context.should_stop() == "cancel":
                raise Cancelled
            for i, outcome in crew.outcomes(LOOK_S):
                if isinstance(outcome, Unanswered):
                    failed[i] = outcome
                    _log(context, asked[i], outcome, len(failed))
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    found[i] = outcome
                    prints = frozenset(server.fingerprints)
                    kept.add(keys[i], outcome, model=server.model, fingerprints=prints)
            if len(failed) > allowed:
                raise _given_up(server, asked, found, failed)
    finally:
        crew.dismiss()
        with suppress(Exception):  # the error on its way says more
            kept.flush()
    return [found.get(i) for i in range(len(asked))]


def _log(context: RunContext, asked: Asked, why: Unanswered, count: int) -> None:
    if count <= LOGGED:
        context.log(f"row {asked.row}: the inference server gave no answer: {why}", level="warning")


def _given_up(
    server: Server,
    asked: Sequence[Asked],
    found: Mapping[int, Any],
    failed: Mapping[int, Unanswered],
) -> RecipeError:
    some = list(failed.items())[:SHOWN]
    rows = "; ".join(f"row {asked[i].row}: {why}" for i, why in some)
    more = f" and {len(failed) - len(some)} more" if len(failed) > len(some) else ""
    passing = any(why.passing for why in failed.values())
    told = (
        f"{len(failed)} of {len(asked)} requests failed for good ({rows}{more}). "
        f"{len(found)} answers are kept: another attempt of this run asks the rest only"
    )
    told = server.told(told)
    if passing:
        return RecipeError("inference_server", Fault.MACHINE, told, retryable=True)
    return RecipeError("inference_server_answer", Fault.DATA, told)


class _Crew:
    """Threads that ask. They are daemons: one that waits for a server which never answers must not
    keep the trainer alive, and ends by its timeout. The last to leave closes the connections."""

    def __init__(self, server: Server, bodies: Mapping[int, dict[str, Any]]) -> None:
        self._server = server
        self._todo: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, list[Given] | BaseException]] = queue.SimpleQueue()
        server.stop.clear()
        for item in bodies.items():
            self._todo.put(item)
        self._present = min(server.settings.concurrency, len(bodies))
        self._lock = threading.Lock()
        self._client = server.open() if bodies else None
        for k in range(self._present):
            threading.Thread(target=self._work, name=f"inference-{k}", daemon=True).start()

    def outcomes(self, timeout: float) -> list[tuple[int, list[Given] | BaseException]]:
        """All that came since, after a while at the latest."""
        found = []
        with suppress(queue.Empty):
            found.append(self._done.get(timeout=timeout))
            while True:
                found.append(self._done.get_nowait())
        return found

    def dismiss(self) -> None:
        self._server.stop.set()

    def _work(self) -> None:
        try:
            with suppress(queue.Empty, Stopped):
                while not self._server.stop.is_set():
                    i, body = self._todo.get_nowait()
                    self._done.put((i, self._outcome(body)))
        finally:
            with self._lock:
                self._present -= 1
                if not self._present and self._client is not None:
                    self._client.close()

    def _outcome(self, body: dict[str, Any]) -> list[Given] | BaseException:
        assert self._client is not None  # noqa: S101 — there is a body to ask about
        try:
            return self._server.ask(self._client, body)
        except Stopped:
            raise
        except Unanswered as error:
            return error
        except BaseException as error:
            self._server.stop.set()  # no other request would fare better
            return error
