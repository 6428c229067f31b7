"""Looking at a policy from outside its training: fixed prompts, the judge, samples, the audit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers import ranks
from workers.audit import AuditSample, pick, publish
from workers.config.policy import PPOSettings
from workers.context import RunContext
from workers.contract.events import ReviewRequested, Sample
from workers.models.reference import Reference
from workers.ppo.baseline import Baseline
from workers.ppo.first import by_first
from workers.ppo.probes import RewardProbes, protocol_number
from workers.ppo.rollout import Rollout
from workers.ppo.setup import Prompts
from workers.rewards.source import RewardSource, Scores
from workers.rl.masked import masked_sum
from workers.rollouts.answers import Answer, answer
from workers.rollouts.sampling import Sampling, derive_seed

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

    def figures(self) -> dict[str, float]:
        """All that was measured, of the policy and of what measures it."""
        return self.metrics() | self.probes

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
    settings: PPOSettings,
    *,
    seed: int,
    baseline: Baseline | None = None,
    probes: RewardProbes | None = None,
    deviation: float = 0.0,
) -> Evaluation:
    """Answer `prompts`, always with the same seed, so that only the policy differs; ask the reward
    what `probes` know. `deviation` is that of the raw scores so far."""
    sampling = Sampling(
        settings.max_new_tokens, temperature=settings.temperature, seed=derive_seed(seed, "eval")
    )
    answers = answer(policy, tokenizer, prompts.ids, sampling, reference=reference, by_ranks=True)
    texts = [given.text for given in answers]

    def judged() -> Evaluation:
        scores = reward.score(prompts.messages, texts)
        return Evaluation(
            answers,
            scores,
            judge.score(prompts.messages, texts) if judge else None,
            baseline.calibrated_by_prompt(scores.values) if baseline else None,
            (probes or RewardProbes()).figures(reward, baseline, deviation=deviation)
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
    """Answers that people must see, the worst few of a step: those that a rule sends to them, and
    those that an ensemble disagrees about most. Each goes out as a sample too, with the score of
    every component beside it."""
    reasons = _reasons(scores, threshold)
    spread = scores.disagreement or [0.0] * len(scores.values)
    for i in sorted(reasons, key=lambda i: -spread[i])[:REVIEWS_PER_STEP]:
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
                told = "the members of the reward model disagree about this answer: "
                reasons.setdefault(i, f"{told}{spread:.2f}, over {threshold:.2f}")
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
    settings: PPOSettings,
    *,
    step: int,
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
        given = answer(model, tokenizer, ids, sampling, by_ranks=True)
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
        given = evaluation.answers[i]
        samples.append(
            AuditSample(
                bucket=bucket,
                prompt=prompt,
                response=given.text,
                reward=evaluation.scores.values[i],
                parts=parts,
                kl=given.kl,
                tokens=given.tokens,
                baseline=text,
                baseline_reward=score,
            )
        )
    publish(context, samples, step=step)
