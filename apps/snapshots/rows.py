"""The rows of the files, in TRL's explicit-prompt conversational form.

Every file of a snapshot has the same columns with the same types, so that `datasets.load_dataset`
reads the folder as one dataset.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.snapshots.material import Line, Pair
from measures.text import normalise

Messages = list[dict[str, str]]
Row = dict[str, Any]

# Shorter answers ("Yes.", "Sorry, I cannot help with that.") recur under unrelated prompts and give
# nothing away; they are the same argument only under the same prompt.
_RECOGNISABLE_WORDS = 20


@dataclass(frozen=True, slots=True)
class Texts:
    """What a pair says."""

    prompt: Messages
    a: Messages
    b: Messages


def argument_key(prompt: Sequence[Mapping[str, str]], response: Sequence[Mapping[str, str]]) -> str:
    """What makes two responses the same argument: their normalised text, 20 hex digits of it."""
    text = normalise("\n".join(message["content"] for message in response))
    if len(text.split()) < _RECOGNISABLE_WORDS:
        asked = normalise("\n".join(message["content"] for message in prompt))
        text = f"{asked}\0{text}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def preference_rows(
    lines: Iterable[Line],
    pairs: Mapping[int, Pair],
    texts: Mapping[int, Texts],
    *,
    texts_recur: bool,
) -> Iterator[Row]:
    """One row a line.

    weight counts in the loss; confidence is the share of votes for `chosen`. Where responses recur
    `cluster_ids` names both of them, chosen first, for intervals over arguments; elsewhere
    `cluster` is the group. `annotator` is empty but in the file of held-out annotators' votes.
    """
    for line in lines:
        pair, text = pairs[line.pair], texts[line.pair]
        won, lost = ("a", "b") if line.winner == "a" else ("b", "a")
        row: Row = {
            "prompt": text.prompt,
            "chosen": getattr(text, won),
            "rejected": getattr(text, lost),
            "weight": 1.0,
            "confidence": line.share,
            "votes": len(line.votes),
            "group": pair.group,
        }
        if texts_recur:
            row["cluster_ids"] = [getattr(pair, won), getattr(pair, lost)]
        else:
            row["cluster"] = pair.group
        yield row | {
            "comparison": str(pair.id),
            "annotator": "" if line.person is None else f"person-{line.person}",
        }


def demonstration_row(prompt: Messages, response: str, row: Mapping[str, Any]) -> Row:
    return {
        "messages": [*prompt, {"role": "assistant", "content": response}],
        "group": str(row.get("group") or ""),
        "source": str(row.get("source") or ""),
        "licence": str(row.get("licence") or ""),
    }


def prompt_row(prompt: Messages, row: Mapping[str, Any]) -> Row:
    return {
        "prompt": prompt,
        "group": str(row.get("group") or ""),
        "source": str(row.get("source") or ""),
        "licence": str(row.get("licence") or ""),
    }
