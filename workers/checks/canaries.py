"""Does the reward point the right way? Pairs whose better answer is known, and its own pairs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from measures.accuracy import pair_credit
from measures.blocks import Example, Intervals, Texts
from measures.estimate import Interval
from measures.intervals import mean_interval, wilson
from workers.assess.scores import held_out_split
from workers.checks.asking import fresh_reward
from workers.checks.found import CONFIRMS, REFUTES, UNDECIDED, Found, Pace, interval
from workers.config.inference import CheckSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.contract.numbers import share
from workers.data.snapshot import TRAIN, Preference, evaluation_splits, read_preferences
from workers.rewards.source import RewardSource
from workers.rollouts.local import derive_seed
from workers.samples import choose

GOLD, OWN = "canaries", "reward_data"
LEAST = 20  # decided pairs
NEAR_HALF = 0.65  # an upper bound under it, round a half, is noise
SHOWN = 10
READ = 4


def look(context: RunContext, settings: CheckSettings, pace: Pace) -> Found:
    reward = fresh_reward(context, settings)
    rows = gold_rows(context.input_path(GOLD), settings)
    gold = _chosen(rows, settings, context.spec.seed)
    gold_margins = margins(reward, gold, settings, pace, "asking about the canary pairs")
    own: list[Preference] = []
    own_margins: list[float] = []
    if context.has_input(OWN):
        learned = [row for row in read_preferences(context.input_path(OWN), TRAIN) if _decided(row)]
        own = _chosen(learned, settings, context.spec.seed)
        own_margins = margins(reward, own, settings, pace, "asking about the reward's own pairs")
    on_gold = accuracy(gold_margins, gold)
    on_own = accuracy(own_margins, own) if own_margins else None
    held_out = settings.canary_rows == "held_out"
    outcome, shape, words = judge(on_gold, on_own, held_out=held_out)
    return Found(
        outcome=outcome,
        words=words + pace.remark,
        n=on_gold.n,
        figures={
            "accuracy": interval(on_gold),
            "own_accuracy": interval(on_own) if on_own else None,
            "margin": float(np.mean(gold_margins)),
        },
        details={
            "shape": shape,
            "independent": not held_out,
            "wrong": _wrong(gold, gold_margins),
            "margins": [float(value) for value in gold_margins],
        },
        evidence=(
            Intervals(
                title="Pairs in which the better answer scores higher",
                rows=(
                    ("canary pairs", on_gold),
                    *((("pairs it learned from", on_own),) if on_own else ()),
                ),
                reference=0.5,
                reference_label="a coin",
            ),
            Texts(
                title="Where it is most wrong; the score is the better answer's less the other's",
                examples=tuple(
                    Example(
                        prompt=one["prompt"],
                        answer=one["chosen"],
                        score=one["margin"],
                        other=one["rejected"],
                    )
                    for one in _wrong(gold, gold_margins)[:READ]
                ),
            ),
        ),
    )


def gold_rows(folder: Path, settings: CheckSettings) -> list[Preference]:
    """Decided pairs of every file, or of the strictest evaluation file alone."""
    splits = evaluation_splits(folder)
    if settings.canary_rows == "held_out":
        files = {split: read_preferences(folder, split) for split in splits}
        strictest = held_out_split({split: len(rows) for split, rows in files.items()})
        rows = files[strictest] if strictest else [row for of in files.values() for row in of]
    else:
        names = [name for name in (TRAIN, *splits) if (folder / f"{name}.jsonl").is_file()]
        rows = [row for split in names for row in read_preferences(folder, split)]
    decided = [row for row in rows if _decided(row)]
    if not decided:
        raise RecipeError(
            "no_rows",
            Fault.DATA,
            "the input 'canaries' holds no decided pair"
            + (" outside its training file" if settings.canary_rows == "held_out" else ""),
        )
    return decided


def margins(
    reward: RewardSource,
    rows: Sequence[Preference],
    settings: CheckSettings,
    pace: Pace,
    doing: str,
) -> list[float]:
    """Score of chosen − score of rejected, raw, for as many rows as there is time for."""
    found: list[float] = []
    for part in pace.parts(len(rows), max(1, settings.reward_batch_size // 2), doing):
        batch = rows[part]
        scores = reward.score(
            [row.prompt for row in batch] * 2,
            [row.chosen for row in batch] + [row.rejected for row in batch],
        ).values
        found += np.subtract(scores[: len(batch)], scores[len(batch) :]).tolist()
    if not np.isfinite(found).all():
        raise RecipeError("non_finite_score", Fault.DATA, "the reward of a pair is not finite")
    return found


def accuracy(found: Sequence[float], rows: Sequence[Preference]) -> Interval:
    """Share of pairs in which chosen scores higher, ties ½, with whole clusters resampled; Wilson's
    interval where resampling shows no variation, as when all are right."""
    credit = pair_credit(found)
    bounds = mean_interval(credit, clusters=[row.cluster for row in rows[: len(found)]])
    if bounds.low is not None or bounds.value is None:
        return bounds
    return wilson(float(credit.sum()), len(credit))


def judge(gold: Interval, own: Interval | None, *, held_out: bool) -> tuple[str, str, str]:
    """(outcome, what it looks like, words). Lower and upper bounds decide, not the values."""
    said = f"The reward prefers the better answer in {share(gold)} of {gold.n:,} canary pairs"
    if own is not None:
        said += f", and in {share(own)} of {own.n:,} pairs that it learned from"
    if gold.low is None or gold.high is None or gold.n < LEAST:
        return UNDECIDED, "too few", f"{said}: too few to tell; {LEAST} decided pairs or more do."
    if gold.high < 0.5:
        if own is not None and own.low is not None and own.low > 0.5:
            return CONFIRMS, "swapped labels", f"{said}: it was taught swapped labels."
        if own is not None and own.high is not None and own.high < 0.5:
            return CONFIRMS, "flipped sign", f"{said}: wrong on both, its sign is flipped."
        return CONFIRMS, "points the wrong way", f"{said}: it points the wrong way."
    if gold.low > 0.5:
        told = (
            " These are held-out pairs of its own dataset: labels that are swapped there would not "
            "show."
            if held_out
            else ""
        )
        return REFUTES, "points the right way", f"{said}: it points the right way.{told}"
    if gold.high < NEAR_HALF:
        noise = own is None or (own.low is not None and own.low <= 0.5)
        why = "it is noise" if noise else "it knows its own pairs and nothing beyond them"
        return CONFIRMS, "noise", f"{said}: no better than a coin, {why}."
    return UNDECIDED, "too few", f"{said}: more pairs are needed to tell this from a coin."


def _decided(row: Preference) -> bool:
    return row.confidence > 0.5


def _chosen(rows: Sequence[Preference], settings: CheckSettings, seed: int) -> list[Preference]:
    picked = choose(len(rows), settings.max_pairs, derive_seed(seed, "canaries"))
    return [rows[i] for i in picked]


def _wrong(rows: Sequence[Preference], found: Sequence[float]) -> list[dict[str, Any]]:
    """The pairs it is most wrong about."""
    order = np.argsort(found, kind="stable")[:SHOWN].tolist()
    return [
        {
            "comparison": rows[i].comparison,
            "prompt": rows[i].prompt[-1]["content"],
            "chosen": rows[i].chosen,
            "rejected": rows[i].rejected,
            "margin": float(found[i]),
        }
        for i in order
        if found[i] < 0
    ]
