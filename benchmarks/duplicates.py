"""Families of near-duplicates among many prompts: seconds and peak memory.

Prompts by one template ("Question 123 about topic 7: …") and of random words, one in ten of which
is another with a word changed; 12 to 40 words each. The alternative is the list of all pairs
(`near_duplicates`), from which families can be read too. Each in a process of its own; memory is
what the process takes beyond the texts.

Run: make bench B=duplicates [N]
"""

import json
import random
import resource
import subprocess
import sys
import time

from benchmarks.report import print_report, versions
from measures.duplicates import near_duplicates, near_families

N = 40_000
TEMPLATE = (
    "which of the two answers says more clearly what speaks for and what speaks against the plan "
    "that was put before the council of the town this spring when nobody had yet asked"
)
COMMON = [f"word{k}" for k in range(3_000)]
WAYS = {
    "families": near_families,
    "pairs": lambda texts: near_duplicates(texts).family,
}


def templated(n: int) -> list[str]:
    words = TEMPLATE.split()
    return [
        " ".join([f"Question {k} about topic {k % 97}:", *words[: 7 + k % 29]]) for k in range(n)
    ]


def drawn(n: int) -> list[str]:
    rng = random.Random(7)
    texts = [" ".join(rng.choices(COMMON, k=rng.randint(12, 40))) for _ in range(n)]
    for k in range(10, n, 10):
        words = texts[k - 1].split()
        words[rng.randrange(len(words))] = "changed"
        texts[k] = " ".join(words)
    return texts


KINDS = {"one template": templated, "random words": drawn}


def measure(kind: str, way: str, n: int) -> dict[str, object]:
    texts = KINDS[kind](n)
    WAYS[way](texts[:10])  # what is loaded once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    family = WAYS[way](texts)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "prompts": kind,
        "way": way,
        "CPU s": round(seconds, 1),
        "MB": round(peak / 1024),
        "families": len(set(family.tolist())),
    }


def apart(kind: str, way: str, n: int) -> dict[str, object]:
    asked = [sys.executable, "-m", "benchmarks.duplicates", "--one", kind, way, str(n)]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
        return
    n = int(sys.argv[1]) if len(sys.argv) > 1 else N
    rows = [apart(kind, way, n) for kind in KINDS for way in WAYS]
    summary = {"n": n, "rows": rows, "versions": versions("numpy", "scipy")}
    print_report(f"Families of near-duplicates among {n:,} prompts", rows, summary)


if __name__ == "__main__":
    main()
