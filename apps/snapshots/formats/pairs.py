"""Forms that turn each row of a preference file into one row or two."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apps.snapshots.assembling.rows import Row

# Trainers that read plain strings glue prompt and answer together, so a prompt ends with a break.
END_OF_PROMPT = "\n\n"
_TEXTS = frozenset({"prompt", "chosen", "rejected"})
Messages = Sequence[Mapping[str, str]]


def prompt_string(messages: Messages) -> str:
    """One message is its text; a conversation is written out, ending where the answer begins."""
    if len(messages) == 1:
        return messages[0]["content"] + END_OF_PROMPT
    turns = "".join(f"{_speaker(turn)}: {turn['content']}{END_OF_PROMPT}" for turn in messages)
    return f"{turns}Assistant: "


def answer_string(messages: Messages) -> str:
    """The answer's text; where it has several turns, they are written out after the first."""
    first, *rest = messages
    return END_OF_PROMPT.join(
        [first["content"], *(f"{_speaker(turn)}: {turn['content']}" for turn in rest)]
    )


def standard_row(row: Row) -> Row:
    """Explicit prompt, plain strings."""
    return {
        "prompt": prompt_string(row["prompt"]),
        "chosen": answer_string(row["chosen"]),
        "rejected": answer_string(row["rejected"]),
    } | about(row)


def implicit_row(row: Row) -> Row:
    """The prompt stands at the beginning of both conversations."""
    return {
        "chosen": [*row["prompt"], *row["chosen"]],
        "rejected": [*row["prompt"], *row["rejected"]],
    } | about(row)


def has_side(row: Row) -> bool:
    """False for the ties of a dataset with soft labels: their order was drawn and says nothing."""
    return row.get("label_probability") != 0.5


def kto_rows(row: Row) -> Iterator[Row]:
    """Each answer by itself: the chosen one wanted, the rejected one not. Ties give no row."""
    if not has_side(row):
        return
    for side, label in (("chosen", True), ("rejected", False)):
        yield {"prompt": row["prompt"], "completion": row[side], "label": label} | about(row)


def soft_row(row: Row, probability: float) -> Row:
    return {
        "prompt": row["prompt"],
        "chosen": row["chosen"],
        "rejected": row["rejected"],
        "probability": probability,
    } | about(row)


def about(row: Row) -> dict[str, Any]:
    """What stands beside the texts: weight, votes, group, comparison…"""
    return {name: value for name, value in row.items() if name not in _TEXTS}


def _speaker(turn: Mapping[str, str]) -> str:
    return turn["role"].capitalize()
