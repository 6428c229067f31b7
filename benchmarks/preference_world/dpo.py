"""DPO by both sides: the same policy, reference, ids, loss and pairs a step.

The policy is the small model as it was built; it and its reference know no language, which matters
to what is learnt and not to what it costs.
"""

import copy
from pathlib import Path
from typing import Any

import datasets
import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerBase, set_seed
from trl import DPOConfig
from trl import DPOTrainer as TRLTrainer

from benchmarks.preference_world.pairs import MAX_LENGTH
from benchmarks.preference_world.timing import BATCH, OURS, TRL, Look, arguments, look_every, timed
from workers.config import settings_for
from workers.models.forward import Reference
from workers.models.loading import freeze, load_causal, load_tokenizer
from workers.rollouts.answer_tokens import answer_tokens, batch_of
from workers.trainers.dpo import Pair, PairTrainer
from workers.trainers.reward_data import EncodedPair

LEARNING_RATE = 3e-4
BETA = 0.1
Pairs = list[EncodedPair]


class Prepared(TRLTrainer):
    """TRL's trainer on rows that are token ids already."""

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return dataset


def trl_run(base: Path, train: Pairs, held: Pairs, *, steps: int, seed: int) -> dict[str, Any]:
    tokenizer = load_tokenizer(base)
    set_seed(seed)
    policy = load_causal(base)
    reference = copy.deepcopy(policy)
    look = _look(reference, tokenizer, held, steps)
    rows = [_row(pair) for pair in _as_pairs(train)]
    trainer = Prepared(
        model=policy,
        ref_model=freeze(copy.deepcopy(policy)),
        args=_config(base.parent / "trl", steps, seed),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[look],
    )
    return timed(trainer, look, TRL, steps=steps, seed=seed)


def our_run(base: Path, train: Pairs, held: Pairs, *, steps: int, seed: int) -> dict[str, Any]:
    """The trainer of `dpo` runs. The reference is asked along the way, as TRL's is."""
    tokenizer = load_tokenizer(base)
    set_seed(seed)
    policy = load_causal(base)
    reference = Reference.frozen(copy.deepcopy(policy), policy=policy)
    look = _look(reference.model, tokenizer, held, steps)
    trainer = PairTrainer(
        model=policy,
        args=_config(base.parent / "ours", steps, seed),
        settings=settings_for(
            "dpo", {"batch_size": BATCH, "beta": BETA, "max_tokens_per_batch": 16_384}
        ),
        train_pairs=_as_pairs(train),
        eval_pairs=_as_pairs(held),
        tokenizer=tokenizer,
        callbacks=[look],
        reference=reference,
    )
    return timed(trainer, look, OURS, steps=steps, seed=seed)


def _config(folder: Path, steps: int, seed: int) -> DPOConfig:
    return DPOConfig(
        **arguments(folder, steps, seed, LEARNING_RATE),
        bf16=False,
        activation_checkpointing=False,
        max_length=MAX_LENGTH,
        beta=BETA,
    )


def _as_pairs(pairs: Pairs) -> list[Pair]:
    return [Pair(pair.chosen, pair.rejected) for pair in pairs]


def _row(pair: Pair) -> dict[str, list[int]]:
    border = pair.chosen.prompt_length
    assert border == pair.rejected.prompt_length, "the answers of a pair begin apart"
    return {
        "prompt_ids": pair.chosen.ids[:border],
        "chosen_ids": pair.chosen.ids[border:],
        "rejected_ids": pair.rejected.ids[border:],
    }


def _look(reference: Any, tokenizer: PreTrainedTokenizerBase, held: Pairs, steps: int) -> Look:
    texts = [p.chosen for p in held] + [p.rejected for p in held]
    batch, places = batch_of(texts, tokenizer.pad_token_id)

    @torch.no_grad()
    def values(model: Any) -> torch.Tensor:
        return answer_tokens(model, batch).log_probs.sum(1)[places]

    known = values(reference)

    def loss(model: Any) -> float:
        chosen, rejected = (values(model) - known).chunk(2)
        return float(-F.logsigmoid(BETA * (chosen - rejected)).mean())

    return Look(loss, look_every(steps))
