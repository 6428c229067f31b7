"""Models and prompts that both sides of `benchmarks/ppo_step.py` read from one folder.

A randomly initialised model never ends an answer by itself, so answers would all be as long as the
limit. Here the end token's row of the output layer points along the mean of the last states, so far
that the end is drawn about once in `mean_length` tokens whatever came before: lengths are
geometric, cut at the limit, as much a matter of chance as the other tokens, and the model stays a
plain Llama whose logits are what they are on both sides.
"""

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast

from workers.data.batches import encode_prompt
from workers.models.loading import parameter_count, save_model
from workers.trainers.sft import BaseShape, build_model, train_tokenizer

DATA = Path(__file__).parents[2] / "data"
POLICY = BaseShape(vocabulary=8192, width=288, layers=8, heads=6, context=256)  # 10.3 M
REWARD = BaseShape(vocabulary=8192, width=64, layers=2, heads=2, context=256)  # 0.6 M
LONGEST_PROMPT = 128


@dataclass(frozen=True, slots=True)
class World:
    """`variable`: real prompts of 11 to 128 tokens, and answers that end by chance. Otherwise all
    prompts are cut to 64 tokens and no answer ends: no padding anywhere."""

    variable: bool
    mean_length: int = 48  # of answers, were there no limit
    fixed_prompt: int = 64


def build(folder: Path, world: World) -> tuple[list[list[int]], dict[str, int]]:
    """Saves `policy`, `critic` and `reward`; (prompts, parameters of each model)."""
    with gzip.open(DATA / "demonstrations.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    tokenizer = train_tokenizer(
        (row["response"] for row in rows), vocabulary=POLICY.vocabulary, context=POLICY.context
    )
    policy = build_model(tokenizer, POLICY, seed=0)
    prompts = [
        encode_prompt(tokenizer, [{"role": "user", "content": row["prompt"]}]) for row in rows
    ]
    if world.variable:
        prompts = [ids for ids in prompts if len(ids) <= LONGEST_PROMPT]
        plant_end(policy, tokenizer, prompts[:64], 1 / world.mean_length)
    else:
        prompts = [ids[-world.fixed_prompt :] for ids in prompts if len(ids) >= world.fixed_prompt]
        plant_end(policy, tokenizer, prompts[:64], 1e-12)
    order = torch.randperm(len(prompts), generator=torch.Generator().manual_seed(0)).tolist()
    save_model(policy, tokenizer, folder / "policy")
    sizes = {"policy": parameter_count(policy)}
    for name, shape, seed in (("critic", POLICY, 1), ("reward", REWARD, 2)):
        model = scorer(tokenizer, shape, seed=seed)
        save_model(model, tokenizer, folder / name)
        sizes[name] = parameter_count(model)
    return [prompts[i] for i in order], sizes


def scorer(
    tokenizer: PreTrainedTokenizerFast, shape: BaseShape, *, seed: int
) -> LlamaForSequenceClassification:
    """A random model with one score."""
    config = build_model(tokenizer, shape, seed=seed).config
    config.num_labels = 1
    torch.manual_seed(seed)
    return LlamaForSequenceClassification(config)


@torch.no_grad()
def plant_end(
    policy: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[Sequence[int]],
    probability: float,
) -> None:
    """Give every last state a common part, and the end token a row along it, so that its
    probability is about `probability` after any text."""
    embedding = policy.get_input_embeddings().weight  # tied to the output layer
    embedding[:, 0] = 1.0  # 50 deviations of the others: what layers add to it changes little
    common = torch.cat(
        [policy.model(torch.tensor([list(ids)])).last_hidden_state[0, -8:, 0] for ids in prompts]
    ).mean()
    odds = probability / (1 - probability) * (len(tokenizer) - 1)
    embedding[tokenizer.eos_token_id, 0] += math.log(odds) / float(common)
