"""SFT steps whose demonstrations share rows, beside steps that pad: tokens and CPU seconds.

A Llama of 30 million random weights, lengths of a heavy tail (log-normal, median 80 tokens, at most
512), half of each text learnt. Both ways take the same steps in turns, in one process on one core,
after one that is not timed; the alternative is Concord's own SFT without packing, which reads texts
of similar length together, and in one rectangle where weights are split over processes. On a
processor: a GPU has other ratios.

Run: python -m benchmarks.packing [steps]
"""

import os

# One core: set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import tempfile
import time
from typing import Any

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trl import SFTConfig

from benchmarks.report import print_report, versions
from workers.config import settings_for
from workers.data.batches import Encoded
from workers.layouts.shards import Shares
from workers.trainers.sft import DemonstrationTrainer, train_tokenizer

STEPS, LONGEST, MEDIAN = 3, 512, 80
VOCABULARY = 8192
SHAPE = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=512,
    intermediate_size=1408,
    num_hidden_layers=8,
    num_attention_heads=8,
    num_key_value_heads=8,
    max_position_embeddings=LONGEST,
    tie_word_embeddings=True,
    pad_token_id=0,
)
# What the rows are: rows of a step, spread of their lengths, whether a part is one rectangle.
CASES = {
    "8 rows": (8, 1.0, False),
    "32 rows": (32, 1.0, False),
    "32 rows, weights split": (32, 1.0, True),
    "8 rows of one length": (8, 0.0, False),
}


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    rows = [row for case in CASES for row in compare(case, steps)]
    summary: dict[str, Any] = {}
    for apart, packed in zip(rows[::2], rows[1::2], strict=True):
        for name in ("tokens a step", "CPU s a step"):
            ratio = packed[name] / apart[name]
            summary[f"{apart['step']}: {name}, packed / unpacked"] = round(ratio, 3)
    print_report(
        f"SFT steps of a Llama of {LlamaForCausalLM(SHAPE).num_parameters():,} weights, "
        f"rows of at most {LONGEST} tokens",
        rows,
        summary | {"libraries": versions("torch", "transformers", "trl")},
    )


def compare(case: str, steps: int) -> list[dict[str, Any]]:
    """The same steps without and with packing."""
    size, spread, even = CASES[case]
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(np.log(MEDIAN), spread, (steps + 1, size)), 8, LONGEST)
    batches = [
        [Encoded(random.integers(9, VOCABULARY, n).tolist(), n // 2) for n in step]
        for step in lengths.astype(int).tolist()
    ]
    with tempfile.TemporaryDirectory() as folder:
        sides = [trainer_of(folder, batches[0], packing, even) for packing in (False, True)]
        spent, tokens, losses = [0.0, 0.0], [0, 0], [0.0, 0.0]
        for number, batch in enumerate(batches):
            for side, trainer in enumerate(sides):
                began = time.process_time()
                parts: Any = trainer.data_collator(batch)
                loss = float(trainer.training_step(trainer.model, parts))
                took = time.process_time() - began
                trainer.model.zero_grad()
                if number:
                    spent[side] += took
                    losses[side] += loss
                    labels = [labels for part in parts for _, labels in part["rectangles"]]
                    tokens[side] += sum(label.numel() for label in labels)
    real = sum(len(row.ids) for batch in batches[1:] for row in batch)
    return [
        {
            "step": case,
            "way": way,
            "tokens a step": tokens[side] / steps,
            "padding": f"{1 - real / tokens[side]:.1%}",
            "CPU s a step": round(spent[side] / steps, 3),
            "mean loss": round(losses[side] / steps, 5),
        }
        for side, way in enumerate(("unpacked", "packed"))
    ]


def trainer_of(folder: str, rows: list[Encoded], packing: bool, even: bool) -> DemonstrationTrainer:
    torch.manual_seed(0)
    args = SFTConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        max_length=LONGEST,
    )
    return DemonstrationTrainer(
        model=LlamaForCausalLM(SHAPE),
        args=args,
        settings=settings_for("sft", {"packing": packing, "max_length": LONGEST}),
        train_rows=rows,
        eval_rows=rows,
        tokenizer=train_tokenizer(["a text"], vocabulary=300, context=LONGEST),
        shares=Shares(even=even),
    )


if __name__ == "__main__":
    main()
