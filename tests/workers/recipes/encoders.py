"""Tiny encoders with their own tokenizer, as folders: for tests only."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from tests.workers.recipes.language import WORDS
from workers.models.loading import save_model

MARKS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


def encoder_tokenizer() -> PreTrainedTokenizerFast:
    """A word a token, marks of beginning and end, no chat template and no end token."""
    words = [*MARKS, *WORDS, "user:", "assistant:"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def bert() -> PreTrainedModel:
    torch.manual_seed(0)
    return BertForMaskedLM(
        BertConfig(
            vocab_size=len(encoder_tokenizer()),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
        )
    )


def modernbert() -> PreTrainedModel:
    torch.manual_seed(0)
    return ModernBertForMaskedLM(
        ModernBertConfig(
            vocab_size=len(encoder_tokenizer()),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
        )
    )


def encoder_folder(folder: Path, model: PreTrainedModel) -> str:
    save_model(model, encoder_tokenizer(), folder)
    return str(folder)
