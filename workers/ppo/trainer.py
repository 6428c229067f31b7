"""The course of a PPO run around its steps: its parts, evaluations, guardrails, checkpoints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from accelerate import Accelerator
from torch import Tensor

from workers import ranks
from workers.behaviour import Histograms, Watch, make_watch
from workers.config.policy import PPOSettings
from workers.context import RunContext
from workers.layouts.gathered import is_split, size_of
from workers.models import invariants
from workers.models.loading import parameter_count, state_sha256, stop_ids
from workers.ppo import checkpoint
from workers.ppo.checkpoint import TrainingState, restore
from workers.ppo.diagnostics import MetricValues, bottleneck, score_metrics
from workers.ppo.distributed import Zero, by_first
from workers.ppo.evaluation import (
    Baseline,
    Evaluation,
    RewardProbes,
    audit,
    evaluate,
    measure_baseline,
    read_probes,
)
from workers.ppo.rollout import Rollout, sequences_of
from workers.ppo.setup import (
    Models,
    Prompts,
    check_layout,
    load_models,
    make_accelerator,
    make_optimizer,
    make_zero,
    read_evaluation_prompts,
    read_training_prompts,
)
from workers.preflight.findings import Parts, Report, critic_parts
from workers.rewards.build import build_judge, build_reward
from workers.rewards.source import RankedQueue, RewardSource, ScoreQueue
from workers.rl.losses import AdaptiveKL, FixedKL
from workers.rollouts.drawing import measure_latency, save_latency
from workers.rollouts.local import Responses, Sampling, generate
from workers.rules.engine import (
    CUT_ANSWERS,
    Engine,
    Violation,
    first_stop,
    live_engine,
    report,
    stop_error,
)

if TYPE_CHECKING:
    from workers.ppo.async_rollout import Actors


# What guardrails change while a run trains, and what a step reads of it.


def make_controller(settings: PPOSettings, kl_coef: float) -> FixedKL | AdaptiveKL:
    """The KL penalty. An adaptive one acts over a tenth of the planned answers."""
    if settings.kl_controller == "fixed":
        return FixedKL(kl_coef)
    horizon = settings.kl_horizon or settings.steps * settings.batch_size / 10
    return AdaptiveKL(kl_coef, settings.kl_target, horizon)


class Controllers:
    """Holds the KL penalty, and the settings that guardrails have changed. All of it
    lives in the training state, so a resumed run is steered as it was."""

    def __init__(self, context: RunContext, settings: PPOSettings, state: TrainingState) -> None:
        self.context = context
        self.settings = settings
        self.state = state
        self.controller = make_controller(settings, state.kl_coef)

    @property
    def kl_coef(self) -> float:
        return self.controller.coef

    @property
    def rate_factor(self) -> float:
        """What the scheduled step size is multiplied by."""
        return self.state.adjusted.get("learning_rate", 1.0)

    @property
    def epochs(self) -> int:
        return int(self.state.adjusted.get("update_epochs", self.settings.update_epochs))

    @property
    def entropy_coef(self) -> float:
        return self.state.adjusted.get("entropy_coef", self.settings.entropy_coef)

    def follow(self, kl: float, answers: int) -> None:
        """Let the controller see the divergence of a step, nats per sequence."""
        self.controller.update(kl, answers)
        self.state.kl_coef = self.controller.coef

    def handle(self, violations: Sequence[Violation]) -> Violation | None:
        """Change what is to be changed; the violation that ends the run, if one does."""
        for violation in violations:
            for change in violation.adjustment:
                self._adjust(change.setting, change.apply)
        return first_stop(violations)

    def _adjust(self, setting: str, change: Callable[[float], float]) -> None:
        adjusted = self.state.adjusted
        if setting == "kl_coef":
            self.controller.coef = self.state.kl_coef = change(self.controller.coef)
        elif setting == "learning_rate":
            peak = self.settings.learning_rate
            adjusted[setting] = change(peak * self.rate_factor) / peak
        else:
            adjusted[setting] = change(adjusted.get(setting, getattr(self.settings, setting)))


@dataclass
class TrainerParts:
    """The parts of a run, and what happens around its steps."""

    context: RunContext
    settings: PPOSettings
    accelerator: Accelerator
    models: Models
    optimizer: torch.optim.Optimizer | Zero
    reward: RewardSource
    judge: RewardSource | None
    scoring: RankedQueue
    prompts: Prompts
    eval_prompts: Prompts
    controllers: Controllers
    rules: Engine
    state: TrainingState
    kept: checkpoint.Kept
    watch: Watch
    probes: RewardProbes
    histograms: Histograms
    first: Evaluation | None = None
    last: Evaluation | None = None
    stopped_by: str = ""
    evaluated_at: int = -1
    timed: list[dict[str, float]] = field(default_factory=list)
    actors: "Actors | None" = None

    @classmethod
    def build(cls, context: RunContext, settings: PPOSettings) -> Self:
        check_layout(context)
        accelerator = make_accelerator(settings)
        models = load_models(context, settings)
        folder = context.input_path("prompts")
        adamw = make_optimizer(models.actor_critic, settings)
        state = TrainingState(kl_coef=settings.kl_coef, tokens=0)
        rules = live_engine(context.spec, settings)
        kept = checkpoint.Kept(settings.keep_rollouts)
        watch, histograms = make_watch(context, settings), Histograms()
        resumed = context.resume_path()
        if resumed:
            state = restore(resumed, models.actor_critic, adamw)
            rules.restore(state.guards)
            watch.restore(state.watch)
            histograms.restore(state.histograms)
            kept.load(resumed)
        if ranks.world() == 1:  # over several, gradients are added up by the update
            models.actor_critic = accelerator.prepare(models.actor_critic)
        optimizer = make_zero(context, settings, models, adamw, accelerator) or adamw
        actors = _actors(context, settings, models, accelerator)
        distant = actors.reward if actors else None
        size = settings.reward_batch_size
        reads: Any = {"precision": settings.reward_precision, "spread_out": settings.spread_reward}
        reward = distant or build_reward(context, settings.reward, batch_size=size, **reads)
        at_once = size * max(1, settings.reward_workers)
        course = cls(
            context=context,
            settings=settings,
            accelerator=accelerator,
            models=models,
            optimizer=optimizer,
            reward=reward,
            judge=build_judge(context, batch_size=size, **reads),
            scoring=RankedQueue(ScoreQueue(reward, batch_size=at_once)),
            prompts=read_training_prompts(folder, models.tokenizer, settings),
            eval_prompts=read_evaluation_prompts(
                folder, models.tokenizer, settings, seed=context.spec.seed
            ),
            controllers=Controllers(context, settings, state),
            rules=rules,
            state=state,
            kept=kept,
            watch=watch,
            probes=read_probes(context),
            histograms=histograms,
            actors=actors,
        )
        if actors is not None:
            actors.draw_ahead_by(course.scoring.submit)
        return course

    def close(self) -> None:
        """End what works beside this thread."""
        if self.actors is not None:
            self.actors.stop()
        self.scoring.close()
        if isinstance(self.optimizer, Zero):
            self.optimizer.close()
        if self.actors is not None:
            self.actors.close()

    @property
    def is_fresh(self) -> bool:
        return self.state.step == 0

    def spread(self, step: int, scores: Sequence[float], lengths: Sequence[float]) -> None:
        """How scores and lengths lay, on bins that stay the same."""
        longest = self.settings.max_new_tokens
        for event in self.histograms.of_answers(step, scores, lengths, longest=longest):
            self.context.emit(event)

    # --- guardrails ---

    def look(
        self, step: int, metrics: Mapping[str, float | None], violations: Sequence[Violation] = ()
    ) -> list[Violation]:
        """What the rules say of these metrics, after what was crossed before; all of it told."""
        violations = self.rules.check(step, metrics, violations)
        report(self.context.emit, violations)
        return violations

    def act(self, violations: list[Violation]) -> None:
        """Change what is to be changed, and end what is to end."""
        if (stop := self.controllers.handle(violations)) is not None:
            looked = stop.rule.stage == "numerics" or self.evaluated_at == self.state.step
            if not looked:  # what the stop cut off may be the best there was
                self.evaluate()
                if self.note_evaluation():
                    self.save(["last", "best"])
            self.save(["failed"])
            self.kept.publish(self.context)
            raise stop_error(stop)

    # --- around the steps ---

    @property
    def baseline(self) -> Baseline | None:
        return Baseline(**self.state.baseline) if self.state.baseline else None

    def begin(self) -> None:
        """What is measured before the first step, and what it shows already."""
        self.check_ranks()
        self.measure_baseline()
        violations = self.evaluate()
        self.note_evaluation()
        self.act(violations)

    def measure_baseline(self) -> None:
        with self.models.whole():
            found = measure_baseline(
                self.models.reference,
                self.models.tokenizer,
                self.eval_prompts,
                self.reward,
                self.settings,
                seed=self.context.spec.seed,
                watch=self.watch,
                temperature=self.context.spec.reward_temperature,
            )
        self.state.baseline = found.to_json() if found else None
        if found:
            self.context.metrics(0, found.behaviour)

    def report_progress(self, *, eta_s: float) -> None:
        self.context.progress(self.state.step, self.settings.steps, "training", eta_s)

    def evaluate(self) -> list[Violation]:
        """Answer the fixed prompts and report; what the rules say of it."""
        with self.models.whole():
            self.last = evaluate(
                self.models.actor_critic.policy,
                self.models.reference,
                self.models.tokenizer,
                self.eval_prompts,
                self.reward,
                self.judge,
                self.settings,
                seed=self.context.spec.seed,
                baseline=self.baseline,
                probes=self.probes,
                deviation=self.watch.deviation,
            )
        self.first = self.first or self.last
        self.evaluated_at = self.state.step
        self.context.metrics(self.state.step, self.last.all_metrics() | self.places())
        if self.state.step == 0:
            self.spread(0, self.last.scores.values, [given.tokens for given in self.last.answers])
        return self.look(self.state.step, self.last.all_metrics())

    def places(self) -> MetricValues:
        """Where a point lies besides its step, as far as the run knows."""
        state = self.state
        found: MetricValues = {"epoch": state.position / len(self.prompts)}
        return found if state.tokens is None else found | {"num_tokens": float(state.tokens)}

    def note_evaluation(self) -> bool:
        """Whether the last evaluation is the best so far; one with far more cut answers is not."""
        assert self.last is not None  # noqa: S101 — the caller has just evaluated
        cut = self.rules.is_crossed(CUT_ANSWERS)
        return checkpoint.note_evaluation(self.state, self.last.headline, may_be_best=not cut)

    def evaluate_and_save(self, *, last: bool) -> bool:
        """What is due after this step; whether the run ends here. A new best evaluation is kept at
        once."""
        step = self.state.step
        cancelled = self.context.stopped == "cancel"
        due = (step % self.settings.eval_every == 0 or last) and not cancelled
        violations = self.evaluate() if due else []
        is_best = self.note_evaluation() if due else False
        if due and self.settings.patience and self.state.not_better >= self.settings.patience:
            self.stopped_by = "patience"
        ended = last or bool(self.stopped_by)
        if is_best or ended or step % self.settings.save_every == 0:
            tags = ["last"]
            tags += ["best"] if is_best else []
            tags += ["final"] if ended and not cancelled else []
            self.save(tags)
        self.act(violations)
        return ended

    def check_ranks(self) -> None:
        """Where each rank keeps a copy of what is trained, the copies are one to the bit."""
        actor_critic = self.models.actor_critic
        if ranks.world() > 1 and not is_split(actor_critic):
            trained = {name: p for p, name in actor_critic.trained_names().items()}
            invariants.check_alike(ranks.gathered(state_sha256(trained)))

    def save(self, tags: list[str]) -> None:
        self.models.reference.check()
        self.check_ranks()
        self.state.guards = self.rules.state()
        self.state.watch = self.watch.state()
        self.state.histograms = self.histograms.state()
        metrics = self.last.metrics() if self.last else {}
        checkpoint.save_checkpoint(
            self.context, self.models, self.optimizer, self.state, self.kept, tags, metrics
        )

    def finish(self) -> dict[str, Any]:
        """The audit, unless someone cancelled, and the headline metrics."""
        if self.context.stopped != "cancel" and self.last is not None:
            with self.models.whole():
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
            self.kept.publish(self.context)
            return self.summary() | self.latency()
        return self.summary()

    # --- what is measured of it ---

    def preflight(self) -> Report:
        """Data, memory and the reward before the first step; the critic too where a person asked
        and no pass of one rank waits for the others. The first rank looks for all."""
        settings, models = self.settings, self.models
        fits = settings.preflight and not models.tied
        parts = Parts(
            tokenizer=models.tokenizer,
            policy=models.actor_critic.policy,
            prompts=self.prompts.messages,
            prompt_ids=self.prompts.ids,
            left_out=self.prompts.left_out,
            eval_prompts=self.eval_prompts.messages,
            reward=self.reward,
            critic=critic_parts(models.actor_critic) if fits else None,
        )
        with models.whole():
            return by_first(lambda: self.context.look_before("ppo", settings, parts))

    def scored(self, rollout: Rollout, trusted: Tensor) -> MetricValues:
        """Metrics of the batch's raw scores against their running scale."""
        moments = self.state.moments
        return score_metrics(
            rollout.scored,
            trusted,
            mean=moments.mean,
            std=moments.std if moments.count > 1 else None,
            clip=self.settings.reward_clip,
        )

    def watched(self, rollout: Rollout) -> MetricValues:
        """What the batch's answers say, and what the reward makes of it."""
        responses = rollout.responses
        return self.watch.look(responses.texts, rollout.scored.values, responses.lengths.tolist())

    def summary(self) -> dict[str, Any]:
        """The headline metrics of a run that ended."""
        state = self.state
        metrics: dict[str, Any] = {
            "step": state.step,
            "parameters": parameter_count(self.models.actor_critic.policy),
            "trained_parameters": sum(map(size_of, self.models.actor_critic.trained_names())),
            "prompts": len(self.prompts),
            "prompts_left_out": self.prompts.left_out,
            "reference_sha256": self.models.reference.sha256,
            "best_step": state.best_step,
            "first": self.first.metrics() if self.first else {},
            "last": self.last.metrics() if self.last else {},
        }
        if self.stopped_by:
            metrics["stopped_by"] = self.stopped_by
        if state.adjusted:
            metrics["adjusted"] = dict(state.adjusted)
        if self.timed:
            tokens = [t["throughput/response_tokens_per_s"] * t["time/step_s"] for t in self.timed]
            metrics["bottleneck"] = bottleneck(self.timed, tokens=tokens).to_json()
        return metrics

    def latency(self) -> dict[str, Any]:
        """Answers timed one at a time, with and without the value head, as the artifact
        latency.json; nothing where none are wanted."""
        requests = self.settings.latency_requests
        if not requests:
            return {}
        with self.models.whole():
            return self._timed(requests) if ranks.is_first() else {}

    def _timed(self, requests: int) -> dict[str, Any]:
        models, prompts = self.models, self.eval_prompts
        policy, stop = (
            models.actor_critic.policy,
            stop_ids(models.actor_critic.policy, models.tokenizer),
        )

        def answered(i: int) -> Responses:
            sampling = Sampling(
                self.settings.max_new_tokens, temperature=self.settings.temperature, seed=i
            )
            ids = [prompts.ids[i % len(prompts)]]
            return generate(policy, models.tokenizer, ids, sampling, stop=stop)

        def without(i: int) -> int:
            return int(answered(i).lengths[0])

        @torch.no_grad()
        def with_value(i: int) -> int:
            given = answered(i)
            *sequences, _ = sequences_of(given, torch.arange(1))
            models.actor_critic.values(*sequences)
            return int(given.lengths[0])

        found = measure_latency(without, with_value, requests=requests)
        return {"latency": save_latency(self.context, found)}


def _actors(
    context: RunContext, settings: PPOSettings, models: Models, accelerator: Accelerator
) -> "Actors | None":
    """Actors beyond this process, where the settings want any; only then is Ray needed."""
    if not settings.rollout_workers and not settings.reward_workers:
        return None
    from workers.ppo.async_rollout import open_actors

    half = accelerator.mixed_precision == "bf16"
    return open_actors(context, settings, models, half=half)
