"""A model of the voters from the database and back.

Timed are reading the votes, the whole of `consensus_refresh` (read the votes, fit, write the
annotators' matrices, write every posterior and decide again what moved) for a first fit and, after
1 % new votes, for a warm start; and one vote that is absorbed in its own transaction, beside the
same vote in a project that only counts. Django must be set up before `measure` is called.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

VOTES_TIMED = 150
T = TypeVar("T")


def measure(items: Any, people: Any, choices: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(rows of the table, figures) for these votes; items, people and choices are indices."""
    from django.db import connection

    from apps.agreement.selectors.slices import crowd_of
    from apps.agreement.services.consensus import consensus_refresh

    pairs, n_people = int(items.max()) + 1, int(people.max()) + 1
    project, users = project_build(pairs, n_people, items, people, choices)
    crowd, read_s = timed(lambda: crowd_of(project=project))
    assert len(crowd.votes) == len(items)
    first, whole_s = timed(lambda: consensus_refresh(project=project, method="dawid_skene"))
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from labeling_decision where posteriors is not null")
        assert cursor.fetchone()[0] == pairs
    added = votes_add(project, users, n=len(items) // 100)
    again, warm_s = timed(lambda: consensus_refresh(project=project, method="dawid_skene"))
    assert again.consensus.n_votes == len(items) + added
    plain_ms, absorbed_ms = one_vote(project)
    rows = [
        {"step": "read the votes from the database", "ours (s)": read_s},
        {"step": "from the database and back, first fit", "ours (s)": whole_s},
        {"step": "from the database and back, 1 % new votes", "ours (s)": warm_s},
        {"step": "one vote, counting", "ours (s)": plain_ms / 1e3},
        {"step": "one vote, absorbed into its posterior", "ours (s)": absorbed_ms / 1e3},
    ]
    return rows, {
        "database_read_s": round(read_s, 2),
        "database_and_back_s": round(whole_s, 2),
        "database_warm_s": round(warm_s, 2),
        "rows_written": first.redecided.written,
        "rows_written_warm": again.redecided.written,
        "vote_ms": round(plain_ms, 2),
        "absorbed_vote_ms": round(absorbed_ms, 2),
    }


def timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def project_build(
    pairs: int, n_people: int, items: Any, people: Any, choices: Any
) -> tuple[Any, list[int]]:
    """The rows that an import and its annotators leave behind, by COPY and SQL."""
    from django.db import connection

    from apps.accounts.models import Project, User
    from apps.labeling import services

    project = Project.objects.create(slug="crowd", name="Crowd")
    services.labeling_set_up(project=project)
    users = [
        user.pk
        for user in User.objects.bulk_create(
            [User(username=f"crowd-{k}", password="!") for k in range(n_people)]  # noqa: S106
        )
    ]
    values = {"project": project.pk, "n": pairs}
    with connection.cursor() as cursor:
        # Foreign keys and triggers are tested elsewhere; checking millions of rows proves nothing.
        cursor.execute("set session_replication_role = replica")
        cursor.execute("create temporary table cast_votes (item int, person bigint, choice text)")
        words = np.array(["a", "b", "tie"])[choices]
        with cursor.copy("copy cast_votes from stdin") as copy:
            for start in range(0, len(items), 50_000):
                part = slice(start, start + 50_000)
                copy.write(
                    "".join(
                        f"{i}\t{users[j]}\t{w}\n"
                        for i, j, w in zip(
                            items[part].tolist(), people[part].tolist(), words[part], strict=True
                        )
                    )
                )
        for statement in _ROWS:
            cursor.execute(statement, values)
        cursor.execute("set session_replication_role = default")
        cursor.execute("vacuum analyze")
    return project, users


def votes_add(project: Any, users: list[int], n: int) -> int:
    """One more vote each on n comparisons, by people who had none there."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("set session_replication_role = replica")
        cursor.execute(_MORE, {"project": project.pk, "n": n, "people": users})
        added = cursor.fetchone()[0]
        cursor.execute("set session_replication_role = default")
    return added


def one_vote(project: Any) -> tuple[float, float]:
    """Median milliseconds of a vote that is counted, and of one that is absorbed too."""
    from django.db import connection

    from apps.labeling import services
    from apps.labeling.models import Consensus
    from benchmarks.labeling_service import project_make

    medians = []
    for fitted in (False, True):
        small, (ana, ben), _ = project_make(f"votes-{fitted}", VOTES_TIMED + 20)
        if fitted:
            like = Consensus.objects.get(project=project)
            like.pk = small.pk
            like.save(force_insert=True)
        times = []
        for person in (ben, ana):
            lease = services.slot_lease_next(project=small, annotator=person)
            for _ in range(VOTES_TIMED):
                start = time.perf_counter()
                done = services.vote_cast(
                    slot=lease.slot, annotator=person, idempotency_key=lease.key, choice="a"
                )
                times.append(time.perf_counter() - start)
                lease = done.next
        with connection.cursor() as cursor:
            cursor.execute(
                "select count(*) from labeling_decision"
                " where project_id = %s and posteriors is not null",
                [small.pk],
            )
            assert (cursor.fetchone()[0] > 0) == fitted
        medians.append(1e3 * statistics.median(times[20:]))
    return medians[0], medians[1]


# How many votes a comparison has is 5 by construction.
_ROWS = (
    """
insert into labeling_prompt (project_id, messages, text_hash, group_key, topic, language, source,
                             licence, metadata, created_at, updated_at)
select %(project)s, '[]', md5('p' || i), md5('p' || i), 'topic', 'en', '', '', '{}', now(), now()
from generate_series(0, (%(n)s - 1) / 10) i
""",
    """
insert into labeling_response (prompt_id, messages, text_hash, origin, origin_ref, metadata,
                               created_at, updated_at)
select p.id, '[]', md5(p.id || '/' || k), 'import', '', '{}', now(), now()
from labeling_prompt p, generate_series(0, 4) k where p.project_id = %(project)s
""",
    """
insert into labeling_comparison (project_id, prompt_id, response_a_id, response_b_id, external_id,
  batch, state, stratum, priority, shuffle, overlap, gold, gold_explanation, review_reason, n_votes,
  created_at, updated_at)
select %(project)s, r.prompt_id, min(r.id), max(r.id), i::text, '', 'decided', 'random', 0,
       random(), 5, '', '', '', 5, now(), now()
from generate_series(0, %(n)s - 1) i
join (select p.id, row_number() over (order by p.id) - 1 as place from labeling_prompt p
      where p.project_id = %(project)s) q on q.place = i / 10
join labeling_response r on r.prompt_id = q.id
group by i, r.prompt_id
""",
    "create temporary table places as select id, external_id::int as item, response_a_id,"
    " response_b_id from labeling_comparison where project_id = %(project)s",
    """
insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                           topic, language, annotator_id, left_is)
select %(project)s, p.id, row_number() over (partition by p.id order by v.person), 'regular',
       'done', 0, 0, '', '', v.person, 'a'
from cast_votes v join places p on p.item = v.item
""",
    "create index on cast_votes (item, person)",
    """
insert into labeling_vote (project_id, comparison_id, slot_id, annotator_id, choice, chosen_id,
  left_is, criteria, reasons, rationale, flags, idempotency_key, source, revision, is_current,
  cast_at)
select %(project)s, p.id, s.id, s.annotator_id, v.choice,
       case v.choice when 'a' then p.response_a_id when 'b' then p.response_b_id end, 'a', '{}',
       '{}', '', '{}', 'k' || s.id, 'import', 1, true, now()
from labeling_slot s join places p on p.id = s.task_id
join cast_votes v on v.item = p.item and v.person = s.annotator_id
""",
    """
insert into labeling_decision (comparison_id, project_id, outcome, winner, n_a, n_b, n_tie,
  n_both_bad, n_agreeing, share, rule, reason, decided_by, created_at, updated_at)
select p.id, %(project)s,
       case when greatest(c.a, c.b, c.t) >= 3 then 'accepted' else 'contested' end,
       case when c.a >= 3 then 'a' when c.b >= 3 then 'b' when c.t >= 3 then 'tie' else '' end,
       c.a, c.b, c.t, 0, greatest(c.a, c.b, c.t), greatest(c.a, c.b, c.t) / 5.0,
       '{"least_votes": 3, "least_agreeing": 3, "least_share": 0.6, "max_votes": 5}', '', 'votes',
       now(), now()
from (select item, count(*) filter (where choice = 'a') as a,
             count(*) filter (where choice = 'b') as b,
             count(*) filter (where choice = 'tie') as t
      from cast_votes group by item) c
join places p on p.item = c.item
""",
)
_MORE = """
with chosen as (
  select c.id, c.response_a_id, c.response_b_id,
         (select u from unnest(%(people)s::bigint[]) u
          where not exists (select from labeling_slot s
                            where s.task_id = c.id and s.annotator_id = u) limit 1) as person
  from labeling_comparison c where c.project_id = %(project)s order by c.shuffle limit %(n)s
), placed as (
  insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                             topic, language, annotator_id, left_is)
  select %(project)s, id, 6, 'regular', 'done', 0, 0, '', '', person, 'a' from chosen
  returning id, task_id, annotator_id
), cast_now as (
  insert into labeling_vote (project_id, comparison_id, slot_id, annotator_id, choice, chosen_id,
    left_is, criteria, reasons, rationale, flags, idempotency_key, source, revision, is_current,
    cast_at)
  select %(project)s, s.task_id, s.id, s.annotator_id, 'a', c.response_a_id, 'a', '{}', '{}',
         '', '{}', 'k' || s.id, 'import', 1, true, now()
  from placed s join chosen c on c.id = s.task_id
  returning comparison_id
), counted as (
  update labeling_decision d set n_a = n_a + 1 from cast_now v
  where d.comparison_id = v.comparison_id returning d.comparison_id
)
select count(*) from counted
"""
