"""The shipped pairs of arguments as token ids, and a small model that reads them."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from workers.data.batches import PairEncoder
from workers.data.snapshot import Preference
from workers.models.loading import load_tokenizer, save_model
from workers.trainers.reward_data import EncodedPair
from workers.trainers.sft import BaseShape, build_model, train_tokenizer

DATA = Path(__file__).parents[2] / "data"
HELD_OUT = 150
MAX_LENGTH = 512  # longer than every pair: TRL would leave longer ones out
SHAPE = BaseShape(vocabulary=4096, width=96, layers=3, heads=4, context=MAX_LENGTH)
ALIKE = 64  # tokens of every text where all are to be equally long


def build_base(base: Path) -> None:
    """The model and its tokenizer, in the folder `base`."""
    tokenizer = train_tokenizer(
        (row["response"] for row in _lines("demonstrations")),
        vocabulary=SHAPE.vocabulary,
        context=SHAPE.context,
    )
    save_model(build_model(tokenizer, SHAPE, seed=0), tokenizer, base)


def encoded_pairs(base: Path) -> tuple[list[EncodedPair], list[EncodedPair]]:
    """(training pairs, pairs of debates held out)"""
    encoder = PairEncoder(load_tokenizer(base), max_length=MAX_LENGTH)
    pairs = []
    for row in (row for row in _lines("comparisons") if row["gold"] in ("a", "b")):
        prompt = [{"role": "user", "content": row["prompt"]}]
        won, lost = ("a", "b") if row["gold"] == "a" else ("b", "a")
        chosen, rejected = row[f"response_{won}"], row[f"response_{lost}"]
        preference = Preference(prompt, chosen, rejected, group=row["debate"])
        pairs.append(EncodedPair(preference, encoder(prompt, chosen), encoder(prompt, rejected)))
    pairs = [pair for pair in pairs if not pair.cut]
    unseen = sorted({pair.row.group for pair in pairs})[-1]
    held_out = [pair for pair in pairs if pair.row.group == unseen]
    return [pair for pair in pairs if pair.row.group != unseen], held_out[:HELD_OUT]


def alike(pairs: list[EncodedPair]) -> list[EncodedPair]:
    """Pairs of which both texts are long enough, cut to one length: nothing to gain by sorting."""
    return [
        replace(
            pair,
            chosen=replace(pair.chosen, ids=pair.chosen.ids[:ALIKE]),
            rejected=replace(pair.rejected, ids=pair.rejected.ids[:ALIKE]),
        )
        for pair in pairs
        if min(pair.lengths) >= ALIKE
        and max(pair.chosen.prompt_length, pair.rejected.prompt_length) < ALIKE
    ]


def _lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
