"""The pairs of a reward run: read, weighted, encoded, and told apart from those it cannot use."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from workers.artifacts import state_in, state_of
from workers.config.training import RewardSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.batches import Encoded, PairEncoder, annotator_folds, assign_folds, fold_keys
from workers.data.snapshot import (
    TRAIN,
    Preference,
    evaluation_splits,
    read_preferences,
    refuse_soft_labels,
)
from workers.samples import known_pairs
from workers.trainers.row_checks import MOST_KNOWN

DAY_S = 86_400.0
# When a pair was decided, as something that the model reads: the chat template puts a line before
# the first message, with the date of each row in training. The template that is saved holds the
# newest date, so that whatever scores by it asks what people prefer now.
DECIDED_IN = "decided_in"  # the template's variable
_SET = re.compile(r'{%- set decided_in = decided_in or "[^"]*" -%}')
_LINE = (
    '{%- if messages -%}{%- set messages = [{"role": messages[0].role, "content": "Decided in " ~ '
    'decided_in ~ ".\\n" ~ messages[0].content}] + messages[1:] -%}{%- endif -%}'
)
HARD = "hard_"  # begins the names of the adversarial pairs' own evaluation files


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """Both conversations of a row, which share their prompt."""

    row: Preference
    chosen: Encoded
    rejected: Encoded

    @property
    def lengths(self) -> tuple[int, int]:
        return len(self.chosen.ids), len(self.rejected.ids)

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @property
    def cut(self) -> int:
        """Tokens that neither the model nor its loss will see, of both answers."""
        return self.chosen.cut + self.rejected.cut


@dataclass(frozen=True, slots=True)
class PairData:
    """What is trained on and what is measured on; `left_out` counts training rows by reason,
    `known` are pairs whose better answer is known."""

    train: list[EncodedPair]
    held_out: dict[str, list[EncodedPair]]
    left_out: dict[str, int] = field(default_factory=dict)
    known: list[EncodedPair] = field(default_factory=list)

    @property
    def splits(self) -> dict[str, list[EncodedPair]]:
        return {TRAIN: self.train, **self.held_out}


def read_pairs(
    context: RunContext,
    settings: RewardSettings,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
) -> PairData:
    """Rows of the inputs `data` and `hard`. A row's weight becomes all that it counts in the loss:
    its own (unless `use_weights` is off) × what its age leaves × `hard_weight`. With `date_input`
    the model reads the date of each training row, and of whatever it scores the newest one:
    held-out rows tell what the model is worth now."""
    folder = context.input_path("data")
    train = _weighted(read_preferences(folder), settings)
    held_out = {split: read_preferences(folder, split) for split in evaluation_splits(folder)}
    if context.has_input("hard"):
        hard = context.input_path("hard")
        rows = _weighted(read_preferences(hard), settings)
        train += [replace(row, weight=row.weight * settings.hard_weight) for row in rows]
        held_out |= {HARD + s: read_preferences(hard, s) for s in evaluation_splits(hard)}
    if settings.labels != "soft":
        refuse_soft_labels(train, "set labels to soft, or freeze one without ties")
    if settings.recency_half_life_days is not None:
        train = _aged(train, settings.recency_half_life_days)
    if settings.margin_coef and all(row.strength is None for row in train):
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            "margin_coef: no training row has a 'strength'; freeze the dataset with graded votes, "
            "or set it to 0",
        )
    if not settings.use_weights:
        held_out = {s: [replace(row, weight=1.0) for row in rows] for s, rows in held_out.items()}

    encoder = PairEncoder(tokenizer, max_length=max_length)
    if settings.date_input == "none":
        encoded = [_encode(encoder, row) for row in train]
    else:
        newest = max(_dates(train, "date_input"))
        now = period(newest, settings.date_input)
        tokenizer.chat_template = dated_template(str(tokenizer.chat_template), now)
        encoded = [
            _encode(
                encoder, row, **{DECIDED_IN: period(row.decided_at or 0.0, settings.date_input)}
            )
            for row in train
        ]
    kept = _fitting([pair for pair in encoded if pair.row.weight > 0], settings.on_overlong)
    weightless = sum(pair.row.weight == 0 for pair in encoded)
    return PairData(
        kept,
        {s: [_encode(encoder, row) for row in rows] for s, rows in held_out.items()},
        {"zero_weight": weightless, "overlong": len(encoded) - weightless - len(kept)},
        [_encode(encoder, row) for row in known_pairs(context, "canaries", most=MOST_KNOWN)]
        if context.has_input("canaries")
        else [],
    )


def _weighted(rows: list[Preference], settings: RewardSettings) -> list[Preference]:
    return rows if settings.use_weights else [replace(row, weight=1.0) for row in rows]


def _aged(rows: list[Preference], half_life_days: float) -> list[Preference]:
    """Weights × 2^(−age / half-life), age counted from the newest row, so that the result does not
    depend on the day of the run."""
    newest = max(_dates(rows, "recency_half_life_days"))
    return [
        replace(
            row,
            weight=row.weight
            * 0.5 ** ((newest - (row.decided_at or 0.0)) / DAY_S / half_life_days),
        )
        for row in rows
    ]


def _dates(rows: Sequence[Preference], setting: str) -> list[float]:
    """Unix seconds of each row's decision, which the setting needs of all of them."""
    found = [row.decided_at for row in rows if row.decided_at is not None]
    if len(found) < len(rows):
        raise RecipeError(
            "bad_data",
            Fault.DATA,
            f"{setting}: {len(rows) - len(found)} of {len(rows)} training rows have no "
            f"'decided_at'; freeze the dataset with that column, or leave {setting} as it is",
        )
    return found


def period(seconds: float, length: str) -> str:
    """The `year`, `quarter` or `month` (UTC) of Unix seconds: 2026, 2026-Q4, 2026-11."""
    date = datetime.fromtimestamp(seconds, UTC)
    if length == "year":
        return f"{date:%Y}"
    return f"{date:%Y}-Q{(date.month + 2) // 3}" if length == "quarter" else f"{date:%Y-%m}"


def dated_template(template: str, now: str) -> str:
    """`template` with the line, which says `now` unless the variable is given. One that has a line
    already says the new date."""
    begin = '{%- set decided_in = decided_in or "' + now + '" -%}'
    if _SET.match(template):
        return _SET.sub(begin, template, count=1)
    return begin + _LINE + template


def _encode(encoder: PairEncoder, row: Preference, **variables: str) -> EncodedPair:
    return EncodedPair(
        row,
        encoder(row.prompt, row.chosen, **variables),
        encoder(row.prompt, row.rejected, **variables),
    )


def _fitting(pairs: Sequence[EncodedPair], on_overlong: str) -> list[EncodedPair]:
    """The pairs to train on, by the rule for those that are too long."""
    overlong = sum(pair.cut > 0 for pair in pairs)
    if overlong and on_overlong == "fail":
        raise RecipeError(
            "overlong",
            Fault.DATA,
            f"on_overlong: {overlong} of {len(pairs)} training pairs are longer than max_length",
        )
    return [p for p in pairs if not p.cut] if on_overlong == "drop" else list(pairs)


# What one reward run trains, one after another, and how far it has come.
#
# A run is a list of parts: the models of a cross-validation, then the members of an ensemble or
# the
# single model. Each is a training of its own, with its rows and its seed. Every checkpoint tells
# in
# `training.json` which parts are done and what they scored, so a resumed run trains none of them
# again.

FILE = "training.json"
FOLD, MEMBER, MODEL = "fold", "member", "model"
FIRST_MEMBER = f"{MEMBER}-0"


@dataclass(frozen=True, slots=True)
class Part:
    """One model to train: indices of its training rows and of those it is tested on alone.

    `people`: of a fold over annotators, those whose votes it is tested on; its held-out rows are
    all that one of them voted on, so a row may be held out by several folds.
    """

    name: str
    kind: str
    seed: int
    rows: list[int]
    held_out: list[int] = field(default_factory=list)
    people: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Scores:
    """Raw scores of a split's chosen and rejected answers, in row order."""

    chosen: list[float]
    rejected: list[float]

    @property
    def margins(self) -> list[float]:
        return [a - b for a, b in zip(self.chosen, self.rejected, strict=True)]


@dataclass(frozen=True, slots=True)
class Result:
    """A part that ended: why, on which step the weights kept are from, and what they score."""

    name: str
    kind: str
    seed: int
    rows: int
    steps: int
    reason: str
    kept_step: int
    loss: float | None  # held-out, nats per pair, of the weights kept
    scores: dict[str, Scores]  # by split; a fold's own rows under "fold"
    tokens: int | None = None  # trained on; None where they were not counted


@dataclass
class Watched:
    """What the watch over a part has seen; steps are the part's own."""

    initial: float | None = None  # held-out loss before the first step
    lowest: float | None = None
    lowest_at: int = 0
    without: int = 0  # evaluations since the lowest
    evaluations: int = 0
    warned: bool = False  # of the learning rate


@dataclass
class Progress:
    """How far a run has come. `current` is the part whose trainer state lies in the checkpoint."""

    done: list[Result] = field(default_factory=list)
    current: str | None = None
    watched: Watched = field(default_factory=Watched)
    preflight: dict[str, Any] | None = None

    @property
    def members(self) -> list[Result]:
        return [result for result in self.done if result.kind == MEMBER]

    @property
    def steps(self) -> int:
        """Optimizer steps of the parts that are done."""
        return sum(result.steps for result in self.done)

    @property
    def tokens(self) -> int | None:
        """Tokens that those parts were trained on; None where one did not count them."""
        counts = [result.tokens for result in self.done if result.tokens is not None]
        return sum(counts) if len(counts) == len(self.done) else None

    def write(self, folder: Path) -> None:
        (state_in(folder) / FILE).write_text(json.dumps({"version": 1, **asdict(self)}))

    @classmethod
    def read(cls, folder: Path) -> "Progress":
        """Of a checkpoint; one without the file is of a run with a single part, under way."""
        path = state_of(folder) / FILE
        if not path.is_file():
            return cls(current=MODEL)
        try:
            data = json.loads(path.read_text())
            return cls(
                done=[
                    Result(**r | {"scores": {s: Scores(**v) for s, v in r["scores"].items()}})
                    for r in data["done"]
                ],
                current=data["current"],
                watched=Watched(**data["watched"]),
                preflight=data["preflight"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise RecipeError(
                "damaged_checkpoint", Fault.DATA, f"{FILE} cannot be read: {error}"
            ) from error


def plan_parts(settings: RewardSettings, rows: Sequence[Preference], *, seed: int) -> list[Part]:
    """The parts of a run over its training rows. The same rows, settings and seed give the same."""
    everything = list(range(len(rows)))
    parts: list[Part] = []
    if settings.folds:
        parts += _fold_parts(rows, settings.folds, seed=seed)
    if settings.members == 1:
        return [*parts, Part(MODEL, MODEL, seed, everything)]
    of = _folds(rows, settings.members, seed=seed + 1)
    for member in range(settings.members):
        own = seed + member
        if settings.member_split == "kfold":
            taken = [i for i in everything if of[i] != member]
        elif settings.member_split == "bootstrap":
            taken = sorted(random.Random(own).choices(everything, k=len(rows)))
        else:
            taken = everything
        parts.append(Part(f"{MEMBER}-{member}", MEMBER, own, taken))
    return parts


def _fold_parts(rows: Sequence[Preference], folds: int, *, seed: int) -> list[Part]:
    """Over annotators where the rows name them, otherwise over what rows share."""
    if (fold_of := annotator_folds(rows, folds, seed=seed)) is not None:
        met = [{fold_of[name] for name, _ in row.voters} for row in rows]
    else:
        met = [{fold} for fold in _folds(rows, folds, seed=seed)]
    parts = []
    for fold in range(folds):
        inside = [i for i, of in enumerate(met) if fold in of]
        outside = [i for i, of in enumerate(met) if fold not in of]
        people = frozenset(name for name, of in (fold_of or {}).items() if of == fold)
        parts.append(Part(f"fold-{fold}", FOLD, seed, outside, inside, people))
    return parts


def _folds(rows: Sequence[Preference], folds: int, *, seed: int) -> list[int]:
    _, keys = fold_keys(rows, folds)
    return assign_folds(keys, folds, seed=seed)
