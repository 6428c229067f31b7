"""What stands on the chosen side more often: length, form, tone, origin; what the rows cover."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from apps.common.numbers import share as percent
from apps.snapshots.reports.checks import (
    OK,
    STOP,
    UNKNOWN,
    WARN,
    Check,
    Evidence,
    bars,
    check,
    excerpt,
    shares,
    table,
    with_interval,
    worst,
)
from apps.snapshots.reports.material import Frame
from measures.bootstrap import LEAST_UNITS
from measures.datasets.breadth import effective_number
from measures.datasets.drift import pair_share
from measures.estimate import Interval
from workers.contract.traits import MARKS

Bools = NDArray[np.bool_]

# A share of wins that a reader should know of, and one that leaves little else to learn.
NOTABLE, EXTREME = 0.6, 0.9
LEAST_SHOWN = 10  # pairs behind a share, to be shown at all
MOST_STRATA = 12


def level_of(found: Interval) -> str:
    """How lopsided a share is, either way: by value, and by an interval that excludes 55 %."""
    if found.value is None or found.low is None or found.high is None:
        return OK
    up, low = max((found.value, found.low), (1 - found.value, 1 - found.high))
    if up >= EXTREME and low > NOTABLE:
        return STOP
    return WARN if up >= NOTABLE and low > 0.55 else OK


def holder_wins(frame: Frame, of_chosen: Bools, of_rejected: Bools) -> Interval:
    """Where one side has it and the other not: how often that side is the chosen one."""
    apart = of_chosen != of_rejected
    return pair_share(
        of_chosen[apart].astype(np.float64), frame.chosen[apart], frame.rejected[apart]
    )


# --- length --------------------------------------------------------------------------------------


def length(frame: Frame) -> Check:
    won, lost = frame.tokens[frame.chosen], frame.tokens[frame.rejected]
    overall = holder_wins(frame, won > lost, lost > won)
    title = "Length"
    if overall.value is None:
        return check("length", title, UNKNOWN, "No pair differs in length.")
    level = level_of(overall)
    longer = overall.value >= 0.5
    verdict = (
        f"The {'longer' if longer else 'shorter'} answer is chosen in "
        f"{with_interval(overall if longer else _mirrored(overall))} of the pairs that differ in "
        f"length. Chosen answers have a median of {np.median(won):,.0f} tokens, rejected "
        f"{np.median(lost):,.0f}."
    )
    advice = (
        "A reward model can reach this accuracy by counting words, and a policy trained on it will "
        "learn to write more. Draw or weight the rows by length, collect pairs of like length, and "
        "hold every model against the length-only baseline."
        if longer
        else "A reward model can reach this accuracy by preferring short answers. Draw or weight "
        "the rows by length, and hold every model against the length-only baseline."
    )
    return check(
        "length",
        title,
        level,
        verdict,
        advice=advice,
        basis="Tokens are words and single signs. Short, medium and long are thirds of the pairs "
        "by both lengths together; like length is within a quarter. Pairs that share a text count "
        "as related.",
        evidence=[
            _ratio_histogram(won, lost),
            shares("The longer answer is chosen, by stratum", _strata(frame, won, lost)),
        ],
    )


def _mirrored(found: Interval) -> Interval:
    flip = [None if bound is None else 1 - bound for bound in (found.value, found.high, found.low)]
    return Interval(value=flip[0], low=flip[1], high=flip[2], n=found.n)


# The middles of the bins: log2 of the ratio from −2.5 to 2.5 in steps of a half.
_RATIOS = (
    "under 0.2 ×",
    "¼ ×",
    "0.35 ×",
    "½ ×",
    "0.7 ×",
    "about equal",
    "1.4 ×",
    "2 ×",
    "2.8 ×",
    "4 ×",
    "over 4.8 ×",
)


def _ratio_histogram(won: NDArray[np.int64], lost: NDArray[np.int64]) -> Evidence:
    """log2 of the ratio in steps of a half, the ends open."""
    ratio = np.log2((won + 1) / (lost + 1))
    edges = np.arange(-2.25, 2.3, 0.5)
    place = np.digitize(ratio, edges)
    counts = np.bincount(place, minlength=len(_RATIOS))
    return bars(
        "Length of the chosen answer, against the rejected one",
        [(name, float(n)) for name, n in zip(_RATIOS, counts, strict=True)],
        unit="pairs",
        marked=range(6, 11),
    )


def _strata(
    frame: Frame, won: NDArray[np.int64], lost: NDArray[np.int64]
) -> list[tuple[str, Interval]]:
    total = won + lost
    cuts = np.quantile(total, [1 / 3, 2 / 3]) if frame.n else np.zeros(2)
    thirds = np.digitize(total, cuts, right=True)
    rows: list[tuple[str, Bools]] = [
        (name, thirds == k)
        for k, name in enumerate(("short answers", "medium answers", "long answers"))
    ]
    close = np.abs(np.log((won + 1) / (lost + 1))) <= np.log(1.25)
    rows.append(("answers of like length", close))
    rows += _kinds("topic", [pair.topic for pair in frame.rows])
    rows += _kinds("language", [pair.language for pair in frame.rows])
    rows += _kinds("drawn", [pair.stratum for pair in frame.rows])
    found = []
    for name, inside in rows:
        apart = inside & (won != lost)
        if apart.sum() >= LEAST_SHOWN:
            longer = (won > lost)[apart].astype(np.float64)
            found.append((name, pair_share(longer, frame.chosen[apart], frame.rejected[apart])))
    return found


def _kinds(what: str, labels: Sequence[str]) -> list[tuple[str, Bools]]:
    """The most frequent labels, where there are at least two."""
    named = np.array(labels, dtype=str)
    common = Counter(label for label in labels if label).most_common(MOST_STRATA)
    if len(common) < 2:
        return []
    return [(f"{what} {excerpt(label, 48)}", named == label) for label, _ in common]


# --- form and tone -------------------------------------------------------------------------------


def form(frame: Frame) -> Check:
    return _marked(
        frame,
        "form",
        "Format",
        ("markdown", "list", "heading", "bold", "code", "table", "link"),
        advice="Look at pairs where only one answer is formatted: is it better, or does it only "
        "look tidier? Annotators who see rendered text often prefer lists. Weight such pairs down, "
        "or say in the guidelines what format is worth.",
    )


def refusals(frame: Frame) -> Check:
    return _marked(
        frame,
        "refusals",
        "Refusals",
        ("refusal",),
        advice="Where refusing wins nearly always a policy learns to refuse what it should answer; "
        "where it loses nearly always, to answer what it should refuse. Read the pairs, and add "
        "the ones that are missing.",
    )


def tone(frame: Frame) -> Check:
    return _marked(
        frame,
        "tone",
        "Politeness and warmth",
        ("polite", "exclaims", "asks_back"),
        advice="Being pleasant is easier to learn than being right. Look at pairs where only one "
        "answer is polite, and see under “Reasons” whether the winners are also correct.",
    )


def _marked(frame: Frame, key: str, title: str, keys: Iterable[str], *, advice: str) -> Check:
    words = {"markdown": "any Markdown"} | MARKS
    found, coverage, levels, loudest = [], [], [], ("", 0.0, "")
    for name in keys:
        has = np.array([name in marks for marks in frame.marks], dtype=bool)
        won, lost = has[frame.chosen], has[frame.rejected]
        share = holder_wins(frame, won, lost)
        if not (won.any() or lost.any()):
            continue
        coverage.append([words[name], float(won.mean()), float(lost.mean()), int(share.n)])
        if share.n < LEAST_SHOWN or share.value is None:
            continue
        found.append((words[name], share))
        # What stands in one pair of fifty cannot be most of what is learned.
        level = level_of(share) if share.n >= 0.02 * frame.n else OK
        levels.append(level)
        distance = abs(share.value - 0.5) + (1 if level != OK else 0)
        if distance > loudest[1]:
            loudest = (words[name], distance, with_interval(share))
    if not coverage:
        return check(key, title, OK, "No training answer shows any of these marks.")
    verdict = (
        f"Where only one answer has {loudest[0]}, that one is chosen in {loudest[2]}."
        if loudest[0]
        else "Too few pairs differ in any of these marks to tell."
    )
    return check(
        key,
        title,
        worst(levels) if found else UNKNOWN,
        verdict,
        advice=advice,
        basis="Found by pattern: form in any language, wording in English only.",
        evidence=[
            shares("Chosen, where only one of the two answers has it", found),
            table(
                "How often it occurs",
                ["Mark", "of chosen %", "of rejected %", "pairs that differ"],
                coverage,
            ),
        ],
    )


# --- what the rows cover -------------------------------------------------------------------------


def sources(frame: Frame) -> Check:
    """Win rates of where answers come from, over pairs of different origins."""
    title = "Where the answers come from"
    won, lost = frame.origins
    apart = [row for row in range(frame.n) if won[row] and lost[row] and won[row] != lost[row]]
    if not apart:
        named = {name for name in (*won, *lost) if name}
        said = (
            f"All answers that name a common origin come from “{min(named)}”."
            if len(named) == 1
            else "No pair has answers of two different origins, so origin tells nothing."
            if named
            else f"No origin is named by {LEAST_UNITS} different answers or more."
        )
        return check("sources", title, OK if named else UNKNOWN, said, advice=_NO_ORIGIN)
    met: dict[str, dict[int, float]] = defaultdict(dict)
    for row in apart:
        met[won[row]][row] = 1.0
        met[lost[row]][row] = 0.0
    ordered = sorted(met, key=lambda name: (-len(met[name]), name))[:MOST_STRATA]
    found = []
    for name in ordered:
        rows = np.array(list(met[name]), dtype=np.int64)
        if len(rows) >= LEAST_SHOWN:
            wins = list(met[name].values())
            found.append((name, pair_share(wins, frame.chosen[rows], frame.rejected[rows])))
    levels = [
        STOP if share.low is not None and share.low > EXTREME else WARN
        for _, share in found
        if share.value is not None and share.low is not None and share.low > 0.7
    ]
    top = max(found, key=lambda item: item[1].value or 0, default=None)
    verdict = (
        f"{len(apart):,} pairs have answers of different origin; “{top[0]}” wins most often, in "
        f"{with_interval(top[1])}."
        if top
        else f"Only {len(apart):,} pairs have answers of different origin."
    )
    return check(
        "sources",
        title,
        worst(levels),
        verdict,
        advice="A better model may win fairly. But if its answers can be told by their form, a "
        "reward model learns whose they are. Pair answers of one origin too, and see “Label "
        "leakage”.",
        evidence=[shares("Chosen, where the other answer is of another origin", found)],
    )


_NO_ORIGIN = "Name the origin of answers when importing (origin_a, origin_b or model_a, model_b)."


def coverage(frame: Frame) -> Check:
    """Topics and languages of the training rows."""
    title = "Topics and languages"
    topics = Counter(pair.topic or pair.group for pair in frame.rows)
    languages = Counter(pair.language for pair in frame.rows if pair.language)
    effective = effective_number(list(topics.values()))
    if effective.value is None:
        return check("coverage", title, UNKNOWN, "There are no training rows.")
    (largest, n), *_ = topics.most_common(1)
    share, name = n / frame.n, excerpt(largest or "unnamed", 60)
    narrow = len(topics) > 1 and (effective.value < 3 or share > 0.5)
    alone = len(topics) == 1
    verdict = (
        f"All rows are of one topic, “{name}”."
        if alone
        else f"{len(topics):,} topics, as varied as {effective.value:.1f} equally frequent ones; "
        f"the largest, “{name}”, has {percent(share)} of the rows."
    )
    if languages:
        verdict += f" Languages: {', '.join(code for code, _ in languages.most_common(5))}."
    return check(
        "coverage",
        title,
        WARN if narrow or alone else OK,
        verdict,
        advice="A reward model from few topics is measured and used outside them at its own risk. "
        "Add prompts of other topics, or weight topics by their inverse frequency.",
        basis="The effective number is exp(entropy) of the topics’ shares.",
        evidence=[
            bars(
                "Training rows by topic",
                [
                    (excerpt(t or "unnamed", 60), float(k))
                    for t, k in topics.most_common(MOST_STRATA)
                ],
                unit="rows",
            )
        ],
    )
