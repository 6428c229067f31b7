"""SFT runs: TRL's loss on our batches, adapters, and whether the model imitates."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from trl import SFTConfig, SFTTrainer

from measures.imitation import Traits, compare
from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import (
    Outcome,
    Workshop,
    assistant,
    tiny_llama,
    trl_computes,
    user,
    word_tokenizer,
)
from tests.workers.recipes.test_dpo_losses import ROWS, arguments, gradients, one_step
from tests.workers.recipes.test_dpo_runs import checkpoint
from tests.workers.recipes.test_resume import check_joined, stop_and_resume
from workers.config import settings_for
from workers.contract.events import RecipeError
from workers.data.batches import Encoded, encode_turns
from workers.trainers.sft import DemonstrationTrainer, trait_words

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
SHORT = {
    "learning_rate": 1e-2,
    "batch_size": 8,
    "max_length": 64,
    "log_every": 1,
    "eval_every": 20,
    "save_every": 100,
    "sample_prompts": 1,
    "sample_max_new_tokens": 4,
    "warmup_share": 0.0,
}


@pytest.fixture(scope="module")
def shop(workshop: Workshop) -> Workshop:
    """Demonstrations that answer in a few words, and some held out."""
    rows = [
        {"messages": user(f"{subject} {verb}") + assistant(f"{subject} {verb} a good dog")}
        for subject, verb in product(SUBJECTS, ("runs", "sleeps", "the sun", "good", "bad"))
    ]
    workshop.put_snapshot("short_answers", train=rows[::2], dev=rows[1::2])
    return workshop


def ours(folder: Path, rows: list[Any], **config: Any) -> DemonstrationTrainer:
    settings = settings_for("sft", config)
    return DemonstrationTrainer(
        model=tiny_llama(),
        args=SFTConfig(**arguments(folder), max_length=64, loss_type=settings.loss_type),
        settings=settings,
        train_rows=rows,
        eval_rows=rows,
        tokenizer=word_tokenizer(),
    )


def marks_of(row: Encoded) -> list[int]:
    """1 for each token that is learnt."""
    marks = [0] * row.prompt_length + [1] * (len(row.ids) - row.prompt_length)
    for start, end in row.others:
        marks[start:end] = [0] * (end - start)
    return marks


@trl_computes
@pytest.mark.parametrize("kind", ["nll", "dft"])
@pytest.mark.parametrize("turns", [1, 2])
def test_loss_and_gradient_are_trls_on_the_same_rows_however_they_are_split(
    kind: str, turns: int, tmp_path: Path
) -> None:
    tokenizer = word_tokenizer()
    asked = user("the dog") + assistant("a cat runs") if turns == 2 else []
    rows = [encode_turns(tokenizer, asked + user(p), c, max_length=64)[0] for p, c, _ in ROWS]
    marks = [marks_of(row) for row in rows]
    assert [sum(m) for m in marks] == [row.response_length for row in rows]
    theirs = SFTTrainer(
        model=tiny_llama(),
        args=SFTConfig(
            **arguments(tmp_path / "trl"),
            max_length=64,
            loss_type=kind,
            completion_only_loss=True,
        ),
        train_dataset=Dataset.from_list(
            [{"input_ids": r.ids, "completion_mask": m} for r, m in zip(rows, marks, strict=True)]
        ),
        processing_class=tokenizer,
    )
    theirs.model.train()
    expected = theirs.compute_loss(theirs.model, theirs.data_collator(list(theirs.train_dataset)))
    expected.backward()
    wanted = gradients(theirs.model)
    for budget, parts in ((None, 1), (30, 3)):
        trainer = ours(tmp_path / "ours", rows, loss_type=kind, max_tokens_per_batch=budget)
        step = trainer.data_collator(rows)
        assert len(step) >= parts
        assert one_step(trainer, step).item() == pytest.approx(expected.item(), rel=1e-5)
        assert (gradients(trainer.model) - wanted).norm() < 1e-5 * wanted.norm()
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_every_answer_of_a_conversation_is_learnt_or_the_last_alone_and_a_row_is_shown_first(
    shop: Workshop,
) -> None:
    talk = [
        {
            "messages": user(f"{s} runs")
            + assistant("a good dog")
            + user(f"{s} sleeps")
            + assistant("a bad cat")
        }
        for s in SUBJECTS
    ]
    shop.put_snapshot("talks", train=talk, dev=talk[:4])
    found = {}
    for which in ("all", "last"):
        config = SHORT | {"max_steps": 1, "train_on": which, "imitation_prompts": 0}
        spec = shop.spec(f"talk_{which}", "sft", config, base="base", data="talks")
        outcome = shop.run_here(spec)
        report = json.loads((shop.folder(spec) / "preflight.json").read_text())
        shown = next(f for f in report["findings"] if f["check"] == "template")
        found[which] = [tuple(row) for row in shown["evidence"][0]["rows"]]
        told = [
            json.dumps(e["event"]) if e["type"] == "Log" else e["type"] for e in outcome.envelopes
        ]
        line = next(i for i, text in enumerate(told) if "what is learnt of a row" in text)
        assert line < told.index("Metrics")  # before the first step
    assert [name for name, _ in found["all"]] == ["read", "learnt", "read", "learnt"]
    assert found["all"][1][1] == "a good dog [end]"
    assert found["all"][3][1] == "a bad cat [end]"
    assert [name for name, _ in found["last"]] == ["read", "learnt"]
    assert "a good dog" in found["last"][0][1]


def departures(outcome: Outcome) -> set[str]:
    return {t["name"] for t in outcome.summary["imitation"]["traits"] if t["departs"]}


def test_a_model_trained_on_whole_answers_imitates_them_and_is_not_warned_of(
    shop: Workshop,
) -> None:
    config = SHORT | {"max_steps": 60}
    outcome = shop.run_here(shop.spec("faithful", "sft", config, base="base", data="short_answers"))
    assert departures(outcome) == set()
    assert outcome.summary["imitation"]["prompts"] == 40
    assert not [a for a in outcome.all("Alert") if a["rule"].startswith("imitation")]


def test_a_verbose_model_is_warned_of(shop: Workshop) -> None:
    """Cut answers teach not to end: what `overlong: truncate` does with a small max_length."""
    config = SHORT | {"max_steps": 60, "max_length": 14, "overlong": "truncate"}
    outcome = shop.run_here(shop.spec("verbose", "sft", config, base="base", data="short_answers"))
    assert {"length", "ended"} <= departures(outcome)
    alerts = {a["rule"]: a for a in outcome.all("Alert")}
    assert alerts["imitation_length"]["value"] > alerts["imitation_length"]["threshold"] == 1.25
    assert "imitation_ended" in {e["rule"] for e in outcome.all("Evidence")}


def test_a_departure_is_told_with_both_sides_and_the_interval() -> None:
    demonstrations = [Traits(50, frozenset({"ended"}))] * 20
    traits = {t.name: t for t in compare(demonstrations, [Traits(100, frozenset())] * 20)}
    length, ended = trait_words(traits["length"]), trait_words(traits["ended"])
    assert length.startswith("answers are 2.00 times as long as the demonstrations (95 % ")
    assert length.endswith("): 100 tokens against 50 on average")
    assert ended.startswith("answers that end by themselves: 0% of the answers against 100% of ")


def test_sft_with_adapters_goes_on_bit_for_bit_and_leaves_a_model_anyone_can_load(
    shop: Workshop,
) -> None:
    config = SHORT | {
        "lora_rank": 4,
        "max_steps": 6,
        "eval_every": 3,
        "imitation_prompts": 0,
        "max_tokens_per_batch": 60,
    }
    roles = {"base": "base", "data": "short_answers"}
    whole, first, second = stop_and_resume(shop, "sft", config, 4, prefix="lora_", **roles)
    check_joined(whole, first, second)
    assert whole.summary["trained_parameters"] < 0.5 * whole.summary["parameters"]
    assert whole.summary["held_out_loss"] < whole.summary["held_out_loss_at_start"]
    assert whole.summary["imitation"] is None
    folder = checkpoint(shop, whole)
    assert not any("lora" in name for name in load_file(folder / "model.safetensors"))
    assert json.loads((folder / "adapter" / "adapter_config.json").read_text())["r"] == 4
    merged = type(tiny_llama()).from_pretrained(folder)
    ids = torch.tensor([[3, 4, 5]])
    assert not torch.allclose(merged(ids).logits, tiny_llama()(ids).logits, atol=1e-3)


def test_adapters_on_a_model_that_has_learnt_nothing_are_refused(shop: Workshop) -> None:
    config = {"lora_rank": 4, "max_length": 64}
    with pytest.raises(RecipeError) as raised:
        shop.run_here(shop.spec("nothing_learnt", "sft", config, data="short_answers"))
    assert raised.value.kind == "bad_config"
    assert "name a base_model" in raised.value.message


def test_a_run_whose_held_out_rows_are_all_too_long_is_refused(workshop: Workshop) -> None:
    long = user("the cat") + assistant("good " * 40)
    short = user("the cat") + assistant("a dog")
    workshop.put_snapshot("long_held_out", train=[{"messages": short}], dev=[{"messages": long}])
    spec = workshop.spec(
        "long_held_out", "sft", {"max_length": 16}, base="base", data="long_held_out"
    )
    with pytest.raises(RecipeError) as raised:
        workshop.run_here(spec)
    assert raised.value.kind == "no_held_out_rows"
