"""The protocol of an evaluation: its hash, what differs between two, what is believed of one."""

import hashlib
import json
import linecache
from dataclasses import replace
from typing import Any

import pytest

from workers.contract.protocol import (
    ABSENT,
    Difference,
    Protocol,
    code_sha256,
    content_sha256,
    differences,
    stated,
    texts_sha256,
)

TEMPLATE = "{% for m in messages %}\n{{ m.role }}: {{ m.content }}\n{% endfor %}"
FIRST = Protocol(
    prompts=texts_sha256(["How long is a day?", "Why?"]),
    rendered={"policy": texts_sha256(["user: Why?"])},
    chat_template={"policy": TEMPLATE, "sft": None},
    system_prompt="",
    sampling={"temperature": 0.7, "top_p": 1.0, "seed": 3, "stop": {"policy": []}},
    engine={"policy": {"kind": "transformers", "version": "5.1.0", "dtype": "float32"}},
    baseline={"sha256": "1" * 64},
    judge={"sha256": "2" * 64, "prompt": ""},
    reward={"source": {"type": "model"}, "sha256": "3" * 64},
    metric_code="4" * 64,
    statistics={"ties": 0.5, "margin": None, "alpha": 0.05},
)


def changed(**parts: Any) -> Protocol:
    return replace(FIRST, **parts)


def test_the_hash_is_that_of_sorted_plain_json_in_utf_8() -> None:
    protocol = changed(system_prompt="Réponds ☂")
    text = json.dumps(protocol.content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert protocol.sha256 == hashlib.sha256(text.encode()).hexdigest()
    again = json.loads(json.dumps(protocol.content, sort_keys=False))
    assert content_sha256(again) == protocol.sha256, "it survives being stored as JSON"


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (
            changed(sampling=dict(FIRST.sampling) | {"temperature": 0.8}),
            Difference("sampling.temperature", 0.7, 0.8),
        ),
        (
            changed(chat_template={"policy": TEMPLATE.replace("}}: ", "}};"), "sft": None}),
            Difference(
                "chat_template.policy line 2",
                "{{ m.role }}: {{ m.content }}",
                "{{ m.role }};{{ m.content }}",
            ),
        ),
        (
            changed(engine={"policy": dict(FIRST.engine["policy"]) | {"version": "5.2.0"}}),
            Difference("engine.policy.version", "5.1.0", "5.2.0"),
        ),
        (
            changed(judge=dict(FIRST.judge) | {"sha256": "5" * 64}),
            Difference("judge.sha256", "2" * 64, "5" * 64),
        ),
        (
            changed(statistics=dict(FIRST.statistics) | {"margin": 0.03}),
            Difference("statistics.margin", None, 0.03),
        ),
        (
            changed(chat_template={"policy": TEMPLATE}),
            Difference("chat_template.sft", None, ABSENT),
        ),
    ],
)
def test_one_change_makes_another_hash_and_is_the_one_line_that_differs(
    other: Protocol, line: Difference
) -> None:
    assert other.sha256 != FIRST.sha256
    assert differences(FIRST.content, other.content) == [line]
    assert differences(other.content, FIRST.content) == [Difference(line[0], line[2], line[1])]


def test_a_line_that_was_added_to_a_template_is_that_line_alone() -> None:
    other = changed(chat_template={"policy": TEMPLATE + "\nassistant:", "sft": None})
    (line,) = differences(FIRST.content, other.content)
    assert line == Difference("chat_template.policy line 4", ABSENT, "assistant:")


def test_one_and_the_same_has_one_hash_and_no_difference() -> None:
    same = replace(FIRST)
    assert same.sha256 == FIRST.sha256
    assert differences(FIRST.content, same.content) == []


def test_prompts_in_another_order_or_number_have_another_hash() -> None:
    hashes = [texts_sha256(texts)["sha256"] for texts in (["a", "b"], ["b", "a"], ["a"], ["ab"])]
    assert len(set(hashes)) == 4


def test_what_a_trainer_states_is_believed_only_with_its_own_hash() -> None:
    told = {"protocol": FIRST.to_json(), "prompts": 3}
    found = stated(told)
    assert found is not None
    assert found.sha256 == FIRST.sha256
    assert found.content == FIRST.content
    forged = {"sha256": FIRST.sha256, "content": changed(metric_code="").content}
    for report in ({}, None, {"protocol": None}, {"protocol": {}}, {"protocol": forged}):
        assert stated(report) is None
    assert stated({"protocol": {"sha256": "", "content": {"a": float("nan")}}}) is None


def plain_sum(values: list[int]) -> int:
    """Adds."""
    total = 0
    for value in values:
        total += value  # one by one
    return total


def test_the_hash_of_code_sees_what_it_does_and_not_how_it_is_written() -> None:
    namespace: dict[str, Any] = {}

    def made(source: str, name: str) -> Any:
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), namespace)  # noqa: S102 — our own text
        return namespace["twice"]

    first = made("def twice(x):\n    return 2 * x\n", "<first>")
    words = made('def twice(x):\n    """Doubles."""\n    # so\n    return (2 * x)\n', "<words>")
    other = made("def twice(x):\n    return 3 * x\n", "<other>")
    assert code_sha256(first) == code_sha256(words)
    assert code_sha256(first) != code_sha256(other)
    assert code_sha256(plain_sum, first) != code_sha256(first, plain_sum)
