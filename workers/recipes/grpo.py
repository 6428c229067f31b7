"""Group-relative policy optimisation: answers to one prompt are rewarded against each other.

Inputs: `policy` or `sft` (the checkpoint to start from), `prompts` (any snapshot with prompts),
`reward` (a reward model, unless the reward is a rule or a verifier), and optionally `judge` (a
second reward model that is asked and never optimised against) and `reference`.

One step: draw a group of answers to each of a few prompts; score them as text; take from each the
mean of its group; push the policy towards what was better than its group, less a KL penalty
against the reference. No critic. Source: Shao et al. 2024 (DeepSeekMath), section 4; with
verifiable rewards this is RLVR (Lambert et al. 2024, Tülu 3). GSPO (Zheng et al. 2025) is the
setting `importance_sampling_level: sequence`, RLOO (Ahmadian et al. 2024) `loss_type: rloo`. The
update is TRL's; what of TRL is replaced, and why, stands in workers/grpo/trainer.py. With an
`environment` an answer has several turns, in which the policy calls tools
(workers/rollouts/tools.py), and the prompts are tasks whose final state is checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from trl import GRPOConfig, RLOOConfig

from workers.behaviour import Histograms, Watch, make_watch
from workers.config.grpo import GRPOSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import TRAIN, evaluation_splits, read_prompts
from workers.environments.worlds import Episode, tasks_of
from workers.grpo.engine import check_engine, engine_arguments
from workers.grpo.metrics import GroupReward
from workers.grpo.reporting import GroupReporter, ask_people, sample, tell_silence
from workers.grpo.trainer import GroupTrainer, LeaveOneOutTrainer, Trainer
from workers.layouts.arguments import cannot_recompute, weights_in_float32
from workers.models.forward import Reference
from workers.models.loading import keep, load_causal, load_tokenizer, parameter_count, stop_ids
from workers.models.lora import attach_policy_lora
from workers.ppo.evaluation import (
    Baseline,
    Evaluation,
    RewardProbes,
    audit,
    evaluate,
    measure_baseline,
    read_probes,
)
from workers.ppo.setup import Prompts, read_evaluation_prompts, read_training_prompts
from workers.preflight.findings import Parts, Report
from workers.preflight.minimal import settings_of
from workers.rewards.build import build_judge, build_reward
from workers.rewards.verifier import final_state
from workers.rollouts.drawing import Draw
from workers.rollouts.local import generate
from workers.rollouts.tools import ToolRollouts, prepare_tokenizer
from workers.trainers.trainer_bridge import train, trainer_arguments

CONFIG = GRPOSettings


def run(context: RunContext) -> dict[str, Any]:
    """Train to the last step, or until someone stops it; audit; return the headline metrics."""
    settings: GRPOSettings = settings_of(context, "grpo")
    check_engine(context.spec, settings)
    context.check_memory("grpo", settings)
    set_seed(context.spec.seed)
    models = load_models(context, settings)
    folder = context.input_path("prompts")
    tools = make_tools(folder, models.tokenizer, settings)
    encode = tools.encode if tools else None
    prompts = read_training_prompts(folder, models.tokenizer, settings, encode=encode)
    eval_prompts = read_evaluation_prompts(
        folder, models.tokenizer, settings, seed=context.spec.seed, encode=encode
    )
    reward = make_reward(context, settings, models)
    config = trl_config(context, settings, models)  # where several ranks meet
    looked = look_before(context, settings, models, prompts, eval_prompts, reward)
    if settings.preflight:
        return {"step": 0, "preflight": looked.summary() if looked else None}
    watch, probes = make_watch(context, settings), read_probes(context)
    outside = Outside(context, settings, models, reward, eval_prompts, watch, probes, tools)
    reporter = GroupReporter(context, settings, outside.on_step)
    outside.begin(reporter)
    of_loss: type[GroupTrainer] = LeaveOneOutTrainer if settings.loss_type == "rloo" else Trainer
    trainer = of_loss(
        model=models.trained,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": messages} for messages in prompts.messages]),
        eval_dataset=Dataset.from_list([{"prompt": m} for m in eval_prompts.messages]),
        processing_class=models.tokenizer,
        callbacks=[reporter],
        settings=settings,
        reference=models.reference,
        evaluation=outside.evaluate,
        baseline=outside.baseline,
        watch=watch,
        rollouts=tools,
    )
    train(context, trainer)
    models.reference.check()
    step = trainer.state.global_step
    with trainer.whole_everywhere():
        outside.finish(step)
    return {
        "step": step,
        "parameters": parameter_count(models.policy),
        "prompts": len(prompts),
        "prompts_left_out": prompts.left_out,
        "reference_sha256": models.reference.sha256,
        "preflight": looked.summary() if looked else None,
        "first": outside.first.metrics() if outside.first else {},
        "last": outside.last.metrics() if outside.last else {},
    }


def make_tools(
    folder: Path, tokenizer: PreTrainedTokenizerBase, settings: GRPOSettings
) -> ToolRollouts | None:
    """Rollouts in the environment that the settings name. Raises `RecipeError` where the tokenizer
    cannot write calls, or a prompt is no task."""
    if not settings.with_tools:
        return None
    prepare_tokenizer(tokenizer, settings)
    splits = [TRAIN, *evaluation_splits(folder)]
    rows = [row for split in splits for row in read_prompts(folder, split)]
    return ToolRollouts(tokenizer, tasks_of(rows, settings.environment), settings)


def look_before(
    context: RunContext,
    settings: GRPOSettings,
    models: "Models",
    prompts: Prompts,
    eval_prompts: Prompts,
    reward: GroupReward,
) -> Report | None:
    """The preflight of a fresh run; None of a resumed one."""
    if context.spec.resume is not None:
        return None
    models.trained.eval()
    return context.look_before(
        "grpo",
        settings,
        Parts(
            tokenizer=models.tokenizer,
            policy=models.policy,
            prompts=prompts.messages,
            prompt_ids=prompts.ids,
            left_out=prompts.left_out,
            eval_prompts=eval_prompts.messages,
            # What it is asked on is drawn in one turn, in which no task of an environment is done.
            reward=None if settings.with_tools else reward.source,
        ),
    )


@dataclass(slots=True)
class Models:
    """`trained` is what the trainer holds: the policy, or the adapters over it."""

    trained: PreTrainedModel | PeftModel
    policy: PreTrainedModel
    reference: Reference
    tokenizer: PreTrainedTokenizerBase


def load_models(context: RunContext, settings: GRPOSettings) -> Models:
    """The starting policy and the reference. A resumed run's weights are put back by the trainer;
    what it starts from, and is held to, is the input all the same."""
    start = context.input_path("policy" if context.has_input("policy") else "sft")
    reference_folder = context.input_path("reference") if context.has_input("reference") else start
    context.phase("loading the models")
    tokenizer = load_tokenizer(start)
    layout = context.spec.layout
    frozen = keep(settings, layout, trained=False)
    whole = keep(settings, layout, trained=True)
    policy = load_causal(start, keep=frozen if settings.lora_rank else whole)
    _check_room(policy, settings)
    if settings.lora_rank == 0:
        reference = Reference.frozen(load_causal(reference_folder, keep=frozen), policy=policy)
        return Models(policy, policy, reference, tokenizer)
    adapted = attach_policy_lora(policy, rank=settings.lora_rank, alpha=settings.lora_alpha)
    if reference_folder == start:
        reference = Reference.below_adapters(adapted)
    else:
        reference = Reference.frozen(load_causal(reference_folder, keep=frozen), policy=policy)
    return Models(adapted, policy, reference, tokenizer)


def make_reward(context: RunContext, settings: GRPOSettings, models: Models) -> GroupReward:
    """The reward, and beside it the source that is only asked: the judge, or the verifier."""
    size = settings.reward_batch_size
    reads: Any = {"precision": settings.reward_precision, "spread_out": settings.spread_reward}
    check = build_judge(context, batch_size=size, **reads)
    is_model = check is not None
    if check is None and settings.verifier is not None:
        check = build_reward(context, settings.verifier, batch_size=size)
    return GroupReward(
        build_reward(context, settings.reward, batch_size=size, **reads),
        models.tokenizer,
        settings,
        stop=stop_ids(models.policy, models.tokenizer),
        check=check,
        check_is_model=is_model,
    )


def trl_config(
    context: RunContext, settings: GRPOSettings, models: Models
) -> GRPOConfig | RLOOConfig:
    """TRL's arguments of the run: of `rloo` those of its own trainer."""
    both = arguments(context, settings, models)
    if settings.loss_type == "rloo":
        return RLOOConfig(**both)
    return GRPOConfig(
        **both,
        use_bias_correction_kl=True,  # the gradient of the KL itself, on answers drawn before
        entropy_coef=settings.entropy_coef,
        loss_type=settings.loss_type,
        scale_rewards=settings.scale_rewards,
        importance_sampling_level=settings.importance_sampling_level,
        **engine_arguments(settings, on_gpu=models.policy.device.type == "cuda"),
    )


def arguments(context: RunContext, settings: GRPOSettings, models: Models) -> dict[str, Any]:
    """What both of TRL's configurations decide, spelled out where its defaults are not ours."""
    on_gpu = models.policy.device.type == "cuda"
    may = on_gpu and not cannot_recompute(context.spec, settings)
    checkpointing = {"on": True, "off": False, "auto": may}[settings.gradient_checkpointing]
    return weights_in_float32(trainer_arguments(context, settings)) | {
        "num_generations": settings.group_size,
        "num_generations_eval": 1,
        "max_completion_length": settings.max_new_tokens,
        "temperature": settings.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "beta": 0.0,  # the trainer brings its own reference and sets the coefficient then
        "num_iterations": settings.update_epochs,
        "epsilon": settings.clip,
        "epsilon_high": settings.clip_high,
        "mask_truncated_completions": settings.mask_truncated,
        "disable_dropout": True,
        "activation_checkpointing": checkpointing,
        "activation_checkpointing_kwargs": {"use_reentrant": False},
    }


@dataclass
class Outside:
    """The run seen from outside its training: fixed prompts, samples, people, the audit."""

    context: RunContext
    settings: GRPOSettings
    models: Models
    reward: GroupReward
    prompts: Prompts
    watch: Watch
    probes: RewardProbes
    tools: ToolRollouts | None = None
    histograms: Histograms = field(default_factory=Histograms)
    baseline: Baseline | None = None
    silent: bool = False  # whether the last step taught nothing
    first: Evaluation | None = None
    last: Evaluation | None = None

    def begin(self, reporter: GroupReporter) -> None:
        """The mark a run is measured from: the reference's answers, or those of the checkpoint."""
        reporter.riders |= {"watch": self.watch, "histograms": self.histograms}
        resumed = self.context.resume_path()
        if resumed:
            reporter.restore(resumed)
            self.baseline = Baseline(**reporter.mark) if reporter.mark else None
            return
        self.baseline = measure_baseline(
            self.models.reference,
            self.models.tokenizer,
            self.prompts,
            self.reward.source,
            self.settings,
            seed=self.context.spec.seed,
            watch=self.watch,
            temperature=self.context.spec.reward_temperature,
            draw=self.draw,
        )
        reporter.mark = self.baseline.to_json() if self.baseline else None
        if self.baseline:
            self.context.metrics(0, self.baseline.behaviour)

    def evaluate(self) -> dict[str, float]:
        """Answer the fixed prompts with the present policy; metrics as the trainer names them."""
        self.last = evaluate(
            self.models.policy,
            self.models.reference,
            self.models.tokenizer,
            self.prompts,
            self.reward.source,
            self.reward.check if self.reward.check_is_model else None,
            self.settings,
            seed=self.context.spec.seed,
            baseline=self.baseline,
            probes=self.probes,
            deviation=self.watch.deviation,
            draw=self.draw,
        )
        if self.first is None and self.context.spec.resume is None:
            self.spread(0, self.last.scores.values, [one.tokens for one in self.last.answers])
        self.first = self.first or self.last
        found = self.last.all_metrics()
        episodes = [one.text for one in self.last.answers if isinstance(one.text, Episode)]
        if episodes:
            ends = [final_state(one.task, one) for one in episodes]
            found["eval/success_share"] = sum(end.right for end in ends) / len(ends)
        return {name.replace("eval/", "eval_"): v for name, v in found.items()}

    @property
    def draw(self) -> Draw:
        return self.tools or generate

    def spread(self, step: int, scores: Sequence[float], lengths: Sequence[float]) -> None:
        """How scores and lengths lay, on bins that stay the same."""
        longest = self.settings.max_new_tokens
        for event in self.histograms.of_answers(step, scores, lengths, longest=longest):
            self.context.emit(event)

    def on_step(self, step: int) -> None:
        judged = self.reward.last
        if judged is None:
            return
        due = step % self.settings.sample_every < self.settings.update_epochs
        if due:
            sample(self.context, judged, step=step)
        if due or step % self.settings.eval_every < self.settings.update_epochs:
            self.spread(step, judged.scores.values, judged.lengths)
        ask_people(self.context, judged, threshold=self.reward.threshold, step=step)
        silent = bool(judged.silent(self.settings.group_size).all())
        if silent and not self.silent:  # said once, and again after a step that taught something
            tell_silence(self.context, step=step)
        self.silent = silent

    def finish(self, step: int) -> None:
        """The audit, unless someone cancelled."""
        if self.context.stopped == "cancel" or self.last is None:
            return
        audit(
            self.context,
            self.models.reference,
            self.models.tokenizer,
            self.prompts,
            self.last,
            self.reward.source,
            self.settings,
            step=step,
            draw=self.draw,
        )


def _check_room(policy: PreTrainedModel, settings: GRPOSettings) -> None:
    positions = getattr(policy.config.get_text_config(), "max_position_embeddings", None)
    wanted = settings.max_prompt_length + settings.max_new_tokens
    if positions and wanted > positions:
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            f"max_prompt_length + max_new_tokens: {wanted} tokens are more than the "
            f"{positions} positions of this model",
        )
