"""Are the rewards spread as they should be, and what do they follow? No model is loaded."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from measures.blocks import Block, Example, Histogram, Table, Texts
from measures.estimate import Interval
from measures.kept_rewards import Mode, carried_share, mode_of, rank_correlation_within
from workers.checks.found import CONFIRMS, REFUTES, UNDECIDED, Found, Pace, interval
from workers.checks.kept import KeptAnswer, is_finite, read_kept
from workers.config.inference import CheckSettings
from workers.context import RunContext
from workers.contract.numbers import number, percent, plain
from workers.trust.shapes import LEAST_SCORES, Shape, shape_of

ALIKE, ONE_VALUE, TAIL, LENGTH, WELL = (
    "all alike",
    "mostly one value",
    "long tail",
    "follows length",
    "nothing wrong",
)
BINS = 30
SHOWN = 10  # answers at either end
READ = 4  # of them are shown to be read
MOSTLY, MOSTLY_OF_A_RULE = 0.5, 0.95  # a rule that says right or wrong has a mode of half at least
TAIL_SHARE = 0.5  # of the squared deviations, held by 1 % of the answers; see `carried_share`
FOLLOWS = 0.5  # |ρ|: its interval must lie beyond it


def look(context: RunContext, settings: CheckSettings, pace: Pace) -> Found:
    rows = read_kept(context, last=settings.last)
    for _ in pace.parts(1, 1, "reading the kept answers"):
        pass
    scored = [row for row in rows if is_finite(row.reward)]
    broken = [row for row in rows if row.reward is not None and not is_finite(row.reward)]
    if broken:
        return Found(
            outcome=CONFIRMS,
            words=f"{len(broken):,} of {len(rows):,} rewards are NaN or infinite: the reward is at "
            "fault.",
            n=len(rows),
            figures={"not_finite": len(broken)},
            details={"shape": "not finite", "samples": [row.id for row in broken[:SHOWN]]},
        )
    if len(scored) < LEAST_SCORES:
        return Found(
            outcome=UNDECIDED,
            words=f"{len(scored)} kept answers with a reward are too few to show a shape; "
            f"{LEAST_SCORES} do.",
            n=len(scored),
        )
    return judge(scored, by_rule=settings.reward.get("type", "model") not in ("model", "sum"))


def judge(rows: Sequence[KeptAnswer], *, by_rule: bool) -> Found:
    """`by_rule`: the reward is a rule or verifier, which has few values by nature."""
    scores = np.array([row.reward for row in rows], dtype=float)
    mode = mode_of(scores)
    length = rank_correlation_within(
        scores, [row.tokens for row in rows], [row.step for row in rows]
    )
    tail = carried_share(scores)
    shape, says = _class(scores, mode, tail, length, by_rule=by_rule)
    n = f"n = {len(rows):,}"
    return Found(
        outcome=REFUTES if shape == WELL else CONFIRMS,
        words=f"The rewards are {_called(shape)}: {says} ({n}).",
        n=len(rows),
        figures={
            "mean": float(scores.mean()),
            "std": float(scores.std(ddof=1)),
            "min": float(scores.min()),
            "max": float(scores.max()),
            "mode": mode.value,
            "mode_share": mode.share,
            "tail_share": tail,
            "length_correlation": interval(length),
        },
        details={
            "shape": shape,
            "histogram": _histogram(rows, scores),
            "thirds": _thirds(rows, scores),
            "points": [
                {"id": row.id, "step": row.step, "tokens": row.tokens, "reward": row.reward}
                for row in rows
            ],
            "highest": _ends(rows, scores, highest=True),
            "lowest": _ends(rows, scores, highest=False),
        },
        evidence=_evidence(rows, scores),
    )


def _evidence(rows: Sequence[KeptAnswer], scores: np.ndarray) -> tuple[Block, ...]:
    bins, thirds = _histogram(rows, scores), _thirds(rows, scores)
    return (
        Histogram(
            title="Rewards of the kept answers",
            edges=tuple(bins["edges"]),
            groups=tuple(
                (f"{name} answers" if name == "all" else f"{name} third", _shares(counts))
                for name, counts in bins["counts"].items()
            ),
            x_label="raw score",
        ),
        Table(
            title="By the order in which they were drawn",
            columns=("Third", "Steps", "Answers", "Mean reward", "Deviation", "Tokens", "At mode"),
            formats=("text", "text", "count", "number", "number", "number", "share"),
            rows=tuple(
                (
                    one["name"],
                    f"{one['steps'][0]}–{one['steps'][1]}",
                    *(one[key] for key in ("n", "mean", "std", "tokens", "mode_share")),
                )
                for one in thirds
            ),
        ),
        *(
            Texts(
                title=title,
                examples=tuple(
                    Example(
                        prompt=one["prompt"],
                        answer=one["response"],
                        score=one["reward"],
                        label=f"step {one['step']}, {one['tokens']} tokens",
                    )
                    for one in _ends(rows, scores, highest=highest)[:READ]
                ),
            )
            for title, highest in (("Highest rewards", True), ("Lowest rewards", False))
        ),
    )


def _shares(counts: Sequence[int]) -> tuple[float, ...]:
    return tuple(count / max(1, sum(counts)) for count in counts)


def _class(
    scores: np.ndarray, mode: Mode, tail: float | None, length: Interval, *, by_rule: bool
) -> tuple[str, str]:
    """The gravest class of SPEC D10 that holds, and the number that shows it."""
    seen = shape_of(scores)
    if seen.shape is Shape.CONSTANT:
        return ALIKE, seen.says
    most = MOSTLY_OF_A_RULE if by_rule else MOSTLY
    if mode.share >= most:
        return ONE_VALUE, f"{percent(mode.share)} of them are {plain(mode.value, 3)}"
    if not by_rule and seen.shape in (Shape.LOW, Shape.HIGH, Shape.ENDS):
        return ONE_VALUE, f"{seen.says}, at the ends of their range"
    if not by_rule and (seen.shape is Shape.SPARSE or (tail or 0.0) >= TAIL_SHARE):
        held = f"1 % of the answers hold {percent(tail or 0.0)} of all variation"
        return TAIL, f"{held}, where a broad hill has about 8 %"
    low, high = length.low or 0.0, length.high or 0.0  # no interval: nothing is claimed
    if low > FOLLOWS or high < -FOLLOWS:
        longer = "longer" if low > 0 else "shorter"
        return LENGTH, f"within a step {longer} answers score higher, Spearman's ρ {number(length)}"
    spread = f"they spread from {plain(float(scores.min()))} to {plain(float(scores.max()))}"
    if length.value is None:
        return WELL, f"{spread}, and all answers are equally long"
    return WELL, f"{spread}, and ρ with length is {number(length)}"


def _called(shape: str) -> str:
    return {
        ALIKE: "all alike",
        ONE_VALUE: "mostly one value",
        TAIL: "carried by a long tail",
        LENGTH: "ordered by length",
        WELL: "spread as they should be",
    }[shape]


def _histogram(rows: Sequence[KeptAnswer], scores: np.ndarray) -> dict[str, Any]:
    """Counts over equal bins, of all answers and of the first and last third of the steps."""
    low, high = float(scores.min()), float(scores.max())
    if high - low <= 1e-9 * max(1.0, abs(low)):
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    groups = {"all": scores} | {
        name: scores[marks] for name, marks in _third_marks(rows).items() if name != "middle"
    }
    return {
        "edges": edges.tolist(),
        "counts": {
            name: np.histogram(values, edges)[0].tolist() for name, values in groups.items()
        },
        "unit": "raw score",
    }


def _third_marks(rows: Sequence[KeptAnswer]) -> Mapping[str, np.ndarray]:
    """Which answers belong to the early, middle and late third, in the order they were drawn."""
    place = np.arange(len(rows)) * 3 // len(rows)
    return {name: place == i for i, name in enumerate(("early", "middle", "late"))}


def _thirds(rows: Sequence[KeptAnswer], scores: np.ndarray) -> list[dict[str, Any]]:
    tokens = np.array([row.tokens for row in rows], dtype=float)
    steps = np.array([row.step for row in rows])
    return [
        {
            "name": name,
            "steps": [int(steps[marks].min()), int(steps[marks].max())],
            "n": int(marks.sum()),
            "mean": float(scores[marks].mean()),
            "std": float(scores[marks].std()),
            "tokens": float(tokens[marks].mean()),
            "mode_share": mode_of(scores[marks]).share,
        }
        for name, marks in _third_marks(rows).items()
        if marks.any()
    ]


def _ends(rows: Sequence[KeptAnswer], scores: np.ndarray, *, highest: bool) -> list[dict[str, Any]]:
    order = np.argsort(-scores if highest else scores, kind="stable")[:SHOWN]
    return [
        {
            "id": rows[i].id,
            "step": rows[i].step,
            "reward": rows[i].reward,
            "tokens": rows[i].tokens,
            "prompt": rows[i].words,
            "response": rows[i].response,
        }
        for i in order.tolist()
    ]
