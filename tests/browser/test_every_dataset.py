"""Emil puts a dataset of each kind into a run: whole runs of agents too, and tasks with tools."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from apps.accounts.models import Project, User
from tests.browser.test_own_model import imported, launched, section, stack, waiting
from tests.training.stack import Stack
from tests.workers.environments.byte_tokens import byte_tokenizer
from workers.models.loading import save_model

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.django_db(transaction=True)]
__all__ = ["stack", "waiting"]
SHORT = {"learning_rate": "0.001", "batch_size": "4", "max_steps": "2", "max_length": "512"}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    asked = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [asked]}


def run_of(n: int, tool: str, said: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": f"Tidy folder {n}."},
        call("ls", path=f"/{n}"),
        {"role": "tool", "content": "a b"},
        call(tool, path="a"),
        {"role": "tool", "content": "ok"},
        {"role": "assistant", "content": said},
    ]


# By the words of the import form: the rows.
DATASETS: dict[str, list[dict[str, Any]]] = {
    "Preferences": [
        {"chosen": run_of(n, "cat", "Looked."), "rejected": run_of(n, "rm", "Removed it.")}
        for n in range(24)
    ],
    "Demonstrations": [{"messages": run_of(n, "cat", "Looked.")} for n in range(24)],
    "Single answers": [
        {
            "prompt": f"Is {n} even?",
            "completion": "Yes." if n % 4 else "No.",
            "label": n % 2 == 0,
        }
        for n in range(24)
    ],
    "Judged steps": [
        {
            "prompt": f"What is {n} + 1 + 1?",
            "completions": [f"{n} + 1 is {n + 1}.", f"calculate: {n + 2}", f"So it is {n}."],
            "labels": [True, None, n % 2 == 0],
            "roles": ["assistant", "tool", "assistant"],
        }
        for n in range(24)
    ],
    "Prompts": [
        {
            "prompt": f"What is {a}+{b}?",
            "answer": str(a + b),
            "check": json.dumps({"category": "sums", "test": "final_state", "value": {}}),
        }
        for a in range(1, 5)
        for b in range(1, 5)
    ],
}


def test_a_dataset_of_each_kind_goes_into_a_run(
    live_server: Any,
    project: Project,
    emil: User,
    open_page: Callable[..., Any],
    sign_in: Callable[..., None],
    waiting: list[str],
    stack: Stack,
    tmp_path: Path,
) -> None:
    tokenizer = byte_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=1024,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )
    save_model(model, tokenizer, tmp_path / "model")
    page = open_page()
    sign_in(page, "emil")
    launched(page, "Registered policy", "mine", {"model": str(tmp_path / "model")})
    for kind, rows in DATASETS.items():
        file = tmp_path / f"{kind}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        imported(page, waiting, file, kind, f"My {kind.lower()}")

    launched(page, "Supervised fine-tuning", "shown", SHORT, data="My demonstrations", base="mine")
    launched(page, "DPO", "dpo", SHORT, data="My preferences", sft="shown")
    launched(page, "Reward model", "judge", SHORT, data="My preferences", sft="mine")
    launched(page, "KTO", "kto", SHORT, data="My single answers", sft="mine")
    launched(page, "Process reward model", "steps", SHORT, data="My judged steps", sft="mine")
    tools = {
        "steps": "2",
        "learning_rate": "0.0001",
        "environment": "calculator",
        "tool_template": "plain",
        "max_prompt_length": "512",
        "max_new_tokens": "48",
        "group_size": "4",
        "batch_size": "8",
    }
    tools["reward"] = json.dumps({"type": "verifier", "check": "final_state"})
    launched(page, "GRPO", "grpo", tools, prompts="My prompts", sft="mine")
    tools["reward"] = json.dumps({"type": "model", "steps": "least"})
    tools["override_reason"] = "Its steps were read"
    launched(page, "GRPO", "stepwise", tools, prompts="My prompts", sft="mine", reward="steps")
    section(page, "Models")
    for name in ("shown", "dpo", "judge", "kto", "steps", "grpo", "stepwise"):
        assert page.get_by_role("link", name=re.compile(f"^{name}, step")).count(), name
