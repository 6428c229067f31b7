"""A workshop with tiny models and planted data, and the planted jobs run once for all tests."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from tests.workers.recipes.language import Outcome, Workshop, assistant, tiny_llama, user

SUBJECTS = [
    f"the {adjective} {noun}"
    for adjective, noun in product(("big", "small", "red", "blue"), ("cat", "dog", "sun", "rain"))
]
PLANTED_PPO = {
    "reward": {"type": "token_count", "token": "good"},
    "missing_eos_penalty": 0.0,  # the planted reward is all that teaches
    "steps": 30,
    "batch_size": 32,
    "minibatch_size": 16,
    "max_prompt_length": 16,
    "max_new_tokens": 8,
    "learning_rate": 1e-3,
    "kl_coef": 0.2,
    "eval_every": 15,
    "eval_prompts": 16,
    "save_every": 15,
    "sample_every": 10,
    "audit_samples": 2,
    "reward_check": "off",  # no reward ranks the words of a model that never learned to speak
}


def preference_rows(part: int) -> list[dict]:
    """People prefer the answer with more of the word good. Subjects differ between the parts."""
    rows = []
    for i, subject in enumerate(SUBJECTS):
        if (i % 4 == 0 and part == 0) or (i % 4 and part == 1):
            continue
        for better, worse in product(("good good", "good"), ("bad bad", "bad", "sleeps")):
            rows.append(
                {
                    "prompt": user(subject),
                    "chosen": assistant(f"a {better} dog"),
                    "rejected": assistant(f"a {worse} dog"),
                    "weight": 1.0,
                    "confidence": 0.9,
                    "group": subject,
                    "comparison": f"{subject}/{better}/{worse}",
                }
            )
    return rows


def answer_rows(part: int) -> list[dict]:
    """The same answers one by one; every other one that people rejected is missing."""
    rows = []
    for i, row in enumerate(preference_rows(part)):
        rows.append({"prompt": row["prompt"], "completion": row["chosen"], "label": True})
        if i % 2:
            rows.append({"prompt": row["prompt"], "completion": row["rejected"], "label": False})
    return rows


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    shop = Workshop(tmp_path_factory.mktemp("workshop"))
    shop.put_model("base", tiny_llama())
    shop.put_snapshot("prompts", train=[{"prompt": user(subject)} for subject in SUBJECTS])
    shop.put_snapshot("preferences", train=preference_rows(0), dev=preference_rows(1))
    shop.put_snapshot("answers", train=answer_rows(0), dev=answer_rows(1))
    shop.put_snapshot(
        "demonstrations",
        train=[{"messages": user(s) + assistant(f"{s} runs a good dog sleeps")} for s in SUBJECTS],
    )
    return shop


@pytest.fixture(scope="session")
def planted(workshop: Workshop) -> dict[str, Outcome]:
    """The shipped recipes on planted preferences, each as a process of its own, two at a time."""
    pairs = {"batch_size": 16, "max_length": 32, "eval_every": 10, "save_every": 100}
    specs = {
        "ppo": workshop.spec("ppo", "ppo", PLANTED_PPO, sft="base", prompts="prompts"),
        "ppo_held": workshop.spec(
            "ppo_held", "ppo", PLANTED_PPO | {"kl_coef": 50.0}, sft="base", prompts="prompts"
        ),
        "reward": workshop.spec(
            "reward",
            "reward",
            pairs | {"learning_rate": 3e-3, "epochs": 6},
            sft="base",
            data="preferences",
        ),
        "dpo": workshop.spec(
            "dpo",
            "dpo",
            pairs
            | {
                "learning_rate": 1e-3,
                "epochs": 6,
                "sample_max_new_tokens": 8,
                "sample_prompts": 4,
            },
            sft="base",
            data="preferences",
        ),
        "kto": workshop.spec(
            "kto",
            "kto",
            pairs
            | {
                "learning_rate": 3e-3,
                "epochs": 12,
                "sample_max_new_tokens": 8,
                "sample_prompts": 4,
            },
            sft="base",
            data="answers",
        ),
        "sft": workshop.spec(
            "sft",
            "sft",
            {
                "learning_rate": 5e-3,
                "batch_size": 4,
                "epochs": 8,
                "max_length": 64,
                "base_vocabulary": 300,
                "base_width": 32,
                "base_layers": 1,
                "base_heads": 2,
                "base_context": 64,
                "held_out_share": 0.2,
                "eval_every": 10,
                "save_every": 100,
                "sample_max_new_tokens": 8,
            },
            data="demonstrations",
        ),
    }
    with ThreadPoolExecutor(2) as pool:
        outcomes = pool.map(workshop.run, specs.values())
    return dict(zip(specs, outcomes, strict=True))


@pytest.fixture(scope="session")
def models(workshop: Workshop) -> Workshop:
    """A policy that is not its SFT model, and two reward models."""
    workshop.put_model("policy", tiny_llama(seed=5))
    for name, seed in (("scorer", 0), ("judge", 1)):
        config = {"max_steps": 4, "learning_rate": 1e-3, "max_length": 32, "batch_size": 16}
        spec = workshop.spec(name, "reward", config, seed=seed, sft="base", data="preferences")
        workshop.adopt(name, workshop.run_here(spec))
    return workshop
