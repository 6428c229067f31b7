"""The client for programs that do many things at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import uuid4

from concord import operations, types
from concord.errors import ConcordError
from concord.operations import Answer, Operation, Row
from concord.transport import PartialFile, Progress, Transport


class AsyncClient:
    """Labeling and models. Use it as `async with AsyncClient(url, token) as concord:`.

    url: the site's address, without `/api/v1`. token: from the account page or `manage.py
    token_create`; its scopes and its person's role decide what is allowed. timeout: seconds for
    one request, of a file without anything moving. tries: how often a request is sent before
    `Unreachable` (`Operation` says what is repeated); refusals are never repeated. connections: at
    once, at most.

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
        self._transport = Transport(
            url,
            token,
            timeout=timeout,
            tries=tries,
            first_pause=first_pause,
            connections=connections,
        )

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
        await self._transport.close()

    # --- labeling --------------------------------------------------------------------------------

    async def next(self, project: str, *, kinds: Sequence[str] = ()) -> types.Next:
        """What you hold, else the next one; prolongs its lease. kinds: what you can show, of pair,
        grade and rank; pairs where nothing is said."""
        return await self._transport.send(operations.next_pair(project, kinds))

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
        return await self._transport.send(operations.vote(pair.slot, body, kinds))

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
        return await self._transport.send(operations.vote(task.slot, body, kinds))

    async def skip(
        self, item: types.Pair | types.Task, reason: str = "", *, kinds: Sequence[str] = ()
    ) -> types.Next:
        """Pass on a pair or task; it goes to others and does not come back to you."""
        return await self._transport.send(operations.skip(item.slot, reason, kinds))

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
        return await self._transport.send(operations.revise(vote, body))

    async def guidelines(self, project: str) -> types.Guidelines:
        """The current guidelines, and whether you have acknowledged them."""
        return await self._transport.send(operations.guidelines(project))

    async def guidelines_publish(
        self, project: str, body: str, *, is_major: bool = False
    ) -> types.Guidelines:
        """The next version of the guidelines, for admins. is_major: all have to read it first."""
        return await self._transport.send(
            operations.guidelines_publish(project, body, is_major=is_major)
        )

    async def acknowledge(self, project: str, version: int) -> types.Guidelines:
        """Say that you have read this version of the guidelines."""
        return await self._transport.send(operations.acknowledge(project, version))

    async def progress(self, project: str, *, after: int = 0, limit: int = 50) -> types.Progress:
        """How you do yourself: pace, agreement, practice, and a page of your gold pairs where the
        project shows them."""
        return await self._transport.send(operations.progress(project, after=after, limit=limit))

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
        return await self._transport.send(operation)

    async def import_votes(
        self, project: str, rows: Sequence[Row], *, on_error: str = "refuse"
    ) -> types.VotesReport:
        """Import past votes: rows of comparison (its id), annotator, choice, optionally cast_at."""
        return await self._transport.send(operations.import_votes(project, rows, on_error=on_error))

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
        return await self._transport.send(
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
        return await self._transport.send(
            operations.disputes_page(project, offset=offset, limit=limit, filters=filters)
        )

    async def dispute(self, project: str, comparison: int) -> types.Dispute:
        """One comparison to rule on."""
        return await self._transport.send(operations.dispute(project, comparison))

    async def dispute_votes(self, project: str, comparison: int) -> types.Dispute:
        """The same with its votes before you have ruled; that is recorded."""
        return await self._transport.send(operations.dispute_votes(project, comparison))

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
        return await self._transport.send(operations.rule(project, dispute.comparison, body))

    # --- verdicts and audit sheets ---------------------------------------------------------------

    async def inbox(
        self, project: str, *, offset: int = 0, limit: int = 50, **filters: str
    ) -> types.Inbox:
        """Flagged answers, newest first. filters: state (waiting, judged, closed), run, kind."""
        return await self._transport.send(
            operations.inbox(project, offset=offset, limit=limit, filters=filters)
        )

    async def inbox_next(self, project: str, **filters: str) -> types.FlaggedAnswer | None:
        """Open the next answer that waits and nobody else has open; None where nothing waits."""
        return await self._transport.send(operations.inbox_next(project, filters))

    async def inbox_judge(
        self, project: str, answer: int, value: str, *, note: str = "", again: bool = False
    ) -> types.Verdict:
        """Judge a flagged answer: fine, bad, unsafe, wrong_reward, or labeling to send it to the
        label queue beside the baseline's. `again`: although somebody else has judged it."""
        body = {"value": value, "note": note, "again": again}
        return await self._transport.send(operations.inbox_judge(project, answer, body))

    async def inbox_close(self, project: str, run_id: str) -> int:
        """Close what waits of a run without a verdict; how many answers."""
        return await self._transport.send(operations.inbox_close(project, run_id))

    async def verdict_undo(self, project: str) -> types.Verdict:
        """Take your last verdict back, of the inbox or of samples."""
        return await self._transport.send(operations.verdict_undo(project))

    async def run_verdicts(self, project: str, run_id: str) -> tuple[types.Verdict, ...]:
        """What people said of a run's answers: the newest of each person, newest first."""
        return await self._transport.send(operations.run_verdicts(project, run_id))

    async def sample_judge(
        self, project: str, run_id: str, sample: int, value: str, *, note: str = ""
    ) -> types.Verdict:
        """Judge a sample of a run; values as of `inbox_judge`."""
        body = {"value": value, "note": note}
        return await self._transport.send(operations.sample_judge(project, run_id, sample, body))

    async def audit_sheets(
        self, project: str, *, checkpoint: str = "", offset: int = 0, limit: int = 20
    ) -> types.AuditSheets:
        """Audit sheets, of all policies or of one, newest first."""
        return await self._transport.send(
            operations.audit_sheets(project, offset=offset, limit=limit, checkpoint=checkpoint)
        )

    async def audit_sheet(self, project: str, sheet: str) -> types.AuditSheet:
        """One sheet; its `result` is None until it is finished."""
        return await self._transport.send(operations.audit_sheet(project, sheet))

    async def audit_sheet_draw(self, project: str, run_id: str, **sizes: int) -> types.AuditSheet:
        """Draw a blind sheet from a finished run. sizes: n_random, n_extreme, n_baseline, people,
        seed."""
        body = {"run": run_id, **sizes}
        return await self._transport.send(operations.audit_sheet_draw(project, body))

    async def audit_next(self, project: str, sheet: str) -> types.SheetItem | None:
        """Open the next answer of a sheet; None where none is left for you."""
        return await self._transport.send(operations.audit_next(project, sheet))

    async def audit_judge(
        self, project: str, sheet: str, item: str, value: str, *, note: str = ""
    ) -> types.SheetVerdict:
        """Judge an answer of a sheet: fine, bad or unsafe."""
        body = {"value": value, "note": note}
        return await self._transport.send(operations.audit_judge(project, sheet, item, body))

    async def audit_undo(self, project: str, sheet: str) -> types.SheetItem | None:
        """Take your last verdict on a sheet back; its answer."""
        return await self._transport.send(operations.audit_undo(project, sheet))

    async def audit_finish(self, project: str, sheet: str) -> types.AuditSheet:
        """Finish a sheet whose answers are all judged; with its result."""
        return await self._transport.send(operations.audit_finish(project, sheet))

    async def audit_withdraw(self, project: str, sheet: str, reason: str) -> types.AuditSheet:
        """Close a sheet without a result."""
        return await self._transport.send(operations.audit_withdraw(project, sheet, reason))

    async def _rows(
        self, part: Callable[[int], operations.Operation[Any]], page: int
    ) -> AsyncIterator[Any]:
        """The items of every page; part: the request from an offset on."""
        offset, total = 0, 1
        while offset < total:
            got = await self._transport.send(part(offset))
            for row in got.items:
                yield row
            offset, total = offset + page, got.count

    # --- models ----------------------------------------------------------------------------------

    async def models(
        self, project: str, *, page: int = 50, **filters: str
    ) -> AsyncIterator[types.Model]:
        """Every model, newest first. filters: search, kind (of its run), status."""

        def part(offset: int) -> operations.Operation[Any]:
            return operations.models_page(project, offset=offset, limit=page, filters=filters)

        async for row in self._rows(part, page):
            yield row

    async def model(self, project: str, model: str) -> types.ModelDetail:
        """One model by its id, with its card and the lines that load it."""
        return await self._transport.send(operations.model(project, model))

    async def model_download(
        self,
        project: str,
        model: str,
        folder: str | Path,
        *,
        part: str = "merged",
        on_progress: Progress | None = None,
    ) -> Path:
        """The model's files, in a folder of their own below `folder`, which is answered.

        part: merged, or adapter for that of a LoRA alone. on_progress: called with the bytes that
        are here and those of all. What breaks off continues where it was, also when this is called
        again; `Unreachable` is raised after `tries` that brought nothing.
        """
        operation = operations.model_download(project, model, part=part)
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        file = PartialFile(place / f".{model}-{part}.tar", on_progress)
        await self._transport.download(operation, file)
        return file.unpack()

    async def model_copy(
        self, project: str, model: str, into: str, *, name: str = "", idempotency_key: str = ""
    ) -> types.Run:
        """The run that copies it into the project `into`, by slug, under the model's own name
        unless given; for whoever administers both. See `launch` about keys."""
        body = {
            "project": into,
            "name": name,
            "idempotency_key": idempotency_key or uuid4().hex,
        }
        return await self._transport.send(operations.model_copy(project, model, body))

    async def stages(self, project: str, *, on: str = "") -> tuple[types.Naming, ...]:
        """What candidate, staging and production name now; on: a day as 2026-11-03, all that was
        named on it."""
        return await self._transport.send(operations.stages(project, on=on))

    async def stage_history(
        self, project: str, *, page: int = 50, **filters: str
    ) -> AsyncIterator[types.Naming]:
        """Every change of the stages, newest first. filters: stage."""

        def part(offset: int) -> operations.Operation[Any]:
            return operations.stage_history_page(
                project, offset=offset, limit=page, filters=filters
            )

        async for row in self._rows(part, page):
            yield row

    async def stage_revert(
        self, project: str, stage: str, *, change: int, reason: str
    ) -> types.Naming:
        """The stage names again what it named before `change`, its newest one."""
        body = {"change": change, "reason": reason}
        return await self._transport.send(operations.stage_revert(project, stage, body))

    async def stage_share(
        self, project: str, stage: str, share: int, *, change: int, reason: str
    ) -> types.Naming:
        """Another share of the traffic, in per cent, for what the stage names."""
        body = {"share": share, "change": change, "reason": reason}
        return await self._transport.send(operations.stage_share(project, stage, body))

    async def evidence(self, project: str, model: str, *, stage: str = "production") -> types.Gate:
        """What speaks for promoting a policy, now."""
        return await self._transport.send(operations.evidence(project, model, stage=stage))

    async def promotions(
        self, project: str, *, page: int = 50, **filters: str
    ) -> AsyncIterator[types.Promotion]:
        """Requests to promote, newest first. filters: state."""

        def part(offset: int) -> operations.Operation[Any]:
            return operations.promotions_page(project, offset=offset, limit=page, filters=filters)

        async for row in self._rows(part, page):
            yield row

    async def promotion(self, project: str, promotion: str) -> types.PromotionDetail:
        """One request with its evidence as it was kept."""
        return await self._transport.send(operations.promotion(project, promotion))

    async def promotion_request(
        self, project: str, model: str, stage: str, *, share: int = 100, reason: str = ""
    ) -> types.PromotionDetail:
        """Ask that a stage names a model; another person decides."""
        body = {"checkpoint": model, "stage": stage, "share": share, "reason": reason}
        return await self._transport.send(operations.promotion_request(project, body))

    async def promotion_decide(
        self, project: str, promotion: str, decision: str, *, change: int = 0, reason: str = ""
    ) -> types.PromotionDetail:
        """approve, reject, override or withdraw. change: the stage's newest change that was seen,
        0 where it named nothing."""
        body = {"decision": decision, "change": change, "reason": reason}
        return await self._transport.send(operations.promotion_decide(project, promotion, body))

    async def checklists(self, project: str, run_id: str) -> tuple[types.Checklist, ...]:
        """Before, during and after a run that trains a policy, read from what it left."""
        return await self._transport.send(operations.checklists(project, run_id))

    async def dialogues(self, project: str) -> tuple[types.Dialogue, ...]:
        """Campaigns of live dialogues, newest first, each with its result so far."""
        return await self._transport.send(operations.dialogues(project))

    async def dialogue_open(
        self, project: str, name: str, models: Sequence[str], **plan: Any
    ) -> types.Dialogue:
        """Have people talk with two to eight models, by id. plan: system_prompt, topics,
        temperature, top_p, max_new_tokens, answer_seconds, least_turns, most_turns, per_person,
        in_all, in_datasets, others."""
        body = {"name": name, "models": list(models), **plan}
        return await self._transport.send(operations.dialogue_open(project, body))

    async def dialogue(self, project: str, dialogue: str) -> types.Dialogue:
        """One with its result so far."""
        return await self._transport.send(operations.dialogue(project, dialogue))

    async def dialogue_close(self, project: str, dialogue: str) -> types.Dialogue:
        """Nobody begins or continues a conversation."""
        return await self._transport.send(operations.dialogue_close(project, dialogue))

    async def dialogue_reopen(self, project: str, dialogue: str) -> types.Dialogue:
        """Open a closed one again."""
        return await self._transport.send(operations.dialogue_reopen(project, dialogue))

    async def dialogue_conversations(
        self,
        project: str,
        dialogue: str,
        file: str | Path,
        *,
        on_progress: Progress | None = None,
    ) -> Path:
        """Every conversation with both branches of each turn, as JSON Lines."""
        operation = operations.dialogue_conversations(project, dialogue)
        return await self._save(operation, file, on_progress)

    async def head_to_heads(self, project: str) -> tuple[types.HeadToHead, ...]:
        """All of them, newest first."""
        return await self._transport.send(operations.head_to_heads(project))

    async def head_to_head_open(
        self,
        project: str,
        name: str,
        *,
        first: str,
        second: str,
        source: str = "",
        rows: Sequence[Mapping[str, Any]] = (),
        **plan: Any,
    ) -> types.HeadToHead:
        """Have people compare two systems, named `first` and `second`, or more: more_names lists
        the others, and `second` is the baseline. source: a finished evaluation of two, by its id;
        more_sources in plan: ids of further ones by the same protocol, whose policies are further
        systems; else rows with prompt, response_a, response_b (response_c …). plan: prompts,
        people, votes_each, pairs_each, more_names, more_sources, margin, stopping (any_time or
        at_the_end), repeat_days, priority."""
        body = {"name": name, "first_name": first, "second_name": second, **plan}
        body |= {"source": source} if source else {"rows": [dict(row) for row in rows]}
        return await self._transport.send(operations.head_to_head_open(project, body))

    async def head_to_head(self, project: str, head_to_head: str) -> types.HeadToHead:
        """What people say so far. It is kept that you looked, and one that is decided ends."""
        return await self._transport.send(operations.head_to_head(project, head_to_head))

    async def head_to_head_end(self, project: str, head_to_head: str) -> types.HeadToHead:
        """Ask nobody any more."""
        return await self._transport.send(operations.head_to_head_end(project, head_to_head))

    async def head_to_head_link(
        self, project: str, head_to_head: str, days: int | None = 14
    ) -> types.ReadLink:
        """A page that anybody may read for so many days; the one before ends. None: no page."""
        if days is None:
            return await self._transport.send(operations.head_to_head_unlink(project, head_to_head))
        return await self._transport.send(operations.head_to_head_link(project, head_to_head, days))

    # --- judges ----------------------------------------------------------------------------------

    async def judges(self, project: str) -> tuple[types.Judge, ...]:
        """Judges in use, each with its newest version and what it is worth in short."""
        return await self._transport.send(operations.judges(project))

    async def judge(self, project: str, judge: int) -> types.JudgeDetail:
        """One with all its versions."""
        return await self._transport.send(operations.judge(project, judge))

    async def judge_make(
        self, project: str, name: str, model: str, **config: Any
    ) -> types.JudgeDetail:
        """A judge with its first version. model: the id of a reward model, a policy or a served
        model; config: prompt, rubric, reads, parser, max_new_tokens, temperature …"""
        body = {"name": name, "model": model, "config": config}
        return await self._transport.send(operations.judge_make(project, body))

    async def judge_version_make(
        self, project: str, judge: int, *, model: str = "", note: str = "", **config: Any
    ) -> types.JudgeVersion:
        """The newest version with these changes, without figures of its own; where nothing differs,
        the version there is."""
        body = {"model": model or None, "note": note, "config": config}
        return await self._transport.send(operations.judge_version_make(project, judge, body))

    async def judge_archive(self, project: str, judge: int) -> types.JudgeDetail:
        """It is asked nothing any more; what it said stays."""
        return await self._transport.send(operations.judge_archive(project, judge))

    async def judge_measure(
        self, project: str, judge: int, version: int, *, scope: str = "project", **how: Any
    ) -> types.JudgeAsked:
        """Have it asked about the pairs that it has not judged, and measured beside people. scope:
        "project", "batch:NAME" or "head_to_head:ID"; how: share (of the prompts, that is the human
        sample), attacked (pairs), queue."""
        body = how | {"scope": _scope(scope)}
        return await self._transport.send(operations.judge_measure(project, judge, version, body))

    async def judge_measurements(
        self, project: str, judge: int, version: int, *, page: int = 20
    ) -> AsyncIterator[types.JudgeMeasurement]:
        """Newest first."""

        def part(offset: int) -> operations.Operation[Any]:
            return operations.judge_measurements_page(
                project, judge, version, offset=offset, limit=page
            )

        async for row in self._rows(part, page):
            yield row

    async def judge_measurement(
        self, project: str, judge: int, version: int, measurement: int
    ) -> types.JudgeMeasurement:
        """One with its figures."""
        return await self._transport.send(
            operations.judge_measurement(project, judge, version, measurement)
        )

    async def judge_verdicts(
        self, project: str, judge: int, version: int, *, page: int = 500
    ) -> AsyncIterator[types.JudgeVerdict]:
        """What it said, pair by pair; none of it is a vote. Whoever may vote gets only pairs that
        are no longer open."""

        def part(offset: int) -> operations.Operation[Any]:
            return operations.judge_verdicts_page(
                project, judge, version, offset=offset, limit=page
            )

        async for row in self._rows(part, page):
            yield row

    async def judge_trial(
        self,
        project: str,
        judge: int,
        version: int,
        prompts: Sequence[str],
        *,
        scope: str = "project",
        share: float = 1.0,
    ) -> str:
        """Try prompts, each as a version; the best is then measured on the part kept apart. The key
        of the trial."""
        body = {"prompts": list(prompts), "scope": _scope(scope), "share": share}
        return await self._transport.send(operations.judge_trial(project, judge, version, body))

    async def judge_trials(self, project: str, judge: int) -> tuple[types.JudgeTrial, ...]:
        """Newest first, at most 10."""
        return await self._transport.send(operations.judge_trials(project, judge))

    async def judge_presort(
        self,
        project: str,
        judge: int,
        version: int,
        *,
        scope: str = "project",
        measuring: float = 0.2,
    ) -> types.JudgePresorted:
        """Put first the open pairs without a vote of which it is least sure; a share `measuring`
        keeps its random place."""
        body = {"scope": _scope(scope), "measuring": measuring}
        return await self._transport.send(operations.judge_presort(project, judge, version, body))

    async def judge_certify(
        self, project: str, judge: int, version: int, *, scope: str = "project", **contract: Any
    ) -> types.CertificateDetail:
        """Certify labels; every try is a look. contract: error, failure, against (decision or
        vote), audited. Look at `state`: it may be nothing_certified."""
        body = contract | {"scope": _scope(scope)}
        return await self._transport.send(operations.judge_certify(project, judge, version, body))

    async def certificates(
        self, project: str, *, judge: int | None = None, page: int = 20
    ) -> AsyncIterator[types.Certificate]:
        """Newest first, of all judges or of one."""

        def part(offset: int) -> operations.Operation[Any]:
            return operations.certificates_page(project, offset=offset, limit=page, judge=judge)

        async for row in self._rows(part, page):
            yield row

    async def certificate(self, project: str, certificate: str) -> types.CertificateDetail:
        """One with its audit and the datasets that hold its labels."""
        return await self._transport.send(operations.certificate(project, certificate))

    async def certificate_label(
        self, project: str, certificate: str, *, scope: str = "project"
    ) -> types.CertificateLabelled:
        """Label pairs without a vote of which the judge is sure enough."""
        body = {"scope": _scope(scope)}
        return await self._transport.send(operations.certificate_label(project, certificate, body))

    async def certificate_freeze(
        self, project: str, certificate: str, name: str = ""
    ) -> types.Dataset:
        """Its labels as a dataset, without those that people check."""
        return await self._transport.send(operations.certificate_freeze(project, certificate, name))

    async def certificate_stop(
        self, project: str, certificate: str, because: str = ""
    ) -> types.CertificateDetail:
        """Nothing more is labelled or frozen under it, for good."""
        return await self._transport.send(
            operations.certificate_stop(project, certificate, because)
        )

    async def protocols(self, project: str, *, page: int = 50) -> AsyncIterator[types.Protocol]:
        """What the project's evaluations were measured by, newest first."""

        def part(offset: int) -> operations.Operation[Any]:
            return operations.protocols_page(project, offset=offset, limit=page)

        async for row in self._rows(part, page):
            yield row

    async def protocol(self, project: str, sha256: str) -> types.ProtocolDetail:
        """One by its hash, or the first 12 characters of it, with the runs that used it."""
        return await self._transport.send(operations.protocol(project, sha256))

    async def protocol_differences(
        self, project: str, sha256: str, other: str
    ) -> types.ProtocolDifferences:
        """Every line in which two differ: results under different ones are never compared."""
        return await self._transport.send(operations.protocol_differences(project, sha256, other))

    async def prompt_overlap(self, project: str, run: str) -> types.PromptOverlap:
        """Prompts of an evaluation that its policy was trained on, exactly or nearly."""
        return await self._transport.send(operations.prompt_overlap(project, run))

    async def outside_results(
        self, project: str, *, page: int = 50, **filters: str
    ) -> AsyncIterator[types.OutsideResult]:
        """Results that another program measured, newest first. filters: model."""

        def part(offset: int) -> operations.Operation[Any]:
            return operations.outside_results_page(
                project, offset=offset, limit=page, filters=filters
            )

        async for row in self._rows(part, page):
            yield row

    async def outside_results_import(
        self, project: str, model: str, file: str | Path
    ) -> Sequence[types.OutsideResult]:
        """Import results_*.json of lm-evaluation-harness (or a zip of its folder), or a log of
        Inspect: a result for each task, of the model that you say was measured."""
        return await self._transport.send(
            operations.outside_results_import(project, model, Path(file))
        )

    async def outside_differences(
        self, project: str, result: str, other: str
    ) -> types.ProtocolDifferences:
        """Every line in which the protocols of two such results differ."""
        return await self._transport.send(operations.outside_differences(project, result, other))

    async def outside_result_delete(self, project: str, result: str) -> None:
        """Delete one of them."""
        await self._transport.send(operations.outside_result_delete(project, result))

    async def automatic_suite(self, project: str) -> types.AutomaticSuite:
        """The suite that every policy is evaluated on, and what became of it after each run."""
        return await self._transport.send(operations.automatic_suite(project))

    async def automatic_suite_set(
        self, project: str, *, dataset: str, baseline: str, **asked: Any
    ) -> types.AutomaticSuite:
        """Evaluate every policy on a suite when its training ends. asked: max_new_tokens,
        temperature."""
        body = {"dataset": dataset, "baseline": baseline, **asked}
        return await self._transport.send(operations.automatic_suite_set(project, body))

    async def automatic_suite_stop(self, project: str) -> types.AutomaticSuite:
        """Evaluate no further policy by itself."""
        return await self._transport.send(operations.automatic_suite_stop(project))

    async def automatic_suite_again(self, project: str, run: str) -> types.SuiteLaunch:
        """Launch what was refused after a run."""
        return await self._transport.send(operations.automatic_suite_again(project, run))

    async def watches(self, project: str) -> tuple[types.Watch, ...]:
        """Monitored models, each with its newest probe."""
        return await self._transport.send(operations.watches(project))

    async def watch_make(
        self, project: str, name: str, *, checkpoint: str, prompts: str, **how: Any
    ) -> types.Watch:
        """Monitor a model on the rows of a frozen dataset. how: reward, claims, every_minutes,
        config."""
        body = {"name": name, "checkpoint": checkpoint, "prompts": prompts, **how}
        return await self._transport.send(operations.watch_make(project, body))

    async def traffic_send(
        self, project: str, watch: str, conversations: Sequence[Row], *, key: str = ""
    ) -> types.TrafficCounts:
        """Send up to 500 conversations of a monitored model: all are taken, or none. Each has id,
        messages and consent; at, rating, latency_ms, mean_logprob, outcome where known. A batch of
        the same key is counted once."""
        body = {"watch": watch, "key": key, "conversations": list(conversations)}
        return await self._transport.send(operations.traffic_send(project, body))

    async def traffic_delete(self, project: str, watch: str, ids: Sequence[str]) -> int:
        """Delete conversations whose consent was withdrawn, by your ids; how many there were."""
        return await self._transport.send(operations.traffic_delete(project, watch, ids))

    async def pipelines(self, project: str) -> tuple[types.Pipeline, ...]:
        """All of them, newest first."""
        return await self._transport.send(operations.pipelines(project))

    async def pipeline(self, project: str, pipeline: str) -> types.Pipeline:
        """One pipeline by its id: its steps, its trigger, how many pairs are fresh."""
        return await self._transport.send(operations.pipeline(project, pipeline))

    async def pipeline_make(
        self, project: str, *, run: str, name: str, **asked: Any
    ) -> types.Pipeline:
        """A pipeline that repeats what led to a finished run. asked: as_round (show those runs as
        its first round), and the rules of `types.Pipeline`: trigger_pairs, budget_votes …"""
        body = {"run": run, "name": name, **asked}
        return await self._transport.send(operations.pipeline_make(project, body))

    async def pipeline_from_template(
        self, project: str, *, template: str, policy: str, prompts: str, name: str, **asked: Any
    ) -> types.Pipeline:
        """A pipeline for a project that has trained nothing yet. template: reward, dpo or ppo;
        policy: the model to start from; prompts: a dataset. asked: size (lora or demo), generates,
        and the rules of `types.Pipeline`."""
        given = {"template": template, "policy": policy, "prompts": prompts, "name": name}
        body = {"size": "lora", **given, **asked}
        return await self._transport.send(operations.pipeline_from_template(project, body))

    async def pipeline_change(
        self, project: str, pipeline: types.Pipeline, **changes: Any
    ) -> types.Pipeline:
        """A new version of a pipeline as you have it. changes: name, the rules of `types.Pipeline`,
        stage, steps ({key: {enabled, copied_from, previous, share, hours, pairs, plan}})."""
        body = {"seen_version": pipeline.version, **changes}
        return await self._transport.send(operations.pipeline_change(project, pipeline.id, body))

    async def rounds(
        self, project: str, pipeline: str, *, offset: int = 0, limit: int = 20
    ) -> tuple[types.Round, ...]:
        """Rounds of a pipeline, newest first."""
        operation = operations.rounds(project, pipeline, offset=offset, limit=limit)
        return await self._transport.send(operation)

    async def round(self, project: str, pipeline: str, number: int) -> types.Round:
        """One round: what it waits for, its steps, what it measured."""
        return await self._transport.send(operations.round(project, pipeline, number))

    async def round_start(self, project: str, pipeline: str) -> types.Round:
        """Start a round by the newest version. Refused (round_live) while one has not ended."""
        return await self._transport.send(operations.round_start(project, pipeline))

    async def round_act(
        self,
        project: str,
        pipeline: str,
        number: int,
        action: str,
        *,
        step: str = "",
        reason: str = "",
    ) -> types.Round:
        """pause, resume, stop (reason), skip (step, reason) or redo (step)."""
        body = {"action": action, "step": step, "reason": reason}
        return await self._transport.send(operations.round_act(project, pipeline, number, body))

    async def ask(
        self,
        project: str,
        models: Sequence[str],
        messages: str | Sequence[Mapping[str, str]],
        *,
        every: float = 0.5,
        timeout: float | None = 300.0,
        on_progress: Callable[[types.Question], None] | None = None,
        **sampling: float,
    ) -> types.Question:
        """What one or two models answer, by their ids. messages: a text, or role and content of
        turns that end with the user's. sampling: temperature, top_p, max_new_tokens, seed.

        on_progress is called with what is written so far, every so many seconds. After `timeout`
        seconds the models are stopped and `TimeoutError` is raised. Nothing is kept for longer than
        an hour, and one person has one question at a time.
        """
        given = [dict(one) for one in messages] if not isinstance(messages, str) else messages
        asked = {"models": [*models], "messages": given, **sampling}
        found = await self._transport.send(operations.ask(project, asked))
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while found.live:
            if until is not None and asyncio.get_running_loop().time() + every > until:
                await self._transport.send(operations.question_stop(project, found.id))
                raise TimeoutError(f"Not answered after {timeout:g} s. {found.note}".rstrip())
            await asyncio.sleep(every)
            found = await self._transport.send(operations.question(project, found.id))
            if on_progress is not None:
                on_progress(found)
        return found

    # --- runs ------------------------------------------------------------------------------------

    async def runs(
        self, project: str, *, page: int = 50, **filters: str
    ) -> AsyncIterator[types.Run]:
        """Every run, newest first. filters: search, kind, state, group; see the reference."""

        def part(offset: int) -> operations.Operation[Any]:
            return operations.runs_page(project, offset=offset, limit=page, filters=filters)

        async for row in self._rows(part, page):
            yield row

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
        "snapshot:ID", "checkpoint:ID" or "run:ID" (its final model). more: seeds, sweep (values of
        one or two settings, such as {"learning_rate": [1e-6, 1e-5]}), group, queue, layout,
        processes, launcher, priority, override_reason. A wrong setting is a `ConcordError` that
        names it, and nothing is launched. Without a key this call makes one, so what is sent twice
        for want of an answer launches once.
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
        return await self._transport.send(operations.launch(project, body))

    async def estimate(
        self,
        project: str,
        kind: str,
        *,
        config: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
        **more: Any,
    ) -> types.Estimate:
        """How long `launch` with the same arguments would take and how much memory, by finished
        runs like it. Nothing is launched."""
        body = {
            "kind": kind,
            "name": "estimate",
            "config": dict(config or {}),
            "inputs": dict(inputs or {}),
            **more,
        }
        return await self._transport.send(operations.estimate(project, body))

    async def constitution(self, project: str) -> tuple[types.Constitution, ...]:
        """Versions of the project's constitution, the newest first; none where there is none."""
        return await self._transport.send(operations.constitution(project))

    async def constitution_save(
        self,
        project: str,
        principles: Mapping[str, str],
        *,
        hard_rules: Mapping[str, Any] | None = None,
        note: str = "",
        over: int | None = None,
    ) -> types.Constitution:
        """The next version. principles: {name: text}, in order; hard_rules: a reward that blocks
        answers; over: the version that you changed, which refuses yours where it is not the newest.
        Where nothing but the note differs, the current version."""
        body = {
            "principles": [{"name": name, "text": text} for name, text in principles.items()],
            "hard_rules": dict(hard_rules or {}),
            "note": note,
            "over": over,
        }
        return await self._transport.send(operations.constitution_save(project, body))

    async def freeze_revisions(self, project: str, run: str, **how: Any) -> types.Dataset:
        """Freeze the rewritten answers of a finished generation as preference pairs, which no
        person compared. how: name, weight (over 0, at most 1), label_probability (over 0.5)."""
        return await self._transport.send(operations.freeze_revisions(project, run, how))

    async def space(self, project: str, *, measure: bool = False) -> types.Space:
        """What the project's runs and datasets keep in the artifact store, the largest first.
        Folders were measured ten minutes ago at most; with `measure` they are now."""
        return await self._transport.send(operations.space(project, measure=measure))

    async def set_limits(self, project: str, **limits: int | None) -> types.Limits:
        """Quotas and retention of a project that you administer: runs_at_once, space_bytes,
        gpu_hours (of 30 days), keep_days. What is left out stays; None lifts a limit."""
        return await self._transport.send(operations.limits_set(project, limits))

    async def remove_intermediates(self, project: str, run: str) -> types.Intermediates:
        """Remove the intermediate checkpoints and the trainer state of an ended run, for good."""
        return await self._transport.send(operations.remove_intermediates(project, run))

    async def run(self, project: str, run: str) -> types.RunDetail:
        """One run by its id, with its checkpoints."""
        return await self._transport.send(operations.run(project, run))

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
        return await self._transport.send(operations.metrics(project, run, query=query))

    async def change(self, project: str, run: str, **changes: Any) -> types.Run:
        """Give a run another `name`, `note` or `tags`, or archive it (`archived`)."""
        return await self._transport.send(operations.run_change(project, run, changes))

    async def stop(self, project: str, run: str) -> types.Run:
        """Save a checkpoint and finish early."""
        return await self._transport.send(operations.run_stop(project, run))

    async def cancel(self, project: str, run: str) -> types.Run:
        """End without saving."""
        return await self._transport.send(operations.run_cancel(project, run))

    async def resume(self, project: str, run: str) -> types.Run:
        """Go on with a run that failed or was cancelled, from its last checkpoint."""
        return await self._transport.send(operations.run_resume(project, run))

    async def samples(
        self, project: str, run: str, *, bucket: str = "", limit: int = 50
    ) -> tuple[types.Sample, ...]:
        """Answers that the run kept, latest step first. bucket: high, low, random or flagged."""
        return await self._transport.send(
            operations.samples(project, run, bucket=bucket, limit=limit)
        )

    async def log(self, project: str, run: str, *, lines: int = 200) -> tuple[types.LogLine, ...]:
        """The last lines of its log."""
        return await self._transport.send(operations.log(project, run, lines=lines))

    # --- datasets and imports from files ----------------------------------------------------------

    async def datasets(self, project: str) -> tuple[types.Dataset, ...]:
        """Every dataset, newest first."""
        return await self._transport.send(operations.datasets(project))

    async def dataset(self, project: str, dataset: str) -> types.DatasetDetail:
        """One dataset by its id, with its files."""
        return await self._transport.send(operations.dataset(project, dataset))

    async def advice(
        self,
        project: str,
        *,
        task: str = "",
        rules: str = "",
        baseline: float | None = None,
        latency_ms: float | None = None,
        exploration: bool | None = None,
    ) -> types.Advice:
        """Which method to use now by the project's own results, and why. What is left out is
        unknown. task: factual or open; rules: all, some or none of what must not happen can be
        listed; baseline: share of tasks, 0 to 1, that the model in use does right; latency_ms: for
        one answer; exploration: whether better answers exist than those in the data."""
        stated = {"task": task, "rules": rules}
        stated |= {} if baseline is None else {"baseline": str(baseline)}
        stated |= {} if latency_ms is None else {"latency_ms": str(latency_ms)}
        stated |= {} if exploration is None else {"exploration": str(exploration).lower()}
        given = {name: value for name, value in stated.items() if value}
        return await self._transport.send(operations.advice(project, given))

    async def selection_replays(
        self, project: str, *, kind: str = ""
    ) -> Sequence[types.SelectionReplay]:
        """Replays of the project's votes, newest first, of one kind or all. selection: would
        choosing which pairs people label next have saved votes, against pairs drawn at random?
        depth: is one vote each on more pairs better than several on fewer?"""
        return await self._transport.send(operations.selection_replays(project, kind=kind))

    async def selection_replay_start(
        self, project: str, *, kind: str = "selection", most_per_prompt: int | None = None
    ) -> types.SelectionReplay:
        """Start one, or get the one under way. kind: selection or depth; most_per_prompt, of the
        former: chosen pairs of one prompt in a batch, 1 to 50; None for any number."""
        body = {"kind": kind, "most_per_prompt": most_per_prompt}
        return await self._transport.send(operations.selection_replay_start(project, body))

    async def label_budget(
        self,
        project: str,
        *,
        votes: int | None = None,
        pairs: int | None = None,
        price: float | None = None,
        wage: float | None = None,
        currency: str = "",
        by: date | None = None,
    ) -> types.LabelBudget:
        """What so many votes, or so many pairs, come to by each way of asking: pairs, money, days
        until they are in, and the log loss that the project's replay of kind depth measured. price:
        of one vote; wage: an hour, of which a vote costs its active time; by: a last day. Without
        votes and pairs: the votes that the queue wants."""
        stated: dict[str, Any] = {"votes": votes, "pairs": pairs, "price": price, "wage": wage}
        stated |= {"currency": currency or None, "by": by.isoformat() if by else None}
        given = {name: value for name, value in stated.items() if value is not None}
        return await self._transport.send(operations.label_budget(project, given))

    async def alarms(self, project: str) -> types.Alarms:
        """Every rule about people and data with its newest figure, its state and its limit."""
        return await self._transport.send(operations.alarms(project))

    async def alarms_set(
        self, project: str, changes: Mapping[str, Mapping[str, Any] | None]
    ) -> types.Alarms:
        """By rule {"threshold": …, "action": "warn" or "off", "patience": looks}; None for the
        rule's own. Rules that are not named stay as they are."""
        body = {"alarms": changes}
        return await self._transport.send(operations.alarms_set(project, body))

    async def pairs_select(
        self, project: str, run: str, *, pairs: int, **plan: Any
    ) -> types.PairsSelected:
        """Put so many of the pairs that a generation wrote into the label queue. plan: measuring
        and selected (shares), measuring_votes, strategy (d_optimal, entropy, disagreement),
        most_per_prompt, seed."""
        body = {"pairs": pairs, **plan}
        return await self._transport.send(operations.pairs_select(project, run, body))

    async def dataset_looks(self, project: str, dataset: str, *, limit: int = 100) -> types.Looks:
        """How often its held-out splits were looked at and may be, and the newest readings."""
        return await self._transport.send(operations.dataset_looks(project, dataset, limit=limit))

    async def look_sign(
        self, project: str, dataset: str, split: str, *, look: int, person: str, reason: str
    ) -> types.SignOff:
        """Let `person`, by username and not oneself, take look number `look` beyond the budget."""
        body = {"split": split, "look": look, "person": person, "reason": reason}
        return await self._transport.send(operations.look_sign(project, dataset, body))

    async def look_budget(
        self, project: str, dataset: str, split: str, looks: int | None
    ) -> tuple[types.SplitLooks, ...]:
        """How many looks at a split need no second person, None for any number; for admins."""
        body = {"split": split, "looks": looks}
        return await self._transport.send(operations.look_budget(project, dataset, body))

    async def writing_list(self, project: str) -> tuple[types.WritingBatch, ...]:
        """What people are asked to write, newest first, with its progress."""
        return await self._transport.send(operations.writing_list(project))

    async def writing_get(self, project: str, batch: str) -> types.WritingBatch:
        """One batch of writing work by its id."""
        return await self._transport.send(operations.writing_get(project, batch))

    async def writing_create(self, project: str, name: str, **asked: Any) -> types.WritingBatch:
        """Ask people for texts. asked: kind (demonstrations or prompts), prompts (rows with prompt)
        or own_prompts (so many of the project), n_prompts, per_task, instruction, review (staff,
        peers, none), least_characters, most_characters, topic, language, licence."""
        body = {"name": name, **asked}
        return await self._transport.send(operations.writing_create(project, body))

    async def writing_open(
        self, project: str, batch: str, *, is_open: bool = True
    ) -> types.WritingBatch:
        """Hand out a batch's texts again, or (`is_open=False`) no more of them."""
        body = {"is_open": is_open}
        return await self._transport.send(operations.writing_change(project, batch, body))

    async def writing_texts_page(
        self, project: str, *, after: int = 0, limit: int = 200, **filters: str
    ) -> types.WrittenPage:
        """Texts by number. filters: batch, state (open, writing, waiting, accepted, rejected,
        withdrawn)."""
        return await self._transport.send(
            operations.writing_texts_page(project, after=after, limit=limit, filters=filters)
        )

    async def writing_next(self, project: str) -> types.WritingNext:
        """The text you write on, else the next one; asking again returns the same."""
        return await self._transport.send(operations.writing_next(project))

    async def writing_draft(
        self, project: str, text: int, body: str, *, number: int = 0, editor: str = ""
    ) -> types.WritingDraft:
        """Keep what is typed so far. number: of the draft that you have seen; `Conflict`
        (`draft_newer`) where another was saved since."""
        given = {"body": body, "number": number, "editor": editor}
        return await self._transport.send(operations.writing_draft(project, text, given))

    async def writing_submit(
        self, project: str, text: types.TextToWrite, body: str, *, confirm_personal: bool = False
    ) -> types.WrittenVersion:
        """Submit a text that you hold. confirm_personal: what looks like personal data in it is
        nobody's."""
        given = {
            "body": body,
            "idempotency_key": text.key,
            "confirm_personal": confirm_personal,
        }
        return await self._transport.send(operations.writing_submit(project, text.text, given))

    async def writing_skip(self, project: str, text: int, reason: str = "") -> None:
        """Pass on a text that you hold; it goes to others and does not come back."""
        return await self._transport.send(operations.writing_skip(project, text, reason))

    async def writing_review(
        self,
        project: str,
        text: types.WrittenText,
        verdict: str,
        *,
        body: str = "",
        reason: str = "",
    ) -> types.WrittenText:
        """What you say of another person's text, in the version that you have. verdict: accepted,
        edited (with the `body` as it should be) or rejected (with a `reason`)."""
        given = {"version": text.version, "verdict": verdict, "body": body, "reason": reason}
        return await self._transport.send(operations.writing_review(project, text.text, given))

    async def freeze(
        self,
        project: str,
        name: str,
        *,
        kind: str = "preferences",
        recipe: Mapping[str, Any] | None = None,
        wait: bool = True,
        every: float = 1.0,
        timeout: float | None = None,
        on_progress: Callable[[types.DatasetDetail], None] | None = None,
        **more: Any,
    ) -> types.Dataset:
        """Freeze the decided pairs as a dataset, and wait until a worker has done it.

        recipe: what differs from the project's default (rule, filters, hold-outs, splits). more:
        rows (of prompts or demonstrations), from_improvements, from_writing (with writing_batches
        of some batches alone). wait=False: the draft is answered,
        and `dataset_wait` waits for it; every, timeout, on_progress: see there.
        """
        body = {"name": name, "kind": kind, "recipe": dict(recipe or {}), **more}
        made = await self._transport.send(operations.freeze(project, body))
        if not wait:
            return made
        return await self.dataset_wait(
            project, made.id, every=every, timeout=timeout, on_progress=on_progress
        )

    async def mix(
        self,
        project: str,
        name: str,
        parts: Mapping[str, float],
        *,
        repeat: bool = False,
        wait: bool = True,
        every: float = 1.0,
        timeout: float | None = None,
        on_progress: Callable[[types.DatasetDetail], None] | None = None,
    ) -> types.Dataset:
        """Mix datasets into one, and wait until a worker has done it; see `freeze`.

        parts: {id of a dataset: share of the training rows, in any unit}. repeat: rows of a part
        that is too small for its share recur.
        """
        given = [{"snapshot": one, "weight": weight} for one, weight in parts.items()]
        body = {"name": name, "parts": given, "repeat": repeat}
        made = await self._transport.send(operations.mix(project, body))
        if not wait:
            return made
        return await self.dataset_wait(
            project, made.id, every=every, timeout=timeout, on_progress=on_progress
        )

    async def dataset_wait(
        self,
        project: str,
        dataset: str,
        *,
        every: float = 1.0,
        timeout: float | None = None,
        on_progress: Callable[[types.DatasetDetail], None] | None = None,
    ) -> types.DatasetDetail:
        """The dataset once it is frozen. Looks every so many seconds; on_progress is called after
        each. Raises `ConcordError` (`not_frozen`) with the reason where it could not be made, and
        `TimeoutError` after `timeout` seconds; the worker continues."""
        clock = asyncio.get_running_loop().time
        until = None if timeout is None else clock() + timeout
        while True:
            found = await self.dataset(project, dataset)
            if on_progress is not None:
                on_progress(found)
            if found.state != "draft":
                break
            if until is not None and clock() + every > until:
                raise TimeoutError(f"The dataset {found.id} was not made after {timeout:g} s.")
            await asyncio.sleep(every)
        if found.state != "frozen":
            raise ConcordError(found.error, status=200, code="not_frozen")
        return found

    async def dataset_export(
        self,
        project: str,
        dataset: str,
        file: str | Path,
        *,
        split: str = "",
        format: str = "jsonl",
        shape: str = "",
        on_progress: Progress | None = None,
    ) -> Path:
        """A split of a dataset as a file: jsonl, parquet or csv; everything as zip. shape:
        conversational, standard, implicit, kto, soft, ranking, votes."""
        query = {"split": split, "format": format, "shape": shape}
        operation = operations.dataset_export(
            project, dataset, query={name: value for name, value in query.items() if value}
        )
        return await self._save(operation, file, on_progress)

    async def import_upload(
        self,
        project: str,
        file: str | Path,
        *,
        makes: str = "comparisons",
        settings: Mapping[str, Any] | None = None,
        on_progress: Progress | None = None,
    ) -> types.Import:
        """Upload a file; nothing is checked or written yet. makes: comparisons to vote on, or a
        dataset of prompts, demonstrations, preferences or unpaired. settings: mapping, layout and
        what else docs/importing.md names, where the file is not to be read as it was recognised."""
        operation = operations.import_upload(
            project, Path(file), makes=makes, settings=settings or {}
        )
        return await self._transport.send(operation, on_progress)

    async def image_upload(self, project: str, file: str | Path) -> types.Image:
        """Store an image (PNG, JPEG, WebP) that texts may name by its `reference`. The same file
        again gives the same image."""
        return await self._transport.send(operations.image_upload(project, Path(file)))

    async def image_delete(self, project: str, sha256: str) -> None:
        """Texts that name it keep its alternative text."""
        await self._transport.send(operations.image_delete(project, sha256))

    async def images(
        self, project: str, *, limit: int = 100, offset: int = 0
    ) -> tuple[types.Image, ...]:
        """The images of a project, newest first."""
        return await self._transport.send(operations.images(project, limit=limit, offset=offset))

    async def trajectories_export(
        self,
        project: str,
        file: str | Path,
        *,
        format: str = "atif",
        on_progress: Progress | None = None,
    ) -> Path:
        """The runs of agents that are compared, as JSON Lines. format: atif (1.7), openai,
        anthropic, opentelemetry."""
        operation = operations.trajectories_export(project, format=format)
        return await self._save(operation, file, on_progress)

    async def steps_export(
        self, project: str, file: str | Path, *, on_progress: Progress | None = None
    ) -> Path:
        """The runs whose first wrong step people told, as JSON Lines of steps."""
        return await self._save(operations.steps_export(project), file, on_progress)

    async def import_get(self, project: str, job: str) -> types.Import:
        """An import by its id."""
        return await self._transport.send(operations.import_get(project, job))

    async def import_findings(
        self, project: str, job: str, *, after: int = 0
    ) -> tuple[types.Finding, ...]:
        """Errors and warnings of its check or import, errors first; 200 at most, from the
        `after`th on."""
        return await self._transport.send(operations.import_findings(project, job, after=after))

    async def import_check(self, project: str, job: str) -> types.Import:
        """Have the whole file checked; nothing is written. `import_wait` says when that is done."""
        return await self._repeated(operations.import_check(project, job), job)

    async def import_start(
        self,
        project: str,
        job: str,
        *,
        name: str = "",
        on_error: str = "refuse",
        overlap: str = "refuse",
    ) -> types.Import:
        """Bring the checked file in. name: of the dataset. on_error, overlap: "skip" leaves out the
        rows that cannot be imported, and those that ask what another dataset holds out."""
        body = {"name": name, "on_error": on_error, "overlap": overlap}
        return await self._repeated(operations.import_start(project, job, body), job)

    async def import_cancel(self, project: str, job: str) -> types.Import:
        """End an import that is not done, or discard its file."""
        return await self._transport.send(operations.import_cancel(project, job))

    async def import_wait(
        self, project: str, job: str, *, every: float = 0.5, timeout: float | None = None
    ) -> types.Import:
        """The import once it is no longer at work. Raises `ConcordError` where its check or import
        failed, was cancelled or interrupted, `TimeoutError` after `timeout` seconds."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while (found := await self.import_get(project, job)).is_at_work:
            if timeout is not None and clock() - began + every > timeout:
                raise TimeoutError(f"The import {job} is {found.state} after {timeout:g} s.")
            await asyncio.sleep(every)
        if found.state not in ("done", "draft"):
            raise ConcordError(
                found.error or f"The {found.stage} of {found.file_name} is {found.state}.",
                status=200,
                code=f"import_{found.state}",
            )
        return found

    async def import_file(
        self,
        project: str,
        file: str | Path,
        *,
        makes: str = "comparisons",
        name: str = "",
        settings: Mapping[str, Any] | None = None,
        on_error: str = "refuse",
        overlap: str = "refuse",
        every: float = 0.5,
        timeout: float | None = None,
        on_progress: Progress | None = None,
    ) -> types.Import:
        """Upload a file, have all of it checked, bring it in, and wait for the end of it.

        As `import_upload` and `import_start`. Where rows cannot be imported nothing is, unless
        on_error is "skip": a `ConcordError` (`rows_invalid`) then names the first row and field,
        its `details` the first 200. timeout: seconds for the check, and again for the import.
        """
        job = await self.import_upload(
            project, file, makes=makes, settings=settings, on_progress=on_progress
        )
        try:
            await self.import_check(project, job.id)
            checked = await self.import_wait(project, job.id, every=every, timeout=timeout)
            if checked.check_report.get("n_refused") and on_error == "refuse":
                raise _rows_refused(checked, await self.import_findings(project, job.id))
            await self.import_start(project, job.id, name=name, on_error=on_error, overlap=overlap)
        except ConcordError:
            with contextlib.suppress(ConcordError):  # the first error says more
                await self.import_cancel(project, job.id)
            raise
        return await self.import_wait(project, job.id, every=every, timeout=timeout)

    async def _repeated(self, operation: Operation[types.Import], job: str) -> types.Import:
        """The import, also where the first of two sends arrived without an answer."""
        try:
            return await self._transport.send(operation)
        except ConcordError as error:
            if error.code not in ("import_busy", "import_done"):
                raise
            return await self.import_get(str(operation.names["slug"]), job)

    # --- everything else -------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Any operation of the reference by its path below `/api/v1`, as decoded JSON; of a file
        see `save`. What is repeated when no answer came is GET alone: whether another may be, only
        you know."""
        return await self._transport.send(_named(method, path, query, body))

    async def save(
        self,
        path: str,
        file: str | Path,
        *,
        query: Mapping[str, str | int] | None = None,
        on_progress: Progress | None = None,
    ) -> Path:
        """What a GET of the reference answers, as a file: results, votes, a dataset's split.

        It has its name once it is whole."""
        return await self._save(_named("GET", path, query, None), file, on_progress)

    async def _save(
        self, operation: Operation[None], file: str | Path, on_progress: Progress | None
    ) -> Path:
        place = Path(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        arriving = PartialFile(place.with_name(f".{place.name}.part"), on_progress)
        await self._transport.download(operation, arriving)
        return arriving.rename(place)

    # --- who and where ---------------------------------------------------------------------------

    async def me(self) -> types.Me:
        """Whose token this is."""
        return await self._transport.send(operations.me())

    async def projects(self) -> tuple[types.ProjectInfo, ...]:
        """The projects you are in."""
        return await self._transport.send(operations.projects())

    # --- settings --------------------------------------------------------------------------------

    async def settings(self, project: str) -> types.LabelingSettings:
        """How the project labels and decides."""
        return await self._transport.send(operations.settings(project))

    async def settings_update(self, project: str, **changes: Any) -> types.LabelingSettings:
        """Change the settings that are named; the others stay."""
        return await self._transport.send(operations.settings_update(project, changes))


def _named(
    method: str,
    path: str,
    query: Mapping[str, str | int] | None,
    body: Mapping[str, Any] | None,
) -> Operation[Any]:
    """An operation that has no method of its own."""
    template = "/" + path.lstrip("/").replace("{", "{{").replace("}", "}}")
    method = method.upper()
    return Operation(
        method,
        template,
        lambda data: data,
        query=query or {},
        body=body,
        repeatable=method == "GET",
    )


def _scope(text: str) -> dict[str, str]:
    """Of "project", "batch:NAME" or "head_to_head:ID"."""
    kind, _, name = text.partition(":")
    return {"kind": kind, "name": name}


def _rows_refused(job: types.Import, findings: tuple[types.Finding, ...]) -> ConcordError:
    errors = [one for one in findings if one.level == "error"]
    first = errors[0] if errors else None
    return ConcordError(
        f"{job.check_report['n_refused']} rows of {job.file_name} cannot be imported; nothing was."
        + (f" {first.message}" if first else ""),
        status=400,
        code="rows_invalid",
        field=first.field if first else None,
        row=first.row if first else None,
        details=[{"row": one.row, "field": one.field, "message": one.message} for one in errors],
    )
