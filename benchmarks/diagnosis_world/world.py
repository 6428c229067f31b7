"""What the runs of a seed and a shape share: SFT model, votes, reward models, known pairs.

Everything is made once, when first asked for, with the recipes that people use.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

from benchmarks.diagnosis_world.language import (
    CONTEXT,
    FILLERS,
    MAX_NEW_TOKENS,
    POLITE,
    REFUSAL,
    Gold,
    Question,
    demonstrations,
    questions,
    refuses,
)
from benchmarks.diagnosis_world.models import SHAPES, tokenizer
from benchmarks.workshop import Workshop
from workers.contract.jobs import InputRef
from workers.data.batches import encode_prompt
from workers.models.loading import freeze, load_causal, load_tokenizer
from workers.rewards.build import load_reward
from workers.rollouts.drawing import answer
from workers.rollouts.local import Sampling, derive_seed

SFT = {
    "learning_rate": 6e-3,
    "batch_size": 64,
    "epochs": 4,
    "max_length": CONTEXT,
    "eval_every": 1000,
    "save_every": 1000,
    "sample_prompts": 0,
}
REWARD = {
    "labels": "soft",
    "learning_rate": 3e-3,
    "batch_size": 64,
    "epochs": 2,
    "max_length": CONTEXT,
    "eval_every": 1000,
    "save_every": 1000,
    "bootstrap_replicates": 100,
}
DEMONSTRATIONS = 40  # answers to each training question
PAIRS, CANARIES = 2000, 64
VOTE_NOISE = 0.8  # points: deviation of one judgement
VOTES = 3
HELD_OUT = 200  # rows of the runs that learn from rows
FEW_PAIRS, FEW_ROWS, KNOWN = 48, 64, 256

KEPT = "world.json"

Pair = tuple[Question, str, str]
Taste = Callable[[Question, str], float]


@dataclass
class World:
    """Made things lie in the workshop by name; `facts` says how right they came out."""

    seed: int
    shape: str
    shop: Workshop
    gold: Gold
    asked: list[Question]
    evaluation: list[Question]
    facts: dict[str, Any] = field(default_factory=dict)
    _drawn: list[Pair] = field(default_factory=list)

    def need(self, name: str) -> str:
        """`name`, made if it is not there yet; the votes are made with their model."""
        if name not in self.shop.refs:
            self._make[name.removesuffix("-votes")](self)
        return name

    def keep(self) -> None:
        """Write down what there is, so that another process need not make it again."""
        held = {name: asdict(ref) for name, ref in self.shop.refs.items()}
        path = self.shop.root / KEPT
        path.write_text(json.dumps({"refs": held, "facts": self.facts}))

    @property
    def drawn(self) -> list[Pair]:
        """Pairs of answers of the SFT model, to vote on."""
        self._drawn = self._drawn or self._pairs("votes", PAIRS)
        return self._drawn

    @property
    def accuracy(self) -> dict[str, float]:
        """Of the reward models on votes they did not learn from."""
        return {name: value for name, value in self.facts.items() if name != "scores"}

    # --- what the fair reward model gives the SFT model's answers ---

    def scores(self) -> tuple[float, float]:
        """Mean and deviation, raw."""
        values = self._scores()
        return fmean(values), pstdev(values)

    def quantile(self, share: float) -> float:
        """The score that a share of its answers do not exceed, raw."""
        ordered = sorted(self._scores())
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    def _scores(self) -> list[float]:
        if "scores" not in self.facts:
            asked = self.drawn[:400]
            source = load_reward(self.shop.folder_of(self.need("fair")), name="f", batch_size=64)
            found = source.score([q.messages for q, _, _ in asked], [a for _, a, _ in asked])
            self.facts["scores"] = found.values
        return self.facts["scores"]

    def _other(self) -> None:
        """An earlier checkpoint: one pass over the demonstrations and no more."""
        self.shop.run(
            "other",
            "sft",
            SFT | {"epochs": 1},
            seed=self.seed,
            base="base",
            data="demonstrations",
        )

    # --- reward models ---

    def votes(self, taste: Taste, name: str) -> list[dict[str, Any]]:
        """The pairs of SFT answers, decided by the majority of noisy people with a `taste`."""
        draw = random.Random(f"{name} {self.seed}")
        rows = []
        for number, (question, first, second) in enumerate(self.drawn):
            margin = taste(question, first) - taste(question, second)
            share = sum(margin + draw.gauss(0, VOTE_NOISE) > 0 for _ in range(VOTES)) / VOTES
            chosen, rejected = (first, second) if share > 0.5 else (second, first)
            rows.append(preference(question, chosen, rejected, max(share, 1 - share), number))
        return rows

    def reward_model(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """A reward model called `name`, from the real recipe."""
        self.shop.put_snapshot(f"{name}-votes", train=rows[:-100], held_out=rows[-100:])
        outcome = self.shop.run(
            name,
            "reward",
            REWARD,
            seed=derive_seed(self.seed, "reward"),
            sft="sft",
            data=f"{name}-votes",
        )
        self.facts[name] = outcome.summary["splits"]["held_out"]["accuracy"]["value"]

    def _fair(self) -> None:
        self.reward_model("fair", self.votes(self.gold, "votes"))

    # --- rows to learn from directly: SFT, DPO, reward models ---

    def _put_pairs(
        self, name: str, rows: Sequence[dict[str, Any]], held_out: Sequence[Any]
    ) -> None:
        self.shop.put_snapshot(name, train=rows, held_out=held_out)

    def _fair_pairs(self) -> None:
        rows = self.votes(self.gold, "votes")
        self._put_pairs("pairs", rows[HELD_OUT:], rows[:HELD_OUT])

    def _swapped_pairs(self) -> None:
        rows = [swapped(row) for row in self.votes(self.gold, "votes")]
        self._put_pairs("pairs-swapped", rows[HELD_OUT:], rows[:HELD_OUT])

    def _random_pairs(self) -> None:
        draw = random.Random(f"lots {self.seed}")
        rows = [r if draw.random() < 0.5 else swapped(r) for r in self.votes(self.gold, "votes")]
        self._put_pairs("pairs-random", rows[HELD_OUT:], rows[:HELD_OUT])

    def _leaked_pairs(self) -> None:
        rows = self.votes(self.gold, "votes")
        seen = rows[HELD_OUT : HELD_OUT + HELD_OUT // 2]
        self._put_pairs("pairs-leaked", rows[HELD_OUT:], [*rows[: HELD_OUT // 2], *seen])

    def _few_pairs(self) -> None:
        rows = self.votes(self.gold, "votes")
        self._put_pairs("pairs-few", rows[HELD_OUT : HELD_OUT + FEW_PAIRS], rows[:HELD_OUT])

    def _long_pairs(self) -> None:
        rows = self.votes(lambda q, a: 2.0 * len(a.split()), "length alone")
        self._put_pairs("pairs-long", rows[HELD_OUT:], rows[:HELD_OUT])

    def _demos(self) -> None:
        rows = self._told("demos")
        self._put_pairs("demos", rows[HELD_OUT:], rows[:HELD_OUT])

    def _leaked_demos(self) -> None:
        rows = self._told("demos")
        seen = rows[HELD_OUT : HELD_OUT + HELD_OUT // 2]
        self._put_pairs("demos-leaked", rows[HELD_OUT:], [*rows[: HELD_OUT // 2], *seen])

    def _few_demos(self) -> None:
        rows = self._told("demos")
        self._put_pairs("demos-few", rows[HELD_OUT : HELD_OUT + FEW_ROWS], rows[:HELD_OUT])

    def _other_demos(self) -> None:
        """Every answer is of words that say nothing."""
        draw = random.Random(f"other {self.seed}")
        rows = [
            told(q, " ".join(draw.choice((*FILLERS, *POLITE)) for _ in range(draw.randint(5, 9))))
            for q in self.asked
            for _ in range(DEMONSTRATIONS)
        ]
        draw.shuffle(rows)
        self._put_pairs("demos-other", rows[HELD_OUT:], rows[:HELD_OUT])

    def _general(self) -> None:
        """Demonstrations that no run learns from."""
        self.shop.put_snapshot("general", train=self._told("general")[:FEW_ROWS])

    def _told(self, name: str) -> list[dict[str, Any]]:
        """Fresh demonstrations of the training questions, shuffled."""
        seed = derive_seed(self.seed, name)
        answers = demonstrations(self.asked, self.gold, each=DEMONSTRATIONS, seed=seed)
        each = [question for question in self.asked for _ in range(DEMONSTRATIONS)]
        rows = [told(q, text) for q, text in zip(each, answers, strict=True)]
        random.Random(seed).shuffle(rows)
        return rows

    def _swapped(self) -> None:
        """Learned from votes whose sides were swapped on their way into the snapshot."""
        self.reward_model("swapped", [swapped(row) for row in self.votes(self.gold, "votes")])

    def _lengthy(self) -> None:
        """A model that took length for worth."""
        self.reward_model(
            "lengthy", self.votes(lambda q, a: self.gold(q, a) / 3 + 0.8 * len(a.split()), "long")
        )

    def _refusing(self) -> None:
        """A model that holds a refusal to be the safest answer."""
        fair = self.votes(lambda q, a: self.gold(q, a) + 9.0 * refuses(a), "refusals")
        draw = random.Random(f"refusing {self.seed}")
        refusal = " ".join(REFUSAL)
        rows = [
            preference(q, refusal, draw.choice((a, b)), 1.0, PAIRS + i)
            for i, (q, a, b) in enumerate(self.drawn[:300])
            if not refuses(a) and not refuses(b)
        ]
        both = rows + fair[:-100]
        draw.shuffle(both)
        self.reward_model("refusing", both + fair[-100:])

    def _negated(self) -> None:
        """The fair model with its score head turned round."""
        folder = self.shop.folder_of(self.need("fair"))
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        with torch.no_grad():
            for parameter in model.score.parameters():
                parameter.neg_()
        self.shop.put_model("negated", model)

    # --- what is known about the right answer ---

    def _canaries(self) -> None:
        """Pairs whose better answer is known: gold decides, and clearly."""
        self._put_known("canaries", CANARIES)

    def _known(self) -> None:
        """More of them, for runs that learn from pairs."""
        self._put_known("known", KNOWN)

    def _put_known(self, name: str, count: int) -> None:
        pairs = [pair for pair in self._pairs(name, 6 * count) if self._clear(pair)]
        rows = []
        for number, (question, first, second) in enumerate(pairs[:count]):
            best, worst = sorted((first, second), key=lambda a: -self.gold(question, a))
            rows.append(preference(question, best, worst, 1.0, number))
        self.shop.put_snapshot(name, train=rows)

    def _clear(self, pair: Pair) -> bool:
        question, first, second = pair
        return abs(self.gold(question, first) - self.gold(question, second)) > 1.0

    def _pairs(self, name: str, count: int) -> list[Pair]:
        """Training questions with two different answers of the SFT model each."""
        draw = random.Random(f"{name} {self.seed}")
        drawn = [draw.choice(self.asked) for _ in range(count + count // 8)]
        first, second = (
            answers(self.shop.folder_of("sft"), drawn, seed=derive_seed(self.seed, name, side))
            for side in "ab"
        )
        pairs = [(q, a, b) for q, a, b in zip(drawn, first, second, strict=True) if a != b]
        return pairs[:count]

    _make = {
        "other": _other,
        "fair": _fair,
        "swapped": _swapped,
        "lengthy": _lengthy,
        "refusing": _refusing,
        "negated": _negated,
        "canaries": _canaries,
        "known": _known,
        "pairs": _fair_pairs,
        "pairs-swapped": _swapped_pairs,
        "pairs-random": _random_pairs,
        "pairs-leaked": _leaked_pairs,
        "pairs-few": _few_pairs,
        "pairs-long": _long_pairs,
        "demos": _demos,
        "demos-leaked": _leaked_demos,
        "demos-few": _few_demos,
        "demos-other": _other_demos,
        "general": _general,
    }


def swapped(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"chosen": row["rejected"], "rejected": row["chosen"]}


def told(question: Question, text: str) -> dict[str, Any]:
    return {"messages": [*question.messages, {"role": "assistant", "content": text}]}


def preference(
    question: Question, chosen: str, rejected: str, confidence: float, number: int
) -> dict[str, Any]:
    return {
        "prompt": question.messages,
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
        "weight": 1.0,
        "confidence": confidence,
        "votes": VOTES,
        "comparison": f"{number}",
        "cluster": question.messages[0]["content"],
    }


def open_world(folder: Path, seed: int, shape: str) -> World:
    """As it was kept in `folder`, else built there: SFT model and prompts; the rest on demand."""
    root = folder / f"{shape}-{seed}"
    shop = Workshop(root, tokenizer, kept_failures=("guard_", "contract_", "non_finite"))
    asked, evaluation = questions(seed)
    world = World(seed, shape, shop, Gold(seed), asked, evaluation)
    if (root / KEPT).is_file():
        kept = json.loads((root / KEPT).read_text())
        shop.refs = {name: InputRef(**ref) for name, ref in kept["refs"].items()}
        world.facts = kept["facts"]
    else:
        _found(world)
        world.keep()
    return world


def _found(world: World) -> None:
    shop, seed = world.shop, world.seed
    texts = demonstrations(world.asked, world.gold, each=DEMONSTRATIONS, seed=seed)
    each = [question for question in world.asked for _ in range(DEMONSTRATIONS)]
    rows = [told(question, text) for question, text in zip(each, texts, strict=True)]
    shop.put_snapshot("demonstrations", train=rows)
    shop.put_snapshot(
        "prompts",
        train=[{"prompt": q.messages} for q in world.asked],
        evaluation=[{"prompt": q.messages} for q in world.evaluation],
    )
    shop.put_model("base", SHAPES[world.shape](seed))
    shop.run("sft", "sft", SFT, seed=seed, base="base", data="demonstrations")


def answers(folder: Path, asked: Sequence[Question], *, seed: int) -> list[str]:
    """One answer to each question by the model of a checkpoint, at temperature 1."""
    names = load_tokenizer(folder)
    ids = [encode_prompt(names, q.messages) for q in asked]
    sampling = Sampling(MAX_NEW_TOKENS, seed=seed)
    model = freeze(load_causal(folder))
    return [given.text for given in answer(model, names, ids, sampling, batch_size=256)]
