"""Facts that are missing, in the order in which the advice asks for them."""

from measures.advice.facts import Facts, Method, Unknown, known

# Facts that rules before the method's own ask for, or that could lead to another one after it.
_BEFORE_VOTES = ("baseline", "rules", "task")
_BEFORE_DPO = (*_BEFORE_VOTES, "agreement", "pairs")
DECISIVE: dict[Method, tuple[str, ...]] = {
    Method.NOTHING: (),
    Method.RULES: ("baseline",),
    Method.SFT: ("baseline", "rules"),
    Method.CLEAN: _BEFORE_VOTES,
    Method.COLLECT: (*_BEFORE_VOTES, "agreement"),
    Method.DPO: (*_BEFORE_DPO, "exploration"),
    Method.PPO: (*_BEFORE_DPO, "latency_ms"),
    Method.UNDECIDED: (*_BEFORE_DPO, "latency_ms", "exploration"),
}

_ASKED = (
    Unknown(
        "baseline",
        "How often the model in use is right",
        "Over 95 % there is nothing worth training for.",
        "Have people judge a random sample of its answers, and state the share here.",
    ),
    Unknown(
        "rules",
        "Whether rules can list what must not happen",
        "What can be listed is better enforced than learned.",
        "State it on this page.",
    ),
    Unknown(
        "task",
        "Whether right answers exist",
        "Factual tasks are taught by checked answers, not by preferences.",
        "State it on this page.",
    ),
    Unknown(
        "agreement",
        "How far people agree",
        "Under 60 % the data must be cleaned before anything is trained on it.",
        "It needs comparisons of the random stratum with at least two votes.",
    ),
    Unknown(
        "pairs",
        "How many pairs are kept",
        "Preference methods learn from decided pairs.",
        "Freeze a dataset from the decided comparisons.",
    ),
    Unknown(
        "latency_ms",
        "How fast an answer must come",
        "Under 100 ms nothing can be scored beside the answer.",
        "State it on this page.",
    ),
    Unknown(
        "exploration",
        "Whether better answers exist than those in the data",
        "PPO pays only where there is something to find.",
        "State it on this page.",
    ),
    Unknown(
        "reward_accuracy",
        "How good a reward model gets",
        "PPO needs one that beats a coin and the length rule on rows it never saw.",
        "Train a reward model on a dataset with hold-outs.",
    ),
    Unknown(
        "reward_gain",
        "Whether the reward model beats the length rule",
        "A reward that only likes length would be exploited at once.",
        "A reward model's run reports it for every held-out file.",
    ),
    Unknown(
        "length_only",
        "How often the longer answer wins",
        "A model may learn length and nothing else.",
        "It is computed from the newest frozen dataset.",
    ),
    Unknown(
        "text_baseline",
        "How well the words alone predict the winner",
        "It is the mark that a reward model must beat.",
        "The dataset's report computes it.",
    ),
    Unknown(
        "demonstrations",
        "How many demonstrations there are",
        "SFT needs them, and DPO and PPO start from it.",
        "Import demonstrations, or freeze improved answers.",
    ),
)


def unknown_of(facts: Facts) -> tuple[Unknown, ...]:
    return tuple(one for one in _ASKED if is_missing(getattr(facts, one.key)))


def is_missing(value: object) -> bool:
    """None, or a statistic without a value."""
    return value is None or (hasattr(value, "value") and known(value) is None)  # type: ignore[arg-type]
