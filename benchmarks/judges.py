"""What a judge model saves of people's votes, and whether the intervals hold.

A simulated crowd of 20 people votes once on each of 100 pairs of 1,000, a judge has a verdict on
all of them. Two systems are compared: the first is somewhat better, and writes the longer answer
more often. Judges: one that knows how likely people are to prefer each answer, two that agree with
66 and 75 % of single votes, and one that mostly takes the longer answer. Saved: 1 − the ratio of
the variances over all runs; the named alternative is the mean of people's votes alone. The formula
is ρ²/(1 + n/N) with ρ² of the judge and single votes over many pairs (measures/ppi.py).

Run: python -m benchmarks.judges [runs]
"""

import os

# One core: set before numpy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.report import print_report, versions
from measures.intervals import wilson
from measures.ppi import JudgedVotes, PpiResult, ppi_estimate

RUNS = 1_000
MANY = 200_000  # pairs on which ρ² and agreement are known as good as exactly
JUDGES = ("perfect", "66 %", "75 %", "length lover")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class World:
    """Standard deviations in logits: of a pair's merit, of what prompts share, of people's taste;
    lead: the first system's, in logits; longer: share of pairs in which its answer is longer."""

    pairs: int = 1_000
    pairs_each: int = 1  # pairs of a prompt
    sampled: int = 100
    votes_each: int = 1
    people: int = 20
    lead: float = 0.3
    of_pairs: float = 2.0
    of_prompts: float = 0.0
    of_people: float = 0.5
    longer: float = 0.75

    @property
    def truth(self) -> float:
        """P(a vote prefers the first system): the mean of σ(x), x normal."""
        spread = np.sqrt(self.of_pairs**2 + self.of_prompts**2 + self.of_people**2)
        return mean_chance(self.lead, float(spread))


@cache
def mean_chance(lead: float, spread: float) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    return float(weights @ expit(lead + spread * nodes) / weights.sum())


def simulated(rng: np.random.Generator, world: World, judge: str) -> JudgedVotes:
    """Whole prompts are sampled until there are world.sampled pairs."""
    prompt = np.arange(world.pairs) // world.pairs_each
    merit = world.lead + world.of_pairs * rng.normal(size=world.pairs)
    merit += world.of_prompts * rng.normal(size=prompt.max() + 1)[prompt]
    verdict = verdicts(rng, world, judge, merit)
    chosen = rng.permutation(prompt.max() + 1)[: world.sampled // world.pairs_each]
    pair = np.repeat(np.flatnonzero(np.isin(prompt, chosen)), world.votes_each)
    # A pair's votes are by different people, and everybody votes about as often.
    turn = rng.permutation(world.people)
    person = turn[(np.arange(len(pair)) + rng.integers(world.people)) % world.people]
    taste = world.of_people * rng.normal(size=world.people)
    score = (rng.random(len(pair)) < expit(merit[pair] + taste[person])).astype(float)
    return JudgedVotes(verdict=verdict, prompt=prompt, score=score, pair=pair, person=person)


def verdicts(rng: np.random.Generator, world: World, judge: str, merit: Floats) -> Floats:
    """(N,) the judge's preference for the first answer."""
    better = (merit > 0).astype(float)
    if judge == "perfect":
        # Over people, of whom it does not know who votes.
        return expit(merit / np.sqrt(1 + np.pi / 8 * world.of_people**2))
    if judge == "length lover":
        longer = (rng.random(len(merit)) < world.longer).astype(float)
        return np.where(rng.random(len(merit)) < 0.8, longer, better)
    wanted = float(judge.removesuffix(" %")) / 100
    return np.where(rng.random(len(merit)) < knows(world, wanted), better, 1 - better)


@cache
def knows(world: World, wanted: float) -> float:
    """How often a judge names the better answer that agrees with so many single votes: c with
    c·q + (1 − c)(1 − q) = wanted, q the agreement of a judge that always does."""
    nodes = NormalDist(world.lead, np.sqrt(world.of_pairs**2 + world.of_prompts**2))
    merit = np.array([nodes.inv_cdf(x) for x in (np.arange(2_000) + 0.5) / 2_000])
    right = float(expit(np.abs(merit) / np.sqrt(1 + np.pi / 8 * world.of_people**2)).mean())
    return (wanted + right - 1) / (2 * right - 1)


def known(judge: str, world: World) -> tuple[float, float]:
    """(agreement with single votes, ρ²) of many pairs."""
    # Every person is another one here: no taste is drawn twice.
    wide = replace(world, pairs=MANY, sampled=MANY, people=MANY, votes_each=1)
    votes = simulated(np.random.default_rng(9), wide, judge)
    agreed = np.where(votes.verdict == 0.5, 0.5, (votes.verdict > 0.5) == votes.score)
    rho = float(np.corrcoef(votes.verdict, votes.score)[0, 1])
    return float(agreed.mean()), rho**2


def covers(found: PpiResult, part: str, truth: float) -> bool:
    interval = getattr(found, part)
    return interval.low is not None and interval.low <= truth <= interval.high


def measured(judge: str, world: World, runs: int) -> dict[str, float]:
    found = [
        ppi_estimate(simulated(np.random.default_rng([run, 17]), world, judge))
        for run in range(runs)
    ]
    ppi = np.array([one.ppi.value for one in found])
    people = np.array([one.people.value for one in found])
    agreement, rho2 = known(judge, world)
    return {
        "agreement": agreement,
        "rho2": rho2,
        "saved": 1 - float(ppi.var() / people.var()),
        "formula": rho2 / (1 + world.sampled / (world.pairs - world.sampled)),
        **{part: float(np.mean([covers(one, part, world.truth) for one in found]))
           for part in ("people", "ppi", "judge")},
        "bias": float(np.mean([one.judge.value for one in found])) - world.truth,
        "half_width_ratio": float(
            np.mean([one.ppi.high - one.ppi.low for one in found])
            / np.mean([one.people.high - one.people.low for one in found])
        ),
    }  # fmt: skip


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    world = World()
    begun = time.perf_counter()
    found = {judge: measured(judge, world, runs) for judge in JUDGES}
    rows = [
        {
            "judge": judge,
            "agrees with a vote": f"{one['agreement']:.3f}",
            "rho2": f"{one['rho2']:.3f}",
            "votes saved, simulated": f"{one['saved']:.3f}",
            "by formula": f"{one['formula']:.3f}",
            "width, of votes alone": f"{one['half_width_ratio']:.3f}",
            "coverage, votes alone": _coverage(one["people"], runs),
            "coverage, PPI": _coverage(one["ppi"], runs),
            "coverage, judge alone": _coverage(one["judge"], runs),
            "bias of judge alone": f"{one['bias']:+.3f}",
        }
        for judge, one in found.items()
    ]
    summary = {
        "runs": runs,
        "pairs": world.pairs,
        "pairs_with_votes": world.sampled,
        "people": world.people,
        "truth": world.truth,
        "saved_of_votes_alone": {judge: one["saved"] for judge, one in found.items()},
        "judges": found,
        "seconds": round(time.perf_counter() - begun, 1),
        "versions": versions("numpy", "scipy"),
    }
    print_report("judges", rows, summary)


def _coverage(share: float, runs: int) -> str:
    found = wilson(round(share * runs), runs)
    return f"{share:.3f} ({found.low:.3f} to {found.high:.3f})"


if __name__ == "__main__":
    main()
