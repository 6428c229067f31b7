"""Under which heading of the launch form a field stands. A name means the same in every recipe, so
one table serves all kinds; a field that it does not know stands under the last heading."""

from collections.abc import Iterable

from workers.contract.recipes import RecipeField

# (heading, what the fields under it are about, their names)
SECTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Model",
        "What is trained: all weights or adapters, and in which precision.",
        (
            "base_model",
            "lora_rank",
            "lora_alpha",
            "lora_dropout",
            "critic",
            "members",
            "member_split",
            "aggregate",
            "disagreement_coef",
            "dropout",
            "precision",
            "gradient_checkpointing",
            "base_vocabulary",
            "base_width",
            "base_layers",
            "base_heads",
            "base_context",
        ),
    ),
    (
        "Data",
        "Which rows are read, and what becomes of those that are too long.",
        (
            "max_length",
            "overlong",
            "on_overlong",
            "labels",
            "use_weights",
            "sampling",
            "recency_half_life_days",
            "hard_weight",
            "folds",
            "held_out_share",
            "max_pairs",
            "max_prompts",
            "max_outputs",
            "probe_prompts",
            "effect_answers",
        ),
    ),
    (
        "Rollouts",
        "The answers a step learns from, and how they are drawn.",
        (
            "ppo.batch_size",
            "grpo.batch_size",
            "num_generations",
            "group_size",
            "rollout_chunk",
            "max_prompt_length",
            "max_new_tokens",
            "temperature",
            "top_p",
            "top_k",
            "server",
            "opponent",
            "principles",
            "filter",
            "draws",
            "best_of",
            "best_of_prompts",
        ),
    ),
    (
        "Actors beyond this process",
        "Answers and scores by Ray actors (docs/ray.md); all 0 needs no Ray.",
        (
            "rollout_workers",
            "rollout_lag",
            "rollout_max_age",
            "importance_cap",
            "reward_workers",
            "worker_gpus",
            "worker_timeout",
        ),
    ),
    (
        "Reward",
        "Where scores come from and what is done to them before they teach.",
        (
            "reward",
            "verifier",
            "mask_truncated",
            "reward_batch_size",
            "reward_clip",
            "scale_rewards",
            "missing_eos_penalty",
            "length_penalty",
            "length_target",
            "baseline_answers",
        ),
    ),
    (
        "Divergence from the reference",
        "How dear it is to move away from the model the run began with.",
        (
            "kl_coef",
            "force_zero_kl",
            "kl_estimator",
            "kl_controller",
            "kl_target",
            "kl_horizon",
            "reference_differs",
            "beta",
            "loss_type",
            "sft_weight",
            "label_smoothing",
            "discopop_tau",
            "margin_coef",
            "center_coef",
            "precompute_reference",
            "planned_kl",
        ),
    ),
    (
        "Update",
        "Steps, step size, and how far one update may go.",
        (
            "steps",
            "epochs",
            "max_steps",
            "max_seconds",
            "update_epochs",
            "batch_size",
            "minibatch_size",
            "microbatch_size",
            "max_tokens_per_batch",
            "logits_chunk",
            "gradient_accumulation",
            "learning_rate",
            "value_learning_rate",
            "lr_schedule",
            "warmup_share",
            "weight_decay",
            "critic_warmup_steps",
            "clip",
            "clip_high",
            "grpo.loss_type",
            "ratio_limit",
            "value_clip",
            "value_coef",
            "entropy_coef",
            "gamma",
            "gae_lambda",
            "update_kl_target",
            "max_grad_norm",
        ),
    ),
    (
        "Guardrails and early stop",
        "What ends a run by itself, and what is looked at before its first step.",
        (
            "guards",
            "patience",
            "min_delta",
            "reward_check",
            "preflight",
            "minimal",
            "check_precision",
        ),
    ),
    (
        "Bookkeeping",
        "How often it measures, saves and shows, and how much of that is kept.",
        (
            "log_every",
            "eval_every",
            "eval_prompts",
            "save_every",
            "sample_every",
            "sample_prompts",
            "sample_max_new_tokens",
            "imitation_prompts",
            "imitation_max_new_tokens",
            "audit_samples",
            "refusal_phrases",
            "watch_phrases",
            "keep_rollouts",
            "latency_requests",
            "bootstrap_replicates",
        ),
    ),
)
OTHER = ("Other settings", "")


def sections_of(
    kind: str, fields: Iterable[RecipeField]
) -> list[tuple[str, str, list[RecipeField]]]:
    """(heading, its sentence, fields in the order of their declaration), without empty ones."""
    placed: dict[tuple[str, str], list[RecipeField]] = {}
    for field in fields:
        placed.setdefault(_section(kind, field.name), []).append(field)
    order = [(title, about) for title, about, _ in SECTIONS] + [OTHER]
    return [(*section, placed[section]) for section in order if section in placed]


def _section(kind: str, name: str) -> tuple[str, str]:
    for wanted in (f"{kind}.{name}", name):
        for title, about, names in SECTIONS:
            if wanted in names:
                return title, about
    return OTHER
