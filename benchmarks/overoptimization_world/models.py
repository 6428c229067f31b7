"""A tokenizer with one token a word, and a model that knows nothing yet."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from benchmarks.overoptimization_world.language import CONTEXT, WORDS

PAD, END, USER, ASSISTANT = "[pad]", "[end]", "[user]", "[assistant]"
TEMPLATE = (
    "{% for m in messages %}{{ '[' + m['role'] + '] ' + m['content'] + ' [end] ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"
)


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


def base_model(seed: int) -> PreTrainedModel:
    """A Llama of about 50,000 weights that knows nothing yet."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS) + 4,
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            initializer_range=0.08,
        )
    ).eval()
