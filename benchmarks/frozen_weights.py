"""A LoRA step over a base kept in float32, bfloat16 and 4 bits: memory and CPU seconds.

A Llama of SmolLM2-135M's shape with random weights, saved in bfloat16; rank 16 adapters on every
linear layer, 4 rows of 256 tokens, AdamW. Each way in a process of its own on one core, after one
step that is not timed. The alternative is the base in float32, which is how Concord trained before.
On a processor: a GPU that computes in bfloat16 has other ratios.

Run: python -m benchmarks.frozen_weights [steps]
"""

import os

# One core: set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.report import print_report, versions
from workers.models.forward import score_responses
from workers.models.loading import Keep, load_causal
from workers.models.lora import attach_policy_lora

STEPS, ROWS, PROMPT, ANSWER = 4, 4, 128, 128
WAYS = {
    "float32": Keep(),
    "bfloat16": Keep(frozen="bfloat16"),
    "4 bits": Keep(four_bit=True),
}
SHAPE = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    tie_word_embeddings=True,
)


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        LlamaForCausalLM(SHAPE).bfloat16().save_pretrained(folder)
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.frozen_weights", folder, way, str(steps)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append({"base": way} | json.loads(done.stdout.splitlines()[-1]))
    whole = rows[0]
    summary = {
        f"{row['base']}: {name} / float32": round(row[name] / whole[name], 3)
        for row in rows[1:]
        for name in ("weights MB", "CPU s a step")
    }
    print_report(
        f"LoRA over a frozen base of 135 M weights, {ROWS} rows of {PROMPT + ANSWER} tokens",
        rows,
        summary | {"libraries": versions("torch", "peft", "bitsandbytes")},
    )


def one(folder: Path, way: str, steps: int) -> None:
    """Prints the figures of one way as JSON."""
    model = load_causal(folder, keep=WAYS[way])
    adapted = attach_policy_lora(model, rank=16, alpha=32.0)
    trained = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(9, SHAPE.vocab_size, (ROWS, PROMPT + ANSWER), generator=generator)
    mask = torch.ones_like(ids)
    sides = [part for t in (ids, mask) for part in t.split([PROMPT, ANSWER], dim=1)]
    prompt, answer, prompt_mask, answer_mask = sides
    spent, losses = 0.0, []
    for step in range(steps + 1):
        began = time.process_time()
        said = score_responses(model, prompt, prompt_mask, answer, answer_mask, temperature=1.0)
        loss = -said.logprobs.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
        spent += (time.process_time() - began) * (step > 0)
    told = {
        "weights MB": round(sum(p.numel() * p.element_size() for p in model.parameters()) / 1e6),
        "CPU s a step": round(spent / steps, 3),
        "loss before": round(losses[0], 4),
        "loss after": round(losses[-1], 4),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        one(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        main()
