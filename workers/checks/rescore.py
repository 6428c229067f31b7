"""Does the reward say the same of the same answer? The kept answers, scored again."""

import numpy as np

from measures.blocks import Curve, Series, Table
from measures.trust.people import spearman
from workers.checks.asking import fresh_reward
from workers.checks.found import CONFIRMS, REFUTES, UNDECIDED, Found, Pace, interval
from workers.checks.kept import is_finite, read_kept
from workers.config.inference import CheckSettings
from workers.context import RunContext
from workers.contract.numbers import plain

SHOWN = 20
DRAWN = 300  # points
FEW = 0.1  # share of the answers: less is an exception
SAME_ORDER = 0.999  # rank correlation from which two lists of scores are in one order


def look(context: RunContext, settings: CheckSettings, pace: Pace) -> Found:
    rows = [row for row in read_kept(context, last=settings.last) if is_finite(row.reward)]
    if not rows:
        return Found(outcome=UNDECIDED, words="None of the kept answers has a finite reward.", n=0)
    rows = rows[::-1]  # newest first: where the time is short, they are what matters
    reward = fresh_reward(context, settings)
    fresh: list[float] = []
    for part in pace.parts(len(rows), settings.reward_batch_size, "scoring the kept answers again"):
        fresh += reward.score(
            [row.prompt for row in rows[part]], [row.response for row in rows[part]]
        ).values
    rows = rows[: len(fresh)]
    kept, new = np.array([row.reward for row in rows], float), np.array(fresh, float)
    spread = float(kept.std()) or 1.0
    gaps = np.abs(new - kept) / spread
    gaps = np.where(np.isfinite(gaps), gaps, np.inf)
    apart = gaps > settings.tolerance
    largest = float(gaps.max()) * spread
    order = spearman(kept, new) if np.isfinite(new).all() else None
    n = len(rows)
    worst = np.argsort(-gaps, kind="stable")[:SHOWN].tolist()
    said = f"{int(apart.sum()):,} of {n:,} kept answers score differently when asked again"
    if not apart.any():
        words = (
            f"All {n:,} kept answers score the same when asked again: the largest difference is "
            f"{largest:.2g}, or {float(gaps.max()):.2g} deviations."
        )
    else:
        words = f"{said}, by up to {plain(largest, 3)} ({float(gaps.max()):.2g} deviations). " + (
            _reading(apart, new - kept, None if order is None else order.value)
        )
    return Found(
        outcome=CONFIRMS if apart.any() else REFUTES,
        words=words + pace.remark,
        n=n,
        figures={
            "differing": int(apart.sum()),
            "largest_difference": largest,
            "largest_in_deviations": float(gaps.max()),
            "mean_difference": float((new - kept).mean()),
            "rank_correlation": interval(order) if order is not None else None,
        },
        details={
            "tolerance": settings.tolerance,
            "rows": [
                {
                    "id": rows[i].id,
                    "kept": float(kept[i]),
                    "fresh": float(new[i]),
                    "prompt": rows[i].words,
                    "response": rows[i].response,
                }
                for i in worst
            ],
        },
        evidence=(
            Curve(
                title="The score of an answer when it was drawn, and now",
                series=(
                    Series(
                        label="kept answers",
                        x=tuple(kept[:DRAWN].tolist()),
                        y=tuple(new[:DRAWN].tolist()),
                        points=True,
                    ),
                ),
                x_label="as the run kept it",
                y_label="asked again",
                diagonal=True,
            ),
            Table(
                title="Largest differences",
                columns=("Step and place", "Kept", "Now", "Answer"),
                formats=("text", "number", "number", "text"),
                rows=tuple(
                    (rows[i].id, float(kept[i]), float(new[i]), rows[i].response[:200])
                    for i in worst
                    if apart[i]
                ),
            ),
        ),
    )


def _reading(apart: np.ndarray, moved: np.ndarray, order: float | None) -> str:
    """What kind of difference it is."""
    if not np.isfinite(moved).all():
        return "Some of the new scores are not finite: the registered weights are damaged."
    if apart.mean() < FEW:
        return "Most agree, so look at those that do not: a cut text, an old cache or chance."
    if float(moved.std()) <= 1e-3 * abs(float(moved.mean())):
        return "All moved by the same amount: something adds to the score."
    if order is not None and order >= SAME_ORDER:
        return "Their order is the same, so the scale or a transformation differs."
    told = "" if order is None else f" (rank correlation {plain(order)})"
    return f"Their order differs too{told}: it was another model, or another text, that was scored."
