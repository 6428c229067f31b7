"""Fields that every training recipe has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.config.parsing import option


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Optimisation, schedule, bookkeeping. A step is one optimizer step."""

    learning_rate: float = option(
        1e-5,
        "Peak step size of AdamW. Lower it when loss or KL jumps, raise it when nothing moves.",
        above=0.0,
    )
    batch_size: int = option(
        32, "Rows per step. Larger is steadier and slower per step.", unit="rows", minimum=1
    )
    gradient_accumulation: int = option(
        1,
        "Parts a batch is computed in. Raise it when memory runs out; the result is the same.",
        minimum=1,
    )
    epochs: float = option(
        1.0, "Passes over the training rows. Preferences overfit after one or two.", above=0.0
    )
    max_steps: int | None = option(
        None, "Stop after so many steps whatever `epochs` says.", unit="steps", minimum=1
    )
    max_seconds: float | None = option(
        None,
        "Save and finish once an attempt has trained this long; for demos and slow machines.",
        unit="s",
        above=0.0,
    )
    warmup_share: float = option(
        0.05, "Share of the steps over which the step size rises.", minimum=0.0, maximum=0.5
    )
    lr_schedule: str = option(
        "linear", "How the step size falls afterwards.", choices=("linear", "cosine", "constant")
    )
    weight_decay: float = option(0.0, "AdamW's weight decay.", minimum=0.0)
    max_grad_norm: float = option(
        1.0, "Gradients longer than this are scaled down to it.", above=0.0
    )
    max_length: int = option(
        1024,
        "Longest sequence, prompt and response together; the rest is cut and counted.",
        unit="tokens",
        minimum=8,
    )
    log_every: int = option(10, "Steps between metric points.", unit="steps", minimum=1)
    eval_every: int = option(50, "Steps between evaluations.", unit="steps", minimum=1)
    save_every: int = option(
        100, "Steps between checkpoints; what a crash can cost.", unit="steps", minimum=1
    )
    preflight: bool = option(
        False, "Only look: rows, overlaps, lengths, memory; report, train nothing."
    )
    minimal: bool = option(
        False,
        "The same configuration in small: a few steps of a few rows, at most a minute. To "
        "reproduce a trouble before a long run.",
    )
    base_model: str | None = option(
        None, "Hub id or folder of the model to start from, when no checkpoint is an input."
    )
    guards: Mapping[str, Any] = option(
        {},
        "Changes to the guardrails, by rule: {gradient: {threshold: 20, action: adjust}, "
        "held_out_loss: stop}. docs/guardrails.md lists rules, thresholds and actions.",
    )
