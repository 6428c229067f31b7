"""A reward tried on a few answers: each part, the total, and errors that say what is wrong."""

from typing import Any

import pytest

from tests.workers.recipes.language import Workshop, assistant, user
from workers.config import SettingsError, settings_for

BRIEF = {
    "type": "rules",
    "rules": [{"name": "brief", "words": {"most": 2}, "on_violation": "block"}],
}
RIGHT = {"type": "verifier", "check": "number"}
SUM = {
    "type": "sum",
    "parts": [
        {"name": "form", "weight": 0.5, "source": BRIEF},
        {"name": "right", "weight": 2.0, "source": RIGHT},
    ],
}
TYPED = [
    {"prompt": "What is 6 · 7?", "response": "It is certainly 42", "answer": "42"},
    {"prompt": "What is 1 + 1?", "response": "2", "answer": "2"},
    {"prompt": "What is 1 + 1?", "response": "3", "answer": "2"},
]


@pytest.fixture
def shop(tmp_path) -> Workshop:
    return Workshop(tmp_path)


def tried(shop: Workshop, reward: dict[str, Any], answers: list[dict], **inputs: str) -> Any:
    config = {"check": "answers", "reward": reward, "answers": answers}
    return shop.run_here(
        shop.spec(f"try-{len(answers)}-{'-'.join(inputs.values())}", "check", config, **inputs)
    )


def test_typed_answers_have_every_part_and_the_total(shop: Workshop) -> None:
    summary = tried(shop, SUM, TYPED).summary
    rows = summary["figures"]["rows"]
    assert summary["outcome"] == "scored"
    assert [row["score"] for row in rows] == [2.0, 2.0, 0.0]
    assert [row["parts"]["right/correct"] for row in rows] == [1.0, 1.0, 0.0]
    assert "blocked" in rows[0]["notes"]
    assert "under" not in rows[1]["notes"]


def test_five_answers_of_a_dataset_are_taken_where_none_is_typed(shop: Workshop) -> None:
    pair = {"prompt": user("sun"), "chosen": assistant("a b"), "rejected": assistant("a b c")}
    shop.put_snapshot("pairs", train=[pair])
    rows = tried(shop, BRIEF, [], prompts="pairs").summary["figures"]["rows"]
    assert [(row["response"], row["notes"] != "") for row in rows] == [
        ("a b", False),
        ("a b c", True),
    ]
    shop.put_snapshot("sums", train=[{"prompt": user(str(n)), "answer": n} for n in range(9)])
    rows = tried(shop, RIGHT, [], prompts="sums").summary["figures"]["rows"]
    assert [row["score"] for row in rows] == [1.0] * 5
    shop.put_snapshot("bare", train=[{"prompt": user("rain")}])
    with pytest.raises(Exception, match="give prompts and answers yourself"):
        tried(shop, BRIEF, [], prompts="bare", sft="bare")


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([{"response": "2"}], "answers[0].prompt: must not be empty"),
        ([{"prompt": "a", "answr": "2"}], "answers[0].answr: is no field of an answer"),
        ([{"prompt": "a"}] * 21, "answers: 21 are more than 20"),
    ],
)
def test_answers_that_cannot_be_scored_are_refused_by_their_field(answers: list, told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_for("check", {"check": "answers", "answers": answers})
    assert [text for text in refused.value.errors if text.startswith(told)]
