"""TRL's own trainers read the exported folders unchanged and take a step."""

import zipfile
from pathlib import Path

import datasets
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison
from apps.snapshots import exports
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services import freezing
from tests.snapshots.conftest import WORDS
from tests.workers.recipes.language import ASSISTANT, END, PAD, TEMPLATE, USER

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.recipe,
    pytest.mark.spread,
    # TRL 1.16 itself still asks transformers by the old name.
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning"),
]

KNOWN = sorted({*WORDS.split(), "debate", "argument", "Argue", "for", "the", "side", "of"})
TOKENS = [PAD, END, USER, ASSISTANT, *KNOWN]


@pytest.fixture
def frozen(project: Project, crowd: list[Comparison], emil: User) -> Snapshot:
    recipe = SnapshotRecipe(
        least_votes=2, least_agreeing=2, splits={"train": 0.8, "dev": 0.2}, seed="seed-2"
    )
    return freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=emil)


def loaded(snapshot: Snapshot, shape: str, at: Path) -> datasets.DatasetDict:
    sent = exports.snapshot_export(snapshot=snapshot, form="zip", shape=shape).content
    with sent, zipfile.ZipFile(sent) as archive:
        archive.extractall(at / "zip")
    (folder,) = (at / "zip").iterdir()
    return datasets.load_dataset(str(folder), cache_dir=str(at / "cache"))


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer(models.WordLevel({t: i for i, t in enumerate(TOKENS)}, unk_token=PAD))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=PAD, eos_token=END, chat_template=TEMPLATE
    )


def tiny(kind: type, **more: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return kind(
        LlamaConfig(
            vocab_size=len(TOKENS),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=256,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            **more,
        )
    )


def settings(kind: type, at: Path, **more: object) -> object:
    return kind(
        output_dir=str(at / "out"),
        max_steps=1,
        per_device_train_batch_size=2,
        max_length=200,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        disable_tqdm=True,
        **more,
    )


def stepped(trainer: object) -> None:
    done = trainer.train()
    assert done.global_step == 1
    assert torch.isfinite(torch.tensor(done.training_loss))


@pytest.mark.parametrize("shape", ["conversational", "implicit", "standard"])
def test_the_reward_trainer_takes_a_step(
    frozen: Snapshot, shape: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    found = loaded(frozen, shape, tmp_path)
    trainer = RewardTrainer(
        model=tiny(LlamaForSequenceClassification, num_labels=1),
        args=settings(RewardConfig, tmp_path),
        train_dataset=found["train"],
        processing_class=tokenizer,
    )
    assert len(trainer.train_dataset) == frozen.counts["rows"]["train"]
    stepped(trainer)


@pytest.mark.parametrize("shape", ["conversational", "implicit", "standard"])
def test_the_dpo_trainer_takes_a_step(
    frozen: Snapshot, shape: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    found = loaded(frozen, shape, tmp_path)
    trainer = DPOTrainer(
        model=tiny(LlamaForCausalLM),
        ref_model=tiny(LlamaForCausalLM),
        args=settings(DPOConfig, tmp_path),
        train_dataset=found["train"],
        processing_class=tokenizer,
    )
    assert len(trainer.train_dataset) == frozen.counts["rows"]["train"]
    stepped(trainer)


@pytest.mark.parametrize("shape", ["kto", "conversational"])
def test_the_kto_trainer_takes_a_step(
    frozen: Snapshot, shape: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """Of the KTO form; and of pairs, which it takes apart itself."""
    found = loaded(frozen, shape, tmp_path)
    trainer = KTOTrainer(
        model=tiny(LlamaForCausalLM),
        ref_model=tiny(LlamaForCausalLM),
        args=settings(KTOConfig, tmp_path),
        train_dataset=found["train"],
        processing_class=tokenizer,
    )
    assert len(trainer.train_dataset) == 2 * frozen.counts["rows"]["train"]
    stepped(trainer)
