"""Our sampling loop against the one of `transformers`: the same tokens, with less work."""

from collections.abc import Callable

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tests.workers.recipes.language import tiny_gpt2, tiny_llama, user, word_tokenizer
from workers.data.batches import encode_prompt, pad_left
from workers.models.lora import attach_policy_lora
from workers.rollouts.local import _by_transformers, decode, generate, supports
from workers.rollouts.sampling import Sampling

TOKENIZER = word_tokenizer()
PROMPTS = [
    encode_prompt(TOKENIZER, user(text))
    for text in ("sun", "the big red dog runs", "a cat sleeps", "the small blue cat sleeps rain")
] * 3
SHARED = {
    "vocab_size": 18,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": None,
    "initializer_range": 0.2,
}


def grouped_queries() -> PreTrainedModel:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**SHARED)).eval()


def eager() -> PreTrainedModel:
    model = tiny_llama()
    model.set_attn_implementation("eager")
    return model


def with_adapters() -> PreTrainedModel:
    adapted = attach_policy_lora(tiny_llama(), rank=2, alpha=4.0)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return adapted.get_base_model().eval()


def sliding() -> PreTrainedModel:
    torch.manual_seed(0)
    return Gemma2ForCausalLM(Gemma2Config(**SHARED, head_dim=8, sliding_window=4)).eval()


MODELS = pytest.mark.parametrize(
    "make",
    [tiny_llama, tiny_gpt2, grouped_queries, eager, with_adapters],
    ids=lambda make: make.__name__,
)
WAYS = pytest.mark.parametrize(
    "sampling",
    [
        Sampling(10, temperature=0.0),
        Sampling(14, seed=1),
        Sampling(14, temperature=1.7, seed=2),
        Sampling(8, temperature=0.7, top_k=5, top_p=0.9, seed=3),
    ],
    ids=["greedy", "plain", "hot", "cut"],
)


@MODELS
@WAYS
def test_every_token_is_the_one_that_transformers_draws(
    make: Callable[[], PreTrainedModel], sampling: Sampling
) -> None:
    model = make()
    assert supports(model)
    prompts = pad_left(PROMPTS, 0)
    options = {"stop": (1, 7), "pad_id": 0, "keep_logprobs": True}
    ours = decode(model, *prompts, sampling, **options)
    theirs = _by_transformers(model, *prompts, sampling, **options)
    assert torch.equal(ours.ids, theirs.ids)
    real = (ours.ids != 0) & (ours.logprobs != 0)
    torch.testing.assert_close(
        ours.logprobs[real], theirs.logprobs[real], atol=1e-5, rtol=0, check_dtype=False
    )


def test_rows_that_have_ended_are_computed_no_longer() -> None:
    model = tiny_llama()
    rows: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(
        lambda _module, args, _output: rows.append(len(args[0]))
    )
    drawn = decode(
        model, *pad_left(PROMPTS * 4, 0), Sampling(40, temperature=2.0), stop=(1, 7), pad_id=0
    )
    hook.remove()
    assert rows[0] == 48
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] <= 4
    tokens = int((drawn.ids != 0).sum())
    assert sum(rows) < 1.4 * tokens < len(rows) * 48


def test_nothing_but_the_seed_decides_a_draw_and_no_other_draw_is_disturbed() -> None:
    model = tiny_llama()
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    first = generate(model, TOKENIZER, PROMPTS, Sampling(8, seed=5), stop=(1,))
    assert torch.equal(torch.rand(3), expected)
    second = generate(model, TOKENIZER, PROMPTS, Sampling(8, seed=5), stop=(1,))
    assert torch.equal(first.response_ids, second.response_ids)


def test_a_model_in_training_that_recomputes_its_activations_draws_the_same() -> None:
    plain, recomputing = tiny_llama(), tiny_llama().train()
    recomputing.activation_checkpointing_enable({"use_reentrant": False})
    drawn = [generate(m, TOKENIZER, PROMPTS, Sampling(8), stop=(1,)) for m in (plain, recomputing)]
    assert torch.equal(drawn[0].response_ids, drawn[1].response_ids)
    assert recomputing.training


def test_a_model_whose_cache_slides_is_left_to_transformers() -> None:
    model = sliding()
    assert not supports(model)
    drawn = generate(model, TOKENIZER, PROMPTS, Sampling(8, seed=1), stop=(1,))
    again = generate(model, TOKENIZER, PROMPTS, Sampling(8, seed=1), stop=(1,))
    assert torch.equal(drawn.response_ids, again.response_ids)


def test_answers_are_drawn_from_the_softmax_of_the_logits() -> None:
    model = tiny_llama()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1] / 0.8
    count = 6000
    drawn = decode(
        model,
        *pad_left([PROMPTS[0]] * count, 0),
        Sampling(1, temperature=0.8, seed=11),
        stop=(1,),
        pad_id=0,
    )
    seen = torch.bincount(drawn.ids[:, 0], minlength=18).double()
    expected = count * logits.double().softmax(-1)
    chi_squared = float(((seen - expected) ** 2 / expected).sum())
    assert chi_squared < 40.8  # 99.9 % of draws from it, 17 degrees of freedom
