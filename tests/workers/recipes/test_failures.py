"""What goes wrong is said, with a stable kind, and never shown as a loss of zero."""

import json

import pytest

from tests.workers.recipes.conftest import PLANTED_PPO, preference_rows
from tests.workers.recipes.language import Workshop, tiny_llama
from workers.contract.events import RecipeError

EXPLODING = 1e25
PAIRS = {"learning_rate": EXPLODING, "batch_size": 16, "max_length": 32, "log_every": 1}
SFT = {"learning_rate": EXPLODING, "batch_size": 4, "max_length": 64, "log_every": 1}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # inside TRL
@pytest.mark.parametrize(
    ("kind", "config", "inputs"),
    [
        ("sft", SFT | {"warmup_share": 0.0}, {"base": "base", "data": "demonstrations"}),
        ("reward", PAIRS | {"warmup_share": 0.0}, {"sft": "base", "data": "preferences"}),
        ("dpo", PAIRS | {"warmup_share": 0.0}, {"sft": "base", "data": "preferences"}),
        (
            "ppo",
            PLANTED_PPO | {"learning_rate": EXPLODING},
            {"sft": "base", "prompts": "prompts"},
        ),
    ],
)
def test_a_loss_that_is_no_number_ends_the_run_with_a_failed_checkpoint_and_no_zero_loss(
    workshop: Workshop, kind: str, config: dict, inputs: dict
) -> None:
    spec = workshop.spec(f"exploding_{kind}", kind, config, **inputs)
    notebook: list = []
    with pytest.raises(RecipeError) as raised:
        workshop.run_here(spec, keep=notebook)
    assert raised.value.kind == "non_finite"
    saved = [e["event"] for e in notebook if e["type"] == "CheckpointSaved"]
    assert saved[-1]["tags"] == ["failed"]
    losses = [
        value
        for e in notebook
        if e["type"] == "Metrics"
        for name, values in e["event"]["values"].items()
        if name in ("loss", "loss/policy_avg")
        for value in values
    ]
    assert 0.0 not in losses


def test_a_constant_reward_moves_nothing_and_is_told(workshop: Workshop) -> None:
    config = PLANTED_PPO | {"reward": {"type": "token_count", "token": "xylophone"}, "steps": 2}
    outcome = workshop.run_here(
        workshop.spec("constant", "ppo", config, sft="base", prompts="prompts")
    )
    alerts = outcome.all("Alert")
    assert [alert["rule"] for alert in alerts] == ["constant_reward"]  # told once
    assert outcome.curve("objective/kl")[2] == pytest.approx(0.0, abs=1e-6)
    assert "policy/clipfrac_avg" not in outcome.metric_names()


def test_a_reference_that_is_another_model_stops_the_run_unless_it_is_meant(
    workshop: Workshop,
) -> None:
    workshop.put_model("stranger", tiny_llama(seed=9))
    inputs = {"sft": "base", "prompts": "prompts", "reference": "stranger"}
    config = PLANTED_PPO | {"steps": 1}
    with pytest.raises(RecipeError) as raised:
        workshop.run_here(workshop.spec("stranger", "ppo", config, **inputs))
    assert raised.value.kind == "contract_kl_at_start"
    config |= {"reference_differs": True}
    outcome = workshop.run_here(workshop.spec("stranger_meant", "ppo", config, **inputs))
    assert outcome.curve("objective/kl")[1] > 0.1


@pytest.mark.parametrize(
    ("kind", "config", "inputs", "expected"),
    [
        ("ppo", PLANTED_PPO | {"max_new_tokens": 60}, {"sft": "base"}, "bad_config"),
        ("ppo", PLANTED_PPO, {}, "missing_input"),
        ("reward", {}, {"data": "preferences"}, "missing_input"),
        ("sft", {"base_model": "nobody/nothing", "max_length": 64}, {}, "model_unavailable"),
        ("sft", SFT | {"gradient_accumulation": 3}, {"base": "base"}, "bad_config"),
        ("sft", SFT | {"max_length": 8}, {"base": "base"}, "no_rows"),
        ("ppo", PLANTED_PPO | {"max_prompt_length": 3}, {"sft": "base"}, "no_rows"),
    ],
)
def test_what_cannot_work_is_refused_by_kind(
    workshop: Workshop, kind: str, config: dict, inputs: dict, expected: str
) -> None:
    inputs = {"prompts": "prompts", "data": "demonstrations"} | inputs
    name = f"refused_{kind}_{expected}_{len(json.dumps(config))}"
    with pytest.raises(RecipeError) as raised:
        workshop.run_here(workshop.spec(name, kind, config, **inputs))
    assert raised.value.kind == expected


def test_pairs_without_held_out_rows_are_refused(workshop: Workshop) -> None:
    workshop.put_snapshot("unsplit", train=preference_rows(0))
    spec = workshop.spec("unsplit", "reward", {"max_length": 32}, sft="base", data="unsplit")
    with pytest.raises(RecipeError) as raised:
        workshop.run_here(spec)
    assert raised.value.kind == "no_held_out_rows"


@pytest.mark.parametrize("kind", ["reward", "dpo"])
def test_soft_labels_are_not_read_as_winners(workshop: Workshop, kind: str) -> None:
    """A tie stands in a soft snapshot as a row at one half."""
    rows = [row | {"label_probability": 0.5, "confidence": 0.5} for row in preference_rows(0)]
    workshop.put_snapshot(f"soft_{kind}", train=rows, dev=preference_rows(1))
    spec = workshop.spec(f"soft_{kind}", kind, {"max_length": 32}, sft="base", data=f"soft_{kind}")
    with pytest.raises(RecipeError) as raised:
        workshop.run_here(spec)
    assert raised.value.kind == "soft_labels"


def test_a_time_limit_saves_and_finishes(workshop: Workshop) -> None:
    config = PLANTED_PPO | {"max_seconds": 0.01}
    outcome = workshop.run_here(
        workshop.spec("timed", "ppo", config, sft="base", prompts="prompts")
    )
    assert outcome.summary["step"] == 1
    assert "final" in outcome.all("CheckpointSaved")[-1]["tags"]
