"""The pairs of a reward run: read, weighted, encoded, and told apart from those it cannot use."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from transformers import PreTrainedTokenizerBase

from workers.config.training import RewardSettings
from workers.context import (
    RunContext,
)
from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.data.encoding import Encoded, PairEncoder
from workers.data.snapshot import (
    TRAIN,
    Preference,
    evaluation_splits,
    read_preferences,
    refuse_soft_labels,
)

DAY_S = 86_400.0
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
    """What is trained on and what is measured on; `left_out` counts training rows by reason."""

    train: list[EncodedPair]
    held_out: dict[str, list[EncodedPair]]
    left_out: dict[str, int] = field(default_factory=dict)

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
    its own (unless `use_weights` is off) × what its age leaves × `hard_weight`."""
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
    encoded = [_encode(encoder, row) for row in train]
    kept = _fitting([pair for pair in encoded if pair.row.weight > 0], settings.on_overlong)
    weightless = sum(pair.row.weight == 0 for pair in encoded)
    return PairData(
        kept,
        {s: [_encode(encoder, row) for row in rows] for s, rows in held_out.items()},
        {"zero_weight": weightless, "overlong": len(encoded) - weightless - len(kept)},
    )


def _weighted(rows: list[Preference], settings: RewardSettings) -> list[Preference]:
    return rows if settings.use_weights else [replace(row, weight=1.0) for row in rows]


def _aged(rows: list[Preference], half_life_days: float) -> list[Preference]:
    """Weights × 2^(−age / half-life), age counted from the newest row, so that the result does not
    depend on the day of the run."""
    unknown = sum(row.decided_at is None for row in rows)
    if unknown:
        raise RecipeError(
            "bad_data",
            Fault.DATA,
            f"recency_half_life_days: {unknown} of {len(rows)} training rows have no "
            "'decided_at'; freeze the dataset with that column, or leave the half-life empty",
        )
    newest = max(row.decided_at or 0.0 for row in rows)
    return [
        replace(
            row,
            weight=row.weight
            * 0.5 ** ((newest - (row.decided_at or 0.0)) / DAY_S / half_life_days),
        )
        for row in rows
    ]


def _encode(encoder: PairEncoder, row: Preference) -> EncodedPair:
    return EncodedPair(row, encoder(row.prompt, row.chosen), encoder(row.prompt, row.rejected))


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
