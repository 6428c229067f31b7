"""What a record of each tool means, as its own documentation says."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps.labeling.formats import LAYOUTS, Converted, Options, layout_of, table_open
from apps.labeling.formats.preference import chosen_is_a

USER, YES, NO = (
    {"role": "user", "content": "Is it blue?"},
    {"role": "assistant", "content": "It is blue."},
    {"role": "assistant", "content": "It is green."},
)


def read(tmp_path: Path, *rows: Any, **options: Any) -> tuple[str, list[Converted]]:
    """(layout, what the rows become)."""
    path = tmp_path / "rows"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with table_open(path) as table:
        found = layout_of(table, options.pop("layout", ""))
        return found.key, list(found.rows(table, Options(**options)))


def one(rows: list[Converted]) -> dict[str, Any]:
    assert [row.fault for row in rows] == [None]
    return rows[0].comparison or {}


def sides(row: dict[str, Any]) -> dict[str, Any]:
    """{"chosen": …, "rejected": …} by the row's label."""
    other = {"a": "b", "b": "a"}[row["gold"]]
    return {"chosen": row[f"response_{row['gold']}"], "rejected": row[f"response_{other}"]}


def fault(rows: list[Converted]) -> tuple[str, str]:
    (found,) = [row.fault for row in rows if row.fault]
    return found.field, found.message


# --- chosen and rejected -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "prompt", "chosen", "rejected"),
    [
        ({"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green."}, "Sky?", "Blue.", "Green."),
        ({"prompt": [USER], "chosen": [YES], "rejected": [NO]}, [USER], [YES], [NO]),
        ({"chosen": [USER, YES], "rejected": [USER, NO]}, [USER], [YES], [NO]),
        # as in ultrafeedback_binarized: the prompt is a copy of what the conversations share
        (
            {"prompt": "Is it blue?", "chosen": [USER, YES], "rejected": [USER, NO]},
            [USER],
            [YES],
            [NO],
        ),
        ({"prompt": "Is it blue?", "chosen": [YES], "rejected": [NO]}, "Is it blue?", [YES], [NO]),
        (
            {"chosen": "The sky is blue.", "rejected": "The sky is green."},
            "The sky is",
            "blue.",
            "green.",
        ),
    ],
)
def test_trl_preferences_of_every_kind_keep_what_was_chosen(
    tmp_path: Path, record: dict, prompt: Any, chosen: Any, rejected: Any
) -> None:
    layout, rows = read(tmp_path, record)
    row = one(rows)
    assert (layout, row["prompt"]) == ("preference", prompt)
    assert sides(row) == {"chosen": chosen, "rejected": rejected}
    assert row["explanation"].startswith("Imported preference")


def test_an_implicit_prompt_is_the_one_that_trl_extracts(tmp_path: Path) -> None:
    """The example in the documentation of `trl.data_utils.extract_prompt`."""
    question = {"role": "user", "content": "Where is the sun?"}
    sky, sea = ({"role": "assistant", "content": f"In the {where}."} for where in ("sky", "sea"))
    row = one(read(tmp_path, {"chosen": [question, sky], "rejected": [question, sea]})[1])
    assert row["prompt"] == [question]
    assert sides(row) == {"chosen": [sky], "rejected": [sea]}


def test_the_chosen_answer_stands_on_either_side_equally_often_and_the_same_each_time() -> None:
    draws = [chosen_is_a(f"good {n}", f"bad {n}", seed=0) for n in range(2000)]
    assert 900 < sum(draws) < 1100
    assert draws == [chosen_is_a(f"good {n}", f"bad {n}", seed=0) for n in range(2000)]
    assert draws != [chosen_is_a(f"good {n}", f"bad {n}", seed=1) for n in range(2000)]


def test_a_preference_turned_round_keeps_the_sides_and_moves_the_label(tmp_path: Path) -> None:
    record = {"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green."}
    turned = {"prompt": "Sky?", "chosen": "Green.", "rejected": "Blue."}
    first, second = (one(read(tmp_path, r)[1]) for r in (record, turned))
    assert first["response_a"] == second["response_a"]
    assert first["gold"] != second["gold"]


def test_scores_and_models_follow_their_answers_and_the_label_can_be_left_out(
    tmp_path: Path,
) -> None:
    record = {
        "prompt": "Sky?",
        "chosen": "Blue.",
        "rejected": "Green.",
        "score_chosen": 8.5,
        "score_rejected": 2,
        "chosen-model": "m1",
        "rejected-model": "m2",
    }
    row = one(read(tmp_path, record)[1])
    a = row["gold"]
    assert (row[f"model_{a}"], row[f"metadata_{a}"]) == ("m1", {"score": 8.5})
    unlabelled = one(read(tmp_path, record, preference=False)[1])
    assert "gold" not in unlabelled
    assert "explanation" not in unlabelled


@pytest.mark.parametrize(
    ("record", "field", "words"),
    [
        ({"chosen": "Blue.", "rejected": "Green."}, "prompt", "share no beginning"),
        ({"chosen": "The sky is", "rejected": "The sky is blue"}, "rejected", "beginning of"),
        ({"chosen": [USER], "rejected": [USER, NO]}, "rejected", "beginning of"),
        ({"prompt": None, "chosen": [USER, YES], "rejected": "No."}, "rejected", "a text and"),
        ({"prompt": "Sky?", "chosen": "Blue.", "rejected": None}, "rejected", "is missing"),
    ],
)
def test_a_preference_without_two_answers_says_which_field(
    tmp_path: Path, record: dict, field: str, words: str
) -> None:
    found = fault(read(tmp_path, record, layout="preference")[1])
    assert found[0] == field
    assert words in found[1]


def test_hh_transcripts_become_turns_with_their_common_prompt(tmp_path: Path) -> None:
    start = "\n\nHuman: Hi: there\n\nAssistant: Hello.\n\nHuman: How do I bake?\n\nAssistant:"
    layout, rows = read(tmp_path, {"chosen": f"{start} Slowly.", "rejected": f"{start} Don't."})
    row = one(rows)
    assert layout == "transcripts"
    assert [m["content"] for m in row["prompt"]] == ["Hi: there", "Hello.", "How do I bake?"]
    assert sides(row)["chosen"] == [{"role": "assistant", "content": "Slowly."}]


# --- N completions -------------------------------------------------------------------------------

ULTRA = {
    "source": "evol_instruct",
    "instruction": "Name a colour.",
    "models": ["m1", "m2", "m3"],
    "completions": [
        {"model": f"m{n}", "response": text, "overall_score": score, "critique": "…"}
        for n, text, score in ((1, "Red.", 6.0), (2, "Blue.", 9.0), (3, "Seven.", 1.5))
    ],
}


def test_ultrafeedback_gives_every_pair_with_models_and_ratings(tmp_path: Path) -> None:
    layout, rows = read(tmp_path, ULTRA)
    assert layout == "completions"
    made = [row.comparison for row in rows]
    pairs = {frozenset((m["response_a"], m["response_b"])) for m in made}
    assert pairs == {
        frozenset(p) for p in (("Red.", "Blue."), ("Red.", "Seven."), ("Blue.", "Seven."))
    }
    for row in made:
        assert (row["prompt"], row["source"]) == ("Name a colour.", "evol_instruct")
        assert "gold" not in row  # a rating is no preference
        for side in "ab":
            of = {"Red.": ("m1", 6.0), "Blue.": ("m2", 9.0), "Seven.": ("m3", 1.5)}
            found = row[f"model_{side}"], row[f"metadata_{side}"]["rating"]
            assert found == of[row[f"response_{side}"]]


@pytest.mark.parametrize(
    ("pairing", "expected"),
    [("best_worst", [{"Blue.", "Seven."}]), ("best_random", None), ("random", None)],
)
def test_pairs_of_ratings_can_be_fewer(tmp_path: Path, pairing: str, expected: Any) -> None:
    rows = read(tmp_path, ULTRA, pairing=pairing)[1]
    (pair,) = [{r.comparison["response_a"], r.comparison["response_b"]} for r in rows]
    assert expected is None or [pair] == expected
    assert pairing != "best_random" or "Blue." in pair
    again = read(tmp_path, ULTRA, pairing=pairing)[1]
    assert [r.comparison for r in again] == [r.comparison for r in rows]


def test_the_better_answer_is_not_always_a(tmp_path: Path) -> None:
    many = [ULTRA | {"instruction": f"Name colour {n}."} for n in range(60)]
    rows = read(tmp_path, *many, pairing="best_worst")[1]
    assert 15 < sum(row.comparison["response_a"] == "Blue." for row in rows) < 45


def test_ranks_count_downwards_and_plain_texts_are_answers(tmp_path: Path) -> None:
    nectar = {
        "prompt": "Hi",
        "answers": [
            {"answer": "third", "model": "x", "rank": 3.0},
            {"answer": "first", "model": "y", "rank": 1.0},
            {"answer": "second", "model": "z", "rank": 2.0},
        ],
    }
    (row,) = read(tmp_path, nectar, pairing="best_worst")[1]
    assert {row.comparison["response_a"], row.comparison["response_b"]} == {"first", "third"}
    plain = {"prompt": "Hi", "responses": ["one", "two"]}
    assert len(read(tmp_path, plain)[1]) == 1
    assert fault(read(tmp_path, plain, pairing="best_worst")[1])[0] == "completions"


# --- exports with votes --------------------------------------------------------------------------


def task(**more: Any) -> dict[str, Any]:
    """A task of Label Studio's Pairwise template with a prompt."""
    return {
        "id": 12,
        "data": {"prompt": "Why?", "text1": "So.", "text2": "Because."},
        "annotations": [],
    } | more


def annotation(side: str, who: Any = 4, **more: Any) -> dict[str, Any]:
    result = {
        "type": "pairwise",
        "from_name": "pw",
        "to_name": "text1",
        "value": {"selected": side},
    }
    return {"completed_by": who, "result": [result], "created_at": "2024-01-02T03:04:05Z"} | more


def test_label_studio_tasks_become_comparisons_and_votes(tmp_path: Path) -> None:
    people = {"id": 5, "email": "ann@firm.com"}
    record = task(
        annotations=[
            annotation("left"),
            annotation("right", people),
            annotation("left", 6, was_cancelled=True),
        ]
    )
    layout, rows = read(tmp_path, record)
    row = one(rows)
    assert layout == "label_studio"
    assert (row["prompt"], row["response_a"], row["response_b"]) == ("Why?", "So.", "Because.")
    assert row["id"] == "label-studio-12"
    assert [(v["annotator"], v["choice"], v["cast_at"]) for v in rows[0].votes] == [
        ("4", "a", "2024-01-02T03:04:05Z"),
        ("5", "b", "2024-01-02T03:04:05Z"),
    ]
    assert {vote["comparison"] for vote in rows[0].votes} == {row["id"]}


def test_a_label_studio_choice_and_its_comment_are_a_vote(tmp_path: Path) -> None:
    result = [
        {"type": "choices", "value": {"choices": ["Tie"]}},
        {"type": "textarea", "value": {"text": ["Both are short."]}},
    ]
    record = task(annotations=[{"completed_by": 1, "result": result}])
    (vote,) = read(tmp_path, record)[1][0].votes
    assert (vote["choice"], vote["rationale"]) == ("tie", "Both are short.")
    assert read(tmp_path, record, votes=False)[1][0].votes == []


def test_an_annotation_that_names_nobody_is_reported(tmp_path: Path) -> None:
    rows = read(tmp_path, task(annotations=[annotation("left", None)]))[1]
    assert rows[0].comparison is not None
    assert fault(rows)[0] == "completed_by"


ARGILLA = {"prompt": "Why?", "response_a": "So.", "response_b": "Because."}
VOTES = [("u1", "a"), ("u2", "b"), ("u3", "tie")]


@pytest.mark.parametrize(
    "record",
    [
        # 2.x, Record.to_dict
        {
            "id": "r1",
            "fields": ARGILLA,
            "metadata": {},
            "suggestions": {},
            "status": "completed",
            "responses": {
                "better": [
                    {"value": "response_a", "user_id": "u1"},
                    {"value": "B", "user_id": "u2"},
                    {"value": "tie", "user_id": "u3"},
                ]
            },
        },
        # 2.x, to_list(flatten=True) and to_datasets
        {
            "id": "r1",
            **ARGILLA,
            "better.responses": ["A", "B", "tie", "A"],
            "better.responses.users": ["u1", "u2", "u3", "u4"],
            "better.responses.status": ["submitted", "submitted", "submitted", "draft"],
            "better.suggestion": "A",
        },
        # 1.x, format_as("datasets") with a ranking; Arrow turns its list into an object of lists
        {
            "external_id": "r1",
            **ARGILLA,
            "metadata": "{}",
            "better-suggestion": None,
            "better-suggestion-metadata": {},
            "better": [
                {
                    "user_id": "u1",
                    "status": "submitted",
                    "value": [
                        {"rank": 1, "value": "response_a"},
                        {"rank": 2, "value": "response_b"},
                    ],
                },
                {
                    "user_id": "u2",
                    "status": "submitted",
                    "value": {"rank": [2, 1], "value": ["response_a", "response_b"]},
                },
                {
                    "user_id": "u3",
                    "status": "submitted",
                    "value": [
                        {"rank": 1, "value": "response_a"},
                        {"rank": 1, "value": "response_b"},
                    ],
                },
                {"user_id": "u9", "status": "discarded", "value": None},
            ],
        },
        # 1.x, records of a FeedbackDataset
        {
            "external_id": "r1",
            "fields": ARGILLA,
            "suggestions": [],
            "responses": [
                {"user_id": "u1", "status": "submitted", "values": {"better": {"value": "A"}}},
                {"user_id": "u2", "status": "submitted", "values": {"better": {"value": "B"}}},
                {"user_id": "u3", "status": "submitted", "values": {"better": {"value": "same"}}},
            ],
        },
    ],
)
def test_argilla_exports_of_either_line_become_comparisons_and_votes(
    tmp_path: Path, record: dict
) -> None:
    layout, rows = read(tmp_path, record)
    row = one(rows)
    assert layout == "argilla"
    assert {name: row[name] for name in ARGILLA} == ARGILLA
    assert [(v["annotator"], v["choice"]) for v in rows[0].votes] == VOTES
    assert {v["comparison"] for v in rows[0].votes} == {row["id"]}


def test_a_question_about_something_else_is_no_vote(tmp_path: Path) -> None:
    record = {
        "id": "r1",
        "fields": ARGILLA,
        "suggestions": {},
        "responses": {
            "language": [{"value": "english", "user_id": "u1"}],
            "better": [{"value": "B", "user_id": "u1"}],
        },
    }
    rows = read(tmp_path, record)[1]
    assert [v["choice"] for v in rows[0].votes] == ["b"]
    assert len(rows) == 1


# --- plain pairs ---------------------------------------------------------------------------------


def test_arena_conversations_are_split_into_prompt_and_answers(tmp_path: Path) -> None:
    record = {
        "question_id": "q",
        "model_a": "alpaca",
        "model_b": "vicuna",
        "winner": "tie (bothbad)",
        "conversation_a": [USER, YES],
        "conversation_b": [USER, NO],
        "language": "English",
    }
    layout, rows = read(tmp_path, record)
    row = one(rows)
    assert (layout, row["prompt"], row["response_b"]) == ("pairs", [USER], [NO])
    assert (row["gold"], row["model_a"]) == ("both_bad", "alpaca")
    assert one(read(tmp_path, record | {"winner": "model_b"})[1])["gold"] == "b"


def test_conversations_of_other_tools_are_taken_as_messages(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "Hi"}]
    row = one(read(tmp_path, {"conversations": turns, "answer_a": "1", "answer_b": "2"})[1])
    assert row["prompt"] == [{"role": "user", "content": "Hi"}]
    as_text = {"prompt": json.dumps(turns), "response_a": "x", "response_b": "[1] is a footnote"}
    row = one(read(tmp_path, as_text)[1])
    assert row["prompt"] == [{"role": "user", "content": "Hi"}]
    assert row["response_b"] == "[1] is a footnote"


def test_columns_that_fill_no_field_are_kept_or_left_out(tmp_path: Path) -> None:
    record = {"prompt": "Why?", "response_a": "So.", "response_b": "Because.", "page": 3}
    assert one(read(tmp_path, record)[1])["metadata"] == {"page": 3}
    assert "metadata" not in one(read(tmp_path, record, rest="drop")[1])


def test_one_prompt_can_be_given_for_every_row(tmp_path: Path) -> None:
    record = {"text1": "A summary.", "text2": "Another."}
    row = one(read(tmp_path, record, constants={"prompt": "Summarise.", "licence": "CC0"})[1])
    assert (row["prompt"], row["licence"]) == ("Summarise.", "CC0")


def test_every_layout_says_what_it_needs_and_takes_no_unknown_field() -> None:
    for layout in LAYOUTS.values():
        assert set(layout.required) <= set(layout.fields)
        assert layout.label
