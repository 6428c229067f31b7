"""The settings of every recipe: one check for form, API, command line and trainer.

    settings_for("ppo", {"preset": "demo", "kl_coef": 0.1})

`preset` names a set of values to start from (`PRESETS`); everything else in the configuration
overrides it. No torch, no Django.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from workers.config.grpo import GRPOSettings
from workers.config.inference import (
    AssessSettings,
    CheckSettings,
    DrillSettings,
    EvaluateSettings,
    GenerateSettings,
    ProbeSettings,
    PushSettings,
    RegisterSettings,
)
from workers.config.judging import JudgeSettings
from workers.config.parsing import SettingField, SettingsError, read, setting_fields
from workers.config.policy import PPOSettings
from workers.config.server import ServedModelSettings
from workers.config.training import (
    DPOSettings,
    KTOSettings,
    ProcessRewardSettings,
    RewardSettings,
    SFTSettings,
)
from workers.rules.choices import guard_errors

SETTINGS: dict[str, type] = {
    "sft": SFTSettings,
    "reward": RewardSettings,
    "process_reward": ProcessRewardSettings,
    "dpo": DPOSettings,
    "kto": KTOSettings,
    "ppo": PPOSettings,
    "grpo": GRPOSettings,
    "generate": GenerateSettings,
    "evaluate": EvaluateSettings,
    "assess": AssessSettings,
    "check": CheckSettings,
    "probe": ProbeSettings,
    "judge": JudgeSettings,
    "register_policy": RegisterSettings,
    "register_reward": RegisterSettings,
    "register_encoder": RegisterSettings,
    "served": ServedModelSettings,
    "push": PushSettings,
    "drill": DrillSettings,
}

__all__ = [
    "PRESETS",
    "SETTINGS",
    "SettingField",
    "SettingsError",
    "as_trained",
    "preset_purposes",
    "recipe_config",
    "recipe_fields",
    "recipe_presets",
    "settings_for",
]


def settings_for(kind: str, config: Mapping[str, Any], *, new: bool = False) -> Any:
    """The settings of `kind`, preset applied. Raises `SettingsError` with everything wrong. A `new`
    run must say, or have from its preset, what has no default that fits every model."""
    name = config.get("preset")
    presets = recipe_presets(kind)
    if name is not None and name not in presets:
        known = ", ".join(sorted(presets)) or "(none exist)"
        raise SettingsError([f"preset: '{name}' is none of {known}"])
    chosen = recipe_config(kind, config)
    chosen.pop("preset", None)  # given as None
    settings, errors = read(SETTINGS[kind], chosen)
    guards = chosen.get("guards")
    # Which guardrails there are depends on the kind, which a class of settings does not know.
    if isinstance(guards, Mapping) and any(f.name == "guards" for f in fields(SETTINGS[kind])):
        errors = [*errors, *guard_errors(kind, guards)]
    if new:
        errors = [*errors, *_not_chosen(kind, chosen)]
    if errors:
        raise SettingsError(errors)
    return settings


def _not_chosen(kind: str, config: Mapping[str, Any]) -> list[str]:
    missing = [one.name for one in _fields(kind) if one.option.chosen and one.name not in config]
    presets = ", ".join(recipe_presets(kind))
    return [
        f"{name}: give a number, or choose a preset that has one ({presets})" for name in missing
    ]


def as_trained(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` of a stored run with what it left to the default though a new run must give it."""
    given = recipe_config(kind, config)
    return {
        one.name: one.default
        for one in _fields(kind)
        if one.option.chosen and one.name not in given
    } | dict(config)


@cache
def _fields(kind: str) -> tuple[SettingField, ...]:
    return tuple(setting_fields(SETTINGS[kind])) if kind in SETTINGS else ()


def recipe_fields(kind: str) -> list[SettingField]:
    """The fields of a kind in the order of its declaration; none for a kind without a recipe."""
    return list(_fields(kind))


def recipe_presets(kind: str) -> Mapping[str, Mapping[str, Any]]:
    """Named sets of values to start from."""
    return PRESETS.get(kind, {})


def preset_purposes(kind: str) -> Mapping[str, str]:
    """What each preset is for, in a sentence; a preset may have none."""
    return PURPOSES.get(kind, {})


def recipe_config(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with its preset written out; defaults are not added.

    A preset this version does not know stays named.
    """
    own = dict(config)
    values = recipe_presets(kind).get(own.get("preset") or "")
    if values is None:
        return own
    del own["preset"]
    return dict(values) | own


# Named starting points for each kind.
#
# `demo` is the circle on two processor cores in minutes: a model of 1.3 M parameters that reads
# 320 tokens. It proves the machinery on real votes and is no recipe for a good model: its step
# sizes are ten to a hundred times those for a pretrained one. `real` is the same circle on the
# models of `make models`, in at most two hours. What they reach is in docs/log.md.

PRESETS: dict[str, dict[str, dict[str, object]]] = {
    "sft": {
        "demo": {
            "toy": True,
            "learning_rate": 3e-3,
            "lr_schedule": "cosine",
            "weight_decay": 0.1,
            "batch_size": 16,
            "epochs": 7,
            "max_seconds": 140,
            "max_length": 320,
            "overlong": "truncate",
            "base_vocabulary": 4096,
            "base_context": 320,
            "log_every": 20,
            "eval_every": 100,
            "save_every": 200,
            "sample_max_new_tokens": 48,
        },
        # Adapters on the pretrained policy of `make models`, sized for two processor cores.
        "real": {
            "learning_rate": 2e-4,
            "warmup_share": 0.1,
            "batch_size": 8,
            "epochs": 2,
            "max_seconds": 600,
            "lora_rank": 16,
            "max_length": 192,
            "log_every": 2,
            "eval_every": 10,
            "save_every": 20,
            "imitation_prompts": 16,
            "imitation_max_new_tokens": 48,
            "sample_max_new_tokens": 48,
        },
        # A pretrained model as `base` or `base_model`, all weights: two or three passes.
        "pretrained": {
            "learning_rate": 1e-5,
            "warmup_share": 0.03,
            "lr_schedule": "cosine",
            "batch_size": 32,
            "epochs": 2,
            "max_length": 2048,
            "max_tokens_per_batch": 16_384,
            "eval_every": 50,
            "save_every": 100,
            "sample_prompts": 16,
            "sample_max_new_tokens": 256,
        },
        # One that does not fit with its optimizer: adapters, which take a larger step.
        "lora": {
            "learning_rate": 2e-4,
            "warmup_share": 0.03,
            "lr_schedule": "cosine",
            "batch_size": 32,
            "epochs": 2,
            "lora_rank": 16,
            "gradient_checkpointing": True,
            "max_length": 2048,
            "max_tokens_per_batch": 16_384,
            "eval_every": 50,
            "save_every": 100,
            "sample_prompts": 16,
            "sample_max_new_tokens": 256,
        },
    },
    "reward": {
        "demo": {
            "learning_rate": 5e-4,
            "weight_decay": 0.1,
            "labels": "soft",
            "batch_size": 32,
            "epochs": 1.5,
            "max_seconds": 50,
            "max_length": 320,
            "log_every": 5,
            "eval_every": 20,
            "save_every": 20,
        },
        # All weights of the encoder of `make models`, one pass; looked at when it has ended, for
        # every look at the pairs that are held out costs a quarter of the training.
        "real": {
            "learning_rate": 1e-4,
            "weight_decay": 0.01,
            "warmup_share": 0.1,
            "batch_size": 32,
            "epochs": 1,
            "max_seconds": 3000,
            "max_length": 256,
            "max_tokens_per_batch": 4096,
            "log_every": 5,
            "eval_every": 1000,
            "save_every": 25,
        },
        # A pretrained encoder or causal model: one or two passes, and no further than it helps.
        "pretrained": {
            "learning_rate": 2e-5,
            "weight_decay": 0.01,
            "warmup_share": 0.1,
            "labels": "soft",
            "batch_size": 32,
            "epochs": 2,
            "max_tokens_per_batch": 16_384,
            "patience": 3,
            "eval_every": 25,
            "save_every": 50,
        },
        # A model that does not fit with its optimizer: adapters, which take a larger step.
        "lora": {
            "learning_rate": 2e-4,
            "warmup_share": 0.1,
            "labels": "soft",
            "batch_size": 32,
            "epochs": 2,
            "lora_rank": 16,
            "gradient_checkpointing": True,
            "max_tokens_per_batch": 16_384,
            "patience": 3,
            "eval_every": 25,
            "save_every": 50,
        },
        # What to optimise a policy against: members that disagree where none of them knows.
        "ensemble": {
            "learning_rate": 2e-5,
            "weight_decay": 0.01,
            "warmup_share": 0.1,
            "labels": "soft",
            "batch_size": 32,
            "epochs": 2,
            "max_tokens_per_batch": 16_384,
            "patience": 3,
            "eval_every": 25,
            "save_every": 50,
            "members": 3,
            "member_split": "bootstrap",
        },
    },
    "dpo": {
        "demo": {
            "learning_rate": 1e-4,
            "batch_size": 16,
            "epochs": 1,
            "max_seconds": 50,
            "max_length": 320,
            "log_every": 5,
            "eval_every": 20,
            "save_every": 20,
            "sample_max_new_tokens": 48,
        },
        "real": {
            "learning_rate": 5e-5,
            "warmup_share": 0.1,
            "batch_size": 8,
            "epochs": 1,
            "max_steps": 20,
            "max_seconds": 900,
            "lora_rank": 16,
            "max_length": 192,
            "max_tokens_per_batch": 1024,
            "log_every": 5,
            "eval_every": 10,
            "save_every": 10,
            "sample_max_new_tokens": 48,
        },
        # An SFT model of a pretrained one, all weights: small steps, one pass, and look at the KL.
        "pretrained": {
            "learning_rate": 1e-6,
            "warmup_share": 0.1,
            "batch_size": 64,
            "epochs": 1,
            "beta": 0.1,
            "max_tokens_per_batch": 16_384,
            "eval_every": 25,
            "save_every": 50,
            "sample_prompts": 32,
            "sample_max_new_tokens": 256,
        },
        # One that does not fit beside its reference: adapters, switched off, are the reference.
        "lora": {
            "learning_rate": 2e-5,
            "warmup_share": 0.1,
            "batch_size": 64,
            "epochs": 1,
            "beta": 0.1,
            "lora_rank": 16,
            "gradient_checkpointing": True,
            "max_tokens_per_batch": 16_384,
            "eval_every": 25,
            "save_every": 50,
            "sample_prompts": 32,
            "sample_max_new_tokens": 256,
        },
        # As the papers have them; both losses are experimental in TRL.
        "simpo": {
            "learning_rate": 6e-7,
            "warmup_share": 0.1,
            "lr_schedule": "cosine",
            "batch_size": 128,
            "epochs": 1,
            "loss_type": "simpo",
            "beta": 2.0,
            "simpo_gamma": 1.0,
            "max_tokens_per_batch": 16_384,
            "eval_every": 25,
            "save_every": 50,
            "sample_prompts": 32,
            "sample_max_new_tokens": 256,
        },
        "orpo": {
            "learning_rate": 8e-6,
            "warmup_share": 0.1,
            "batch_size": 64,
            "epochs": 1,
            "loss_type": "orpo",
            "beta": 0.1,
            "max_tokens_per_batch": 16_384,
            "eval_every": 25,
            "save_every": 50,
            "sample_prompts": 32,
            "sample_max_new_tokens": 256,
        },
    },
    "process_reward": {
        "demo": {
            "learning_rate": 2e-4,
            "batch_size": 16,
            "epochs": 2,
            "max_seconds": 60,
            "max_length": 256,
            "log_every": 5,
            "eval_every": 20,
            "save_every": 20,
        },
        "pretrained": {
            "learning_rate": 5e-6,
            "warmup_share": 0.1,
            "batch_size": 64,
            "epochs": 2,
            "max_length": 2048,
            "eval_every": 25,
            "save_every": 50,
        },
    },
    "kto": {
        "demo": {
            "learning_rate": 1e-4,
            "batch_size": 16,
            "epochs": 1,
            "max_seconds": 50,
            "max_length": 320,
            "log_every": 5,
            "eval_every": 20,
            "save_every": 20,
            "sample_max_new_tokens": 48,
        },
        # All weights. Step sizes as for DPO, or somewhat larger: the gradient of an answer is small
        # where the policy already tells good from bad.
        "pretrained": {
            "learning_rate": 1e-6,
            "warmup_share": 0.1,
            "batch_size": 64,
            "epochs": 1,
            "beta": 0.1,
            "max_tokens_per_batch": 16_384,
            "eval_every": 25,
            "save_every": 50,
            "sample_prompts": 32,
            "sample_max_new_tokens": 256,
        },
        "lora": {
            "learning_rate": 2e-5,
            "warmup_share": 0.1,
            "batch_size": 64,
            "epochs": 1,
            "beta": 0.1,
            "lora_rank": 16,
            "gradient_checkpointing": True,
            "max_tokens_per_batch": 16_384,
            "eval_every": 25,
            "save_every": 50,
            "sample_prompts": 32,
            "sample_max_new_tokens": 256,
        },
    },
    "ppo": {
        "demo": {
            "lora_rank": 0,
            "reward_check": "warn",  # a reward model this small ranks noise over answers
            "learning_rate": 2e-4,
            "steps": 40,
            "max_seconds": 140,
            "update_epochs": 2,
            "batch_size": 64,
            "minibatch_size": 16,
            "max_prompt_length": 80,
            "max_new_tokens": 48,
            "temperature": 0.7,
            "kl_coef": 0.1,
            "eval_every": 5,
            "eval_prompts": 32,
            "save_every": 10,
            "sample_every": 10,
        },
        # Few and short answers a step: what two processor cores draw from 135 M parameters.
        "real": {
            "lora_rank": 16,
            "reward_check": "warn",
            "learning_rate": 5e-5,
            "steps": 24,
            "max_seconds": 2100,
            "update_epochs": 2,
            "batch_size": 12,
            "minibatch_size": 6,
            "max_tokens_per_batch": 1024,
            "max_prompt_length": 128,
            "max_new_tokens": 48,
            "temperature": 0.7,
            "kl_coef": 0.1,
            "critic_warmup_steps": 2,
            "baseline_answers": 1,
            "eval_every": 8,
            "eval_prompts": 16,
            "save_every": 8,
            "sample_every": 8,
        },
        # All weights: there is room for a frozen copy, and a small model needs them.
        "small": {
            "lora_rank": 0,
            "learning_rate": 3e-6,
            "steps": 200,
            "batch_size": 64,
            "minibatch_size": 16,
            "max_tokens_per_batch": 16_384,
            "critic_warmup_steps": 5,
            "eval_prompts": 64,
            "patience": 5,
        },
        # Adapters take about ten times the step size of the weights.
        "lora": {
            "lora_rank": 16,
            "lora_alpha": 32.0,
            "learning_rate": 5e-5,
            "steps": 200,
            "batch_size": 64,
            "minibatch_size": 16,
            "rollout_chunk": 32,
            "max_tokens_per_batch": 8192,
            "max_new_tokens": 256,
            "critic_warmup_steps": 5,
            "eval_prompts": 64,
            "patience": 5,
        },
        # A reward that nobody has optimised against: stay close, look often, stop early.
        "careful": {
            "lora_rank": 16,
            "lora_alpha": 32.0,
            "learning_rate": 2e-5,
            "steps": 150,
            "batch_size": 64,
            "minibatch_size": 16,
            "update_epochs": 2,
            "max_tokens_per_batch": 8192,
            "kl_coef": 0.15,
            "critic_warmup_steps": 5,
            "eval_every": 5,
            "eval_prompts": 64,
            "save_every": 10,
            "patience": 3,
            "guards": {"reference_kl": "stop", "length": "stop", "repetition": "stop"},
        },
    },
    "grpo": {
        # A small model: all weights, beside a frozen copy.
        "demo": {
            "lora_rank": 0,
            "reward_check": "warn",  # a reward model this small ranks noise over answers
            "learning_rate": 2e-4,
            "steps": 40,
            "max_seconds": 140,
            "group_size": 8,
            "batch_size": 64,
            "max_prompt_length": 80,
            "max_new_tokens": 48,
            "kl_coef": 0.05,
            "eval_every": 5,
            "eval_prompts": 32,
            "save_every": 10,
            "sample_every": 10,
        },
        # All weights: there is room for a frozen copy.
        "small": {
            "lora_rank": 0,
            "learning_rate": 1e-6,
            "steps": 300,
            "group_size": 8,
            "batch_size": 128,
            "microbatch_size": 16,
            "rollout_chunk": 64,
            "max_new_tokens": 512,
            "warmup_share": 0.03,
            "eval_prompts": 64,
        },
        "lora": {
            "lora_rank": 16,
            "lora_alpha": 32.0,
            "learning_rate": 2e-5,
            "steps": 300,
            "group_size": 8,
            "batch_size": 128,
            "microbatch_size": 16,
            "rollout_chunk": 64,
            "max_new_tokens": 512,
            "warmup_share": 0.03,
            "eval_prompts": 64,
        },
        # RLOO as in its paper: rewards as they are, the divergence taken off them.
        "rloo": {
            "lora_rank": 16,
            "lora_alpha": 32.0,
            "learning_rate": 2e-5,
            "steps": 300,
            "loss_type": "rloo",
            "scale_rewards": "none",
            "group_size": 4,
            "batch_size": 128,
            "microbatch_size": 16,
            "rollout_chunk": 64,
            "max_new_tokens": 512,
            "kl_coef": 0.05,
            "warmup_share": 0.03,
            "eval_prompts": 64,
        },
        # GSPO as in its paper: several updates of a batch, narrow clipping, no divergence.
        "gspo": {
            "lora_rank": 16,
            "lora_alpha": 32.0,
            "learning_rate": 2e-5,
            "steps": 300,
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "clip": 3e-4,
            "clip_high": 4e-4,
            "update_epochs": 4,
            "kl_coef": 0.0,
            "force_zero_kl": True,
            "group_size": 8,
            "batch_size": 128,
            "microbatch_size": 16,
            "rollout_chunk": 64,
            "max_new_tokens": 512,
            "warmup_share": 0.03,
            "eval_every": 20,
            "save_every": 40,
            "eval_prompts": 64,
        },
        # Verifiers cannot be fooled as models can: a cheap divergence, larger groups, and answers
        # cut by the limit teach nothing.
        "verifier": {
            "lora_rank": 16,
            "lora_alpha": 32.0,
            "learning_rate": 2e-5,
            "steps": 300,
            "reward": {"type": "verifier", "check": "number", "take": "boxed"},
            "group_size": 16,
            "batch_size": 128,
            "microbatch_size": 16,
            "rollout_chunk": 64,
            "max_new_tokens": 1024,
            "mask_truncated": True,
            "kl_coef": 0.001,
            "clip_high": 0.28,
            "warmup_share": 0.03,
            "eval_prompts": 64,
        },
    },
    "generate": {
        "demo": {
            "max_prompts": 40,
            "max_prompt_length": 80,
            "max_new_tokens": 48,
            "temperature": 0.7,
        },
        "real": {
            "max_prompts": 24,
            "max_prompt_length": 128,
            "max_new_tokens": 48,
            "temperature": 0.7,
        },
    },
    "evaluate": {
        "demo": {
            "max_prompts": 40,
            "draws": 4,
            "latency_requests": 5,
            "max_prompt_length": 80,
            "max_new_tokens": 48,
            "temperature": 0.7,
        },
        "real": {
            "max_prompts": 48,
            "draws": 1,
            "latency_requests": 5,
            "max_prompt_length": 128,
            "max_new_tokens": 48,
            "temperature": 0.7,
        },
    },
    "assess": {
        "demo": {
            "max_pairs": 1500,
            "max_outputs": 60,
            "probe_prompts": 40,
            "effect_answers": 40,
            "best_of": 32,
            "best_of_prompts": 20,
            "planned_kl": 4.0,
            "max_prompt_length": 80,
            "max_new_tokens": 48,
            "temperature": 0.7,
        },
        "real": {
            "max_pairs": 1900,
            "max_outputs": 40,
            "probe_prompts": 40,
            "effect_answers": 10,
            "best_of": 8,
            "best_of_prompts": 8,
            "planned_kl": 4.0,
            "max_prompt_length": 128,
            "max_new_tokens": 48,
            "temperature": 0.7,
        },
    },
    "check": {
        "demo": {
            "max_prompt_length": 80,
            "max_new_tokens": 48,
            "temperature": 0.7,
            "eval_prompts": 40,
        }
    },
    "probe": {
        "demo": {
            "max_prompt_length": 80,
            "max_new_tokens": 48,
            "temperature": 0.7,
            "eval_prompts": 40,
        }
    },
    "judge": {
        "demo": {  # its model reads 128 tokens, and the usual prompt has more
            "prompt": "{prompt}\nA: {first}\nB: {second}\nWhich is better, A or B?",
            "max_pairs": 40,
            "max_prompt_length": 120,
        },
        "real": {
            "max_pairs": 100,
            "max_prompt_length": 1024,
            "batch_size": 8,
        },
    },
}

# What each preset is for, as the launch form says it.
PURPOSES: dict[str, dict[str, str]] = {
    "sft": {
        "real": "Adapters on SmolLM2-135M-Instruct (make models), sized for two cores.",
        "demo": "The circle on two processor cores in minutes: a model of 1.3 M parameters that "
        "reads 320 tokens. Proves the machinery; no recipe for a good model.",
        "pretrained": "All weights of a pretrained model, up to about 1 B parameters on one GPU: "
        "two passes.",
        "lora": "Adapters on a model that does not fit with its optimizer, 1–8 B parameters.",
    },
    "reward": {
        "real": "All weights of all-MiniLM-L6-v2 (make models), at most one pass on two cores.",
        "demo": "Minutes on two processor cores, on the model of the SFT demo.",
        "pretrained": "All weights of a pretrained model, up to about 1 B parameters on one GPU: "
        "one or two passes, and no further than it helps.",
        "lora": "Adapters on a model that does not fit with its optimizer, 1–8 B parameters.",
        "ensemble": "Three models that disagree where none of them knows: what to optimise a "
        "policy against.",
    },
    "dpo": {
        "real": "Adapters on SmolLM2-135M-Instruct, sized for two cores.",
        "demo": "Minutes on two processor cores, on the model of the SFT demo.",
        "pretrained": "All weights of an SFT model that fits beside its frozen reference: small "
        "steps, one pass.",
        "lora": "Adapters on a model that does not fit beside its reference, 1–8 B parameters; "
        "switched off they are the reference.",
        "simpo": "SimPO (experimental): all weights of an SFT model, no reference asked while "
        "training; set the step size with care, it unlearns fast.",
        "orpo": "ORPO (experimental): all weights of a pretrained or lightly tuned model; imitates "
        "the chosen answers and pushes the rejected ones away at once.",
    },
    "process_reward": {
        "demo": "Minutes on two processor cores, on the model of the SFT demo.",
        "pretrained": "All weights of a pretrained causal model, up to about 1 B parameters on one "
        "GPU: one or two passes.",
    },
    "kto": {
        "demo": "Minutes on two processor cores, on the model of the SFT demo.",
        "pretrained": "All weights of an SFT model that fits beside its frozen reference: small "
        "steps, one pass.",
        "lora": "Adapters on a model that does not fit beside its reference, 1–8 B parameters; "
        "switched off they are the reference.",
    },
    "ppo": {
        "real": "Adapters on SmolLM2-135M-Instruct, sized for two cores: few short answers.",
        "demo": "Minutes on two processor cores, on the model of the SFT demo.",
        "small": "All weights of a model up to about 500 M parameters, the critic on its trunk, "
        "on one GPU.",
        "lora": "Adapters on a model of 1–8 B parameters on one GPU of 40–80 GB: the reference is "
        "the same model with its adapters off.",
        "careful": "Adapters with a higher KL coefficient, fewer passes and guardrails that stop: "
        "for a reward model nobody has optimised against yet.",
    },
    "grpo": {
        "demo": "Minutes on two processor cores, on the model of the SFT demo.",
        "small": "All weights of a model that fits with its optimizer and a frozen copy of itself.",
        "lora": "Adapters on a model of 1–8 B parameters on one GPU of 40–80 GB, against a reward "
        "model: the reference is the same model with its adapters off.",
        "rloo": "RLOO (REINFORCE leave-one-out): adapters on a model of 1–8 B parameters against a "
        "reward model; rewards as they are, less the KL penalty.",
        "gspo": "GSPO with adapters on a model of 1–8 B parameters: ratios of whole answers, four "
        "updates of a batch; for long answers and mixtures of experts.",
        "verifier": "Adapters on a model of 1–8 B parameters, rewarded by checking a number in a "
        "box: set the reward to the verifier of your task.",
    },
    "generate": {
        "demo": "Forty short answers of the demo's policy, in a minute.",
        "real": "Two short answers to each of 24 prompts, from SmolLM2-135M-Instruct.",
    },
    "evaluate": {
        "demo": "Forty prompts, four answers each, of the demo's policy.",
        "real": "48 prompts, one short answer each, of SmolLM2-135M-Instruct.",
    },
    "assess": {
        "demo": "Every line of the reward model's page, on the demo's small model.",
        "real": "Every line of the reward model's page, with few answers of SmolLM2-135M-Instruct.",
    },
    "check": {"demo": "Forty prompts of the demo, in seconds."},
    "probe": {"demo": "Forty prompts of the demo, in seconds."},
    "judge": {
        "demo": "Forty pairs with a short prompt, for models that read 128 tokens.",
        "real": "A hundred pairs with the usual prompt, by SmolLM2-135M-Instruct.",
    },
}
