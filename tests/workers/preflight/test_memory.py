"""The ledger against measured bytes, by hand for known models, and what it proposes."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
)

from workers.config import settings_for
from workers.contract.jobs import LAYOUTS
from workers.memory.fitting import (
    ADAPTERS,
    ALONE,
    CHECKPOINTING,
    FROZEN,
    Room,
    layout_ledger,
    layouts_json,
    room,
    savings,
    sharding,
    way_to_fit,
)
from workers.memory.ledger import GENERATION, LOOK, RESIDENT, UPDATE, Held, Ledger, Plan, ledger
from workers.memory.plan import frozen_shape, kept_bytes, plan_of, shape_of
from workers.memory.report import message, out_of_memory_advice, to_json
from workers.models.loading import disable_dropout
from workers.ppo.model import ActorCritic, critic_of

LLAMA = LlamaConfig(
    vocab_size=2000,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
)
GPT2 = GPT2Config(vocab_size=2000, n_embd=64, n_layer=3, n_head=4, n_positions=128)
SMALL = [pytest.param(LLAMA, id="llama"), pytest.param(GPT2, id="gpt2")]
SEVEN = LlamaConfig(
    vocab_size=32_000,
    hidden_size=4096,
    intermediate_size=11_008,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
)
CARD = Room(bytes=80e9, device="cuda", name="an accelerator")


def ppo(**changes: Any) -> Any:
    return settings_for(
        "ppo",
        {
            "batch_size": 8,
            "minibatch_size": 8,
            "max_prompt_length": 40,
            "max_new_tokens": 24,
            "lora_rank": 0,
        }
        | changes,
    )


def built(config: PretrainedConfig) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    disable_dropout(model)
    return model


def peak_of(run: Any) -> float:
    """Most bytes that torch held at once for what `run` allocated."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = top = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        top = max(top, held)
    return float(top)


def rows_of(plan: Plan) -> tuple[torch.Tensor, ...]:
    """A rectangle as large as the plan's update."""
    rows, answer = plan.update_rows, plan.update_response
    prompt = torch.full((rows, plan.update_length - answer), 5)
    response = torch.full((rows, answer), 7)
    return prompt, torch.ones_like(prompt), response, torch.ones_like(response)


# --- against what is measured ---


@pytest.mark.parametrize("config", SMALL)
def test_parameters_gradients_and_moments_are_counted_exactly(config: PretrainedConfig) -> None:
    model = built(config)
    optimizer = torch.optim.AdamW(model.parameters())
    model(input_ids=torch.ones(1, 4, dtype=torch.long)).logits.sum().backward()
    optimizer.step()
    found = ledger(plan_of("sft", settings_for("sft", {"base_model": "x"}), policy=config))
    moments = sum(
        tensor.numel() * tensor.element_size()
        for state in optimizer.state.values()
        for name, tensor in state.items()
        if name != "step"
    )
    assert found.of_part("weights") == sum(p.numel() * 4 for p in model.parameters())
    assert found.of_part("gradients") == sum(p.grad.numel() * 4 for p in model.parameters())
    assert found.of_part("optimizer") == moments


@pytest.mark.parametrize("config", SMALL)
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
def test_activations_are_those_that_a_real_pass_keeps(
    config: PretrainedConfig, masked: bool
) -> None:
    model = built(config).train()
    ids = torch.ones(3, 50, dtype=torch.long)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    given = {"attention_mask": mask} if masked else {}
    real = kept_bytes(model, lambda: model(input_ids=ids, use_cache=False, **given).logits)
    estimated = shape_of(config, masked=masked).kept.bytes(3, 50)
    assert estimated == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize("config", SMALL)
def test_the_cache_is_that_of_a_real_generation(config: PretrainedConfig) -> None:
    model = built(config)
    cache = model(input_ids=torch.ones(3, 20, dtype=torch.long), use_cache=True).past_key_values
    real = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert shape_of(config).kv_per_token * 3 * 20 * 4 == real


@pytest.mark.parametrize("config", SMALL)
@pytest.mark.parametrize("critic", ["shared", "separate"])
def test_the_peak_of_an_update_is_within_a_fifth_of_the_measured_one(
    config: PretrainedConfig, critic: str
) -> None:
    settings = ppo(critic=critic)
    plan = plan_of("ppo", settings, policy=config)
    policy = built(config)
    model = ActorCritic(policy, critic=critic_of(policy) if critic == "separate" else None)
    rows = rows_of(plan)

    def update() -> None:
        seen = model(*rows, temperature=1.0)
        (seen.logprobs.mean() + seen.values.square().mean()).backward()

    update()  # what is made once and stays
    model.zero_grad(set_to_none=True)
    estimated = ledger(plan)
    assert estimated.of_phase(UPDATE) == pytest.approx(peak_of(update), rel=0.2)
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        looked = peak_of(lambda: model(*rows, temperature=1.0))
    assert estimated.of_phase(LOOK) == pytest.approx(looked, rel=0.25)


def test_the_shape_of_many_layers_is_that_of_few_grown() -> None:
    deep = LlamaConfig(**{**LLAMA.to_dict(), "num_hidden_layers": 9})
    counted = sum(p.numel() for p in built(deep).parameters())
    assert shape_of(deep).parameters == counted
    assert shape_of(deep).kept.per_token > shape_of(LLAMA).kept.per_token


def test_a_model_that_chooses_experts_is_estimated_by_a_rule() -> None:
    experts = MixtralConfig(
        vocab_size=200,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
    )
    shape = shape_of(experts)
    assert shape.parameters == sum(p.numel() for p in built(experts).parameters())
    # The rule against a model that can be counted: right to a quarter.
    rule = 24.0 * LLAMA.num_hidden_layers * 4 * LLAMA.hidden_size
    assert shape_of(LLAMA, masked=False).kept.per_token == pytest.approx(rule, rel=0.25)
    assert shape.kept.per_token == 24.0 * 2 * 4 * 64


# --- by hand ---


def test_seven_billion_parameters_are_counted_without_a_byte_of_them() -> None:
    shape = shape_of(SEVEN)
    # Llama 2 7B, by its paper and its files: 6,738,415,616 parameters.
    assert shape.parameters == 6_738_415_616
    assert shape.kv_per_token == 2 * 32 * 4096


def test_rank_sixteen_adapters_are_counted_by_hand() -> None:
    # Per layer: q and o 4096→4096, k and v alike, gate and up 4096→11008, down back.
    per_layer = 16 * (4 * (4096 + 4096) + 3 * (4096 + 11_008))
    assert shape_of(SEVEN, lora_rank=16).adapters == 32 * per_layer


@pytest.mark.parametrize(
    ("master", "weight_bytes"), [(False, 4), (True, 2)], ids=["float32", "mixed"]
)
def test_a_trained_parameter_costs_sixteen_bytes_either_way(
    master: bool, weight_bytes: int
) -> None:
    shape = shape_of(LLAMA)
    held = Held(role="policy", shape=shape, trained=True, weight_bytes=weight_bytes)
    found = ledger(Plan(models=(held,), master_weights=master))
    states = ("weights", "gradients", "optimizer", "master weights")
    assert sum(found.of_part(part) for part in states) == 16 * shape.parameters


def test_a_frozen_model_costs_its_weights_and_an_ensemble_each_of_its_members() -> None:
    shape = frozen_shape(BertConfig(num_hidden_layers=2, num_attention_heads=12))
    one = ledger(Plan(models=(Held(role="reward", shape=shape),)))
    five = ledger(Plan(models=(Held(role="reward", shape=shape, copies=5),)))
    assert one.of_role("reward") == 4 * shape.parameters
    assert five.of_role("reward") == 5 * one.of_role("reward")


def test_a_reward_that_is_spread_counts_with_its_part() -> None:
    def reward(**given: object) -> float:
        settings = settings_for("grpo", {"learning_rate": 1e-6} | given)
        readers = {"reward": (LLAMA, 1), "judge": (LLAMA, 1)}
        plan = plan_of("grpo", settings, policy=LLAMA, device="cuda", readers=readers, gpus=4)
        weights = [
            line.bytes
            for line in ledger(plan).lines
            if (line.role, line.part) == ("reward", "weights")
        ]
        return sum(weights)

    assert reward(spread_reward=True) == reward() / 4


def test_a_vllm_beside_the_policy_counts_with_its_share_while_it_draws() -> None:
    given = {"rollout_engine": "vllm", "vllm_memory": 0.25, "learning_rate": 1e-6}
    drawn = ledger(
        plan_of(
            "grpo", settings_for("grpo", given), policy=LLAMA, device="cuda", gpu_bytes=80 * 10**9
        )
    )
    assert drawn.of_part("vLLM") == 20e9
    assert drawn.of_part("KV cache") == 0
    own = ledger(plan_of("grpo", settings_for("grpo", {"learning_rate": 1e-6}), policy=LLAMA))
    assert own.of_part("vLLM") == 0 < own.of_part("KV cache")


def test_adapters_need_no_second_copy_and_another_reference_does() -> None:
    def roles(found: Ledger) -> set[str]:
        return {held.role for held in found.plan.models}

    assert "reference" in roles(ledger(plan_of("ppo", ppo(), policy=LLAMA)))
    adapted = ppo(lora_rank=8)
    assert "reference" not in roles(ledger(plan_of("ppo", adapted, policy=LLAMA)))
    other = plan_of("ppo", adapted, policy=LLAMA, reference=GPT2)
    assert "reference" in roles(ledger(other))


def test_what_is_stored_of_a_rollout_is_counted() -> None:
    few = ledger(plan_of("ppo", ppo(), policy=LLAMA)).of_part("rollout")
    many = ledger(plan_of("ppo", ppo(batch_size=64), policy=LLAMA)).of_part("rollout")
    assert many == 8 * few > 0


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("zero1", {"optimizer"}),
        ("zero2", {"optimizer", "gradients"}),
        ("zero3", {"optimizer", "gradients", "weights"}),
        ("fsdp", {"optimizer", "gradients", "weights"}),
    ],
)
def test_a_sharding_splits_what_it_says(name: str, parts: set[str]) -> None:
    plan = plan_of("ppo", ppo(), policy=LLAMA)
    split = ledger(sharding(name, 4).change(plan))
    whole = ledger(plan)
    for part in ("optimizer", "gradients", "weights", "activations"):
        share = 4 if part in parts else 1
        assert split.of_part(part) == pytest.approx(whole.of_part(part) / share)


def test_every_measure_saves_something_where_it_can() -> None:
    found = ledger(plan_of("ppo", ppo(batch_size=64, max_prompt_length=512), policy=SEVEN))
    saved = {saving.measure.name: saving.saves for saving in savings(found)}
    # A processor has no other precision, and this run neither a critic of its own nor adapters.
    none = {"precision", "shared_critic", "base_4bit"}
    assert set(saved) == {measure.name for measure in ALONE} - none
    assert all(amount > 0 for amount in saved.values())
    # Adapters: gradients and moments of all parameters, 12 bytes each, and the reference go.
    assert saved["lora"] > 15 * shape_of(SEVEN).parameters


# --- against a device ---


def test_an_oversized_run_is_told_what_would_fit() -> None:
    settings = ppo(batch_size=64, minibatch_size=16, max_prompt_length=512, max_new_tokens=128)
    found = ledger(plan_of("ppo", settings, policy=SEVEN, device="cuda"))
    assert found.peak > CARD.bytes
    way = way_to_fit(found, CARD.bytes)
    assert way.fits
    assert way.peak <= CARD.bytes
    assert ADAPTERS in way.measures
    names = [field.name for field in fields(settings)]
    said = message(found, CARD, fields=names)
    assert "not fit" in said
    assert "(lora_rank)" in said
    written = to_json(found, CARD, fields=names)
    assert (written["fits"], written["would_fit"]["fits"]) == (False, True)
    assert written["peak_bytes"] == pytest.approx(
        sum(p["bytes"] for p in written["phases"] if p["phase"] in ("resident", "update")), abs=9
    )


def test_frozen_weights_are_proposed_in_fewer_bytes_before_more_devices() -> None:
    """And never both: what is split over devices is of one format."""
    settings = ppo(lora_rank=16, max_prompt_length=512)
    plan = plan_of("ppo", settings, policy=SEVEN, device="cuda")
    policy = plan.models[0].own_parameters
    names = [field.name for field in fields(settings)]
    for left, setting in ((24e9, "frozen_weights"), (12e9, "base_4bit")):
        said = message(ledger(plan), replace(CARD, bytes=left), fields=names)
        assert f"({setting})" in said
        assert "(layout)" not in said
    kept = ({"frozen_weights": "bfloat16"}, 2, 2), ({"base_4bit": True}, 0.5, 1)
    for changed, least, most in kept:
        small = plan_of("ppo", replace(settings, **changed), policy=SEVEN, device="cuda")
        weights = next(line for line in ledger(small).lines if line.part == "weights")
        assert least * policy <= weights.bytes <= most * policy
    split = sharding("fsdp", 2).change(small)
    assert split is not None
    assert {held.weight_bytes for held in split.models} == {4}
    assert FROZEN.change(split) is None
    moments = plan_of("ppo", replace(settings, optimizer="adamw_8bit"), policy=SEVEN)
    assert 4 * ledger(moments).of_part("optimizer") == ledger(plan).of_part("optimizer")


def test_what_is_proposed_is_needed() -> None:
    """Without any one of the measures the run would not fit well."""
    found = ledger(plan_of("ppo", ppo(batch_size=64), policy=SEVEN, device="cuda"))
    way = way_to_fit(found, CARD.bytes)
    for left_out in range(len(way.measures)):
        plan = found.plan
        for place, measure in enumerate(way.measures):
            if place != left_out:
                plan = measure.change(plan) or plan
        assert ledger(plan).peak > 0.85 * CARD.bytes


def test_a_measure_that_costs_more_than_it_saves_is_not_offered() -> None:
    flat = LlamaConfig(**{**LLAMA.to_dict(), "num_hidden_layers": 1})
    found = ledger(plan_of("ppo", ppo(), policy=flat))
    assert CHECKPOINTING.change(found.plan) is not None
    assert CHECKPOINTING not in [saving.measure for saving in savings(found)]


def test_a_layout_is_named_as_the_setting_that_splits_the_weights() -> None:
    settings = ppo(lora_rank=16, max_prompt_length=512)
    found = ledger(plan_of("ppo", settings, policy=SEVEN, device="cuda"))
    card = replace(CARD, bytes=4e9)  # less than the frozen weights in 4 bits
    said = message(found, card, fields=[field.name for field in fields(settings)])
    assert "devices (layout)" in said


def test_a_critic_of_its_own_can_be_spared() -> None:
    found = ledger(plan_of("ppo", ppo(critic="separate"), policy=LLAMA))
    [saving] = [s for s in savings(found) if s.measure.name == "shared_critic"]
    assert saving.peak == ledger(plan_of("ppo", ppo(), policy=LLAMA)).peak


def test_a_run_that_nothing_makes_fit_is_told_so() -> None:
    found = ledger(plan_of("ppo", ppo(), policy=SEVEN, device="cuda"))
    tiny = replace(CARD, bytes=0.5e9)
    assert not way_to_fit(found, tiny.bytes).fits
    assert "Choose a smaller model" in message(found, tiny)


def test_a_small_run_fits_this_machine() -> None:
    here = room()
    found = ledger(plan_of("ppo", ppo(), policy=LLAMA))
    assert 0 < found.peak < here.bytes
    assert "not fit" not in message(found, here)


# --- over several processes ---


def peaks(plan: Plan) -> dict[tuple[str, int], int]:
    return {(r["layout"], r["processes"]): r["peak_bytes"] for r in layouts_json(plan, CARD)}


def test_every_layout_is_compared_and_told_to_fit_by_the_room() -> None:
    plan = plan_of("ppo", ppo(), policy=LLAMA)
    rows = layouts_json(plan, CARD)
    assert {row["layout"] for row in rows} == set(LAYOUTS)
    assert rows[0] == {
        "layout": "one",
        "processes": 1,
        "peak_bytes": round(ledger(plan).peak),
        "fits": True,
    }
    nothing = replace(CARD, bytes=1.0)
    assert not any(row["fits"] for row in layouts_json(plan, nothing))


def test_more_is_split_from_layout_to_layout_and_data_parallel_splits_nothing() -> None:
    found = peaks(plan_of("sft", settings_for("sft", {}), policy=SEVEN, device="cuda"))
    assert found["data", 4] >= found["one", 1] > found["zero2", 4] > found["zero3", 4]
    assert found["zero3", 4] == found["fsdp", 4] > found["fsdp", 8]


def test_zero3_projects_all_tokens_of_a_pass_at_once() -> None:
    settings = ppo(max_new_tokens=512, microbatch_size=8)
    plan = plan_of("ppo", settings, policy=LLAMA, device="cuda")
    tokens = {
        layout: sum(
            line.bytes
            for line in layout_ledger(plan, layout, 2).lines
            if line.part == "logits" and line.phase == UPDATE and line.role == "policy"
        )
        for layout in ("fsdp", "zero3")
    }
    assert tokens["zero3"] == 4 * tokens["fsdp"], "8 × 512 tokens against a piece of 1024"


def test_frozen_models_stay_whole_and_answers_need_gathered_weights() -> None:
    """By hand: of `n` bytes of weights, fully_shard leaves n / 4 of the trained model, all of a
    frozen one, and while answers are drawn the rest of the trained one comes back."""
    plan = plan_of("ppo", ppo(), policy=SEVEN, reference=SEVEN, device="cuda")
    split = layout_ledger(plan, "fsdp", 4)
    sizes = {held.role: held.own_parameters * held.weight_bytes for held in plan.models}
    parts = {
        (role, phase): sum(
            line.bytes
            for line in split.lines
            if line.role == role and line.phase == phase and "weights" in line.part
        )
        for role in ("policy", "reference")
        for phase in (RESIDENT, GENERATION)
    }
    assert parts["policy", RESIDENT] == pytest.approx(sizes["policy"] / 4)
    assert parts["policy", GENERATION] == pytest.approx(3 * sizes["policy"] / 4)
    assert parts["reference", RESIDENT] == pytest.approx(sizes["reference"])


@pytest.mark.parametrize(("layout", "pieces"), [("zero2", True), ("fsdp", False), ("zero3", False)])
def test_a_split_policy_of_groups_reads_all_its_logits_at_once(layout: str, pieces: bool) -> None:
    plan = plan_of("grpo", settings_for("grpo", {}), policy=SEVEN, device="cuda")
    lines = layout_ledger(plan, layout, 4).lines
    alone = ledger(plan).of_part("logits")
    found = sum(line.bytes for line in lines if line.part == "logits")
    assert (found == alone) is pieces
    assert found >= alone > 0


# --- when it ran out all the same ---


def test_advice_names_the_recipes_own_settings_in_order() -> None:
    said = out_of_memory_advice("ppo", {"preset": "demo", "microbatch_size": 8, "lora_rank": 0})
    order = ["microbatch_size 8 → 4", "lora_rank 16", "max_new_tokens (48)", "ZeRO"]
    places = [said.index(words) for words in order]
    assert places == sorted(places)
    budget = out_of_memory_advice("ppo", {"max_tokens_per_batch": 4096})
    assert "4096 → 2048" in budget
    assert "microbatch_size unset → 8" in out_of_memory_advice("ppo", {"minibatch_size": 16})
    assert "gradient_accumulation 2 → 4" in out_of_memory_advice(
        "sft", {"gradient_accumulation": 2}
    )
    assert out_of_memory_advice("drill", {}) == ""
