"""The method, by the first rule that holds.

Facts can contradict each other: the task may be factual while agreement is bad, a budget may be
short while exploration would pay. The order settles it, and what an earlier rule overrules is still
listed, as overruled, so that nobody wonders where it went:

1. baseline > 0.95                     nothing: there is little left to gain, and much to break
2. rules can list all that is wanted   rules: exact, free of votes, no training
3. factual task                        SFT with a factuality measure: people prefer fluent errors
4. agreement's interval under 0.6, or  clean the data first: votes that disagree teach noise
   alpha not above chance
5. no pair to train on                 collect votes
6. latency budget under 100 ms         DPO (or a cache): one answer, no scoring beside it
7. a method is ahead of another by     that method
   what this project measured
8. reward model fails its test         DPO, which needs none
9. exploration pays and the reward     PPO
   model has passed
10. otherwise                          DPO

What was measured can also speak against a method: then no rule advises it (see `measured`). Rules 4
and 5 come after 2 and 3 because neither rules nor SFT learns from votes.
"""

from collections.abc import Callable, Iterator

from apps.snapshots.advice.facts import (
    BASELINE_ENOUGH,
    FEW_PAIRS,
    LEAST_AGREEMENT,
    SHORT_LATENCY_MS,
    VERY_FEW_PAIRS,
    Advice,
    Facts,
    Item,
    Kind,
    Method,
    Rules,
    Task,
    Unknown,
    agreement_problem,
    known,
    reward_passed,
    reward_problem,
    share,
)
from apps.snapshots.advice.measured import Measured, measured
from measures.bootstrap import LEAST_UNITS

# Facts that are missing, in the order in which the advice asks for them.

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
    Method.KTO: (*_BEFORE_DPO, "latency_ms"),
    Method.GRPO: (*_BEFORE_DPO, "latency_ms"),
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
    return value is None or (hasattr(value, "value") and known(value) is None)  # type: ignore[arg-type] # an estimate, by its value


# What may spoil the method that is advised, and what would make the data better.

_TRAINED = (Method.DPO, Method.KTO, Method.GRPO, Method.PPO)
_FROM_VOTES = (Method.CLEAN, Method.COLLECT, *_TRAINED, Method.UNDECIDED)


def improvements(facts: Facts, method: Method) -> Iterator[Item]:
    """Cautions first, then what to improve; nothing about votes where they are not learned from."""
    if method not in _FROM_VOTES:
        return
    found = [*_unsure(facts), *_little_data(facts, method), *_length(facts), *_words(facts)]
    found += [*_no_reward(facts, method), *_people(facts), *_prompts(facts), *_ties(facts)]
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
        "Collect more pairs; the learning curve in the dataset's "
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


def _no_reward(facts: Facts, method: Method) -> Iterator[Item]:
    if method in (Method.PPO, Method.GRPO) or reward_problem(facts):
        return
    if facts.exploration and not reward_passed(facts):
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
            f"{facts.prompts:,} group{'s' * (facts.prompts != 1)} in the training rows",
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


Rule = Callable[[Facts], Item | None]

HEADLINES = {
    Method.NOTHING: "Do not train: the model in use already does it.",
    Method.RULES: "Write rules; no training is needed for this.",
    Method.SFT: "Use SFT on checked answers, with a factuality measure.",
    Method.CLEAN: "Clean the data before training on it.",
    Method.COLLECT: "Collect votes first: there is no pair to train on.",
    Method.DPO: "Start with DPO.",
    Method.KTO: "Use KTO.",
    Method.GRPO: "Use GRPO.",
    Method.PPO: "Use PPO with your reward model.",
    Method.UNDECIDED: "Too little is known to advise a method.",
}


def advise(facts: Facts) -> Advice:
    """The method with its reason, what it overrules, hybrids, cautions and next steps."""
    told = measured(facts)
    holding = [*_holding(_FIRST, facts), *told.claim, *_holding(_AFTER_MEASURED, facts)]
    held = [(method, item) for method, item in holding if method not in told.against]
    unknown = unknown_of(facts)
    method, reason = held[0] if held else _default(facts, told)
    headline = _headline(method, reason, told)
    overruled = [_overruled(item, headline) for other, item in held[1:] if other is not method]
    agreeing = [item for other, item in held[1:] if other is method]
    return Advice(
        method=method,
        headline=headline,
        items=(
            *([reason] if reason else []),
            *agreeing,
            *told.against.values(),
            *told.notes,
            *_hybrids(facts, method),
            *improvements(facts, method),
            *overruled,
        ),
        unknown=unknown,
        provisional=method is Method.UNDECIDED or bool(_open_questions(facts, method, reason)),
    )


def _headline(method: Method, reason: Item | None, told: Measured) -> str:
    if reason is not None and reason.key == "measured":
        return told.headline
    if method is Method.UNDECIDED and told.against:
        return "No method is advised: what this project measured speaks against DPO."
    return HEADLINES[method]


# --- the rules, in order --------------------------------------------------------------------------


def _baseline(facts: Facts) -> Item | None:
    if facts.baseline is None or facts.baseline <= BASELINE_ENOUGH:
        return None
    return Item(
        "baseline",
        Kind.METHOD,
        "The model in use is good enough",
        "Over 95 % of tasks are done right already. Training can win little, and every change of "
        "the weights risks what works.",
        f"baseline success as you stated it: {100 * facts.baseline:.1f} %",
        "Look at the failures one by one: a better prompt, a rule or a few demonstrations may do.",
    )


def _rules(facts: Facts) -> Item | None:
    if facts.rules is not Rules.ALL:
        return None
    return Item(
        "rules",
        Kind.METHOD,
        "What you want can be listed",
        "What can be written down as rules is enforced exactly and at once by a filter; a model "
        "trained on votes only makes it likelier.",
        "stated: rules can list all that is wanted",
        "Write the rules, test each on past answers, and count how often it fires wrongly.",
    )


def _factual(facts: Facts) -> Item | None:
    if facts.task is not Task.FACTUAL:
        return None
    if facts.demonstrations:
        evidence = f"{facts.demonstrations:,} demonstrations to learn from"
        then = (
            "Measure factuality on held-out questions before and after, beside the loss: an "
            "evaluate run over prompts with a known answer does."
        )
    else:
        evidence = "no demonstrations yet" if facts.demonstrations == 0 else ""
        then = "Collect checked answers as demonstrations, and questions with known answers."
    return Item(
        "factual",
        Kind.METHOD,
        "A right answer exists, so teach it",
        "People prefer answers that read well, right or wrong, and a reward learned from them pays "
        "for fluent errors. Checked answers teach what is true, and a factuality measure shows "
        "whether it was learned.",
        evidence,
        then,
    )


def _agreement(facts: Facts) -> Item | None:
    if problem := agreement_problem(facts):
        return Item(
            "agreement",
            Kind.METHOD,
            "People do not agree enough",
            "A model of these votes would learn mostly noise, and no method repairs that: the best "
            "possible reward model cannot agree with people more than they agree with each other "
            "allows.",
            problem,
            "Read the disputes, settle what the guideline leaves open, and have the worst batches "
            "judged again under the next version of it.",
        )
    return None


def _no_pairs(facts: Facts) -> Item | None:
    if facts.pairs != 0:
        return None
    return Item(
        "pairs",
        Kind.METHOD,
        "No comparison is decided for a side",
        "Reward models, DPO and PPO all start from decided pairs.",
        "0 pairs kept",
        "Go on labeling. Until then SFT on demonstrations is the only training there is data for."
        if facts.demonstrations
        else "Go on labeling, or collect demonstrations for SFT.",
    )


def _latency(facts: Facts) -> Item | None:
    if facts.latency_ms is None or facts.latency_ms >= SHORT_LATENCY_MS:
        return None
    return Item(
        "latency",
        Kind.METHOD,
        "The answer must come at once",
        "Under 100 ms there is no time to draw several answers and have a reward model pick one. "
        "DPO puts the preference into the policy itself, which answers once; for questions that "
        "recur a cache of good answers is faster still.",
        f"budget as you stated it: {facts.latency_ms:g} ms",
        "Measure how often questions recur: a high share speaks for the cache.",
    )


def _reward_fails(facts: Facts) -> Item | None:
    problem = reward_problem(facts)
    if not problem:
        return None
    return Item(
        "reward_fails",
        Kind.METHOD,
        "The reward model is not fit to train against",
        "PPO does whatever raises the reward, so a reward that a rule of thumb matches would be "
        "exploited. DPO learns from the pairs directly.",
        problem,
        "More pairs, especially ones where the shorter answer is better, before trying a reward "
        "model again.",
    )


def _explore(facts: Facts) -> Item | None:
    if not facts.exploration or not reward_passed(facts):
        return None
    accuracy = known(facts.reward_accuracy)
    return Item(
        "exploration",
        Kind.METHOD,
        "Better answers are there to be found",
        "PPO tries answers that nobody wrote down and keeps what the reward model, which passed "
        "its test, scores higher. DPO only chooses among the answers in the data.",
        f"reward model on unseen rows: {share(accuracy)}" if accuracy else "",
        "Watch KL, length and held-out reward, and have people judge samples against the baseline.",
    )


# What is measured is asked between these.
_FIRST: tuple[tuple[Method, Rule], ...] = (
    (Method.NOTHING, _baseline),
    (Method.RULES, _rules),
    (Method.SFT, _factual),
    (Method.CLEAN, _agreement),
    (Method.COLLECT, _no_pairs),
    (Method.DPO, _latency),
)
_AFTER_MEASURED: tuple[tuple[Method, Rule], ...] = (
    (Method.DPO, _reward_fails),
    (Method.PPO, _explore),
)


def _holding(rules: tuple[tuple[Method, Rule], ...], facts: Facts) -> Iterator[tuple[Method, Item]]:
    for method, rule in rules:
        if (item := rule(facts)) is not None:
            yield method, item


def _default(facts: Facts, told: Measured) -> tuple[Method, Item | None]:
    """DPO where there are pairs and nothing measured speaks against it; without knowing even that,
    nothing."""
    if facts.pairs is None or Method.DPO in told.against:
        return Method.UNDECIDED, None
    return Method.DPO, Item(
        "default",
        Kind.METHOD,
        "The simplest method that learns from pairs",
        "Nothing known here speaks against it: DPO trains on the pairs as they are, with no reward "
        "model and no sampling to go wrong.",
        f"{facts.pairs:,} pairs kept",
        "Train it, measure the win rate against the model in use, and only then think of PPO: it "
        "pays where exploration finds answers better than those in the data.",
    )


# --- around the method ----------------------------------------------------------------------------


def _hybrids(facts: Facts, method: Method) -> Iterator[Item]:
    if facts.rules is Rules.SOME and method in (*_TRAINED, Method.SFT, Method.CLEAN):
        penalty = (
            "As a part of the reward: a fixed penalty where a rule is broken, so that no learned "
            "score can buy it back."
        )
        how = {
            Method.PPO: penalty,
            Method.GRPO: penalty,
            Method.DPO: "Filter answers by the rules when serving, and give answers that break one "
            "as rejected in pairs.",
        }.get(method, "Filter answers by the rules when serving; that needs no votes.")
        yield Item(
            "rules_too",
            Kind.HYBRID,
            "Rules beside it",
            f"Part of what must not happen can be listed, and rules hold always. {how}",
            "stated: rules can list some of it",
            "Write the rules first: they show how much is left to learn.",
        )
    if method is Method.PPO and facts.demonstrations == 0:
        yield Item(
            "sft_first",
            Kind.HYBRID,
            "SFT before it",
            "PPO starts from a model that already answers in the right form.",
            "no demonstrations yet",
            "Freeze improved answers as demonstrations, or start from an instruction-tuned model.",
        )


def _overruled(item: Item, headline: str) -> Item:
    return Item(
        item.key,
        Kind.OVERRULED,
        item.title,
        f"It holds, but comes after the reason for the advice ({headline.rstrip('.')}). "
        f"{item.reason}",
        item.evidence,
        item.next_step,
        item.links,
    )


def _open_questions(facts: Facts, method: Method, reason: Item | None) -> list[str]:
    """Unknown facts that a rule before or at the one that held asks for."""
    asked = DECISIVE[method]
    if reason is not None and reason.key == "measured":
        asked = (*_BEFORE_DPO, *(() if method is Method.DPO else ("latency_ms",)))
    return [name for name in asked if is_missing(getattr(facts, name))]
