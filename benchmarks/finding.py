"""Finding comparisons among a million: each search, filter and order, first page and last.

250,000 prompts of four answers each, words drawn by Zipf's law from 60,000, four pairs a prompt,
two million votes. Each line is what the page of comparisons asks of the database for one list (50
rows and the count), and what a comparison's page asks for its neighbours. The alternative is the
search as one writes it first, `ILIKE` on the same texts, with `order by … limit 50`. Median of
three, in this process, on the embedded PostgreSQL as it comes.

Run: make bench B=finding [N]
"""

import json
import random
import statistics
import sys
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from benchmarks.report import print_report, versions
from benchmarks.site import site

N = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
WORDS = 60_000
PEOPLE = 200
MODELS = ["gpt-x", "llama-y", "mistral-z", "our-sft", "our-ppo", "baseline"]
_SYLLABLES = [a + b for a in (*"bcdfghklmnprstvw", "st", "tr") for b in "aeiou"]


def vocabulary(draw: random.Random) -> list[str]:
    """Short words first, as languages have it."""
    found: dict[str, None] = {}
    while len(found) < WORDS:
        found.setdefault("".join(draw.choices(_SYLLABLES, k=2 + int(draw.random() * 4))))
    return sorted(found, key=lambda word: len(word) + 1.5 * draw.gauss(0, 1))


def texts(draw: random.Random, words: list[str], mean: int) -> Iterator[str]:
    weights = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))
    pool = [words[bisect(weights, draw.random() * weights[-1])] for _ in range(2_000_000)]
    while True:
        length, start = draw.randint(mean // 2, mean * 3 // 2), draw.randrange(len(pool) - 2 * mean)
        yield " ".join(pool[start : start + length])


def build(project: Any) -> tuple[list[str], float]:
    """The words by rank, and how many search documents a second were written."""
    from django.db import connection

    from apps.accounts.models import Membership, User

    draw = random.Random(1)
    words = vocabulary(draw)
    questions, answers = texts(draw, words, 16), texts(draw, words, 60)
    people = [User.objects.create(username=f"f-{n}", password="!") for n in range(PEOPLE)]  # noqa: S106
    Membership.objects.bulk_create(
        Membership(project=project, user=user, role="annotator") for user in people
    )
    stamp = "2026-01-01"

    def said(role: str, text: str) -> str:
        return json.dumps([{"role": role, "content": text}])

    with connection.cursor() as cursor:
        cursor.execute("set session_replication_role = replica")
        with cursor.copy(
            "copy labeling_prompt (id, project_id, messages, text_hash, group_key, topic, language,"
            " source, licence, metadata, created_at, updated_at) from stdin"
        ) as copy:
            for n in range(1, N // 4 + 1):
                row = (n, project.pk, said("user", next(questions)), n, n, f"topic {n % 40}")
                copy.write_row((*row, "en", "", "", "{}", stamp, stamp))
        with cursor.copy(
            "copy labeling_response (id, prompt_id, messages, text_hash, origin, origin_ref,"
            " metadata, created_at, updated_at) from stdin"
        ) as copy:
            for n in range(1, N + 1):
                row = (n, (n + 3) // 4, said("assistant", next(answers)), n, "model")
                copy.write_row((*row, draw.choice(MODELS), "{}", stamp, stamp))
        values = {"project": project.pk, "n": N, "first": people[0].pk, "people": PEOPLE}
        for statement in (_COMPARISONS, _SLOTS, _VOTES, _DECISIONS):
            cursor.execute(statement, values)
        # As a restore would: the index of words once all of them are there.
        cursor.execute("drop index search_words")
        began = time.perf_counter()
        for first in range(1, N + 1, 10_000):
            cursor.execute(
                "select concord_comparisons_index(array(select generate_series(%s::int, %s::int)))",
                [first, min(first + 9_999, N)],
            )
        rate = N / (time.perf_counter() - began)
        cursor.execute("set maintenance_work_mem = '512MB'")
        cursor.execute("create index search_words on labeling_searchdocument using gin (document)")
        cursor.execute("set session_replication_role = default")
        cursor.execute("vacuum analyze")
    return words, rate


_COMPARISONS = """
insert into labeling_comparison (id, project_id, prompt_id, response_a_id, response_b_id,
  external_id, batch, state, stratum, priority, shuffle, overlap, gold, gold_explanation,
  review_reason, n_votes, created_at, updated_at)
select 4 * (p - 1) + k, %(project)s, p, 4 * (p - 1) + (array[1, 2, 1, 3])[k],
       4 * (p - 1) + (array[2, 3, 4, 4])[k], 'q' || 4 * (p - 1) + k, 'import ' || p * 40 / %(n)s,
       case when r < .5 then 'open' when r < .9 then 'decided' when r < .97 then 'contested'
            when r < .99 then 'review' else 'dropped' end,
       case when s < .97 then 'random' when s < .99 then 'priority' else 'gold' end,
       case when s >= .97 then s else 0 end, random(), 3, '', '', '',
       case when r < .5 then (4 * r)::int else 3 end,
       timestamptz '2026-01-01' + p * interval '60 seconds', now()
from generate_series(1, %(n)s / 4) p, generate_series(1, 4) k,
     lateral (select random() as r, random() as s, p + k) draws
"""
_SLOTS = """
insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                           topic, language, annotator_id, leased_at, left_is)
select %(project)s, c.id, k, 'regular', case when k <= n_votes then 'done' else 'free' end,
       c.priority, c.shuffle, 'topic ' || (c.id / 4) %% 40, 'en',
       case when k <= n_votes then %(first)s + (c.id + k * 67) %% %(people)s end,
       case when k <= n_votes then now() end, case when k <= n_votes then 'a' else '' end
from labeling_comparison c, generate_series(1, 3) k
"""
_VOTES = """
insert into labeling_vote (project_id, comparison_id, slot_id, annotator_id, choice, chosen_id,
  left_is, criteria, reasons, rationale, flags, idempotency_key, source, revision, is_current,
  cast_at)
select %(project)s, s.task_id, s.id, s.annotator_id, 'a', c.response_a_id, 'a', '{}', '{}',
       '', case when s.id %% 200 = 0 then '{unsafe}'::text[] else '{}' end, s.id::text, 'page', 1,
       true, now() - s.shuffle * interval '30 days'
from labeling_slot s join labeling_comparison c on c.id = s.task_id where s.state = 'done'
"""
_DECISIONS = """
insert into labeling_decision (comparison_id, project_id, outcome, winner, n_a, n_b, n_tie,
  n_both_bad, n_agreeing, share, rule, reason, created_at, updated_at)
select id, %(project)s, case state when 'decided' then 'accepted' else 'needs_votes' end,
       case state when 'decided' then 'a' else '' end, n_votes, 0, 0, 0, n_votes, 1, '{}', '',
       now(), now()
from labeling_comparison where n_votes > 0
"""


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
            Q(prompt__messages__icontains=word)
            | Q(response_a__messages__icontains=word)
            | Q(response_b__messages__icontains=word)
        )
    return len(rows.order_by("-created_at", "-id").values_list("pk")[:50])


def main() -> None:
    with site():
        from datetime import date

        from apps.accounts.models import Project, User
        from apps.labeling import services
        from apps.labeling.selectors import finding
        from apps.labeling.selectors.finding import SORTS, Wanted

        project = Project.objects.create(slug="finding", name="Finding")
        services.labeling_set_up(project=project)
        words, rate = build(project)
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
            "annotator": Wanted(annotator=User.objects.get(username="f-9").pk),
            "oldest import": Wanted(batch="import 0"),
            "topic": Wanted(topic="topic 3"),
            "model": Wanted(model="gpt-x"),
            "flag": Wanted(flag="unsafe"),
            "votes": Wanted(votes=2),
            "two days": Wanted(since=date(2026, 1, 5), until=date(2026, 1, 6)),
            "word, state and model": Wanted(search=usual, state="contested", model="gpt-x"),
            "word and annotator": Wanted(
                search=usual, annotator=User.objects.get(username="f-9").pk
            ),
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
            "documents_per_second": round(rate),
            "alternative": "ILIKE on prompt and answers, newest 50, without a count",
            "ratio": round(statistics.median(ratios), 2),
            "versions": versions("django", "psycopg"),
        },
    )


if __name__ == "__main__":
    main()
