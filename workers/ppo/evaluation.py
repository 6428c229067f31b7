"""Looking at a policy from outside its training: fixed prompts, the judge, samples, the audit."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from measures.messages import Messages
from workers import ranks
from workers.behaviour import Watch
from workers.config.policy import OptimisedSettings, PPOSettings
from workers.context import RunContext
from workers.contract.events import ReviewRequested, Sample, disagreement_reason
from workers.data.snapshot import Preference, as_drawn
from workers.environments.worlds import Episode
from workers.models.forward import Reference
from workers.ppo.distributed import by_first
from workers.ppo.rollout import Rollout
from workers.ppo.setup import Prompts
from workers.rewards.build import without_cache
from workers.rewards.source import RewardSource, Scores, calibrate
from workers.rl.losses import masked_sum
from workers.rollouts.drawing import Answer, Draw, answer
from workers.rollouts.local import Sampling, derive_seed, generate
from workers.samples import AuditSample, blocked_answers, known_pairs, pick, publish

if TYPE_CHECKING:
    from workers.config.grpo import GRPOSettings

# What the reference answers before the first step: the mark that a run is measured from.
#
# Raw scores of a preference model have no origin, so alarms read them against these answers. Each
# evaluation prompt gets several answers of the reference; their scores, lengths and spread ride in
# the checkpoints, so a resumed run is measured from the same mark.

HIGH = 0.9  # quantile of the baseline's scores
TEMPERATURE = 1.0  # of a reward model whose calibration is not known
KEPT = 8  # answers that are scored again at every evaluation


@dataclass(frozen=True, slots=True)
class Baseline:
    """`means` [prompts]: mean raw score of the reference's answers to each evaluation prompt."""

    means: list[float]
    mean: float  # raw score, over all answers
    high: float  # raw score, their 90 % quantile
    length: float  # tokens, mean
    temperature: float = TEMPERATURE  # T of the calibrated score
    deviation: float = 0.0  # raw score, over all answers
    # A few, with their prompts and whether they ended.
    kept: list[tuple[Messages, str, bool]] = field(default_factory=list)
    kept_scores: list[float] = field(default_factory=list)  # theirs, raw, made in one batch
    behaviour: dict[str, float | None] = field(default_factory=dict)  # rates of what they say

    def calibrated(self, scores: Sequence[float]) -> list[float]:
        """σ((r − m)/T) of answers to any prompts, against the mean over all prompts."""
        return calibrate(scores, self.mean, self.temperature).tolist()

    def calibrated_by_prompt(self, scores: Sequence[float]) -> list[float]:
        """The same of one answer to each evaluation prompt, against that prompt's own mean."""
        return calibrate(scores, self.means, self.temperature).tolist()

    def score_kept(self, reward: RewardSource) -> list[float]:
        """Raw scores of the kept answers as the source makes them now, no cache between."""
        prompts = [row[0] for row in self.kept]
        # A checkpoint of an earlier version does not say whether they ended.
        texts = [as_drawn(text, all(ended)) for _, text, *ended in self.kept]
        return without_cache(reward).score(prompts, texts).values

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_baseline(
    reference: Reference,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Prompts,
    reward: RewardSource,
    settings: "PPOSettings | GRPOSettings",
    *,
    seed: int,
    watch: Watch | None = None,
    temperature: float | None = None,
    draw: Draw = generate,
) -> Baseline | None:
    """`baseline_answers` answers to each evaluation prompt, scored; None where none are wanted.
    What `watch` counts is counted in them too. `temperature`: of the reward model, by its
    assessment."""
    draws = settings.baseline_answers
    if draws == 0:
        return None
    sampling = Sampling(
        settings.max_new_tokens,
        temperature=settings.temperature,
        seed=derive_seed(seed, "baseline answers"),
    )
    ids = [row for row in prompts.ids for _ in range(draws)]
    messages = [row for row in prompts.messages for _ in range(draws)]
    with reference.weights() as model:
        answers = answer(
            model,
            tokenizer,
            ids,
            sampling,
            batch_size=settings.rollout_chunk,
            by_ranks=True,
            draw=draw,
        )
    texts = [given.text for given in answers]
    # An episode is more than its text, so it cannot be scored again from a checkpoint.
    few = 0 if any(isinstance(text, Episode) for text in texts) else min(KEPT, len(texts))
    places = [j * len(texts) // few for j in range(few)]
    kept = [(messages[i], texts[i], answers[i].ended) for i in places]
    behaviour = watch.reference([spoken(text) for text in texts]) if watch else {}

    def scored() -> Baseline:
        scores = np.array(reward.score(messages, texts).values)
        found = Baseline(
            means=scores.reshape(-1, draws).mean(axis=1).tolist(),
            mean=float(scores.mean()),
            high=float(np.quantile(scores, HIGH)),
            length=float(np.mean([given.tokens for given in answers])),
            deviation=float(scores.std()),
            temperature=temperature or TEMPERATURE,
            kept=kept,
            behaviour=behaviour,
        )
        return replace(found, kept_scores=found.score_kept(reward) if kept else [])

    return by_first(scored)


def spoken(text: str) -> str:
    """What the policy itself said: of an episode without calls and results."""
    return text.spoken if isinstance(text, Episode) else text


# Questions to the reward whose answer is known, asked again at every evaluation.
#
# The policy has no part in them: what changes here is the reward, or the way it is asked. Canaries
# are pairs whose better answer everybody knows; a reward whose sign or labels were swapped prefers
# the other one. `reward_data` are pairs that the reward model learned from: right there and wrong
# on
# the canaries, it learned swapped labels; wrong on both, its sign is turned.

MOST_PAIRS = 64
CANARY_PAIRS = "eval/canary_pairs"
ROLES = {"canaries": "eval/canary_accuracy", "reward_data": "eval/reward_data_accuracy"}


@dataclass(frozen=True, slots=True)
class RewardProbes:
    """`pairs` by the metric they give; none of an input that a run does not have."""

    pairs: Mapping[str, Sequence[Preference]] = field(default_factory=dict)

    def metrics(
        self, reward: RewardSource, baseline: Baseline | None, *, deviation: float
    ) -> dict[str, float]:
        """`deviation`: of the raw scores so far; 0 before there are any."""
        found = {name: accuracy(reward, pairs) for name, pairs in self.pairs.items()}
        if known := self.pairs.get(ROLES["canaries"]):
            found[CANARY_PAIRS] = float(len(known))
        if baseline is not None and baseline.kept:
            scale = deviation or baseline.deviation
            found["eval/reproducibility"] = changed(reward, baseline, deviation=scale)
        return found


def read_probes(context: RunContext) -> RewardProbes:
    """The same pairs in every attempt of a run."""
    return RewardProbes(
        {
            metric: known_pairs(context, role, most=MOST_PAIRS)
            for role, metric in ROLES.items()
            if context.has_input(role)
        }
    )


def accuracy(reward: RewardSource, pairs: Sequence[Preference]) -> float:
    """Share of the pairs whose chosen answer has the higher score, ties ½."""
    prompts = [pair.prompt for pair in pairs]
    chosen = reward.score(prompts, [pair.chosen for pair in pairs]).values
    rejected = reward.score(prompts, [pair.rejected for pair in pairs]).values
    ranked = zip(chosen, rejected, strict=True)
    return sum((c > r) + (c == r) / 2 for c, r in ranked) / len(pairs)


def changed(reward: RewardSource, baseline: Baseline, *, deviation: float) -> float:
    """Largest distance of a kept answer's score, made again, from its first: in deviations, or raw
    where scores do not vary. The same texts in the same batch, so a source that calculates alike
    gives exactly 0."""
    now = baseline.score_kept(reward)
    away = float(np.abs(np.array(now) - np.array(baseline.kept_scores)).max())
    return away / (deviation or 1.0)


def protocol_number(prompt_ids: Sequence[Sequence[int]], sampling: Sampling) -> float:
    """What names an evaluation protocol: another number, another protocol. 0 … 2³¹ − 1."""
    how = [
        [list(ids) for ids in prompt_ids],
        [sampling.max_new_tokens, sampling.temperature, sampling.top_p, sampling.top_k],
        sampling.seed,
    ]
    digest = hashlib.sha256(json.dumps(how).encode()).digest()
    return float(int.from_bytes(digest[:4], "big") >> 1)


SAMPLES_PER_STEP = 3
REVIEWS_PER_STEP = 4


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Answers to fixed prompts, their reward, and the judge's score where there is a judge."""

    answers: list[Answer]
    scores: Scores
    judged: Scores | None
    calibrated: list[float] | None = None  # against the reference's answers to the same prompts
    probes: Mapping[str, float] = field(default_factory=dict)  # of the reward and the protocol

    @property
    def headline(self) -> float:
        """What checkpoints are compared by: the judge, or the reward where nobody judges."""
        scores = (self.judged or self.scores).values
        return sum(scores) / len(scores)

    def all_metrics(self) -> dict[str, float]:
        """All that was measured, of the policy and of what measures it."""
        return {**self.metrics(), **self.probes}

    def metrics(self) -> dict[str, float]:
        """Of the policy: what checkpoints and summaries show."""
        values: dict[str, list[float]] = {
            "eval/score": self.scores.values,
            "eval/kl": [given.kl or 0.0 for given in self.answers],
            "eval/response_length": [float(given.tokens) for given in self.answers],
            "eval/ended_share": [float(given.ended) for given in self.answers],
        }
        if self.judged is not None:
            values["eval/held_out_score"] = self.judged.values
        if self.calibrated is not None:
            values["eval/calibrated_mean"] = self.calibrated
        return {name: sum(points) / len(points) for name, points in values.items()}


def evaluate(
    policy: PreTrainedModel,
    reference: Reference,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Prompts,
    reward: RewardSource,
    judge: RewardSource | None,
    settings: OptimisedSettings,
    *,
    seed: int,
    baseline: Baseline | None = None,
    probes: RewardProbes | None = None,
    deviation: float = 0.0,
    draw: Draw = generate,
) -> Evaluation:
    """Answer `prompts`, always with the same seed, so that only the policy differs; ask the reward
    what `probes` know. `deviation` is that of the raw scores so far."""
    sampling = Sampling(
        settings.max_new_tokens, temperature=settings.temperature, seed=derive_seed(seed, "eval")
    )
    answers = answer(
        policy, tokenizer, prompts.ids, sampling, reference=reference, by_ranks=True, draw=draw
    )
    texts = [given.text for given in answers]

    def judged() -> Evaluation:
        scores = reward.score(prompts.messages, texts)
        return Evaluation(
            answers,
            scores,
            judge.score(prompts.messages, texts) if judge else None,
            baseline.calibrated_by_prompt(scores.values) if baseline else None,
            (probes or RewardProbes()).metrics(reward, baseline, deviation=deviation)
            | {"eval/protocol": protocol_number(prompts.ids, sampling)},
        )

    return by_first(judged)


def sample(context: RunContext, rollout: Rollout, scores: Scores, *, step: int) -> None:
    """A few answers of the step's batch, as they were rewarded."""
    for i in range(min(SAMPLES_PER_STEP, len(rollout.prompts))):
        context.emit(_sampled(rollout, scores, i, bucket="random", step=step))


def ask_people(
    context: RunContext, rollout: Rollout, scores: Scores, *, threshold: float | None, step: int
) -> None:
    """Answers that people must see, the worst few of a step: those with a blocked phrase, those
    that a rule sends to them, and those that an ensemble disagrees about most. Each goes out as a
    sample too, with the score of every component beside it."""
    blocked = blocked_answers(context, rollout.responses.texts)
    reasons = blocked | {
        i: reason for i, reason in _reasons(scores, threshold).items() if i not in blocked
    }
    spread = scores.disagreement or [0.0] * len(scores.values)
    for i in sorted(reasons, key=lambda i: (i not in blocked, -spread[i]))[:REVIEWS_PER_STEP]:
        context.emit(
            ReviewRequested(
                step=step,
                prompt=list(rollout.prompts[i]),
                response=rollout.responses.texts[i],
                reason=reasons[i],
            )
        )
        context.emit(_sampled(rollout, scores, i, bucket="flagged", step=step))


def _reasons(scores: Scores, threshold: float | None) -> dict[int, str]:
    """Why people must see an answer, by its place."""
    reasons = {i: reason for i, reason in enumerate(scores.reviews or []) if reason}
    if threshold is not None:
        for i, spread in enumerate(scores.disagreement or []):
            if spread > threshold:
                reasons.setdefault(i, disagreement_reason(spread, threshold))
    return reasons


def _sampled(rollout: Rollout, scores: Scores, i: int, *, bucket: str, step: int) -> Sample:
    kl = masked_sum(rollout.logprobs[i] - rollout.ref_logprobs[i], rollout.mask[i])
    return Sample(
        step=step,
        bucket=bucket,
        prompt=list(rollout.prompts[i]),
        response=rollout.responses.texts[i],
        reward=scores.values[i],
        parts=scores.parts_of(i),
        kl=float(kl),
        tokens=int(rollout.responses.lengths[i]),
    )


def audit(
    context: RunContext,
    reference: Reference,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Prompts,
    evaluation: Evaluation,
    reward: RewardSource,
    settings: OptimisedSettings,
    *,
    step: int,
    draw: Draw = generate,
) -> None:
    """Highest, lowest and random rewards of the last evaluation, beside the reference's answers."""
    picked = pick(evaluation.scores.values, settings.audit_samples, seed=context.spec.seed)
    messages, ids = prompts.at([i for _, i in picked])
    sampling = Sampling(
        settings.max_new_tokens,
        temperature=settings.temperature,
        seed=derive_seed(context.spec.seed, "baseline"),
    )
    with reference.weights() as model:
        given = answer(model, tokenizer, ids, sampling, by_ranks=True, draw=draw)
    baselines = [one.text for one in given]
    if not ranks.is_first():
        return  # which alone asks the reward and writes
    baseline_scores = reward.score(messages, baselines).values
    samples = []
    for (bucket, i), prompt, text, score in zip(
        picked, messages, baselines, baseline_scores, strict=True
    ):
        parts = evaluation.scores.parts_of(i)
        if evaluation.judged is not None:
            parts |= evaluation.judged.parts_of(i)
        shown = evaluation.answers[i]
        samples.append(
            AuditSample(
                bucket=bucket,
                prompt=prompt,
                response=str(shown.text),
                reward=evaluation.scores.values[i],
                parts=parts,
                kl=shown.kl,
                tokens=shown.tokens,
                baseline=str(text),
                baseline_reward=score,
            )
        )
    publish(context, samples, step=step)
