"""Which column fills which field: guessed from names, and read from a record."""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.labeling.formats.conversations import content_from
from apps.labeling.formats.records import (
    COMMON,
    BadValue,
    Options,
    Record,
    choice_from,
    folded,
    is_blank,
    number_from,
    object_from,
)

_LONGEST_REST = 2000  # characters of a column that is kept beside the fields


# Names other tools use, in the order in which they are preferred.
_NAMES: dict[str, tuple[str, ...]] = {
    "prompt": (
        "prompt",
        "question",
        "instruction",
        "query",
        "input",
        "user_prompt",
        "user_input",
        "messages",
        "conversation",
        "conversations",
        "context",
        "article",
        "post",
        "title",
    ),
    "response_a": (
        "response_a",
        "answer_a",
        "completion_a",
        "output_a",
        "conversation_a",
        "messages_a",
        "chat_a",
        "text_a",
        "response_0",
        "response0",
        "response_1",
        "response1",
        "answer_1",
        "answer1",
        "output_1",
        "output1",
        "completion_1",
        "conversation_1",
        "messages_1",
        "chat_1",
        "text_1",
        "text1",
        "candidate_1",
        "summary_1",
        "left",
        "a",
    ),
    "response_b": (
        "response_b",
        "answer_b",
        "completion_b",
        "output_b",
        "conversation_b",
        "messages_b",
        "chat_b",
        "text_b",
        "response_2",
        "response2",
        "answer_2",
        "answer2",
        "output_2",
        "output2",
        "completion_2",
        "conversation_2",
        "messages_2",
        "chat_2",
        "text_2",
        "text2",
        "response_1",
        "response1",
        "candidate_2",
        "summary_2",
        "right",
        "b",
    ),
    "trajectory": ("trajectory", "trace", "atif", "log"),
    "reward": ("reward", "score", "rating"),
    "messages": ("messages", "conversation", "conversations"),
    "response": ("response", "answer", "completion", "output", "target", "reply"),
    "completion": ("completion", "response", "answer", "output"),
    "answer": ("answer", "solution", "final_answer", "ground_truth"),
    "label": ("label", "desirable", "is_desirable", "thumbs_up"),
    "chosen": ("chosen", "chosen_response", "preferred", "accepted", "winning_response"),
    "rejected": ("rejected", "rejected_response", "dispreferred", "losing_response"),
    "completions": (
        "completions",
        "responses",
        "answers",
        "outputs",
        "generations",
        "candidates",
    ),
    "model_a": ("model_a", "model_1", "model1", "generator_1", "generator_a", "chosen_model"),
    "model_b": ("model_b", "model_2", "model2", "generator_2", "generator_b", "rejected_model"),
    "chosen_model": ("chosen_model", "model_chosen"),
    "rejected_model": ("rejected_model", "model_rejected"),
    "chosen_score": ("score_chosen", "chosen_score", "chosen_rating", "chosen_avg_rating"),
    "rejected_score": ("score_rejected", "rejected_score", "rejected_rating"),
    "gold": ("gold", "label", "winner", "preference", "preferred", "choice", "overall_preference"),
    "annotator": (
        "annotator",
        "annotator_id",
        "judge",
        "rater",
        "rater_id",
        "worker_id",
        "labeler",
        "labeler_id",
    ),
    "cast_at": ("cast_at", "voted_at", "annotated_at"),
    "id": ("id", "external_id", "pair_id", "comparison_id", "example_id", "uid", "uuid"),
    "group": ("group", "group_key", "group_id", "debate", "cluster"),
    "category": ("category", "subset"),
    "topic": ("topic", "category", "domain", "subject"),
    "language": ("language", "lang"),
    "source": ("source", "dataset"),
    "licence": ("licence", "license"),
    "explanation": ("explanation", "gold_explanation"),
    "stratum": ("stratum",),
    "priority": ("priority",),
    "overlap": ("overlap",),
    "metadata": ("metadata", "meta"),
    "tools": ("tools", "tool_definitions", "functions"),
}


def is_prompt(column: str) -> bool:
    """Whether it is a name that prompts have."""
    return folded(column) in _NAMES["prompt"]


_ANSWERS = ("response_a", "response_b", "chosen", "rejected")
_CONTENT = ("prompt", "messages", "response", "completion", *_ANSWERS)


def mapping_of(options: Options, fields: Iterable[str], columns: Iterable[str]) -> dict[str, str]:
    """Field to column: as chosen, else guessed; a column fills one field at most."""
    columns = tuple(columns)
    found = {name: column for name, column in options.mapping.items() if column}
    by_name: dict[str, str] = {}
    for column in columns:
        by_name.setdefault(folded(column), column)
    for name in fields:
        if name in options.mapping or name in found:
            continue
        taken = set(found.values())
        for word in _NAMES.get(name, (name,)):
            column = by_name.get(word)
            if column is not None and column not in taken:
                found[name] = column
                break
    return found


class Mapper:
    """Reads the fields of a layout from records."""

    def __init__(self, options: Options, fields: tuple[str, ...], columns: Iterable[str]) -> None:
        self.options, self.columns = options, tuple(columns)
        self.mapping = mapping_of(options, fields, self.columns)
        self._used = set(self.mapping.values())
        self._common = tuple((n, self.mapping[n]) for n in COMMON if n in self.mapping)

    def value(self, record: Record, name: str) -> Any:
        """What the record has for a field; messages and texts in our form; None for nothing.

        A model may have answered nothing: an empty text is an answer."""
        column = self.mapping.get(name)
        value = record.get(column) if column is not None else None
        if is_blank(value):
            nothing = "" if name in _ANSWERS and value == "" else None
            return self.options.constants.get(name) or nothing
        return content_from(value) if name in _CONTENT else value

    def common(self, record: Record, *, without: Iterable[str] = ()) -> dict[str, Any]:
        """The fields that every layout has, and what is left over as metadata."""
        row: dict[str, Any] = {n: v for n, v in self.options.constants.items() if v}
        row.pop("prompt", None)
        for name, column in self._common:
            value = record.get(column)
            if is_blank(value):
                continue
            if name in ("priority", "overlap"):
                value = number_from(value)
            elif name in ("metadata", "tools"):
                value = object_from(value)
            elif name in ("group", "topic", "language", "source", "licence", "stratum"):
                value = str(value) if isinstance(value, int) else value
            row[name] = value
        if self.options.rest == "metadata":
            rest = self._rest(record, set(without))
            given = row.get("metadata")
            if rest and (given is None or isinstance(given, dict)):
                row["metadata"] = rest | (given or {})
        return row

    def gold(self, record: Record) -> str:
        """The published label of a record. Raises BadValue, naming the field."""
        return self.choice(record) if self.options.preference else ""

    def choice(self, record: Record) -> str:
        """Which of the two its label names, "" where it has none. Raises BadValue."""
        value = record.get(self.mapping.get("gold", ""))
        if is_blank(value):
            return ""
        columns = [self.mapping.get(name, "") for name in ("response_a", "response_b")]
        models = [
            str(record.get(self.mapping.get(name, ""), "")) for name in ("model_a", "model_b")
        ]
        try:
            return choice_from(value, a=(columns[0], models[0]), b=(columns[1], models[1]))
        except BadValue as error:
            raise BadValue("gold", error.message) from None

    def _rest(self, record: Record, without: set[str]) -> dict[str, Any]:
        """Small values of columns that fill no field."""
        return {
            name: value
            for name, value in record.items()
            if name not in self._used and name not in without and _is_small(value)
        }


def _is_small(value: Any) -> bool:
    if isinstance(value, bool | int | float):
        return True
    return isinstance(value, str) and bool(value) and len(value) <= _LONGEST_REST


def flat(record: Record, prefix: str) -> Mapping[str, Any]:
    """The object under `prefix`, or an empty one."""
    value = record.get(prefix)
    return value if isinstance(value, Mapping) else {}


def prompt_apart(prompt: Any, a: Any, b: Any, *, where: str) -> tuple[Any, Any, Any]:
    """(prompt, a, b) with the prompt taken out of the answers where it is in them: a text beside
    answers that are whole conversations is not the prompt but a copy of it."""
    whole = isinstance(a, list) and isinstance(b, list)
    if (prompt is None and a is not None and b is not None) or (
        whole and isinstance(prompt, str) and not _only_answers(a, b)
    ):
        return split_common(a, b, where=where)
    return prompt, a, b


def _only_answers(a: list[Any], b: list[Any]) -> bool:
    """Whether both begin with an assistant's turn: then they hold no prompt."""
    return all(
        isinstance(turns[0], dict) and turns[0].get("role") == "assistant"
        for turns in (a, b)
        if turns
    )


def split_common(a: Any, b: Any, *, where: str) -> tuple[Any, Any, Any]:
    """(prompt, rest of a, rest of b). Raises BadValue on `where`.

    Turns are compared whole, as in `trl.data_utils.extract_prompt`. For texts TRL cuts at the first
    character that differs; we go back to the last white space before it, so that no word is torn
    ("Yes, because" and "Yes, but" share "Yes, ", not "Yes, b").
    """
    if isinstance(a, str) and isinstance(b, str):
        return _texts(a, b, where)
    if isinstance(a, list) and isinstance(b, list):
        return _turns(a, b, where)
    raise BadValue(where, "one of the two is a text and the other a list of messages")


def _turns(a: list[Any], b: list[Any], where: str) -> tuple[Any, Any, Any]:
    n, shorter = 0, min(len(a), len(b))
    while n < shorter and (a[n] == b[n] or _unnumbered(a[n]) == _unnumbered(b[n])):
        n += 1
    if any(_of_agent(turn) for turn in (*a, *b)):
        return _forked(a, b, min(n, shorter - 1))
    if n == 0:
        raise BadValue("prompt", "the two conversations share no beginning that could be a prompt")
    # A conversation that only continues the other would leave nothing to compare.
    if n == len(a) or n == len(b):
        raise BadValue(where, "one of the two conversations is the beginning of the other")
    return a[:n], a[n:], b[n:]


def _of_agent(turn: Any) -> bool:
    return isinstance(turn, dict) and ("tool_calls" in turn or turn.get("role") == "tool")


def _forked(a: list[Any], b: list[Any], n: int) -> tuple[Any, Any, Any]:
    """Two runs of agents part where a turn of the assistant begins, at number `n` or before: a
    prompt that ended with a call would end in half a turn. A run that the other only continues
    keeps its last turn."""
    while n > 0 and not all(turns[n].get("role") == "assistant" for turns in (a, b)):
        n -= 1
    if n == 0:
        raise BadValue("prompt", "the two conversations share no beginning that could be a prompt")
    return a[:n], a[n:], b[n:]


def _unnumbered(turn: Any) -> Any:
    """A turn without the ids of its calls, which two runs of one agent draw differently."""
    if not _of_agent(turn):
        return turn
    kept = {name: value for name, value in turn.items() if name != "tool_call_id"}
    if isinstance(calls := kept.get("tool_calls"), list):
        kept["tool_calls"] = [
            {name: value for name, value in call.items() if name != "id"}
            if isinstance(call, dict)
            else call
            for call in calls
        ]
    return kept


def _texts(a: str, b: str, where: str) -> tuple[str, str, str]:
    if a.strip().startswith(b.strip()) or b.strip().startswith(a.strip()):
        raise BadValue(where, "one of the two texts is the beginning of the other")
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    while n > 0 and not a[n - 1].isspace():
        n -= 1
    prompt, rest_a, rest_b = a[:n].strip(), a[n:].strip(), b[n:].strip()
    if not prompt:
        raise BadValue("prompt", "the two texts share no beginning that could be a prompt")
    return prompt, rest_a, rest_b
