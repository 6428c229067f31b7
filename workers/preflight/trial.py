"""Two answers to each of some prompts: random tokens, and those of a weak expert."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from measures.bootstrap import LEAST_UNITS
from workers.data.snapshot import Demonstration, Messages, Preference, prompt_key
from workers.models.loading import stop_ids
from workers.preflight.parts import Parts
from workers.rollouts.local import Responses, generate
from workers.rollouts.sampling import Sampling, derive_seed

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
    chance = random_texts(parts.tokenizer, lengths, seed=derive_seed(sampling.seed, "random"))
    ended = [bool(end) for _, responses in drawn for end in responses.ended]
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
        tokenizer.decode(rng.choices(words, k=max(1, length)), skip_special_tokens=True)
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
