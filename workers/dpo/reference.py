"""What the reference thinks of the pairs: asked along the way, or once for all of them.

Computed beforehand, the values belong to one reference and one set of pairs. They ride in every
checkpoint under a key made of both, so a resumed run reads them back instead of computing them
again, and never mixes those of another reference or of other data.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from workers.dpo.pairs import Pair
from workers.models.reference import Reference
from workers.rollouts.answer_tokens import Batch, answer_tokens, batch_of

FILE = "reference_logprobs.safetensors"
TOKENS_AT_ONCE = 16_384  # without a budget of the run's own


@torch.no_grad()
def sequence_logprobs(reference: Reference, batch: Batch, *, fused: bool) -> Tensor:
    """log π_ref of every answer of the batch: [N], nats per sequence."""
    with reference.weights() as model:
        return answer_tokens(model, batch, fused=fused).log_probs.sum(1)


def reference_key(
    reference: Reference, splits: Mapping[str, Sequence[Pair]], precision: str
) -> str:
    """Identity of the values: the reference's weights, every token of every pair in order, and the
    precision they are computed in."""
    digest = hashlib.sha256(f"{reference.sha256} {precision}".encode())
    for name, pairs in sorted(splits.items()):
        digest.update(f"{name} {len(pairs)}".encode())
        for pair in pairs:
            for side in (pair.chosen, pair.rejected):
                digest.update(f"{side.prompt_length}:{side.ids}".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Precomputed:
    """log π_ref by split: [n, 2] nats per sequence, chosen first; `key` says of what."""

    key: str
    values: dict[str, Tensor]

    def save(self, folder: Path) -> None:
        save_file(self.values, folder / FILE, metadata={"key": self.key})

    @classmethod
    def load(cls, folder: Path, key: str) -> "Precomputed | None":
        """Those of a checkpoint, if they are of this very reference and of these very pairs."""
        path = folder / FILE
        if not path.is_file():
            return None
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("key") != key:
                return None
            return cls(key, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118

    def joined(self, splits: Mapping[str, Sequence[Pair]]) -> dict[str, list[Pair]]:
        """The pairs with their values."""
        return {
            name: [
                replace(pair, reference=(chosen, rejected))
                for pair, (chosen, rejected) in zip(pairs, self.values[name].tolist(), strict=True)
            ]
            for name, pairs in splits.items()
        }


def precompute(
    reference: Reference,
    splits: Mapping[str, Sequence[Pair]],
    key: str,
    *,
    pad_id: int,
    device: torch.device,
    budget: int | None,
    fused: bool,
    autocast: contextlib.AbstractContextManager[None],
) -> Precomputed:
    """One forward pass over every distinct text, those of similar length together."""
    texts = {
        (tuple(side.ids), side.prompt_length): side
        for pairs in splits.values()
        for pair in pairs
        for side in (pair.chosen, pair.rejected)
    }
    keys = sorted(texts, key=lambda k: (-len(k[0]), k))
    found: dict[tuple[tuple[int, ...], int], float] = {}
    with autocast:
        for group in _groups(keys, budget or TOKENS_AT_ONCE):
            batch, places = batch_of([texts[k] for k in group], pad_id)
            values = sequence_logprobs(reference, batch.to(device), fused=fused)
            found.update(zip(group, values[places].tolist(), strict=True))
    return Precomputed(
        key,
        {
            name: torch.tensor(
                [
                    [found[tuple(side.ids), side.prompt_length] for side in (p.chosen, p.rejected)]
                    for p in pairs
                ]
            ).reshape(-1, 2)
            for name, pairs in splits.items()
        },
    )


def _groups(
    keys: Sequence[tuple[tuple[int, ...], int]], budget: int
) -> Iterator[list[tuple[tuple[int, ...], int]]]:
    """Longest first, each group of at most `budget` tokens, padding included."""
    start = 0
    while start < len(keys):
        rows = max(1, budget // len(keys[start][0]))
        yield list(keys[start : start + rows])
        start += rows


@contextlib.contextmanager
def on_device(reference: Reference, device: torch.device) -> Iterator[Reference]:
    """A reference that rests in main memory, on the accelerator for as long as it is asked."""
    home = reference.model.device
    if home == device:
        yield reference
        return
    reference.model.to(device)
    try:
        yield reference
    finally:
        reference.model.to(home)
