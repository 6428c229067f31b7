"""Scoring through cache, batches and a background thread, against asking text by text.

Three streams of (prompt, response), none with an invented rate of repeats:

    pairs        the shipped comparisons, both answers of each, in file order: what an assessment
                 or a pass over preferences scores. Arguments recur, as each was compared often.
    policy, T    a small policy, trained here for a minute on the shipped demonstrations, answers
                 the shipped prompts in groups of four, in several passes over the same prompts; it
                 trains on between the passes, as a policy does. Sampled at temperature T.
    evaluation   the same policy at temperature 0, once a pass, as an evaluation asks it.

What a cache saves is the share of texts that were scored before, so it is counted for every
stream; a policy at temperature 1 with long answers hardly repeats itself, and then it saves
little. Time is CPU seconds of this process, on one thread; every way scores the same stream, in one
process, in turns, and all scores must be equal bit by bit. The last table generates and scores:
there wall time counts too, since the background thread can use a second core.

Run: python -m benchmarks.reward_service [prompts] [passes]
"""

import os

# One core for every side: set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
import torch

from benchmarks.report import print_report, versions
from measures.messages import Messages
from workers.data.batches import encode_pair, encode_prompt, pad_right
from workers.models.loading import load_scorer, load_tokenizer, save_model, stop_ids
from workers.rewards.cache import CachedReward, ScoreCache
from workers.rewards.model import ModelReward
from workers.rewards.source import RewardSource, ScoreQueue, Scores, join
from workers.rollouts.local import Sampling, derive_seed, generate
from workers.trainers.sft import BaseShape, build_model, train_tokenizer

DATA = Path(__file__).parents[1] / "data"
CONTEXT, ANSWER, LONGEST_PROMPT = 256, 32, 96  # tokens
POLICY = BaseShape(vocabulary=2048, width=96, layers=2, heads=4, context=CONTEXT)
SCORER = BaseShape(vocabulary=2048, width=192, layers=4, heads=4, context=CONTEXT)
PROMPTS, PASSES, GROUP, CHUNK, BATCH = 32, 3, 4, 32, 64
TEMPERATURES = (0.1, 0.5, 1.0)
FIRST_STEPS, STEPS_BETWEEN, TRAIN_BATCH = 300, 4, 16
LEARNING_RATE, LATER_RATE = 2e-3, 1e-5  # the later one as in policy training
PAIRS = 300

Chunk = tuple[list[Messages], list[str]]


@dataclass
class Policy:
    """A small model that is learning, and what it answers."""

    model: Any
    tokenizer: Any
    rows: list[list[int]]
    at: int = 0
    _optimizer: Any = field(default=None)

    def train(self, steps: int, rate: float) -> None:
        self._optimizer = self._optimizer or torch.optim.AdamW(self.model.parameters())
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        for _ in range(steps):
            rows = [self.rows[(self.at + i) % len(self.rows)] for i in range(TRAIN_BATCH)]
            self.at += TRAIN_BATCH
            ids, mask = pad_right(rows, self.tokenizer.pad_token_id)
            labels = ids.masked_fill(mask == 0, -100)
            self.model(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad()

    def answers(
        self, prompts: Sequence[Messages], temperature: float, visit: int
    ) -> Iterator[Chunk]:
        """Chunks of answers, four to a prompt; one where they are not drawn."""
        asked = [prompt for prompt in prompts for _ in range(GROUP if temperature else 1)]
        for start in range(0, len(asked), CHUNK):
            chunk = asked[start : start + CHUNK]
            seed = derive_seed(0, f"{temperature}", visit, start)
            sampling = Sampling(ANSWER, temperature=temperature, seed=seed)
            ids = [encode_prompt(self.tokenizer, prompt) for prompt in chunk]
            stop = stop_ids(self.model, self.tokenizer)
            yield chunk, generate(self.model, self.tokenizer, ids, sampling, stop=stop).texts


def main() -> None:
    prompts_wanted = int(sys.argv[1]) if len(sys.argv) > 1 else PROMPTS
    passes = int(sys.argv[2]) if len(sys.argv) > 2 else PASSES
    with tempfile.TemporaryDirectory() as name:
        policy, source = make_models(Path(name))
    prompts = short_prompts(policy.tokenizer)[:prompts_wanted]
    policy.train(FIRST_STEPS, LEARNING_RATE)
    source.score(*next(iter(policy.answers(prompts, 1.0, 0))))  # nothing is timed cold
    streams = {"pairs": chunked(argument_pairs())}
    for temperature in (*TEMPERATURES, 0.0):
        name = f"policy, T = {temperature}" if temperature else "evaluation"
        streams[name] = chunks = []
        for visit in range(passes):
            chunks += policy.answers(prompts, temperature, visit)
            policy.train(STEPS_BETWEEN, LATER_RATE)
    rows = [row for name, chunks in streams.items() for row in compared(name, chunks, source)]
    overlap = overlapped(policy, prompts, source, passes)
    report(rows, overlap, len(prompts), passes)


def make_models(folder: Path) -> tuple[Policy, ModelReward]:
    demonstrations = list(lines("demonstrations"))
    texts = [row["response"] for row in demonstrations]
    tokenizer = train_tokenizer(texts, vocabulary=POLICY.vocabulary, context=CONTEXT)
    save_model(build_model(tokenizer, SCORER, seed=1), tokenizer, folder / "base")
    torch.manual_seed(1)
    save_model(load_scorer(folder / "base", tokenizer), tokenizer, folder / "scorer")
    source = ModelReward(folder / "scorer", batch_size=BATCH)
    encoded = [
        encode_pair(tokenizer, asked(row["prompt"]), row["response"], max_length=CONTEXT).ids
        for row in demonstrations
    ]
    encoded = sorted(encoded, key=len)[: len(encoded) // 2]  # the shorter half: a minute's worth
    order = torch.randperm(len(encoded), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [encoded[i] for i in order]
    return Policy(
        build_model(tokenizer, POLICY, seed=0), load_tokenizer(folder / "scorer"), rows
    ), source


def lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def asked(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def short_prompts(tokenizer: Any) -> list[Messages]:
    prompts = [asked(row["prompt"]) for row in lines("prompts")]
    return [p for p in prompts if len(encode_prompt(tokenizer, p)) <= LONGEST_PROMPT]


def argument_pairs() -> list[tuple[Messages, str]]:
    """Both answers of the first comparisons, as they stand in the file."""
    rows = [row for row, _ in zip(lines("comparisons"), range(PAIRS), strict=False)]
    return [(asked(r["prompt"]), r[side]) for r in rows for side in ("response_a", "response_b")]


def chunked(texts: Sequence[tuple[Messages, str]]) -> list[Chunk]:
    starts = range(0, len(texts), CHUNK)
    pieces = [texts[start : start + CHUNK] for start in starts]
    return [([prompt for prompt, _ in piece], [text for _, text in piece]) for piece in pieces]


# --- the ways of scoring a stream ---


def one_by_one(source: RewardSource, chunks: Sequence[Chunk]) -> Scores:
    pairs = [pair for chunk in chunks for pair in zip(*chunk, strict=True)]
    return join([source.score([prompt], [text]) for prompt, text in pairs])


def in_batches(source: RewardSource, chunks: Sequence[Chunk]) -> Scores:
    return join([source.score(*chunk) for chunk in merged(chunks)])


def behind(source: RewardSource, chunks: Sequence[Chunk]) -> Scores:
    with ScoreQueue(source, batch_size=BATCH) as queue:
        return join([one.result() for one in [queue.submit(*chunk) for chunk in chunks]])


def merged(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Chunks of `BATCH` texts."""
    step = BATCH // CHUNK
    groups = [chunks[i : i + step] for i in range(0, len(chunks), step)]
    return [
        ([p for prompts, _ in group for p in prompts], [t for _, texts in group for t in texts])
        for group in groups
    ]


def compared(name: str, chunks: Sequence[Chunk], source: ModelReward) -> list[dict[str, object]]:
    """A row per way, each as a ratio to one by one."""
    ways: dict[str, Callable[[], Scores]] = {
        "one by one": lambda: one_by_one(source, chunks),
        "batches": lambda: in_batches(source, chunks),
        "batches, cache": lambda: in_batches(cached(source), chunks),
        "batches, cache, background": lambda: behind(cached(source), chunks),
    }
    rows, first, base = [], None, 0.0
    for way, score in ways.items():
        cpu, wall, scores = timed(score)
        first = first or scores
        base = base or cpu
        if scores.values != first.values:
            raise SystemExit(f"{name}, {way}: the scores differ")
        known = scores.cache_hits
        rows.append(
            {
                "stream": name,
                "way": way,
                "texts": len(scores.values),
                "calls saved": "" if known is None else f"{100 * known / len(scores.values):.1f} %",
                "CPU s": cpu,
                "texts per CPU s": len(scores.values) / cpu,
                "times one by one": base / cpu,
                "wall s": wall,
            }
        )
    return rows


def overlapped(
    policy: Policy, prompts: Sequence[Messages], source: ModelReward, passes: int
) -> list[dict[str, object]]:
    """Generate and score together: after each chunk, or in the background with a cache."""
    waits: list[float] = []

    def in_turns(one: bool) -> Scores:
        pieces = []
        for visit in range(passes):
            for chunk in policy.answers(prompts, TEMPERATURES[0], visit):
                pieces.append(one_by_one(source, [chunk]) if one else source.score(*chunk))
        return join(pieces)

    def meanwhile() -> Scores:
        with ScoreQueue(cached(source), batch_size=BATCH) as queue:
            pending = [
                queue.submit(*chunk)
                for visit in range(passes)
                for chunk in policy.answers(prompts, TEMPERATURES[0], visit)
            ]
            scores = join([one.result() for one in pending])
            waits.append(queue.waited_s)
            return scores

    rows, first, base = [], None, 0.0
    for way, run in (
        ("in turns, one by one", lambda: in_turns(True)),
        ("in turns, batches", lambda: in_turns(False)),
        ("background, batches, cache", meanwhile),
    ):
        cpu, wall, scores = timed(run)
        first = first or scores
        base = base or wall
        if scores.values != first.values:
            raise SystemExit(f"{way}: the scores differ")
        row: dict[str, object] = {"stream": "generate and score", "way": way}
        row |= {"texts": len(scores.values), "CPU s": cpu, "wall s": wall}
        rows.append(row | {"times one by one (wall)": base / wall})
    rows[-1]["waited s"] = waits[0]
    return rows


def cached(source: ModelReward) -> CachedReward:
    return CachedReward(source, "benchmark", ScoreCache(None))


def timed(run: Callable[[], Scores]) -> tuple[float, float, Scores]:
    """(CPU seconds of the process, wall seconds, scores)."""
    cpu, wall = time.process_time(), time.perf_counter()
    scores = run()
    return time.process_time() - cpu, time.perf_counter() - wall, scores


def report(
    rows: list[dict[str, object]], overlap: list[dict[str, object]], prompts: int, passes: int
) -> None:
    best = [row for row in rows if row["way"] == "batches, cache, background"]
    print_report(
        "Scoring a policy's answers: cache, batches and a background thread",
        rows + overlap,
        {
            "prompts": prompts,
            "passes": passes,
            "answers_per_prompt": GROUP,
            "calls_saved": {str(row["stream"]): row["calls saved"] for row in best},
            "cpu_ratio_to_one_by_one": {
                str(row["stream"]): round(float(str(row["times one by one"])), 2) for row in best
            },
            "wall_ratio_generate_and_score": round(
                float(str(overlap[-1]["times one by one (wall)"])), 2
            ),
            "scores": "equal bit by bit in every way",
            "versions": versions("torch", "transformers"),
        },
    )


if __name__ == "__main__":
    main()
