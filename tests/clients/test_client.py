"""The client covers the labeling API, by the server's own OpenAPI document."""

import asyncio
import inspect
import io
import json
import re
import tarfile
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from ninja import Schema

from concord import AsyncClient, ConcordError, Pair, Unreachable, operations, projects, sync, types
from concord.types import Next
from config.api import api

# Operations that have no method of their own, by the beginning of their path, and why. All of them
# are reached by `call`, or by `save` where a file is answered.
BY_CALL = {
    "/projects/{slug}/consent": "once, by a person who reads it",
    "GET /audit-log": "a file for administrators of the site",
    "DELETE /projects/{slug}/runs/{run_id}": "runs are deleted by people",
    "GET /projects/{slug}": "a project's own data: rarely read by programs",
    "POST /projects": "projects are made by people",
    "PATCH /projects/{slug}": "projects are changed by people",
    "/projects/{slug}/archive": "projects are changed by people",
    "/projects/{slug}/restore": "projects are changed by people",
    "/projects/{slug}/delete": "projects are changed by people",
    "/projects/{slug}/people": "who is in a project is for its admins",
    "/projects/{slug}/audit-log": "what admins look into",
    "/projects/{slug}/invitations": "who is in a project is for its admins",
    "GET /projects/{slug}/comparisons": "finding is for people; programs read decisions",
    "/projects/{slug}/annotators/": "what admins do about a person",
    "/projects/{slug}/comments": "what people say to each other",
    "/projects/{slug}/comparisons/bulk": "what admins do to many comparisons",
    "/projects/{slug}/comparisons/views": "what people keep of the list",
    "/projects/{slug}/comparisons/{comparison}/comments": "what people say to each other",
    "/projects/{slug}/completion": "what people show to a vendor",
    "/projects/{slug}/discards": "what admins do about a person",
    "/projects/{slug}/hours": "what people are paid by",
    "/projects/{slug}/opt-outs": "what a person does not want to read",
    "/projects/{slug}/questions": "what people ask",
    "GET /projects/{slug}/imports": "an import is known by its id, or looked for on the page",
    "/projects/{slug}/imports/{job}/settings": "given with the file",
    "/projects/{slug}/imports/{job}/undo": "what people decide",
    "/projects/{slug}/imports/{job}/due": "what admins say of an import",
    "/projects/{slug}/imports/{job}/people": "what admins say of an import",
    "/projects/{slug}/ratings": "the results of gradings and rankings, and their rows",
    "/rating-slots/": "the old names of /slots/…/vote and /slots/…/skip",
    "/ratings/": "the old name of /votes/…/revise",
    "/projects/{slug}/results": "files: by `save`",
    "/projects/{slug}/agreement": "a report with many figures, for people",
    "/projects/{slug}/ranking": "a report with many figures, for people",
    "/projects/{slug}/decisions/": "how decisions are made is for admins",
    "/projects/{slug}/snapshots/suite": "once a project, on the page of imports",
    "/projects/{slug}/snapshots/preview": "what people look at before they freeze",
    "/projects/{slug}/snapshots/{snapshot_id}/verify": "rare",
    "/projects/{slug}/snapshots/{snapshot_id}/changes": "a report for people",
    "/projects/{slug}/votes/": "where a vote went: rare",
    "/projects/{slug}/models/{checkpoint_id}/push": "rare; a run of the kind push does the same",
    "/projects/{slug}/groups/{group}/stop": "rare; each run of the group has stop and cancel",
    "/projects/{slug}/runs/{run_id}/events": "metrics, samples, log and state have methods",
    "/projects/{slug}/runs/{run_id}/lineage": "rare",
    "/projects/{slug}/runs/{run_id}/pairs": "what people decide about a run's pairs; some of them "
    "by `pairs_select`",
    "/projects/{slug}/runs/{run_id}/move": "what admins do to the queue",
    "/projects/{slug}/runs/{run_id}/priority": "what admins do to the queue",
    "/projects/{slug}/playground/{question_id}/pair": "what people decide about two answers",
    "/projects/{slug}/fleet": "what admins look at",
    "/projects/{slug}/reward-models": "assessment and approval: what a person decides",
    "/models/{checkpoint_id}/score": "asked by services, in whatever language they have",
    "/scores/": "asked by services, in whatever language they have",
    "/projects/{slug}/outcomes": "sent by services, in whatever language they have",
    "/projects/{slug}/incidents": "for people",
    "/projects/{slug}/overview": "for people",
    "/projects/{slug}/notifications": "for people",
}

COVERED = [
    operations.next_pair("p"),
    operations.vote(1, {}),
    operations.skip(1, ""),
    operations.revise(1, {}),
    operations.guidelines("p"),
    operations.guidelines_publish("p", "", is_major=False),
    operations.acknowledge("p", 1),
    operations.progress("p", after=0, limit=1),
    operations.import_comparisons(
        "p", [], batch="", seed=0, on_error="refuse", identical_answers="refuse"
    ),
    operations.import_votes("p", [], on_error="refuse"),
    operations.decisions_page("p", after=0, limit=1, outcome=""),
    operations.disputes_page("p", offset=0, limit=1, filters={}),
    operations.dispute("p", 1),
    operations.dispute_votes("p", 1),
    operations.rule("p", 1, {}),
    operations.models_page("p", offset=0, limit=1, filters={}),
    operations.model("p", "m"),
    operations.model_download("p", "m", part="merged"),
    operations.model_copy("p", "m", {}),
    operations.protocols_page("p", offset=0, limit=1),
    operations.protocol("p", "s"),
    operations.protocol_differences("p", "s", "t"),
    operations.prompt_overlap("p", "r"),
    operations.outside_results_page("p", offset=0, limit=1, filters={}),
    operations.outside_results_import("p", "m", Path("results.json")),
    operations.outside_differences("p", "r", "s"),
    operations.outside_result_delete("p", "r"),
    operations.automatic_suite("p"),
    operations.automatic_suite_set("p", {}),
    operations.automatic_suite_stop("p"),
    operations.automatic_suite_again("p", "r"),
    operations.watches("p"),
    operations.watch_make("p", {}),
    operations.traffic_send("p", {}),
    operations.traffic_delete("p", "w", []),
    operations.pipelines("p"),
    operations.pipeline_make("p", {}),
    operations.pipeline_from_template("p", {}),
    operations.pipeline("p", "l"),
    operations.pipeline_change("p", "l", {}),
    operations.rounds("p", "l", offset=0, limit=1),
    operations.round_start("p", "l"),
    operations.round("p", "l", 1),
    operations.round_act("p", "l", 1, {}),
    operations.ask("p", {}),
    operations.question("p", "q"),
    operations.question_stop("p", "q"),
    operations.runs_page("p", offset=0, limit=1, filters={}),
    operations.launch("p", {}),
    operations.estimate("p", {}),
    operations.constitution("p"),
    operations.constitution_save("p", {}),
    operations.freeze_revisions("p", "r", {}),
    operations.space("p"),
    operations.limits_set("p", {}),
    operations.remove_intermediates("p", "r"),
    operations.run("p", "r"),
    operations.metrics("p", "r", query={}),
    operations.run_change("p", "r", {}),
    operations.run_stop("p", "r"),
    operations.run_cancel("p", "r"),
    operations.run_resume("p", "r"),
    operations.settings("p"),
    operations.settings_update("p", {}),
    operations.samples("p", "r", bucket="", limit=1),
    operations.inbox("p", offset=0, limit=1, filters={}),
    operations.inbox_next("p", {}),
    operations.inbox_judge("p", 1, {}),
    operations.inbox_close("p", "r"),
    operations.verdict_undo("p"),
    operations.run_verdicts("p", "r"),
    operations.sample_judge("p", "r", 1, {}),
    operations.audit_sheets("p", offset=0, limit=1, checkpoint=""),
    operations.audit_sheet("p", "s"),
    operations.audit_sheet_draw("p", {}),
    operations.audit_next("p", "s"),
    operations.audit_judge("p", "s", "i", {}),
    operations.audit_undo("p", "s"),
    operations.audit_finish("p", "s"),
    operations.audit_withdraw("p", "s", ""),
    operations.log("p", "r", lines=1),
    operations.me(),
    operations.projects(),
    operations.import_upload("p", Path("f"), makes="prompts", settings={}),
    operations.image_upload("p", Path("f")),
    operations.images("p", limit=1, offset=0),
    operations.image_delete("p", "s"),
    operations.trajectories_export("p"),
    operations.steps_export("p"),
    operations.import_get("p", "j"),
    operations.import_findings("p", "j", after=0),
    operations.import_check("p", "j"),
    operations.import_start("p", "j", {}),
    operations.import_cancel("p", "j"),
    operations.datasets("p"),
    operations.mix("p", {}),
    operations.dataset("p", "d"),
    operations.advice("p", {"task": "open"}),
    operations.selection_replays("p", kind="depth"),
    operations.label_budget("p", {"votes": 1}),
    operations.alarms("p"),
    operations.alarms_set("p", {}),
    operations.selection_replay_start("p", {}),
    operations.pairs_select("p", "r", {}),
    operations.dataset_looks("p", "d", limit=1),
    operations.look_sign("p", "d", {}),
    operations.look_budget("p", "d", {}),
    operations.freeze("p", {}),
    operations.dataset_export("p", "d", query={}),
    operations.stages("p", on=""),
    operations.dialogues("p"),
    operations.dialogue_open("p", {}),
    operations.dialogue("p", "d"),
    operations.dialogue_close("p", "d"),
    operations.dialogue_reopen("p", "d"),
    operations.dialogue_conversations("p", "d"),
    operations.head_to_heads("p"),
    operations.head_to_head_open("p", {}),
    operations.head_to_head("p", "h"),
    operations.head_to_head_end("p", "h"),
    operations.head_to_head_link("p", "h", 3),
    operations.head_to_head_unlink("p", "h"),
    operations.judges("p"),
    operations.judge("p", 1),
    operations.judge_make("p", {}),
    operations.judge_version_make("p", 1, {}),
    operations.judge_archive("p", 1),
    operations.judge_measure("p", 1, 1, {}),
    operations.judge_measurements_page("p", 1, 1, offset=0, limit=1),
    operations.judge_measurement("p", 1, 1, 1),
    operations.judge_verdicts_page("p", 1, 1, offset=0, limit=1),
    operations.judge_trial("p", 1, 1, {}),
    operations.judge_trials("p", 1),
    operations.judge_presort("p", 1, 1, {}),
    operations.judge_certify("p", 1, 1, {}),
    operations.certificates_page("p", offset=0, limit=1, judge=None),
    operations.certificate("p", "c"),
    operations.certificate_label("p", "c", {}),
    operations.certificate_freeze("p", "c", ""),
    operations.certificate_stop("p", "c", ""),
    operations.stage_history_page("p", offset=0, limit=1, filters={}),
    operations.stage_revert("p", "production", {}),
    operations.stage_share("p", "production", {}),
    operations.evidence("p", "m", stage="staging"),
    operations.promotions_page("p", offset=0, limit=1, filters={}),
    operations.promotion("p", "r"),
    operations.promotion_request("p", {}),
    operations.promotion_decide("p", "r", {}),
    operations.checklists("p", "r"),
    operations.writing_list("p"),
    operations.writing_create("p", {}),
    operations.writing_get("p", "b"),
    operations.writing_change("p", "b", {}),
    operations.writing_texts_page("p", after=0, limit=1, filters={}),
    operations.writing_next("p"),
    operations.writing_draft("p", 1, {}),
    operations.writing_submit("p", 1, {}),
    operations.writing_skip("p", 1, ""),
    operations.writing_review("p", 1, {}),
]
ANSWERS = {
    "AsksOut": types.Asks,
    "AttemptOut": types.Attempt,
    "ChecklistOut": types.Checklist,
    "CriterionOut": types.Criterion,
    "EvidenceOut": types.Evidence,
    "FileOut": types.DatasetFile,
    "FindingOut": types.Finding,
    "GateOut": types.Gate,
    "ItemOut": types.ChecklistItem,
    "PipelineOut": types.Pipeline,
    "PipelineStepOut": types.PipelineStep,
    "PipelineRoundOut": types.Round,
    "RoundStepOut": types.RoundStep,
    "RoundRateOut": types.RoundRate,
    "RoundWaitOut": types.RoundWait,
    "NamingOut": types.Naming,
    "DialogueOut": types.Dialogue,
    "HeadToHeadOut": types.HeadToHead,
    "JudgeScopeIO": types.JudgeScope,
    "ModelJudgeOut": types.Judge,
    "JudgeDetailOut": types.JudgeDetail,
    "JudgeVersionOut": types.JudgeVersion,
    "JudgeWorthOut": types.JudgeWorth,
    "JudgeAskedOut": types.JudgeAsked,
    "JudgeMeasurementOut": types.JudgeMeasurement,
    "JudgeMeasurementsOut": types.JudgeMeasurements,
    "JudgeVerdictOut": types.JudgeVerdict,
    "JudgeVerdictsOut": types.JudgeVerdicts,
    "JudgeTriedOut": types.JudgeTried,
    "JudgeTrialOut": types.JudgeTrial,
    "JudgePresortOut": types.JudgePresorted,
    "LabelAuditOut": types.LabelAudit,
    "CertificateUseOut": types.CertificateUse,
    "CertificateOut": types.Certificate,
    "CertificateDetailOut": types.CertificateDetail,
    "CertificatesOut": types.Certificates,
    "CertificateLabelOut": types.CertificateLabelled,
    "ReadLinkOut": types.ReadLink,
    "NamingPage": types.NamingsPage,
    "PromotionDetailOut": types.PromotionDetail,
    "PromotionOut": types.Promotion,
    "PromotionPage": types.PromotionsPage,
    "ImportOut": types.Import,
    "LineOut": types.LogLine,
    "MeOut": types.Me,
    "ModelAnswerOut": types.ModelAnswer,
    "ModelQuestionOut": types.Question,
    "ProjectOut": types.ProjectInfo,
    "SampleOut": types.Sample,
    "FlaggedAnswerOut": types.FlaggedAnswer,
    "InboxOut": types.Inbox,
    "JudgedOut": types.JudgedAnswers,
    "LovedOut": types.LovedAnswer,
    "SheetItemOut": types.SheetItem,
    "SheetOut": types.AuditSheet,
    "SheetResultOut": types.SheetResult,
    "SheetVerdictOut": types.SheetVerdict,
    "SheetsOut": types.AuditSheets,
    "VerdictOut": types.Verdict,
    "SnapshotDetailOut": types.DatasetDetail,
    "SnapshotOut": types.Dataset,
    "DecisionOut": types.Decision,
    "DecisionsOut": types.DecisionsPage,
    "DisputeOut": types.Dispute,
    "DisputeRowOut": types.DisputeRow,
    "DisputesOut": types.DisputesPage,
    "GoldOut": types.Gold,
    "GuidelineOut": types.Guidelines,
    "ImportReportOut": types.ImportReport,
    "LabelingSettingsOut": types.LabelingSettings,
    "MessageOut": types.Message,
    "NextOut": types.Next,
    "CheckpointOut": types.RunCheckpoint,
    "MetricsOut": types.Metrics,
    "RunDetailOut": types.RunDetail,
    "RunEstimateOut": types.Estimate,
    "RunOut": types.Run,
    "RunPage": types.RunsPage,
    "SeriesOut": types.Curve,
    "ConstitutionOut": types.Constitution,
    "PrincipleIO": types.Principle,
    "SpaceLineOut": types.SpaceLine,
    "SpaceOut": types.Space,
    "SignOffOut": types.SignOff,
    "SplitLooksOut": types.SplitLooks,
    "ReadingOut": types.Reading,
    "LooksOut": types.Looks,
    "ProtocolOut": types.Protocol,
    "ProtocolPage": types.ProtocolsPage,
    "ProtocolDetailOut": types.ProtocolDetail,
    "ProtocolLineOut": types.ProtocolLine,
    "ProtocolDiffOut": types.ProtocolDifferences,
    "SavedModelOut": types.Model,
    "SavedModelPage": types.ModelsPage,
    "SavedModelDetailOut": types.ModelDetail,
    "UseOut": types.ModelPart,
    "NothingOut": types.Nothing,
    "OwnOut": types.Own,
    "OwnResultsOut": types.Progress,
    "PairOut": types.Pair,
    "RevisionOut": types.Revision,
    "RowProblemOut": types.RowProblem,
    "ScaleOut": types.Scale,
    "TaskOut": types.Task,
    "RulingOut": types.Ruling,
    "VoteOut": types.Vote,
    "VotesReportOut": types.VotesReport,
    "WatchOut": types.Watch,
    "TrafficOut": types.TrafficCounts,
    "WritingBatchOut": types.WritingBatch,
    "WrittenTextOut": types.WrittenText,
    "WrittenPageOut": types.WrittenPage,
    "TextToWriteOut": types.TextToWrite,
    "WritingNextOut": types.WritingNext,
    "WritingDraftOut": types.WritingDraft,
    "WrittenVersionOut": types.WrittenVersion,
}


PARTS = {"upload", "get", "findings", "check", "start", "cancel", "wait"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return api.get_openapi_schema()


def described(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path.removeprefix("/api/v1")): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def test_every_operation_has_a_method_or_a_reason_why_call_reaches_it(
    document: dict[str, Any],
) -> None:
    every = described(document).keys()
    covered = {(operation.method, operation.template) for operation in COVERED}
    prefixes = tuple(name for name in BY_CALL if name.startswith("/"))
    by_call = {
        one for one in every - covered if " ".join(one) in BY_CALL or one[1].startswith(prefixes)
    }
    assert covered <= every
    assert every - covered - by_call == set()
    for name in BY_CALL:
        assert any(" ".join(one) == name or one[1].startswith(name) for one in by_call), name
    made = [name for name, value in vars(operations).items() if inspect.isfunction(value)]
    here = [name for name in made if vars(operations)[name].__module__ == operations.__name__]
    assert len({name for name in here if name[0] != "_"} - {"answer_body"}) == len(COVERED)


def test_call_and_save_reach_every_operation_without_a_method(
    document: dict[str, Any], tmp_path: Path
) -> None:
    """A server that knows the described addresses and no others, and answers as described."""
    covered = {(operation.method, operation.template) for operation in COVERED}
    left = {one: said for one, said in described(document).items() if one not in covered}
    reached = set()

    async def use() -> None:
        app = web.Application()
        for (method, template), operation in left.items():

            async def handle(
                _request: web.Request,
                one: tuple[str, str] = (method, template),
                operation: dict[str, Any] = operation,
            ) -> web.Response:
                reached.add(one)
                kinds = {
                    kind for r in operation["responses"].values() for kind in r.get("content", {})
                }
                if any("json" not in kind for kind in kinds):
                    return web.Response(body=b"a,b\n")
                return web.json_response({"fine": True})

            app.router.add_route(method, "/api/v1" + template, handle)
        async with TestServer(app) as server, AsyncClient(str(server.make_url("")), "t") as client:
            for (method, template), operation in left.items():
                assert "multipart/form-data" not in operation.get("requestBody", {}).get(
                    "content", {}
                ), "`call` sends JSON"
                path = re.sub(r"\{\w+\}", "1", template)
                try:
                    answer = await client.call(method, path, body=None if method == "GET" else {})
                except ConcordError as error:
                    if (error.code, method) != ("not_json", "GET"):
                        raise
                    assert (await client.save(path, tmp_path / "out.csv")).read_text() == "a,b\n"
                else:
                    assert answer == {"fine": True}

    asyncio.run(use())
    assert reached == left.keys()


def test_the_blocking_client_has_every_method_of_the_other_once() -> None:
    methods = {name for name in vars(AsyncClient) if not name.startswith("_")}
    used = [
        re.findall(r"client\.(\w+)\(", inspect.getsource(module)) for module in (sync, projects)
    ]
    # Parts of `import_file`, for programs that show each step.
    parts = {name for name in methods if name.startswith("import_") and name[7:] in PARTS}
    pages = {"decisions"}  # made of `decisions_page`
    assert set(used[0]) | set(used[1]) | pages == methods - parts
    assert set(used[0]) & set(used[1]) == set()


def test_no_two_schemas_of_the_api_share_a_name() -> None:
    """The document keeps one per name, so one of the two operations would be described wrongly."""
    places: dict[str, set[str]] = {}
    waiting = list(Schema.__subclasses__())
    while waiting:
        schema = waiting.pop()
        waiting += schema.__subclasses__()
        if schema.__module__.startswith("apps."):
            places.setdefault(schema.__name__, set()).add(schema.__module__)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


@pytest.mark.parametrize("schema", ANSWERS)
def test_every_field_of_an_answer_has_a_name_in_the_client(
    schema: str, document: dict[str, Any]
) -> None:
    sent = set(document["components"]["schemas"][schema]["properties"])
    named = {field.name for field in fields(ANSWERS[schema])} - {"extra"}
    assert named == sent


def test_every_field_of_an_answer_can_be_given(document: dict[str, Any]) -> None:
    taken = set(document["components"]["schemas"]["VoteIn"]["properties"])
    given = set(operations.Answer.__annotations__) | {"side", "choice", "values"}
    given |= {"idempotency_key"}
    assert given == taken


# When the client tries again and when it does not, against a server that misbehaves on order.


PAIR = {
    "slot": 7,
    "comparison": 3,
    "key": "7.1.abc",
    "prompt": [{"role": "user", "content": "How long is a day?"}],
    "left": [{"role": "assistant", "content": "24 hours."}],
    "right": [{"role": "assistant", "content": "It depends."}],
    "leased_until": "2026-11-21T10:00:00+00:00",
    "asks": {
        "tie": True,
        "both_bad": True,
        "strength": False,
        "rationale": False,
        "flags": True,
        "require_rationale": False,
        "improve": False,
        "require_criteria": False,
        "reasons": [],
        "criteria": [{"key": "fluent", "label": "More fluent", "weight": 2}],
    },
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def against(handler: Handler, use: Callable[[AsyncClient], Awaitable[Any]], **options: Any) -> Any:
    """What `use` returns for a client of a server whose every answer is the handler's."""

    async def run() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        async with (
            TestServer(app) as server,
            AsyncClient(str(server.make_url("")), "ccd_x", first_pause=0.001, **options) as client,
        ):
            return await use(client)

    return asyncio.run(run())


def answers(*wanted: tuple[int, Any] | None) -> tuple[Handler, list[dict[str, Any]]]:
    """A handler with these answers in turn (None: the connection is cut), and what it was sent."""
    left, seen = list(wanted), []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(
            {
                "path": request.path,
                "token": request.headers.get("Authorization"),
                "body": json.loads(await request.text() or "null"),
            }
        )
        answer = left.pop(0)
        if answer is None:
            request.transport.close()
            return web.Response()
        status, body = answer
        return web.json_response(body, status=status)

    return handle, seen


STORED = (200, {"vote": 5, "replayed": True, "pair": None})
BUSY = (503, {"anything": "a proxy says"})
LOST = (409, {"code": "lease_lost", "message": "Others have it.", "field": None, "row": None})


def test_a_vote_whose_answer_got_lost_is_sent_again_with_the_same_key() -> None:
    handler, seen = answers(None, BUSY, STORED)
    got = against(handler, lambda client: client.vote(Pair.read(PAIR), "left", strength=2))
    assert (got.vote, got.replayed) == (5, True)
    assert [request["path"] for request in seen] == ["/api/v1/slots/7/vote"] * 3
    answer = {"idempotency_key": "7.1.abc", "side": "left", "strength": 2}
    assert [request["body"] for request in seen] == [answer] * 3
    assert seen[0]["token"] == "Bearer ccd_x"


def test_a_refusal_is_not_repeated() -> None:
    handler, seen = answers(LOST)
    with pytest.raises(ConcordError) as refused:
        against(handler, lambda client: client.vote(Pair.read(PAIR), "left"))
    assert (refused.value.status, refused.value.code) == (409, "lease_lost")
    assert len(seen) == 1


UPLOADED = (
    201,
    dict.fromkeys(("started_at", "ended_at", "due_on"))
    | {key: {} for key in ("settings", "preview", "check_report", "result")}
    | {"id": "j", "makes": "prompts", "file_name": "f", "file_size": 1, "file_sha256": ""}
    | {"stage": "check", "state": "draft", "error": "", "people": []}
    | {"created_at": "2026-11-21T10:00:00+00:00"},
)


@pytest.mark.parametrize("answer", [None, BUSY, (502, {})])
def test_an_upload_is_not_repeated_where_the_server_may_have_it(
    tmp_path: Path, answer: tuple[int, Any] | None
) -> None:
    handler, seen = uploads(answer, UPLOADED)
    with pytest.raises(ConcordError):
        against(handler, lambda client: client.import_upload("p", file_in(tmp_path)))
    assert len(seen) == 1


def test_an_upload_is_repeated_where_the_server_asks_for_that(tmp_path: Path) -> None:
    handler, seen = uploads((503, {"code": "parsers_busy", "message": ""}), UPLOADED, again="0")
    told: list[tuple[int, int]] = []
    job = against(
        handler,
        lambda client: client.import_upload(
            "p",
            file_in(tmp_path),
            makes="prompts",
            settings={"half": "first"},
            on_progress=lambda *of: told.append(of),
        ),
    )
    assert (job.id, len(seen), told[-1]) == ("j", 2, (9, 9))
    form = {"makes": "prompts", "settings": '{"half": "first"}', "file": b"some rows"}
    assert seen == [form, form]


def file_in(folder: Path) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("some rows")
    return file


def uploads(*wanted: tuple[int, Any] | None, again: str = "") -> tuple[Handler, list[dict]]:
    """As `answers`; what was sent is the fields of a form, which has a length."""
    left, seen = list(wanted), []

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.content_length
        form = await request.post()
        seen.append(
            {
                name: value.file.read() if isinstance(value, web.FileField) else value
                for name, value in form.items()
            }
        )
        answer = left.pop(0)
        if answer is None:
            request.transport.close()
            return web.Response()
        headers = {"Retry-After": again} if again else {}
        return web.json_response(answer[1], status=answer[0], headers=headers)

    return handle, seen


DRAFT = (
    dict.fromkeys(("sha256", "error", "step"), "")
    | {"id": "d", "name": "May", "kind": "preferences", "state": "draft", "recipe": {}}
    | {"counts": {}, "size_bytes": 0, "files": [], "frozen_at": None}
    | {"created_at": "2026-11-21T10:00:00+00:00"}
)
PROVING = DRAFT | {"step": "Checking for leakage"}
FROZEN = DRAFT | {"state": "frozen", "counts": {"rows": {"train": 3}}}
FAILED = DRAFT | {"state": "failed", "error": "Not frozen: 2 prompts stand in both."}


@pytest.mark.parametrize("method", ["freeze", "mix"])
def test_a_dataset_that_a_worker_makes_is_waited_for(method: str) -> None:
    said = {"parts": {"a": 1, "b": 1}} if method == "mix" else {"recipe": {"least_votes": 2}}
    shown: list[tuple[str, str]] = []

    def made(client: AsyncClient, **options: Any) -> Awaitable[Any]:
        return getattr(client, method)("p", "May", **said, every=0.001, **options)

    handler, seen = answers((202, DRAFT), (200, DRAFT), (200, PROVING), (200, FROZEN))
    got = against(
        handler,
        lambda client: made(client, on_progress=lambda one: shown.append((one.state, one.step))),
    )
    assert (got.state, got.counts) == ("frozen", {"rows": {"train": 3}})
    assert shown == [("draft", ""), ("draft", "Checking for leakage"), ("frozen", "")]
    assert [one["path"] for one in seen[1:]] == ["/api/v1/projects/p/snapshots/d"] * 3

    handler, seen = answers((202, DRAFT), (200, PROVING), (200, FAILED))
    with pytest.raises(ConcordError) as failed:
        against(handler, made)
    assert (failed.value.code, failed.value.message) == ("not_frozen", FAILED["error"])

    handler, seen = answers((202, DRAFT), (200, PROVING))
    with pytest.raises(TimeoutError, match="The dataset d was not made after 0 s"):
        against(handler, lambda client: made(client, timeout=0))

    handler, seen = answers((202, DRAFT))
    assert against(handler, lambda client: made(client, wait=False)).state == "draft"
    assert len(seen) == 1


def test_a_freeze_that_is_refused_is_not_waited_for() -> None:
    refusal = {"code": "empty_snapshot", "message": "Nothing is left.", "field": "recipe"}
    handler, seen = answers((400, refusal))
    with pytest.raises(ConcordError) as refused:
        against(handler, lambda client: client.freeze("p", "May"))
    assert (refused.value.code, len(seen)) == ("empty_snapshot", 1)


def test_no_answer_at_all_is_said_after_the_last_try() -> None:
    handler, seen = answers(None, None)
    with pytest.raises(Unreachable, match="No answer") as silent:
        against(handler, lambda client: client.next("arguments"), tries=2)
    assert (silent.value.status, silent.value.code, len(seen)) == (0, "unreachable", 2)


def test_a_page_that_is_not_the_api_is_an_error_that_shows_it() -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="<html>nginx</html>", status=404)

    with pytest.raises(ConcordError) as refused:
        against(page, lambda client: client.settings("arguments"))
    assert (refused.value.code, refused.value.details) == ("http_error", "<html>nginx</html>")


def tar_of(**files: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"mine-step-7/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


@pytest.mark.parametrize("changed", [False, True])
def test_a_download_that_breaks_off_continues_where_it_was_unless_it_is_another_file(
    tmp_path: Path, changed: bool
) -> None:
    whole, asked, told = tar_of(config="{}", weights="w" * 50_000), [], []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append((request.headers.get("Range"), request.headers.get("If-Range")))
        first, etag = len(asked) == 1, '"two"' if changed and len(asked) > 1 else '"one"'
        resumed = not first and request.headers.get("If-Range") == etag
        start = int(request.headers["Range"][6:-1]) if resumed else 0
        answer = web.StreamResponse(
            status=206 if resumed else 200,
            headers={"ETag": etag, "Content-Length": str(len(whole) - start)},
        )
        await answer.prepare(request)
        await answer.write(whole[start : 20_000 if first else None])
        if first:
            request.transport.close()
        return answer

    folder = against(
        handle,
        lambda client: client.model_download(
            "p", "m", tmp_path, on_progress=lambda here, total: told.append((here, total))
        ),
    )
    assert folder == tmp_path / "mine-step-7"
    assert (folder / "weights").read_text() == "w" * 50_000
    assert {path.name for path in tmp_path.iterdir()} == {"mine-step-7"}
    assert told[-1] == (len(whole), len(whole))
    assert asked[0] == (None, None)
    assert asked[1][1] == '"one"'
    assert len(asked) == 2


def test_a_download_that_is_refused_or_brings_nothing_says_so(tmp_path: Path) -> None:
    handler, seen = answers((404, {"code": "gone", "message": "No files."}), *[None] * 9)
    for code, tries in (("gone", 1), ("unreachable", 2)):
        with pytest.raises(ConcordError) as raised:
            against(handler, lambda c: c.model_download("p", "m", tmp_path), tries=tries)
        assert raised.value.code == code
    assert len(seen) >= 3


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response({"code": "seen", "message": request.raw_path}, status=404)

    with pytest.raises(ConcordError) as refused:
        against(echo, lambda client: client.next("../../admin?x=1"))
    path = refused.value.message
    assert path.startswith("/api/v1/projects/")
    assert path.endswith("/next")
    assert "?" not in path
    assert path.count("/") == 5


def test_fields_of_a_newer_server_are_kept_and_break_nothing() -> None:
    got = Next.read({"pair": PAIR | {"colour": "blue"}, "nothing": None, "mood": {"a": 1}})
    assert got.extra == {"mood": {"a": 1}}
    assert got.pair.extra == {"colour": "blue"}
    assert got.pair.asks.criteria[0].extra == {"weight": 2}
    assert got.pair.leased_until.utcoffset().total_seconds() == 0


def test_a_compulsory_field_that_is_missing_is_named() -> None:
    with pytest.raises(ConcordError, match="no 'key'") as unreadable:
        Pair.read({name: value for name, value in PAIR.items() if name != "key"})
    assert (unreadable.value.code, unreadable.value.field) == ("unreadable", "key")


def test_an_answer_says_either_side_or_choice() -> None:
    async def never(_request: web.Request) -> web.Response:
        raise AssertionError("nothing may be sent")

    for said in ({}, {"side": "left", "choice": "a"}):
        with pytest.raises(ValueError, match="either side"):
            against(never, lambda client, said=said: client.vote(Pair.read(PAIR), **said))
