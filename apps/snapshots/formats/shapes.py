"""Which forms there are, for which kinds of dataset, what each is for, and what its columns are."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from apps.common.errors import DomainError
from apps.snapshots.assembling.rows import Row
from apps.snapshots.formats.demonstrations import completion_row, prompt_only_row
from apps.snapshots.formats.pairs import implicit_row, kto_rows, soft_row, standard_row
from apps.snapshots.formats.rankings import ranking_rows
from apps.snapshots.formats.votes import Behind, behind_rows, preference_share, vote_rows
from apps.snapshots.models import Snapshot

PREFERENCES, UNPAIRED = Snapshot.Kind.PREFERENCES.value, Snapshot.Kind.UNPAIRED.value
DEMONSTRATIONS, PROMPTS = Snapshot.Kind.DEMONSTRATIONS.value, Snapshot.Kind.PROMPTS.value
MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
TEXTS = pa.list_(pa.string())


@dataclass(frozen=True, slots=True)
class Source:
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
    rows_of: Callable[[Source], Iterator[Row]] | None = None
    adds: Mapping[str, pa.DataType]
    removes: frozenset[str] = frozenset()
    keeps: bool = True
    # Rows of the form for a row of the file, where that is the same everywhere.
    per_row: int | None = 1

    def schema(self, frozen: pa.Schema) -> pa.Schema:
        """Columns of the form, of a file whose frozen columns are `frozen`."""
        gone = self.removes | self.adds.keys()
        kept = [field for field in frozen if field.name not in gone] if self.keeps else []
        return pa.schema([*self.adds.items(), *((field.name, field.type) for field in kept)])


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


def _each(change: Callable[[Row], Row]) -> Callable[[Source], Iterator[Row]]:
    return lambda source: map(change, source.rows)


def _kto(source: Source) -> Iterator[Row]:
    for row in source.rows:
        yield from kto_rows(row)


def _soft(source: Source) -> Iterator[Row]:
    """The label of a dataset that was frozen with soft labels. In others the share of the votes,
    or, where a model or a person decided and not their count, how sure that was."""
    behind = behind_rows(source.snapshot, source.split)
    for row in source.rows:
        yield soft_row(row, _probability(row, behind.get(row["comparison"])))


def _probability(row: Row, behind: Behind | None) -> float:
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
        kinds=frozenset({PREFERENCES, UNPAIRED, DEMONSTRATIONS, PROMPTS}),
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
        rows_of=lambda source: vote_rows(source.snapshot, source.split),
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
        },
        keeps=False,
        per_row=None,
    ),
)
SHAPES = {shape.key: shape for shape in _SHAPES}
FROZEN_SHAPE = SHAPES["conversational"]
