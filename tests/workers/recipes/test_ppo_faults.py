"""Faults planted in the configuration, the reward or the weights of whole, tiny PPO runs; each must
be seen by its guardrail or contract, and a run without one by none."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.workers.recipes.conftest import PLANTED_PPO
from tests.workers.recipes.language import Outcome, Workshop
from tests.workers.recipes.test_resume import check_joined
from workers.contract.events import RecipeError
from workers.models import invariants
from workers.ppo import trainer
from workers.ppo.diagnostics import rollout_metrics
from workers.ppo.rollout import Rollout
from workers.recipes import ppo as recipe
from workers.rewards.source import Scores
from workers.rl import losses
from workers.rollouts import drawing
from workers.rollouts.local import Responses, Sampling

SHORT = PLANTED_PPO | {
    "steps": 8,
    "batch_size": 16,
    "minibatch_size": 8,
    "eval_prompts": 8,
    "eval_every": 8,
    "audit_samples": 1,
    "lora_rank": 0,
}
ROLES = {"sft": "base", "prompts": "prompts"}


def train(shop: Workshop, name: str, *, keep: list | None = None, **config: object) -> Outcome:
    return shop.run_here(shop.spec(name, "ppo", SHORT | config, **ROLES), keep=keep)


def rules(outcome: Outcome) -> set[str]:
    return {alert["rule"] for alert in outcome.all("Alert")}


def stopped(shop: Workshop, name: str, **config: object) -> tuple[str, list[dict]]:
    """(the kind of the failure, the events up to it)"""
    notebook: list[dict] = []
    with pytest.raises(RecipeError) as raised:
        train(shop, name, keep=notebook, **config)
    return raised.value.kind, notebook


def test_a_healthy_run_raises_no_warning(workshop: Workshop) -> None:
    outcome = train(workshop, "healthy", steps=20, learning_rate=3e-4)
    warned = {a["rule"] for a in outcome.all("Alert") if a["severity"] != "info"}
    # A word that an untrained model hardly says, counted: most answers do score 0.
    assert warned <= {"reward_one_value"}


def test_a_step_size_a_hundred_times_too_large_cuts_updates_short(workshop: Workshop) -> None:
    outcome = train(workshop, "lr_100", learning_rate=3e-2)
    assert "update_kl" in rules(outcome)
    assert max(outcome.curve("update/stopped_by_kl").values()) == 1.0


def test_a_guardrail_told_to_stop_keeps_a_failed_checkpoint_beside_the_best(
    workshop: Workshop,
) -> None:
    kind, events = stopped(
        workshop,
        "far",
        learning_rate=1e-2,
        kl_coef=0.001,
        update_kl_target=0.5,
        steps=30,
        eval_every=2,
        guards={"reference_kl": {"threshold": 0.5, "action": "stop", "patience": 5}},
    )
    assert kind == "guard_reference_kl"
    saved = [e["event"] for e in events if e["type"] == "CheckpointSaved"]
    assert saved[-1]["tags"] == ["failed"]
    assert any("best" in checkpoint["tags"] for checkpoint in saved[:-1])
    evidence = [e["event"] for e in events if e["type"] == "Evidence"]
    assert (evidence[-1]["rule"], evidence[-1]["link"]) == ("reference_kl", "policy")
    assert evidence[-1]["value"] > 0.5


def test_a_guardrail_told_to_adjust_changes_the_setting_it_names(workshop: Workshop) -> None:
    outcome = train(
        workshop,
        "slower",
        learning_rate=3e-2,
        lr_schedule="constant",
        guards={"update_kl": "adjust"},
    )
    rates = outcome.curve("learning_rate")
    assert rates[8] == pytest.approx(rates[1] / 2)
    assert outcome.summary["adjusted"] == {"learning_rate": 0.5}


def test_a_price_that_rises_holds_the_policy(workshop: Workshop) -> None:
    outcome = train(
        workshop,
        "costlier",
        steps=12,
        learning_rate=5e-3,
        update_kl_target=0.5,
        guards={"reference_kl": {"threshold": 0.2, "action": "adjust", "patience": 1}},
    )
    prices = outcome.curve("kl_coef")
    assert prices[12] > prices[1]


def test_answers_of_one_word_are_an_entropy_that_collapses(workshop: Workshop) -> None:
    outcome = train(
        workshop, "collapse", steps=25, learning_rate=2e-2, kl_coef=0.001, update_kl_target=1.0
    )
    first, last = (outcome.curve("objective/entropy_per_token")[s] for s in (1, 25))
    assert last < 0.3 * first
    assert "entropy_floor" in rules(outcome)


def test_a_reward_ten_times_as_large_gives_the_same_updates(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves = []
    for factor in (1.0, 10.0):
        monkeypatch.setattr(trainer, "build_reward", lambda *a, f=factor, **k: Scaled(f))
        outcome = train(workshop, f"times_{factor:g}", steps=3)
        curves.append([outcome.curve(n) for n in ("objective/kl", "loss/policy_avg")])
    for one, ten in zip(*curves, strict=True):
        assert ten == {step: pytest.approx(value, abs=1e-5) for step, value in one.items()}


def test_two_percent_of_enormous_rewards_do_not_carry_the_update(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "build_reward", lambda *a, **k: Outliers())
    outcome = train(workshop, "outliers", steps=18, batch_size=32, eval_every=18, update_epochs=1)
    assert "outliers" in rules(outcome)
    assert max(outcome.curve("objective/scores").values()) > 1.0  # they were there


def test_a_reward_that_is_no_number_stops_before_it_is_learned_from(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "build_reward", lambda *a, **k: Scaled(float("nan")))
    kind, _ = stopped(workshop, "nan_reward", baseline_answers=0)
    assert kind == "non_finite"


def test_a_single_loss_without_numbers_is_skipped_and_the_run_goes_on(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = recipe.update, []

    def once(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise recipe.NonFinite("the loss of the update")
        return real(*args, **kwargs)

    monkeypatch.setattr(recipe, "update", once)
    outcome = train(workshop, "one_nan", steps=5)
    assert outcome.summary["step"] == 5
    assert outcome.curve("numerics/non_finite") == {1: 0.0, 2: 0.0, 3: 1.0, 4: 0.0, 5: 0.0}
    assert sorted(outcome.curve("loss/policy_avg")) == [1, 2, 4, 5]
    assert rules(outcome) - {"reward_one_value"} == {"non_finite"}


def test_a_sampler_with_another_temperature_breaks_a_contract(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = drawing.generate

    def hotter(model, tokenizer, ids, sampling, **kwargs):
        return real(model, tokenizer, ids, replace(sampling, temperature=3.0), **kwargs)

    monkeypatch.setattr(drawing, "generate", hotter)
    kind, events = stopped(workshop, "hot", batch_size=64, minibatch_size=32)
    assert kind == "contract_sampler"
    steps = [s for e in events if e["type"] == "Metrics" for s in e["event"]["steps"]]
    assert max(steps) <= 3


def test_a_score_beside_the_last_token_breaks_a_contract(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beside(scores, kl, mask, *, kl_coef):
        rewards = losses.shaped_rewards(scores, kl, mask, kl_coef=kl_coef)
        return torch.roll(rewards, 1, dims=1)

    monkeypatch.setattr(recipe, "shaped_rewards", beside)
    assert stopped(workshop, "beside")[0] == "contract_score_position"


def test_a_return_that_looks_beyond_the_end_breaks_a_contract() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    invariants.check_done(rewards, rewards.clone(), mask)
    with pytest.raises(RecipeError, match="last token"):
        invariants.check_done(rewards, rewards + torch.tensor([[0.0, 0.5, 0.0]]), mask)


def test_doubled_length_leaves_the_figure_per_token_unchanged() -> None:
    one = torch.tensor([[0.1, -0.2, 0.3]])
    found = []
    for logprobs in (one, one.repeat(1, 2)):
        ones = torch.ones_like(logprobs, dtype=torch.long)
        responses = Responses(
            prompt_ids=ones[:, :1],
            prompt_mask=ones[:, :1],
            response_ids=ones,
            response_mask=ones,
            ended=torch.tensor([True]),
            texts=["word"],
        )
        zeros = torch.zeros_like(logprobs)
        rollout = Rollout(0, Sampling(8), [[]], responses, logprobs, zeros, zeros, zeros)
        found.append(rollout_metrics(rollout, torch.zeros(1), zeros, zeros))
    short, long = found
    # By hand: k3 of log-ratios r is e^−r − 1 + r.
    by_hand = sum(math.exp(-r) - 1 + r for r in (0.1, -0.2, 0.3)) / 3
    assert short["objective/kl_per_token"] == pytest.approx(by_hand, rel=1e-4)
    assert long["objective/kl_per_token"] == pytest.approx(by_hand, rel=1e-4)
    assert long["objective/kl"] == pytest.approx(2 * short["objective/kl"]) == pytest.approx(0.4)


def test_patience_stops_and_keeps_what_was_best(workshop: Workshop) -> None:
    outcome = train(
        workshop, "patient", steps=30, eval_every=1, patience=2, learning_rate=1e-9, kl_coef=0.2
    )
    assert outcome.summary["stopped_by"] == "patience"
    assert outcome.summary["step"] < 30
    assert "final" in outcome.all("CheckpointSaved")[-1]["tags"]


def test_a_run_killed_between_checkpoints_goes_on_bit_for_bit(workshop: Workshop) -> None:
    """With adapters, a critic of its own, a controller and guardrails: kill -9 of the process."""
    config = SHORT | {
        "steps": 40,
        "save_every": 2,
        "eval_every": 4,
        "lora_rank": 4,
        "critic": "separate",
        "kl_controller": "adaptive",
        "rollout_chunk": 8,
        "max_tokens_per_batch": 128,
        "guards": {"update_kl": "adjust"},
    }
    spec = workshop.spec("killed_ppo", "ppo", config, **ROLES)
    process = workshop.start(spec)
    events = workshop.folder(spec) / "events.jsonl"
    try:
        _wait_for_checkpoint(events, step=4)
    finally:
        process.kill()
        process.wait()
    first = Outcome(_whole_lines(events))
    last = first.all("CheckpointSaved")[-1]["step"]
    assert first.ending != "Finished"
    second_spec = workshop.spec(
        "killed_ppo", "ppo", config, attempt=2, resume=workshop.resume(first), **ROLES
    )
    second = workshop.run_here(second_spec, after_step=last + 4)
    whole_spec = workshop.spec("unkilled_ppo", "ppo", config, **ROLES)
    whole = workshop.run_here(whole_spec, after_step=last + 4)
    check_joined(whole, _until(first, last), second)


def _until(outcome: Outcome, step: int) -> Outcome:
    """The events up to the checkpoint of `step`: what the web side keeps of a killed attempt."""
    for i, envelope in enumerate(outcome.envelopes):
        if envelope["type"] == "CheckpointSaved" and envelope["event"]["step"] == step:
            return Outcome(outcome.envelopes[: i + 1])
    raise AssertionError(step)


def _wait_for_checkpoint(path: Path, *, step: int) -> None:
    until = time.monotonic() + 240
    while time.monotonic() < until:
        saved = [e["event"]["step"] for e in _whole_lines(path) if e["type"] == "CheckpointSaved"]
        if saved and max(saved) >= step:
            return
        time.sleep(0.05)
    raise AssertionError("no checkpoint in four minutes")


def _whole_lines(path: Path) -> list[dict]:
    if not path.exists():
        return []
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


class Scaled:
    """The word good, counted, times a factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def score(self, prompts, responses) -> Scores:
        values = [self.factor * text.split().count("good") for text in responses]
        return Scores(values, {"planted": values})


class Outliers:
    """A fair reward, of which every fiftieth is sixty times as large."""

    def __init__(self) -> None:
        self.asked = 0

    def score(self, prompts, responses) -> Scores:
        values = []
        for text in responses:
            self.asked += 1
            fair = text.split().count("good") / 4 - 0.2
            values.append(60.0 if self.asked % 50 == 0 else fair)
        return Scores(values, {"planted": values})


@pytest.mark.parametrize("action", ["warn", "off"])
def test_while_far_more_answers_are_cut_than_at_first_no_checkpoint_is_best(
    workshop: Workshop, action: str
) -> None:
    """Each 'good' pays and an end costs nothing, so the policy learns to write into the limit."""
    guards = {"cut_answers": {"threshold": 0.05, "action": action}}
    config = PLANTED_PPO | {"steps": 15, "guards": guards}
    spec = workshop.spec(f"cut_{action}", "ppo", config, sft="base", prompts="prompts")
    outcome = workshop.run_here(spec)
    ended, score = outcome.curve("eval/ended_share"), outcome.curve("eval/score")
    assert ended[0] - ended[15] > 0.05
    assert score[15] > score[0]
    alerts = [(alert["rule"], alert["step"]) for alert in outcome.all("Alert")]
    assert (("cut_answers", 15) in alerts) is (action == "warn")
    tags = [saved["tags"] for saved in outcome.all("CheckpointSaved")]
    assert ("best" in tags[-1]) is (action == "off")
    assert "cut_answers" in [found["rule"] for found in outcome.all("Evidence")]
