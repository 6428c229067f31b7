"""TRL 1.12's PPOTrainer on the models and prompts of a folder, in TRL's own environment.

Run: python trl_side.py FOLDER RESULT.json, where FOLDER/plan.json says what to do. Nothing of
Concord is imported, for this runs beside other libraries. Everything that TRL could do faster
here is on: no activation checkpointing, no half precision (both cost time on a processor), one
forward for the whole batch of a rollout, no samples, no checkpoints, nothing reported.

Three things are changed from outside, none of them slower: prompts come in the order of the file
(TRL shuffles), the seed is set before each generation, and a gradient is copied where the plan
asks for it, in a run of its own that is not timed.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from meter import Meter  # beside this file
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PrinterCallback,
    TrainerCallback,
)
from trl.experimental.ppo import PPOConfig, PPOTrainer


def main(folder: Path, result: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    torch.manual_seed(0)
    trainer = build(folder, plan)
    meter = Meter()
    watch = Watch(meter)
    trainer.add_callback(watch)
    tokens = count_tokens(trainer, plan)
    if plan["gradient_to"]:
        copy_gradient(trainer, Path(plan["gradient_to"]))
    meter.start()
    trainer.train()
    figures = meter.figures() | {"tokens": tokens, "logs": watch.logs, "versions": versions()}
    result.write_text(json.dumps(figures))


def build(folder: Path, plan: dict[str, Any]) -> PPOTrainer:
    """The trainer with its four models."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "policy", padding_side="left")
    policy = AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    reference = AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    scorers = [
        AutoModelForSequenceClassification.from_pretrained(
            folder / name, num_labels=1, dtype=torch.float32
        )
        for name in ("reward", "critic")
    ]
    rows = [{"input_ids": ids} for ids in plan["prompts"]]
    batch = plan["batch_size"]
    trainer = PPOTrainer(
        args=PPOConfig(
            output_dir=str(folder / "trl-output"),
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=1,
            num_mini_batches=batch // plan["minibatch_size"],
            num_ppo_epochs=plan["epochs"],
            total_episodes=len(rows),
            local_rollout_forward_batch_size=batch,
            response_length=plan["max_new_tokens"],
            temperature=1.0,
            stop_token_id=tokenizer.eos_token_id,
            learning_rate=plan["learning_rate"],
            kl_coef=plan["kl_coef"],
            cliprange=plan["clip"],
            cliprange_value=plan["value_clip"],
            vf_coef=plan["value_coef"],
            gamma=1.0,
            lam=plan["lam"],
            seed=plan["seed"],
            lr_scheduler_type="constant",
            adam_epsilon=1e-5,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            num_sample_generations=0,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_steps=1,
        ),
        processing_class=tokenizer,
        model=policy,
        ref_model=reference,
        reward_model=scorers[0],
        value_model=scorers[1],
        train_dataset=Dataset.from_list(rows),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.dataloader = trainer.accelerator.prepare(
        DataLoader(trainer.train_dataset, batch_size=batch, collate_fn=trainer.data_collator)
    )
    return trainer


class Watch(TrainerCallback):
    """Marks the end of each step."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.logs: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.logs.append(dict(logs or {}))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.meter.step()


def count_tokens(trainer: PPOTrainer, plan: dict[str, Any]) -> list[dict[str, int]]:
    """Seeds each generation, and counts its prompt and response tokens (end token included)."""
    policy, pad = trainer.policy_model, trainer.processing_class.pad_token_id
    own, counts = policy.generate, []

    def generate(*args: Any, **options: Any) -> Any:
        torch.manual_seed(plan["seeds"][len(counts)])
        output = own(*args, **options)
        width = options["input_ids"].shape[1]
        counts.append(
            {
                "prompt": int(options["attention_mask"].sum()),
                "response": int((output.sequences[:, width:] != pad).sum()),
                "width": int(output.sequences.shape[1]) - width,
            }
        )
        return output

    policy.generate = generate
    return counts


def copy_gradient(trainer: PPOTrainer, path: Path) -> None:
    """Before the first optimizer step, keeps the gradients and what they were made from: the local
    variables of `train`, which TRL gives no other access to."""

    def hook(optimizer: Any, *_: Any) -> None:
        if path.exists():
            return
        frame = sys._getframe()
        while frame is not None and frame.f_code is not PPOTrainer.train.__code__:
            frame = frame.f_back
        names = (
            "query_responses",
            "responses",
            "context_length",
            "logprobs",
            "ref_logprobs",
            "values",
            "returns",
            "advantages",
            "padding_mask",
            "rewards",
            "scores",
            "micro_batch_inds",
            "pg_loss",
            "vf_loss",
        )
        kept = {name: frame.f_locals[name] for name in names}
        kept["gradients"] = {
            name: parameter.grad.clone()
            for name, parameter in trainer.model.policy.named_parameters()
        }
        torch.save(kept, path)

    trainer.optimizer.optimizer.register_step_pre_hook(hook)


def versions() -> dict[str, str]:
    from importlib import metadata

    return {name: metadata.version(name) for name in ("trl", "torch", "transformers", "accelerate")}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
