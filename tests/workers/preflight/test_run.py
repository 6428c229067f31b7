"""A whole preflight over a run's own inputs: what it writes, what it says, when it ends the run."""

import json
import random
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from tests.workers.preflight.conftest import SUBJECTS, Rule, good
from tests.workers.recipes.language import (
    Notebook,
    Workshop,
    assistant,
    tiny_llama,
    user,
    word_tokenizer,
)
from workers import train as trainer
from workers.config import SETTINGS, settings_for
from workers.context import RunContext
from workers.contract.events import Failed, RecipeError
from workers.memory import plan
from workers.memory.fitting import Room
from workers.models.loading import weights_sha256
from workers.models.lora import attach_policy_lora
from workers.ppo.model import ActorCritic
from workers.preflight import run as memory
from workers.preflight.findings import LEVELS, TITLES, Parts, Report, critic_parts
from workers.preflight.minimal import in_small
from workers.preflight.reward import random_texts
from workers.preflight.run import check_memory, run_preflight

Make = Callable[..., Any]
CONFIG = {
    "reward": {"type": "token_count", "token": "good"},
    "batch_size": 8,
    "minibatch_size": 4,
    "max_prompt_length": 16,
    "max_new_tokens": 8,
}


def looked(
    opened: Make, parts: Parts, kind: str = "ppo", *, config: dict | None = None, **inputs: str
) -> tuple[Report, RunContext]:
    values = CONFIG | (config or {})
    context = opened(values, **({"sft": "base", "prompts": "preferences"} | inputs))
    return run_preflight(context, kind, settings_for("ppo", values), parts), context


def lines(context: RunContext) -> list[str]:
    return [
        line
        for envelope in context.writer.envelopes
        if envelope["type"] == "Log"
        for line in envelope["event"]["lines"]
    ]


def written(shop: Workshop, context: RunContext) -> dict[str, Any]:
    [saved] = [e["event"] for e in context.writer.envelopes if e["type"] == "ArtifactSaved"]
    with shop.store.open(saved["uri"], "rb") as file:
        return json.loads(file.read())


def test_a_good_reward_and_a_live_critic_pass_and_nothing_moves(
    shop: Workshop, opened: Make, parts: Make
) -> None:
    policy = tiny_llama()
    adapted = attach_policy_lora(policy, rank=8, alpha=16.0)
    model = ActorCritic(policy, adapted=adapted).eval()
    before = weights_sha256(model)
    report, context = looked(opened, parts(policy=policy, critic=critic_parts(model)))
    assert report.blocked == []
    assert {f.check: f.level for f in report.findings} == {
        "configuration": "ok",
        "reward": "ok",
        "reward_shape": "ok",
        "reward_people": "ok",
        "kl_price": "ok",
        "critic": "ok",
        "eval_overlap": "warn",  # the snapshot holds nothing out
        "sft_overlap": "unknown",  # no demonstrations among the inputs
        "data": "ok",
        "lengths": "warn",  # an untrained policy does not end its answers
        "memory": "ok",
    }
    assert weights_sha256(model) == before
    assert all(p.grad is None for p in model.parameters())
    document = written(shop, context)
    assert document == report.to_json()
    looked_at = [check for check in TITLES if check != "template"]  # of SFT's rows alone
    assert [f["check"] for f in document["findings"]] == looked_at
    assert all(f["level"] in LEVELS and f["message"] and f["title"] for f in document["findings"])
    assert document["memory"]["fits"] is True
    assert len(lines(context)) == len(looked_at)
    assert report.summary()["checks"]["reward"] == "ok"


@pytest.mark.parametrize(
    ("name", "of", "says"),
    [
        ("flipped", lambda text: -good(text), "sign"),
        ("constant", lambda text: 0.7, "constant"),
    ],
)
def test_a_bad_reward_ends_the_run_before_its_first_step(
    shop: Workshop, opened: Make, parts: Make, name: str, of: Callable[[str], float], says: str
) -> None:
    context = opened(CONFIG, sft="base", prompts="preferences")
    with pytest.raises(RecipeError) as failure:
        run_preflight(context, "ppo", settings_for("ppo", CONFIG), parts(reward=Rule(of)))
    assert failure.value.kind == "preflight_reward"
    assert says in failure.value.message
    document = written(shop, context)  # the report is kept all the same
    assert document["level"] == "block"
    assert document["blocked"][0] == "reward"


def test_a_person_may_be_warned_only_or_not_asked(opened: Make, parts: Make) -> None:
    bad = Rule(lambda text: -good(text))
    report, _ = looked(opened, parts(reward=bad), config={"reward_check": "warn"})
    assert (report.level, report.of("reward").level) == ("warn", "warn")
    silent = Rule(good)
    report, _ = looked(opened, parts(reward=silent), config={"reward_check": "off"})
    assert report.of("reward").level == "unknown"
    assert silent.asked == []


def test_the_policy_itself_is_the_expert_where_nobody_else_is(opened: Make, parts: Make) -> None:
    """A reward that likes the words this policy happens to say most is above chance by them."""
    asked = Rule(good)
    report, _ = looked(
        opened, parts(reward=asked), prompts="prompts", config={"reward_check": "warn"}
    )
    assert "starting policy" in report.of("reward").message
    assert len(asked.asked) == 200  # a hundred of each
    assert report.of("reward_people") is None


def test_demonstrations_are_the_expert_and_count_as_seen(opened: Make, parts: Make) -> None:
    report, _ = looked(opened, parts(), prompts="prompts", shown="demonstrations")
    assert "the demonstrations" in report.of("reward").message
    assert (report.of("sft_overlap").level, report.of("sft_overlap").figures["share"]) == (
        "warn",
        1.0,
    )


def test_random_answers_are_as_long_as_asked_and_hold_no_special_token() -> None:
    tokenizer = word_tokenizer()
    texts = random_texts(tokenizer, [1, 5, 40] * 20, seed=3)
    assert [len(text.split()) for text in texts] == [1, 5, 40] * 20
    assert not set(" ".join(texts).split()) & set(tokenizer.all_special_tokens)
    assert texts == random_texts(tokenizer, [1, 5, 40] * 20, seed=3)
    assert texts != random_texts(tokenizer, [1, 5, 40] * 20, seed=4)


def test_pairs_are_looked_at_without_any_policy(opened: Make, parts: Make) -> None:
    bare = parts(policy=None, prompts=(), prompt_ids=(), eval_prompts=(), reward=None)
    context = opened({}, sft="base", data="preferences")
    settings = settings_for("dpo", {"batch_size": 4})
    report = run_preflight(context, "dpo", settings, bare)
    assert {f.check for f in report.findings} == {
        "configuration",
        "data",
        "eval_overlap",
        "lengths",
        "memory",
    }
    assert report.of("data").figures["n"] == 128
    assert report.of("eval_overlap").level == "unknown"  # this snapshot has no other file
    # The longest row is 3 + 4 words, far under max_length, and the ledger knows.
    assert report.memory["computed"]["update_length"] < 64 < settings.max_length
    assert {held["role"] for held in report.memory["models"]} == {"policy", "reference", "run"}


def test_rows_are_those_that_are_trained_on_and_others_are_held_against_them(
    shop: Workshop, opened: Make, parts: Make
) -> None:
    def row(subject: str) -> dict[str, Any]:
        return {
            "prompt": user(subject),
            "chosen": assistant("a good dog"),
            "rejected": assistant("a bad dog"),
        }

    shop.put_snapshot(
        "leaky",
        train=[row(subject) for subject in SUBJECTS],
        public_test=[row(subject) for subject in (*SUBJECTS[:2], "a cat runs", "a dog sleeps")],
    )
    bare = parts(policy=None, prompts=(), prompt_ids=(), eval_prompts=(), reward=None)
    context = opened({}, sft="base", data="leaky")
    report = run_preflight(context, "dpo", settings_for("dpo", {"batch_size": 4}), bare)
    assert report.of("data").figures["n"] == len(SUBJECTS)
    overlap = report.of("eval_overlap")
    assert (overlap.level, overlap.figures["equal"], overlap.figures["n"]) == ("warn", 2, 4)


def test_rows_without_answers_end_a_run(shop: Workshop, opened: Make, parts: Make) -> None:
    empty = [{"messages": user(s) + assistant(" ")} for s in SUBJECTS]
    shop.put_snapshot("empty", train=empty)
    bare = parts(policy=None, prompts=(), prompt_ids=(), eval_prompts=(), reward=None)
    context = opened({}, sft="base", data="empty")
    with pytest.raises(RecipeError) as failure:
        run_preflight(context, "sft", settings_for("sft", {"base_model": "x"}), bare)
    assert (failure.value.kind, failure.value.fault) == ("preflight_data", "data")


def test_a_run_that_does_not_fit_ends_before_anything_is_loaded(
    shop: Workshop, opened: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Room(bytes=0.2e9, device="cpu", name="a small machine")
    monkeypatch.setattr(memory, "room", lambda: small)
    context = opened(CONFIG, sft="base", prompts="prompts")
    with pytest.raises(RecipeError) as failure:
        check_memory(context, "ppo", settings_for("ppo", CONFIG))
    assert failure.value.kind == "preflight_memory"
    assert written(shop, context)["memory"]["fits"] is False
    monkeypatch.setattr(memory, "room", lambda: Room(bytes=8e9, device="cpu", name="a larger one"))
    assert check_memory(context, "ppo", settings_for("ppo", CONFIG)) is not None


def test_an_estimate_that_cannot_be_made_ends_no_run(
    opened: Make, parts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise AttributeError("no attention heads")

    monkeypatch.setattr(plan, "plan_of", fail)
    context = opened(CONFIG, sft="base", prompts="preferences")
    assert check_memory(context, "ppo", settings_for("ppo", CONFIG)) is None
    report = run_preflight(context, "ppo", settings_for("ppo", CONFIG), parts())
    assert (report.of("memory").level, report.to_json()["memory"]) == ("unknown", None)


def test_a_run_in_small_says_what_it_made_smaller(opened: Make, parts: Make) -> None:
    values = CONFIG | {"minimal": True, "steps": 300}
    context = opened(values, sft="base", prompts="preferences")
    small = in_small(settings_for("ppo", values)).settings
    report = run_preflight(context, "ppo", small, parts())
    assert report.to_json()["changed"]["steps"] == [300, 4]
    assert "learning_rate" not in report.to_json()["changed"]


def test_the_same_seed_looks_at_the_same_answers(opened: Make, parts: Make) -> None:
    asked = [Rule(good), Rule(good)]
    for rule in asked:
        random.seed(len(rule.asked) + 1)
        looked(opened, parts(reward=rule))
    assert asked[0].asked == asked[1].asked


def test_a_run_that_ran_out_of_memory_says_what_to_lower(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recipe:
        @staticmethod
        def run(context: RunContext) -> None:
            raise MemoryError("the allocator gave up")

    monkeypatch.setattr(trainer, "recipe_of", lambda kind: Recipe)
    monkeypatch.setattr(Notebook, "step", 7, raising=False)
    spec = shop.spec("exhausted", "ppo", {"max_tokens_per_batch": 4096}, sft="base")
    folder = shop.folder(spec)
    folder.mkdir(parents=True)
    notebook = Notebook(spec)
    assert trainer.train(spec, folder, notebook, lambda: None) == trainer.EXIT_FAILED
    failed = notebook.envelopes[-1]
    assert (failed["type"], failed["event"]["kind"]) == (Failed.__name__, "out_of_memory")
    message = failed["event"]["message"]
    assert message.startswith("MemoryError: the allocator")
    assert "4096 → 2048" in message


# A run in small keeps whatever could be the cause of problem.


# What decides how long a run takes; everything else may be the cause of problem.
SIZES = {
    "steps",
    "max_steps",
    "max_seconds",
    "batch_size",
    "minibatch_size",
    "microbatch_size",
    "max_new_tokens",
    "sample_max_new_tokens",
    "rollout_chunk",
    "gradient_accumulation",
    "eval_every",
    "save_every",
    "sample_every",
    "log_every",
    "eval_prompts",
    "sample_prompts",
    "baseline_answers",
    "audit_samples",
    "critic_warmup_steps",
    "latency_requests",
    "bootstrap_replicates",
    "members",
    "folds",
}
CONFIGS = [
    ("ppo", {"learning_rate": 3e-4, "kl_coef": 0.13, "clip": 0.4, "temperature": 0.7}),
    ("ppo", {"batch_size": 256, "minibatch_size": 64, "microbatch_size": 8, "critic": "separate"}),
    ("ppo", {"preset": "demo"}),
    ("grpo", {"group_size": 8, "batch_size": 64, "kl_coef": 0.1, "learning_rate": 1e-4}),
    ("grpo", {"group_size": 4, "batch_size": 48, "microbatch_size": 12}),
    (
        "grpo",
        {"update_epochs": 3, "eval_every": 9, "save_every": 12, "batch_size": 60, "group_size": 6},
    ),
    ("dpo", {"beta": 0.3, "loss_type": "ipo", "batch_size": 64, "gradient_accumulation": 16}),
    ("kto", {"beta": 0.3, "batch_size": 64, "gradient_accumulation": 16}),
    ("sft", {"learning_rate": 1e-3, "base_model": "x"}),
    ("reward", {"members": 5, "folds": 5, "dropout": 0.1}),
]


@pytest.mark.parametrize(("kind", "config"), CONFIGS)
def test_only_sizes_change_and_the_result_is_a_valid_run(kind: str, config: dict) -> None:
    settings = settings_for(kind, config)
    small = in_small(settings)
    assert small.changed
    assert set(small.changed) <= SIZES
    assert small.settings.max_seconds <= 60
    assert small.settings.batch_size <= max(16, 2 * getattr(settings, "group_size", 1))
    for field in fields(settings):
        if field.name not in small.changed:
            assert getattr(small.settings, field.name) == getattr(settings, field.name)
    # The smaller values pass the checks a configuration passes.
    values = {f.name: getattr(small.settings, f.name) for f in fields(small.settings)}
    assert settings_for(kind, values) == small.settings


def test_the_number_of_minibatches_stays() -> None:
    settings = settings_for("ppo", {"batch_size": 64, "minibatch_size": 16, "microbatch_size": 4})
    small = in_small(settings).settings
    assert (small.batch_size, small.minibatch_size, small.microbatch_size) == (8, 2, 1)


def test_groups_stay_whole_and_there_are_two() -> None:
    small = in_small(settings_for("grpo", {"group_size": 8, "batch_size": 64})).settings
    assert (small.group_size, small.batch_size) == (8, 16)


def test_a_person_is_told_what_was_changed() -> None:
    small = in_small(settings_for("ppo", {"steps": 500}))
    assert small.changed["steps"] == (500, 4)
    assert "steps 500 → 4" in small.message
    assert in_small(small.settings).changed == {}


def test_every_training_recipe_can_be_run_in_small() -> None:
    for kind in ("ppo", "grpo", "dpo", "kto", "sft", "reward"):
        assert in_small(SETTINGS[kind](**({"base_model": "x"} if kind == "sft" else {}))).settings
