"""Which forms there are, for which kinds of dataset, what each is for, and what its columns are."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from apps.common.errors import DomainError
from apps.common.row_files import JSON_LIST
from apps.labeling.selectors import image_in
from apps.labeling.services.images import image_content
from apps.snapshots.assembling.rows import Row
from apps.snapshots.formats.votes_behind import (
    VotesBehind,
    behind_rows,
    preference_share,
    vote_rows,
)
from apps.snapshots.models import Snapshot
from measures.messages import IMAGE, images_in, said, written
from measures.ranking import groups_of, ranking_of

# Forms that turn each row of a preference file into one row or two.

# Trainers that read plain strings glue prompt and answer together, so a prompt ends with a break.
END_OF_PROMPT = "\n\n"
_TEXTS = frozenset({"prompt", "chosen", "rejected"})
Messages = Sequence[Mapping[str, Any]]


def prompt_string(messages: Messages) -> str:
    """One message is its text; a conversation is written out, ending where the answer begins."""
    if len(messages) == 1:
        return said(messages[0]) + END_OF_PROMPT
    turns = "".join(f"{_speaker(turn)}: {said(turn)}{END_OF_PROMPT}" for turn in messages)
    return f"{turns}Assistant: "


def standard_row(row: Row) -> Row:
    """Explicit prompt, plain strings."""
    return {
        "prompt": prompt_string(row["prompt"]),
        "chosen": written(row["chosen"]),
        "rejected": written(row["rejected"]),
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


IMAGES = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def image_row(row: Row, content: Callable[[str], bytes]) -> Row:
    """TRL's form for models that see: parts in the prompt, the images of all of it in order beside
    it. `DomainError` where an answer holds an image, which TRL's trainers do not take."""
    for side in ("chosen", "rejected"):
        if any(images_in(row[side])):
            raise DomainError(
                f"An answer of comparison {row['comparison']} holds an image; trainers take images "
                "in prompts alone.",
                code="image_in_answer",
                field="shape",
            )
    found = [{"bytes": content(sha256), "path": sha256[:16]} for sha256 in images_in(row["prompt"])]
    prompt = [{**message, "content": _blocks(message["content"])} for message in row["prompt"]]
    return row | {"prompt": prompt, "images": found}


def _blocks(text: str) -> list[dict[str, str]]:
    blocks: list[dict[str, str]] = []
    at = 0
    for found in IMAGE.finditer(text):
        if before := text[at : found.start()].strip():
            blocks.append({"type": "text", "text": before})
        blocks.append({"type": "image"})
        at = found.end()
    if rest := text[at:].strip():
        blocks.append({"type": "text", "text": rest})
    return blocks or [{"type": "text", "text": text}]


def about(row: Row) -> dict[str, Any]:
    """What stands beside the texts: weight, votes, group, comparison…"""
    return {name: value for name, value in row.items() if name not in _TEXTS}


# Columns of every form. Files that were frozen before they existed leave them empty.
OWN = {"external_id": pa.string(), "metadata": pa.string()}


def with_own(row: Row) -> Row:
    return row | {name: row.get(name, "") for name in OWN}


def _speaker(turn: Mapping[str, Any]) -> str:
    return turn["role"].capitalize()


# Plain strings of demonstrations and prompts, whose frozen form is conversational.


def completion_row(row: Row) -> Row:
    """TRL's standard prompt–completion form."""
    *asked, answered = row["messages"]
    rest = {name: value for name, value in row.items() if name != "messages"}
    return {"prompt": prompt_string(asked), "completion": written([answered])} | rest


def stepwise_row(row: Row) -> Row:
    """TRL's stepwise type has a label for every step: what has none is put before the next one that
    has, and what follows the last one is left out."""
    steps: list[str] = []
    labels: list[bool] = []
    waiting: list[str] = []
    for text, label, role in zip(row["completions"], row["labels"], row["roles"], strict=True):
        waiting.append(text if role == "assistant" else f"{role}: {text}")
        if label is not None:
            steps.append(END_OF_PROMPT.join(waiting))
            labels.append(label)
            waiting = []
    rest = {name: value for name, value in row.items() if name != "roles"}
    told = {"prompt": prompt_string(row["prompt"]), "completions": steps, "labels": labels}
    return rest | told


def prompt_only_row(row: Row) -> Row:
    return row | {"prompt": prompt_string(row["prompt"])}


# Several answers to one prompt in order, where comparisons connect more than two of them.

LEAST_ANSWERS = 3


@dataclass(slots=True)
class _Asked:
    """A prompt, its distinct answers, and who beat whom in which comparison."""

    prompt: Any
    group: str
    answers: dict[str, int] = field(default_factory=dict)
    texts: list[Any] = field(default_factory=list)
    wins: list[tuple[int, int]] = field(default_factory=list)
    comparisons: list[str] = field(default_factory=list)
    own: list[tuple[str, str]] = field(default_factory=list)

    def number(self, answer: Any) -> int:
        key = json.dumps(answer, sort_keys=True)
        if key not in self.answers:
            self.answers[key] = len(self.texts)
            self.texts.append(answer)
        return self.answers[key]


def ranking_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """A row per set of at least three connected answers, in the order of the file's prompts.

    Ties order nothing and are passed over.
    """
    asked: dict[str, _Asked] = {}
    for row in filter(has_side, rows):
        key = json.dumps(row["prompt"], sort_keys=True)
        here = asked.setdefault(key, _Asked(row["prompt"], row["group"]))
        here.wins.append((here.number(row["chosen"]), here.number(row["rejected"])))
        here.comparisons.append(row["comparison"])
        here.own.append((row["external_id"], row["metadata"]))
    for one in asked.values():
        yield from _ranked(one)


def _ranked(asked: _Asked) -> Iterator[Row]:
    by_answer: dict[int, list[int]] = defaultdict(list)
    for number, (winner, _) in enumerate(asked.wins):
        by_answer[winner].append(number)
    for group in groups_of(len(asked.texts), asked.wins):
        if len(group) < LEAST_ANSWERS:
            continue
        place = {answer: k for k, answer in enumerate(group)}
        numbers = sorted(n for answer in group for n in by_answer[answer])
        wins = [(place[asked.wins[n][0]], place[asked.wins[n][1]]) for n in numbers]
        ranked = ranking_of(len(group), wins)
        yield {
            "prompt": asked.prompt,
            "responses": [asked.texts[group[k]] for k in ranked.order],
            "scores": list(ranked.scores),
            "cyclic": ranked.cyclic,
            "complete": ranked.complete,
            "comparisons": [asked.comparisons[n] for n in numbers],
            "external_id": [asked.own[n][0] for n in numbers],
            "metadata": [asked.own[n][1] for n in numbers],
            "group": asked.group,
        }


PREFERENCES, UNPAIRED = Snapshot.Kind.PREFERENCES.value, Snapshot.Kind.UNPAIRED.value
DEMONSTRATIONS, PROMPTS = Snapshot.Kind.DEMONSTRATIONS.value, Snapshot.Kind.PROMPTS.value
STEPWISE = Snapshot.Kind.STEPWISE.value
MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
# The same of datasets in which a message holds more than its role and its text.
_OF_AGENTS = {MESSAGES: JSON_LIST, pa.list_(MESSAGES): pa.list_(JSON_LIST)}
TEXTS = pa.list_(pa.string())


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """One file of a frozen dataset: its rows as frozen, and which file it is."""

    snapshot: Snapshot
    split: str
    rows: Iterable[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A form. `adds` are its own columns, in front; `keeps` says whether the frozen columns beside
    the texts follow. `rows_of` is None for the frozen form, whose files are sent as they are."""

    key: str
    title: str
    purpose: str
    kinds: frozenset[str]
    rows_of: Callable[[SourceFiles], Iterator[Row]] | None = None
    adds: Mapping[str, pa.DataType]
    removes: frozenset[str] = frozenset()
    keeps: bool = True
    # Rows of the form for a row of the file, where that is the same everywhere.
    per_row: int | None = 1
    # Holds bytes, which only Parquet can.
    binary: bool = False

    def schema(self, frozen: pa.Schema) -> pa.Schema:
        """Columns of the form, of a file whose frozen columns are `frozen`."""
        gone = self.removes | self.adds.keys()
        kept = {field.name: field.type for field in frozen} | OWN if self.keeps else {}
        beside = {name: of for name, of in kept.items() if name not in gone}
        adds = self.adds
        if any(field.type == JSON_LIST for field in frozen):
            adds = {name: _OF_AGENTS.get(of, of) for name, of in adds.items()}
        return pa.schema([*adds.items(), *beside.items()])


def shape_get(key: str, *, kind: str) -> Shape:
    """`DomainError` for a form that there is not, or not for this kind of dataset."""
    found = SHAPES.get(key)
    offered = shapes_for(kind)
    if found not in offered:
        names = ", ".join(shape.key for shape in offered)
        raise DomainError(f"The shape is one of {names}.", field="shape")
    return found


def shapes_for(kind: str) -> list[Shape]:
    return [shape for shape in SHAPES.values() if kind in shape.kinds]


def _image_bytes(project: str, sha256: str) -> bytes:
    found = image_in(project=project, sha256=sha256)
    if found is None:
        raise DomainError(
            f"The image {sha256[:12]}… is no longer in the project.", code="image_missing"
        )
    return image_content(found)


def _each(change: Callable[[Row], Row]) -> Callable[[SourceFiles], Iterator[Row]]:
    return lambda source: map(change, source.rows)


def _kto(source: SourceFiles) -> Iterator[Row]:
    for row in source.rows:
        yield from kto_rows(row)


def _votes(source: SourceFiles) -> Iterator[Row]:
    own = {row["comparison"]: {name: row[name] for name in OWN} for row in source.rows}
    for row in vote_rows(source.snapshot, source.split):
        yield row | own.get(row["comparison"], dict.fromkeys(OWN, ""))


def _soft(source: SourceFiles) -> Iterator[Row]:
    """The label of a dataset that was frozen with soft labels. In others the share of the votes,
    or, where a model or a person decided and not their count, how sure that was."""
    behind = behind_rows(source.snapshot, source.split)
    for row in source.rows:
        yield soft_row(row, _probability(row, behind.get(row["comparison"])))


def _probability(row: Row, behind: VotesBehind | None) -> float:
    if "label_probability" in row:
        return row["label_probability"]
    if behind is None or row["annotator"] or behind.decided_by in ("model", "ruling"):
        return row["confidence"]
    share = preference_share(behind.winner, behind.choices)
    return row["confidence"] if share is None else share


_SHAPES = (
    Shape(
        key="conversational",
        title="Conversational (as frozen)",
        purpose="The frozen files themselves, with their hashes. TRL's trainers read them, for "
        "models with a chat template.",
        kinds=frozenset({PREFERENCES, UNPAIRED, DEMONSTRATIONS, PROMPTS, STEPWISE}),
        adds={},
    ),
    Shape(
        key="standard",
        title="Standard, plain strings",
        purpose="Models without a chat template, and tools that read text columns. Conversations "
        "are written out; a prompt ends with an empty line, because trainers glue the answer to "
        "it.",
        kinds=frozenset({PREFERENCES}),
        rows_of=_each(standard_row),
        adds={"prompt": pa.string(), "chosen": pa.string(), "rejected": pa.string()},
    ),
    Shape(
        key="prompt_completion",
        title="Prompt and completion, plain strings",
        purpose="TRL's SFTTrainer for models without a chat template; a prompt ends with an empty "
        "line, because trainers glue the answer to it.",
        kinds=frozenset({DEMONSTRATIONS}),
        rows_of=_each(completion_row),
        adds={"prompt": pa.string(), "completion": pa.string()},
        removes=frozenset({"messages"}),
    ),
    Shape(
        key="prompt_only",
        title="Prompts, plain strings",
        purpose="Generation by models without a chat template; a prompt ends with an empty line.",
        kinds=frozenset({PROMPTS}),
        rows_of=_each(prompt_only_row),
        adds={"prompt": pa.string()},
    ),
    Shape(
        key="stepwise",
        title="Stepwise supervision, plain strings",
        purpose="TRL's stepwise type, for trainers of process reward models that read text: the "
        "prompt as a string, its marked steps and their labels. Steps that nobody marked, and "
        "those of tools and users, stand before the next marked one.",
        kinds=frozenset({STEPWISE}),
        rows_of=_each(stepwise_row),
        adds={"prompt": pa.string(), "completions": TEXTS, "labels": pa.list_(pa.bool_())},
        removes=frozenset({"roles"}),
    ),
    Shape(
        key="implicit",
        title="Conversational, implicit prompt",
        purpose="The prompt inside both conversations, as reward-modelling data is often "
        "published. RewardTrainer and DPOTrainer read it too.",
        kinds=frozenset({PREFERENCES}),
        rows_of=_each(implicit_row),
        adds={"chosen": MESSAGES, "rejected": MESSAGES},
        removes=frozenset({"prompt"}),
    ),
    Shape(
        key="images",
        title="With images, Parquet",
        purpose="TRL's DPOTrainer for models that see: the prompt in parts, its images beside it "
        "as `datasets` decodes them. Parquet and the folder only.",
        kinds=frozenset({PREFERENCES}),
        rows_of=lambda source: (
            image_row(row, partial(_image_bytes, source.snapshot.project_id)) for row in source.rows
        ),
        adds={"prompt": JSON_LIST, "chosen": MESSAGES, "rejected": MESSAGES, "images": IMAGES},
        binary=True,
    ),
    Shape(
        key="kto",
        title="KTO, one answer a row",
        purpose="TRL's KTOTrainer: each answer by itself, wanted or not. An answer that won one "
        "pair and lost another stands with both labels.",
        kinds=frozenset({PREFERENCES}),
        rows_of=_kto,
        adds={"prompt": MESSAGES, "completion": MESSAGES, "label": pa.bool_()},
        removes=frozenset({"chosen", "rejected"}),
        per_row=2,
    ),
    Shape(
        key="soft",
        title="Soft labels",
        purpose="Losses that take a probability instead of a winner: the share of the votes for "
        "the chosen answer, ties and both bad as one half, or the posterior where a model decided.",
        kinds=frozenset({PREFERENCES}),
        rows_of=_soft,
        adds={
            "prompt": MESSAGES,
            "chosen": MESSAGES,
            "rejected": MESSAGES,
            "probability": pa.float64(),
        },
    ),
    Shape(
        key="ranking",
        title="Rankings",
        purpose="Listwise losses: the answers to one prompt in order, best first, where "
        "comparisons connect at least three. Contradicting results are marked as cyclic.",
        kinds=frozenset({PREFERENCES}),
        rows_of=lambda source: ranking_rows(source.rows),
        adds={
            "prompt": MESSAGES,
            "responses": pa.list_(MESSAGES),
            "scores": pa.list_(pa.int64()),
            "cyclic": pa.bool_(),
            "complete": pa.bool_(),
            "comparisons": TEXTS,
            "external_id": TEXTS,
            "metadata": TEXTS,
            "group": pa.string(),
        },
        keeps=False,
        per_row=None,
    ),
    Shape(
        key="votes",
        title="Raw votes",
        purpose="Your own analysis of the people: one row a vote behind this dataset, without "
        "names and without texts; the comparison number joins it to the other forms.",
        kinds=frozenset({PREFERENCES, UNPAIRED}),
        rows_of=_votes,
        adds=dict.fromkeys(
            ("comparison", "vote", "annotator", "choice", "voted_for", "side"), pa.string()
        )
        | {
            "strength": pa.int64(),
            "reasons": TEXTS,
            "flags": TEXTS,
            "guideline_version": pa.int64(),
            "active_ms": pa.int64(),
            "revision": pa.int64(),
            "cast_at": pa.string(),
            **OWN,
        },
        keeps=False,
        per_row=None,
    ),
)
SHAPES = {shape.key: shape for shape in _SHAPES}
FROZEN_SHAPE = SHAPES["conversational"]
