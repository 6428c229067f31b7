"""Which model is better, from the votes on answers whose models are known."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.agreement.selectors.slices import Comparisons
from apps.agreement.selectors.votes import VoteColumns
from measures.model_ranking import (
    CONTROLS,
    ModelVotes,
    Order,
    bradley_terry,
    meetings,
    win_rates,
)
from measures.voting import CHOICES, Choice

Ints = NDArray[np.int64]

MOST_MODELS = 40  # those with most votes; a table of more pairs is read by nobody
MOST_TOPICS = 12
_SCORES = {Choice.A: 1.0, Choice.B: 0.0, Choice.TIE: 0.5, Choice.BOTH_BAD: np.nan}


def model_figures(columns: VoteColumns, about: Comparisons) -> dict[str, Any]:
    """The pairs of models, their order without and with controls, and their rates by topic.

    columns: the votes that count (`counted_votes`). Comparisons of a model with itself and those
    that do not name both models are left out and counted.
    """
    rows = about.rows_of(columns.comparison)
    first, second = about.model_a[rows], about.model_b[rows]
    named = np.array([key for key, name in about.names.items() if name], dtype=np.int64)
    known = np.isin(first, named) & np.isin(second, named) & (first != second)
    keys, counts = np.unique(np.r_[first[known], second[known]], return_counts=True)
    kept = np.sort(keys[np.argsort(-counts, kind="stable")[:MOST_MODELS]])
    shown = known & np.isin(first, kept) & np.isin(second, kept)
    votes = _votes(columns.only(shown), about, rows[shown], kept)
    return {
        "names": [about.names[key] for key in kept.tolist()],
        "n_votes": len(votes),
        "n_unnamed": int((~known).sum()),
        "n_models_left_out": len(keys) - len(kept),
        "pairs": [asdict(pair) for pair in meetings(votes)],
        "orders": {
            "plain": _order(bradley_terry(votes)),
            "controlled": _order(bradley_terry(votes, controls=CONTROLS)),
        },
        "rates": [asdict(rate) for rate in win_rates(votes)],
        "topics": _topics(votes, about, about.topic[rows[shown]]),
    }


def _votes(columns: VoteColumns, about: Comparisons, rows: Ints, models: Ints) -> ModelVotes:
    scores = np.array([_SCORES[choice] for choice in CHOICES])
    length_a, length_b = (np.maximum(of[rows], 1) for of in (about.length_a, about.length_b))
    return ModelVotes(
        n_models=len(models),
        first=np.searchsorted(models, about.model_a[rows]),
        second=np.searchsorted(models, about.model_b[rows]),
        score=scores[columns.choice],
        prompt=about.prompt[rows],
        person=columns.annotator,
        side=np.where(columns.left == -1, 0.0, columns.left - 0.5),
        length=np.log(length_a / length_b),
    )


def _order(order: Order) -> dict[str, Any]:
    strengths = [
        asdict(strength) | dict(zip(("wins", "wins_low", "wins_high"), strength.wins, strict=True))
        for strength in order.strengths
    ]
    return asdict(order) | {"strengths": strengths}


def _topics(votes: ModelVotes, about: Comparisons, topic: Ints) -> list[dict[str, Any]]:
    """Rates within each of the topics with most votes; those without a topic are in none."""
    found, counts = np.unique(topic, return_counts=True)
    parts: list[dict[str, Any]] = []
    for key in found[np.argsort(-counts, kind="stable")].tolist():
        name = about.names.get(key, "")
        if not name or len(parts) == MOST_TOPICS:
            continue
        here = votes.only(topic == key)
        parts.append(
            {
                "topic": name,
                "n_votes": len(here),
                "rates": [asdict(rate) for rate in win_rates(here)],
            }
        )
    return parts
