"""Prompts for reinforcement learning beside the demonstrations: overlap and breadth."""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.common.numbers import share as percent
from apps.snapshots.reports.checks import (
    OK,
    STOP,
    UNKNOWN,
    WARN,
    Check,
    check,
    examples,
    excerpt,
    shares,
    table,
    with_interval,
)
from apps.snapshots.reports.material import Frame
from measures.datasets.breadth import Breadth, blind_accuracy, breadth, common_sample, leaks
from measures.duplicates import THRESHOLD, near_matches, normalise
from measures.estimate import Quantity
from measures.splits import overlap_containment
from measures.textmodel import folds_of
from workers.contract.reasons import reason_words

TOO_MUCH = 0.3
_SHOWN = 8


def prompts_build(
    rl: Sequence[str],
    rl_topics: Sequence[str],
    sft: Sequence[str],
    sft_topics: Sequence[str],
    *,
    sft_name: str = "",
) -> dict[str, Any]:
    """rl, sft: the prompts of each; topics: (n,) "" where unknown. sft may be empty."""
    checks = [_overlap(rl, sft, sft_name), _breadth(rl, rl_topics, sft, sft_topics, sft_name)]
    return {"version": 1, "n": len(rl), "looked_at": len(rl), "checks": checks}


def _overlap(rl: Sequence[str], sft: Sequence[str], name: str) -> Check:
    """|SFT ∩ RL| / |RL| over distinct prompts, equal and nearly equal ones."""
    title = "Overlap with the demonstrations"
    if not sft:
        return check(
            "overlap",
            title,
            UNKNOWN,
            "The project has no frozen demonstrations to compare with.",
            advice="Freeze or import the demonstrations that the policy starts from.",
        )
    exact = overlap_containment(sft, rl)
    if exact.containment is None:
        return check("overlap", title, UNKNOWN, f"Undefined: {reason_words(exact.undefined)}.")
    asked = list({normalise(text): text for text in rl}.values())
    known = list({normalise(text): text for text in sft}.values())
    near = near_matches(asked, known)
    seen = {normalise(text) for text in known}
    held = [row >= 0 or normalise(text) in seen for row, text in zip(near.row, asked, strict=True)]
    n_near, share = sum(held), sum(held) / len(asked)
    alike = [k for k, row in enumerate(near.row) if row >= 0 and near.similarity[k] < 1]
    return check(
        "overlap",
        title,
        WARN if share > TOO_MUCH else OK,
        f"{n_near:,} of {len(asked):,} distinct prompts ({percent(share)}) stand in the "
        f"demonstrations “{name}”, or nearly so; {exact.n_both:,} of them are equal. Over "
        f"{100 * TOO_MUCH:.0f} % is too many.",
        advice="The policy has been shown answers to these prompts: it explores little on them, "
        "and what it gains there says little about others. Replace them, or keep them apart when "
        "measuring.",
        basis=f"Containment |SFT ∩ RL| / |RL| over distinct normalised texts. Nearly: at least "
        f"{THRESHOLD:g} of the runs of three words shared; candidates by MinHash, checked exactly.",
        evidence=[
            table(
                "Prompts that the demonstrations hold",
                ["How", "prompts", "of distinct prompts %"],
                [
                    ["equal", exact.n_both, exact.containment],
                    ["equal or nearly so", n_near, share],
                ],
            ),
            examples(
                "Nearly the same",
                (
                    {
                        "left": excerpt(asked[k], 240),
                        "right": excerpt(known[near.row[k]], 240),
                        "note": f"{100 * near.similarity[k]:.0f} % shared",
                    }
                    for k in alike[:_SHOWN]
                ),
                sides=("Here", "In the demonstrations"),
            ),
        ],
    )


def _breadth(
    rl: Sequence[str],
    rl_topics: Sequence[str],
    sft: Sequence[str],
    sft_topics: Sequence[str],
    name: str,
) -> Check:
    """Demonstrations should be varied; prompts for RL may be focused."""
    title = "Breadth of the prompts"
    if not rl:
        return check("breadth", title, UNKNOWN, "There are no prompts.")
    sample = common_sample(rl, sft) if sft else common_sample(rl)
    ours = breadth(rl, rl_topics, sample=sample)
    theirs = breadth(sft, sft_topics, sample=sample) if sft else None
    narrower = _narrower(ours, theirs)
    return check(
        "breadth",
        title,
        WARN if narrower is False else OK if theirs else UNKNOWN,
        _sentence(ours, theirs, narrower),
        advice="Demonstrations teach many kinds of answer and want varied prompts; reinforcement "
        "learning sharpens a few. Where the demonstrations are the narrower list, add to them."
        if theirs
        else "Freeze demonstrations to compare with.",
        basis=f"Distinct words and distinct-2 are those expected in {sample:,} tokens drawn at "
        "random from each list, so that a longer list does not look more varied. Distance is 1 − "
        "the share of runs of three words that two random prompts have in common. The effective "
        "number of topics is exp(entropy).",
        evidence=[_figures(ours, theirs, name)],
    )


def _narrower(ours: Breadth, theirs: Breadth | None) -> bool | None:
    """Whether the RL prompts use fewer different words; None where that cannot be told."""
    if theirs is None or ours.vocabulary.value is None or theirs.vocabulary.value is None:
        return None
    return ours.vocabulary.value <= theirs.vocabulary.value * 1.1


def _sentence(ours: Breadth, theirs: Breadth | None, narrower: bool | None) -> str:
    words = _shown(ours.vocabulary, 0)
    said = f"{ours.n:,} prompts use {words} different words in {ours.sample:,} tokens"
    if theirs is None:
        return f"{said}; there are no demonstrations to set beside them."
    said += f", the {theirs.n:,} demonstrations {_shown(theirs.vocabulary, 0)}"
    ending = {
        True: "the demonstrations are as varied or more so, as they should be.",
        False: "the demonstrations are the narrower list.",
        None: "that cannot be compared.",
    }
    return f"{said}: {ending[narrower]}"


def _figures(ours: Breadth, theirs: Breadth | None, name: str) -> dict[str, Any] | None:
    rows: list[tuple[str, str, int]] = [
        ("Effective number of topics", "topics", 1),
        (f"Distinct words in {ours.sample:,} tokens", "vocabulary", 0),
        ("Distinct pairs of words (distinct-2)", "new_pairs", 3),
        ("Mean distance of two prompts", "distance", 3),
    ]
    made = [
        ["Prompts", f"{ours.n:,}", f"{theirs.n:,}" if theirs else "—"],
        ["Tokens", f"{ours.words:,}", f"{theirs.words:,}" if theirs else "—"],
    ]
    for label, field, places in rows:
        other = _shown(getattr(theirs, field), places) if theirs else "—"
        made.append([label, _shown(getattr(ours, field), places), other])
    return table("Side by side", ["", "these prompts", name or "demonstrations"], made)


def _shown(found: Quantity, places: int) -> str:
    if found.value is None:
        return f"undefined: {reason_words(found.undefined)}"
    return f"{found.value:,.{places}f}"


# Does anything but the answers' words give the label away?

Floats = NDArray[np.float64]

LEAST_PAIRS = 200
PLAIN = 0.6  # accuracy without a word read, from which on the label is as good as given away
_LEAST_ROWS, _MOST_KINDS = 20, 30  # of a label, to be a feature; of features of one kind
_FOLDS = 10


def leakage(frame: Frame) -> Check:
    title = "Label leakage"
    if frame.n < LEAST_PAIRS:
        return check(
            "leakage",
            title,
            UNKNOWN,
            f"Too few training pairs to tell: {frame.n:,} of {LEAST_PAIRS}.",
            advice="Collect more pairs.",
        )
    kinds = _features(frame)
    fold = folds_of(frame.groups, folds=_FOLDS)
    rows = [*kinds.items()]
    everything = np.hstack([values for _, values in rows])
    overall = blind_accuracy(everything, fold, frame.chosen, frame.rejected)
    parts = [
        (name, blind_accuracy(values, fold, frame.chosen, frame.rejected)) for name, values in rows
    ]
    giving = [name for name, found in parts if leaks(found)]
    low = overall.low if overall.low is not None else 0.0
    if not leaks(overall) and not giving:
        level, verdict = (
            OK,
            (
                f"Without a word of the answers, {with_interval(overall)} of the labels can be "
                "guessed, which is what a coin does."
            ),
        )
    else:
        level = STOP if low > PLAIN or any((f.low or 0) > PLAIN for _, f in parts) else WARN
        best = max([("everything together", overall), *parts], key=lambda part: part[1].low or 0)
        verdict = (
            f"Without a word of the answers, {with_interval(best[1])} of the labels can be guessed "
            f"from {best[0][0].lower()}{best[0][1:]}. A coin gets 50 %."
        )
    return check(
        "leakage",
        title,
        level,
        verdict,
        advice="Find out how this came to tell the label: answers imported with the chosen one "
        "always first, one model for chosen and another for rejected, or people who click one "
        "side. Mix the order, pair answers of one origin, and leave out what cannot be fixed.",
        basis="A logistic model that sees order, origin, side and circumstances only, tested on "
        "groups after those it learned from. Each line calls 1 clean dataset in 40 leaking by "
        "chance.",
        evidence=[
            shares("Labels guessed right without reading", [("all together", overall), *parts])
        ],
    )


def _features(frame: Frame) -> dict[str, Floats]:
    """(n, features) chosen − rejected of each kind; what both sides share, by the stored order."""
    order = np.array([1.0 if pair.won_first else -1.0 for pair in frame.rows])[:, None]
    found = {"Order in the store": order}
    won, lost = frame.origins
    origins = _kinds(won + lost)
    if len(origins) > 1:
        found["Origin of the answers"] = _is(origins, won) - _is(origins, lost)
    side = np.array([_side(frame, row) for row in range(frame.n)])[:, None]
    if side.any():
        found["Side they were shown on"] = side
    around = [
        [pair.topic for pair in frame.rows],
        [pair.batch for pair in frame.rows],
        [pair.source for pair in frame.rows],
        [pair.stratum for pair in frame.rows],
        [pair.language for pair in frame.rows],
        [_month(at) for at in frame.at],
    ]
    columns = [_is(_kinds(labels), labels) for labels in around]
    people = _kinds([str(v.person) for pair in frame.rows for v in frame.votes_of(pair)])
    columns.append(_voted(frame, people))
    together = np.hstack(columns)
    if together.shape[1]:
        found["Topic, batch, month and voters, with the order"] = together * order
    return found


def _kinds(labels: Sequence[str]) -> list[str]:
    common = Counter(label for label in labels if label).most_common(_MOST_KINDS)
    return [label for label, n in common if n >= _LEAST_ROWS]


def _is(kinds: Sequence[str], labels: Sequence[str]) -> Floats:
    return (np.array(labels, dtype=str)[:, None] == np.array(kinds, dtype=str)[None, :]).astype(
        np.float64
    )


def _voted(frame: Frame, people: Sequence[str]) -> Floats:
    column = {int(person): k for k, person in enumerate(people)}
    voted = np.zeros((frame.n, len(people)))
    for row, pair in enumerate(frame.rows):
        for vote in frame.votes_of(pair):
            if vote.person in column:
                voted[row, column[vote.person]] = 1.0
    return voted


def _side(frame: Frame, row: int) -> float:
    """How much more often the winner stood left, from −1 to 1; 0 where unknown."""
    known = [v.winner_left for v in frame.votes_of(frame.rows[row]) if v.winner_left is not None]
    return (2 * sum(known) - len(known)) / len(known) if known else 0.0


def _month(at: float) -> str:
    return "" if np.isnan(at) else f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m}"
