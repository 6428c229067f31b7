"""Several reward models read as one, with their disagreement per answer."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from measures.ensembles import combine, disagreement, standardise, to_raw
from workers.data.encoding import Encoded
from workers.data.snapshot import Messages
from workers.rewards.layout import EnsembleLayout, read_layout
from workers.rewards.model import ModelReward, encode_all, score_together
from workers.rewards.precision import FLOAT32
from workers.rewards.source import RewardSource, Scores


class EnsembleReward:
    """Members that share a tokenizer read the same rows in the same batches, so a text is
    tokenised and padded once per distinct tokenizer.

    `parts` hold each member's raw scores as `<name>/<member>`; `values` are the combined scores on
    the average member's scale.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "model",
        batch_size: int = 64,
        max_length: int | None = None,
        precision: str = FLOAT32,
    ) -> None:
        self.layout: EnsembleLayout = read_layout(folder)
        self.members = [
            ModelReward(
                folder / member,
                name=member,
                batch_size=batch_size,
                max_length=max_length,
                precision=precision,
            )
            for member in self.layout.members
        ]
        self._name = name
        self._batch_size = batch_size
        self._groups = _by_tokenizer(self.members)

    @property
    def threshold(self) -> float | None:
        """The disagreement over which an answer is not trusted, in validation deviations."""
        return self.layout.threshold

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        return self.score_rows(self.encode(prompts, responses))

    def encode(
        self, prompts: Sequence[Messages], responses: Sequence[str]
    ) -> list[tuple[Encoded, ...]]:
        """Per text its ids: one row for each distinct tokenizer (and length) of the members."""
        readings = [
            encode_all(first.tokenizer, prompts, responses, max_length=first.max_length)
            for first in (self.members[group[0]] for group in self._groups)
        ]
        return list(zip(*readings, strict=True))

    def score_rows(self, texts: Sequence[tuple[Encoded, ...]]) -> Scores:
        """Scores of texts as `encode` left them."""
        raw = np.zeros((len(self.members), len(texts)))
        for place, group in enumerate(self._groups):
            raw[group] = score_together(
                [self.members[i].model for i in group],
                self.members[group[0]].tokenizer,
                [rows[place] for rows in texts],
                batch_size=self._batch_size,
            )
        cut = [any(row.truncated for row in rows) for rows in texts]
        standardised = standardise(raw, self.layout.scales)
        combined = combine(standardised, self.layout.aggregate, lam=self.layout.lam)
        return Scores(
            to_raw(combined, self.layout.scales).tolist(),
            {
                f"{self._name}/{member}": row.tolist()
                for member, row in zip(self.layout.members, raw, strict=True)
            },
            sum(cut),
            disagreement(standardised).tolist(),
            cut,
        )

    @property
    def tokenizers(self) -> list[PreTrainedTokenizerBase]:
        """In the order of the rows of `encode`."""
        return [self.members[group[0]].tokenizer for group in self._groups]


def threshold_of(source: RewardSource) -> float | None:
    """The disagreement an ensemble allows, also inside a cache or a sum; None of other sources."""
    threshold: float | None = getattr(source, "threshold", None)
    return threshold


def _by_tokenizer(members: Sequence[ModelReward]) -> list[list[int]]:
    """Indices of members for which a text is the same row of ids."""
    groups: dict[tuple[str, int], list[int]] = {}
    for index, member in enumerate(members):
        key = (tokenizer_sha256(member.tokenizer), member.max_length)
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def tokenizer_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """Identity by what decides the ids: vocabulary, merges, normaliser, template, special tokens.

    A tokenizer without a Rust backend is told apart by its object: nothing is shared then.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    told = backend.to_str() if backend is not None else f"{type(tokenizer)}{id(tokenizer)}"
    special = sorted((key, str(value)) for key, value in tokenizer.special_tokens_map.items())
    text = "\0".join([told, str(tokenizer.chat_template), repr(special)])
    return hashlib.sha256(text.encode()).hexdigest()
