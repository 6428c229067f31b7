"""Answers that a snapshot holds, for a reward that is asked without a policy. No torch."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from measures.messages import Messages
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import (
    TRAIN,
    evaluation_splits,
    prompt_key,
    read_demonstrations,
    read_preferences,
)
from workers.samples import choose


@dataclass(frozen=True, slots=True)
class FixedAnswer:
    """`pair` joins the two answers of a comparison, `better` says which of them people chose."""

    id: str
    prompt: Messages
    response: str
    pair: str = ""
    better: bool | None = None


def fixed_answers(folder: Path, *, most: int, seed: int) -> list[FixedAnswer]:
    """Answers of at most `most` rows, chosen by seed from the evaluation files, else from the
    training file. Raises `RecipeError` where the rows hold no answers."""
    splits = evaluation_splits(folder) or [TRAIN]
    names = names_of(folder / f"{splits[0]}.jsonl")
    if "chosen" in names:
        pairs = [row for split in splits for row in read_preferences(folder, split)]
        kept = [pairs[i] for i in choose(len(pairs), most, seed)]
        return [
            FixedAnswer(answer_id(row.prompt, text), row.prompt, text, row.comparison, better)
            for row in kept
            for text, better in ((row.chosen, True), (row.rejected, False))
        ]
    if "messages" in names:
        shown = [row for split in splits for row in read_demonstrations(folder, split)]
        return [
            FixedAnswer(answer_id(row.prompt, row.response), row.prompt, row.response)
            for row in (shown[i] for i in choose(len(shown), most, seed))
        ]
    raise RecipeError(
        "wrong_input",
        Fault.CONFIGURATION,
        "the input 'prompts' holds no answers to score: a reward model alone is probed on "
        "preferences or demonstrations; add a policy to have prompts answered",
    )


def answer_id(prompt: Messages, response: str = "") -> str:
    """The same for the same text at any time, so that two probes can be compared in pairs."""
    return sha256(f"{prompt_key(prompt)}\n{response}".encode()).hexdigest()[:16]


def names_of(path: Path) -> set[str]:
    """Of the fields of the file's first row."""
    with path.open(encoding="utf-8") as lines:
        try:
            row = json.loads(next(lines, "{}"))
        except json.JSONDecodeError:
            return set()
    return set(row) if isinstance(row, dict) else set()
