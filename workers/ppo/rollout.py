"""What a policy did, kept with everything needed to learn from it or to repeat it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from measures.messages import Messages
from workers import ranks
from workers.data.batches import parts_under
from workers.models.forward import Reference
from workers.models.loading import stop_ids
from workers.ppo.distributed import add_up
from workers.ppo.model import ActorCritic, NonFinite
from workers.rewards.source import Scores
from workers.rl.losses import kl_estimate, kl_exact, masked_sum
from workers.rollouts.drawing import Drawer, Drawn, LocalDrawer, RankedDrawer, chunks_of
from workers.rollouts.local import Responses, Sampling

# The exact divergence from the reference at every token, for those who pay for it.


@torch.no_grad()
def exact_kl_of(
    policy: PreTrainedModel,
    reference: Reference,
    sequences: Sequence[Tensor],
    *,
    temperature: float,
) -> Tensor:
    """Σ_v π (log π − log π_ref) of the tempered distributions: [B, R], nats.

    `sequences`: prompt ids and mask, response ids and mask. Holds two tensors [B, R, V].
    """
    own = _logits(policy, sequences)
    with reference.weights() as model:
        other = _logits(model, sequences)
    return kl_exact(own / temperature, other / temperature)


def _logits(model: PreTrainedModel, sequences: Sequence[Tensor]) -> Tensor:
    prompt_ids, prompt_mask, response_ids, response_mask = sequences
    mask = torch.cat([prompt_mask, response_mask], dim=1)
    output = model(
        input_ids=torch.cat([prompt_ids, response_ids], dim=1),
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        logits_to_keep=response_ids.shape[1] + 1,
        use_cache=False,
    )
    return output.logits[:, :-1].float()


# Which sequences of a batch are computed together.
#
# Any split gives the same sums, so it is chosen for memory and speed: no pass holds more tokens
# than the budget, and where rows cannot lie end to end those of similar length share a rectangle.


def sequences_of(responses: Responses, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Prompt ids and mask, response ids and mask of some rows, without columns that are padding
    in all of them; and the width that the response is cut to."""
    prompt_mask, response_mask = responses.prompt_mask[rows], responses.response_mask[rows]
    first = int(prompt_mask.any(0).long().argmax())
    width = int(response_mask.sum(1).max())
    return (
        responses.prompt_ids[rows, first:],
        prompt_mask[:, first:],
        responses.response_ids[rows, :width],
        response_mask[:, :width],
        width,
    )


def parts_of(
    responses: Responses,
    rows: Tensor,
    *,
    most_rows: int | None,
    most_tokens: int | None,
    packed: bool = False,
) -> list[Tensor]:
    """`rows` in parts of at most so many rows and tokens, longest first; of rectangles their
    padding counts.

    A row over the budget by itself is a part by itself. Without limits all rows are one part, in
    their order. No rows are no parts.
    """
    if not len(rows):
        return []
    if most_tokens is None:
        return list(rows.split(most_rows or len(rows)))
    lengths = (responses.prompt_mask.sum(1) + responses.response_mask.sum(1))[rows].tolist()
    parts = parts_under(
        [(length,) for length in lengths],
        budget=most_tokens,
        most_rows=most_rows,
        one_rectangle=True,
        packed=packed,
    )
    return [rows[torch.tensor(part)] for part in parts]


def shared_parts(responses: Responses, rows: Tensor, **limits: Any) -> list[tuple[Tensor, bool]]:
    """The parts (`parts_of`) of this rank's share of `rows`, as many on every rank, and whether
    each counts.

    Every n-th row is this rank's. Ranks meet in their passes wherever weights are split over them,
    so one with fewer parts passes over a row again that counts for nothing. Each rank knows the
    lengths of all answers, hence how many parts the others have.
    """
    split = [parts_of(responses, rows[i :: ranks.world()], **limits) for i in range(ranks.world())]
    mine = split[ranks.rank()]
    idle = max(map(len, split)) - len(mine)
    return [*((part, True) for part in mine), *[(rows[:1], False)] * idle]


@dataclass(slots=True)
class Rollout:
    """B answers of one policy version. P, R as in `Responses`; tensors [B, R] unless said."""

    policy_version: int  # optimizer steps taken before it was drawn, by whoever drew it
    sampling: Sampling
    prompts: list[Messages]
    responses: Responses
    logprobs: Tensor  # of the policy as it stands, nats, recomputed in one forward pass
    ref_logprobs: Tensor  # nats
    entropy: Tensor  # nats per token
    values: Tensor  # deviations
    full_kl: Tensor | None = None  # nats, exact at each position, where it was asked for
    scores: Scores | None = field(default=None)  # raw, with their parts
    # Where an earlier version drew: what that one thought, nats, and the weights that correct it.
    drawn_logprobs: Tensor | None = None
    drawn_entropy: Tensor | None = None
    importance: Tensor | None = None

    @property
    def mask(self) -> Tensor:
        return self.responses.response_mask

    @property
    def scored(self) -> Scores:
        """Its scores, which it gets before anything looks at it."""
        assert self.scores is not None  # noqa: S101 — roll_out waits for them
        return self.scores

    def kl(self, estimator: str) -> Tensor:
        """Divergence from the reference at every token: [B, R], nats."""
        if estimator == "full":
            if self.full_kl is None:
                raise ValueError("the rollout was collected without the exact KL")
            return self.full_kl
        return kl_estimate(self.logprobs, self.ref_logprobs, estimator)

    def records(self, *, step: int, calibrated: Sequence[float] | None) -> list[dict[str, Any]]:
        """One plain object an answer: what rollouts.jsonl holds."""
        nats = masked_sum(self.logprobs - self.ref_logprobs, self.mask, dim=1).tolist()
        own = masked_sum(self.logprobs, self.mask, dim=1).tolist()
        return [
            {
                "step": step,
                "policy_version": self.policy_version,
                "seed": self.sampling.seed,
                "temperature": self.sampling.temperature,
                "max_new_tokens": self.sampling.max_new_tokens,
                "prompt": self.prompts[i],
                "response": self.responses.texts[i],
                "tokens": int(self.responses.lengths[i]),
                "ended": bool(self.responses.ended[i]),
                "logprob": own[i],
                "kl": nats[i],
                "reward": self.scores.values[i] if self.scores else None,
                "parts": self.scores.parts_of(i) if self.scores else {},
                "calibrated": calibrated[i] if calibrated else None,
            }
            for i in range(len(self.prompts))
        ]


@torch.no_grad()
def collect(
    actor_critic: ActorCritic,
    reference: Reference,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Messages],
    prompt_ids: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    policy_version: int,
    chunk: int | None = None,
    max_tokens: int | None = None,
    exact_kl: bool = False,
    on_drawn: Callable[[list[Messages], list[str]], None] | None = None,
    drawer: Drawer | None = None,
) -> Rollout:
    """Draw an answer to each prompt and look at it with policy, critic and reference. Raises
    `NonFinite` where the policy holds numbers that are none.

    Answers are drawn `chunk` at a time, by `drawer` (in this process if None); `on_drawn` hears of
    every chunk at once, so that scoring can begin while the next one is drawn. The behaviour
    log-probabilities come from the forward pass that the update uses too, rather than from the
    sampler, whose cache and batch shapes round differently; `max_tokens` bounds that pass and
    changes nothing else. The ranks of a job share the drawing and the looking, and each returns
    the whole batch, alike to the bit.
    """
    if drawer is None:
        drawer = LocalDrawer(
            actor_critic.policy, tokenizer, stop_ids(actor_critic.policy, tokenizer)
        )
        if ranks.world() > 1:
            drawer = RankedDrawer(drawer, actor_critic.policy.device)
    drawn: list[Responses] = []
    came: list[Drawn] = []
    with _numbers_only():
        for one in drawer.draw(
            chunks_of(prompts, prompt_ids, sampling, chunk), version=policy_version
        ):
            if on_drawn is not None:
                on_drawn(one.chunk.messages, one.responses.texts)
            drawn.append(one.responses)
            came.append(one)
    responses = _joined(drawn, tokenizer.pad_token_id)
    shape = responses.response_ids.shape
    device = responses.response_ids.device
    looked = {name: torch.zeros(shape, device=device) for name in ("own", "ref", "entropy", "v")}
    exact = torch.zeros(shape, device=device) if exact_kl else None
    mine = torch.arange(len(prompts))[ranks.rank() :: ranks.world()]
    packed = actor_critic.packs
    for rows in parts_of(responses, mine, most_rows=None, most_tokens=max_tokens, packed=packed):
        *sequences, width = sequences_of(responses, rows)
        own = actor_critic(*sequences, temperature=sampling.temperature)
        looked["own"][rows, :width] = own.logprobs.float()
        looked["entropy"][rows, :width] = own.entropy.float()
        looked["v"][rows, :width] = own.values.float()
        ref = reference.logprobs(*sequences, temperature=sampling.temperature)
        looked["ref"][rows, :width] = ref.float()
        if exact is not None:
            exact[rows, :width] = exact_kl_of(
                actor_critic.policy, reference, sequences, temperature=sampling.temperature
            )
    # Every rank looked at its rows; the others' are still 0 there.
    for seen in (*looked.values(), *([] if exact is None else [exact])):
        add_up(seen)
    if not all(torch.isfinite(looked[name]).all() for name in ("own", "ref", "v")):
        raise NonFinite("the log-probability or value of an answer")
    return Rollout(
        policy_version=came[0].version,
        sampling=sampling,
        prompts=list(prompts),
        responses=responses,
        logprobs=looked["own"],
        ref_logprobs=looked["ref"],
        entropy=looked["entropy"],
        values=looked["v"],
        full_kl=exact,
        drawn_logprobs=_spread([one.logprobs for one in came], shape[1]),
        drawn_entropy=_spread([one.entropy for one in came], shape[1]),
    )


@contextmanager
def _numbers_only() -> Iterator[None]:
    """`NonFinite` where a draw fails because a probability is no number."""
    try:
        yield
    except RuntimeError as error:
        if "probability tensor" not in str(error):
            raise
        raise NonFinite("the probability of a token") from error


def _spread(pieces: Sequence[Tensor | None], width: int) -> Tensor | None:
    """Rows of all chunks, padded right with 0: [B, width]; None where nobody said any."""
    known = [piece for piece in pieces if piece is not None]
    if len(known) < len(pieces):
        return None
    return torch.cat([torch.nn.functional.pad(p, (0, width - p.shape[1])) for p in known])


def _joined(chunks: Sequence[Responses], pad_id: int) -> Responses:
    """All chunks as one batch: prompts padded left, responses right."""
    if len(chunks) == 1:
        return chunks[0]

    def pad(tensors: Sequence[Tensor], value: int, *, left: bool) -> Tensor:
        width = max(t.shape[1] for t in tensors)
        return torch.cat(
            [
                torch.nn.functional.pad(
                    t, (width - t.shape[1], 0) if left else (0, width - t.shape[1]), value=value
                )
                for t in tensors
            ]
        )

    return Responses(
        prompt_ids=pad([c.prompt_ids for c in chunks], pad_id, left=True),
        prompt_mask=pad([c.prompt_mask for c in chunks], 0, left=True),
        response_ids=pad([c.response_ids for c in chunks], pad_id, left=False),
        response_mask=pad([c.response_mask for c in chunks], 0, left=False),
        ended=torch.cat([c.ended for c in chunks]),
        texts=[text for c in chunks for text in c.texts],
    )
