"""A store with a tiny policy and snapshots, and the parts of a run over them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from measures.messages import Messages
from tests.workers.recipes.language import (
    Notebook,
    Workshop,
    assistant,
    tiny_llama,
    user,
    word_tokenizer,
)
from workers.context import RunContext
from workers.data.batches import encode_prompt
from workers.models.loading import disable_dropout
from workers.preflight.findings import Parts
from workers.rewards.source import Scores

SUBJECTS = [
    f"the {adjective} {noun}"
    for adjective, noun in product(("big", "small", "red", "blue"), ("cat", "dog", "sun", "rain"))
]


@dataclass
class Rule:
    """A reward by a function of the answer, which counts what it was asked."""

    of: Callable[[str], float]
    asked: list[str] = field(default_factory=list)

    def score(self, prompts: list[Messages], responses: list[str]) -> Scores:
        self.asked.extend(responses)
        return Scores([self.of(text) for text in responses])


def good(text: str) -> float:
    """What people in the snapshots prefer."""
    words = text.split()
    return words.count("good") - words.count("bad") + 0.01 * len(words)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    shop = Workshop(tmp_path_factory.mktemp("preflight"))
    shop.put_model("base", tiny_llama())
    shop.put_snapshot("prompts", train=[{"prompt": user(subject)} for subject in SUBJECTS])
    pairs = [
        {
            "prompt": user(subject),
            "chosen": assistant(f"a {better} dog"),
            "rejected": assistant(f"a {worse} dog"),
            "weight": 1.0,
            "confidence": 0.9,
            "group": subject,
            "comparison": f"{subject}/{better}/{worse}",
        }
        for subject in SUBJECTS
        for better, worse in product(
            ("good good", "good", "good red", "good big"), ("bad", "sleeps")
        )
    ]
    shop.put_snapshot("preferences", train=pairs)
    shop.put_snapshot(
        "demonstrations",
        train=[{"messages": user(s) + assistant(f"{s} runs a good dog")} for s in SUBJECTS],
    )
    return shop


@pytest.fixture
def parts(shop: Workshop) -> Callable[..., Parts]:
    tokenizer = word_tokenizer()
    policy = tiny_llama()
    disable_dropout(policy)
    prompts = [user(subject) for subject in SUBJECTS]

    def make(**given: Any) -> Parts:
        return Parts(
            **{
                "tokenizer": tokenizer,
                "policy": policy,
                "prompts": prompts,
                "prompt_ids": [encode_prompt(tokenizer, prompt) for prompt in prompts],
                "eval_prompts": [user("a dog runs"), user("a cat sleeps")],
                "reward": Rule(good),
            }
            | given
        )

    return make


@pytest.fixture
def opened(shop: Workshop, request: pytest.FixtureRequest) -> Callable[..., RunContext]:
    """A context of a ppo run over inputs by name; its events are in `context.writer.envelopes`."""

    def make(config: dict[str, Any] | None = None, **inputs: str) -> RunContext:
        spec = shop.spec(request.node.name, "ppo", config or {}, **inputs)
        folder = shop.folder(spec)
        folder.mkdir(parents=True, exist_ok=True)
        return RunContext(spec, shop.store, folder, Notebook(spec))

    return make
