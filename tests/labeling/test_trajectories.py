"""Logs of agents in the forms that other tools write, and the pairs that are made of them."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project
from apps.labeling import services
from apps.labeling.formats.conversations import content_from, log_from
from apps.labeling.formats.records import BadValue
from apps.labeling.formats.written_logs import WRITERS, Written
from apps.labeling.models import Comparison, Prompt
from apps.labeling.services import RowsRefused
from apps.labeling.texts import BadMessages, fingerprint, messages_from
from measures.messages import plain, said
from tests.labeling.test_layouts import fault, one, read


def atif(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    numbered = [{"step_id": n, **step} for n, step in enumerate(steps, start=1)]
    agent = {"name": "terminus", "version": "2.0", "model_name": "model-x"}
    return {"schema_version": "ATIF-v1.7", "agent": agent, "steps": numbered, **more}


ASKED = {"source": "user", "message": "Which files are there?"}
LOOKED = {
    "source": "agent",
    "message": "I look.",
    "reasoning_content": "A listing will do.",
    "tool_calls": [
        {"tool_call_id": "c1", "function_name": "ls", "arguments": {"path": "/", "all": True}}
    ],
    "observation": {"results": [{"source_call_id": "c1", "content": "a\nb"}]},
    "metrics": {"prompt_tokens": 10, "completion_tokens": 4, "cost_usd": 0.5},
}
TOLD = {"source": "agent", "message": "There are a and b."}

CALL = {"name": "ls", "arguments": {"all": True, "path": "/"}}
OURS = [
    {"role": "user", "content": "Which files are there?"},
    {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "A listing will do.",
        "tool_calls": [{"type": "function", "id": "c1", "function": CALL}],
    },
    {"role": "tool", "content": "a\nb", "tool_call_id": "c1", "name": "ls"},
    {"role": "assistant", "content": "There are a and b."},
]
OPENAI = {
    "model": "model-x",
    "tools": [{"type": "function", "function": {"name": "ls", "parameters": {}}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Which files are there?"}]},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "A listing will do.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "ls", "arguments": '{"all": true, "path": "/"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "ls", "content": "a\nb"},
        {"role": "assistant", "content": "There are a and b."},
    ],
}
ANTHROPIC = {
    "model": "model-x",
    "tools": [{"name": "ls", "description": "list", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "Which files are there?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "A listing will do.", "signature": "x"},
                {"type": "text", "text": "I look."},
                {
                    "type": "tool_use",
                    "id": "c1",
                    "name": "ls",
                    "input": {"path": "/", "all": True},
                },
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a\nb"}],
        },
    ],
    "response": {"content": [{"type": "text", "text": "There are a and b."}]},
}


def otel() -> dict[str, Any]:
    shown = [
        {"role": "user", "parts": [{"type": "text", "content": "Which files are there?"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "A listing will do."},
                {"type": "text", "content": "I look."},
                {
                    "type": "tool_call",
                    "id": "c1",
                    "name": "ls",
                    "arguments": {"path": "/", "all": True},
                },
            ],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "response": "a\nb"}],
        },
    ]
    said_last = [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "There are a and b."}],
            "finish_reason": "stop",
        }
    ]

    def text(key: str, value: Any) -> dict[str, Any]:
        return {"key": key, "value": {"stringValue": json.dumps(value)}}

    def span(seen: list[Any], answered: list[Any], tokens: int) -> dict[str, Any]:
        return {
            "name": "chat",
            "attributes": [
                text("gen_ai.input.messages", seen),
                text("gen_ai.output.messages", answered),
                {"key": "gen_ai.request.model", "value": {"stringValue": "model-x"}},
                {"key": "gen_ai.usage.input_tokens", "value": {"intValue": str(tokens)}},
            ],
        }

    spans = [
        {"name": "execute_tool ls", "attributes": []},
        span(shown, said_last, 30),
        span(shown[:1], shown[1:2], 10),
    ]
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


@pytest.mark.parametrize("value", [atif(ASKED, LOOKED, TOLD), OPENAI, ANTHROPIC, otel()])
def test_every_kind_of_log_is_the_same_conversation(value: dict[str, Any]) -> None:
    found = log_from(value)
    messages = messages_from(found.messages, role="user")
    named = [dict(m) | ({"name": "ls"} if m["role"] == "tool" else {}) for m in messages]
    assert fingerprint(named) == fingerprint(messages_from(OURS, role="user"))
    assert plain(messages) == plain(OURS)
    assert found.model == "model-x"


def test_what_a_log_tells_of_its_author_stands_beside_the_messages() -> None:
    found = log_from(atif(ASKED, LOOKED, TOLD, session_id="s-1"))
    assert found.about == {
        "agent": "terminus",
        "version": "2.0",
        "session": "s-1",
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "cost_usd": 0.5,
    }
    assert "terminus" not in json.dumps(found.messages)
    assert log_from(otel()).about == {"prompt_tokens": 40}


RUN = Written(OURS, "policy-3", model="model-x", tools=OPENAI["tools"], session="s-2")


@pytest.mark.parametrize("form", WRITERS)
def test_a_run_is_written_as_it_is_read(form: str) -> None:
    _, write = WRITERS[form]
    failed = [*OURS[:2], OURS[2] | {"error": True}, *OURS[3:]]
    made = write(replace(RUN, messages=failed, concord={"comparison": 7, "side": "a"}))
    assert "7" in json.dumps(made)
    found = log_from(json.loads(json.dumps(made)))
    assert found.messages == failed
    assert found.model == "model-x"
    assert [tool["function"]["name"] for tool in found.tools] == ["ls"]
    without = [{k: v for k, v in m.items() if k != "tool_call_id"} for m in OURS]
    without[1] = without[1] | {"tool_calls": [{"type": "function", "function": CALL}]}
    again = log_from(write(replace(RUN, messages=without))).messages
    assert fingerprint(messages_from(again, role="user")) == fingerprint(OURS)


@pytest.mark.parametrize("form", WRITERS)
def test_a_run_that_ends_with_a_result_or_has_two_at_once_is_written_too(form: str) -> None:
    calls = [
        {"type": "function", "id": f"c{n}", "function": {"name": "ls", "arguments": {"n": n}}}
        for n in (1, 2)
    ]
    both: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "one", "tool_call_id": "c1", "name": "ls"},
        {"role": "tool", "content": "two", "tool_call_id": "c2", "name": "ls"},
    ]
    found = log_from(WRITERS[form][1](replace(RUN, messages=both))).messages
    assert messages_from(found, role="user") == both


def test_each_form_is_the_one_of_its_api() -> None:
    atif = WRITERS["atif"][1](RUN)
    assert atif["schema_version"] == "ATIF-v1.7"
    assert [step["step_id"] for step in atif["steps"]] == [1, 2, 3]
    (call,) = WRITERS["openai"][1](RUN)["messages"][1]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == CALL["arguments"]
    anthropic = WRITERS["anthropic"][1](RUN)
    assert [m["role"] for m in anthropic["messages"]] == ["user", "assistant", "user", "assistant"]
    assert anthropic["tools"][0].keys() == {"name", "description", "input_schema"}
    (span,) = WRITERS["opentelemetry"][1](RUN)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    known = {one["key"]: one["value"]["stringValue"] for one in span["attributes"]}
    assert json.loads(known["gen_ai.output.messages"])[0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (atif(ASKED, {"source": "robot", "message": ""}), "step 2 has no source"),
        ({"schema_version": "ATIF-v1.7", "steps": "x"}, "must be a list"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "part of type 'input_audio'",
        ),
        ({"question": "x"}, "is no log of an agent"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": []}]}]}]}, "no span has"),
        (atif({"source": "agent", "message": "x", "tool_calls": [{"id": 1}]}), "is damaged"),
    ],
)
def test_a_damaged_log_is_named(value: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        log_from(value)


def test_arguments_as_text_and_as_object_are_one_answer() -> None:
    def calling(arguments: Any, number: str) -> str:
        call = {"id": number, "type": "function", "function": {"name": "f", "arguments": arguments}}
        turn = {"role": "assistant", "content": None, "tool_calls": [call]}
        return fingerprint(messages_from([turn], role="assistant"))

    same = {
        calling('{"x": 1, "y": [1.5, "é"]}', "a"),
        calling({"y": [1.5, "é"], "x": 1}, "b"),
        calling('{"y":[1.5,"\\u00e9"],"x":1}', "c"),
    }
    assert len(same) == 1
    assert calling({"x": 2}, "a") not in same
    assert calling("not json", "a") not in same


def test_a_message_of_text_alone_hashes_as_it_always_did() -> None:
    before = hashlib.sha256(b'[["user", "Sky?"]]').hexdigest()
    assert fingerprint([{"role": "user", "content": "Sky?"}]) == before
    named = messages_from([{"role": "user", "content": "Sky?", "name": "ana"}], role="user")
    assert fingerprint(named) == before
    tool = {"type": "function", "function": {"name": "f"}}
    assert fingerprint([{"role": "user", "content": "Sky?"}], [tool]) != before


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "assistant", "content": "", "tool_calls": "x"}, "tool_calls must be a list"),
        ({"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}, "name must be"),
        (
            {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"a": "\x00"}}]},
            "arguments contains a NUL",
        ),
        ({"role": "tool", "content": None}, "has no text"),
        ({"role": "assistant", "content": "", "tool_calls": [{"name": "f"}] * 101}, "calls 101"),
        ({"role": "tool", "content": "x" * 400_001}, "has 400,001 characters"),
    ],
)
def test_a_bad_part_is_named(message: dict[str, Any], words: str) -> None:
    with pytest.raises(BadMessages, match=words):
        messages_from([message], role="assistant")


# --- pairs ---------------------------------------------------------------------------------------


def other_run() -> dict[str, Any]:
    looked = json.loads(json.dumps(LOOKED).replace('"c1"', '"k9"'))
    return atif(ASKED, looked, {"source": "agent", "message": "Two: a, b."})


def test_runs_of_one_task_are_compared_from_where_they_part(tmp_path: Path) -> None:
    layout, rows = read(tmp_path, atif(ASKED, LOOKED, TOLD), other_run())
    assert layout == "trajectories"
    row = one(rows)
    assert [m["role"] for m in row["prompt"]] == ["user", "assistant", "tool"]
    told = {row["response_a"][0]["content"], row["response_b"][0]["content"]}
    assert told == {"There are a and b.", "Two: a, b."}
    assert row["model_a"] == row["model_b"] == "model-x"
    assert row["metadata_a"]["trajectory"]["agent"] == "terminus"


def test_a_fork_lies_where_the_agent_begins_to_speak(tmp_path: Path) -> None:
    """The same call with another result: the call belongs to both answers, not to the prompt."""
    changed = LOOKED | {
        "observation": {"results": [{"source_call_id": "c1", "content": "nothing"}]}
    }
    _, rows = read(tmp_path, atif(ASKED, LOOKED, TOLD), atif(ASKED, changed, TOLD))
    row = one(rows)
    assert [m["role"] for m in row["prompt"]] == ["user"]
    assert [m["role"] for m in row["response_a"]] == ["assistant", "tool", "assistant"]


def test_a_run_that_another_only_continues_keeps_its_last_turn(tmp_path: Path) -> None:
    _, rows = read(tmp_path, atif(ASKED, LOOKED), atif(ASKED, LOOKED, TOLD))
    row = one(rows)
    assert [m["role"] for m in row["prompt"]] == ["user"]
    assert {len(row["response_a"]), len(row["response_b"])} == {2, 3}


def test_three_runs_make_three_pairs_or_one_ranking(tmp_path: Path) -> None:
    runs = [atif(ASKED, LOOKED, {"source": "agent", "message": f"Answer {n}."}) for n in range(3)]
    _, rows = read(tmp_path, *runs)
    assert len(rows) == 3
    assert all(row.comparison for row in rows)
    _, rows = read(tmp_path, *runs, pairing="rank")
    row = one(rows)
    assert row["kind"] == "rank"
    assert [m["role"] for m in row["prompt"]] == ["user", "assistant", "tool"]
    assert len(row["responses"]) == 3


def test_a_run_without_another_of_its_task_is_named(tmp_path: Path) -> None:
    alone = atif({"source": "user", "message": "Something else"}, TOLD)
    _, rows = read(tmp_path, atif(ASKED, LOOKED, TOLD), other_run(), alone)
    assert fault(rows) == ("trajectory", "is the only run of its task; a comparison needs two")
    assert [row.row for row in rows if row.fault] == [3]


def test_whole_logs_may_stand_in_the_columns_of_a_pair(tmp_path: Path) -> None:
    layout, rows = read(
        tmp_path, {"response_a": atif(ASKED, LOOKED, TOLD), "response_b": other_run(), "id": "7"}
    )
    assert layout == "pairs"
    row = one(rows)
    assert [m["role"] for m in row["prompt"]] == ["user", "assistant", "tool"]


def test_messages_in_a_spreadsheets_cell_keep_their_calls() -> None:
    found = content_from(json.dumps(OPENAI["messages"][1:2]))
    assert found[0]["tool_calls"][0]["function"] == CALL


@pytest.mark.django_db
def test_a_pair_of_runs_is_stored_whole_and_once(project: Project, tmp_path: Path) -> None:
    _, rows = read(tmp_path, atif(ASKED, LOOKED, TOLD), other_run())
    row = one(rows) | {"tools": OPENAI["tools"]}
    for _ in range(2):
        report = services.comparisons_import(project=project, rows=[row])
    assert report.n_created == 0
    comparison = Comparison.objects.get(project=project)
    assert comparison.prompt.tools == OPENAI["tools"]
    assert comparison.prompt.messages[1]["tool_calls"][0]["function"] == CALL
    assert comparison.prompt.messages[2]["name"] == "ls"
    without = {k: v for k, v in row.items() if k != "tools"}
    services.comparisons_import(project=project, rows=[without])
    assert Prompt.objects.filter(project=project).count() == 2


@pytest.mark.django_db
def test_a_run_that_names_its_model_in_a_tools_result_or_call_is_told(project: Project) -> None:
    def warned(turn: dict[str, Any]) -> list[str]:
        row = {
            "prompt": "Who are you?",
            "response_a": [turn, {"role": "assistant", "content": "Done."}],
            "response_b": "Somebody.",
        }
        report = services.comparisons_import(project=project, rows=[row], dry_run=True)
        return [one.kind for one in report.warnings]

    result = {"role": "tool", "content": "I am ChatGPT, made by OpenAI."}
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"name": "say", "arguments": {"text": "I am ChatGPT, made by OpenAI."}}],
    }
    thought = {"role": "assistant", "content": "", "reasoning_content": "I am ChatGPT."}
    assert warned(result) == warned(call) == warned(thought) == ["model_name"]
    assert warned({"role": "tool", "content": "a b"}) == []


@pytest.mark.django_db
def test_bad_tools_are_refused_by_name(project: Project) -> None:
    row = {"prompt": "x", "response_a": "a", "response_b": "b", "tools": ["ls"]}
    with pytest.raises(RowsRefused) as refused:
        services.comparisons_import(project=project, rows=[row])
    assert refused.value.details[0]["field"] == "tools"


def test_an_image_is_said_by_its_alternative_text() -> None:
    text = f"See ![two cats](image:{'a' * 64}) and ![](image:{'b' * 64})."
    assert said({"role": "user", "content": text}) == "See [two cats] and [image]."


def test_lines_of_many_megabytes_are_lines(tmp_path: Path) -> None:
    """The kind of a file is seen by its first line, however long that is."""
    long = LOOKED | {
        "observation": {"results": [{"source_call_id": "c1", "content": "x" * 300_000}] * 20}
    }
    layout, rows = read(tmp_path, atif(ASKED, long, TOLD), atif(ASKED, long, LOOKED, TOLD))
    assert layout == "trajectories"
    assert one(rows)["prompt"][0]["role"] == "user"
