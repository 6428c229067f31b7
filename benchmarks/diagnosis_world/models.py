"""A tokenizer with one token a word, and two shapes of model that know nothing yet."""

from collections.abc import Callable, Mapping

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from benchmarks.diagnosis_world.language import CONTEXT, WORDS

PAD, END, USER, ASSISTANT = "[pad]", "[end]", "[user]", "[assistant]"
TEMPLATE = (
    "{% for m in messages %}{{ '[' + m['role'] + '] ' + m['content'] + ' [end] ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"
)
WIDTH, LAYERS, HEADS = 40, 2, 4


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word."""
    vocabulary = {word: i for i, word in enumerate((PAD, END, USER, ASSISTANT, *WORDS))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        padding_side="left",
        chat_template=TEMPLATE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def llama(seed: int) -> PreTrainedModel:
    """Rotary positions, RMS norms, no dropout."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS) + 4,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            initializer_range=0.08,
        )
    ).eval()


def gpt2(seed: int) -> PreTrainedModel:
    """Absolute positions and layer norms: where padding and a second look would show."""
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(WORDS) + 4,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            n_positions=CONTEXT,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            initializer_range=0.08,
        )
    ).eval()


SHAPES: Mapping[str, Callable[[int], PreTrainedModel]] = {"llama": llama, "gpt2": gpt2}
