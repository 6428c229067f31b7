"""Runs of agents as other tools read them: ATIF 1.7, the messages of OpenAI's and of Anthropic's
API, and a span of OpenTelemetry's conventions for generative AI. What is written here is read again
by `conversations`, whose text names the sources.

Ids of calls are made up where there are none. That a tool failed is kept in every form, where its
form has no word for it under `error`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from measures.messages import Message, Messages, canonical


@dataclass(frozen=True, slots=True)
class Written:
    """One run. concord: what the site knows of it, by name, beside the run itself."""

    messages: Messages
    agent: str
    version: str = "unknown"
    model: str = ""
    tools: Sequence[Any] = ()
    session: str = ""
    concord: Mapping[str, Any] = field(default_factory=dict)


def numbered(messages: Messages) -> Iterator[Message]:
    """With an id for every call, and beside every result that of the call it answers; none beside
    one that nobody called."""
    waiting: list[str] = []
    turn = 0
    for message in messages:
        if message["role"] == "tool":
            number = message.get("tool_call_id") or next(iter(waiting), None)
            rest = {name: value for name, value in message.items() if name != "tool_call_id"}
            if number in waiting:
                waiting.remove(number)
                rest["tool_call_id"] = number
            yield rest
            continue
        turn += 1
        calls = [
            {**call, "id": call.get("id") or f"call_{turn}_{place}"}
            for place, call in enumerate(message.get("tool_calls", ()), start=1)
        ]
        waiting = [call["id"] for call in calls]
        yield {**message, "tool_calls": calls} if calls else message


def _object(arguments: Any) -> Any:
    return arguments if isinstance(arguments, dict) else {"text": arguments}


def atif_of(run: Written) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for message in numbered(run.messages):
        if message["role"] == "tool":
            result = {"content": message["content"]}
            if number := message.get("tool_call_id"):
                result["source_call_id"] = number
            if message.get("error"):
                result["extra"] = {"error": True}
            if not steps:
                steps.append({"step_id": 1, "source": "system", "message": ""})
            steps[-1].setdefault("observation", {"results": []})["results"].append(result)
            continue
        step: dict[str, Any] = {
            "step_id": len(steps) + 1,
            "source": {"assistant": "agent"}.get(message["role"], message["role"]),
            "message": message["content"],
        }
        if thought := message.get("reasoning_content"):
            step["reasoning_content"] = thought
        if calls := message.get("tool_calls"):
            step["tool_calls"] = [
                {
                    "tool_call_id": call["id"],
                    "function_name": call["function"]["name"],
                    "arguments": _object(call["function"]["arguments"]),
                }
                for call in calls
            ]
        steps.append(step)
    about: dict[str, Any] = {"name": run.agent, "version": run.version}
    about |= {"model_name": run.model} if run.model else {}
    about |= {"tool_definitions": list(run.tools)} if run.tools else {}
    made: dict[str, Any] = {"schema_version": "ATIF-v1.7", "agent": about, "steps": steps}
    made |= {"session_id": run.session} if run.session else {}
    return made | ({"extra": {"concord": dict(run.concord)}} if run.concord else {})


def openai_of(run: Written) -> dict[str, Any]:
    """Chat messages; arguments as JSON text, as the API has them."""
    messages = []
    for message in numbered(run.messages):
        if calls := message.get("tool_calls"):
            asked = [{**call, "function": _as_text(call["function"])} for call in calls]
            message = {**message, "content": message["content"] or None, "tool_calls": asked}
        messages.append(message)
    return _beside(run, {"messages": messages}, list(run.tools))


def _as_text(function: Mapping[str, Any]) -> dict[str, Any]:
    given = function["arguments"]
    return {**function, "arguments": given if isinstance(given, str) else canonical(given)}


def anthropic_of(run: Written) -> dict[str, Any]:
    """Messages of blocks. What systems say stands together at the head, since there is no other
    place for it; a result that nobody called is a text of the user."""
    system: list[str] = []
    messages: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for message in numbered(run.messages):
        role, text = message["role"], message["content"]
        if role == "tool":
            if not results:
                messages.append({"role": "user", "content": results})
            results.append(_result_block(message))
            continue
        results = []
        if role == "system":
            system.append(text)
        elif role == "user":
            messages.append({"role": role, "content": text})
        else:
            messages.append({"role": role, "content": list(_blocks(message))})
    tools = [_anthropic_tool(tool) for tool in run.tools]
    head = {"system": "\n\n".join(system)} if system else {}
    return _beside(run, head | {"messages": messages}, tools)


def _result_block(message: Message) -> dict[str, Any]:
    number, text = message.get("tool_call_id"), message["content"]
    if not number:
        return {"type": "text", "text": text}
    failed = {"is_error": True} if message.get("error") else {}
    return {"type": "tool_result", "tool_use_id": number, "content": text, **failed}


def _blocks(message: Message) -> Iterator[dict[str, Any]]:
    if thought := message.get("reasoning_content"):
        yield {"type": "thinking", "thinking": thought, "signature": ""}
    if message["content"]:
        yield {"type": "text", "text": message["content"]}
    for call in message.get("tool_calls", ()):
        asked = call["function"]
        given = _object(asked["arguments"])
        yield {"type": "tool_use", "id": call["id"], "name": asked["name"], "input": given}


def _anthropic_tool(tool: Any) -> Any:
    known = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(known, Mapping) or "name" not in known:
        return tool
    return {
        "name": known["name"],
        "description": known.get("description") or "",
        "input_schema": known.get("parameters") or {"type": "object"},
    }


def _beside(run: Written, made: dict[str, Any], tools: list[Any]) -> dict[str, Any]:
    made |= {"tools": tools} if tools else {}
    made |= {"model": run.model} if run.model else {}
    return made | ({"concord": dict(run.concord)} if run.concord else {})


def spans_of(run: Written) -> dict[str, Any]:
    """One span that was shown everything and said the last, as OTLP writes it to a file."""
    *shown, last = numbered(run.messages)
    system = [m for m in shown if m["role"] == "system"]
    if last["role"] != "assistant":
        shown, said = [*shown, last], []
    else:
        said = [_parted(last) | {"finish_reason": "tool_call" if "tool_calls" in last else "stop"}]
    known = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": run.agent,
        "gen_ai.request.model": run.model,
        "gen_ai.conversation.id": run.session,
        "gen_ai.system_instructions": [{"type": "text", "content": m["content"]} for m in system],
        "gen_ai.input.messages": [_parted(m) for m in shown if m["role"] != "system"],
        "gen_ai.output.messages": said,
        "gen_ai.tool.definitions": list(run.tools),
        **{f"concord.{name}": value for name, value in run.concord.items()},
    }
    attributes = [
        {"key": key, "value": {"stringValue": value if isinstance(value, str) else _json(value)}}
        for key, value in known.items()
        if value not in ("", [], None)
    ]
    span = {"name": f"chat {run.model}".strip(), "attributes": attributes}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def _parted(message: Message) -> dict[str, Any]:
    if message["role"] == "tool":
        part: dict[str, Any] = {"type": "tool_call_response", "response": message["content"]}
        part |= {"id": message["tool_call_id"]} if "tool_call_id" in message else {}
        part |= {"error": True} if message.get("error") else {}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Any]] = []
    if thought := message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": thought})
    if message["content"]:
        parts.append({"type": "text", "content": message["content"]})
    for call in message.get("tool_calls", ()):
        asked = call["function"]
        part = {"type": "tool_call", "id": call["id"], "name": asked["name"]}
        parts.append(part | {"arguments": _object(asked["arguments"])})
    return {"role": message["role"], "parts": parts}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# By the name of the form: what it is called, and its writer.
WRITERS: dict[str, tuple[str, Callable[[Written], dict[str, Any]]]] = {
    "atif": ("ATIF", atif_of),
    "openai": ("messages of OpenAI’s API", openai_of),
    "anthropic": ("messages of Anthropic’s API", anthropic_of),
    "opentelemetry": ("OpenTelemetry spans", spans_of),
}
