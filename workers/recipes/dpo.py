"""Direct preference optimisation: the policy learns from pairs, with no reward model between.

Inputs: `data` (a preferences snapshot) and `sft` (the checkpoint that the policy starts from and
that is its reference). TRL's trainer, guarded. The reference is loaded on its own from the
checkpoint and handed over explicitly: left to itself the trainer reloads it from the path it finds
in the policy's configuration, which is wrong for a policy that was changed in memory.
"""

from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, set_seed
from trl import DPOConfig, DPOTrainer

from workers.context import RunContext
from workers.data.snapshot import (
    TRAIN,
    Messages,
    Preference,
    evaluation_splits,
    read_preferences,
    refuse_soft_labels,
)
from workers.models import (
    load_causal,
    load_tokenizer,
    parameter_count,
    readable_length,
)
from workers.recipes.samples import choose, emit_samples, encode_fitting
from workers.recipes.settings import settings_for
from workers.recipes.settings.preference import DPOSettings
from workers.recipes.trainer_bridge import (
    GuardedTrainer,
    Reporter,
    check_batches,
    train,
    trainer_arguments,
    validation_split,
)
from workers.reference import Reference
from workers.rollouts.answers import Answer, answer
from workers.rollouts.sampling import Sampling

CONFIG = DPOSettings


class Trainer(GuardedTrainer, DPOTrainer):
    """TRL's trainer, guarded."""


class Probe(TrainerCallback):
    """At every evaluation: answers to fixed prompts, and how far they lie from the reference."""

    def __init__(
        self,
        context: RunContext,
        settings: DPOSettings,
        policy: PreTrainedModel,
        reference: Reference,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Messages],
        max_length: int,
    ) -> None:
        self.context = context
        self.policy = policy
        self.reference = reference
        self.tokenizer = tokenizer
        self.sampling = Sampling(settings.sample_max_new_tokens, seed=context.spec.seed)
        fitting, ids = encode_fitting(
            tokenizer, prompts, max(1, max_length - settings.sample_max_new_tokens)
        )
        chosen = choose(len(fitting), settings.sample_prompts, context.spec.seed)
        self.prompts = [fitting[i] for i in chosen]
        self.ids = [ids[i] for i in chosen]
        self.answers: list[Answer] = []
        self.kl: float | None = None

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.ids:
            return
        self.policy.eval()
        self.answers = answer(
            self.policy, self.tokenizer, self.ids, self.sampling, reference=self.reference
        )
        nats = [given.kl or 0.0 for given in self.answers]
        tokens = [given.tokens for given in self.answers]
        self.kl = sum(nats) / len(nats)
        self.context.metrics(
            state.global_step,
            {
                "objective/kl": self.kl,
                "objective/kl_per_token": sum(nats) / sum(tokens),
                "response/length": sum(tokens) / len(tokens),
            },
        )

    def show(self, step: int) -> None:
        """The last answers, each beside the reference's own."""
        if self.answers:
            with self.reference.weights() as model:
                baselines = answer(model, self.tokenizer, self.ids, self.sampling)
            emit_samples(self.context, step, self.prompts, self.answers, baselines=baselines)


def run(context: RunContext) -> dict[str, Any]:
    """Train, report samples, return the headline figures."""
    settings: DPOSettings = settings_for("dpo", context.spec.config)
    set_seed(context.spec.seed)
    folder = context.input_path("data")
    start = context.input_path("sft")
    tokenizer = load_tokenizer(start)
    policy = load_causal(start)
    reference = Reference.frozen(load_causal(start), policy=policy)
    max_length = min(settings.max_length, readable_length(policy, tokenizer))

    splits = {s: read_preferences(folder, s) for s in (TRAIN, *evaluation_splits(folder))}
    refuse_soft_labels(splits[TRAIN], "DPO reads winners only; freeze one without ties")
    validation = validation_split(splits)
    reporter = Reporter(context, settings)
    held_out_prompts = _distinct(splits[validation])
    probe = Probe(context, settings, policy, reference, tokenizer, held_out_prompts, max_length)
    trainer = Trainer(
        model=policy,
        ref_model=reference.model,
        args=DPOConfig(
            **trainer_arguments(context, settings),
            beta=settings.beta,
            loss_type=[settings.loss_type],
            label_smoothing=settings.label_smoothing,
            max_length=max_length,
        ),
        train_dataset=_dataset(splits[TRAIN]),
        eval_dataset=_dataset(splits[validation]),
        processing_class=tokenizer,
        callbacks=[reporter, probe],
    )
    lengths = _lengths(trainer.train_dataset)
    trainer.row_lengths = lengths
    check_batches(settings, len(lengths))
    train(context, trainer)
    reference.check()

    step = trainer.state.global_step
    if context.stopped != "cancel":
        probe.show(step)
    return {
        "step": step,
        "parameters": parameter_count(policy),
        "train_rows": len(lengths),
        "dropped_rows": len(splits[TRAIN]) - len(lengths),
        "truncated_share": sum(n > max_length for n in lengths) / len(lengths),
        "reference_sha256": reference.sha256,
        "kl": probe.kl,
        "held_out_margin": reporter.evaluated.get("eval/rewards/margins"),
        "held_out_accuracy": reporter.evaluated.get("eval/rewards/accuracies"),
    }


def _dataset(rows: Sequence[Preference]) -> Dataset:
    return Dataset.from_list(
        [
            {
                "prompt": row.prompt,
                "chosen": [{"role": "assistant", "content": row.chosen}],
                "rejected": [{"role": "assistant", "content": row.rejected}],
            }
            for row in rows
        ]
    )


def _lengths(dataset: Dataset) -> list[int]:
    """Tokens of the longer of both conversations of each row, before truncation."""
    return [
        len(row["prompt_ids"]) + max(len(row["chosen_ids"]), len(row["rejected_ids"]))
        for row in dataset
    ]


def _distinct(rows: Sequence[Preference]) -> list[Messages]:
    unique: dict[str, Messages] = {repr(row.prompt): row.prompt for row in rows}
    return list(unique.values())
