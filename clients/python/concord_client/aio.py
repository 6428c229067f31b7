"""The client for programs that do many things at once."""

import asyncio
import json
import random
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from uuid import uuid4

import aiohttp

from concord_client import operations, types
from concord_client.errors import ConcordError, Unreachable, error_from
from concord_client.operations import Answer, Operation, Row

T = TypeVar("T")

# What a proxy answers while the server behind it restarts, and a server that asks to slow down.
_AGAIN = frozenset({429, 502, 503, 504})
_LONGEST_PAUSE = 30.0  # seconds


class AsyncClient:
    """Labeling and models. Use it as `async with AsyncClient(url, token) as concord:`.

    url: the site's address, without `/api/v1`. token: from the account page or `manage.py
    token_create`; its scopes and its person's role decide what is allowed. timeout: seconds for
    one request. tries: how often a request is sent before `Unreachable` (every operation may be
    repeated, see `Operation`); refusals are never repeated. connections: at once, at most.

    Every method raises `ConcordError` when the server refuses.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = 60.0,
        tries: int = 4,
        first_pause: float = 0.2,
        connections: int = 100,
    ) -> None:
        if tries < 1:
            raise ValueError("tries: at least 1")
        self._api = url.rstrip("/") + "/api/v1"
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._tries = tries
        self._first_pause = first_pause
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the next call would open new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # --- labeling --------------------------------------------------------------------------------

    async def next(self, project: str, *, kinds: Sequence[str] = ()) -> types.Next:
        """What you hold, else the next one; prolongs its lease. kinds: what you can show, of pair,
        grade and rank; pairs where nothing is said."""
        return await self._send(operations.next_pair(project, kinds))

    async def vote(
        self,
        pair: types.Pair,
        side: str = "",
        *,
        choice: str = "",
        kinds: Sequence[str] = (),
        **answer: Unpack[Answer],
    ) -> types.Vote:
        """Vote on a pair you hold; the answer carries the next one, of these `kinds`.

        side: left, right, tie or both_bad, as shown; or choice: a, b, tie or both_bad in stored
        terms. Errors: code `lease_lost` when others have the pair now; nothing is counted then.
        """
        body = operations.answer_body(pair.key, side, choice, answer)
        return await self._send(operations.vote(pair.slot, body, kinds))

    async def rate(
        self,
        task: types.Task,
        values: Sequence[int],
        *,
        kinds: Sequence[str] = ("grade", "rank"),
        **answer: Unpack[Answer],
    ) -> types.Vote:
        """Grade or rank a task you hold: one whole number of its scale for each response, in the
        order of `task.responses`. As `vote` otherwise."""
        body = {"idempotency_key": task.key, "values": list(values), **answer}
        return await self._send(operations.vote(task.slot, body, kinds))

    async def skip(
        self, item: types.Pair | types.Task, reason: str = "", *, kinds: Sequence[str] = ()
    ) -> types.Next:
        """Pass on a pair or task; it goes to others and does not come back to you."""
        return await self._send(operations.skip(item.slot, reason, kinds))

    async def revise(
        self,
        vote: int,
        side: str = "",
        *,
        choice: str = "",
        idempotency_key: str = "",
        **answer: Unpack[Answer],
    ) -> types.Revision:
        """Change a vote of yours, by its number; a new revision is added.

        idempotency_key: your own, to repeat the change after a crash; else one is made.
        """
        key = idempotency_key or f"revise.{vote}.{uuid4().hex}"
        body = operations.answer_body(key, side, choice, answer)
        return await self._send(operations.revise(vote, body))

    async def guidelines(self, project: str) -> types.Guidelines:
        """The current guidelines, and whether you have acknowledged them."""
        return await self._send(operations.guidelines(project))

    async def guidelines_publish(
        self, project: str, body: str, *, is_major: bool = False
    ) -> types.Guidelines:
        """The next version of the guidelines, for admins. is_major: all have to read it first."""
        return await self._send(operations.guidelines_publish(project, body, is_major=is_major))

    async def acknowledge(self, project: str, version: int) -> types.Guidelines:
        """Say that you have read this version of the guidelines."""
        return await self._send(operations.acknowledge(project, version))

    async def progress(self, project: str, *, after: int = 0, limit: int = 50) -> types.Progress:
        """How you do yourself: pace, agreement, practice, and a page of your gold pairs where the
        project shows them."""
        return await self._send(operations.progress(project, after=after, limit=limit))

    # --- import ----------------------------------------------------------------------------------

    async def import_comparisons(
        self,
        project: str,
        rows: Sequence[Row],
        *,
        batch: str = "",
        seed: int = 0,
        on_error: str = "refuse",
        identical_answers: str = "refuse",
    ) -> types.ImportReport:
        """Import rows of prompt, response_a, response_b and what else the server documents.

        All or none, unless on_error is "skip". A refused import is a `ConcordError` whose
        `details` name every bad row and field.
        """
        operation = operations.import_comparisons(
            project,
            rows,
            batch=batch,
            seed=seed,
            on_error=on_error,
            identical_answers=identical_answers,
        )
        return await self._send(operation)

    async def import_votes(
        self, project: str, rows: Sequence[Row], *, on_error: str = "refuse"
    ) -> types.VotesReport:
        """Import past votes: rows of comparison (its id), annotator, choice, optionally cast_at."""
        return await self._send(operations.import_votes(project, rows, on_error=on_error))

    # --- results ---------------------------------------------------------------------------------

    async def decisions(
        self, project: str, *, outcome: str = "", after: int = 0, page: int = 500
    ) -> AsyncIterator[types.Decision]:
        """Every decision by comparison id, fetched `page` at a time."""
        place: int | None = after
        while place is not None:
            got = await self.decisions_page(project, after=place, limit=page, outcome=outcome)
            for decision in got.items:
                yield decision
            place = got.after

    async def decisions_page(
        self, project: str, *, after: int = 0, limit: int = 500, outcome: str = ""
    ) -> types.DecisionsPage:
        """One page of decisions on comparisons with ids above `after`."""
        return await self._send(
            operations.decisions_page(project, after=after, limit=limit, outcome=outcome)
        )

    # --- disputes --------------------------------------------------------------------------------

    async def disputes(
        self, project: str, *, page: int = 50, **filters: str
    ) -> AsyncIterator[types.DisputeRow]:
        """What votes did not settle, the most undecided first. Rulings made meanwhile shorten the
        list: it is read as a whole before the first is given.

        filters: show, topic, cause, ruled, search; see the reference.
        """
        rows: list[types.DisputeRow] = []
        total = 1
        while len(rows) < total:
            got = await self.disputes_page(project, offset=len(rows), limit=page, **filters)
            rows += got.items
            total = got.total if got.items else 0
        for row in rows:
            yield row

    async def disputes_page(
        self, project: str, *, offset: int = 0, limit: int = 50, **filters: str
    ) -> types.DisputesPage:
        """Some of them, from `offset` on."""
        return await self._send(
            operations.disputes_page(project, offset=offset, limit=limit, filters=filters)
        )

    async def dispute(self, project: str, comparison: int) -> types.Dispute:
        """One comparison to rule on."""
        return await self._send(operations.dispute(project, comparison))

    async def dispute_votes(self, project: str, comparison: int) -> types.Dispute:
        """The same with its votes before you have ruled; that is recorded."""
        return await self._send(operations.dispute_votes(project, comparison))

    async def rule(
        self,
        project: str,
        dispute: types.Dispute,
        *,
        choice: str = "",
        cause: str = "",
        comment: str = "",
        action: str = "adjudicate",
        version: int | None = None,
    ) -> types.Ruling:
        """Rule on a dispute as you read it. Where somebody has ruled since: `ruled_meanwhile`.

        action: adjudicate, make_gold, send_again (under guideline `version`), drop or reopen.
        """
        body = {
            "action": action,
            "choice": choice,
            "cause": cause,
            "comment": comment,
            "version": version,
            "seen": dispute.seen,
        }
        return await self._send(operations.rule(project, dispute.comparison, body))

    # --- models ----------------------------------------------------------------------------------

    async def models(
        self, project: str, *, page: int = 50, **filters: str
    ) -> AsyncIterator[types.Model]:
        """Every model, newest first. filters: search, kind (of its run), status."""
        offset, total = 0, 1
        while offset < total:
            operation = operations.models_page(project, offset=offset, limit=page, filters=filters)
            got = await self._send(operation)
            for row in got.items:
                yield row
            offset, total = offset + page, got.count

    async def model(self, project: str, model: str) -> types.ModelDetail:
        """One model by its id, with its card and the lines that load it."""
        return await self._send(operations.model(project, model))

    async def model_download(
        self,
        project: str,
        model: str,
        folder: str | Path,
        *,
        part: str = "merged",
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """The model's files, in a folder of their own below `folder`, which is answered.

        part: merged, or adapter for that of a LoRA alone. on_progress: called with the bytes that
        are here and those of all. What breaks off continues where it was, also when this is called
        again; `Unreachable` is raised after `tries` that brought nothing.
        """
        operation = operations.model_download(project, model, part=part)
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        file = Fetched(place / f".{model}-{part}.tar", on_progress)
        tries, pause = self._tries, self._first_pause
        while True:
            before, wait = file.size, None
            try:
                async with self._opened().request(
                    operation.method,
                    self._api + operation.path,
                    params=operation.query,
                    headers=file.headers,
                    timeout=aiohttp.ClientTimeout(total=None, sock_read=self._timeout.total),
                ) as answer:
                    if answer.status < 400:
                        await file.take(answer)
                    if answer.status < 400 or answer.status == 416:  # nothing was missing
                        return file.unpack()
                    status, data, wait = await self._said(answer)
            except (aiohttp.ClientError, TimeoutError) as error:
                words = str(error) or type(error).__name__
                refusal: ConcordError = Unreachable(f"The download broke off: {words}")
            else:
                refusal = error_from(status, data)
                if status not in _AGAIN:
                    raise refusal
            tries = self._tries if file.size > before else tries - 1
            if not tries:
                raise refusal
            await asyncio.sleep(min(wait or pause * (0.5 + random.random()), _LONGEST_PAUSE))
            pause = self._first_pause if file.size > before else pause * 2

    # --- runs ------------------------------------------------------------------------------------

    async def runs(
        self, project: str, *, page: int = 50, **filters: str
    ) -> AsyncIterator[types.Run]:
        """Every run, newest first. filters: search, kind, state, group; see the reference."""
        offset, total = 0, 1
        while offset < total:
            operation = operations.runs_page(project, offset=offset, limit=page, filters=filters)
            got = await self._send(operation)
            for row in got.items:
                yield row
            offset, total = offset + page, got.count

    async def launch(
        self,
        project: str,
        kind: str,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
        seed: int = 0,
        idempotency_key: str = "",
        **more: Any,
    ) -> types.Run:
        """Start a run of this kind: sft, reward, dpo, ppo, grpo, evaluate, generate …

        config: of the recipe, such as {"preset": "lora", "epochs": 1}. inputs: role to
        "snapshot:ID", "checkpoint:ID" or "run:ID" (its final model). more: seeds, group, queue,
        layout, processes, launcher, priority, override_reason. A wrong setting is a `ConcordError`
        that names it, and nothing is launched. Without a key this call makes one, so what is sent
        twice for want of an answer launches once.
        """
        body = {
            "kind": kind,
            "name": name,
            "config": dict(config or {}),
            "inputs": dict(inputs or {}),
            "seed": seed,
            "idempotency_key": idempotency_key or uuid4().hex,
            **more,
        }
        return await self._send(operations.launch(project, body))

    async def run(self, project: str, run: str) -> types.RunDetail:
        """One run by its id, with its checkpoints."""
        return await self._send(operations.run(project, run))

    async def wait(
        self,
        project: str,
        run: str,
        *,
        every: float = 5.0,
        timeout: float | None = None,
        on_progress: Callable[[types.RunDetail], None] | None = None,
    ) -> types.RunDetail:
        """The run once it has ended; look at its `state`. every: seconds between two looks;
        on_progress is called after each. Raises `TimeoutError` after `timeout` seconds; the run
        goes on."""
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            found = await self.run(project, run)
            if on_progress is not None:
                on_progress(found)
            if found.has_ended:
                return found
            if until is not None and asyncio.get_running_loop().time() + every > until:
                raise TimeoutError(f"The run {run} is {found.state} after {timeout:g} s.")
            await asyncio.sleep(every)

    async def metrics(
        self, project: str, run: str, *names: str, points: int = 2000, cursor: str = ""
    ) -> types.Metrics:
        """Its curves, or those of `names`, at most so many points of each; with the `cursor` of an
        earlier answer what came since."""
        query: dict[str, str | int] = {"points": points}
        query |= {"names": ",".join(names)} if names else {}
        query |= {"cursor": cursor} if cursor else {}
        return await self._send(operations.metrics(project, run, query=query))

    async def stop(self, project: str, run: str) -> types.Run:
        """Save a checkpoint and finish early."""
        return await self._send(operations.run_stop(project, run))

    async def cancel(self, project: str, run: str) -> types.Run:
        """End without saving."""
        return await self._send(operations.run_cancel(project, run))

    async def resume(self, project: str, run: str) -> types.Run:
        """Go on with a run that failed or was cancelled, from its last checkpoint."""
        return await self._send(operations.run_resume(project, run))

    # --- everything else -------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Any operation of the reference by its path below `/api/v1`, as decoded JSON. What is
        repeated when no answer came is GET alone: whether another may be, only you know."""
        template = "/" + path.lstrip("/").replace("{", "{{").replace("}", "}}")
        sent: Operation[Any] = Operation(
            method.upper(), template, lambda data: data, {}, query or {}, body
        )
        return await self._send(sent, tries=0 if sent.method == "GET" else 1)

    # --- settings --------------------------------------------------------------------------------

    async def settings(self, project: str) -> types.LabelingSettings:
        """How the project labels and decides."""
        return await self._send(operations.settings(project))

    async def settings_update(self, project: str, **changes: Any) -> types.LabelingSettings:
        """Change the settings that are named; the others stay."""
        return await self._send(operations.settings_update(project, changes))

    # --- sending ---------------------------------------------------------------------------------

    async def _send(self, operation: Operation[T], *, tries: int = 0) -> T:
        pause, tries = self._first_pause, tries or self._tries
        for left in reversed(range(tries)):
            try:
                status, data, wait = await self._once(operation)
            except (aiohttp.ClientError, TimeoutError) as error:
                if not left:
                    words = str(error) or type(error).__name__
                    raise Unreachable(
                        f"No answer from {self._api} in {tries} tries: {words}"
                    ) from error
                wait = None
            else:
                if status < 400:
                    return operation.read(data)
                if status not in _AGAIN or not left:
                    raise error_from(status, data)
            # Clients that were cut off together do not come back together.
            await asyncio.sleep(min(wait or pause * (0.5 + random.random()), _LONGEST_PAUSE))
            pause *= 2
        raise AssertionError("unreachable")

    async def _once(self, operation: Operation[Any]) -> tuple[int, Any, float | None]:
        """(status, decoded body, seconds the server asks to wait)."""
        async with self._opened().request(
            operation.method,
            self._api + operation.path,
            params=operation.query,
            json=operation.body,
        ) as answer:
            return await self._said(answer)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                timeout=self._timeout,
                connector=aiohttp.TCPConnector(limit=self._connections),
            )
        return self._session

    async def _said(self, answer: aiohttp.ClientResponse) -> tuple[int, Any, float | None]:
        text = await answer.text()
        wait = answer.headers.get("Retry-After", "")
        try:
            data = json.loads(text)
        except ValueError:
            data = text[:500]
        return answer.status, data, float(wait) if wait.isdecimal() else None


class Fetched:
    """A tar that arrives in parts, in `path` with its ETag beside it, over several calls."""

    def __init__(self, path: Path, on_progress: Callable[[int, int], None] | None) -> None:
        self._path, self._etag = path, path.with_suffix(".etag")
        self._on_progress = on_progress

    @property
    def size(self) -> int:
        """Bytes that are here."""
        return self._path.stat().st_size if self._path.exists() and self._etag.exists() else 0

    @property
    def headers(self) -> dict[str, str]:
        if not self.size:
            return {}
        return {"Range": f"bytes={self.size}-", "If-Range": self._etag.read_text()}

    async def take(self, answer: aiohttp.ClientResponse) -> None:
        """What the answer brings, behind what is here if it continues that."""
        continues = answer.status == 206
        start = self.size if continues else 0
        total = start + (answer.content_length or 0)
        with self._path.open("ab" if continues else "wb") as file:
            self._etag.write_text(answer.headers.get("ETag", ""))
            async for block in answer.content.iter_chunked(1 << 20):
                file.write(block)
                if self._on_progress is not None:
                    self._on_progress(file.tell(), total)

    def unpack(self) -> Path:
        try:
            with tarfile.open(self._path) as archive:
                folder = archive.getnames()[0].partition("/")[0]
                archive.extractall(self._path.parent, filter="data")
        finally:
            self._path.unlink()
            self._etag.unlink()
        return self._path.parent / folder
