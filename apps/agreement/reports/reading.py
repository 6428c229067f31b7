"""What the statistics of agreement and of sides say, in a sentence with its numbers."""

from apps.common.numbers import fixed
from apps.common.numbers import share as percent
from measures.agreement import Level, reading
from measures.agreement.reading import LEAST_ITEMS
from measures.estimate import Estimate, Statistic
from measures.position import SMALL, PositionBias
from workers.contract.reasons import reason_words

NAMES = {
    Statistic.PERCENT_AGREEMENT: "percent agreement",
    Statistic.KRIPPENDORFF_ALPHA: "Krippendorff's alpha",
    Statistic.FLEISS_KAPPA: "Fleiss' kappa",
    Statistic.GWET_AC1: "Gwet's AC1",
    Statistic.COHEN_KAPPA: "Cohen's kappa",
    Statistic.MEAN_COHEN_KAPPA: "mean Cohen's kappa",
}


def estimate_said(estimate: Estimate) -> str:
    level, what = reading(estimate), NAMES[estimate.statistic]
    name = what[0].upper() + what[1:]
    if level is Level.UNDEFINED:
        return f"{name} is undefined: {reason_words(estimate.undefined)}."
    if estimate.n_items < LEAST_ITEMS:
        return (
            f"Too few to say: {estimate.n_items} of the {LEAST_ITEMS} comparisons with two or more "
            f"votes that {what} needs."
        )
    if estimate.low is None or estimate.high is None:
        why = reason_words(estimate.no_interval)
        return f"{name} is {_value(estimate)}, without an interval: {why}."
    if estimate.statistic is Statistic.PERCENT_AGREEMENT:
        return f"Two votes on the same comparison agree in {_interval(estimate)}{_PERCENT[level]}."
    if level is Level.TOO_FEW:
        seen = what if name.startswith("Percent") else name
        return f"Too few to say: {seen} is {_interval(estimate)}, too wide to tell from chance."
    end = _REVERSED if estimate.high < 0 else _BEYOND_CHANCE[level]
    return f"{name} is {_interval(estimate)}{end}."


_PERCENT = {
    Level.BAD: ": bad, the whole interval is under 60 %. Clean the data or the guideline before "
    "training on these votes",
    Level.UNSURE: ": the interval contains 60 %, so it may be bad",
    Level.NO_ALARM: ": the whole interval is at or above 60 %",
}
_BEYOND_CHANCE = {
    Level.NO_ALARM: ": better than chance. Preferences are not held to the textbook 0.667, because "
    "people may differ and both be right",
    Level.CRITICAL: ": critical, these votes cannot be told from random ones. Do not train on them",
}
_REVERSED = (
    ": under 0, people disagree more than chance would. Look for two readings of the guideline"
)


def _interval(estimate: Estimate) -> str:
    low, high = _number(estimate, estimate.low), _number(estimate, estimate.high)
    return f"{_value(estimate)} (95 % interval {low} to {high}; {estimate.n_items} comparisons)"


def _value(estimate: Estimate) -> str:
    return _number(estimate, estimate.value)


def _number(estimate: Estimate, value: float | None) -> str:
    return percent(value) if estimate.statistic is Statistic.PERCENT_AGREEMENT else fixed(value, 2)


def position_said(bias: PositionBias) -> str:
    rate = bias.left_rate
    if rate.value is None or rate.low is None or rate.high is None:
        return "Nothing is known about sides: no vote chose a side whose place is known."
    told = (
        f"{percent(rate.value)} of {bias.n:,} choices fell on the left answer "
        f"({percent(rate.low)} to {percent(rate.high)})"
    )
    if bias.value is None:
        return (
            f"{told}; sides are drawn at random, so half is expected. "
            f"The position bias itself is not known: {reason_words(bias.undefined)}."
        )
    if bias.low is None or bias.high is None:
        why = reason_words(bias.no_interval)
        return f"{told}. How strong the position bias is cannot be said yet: {why}."
    chance = (
        "of two equally good answers the left one is chosen in "
        f"{percent(bias.value)} ({percent(bias.low)} to {percent(bias.high)})"
    )
    if bias.low <= 0.5 <= bias.high:
        return f"No position bias is shown: {chance}. {told}."
    side = "left" if bias.value > 0.5 else "right"
    size = " It is small." if abs(bias.value - 0.5) < SMALL else ""
    return f"A position bias to the {side}: {chance}.{size} {told}."
