"""Whether a gap between people is one of people: single votes against what several agreed on."""

import random
from collections import Counter

import numpy as np
import pytest

from measures.trust import gaps
from measures.trust.findings import Finding, Verdict
from workers.assess.scores import Scored, same_comparisons
from workers.data.snapshot import Preference

PROMPT = [{"role": "user", "content": "Which?"}]


def judged(seed: int, *, habit: float = 0.0, comparisons: int = 600) -> Finding:
    """Four people vote on each pair and one whom the model never met; all prefer the better answer
    as often, but the four have a habit too, and the model knows both."""
    rng = random.Random(seed)
    decided: list[Preference] = []
    single: list[Preference] = []
    margins: dict[str, float] = {}
    for i in range(comparisons):
        better, liked = rng.gauss(0, 1.5), rng.choice((-1.0, 1.0))
        margins[str(i)] = better + 2 * habit * liked

        def vote(taste: float) -> bool:
            return rng.random() < 1 / (1 + np.exp(-taste))

        votes = Counter(vote(better + 2 * habit * liked) for _ in range(4))
        single.append(_row(i, vote(better), 1.0, 1, f"person {i % 60}"))
        winner, n = votes.most_common(1)[0]
        if n >= 3:  # a snapshot drops what people do not agree on
            decided.append(_row(i, winner, n / 4, 4, ""))
    rows = {"heldout_groups": decided, "heldout_annotators": single}
    scored = {name: _scored(of, margins) for name, of in rows.items()}
    both = same_comparisons(rows, scored, replicates=200)
    assert both is not None
    return gaps.unseen_people(*both)


def _row(i: int, first: bool, share: float, votes: int, person: str) -> Preference:
    chosen, rejected = ("first", "second") if first else ("second", "first")
    return Preference(
        prompt=PROMPT,
        chosen=f"{chosen} {i}",
        rejected=f"{rejected} {i}",
        confidence=share,
        cluster=str(i),
        comparison=str(i),
        votes=votes,
        annotator=person,
    )


def _scored(rows: list[Preference], margins: dict[str, float]) -> Scored:
    sides = [row.chosen for row in rows] + [row.rejected for row in rows]
    names = [row.comparison for row in rows] * 2
    signs = [1 if side.startswith("first") else -1 for side in sides]
    return Scored(np.array([s * margins[n] / 2 for s, n in zip(signs, names, strict=True)]))


def test_single_votes_are_noisier_than_majorities_and_that_is_no_gap_between_people() -> None:
    found = [judged(seed).verdict for seed in range(12)]
    assert found.count(Verdict.RED) <= 1
    assert found.count(Verdict.GREEN) >= 6


@pytest.mark.parametrize("seed", range(3))
def test_a_habit_of_the_people_it_learned_from_is_a_gap(seed: int) -> None:
    assert judged(seed, habit=1.5, comparisons=1200).verdict is Verdict.RED


def test_both_sides_are_asked_about_the_same_pairs() -> None:
    rows = {
        "heldout_groups": [_row(i, True, 1.0, 3, "") for i in range(60)],
        "heldout_annotators": [_row(i, i % 2 == 0, 1.0, 1, "ana") for i in range(20, 90)],
    }
    margins = {str(i): float(i) for i in range(90)}
    scored = {name: _scored(of, margins) for name, of in rows.items()}
    assert same_comparisons(rows, scored, replicates=100) is None  # 40 pairs in common
    rows["heldout_groups"] += [_row(i, True, 1.0, 3, "") for i in range(60, 80)]
    scored["heldout_groups"] = _scored(rows["heldout_groups"], margins)
    seen, unseen = same_comparisons(rows, scored, replicates=100) or pytest.fail("60 in common")
    assert len(seen) == len(unseen) == 60
    assert list(seen.chosen_texts[:2]) == ["first 20", "first 21"]
    assert seen.margins[:2].tolist() == [20.0, 21.0]
    assert unseen.margins[:2].tolist() == [20.0, -21.0]
    assert seen.confidence[0] == pytest.approx(3.5 / 4)  # Jeffreys: three of three votes
