"""A tiny model that calls a calculator about every other time, and its tasks: for tests only."""

import json
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from tests.workers.recipes.language import WORDS, user, word_tokenizer
from workers.config import settings_for
from workers.config.grpo import GRPOSettings
from workers.data.snapshot import Prompt
from workers.environments.worlds import World, tasks_of
from workers.rollouts.tools import ToolRollouts, prepare_tokenizer

SUMS = [(a, b) for a in range(1, 4) for b in range(1, 4)]
MORE = [
    *("user:", "assistant:", "tool:", "system:", "<tool_call>", "</tool_call>", "}"),
    *('{"name":', '"calculate",', '"arguments":', '{"expression":'),
    *(f"{a}+{b}" for a, b in SUMS),
    *(f'"{a}+{b}"}}' for a, b in SUMS),
    *map(str, range(2, 7)),
]
CONFIG = {"environment": "calculator", "tool_template": "plain", "max_new_tokens": 24}


def check(**state: Any) -> str:
    return json.dumps({"category": "sums", "test": "final_state", "value": state})


def task_rows() -> list[dict[str, Any]]:
    return [{"prompt": user(f"{a}+{b}"), "answer": str(a + b), "check": check()} for a, b in SUMS]


def call_of(expression: str) -> str:
    inner = f'{{"name": "calculate", "arguments": {{"expression": "{expression}"}} }}'
    return f"<tool_call> {inner} </tool_call>"


def settings(**more: Any) -> GRPOSettings:
    found = settings_for("grpo", CONFIG | more)
    assert isinstance(found, GRPOSettings)
    return found


def rollouts(
    rows: list[dict[str, Any]] | None = None,
    world: type[World] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    **more: Any,
) -> ToolRollouts:
    chosen = settings(**more)
    tokenizer = tokenizer or word_tokenizer(MORE)
    prepare_tokenizer(tokenizer, chosen)
    prompts = [
        Prompt(row["prompt"], answer=row["answer"], columns=row) for row in rows or task_rows()
    ]
    return ToolRollouts(tokenizer, tasks_of(prompts, chosen.environment), chosen, world=world)


def spoken_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]


def speaking_model(seed: int = 0, steps: int = 120, calls: float = 3.0) -> PreTrainedModel:
    """Taught by examples: some call the calculator and copy its result, others guess; `calls` of
    the first for three of the second."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS) + 4 + len(MORE),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=256,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
    tools = rollouts()
    tokenizer = tools.tokenizer
    rows: list[tuple[list[int], list[int]]] = []
    for a, b in SUMS:
        prompt = tools.encode(user(f"{a}+{b}"))
        result = [{"role": "tool", "name": "calculate", "content": str(a + b)}]
        first = spoken_ids(tokenizer, call_of(f"{a}+{b}"))
        last = spoken_ids(tokenizer, str(a + b))
        rows.append((prompt, [*first, *tools.between(result), *last]))
        rows += [(prompt, spoken_ids(tokenizer, str(guess))) for guess in (2, 4, 6)]
    weights = torch.tensor([calls, 1.0, 1.0, 1.0] * len(SUMS))
    longest = max(len(p) + len(r) for p, r in rows)
    ids = torch.tensor([p + r + [0] * (longest - len(p) - len(r)) for p, r in rows])
    labels = torch.tensor(
        [[-100] * len(p) + r + [-100] * (longest - len(p) - len(r)) for p, r in rows]
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        logits = model(input_ids=ids).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), labels[:, 1:], ignore_index=-100, reduction="none"
        )
        loss = (losses.sum(1) * weights).sum() / weights.sum() / 4
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()
