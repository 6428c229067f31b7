"""Faults of runs that learn from fixed rows: SFT, reward models, DPO.

Planted as those of PPO are, in configuration, data, weights or code. Most are of the data, which is
where these runs break.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.diagnosis_world.faults import Fault
from benchmarks.diagnosis_world.language import CONTEXT
from benchmarks.diagnosis_world.models import TEMPLATE, USER
from benchmarks.diagnosis_world.planting import Plant
from benchmarks.diagnosis_world.world import World
from workers.models.forward import Reference
from workers.models.loading import load_causal
from workers.recipes import dpo as dpo_recipe
from workers.recipes import reward as reward_recipe
from workers.recipes import sft as sft_recipe
from workers.rollouts import answer_tokens
from workers.trainers import reward_training
from workers.trainers.dpo import PairTrainer
from workers.trainers.reward_trainer import RewardTrainer
from workers.trainers.sft import DemonstrationTrainer

STEPS = 60
LATE_NUMBERS = 10
CUT = 10  # tokens: most rows have thirteen

_EVERY = {
    "batch_size": 32,
    "max_steps": STEPS,
    "max_length": CONTEXT,
    "log_every": 1,
    "eval_every": 3,
    "save_every": 1000,
    "lr_schedule": "constant",
    "warmup_share": 0.08,
}
_SAMPLED = {"sample_prompts": 24, "sample_max_new_tokens": 16}
ROW_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "dpo": _EVERY | _SAMPLED | {"lora_rank": 0, "learning_rate": 1e-3, "beta": 0.1},
    "sft": _EVERY
    | _SAMPLED
    | {"learning_rate": 6e-3, "batch_size": 64, "imitation_prompts": 0, "overlong": "truncate"},
    "reward": _EVERY | {"learning_rate": 3e-3, "bootstrap_replicates": 100, "patience": None},
}
ROW_INPUTS: Mapping[str, Mapping[str, str]] = {
    "dpo": {"sft": "sft", "data": "pairs", "canaries": "known"},
    "sft": {"base": "base", "data": "demos", "general": "general"},
    "reward": {"sft": "sft", "data": "pairs", "canaries": "known"},
}


def _rate(kind: str, factor: float) -> dict[str, float]:
    return {"learning_rate": factor * ROW_SETTINGS[kind]["learning_rate"]}


# --- faults of code ---


def prompts_in_the_loss(world: World) -> AbstractContextManager[object]:
    """The labels cover the prompt too."""

    def labels(text: Any) -> list[int]:
        return [answer_tokens.IGNORED, *text.ids[1:]]

    return patch.object(answer_tokens, "_labels", labels)


def template(recipe: Any, old: str, new: str) -> Plant:
    """The tokenizer of a run comes with another template."""

    def plant(world: World) -> AbstractContextManager[object]:
        real = recipe.load_tokenizer

        def load(*args: Any, **kwargs: Any) -> Any:
            tokenizer = real(*args, **kwargs)
            tokenizer.chat_template = TEMPLATE.replace(old, new)
            return tokenizer

        return patch.object(recipe, "load_tokenizer", load)

    return plant


def other_reference(world: World) -> AbstractContextManager[object]:
    """The reference is an earlier checkpoint."""
    real, folder = dpo_recipe.with_reference, world.shop.folder_of(world.need("other"))

    def load(policy: Any, settings: Any, layout: str) -> Any:
        trained, _ = real(policy, settings, layout)
        return trained, Reference.frozen(load_causal(folder), policy=trained)

    return patch.object(dpo_recipe, "with_reference", load)


def moving_reference(world: World) -> AbstractContextManager[object]:
    """The reference is the policy itself."""

    def same(policy: Any, settings: Any, layout: str) -> Any:
        reference = Reference.frozen(load_causal(world.shop.folder_of("sft")), policy=policy)
        return policy, replace(reference, model=policy)

    return patch.object(dpo_recipe, "with_reference", same)


def not_a_number(trainer: type, *, from_step: int) -> Plant:
    """From a step on the loss is no number."""

    @contextmanager
    def plant(world: World) -> Iterator[None]:
        real = trainer.compute_loss

        def loss(self: Any, *args: Any, **kwargs: Any) -> Any:
            value = real(self, *args, **kwargs)
            broken = self.model.training and self.state.global_step + 1 >= from_step
            return value * torch.nan if broken else value

        with patch.object(trainer, "compute_loss", loss):
            yield

    return plant


def score_head(change: Callable[[torch.Tensor], torch.Tensor], *, frozen: bool = False) -> Plant:
    """The score head of a new reward model begins otherwise."""

    def plant(world: World) -> AbstractContextManager[object]:
        real = reward_training.fresh_model

        def fresh(*args: Any, **kwargs: Any) -> Any:
            model = real(*args, **kwargs)
            with torch.no_grad():
                for parameter in model.score.parameters():
                    parameter.copy_(change(parameter))
                    parameter.requires_grad_(not frozen)
            return model

        return patch.object(reward_training, "fresh_model", fresh)

    return plant


def same_members(world: World) -> AbstractContextManager[object]:
    """The members of an ensemble are trained with one seed."""
    real = reward_recipe.plan_parts

    def plan(*args: Any, **kwargs: Any) -> Any:
        parts = real(*args, **kwargs)
        return [replace(part, seed=parts[0].seed, rows=parts[0].rows) for part in parts]

    return patch.object(reward_recipe, "plan_parts", plan)


_WRONG_PROMPT = ("{{ '[assistant] ' }}", f"{{{{ '{USER} ' }}}}")
_NO_END = (
    "{{ '[' + m['role'] + '] ' + m['content'] + ' [end] ' }}",
    "{{ '[' + m['role'] + '] ' + m['content'] + ' ' }}",
)
PAIR_KINDS, ROW_KINDS = ("dpo", "reward"), ("dpo", "sft", "reward")
TRAINERS = {"dpo": PairTrainer, "sft": DemonstrationTrainer, "reward": RewardTrainer}


def _rows(kind: str, sort: str) -> dict[str, str]:
    return {"data": f"{'demos' if kind == 'sft' else 'pairs'}-{sort}"}


def _of_data(kind: str) -> tuple[Fault, ...]:
    """What may be wrong with the rows of any of these runs."""
    cut = {"max_length": CUT} | ({"on_overlong": "truncate"} if kind == "reward" else {})
    few = "few_rows" if kind == "sft" else "few_pairs"
    return (
        Fault(
            "leaked",
            "data",
            "half of the held-out rows are training rows",
            contract=True,
            inputs=_rows(kind, "leaked"),
            kind=kind,
        ),
        Fault(
            few,
            "data",
            "a few rows, learned from forty to eighty times each",
            inputs=_rows(kind, "few"),
            kind=kind,
        ),
        Fault("cut", "data", "answers are cut in the middle", contract=True, config=cut, kind=kind),
    )


def _of_labels(kind: str) -> tuple[Fault, ...]:
    return (
        Fault(
            "swapped_labels",
            "data",
            "every pair's sides are swapped",
            inputs=_rows(kind, "swapped"),
            kind=kind,
        ),
        Fault(
            "random_labels",
            "data",
            "the winner of every pair is drawn by lot",
            inputs=_rows(kind, "random"),
            kind=kind,
        ),
        Fault(
            "length_loving",
            "data",
            "people chose the longer answer",
            contract=True,
            inputs=_rows(kind, "long"),
            kind=kind,
        ),
    )


def _of_code(kind: str) -> tuple[Fault, ...]:
    return (
        Fault(
            "lr_x100", "policy", "a hundred times the step size", config=_rate(kind, 100), kind=kind
        ),
        Fault(
            "not_a_number",
            "numerics",
            "the loss is no number",
            contract=True,
            since=LATE_NUMBERS,
            plant=not_a_number(TRAINERS[kind], from_step=LATE_NUMBERS),
            kind=kind,
        ),
    )


def _of_writers(kind: str, recipe: Any) -> tuple[Fault, ...]:
    return (
        Fault(
            "template",
            "data",
            "answers are asked for in the name of the user",
            contract=True,
            plant=template(recipe, *_WRONG_PROMPT),
            kind=kind,
        ),
        Fault(
            "prompts_in_the_loss",
            "policy",
            "the loss covers the prompts",
            contract=True,
            plant=prompts_in_the_loss,
            kind=kind,
        ),
    )


ROW_FAULTS = (
    *(fault for kind in ROW_KINDS for fault in (*_of_data(kind), *_of_code(kind))),
    *(fault for kind in PAIR_KINDS for fault in _of_labels(kind)),
    *_of_writers("dpo", dpo_recipe),
    *_of_writers("sft", sft_recipe),
    Fault(
        "reference_wrong",
        "policy",
        "the reference is another checkpoint",
        contract=True,
        plant=other_reference,
        kind="dpo",
    ),
    Fault(
        "reference_aliased",
        "policy",
        "the reference is the policy itself",
        contract=True,
        plant=moving_reference,
        kind="dpo",
    ),
    Fault(
        "beta_low",
        "policy",
        "nearly nothing holds the policy, at ten times the step size",
        config={"beta": 0.01, **_rate("dpo", 10)},
        kind="dpo",
    ),
    Fault("lr_x10", "policy", "ten times the step size", config=_rate("dpo", 10), kind="dpo"),
    Fault(
        "no_end",
        "data",
        "the template ends no answer",
        contract=True,
        plant=template(sft_recipe, *_NO_END),
        kind="sft",
    ),
    Fault(
        "forgetting",
        "policy",
        "a model that knew the general rows learns others alone",
        inputs={"base": "sft", "data": "demos-other"},
        kind="sft",
    ),
    Fault(
        "saturated",
        "reward",
        "scores are fifty times too large",
        plant=score_head(lambda weight: 50.0 * weight.sign() / weight.numel() ** 0.5),
        kind="reward",
    ),
    Fault(
        "dead_head",
        "reward",
        "the score head is zero and never learns",
        contract=True,
        plant=score_head(torch.zeros_like, frozen=True),
        kind="reward",
    ),
    Fault(
        "members_alike",
        "reward",
        "the members of the ensemble share one seed",
        contract=True,
        since=STEPS // 2 + 1,
        config={"members": 2, "max_steps": STEPS // 2},
        plant=same_members,
        kind="reward",
    ),
)
