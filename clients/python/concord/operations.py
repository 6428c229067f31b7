"""Each operation of the API once, without any input or output: what is sent, how it is read.

The path templates are those of the server's OpenAPI document, which the tests compare them with.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote

from concord import types

T = TypeVar("T")
Kind = TypeVar("Kind", bound=types.Answered)
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """A request: `template` with `names` filled in, and how its answer is read.

    Repeating any of them is harmless: a vote and a revision carry an idempotency key, `next`
    returns the pair in hand, a skip of a pair no longer held changes nothing, the same imported
    rows change nothing, a settings change sets what it set before, and a ruling that has arrived is
    refused (`ruled_meanwhile`), as are a stop, a cancel and a resume. So the client tries again
    when no answer came. Where that is not so (`repeatable` False) it does so only if the server has
    not acted: no connection was made, or the server asks to come back later.
    """

    method: str
    template: str
    read: Callable[[Any], T]
    names: Mapping[str, str | int] = field(default_factory=dict)
    query: Mapping[str, str | int | Sequence[str]] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    repeatable: bool = True
    file: Path | None = None  # sent as multipart/form-data, with `form`
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return self.template.format(
            **{name: quote(str(value), safe="") for name, value in self.names.items()}
        )


def next_pair(project: str, kinds: Sequence[str] = ()) -> Operation[types.Next]:
    template = "/projects/{slug}/next"
    return Operation("POST", template, types.Next.read, {"slug": project}, _kinds(kinds))


def vote(slot: int, body: Mapping[str, Any], kinds: Sequence[str] = ()) -> Operation[types.Vote]:
    template, query = "/slots/{slot}/vote", _kinds(kinds)
    return Operation("POST", template, types.Vote.read, {"slot": slot}, query, body)


def skip(slot: int, reason: str, kinds: Sequence[str] = ()) -> Operation[types.Next]:
    template, query = "/slots/{slot}/skip", _kinds(kinds)
    return Operation("POST", template, types.Next.read, {"slot": slot}, query, {"reason": reason})


def _kinds(kinds: Sequence[str]) -> dict[str, Sequence[str]]:
    return {"kinds": kinds} if kinds else {}


def revise(vote: int, body: Mapping[str, Any]) -> Operation[types.Revision]:
    template = "/votes/{vote}/revise"
    return Operation("POST", template, types.Revision.read, {"vote": vote}, body=body)


def guidelines(project: str) -> Operation[types.Guidelines]:
    template = "/projects/{slug}/guidelines"
    return Operation("GET", template, types.Guidelines.read, {"slug": project})


def guidelines_publish(project: str, body: str, *, is_major: bool) -> Operation[types.Guidelines]:
    return Operation(
        "POST",
        "/projects/{slug}/guidelines",
        types.Guidelines.read,
        {"slug": project},
        body={"body": body, "is_major": is_major},
    )


def acknowledge(project: str, version: int) -> Operation[types.Guidelines]:
    template = "/projects/{slug}/guidelines/acknowledge"
    read = types.Guidelines.read
    return Operation("POST", template, read, {"slug": project}, body={"version": version})


def progress(project: str, *, after: int, limit: int) -> Operation[types.Progress]:
    return Operation(
        "GET",
        "/projects/{slug}/progress",
        types.Progress.read,
        {"slug": project},
        query={"after": after, "limit": limit},
    )


def import_comparisons(
    project: str,
    rows: Sequence[Row],
    *,
    batch: str,
    seed: int,
    on_error: str,
    identical_answers: str,
) -> Operation[types.ImportReport]:
    return Operation(
        "POST",
        "/projects/{slug}/comparisons/import",
        types.ImportReport.read,
        {"slug": project},
        body={
            "rows": list(rows),
            "batch": batch,
            "seed": seed,
            "on_error": on_error,
            "identical_answers": identical_answers,
        },
    )


def import_votes(
    project: str, rows: Sequence[Row], *, on_error: str
) -> Operation[types.VotesReport]:
    return Operation(
        "POST",
        "/projects/{slug}/votes/import",
        types.VotesReport.read,
        {"slug": project},
        body={"rows": list(rows), "on_error": on_error},
    )


def decisions_page(
    project: str, *, after: int, limit: int, outcome: str
) -> Operation[types.DecisionsPage]:
    return Operation(
        "GET",
        "/projects/{slug}/decisions",
        types.DecisionsPage.read,
        {"slug": project},
        query={"after": after, "limit": limit} | ({"outcome": outcome} if outcome else {}),
    )


def disputes_page(
    project: str, *, offset: int, limit: int, filters: Mapping[str, str]
) -> Operation[types.DisputesPage]:
    return Operation(
        "GET",
        "/projects/{slug}/disputes",
        types.DisputesPage.read,
        {"slug": project},
        query={"offset": offset, "limit": limit, **filters},
    )


def dispute(project: str, comparison: int) -> Operation[types.Dispute]:
    names: dict[str, str | int] = {"slug": project, "comparison": comparison}
    return Operation("GET", "/projects/{slug}/disputes/{comparison}", types.Dispute.read, names)


def dispute_votes(project: str, comparison: int) -> Operation[types.Dispute]:
    template = "/projects/{slug}/disputes/{comparison}/votes"
    names: dict[str, str | int] = {"slug": project, "comparison": comparison}
    return Operation("POST", template, types.Dispute.read, names)


def rule(project: str, comparison: int, body: Mapping[str, Any]) -> Operation[types.Ruling]:
    template = "/projects/{slug}/disputes/{comparison}/rulings"
    names: dict[str, str | int] = {"slug": project, "comparison": comparison}
    return Operation("POST", template, types.Ruling.read, names, body=body)


def settings(project: str) -> Operation[types.LabelingSettings]:
    template = "/projects/{slug}/labeling"
    return Operation("GET", template, types.LabelingSettings.read, {"slug": project})


def settings_update(project: str, changes: Mapping[str, Any]) -> Operation[types.LabelingSettings]:
    template = "/projects/{slug}/labeling"
    read = types.LabelingSettings.read
    return Operation("PATCH", template, read, {"slug": project}, body=changes)


def models_page(
    project: str, *, offset: int, limit: int, filters: Mapping[str, str]
) -> Operation[types.ModelsPage]:
    return Operation(
        "GET",
        "/projects/{slug}/models",
        types.ModelsPage.read,
        {"slug": project},
        query={"offset": offset, "limit": limit, **filters},
    )


def model(project: str, model: str) -> Operation[types.ModelDetail]:
    names = {"slug": project, "checkpoint_id": model}
    template = "/projects/{slug}/models/{checkpoint_id}"
    return Operation("GET", template, types.ModelDetail.read, names)


def model_copy(project: str, model: str, body: Mapping[str, Any]) -> Operation[types.Run]:
    """The key in the body copies once."""
    names = {"slug": project, "checkpoint_id": model}
    template = "/projects/{slug}/models/{checkpoint_id}/copy"
    return Operation("POST", template, types.Run.read, names, body=body)


def model_download(project: str, model: str, *, part: str) -> Operation[None]:
    return Operation(
        "GET",
        "/projects/{slug}/models/{checkpoint_id}/download",
        lambda data: None,
        {"slug": project, "checkpoint_id": model},
        query={"part": part},
    )


def protocols_page(project: str, *, offset: int, limit: int) -> Operation[types.ProtocolsPage]:
    return Operation(
        "GET",
        "/projects/{slug}/evaluation-protocols",
        types.ProtocolsPage.read,
        {"slug": project},
        query={"offset": offset, "limit": limit},
    )


def protocol(project: str, sha256: str) -> Operation[types.ProtocolDetail]:
    template = "/projects/{slug}/evaluation-protocols/{sha256}"
    names = {"slug": project, "sha256": sha256}
    return Operation("GET", template, types.ProtocolDetail.read, names)


def protocol_differences(
    project: str, sha256: str, other: str
) -> Operation[types.ProtocolDifferences]:
    template = "/projects/{slug}/evaluation-protocols/{sha256}/differences/{other}"
    names = {"slug": project, "sha256": sha256, "other": other}
    return Operation("GET", template, types.ProtocolDifferences.read, names)


def prompt_overlap(project: str, run: str) -> Operation[types.PromptOverlap]:
    template = "/projects/{slug}/runs/{run_id}/prompt-overlap"
    names = {"slug": project, "run_id": run}
    return Operation("GET", template, types.PromptOverlap.read, names)


AUTOMATIC_SUITE = "/projects/{slug}/automatic-suite"


def automatic_suite(project: str) -> Operation[types.AutomaticSuite]:
    return Operation("GET", AUTOMATIC_SUITE, types.AutomaticSuite.read, {"slug": project})


def automatic_suite_set(project: str, body: Mapping[str, Any]) -> Operation[types.AutomaticSuite]:
    names = {"slug": project}
    return Operation("PUT", AUTOMATIC_SUITE, types.AutomaticSuite.read, names, body=body)


def automatic_suite_stop(project: str) -> Operation[types.AutomaticSuite]:
    return Operation("DELETE", AUTOMATIC_SUITE, types.AutomaticSuite.read, {"slug": project})


def automatic_suite_again(project: str, run: str) -> Operation[types.SuiteLaunch]:
    """Launched once: a second time nothing is refused any more."""
    names = {"slug": project, "run_id": run}
    return Operation("POST", AUTOMATIC_SUITE + "/{run_id}", types.SuiteLaunch.read, names)


WATCHES = "/projects/{slug}/watches"
TRAFFIC = "/projects/{slug}/traffic"


def watches(project: str) -> Operation[tuple[types.Watch, ...]]:
    return Operation("GET", WATCHES, _each(types.Watch), {"slug": project})


def watch_make(project: str, body: Mapping[str, Any]) -> Operation[types.Watch]:
    names = {"slug": project}
    return Operation("POST", WATCHES, types.Watch.read, names, body=body, repeatable=False)


def traffic_send(project: str, body: Mapping[str, Any]) -> Operation[types.TrafficCounts]:
    """The same batch is counted once, but where nothing of it may be remembered: without a key and
    without any consent."""
    agreed = any(row.get("consent") for row in body.get("conversations", ()))
    names, once = {"slug": project}, bool(body.get("key") or agreed)
    read = types.TrafficCounts.read
    return Operation("POST", TRAFFIC, read, names, body=body, repeatable=once)


def traffic_delete(project: str, watch: str, ids: Sequence[str]) -> Operation[int]:
    template, body = TRAFFIC + "/delete", {"watch": watch, "ids": list(ids)}
    return Operation(
        "POST", template, _number("deleted"), {"slug": project}, body=body, repeatable=False
    )


PIPELINES = "/projects/{slug}/pipelines"
PIPELINE = PIPELINES + "/{pipeline_id}"
ROUNDS = PIPELINE + "/rounds"
ROUND = ROUNDS + "/{number}"


def pipelines(project: str) -> Operation[tuple[types.Pipeline, ...]]:
    return Operation("GET", PIPELINES, _each(types.Pipeline), {"slug": project})


def pipeline_make(project: str, body: Mapping[str, Any]) -> Operation[types.Pipeline]:
    """A second one of the same name is refused."""
    return Operation("POST", PIPELINES, types.Pipeline.read, {"slug": project}, body=body)


def pipeline_from_template(project: str, body: Mapping[str, Any]) -> Operation[types.Pipeline]:
    """A second one of the same name is refused."""
    path = PIPELINES + "/from-template"
    return Operation("POST", path, types.Pipeline.read, {"slug": project}, body=body)


def pipeline(project: str, pipeline: str) -> Operation[types.Pipeline]:
    names = {"slug": project, "pipeline_id": pipeline}
    return Operation("GET", PIPELINE, types.Pipeline.read, names)


def pipeline_change(
    project: str, pipeline: str, body: Mapping[str, Any]
) -> Operation[types.Pipeline]:
    """A second time the version that it names is no longer the newest, and it is refused."""
    names = {"slug": project, "pipeline_id": pipeline}
    return Operation("PATCH", PIPELINE, types.Pipeline.read, names, body=body)


def rounds(
    project: str, pipeline: str, *, offset: int, limit: int
) -> Operation[tuple[types.Round, ...]]:
    names = {"slug": project, "pipeline_id": pipeline}
    query = {"offset": offset, "limit": limit}
    return Operation("GET", ROUNDS, _each(types.Round), names, query)


def round_start(project: str, pipeline: str) -> Operation[types.Round]:
    """While one has not ended, a second is refused."""
    names = {"slug": project, "pipeline_id": pipeline}
    return Operation("POST", ROUNDS, types.Round.read, names)


def round(project: str, pipeline: str, number: int) -> Operation[types.Round]:
    names: dict[str, str | int] = {"slug": project, "pipeline_id": pipeline, "number": number}
    return Operation("GET", ROUND, types.Round.read, names)


def round_act(
    project: str, pipeline: str, number: int, body: Mapping[str, Any]
) -> Operation[types.Round]:
    names: dict[str, str | int] = {"slug": project, "pipeline_id": pipeline, "number": number}
    return Operation("POST", ROUND, types.Round.read, names, body=body, repeatable=False)


OUTSIDE_RESULTS = "/projects/{slug}/outside-results"


def outside_results_page(
    project: str, *, offset: int, limit: int, filters: Mapping[str, str]
) -> Operation[types.OutsideResultsPage]:
    return Operation(
        "GET",
        OUTSIDE_RESULTS,
        types.OutsideResultsPage.read,
        {"slug": project},
        query={"offset": offset, "limit": limit, **filters},
    )


def outside_results_import(
    project: str, model: str, file: Path
) -> Operation[Sequence[types.OutsideResult]]:
    """The same file again is refused, and changes nothing."""
    return Operation(
        "POST",
        "/projects/{slug}/models/{checkpoint_id}/outside-results",
        lambda data: [types.OutsideResult.read(one) for one in data],
        {"slug": project, "checkpoint_id": model},
        repeatable=False,
        file=file,
    )


def outside_differences(
    project: str, result: str, other: str
) -> Operation[types.ProtocolDifferences]:
    names = {"slug": project, "result": result, "other": other}
    template = OUTSIDE_RESULTS + "/{result}/differences/{other}"
    return Operation("GET", template, types.ProtocolDifferences.read, names)


def outside_result_delete(project: str, result: str) -> Operation[None]:
    names = {"slug": project, "result": result}
    return Operation("DELETE", OUTSIDE_RESULTS + "/{result}", lambda data: None, names)


def ask(project: str, body: Mapping[str, Any]) -> Operation[types.Question]:
    template = "/projects/{slug}/playground"
    names = {"slug": project}
    return Operation("POST", template, types.Question.read, names, body=body, repeatable=False)


def question(project: str, question: str) -> Operation[types.Question]:
    names = {"slug": project, "question_id": question}
    template = "/projects/{slug}/playground/{question_id}"
    return Operation("GET", template, types.Question.read, names)


def question_stop(project: str, question: str) -> Operation[types.Question]:
    names = {"slug": project, "question_id": question}
    template = "/projects/{slug}/playground/{question_id}/stop"
    return Operation("POST", template, types.Question.read, names)


class Answer(TypedDict, total=False):
    """What a vote may say besides A or B; what the project asks is in `Pair.asks`.

    strength: 1 slightly, 2 much. criteria: {key: left | tie | right} beside a side, {key: a | tie |
    b} beside a choice. reasons: of those the project offers. improvement: the better answer as you
    would have it, in Markdown. runs: of two runs of agents, {outcome, first_error, steps, unopened}
    as docs/agents.md says. Times in milliseconds.
    """

    strength: int
    criteria: Mapping[str, str]
    reasons: Sequence[str]
    rationale: str
    flags: Sequence[str]
    improvement: str
    runs: Mapping[str, Any]
    active_ms: int
    wall_ms: int


def answer_body(key: str, side: str, choice: str, answer: Answer) -> dict[str, Any]:
    """The body of a vote or revision. Exactly one of side and choice is given."""
    if bool(side) == bool(choice):
        raise ValueError("give either side (as the pair was shown) or choice (in stored terms)")
    said = {"side": side} if side else {"choice": choice}
    return {"idempotency_key": key, **said, **answer}


RUN = "/projects/{slug}/runs/{run_id}"


def runs_page(
    project: str, *, offset: int, limit: int, filters: Mapping[str, str]
) -> Operation[types.RunsPage]:
    return Operation(
        "GET",
        "/projects/{slug}/runs",
        types.RunsPage.read,
        {"slug": project},
        query={"offset": offset, "limit": limit, **filters},
    )


def launch(project: str, body: Mapping[str, Any]) -> Operation[types.Run]:
    """The key in the body launches once."""
    template = "/projects/{slug}/runs"
    return Operation("POST", template, types.Run.read, {"slug": project}, body=body)


def estimate(project: str, body: Mapping[str, Any]) -> Operation[types.Estimate]:
    template = "/projects/{slug}/runs/estimate"
    return Operation("POST", template, types.Estimate.read, {"slug": project}, body=body)


def constitution(project: str) -> Operation[tuple[types.Constitution, ...]]:
    template = "/projects/{slug}/constitution"
    return Operation("GET", template, _each(types.Constitution), {"slug": project})


def constitution_save(project: str, body: Mapping[str, Any]) -> Operation[types.Constitution]:
    """A second time the newest version says the same, and is answered."""
    template = "/projects/{slug}/constitution"
    return Operation("POST", template, types.Constitution.read, {"slug": project}, body=body)


def freeze_revisions(
    project: str, run_id: str, body: Mapping[str, Any]
) -> Operation[types.Dataset]:
    """A second time there is a dataset of the run, and it is refused."""
    names = {"slug": project, "run_id": run_id}
    return Operation("POST", RUN + "/freeze-revisions", types.Dataset.read, names, body=body)


def space(project: str, *, measure: bool = False) -> Operation[types.Space]:
    query = {"measure": "true"} if measure else {}
    template = "/projects/{slug}/space"
    return Operation("GET", template, types.Space.read, {"slug": project}, query=query)


def limits_set(project: str, changes: Mapping[str, int | None]) -> Operation[types.Limits]:
    template = "/projects/{slug}/limits"
    return Operation("PATCH", template, types.Limits.read, {"slug": project}, body=changes)


def alarms(project: str) -> Operation[types.Alarms]:
    return Operation("GET", "/projects/{slug}/alarms", types.Alarms.read, {"slug": project})


def alarms_set(project: str, body: Mapping[str, Any]) -> Operation[types.Alarms]:
    template = "/projects/{slug}/alarms"
    return Operation("PATCH", template, types.Alarms.read, {"slug": project}, body=body)


def remove_intermediates(project: str, run_id: str) -> Operation[types.Intermediates]:
    names = {"slug": project, "run_id": run_id}
    return Operation("POST", RUN + "/remove-intermediates", types.Intermediates.read, names)


def run(project: str, run_id: str) -> Operation[types.RunDetail]:
    return Operation("GET", RUN, types.RunDetail.read, {"slug": project, "run_id": run_id})


def metrics(
    project: str, run_id: str, *, query: Mapping[str, str | int]
) -> Operation[types.Metrics]:
    names = {"slug": project, "run_id": run_id}
    return Operation("GET", RUN + "/metrics", types.Metrics.read, names, query)


def run_change(project: str, run_id: str, changes: Mapping[str, Any]) -> Operation[types.Run]:
    names = {"slug": project, "run_id": run_id}
    return Operation("PATCH", RUN, types.Run.read, names, body=changes)


def run_stop(project: str, run_id: str) -> Operation[types.Run]:
    return Operation("POST", RUN + "/stop", types.Run.read, {"slug": project, "run_id": run_id})


def run_cancel(project: str, run_id: str) -> Operation[types.Run]:
    return Operation("POST", RUN + "/cancel", types.Run.read, {"slug": project, "run_id": run_id})


def run_resume(project: str, run_id: str) -> Operation[types.Run]:
    return Operation("POST", RUN + "/resume", types.Run.read, {"slug": project, "run_id": run_id})


def samples(
    project: str, run_id: str, *, bucket: str, limit: int
) -> Operation[tuple[types.Sample, ...]]:
    return Operation(
        "GET",
        RUN + "/samples",
        _each(types.Sample),
        {"slug": project, "run_id": run_id},
        query={"limit": limit} | ({"bucket": bucket} if bucket else {}),
    )


# Verdicts of people on single answers, and blind audit sheets.

INBOX = "/projects/{slug}/inbox"
SHEETS = "/projects/{slug}/audit-sheets"
SHEET = SHEETS + "/{sheet_id}"


def inbox(
    project: str, *, offset: int, limit: int, filters: Mapping[str, str]
) -> Operation[types.Inbox]:
    query: dict[str, str | int] = {"offset": offset, "limit": limit, **filters}
    return Operation("GET", INBOX, types.Inbox.read, {"slug": project}, query)


def inbox_next(project: str, filters: Mapping[str, str]) -> Operation[types.FlaggedAnswer | None]:
    read = _opened("answer", types.FlaggedAnswer)
    return Operation("POST", INBOX + "/next", read, {"slug": project}, dict(filters))


def inbox_judge(project: str, answer: int, body: Row) -> Operation[types.Verdict]:
    names: dict[str, str | int] = {"slug": project, "answer_id": answer}
    template = INBOX + "/{answer_id}/verdicts"
    return Operation("POST", template, types.Verdict.read, names, body=body)


def inbox_close(project: str, run_id: str) -> Operation[int]:
    body = {"run": run_id}
    read = _number("closed")
    return Operation("POST", INBOX + "/close", read, {"slug": project}, body=body)


def verdict_undo(project: str) -> Operation[types.Verdict]:
    template = INBOX + "/undo"
    return Operation("POST", template, types.Verdict.read, {"slug": project}, repeatable=False)


def run_verdicts(project: str, run_id: str) -> Operation[tuple[types.Verdict, ...]]:
    names = {"slug": project, "run_id": run_id}
    return Operation("GET", RUN + "/verdicts", _each(types.Verdict), names)


def sample_judge(project: str, run_id: str, sample: int, body: Row) -> Operation[types.Verdict]:
    names: dict[str, str | int] = {"slug": project, "run_id": run_id, "sample_id": sample}
    template = RUN + "/samples/{sample_id}/verdicts"
    return Operation("POST", template, types.Verdict.read, names, body=body)


def audit_sheets(
    project: str, *, offset: int, limit: int, checkpoint: str
) -> Operation[types.AuditSheets]:
    query: dict[str, str | int] = {"offset": offset, "limit": limit}
    query |= {"checkpoint": checkpoint} if checkpoint else {}
    return Operation("GET", SHEETS, types.AuditSheets.read, {"slug": project}, query)


def audit_sheet(project: str, sheet: str) -> Operation[types.AuditSheet]:
    names = {"slug": project, "sheet_id": sheet}
    return Operation("GET", SHEET, types.AuditSheet.read, names)


def audit_sheet_draw(project: str, body: Row) -> Operation[types.AuditSheet]:
    names = {"slug": project}
    return Operation("POST", SHEETS, types.AuditSheet.read, names, body=body, repeatable=False)


def audit_next(project: str, sheet: str) -> Operation[types.SheetItem | None]:
    names = {"slug": project, "sheet_id": sheet}
    return Operation("POST", SHEET + "/next", _opened("item", types.SheetItem), names)


def audit_judge(project: str, sheet: str, item: str, body: Row) -> Operation[types.SheetVerdict]:
    names = {"slug": project, "sheet_id": sheet, "item_id": item}
    template = SHEET + "/items/{item_id}/verdicts"
    return Operation("POST", template, types.SheetVerdict.read, names, body=body)


def audit_undo(project: str, sheet: str) -> Operation[types.SheetItem | None]:
    names = {"slug": project, "sheet_id": sheet}
    read = _opened("item", types.SheetItem)
    return Operation("POST", SHEET + "/undo", read, names, repeatable=False)


def audit_finish(project: str, sheet: str) -> Operation[types.AuditSheet]:
    names = {"slug": project, "sheet_id": sheet}
    return Operation("POST", SHEET + "/finish", types.AuditSheet.read, names)


def audit_withdraw(project: str, sheet: str, reason: str) -> Operation[types.AuditSheet]:
    names = {"slug": project, "sheet_id": sheet}
    body = {"reason": reason}
    return Operation("POST", SHEET + "/withdraw", types.AuditSheet.read, names, body=body)


def _opened(name: str, kind: type[Kind]) -> Callable[[Mapping[str, Any]], Kind | None]:
    return lambda data: kind.read(data[name]) if data[name] is not None else None


def _number(name: str) -> Callable[[Mapping[str, Any]], int]:
    return lambda data: int(data[name])


def log(project: str, run_id: str, *, lines: int) -> Operation[tuple[types.LogLine, ...]]:
    names = {"slug": project, "run_id": run_id}
    return Operation("GET", RUN + "/log", _each(types.LogLine), names, {"lines": lines})


def me() -> Operation[types.Me]:
    return Operation("GET", "/me", types.Me.read)


def projects() -> Operation[tuple[types.ProjectInfo, ...]]:
    return Operation("GET", "/projects", _each(types.ProjectInfo))


IMPORT = "/projects/{slug}/imports/{job}"


def import_upload(
    project: str, file: Path, *, makes: str, settings: Mapping[str, Any]
) -> Operation[types.Import]:
    return Operation(
        "POST",
        "/projects/{slug}/imports",
        types.Import.read,
        {"slug": project},
        repeatable=False,  # each upload is an import of its own
        file=file,
        form={"makes": makes, "settings": json.dumps(settings) if settings else ""},
    )


def image_upload(project: str, file: Path) -> Operation[types.Image]:
    names = {"slug": project}
    return Operation("POST", "/projects/{slug}/images", types.Image.read, names, file=file)


def image_delete(project: str, sha256: str) -> Operation[None]:
    names = {"slug": project, "sha256": sha256}
    return Operation("DELETE", "/projects/{slug}/images/{sha256}", lambda data: None, names)


def images(project: str, *, limit: int, offset: int) -> Operation[tuple[types.Image, ...]]:
    query = {"limit": limit, "offset": offset}
    names = {"slug": project}
    return Operation("GET", "/projects/{slug}/images", _each(types.Image), names, query=query)


def trajectories_export(project: str, *, format: str = "atif") -> Operation[None]:
    path, names = "/projects/{slug}/results/trajectories", {"slug": project}
    return Operation("GET", path, lambda data: None, names, query={"format": format})


def steps_export(project: str) -> Operation[None]:
    names = {"slug": project}
    return Operation("GET", "/projects/{slug}/results/steps", lambda data: None, names)


def import_get(project: str, job: str) -> Operation[types.Import]:
    return Operation("GET", IMPORT, types.Import.read, {"slug": project, "job": job})


def import_findings(project: str, job: str, *, after: int) -> Operation[tuple[types.Finding, ...]]:
    names = {"slug": project, "job": job}
    read = _each(types.Finding)
    return Operation("GET", IMPORT + "/findings", read, names, {"after": after})


def import_check(project: str, job: str) -> Operation[types.Import]:
    """Refused (`import_busy`) where it has arrived before."""
    names = {"slug": project, "job": job}
    return Operation("POST", IMPORT + "/check", types.Import.read, names)


def import_start(project: str, job: str, body: Mapping[str, Any]) -> Operation[types.Import]:
    """Refused (`import_busy`, `import_done`) where it has arrived before."""
    names = {"slug": project, "job": job}
    return Operation("POST", IMPORT + "/start", types.Import.read, names, body=body)


def import_cancel(project: str, job: str) -> Operation[types.Import]:
    names = {"slug": project, "job": job}
    return Operation("POST", IMPORT + "/cancel", types.Import.read, names)


def datasets(project: str) -> Operation[tuple[types.Dataset, ...]]:
    read = _each(types.Dataset)
    return Operation("GET", "/projects/{slug}/snapshots", read, {"slug": project})


def dataset(project: str, snapshot: str) -> Operation[types.DatasetDetail]:
    names = {"slug": project, "snapshot_id": snapshot}
    template = "/projects/{slug}/snapshots/{snapshot_id}"
    return Operation("GET", template, types.DatasetDetail.read, names)


def dataset_looks(project: str, snapshot: str, *, limit: int) -> Operation[types.Looks]:
    names = {"slug": project, "snapshot_id": snapshot}
    template = "/projects/{slug}/snapshots/{snapshot_id}/looks"
    return Operation("GET", template, types.Looks.read, names, {"limit": limit})


def advice(project: str, stated: Mapping[str, str]) -> Operation[types.Advice]:
    return Operation("GET", "/projects/{slug}/advice", types.Advice.read, {"slug": project}, stated)


def selection_replays(project: str, *, kind: str) -> Operation[tuple[types.SelectionReplay, ...]]:
    template = "/projects/{slug}/selection-replays"
    read = _each(types.SelectionReplay)
    return Operation("GET", template, read, {"slug": project}, {"kind": kind})


def selection_replay_start(
    project: str, body: Mapping[str, Any]
) -> Operation[types.SelectionReplay]:
    template = "/projects/{slug}/selection-replays"
    return Operation("POST", template, types.SelectionReplay.read, {"slug": project}, body=body)


def label_budget(project: str, stated: Mapping[str, Any]) -> Operation[types.LabelBudget]:
    template = "/projects/{slug}/label-budget"
    return Operation("GET", template, types.LabelBudget.read, {"slug": project}, stated)


def pairs_select(project: str, run: str, body: Mapping[str, Any]) -> Operation[types.PairsSelected]:
    """Sent again with the same plan it changes nothing."""
    template = "/projects/{slug}/runs/{run_id}/pairs/selection"
    names = {"slug": project, "run_id": run}
    return Operation("POST", template, types.PairsSelected.read, names, body=body)


def look_sign(project: str, snapshot: str, body: Mapping[str, Any]) -> Operation[types.SignOff]:
    names = {"slug": project, "snapshot_id": snapshot}
    template = "/projects/{slug}/snapshots/{snapshot_id}/looks/sign"
    return Operation("POST", template, types.SignOff.read, names, body=body)


def look_budget(
    project: str, snapshot: str, body: Mapping[str, Any]
) -> Operation[tuple[types.SplitLooks, ...]]:
    names = {"slug": project, "snapshot_id": snapshot}
    template = "/projects/{slug}/snapshots/{snapshot_id}/looks/budget"
    return Operation("PUT", template, _each(types.SplitLooks), names, body=body)


def freeze(project: str, body: Mapping[str, Any]) -> Operation[types.Dataset]:
    return Operation(
        "POST",
        "/projects/{slug}/snapshots",
        types.Dataset.read,
        {"slug": project},
        body=body,
        repeatable=False,  # each is a dataset of its own
    )


def mix(project: str, body: Mapping[str, Any]) -> Operation[types.Dataset]:
    return Operation(
        "POST",
        "/projects/{slug}/snapshots/mixtures",
        types.Dataset.read,
        {"slug": project},
        body=body,
        repeatable=False,  # each is a dataset of its own
    )


def dataset_export(
    project: str, snapshot: str, *, query: Mapping[str, str | int]
) -> Operation[None]:
    return Operation(
        "GET",
        "/projects/{slug}/snapshots/{snapshot_id}/export",
        lambda data: None,
        {"slug": project, "snapshot_id": snapshot},
        query,
    )


HEAD_TO_HEADS = "/projects/{slug}/head-to-heads"


def head_to_heads(project: str) -> Operation[tuple[types.HeadToHead, ...]]:
    return Operation("GET", HEAD_TO_HEADS, _each(types.HeadToHead), {"slug": project})


def head_to_head_open(project: str, body: Mapping[str, Any]) -> Operation[types.HeadToHead]:
    names = {"slug": project}
    return Operation(
        "POST", HEAD_TO_HEADS, types.HeadToHead.read, names, body=body, repeatable=False
    )


def head_to_head(project: str, head_to_head: str) -> Operation[types.HeadToHead]:
    names = {"slug": project, "head_to_head": head_to_head}
    return Operation("GET", HEAD_TO_HEADS + "/{head_to_head}", types.HeadToHead.read, names)


def head_to_head_end(project: str, head_to_head: str) -> Operation[types.HeadToHead]:
    names = {"slug": project, "head_to_head": head_to_head}
    return Operation("POST", HEAD_TO_HEADS + "/{head_to_head}/end", types.HeadToHead.read, names)


def head_to_head_link(project: str, head_to_head: str, days: int) -> Operation[types.ReadLink]:
    names = {"slug": project, "head_to_head": head_to_head}
    template = HEAD_TO_HEADS + "/{head_to_head}/link"
    return Operation("POST", template, types.ReadLink.read, names, body={"days": days})


def head_to_head_unlink(project: str, head_to_head: str) -> Operation[types.ReadLink]:
    names = {"slug": project, "head_to_head": head_to_head}
    return Operation("DELETE", HEAD_TO_HEADS + "/{head_to_head}/link", types.ReadLink.read, names)


DIALOGUES = "/projects/{slug}/dialogues"
DIALOGUE = DIALOGUES + "/{dialogue}"


def dialogues(project: str) -> Operation[tuple[types.Dialogue, ...]]:
    return Operation("GET", DIALOGUES, _each(types.Dialogue), {"slug": project})


def dialogue_open(project: str, body: Mapping[str, Any]) -> Operation[types.Dialogue]:
    names = {"slug": project}
    return Operation("POST", DIALOGUES, types.Dialogue.read, names, body=body, repeatable=False)


def dialogue(project: str, dialogue: str) -> Operation[types.Dialogue]:
    names = {"slug": project, "dialogue": dialogue}
    return Operation("GET", DIALOGUE, types.Dialogue.read, names)


def dialogue_close(project: str, dialogue: str) -> Operation[types.Dialogue]:
    names = {"slug": project, "dialogue": dialogue}
    return Operation("POST", DIALOGUE + "/close", types.Dialogue.read, names)


def dialogue_reopen(project: str, dialogue: str) -> Operation[types.Dialogue]:
    names = {"slug": project, "dialogue": dialogue}
    return Operation("POST", DIALOGUE + "/open", types.Dialogue.read, names)


def dialogue_conversations(project: str, dialogue: str) -> Operation[None]:
    names = {"slug": project, "dialogue": dialogue}
    return Operation("GET", DIALOGUE + "/conversations", lambda data: None, names)


JUDGES = "/projects/{slug}/judges"
JUDGE = JUDGES + "/{judge_id}"
JUDGE_VERSION = JUDGE + "/versions/{number}"
CERTIFICATES = "/projects/{slug}/certificates"
CERTIFICATE = CERTIFICATES + "/{certificate_id}"


def judges(project: str) -> Operation[tuple[types.Judge, ...]]:
    return Operation("GET", JUDGES, _each(types.Judge), {"slug": project})


def judge_make(project: str, body: Row) -> Operation[types.JudgeDetail]:
    """A second time its name is taken, and it is refused."""
    return Operation("POST", JUDGES, types.JudgeDetail.read, {"slug": project}, body=body)


def judge(project: str, judge: int) -> Operation[types.JudgeDetail]:
    names = _judge(project, judge)
    return Operation("GET", JUDGE, types.JudgeDetail.read, names)


def judge_version_make(project: str, judge: int, body: Row) -> Operation[types.JudgeVersion]:
    """A second time nothing differs, and the version there is is answered."""
    names = _judge(project, judge)
    return Operation("POST", JUDGE + "/versions", types.JudgeVersion.read, names, body=body)


def judge_archive(project: str, judge: int) -> Operation[types.JudgeDetail]:
    names = _judge(project, judge)
    return Operation("POST", JUDGE + "/archive", types.JudgeDetail.read, names)


def judge_measure(project: str, judge: int, version: int, body: Row) -> Operation[types.JudgeAsked]:
    return Operation(
        "POST",
        JUDGE_VERSION + "/measurements",
        types.JudgeAsked.read,
        _version(project, judge, version),
        body=body,
        repeatable=False,
    )


def judge_measurements_page(
    project: str, judge: int, version: int, *, offset: int, limit: int
) -> Operation[types.JudgeMeasurements]:
    return Operation(
        "GET",
        JUDGE_VERSION + "/measurements",
        types.JudgeMeasurements.read,
        _version(project, judge, version),
        {"offset": offset, "limit": limit},
    )


def judge_measurement(
    project: str, judge: int, version: int, measurement: int
) -> Operation[types.JudgeMeasurement]:
    names = {**_version(project, judge, version), "measurement_id": measurement}
    template = JUDGE_VERSION + "/measurements/{measurement_id}"
    return Operation("GET", template, types.JudgeMeasurement.read, names)


def judge_verdicts_page(
    project: str, judge: int, version: int, *, offset: int, limit: int
) -> Operation[types.JudgeVerdicts]:
    return Operation(
        "GET",
        JUDGE_VERSION + "/verdicts",
        types.JudgeVerdicts.read,
        _version(project, judge, version),
        {"offset": offset, "limit": limit},
    )


def judge_trial(project: str, judge: int, version: int, body: Row) -> Operation[str]:
    return Operation(
        "POST",
        JUDGE_VERSION + "/trials",
        lambda data: str(data["key"]),
        _version(project, judge, version),
        body=body,
        repeatable=False,
    )


def judge_trials(project: str, judge: int) -> Operation[tuple[types.JudgeTrial, ...]]:
    names = _judge(project, judge)
    return Operation("GET", JUDGE + "/trials", _each(types.JudgeTrial), names)


def judge_presort(
    project: str, judge: int, version: int, body: Row
) -> Operation[types.JudgePresorted]:
    return Operation(
        "POST",
        JUDGE_VERSION + "/presort",
        types.JudgePresorted.read,
        _version(project, judge, version),
        body=body,
        repeatable=False,
    )


def judge_certify(
    project: str, judge: int, version: int, body: Row
) -> Operation[types.CertificateDetail]:
    """Every try is a look."""
    return Operation(
        "POST",
        JUDGE_VERSION + "/certificates",
        types.CertificateDetail.read,
        _version(project, judge, version),
        body=body,
        repeatable=False,
    )


def _version(project: str, judge: int, version: int) -> dict[str, str | int]:
    return {**_judge(project, judge), "number": version}


def _judge(project: str, judge: int) -> dict[str, str | int]:
    return {"slug": project, "judge_id": judge}


def certificates_page(
    project: str, *, offset: int, limit: int, judge: int | None
) -> Operation[types.Certificates]:
    query = {"offset": offset, "limit": limit} | ({} if judge is None else {"judge": judge})
    return Operation("GET", CERTIFICATES, types.Certificates.read, {"slug": project}, query)


def certificate(project: str, certificate: str) -> Operation[types.CertificateDetail]:
    names = {"slug": project, "certificate_id": certificate}
    return Operation("GET", CERTIFICATE, types.CertificateDetail.read, names)


def certificate_label(
    project: str, certificate: str, body: Row
) -> Operation[types.CertificateLabelled]:
    names = {"slug": project, "certificate_id": certificate}
    read = types.CertificateLabelled.read
    return Operation("POST", CERTIFICATE + "/labels", read, names, body=body, repeatable=False)


def certificate_freeze(project: str, certificate: str, name: str) -> Operation[types.Dataset]:
    names = {"slug": project, "certificate_id": certificate}
    return Operation(
        "POST",
        CERTIFICATE + "/freeze",
        types.Dataset.read,
        names,
        body={"name": name},
        repeatable=False,
    )


def certificate_stop(
    project: str, certificate: str, because: str
) -> Operation[types.CertificateDetail]:
    names = {"slug": project, "certificate_id": certificate}
    body = {"because": because}
    return Operation("POST", CERTIFICATE + "/stop", types.CertificateDetail.read, names, body=body)


STAGES = "/projects/{slug}/stages"
PROMOTIONS = "/projects/{slug}/promotions"


def stages(project: str, *, on: str) -> Operation[tuple[types.Naming, ...]]:
    query = {"on": on} if on else {}
    return Operation("GET", STAGES, _each(types.Naming), {"slug": project}, query)


def stage_history_page(
    project: str, *, offset: int, limit: int, filters: Mapping[str, str]
) -> Operation[types.NamingsPage]:
    query: dict[str, str | int] = {"offset": offset, "limit": limit, **filters}
    template = STAGES + "/history"
    return Operation("GET", template, types.NamingsPage.read, {"slug": project}, query)


def stage_revert(project: str, stage: str, body: Mapping[str, Any]) -> Operation[types.Naming]:
    """Refused (`stage_changed`) where it has arrived before."""
    names = {"slug": project, "stage": stage}
    return Operation("POST", STAGES + "/{stage}/revert", types.Naming.read, names, body=body)


def stage_share(project: str, stage: str, body: Mapping[str, Any]) -> Operation[types.Naming]:
    """Refused (`stage_changed`) where it has arrived before."""
    names = {"slug": project, "stage": stage}
    return Operation("POST", STAGES + "/{stage}/share", types.Naming.read, names, body=body)


def evidence(project: str, model: str, *, stage: str) -> Operation[types.Gate]:
    names = {"slug": project, "checkpoint_id": model}
    template = "/projects/{slug}/models/{checkpoint_id}/evidence"
    return Operation("GET", template, types.Gate.read, names, {"stage": stage})


def promotions_page(
    project: str, *, offset: int, limit: int, filters: Mapping[str, str]
) -> Operation[types.PromotionsPage]:
    query: dict[str, str | int] = {"offset": offset, "limit": limit, **filters}
    return Operation("GET", PROMOTIONS, types.PromotionsPage.read, {"slug": project}, query)


def promotion(project: str, promotion: str) -> Operation[types.PromotionDetail]:
    names = {"slug": project, "request_id": promotion}
    return Operation("GET", PROMOTIONS + "/{request_id}", types.PromotionDetail.read, names)


def promotion_request(project: str, body: Mapping[str, Any]) -> Operation[types.PromotionDetail]:
    """Refused (`waits_already`) where it has arrived before."""
    return Operation("POST", PROMOTIONS, types.PromotionDetail.read, {"slug": project}, body=body)


def promotion_decide(
    project: str, promotion: str, body: Mapping[str, Any]
) -> Operation[types.PromotionDetail]:
    """Refused (`decided_already`, `signed_already`) where it has arrived before."""
    names = {"slug": project, "request_id": promotion}
    template = PROMOTIONS + "/{request_id}/decision"
    return Operation("POST", template, types.PromotionDetail.read, names, body=body)


def checklists(project: str, run_id: str) -> Operation[tuple[types.Checklist, ...]]:
    names = {"slug": project, "run_id": run_id}
    return Operation("GET", RUN + "/checklists", _each(types.Checklist), names)


WRITING = "/projects/{slug}/writing"
WRITTEN = WRITING + "/texts/{text}"


def _text(project: str, text: int) -> dict[str, str | int]:
    return {"slug": project, "text": text}


def writing_list(project: str) -> Operation[tuple[types.WritingBatch, ...]]:
    return Operation("GET", WRITING, _each(types.WritingBatch), {"slug": project})


def writing_create(project: str, body: Mapping[str, Any]) -> Operation[types.WritingBatch]:
    """A second time it asks for the same texts again."""
    read = types.WritingBatch.read
    return Operation("POST", WRITING, read, {"slug": project}, body=body, repeatable=False)


def writing_get(project: str, batch: str) -> Operation[types.WritingBatch]:
    names, template = {"slug": project, "batch": batch}, WRITING + "/batches/{batch}"
    return Operation("GET", template, types.WritingBatch.read, names)


def writing_change(
    project: str, batch: str, body: Mapping[str, Any]
) -> Operation[types.WritingBatch]:
    names, template = {"slug": project, "batch": batch}, WRITING + "/batches/{batch}"
    return Operation("PATCH", template, types.WritingBatch.read, names, body=body)


def writing_texts_page(
    project: str, *, after: int, limit: int, filters: Mapping[str, str]
) -> Operation[types.WrittenPage]:
    query: dict[str, str | int] = {"after": after, "limit": limit, **filters}
    template = WRITING + "/texts"
    return Operation("GET", template, types.WrittenPage.read, {"slug": project}, query)


def writing_next(project: str) -> Operation[types.WritingNext]:
    return Operation("POST", WRITING + "/next", types.WritingNext.read, {"slug": project})


def writing_draft(
    project: str, text: int, body: Mapping[str, Any]
) -> Operation[types.WritingDraft]:
    """A second time the draft is what it is."""
    names = _text(project, text)
    return Operation("PUT", WRITTEN + "/draft", types.WritingDraft.read, names, body=body)


def writing_submit(
    project: str, text: int, body: Mapping[str, Any]
) -> Operation[types.WrittenVersion]:
    """The key in the body submits once."""
    names = _text(project, text)
    return Operation("POST", WRITTEN + "/submit", types.WrittenVersion.read, names, body=body)


def writing_skip(project: str, text: int, reason: str) -> Operation[None]:
    names, body = _text(project, text), {"reason": reason}
    return Operation("POST", WRITTEN + "/skip", lambda _: None, names, body=body)


def writing_review(
    project: str, text: int, body: Mapping[str, Any]
) -> Operation[types.WrittenText]:
    """The same verdict of the same person again changes nothing."""
    names = _text(project, text)
    return Operation("POST", WRITTEN + "/review", types.WrittenText.read, names, body=body)


def _each(kind: type[Kind]) -> Callable[[Sequence[Mapping[str, Any]]], tuple[Kind, ...]]:
    return lambda rows: tuple(kind.read(row) for row in rows)
