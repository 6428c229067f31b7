"""One forward pass over prompts and responses: no more than is needed, and what the model says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tests.workers.recipes.language import tiny_gpt2, tiny_llama, user, word_tokenizer
from workers.data.batches import encode_prompt, pad_left, pad_right
from workers.models import forward
from workers.models.forward import (
    ResponseOutputs,
    align,
    can_pack,
    is_plain,
    response_states,
    score_responses,
)
from workers.models.loading import disable_dropout
from workers.models.lora import attach_policy_lora
from workers.rollouts.local import Sampling, _by_transformers, decode, generate, supports

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
    assert is_plain(model)
    assert can_pack(model)
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


# Rows end to end against rows in a rectangle: the same numbers, the same gradients.


@contextmanager
def in_rectangles() -> Iterator[None]:
    """Inside, no model packs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "can_pack", lambda _model: False)
        yield


def learned(model: PreTrainedModel, rows: tuple[Tensor, Tensor, Tensor, Tensor]) -> list[Tensor]:
    """Log-probabilities, entropy and states of every response token, and each weight's gradient."""
    model.zero_grad()
    found = score_responses(
        model, *rows, temperature=0.7, with_entropy=True, entropy_gradient=True, with_hidden=True
    )
    seen = [found.logprobs, found.entropy, found.hidden]
    (found.logprobs.exp().sum() + found.entropy.sum() + found.hidden.pow(2).sum()).backward()
    return [*(each.detach() for each in seen), *(p.grad.clone() for p in model.parameters())]


TEXTS = st.lists(
    st.tuples(
        st.lists(st.integers(4, 17), min_size=1, max_size=9),
        st.lists(st.integers(1, 17), min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize(
    "make", [tiny_llama, tiny_gpt2, lambda: grouped_queries()], ids=["llama", "gpt2", "qwen2"]
)
@settings(max_examples=25)
@given(texts=TEXTS)
def test_rows_end_to_end_give_the_numbers_and_gradients_of_rectangles(
    make: Callable[[], PreTrainedModel],
    recompute: bool,
    texts: list[tuple[list[int], list[int]]],
) -> None:
    model = make().double()  # log-probabilities are made in single precision all the same
    if recompute:
        model.train().activation_checkpointing_enable()
        disable_dropout(model)
    assert can_pack(model)
    rows = (*pad_left([one for one, _ in texts], 0), *pad_right([two for _, two in texts], 0))
    with in_rectangles():
        expected = learned(model, rows)
    for packed, rectangle in zip(learned(model, rows), expected, strict=True):
        rounding = 1e-6 + 1e-5 * float(rectangle.abs().max())
        torch.testing.assert_close(packed, rectangle, atol=rounding, rtol=0)


def test_packed_rows_have_no_padding() -> None:
    aligned = align(*sequences(), packed=True)
    texts = [(p + a)[:-1] for p, a in zip(PROMPTS, ANSWERS, strict=True)]
    assert aligned.ids.tolist() == [[token for text in texts for token in text]]
    assert aligned.lengths == [len(text) for text in texts]


def test_models_that_cannot_keep_rows_apart_stay_in_rectangles() -> None:
    assert not any(can_pack(make()) for make in (sliding, eager))
    packing = tiny_llama()
    assert can_pack(packing)
    packing.set_attn_implementation("eager")
    with torch.no_grad():  # whoever changes it afterwards is told so
        assert not can_pack(packing)


# Our sampling loop against the one of `transformers`: the same tokens, with less work.


TOKENIZER = word_tokenizer()
QUESTIONS = [
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


DECODERS = pytest.mark.parametrize(
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


@DECODERS
@WAYS
def test_every_token_is_the_one_that_transformers_draws(
    make: Callable[[], PreTrainedModel], sampling: Sampling
) -> None:
    model = make()
    assert supports(model)
    prompts = pad_left(QUESTIONS, 0)
    options = {"stop": (1, 7), "pad_id": 0, "keep_logprobs": True}
    ours = decode(model, *prompts, sampling, **options)
    theirs = _by_transformers(model, *prompts, sampling, watch=None, **options)
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
        model,
        *pad_left(QUESTIONS * 4, 0),
        Sampling(40, temperature=2.0),
        stop=(1, 7),
        pad_id=0,
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
    first = generate(model, TOKENIZER, QUESTIONS, Sampling(8, seed=5), stop=(1,))
    assert torch.equal(torch.rand(3), expected)
    second = generate(model, TOKENIZER, QUESTIONS, Sampling(8, seed=5), stop=(1,))
    assert torch.equal(first.response_ids, second.response_ids)


def test_a_model_in_training_that_recomputes_its_activations_draws_the_same() -> None:
    plain, recomputing = tiny_llama(), tiny_llama().train()
    recomputing.activation_checkpointing_enable({"use_reentrant": False})
    drawn = [
        generate(m, TOKENIZER, QUESTIONS, Sampling(8), stop=(1,)) for m in (plain, recomputing)
    ]
    assert torch.equal(drawn[0].response_ids, drawn[1].response_ids)
    assert recomputing.training


def test_a_model_whose_cache_slides_is_left_to_transformers() -> None:
    model = sliding()
    assert not supports(model)
    drawn = generate(model, TOKENIZER, QUESTIONS, Sampling(8, seed=1), stop=(1,))
    again = generate(model, TOKENIZER, QUESTIONS, Sampling(8, seed=1), stop=(1,))
    assert torch.equal(drawn.response_ids, again.response_ids)


def test_answers_are_drawn_from_the_softmax_of_the_logits() -> None:
    model = tiny_llama()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([QUESTIONS[0]])).logits[0, -1] / 0.8
    count = 6000
    drawn = decode(
        model,
        *pad_left([QUESTIONS[0]] * count, 0),
        Sampling(1, temperature=0.8, seed=11),
        stop=(1,),
        pad_id=0,
    )
    seen = torch.bincount(drawn.ids[:, 0], minlength=18).double()
    expected = count * logits.double().softmax(-1)
    chi_squared = float(((seen - expected) ** 2 / expected).sum())
    assert chi_squared < 40.8  # 99.9 % of draws from it, 17 degrees of freedom
