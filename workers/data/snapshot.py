"""Reading a frozen snapshot: one JSON Lines file per split, TRL's explicit conversational form.

    train.jsonl and <split>.jsonl for every evaluation split, card.json with the kind and counts;
    of pairs without labels one file, pairs.jsonl

A row that does not fit raises `RecipeError` (bad_data) naming file, line and field. No torch.
Every file that is read is reported to whoever asked to be told (`observe`), read to its end or not.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from measures.messages import IMAGE, Message, Messages, written
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import PEOPLE

TRAIN = "train"
# What a message may have beside its role and its text.
PARTS = ("reasoning_content", "tool_calls", "tool_call_id", "name", "error")
PAIRS = "pairs"  # the one file of pairs without labels
Observer = Callable[[Path, str, int], None]  # folder, split, rows
_observers: list[Observer] = []
Row = TypeVar("Row")


def observe(report: Observer | None) -> None:
    """From now on `report` is called for each file that is read in this process; None for nobody.
    A trainer does one run, so there is one."""
    _observers[:] = [] if report is None else [report]


class Asked(list[Message]):
    """The messages of a prompt with the `tools` that were offered, as JSON schemas."""

    def __init__(self, messages: Sequence[Message], tools: Sequence[Any]) -> None:
        super().__init__(messages)
        self.tools = list(tools)


def tools_of(prompt: Messages) -> list[Any] | None:
    return prompt.tools if isinstance(prompt, Asked) else None


class Turns(str):
    """An answer of several messages, or of one that calls tools: written out, for whoever reads
    texts, and with the `messages`, for whoever encodes them."""

    messages: Messages

    @classmethod
    def of(cls, messages: Messages) -> "Turns":
        answer = cls(written(messages))
        answer.messages = messages
        return answer


def answer_of(messages: Messages) -> str:
    """The text of one plain message; of others `Turns`."""
    one = len(messages) == 1 and len(messages[0]) == 2 and messages[0]["role"] == "assistant"
    return str(messages[0]["content"]) if one else Turns.of(messages)


def answer_messages(answer: str) -> Messages:
    """An answer as the messages that it is."""
    if isinstance(answer, Turns):
        return answer.messages
    return [{"role": "assistant", "content": str(answer)}]


class CutAnswer(str):
    """An answer that a limit cut. A text like any other, but a reward model that reads it is shown
    no end, or whatever runs into the limit would look as finished as the rest."""


def as_drawn(text: str, ended: bool) -> str:
    return text if ended else CutAnswer(text)


# What one person voted for, in the words of the rows.
CHOSEN, REJECTED = "chosen", "rejected"
VOTED_FOR = (CHOSEN, REJECTED, "tie", "both_bad")


@dataclass(frozen=True, slots=True)
class Preference:
    """Two responses to one prompt, `chosen` the one people preferred."""

    prompt: Messages
    chosen: str
    rejected: str
    weight: float = 1.0  # how much the row counts, ≥ 0
    confidence: float = 1.0  # share of people (or posterior) for `chosen`, 0.5–1
    cluster: str = ""  # rows that share it are not independent of each other
    units: tuple[str, str] | None = None  # keys of the two responses, where responses recur
    comparison: str = ""
    soft: bool = False  # confidence is the label itself: ties stand among the rows, with 0.5
    group: str = ""  # topic, debate
    annotator: str = ""  # pseudonym of the one person who decided, where it was one
    voters: tuple[tuple[str, str], ...] = ()  # (pseudonym, VOTED_FOR) of each, where rows tell
    votes: int | None = None  # how many people decided
    sources: tuple[str, str] = ("", "")  # origin of chosen and rejected, where the rows tell
    decided_at: float | None = None  # Unix seconds
    chosen_side: str = ""  # a or b: which answer of the comparison was chosen, where rows tell
    category: str = ""  # what the row is reported under
    labelled_by: str = PEOPLE  # or the model that labelled it, where rows tell
    strength: float | None = (
        None  # how much better `chosen` was graded, 1 (better) – 2 (far better)
    )


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A conversation that ends with the answer to imitate."""

    prompt: Messages
    response: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """One answer by itself, and whether it is `desirable`."""

    prompt: Messages
    response: str
    desirable: bool
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class UnlabelledPair:
    """Two answers to one prompt that nobody has compared here; `pair` is what it is known by."""

    pair: str
    prompt: Messages
    response_a: str
    response_b: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Something to answer."""

    messages: Messages
    group: str = ""
    source: str = ""
    answer: str = ""  # what is known to be right, where the row tells; a list or number as JSON
    # All fields of the row but the prompt itself, as the file has them.
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False)


def evaluation_splits(folder: Path) -> list[str]:
    """Names of the evaluation splits present, sorted."""
    return sorted(path.stem for path in folder.glob("*.jsonl") if path.stem != TRAIN)


def read_preferences(folder: Path, split: str = TRAIN) -> list[Preference]:
    return [_preference(row, where) for row, where in _rows(folder, split)]


def read_demonstrations(folder: Path, split: str = TRAIN) -> list[Demonstration]:
    return [_demonstration(row, where) for row, where in _rows(folder, split)]


def read_judged_answers(folder: Path, split: str = TRAIN) -> list[JudgedAnswer]:
    """Single answers, or both answers of each pair: the chosen one desirable, the rejected one not.
    The ties of a snapshot with soft labels say neither, and give none."""
    return [answer for row, where in _rows(folder, split) for answer in _judged(row, where)]


def read_every(folder: Path, read: Callable[[Path, str], list[Row]]) -> list[Row]:
    """Rows of all files of a snapshot, by one of the functions above."""
    splits = [
        *([TRAIN] if (folder / f"{TRAIN}.jsonl").exists() else []),
        *evaluation_splits(folder),
    ]
    return [row for split in splits for row in read(folder, split)]


def read_pairs(folder: Path) -> list[UnlabelledPair]:
    """Pairs without labels, in file order; a pair that comes twice is refused."""
    seen: dict[str, UnlabelledPair] = {}
    for row, where in _rows(folder, PAIRS):
        one = _unlabelled(row, where)
        if one.pair in seen:
            raise _bad(where, f"the pair '{one.pair[:60]}' comes a second time")
        seen[one.pair] = one
    return list(seen.values())


def read_prompts(folder: Path, split: str = TRAIN) -> list[Prompt]:
    """Distinct prompts in file order; any snapshot whose rows have a `prompt` will do."""
    seen: dict[str, Prompt] = {}
    for row, where in _rows(folder, split):
        messages = _prompt(row, where, ends=("user",))
        key = prompt_key(messages)
        answer = _answer(row)
        if key in seen and answer != seen[key].answer:
            raise _bad(where, "asks what an earlier row asks, with another 'answer'")
        seen.setdefault(
            key,
            Prompt(
                messages,
                str(row.get("group") or ""),
                str(row.get("source") or ""),
                answer,
                {name: value for name, value in row.items() if name != "prompt"},
            ),
        )
    return list(seen.values())


def read_held_out_prompts(folder: Path, *, without: Sequence[str] = ()) -> list[Prompt]:
    """Prompts of the evaluation files but those named, in order, without the ones that the training
    file asks too; of the training file where there is no other.

    Raises `RecipeError` (no_held_out_rows) where the training file asks them all.
    """
    splits = [name for name in evaluation_splits(folder) if name not in without]
    if not splits:
        return read_prompts(folder, TRAIN)
    found = {prompt_key(one.messages): one for name in splits for one in read_prompts(folder, name)}
    trained: set[str] = set()
    path = folder / f"{TRAIN}.jsonl"
    if not path.exists() or path.stat().st_size:  # a suite's is empty: it has nothing to train on
        trained = {prompt_key(one.messages) for one in read_prompts(folder, TRAIN)}
    rows = [one for key, one in found.items() if key not in trained]
    if not rows:
        told = "every prompt of the evaluation files stands in train.jsonl too"
        raise RecipeError("no_held_out_rows", Fault.DATA, told)
    return rows


def prompt_key(messages: Messages) -> str:
    """What makes two prompts one."""
    tools = tools_of(messages)
    return json.dumps([messages, tools] if tools else messages, sort_keys=True)


def refuse_soft_labels(rows: Sequence[Preference], remedy: str) -> None:
    """Read as winners, the ties of a snapshot with soft labels would be taught as preferences."""
    if any(row.soft and row.confidence <= 0.5 for row in rows):
        raise RecipeError(
            "soft_labels", Fault.CONFIGURATION, f"the snapshot's labels are soft: {remedy}"
        )


def _rows(folder: Path, split: str) -> Iterator[tuple[dict[str, Any], str]]:
    path = folder / f"{split}.jsonl"
    if not path.is_file():
        raise RecipeError("bad_data", Fault.DATA, f"the snapshot has no file {path.name}")
    number = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                where = f"{path.name} line {number}"
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise _bad(where, f"is no JSON ({error})") from error
                if not isinstance(row, dict):
                    raise _bad(where, "is no object")
                yield row, where
    finally:
        for report in _observers:
            report(folder, split, number)
    if not number and split in (TRAIN, PAIRS):
        raise RecipeError("bad_data", Fault.DATA, f"{path.name} holds no rows")


def _bad(where: str, what: str) -> RecipeError:
    return RecipeError("bad_data", Fault.DATA, f"{where}: {what}")


def _prompt(row: dict[str, Any], where: str, *, ends: Sequence[str] = ("user", "tool")) -> Messages:
    """Up to where the assistant speaks; of an agent that may be after the result of a tool."""
    return _offered(_messages(row, "prompt", where, ends=ends), row, where)


def _offered(messages: Messages, row: dict[str, Any], where: str) -> Messages:
    """The messages with the row's `tools`: a list of JSON schemas, or the JSON text of one."""
    tools = row.get("tools")
    if not tools:
        return messages
    try:
        tools = json.loads(tools) if isinstance(tools, str) else tools
    except json.JSONDecodeError as error:
        raise _bad(where, f"field 'tools' is no JSON ({error})") from error
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _bad(where, "field 'tools' must be a list of JSON schemas")
    return Asked(messages, tools) if tools else messages


def _answer_at(row: dict[str, Any], name: str, where: str) -> str:
    return answer_of(_messages(row, name, where, ends=("assistant", "tool")))


def _messages(row: dict[str, Any], name: str, where: str, *, ends: Sequence[str]) -> Messages:
    value = row.get(name)
    if not isinstance(value, list) or not value:
        raise _bad(where, f"field '{name}' must be a non-empty list of messages")
    for message in value:
        if (
            not isinstance(message, dict)
            or not isinstance(message.get("role"), str)
            or not isinstance(message.get("content"), str)
        ):
            raise _bad(where, f"field '{name}': every message needs a role and a content")
    if value[-1]["role"] not in ends:
        raise _bad(where, f"field '{name}' must end with a message of the {' or '.join(ends)}")
    return [_message(message, name, where) for message in value]


def _message(message: dict[str, Any], name: str, where: str) -> Message:
    """A message with what it has beside its text (`PARTS`), as chat templates read it. Columns that
    a file has for all messages alike are null where one has none."""
    kept = {"role": message["role"], "content": message["content"]}
    if "](image:" in message["content"] and IMAGE.search(message["content"]):
        told = f"field '{name}' holds an image; this recipe reads text alone"
        raise _bad(where, f"{told}. Freeze a dataset without the prompts that have images")
    if len(message) == 2:
        return kept
    kept |= {part: message[part] for part in PARTS if message.get(part)}
    for call in kept.get("tool_calls", ()):
        asked = call.get("function") if isinstance(call, dict) else None
        if not isinstance(asked, dict) or not isinstance(asked.get("name"), str):
            raise _bad(where, f"field '{name}': a call of a tool needs a function with a name")
    return kept


def _share(row: dict[str, Any], name: str, where: str, *, most: float) -> float:
    value = row.get(name, 1.0)
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise _bad(where, f"field '{name}' must be a number from 0 to {most:g}, not {value!r}")
    return float(value)


def _preference(row: dict[str, Any], where: str) -> Preference:
    return Preference(
        prompt=_prompt(row, where),
        chosen=_answer_at(row, "chosen", where),
        rejected=_answer_at(row, "rejected", where),
        weight=_share(row, "weight", where, most=1e6),
        confidence=_share(row, "confidence", where, most=1.0),
        cluster=str(row.get("cluster") or row.get("group") or where),
        units=None if row.get("cluster") else _units(row, where),
        comparison=str(row.get("comparison") or where),
        soft=row.get("label_probability") is not None,
        group=str(row.get("group") or ""),
        annotator=str(row.get("annotator") or ""),
        voters=_voters(row, where),
        votes=_votes(row, where),
        sources=_sources(row, where),
        decided_at=_moment(row, where),
        chosen_side=_side(row, where),
        category=str(row.get("category") or ""),
        labelled_by=str(row.get("labelled_by") or PEOPLE),
        strength=_strength(row, where),
    )


def _unlabelled(row: dict[str, Any], where: str) -> UnlabelledPair:
    name = row.get("pair")
    if not isinstance(name, str) or not name:
        raise _bad(where, "field 'pair' must be a text that names the pair")
    first, second = (_answer_at(row, field, where) for field in ("response_a", "response_b"))
    return UnlabelledPair(name, _prompt(row, where), first, second)


def _judged(row: dict[str, Any], where: str) -> list[JudgedAnswer]:
    if "chosen" in row:
        pair = _preference(row, where)
        if row.get("label_probability") == 0.5:
            return []
        return [
            JudgedAnswer(pair.prompt, text, desirable, pair.weight)
            for text, desirable in ((pair.chosen, True), (pair.rejected, False))
        ]
    label = row.get("label")
    if not isinstance(label, bool):
        raise _bad(where, f"field 'label' must be true or false, not {label!r}")
    return [
        JudgedAnswer(
            prompt=_prompt(row, where),
            response=_answer_at(row, "completion", where),
            desirable=label,
            weight=_share(row, "weight", where, most=1e6),
        )
    ]


def _answer(row: dict[str, Any]) -> str:
    value = row.get("answer")
    if value is None or isinstance(value, str):
        return (value or "").strip()
    return json.dumps(value, ensure_ascii=False)


def _voters(row: dict[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    """Of `annotators` with `annotator_votes`; a row of one person's vote is for its chosen one."""
    if row.get("annotator"):
        return ((str(row["annotator"]), CHOSEN),)
    names, votes = row.get("annotators") or [], row.get("annotator_votes") or []
    if not isinstance(names, list) or not isinstance(votes, list) or len(names) != len(votes):
        raise _bad(where, "fields 'annotators' and 'annotator_votes' must be lists of one length")
    if set(map(str, votes)) - set(VOTED_FOR):
        raise _bad(where, f"field 'annotator_votes' must hold some of {', '.join(VOTED_FOR)}")
    return tuple((str(name), str(vote)) for name, vote in zip(names, votes, strict=True))


def _votes(row: dict[str, Any], where: str) -> int | None:
    value = row.get("votes")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _bad(where, f"field 'votes' must be a whole number, not {value!r}")
    return value


def _sources(row: dict[str, Any], where: str) -> tuple[str, str]:
    """Either may be unknown (null)."""
    value = row.get("sources")
    if value is None:
        return "", ""
    if not isinstance(value, list) or len(value) != 2:
        raise _bad(where, "field 'sources' must hold one origin per response, chosen first")
    return str(value[0] or ""), str(value[1] or "")


def _side(row: dict[str, Any], where: str) -> str:
    value = row.get("chosen_side") or ""
    if value not in ("", "a", "b"):
        raise _bad(where, f"field 'chosen_side' must be a or b, not {value!r}")
    return str(value)


def _moment(row: dict[str, Any], where: str) -> float | None:
    """Unix seconds of `decided_at`, which is such a number or a date and time in ISO 8601; without
    a zone it is UTC."""
    value = row.get("decided_at")
    if value is None or value == "":
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise _bad(where, f"field 'decided_at' is no date and time: {value!r}") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _strength(row: dict[str, Any], where: str) -> float | None:
    """Null where nobody graded."""
    value = row.get("strength")
    return None if value is None else _share(row, "strength", where, most=10.0)


def _units(row: dict[str, Any], where: str) -> tuple[str, str] | None:
    keys = row.get("cluster_ids")
    if keys is None:
        return None
    if not isinstance(keys, list) or len(keys) != 2:
        raise _bad(where, "field 'cluster_ids' must hold one key per response, chosen first")
    return str(keys[0]), str(keys[1])


def _demonstration(row: dict[str, Any], where: str) -> Demonstration:
    messages = _messages(row, "messages", where, ends=("assistant",))
    if len(messages) < 2:
        raise _bad(where, "field 'messages' needs a question before the answer")
    prompt = _offered(messages[:-1], row, where)
    return Demonstration(prompt, answer_of(messages[-1:]), str(row.get("source") or ""))


# Trajectories whose steps were judged one by one.

STEP_ROLES = ("assistant", "tool", "user")


@dataclass(frozen=True, slots=True)
class JudgedSteps:
    """A prompt and the steps that followed, with whether each is right: None where nobody said, and
    of every step that is not the assistant's."""

    prompt: Messages
    steps: tuple[str, ...]
    roles: tuple[str, ...]  # of STEP_ROLES
    labels: tuple[bool | None, ...]


def read_judged_steps(folder: Path, split: str = TRAIN) -> list[JudgedSteps]:
    return [_judged_steps(row, where) for row, where in _rows(folder, split)]


def _judged_steps(row: dict[str, Any], where: str) -> JudgedSteps:
    steps, labels = row.get("completions"), row.get("labels")
    if not isinstance(steps, list) or not all(isinstance(one, str) for one in steps) or not steps:
        raise _bad(where, "field 'completions' must be a list of texts, the steps")
    if not isinstance(labels, list) or len(labels) != len(steps):
        raise _bad(where, f"field 'labels' must have one label for each of the {len(steps)} steps")
    if not all(one is None or isinstance(one, bool) for one in labels):
        raise _bad(where, "field 'labels' must hold true, false or null")
    roles = row.get("roles") or ["assistant"] * len(steps)
    if not isinstance(roles, list) or len(roles) != len(steps) or set(roles) - set(STEP_ROLES):
        raise _bad(where, f"field 'roles' must have one of {', '.join(STEP_ROLES)} for each step")
    own = [y if role == "assistant" else None for y, role in zip(labels, roles, strict=True)]
    return JudgedSteps(
        _messages(row, "prompt", where, ends=("user",)), tuple(steps), tuple(roles), tuple(own)
    )
