"""Sampling answers in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from workers.data.padding import pad_left
from workers.rollouts.decode import Drawn, decode, supports
from workers.rollouts.sampling import Sampling


@dataclass(slots=True)
class Responses:
    """Answers to B prompts. P prompt positions padded left, R response positions padded right."""

    prompt_ids: Tensor  # [B, P]
    prompt_mask: Tensor  # [B, P] 1 = real token
    response_ids: Tensor  # [B, R]
    response_mask: Tensor  # [B, R] 1 = real token, the stop token included
    ended: Tensor  # [B] whether a stop token was reached
    texts: list[str]
    logprobs: Tensor | None = None  # [B, R] nats, as seen while sampling, untempered

    @property
    def lengths(self) -> Tensor:
        """Tokens per response, the stop token included: [B]."""
        return self.response_mask.sum(1)


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    stop: Sequence[int],
    keep_logprobs: bool = False,
) -> Responses:
    """One answer to each prompt (token ids), all in one batch.

    Draws from a generator of its own, seeded by `sampling`, token for token as `transformers`
    would with that seed; and by `transformers` itself where our loop does not know the model's
    cache, which sets the seed of torch's global generator. `keep_logprobs` keeps the
    log-probability of each drawn token as it was seen while sampling.
    """
    device = model.device
    pad_id = tokenizer.pad_token_id
    ids, mask = (t.to(device) for t in pad_left(prompts, pad_id))
    draw = decode if supports(model) else _by_transformers
    drawn = draw(model, ids, mask, sampling, stop=stop, pad_id=pad_id, keep_logprobs=keep_logprobs)
    real = _through_first_stop(drawn.ids, stop)
    width = int(real.sum(1).max())
    response, real = drawn.ids[:, :width], real[:, :width]
    response = torch.where(real, response, torch.full_like(response, pad_id))
    stops = torch.tensor(list(stop), device=device)
    result = Responses(
        prompt_ids=ids,
        prompt_mask=mask,
        response_ids=response,
        response_mask=real.long(),
        ended=(torch.isin(response, stops) & real).any(1),
        texts=[
            tokenizer.decode(row[keep], skip_special_tokens=True)
            for row, keep in zip(response, real, strict=True)
        ],
    )
    if drawn.logprobs is not None:
        picked = drawn.logprobs[:, :width]
        result.logprobs = torch.where(real, picked, torch.zeros_like(picked))
    return result


def _by_transformers(
    model: PreTrainedModel,
    ids: Tensor,
    mask: Tensor,
    sampling: Sampling,
    *,
    stop: Sequence[int],
    pad_id: int,
    keep_logprobs: bool,
) -> Drawn:
    """`decode` for any model. `keep_logprobs` costs B × R × V floats here."""
    torch.manual_seed(sampling.seed)
    with _generation_config(model, _config(pad_id, sampling, stop, keep_logprobs)):
        # Under ZeRO 3 it would wait at every token for ranks that may draw nothing now.
        output = model.generate(input_ids=ids, attention_mask=mask, synced_gpus=False)
    drawn = output.sequences[:, ids.shape[1] :]
    if not keep_logprobs:
        return Drawn(drawn, None)
    logits = torch.stack(output.logits, dim=1).float()
    return Drawn(drawn, logits.log_softmax(-1).gather(-1, drawn.unsqueeze(-1)).squeeze(-1))


def _through_first_stop(ids: Tensor, stop: Sequence[int]) -> Tensor:
    """[B, R] -> bool [B, R]: True up to and including the first stop token.

    Found by position and not by comparing with the pad id, for a model may pad with its end token.
    """
    is_stop = torch.isin(ids, torch.tensor(list(stop), device=ids.device)).long()
    return (is_stop.cumsum(1) - is_stop) == 0


def _config(pad_id: int, sampling: Sampling, stop: Sequence[int], logits: bool) -> GenerationConfig:
    greedy = sampling.temperature == 0
    drawn = (
        {}
        if greedy
        else {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
        }
    )
    return GenerationConfig(
        max_new_tokens=sampling.max_new_tokens,
        do_sample=not greedy,
        eos_token_id=list(stop),
        pad_token_id=pad_id,
        return_dict_in_generate=True,
        output_logits=logits,
        **drawn,
    )


@contextmanager
def _generation_config(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """`config` and nothing else: `generate` fills fields left open from the model's own defaults,
    so a repetition penalty there would leak into the samples and not into the log-probabilities."""
    own = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = own
