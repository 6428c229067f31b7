"""KTO: TRL's loss on our forward passes, and runs on single answers and on pairs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from tests.workers.recipes.language import (
    Workshop,
    assistant,
    tiny_llama,
    trl_computes,
    user,
    word_tokenizer,
)
from tests.workers.recipes.test_dpo_losses import arguments, gradients, one_step
from tests.workers.recipes.test_dpo_runs import SHORT
from tests.workers.recipes.test_resume import check_joined, stop_and_resume
from workers.config import settings_for
from workers.contract.events import RecipeError
from workers.data.snapshot import JudgedAnswer, read_judged_answers
from workers.models.forward import Reference
from workers.preflight.data import answer_rows
from workers.trainers.kto import AnswerTrainer, balanced_weight, encode_answers, mismatched

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
LONG = "good good sun big red cat runs the dog"
ROWS = [  # neighbours have other prompts, as TRL needs them to pair answers with
    ("the cat", "a good dog runs", True),
    ("the big red sun runs", LONG, False),
    ("rain", "sleeps a cat", True),
    ("the blue dog sleeps the", "bad cat", False),
    ("the red cat", "good", True),
]


def answers() -> list[JudgedAnswer]:
    return [JudgedAnswer(user(prompt), text, good) for prompt, text, good in ROWS]


def our_trainer(folder: Path, *, weight: float = 1.0, **config: Any) -> AnswerTrainer:
    settings = settings_for("kto", config)
    model = tiny_llama(seed=1)
    rows = encode_answers(word_tokenizer(), answers(), 64)
    args = KTOConfig(
        **arguments(folder),
        max_length=64,
        loss_type=settings.loss_type,
        desirable_weight=weight,
        per_device_train_batch_size=8,
    )
    return AnswerTrainer(
        model=model,
        args=args,
        settings=settings,
        train_answers=rows,
        eval_answers=rows,
        tokenizer=word_tokenizer(),
        reference=Reference.frozen(tiny_llama(), policy=model),
    )


@trl_computes
@pytest.mark.parametrize("kind", ["kto", "apo_zero_unpaired"])
def test_the_loss_and_its_gradient_are_trls_on_the_same_answers_however_they_are_split(
    tmp_path: Path, kind: str
) -> None:
    """The divergence of the whole step is in every part; TRL would take each part's own."""
    rows = [{"prompt": user(p), "completion": assistant(c), "label": good} for p, c, good in ROWS]
    theirs = KTOTrainer(
        model=tiny_llama(seed=1),
        ref_model=tiny_llama(),
        args=KTOConfig(
            **arguments(tmp_path / "trl"),
            max_length=64,
            loss_type=kind,
            desirable_weight=0.7,
            per_device_train_batch_size=8,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=word_tokenizer(),
    )
    batch = theirs.data_collator(list(theirs.train_dataset))
    theirs.model.train()
    expected = theirs.compute_loss(theirs.model, batch)
    expected.backward()
    wanted = gradients(theirs.model)
    told: dict[str, float] = {}
    theirs.log(told)
    for name, config in (("whole", {}), ("split", {"max_tokens_per_batch": 32})):
        ours = our_trainer(tmp_path / name, weight=0.7, loss_type=kind, **config)
        step = ours.data_collator(ours.train_dataset)
        assert (len(step) > 1) == (name == "split")
        loss = one_step(ours, step)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        assert (gradients(ours.model) - wanted).norm() < 1e-5 * wanted.norm()
        logs: dict[str, float] = {}
        ours.log(logs)
        assert ("kto/kl" in logs) == (kind == "kto")
        for metric in ("rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen"):
            assert logs[metric] == pytest.approx(told[metric], rel=1e-4), metric
        if kind == "kto":
            assert logs["kto/kl"] == pytest.approx(told["kl"], rel=1e-4)
            assert logs["kto/kl"] > 0


def test_no_answer_is_taken_for_a_mismatch_behind_its_own_prompt() -> None:
    rows = [JudgedAnswer(user("the cat"), text, True) for text in ("good", "bad", "dog")]
    rows.append(JudgedAnswer(user("rain"), "sleeps", False))
    encoded = encode_answers(word_tokenizer(), rows, 64)
    found = mismatched(encoded, 64)
    assert all(known for _, known in found)
    sleeps = encoded[3].text.ids[encoded[3].text.prompt_length :]
    for text, _ in found[:3]:
        assert text.ids[text.prompt_length :] == sleeps
    assert not any(known for _, known in mismatched(encoded[:3], 64))


def test_the_unset_weight_makes_both_labels_count_the_same() -> None:
    rows = encode_answers(word_tokenizer(), answers(), 64)  # 3 desirable, 2 not
    weight = balanced_weight(rows, settings_for("kto", {"undesirable_weight": 1.5}))
    assert 3 * weight == pytest.approx(2 * 1.5)
    assert balanced_weight(rows, settings_for("kto", {"desirable_weight": 0.3})) == 0.3


def test_pairs_are_read_answer_by_answer_and_ties_of_soft_labels_are_not(tmp_path: Path) -> None:
    pair = {"prompt": user("rain"), "chosen": assistant("good"), "rejected": assistant("bad")}
    rows = [pair, pair | {"label_probability": 0.5}, pair | {"label_probability": 0.8}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_judged_answers(tmp_path)
    assert [(row.response, row.desirable) for row in read] == [("good", True), ("bad", False)] * 2


def test_a_label_that_is_no_truth_value_is_refused_with_its_line(tmp_path: Path) -> None:
    row = {"prompt": user("rain"), "completion": assistant("good"), "label": "yes"}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(RecipeError, match="line 1: field 'label' must be true or false"):
        read_judged_answers(tmp_path)


def test_answers_of_one_label_alone_block_the_run() -> None:
    found = answer_rows([row for row in answers() if row.desirable])
    assert found.level == "block"
    assert "SFT" in found.message
    assert answer_rows(answers()).level == "ok"
    assert answer_rows(answers()).figures["desirable"] == 3
    both = [*answers(), JudgedAnswer(user("rain"), "sleeps a cat", False)]
    assert answer_rows(both).figures["contradicting"] == 1


@pytest.mark.parametrize("rank", [0, 4])
def test_the_policy_learns_which_answers_are_desirable_and_goes_on_bit_for_bit(
    workshop: Workshop, rank: int
) -> None:
    config = SHORT | {"max_steps": 12, "epochs": 6, "lora_rank": rank}
    config |= {"learning_rate": 1e-2 if rank else 3e-3}
    inputs = {"sft": "base", "data": "answers"}
    parts = stop_and_resume(workshop, "kto", config, 7, prefix=f"single_{rank}_", **inputs)
    check_joined(*parts)
    whole = parts[0]
    margins = whole.curve("eval/rewards/margins")
    assert abs(margins[0]) < 1e-6
    assert margins[12] > 0.1
    assert whole.curve("logps/chosen")[12] - whole.curve("logps/rejected")[12] > (
        whole.curve("logps/chosen")[1] - whole.curve("logps/rejected")[1]
    )
    assert whole.summary["desirable_weight"] == pytest.approx(0.5)
    assert whole.summary["held_out_margin"] == margins[12]


def test_a_run_on_pairs_learns_too_and_splitting_its_steps_leaves_the_curve(
    workshop: Workshop,
) -> None:
    curves = []
    for name, config in (("kto_whole", {}), ("kto_split", {"max_tokens_per_batch": 60})):
        spec = workshop.spec(name, "kto", SHORT | config, sft="base", data="preferences")
        curves.append(workshop.run_here(spec))
    one, other = (outcome.curve("eval/rewards/margins") for outcome in curves)
    assert other == pytest.approx(one, rel=1e-3, abs=1e-5)
    assert one[8] > one[4] > 0
    assert curves[0].curve("kto/kl")
    assert torch.isfinite(torch.tensor(list(curves[0].curve("loss").values()))).all()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"batch_size": 1}, "batch_size: kto reads each answer"),
        ({"loss_type": "sigmoid"}, "loss_type"),
        ({"desirable_weight": 0}, "desirable_weight"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_with_their_field(
    config: dict, said: str
) -> None:
    with pytest.raises(RecipeError) as raised:
        settings_for("kto", config)
    assert raised.value.kind == "bad_config"
    assert said in raised.value.message
