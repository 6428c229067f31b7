"""Proximal policy optimisation against a reward, held to a reference by a price on divergence.

Inputs: `policy` or `sft` (the checkpoint to start from), `prompts` (any snapshot with prompts),
`reward` (a reward model, unless the reward is a rule), and optionally `judge` (a second reward
model that is asked and never optimised against) and `reference`.

One step: answer a batch of prompts, scoring what is drawn while the rest is drawn; normalise the
scores by their running scale; price every token's divergence from the reference; turn that into
advantages; improve the policy in a few clipped passes over the batch; let the guardrails look.
Sources: Ouyang et al. 2022 (InstructGPT), Stiennon et al. 2020, Huang et al. 2024 ("The N+
Implementation Details of RLHF with PPO"). Departures: scores are normalised by running rather than
by per-batch moments, so that the KL coefficient has a fixed meaning and a constant reward moves
nothing; a response that ran into the length limit keeps its score, with a penalty if asked for; an
answer that an ensemble disagrees about more than its threshold allows gives no gradient and goes to
people.
"""

import time
from typing import Any

import torch
from torch import Tensor
from transformers import set_seed

from measures.messages import Messages
from workers import ranks
from workers.config.policy import PPOSettings
from workers.context import RunContext
from workers.models import invariants
from workers.models.loading import stop_ids
from workers.ppo.diagnostics import (
    MetricValues,
    StepTimes,
    baseline_metrics,
    rollout_metrics,
    sequence_kl,
)
from workers.ppo.evaluation import ask_people, sample
from workers.ppo.model import NonFinite
from workers.ppo.rollout import Rollout, collect
from workers.ppo.setup import set_learning_rate
from workers.ppo.trainer import TrainerParts
from workers.ppo.update import UpdateStats, update
from workers.preflight.minimal import settings_of
from workers.rewards.model import threshold_of
from workers.rewards.source import RankedPending, join
from workers.rl.losses import gae, importance_weights, shaped_rewards
from workers.rollouts.drawing import PromptOrder, chunks_of
from workers.rollouts.local import Sampling, derive_seed
from workers.rules.engine import Violation

CONFIG = PPOSettings


def run(context: RunContext) -> dict[str, Any]:
    """Train to the last step, or until someone or something stops it; audit; return the headline
    metrics."""
    settings: PPOSettings = settings_of(context, "ppo")
    context.check_memory("ppo", settings)
    set_seed(context.spec.seed)
    loop = PPOTrainer.build(context, settings)
    try:
        found = loop.preflight() if loop.is_fresh else None
        if settings.preflight:
            return {"step": 0, "preflight": found.summary() if found else None}
        loop.train()
        return loop.finish() | ({"preflight": found.summary()} if found else {})
    finally:
        loop.close()


class PPOTrainer(TrainerParts):
    """The steps of a run."""

    def train(self) -> None:
        started, first_step = time.monotonic(), self.state.step
        if self.is_fresh:
            self.begin()
        ended = self.state.step >= self.settings.steps
        while not ended and not self.context.should_stop():
            self.step()
            elapsed = time.monotonic() - started
            pace = elapsed / (self.state.step - first_step)
            self.report_progress(eta_s=pace * (self.settings.steps - self.state.step))
            over = self.settings.max_seconds is not None and ranks.any_of(
                elapsed > self.settings.max_seconds
            )
            last = over or self.state.step == self.settings.steps
            ended = self.evaluate_and_save(last=last or bool(self.context.should_stop()))
        if not ended and self.context.stopped != "cancel":
            self.evaluate_and_save(last=True)  # the command came between two steps

    # --- one step, in the order it happens ---

    def step(self) -> None:
        step, times = self.state.step + 1, StepTimes()
        try:
            with self.models.whole():
                rollout = self.roll_out(step, times)
        except NonFinite as error:  # the policy itself holds numbers that are none
            metrics: MetricValues = {"numerics/non_finite": 1.0}
            self.pass_over(step)
            self.context.metrics(step, metrics | self.places())
            skipped = self.rules.finite.skip_or_stop(step, str(error))
            return self.act(self.look(step, metrics, [skipped]))
        self.check(rollout)
        trusted = self.trust(rollout)
        normalised = self.normalise(rollout, trusted)
        kl = rollout.kl(self.settings.kl_estimator)
        rewards = shaped_rewards(normalised, kl, rollout.mask, kl_coef=self.controllers.kl_coef)
        invariants.check_score_position(
            rewards, kl, normalised, rollout.mask, kl_coef=self.controllers.kl_coef
        )
        advantages, returns = gae(
            rewards,
            rollout.values,
            rollout.mask,
            gamma=self.settings.gamma,
            lam=self.settings.gae_lambda,
        )
        invariants.check_done(rewards, returns, rollout.mask)
        self.draw_ahead(step + 1)
        rate = set_learning_rate(
            self.optimizer, self.settings, step, scale=self.controllers.rate_factor
        )
        began = time.monotonic()
        stats, violations = self.learn(rollout, advantages, returns, trusted, step)
        times.update_s = time.monotonic() - began
        times = ranks.from_first(times)  # guardrails look at them, and must see one thing
        learner = self.state.policy_version
        self.state.policy_version += stats.steps if stats else 0
        metrics = (
            rollout_metrics(rollout, normalised, rewards, returns)
            | self.scored(rollout, trusted)
            | baseline_metrics(rollout, self.baseline)
            | self.watched(rollout)
            | (stats.metrics if stats else {})
            | {"rollout/lag": float(rollout.policy_version != learner)}
            | (self.actors.metrics(rollout, learner) if self.actors else {})
            | {"numerics/non_finite": float(bool(violations))}
            | {"rollout/sampler_z": self.state.sampler[-1]}
            | {"learning_rate": rate, "kl_coef": self.controllers.kl_coef}
        )
        timed = times.metrics(tokens=int(rollout.mask.sum()))
        self.timed.append(timed)
        if self.state.tokens is not None and stats is not None:
            self.state.tokens += stats.tokens
        self.pass_over(step)
        self.context.metrics(step, metrics | timed | self.places())
        self.show(rollout, step)
        self.controllers.follow(sequence_kl(rollout), len(rollout.prompts))
        return self.act(self.look(step, metrics | timed, violations))

    def pass_over(self, step: int) -> None:
        """This step is done: the next one answers the next prompts."""
        self.state.position += self.settings.batch_size
        self.state.step = step

    def roll_out(self, step: int, times: StepTimes) -> Rollout:
        """Answers of the present policy to the next prompts, scored while they are drawn."""
        messages, ids, sampling = self.asked(step, self.state.position)
        actors = self.actors
        hand_in = (
            actors.async_rollout.scores_of
            if actors and actors.async_rollout
            else self.scoring.submit
        )
        pending: list[RankedPending] = []
        worked, began = self.scoring.worked_s, time.monotonic()
        with self.accelerator.autocast():
            rollout = collect(
                self.models.actor_critic,
                self.models.reference,
                self.models.tokenizer,
                messages,
                ids,
                sampling,
                policy_version=self.state.policy_version,
                chunk=self.settings.rollout_chunk,
                max_tokens=self.settings.max_tokens_per_batch,
                exact_kl=self.settings.kl_estimator == "full",
                on_drawn=lambda asked, texts: pending.append(hand_in(asked, texts)),
                drawer=actors.who_draws() if actors else None,
            )
        if rollout.drawn_logprobs is not None:
            rollout.importance = importance_weights(
                rollout.logprobs,
                rollout.drawn_logprobs,
                rollout.mask,
                cap=self.settings.importance_cap,
            )
        times.rollout_s = time.monotonic() - began
        rollout.scores = join([one.result() for one in pending])
        times.reward_wait_s = time.monotonic() - began - times.rollout_s
        times.reward_s = self.scoring.worked_s - worked
        return rollout

    def asked(self, step: int, position: int) -> tuple[list[Messages], list[list[int]], Sampling]:
        """What a step asks: its prompts, their tokens, and how answers are drawn."""
        order = PromptOrder(len(self.prompts), seed=self.context.spec.seed)
        messages, ids = self.prompts.at(order.take(position, self.settings.batch_size))
        return (
            messages,
            ids,
            Sampling(
                self.settings.max_new_tokens,
                temperature=self.settings.temperature,
                seed=derive_seed(self.context.spec.seed, "rollout", step),
            ),
        )

    def draw_ahead(self, step: int) -> None:
        """Let others draw the answers of the next step while this one is learned from."""
        if self.actors is None or self.actors.async_rollout is None or step > self.settings.steps:
            return
        messages, ids, sampling = self.asked(step, self.state.position + self.settings.batch_size)
        self.actors.async_rollout.begin(
            chunks_of(messages, ids, sampling, self.settings.rollout_chunk),
            version=self.state.policy_version,
        )

    def check(self, rollout: Rollout) -> None:
        """What must hold exactly; a violation stops the run."""
        invariants.check_finite("a reward", torch.tensor(rollout.scored.values))
        invariants.check_mask(
            rollout.mask,
            rollout.responses.response_ids,
            stop_ids(self.models.actor_critic.policy, self.models.tokenizer),
        )
        invariants.check_fresh(
            self.state.policy_version,
            rollout.policy_version,
            allowed=self.settings.oldest_rollout,
        )
        if self.state.policy_version == 0 and not self.settings.reference_differs:
            invariants.check_kl_at_start(rollout.logprobs, rollout.ref_logprobs, rollout.mask)
        drew = rollout.logprobs if rollout.drawn_logprobs is None else rollout.drawn_logprobs
        unsure = rollout.entropy if rollout.drawn_entropy is None else rollout.drawn_entropy
        z = invariants.sampler_z(drew, unsure, rollout.mask)
        self.state.sampler = [*self.state.sampler, z][-invariants.SAMPLER_LOOKS :]
        invariants.check_sampler(self.state.sampler)

    @property
    def threshold(self) -> float | None:
        """The disagreement over which an answer teaches nothing; None without an ensemble."""
        return self.settings.reward.get("disagreement_threshold", threshold_of(self.reward))

    def trust(self, rollout: Rollout) -> Tensor:
        """Which answers may teach: [B]; not those an ensemble disagrees about, nor those of which
        the reward says nothing because they break a hard rule."""
        scores = rollout.scored
        trusted = torch.ones(len(scores.values), dtype=torch.bool)
        if scores.disagreement is not None and self.threshold is not None:
            trusted &= torch.tensor(scores.disagreement) <= self.threshold
        if scores.withheld is not None:
            trusted &= ~torch.tensor(scores.withheld)
        return trusted

    def normalise(self, rollout: Rollout, trusted: Tensor) -> Tensor:
        """Scores in running deviations, less the penalties: [B].

        Only answers that may teach move the scale: what nobody trusts must not set it."""
        settings, responses = self.settings, rollout.responses
        raw = torch.tensor(rollout.scored.values, device=rollout.values.device)
        self.state.moments.update(raw[trusted.to(raw.device)])
        normalised = self.state.moments.normalise(raw, clip=settings.reward_clip)
        target = settings.length_target or (self.baseline.length if self.baseline else 0.0)
        over = (responses.lengths - target).clamp(min=0.0) / 100
        return (
            normalised
            - settings.missing_eos_penalty * (~responses.ended)
            - settings.length_penalty * over
        )

    def learn(
        self, rollout: Rollout, advantages: Tensor, returns: Tensor, trusted: Tensor, step: int
    ) -> tuple[UpdateStats | None, list[Violation]]:
        """The update; None when all rewards were alike or none was to be trusted, for then there
        is nothing to learn, or when a loss or gradient was no number, which is a violation."""
        settings = self.settings
        penalised = settings.missing_eos_penalty or settings.length_penalty
        if not trusted.any() or (self.state.moments.constant and not penalised):
            return None, []
        try:
            with self.accelerator.autocast():
                return (
                    update(
                        self.models.actor_critic,
                        self.optimizer,
                        rollout,
                        advantages,
                        returns,
                        settings,
                        seed=derive_seed(self.context.spec.seed, "update", step),
                        trusted=trusted,
                        epochs=self.controllers.epochs,
                        entropy_coef=self.controllers.entropy_coef,
                        critic_alone=step <= settings.critic_warmup_steps,
                        accelerator=self.accelerator,
                    ),
                    [],
                )
        except NonFinite as error:
            return None, [self.rules.finite.skip_or_stop(step, str(error))]

    def show(self, rollout: Rollout, step: int) -> None:
        """What people may read of this step."""
        scores = rollout.scored
        calibrated = self.baseline.calibrated(scores.values) if self.baseline else None
        self.kept.add(rollout.records(step=step, calibrated=calibrated))
        if step % self.settings.sample_every == 0:
            sample(self.context, rollout, scores, step=step)
        if step % self.settings.sample_every == 0 or step % self.settings.eval_every == 0:
            self.spread(step, scores.values, rollout.responses.lengths.tolist())
        ask_people(self.context, rollout, scores, threshold=self.threshold, step=step)
