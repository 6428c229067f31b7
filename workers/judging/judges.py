"""Who may be a judge: a model that answers here or at a server, or a reward model.

A language model is shown every pair both ways round, A first and B first, for what it says may hang
on the order. Its verdict on a pair is two numbers, P(the answer shown first is better) with A first
and with B first; its preference for A is ½(first + 1 − second), in which a pull of the order that
adds to both cancels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from scipy.special import expit
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from measures.messages import Messages
from workers.config.judging import PROBABILITY, TEXT, JudgeSettings
from workers.config.server import JUDGE
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.batches import encode_prompt, pad_right
from workers.data.snapshot import UnlabelledPair
from workers.judging.reading import judge_prompt, read_verdict
from workers.models.forward import answer_logits
from workers.models.loading import (
    freeze,
    load_causal,
    load_tokenizer,
    read_config,
    readable_length,
)
from workers.rewards.build import load_reward
from workers.rewards.ensemble import is_ensemble
from workers.rewards.source import RewardSource
from workers.rollouts.drawing import answer
from workers.rollouts.local import Sampling, derive_seed
from workers.servers.answers import Served
from workers.servers.asking import Cancelled

SCORE = "score"  # how the verdict of a reward model is read
# How a judge may spell the three verdicts where an answer begins.
SPELLINGS = {"A": ("A", " A"), "B": ("B", " B"), "tie": ("tie", " tie", "Tie", " Tie")}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one pair. `first`, `second`: P(the answer shown first is better) with A first and with B
    first, 0–1, None where no verdict could be read. `said`: what the judge wrote, in that order.
    `too_long`: it was not asked, or could not read to the end."""

    first: float | None = None
    second: float | None = None
    said: tuple[str, str] = ("", "")
    too_long: bool = False

    @property
    def preference(self) -> float | None:
        """For answer A: ½(first + 1 − second); None where either is missing."""
        if self.first is None or self.second is None:
            return None
        return 0.5 * (self.first + 1.0 - self.second)


class Judge(Protocol):
    """`reads`: text, probability or score. `order_free`: the order of a pair cannot matter to it,
    for it never sees two answers together."""

    reads: str
    order_free: bool

    def judge(self, pairs: Sequence[UnlabelledPair], *, doing: str) -> list[Verdict]:
        """A verdict on each pair, in order. `doing`: what for, in a word or two; draws depend on
        it. Raises `Cancelled`, and `RecipeError` where the judge cannot answer."""
        ...


def build_judge(
    context: RunContext, settings: JudgeSettings, served: Mapping[str, Served]
) -> Judge:
    """Of the input `judge`: by its server where it is a served model, as a reward model where its
    checkpoint has a score for a head, else as a language model, whose weights are here. Raises
    `RecipeError` (bad_config) where `reads` asks for what it cannot say."""
    if JUDGE in served:
        if settings.reads == PROBABILITY:
            raise RecipeError(
                "bad_config",
                Fault.CONFIGURATION,
                "reads: a served model says no probability of a token; choose text or auto",
            )
        return ServedJudge(context, settings, served[JUDGE])
    folder = context.input_path(JUDGE)
    if is_reward_model(folder):
        source = load_reward(folder, name=JUDGE, batch_size=settings.batch_size)
        return RewardJudge(context, settings, source)
    tokenizer = load_tokenizer(folder)
    model = freeze(load_causal(folder))
    kind = LocalJudge if settings.reads == TEXT else ProbabilityJudge
    return kind(context, settings, model, tokenizer)


def is_reward_model(folder: Path) -> bool:
    """Whether a checkpoint scores a text: an ensemble, or a head for sequence classification."""
    if is_ensemble(folder):
        return True
    names = read_config(folder).architectures or ()
    return any(name.endswith("ForSequenceClassification") for name in names)


class RewardJudge:
    """P(A is better) = σ(score of A − score of B), as Bradley and Terry have it. It reads no prompt
    to a judge, and sees one answer at a time: first = 1 − second by construction."""

    reads, order_free = SCORE, True

    def __init__(self, context: RunContext, settings: JudgeSettings, source: RewardSource) -> None:
        self._context, self._settings, self._source = context, settings, source

    def judge(self, pairs: Sequence[UnlabelledPair], *, doing: str) -> list[Verdict]:
        """Raises `RecipeError` (non_finite_score) where a score is no number."""
        found: list[Verdict] = []
        for part in parts(self._context, len(pairs), self._settings.batch_size, doing):
            rows = pairs[part]
            texts = [text for row in rows for text in (row.response_a, row.response_b)]
            scores = self._source.score([row.prompt for row in rows for _ in "ab"], texts)
            values = np.asarray(scores.values, float).reshape(-1, 2)
            if not np.isfinite(values).all():
                raise RecipeError(
                    "non_finite_score", Fault.DATA, "the score of an answer is no number"
                )
            cut = scores.cut or [False] * len(texts)
            for i, p in enumerate(expit(values[:, 0] - values[:, 1]).tolist()):
                unread = cut[2 * i] or cut[2 * i + 1]
                found.append(Verdict(too_long=True) if unread else Verdict(p, 1.0 - p))
        return found


class LocalJudge:
    """A model that writes its verdict here. `room`: tokens of the longest prompt it is asked."""

    reads, order_free = TEXT, False

    def __init__(
        self,
        context: RunContext,
        settings: JudgeSettings,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
    ) -> None:
        self.context, self.settings = context, settings
        self.model, self.tokenizer = model, tokenizer
        self.room = min(
            settings.max_prompt_length,
            readable_length(model, tokenizer) - settings.max_new_tokens,
        )

    def judge(self, pairs: Sequence[UnlabelledPair], *, doing: str) -> list[Verdict]:
        asked = both_orders(self.settings, pairs)
        ids = [encode_prompt(self.tokenizer, prompt) for prompt in asked]
        fits = _fitting([len(row) <= self.room for row in ids])
        fits.sort(key=lambda i: len(ids[i]))  # so that little of a batch is padding
        found: dict[int, tuple[float | None, str]] = {}
        for part in parts(self.context, len(fits), self.settings.batch_size, doing):
            batch = fits[part]
            told = self.read([ids[i] for i in batch], derive_seed(self._seed(doing), part.start))
            found |= dict(zip(batch, told, strict=True))
        return _verdicts(len(pairs), found)

    def read(self, ids: Sequence[list[int]], seed: int) -> list[tuple[float | None, str]]:
        """P(the answer shown first is better) of one batch of prompts, and what was said."""
        said = answer(
            self.model,
            self.tokenizer,
            ids,
            sampling_of(self.settings, seed),
            batch_size=self.settings.batch_size,
        )
        return [(read_verdict(one.text, self.settings.parser), one.text) for one in said]

    def _seed(self, doing: str) -> int:
        return derive_seed(self.context.spec.seed, "judge", doing)


class ProbabilityJudge(LocalJudge):
    """A model whose verdict is read off its weights, where its answer would begin.

    P(first) = (P(A) + ½ P(tie)) / (P(A) + P(B) + P(tie)), each P the sum over the spellings of the
    word that are one token of this tokenizer (`SPELLINGS`) at temperature 1: a softmax over the
    verdicts alone, whatever else the model might have said. `masses` are the denominators, one for
    each prompt read: far under 1, the model was about to say something else, and its verdicts mean
    little. A judge that gives its reasons first must be read as text.
    """

    reads = PROBABILITY

    def __init__(
        self,
        context: RunContext,
        settings: JudgeSettings,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
    ) -> None:
        super().__init__(context, settings, model, tokenizer)
        self.room = min(settings.max_prompt_length, readable_length(model, tokenizer))
        self.tokens = verdict_tokens(tokenizer)
        self.masses: list[float] = []
        if not (self.tokens["A"] and self.tokens["B"]):
            raise RecipeError(
                "bad_config",
                Fault.CONFIGURATION,
                "reads: the judge's tokenizer has no token for A and for B alone; choose text",
            )

    @torch.no_grad()
    def read(self, ids: Sequence[list[int]], seed: int) -> list[tuple[float | None, str]]:
        """Draws nothing."""
        rows, mask = (t.to(self.model.device) for t in pad_right(ids, self.tokenizer.pad_token_id))
        last = torch.zeros_like(mask, dtype=torch.bool)
        last[torch.arange(len(ids)), mask.sum(1) - 1] = True
        logits = answer_logits(self.model, {"input_ids": rows, "attention_mask": mask}, last)
        shares = logits.float().softmax(-1)  # [B, V]
        a, b, tie = (shares[:, list(self.tokens[word])].sum(-1) for word in ("A", "B", "tie"))
        mass = a + b + tie
        self.masses += mass.tolist()
        first = (a + 0.5 * tie) / mass
        return [(p if np.isfinite(p) else None, "") for p in first.tolist()]


def verdict_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, tuple[int, ...]]:
    """{verdict: ids of the spellings that are one token}; a token that stands for anything else
    too (unknown, padding) is none of them."""
    found: dict[str, tuple[int, ...]] = {}
    special = set(tokenizer.all_special_ids)
    for word, spellings in SPELLINGS.items():
        told = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in spellings]
        found[word] = tuple(sorted({ids[0] for ids in told if len(ids) == 1} - special))
    return found


class ServedJudge:
    """A model that writes its verdict at a server. A prompt is counted by its tokenizer where it
    was registered with one; else the server says what is too long for it. What the server fails for
    good has no verdict, as far as the model's `failed_share` lets it."""

    reads, order_free = TEXT, False

    def __init__(self, context: RunContext, settings: JudgeSettings, served: Served) -> None:
        self._context, self._settings, self._served = context, settings, served

    def judge(self, pairs: Sequence[UnlabelledPair], *, doing: str) -> list[Verdict]:
        asked = both_orders(self._settings, pairs)
        fits = _fitting([self._fits(prompt) for prompt in asked])
        seed = derive_seed(self._context.spec.seed, "judge", doing)
        given = self._served.answer_most(
            [asked[i] for i in fits], sampling_of(self._settings, seed), doing=doing
        )
        found = {
            i: (read_verdict(one.text, self._settings.parser), one.text) if one else (None, "")
            for i, one in zip(fits, given, strict=True)
        }
        return _verdicts(len(pairs), found)

    def _fits(self, prompt: Messages) -> bool:
        tokenizer = self._served.tokenizer
        most = self._settings.max_prompt_length
        return tokenizer is None or len(encode_prompt(tokenizer, prompt)) <= most


def both_orders(settings: JudgeSettings, pairs: Sequence[UnlabelledPair]) -> list[Messages]:
    """What the judge is asked: of each pair A first, then B first."""
    return [
        judge_prompt(settings, one.prompt, first, second)
        for one in pairs
        for first, second in (
            (one.response_a, one.response_b),
            (one.response_b, one.response_a),
        )
    ]


def sampling_of(settings: JudgeSettings, seed: int) -> Sampling:
    return Sampling(
        settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        seed=seed,
    )


def parts(context: RunContext, count: int, size: int, doing: str) -> Iterator[slice]:
    """So many rows at a time, with progress told before each. Raises `Cancelled` on a command."""
    for start in range(0, count, size):
        context.progress(0, 1, f"{doing}: {start:,} of {count:,}")
        if context.should_stop() == "cancel":
            raise Cancelled
        yield slice(start, min(start + size, count))


def _fitting(fits: Sequence[bool]) -> list[int]:
    """Places of the prompts that are asked: of a pair both or neither."""
    return [i for i in range(len(fits)) if fits[i] and fits[i ^ 1]]


def _verdicts(count: int, found: Mapping[int, tuple[float | None, str]]) -> list[Verdict]:
    """Of `count` pairs, from what was found of the prompts of `both_orders` by their place."""
    verdicts = []
    for i in range(count):
        ways: list[Any] = [found.get(2 * i), found.get(2 * i + 1)]
        if None in ways:
            verdicts.append(Verdict(too_long=True))
            continue
        (first, said), (second, also) = ways
        verdicts.append(Verdict(first, second, (said, also)))
    return verdicts
