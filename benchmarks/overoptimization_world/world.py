"""Everything a policy run needs, made from one seed: SFT model, votes, proxy, judge."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.overoptimization_world.gold import Gold
from benchmarks.overoptimization_world.language import (
    CONTEXT,
    MAX_NEW_TOKENS,
    Question,
    demonstrations,
    questions,
)
from benchmarks.overoptimization_world.models import base_model, tokenizer
from benchmarks.overoptimization_world.people import Annotator, Taste, panel, right_share, voted
from benchmarks.workshop import Workshop
from workers.data.batches import encode_prompt
from workers.models.loading import freeze, load_causal, load_tokenizer
from workers.rollouts.drawing import answer
from workers.rollouts.local import Sampling, derive_seed

REVIEWERS = Taste(noise=1.2, per_word=(0.03, 0.03), per_flattery=(0.1, 0.2), overlooked=(0.3, 0.15))
HELD_OUT_PAIRS = 200
DEMONSTRATIONS = 16  # answers to each training question
SFT = {
    "learning_rate": 3e-3,
    "batch_size": 32,
    "epochs": 6,
    "max_length": CONTEXT,
    "eval_every": 1000,
    "save_every": 1000,
    "sample_prompts": 0,
}
REWARD = {
    "labels": "soft",
    "learning_rate": 1.5e-3,
    "batch_size": 32,
    "epochs": 2,
    "max_length": CONTEXT,
    "eval_every": 1000,
    "save_every": 1000,
    "bootstrap_replicates": 100,
}
PPO = {
    "lora_rank": 0,  # a model this small is trained whole
    "steps": 60,
    "batch_size": 64,
    "minibatch_size": 32,
    "update_epochs": 2,
    "max_prompt_length": 16,
    "max_new_tokens": MAX_NEW_TOKENS,
    "learning_rate": 5e-4,
    "value_learning_rate": 5e-3,
    "lr_schedule": "constant",
    "kl_coef": 0.01,  # the lowest that is advised: the proxy is followed nearly freely
    "eval_every": 4,
    "save_every": 4,
    "eval_prompts": 48,
    "sample_every": 1000,
    "audit_samples": 1,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is asked of whom."""

    proxy_pairs: int = 3000
    proxy_people: int = 8
    proxy_votes: int = 3
    judge_pairs: int = 3000
    judge_people: int = 12
    judge_votes: int = 5
    members: int = 2  # of the proxy, an ensemble
    crowd: Taste = field(default_factory=Taste)
    reviewers: Taste = field(default_factory=lambda: REVIEWERS)


@dataclass
class World:
    """Made things lie in the workshop as base, sft, prompts, proxy, judge."""

    seed: int
    plan: Plan
    gold: Gold
    shop: Workshop
    asked: list[Question]
    evaluation: list[Question]
    facts: dict[str, Any]  # how right the votes and the models are, for the table

    def train_proxy(self) -> None:
        """An ensemble, from votes on pairs of SFT answers."""
        people = panel(self.plan.proxy_people, self.plan.crowd, seed=f"proxy {self.seed}")
        pairs = self.pairs("proxy", self.plan.proxy_pairs + HELD_OUT_PAIRS)
        rows = self.vote("proxy", people, pairs, self.plan.proxy_votes)
        self.fit("proxy", rows, members=self.plan.members)

    def train_judge(self) -> None:
        """From the votes of reviewers on other pairs. No run is rewarded by it."""
        people = panel(self.plan.judge_people, self.plan.reviewers, seed=f"judge {self.seed}")
        pairs = self.pairs("judge", self.plan.judge_pairs + HELD_OUT_PAIRS)
        self.fit("judge", self.vote("judge", people, pairs, self.plan.judge_votes))

    def pairs(self, name: str, count: int) -> list[tuple[Question, str, str]]:
        """Training questions with two different answers of the SFT model each."""
        draw = random.Random(f"{name} {self.seed}")
        drawn = [draw.choice(self.asked) for _ in range(count + count // 10 + 10)]
        first, second = (
            answers(self.shop.folder_of("sft"), drawn, seed=derive_seed(self.seed, name, side))
            for side in "ab"
        )
        pairs = [(q, a, b) for q, a, b in zip(drawn, first, second, strict=True) if a != b]
        return pairs[:count]

    def vote(
        self,
        name: str,
        people: list[Annotator],
        pairs: list[tuple[Question, str, str]],
        votes: int,
    ) -> list[dict[str, Any]]:
        rows = voted(self.gold, people, pairs, votes=votes, seed=f"{name} {self.seed}")
        self.facts[f"{name}_votes_right"] = right_share(self.gold, rows)
        return rows

    def fit(self, name: str, rows: list[dict[str, Any]], *, members: int = 1) -> None:
        """A reward model called `name`; the last rows are held out."""
        self.shop.put_snapshot(
            f"{name}-votes", train=rows[:-HELD_OUT_PAIRS], held_out=rows[-HELD_OUT_PAIRS:]
        )
        outcome = self.shop.run(
            name,
            "reward",
            REWARD | {"members": members},
            seed=derive_seed(self.seed, name),
            sft="sft",
            data=f"{name}-votes",
        )
        held_out = outcome.summary["splits"]["held_out"]
        self.facts[f"{name}_accuracy"] = held_out["accuracy"]["value"]
        self.facts[f"{name}_length_rule"] = held_out["length_only"]["value"]


def build(root: Path, seed: int, plan: Plan | None = None) -> World:
    plan = plan or Plan()
    gold, shop = Gold(seed), Workshop(root, tokenizer)
    asked, evaluation = questions(seed)
    shop.put_model("base", base_model(seed))
    rows = [
        {"messages": [*q.messages, {"role": "assistant", "content": text}]}
        for q, text in zip(
            [q for q in asked for _ in range(DEMONSTRATIONS)],
            demonstrations(
                asked, gold.facts | gold.details, per_question=DEMONSTRATIONS, seed=seed
            ),
            strict=True,
        )
    ]
    shop.put_snapshot("demonstrations", train=rows)
    shop.put_snapshot(
        "prompts",
        train=[{"prompt": q.messages} for q in asked],
        evaluation=[{"prompt": q.messages} for q in evaluation],
    )
    shop.run("sft", "sft", SFT, seed=seed, base="base", data="demonstrations")
    world = World(seed, plan, gold, shop, asked, evaluation, {})
    world.train_proxy()
    world.train_judge()
    return world


def answers(folder: Path, asked: list[Question], *, seed: int) -> list[str]:
    """One answer to each question by the model of a checkpoint, at temperature 1."""
    names = load_tokenizer(folder)
    ids = [encode_prompt(names, q.messages) for q in asked]
    sampling = Sampling(MAX_NEW_TOKENS, seed=seed)
    model = freeze(load_causal(folder))
    return [given.text for given in answer(model, names, ids, sampling, batch_size=128)]
