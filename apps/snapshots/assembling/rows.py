"""The rows of the files, in TRL's explicit-prompt conversational form.

Every file of a snapshot has the same columns with the same types, so that `datasets.load_dataset`
reads the folder as one dataset.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.snapshots.assembling.material import BY_RULING, Pair, SplitLine
from measures.duplicates import normalise
from measures.messages import Messages, recognised

Row = dict[str, Any]

# Shorter answers ("Yes.", "Sorry, I cannot help with that.") recur under unrelated prompts and give
# nothing away; they are the same argument only under the same prompt.
_RECOGNISABLE_WORDS = 20
_BY_PEOPLE = ("human", "edit")


@dataclass(frozen=True, slots=True)
class Texts:
    """What a pair says, and which model or file each answer is from ("" where nobody knows); the
    id and the columns that its row was imported with."""

    prompt: Messages
    a: Messages
    b: Messages
    from_a: str = ""
    from_b: str = ""
    external_id: str = ""
    metadata: Mapping[str, Any] | None = None
    tools: Sequence[Any] | None = None


def argument_key(prompt: Sequence[Mapping[str, Any]], response: Sequence[Mapping[str, Any]]) -> str:
    """What makes two responses the same argument: their normalised text, 20 hex digits of it."""
    return text_key(argument_text(prompt, response))


def argument_text(
    prompt: Sequence[Mapping[str, Any]], response: Sequence[Mapping[str, Any]]
) -> str:
    """What a response is recognised by: its normalised text, after the prompt where it is short."""
    text = normalise("\n".join(recognised(message) for message in response))
    if len(text.split()) < _RECOGNISABLE_WORDS:
        asked = normalise("\n".join(recognised(message) for message in prompt))
        text = f"{asked}\0{text}"
    return text


def prompt_text(prompt: Sequence[Mapping[str, Any]]) -> str:
    """What a prompt is recognised by: its normalised turns. System messages are left out, since
    many prompts share one and are not alike for that."""
    asked = [recognised(message) for message in prompt if message["role"] != "system"]
    return normalise("\n".join(asked))


def text_key(text: str) -> str:
    """20 hex digits that stand for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def source_of(kind: str, reference: str, metadata: Mapping[str, Any] | None) -> str:
    """Where an answer is from, as a row may say it: a checkpoint, a model or a file by name. Of an
    answer that a person wrote or improved only that much: rows name nobody."""
    if kind in _BY_PEOPLE:
        return kind
    about = metadata or {}
    named = reference or about.get("model") or about.get("source")
    return str(named or ("" if kind == "import" else kind))


def preference_rows(
    lines: Iterable[SplitLine],
    pairs: Mapping[int, Pair],
    texts: Mapping[int, Texts],
    *,
    texts_recur: bool,
    soft: bool = False,
    graded: bool = False,
    sourced: bool = False,
    drawn: bool = False,
    votes_at: Mapping[int, dt.datetime] | None = None,
    cast_by: Mapping[int, tuple[int, str]] | None = None,
    name_of: Callable[[int], str],
) -> Iterator[Row]:
    """One row a line.

    weight counts in the loss; confidence is P(chosen is preferred): the share of votes, the
    posterior, or 1 where a person ruled. Soft rows repeat it as `label_probability`, which says
    that it is a target and not a footnote: a tie stands there with 0.5, in an order drawn by hash.
    Where responses recur `cluster_ids` names both of them, chosen first, for intervals over
    arguments; elsewhere `cluster` is the group. `annotator` is empty but in the file of held-out
    annotators' votes. `chosen_side` says which answer of the comparison won, so that order can be
    looked at as a leak. graded: every row has `strength`, null where nobody graded. sourced: every
    row has `sources`, the chosen answer's first. drawn: every row has the slice of its pair and the
    probability with which it was drawn into it. votes_at: when each vote was cast; every row then
    has `decided_at`, the day of its newest vote or of the ruling. cast_by: (person, choice) of each
    vote; every row then has `annotators`, who voted on it, and `annotator_votes`, what for.
    """
    offered = _offered(texts)
    for line in lines:
        pair, text = pairs[line.pair], texts[line.pair]
        won, lost = sides(line, pair)
        row: Row = {
            "prompt": text.prompt,
            "chosen": getattr(text, won),
            "rejected": getattr(text, lost),
            "weight": line.weight,
            "confidence": line.confidence,
        }
        if offered:
            row["tools"] = tools_json(text.tools)
        if soft:
            row["label_probability"] = line.confidence
        if graded:
            row["strength"] = line.strength
        row |= {"votes": len(line.votes), "group": pair.group}
        if texts_recur:
            row["cluster_ids"] = [getattr(pair, won), getattr(pair, lost)]
        else:
            row["cluster"] = pair.group
        row["chosen_side"] = won
        if sourced:
            row["sources"] = [getattr(text, f"from_{won}"), getattr(text, f"from_{lost}")]
        if votes_at is not None:
            row["decided_at"] = _day(line, pair, votes_at)
        if cast_by is not None:
            row |= _voters(line, won, cast_by, name_of)
        if drawn:
            row |= _drawn(pair)
        yield row | _origin(line, text, name_of)


def _offered(texts: Mapping[int, Texts]) -> bool:
    """Whether the rows have a column `tools`: all have it, or none."""
    return any(text.tools for text in texts.values())


def tools_json(tools: Sequence[Any] | None) -> str:
    """One type for all rows, which TRL reads too."""
    return json.dumps(tools or [], ensure_ascii=False)


def _day(line: SplitLine, pair: Pair, votes_at: Mapping[int, dt.datetime]) -> str | None:
    """ISO 8601, in UTC; None where nobody knows, since readers that guess types take an empty text
    for no date. The day and no more: moments would tell a person's votes by their rhythm."""
    if line.by == BY_RULING:
        moment = pair.ruling.at if pair.ruling else None
    else:
        moment = max((votes_at[vote] for vote in line.votes if vote in votes_at), default=None)
    return moment.astimezone(dt.UTC).date().isoformat() if moment else None


def _drawn(pair: Pair) -> Row:
    return {"slice": pair.slice, "inclusion_probability": pair.inclusion_probability}


def _voters(
    line: SplitLine, won: str, cast_by: Mapping[int, tuple[int, str]], name_of: Callable[[int], str]
) -> Row:
    """In the order of the names, so that the order of the votes is not told."""
    cast = sorted(
        (name_of(person), voted_for(choice, won))
        for person, choice in (cast_by[vote] for vote in line.votes)
    )
    return {"annotators": [name for name, _ in cast], "annotator_votes": [vote for _, vote in cast]}


def voted_for(choice: str, won: str) -> str:
    """chosen, rejected, tie or both_bad: frozen rows know chosen and rejected but not A and B."""
    if choice not in ("a", "b"):
        return choice
    return "chosen" if choice == won else "rejected"


def unpaired_rows(
    lines: Iterable[SplitLine],
    pairs: Mapping[int, Pair],
    texts: Mapping[int, Texts],
    *,
    texts_recur: bool,
    drawn: bool = False,
    name_of: Callable[[int], str],
) -> Iterator[Row]:
    """Two rows a line, A before B, in TRL's unpaired form: is this answer desirable?

    The winner is and the loser is not; of a tie both are, of "both are bad" neither is.
    """
    offered = _offered(texts)
    for line in lines:
        pair, text = pairs[line.pair], texts[line.pair]
        for side in ("a", "b"):
            row: Row = {
                "prompt": text.prompt,
                "completion": getattr(text, side),
                "label": desirable(line.winner, side),
                "weight": line.weight,
                "confidence": line.confidence,
                "votes": len(line.votes),
                "group": pair.group,
            }
            if offered:
                row["tools"] = tools_json(text.tools)
            if texts_recur:
                row["cluster_ids"] = [getattr(pair, side)]
            else:
                row["cluster"] = pair.group
            if drawn:
                row |= _drawn(pair)
            yield row | {"side": side} | _origin(line, text, name_of)


def desirable(winner: str, side: str) -> bool:
    return winner in (side, "tie")


def sides(line: SplitLine, pair: Pair) -> tuple[str, str]:
    """(chosen, rejected) as a and b. A tie has no side: its order is drawn by the texts' hash, so
    that what came first in the import is not always what was "chosen"."""
    if line.winner in ("a", "b"):
        return ("a", "b") if line.winner == "a" else ("b", "a")
    drawn = hashlib.sha256(f"{pair.prompt}\0{pair.a}\0{pair.b}".encode()).digest()
    return ("a", "b") if drawn[0] & 1 else ("b", "a")


def _origin(line: SplitLine, text: Texts, name_of: Callable[[int], str]) -> Row:
    return {
        "comparison": str(line.pair),
        **own_columns(text.external_id, text.metadata),
        "annotator": "" if line.person is None else name_of(line.person),
    }


def own_columns(external_id: Any, metadata: Any) -> Row:
    """What came in with a row and goes out with it. The columns are one JSON text, since rows of
    different imports have different ones and a file's columns have one type each."""
    known = "" if external_id is None else str(external_id)
    return {"external_id": known, "metadata": json.dumps(metadata or {}, ensure_ascii=False)}


def demonstration_row(prompt: Messages, response: str, row: Mapping[str, Any]) -> Row:
    return {
        "messages": [*prompt, {"role": "assistant", "content": response}],
        "group": str(row.get("group") or ""),
        "source": str(row.get("source") or ""),
        "licence": str(row.get("licence") or ""),
        **own_columns(row.get("id"), row.get("metadata")),
    }


def _as_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def stepwise_row(
    prompt: Messages,
    steps: Sequence[str],
    roles: Sequence[str],
    labels: Sequence[bool | None],
    row: Mapping[str, Any],
) -> Row:
    """TRL's stepwise type, with null for steps that nobody marked and who each step is of."""
    return {
        "prompt": prompt,
        "completions": list(steps),
        "labels": list(labels),
        "roles": list(roles),
        "group": str(row.get("group") or ""),
        "source": str(row.get("source") or ""),
        "licence": str(row.get("licence") or ""),
        **own_columns(row.get("id"), row.get("metadata")),
    }


def prompt_row(prompt: Messages, row: Mapping[str, Any]) -> Row:
    """`answer`, what is known to be right, stands in a row that has one, for verifiers: a text, of
    a number or a list its JSON, since a column has one type."""
    known = row.get("answer")
    known = known if isinstance(known, str | None) else json.dumps(known, ensure_ascii=False)
    return {
        "prompt": prompt,
        "group": str(row.get("group") or ""),
        "source": str(row.get("source") or ""),
        "licence": str(row.get("licence") or ""),
        **own_columns(row.get("id"), row.get("metadata")),
        **({"answer": known} if known else {}),
        **({"check": _as_json(row["check"])} if row.get("check") else {}),
    }
