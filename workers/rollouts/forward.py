"""What a policy thinks of given responses: log-probabilities, entropy, the states behind them."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from workers.rl.logprobs import logprobs_and_entropy, selective_logprobs


@dataclass(slots=True)
class ResponseOutputs:
    """Per response token; what lies under the padding means nothing."""

    logprobs: Tensor  # [B, R] nats, tempered
    entropy: Tensor | None  # [B, R] nats per token, tempered
    hidden: Tensor | None  # [B, R, width] last state before each token is drawn


def score_responses(
    model: PreTrainedModel,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    response_ids: Tensor,
    response_mask: Tensor,
    *,
    temperature: float,
    with_entropy: bool = False,
    entropy_gradient: bool = False,
    with_hidden: bool = False,
) -> ResponseOutputs:
    """One forward pass over prompt (padded left) and response (padded right).

    Position ids count real tokens only, so that padding moves nothing, on models with absolute
    positions too. The vocabulary is projected at response positions only (`logits_to_keep`).
    """
    ids = torch.cat([prompt_ids, response_ids], dim=1)
    mask = torch.cat([prompt_mask, response_mask], dim=1)
    width = response_ids.shape[1]
    captured: list[Tensor] = []
    hook = (
        model.get_output_embeddings().register_forward_pre_hook(
            lambda _module, args: captured.append(args[0])
        )
        if with_hidden
        else None
    )
    try:
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            logits_to_keep=width + 1,
            use_cache=False,
        )
    finally:
        if hook is not None:
            hook.remove()
    logits = output.logits[:, :-1].float()  # the state after the last token predicts nothing here
    hidden = captured[0][:, :-1] if captured else None
    if not with_entropy:
        logprobs = selective_logprobs(logits, response_ids, temperature=temperature)
        return ResponseOutputs(logprobs, None, hidden)
    logprobs, entropy = logprobs_and_entropy(
        logits, response_ids, temperature=temperature, entropy_gradient=entropy_gradient
    )
    return ResponseOutputs(logprobs, entropy, hidden)


def answer_logits(
    model: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, keep: Tensor
) -> Tensor:
    """Logits at the positions where `keep` is true, and nowhere else: [K, V].

    input_ids, attention_mask, keep: [B, L]; the K rows come in reading order. The last states are
    thinned out right before the output layer, so the model's own treatment of logits (scaling,
    soft caps) still applies, and prompts and padding cost no projection on the vocabulary.
    """
    hook = model.get_output_embeddings().register_forward_pre_hook(
        lambda _module, args: (args[0][keep].unsqueeze(0), *args[1:])
    )
    try:
        output = model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
    finally:
        hook.remove()
    return output.logits.squeeze(0)
