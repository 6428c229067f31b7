"""Questions to the reward whose answer is known: which pairs are asked, and what is made of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from measures.messages import Messages
from tests.workers.recipes.language import assistant, user
from workers.contract.events import RecipeError
from workers.data.snapshot import Preference
from workers.ppo.evaluation import (
    MOST_PAIRS,
    Baseline,
    RewardProbes,
    accuracy,
    changed,
    read_probes,
)
from workers.ppo.evaluation import protocol_number as number
from workers.rewards.cache import CachedReward, ScoreCache
from workers.rewards.source import Part, Scores, WeightedSum
from workers.rollouts.local import Sampling


@dataclass(frozen=True)
class Row:
    prompt: Messages
    response: str
    truncated: bool = False

    @property
    def ids(self) -> list[int]:
        return list(self.response.encode())

    @property
    def prompt_length(self) -> int:
        return 0


class Restless:
    """Scores a text by its length, plus what it was asked before."""

    def __init__(self, drift: float = 0.0) -> None:
        self.asked, self.drift = 0, drift

    def encode(
        self, prompts: Sequence[Messages], responses: Sequence[str]
    ) -> list[tuple[Row, ...]]:
        return [(Row(p, r),) for p, r in zip(prompts, responses, strict=True)]

    def score_rows(self, rows: Sequence[tuple[Row, ...]]) -> Scores:
        self.asked += 1
        return Scores([len(row.response) + self.drift * self.asked for (row,) in rows])

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        return self.score_rows(self.encode(prompts, responses))


def pair(chosen: str, rejected: str) -> Preference:
    return Preference(user("say"), chosen, rejected)


def kept(*texts: str) -> Baseline:
    rows = [(user("say"), text) for text in texts]
    scores = [float(len(text)) for text in texts]
    return Baseline([0.0], 0.0, 1.0, 4.0, deviation=2.0, kept=rows, kept_scores=scores)


@dataclass
class Context:
    """As much of a run's context as the probes ask for."""

    folders: Mapping[str, Path]

    class spec:
        seed = 3

    def has_input(self, role: str) -> bool:
        return role in self.folders

    def input_path(self, role: str) -> Path:
        return self.folders[role]


def snapshot(folder: Path, **splits: Sequence[tuple[str, str, float]]) -> Path:
    folder.mkdir()
    for split, rows in splits.items():
        lines = [
            {
                "prompt": user(f"say {i}"),
                "chosen": assistant(chosen),
                "rejected": assistant(rejected),
                "confidence": confidence,
            }
            for i, (chosen, rejected, confidence) in enumerate(rows)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    return folder


def test_ties_count_half() -> None:
    pairs = [pair("long", "no"), pair("no", "long"), pair("same", "four"), pair("longer", "no")]
    assert accuracy(Restless(), pairs) == (1 + 0 + 0.5 + 1) / 4


def test_a_reward_that_stays_itself_reproduces_exactly() -> None:
    assert changed(Restless(), kept("a", "bcd"), deviation=2.0) == 0.0


def test_a_change_is_told_in_deviations_of_the_scores() -> None:
    assert changed(Restless(drift=3.0), kept("a", "bcd"), deviation=2.0) == 1.5
    assert changed(Restless(drift=3.0), kept("a"), deviation=0.0) == 3.0


def test_no_cache_hides_a_reward_that_changed() -> None:
    """Neither one around the source nor one around a part of a sum."""
    cached = CachedReward(Restless(drift=3.0), "v1", ScoreCache(None, entries=100, seconds=60))
    cached.score([user("say")], ["a"])
    assert cached.score([user("say")], ["a"]).values == [4.0]
    assert changed(cached, kept("a"), deviation=1.0) > 0
    assert changed(WeightedSum([Part("one", 1.0, cached)]), kept("a"), deviation=1.0) > 0


def test_before_there_are_scores_the_references_deviation_is_the_measure() -> None:
    found = RewardProbes().metrics(Restless(drift=3.0), kept("a"), deviation=0.0)
    assert found == {"eval/reproducibility": 1.5}
    assert RewardProbes().metrics(Restless(), None, deviation=1.0) == {}


def test_held_out_pairs_are_asked_and_training_ones_where_there_are_no_others(
    tmp_path: Path,
) -> None:
    rows = [("good", "bad", 1.0)]
    both = snapshot(tmp_path / "both", train=rows, dev=[("held", "out", 1.0)])
    alone = snapshot(tmp_path / "alone", train=rows)
    found = read_probes(Context({"canaries": both, "reward_data": alone})).pairs
    assert [p.chosen for p in found["eval/canary_accuracy"]] == ["held"]
    assert [p.chosen for p in found["eval/reward_data_accuracy"]] == ["good"]


def test_at_most_sixty_four_pairs_are_asked_and_always_the_same(tmp_path: Path) -> None:
    many = snapshot(tmp_path / "many", train=[(f"{i}", "x", 0.9) for i in range(200)])
    first, again = (read_probes(Context({"canaries": many})).pairs for _ in range(2))
    assert first == again
    assert len(first["eval/canary_accuracy"]) == MOST_PAIRS


def test_what_nobody_decided_is_not_asked(tmp_path: Path) -> None:
    ties = [("one", "other", 0.5), ("same", "same", 1.0)]
    undecided = snapshot(tmp_path / "ties", train=ties)
    with pytest.raises(RecipeError, match="'canaries'"):
        read_probes(Context({"canaries": undecided}))


def test_a_protocol_is_its_prompts_and_how_they_are_sampled() -> None:
    ids, sampling = [[1, 2], [3]], Sampling(8, seed=5)
    own = number(ids, sampling)
    assert own == number([[1, 2], [3]], Sampling(8, seed=5))
    assert own == int(own) < 2**31
    others = {
        number([[1], [2, 3]], sampling),
        number(ids, Sampling(9, seed=5)),
        number(ids, Sampling(8, temperature=0.5, seed=5)),
        number(ids, Sampling(8, top_p=0.9, seed=5)),
        number(ids, Sampling(8, seed=6)),
    }
    assert len(others - {own}) == 5
