"""Proximal policy optimisation against a reward, held to a reference by a price on divergence.

Inputs: `policy` or `sft` (the checkpoint to start from), `prompts` (any snapshot with prompts),
`reward` (a reward model, unless the reward is a rule), and optionally `judge` (a second reward
model that is asked and never optimised against) and `reference`.

One step: answer a batch of prompts; score the answers as text; normalise the scores by their
running scale; price every token's divergence from the reference; turn that into advantages;
improve the policy in a few clipped passes over the batch. Sources: Ouyang et al. 2022
(InstructGPT), Stiennon et al. 2020, Huang et al. 2024 ("The N+ Implementation Details of RLHF with
PPO"). Departures: scores are normalised by running rather than by per-batch moments, so that the
KL coefficient has a fixed meaning and a constant reward moves nothing; a response that ran into
the length limit keeps its score, with a penalty if asked for; an answer that an ensemble disagrees
about more than its threshold allows gives no gradient and goes to people.
"""

import shutil
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import set_seed

from workers import contracts
from workers.context import RecipeError, RunContext
from workers.contract.events import Alert, Fault
from workers.data.prompt_order import PromptOrder
from workers.models import parameter_count, stop_ids
from workers.ppo.evaluation import Evaluation, ask_people, audit, evaluate, sample
from workers.ppo.figures import (
    disagreement_figures,
    rollout_figures,
    seconds,
    sequence_kl,
)
from workers.ppo.rollout import Rollout, collect
from workers.ppo.setup import (
    Models,
    Prompts,
    load_models,
    make_optimizer,
    read_evaluation_prompts,
    read_training_prompts,
    set_learning_rate,
)
from workers.ppo.state import TrainingState, restore, save
from workers.ppo.update import NonFinite, UpdateStats, update
from workers.recipes.settings import settings_for
from workers.recipes.settings.policy import PPOSettings
from workers.rewards.build import build_judge, build_reward
from workers.rewards.ensemble import threshold_of
from workers.rewards.source import RewardSource, Scores
from workers.rl.advantages import gae, shaped_rewards
from workers.rl.controllers import AdaptiveKL, FixedKL
from workers.rollouts.sampling import Sampling, derive_seed

CONFIG = PPOSettings


def run(context: RunContext) -> dict[str, Any]:
    """Train to the last step, or until someone stops it; audit; return the headline figures."""
    settings: PPOSettings = settings_for("ppo", context.spec.config)
    set_seed(context.spec.seed)
    loop = Loop.build(context, settings)
    started = time.monotonic()
    first_step = loop.state.step
    if first_step == 0:
        loop.evaluate()
    while loop.state.step < settings.steps and not context.should_stop():
        loop.step()
        elapsed = time.monotonic() - started
        pace = elapsed / (loop.state.step - first_step)
        loop.report_progress(eta_s=pace * (settings.steps - loop.state.step))
        over = settings.max_seconds is not None and elapsed > settings.max_seconds
        ended = over or loop.state.step == settings.steps or bool(context.should_stop())
        loop.evaluate_and_save(ended=ended)
        if ended:
            break
    return loop.finish()


@dataclass
class Loop:
    """The parts of a run, and the one step that is repeated."""

    context: RunContext
    settings: PPOSettings
    models: Models
    optimizer: torch.optim.Optimizer
    reward: RewardSource
    judge: RewardSource | None
    prompts: Prompts
    eval_prompts: Prompts
    controller: FixedKL | AdaptiveKL
    state: TrainingState
    first: Evaluation | None = None
    last: Evaluation | None = None

    @classmethod
    def build(cls, context: RunContext, settings: PPOSettings) -> "Loop":
        models = load_models(context, settings)
        folder = context.input_path("prompts")
        optimizer = make_optimizer(models.actor_critic, settings)
        state = TrainingState(kl_coef=settings.kl_coef)
        resumed = context.resume_path()
        if resumed:
            state = restore(resumed, models.actor_critic, optimizer)
        horizon = settings.kl_horizon or settings.steps * settings.batch_size / 10
        controller = (
            AdaptiveKL(state.kl_coef, settings.kl_target, horizon)
            if settings.kl_controller == "adaptive"
            else FixedKL(state.kl_coef)
        )
        return cls(
            context=context,
            settings=settings,
            models=models,
            optimizer=optimizer,
            reward=build_reward(context, settings.reward, batch_size=settings.reward_batch_size),
            judge=build_judge(context, batch_size=settings.reward_batch_size),
            prompts=read_training_prompts(folder, models.tokenizer, settings),
            eval_prompts=read_evaluation_prompts(
                folder, models.tokenizer, settings, seed=context.spec.seed
            ),
            controller=controller,
            state=state,
        )

    # --- one step, in the order it happens ---

    def step(self) -> None:
        step = self.state.step + 1
        times = [time.monotonic()]
        rollout = self.roll_out(step)
        self.check(rollout)
        times.append(time.monotonic())
        scores = self.score(rollout)
        trusted = self.trust(scores)
        normalised = self.normalise(scores, rollout, trusted)
        times.append(time.monotonic())
        kl = rollout.kl(self.settings.kl_estimator)
        rewards = shaped_rewards(normalised, kl, rollout.mask, kl_coef=self.controller.coef)
        advantages, returns = gae(
            rewards,
            rollout.values,
            rollout.mask,
            gamma=self.settings.gamma,
            lam=self.settings.gae_lambda,
        )
        learning_rate = set_learning_rate(self.optimizer, self.settings, step)
        stats = self.learn(rollout, advantages, returns, trusted, step)
        times.append(time.monotonic())
        self.context.metrics(
            step,
            rollout_figures(rollout, scores, normalised, rewards, returns)
            | disagreement_figures(scores, trusted)
            | (stats.metrics if stats else {})
            | seconds(times, tokens=int(rollout.mask.sum()))
            | {"objective/scores_running_std": self.state.moments.std}
            | {"learning_rate": learning_rate, "kl_coef": self.controller.coef},
        )
        if step % self.settings.sample_every == 0:
            sample(self.context, rollout, scores, step=step)
        if (threshold := self.threshold) is not None:
            ask_people(self.context, rollout, scores, trusted, threshold=threshold, step=step)
        self.controller.update(sequence_kl(rollout), len(rollout.prompts))
        self.state.kl_coef = self.controller.coef
        self.state.policy_version += stats.steps if stats else 0
        self.state.position += self.settings.batch_size
        self.state.step = step

    def roll_out(self, step: int) -> Rollout:
        """Answers of the present policy to the next prompts."""
        order = PromptOrder(len(self.prompts), seed=self.context.spec.seed)
        messages, ids = self.prompts.at(order.take(self.state.position, self.settings.batch_size))
        sampling = Sampling(
            self.settings.max_new_tokens,
            temperature=self.settings.temperature,
            seed=derive_seed(self.context.spec.seed, "rollout", step),
        )
        return collect(
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
        )

    def check(self, rollout: Rollout) -> None:
        """What must hold exactly; a breach stops the run."""
        contracts.check_mask(
            rollout.mask,
            rollout.responses.response_ids,
            stop_ids(self.models.actor_critic.policy, self.models.tokenizer),
        )
        contracts.check_fresh(self.state.policy_version, rollout.policy_version)
        if self.state.policy_version == 0 and not self.settings.reference_differs:
            contracts.check_kl_at_start(rollout.logprobs, rollout.ref_logprobs, rollout.mask)

    def score(self, rollout: Rollout) -> Scores:
        scores = self.reward.score(rollout.prompts, rollout.responses.texts)
        contracts.check_finite("a reward", torch.tensor(scores.values))
        return scores

    @property
    def threshold(self) -> float | None:
        """The disagreement over which an answer teaches nothing; None without an ensemble."""
        return self.settings.reward.get("disagreement_threshold", threshold_of(self.reward))

    def trust(self, scores: Scores) -> Tensor:
        """Which answers may teach: [B], those an ensemble agrees about, or all of them."""
        if scores.disagreement is None or self.threshold is None:
            return torch.ones(len(scores.values), dtype=torch.bool)
        return torch.tensor(scores.disagreement) <= self.threshold

    def normalise(self, scores: Scores, rollout: Rollout, trusted: Tensor) -> Tensor:
        """Scores in running deviations, with the penalty for an answer that did not end: [B].

        Only answers that may teach move the scale: what nobody trusts must not set it."""
        raw = torch.tensor(scores.values, device=rollout.values.device)
        self.state.moments.update(raw[trusted.to(raw.device)])
        normalised = self.state.moments.normalise(raw, clip=self.settings.reward_clip)
        return normalised - self.settings.missing_eos_penalty * (~rollout.responses.ended)

    def learn(
        self, rollout: Rollout, advantages: Tensor, returns: Tensor, trusted: Tensor, step: int
    ) -> UpdateStats | None:
        """The update; None when all rewards were alike, or none was to be trusted, for then there
        is nothing to learn."""
        if not trusted.any():
            self.context.emit(
                Alert(
                    rule="all_flagged",
                    severity="warning",
                    step=step,
                    message="The members of the reward model disagree about every answer of this "
                    "step: the policy was not updated.",
                    value=1.0,
                    threshold=self.threshold,
                )
            )
            return None
        if self.state.moments.constant and not self.settings.missing_eos_penalty:
            self.context.emit(
                Alert(
                    rule="constant_reward",
                    severity="warning",
                    step=step,
                    message="All rewards so far are equal: the policy was not updated.",
                    value=self.state.moments.std,
                )
            )
            return None
        try:
            return update(
                self.models.actor_critic,
                self.optimizer,
                rollout,
                advantages,
                returns,
                self.settings,
                seed=derive_seed(self.context.spec.seed, "update", step),
                trusted=trusted,
                critic_alone=step <= self.settings.critic_warmup_steps,
            )
        except NonFinite as error:
            self.save(["failed"])
            raise RecipeError("non_finite", Fault.GUARD, f"step {step}: {error}") from error

    # --- around the steps ---

    def report_progress(self, *, eta_s: float) -> None:
        self.context.progress(self.state.step, self.settings.steps, "training", eta_s)

    def evaluate(self) -> bool:
        """Answer the fixed prompts and report; whether this is the best evaluation so far."""
        self.last = evaluate(
            self.models.actor_critic.policy,
            self.models.reference,
            self.models.tokenizer,
            self.eval_prompts,
            self.reward,
            self.judge,
            self.settings,
            seed=self.context.spec.seed,
        )
        self.first = self.first or self.last
        self.context.metrics(self.state.step, self.last.metrics())
        is_best = self.state.best is None or self.last.headline > self.state.best
        if is_best:
            self.state.best = self.last.headline
        return is_best

    def evaluate_and_save(self, *, ended: bool) -> None:
        """What is due after this step. A new best evaluation is kept at once."""
        step = self.state.step
        cancelled = self.context.stopped == "cancel"
        due = step % self.settings.eval_every == 0 or ended
        is_best = self.evaluate() if due and not cancelled else False
        if is_best or ended or step % self.settings.save_every == 0:
            tags = ["last"]
            tags += ["best"] if is_best else []
            tags += ["final"] if ended and not cancelled else []
            self.save(tags)

    def save(self, tags: list[str]) -> None:
        folder = self.context.workdir / f"checkpoint-{self.state.step}"
        self.models.reference.check()
        save(
            folder,
            self.models.actor_critic,
            self.models.tokenizer,
            self.optimizer,
            self.state,
        )
        metrics = self.last.metrics() if self.last else {}
        self.context.save_checkpoint(folder, step=self.state.step, tags=tags, metrics=metrics)
        shutil.rmtree(folder)

    def finish(self) -> dict[str, Any]:
        """The audit, unless someone cancelled, and the headline figures."""
        if self.context.stopped != "cancel" and self.last is not None:
            audit(
                self.context,
                self.models.reference,
                self.models.tokenizer,
                self.eval_prompts,
                self.last,
                self.reward,
                self.settings,
                step=self.state.step,
            )
        return {
            "step": self.state.step,
            "parameters": parameter_count(self.models.actor_critic.policy),
            "prompts": len(self.prompts),
            "prompts_left_out": self.prompts.left_out,
            "reference_sha256": self.models.reference.sha256,
            "first": self.first.metrics() if self.first else {},
            "last": self.last.metrics() if self.last else {},
        }
