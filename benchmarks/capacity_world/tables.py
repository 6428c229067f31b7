"""The tables of docs/scale.md, computed; a test compares the page with them."""

import re
from collections.abc import Callable, Mapping, Sequence

from benchmarks.capacity_world.gpus import (
    Gpu,
    Model,
    Traffic,
    decode_tokens_per_s,
    ppo_step,
    scoring_gpus,
    serving_gpus,
)
from benchmarks.capacity_world.people import CROWDS, Measured, load_of

Table = Sequence[Mapping[str, object]]

H100 = Gpu("H100", 989e12, 80e9, 3.35e12)  # SXM, dense; NVIDIA's data sheet
SMALL = Model("0.5 B", 0.5e9, 24 * 2 * 64 * 2 * 2)  # 24 layers, 2 heads of keys of 64 numbers
LARGE = Model("8 B", 8e9, 32 * 8 * 128 * 2 * 2)  # 32 layers, 8 heads of keys of 128 numbers
QUESTION = Traffic(100_000, prompt=300, answer=150)


def people(found: Measured) -> Table:
    """Crowds in their busiest hour, with runs beside them."""
    rows = []
    for crowd in CROWDS:
        for runs in (1, 100):
            load = load_of(found, crowd, runs)
            rows.append(
                {
                    "annotators": f"{crowd.annotators:,}",
                    "at once": f"{crowd.annotators * crowd.at_once:,.0f}",
                    "votes/s": _short(crowd.votes_per_s),
                    "runs at once": runs,
                    "web cores": _short(load.web_cores),
                    "event worker cores": _short(load.event_cores),
                    "PostgreSQL cores": _short(load.postgres_cores),
                    "log MB/s": _short(load.postgres_wal_mb_s),
                    "stored GB/day": _short(load.postgres_gb_day),
                    "Redis commands/s": f"{load.redis_commands_s:,.0f}",
                    "Redis cores": _short(load.redis_cores),
                }
            )
    return rows


def serving(_: Measured | None = None) -> Table:
    """GPUs for 100,000 requests a second, by what is on the path of a request."""
    rows = []
    for policy in (SMALL, LARGE):
        alone = serving_gpus(H100, policy, QUESTION)
        cached = Traffic(QUESTION.requests_per_s, QUESTION.prompt, QUESTION.answer, cached=0.37)
        ways = {
            "the policy alone (as DPO leaves it)": alone,
            "37 % of the answers from a cache": serving_gpus(H100, policy, cached),
            "and 1 % scored by an 8 B reward model, to watch": alone
            + scoring_gpus(H100, LARGE, QUESTION, share=0.01),
            "and every answer scored by a 0.5 B reward model": alone
            + scoring_gpus(H100, SMALL, QUESTION),
            "and every answer scored by an 8 B reward model": alone
            + scoring_gpus(H100, LARGE, QUESTION),
            "best of 4 by a 0.5 B reward model": best_of(4, policy, SMALL),
        }
        rows += [
            {
                "policy": policy.name,
                "on the path of a request": what,
                "GPUs": f"{count:,.0f}",
                "of the policy alone": f"{count / alone:.2f}",
            }
            for what, count in ways.items()
        ]
    return rows


def best_of(count: int, policy: Model, reward: Model) -> float:
    """GPUs that draw `count` answers to each request, the prompt read once, and score them all."""
    length = QUESTION.prompt + QUESTION.answer / 2
    once = Traffic(QUESTION.requests_per_s, QUESTION.prompt, 0)
    drawn = QUESTION.requests_per_s * count * QUESTION.answer
    return (
        serving_gpus(H100, policy, once)
        + drawn / decode_tokens_per_s(H100, policy, length)
        + count * scoring_gpus(H100, reward, QUESTION)
    )


def ppo(_: Measured | None = None) -> Table:
    """GPU seconds of a PPO step of 512 answers."""
    rows = []
    for policy, reward in ((SMALL, SMALL), (LARGE, SMALL), (LARGE, LARGE)):
        for epochs in (1, 4):
            step = ppo_step(
                H100, policy, reward, answers=512, prompt=300, answer=150, epochs=epochs
            )
            rows.append(
                {
                    "policy": policy.name,
                    "reward model": reward.name,
                    "epochs": epochs,
                    "generation s": _short(step.generation),
                    "look s": _short(step.look),
                    "reward s": _short(step.reward),
                    "update s": _short(step.update),
                    "all, GPU s": _short(step.whole),
                    "answers/s of one GPU": _short(512 / step.whole),
                }
            )
    return rows


TABLES: dict[str, Callable[[Measured], Table]] = {
    "Servers by annotators and runs": people,
    "GPUs for 100,000 requests a second": serving,
    "GPU seconds of a PPO step": ppo,
}


def marked(page: str, tables: Mapping[str, Table]) -> str:
    """`page` with each table between its marks, `<!-- table: TITLE -->` and `<!-- end -->`. Raises
    `ValueError` where a mark is missing."""
    for title, rows in tables.items():
        mark = f"<!-- table: {title} -->"
        pattern = re.compile(re.escape(mark) + r".*?<!-- end -->", re.DOTALL)
        if not pattern.search(page):
            raise ValueError(f"the page has no place for the table '{title}'")
        text = f"{mark}\n{markdown(rows)}\n<!-- end -->"
        page = pattern.sub(lambda _, text=text: text, page)
    return page


def markdown(rows: Table) -> str:
    """The rows as a table of Markdown."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(value: float) -> str:
    """Two digits that count, and no more."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value >= 0.01 else "< 0.01"
