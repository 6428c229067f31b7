"""Whether people agree enough to learn from, and whether a reward model passed its test."""

from measures.advice.facts import LEAST_AGREEMENT, Facts, gain, known, share
from measures.agreement.reading import LEAST_ITEMS, WIDEST_TELLING


def agreement_trouble(facts: Facts) -> str:
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


def reward_trouble(facts: Facts) -> str:
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
