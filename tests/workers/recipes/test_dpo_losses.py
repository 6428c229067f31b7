"""Our forward passes under TRL's losses: the same loss and gradient as TRL's own trainer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from tests.workers.recipes.language import (
    assistant,
    tiny_gpt2,
    tiny_llama,
    trl_computes,
    user,
    word_tokenizer,
)
from workers.config import settings_for
from workers.config.training import _BY_PAIR, _BY_STEP
from workers.data.snapshot import Preference
from workers.models.forward import Reference
from workers.models.loading import disable_dropout
from workers.rollouts.answer_tokens import answer_tokens, batch_of
from workers.trainers.dpo import (
    Pair,
    PairTrainer,
    StepCollator,
    encode_pairs,
    loss_arguments,
    precompute,
    reference_key,
)

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
LONG = "good good sun big red cat runs the dog"
ROWS = [
    ("the cat", "a good dog runs", "bad"),
    ("the big red sun runs", "good", LONG),
    ("rain", "sleeps a cat", "the small blue rain sleeps"),
    ("the blue dog sleeps the", LONG, "bad cat"),
    ("the cat", "a good dog runs", "rain"),  # its chosen answer is read once
]


def preferences() -> list[Preference]:
    return [Preference(user(prompt), chosen, rejected) for prompt, chosen, rejected in ROWS]


def arguments(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
        "report_to": "none",
        "disable_tqdm": True,
    }


def one_step(trainer: Any, parts: list[Any]) -> torch.Tensor:
    """Gradients of a step, outside of a training."""
    return trainer.training_step(trainer.model, parts)


def gradients(model: torch.nn.Module) -> torch.Tensor:
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


@pytest.fixture(scope="module")
def trl_trainer(tmp_path_factory: pytest.TempPathFactory) -> DPOTrainer:
    rows = [
        {"prompt": user(prompt), "chosen": assistant(chosen), "rejected": assistant(rejected)}
        for prompt, chosen, rejected in ROWS
    ]
    return DPOTrainer(
        model=tiny_llama(),
        ref_model=tiny_llama(seed=1),
        args=DPOConfig(**arguments(tmp_path_factory.mktemp("trl")), max_length=64),
        train_dataset=Dataset.from_list(rows),
        processing_class=word_tokenizer(),
    )


def our_trainer(folder: Path, *, pairs: list[Pair] | None = None, **config: Any) -> PairTrainer:
    settings = settings_for("dpo", config)
    model = tiny_llama()
    reference = Reference.frozen(tiny_llama(seed=1), policy=model)
    pairs = pairs or encode_pairs(word_tokenizer(), preferences(), 64)
    return PairTrainer(
        model=model,
        args=DPOConfig(**arguments(folder), **loss_arguments(settings), max_length=64),
        settings=settings,
        train_pairs=pairs,
        eval_pairs=pairs,
        tokenizer=word_tokenizer(),
        reference=reference,
    )


def test_pairs_are_encoded_as_trl_encodes_them(trl_trainer: DPOTrainer) -> None:
    ours = encode_pairs(word_tokenizer(), preferences(), 64)
    for pair, row in zip(ours, trl_trainer.train_dataset, strict=True):
        assert pair.chosen.ids == row["prompt_ids"] + row["chosen_ids"]
        assert pair.rejected.ids == row["prompt_ids"] + row["rejected_ids"]
        assert pair.chosen.prompt_length == len(row["prompt_ids"])


@trl_computes
def test_every_loss_and_its_gradient_are_trls_on_the_same_pairs_however_they_are_split(
    trl_trainer: DPOTrainer, tmp_path: Path
) -> None:
    batch = trl_trainer.data_collator(list(trl_trainer.train_dataset))
    whole = our_trainer(tmp_path)
    split_step = StepCollator(settings_for("dpo", {"max_tokens_per_batch": 48}), 0)(
        whole.train_dataset
    )
    whole_step = whole.data_collator(whole.train_dataset)
    assert len(whole_step) == 1
    assert 1 < len(split_step) < len(ROWS)  # parts of unequal size
    for kind in (*_BY_PAIR, *_BY_STEP):
        for also in ([], ["sft"]):
            for trainer in (trl_trainer, whole):
                trainer.loss_types, trainer.loss_weights = (
                    [kind, *also],
                    [1.0, 0.7][: 1 + len(also)],
                )
                trainer.label_smoothing = 0.1
            trl_trainer.model.train()
            expected = trl_trainer.compute_loss(trl_trainer.model, dict(batch))
            expected.backward()
            wanted = gradients(trl_trainer.model)
            steps = [whole_step] if kind in _BY_STEP else [whole_step, split_step]
            for step in steps:
                loss = one_step(whole, step)
                assert loss.item() == pytest.approx(expected.item(), rel=1e-5), kind
                assert (gradients(whole.model) - wanted).norm() < 1e-5 * wanted.norm(), kind


def test_figures_are_those_of_the_whole_step_however_it_is_split(tmp_path: Path) -> None:
    figures = []
    for name, config in (("whole", {}), ("split", {"max_tokens_per_batch": 48})):
        trainer = our_trainer(tmp_path / name, **config)
        one_step(trainer, trainer.data_collator(trainer.train_dataset))
        logs: dict[str, float] = {}
        trainer.log(logs)
        figures.append({k: v for k, v in logs.items() if k not in ("epoch", "num_tokens")})
    assert figures[0] == pytest.approx(figures[1], rel=1e-5, abs=1e-6)
    assert {"rewards/margins", "logps/chosen", "entropy", "logits/rejected"} <= figures[0].keys()


def test_few_logits_at_a_time_give_the_same_tokens_and_gradient() -> None:
    """The way of accelerators, on a processor."""
    pairs = encode_pairs(word_tokenizer(), preferences(), 64)
    batch, _ = batch_of([side for p in pairs for side in (p.chosen, p.rejected)], pad_id=0)
    found = []
    for chunk in (None, 3):
        model = tiny_llama()
        tokens = answer_tokens(model, batch, chunk=chunk)
        tokens.log_probs.sum().backward()
        found.append((tokens, gradients(model)))
    (ours, wanted), (pieces, gradient) = found
    for name in ("log_probs", "entropy", "mean_logits"):
        torch.testing.assert_close(getattr(pieces, name), getattr(ours, name))
    assert torch.equal(pieces.is_top1, ours.is_top1)
    torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_a_text_means_the_same_alone_as_in_a_padded_rectangle_of_absolute_positions() -> None:
    model = tiny_gpt2()
    disable_dropout(model)
    texts = [
        side
        for p in encode_pairs(word_tokenizer(), preferences(), 64)
        for side in (p.chosen, p.rejected)
    ]
    batch, places = batch_of(texts, pad_id=0)
    together = answer_tokens(model, batch).log_probs.sum(1)[places]
    for text, value in zip(texts, together, strict=True):
        ids = torch.tensor([text.ids])
        own = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        expected = own.gather(-1, ids[0, 1:, None])[text.prompt_length - 1 :].sum()
        assert value.item() == pytest.approx(expected.item(), abs=1e-4)


def test_values_computed_beforehand_are_those_of_a_fresh_look_at_the_reference(
    tmp_path: Path,
) -> None:
    pairs = encode_pairs(word_tokenizer(), preferences(), 64)
    reference = Reference.frozen(tiny_llama(seed=1), policy=tiny_llama())
    key = reference_key(reference, {"train": pairs}, "float32")
    known = precompute(
        reference,
        {"train": pairs},
        key,
        pad_id=0,
        device=torch.device("cpu"),
        budget=40,
        autocast=torch.autocast("cpu", enabled=False),
    )
    live, before = (
        our_trainer(tmp_path / "live"),
        our_trainer(tmp_path / "before", pairs=known.joined({"train": pairs})["train"]),
    )
    before.reference = None  # nothing to ask
    losses = [one_step(t, t.data_collator(t.train_dataset)) for t in (live, before)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-6)
    torch.testing.assert_close(gradients(live.model), gradients(before.model), rtol=1e-4, atol=1e-6)


def test_values_of_another_reference_or_of_other_pairs_are_never_read_back(tmp_path: Path) -> None:
    pairs = encode_pairs(word_tokenizer(), preferences(), 64)
    policy = tiny_llama()
    one, other = (Reference.frozen(tiny_llama(seed=s), policy=policy) for s in (1, 2))
    key = reference_key(one, {"train": pairs}, "float32")
    known = precompute(
        one,
        {"train": pairs},
        key,
        pad_id=0,
        device=torch.device("cpu"),
        budget=None,
        autocast=torch.autocast("cpu", enabled=False),
    )
    known.save(tmp_path)
    found = type(known).load(tmp_path, key)
    assert found is not None
    assert torch.equal(found.values["train"], known.values["train"])
    for changed in (
        reference_key(other, {"train": pairs}, "float32"),
        reference_key(one, {"train": pairs[1:] + pairs[:1]}, "float32"),
        reference_key(one, {"train": pairs}, "bfloat16"),
    ):
        assert type(known).load(tmp_path, changed) is None


# --- losses that ask no reference ---


def mean_logprobs(model: Any, pairs: list[Pair]) -> torch.Tensor:
    """Mean log π per token of chosen and rejected answers, [2, n], text by text."""
    rows = []
    for side in ("chosen", "rejected"):
        texts = [getattr(pair, side) for pair in pairs]
        rows.append(torch.stack([own_logprobs(model, text).mean() for text in texts]))
    return torch.stack(rows)


def own_logprobs(model: Any, text: Any) -> torch.Tensor:
    ids = torch.tensor([text.ids])
    own = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
    return own.gather(-1, ids[0, 1:, None])[text.prompt_length - 1 :, 0]


def simpo(pairs: list[Pair], model: Any) -> torch.Tensor:
    """−log σ(β Δ − γ), β 2 and γ 0.8 (Meng et al. 2024, equation 6)."""
    chosen, rejected = mean_logprobs(model, pairs)
    return -(torch.sigmoid(2.0 * (chosen - rejected) - 0.8)).log().mean()


def orpo(pairs: list[Pair], model: Any) -> torch.Tensor:
    """The chosen answers' loss per token − 0.3 log σ of the log odds ratio (Hong et al. 2024)."""
    chosen, rejected = mean_logprobs(model, pairs)
    odds = [p.exp() / (1 - p.exp()) for p in (chosen, rejected)]
    nll = -torch.cat([own_logprobs(model, pair.chosen) for pair in pairs]).mean()
    return nll - 0.3 * torch.sigmoid((odds[0] / odds[1]).log()).log().mean()


@pytest.mark.parametrize(
    ("by_hand", "config"),
    [
        (simpo, {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 0.8}),
        (orpo, {"loss_type": "orpo", "beta": 0.3}),
    ],
)
def test_losses_without_a_reference_are_their_papers_however_a_step_is_split(
    tmp_path: Path, by_hand: Any, config: dict[str, Any]
) -> None:
    pairs = encode_pairs(word_tokenizer(), preferences(), 64)
    model = tiny_llama()
    expected = by_hand(pairs, model)
    expected.backward()
    wanted = gradients(model)
    means = mean_logprobs(tiny_llama(), pairs).detach()
    for name, more in (("whole", {}), ("split", {"max_tokens_per_batch": 48})):
        ours = our_trainer(tmp_path / name, **config, **more)
        ours.reference = None  # nothing to ask
        loss = one_step(ours, ours.data_collator(ours.train_dataset))
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
        assert (gradients(ours.model) - wanted).norm() < 1e-4 * wanted.norm()
        logs: dict[str, float] = {}
        ours.log(logs)
        implicit = config["beta"] * means.mean(1)
        assert logs["rewards/chosen"] == pytest.approx(float(implicit[0]), rel=1e-4)
        assert logs["rewards/margins"] == pytest.approx(float(implicit[0] - implicit[1]), rel=1e-3)
        assert logs["rewards/accuracies"] == pytest.approx(
            float((means[0] > means[1]).float().mean())
        )
