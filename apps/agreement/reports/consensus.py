"""What the comparison of models of the voters says, in sentences with its numbers."""

from measures.consensus import Check, Comparison, Ranged
from measures.consensus.choosing import COUNTING, INCUMBENT, LEAST_JUDGED, Known
from measures.consensus.held_out import LEAST_VOTES

WORDS = {
    "votes": "counting votes",
    "one_coin": "one-coin Dawid–Skene",
    "dawid_skene": "Dawid–Skene",
    "mace": "MACE",
}


def check_said(check: Check) -> str:
    """Why a model's check on held-back votes passed, or did not."""
    if check.fault == "too_few":
        return (
            f"too few to say: {check.n_votes} votes stand beside another vote on the same "
            f"comparison, {LEAST_VOTES} are needed"
        )
    return _CHECKED[check.fault].format(
        votes=f"n = {check.n_votes:,} votes",
        behind=-check.gain.value if check.gain else 0.0,
        slope=_span(check.slope),
        points=100 * check.calibration_error.value if check.calibration_error else 0.0,
        spread=check.spread,
    )


_CHECKED = {
    "": "calibrated: predicted shares of votes hold within {points:.1f} points on average, slope "
    "{slope} ({votes})",
    "counting": "not calibrated: counting the other votes predicts a vote better, by {behind:.3f} "
    "nats ({votes})",
    "over_confident": "not calibrated: it is over-confident, slope {slope} where 1 is right "
    "({votes})",
    "too_timid": "not calibrated: it is too timid, slope {slope} where 1 is right ({votes}). "
    "Annotators differ more than it takes them to",
    "off": "not calibrated: predicted shares of votes are off by {points:.1f} points on average "
    "({votes})",
    "uneven": "not calibrated: agreement differs {spread.value:.2f} times as much between "
    "comparisons as the model says ({spread.low:.2f} to {spread.high:.2f}, {votes}). Comparisons "
    "differ in difficulty, or annotators err together",
}


def _span(stretch: Ranged | None) -> str:
    if stretch is None:
        return "undefined, since all predictions are even"
    return f"{stretch.value:.2f}, {stretch.low:.2f} to {stretch.high:.2f}"


def reason_said(found: Comparison) -> str:
    """Why this way to decide is recommended."""
    check = found.checks[INCUMBENT if found.method == COUNTING else found.method]
    n, gain = check.n_votes, check.gain
    if found.method == COUNTING and n < LEAST_JUDGED:
        return (
            f"counting votes: {n:,} votes stand beside another on the same comparison, too few to "
            f"learn who is reliable ({LEAST_JUDGED} are needed)"
        )
    if found.method == COUNTING or gain is None:
        return (
            "counting votes: no model of the voters predicts a held-back vote better than counting "
            f"the others does (n = {n:,} votes)"
        )
    if found.lead is None:
        return (
            f"{WORDS[found.method]}: it predicts a held-back vote better than counting, by "
            f"{gain.value:.3f} nats ({gain.low:.3f} to {gain.high:.3f}, n = {n:,} votes), and no "
            "other model does so clearly better still"
        )
    return (
        f"{WORDS[found.method]}: it predicts a held-back vote better than {WORDS[INCUMBENT]}, by "
        f"{found.lead:.3f} nats, and than counting, by {gain.value:.3f} (n = {n:,} votes)"
    )


def trust_said(found: Comparison) -> str:
    """Whether its posteriors may be read as probabilities of being right."""
    if found.method == COUNTING:
        return "shares of votes are no probabilities of being right"
    if found.known is not None:
        return _KNOWN[found.trusted, _inside(found.known)].format(seen=_seen(found.known))
    if found.trusted is None:
        return "it predicts votes well; how often it is right is not known"
    return "its calibration check did not pass, so its posteriors are not probabilities"


_KNOWN = {
    (True, True): "its posteriors may be read as probabilities: {seen}",
    (False, True): "its calibration check did not pass, though {seen}",
    (False, False): "its posteriors are not probabilities of being right: {seen}",
}


def _inside(known: Known) -> bool:
    return known.low <= known.claimed <= known.high


def _seen(known: Known) -> str:
    return (
        f"it claims {known.claimed:.1%} right where answers are known, and {known.right:.1%} are "
        f"({known.low:.1%} to {known.high:.1%}, n = {known.n:,})"
    )


def caution_said(found: Comparison) -> str | None:
    """None where it overrules few clear majorities."""
    if not found.overrules_much:
        return None
    return (
        f"{WORDS[found.method]} overrules {found.overruled:.0%} of the comparisons with a lead of "
        "two votes or more. A few people who agree with each other may be the experts or a clique: "
        "votes cannot tell, gold comparisons can"
    )
