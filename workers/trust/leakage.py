"""Can the winner be told without reading the answers?

A logistic model that is given everything but the answers is tested on groups that come after those
it learned from (`measures.datasets.breadth.blind_accuracy`). What it can tell, a reward model can
learn instead of quality, and every accuracy on such pairs is too high.
"""

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from measures.accuracy import pair_credit
from measures.blocks import Intervals, Table
from measures.corpus import Corpus
from measures.datasets.breadth import CHANCE, blind_accuracy, leaks
from measures.estimate import Interval
from measures.textmodel import folds_of
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.significance import Pairs, difference_of, share_of
from workers.contract.numbers import percent, share
from workers.trust.wording import some

Floats = NDArray[np.float64]

LEAST_PAIRS = 200
LEAST_ROWS = 20  # of a label or a word, to be a feature
MOST_KINDS = 30  # of one column
MOST_WORDS = 200  # of the prompts
_FOLDS = 10


def prompt_only(pairs: Pairs, blind_margins: Floats | None = None) -> Finding:
    """Red: from the prompt's words and the order in which the answers were stored, who wins can be
    told better than by a coin, by more than chance.

    A prompt is the same for both answers, so alone it says nothing about which; it can tell only
    that the first, or the second, wins. Without `Pairs.order` there is nothing to tell it by.
    blind_margins: (n,) margins of the same answers scored under another row's prompt: how much of
    the model's accuracy it keeps without the prompt. That is shown and does not decide, because
    good answers are often better to any question.
    """
    line = "prompt_only"
    kept, evidence = _without_prompt(pairs, blind_margins)
    order = _order(pairs)
    if order is None:
        told = "" if not kept else f" {_kept_words(kept)}"
        return unmeasured(
            line,
            "The dataset does not say which answer of a pair was stored first, and a prompt alone "
            f"can tell no more than that.{told}",
            evidence=evidence,
        )
    return _judged(
        pairs,
        line,
        {
            "the prompt and the order": np.hstack([_prompt_words(pairs), np.ones((len(pairs), 1))])
            * order[:, None]
        },
        extra=evidence,
        facts=kept,
        after=f" {_kept_words(kept)}" if kept else "",
    )


def metadata_only(pairs: Pairs) -> Finding:
    """Red: from origin, order, topic, annotator and time, who wins can be told better than by a
    coin, by more than chance, from all together or from one of them (Bonferroni)."""
    line = "metadata_only"
    kinds = _metadata(pairs)
    if not kinds:
        return unmeasured(
            line,
            "The dataset says neither where the answers come from nor which was stored first.",
        )
    return _judged(pairs, line, kinds, extra=_by_origin(pairs))


def _judged(
    pairs: Pairs,
    line: str,
    kinds: Mapping[str, Floats],
    *,
    extra: Sequence[Intervals | Table] = (),
    facts: Mapping[str, float] | None = None,
    after: str = "",
) -> Finding:
    rows = pairs.decided
    n = int(rows.sum())
    if n < LEAST_PAIRS:
        return unmeasured(
            line, f"{some(n)}: too few. At least {LEAST_PAIRS} are needed.", evidence=extra
        )
    first, second = _units(pairs)
    fold = folds_of(np.asarray(_together(pairs), dtype=object)[rows].tolist(), folds=_FOLDS)
    features = dict(kinds)
    if len(kinds) > 1:
        features = {"everything together": np.hstack(list(kinds.values())), **features}
    found = {
        name: blind_accuracy(values[rows], fold, first[rows], second[rows])
        for name, values in features.items()
    }
    name, of = max(found.items(), key=lambda item: item[1].low or 0.0)
    if of.low is None or of.value is None:
        return unmeasured(
            line,
            "There are too few different prompts to learn from some and to test on others. Hold "
            "out more.",
            evidence=extra,
        )
    whole = next(iter(found.values()))
    giving = [key for key, one in found.items() if leaks(_widened(one, len(found)))]
    evidence = (
        Intervals(
            title="Winners told without reading the answers",
            rows=tuple((key[0].upper() + key[1:], one) for key, one in found.items()),
            reference=CHANCE,
            reference_label="a coin",
        ),
        *extra,
    )
    known = {"accuracy": whole.value, "giving": giving, **(facts or {})}
    if giving:
        name = max(giving, key=lambda key: found[key].value or 0.0)
        return Finding(
            line=line,
            verdict=Verdict.RED,
            says=f"{share(found[name])} of {found[name].n:,} winners can be told from {name}, "
            f"without reading an answer. A coin gets 50 %.{after}",
            figure=found[name],
            evidence=evidence,
            facts=known,
        )
    return Finding(
        line=line,
        verdict=Verdict.GREEN,
        says=f"{share(whole)} of {whole.n:,} winners can be told from "
        f"{next(iter(found))}, which is what a coin does.{after}",
        figure=whole,
        evidence=evidence,
        facts=known,
    )


def _widened(found: Interval, looks: int) -> Interval:
    """The interval with its error shared among several looks (Bonferroni, normal)."""
    if found.low is None or found.high is None or found.value is None or looks < 2:
        return found
    factor = float(ndtri(1 - 0.025 / looks) / ndtri(0.975))
    return Interval(
        value=found.value,
        low=found.value - (found.value - found.low) * factor,
        high=found.value + (found.high - found.value) * factor,
        n=found.n,
        n_clusters=found.n_clusters,
    )


def _metadata(pairs: Pairs) -> dict[str, Floats]:
    """(n, features) chosen − rejected of each kind; what both sides share, by the stored order."""
    found: dict[str, Floats] = {}
    if len(pairs.sources) == len(pairs):
        won, lost = [a for a, _ in pairs.sources], [b for _, b in pairs.sources]
        origins = _kinds(won + lost)
        signed = _is(origins, won) - _is(origins, lost)
        if signed.any():
            found["the origin of the answers"] = signed
    order = _order(pairs)
    if order is not None:
        found["the order in which they were stored"] = order[:, None]
        around = [
            _is(_kinds(labels), labels)
            for labels in (list(pairs.groups), list(pairs.annotators), _months(pairs))
            if len(labels) == len(pairs)
        ]
        together = np.hstack(around) if around else np.zeros((len(pairs), 0))
        if together.shape[1]:
            found["topic, annotator and month, with the order"] = together * order[:, None]
    return found


def _order(pairs: Pairs) -> Floats | None:
    order = np.asarray(pairs.order, dtype=float)
    return order if len(order) == len(pairs) and order.any() else None


def _kinds(labels: Sequence[str]) -> list[str]:
    common = Counter(label for label in labels if label).most_common(MOST_KINDS)
    return [label for label, n in common if n >= LEAST_ROWS]


def _is(kinds: Sequence[str], labels: Sequence[str]) -> Floats:
    return (np.array(labels, dtype=str)[:, None] == np.array(kinds, dtype=str)[None, :]).astype(
        np.float64
    )


def _months(pairs: Pairs) -> list[str]:
    return [
        "" if np.isnan(at) else f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m}"
        for at in np.asarray(pairs.times, dtype=float)
    ]


def _prompt_words(pairs: Pairs) -> Floats:
    """(n, words) 1 where the prompt holds one of its most common words that not all hold."""
    presence = Corpus(list(pairs.prompts)).counts(least_texts=LEAST_ROWS).presence
    n_texts = np.asarray(presence.sum(axis=0)).ravel()
    usable = np.flatnonzero(n_texts < len(pairs))
    kept = usable[np.argsort(-n_texts[usable], kind="stable")][:MOST_WORDS]
    return np.asarray(presence[:, kept].todense(), dtype=np.float64)


def _units(pairs: Pairs) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
    if pairs.units is not None and len(pairs.units):
        keys = np.asarray(pairs.units, dtype=object).reshape(-1, 2).astype(str)
        return keys[:, 0], keys[:, 1]
    # Rows of a cluster hang together: the cluster stands for both of its sides.
    names = np.asarray([str(name) for name in pairs.clusters])
    return names, names


def _together(pairs: Pairs) -> Sequence[str]:
    """What must not stand on both sides of a fold: topics where there are enough, else clusters."""
    if len(pairs.groups) == len(pairs) and len(set(pairs.groups)) >= _FOLDS:
        return [str(name) for name in pairs.groups]
    return [str(name) for name in pairs.clusters]


def _without_prompt(
    pairs: Pairs, blind_margins: Floats | None
) -> tuple[dict[str, float], tuple[Intervals, ...]]:
    """Facts and evidence of the model scored under other prompts."""
    if blind_margins is None:
        return {}, ()
    rows = pairs.decided
    blind = pair_credit(blind_margins)
    with_it = share_of(pairs, pairs.credit(), where=rows)
    without = share_of(pairs, blind, where=rows)
    lost = difference_of(pairs, pairs.credit() - blind, where=rows)
    if with_it.value is None or without.value is None:
        return {}, ()
    facts = {"with_prompt": with_it.value, "without_prompt": without.value}
    if with_it.value > CHANCE:
        facts["kept"] = (without.value - CHANCE) / (with_it.value - CHANCE)
    if lost.value is not None:
        facts["lost"] = lost.value
    return facts, (
        Intervals(
            title="The model, with the prompt and under another one",
            rows=(("Its own prompt", with_it), ("Another prompt", without)),
            reference=CHANCE,
            reference_label="a coin",
        ),
    )


def _kept_words(kept: Mapping[str, float]) -> str:
    return (
        f"The model is right on {percent(kept['with_prompt'])} with the prompt and on "
        f"{percent(kept['without_prompt'])} under another one."
    )


def _by_origin(pairs: Pairs) -> tuple[Table, ...]:
    """How often the model and people prefer each origin, where the two sides differ."""
    if len(pairs.sources) != len(pairs):
        return ()
    won = np.array([a for a, _ in pairs.sources])
    lost = np.array([b for _, b in pairs.sources])
    rows = []
    credit = pairs.credit()
    for name in _kinds([*won.tolist(), *lost.tolist()]):
        apart = ((won == name) != (lost == name)) & pairs.decided
        if not apart.any():
            continue
        by_model = np.where(won == name, credit, 1 - credit)[apart].mean()
        by_people = (won == name)[apart].mean()
        rows.append((name, int(apart.sum()), float(by_model), float(by_people)))
    if not rows:
        return ()
    return (
        Table(
            title="Prefers answers of each origin",
            columns=("Origin", "Pairs", "This model", "People"),
            formats=("text", "count", "share", "share"),
            rows=tuple(rows),
            note="Of pairs in which one answer comes from there and the other does not.",
        ),
    )
