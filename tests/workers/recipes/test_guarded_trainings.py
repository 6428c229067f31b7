"""Faults planted in real, tiny trainings: what is skipped, adjusted or stopped, and what is kept.

The fault is in the loss of chosen steps; everything else is the recipe as shipped.
"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.workers.recipes.language import Workshop
from tests.workers.recipes.test_resume import check_joined, stop_and_resume
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import Resume
from workers.grpo.trainer import Trainer as GroupTrainer
from workers.models.loading import load_causal
from workers.trainers.dpo import PairTrainer
from workers.trainers.guarded_trainer import GuardedTrainer
from workers.trainers.reward_trainer import RewardTrainer
from workers.trainers.sft import DemonstrationTrainer

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

TRAINERS = {
    "sft": DemonstrationTrainer,
    "reward": RewardTrainer,
    "dpo": PairTrainer,
    "grpo": GroupTrainer,
}
PAIRS = {
    "learning_rate": 1e-3,
    "batch_size": 16,
    "max_length": 32,
    "max_steps": 6,
    "epochs": 3,
    "log_every": 1,
    "eval_every": 3,
    "save_every": 2,
    "warmup_share": 0.0,
}
CONFIGS = {
    "sft": PAIRS | {"batch_size": 4, "max_length": 64, "sample_prompts": 0},
    "reward": PAIRS,
    "dpo": PAIRS | {"sample_max_new_tokens": 4, "sample_prompts": 2},
    "grpo": {
        "reward": {"type": "token_count", "token": "good"},
        "steps": 6,
        "batch_size": 16,
        "group_size": 4,
        "max_prompt_length": 16,
        "max_new_tokens": 4,
        "lora_rank": 0,
        "learning_rate": 1e-3,
        "eval_every": 3,
        "eval_prompts": 4,
        "save_every": 2,
        "audit_samples": 1,
        "baseline_answers": 0,
        "reward_check": "off",
        "update_epochs": 1,
    },
}
INPUTS = {
    "sft": {"base": "base", "data": "demonstrations"},
    "reward": {"sft": "base", "data": "preferences"},
    "dpo": {"sft": "base", "data": "preferences"},
    "grpo": {"sft": "base", "prompts": "prompts"},
}
Change = Callable[[Any, int, Tensor], Tensor]


@contextmanager
def planted(kind: str, change: Change) -> Iterator[None]:
    """`change(trainer, step, loss)` in place of the loss of every training step."""
    trainer = TRAINERS[kind]
    own = trainer.compute_loss

    def compute_loss(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        loss = own(self, model, *args, **kwargs)
        return change(self, self.state.global_step + 1, loss) if model.training else loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "compute_loss", compute_loss)
        yield


def nan_at(*steps: int) -> Change:
    return lambda trainer, step, loss: loss * (math.nan if step in steps else 1.0)


def losses(events: list[dict[str, Any]]) -> dict[int, float | str]:
    return {
        step: value
        for e in events
        if e["type"] == "Metrics" and "loss" in e["event"]["values"]
        for step, value in zip(e["event"]["steps"], e["event"]["values"]["loss"], strict=True)
    }


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [e["event"] for e in events if e["type"] == kind]


@pytest.mark.parametrize("kind", sorted(TRAINERS))
def test_one_step_without_a_number_is_skipped_and_the_run_ends_well(
    workshop: Workshop, kind: str
) -> None:
    seen: dict[int, Any] = {}

    def change(trainer: Any, step: int, loss: Tensor) -> Tensor:
        if step in (3, 4, 5):  # as the step finds them
            weights = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
            seen[step] = (weights, copy.deepcopy(trainer.optimizer.state_dict()["state"]))
        return loss * (math.nan if step == 3 else 1.0)

    with planted(kind, change):
        spec = workshop.spec(f"nan_once_{kind}", kind, CONFIGS[kind], **INPUTS[kind])
        outcome = workshop.run_here(spec)
    assert outcome.summary

    # Bit for bit: weights, first and second moments, and the count of steps.
    torch.testing.assert_close(seen[4], seen[3], rtol=0, atol=0)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(seen[5], seen[4], rtol=0, atol=0)

    points = losses(outcome.envelopes)
    assert points[3] == "nan"
    others = [value for step, value in points.items() if step != 3]
    # The group-relative loss may well be 0: advantages of a group add up to it.
    assert all(isinstance(v, float) and (v > 0 or kind == "grpo") for v in others)
    (alert,) = [a for a in outcome.all("Alert") if a["rule"] == "non_finite"]
    assert (alert["rule"], alert["step"], alert["severity"]) == ("non_finite", 3, "critical")
    assert "skipped" in alert["message"]
    assert [e["step"] for e in outcome.all("Evidence") if e["link"] == "numerics"] == [3]
    assert "failed" not in [tag for c in outcome.all("CheckpointSaved") for tag in c["tags"]]


@pytest.mark.parametrize("kind", sorted(TRAINERS))
def test_two_steps_without_a_number_stop_the_run_and_keep_what_was_before(
    workshop: Workshop, kind: str
) -> None:
    spec = workshop.spec(f"nan_twice_{kind}", kind, CONFIGS[kind], **INPUTS[kind])
    events: list = []
    with planted(kind, nan_at(5, 6)), pytest.raises(RecipeError) as raised:
        workshop.run_here(spec, keep=events)
    assert (raised.value.kind, raised.value.fault) == ("non_finite", Fault.GUARD)
    assert [a["step"] for a in of(events, "Alert") if a["rule"] == "non_finite"] == [5, 6]
    points = losses(events)
    assert points[5] == "nan"
    assert kind == "grpo" or 0.0 not in points.values()

    saved = of(events, "CheckpointSaved")
    assert [c["tags"] for c in saved if "failed" in c["tags"]] == [["failed"]]
    assert saved[-1]["step"] == 6
    last = [c for c in saved if "last" in c["tags"]][-1]
    assert last["step"] == 4
    folders = [
        workshop.store.get_tree(c["uri"], sha256=c["sha256"], cache=workshop.root / "cache")
        for c in (last, saved[-1])
    ]
    if kind == "sft":
        kept, failed = (load_causal(folder).state_dict() for folder in folders)
        torch.testing.assert_close(failed, kept, rtol=0, atol=0)  # nothing was learned since

    if kind != "sft":
        return
    # What to do: go on from the last checkpoint, once the problem is repaired.
    resume = Resume(last["uri"], last["sha256"], last["step"])
    again = workshop.run_here(
        workshop.spec(spec.run, kind, CONFIGS[kind], attempt=2, resume=resume, **INPUTS[kind])
    )
    assert max(losses(again.envelopes)) == 6


def test_a_gradient_without_a_number_is_skipped_where_the_loss_is_fine(workshop: Workshop) -> None:
    def change(trainer: Any, step: int, loss: Tensor) -> Tensor:
        if step == 2:
            loss.register_hook(lambda gradient: gradient * math.inf)
        return loss

    config = CONFIGS["sft"] | {"max_steps": 3, "log_every": 3}
    with planted("sft", change):
        outcome = workshop.run_here(workshop.spec("inf_grad", "sft", config, **INPUTS["sft"]))
    (alert,) = outcome.all("Alert")
    assert "gradient" in alert["message"]
    assert alert["step"] == 2


def test_a_skipped_step_does_not_thin_the_mean_of_the_others(workshop: Workshop) -> None:
    """Three of four steps have a loss of 2: their mean is 2, not 1.5."""
    config = CONFIGS["sft"] | {"max_steps": 8, "log_every": 4, "eval_every": 100}
    with planted("sft", lambda t, step, loss: loss * 0.0 + (math.nan if step == 6 else 2.0)):
        outcome = workshop.run_here(workshop.spec("thinned", "sft", config, **INPUTS["sft"]))
    assert outcome.curve("loss")[4] == pytest.approx(2.0)
    assert outcome.curve("loss")[8] == pytest.approx(2.0)


def test_weights_without_numbers_never_become_the_last_checkpoint(workshop: Workshop) -> None:
    """The last step breaks the weights while its loss and gradient were still numbers."""
    broken = {"max_steps": 1, "save_every": 1}
    spec = workshop.spec("broken_last", "sft", CONFIGS["sft"] | broken, **INPUTS["sft"])
    events: list = []

    own = GuardedTrainer.before_update

    def broken_update(self: Any) -> None:
        own(self)
        next(self.model.parameters()).data.fill_(math.inf)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GuardedTrainer, "before_update", broken_update)
        with pytest.raises(RecipeError) as raised:
            workshop.run_here(spec, keep=events)
    assert raised.value.kind == "non_finite"
    assert [c["tags"] for c in of(events, "CheckpointSaved")] == [["failed"]]


def test_a_rule_that_is_told_to_stop_ends_the_run_with_its_own_kind(workshop: Workshop) -> None:
    guards = {"reference_kl": {"threshold": 1e-6, "action": "stop", "patience": 1}}
    spec = workshop.spec(
        "too_far", "dpo", CONFIGS["dpo"] | {"guards": guards, "save_every": 100}, **INPUTS["dpo"]
    )
    events: list = []
    with pytest.raises(RecipeError) as raised:
        workshop.run_here(spec, keep=events)
    assert (raised.value.kind, raised.value.fault) == ("guard_reference_kl", Fault.GUARD)
    (alert,) = of(events, "Alert")
    assert (alert["rule"], alert["severity"]) == ("reference_kl", "critical")
    (saved,) = of(events, "CheckpointSaved")
    assert (saved["tags"], saved["step"]) == (["failed"], alert["step"])


def test_a_loss_that_jumps_halves_the_step_size_and_a_resumed_run_knows(
    workshop: Workshop,
) -> None:
    config = CONFIGS["sft"] | {
        "guards": {"loss_jump": "adjust"},
        "max_steps": 8,
        "lr_schedule": "constant",
        "save_every": 100,
    }
    with planted("sft", lambda trainer, step, loss: loss * (10.0 if step in (2, 3) else 1.0)):
        whole, first, second = stop_and_resume(
            workshop, "sft", config, 5, prefix="adjusted_", **INPUTS["sft"]
        )
    said = [(a["rule"], a["step"]) for a in whole.all("Alert")]
    assert said == [("loss_over_start", 3), ("loss_jump", 3)]
    assert "learning_rate × 0.5" in whole.all("Alert")[-1]["message"]
    rates = whole.curve("learning_rate")
    assert [rates[step] for step in (1, 2, 3)] == [1e-3] * 3
    assert [rates[step] for step in (4, 5, 8)] == [5e-4] * 3
    assert second.all("Alert") == []  # it was reported before
    check_joined(whole, first, second)


@pytest.mark.parametrize("kind", ["sft", "reward", "dpo", "ppo"])
def test_guardrails_that_a_kind_does_not_have_are_refused_with_the_other_errors(
    workshop: Workshop, kind: str
) -> None:
    config = {"guards": {"nothing": "off", "non_finite": "off"}, "learning_rate": -1.0}
    with pytest.raises(RecipeError) as raised:
        workshop.run_here(workshop.spec(f"unguarded_{kind}", kind, config, **INPUTS["dpo"]))
    assert raised.value.kind == "bad_config"
    for part in ("guards.nothing: is no guardrail", "guards.non_finite", "learning_rate"):
        assert part in raised.value.message
