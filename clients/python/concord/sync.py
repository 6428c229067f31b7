"""The client for scripts: the asynchronous one, driven one call at a time."""

import asyncio
import atexit
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from concord import types
from concord.aio import AsyncClient
from concord.operations import Answer, Row
from concord.projects import Project

T = TypeVar("T")


class Client:
    """Concord's API, blocking. Arguments and errors are those of `AsyncClient`, whose methods for
    datasets, runs and models are those of `project(…)`.

    bars: of the progress of files and runs, where tqdm is installed, in a terminal or a notebook.
    Its event loop runs in a thread of its own, so it works in notebooks too, which have a loop.
    """

    def __init__(self, url: str, token: str, *, bars: bool = True, **options: Any) -> None:
        self.bars = bars
        self.client = AsyncClient(url, token, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="concord-client", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # of a script or notebook that never does

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        if self._loop.is_closed():
            return
        atexit.unregister(self.close)
        self.do(self.client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def next(self, project: str, *, kinds: Sequence[str] = ()) -> types.Next:
        """See `AsyncClient.next`."""
        return self.do(self.client.next(project, kinds=kinds))

    def vote(
        self,
        pair: types.Pair,
        side: str = "",
        *,
        choice: str = "",
        kinds: Sequence[str] = (),
        **answer: Unpack[Answer],
    ) -> types.Vote:
        """See `AsyncClient.vote`."""
        return self.do(self.client.vote(pair, side, choice=choice, kinds=kinds, **answer))

    def rate(
        self,
        task: types.Task,
        values: Sequence[int],
        *,
        kinds: Sequence[str] = ("grade", "rank"),
        **answer: Unpack[Answer],
    ) -> types.Vote:
        """See `AsyncClient.rate`."""
        return self.do(self.client.rate(task, values, kinds=kinds, **answer))

    def skip(
        self, item: types.Pair | types.Task, reason: str = "", *, kinds: Sequence[str] = ()
    ) -> types.Next:
        """See `AsyncClient.skip`."""
        return self.do(self.client.skip(item, reason, kinds=kinds))

    def revise(
        self,
        vote: int,
        side: str = "",
        *,
        choice: str = "",
        idempotency_key: str = "",
        **answer: Unpack[Answer],
    ) -> types.Revision:
        """See `AsyncClient.revise`."""
        return self.do(
            self.client.revise(vote, side, choice=choice, idempotency_key=idempotency_key, **answer)
        )

    def guidelines(self, project: str) -> types.Guidelines:
        """See `AsyncClient.guidelines`."""
        return self.do(self.client.guidelines(project))

    def guidelines_publish(
        self, project: str, body: str, *, is_major: bool = False
    ) -> types.Guidelines:
        """See `AsyncClient.guidelines_publish`."""
        return self.do(self.client.guidelines_publish(project, body, is_major=is_major))

    def acknowledge(self, project: str, version: int) -> types.Guidelines:
        """See `AsyncClient.acknowledge`."""
        return self.do(self.client.acknowledge(project, version))

    def progress(self, project: str, *, after: int = 0, limit: int = 50) -> types.Progress:
        """See `AsyncClient.progress`."""
        return self.do(self.client.progress(project, after=after, limit=limit))

    def import_comparisons(
        self, project: str, rows: Sequence[Row], **options: Any
    ) -> types.ImportReport:
        """See `AsyncClient.import_comparisons`."""
        return self.do(self.client.import_comparisons(project, rows, **options))

    def import_votes(
        self, project: str, rows: Sequence[Row], *, on_error: str = "refuse"
    ) -> types.VotesReport:
        """See `AsyncClient.import_votes`."""
        return self.do(self.client.import_votes(project, rows, on_error=on_error))

    def decisions(
        self, project: str, *, outcome: str = "", after: int = 0, page: int = 500
    ) -> Iterator[types.Decision]:
        """Every decision by comparison id, fetched `page` at a time."""
        place: int | None = after
        while place is not None:
            got = self.decisions_page(project, after=place, limit=page, outcome=outcome)
            yield from got.items
            place = got.after

    def decisions_page(
        self, project: str, *, after: int = 0, limit: int = 500, outcome: str = ""
    ) -> types.DecisionsPage:
        """See `AsyncClient.decisions_page`."""
        return self.do(
            self.client.decisions_page(project, after=after, limit=limit, outcome=outcome)
        )

    def disputes(
        self, project: str, *, page: int = 50, **filters: str
    ) -> Iterator[types.DisputeRow]:
        """See `AsyncClient.disputes`."""

        async def every() -> list[types.DisputeRow]:
            return [row async for row in self.client.disputes(project, page=page, **filters)]

        yield from self.do(every())

    def disputes_page(
        self, project: str, *, offset: int = 0, limit: int = 50, **filters: str
    ) -> types.DisputesPage:
        """See `AsyncClient.disputes_page`."""
        return self.do(self.client.disputes_page(project, offset=offset, limit=limit, **filters))

    def dispute(self, project: str, comparison: int) -> types.Dispute:
        """See `AsyncClient.dispute`."""
        return self.do(self.client.dispute(project, comparison))

    def dispute_votes(self, project: str, comparison: int) -> types.Dispute:
        """See `AsyncClient.dispute_votes`."""
        return self.do(self.client.dispute_votes(project, comparison))

    def rule(
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
        """See `AsyncClient.rule`."""
        return self.do(
            self.client.rule(
                project,
                dispute,
                choice=choice,
                cause=cause,
                comment=comment,
                action=action,
                version=version,
            )
        )

    def inbox(
        self, project: str, *, offset: int = 0, limit: int = 50, **filters: str
    ) -> types.Inbox:
        """See `AsyncClient.inbox`."""
        return self.do(self.client.inbox(project, offset=offset, limit=limit, **filters))

    def inbox_next(self, project: str, **filters: str) -> types.FlaggedAnswer | None:
        """See `AsyncClient.inbox_next`."""
        return self.do(self.client.inbox_next(project, **filters))

    def inbox_judge(
        self, project: str, answer: int, value: str, *, note: str = "", again: bool = False
    ) -> types.Verdict:
        """See `AsyncClient.inbox_judge`."""
        return self.do(self.client.inbox_judge(project, answer, value, note=note, again=again))

    def inbox_close(self, project: str, run_id: str) -> int:
        """See `AsyncClient.inbox_close`."""
        return self.do(self.client.inbox_close(project, run_id))

    def verdict_undo(self, project: str) -> types.Verdict:
        """See `AsyncClient.verdict_undo`."""
        return self.do(self.client.verdict_undo(project))

    def run_verdicts(self, project: str, run_id: str) -> tuple[types.Verdict, ...]:
        """See `AsyncClient.run_verdicts`."""
        return self.do(self.client.run_verdicts(project, run_id))

    def sample_judge(
        self, project: str, run_id: str, sample: int, value: str, *, note: str = ""
    ) -> types.Verdict:
        """See `AsyncClient.sample_judge`."""
        return self.do(self.client.sample_judge(project, run_id, sample, value, note=note))

    def audit_sheets(
        self, project: str, *, checkpoint: str = "", offset: int = 0, limit: int = 20
    ) -> types.AuditSheets:
        """See `AsyncClient.audit_sheets`."""
        return self.do(
            self.client.audit_sheets(project, checkpoint=checkpoint, offset=offset, limit=limit)
        )

    def audit_sheet(self, project: str, sheet: str) -> types.AuditSheet:
        """See `AsyncClient.audit_sheet`."""
        return self.do(self.client.audit_sheet(project, sheet))

    def audit_sheet_draw(self, project: str, run_id: str, **sizes: int) -> types.AuditSheet:
        """See `AsyncClient.audit_sheet_draw`."""
        return self.do(self.client.audit_sheet_draw(project, run_id, **sizes))

    def audit_next(self, project: str, sheet: str) -> types.SheetItem | None:
        """See `AsyncClient.audit_next`."""
        return self.do(self.client.audit_next(project, sheet))

    def audit_judge(
        self, project: str, sheet: str, item: str, value: str, *, note: str = ""
    ) -> types.SheetVerdict:
        """See `AsyncClient.audit_judge`."""
        return self.do(self.client.audit_judge(project, sheet, item, value, note=note))

    def audit_undo(self, project: str, sheet: str) -> types.SheetItem | None:
        """See `AsyncClient.audit_undo`."""
        return self.do(self.client.audit_undo(project, sheet))

    def audit_finish(self, project: str, sheet: str) -> types.AuditSheet:
        """See `AsyncClient.audit_finish`."""
        return self.do(self.client.audit_finish(project, sheet))

    def audit_withdraw(self, project: str, sheet: str, reason: str) -> types.AuditSheet:
        """See `AsyncClient.audit_withdraw`."""
        return self.do(self.client.audit_withdraw(project, sheet, reason))

    def me(self) -> types.Me:
        """See `AsyncClient.me`."""
        return self.do(self.client.me())

    def projects(self) -> tuple[types.ProjectInfo, ...]:
        """See `AsyncClient.projects`."""
        return self.do(self.client.projects())

    def project(self, slug: str) -> Project:
        """Its comparisons, datasets, runs and models."""
        return Project(self, slug)

    def call(self, method: str, path: str, **options: Any) -> Any:
        """See `AsyncClient.call`."""
        return self.do(self.client.call(method, path, **options))

    def save(self, path: str, file: str | Path, **options: Any) -> Path:
        """See `AsyncClient.save`."""
        return self.do(self.client.save(path, file, **options))

    def settings(self, project: str) -> types.LabelingSettings:
        """See `AsyncClient.settings`."""
        return self.do(self.client.settings(project))

    def settings_update(self, project: str, **changes: Any) -> types.LabelingSettings:
        """See `AsyncClient.settings_update`."""
        return self.do(self.client.settings_update(project, **changes))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine of `client` answers; for what has no method here."""
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the client is closed")
        sent = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return sent.result()
        except BaseException:  # such as Ctrl-C: nothing goes on behind the caller's back
            sent.cancel()
            raise
