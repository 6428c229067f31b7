"""What advice is made from, and what it looks like."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from apps.common.registry import RunResult
from measures.agreement.reading import LEAST_ITEMS, WIDEST_TELLING
from measures.estimate import Interval
from workers.contract.reasons import reason_words

LEAST_AGREEMENT = 0.6
BASELINE_ENOUGH = 0.95
SHORT_LATENCY_MS = 100.0
FEW_PAIRS, VERY_FEW_PAIRS = 10_000, 5_000


class Task(StrEnum):
    """What an answer is good by."""

    FACTUAL = "factual"  # a right answer exists and can be checked
    OPEN = "open"  # people prefer one of several good answers


class Rules(StrEnum):
    """How much of what an answer must not do can be written down as rules."""

    ALL = "all"  # and that is all that is to change
    SOME = "some"
    NONE = "none"


class Method(StrEnum):
    NOTHING = "nothing"
    CLEAN = "clean"
    COLLECT = "collect"
    SFT = "sft"
    RULES = "rules"
    DPO = "dpo"
    KTO = "kto"
    GRPO = "grpo"
    PPO = "ppo"
    UNDECIDED = "undecided"


class Kind(StrEnum):
    """METHOD: why this one. MEASURED: what speaks against a method by this project's results, or
    why these say nothing yet. HYBRID: what to combine it with. CAUTION: what may spoil it. IMPROVE:
    what would make the data better. A piece that lost against an earlier one is OVERRULED."""

    METHOD = "method"
    MEASURED = "measured"
    HYBRID = "hybrid"
    CAUTION = "caution"
    IMPROVE = "improve"
    OVERRULED = "overruled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """None is unknown. Intervals are shares (0.56, not 56); an interval whose value is None is
    unknown too.

    From the project: agreement (percent, random stratum), alpha; pairs, prompts and annotators
    behind the training rows; tie_share (ties and both bad among votes); length_only and
    text_baseline (accuracy of "the longer wins" and of a model of words); reward_accuracy (a reward
    model's on rows it never saw) and reward_gain (that minus length-only, on the same rows);
    demonstrations; methods (finished training runs of this project, newest first, with what people,
    the judge and regression suites said of each) and project (its slug, for links to what differs
    between protocols). Stated by a person: task, rules, latency_ms (budget for one answer),
    baseline (share of tasks that the model now in use does right), exploration (do better answers
    exist than those in the data, which a reward would recognise?).
    """

    agreement: Interval | None = None
    alpha: Interval | None = None
    pairs: int | None = None
    prompts: int | None = None
    annotators: int | None = None
    tie_share: Interval | None = None
    length_only: Interval | None = None
    text_baseline: Interval | None = None
    reward_accuracy: Interval | None = None
    reward_gain: Interval | None = None
    demonstrations: int | None = None
    task: Task | None = None
    rules: Rules | None = None
    latency_ms: float | None = None
    baseline: float | None = None
    exploration: bool | None = None
    methods: tuple[RunResult, ...] = ()
    project: str = ""

    def __post_init__(self) -> None:
        if self.baseline is not None and not 0 <= self.baseline <= 1:
            raise ValueError("baseline is a share from 0 to 1")
        if self.latency_ms is not None and not self.latency_ms > 0:
            raise ValueError("latency_ms is a time over 0")


@dataclass(frozen=True, slots=True)
class Link:
    """A page that evidence stands on; `is_run`: a run's, which reviewers do not open."""

    words: str
    url: str
    is_run: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of advice: what, why, the number behind it, what to do next, where to see it."""

    key: str
    kind: Kind
    title: str
    reason: str
    evidence: str = ""
    next_step: str = ""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact nobody has given: why it matters, and how to get it."""

    key: str
    name: str
    why: str
    how: str


@dataclass(frozen=True, slots=True)
class Advice:
    """`items` in order: the method's reason first. `provisional`: an unknown fact could still
    change the method."""

    method: Method
    headline: str
    items: tuple[Item, ...]
    unknown: tuple[Unknown, ...]
    provisional: bool


def interval_read(said: Mapping[str, Any] | None, n: str = "n") -> Interval | None:
    """A stored statistic as it was computed; None where there is nothing like one."""
    if not said or "value" not in said:
        return None
    return Interval(
        value=said["value"],
        low=said.get("low"),
        high=said.get("high"),
        n=int(said.get(n) or 0),
        undefined=said.get("undefined") or (None if said["value"] is not None else "no value"),
        no_interval=said.get("no_interval"),
    )


def known(interval: Interval | None) -> Interval | None:
    """The interval if it has a value."""
    return interval if interval is not None and interval.value is not None else None


def share(interval: Interval) -> str:
    """ "56.4 % (54.9–57.9 %, n = 2,200)"."""
    if interval.value is None:
        return f"undefined: {reason_words(interval.undefined)}"
    n = f"n = {interval.n:,}"
    if interval.low is None or interval.high is None:
        why = f", {reason_words(interval.no_interval)}" if interval.no_interval else ""
        return f"{_percent(interval.value)} % ({n}{why})"
    low, high = _percent(interval.low), _percent(interval.high)
    return f"{_percent(interval.value)} % ({low}–{high} %, {n})"


def gain(interval: Interval) -> str:
    """A difference of shares in percentage points: "+3.1 points (−0.4 to 6.6, n = 104)"."""
    if interval.value is None:
        return f"undefined: {reason_words(interval.undefined)}"
    value = f"{100 * interval.value:+.1f}".replace("-", "−")
    if interval.low is None or interval.high is None:
        why = reason_words(interval.no_interval) or "no interval"
        return f"{value} points (n = {interval.n:,}, {why})"
    low, high = _percent(interval.low), _percent(interval.high)
    return f"{value} points ({low} to {high}, n = {interval.n:,})"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}".replace("-", "−")


# Whether people agree enough to learn from, and whether a reward model passed its test.


def agreement_problem(facts: Facts) -> str:
    """The number that says people agree too little, or "". Too few comparisons say nothing."""
    percent, alpha = known(facts.agreement), known(facts.alpha)
    if (
        percent
        and percent.n >= LEAST_ITEMS
        and percent.high is not None
        and percent.high < LEAST_AGREEMENT
    ):
        return f"two votes on a comparison agree in {share(percent)}; bad is under 60 %"
    if alpha and alpha.n >= LEAST_ITEMS and alpha.low is not None and alpha.high is not None:
        tells = alpha.high - alpha.low <= WIDEST_TELLING
        if alpha.high < 0 or (alpha.low <= 0 and tells):
            bounds = f"{alpha.low:.2f} to {alpha.high:.2f}".replace("-", "−")
            return f"Krippendorff's alpha lies between {bounds}: no better than chance"
    return ""


def reward_problem(facts: Facts) -> str:
    """The number by which the reward model failed, or ""."""
    accuracy, more = known(facts.reward_accuracy), known(facts.reward_gain)
    if accuracy and accuracy.low is not None and accuracy.low <= 0.5:
        return f"its accuracy on unseen rows is {share(accuracy)}, not shown to beat a coin"
    if more and more.low is not None and more.low <= 0:
        return f"it beats “the longer answer wins” by {gain(more)}: not shown to beat it"
    return ""


def reward_passed(facts: Facts) -> bool:
    """Shown to beat a coin and the length rule, both with intervals. Unknown is not passed."""
    accuracy, more = known(facts.reward_accuracy), known(facts.reward_gain)
    return bool(
        accuracy
        and accuracy.low is not None
        and accuracy.low > 0.5
        and more
        and more.low is not None
        and more.low > 0
    )
