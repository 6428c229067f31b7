"""What may spoil the method that is advised, and what would make the data better."""

from collections.abc import Iterator

from measures.advice.facts import (
    FEW_PAIRS,
    LEAST_AGREEMENT,
    VERY_FEW_PAIRS,
    Facts,
    Item,
    Kind,
    Method,
    known,
    share,
)
from measures.advice.judging import reward_passed, reward_trouble
from measures.bootstrap import LEAST_UNITS

_FROM_VOTES = (Method.CLEAN, Method.COLLECT, Method.DPO, Method.PPO, Method.UNDECIDED)


def improvements(facts: Facts, method: Method) -> Iterator[Item]:
    """Cautions first, then what to improve; nothing about votes where they are not learned from."""
    if method not in _FROM_VOTES:
        return
    found = [*_unsure(facts), *_little_data(facts, method), *_length(facts), *_words(facts)]
    found += [*_no_reward(facts), *_people(facts), *_prompts(facts), *_ties(facts)]
    yield from sorted(found, key=lambda item: item.kind is not Kind.CAUTION)


def _unsure(facts: Facts) -> Iterator[Item]:
    percent = known(facts.agreement)
    if not percent or percent.low is None or percent.high is None:
        return
    if percent.low < LEAST_AGREEMENT <= percent.high:
        yield Item(
            "agreement_unsure",
            Kind.CAUTION,
            "Agreement may be too low",
            "Its interval contains 60 %, so it may be bad or not.",
            f"two votes on a comparison agree in {share(percent)}",
            "More votes narrow the interval; disputes show where the guideline is silent.",
        )


def _little_data(facts: Facts, method: Method) -> Iterator[Item]:
    if not facts.pairs or facts.pairs >= FEW_PAIRS:
        return
    very = facts.pairs < VERY_FEW_PAIRS
    how = {
        Method.PPO: "Keep the KL penalty strong, and check the reward model on people it never "
        "saw.",
    }.get(method, "Keep the policy close to its reference (a large β), for few epochs.")
    yield Item(
        "little_data",
        Kind.CAUTION,
        "Very little data" if very else "Little data",
        f"Under {VERY_FEW_PAIRS if very else FEW_PAIRS:,} pairs a reward model overfits easily, "
        f"and so does a policy. {how} What rules can hold need not be learned.",
        f"{facts.pairs:,} pairs kept",
        "Collect more pairs, where the model is unsure first; the learning curve in the dataset's "
        "report says whether more would help.",
    )


def _length(facts: Facts) -> Iterator[Item]:
    rule = known(facts.length_only)
    if not rule or rule.low is None or rule.high is None or rule.low <= 0.5 <= rule.high:
        return
    which = "longer" if rule.low > 0.5 else "shorter"
    yield Item(
        "length",
        Kind.CAUTION,
        f"The {which} answer wins more often",
        "A model can reach this by counting words, and a policy trained on it drifts that way.",
        f"“the longer answer wins” is right in {share(rule)}",
        "Balance the training rows by length when freezing, and watch the length of answers.",
    )


def _words(facts: Facts) -> Iterator[Item]:
    words = known(facts.text_baseline)
    if words and words.low is not None and words.low <= 0.5:
        yield Item(
            "words",
            Kind.CAUTION,
            "The words do not predict the winner",
            "A simple model of the texts does no better than a coin here: the votes may be noise, "
            "or what decides them is not in the words.",
            f"a model of words is right in {share(words)}",
            "Look at pairs it gets wrong with confidence: swapped labels show there first.",
        )


def _no_reward(facts: Facts) -> Iterator[Item]:
    if facts.exploration and not reward_passed(facts) and not reward_trouble(facts):
        yield Item(
            "reward_model",
            Kind.IMPROVE,
            "PPO waits for a reward model",
            "You expect better answers than those in the data, and only a reward model that has "
            "passed its test can recognise them.",
            "no reward model has shown on unseen rows that it beats a coin and the length rule",
            "Train one on a dataset with hold-outs; its report decides.",
        )


def _people(facts: Facts) -> Iterator[Item]:
    if facts.annotators is not None and facts.annotators < LEAST_UNITS:
        yield Item(
            "people",
            Kind.IMPROVE,
            "Few people",
            "A model learns their taste, and whether it holds for others cannot be measured.",
            f"{facts.annotators:,} annotators behind the training rows",
            f"Let at least {LEAST_UNITS} people vote, and hold some of them out.",
        )


def _prompts(facts: Facts) -> Iterator[Item]:
    if facts.prompts is not None and facts.prompts < LEAST_UNITS:
        yield Item(
            "prompts",
            Kind.IMPROVE,
            "Few groups of prompts",
            "Splits go by group, so few of them leave little that is new to measure on.",
            f"{facts.prompts:,} groups in the training rows",
            f"Bring comparisons of at least {LEAST_UNITS} topics or prompts.",
        )


def _ties(facts: Facts) -> Iterator[Item]:
    ties = known(facts.tie_share)
    if ties and ties.value:
        yield Item(
            "ties",
            Kind.IMPROVE,
            "Ties say something too",
            "Dropping them loses what people could not tell apart. Soft labels keep it as one "
            "half.",
            f"ties and both bad: {share(ties)}",
            "Freeze with the tie policy “soft” and compare, or export soft labels.",
        )
