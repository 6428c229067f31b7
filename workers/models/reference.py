"""The model that a policy is compared with: frozen, known by its hash, never the policy itself.

It is either a model of its own, or the policy's own weights with its low-rank adapters switched
off, which costs no second copy: adapters leave the weights below them untouched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from workers.layouts.gathered import is_split
from workers.models.forward import score_responses
from workers.models.invariants import check_distinct, check_unchanged
from workers.models.loading import freeze, weights_sha256
from workers.models.lora import base_sha256, body_of


@dataclass
class Reference:
    """`model` alone, or below the adapters of `adapted`."""

    model: PreTrainedModel
    adapted: PeftModel | None = None
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        self.sha256 = self._hash()

    @classmethod
    def frozen(cls, model: PreTrainedModel, *, policy: torch.nn.Module) -> "Reference":
        """A copy of its own. Raises `RecipeError` where it shares memory with the policy."""
        check_distinct(policy, freeze(model))
        return cls(model)

    @classmethod
    def below_adapters(cls, policy: PeftModel) -> "Reference":
        return cls(body_of(policy), policy)

    @contextmanager
    def weights(self) -> Iterator[Any]:
        """The model to ask. Inside, a policy that shares the weights answers as the reference."""
        if self.adapted is None:
            yield self.model
            return
        with self.adapted.disable_adapter():
            # Weights that are split come together where the outermost model is called.
            yield self.adapted if is_split(self.adapted) else self.model

    @torch.no_grad()
    def logprobs(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        response_ids: Tensor,
        response_mask: Tensor,
        *,
        temperature: float,
    ) -> Tensor:
        """log π_ref of given responses, shapes as in `score_responses`: [B, R], nats."""
        sequences = (prompt_ids, prompt_mask, response_ids, response_mask)
        with self.weights() as model:
            return score_responses(model, *sequences, temperature=temperature).logprobs

    def check(self) -> None:
        """Raises `RecipeError` (contract_reference_changed) when a weight has moved."""
        check_unchanged(self._hash(), self.sha256)

    def _hash(self) -> str:
        return weights_sha256(self.model) if self.adapted is None else base_sha256(self.adapted)
