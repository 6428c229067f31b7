"""What a policy thinks of given responses: log-probabilities, entropy, the states behind them."""

from dataclasses import dataclass

from torch import Tensor
from transformers import PreTrainedModel

from workers.rollouts.aligned import align
from workers.rollouts.output_layer import is_plain, look, projecting

LOGITS_CHUNK = 1024  # tokens whose logits exist at once


@dataclass(slots=True)
class ResponseOutputs:
    """Per response token; 0 under the padding."""

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
    logits_chunk: int | None = LOGITS_CHUNK,
) -> ResponseOutputs:
    """One forward pass over prompt (padded left) and response (padded right).

    Rows are read without their padding, so padding moves nothing, on models with absolute
    positions too. The vocabulary is projected at real response tokens only, `logits_chunk` of them
    at a time, on the states that the model itself gives its output layer. None: all at once and
    within the model's own pass, for weights that are there during it only.
    """
    aligned = align(prompt_ids, prompt_mask, response_ids, response_mask)
    captured: list[Tensor] = []
    plain = logits_chunk is not None and is_plain(model)

    def pick(states: Tensor) -> Tensor:
        captured.append(aligned.at_states(states))
        return captured[0][:1] if plain else captured[0]

    with projecting(model, pick):
        logits = model(input_ids=aligned.ids, use_cache=False).logits.squeeze(0)
    states = captured[0]
    logprobs, entropy = look(
        model.get_output_embeddings() if plain else lambda _states: logits,
        states,
        response_ids[aligned.real],
        temperature=temperature,
        chunk=logits_chunk if plain else None,
        with_entropy=with_entropy,
        entropy_gradient=entropy_gradient,
    )
    return ResponseOutputs(
        aligned.spread(logprobs),
        None if entropy is None else aligned.spread(entropy),
        aligned.spread(states) if with_hidden else None,
    )


def answer_logits(
    model: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, keep: Tensor
) -> Tensor:
    """Logits at the positions where `keep` is true, and nowhere else: [K, V].

    input_ids, attention_mask, keep: [B, L]; the K rows come in reading order. The last states are
    thinned out right before the output layer, so the model's own treatment of logits (scaling,
    soft caps) still applies, and prompts and padding cost no projection on the vocabulary.
    """
    with projecting(model, lambda states: states[keep]):
        output = model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
    return output.logits.squeeze(0)
