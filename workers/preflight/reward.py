"""The reward before anything is optimised against it. Plain scores in, findings out. No torch.

A reward that does not prefer the answers of a weak expert to noise teaches noise; one whose scores
are all alike teaches nothing; one with its sign turned teaches the opposite (SPEC E17, D10).
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from transformers import PreTrainedTokenizerBase

from measures.bootstrap import LEAST_UNITS
from measures.estimate import Interval
from measures.intervals import paired_difference
from measures.messages import Messages
from measures.trust.significance import Pairs, share_of
from workers.contract.numbers import number, plain, share
from workers.data.snapshot import Demonstration, Preference, as_drawn, prompt_key
from workers.models.loading import stop_ids
from workers.preflight.findings import BLOCK, OK, UNKNOWN, WARN, Finding, Parts
from workers.rollouts.local import Responses, Sampling, derive_seed, generate
from workers.trust.shapes import ALIKE, LEAST_PAIRS, LEAST_SCORES, Shape, histogram, shape_of

LEVEL_OF = {"block": BLOCK, "warn": WARN}  # the setting reward_check


def reward_against_chance(
    expert: ArrayLike,
    chance: ArrayLike,
    prompts: Sequence[str],
    *,
    who: str = "the starting policy's answers",
    level: str = BLOCK,
) -> Finding:
    """Whether a reward prefers a weak expert's answers to random tokens.

    expert, chance: (n,) raw scores of two answers to the same prompt of the same length; prompts:
    (n,) what rows share. The mean difference gets a 95 % interval by resampling whole prompts;
    where its lower bound is not above 0, the finding has `level`. Assumes that the weak expert is
    better than noise, which an untrained model is not.
    """
    ours, noise = np.asarray(expert, dtype=float), np.asarray(chance, dtype=float)
    if not (np.isfinite(ours).all() and np.isfinite(noise).all()):
        return Finding(
            level=level,
            check="reward",
            message="The reward is NaN or infinite for some answers. Repair it before training.",
        )
    found = paired_difference(ours, noise, clusters=list(prompts))
    figures = _figures(ours, noise, found)
    said = (
        f"The reward of {who} is {plain(float(ours.mean()))} on average and that of random tokens "
        f"of the same lengths {plain(float(noise.mean()))}: a difference of {number(found)}, n = "
        f"{len(ours)} each on {found.n_clusters} prompts."
    )
    if _alike(ours, noise):
        return Finding(
            level=level,
            check="reward",
            message=f"The reward gives every answer {plain(float(ours[0]))}, random tokens too: "
            "it is constant and teaches nothing. Choose another reward, or look whether it reads "
            "the answers at all.",
            figures=figures,
        )
    if found.high is not None and found.high < 0:
        said += " It prefers noise: its sign is turned, or it has learned something else."
        return Finding(
            level=level,
            check="reward",
            message=f"{said} Negate it, or train it again with chosen and rejected the right way "
            "round.",
            figures=figures,
        )
    if found.low is None:
        return _without_interval(found, said, figures, level)
    if found.low <= 0:
        return Finding(
            level=level,
            check="reward",
            message=f"{said} It cannot be told from 0, so the reward does not know an answer from "
            "noise here. Choose a reward model that was trained on such prompts, or a policy that "
            "can answer them; reward_check: off overrides this.",
            figures=figures,
        )
    return Finding(level=OK, check="reward", message=said, figures=figures)


def _without_interval(
    found: Interval, said: str, figures: Mapping[str, Any], level: str
) -> Finding:
    """Too few prompts to resample, or a difference that is the same in every row."""
    if (found.n_clusters or 0) < LEAST_UNITS:
        return Finding(
            level=UNKNOWN,
            check="reward",
            message=f"{said} {found.n_clusters} prompts are too few for an interval; at least "
            f"{LEAST_UNITS} are needed to tell it from 0.",
            figures=figures,
        )
    better = found.value is not None and found.value > 0
    ending = "" if better else " The reward does not prefer sense to noise. Choose another one."
    return Finding(
        level=OK if better else level, check="reward", message=said + ending, figures=figures
    )


def _figures(expert: Any, chance: Any, found: Interval) -> dict[str, Any]:
    return {
        "mean_expert": float(expert.mean()),
        "mean_random": float(chance.mean()),
        "difference": found.value,
        "low": found.low,
        "high": found.high,
        "n": len(expert),
        "prompts": found.n_clusters,
    }


def _alike(*groups: Any) -> bool:
    """Whether no two scores differ by more than rounding."""
    scores = np.concatenate(groups)
    return bool(np.ptp(scores) <= ALIKE * max(1.0, abs(float(np.median(scores)))))


def reward_shape(
    expert: ArrayLike,
    chance: ArrayLike,
    *,
    who: str = "starting policy",
    level: str = BLOCK,
) -> Finding:
    """The histogram of the scores and its class (`workers.trust.shapes`): all alike has `level`,
    every other bad shape is a warning, for a rule may well give 0 to most answers at first."""
    groups = {
        who: np.asarray(expert, dtype=float),
        "random tokens": np.asarray(chance, dtype=float),
    }
    if len(groups[who]) < LEAST_SCORES:
        return Finding(
            level=UNKNOWN,
            check="reward_shape",
            message=f"{len(groups[who])} scores are too few to show a shape; {LEAST_SCORES} do.",
        )
    if not all(np.isfinite(values).all() for values in groups.values()):
        return Finding(
            level=level, check="reward_shape", message="Some scores are NaN or infinite."
        )
    seen = shape_of(groups[who])
    drawn = finding_block(histogram(groups))
    figures = {"shape": seen.shape.name.lower(), "n": len(groups[who])}
    if seen.shape is Shape.HEALTHY:
        said = f"Healthy: {seen.says}."
        return Finding(
            level=OK, check="reward_shape", message=said, figures=figures, evidence=(drawn,)
        )
    said = f"The scores of the {who} are {seen.shape}: {seen.says}. {ADVICE[seen.shape]}"
    return Finding(
        level=level if seen.shape is Shape.CONSTANT else WARN,
        check="reward_shape",
        message=said,
        figures=figures,
        evidence=(drawn,),
    )


ADVICE = {
    Shape.CONSTANT: "There is nothing to follow: choose another reward.",
    Shape.LOW: "Most answers get the least reward, so few of them teach. Take easier prompts, a "
    "better starting policy, or partial credit.",
    Shape.HIGH: "Most answers get the best reward already, so few of them teach. Take harder "
    "prompts, or a stricter reward.",
    Shape.ENDS: "The reward is pressed against its bounds: train on the score before the sigmoid "
    "or the clipping.",
    Shape.SPARSE: "A few answers decide every update. Look at them, and lower reward_clip.",
    Shape.FLIPPED: "Negate the reward, or look whether chosen and rejected were swapped.",
    Shape.UNRELATED: "Train the reward model on more, or on cleaner, comparisons first.",
}


def reward_and_people(pairs: Pairs, *, level: str = BLOCK) -> Finding:
    """Whether scores have to do with what people chose, on decided pairs of a snapshot: signs
    confused (right less often than a coin, by more than chance) has `level`, no relation that can
    be told from a coin is a warning."""
    check = "reward_people"
    scores = np.concatenate([pairs.chosen_scores, pairs.rejected_scores]).astype(float)
    if not np.isfinite(scores).all():
        return Finding(level=level, check=check, message="Some scores are NaN or infinite.")
    n = int(pairs.decided.sum())
    if n < LEAST_PAIRS:
        return Finding(
            level=UNKNOWN,
            check=check,
            message=f"{n} decided pairs are too few to hold the reward against people; "
            f"{LEAST_PAIRS} are needed.",
        )
    right = share_of(pairs, pairs.credit(), where=pairs.decided)
    said = f"The chosen answer scores over the rejected one in {share(right)} of {n:,} pairs"
    seen, shape = OK, Shape.HEALTHY
    if right.low is None or right.high is None:
        seen, said = UNKNOWN, f"{said}, on too few prompts for an interval."
    elif right.high < 0.5:
        seen, shape = level, Shape.FLIPPED
        said += f", less often than a coin: signs confused. {ADVICE[shape]}"
    elif right.low <= 0.5:
        seen, shape = WARN, Shape.UNRELATED
        said += f": no relation to people that can be told from a coin. {ADVICE[shape]}"
    else:
        said += "."
    sides = {"chosen": pairs.chosen_scores, "rejected": pairs.rejected_scores}
    drawn = histogram({name: np.asarray(values, dtype=float) for name, values in sides.items()})
    return Finding(
        level=seen,
        check=check,
        message=said,
        figures={
            "shape": shape.name.lower(),
            "accuracy": right.value,
            "low": right.low,
            "high": right.high,
            "n": n,
        },
        evidence=(finding_block(drawn),),
    )


def kl_price(
    coefficient: float, reward_std: float | None, *, normalised: bool = True, target: float = 6.0
) -> Finding:
    """What a nat of divergence costs beside what the reward can give (SPEC E3).

    coefficient: in deviations of the reward where it is normalised, else in raw reward, per nat;
    reward_std: deviation of raw scores; target: nats per sequence that the price is shown at.
    """
    figures: dict[str, Any] = {"kl_coef": coefficient, "reward_std": reward_std}
    if not normalised and not reward_std:
        return Finding(
            level=UNKNOWN,
            check="kl_price",
            message=f"The KL penalty is {coefficient:g} of raw reward a nat, whose spread is not "
            "known, so the two cannot be compared.",
            figures=figures,
        )
    ratio = coefficient if normalised else coefficient / float(reward_std or 1.0)
    figures |= {"ratio": ratio, "at_target": ratio * target, "target": target}
    raw = (
        f" ({ratio * reward_std:.2g} of raw reward, whose deviation is {reward_std:.2g})"
        if reward_std
        else ""
    )
    said = (
        f"A nat of divergence costs {ratio:.2g} deviations of the reward{raw}; {target:g} nats, a "
        f"usual distance at the end, cost {ratio * target:.2g}."
    )
    if ratio == 0:
        return Finding(
            level=WARN,
            check="kl_price",
            message="Divergence costs nothing: nothing holds the policy to the reference but the "
            "alarms.",
            figures=figures,
        )
    if ratio < PRICES[0]:
        said += f" That is under {PRICES[0]:g}: expect the policy to drift, and watch the KL."
    elif ratio > PRICES[1]:
        said += f" That is over {PRICES[1]:g}: expect the policy to stay where it is."
    level = OK if PRICES[0] <= ratio <= PRICES[1] else WARN
    return Finding(level=level, check="kl_price", message=said, figures=figures)


PRICES = (0.01, 0.2)  # the range that SPEC E3 sweeps


def finding_block(block: Any) -> dict[str, Any]:
    """A block of evidence as plain JSON, as `measures.trust.findings` writes it."""
    return {name: getattr(block, name) for name in block.__dataclass_fields__}


# Two answers to each of some prompts: random tokens, and those of a weak expert.

ANSWERS = 100  # of each kind (SPEC E17)
BATCH = 32  # answers drawn at once
POLICY = "the starting policy's answers"
LOOKED_AT = 32  # of the policy's own, where somebody else is the expert


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """n prompts with two answers each. `drawn`: the policy's own batches, with the prompts of each,
    where it was asked; `ended`: share of its answers that reached an end."""

    prompts: list[Messages]
    expert: list[str]
    chance: list[str]
    who: str
    drawn: list[tuple[list[Messages], Responses]] = field(default_factory=list)
    ended: float | None = None

    @property
    def by_policy(self) -> bool:
        return self.who == POLICY

    @property
    def keys(self) -> list[str]:
        return [prompt_key(prompt) for prompt in self.prompts]


def draw_trial(
    parts: Parts,
    sampling: Sampling,
    *,
    demonstrations: Sequence[Demonstration] = (),
    preferences: Sequence[Preference] = (),
    answers: int = ANSWERS,
    batch: int = BATCH,
) -> Trial | None:
    """Answers of the weak expert and as many of random tokens, of the same lengths.

    The expert is what people chose, else demonstrations, where the inputs hold some for at least
    `LEAST_UNITS` prompts; else the starting policy. None where there is nobody to ask.
    """
    given = _given(parts, demonstrations, preferences, seed=sampling.seed)[:answers]
    by_hand = len({prompt_key(prompt) for prompt, _ in given}) >= LEAST_UNITS
    drawn: list[tuple[list[Messages], Responses]] = []
    if parts.policy is not None and parts.prompt_ids:
        wanted = min(answers, LOOKED_AT) if by_hand else answers
        drawn = _drawn(parts, sampling, answers=wanted, batch=batch)
    if by_hand:
        who = "the answers people chose" if _chosen(preferences) else "the demonstrations"
        prompts, expert = [p for p, _ in given], [text for _, text in given]
        lengths = [
            len(ids) for ids in parts.tokenizer(expert, add_special_tokens=False)["input_ids"]
        ]
    elif drawn:
        who = POLICY
        prompts = [prompt for of, _ in drawn for prompt in of]
        expert = [text for _, responses in drawn for text in responses.texts]
        lengths = [n for _, responses in drawn for n in _spoken(responses)]
    else:
        return None
    ended = [bool(end) for _, responses in drawn for end in responses.ended]
    noise = random_texts(parts.tokenizer, lengths, seed=derive_seed(sampling.seed, "random"))
    ends = [True] * len(noise) if by_hand else ended  # nobody's text is told by its missing end
    chance = [as_drawn(text, end) for text, end in zip(noise, ends, strict=True)]
    return Trial(
        prompts=prompts,
        expert=expert,
        chance=chance,
        who=who,
        drawn=drawn,
        ended=sum(ended) / len(ended) if ended else None,
    )


def random_texts(
    tokenizer: PreTrainedTokenizerBase, lengths: Sequence[int], *, seed: int
) -> list[str]:
    """For each length a text of so many tokens (at least one), drawn uniformly from the vocabulary
    without the special ones."""
    special = set(tokenizer.all_special_ids)
    words = [i for i in range(len(tokenizer)) if i not in special]
    rng = random.Random(seed)
    return [
        str(tokenizer.decode(rng.choices(words, k=max(1, length)), skip_special_tokens=True))
        for length in lengths
    ]


def _drawn(
    parts: Parts, sampling: Sampling, *, answers: int, batch: int
) -> list[tuple[list[Messages], Responses]]:
    """`answers` of the policy, prompts drawn by seed and taken again where there are too few."""
    n = len(parts.prompt_ids)
    order = list(range(n))
    random.Random(derive_seed(sampling.seed, "prompts")).shuffle(order)
    taken = [order[i % n] for i in range(answers)]
    made = []
    for start in range(0, answers, batch):
        rows = taken[start : start + batch]
        seeded = _seeded(sampling, start)
        responses = generate(
            parts.policy,
            parts.tokenizer,
            [parts.prompt_ids[i] for i in rows],
            seeded,
            stop=stop_ids(parts.policy, parts.tokenizer),
        )
        made.append(([parts.prompts[i] for i in rows], responses))
    return made


def _seeded(sampling: Sampling, start: int) -> Sampling:
    return Sampling(
        sampling.max_new_tokens,
        temperature=sampling.temperature,
        seed=derive_seed(sampling.seed, "answers", start),
    )


def _spoken(responses: Responses) -> list[int]:
    """Tokens of each answer without its end token."""
    return [
        int(length) - int(ended)
        for length, ended in zip(responses.lengths, responses.ended, strict=True)
    ]


def _given(
    parts: Parts,
    demonstrations: Sequence[Demonstration],
    preferences: Sequence[Preference],
    *,
    seed: int,
) -> list[tuple[Messages, str]]:
    """What the inputs hold of good answers, by seed, those to the run's own prompts first."""
    given = _chosen(preferences) or [(row.prompt, row.response) for row in demonstrations]
    own = {prompt_key(prompt) for prompt in parts.prompts}
    random.Random(derive_seed(seed, "rows")).shuffle(given)
    return sorted(given, key=lambda row: prompt_key(row[0]) not in own)


def _chosen(rows: Sequence[Preference]) -> list[tuple[Messages, str]]:
    """What people preferred, ties left out."""
    return [(row.prompt, row.chosen) for row in rows if row.confidence > 0.5]
