"""Conversations and the logs of agents, as other tools write them, turned into our messages.

Read are ATIF (Agent Trajectory Interchange Format, 1.0 to 1.8), chat messages of OpenAI's API (TRL
and most others write them too), messages of Anthropic's API, and spans of OpenTelemetry's semantic
conventions for generative AI; `written_logs` writes them. What a log says about its author (agent,
model, tokens, cost, times) goes beside the messages and is never shown to annotators.

Sources: Harbor's RFC 0001 and its pydantic models (ATIF); the API references of OpenAI and
Anthropic; OpenTelemetry, "Semantic conventions for generative AI", with the JSON schemas of
`gen_ai.input.messages` and `gen_ai.output.messages`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.labeling.formats.records import BadValue

# Names that files use for roles ({"from": …, "value": …} in ShareGPT-like ones).
_ROLES = {
    "human": "user",
    "user": "user",
    "prompter": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "agent": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
MOST_STEPS = 5_000  # of one log
_ATIF = "ATIF-v1."
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"


@dataclass(frozen=True, slots=True)
class Log:
    """One run of an agent, or one conversation. about: what else is known of it, by name: agent,
    version, session, and of all steps together prompt_tokens, completion_tokens, cost_usd."""

    messages: list[dict[str, Any]]
    tools: list[Any] = field(default_factory=list)
    model: str = ""
    about: dict[str, Any] = field(default_factory=dict)


def content_from(value: Any) -> Any:
    """A text as it is, a list of messages in our form; also one that was written as JSON text.

    `{"from": "human", "value": …}` is taken as well, and the log of an agent. What is neither is
    handed back: the import says what is wrong with it.
    """
    if isinstance(value, str):
        return _from_json_text(value) if _looks_like_json(value) else value
    if isinstance(value, Mapping):
        return log_from(value).messages if is_log(value) else chat_messages([value])
    if isinstance(value, Sequence):
        return chat_messages(value)
    return value


def _looks_like_json(text: str) -> bool:
    return text[:1] in "[{" and text[:40].lstrip("[{ \n")[:1] in ("'\"")


def _from_json_text(text: str) -> Any:
    """Messages that a spreadsheet column holds as JSON; any other text stays a text."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    if isinstance(value, dict) and is_log(value):
        return content_from(value)
    entries = value if isinstance(value, list) else [value]
    if entries and all(
        isinstance(e, dict)
        and ({"role", "content"} <= set(e) or {"from", "value"} <= set(e) or "tool_calls" in e)
        for e in entries
    ):
        return content_from(entries)
    return text


# Which kind of log an object is.


def is_log(value: Mapping[str, Any]) -> bool:
    return _reader_of(value) is not None


def log_from(value: Any) -> Log:
    """Raises BadValue where it is no log, or a damaged one."""
    read = _reader_of(value) if isinstance(value, Mapping) else None
    if read is None:
        raise BadValue(
            "trajectory",
            "is no log of an agent: ATIF, messages of OpenAI's or Anthropic's API, or spans of "
            "OpenTelemetry with gen_ai messages",
        )
    try:
        log: Log = read(value)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadValue("trajectory", f"is damaged: {error!s:.120}") from None
    if not log.messages:
        raise BadValue("trajectory", "has no message")
    return log


def _reader_of(value: Mapping[str, Any]) -> Any:
    if str(value.get("schema_version", "")).startswith(_ATIF) and "steps" in value:
        return _atif
    if (
        "resourceSpans" in value
        or _INPUT in _attributes(value)
        or isinstance(value.get("spans"), list)
    ):
        return _spans
    if isinstance(value.get("messages"), list) and "role" not in value:
        return _anthropic if _is_anthropic(value) else _openai
    return None


# OpenAI's chat messages, and what is like them.


def chat_messages(entries: Sequence[Any]) -> list[Any]:
    """Messages of OpenAI's or Anthropic's API, or in ShareGPT's words; what is no message stays as
    it is."""
    if any(_has_blocks(entry) for entry in entries):
        return _anthropic_messages(entries)
    return [_chat(entry) for entry in entries]


def _chat(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    if "role" in entry:
        role, content = entry["role"], entry.get("content")
    elif "from" in entry:
        role, content = entry["from"], entry.get("value")
    else:
        return dict(entry)
    content = _text_of(content)
    if content is None and isinstance(entry.get("refusal"), str):
        content = entry["refusal"]
    message: dict[str, Any] = {"role": _role(role), "content": content}
    for name in ("tool_calls", "tool_call_id", "name", "error"):
        if entry.get(name):
            message[name] = entry[name]
    if calls := message.get("tool_calls"):
        message["tool_calls"] = _calls(as_list(calls))
    if isinstance(given := entry.get("function_call"), Mapping):
        message["tool_calls"] = _calls([{"type": "function", "function": dict(given)}])
    thought = entry.get("reasoning_content") or entry.get("reasoning")
    if isinstance(thought, str) and thought:
        message["reasoning_content"] = thought
    return message


def _calls(calls: Any) -> Any:
    """Calls with their arguments as objects where they are the JSON text of one: what two runs
    share is found by comparing them."""
    if not isinstance(calls, list):
        return calls
    made = []
    for call in calls:
        asked = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(asked, Mapping) and isinstance(asked.get("arguments"), str):
            given = as_list(asked["arguments"])
            if isinstance(given, dict):
                call = {**call, "function": {**asked, "arguments": given}}
        made.append(call)
    return made


def _role(role: Any) -> Any:
    return _ROLES.get(str(role).casefold(), role)


def as_list(value: Any) -> Any:
    """A list that a column holds as JSON text; anything else is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _text_of(content: Any) -> Any:
    """A content's text: of parts, one after another, images in their places."""
    if not isinstance(content, list):
        return content
    return "\n".join(part for part in map(_part, content) if part)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise BadValue("content", "has a part that is neither a text nor an object")
    kind = part.get("type")
    if isinstance(text := part.get("text"), str) and kind in ("text", "input_text", "output_text"):
        return text
    if kind in ("image_url", "input_image", "image"):
        return _image(part)
    if kind == "refusal":
        return str(part.get("refusal") or "")
    raise BadValue("content", f"has a part of type {kind!r}, which is not read")


def _image(part: Mapping[str, Any]) -> str:
    """An image that the log itself holds, as Markdown with a data URL; of one that lies elsewhere
    only that there was one, since nothing is fetched."""
    source = part.get("image_url") or part.get("source") or part.get("image")
    if isinstance(source, Mapping):
        if source.get("type") == "base64":
            source = f"data:{source.get('media_type')};base64,{source.get('data')}"
        else:
            source = source.get("url") or source.get("path")
    address = str(source or "")
    if address.startswith("data:image/"):
        return f"![]({address})"
    return f"[image: {address[:200]}]" if address else "[image]"


def _openai(value: Mapping[str, Any]) -> Log:
    messages = chat_messages(value["messages"])
    for choice in value.get("choices") or (value.get("response") or {}).get("choices") or ():
        messages.append(_chat(choice["message"]))
        break
    usage = value.get("usage") or {}
    about = {
        name: usage[name]
        for name in ("prompt_tokens", "completion_tokens")
        if isinstance(usage.get(name), int)
    }
    tools = as_list(value.get("tools")) or []
    return Log(messages, tools, str(value.get("model") or ""), about)


# Anthropic's messages: blocks in a content, results of tools in the user's turns.

_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")


def _has_blocks(entry: Any) -> bool:
    content = entry.get("content") if isinstance(entry, Mapping) else None
    return isinstance(content, list) and any(
        isinstance(block, Mapping) and block.get("type") in _BLOCKS for block in content
    )


def _is_anthropic(value: Mapping[str, Any]) -> bool:
    return "system" in value or any(map(_has_blocks, value["messages"]))


def _anthropic(value: Mapping[str, Any]) -> Log:
    entries = list(value["messages"])
    if (system := _text_of(value.get("system"))) and isinstance(system, str):
        entries.insert(0, {"role": "system", "content": system})
    answered = value.get("response") or (value if "stop_reason" in value else None)
    if isinstance(answered, Mapping) and isinstance(answered.get("content"), list):
        entries.append({"role": "assistant", "content": answered["content"]})
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool.get("description") or "",
                "parameters": tool["input_schema"],
            },
        }
        if "input_schema" in tool
        else dict(tool)
        for tool in value.get("tools") or ()
    ]
    model = value.get("model") or (answered or {}).get("model") or ""
    return Log(_anthropic_messages(entries), tools, str(model))


def _anthropic_messages(entries: Iterable[Any]) -> list[Any]:
    names: dict[str, str] = {}
    messages: list[Any] = []
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), list):
            messages.append(_chat(entry))
        else:
            messages += _turns_of(entry, names)
    return messages


def _turns_of(entry: Mapping[str, Any], names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The results of tools come first, as their API wants them."""
    said, thoughts, calls = [], [], []
    for block in entry["content"]:
        kind = block.get("type") if isinstance(block, Mapping) else "text"
        if kind == "tool_use":
            names[str(block.get("id"))] = block["name"]
            asked = {"name": block["name"], "arguments": block.get("input") or {}}
            calls.append({"type": "function", "id": block.get("id"), "function": asked})
        elif kind == "thinking":
            thoughts.append(str(block["thinking"]))
        elif kind == "redacted_thinking":
            continue
        elif kind == "tool_result":
            number = str(block.get("tool_use_id") or "")
            result = {"role": "tool", "content": _text_of(block.get("content")) or ""}
            result |= {"tool_call_id": number} if number else {}
            result |= {"name": names[number]} if number in names else {}
            yield result | ({"error": True} if block.get("is_error") else {})
        else:
            said.append(_part(block))
    text = "\n".join(part for part in said if part)
    if not (text or thoughts or calls):
        return
    message: dict[str, Any] = {"role": _role(entry.get("role")), "content": text}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    yield message


# ATIF: steps of a user, a system or an agent, the results of tools in the step that called them.

_SOURCES = {"user": "user", "system": "system", "agent": "assistant"}
_TOKENS = ("prompt_tokens", "completion_tokens", "cost_usd")


def _atif(value: Mapping[str, Any]) -> Log:
    steps = value["steps"]
    if not isinstance(steps, list) or len(steps) > MOST_STEPS:
        raise BadValue("steps", f"must be a list of at most {MOST_STEPS:,} steps")
    agent = value.get("agent") or {}
    messages: list[dict[str, Any]] = []
    totals: dict[str, float] = {}
    models = [str(agent.get("model_name") or "")]
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, Mapping) or step.get("source") not in _SOURCES:
            raise BadValue("steps", f"step {number} has no source of user, agent or system")
        messages += _step(step, number)
        models.append(str(step.get("model_name") or ""))
        for name in _TOKENS:
            amount = (step.get("metrics") or {}).get(name)
            if isinstance(amount, int | float) and not isinstance(amount, bool):
                totals[name] = totals.get(name, 0) + amount
    final = value.get("final_metrics") or {}
    for name in _TOKENS:
        total = final.get(f"total_{name}")
        if isinstance(total, int | float) and not isinstance(total, bool):
            totals[name] = total
    about = {
        "agent": str(agent.get("name") or ""),
        "version": str(agent.get("version") or ""),
        "session": str(value.get("session_id") or ""),
    }
    tools = list(agent.get("tool_definitions") or [])
    model = next((name for name in models if name), "") or about["agent"]
    return Log(messages, tools, model, {k: v for k, v in (about | totals).items() if v})


def _step(step: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
    role, text = _SOURCES[step["source"]], _text_of(step.get("message"))
    message: dict[str, Any] = {"role": role, "content": text or ""}
    if not isinstance(message["content"], str):
        raise BadValue("steps", f"step {number} has no text as its message")
    names: dict[str, str] = {}
    if role == "assistant":
        if thought := step.get("reasoning_content"):
            message["reasoning_content"] = thought
        calls = []
        for call in step.get("tool_calls") or ():
            names[call["tool_call_id"]] = call["function_name"]
            asked = {"name": call["function_name"], "arguments": call.get("arguments") or {}}
            calls.append({"type": "function", "id": call["tool_call_id"], "function": asked})
        if calls:
            message["tool_calls"] = calls
    if role == "assistant" or message["content"].strip():
        yield message
    for result in (step.get("observation") or {}).get("results") or ():
        made: dict[str, Any] = {"role": "tool", "content": _text_of(result.get("content")) or ""}
        if parts := result.get("subagent_trajectory_ref"):
            where = ", ".join(
                str(p.get("trajectory_id") or p.get("trajectory_path")) for p in parts
            )
            made["content"] = "\n".join(filter(None, (made["content"], f"[subagent: {where}]")))
        if number_of := result.get("source_call_id"):
            made["tool_call_id"] = number_of
            made |= {"name": names[number_of]} if number_of in names else {}
        failed = isinstance(extra := result.get("extra"), Mapping) and extra.get("error")
        yield made | ({"error": True} if failed else {})


# Spans of OpenTelemetry: the call of a model that was shown the most holds the conversation.


def _spans(value: Mapping[str, Any]) -> Log:
    spans = [_attributes(span) for span in _every_span(value)]
    calls = [span for span in spans if _INPUT in span or _OUTPUT in span]
    if not calls:
        raise BadValue("trajectory", f"no span has {_INPUT} or {_OUTPUT}")
    whole = max(calls, key=lambda span: len(_listed(span, _INPUT)))
    messages = [
        {"role": "system", "content": text}
        for text in [_parts_text(_listed(whole, "gen_ai.system_instructions"))]
        if text
    ]
    names: dict[str, str] = {}
    for entry in (*_listed(whole, _INPUT), *_listed(whole, _OUTPUT)[:1]):
        messages += _of_parts(entry, names)
    about = {"agent": str(whole.get("gen_ai.agent.name") or "")}
    for ours, theirs in (("prompt_tokens", "input"), ("completion_tokens", "output")):
        amounts = [span.get(f"gen_ai.usage.{theirs}_tokens") for span in calls]
        about[ours] = sum(int(amount) for amount in amounts if amount is not None)
    about["session"] = str(whole.get("gen_ai.conversation.id") or "")
    model = whole.get("gen_ai.response.model") or whole.get("gen_ai.request.model") or ""
    tools = [
        {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
        if isinstance(tool, Mapping) and "function" not in tool
        else tool
        for tool in _listed(whole, "gen_ai.tool.definitions")
    ]
    return Log(messages, tools, str(model), {k: v for k, v in about.items() if v})


def _every_span(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "resourceSpans" in value:
        for resource in value["resourceSpans"]:
            for scope in resource.get("scopeSpans") or ():
                yield from scope.get("spans") or ()
    elif isinstance(value.get("spans"), list):
        yield from value["spans"]
    else:
        yield value


def _attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    """Of a span: an object, or the list of keys and typed values of OTLP's JSON."""
    given = span.get("attributes")
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, list):
        return {}
    return {one["key"]: _otlp(one.get("value")) for one in given if isinstance(one, Mapping)}


def _otlp(value: Any) -> Any:
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return [_otlp(one) for one in inner.get("values") or ()]
    if kind == "kvlistValue":
        return {one["key"]: _otlp(one.get("value")) for one in inner.get("values") or ()}
    return int(inner) if kind == "intValue" else inner


def _listed(span: Mapping[str, Any], name: str) -> list[Any]:
    value = as_list(span.get(name))
    return value if isinstance(value, list) else []


def _parts_text(parts: Iterable[Any]) -> str:
    texts = (part.get("content") if isinstance(part, Mapping) else part for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _of_parts(entry: Any, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A message of parts: the results of tools are messages of their own."""
    parts = entry.get("parts") or []
    by_kind: dict[str, list[Any]] = {}
    for part in parts:
        by_kind.setdefault(str(part.get("type")), []).append(part)
    for part in by_kind.pop("tool_call_response", ()):
        answer = part.get("response", part.get("result"))
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        result: dict[str, Any] = {"role": "tool", "content": text}
        if number := part.get("id"):
            result |= {"tool_call_id": number}
            result |= {"name": names[number]} if number in names else {}
        yield result | ({"error": True} if part.get("error") else {})
    calls = []
    for part in by_kind.pop("tool_call", ()):
        names[str(part.get("id"))] = part["name"]
        asked = {"name": part["name"], "arguments": part.get("arguments") or {}}
        calls.append({"type": "function", "id": part.get("id"), "function": asked})
    thought = _parts_text(by_kind.pop("reasoning", ()))
    text = _parts_text(by_kind.pop("text", ()))
    if by_kind:
        raise BadValue("content", f"has a part of type {next(iter(by_kind))!r}, which is not read")
    if text or calls or thought:
        message: dict[str, Any] = {"role": _role(entry.get("role")), "content": text}
        message |= {"reasoning_content": thought} if thought else {}
        yield message | ({"tool_calls": calls} if calls else {})
