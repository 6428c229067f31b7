"""What a step of GRPO says about itself. Names, units and estimators: docs/metrics.md."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from measures.groups import agreement_within, silent_groups, spread_of
from measures.messages import Messages
from workers.behaviour import behaviour_metrics
from workers.config.grpo import GRPOSettings
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import as_drawn
from workers.environments.worlds import Episode, replays
from workers.models.invariants import check_finite
from workers.ppo.distributed import by_first
from workers.ppo.evaluation import Baseline
from workers.rewards.model import threshold_of
from workers.rewards.source import RewardSource, Scores, verifier_metrics
from workers.rewards.verifier import final_state
from workers.rl.losses import kl_k1, kl_k3, masked_sum

# What a step's answers are worth: the function that TRL asks, and what it remembers of them.


@dataclass(frozen=True, slots=True)
class Judged:
    """N answers in groups, as they were drawn: G answers to a prompt, then G to the next.

    `fees` are what an answer without an end pays, in deviations; `counts` says which answers teach;
    `checked` are the scores of the source that is only asked, where it was.
    """

    prompts: list[Messages]
    texts: list[str]
    token_ids: list[list[int]]
    ended: list[bool]
    scores: Scores
    fees: list[float]
    counts: list[bool]
    checked: Scores | None

    @property
    def lengths(self) -> list[int]:
        """Tokens per answer, the end token included."""
        return [len(ids) for ids in self.token_ids]

    def grouped(self, values: Sequence[float] | Sequence[bool], size: int) -> np.ndarray:
        """(P, G): one row a prompt."""
        return np.asarray(values).reshape(-1, size)

    def silent(self, size: int) -> np.ndarray:
        """(P,): groups whose scores are alike but for rounding, and their fees too."""
        counts = self.grouped(self.counts, size)
        scores, fees = self.grouped(self.scores.values, size), self.grouped(self.fees, size)
        return silent_groups(scores, counts) & silent_groups(fees, counts)


class GroupReward:
    """Called by TRL with a step's answers; `last` holds what it was told and what it said.

    An answer that an ensemble disagrees about too much, or that breaks a hard constraint without a
    penalty, gets no reward (None): TRL leaves it out of its group's mean and gives it no advantage.
    """

    __name__ = "reward"  # TRL names its columns by it

    def __init__(
        self,
        source: RewardSource,
        tokenizer: PreTrainedTokenizerBase,
        settings: GRPOSettings,
        *,
        stop: Sequence[int],
        check: RewardSource | None = None,
        check_is_model: bool = False,
    ) -> None:
        self.source = source
        self.check = check
        self.tokenizer = tokenizer
        self.settings = settings
        self.stop = set(stop)
        self.check_is_model = check_is_model  # asked only now and then: it costs as the reward does
        self.ask_check = True
        self.seconds = 0.0
        self.last: Judged | None = None

    @property
    def threshold(self) -> float | None:
        """The disagreement over which an answer teaches nothing; None without an ensemble."""
        return threshold_of(self.source)

    def __call__(
        self,
        prompts: list[Messages],
        completion_ids: list[list[int]],
        episodes: Sequence[Episode] | None = None,
        **_: Any,
    ) -> list[float | None]:
        started = time.monotonic()
        texts: list[str]
        if episodes is not None:
            texts, ended = list(episodes), [one.ended for one in episodes]
        else:
            ended = [ids[-1] in self.stop for ids in completion_ids]
            texts = [
                as_drawn(str(self.tokenizer.decode(ids, skip_special_tokens=True)), end)
                for ids, end in zip(completion_ids, ended, strict=True)
            ]
        scores = _asked(self.source, prompts, texts, "the reward")
        masked = self.settings.mask_truncated  # what teaches nothing need not pay
        fee = 0.0 if masked else self.settings.missing_eos_penalty
        fees = [0.0 if end else fee for end in ended]
        counts = self._counts(scores)
        checked = None
        if self.check is not None and self.ask_check:
            checked = _asked(self.check, prompts, texts, "the verifier")
        self.last = Judged(
            list(prompts), texts, completion_ids, ended, scores, fees, counts, checked
        )
        self.seconds = time.monotonic() - started
        return [score if kept else None for score, kept in zip(scores.values, counts, strict=True)]

    def _counts(self, scores: Scores) -> list[bool]:
        """Which answers may teach: those an ensemble agrees about and no constraint withholds."""
        counts = [True] * len(scores.values)
        if scores.disagreement is not None and self.threshold is not None:
            counts = [spread <= self.threshold for spread in scores.disagreement]
        withheld = scores.withheld or [False] * len(counts)
        return [kept and not held for kept, held in zip(counts, withheld, strict=True)]


def _asked(
    source: RewardSource, prompts: Sequence[Messages], texts: Sequence[str], name: str
) -> Scores:
    """The scores, one finite number an answer; anything else ends the run, for TRL would train on
    what is left. The first rank asks: a service need not answer alike twice."""
    try:
        scores = by_first(lambda: source.score(prompts, texts))
    except (RecipeError, MemoryError, torch.OutOfMemoryError):
        raise  # they have names of their own
    except Exception as error:
        raise RecipeError(
            "reward_failed",
            Fault.BUG,
            f"{name} failed on a batch of {len(texts)} answers: {type(error).__name__}: {error}",
        ) from error
    values = scores.values
    if len(values) != len(texts) or any(value is None for value in values):
        told = sum(value is not None for value in values)
        raise RecipeError(
            "reward_failed",
            Fault.BUG,
            f"{name} gave {told} numbers for {len(texts)} answers",
        )
    check_finite(name, torch.tensor(values))
    return scores


def group_advantages(
    rewards: Tensor, fees: Tensor, silent: Tensor, *, scale: str, leave_one_out: bool = False
) -> Tensor:
    """Distances to the mean of the group: rewards [P·G], groups one after another -> [P·G].

    NaN is a reward that was withheld: it counts in no mean, and its advantage is 0. So is that of
    the groups in `silent` [P], whose rewards and fees are alike: what rounding makes of their
    distances, Adam would make steps of full size of. `scale`: by the standard deviation of the
    "group", of the "batch" or not at all ("none"), plus 1e-4. fees [P·G], in these deviations (the
    batch's where nothing is divided), are taken off afterwards, less their group's mean.
    Source: Shao et al. 2024 (DeepSeekMath), section 4.1; "none": Liu et al. 2025 (Dr. GRPO).
    `leave_one_out`: the distance to the mean of the n − 1 others that count, which is n / (n − 1)
    times that to the mean of all n. Source: Ahmadian et al. 2024 (RLOO), equation 7.
    """
    groups = rewards.view(len(silent), -1)
    found = groups - groups.nanmean(1, keepdim=True)
    of_batch = _deviation(groups.reshape(1, -1)) + 1e-4
    fees = fees.view(len(silent), -1).masked_fill(groups.isnan(), torch.nan)
    if scale == "group":
        found = found / (_deviation(groups) + 1e-4)
    elif scale == "batch":
        found = found / of_batch
    else:
        fees = fees * of_batch
    found = found - (fees - fees.nanmean(1, keepdim=True))
    if leave_one_out:
        counted = (~groups.isnan()).sum(1, keepdim=True)
        found = found * counted / (counted - 1)  # of a single one 0 · ∞, which is 0 below
    found = found.nan_to_num(nan=0.0)
    return found.masked_fill(silent.unsqueeze(1), 0.0).flatten()


def _deviation(values: Tensor) -> Tensor:
    """Standard deviation (n − 1) of each row, without its NaNs: [N, K] -> [N, 1]."""
    count = (~values.isnan()).sum(1, keepdim=True)
    squares = (values - values.nanmean(1, keepdim=True)).square()
    return (squares.nansum(1, keepdim=True) / (count - 1)).sqrt()


MetricValues = dict[str, float | None]


def answer_metrics(
    judged: Judged, group_size: int, ids: Tensor, mask: Tensor, baseline: Baseline | None
) -> MetricValues:
    """Of a batch of answers before its update. ids, mask [B, R]."""
    values = torch.tensor(judged.scores.values)
    count = len(values)
    scores = judged.grouped(judged.scores.values, group_size)
    counts = judged.grouped(judged.counts, group_size)
    spread = spread_of(scores, counts)
    several = counts.sum(1) > 1
    found: MetricValues = {
        "objective/scores": float(values.mean()),
        "objective/scores_std": float(values.std()),
        "grpo/within_group_std": spread.within,
        "grpo/between_groups_std": spread.between,
        "grpo/zero_variance_share": (
            float(judged.silent(group_size)[several].mean()) if several.any() else None
        ),
        "response/length": sum(judged.lengths) / count,
        "response/ended_share": sum(judged.ended) / count,
        "reward/truncated_share": judged.scores.truncated / count,
    }
    found |= behaviour_metrics(ids, mask)
    if baseline is not None:
        found |= _against(baseline, judged)
    if len(judged.scores.parts) > 1:
        for name, part in judged.scores.parts.items():
            found[f"reward/component/{name}"] = sum(part) / count
    found |= verifier_metrics(judged.scores)
    if judged.scores.disagreement is not None:
        found["reward/disagreement"] = sum(judged.scores.disagreement) / count
        found["reward/flagged_share"] = 1 - sum(judged.counts) / count
    if judged.scores.blocked is not None:
        found["reward/blocked_share"] = sum(judged.scores.blocked) / count
    if judged.scores.asked:
        found["reward/cache_hit_rate"] = (judged.scores.cache_hits or 0) / judged.scores.asked
    if judged.checked is not None:
        other = judged.grouped(judged.checked.values, group_size)
        found["grpo/rank_agreement"] = agreement_within(other, scores).value
    return found


def episode_metrics(episodes: Sequence[Episode], environment: str) -> MetricValues:
    """Of answers in a world: what was called, what came of it, and whether the record is true."""
    count, calls = len(episodes), [call for one in episodes for call in one.calls]
    ends = [final_state(one.task, one) for one in episodes]
    formed = [
        one.ended
        and bool(one.final)
        and not one.malformed
        and all(call.offered for call in one.calls)
        for one in episodes
    ]
    read = [any(call.looked for call in one.calls) for one in episodes]
    apart = [not replays(one, environment) for one in episodes]
    return {
        "tools/call_frequency": len(calls) / count,
        "tools/failure_frequency": sum(call.error for call in calls) / max(1, len(calls)),
        "tools/illegal_share": sum(not call.offered for call in calls) / max(1, len(calls)),
        "tools/turns": sum(one.turns for one in episodes) / count,
        "tools/tokens": sum(one.all_tokens for one in episodes) / count,
        "tools/success_share": sum(end.right for end in ends) / count,
        "tools/part_share": sum(end.share for end in ends) / count,
        "tools/named_only_share": sum(end.named_only for end in ends) / count,
        "tools/form_share": sum(formed) / count,
        "tools/check_read_share": sum(read) / count,
        "tools/replay_apart_share": sum(apart) / count,
    }


def _against(baseline: Baseline, judged: Judged) -> MetricValues:
    """The answers beside the reference's before the first step."""
    calibrated = torch.tensor(baseline.calibrated(judged.scores.values))
    count = len(calibrated)
    found: MetricValues = {
        "reward/calibrated_mean": float(calibrated.mean()),
        "reward/calibrated_std": float(calibrated.std()),
        "reward/above_baseline_share": sum(v > baseline.high for v in judged.scores.values) / count,
    }
    if not any(isinstance(text, Episode) for text in judged.texts):
        # Who learns to call tools writes more; what that costs is measured against final states.
        found["response/length_ratio"] = sum(judged.lengths) / count / baseline.length
    return found


# How the fields of `UpdateSums` are joined that do not add up.
_JOINED = {"clip_low": max, "clip_high": max, "ratio_max": max, "logprob_min": min}


@dataclass(slots=True)
class UpdateSums:
    """Sums over the forward passes of the steps since the last point; tensors [B, R] come in."""

    clip_low: float
    clip_high: float
    answers: int = 0
    tokens: int = 0
    kl: float = 0.0  # nats, of the sequences
    kl_tokens: float = 0.0  # nats, k3
    moved: float = 0.0  # nats, k3 of old and new policy
    entropy: float = 0.0  # nats
    fresh_entropy: float = 0.0  # nats, before the first step on a batch
    fresh_tokens: int = 0
    clipped: int = 0
    advantage: float = 0.0  # of all answers, absolute
    ratio_max: float = 0.0
    logprob_min: float = field(default=0.0)

    def add(
        self,
        logprobs: Tensor,
        old: Tensor,
        ref: Tensor,
        entropy: Tensor,
        advantages: Tensor,
        mask: Tensor,
        *,
        log_ratio: Tensor,
        fresh: bool,
    ) -> None:
        """logprobs, old, ref, entropy, mask [B, R], advantages [B], log_ratio [B, R] of what the
        loss clips; fresh: the policy is still the one that drew the answers."""
        if not mask.any():
            return
        ratio = torch.where(mask.bool(), log_ratio.exp(), torch.ones_like(logprobs))
        push = advantages.unsqueeze(1)
        outside = ((ratio < 1 - self.clip_low) & (push < 0)) | (
            (ratio > 1 + self.clip_high) & (push > 0)
        )
        self.answers += len(mask)
        self.tokens += int(mask.sum())
        self.kl += float(masked_sum(kl_k1(old, ref), mask))
        self.kl_tokens += float(masked_sum(kl_k3(old, ref), mask))
        self.moved += float(masked_sum(kl_k3(old, logprobs), mask))
        self.entropy += float(masked_sum(entropy, mask))
        if fresh:
            self.fresh_entropy += float(masked_sum(entropy, mask))
            self.fresh_tokens += int(mask.sum())
        self.clipped += int(masked_sum(outside.long(), mask))
        self.advantage += float(advantages.abs().sum())
        self.ratio_max = max(self.ratio_max, float(ratio.max()))
        least = torch.where(mask.bool(), logprobs, torch.zeros_like(logprobs)).min()
        self.logprob_min = min(self.logprob_min, float(least))

    @classmethod
    def of_all(cls, parts: Sequence["UpdateSums"]) -> "UpdateSums":
        """Those of all ranks together."""
        joined = {}
        for one in fields(cls):
            values = [getattr(part, one.name) for part in parts]
            how = _JOINED.get(one.name, sum)
            joined[one.name] = how(values)
        return cls(**joined)

    def metrics(self) -> MetricValues:
        if not self.tokens:
            return {}
        return {
            "objective/kl": self.kl / self.answers,
            "objective/kl_per_token": self.kl_tokens / self.tokens,
            "objective/entropy_per_token": (
                self.fresh_entropy / self.fresh_tokens if self.fresh_tokens else None
            ),
            "policy/approxkl_avg": self.moved / self.tokens,
            "policy/clipfrac_avg": self.clipped / self.tokens,
            "policy/entropy_avg": self.entropy / self.tokens,
            "policy/ratio_max": self.ratio_max,
            "policy/logprob_min": self.logprob_min,
            "grpo/advantage_abs": self.advantage / self.answers,
        }


def averaged(points: Sequence[Mapping[str, float | None]]) -> MetricValues:
    """Means over the batches of a window, of each figure over those where it is defined."""
    names = dict.fromkeys(name for point in points for name in point)
    found: MetricValues = {}
    for name in names:
        defined = [value for point in points if (value := point.get(name)) is not None]
        found[name] = sum(defined) / len(defined) if defined else None
    return found
