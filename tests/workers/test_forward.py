"""One forward pass over prompts and responses: no more than is needed, and what the model says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PreTrainedModel,
)

from tests.workers.recipes.language import tiny_gpt2, tiny_llama
from workers.data.batches import pad_left, pad_right
from workers.models.forward import (
    ResponseOutputs,
    align,
    is_plain,
    response_states,
    score_responses,
)
from workers.models.lora import attach_policy_lora

PROMPTS = [[5, 6, 7], [8], [9, 4, 5, 6, 7, 10], [11, 12]]
ANSWERS = [[6, 1], [7, 8, 9, 10, 1], [4], [12, 13, 14, 1]]
SMALL = {
    "vocab_size": 18,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": None,
    "initializer_range": 0.3,
}


def soft_capped() -> PreTrainedModel:
    torch.manual_seed(0)
    return Gemma2ForCausalLM(Gemma2Config(**SMALL, final_logit_softcapping=1.5)).eval()


def divided() -> PreTrainedModel:
    torch.manual_seed(0)
    return GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=4.0)).eval()


def multiplied() -> PreTrainedModel:
    torch.manual_seed(0)
    return CohereForCausalLM(CohereConfig(**SMALL, logit_scale=0.25)).eval()


def sequences() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (*pad_left(PROMPTS, 0), *pad_right(ANSWERS, 0))


def score(model: PreTrainedModel, **options) -> ResponseOutputs:
    options = {"temperature": 0.7, "with_entropy": True, "with_hidden": True} | options
    return score_responses(model, *sequences(), **options)


def one_by_one(model: PreTrainedModel, temperature: float) -> Iterator[tuple[Tensor, Tensor]]:
    """(log-probabilities, entropy) of each answer, from all logits of its row alone."""
    for prompt, answer in zip(PROMPTS, ANSWERS, strict=True):
        logits = model(input_ids=torch.tensor([prompt + answer])).logits[0].double() / temperature
        own = torch.distributions.Categorical(logits=logits[len(prompt) - 1 : -1])
        yield own.log_prob(torch.tensor(answer)), own.entropy()


MODELS = pytest.mark.parametrize(
    "make",
    [tiny_llama, tiny_gpt2, soft_capped, divided, multiplied],
    ids=lambda make: make.__name__,
)
CHUNKS = pytest.mark.parametrize("chunk", [1, 5, None])


@MODELS
@CHUNKS
def test_each_row_scores_as_it_does_alone_whatever_the_model_does_to_its_logits(
    make: Callable[[], PreTrainedModel], chunk: int | None
) -> None:
    model = make()
    with torch.no_grad():
        found = score(model, logits_chunk=chunk)
        for i, (logprobs, entropy) in enumerate(one_by_one(model, 0.7)):
            n = len(ANSWERS[i])
            torch.testing.assert_close(found.logprobs[i, :n].double(), logprobs, atol=1e-5, rtol=0)
            torch.testing.assert_close(found.entropy[i, :n].double(), entropy, atol=1e-5, rtol=0)
            assert not found.logprobs[i, n:].any()
            assert not found.entropy[i, n:].any()
            assert not found.hidden[i, n:].any()


def test_models_that_treat_their_logits_are_told_from_those_that_do_not() -> None:
    assert [is_plain(make()) for make in (tiny_llama, tiny_gpt2)] == [True, True]
    assert [is_plain(make()) for make in (soft_capped, divided, multiplied)] == [False] * 3


@pytest.mark.parametrize("bonus", [False, True], ids=["entropy_looked_at", "entropy_bonus"])
@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2], ids=lambda make: make.__name__)
def test_chunks_give_the_gradient_of_the_whole(
    make: Callable[[], PreTrainedModel], bonus: bool
) -> None:
    def gradients(chunk: int | None) -> list[Tensor]:
        model = make()
        found = score(model, logits_chunk=chunk, entropy_gradient=bonus)
        loss = (found.logprobs.exp() * torch.arange(5)).sum() + found.hidden.pow(2).sum()
        (loss + found.entropy.sum() if bonus else loss).backward()
        return [parameter.grad for parameter in model.parameters()]

    for whole, chunked in zip(gradients(None), gradients(3), strict=True):
        torch.testing.assert_close(chunked, whole, atol=1e-5, rtol=1e-4)


@contextmanager
def projected(model: PreTrainedModel) -> Iterator[list[int]]:
    """States that go through the output layer, call by call."""
    seen: list[int] = []
    hook = model.get_output_embeddings().register_forward_hook(
        lambda _module, _args, output: seen.append(output.numel() // output.shape[-1])
    )
    yield seen
    hook.remove()


def test_only_real_response_tokens_are_projected_and_never_more_than_a_chunk_at_once() -> None:
    model = tiny_llama()
    is_plain(model)
    with projected(model) as seen:
        score(model, logits_chunk=5)
    tokens = sum(map(len, ANSWERS))
    assert seen == [1, 5, 5, 2]  # one state while the trunk runs, then the answers in chunks
    assert sum(seen[1:]) == tokens == 12


def test_the_trunk_reads_rows_without_their_padding() -> None:
    aligned = align(*sequences())
    longest = max(len(p) + len(a) for p, a in zip(PROMPTS, ANSWERS, strict=True))
    assert aligned.ids.shape == (4, longest - 1)  # the last token predicts nothing
    for row, prompt, answer in zip(aligned.ids.tolist(), PROMPTS, ANSWERS, strict=True):
        text = (prompt + answer)[: longest - 1]
        assert row[: len(text)] == text
        assert set(row[len(text) :]) <= {prompt[0]}


def test_what_stands_under_the_padding_moves_nothing() -> None:
    model = tiny_gpt2()
    prompt_ids, prompt_mask, response_ids, response_mask = sequences()
    spoiled = (
        torch.where(prompt_mask.bool(), prompt_ids, 13),
        prompt_mask,
        torch.where(response_mask.bool(), response_ids, 14),
        response_mask,
    )
    with torch.no_grad():
        again = score_responses(model, *spoiled, temperature=0.7).logprobs
        assert torch.equal(score(model, with_entropy=False).logprobs, again)


def test_adapters_count_until_they_are_switched_off() -> None:
    base = tiny_llama()
    adapted = attach_policy_lora(tiny_llama(), rank=2, alpha=4.0)
    with torch.no_grad():
        before = score(base).logprobs
        torch.testing.assert_close(score(adapted).logprobs, before)
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.3)
        assert (score(adapted).logprobs - before).abs().max() > 0.01
        with adapted.disable_adapter():
            torch.testing.assert_close(score(adapted).logprobs, before)


def test_a_trunk_of_its_own_gives_the_states_before_each_token() -> None:
    model = tiny_llama()
    with torch.no_grad():
        torch.testing.assert_close(
            response_states(model.base_model, *sequences()), score(model).hidden
        )
