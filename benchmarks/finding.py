"""Finding comparisons among a million: each search, filter and order, first page and last.

250,000 prompts of four answers each, words drawn by Zipf's law from 60,000, four pairs a prompt,
1.5 million votes (benchmarks/labeling_world/). Each line is what the page of comparisons asks of
the database for one list (50 rows and the count), and what a comparison's page asks for its
neighbours. The alternative is the search as one writes it first, `ILIKE` on the same texts, with
`order by … limit 50`. Median of three, in this process, on the embedded PostgreSQL as it comes.

Run: make bench B=finding [N]
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.report import print_report, versions
from benchmarks.site import site

N = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
PAIRS = ((0, 1), (1, 2), (0, 3), (2, 3))  # of the four answers of a prompt


def median_ms(work: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return round(1000 * statistics.median(seconds), 1)


def by_ilike(project: Any, search: str) -> int:
    """Each word anywhere in the prompt or an answer, newest first."""
    from django.db.models import Q

    from apps.labeling.models import Comparison

    rows = Comparison.objects.filter(project=project)
    for word in search.replace('"', "").split():
        rows = rows.filter(
            Q(prompt__brief__icontains=word)
            | Q(response_a__brief__icontains=word)
            | Q(response_b__brief__icontains=word)
        )
    return len(rows.order_by("-created_at", "-id").values_list("pk")[:50])


def main() -> None:
    with site():
        from datetime import date

        from apps.labeling.selectors import finding
        from apps.labeling.selectors.finding import SORTS, Wanted
        from benchmarks.labeling_world.build import Shape, project_build

        built = project_build("finding", N, Shape(answers=4, pairs=PAIRS, texts=True))
        project, words, somebody = built.project, built.words, built.crowd[9].pk
        common, usual, seldom, rare = (words[rank] for rank in (3, 60, 3_000, 30_000))
        searches = {
            "a common word": common,
            "a usual word": usual,
            "two usual words": f"{usual} {words[80]}",
            "a seldom word": seldom,
            "a rare word": rare,
            "a usual and a rare word": f"{usual} {rare}",
            "a prefix": usual[:3],
            "a phrase": f'"{common} {usual}"',
            "no such word": f"{common} nosuchword",
            "an id": f"q{N // 2}",
        }
        filters = {
            "nothing": Wanted(),
            "state": Wanted(state="contested"),
            "queue": Wanted(stratum="gold"),
            "decision": Wanted(winner="a"),
            "annotator": Wanted(annotator=somebody),
            "oldest import": Wanted(batch="import 0"),
            "topic": Wanted(topic="topic 3"),
            "model": Wanted(model="gpt-x"),
            "flag": Wanted(flag="unsafe"),
            "votes": Wanted(votes=3),
            "two days": Wanted(since=date(2026, 1, 5), until=date(2026, 1, 6)),
            "word, state and model": Wanted(search=usual, state="contested", model="gpt-x"),
            "word and annotator": Wanted(search=usual, annotator=somebody),
        }
        lists = {
            f"search: {name}": (Wanted(search=text), "-time") for name, text in searches.items()
        }
        lists |= {f"filter: {name}": (wanted, "-time") for name, wanted in filters.items()}
        for sort in (f"{sign}{name}" for name in SORTS for sign in ("", "-")):
            lists[f"order: {sort}"] = (Wanted(), sort)
            lists[f"order: {sort}, a usual word"] = (Wanted(search=usual), sort)
        rows, times, ratios = [], [], []
        for name, (wanted, sort) in lists.items():

            def page(at: str, wanted: Any = wanted, sort: str = sort) -> Any:
                return finding.comparisons_page(project=project, wanted=wanted, sort=sort, at=at)

            row = {"list": name, "first ms": median_ms(lambda page=page: page(""))}
            row["last ms"] = median_ms(lambda page=page: page("end"))
            found = page("")
            if found.rows:
                row["beside ms"] = median_ms(
                    lambda found=found, wanted=wanted, sort=sort: finding.comparisons_beside(
                        project=project, wanted=wanted, sort=sort, comparison=found.rows[-1]
                    )
                )
            row["found"] = found.n_words
            times += [value for key, value in row.items() if key.endswith(" ms")]
            if name.startswith("search") and name != "search: an id":
                row["ILIKE ms"] = median_ms(lambda text=wanted.search: by_ilike(project, text))
                ratios.append(row["ILIKE ms"] / row["first ms"])
            rows.append(row)
    print_report(
        f"Finding among {N:,} comparisons",
        rows,
        {
            "comparisons": N,
            "answers": len(times),
            "median_ms": statistics.median(times),
            "slowest_ms": max(times),
            "over_300_ms": sum(value > 300 for value in times),
            "documents_per_second": round(built.documents_per_second),
            "alternative": "ILIKE on prompt and answers, newest 50, without a count",
            "ratio": round(statistics.median(ratios), 2),
            "versions": versions("django", "psycopg"),
        },
    )


if __name__ == "__main__":
    main()
