"""Answers of several messages with calls of tools: read whole, only the agent's words learnt."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workers.recipes.language import word_tokenizer
from tests.workers.recipes.test_data import ROW, write
from workers.contract.events import RecipeError
from workers.data.batches import (
    PLAIN_TEMPLATE,
    Encoded,
    encode_pair,
    encode_prompt,
    encode_turns,
)
from workers.data.snapshot import (
    Turns,
    prompt_key,
    read_demonstrations,
    read_preferences,
    tools_of,
)
from workers.judging.reading import as_text
from workers.servers.answers import _for_server
from workers.trainers.dpo import encode_pairs

TOOL = {"type": "function", "function": {"name": "cat", "parameters": {"type": "object"}}}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


AGENT = [
    {"role": "assistant", "content": "good", "tool_calls": [call("cat", dog=1)]},
    {"role": "tool", "name": "cat", "content": "rain rain"},
    {"role": "assistant", "content": "sun"},
]
LAST = [{"role": "assistant", "content": "bad"}]


def learnt(tokenizer: Any, row: Encoded) -> str:
    inside = set(range(row.prompt_length, len(row.ids)))
    for first, end in row.others:
        inside -= set(range(first, end))
    return str(tokenizer.decode([row.ids[i] for i in sorted(inside)]))


def test_an_answer_of_several_messages_is_read_whole(tmp_path: Path) -> None:
    """Before, only its last message was."""
    write(tmp_path, ROW | {"chosen": AGENT, "rejected": LAST, "tools": json.dumps([TOOL])})
    (row,) = read_preferences(tmp_path)
    assert isinstance(row.chosen, Turns)
    assert row.chosen == 'good\ncat({"dog":1})\n\nTool: rain rain\n\nAssistant: sun'
    assert row.chosen.messages == AGENT
    assert row.rejected == "bad"
    assert not isinstance(row.rejected, Turns)
    assert tools_of(row.prompt) == [TOOL]
    assert prompt_key(row.prompt) != prompt_key(list(row.prompt))


def test_only_the_agents_tokens_are_learnt(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = PLAIN_TEMPLATE
    write(tmp_path, ROW | {"chosen": AGENT, "rejected": LAST})
    (row,) = read_preferences(tmp_path)
    encoded = encode_pair(tokenizer, row.prompt, row.chosen, max_length=100)
    said = learnt(tokenizer, encoded)
    assert "good" in said
    assert "sun" in said
    assert "rain" not in said
    assert "rain" in tokenizer.decode(encoded.ids)
    (pair,) = encode_pairs(tokenizer, [row], 100)
    assert pair.chosen.others == encoded.others != ()
    assert pair.chosen.response_length == encoded.response_length


def test_what_a_tool_gave_back_at_the_end_is_not_learnt() -> None:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = PLAIN_TEMPLATE
    asked = [{"role": "user", "content": "the cat"}]
    encoded = encode_pair(tokenizer, asked, Turns.of(AGENT[:2]), max_length=100)
    assert "rain" not in learnt(tokenizer, encoded)
    cut = encode_pair(tokenizer, asked, Turns.of(AGENT), max_length=len(encoded.ids) - 1)
    assert cut.truncated
    assert all(end <= len(cut.ids) for _, end in cut.others)


def test_a_demonstration_of_an_agent_teaches_all_its_turns(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = PLAIN_TEMPLATE
    write(tmp_path, {"messages": [{"role": "user", "content": "the cat"}, *AGENT]})
    (row,) = read_demonstrations(tmp_path)
    encoded, left_out = encode_turns(tokenizer, row.prompt, row.response, max_length=100)
    assert left_out == 0
    said = learnt(tokenizer, encoded)
    assert ("good" in said, "sun" in said, "rain" in said) == (True, True, False)


def test_a_template_without_calls_is_refused_by_name(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}"
    )
    with pytest.raises(RecipeError, match="tool_calls") as refused:
        encode_pair(
            tokenizer, [{"role": "user", "content": "cat"}], Turns.of(AGENT), max_length=100
        )
    assert refused.value.kind == "bad_template"


def test_the_tools_of_a_prompt_reach_the_template(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = (
        "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}" + PLAIN_TEMPLATE
    )
    write(tmp_path, ROW | {"tools": [TOOL]})
    (row,) = read_preferences(tmp_path)
    told = tokenizer.decode(encode_prompt(tokenizer, row.prompt))
    assert told.startswith("cat")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("tools", "{", "'tools' is no JSON"),
        ("tools", ["x"], "'tools' must be a list of JSON schemas"),
        (
            "chosen",
            [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}],
            "'chosen': a call of a tool needs",
        ),
        ("chosen", [{"role": "user", "content": "x"}], "must end with a message of the assistant"),
    ],
)
def test_a_row_that_does_not_fit_is_named(
    tmp_path: Path, field: str, value: object, words: str
) -> None:
    write(tmp_path, ROW | {field: value})
    with pytest.raises(RecipeError, match=words):
        read_preferences(tmp_path)


def test_a_judge_reads_calls_and_results_as_text() -> None:
    asked = [{"role": "user", "content": "the cat"}, *AGENT[:2]]
    told = as_text(asked)
    assert 'assistant: good\ncat({"dog":1})' in told
    assert "tool: rain rain" in told


def test_a_server_is_sent_the_arguments_as_text() -> None:
    sent = _for_server(AGENT[0])
    assert sent["tool_calls"][0]["function"] == {"name": "cat", "arguments": '{"dog": 1}'}
    assert AGENT[0]["tool_calls"][0]["function"]["arguments"] == {"dog": 1}
    assert _for_server(LAST[0]) is LAST[0]
