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
7. reward model fails its test         DPO, which needs none
8. exploration pays and the reward     PPO
   model has passed
9. otherwise                           DPO

Rules 4 and 5 come after 2 and 3 because neither rules nor SFT learns from votes.
"""

from collections.abc import Callable, Iterator

from measures.advice.facts import (
    BASELINE_ENOUGH,
    SHORT_LATENCY_MS,
    Advice,
    Facts,
    Item,
    Kind,
    Method,
    Rules,
    Task,
    known,
    share,
)
from measures.advice.improving import improvements
from measures.advice.judging import agreement_trouble, reward_passed, reward_trouble
from measures.advice.unknown import DECISIVE, is_missing, unknown_of

Rule = Callable[[Facts], Item | None]

HEADLINES = {
    Method.NOTHING: "Do not train: the model in use already does it.",
    Method.RULES: "Write rules; no training is needed for this.",
    Method.SFT: "Use SFT on checked answers, with a factuality measure.",
    Method.CLEAN: "Clean the data before training on it.",
    Method.COLLECT: "Collect votes first: there is no pair to train on.",
    Method.DPO: "Start with DPO.",
    Method.PPO: "Use PPO with your reward model.",
    Method.UNDECIDED: "Too little is known to advise a method.",
}


def advise(facts: Facts) -> Advice:
    """The method with its reason, what it overrules, hybrids, cautions and next steps."""
    held = [(method, item) for method, rule in _RULES if (item := rule(facts)) is not None]
    unknown = unknown_of(facts)
    if held:
        (method, reason), *others = held
    else:
        method, reason, others = *_default(facts), []
    overruled = [_overruled(item, method) for other, item in others if other is not method]
    agreeing = [item for other, item in others if other is method]
    return Advice(
        method=method,
        headline=HEADLINES[method],
        items=(
            *([reason] if reason else []),
            *agreeing,
            *_hybrids(facts, method),
            *improvements(facts, method),
            *overruled,
        ),
        unknown=unknown,
        provisional=method is Method.UNDECIDED or bool(_open_questions(facts, method)),
    )


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
        then = "Measure factuality on held-out questions before and after, beside the loss."
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
    if trouble := agreement_trouble(facts):
        return Item(
            "agreement",
            Kind.METHOD,
            "People do not agree enough",
            "A model of these votes would learn mostly noise, and no method repairs that: the best "
            "possible reward model cannot agree with people more than they agree with each other "
            "allows.",
            trouble,
            "Read the disputes, settle what the guideline leaves open, and have the worst batches "
            "judged anew under the next version of it.",
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
    trouble = reward_trouble(facts)
    if not trouble:
        return None
    return Item(
        "reward_fails",
        Kind.METHOD,
        "The reward model is not fit to train against",
        "PPO does whatever raises the reward, so a reward that a rule of thumb matches would be "
        "exploited. DPO learns from the pairs directly.",
        trouble,
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


_RULES: tuple[tuple[Method, Rule], ...] = (
    (Method.NOTHING, _baseline),
    (Method.RULES, _rules),
    (Method.SFT, _factual),
    (Method.CLEAN, _agreement),
    (Method.COLLECT, _no_pairs),
    (Method.DPO, _latency),
    (Method.DPO, _reward_fails),
    (Method.PPO, _explore),
)


def _default(facts: Facts) -> tuple[Method, Item | None]:
    """DPO where there are pairs; without knowing even that, nothing."""
    if facts.pairs is None:
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
    if facts.rules is Rules.SOME and method in (Method.DPO, Method.PPO, Method.SFT, Method.CLEAN):
        how = {
            Method.PPO: "As a part of the reward: a fixed penalty where a rule is broken, so that "
            "no learned score can buy it back.",
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


def _overruled(item: Item, method: Method) -> Item:
    return Item(
        item.key,
        Kind.OVERRULED,
        item.title,
        f"It holds, but comes after the reason for the advice ({HEADLINES[method].rstrip('.')}). "
        f"{item.reason}",
        item.evidence,
        item.next_step,
    )


def _open_questions(facts: Facts, method: Method) -> list[str]:
    """Unknown facts that a rule before or at the one that held asks for."""
    asked = DECISIVE[method]
    return [name for name in asked if is_missing(getattr(facts, name))]
