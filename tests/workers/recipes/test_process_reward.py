"""A process reward model from start to end, on a language of a few words; faults in its labels."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.workers.recipes.encoders import bert, encoder_folder
from tests.workers.recipes.language import Outcome, Workshop, tiny_llama, user, word_tokenizer
from workers.contract.events import RecipeError
from workers.data.snapshot import JudgedSteps
from workers.models.loading import load_scorer, load_step_scorer
from workers.trainers.step_trainer import StepCollator, encode_steps

pytestmark = pytest.mark.recipe
RUN = {
    "batch_size": 16,
    "learning_rate": 3e-3,
    "epochs": 10,
    "max_length": 64,
    "log_every": 4,
    "eval_every": 8,
    "save_every": 80,
    "bootstrap_replicates": 200,
}
AGAINST = {
    "steps": 6,
    "batch_size": 32,
    "group_size": 8,
    "max_prompt_length": 16,
    "max_new_tokens": 6,
    "learning_rate": 1e-2,
    "eval_every": 6,
    "eval_prompts": 3,
    "save_every": 6,
    "sample_every": 6,
    "audit_samples": 2,
    "baseline_answers": 2,
    "missing_eos_penalty": 0.0,
    "reward_check": "off",
}
GOOD, BAD = ("sun runs", "cat sleeps", "a dog"), ("bad rain", "the bad dog", "bad")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trajectories(count: int, seed: int, *, shift: int = 0) -> list[dict[str, Any]]:
    """A step with the word bad is wrong, whatever came before; every fourth has a result of a tool,
    and some steps nobody marked. `shift`: labels are that many steps late."""
    draw, rows = random.Random(seed), []
    for n in range(count):
        steps = [draw.choice(BAD if draw.random() < 0.3 else GOOD) for _ in range(5)]
        told: list[bool | None] = ["bad" not in step.split() for step in steps]
        if shift:
            filler = [draw.random() > 0.3 for _ in range(abs(shift))]
            told = [*filler, *told[:-shift]] if shift > 0 else [*told[-shift:], *filler]
        roles = ["assistant"] * 5
        if n % 4 == 0:
            steps[2], roles[2] = "bad bad", "tool"
        if n % 5 == 0:
            told[4] = None
        if n % 8 == 0:
            told[0] = not told[0]  # people err
        rows.append({"prompt": user("sun"), "completions": steps, "labels": told, "roles": roles})
    return rows


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    made = Workshop(tmp_path_factory.mktemp("steps"))
    made.put_model("base", tiny_llama())
    for name, shift in (("sound", 0), ("late", 1), ("early", -1)):
        made.put_snapshot(
            name, train=trajectories(128, 1, shift=shift), dev=trajectories(64, 2, shift=shift)
        )
    return made


def learn(shop: Workshop, data: str, name: str = "", **more: Any) -> Outcome:
    run = shop.spec(name or f"steps_{data}", "process_reward", RUN | more, sft="base", data=data)
    return shop.run_here(run)


@pytest.fixture(scope="module")
def learned(shop: Workshop) -> Outcome:
    return learn(shop, "sound")


def named(outcome: Outcome) -> set[str]:
    return {event["rule"] for event in outcome.all("Evidence")} | {
        event["rule"] for event in outcome.all("Alert")
    }


def test_it_learns_which_steps_are_right_and_finds_first_errors(learned: Outcome) -> None:
    f1, accuracy = learned.curve("eval/steps/first_error_f1"), learned.curve("eval/steps/accuracy")
    last = max(f1)
    assert f1[last] > 0.75
    assert accuracy[last] > learned.curve("eval/steps/majority")[last] + 0.1
    told = learned.summary["splits"]["dev"]
    assert told["accuracy"]["low"] < told["accuracy"]["value"] < told["accuracy"]["high"]
    assert told["accuracy"]["n_clusters"] == told["trajectories"] == 64
    assert named(learned) == set()


def test_its_checkpoint_is_a_process_reward_model_and_no_reward_model(
    shop: Workshop, learned: Outcome
) -> None:
    saved = learned.all("CheckpointSaved")[-1]
    folder = shop.store.get_tree(saved["uri"], sha256=saved["sha256"], cache=shop.root / "seen")
    assert load_step_scorer(folder, word_tokenizer()).config.architectures == [
        "LlamaForTokenClassification"
    ]
    with pytest.raises(RecipeError) as raised:
        load_scorer(folder, word_tokenizer())
    assert raised.value.kind == "process_reward_model"


def test_what_tools_and_users_say_and_what_nobody_marked_is_read_and_not_learnt() -> None:
    row = JudgedSteps(
        user("sun"),
        ("a dog", "bad bad", "the cat", "bad"),
        ("assistant", "tool", "assistant", "assistant"),
        (True, None, None, False),
    )
    ((encoded,), lost) = encode_steps(word_tokenizer(), [row], 64)
    (part,) = StepCollator(0, 1)([encoded])
    assert lost == 0
    assert part["total"] == 2
    places = (part["targets"] != -1).nonzero()[:, 1].tolist()
    assert places == [encoded.ends[0], encoded.ends[3]]
    assert part["targets"][0, places].tolist() == [1.0, 0.0]


def test_a_step_in_parts_has_the_gradient_of_the_whole(shop: Workshop) -> None:
    whole = learn(shop, "sound", "whole", max_steps=3, eval_every=3, save_every=3)
    parts = learn(
        shop, "sound", "parts", max_steps=3, eval_every=3, save_every=3, gradient_accumulation=4
    )
    assert parts.curve("eval/loss")[3] == pytest.approx(whole.curve("eval/loss")[3], abs=1e-4)


def test_a_run_that_was_stopped_goes_on_as_the_whole(shop: Workshop) -> None:
    few = {"max_steps": 6, "eval_every": 2, "save_every": 2}
    whole = learn(shop, "sound", "all_of_it", **few)
    run = shop.spec("cut", "process_reward", RUN | few, sft="base", data="sound")
    first = shop.run_here(run, after_step=2)
    again = shop.spec(
        "cut",
        "process_reward",
        RUN | few,
        attempt=2,
        resume=shop.resume(first),
        sft="base",
        data="sound",
    )
    assert shop.run_here(again).curve("eval/loss")[6] == whole.curve("eval/loss")[6]


# --- planted faults ---


def test_labels_of_the_step_before_are_named(shop: Workshop) -> None:
    assert "step_labels_late" in named(learn(shop, "late"))


def test_labels_of_the_step_that_follows_are_named(shop: Workshop) -> None:
    assert "step_labels_unlearnt" in named(learn(shop, "early"))


@pytest.mark.parametrize("label", [True, False])
def test_labels_of_one_class_are_refused_by_name(shop: Workshop, label: bool) -> None:
    rows = [row | {"labels": [label] * 5} for row in trajectories(8, 3)]
    shop.put_snapshot(f"only_{label}", train=rows, dev=rows)
    with pytest.raises(RecipeError) as raised:
        learn(shop, f"only_{label}")
    assert raised.value.kind == "one_label"


def test_rows_that_do_not_fit_are_named_with_their_field(shop: Workshop) -> None:
    row = trajectories(1, 3)[0]
    shop.put_snapshot("short", train=[row | {"labels": [True]}], dev=[row])
    with pytest.raises(RecipeError, match="labels"):
        learn(shop, "short")


def test_an_encoder_would_see_the_steps_behind(shop: Workshop) -> None:
    folder = encoder_folder(shop.root / "encoder", bert())
    with pytest.raises(RecipeError) as raised:
        load_step_scorer(folder, word_tokenizer())
    assert raised.value.kind == "not_causal"


# --- used as a reward ---


def test_a_policy_learns_against_it_and_is_measured_by_it(shop: Workshop, learned: Outcome) -> None:
    shop.adopt("scorer", learned)
    shop.put_snapshot("asked", train=[{"prompt": user(one)} for one in ("sun", "a dog", "cat")])
    spec = shop.spec("paid", "grpo", AGAINST, sft="base", prompts="asked", reward="scorer")
    paid = shop.run_here(spec)
    scores = paid.curve("eval/score")
    assert scores[max(scores)] > scores[0] + 0.5
    assert any("bad" in one["response"] for one in paid.all("Sample"))
    shop.adopt("better", paid)
    config = {"max_new_tokens": 6, "max_prompt_length": 16, "factuality": "off"}
    measured = shop.run_here(
        shop.spec(
            "measured",
            "evaluate",
            config,
            policy="better",
            sft="base",
            prompts="asked",
            reward="scorer",
        )
    )
    assert measured.ending == "Finished"
