"""What actors and the relay cost and bring: rollouts, broadcast, scoring pool, supervised run.

Four parts, each beside its alternative in the same run:

    rollouts    the same chunks drawn in this process, by one Ray actor and by two, in turns; the
                answers are compared, token for token
    broadcast   weights of three sizes put into the object store and loaded by an actor, beside
                a file of safetensors written and read (in the same temporary folder)
    scoring     the same texts scored inline, and by a pool of two actors
    relay       a drill of many steps and metrics as a bare trainer, and under the supervisor, which
                relays its events to a Redis that acknowledges at once

Models are untrained: only their sizes matter. One thread a process. Actors are started before the
clock; what starting takes is told apart. On a machine of few cores, actors and this process share
them, and two actors cannot be twice as fast as one on what else is going on.

Starts PostgreSQL and Redis (for the relay) and a Ray cluster of its own in temporary folders.
Run: python -m benchmarks.scale [quick]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from benchmarks.report import print_report, print_table, versions
from benchmarks.site import site
from workers.artifacts import Store
from workers.contract import JobSpec, Limits, spec_to_json, wire
from workers.contract.jobs import InputRef
from workers.data.batches import encode_prompt
from workers.models.loading import load_scorer, load_tokenizer, save_model
from workers.ppo.async_rollout import RayDrawer, size_of, trained
from workers.ray.cluster import Cluster
from workers.ray.pool import RayReward
from workers.rewards.model import ModelReward
from workers.rollouts.drawing import Chunk, Drawer, LocalDrawer, chunks_of
from workers.rollouts.local import Sampling
from workers.supervisor import Supervisor
from workers.supervisor.connection import Line
from workers.trainers.sft import BaseShape, build_model, train_tokenizer

QUICK = "quick" in sys.argv[1:]
ANSWERS, CHUNK, TOKENS = (32, 8, 16) if QUICK else (128, 16, 48)
REPEATS = 2 if QUICK else 5
POLICY = BaseShape(vocabulary=600, width=256, layers=4, heads=4, context=128)
SCORER = BaseShape(vocabulary=600, width=192, layers=3, heads=4, context=128)
WIDTHS = (64, 256) if QUICK else (128, 512, 1024)
TEXTS = 64 if QUICK else 256
STEPS, METRICS = (200, 20) if QUICK else (2000, 20)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="concord-bench-") as name:
        folder = Path(name)
        tokenizer, spec = prepared(folder)
        began = time.perf_counter()
        cluster = Cluster.open(folder / "work", actors=2, store=2**29)
        cluster_s = time.perf_counter() - began
        try:
            rollouts, actor_s = drawn(cluster, tokenizer)
            broadcast = broadcasts(cluster, tokenizer, folder)
            scoring = scored(cluster, spec, folder)
        finally:
            cluster.close()
    with site() as var:
        relayed = relay(var)
    print_table("Rollouts", rollouts)
    print_table("Broadcast of weights", broadcast)
    print_table("Scoring", scoring)
    print_report(
        "scale",
        relayed,
        {
            "answers": ANSWERS,
            "new_tokens": TOKENS,
            "rollouts_per_s": {row["who"]: row["answers/s"] for row in rollouts},
            "two_actors_over_local": ratio(rollouts, "answers/s", 2, 0),
            "two_actors_over_one": ratio(rollouts, "answers/s", 2, 1),
            "broadcast_over_file": [row["of the file's"] for row in broadcast],
            "pool_over_inline": ratio(scoring, "texts/s", 1, 0),
            "supervised_over_bare_wall": ratio(relayed, "wall s", 1, 0),
            "start_cluster_s": round(cluster_s, 2),
            "start_two_actors_s": round(actor_s, 2),
            "quick": QUICK,
            "versions": versions("ray", "torch", "transformers"),
        },
    )


def ratio(rows: Sequence[dict[str, Any]], name: str, over: int, under: int) -> float:
    return round(rows[over][name] / rows[under][name], 3)


def timed(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def prepared(folder: Path) -> tuple[Any, JobSpec]:
    """The tokenizer of all models, and a job whose reward is a model in the store."""
    words = [f"word{i} says a thing about number {i * 7}" for i in range(400)]
    tokenizer = train_tokenizer(words, vocabulary=POLICY.vocabulary, context=POLICY.context)
    save_model(build_model(tokenizer, SCORER, seed=1), tokenizer, folder / "base")
    torch.manual_seed(1)
    save_model(load_scorer(folder / "base", tokenizer), tokenizer, folder / "scorer")
    (folder / "work").mkdir()
    url = str(folder / "store")
    sha256, _ = Store(url).put_tree(folder / "scorer", "inputs/reward")
    reward = InputRef("reward", "checkpoint", "reward", "inputs/reward", sha256)
    spec = JobSpec(
        run="scale",
        attempt=1,
        kind="ppo",
        project="benchmark",
        seed=0,
        artifacts_url=url,
        inputs=(reward,),
    )
    return load_tokenizer(folder / "scorer"), spec


def asked(i: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"word{i} says a thing about number {i}"}]


def drawn(cluster: Cluster, tokenizer: Any) -> tuple[list[dict[str, Any]], float]:
    policy = build_model(tokenizer, POLICY, seed=0).eval()
    messages = [asked(i) for i in range(ANSWERS)]
    ids = [encode_prompt(tokenizer, each) for each in messages]
    chunks = chunks_of(messages, ids, Sampling(TOKENS, seed=1), CHUNK)
    two_began = time.perf_counter()
    two = RayDrawer(cluster, policy, tokenizer, (tokenizer.eos_token_id,), workers=2)
    two_s = time.perf_counter() - two_began
    sides: dict[str, Drawer] = {
        "here": LocalDrawer(policy, tokenizer, (tokenizer.eos_token_id,)),
        "one actor": One(two),
        "two actors": two,
    }
    seen: dict[str, list[float]] = {who: [] for who in sides}
    answers: dict[str, list[torch.Tensor]] = {}
    for turn in range(REPEATS + 1):
        for who, drawer in sides.items():
            began = time.perf_counter()
            got = list(drawer.draw(chunks, version=0))
            if turn:  # nothing is timed cold
                seen[who].append(time.perf_counter() - began)
            answers[who] = [one.responses.response_ids for one in got]
    for who in sides:
        assert all(map(torch.equal, answers["here"], answers[who])), who
    two.close()
    rows = []
    for who, seconds in seen.items():
        middle = statistics.median(seconds)
        rows.append(
            {
                "who": who,
                "answers/s": ANSWERS / middle,
                "seconds": middle,
                "fastest": min(seconds),
                "of here": statistics.median(seen["here"]) / middle,
            }
        )
    return rows, two_s


class One:
    """The first actor of two alone, so that both are the same processes."""

    def __init__(self, drawer: RayDrawer) -> None:
        self.drawer = drawer

    def draw(self, chunks: Sequence[Chunk], *, version: int) -> Any:
        actors, self.drawer.pool.actors = self.drawer.pool.actors, self.drawer.pool.actors[:1]
        try:
            yield from self.drawer.draw(chunks, version=version)
        finally:
            self.drawer.pool.actors = actors


def broadcasts(cluster: Cluster, tokenizer: Any, folder: Path) -> list[dict[str, Any]]:
    rows = []
    for width in WIDTHS:
        shape = BaseShape(vocabulary=600, width=width, layers=8, heads=4, context=128)
        policy = build_model(tokenizer, shape, seed=0).eval()
        drawer = RayDrawer(cluster, policy, tokenizer, (tokenizer.eos_token_id,), workers=1)
        chunk = chunks_of([asked(0)], [encode_prompt(tokenizer, asked(0))], Sampling(1, seed=0))
        put, load, file = [], [], []
        for version in range(REPEATS + 1):
            list(drawer.draw(chunk, version=version))
            put.append(drawer.put_s)
            load.append(drawer.load_s)
            file.append(timed(lambda policy=policy: by_file(policy, folder / "weights")))
        drawer.close()
        size = size_of(trained(policy).values()) / 2**20
        middle = [statistics.median(each[1:]) for each in (put, load, file)]
        rows.append(
            {
                "MiB": round(size, 1),
                "put s": middle[0],
                "load s": middle[1],
                "both s": middle[0] + middle[1],
                "MiB/s": size / (middle[0] + middle[1]),
                "file s": middle[2],
                "of the file's": round((middle[0] + middle[1]) / middle[2], 3),
            }
        )
    return rows


def by_file(policy: torch.nn.Module, path: Path) -> None:
    """What a checkpoint folder between two processes would take."""
    save_file({name: p.detach().clone() for name, p in trained(policy).items()}, path)
    for name, tensor in load_file(path).items():
        policy.get_parameter(name).data.copy_(tensor)


def scored(cluster: Cluster, spec: JobSpec, folder: Path) -> list[dict[str, Any]]:
    inline = ModelReward(folder / "scorer", batch_size=32)
    reward = {"type": "model", "cache": False}
    pool = RayReward(cluster, spec, reward, workers=2, batch_size=32)
    prompts = [asked(i) for i in range(TEXTS)]
    texts = [" ".join(f"word{(i * 7 + j) % 400}" for j in range(12)) for i in range(TEXTS)]
    sides: dict[str, Any] = {"inline": inline, "pool of two": pool}
    seen: dict[str, list[float]] = {who: [] for who in sides}
    values = {}
    for turn in range(REPEATS + 1):
        for who, source in sides.items():
            began = time.perf_counter()
            values[who] = source.score(prompts, texts).values
            if turn:
                seen[who].append(time.perf_counter() - began)
    assert values["inline"] == values["pool of two"]
    pool.close()
    return [
        {"who": who, "texts/s": TEXTS / statistics.median(s), "seconds": statistics.median(s)}
        for who, s in seen.items()
    ]


class Answering(Line):
    """A web side that acknowledges whatever comes, at once."""

    sent = 0

    def send(self, batch: dict[str, Any]) -> bool:
        json.dumps(batch)  # as the broker would
        if batch["events"]:
            self.sent = batch["events"][-1]["seq"]
            self.redis.set(wire.ack_key(batch["run"], batch["attempt"]), self.sent)
        return True


def relay(var: Path) -> list[dict[str, Any]]:
    """Medians of as many runs of each kind, in turns. Wall seconds include a trainer's start."""
    sides = {"bare trainer": bare, "supervised": supervised}
    seen: dict[str, list[tuple[float, float]]] = {who: [] for who in sides}
    for turn in range(3):
        for who, run in sides.items():
            cpu, began = used(), time.perf_counter()
            run(drill(var, f"{who.split()[0]}-{turn}"), var)
            seen[who].append((time.perf_counter() - began, used() - cpu))
    return [
        {
            "who": who,
            "wall s": statistics.median(wall for wall, _ in runs),
            "CPU s": statistics.median(cpu for _, cpu in runs),
            "points": STEPS * METRICS,
        }
        for who, runs in seen.items()
    ]


def used() -> float:
    """CPU seconds of this process and of the children that ended."""
    told = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in told)


def drill(var: Path, run: str) -> JobSpec:
    return JobSpec(
        run=run,
        attempt=1,
        kind="drill",
        project="benchmark",
        seed=0,
        artifacts_url=str(var / "artifacts"),
        config={
            "steps": STEPS,
            "step_seconds": 0.002,
            "metrics_per_step": METRICS,
            "checkpoint_every": STEPS,
        },
        limits=Limits(max_s=600),
    )


def bare(spec: JobSpec, var: Path) -> None:
    folder = var / "bare" / spec.run
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(spec_to_json(spec)))
    argv = [sys.executable, "-m", "workers.train", str(folder / "job.json")]
    subprocess.run(argv, stdin=subprocess.DEVNULL, check=True)


def supervised(spec: JobSpec, var: Path) -> None:
    with contextlib.closing(Answering(os.environ["REDIS_URL"])) as line:
        done = Supervisor(spec, line=line, work=var / "work", created_at=time.time()).run()
        assert done == "done", done


if __name__ == "__main__":
    main()
