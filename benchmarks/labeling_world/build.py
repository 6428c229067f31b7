"""A project in the middle of its work, of any size, made by SQL in the database.

Rows are those an import and a few hundred annotators leave behind: so much of the queue is voted on
in the order it is handed out, every twentieth voted comparison waits for an extra vote, as many are
contested, in review or dropped, some of the rest has a priority, some pairs are gold. People differ
on some of what is decided. Texts are short unless they are asked for: what is handed out is read by
key, so text length does not change what is searched. Django must be set up before this is imported.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django.contrib.auth.hashers import make_password
from django.db import connection
from django.db.backends.utils import CursorWrapper

from apps.accounts.models import Membership, Project, User
from apps.labeling import services
from apps.labeling.models import Annotator, Guideline, LabelingSettings
from benchmarks.labeling_world.texts import MODELS, TOPICS, prompts_copy

HISTORY = 3000  # votes of the one with a long history
MANY = 100_000  # votes from which on indexes are made afterwards, as a restore does
_INDEXED = ("labeling_answer", "labeling_slot", "labeling_task", "labeling_searchdocument")
_PART = 10_000  # comparisons whose words are written at once


@dataclass(frozen=True, slots=True)
class Shape:
    """What there is of everything.

    answers, pairs: of a prompt, and which two of them are compared; overlap: votes of a comparison;
    voted: share of the comparisons that have theirs; crowd: people who cast them; texts: of the
    length of real ones, and searched; password: the crowd's, none: they cannot sign in.
    """

    answers: int = 5
    pairs: Sequence[tuple[int, int]] = tuple((a, b) for a in range(5) for b in range(a + 1, 5))
    overlap: int = 3
    voted: float = 0.5
    crowd: int = 200
    texts: bool = False
    password: str = ""


@dataclass(frozen=True, slots=True)
class Built:
    """The project and two who label in it: one who has just come, one who has been here long; the
    words of its texts by rank, and how many search documents a second were written."""

    project: Project
    new: User
    long: User
    crowd: Sequence[User]
    words: Sequence[str]
    documents_per_second: float


def project_build(slug: str, n: int, shape: Shape | None = None) -> Built:
    """n comparisons; n is a multiple of the pairs of a prompt."""
    shape = shape or Shape()
    project = Project.objects.create(slug=slug, name=slug)
    services.labeling_set_up(project=project)
    LabelingSettings.objects.filter(project=project).update(
        overlap=shape.overlap, max_overlap=shape.overlap + 2
    )
    # One hash for all: hashing is slow on purpose.
    password = make_password(shape.password) if shape.password else "!"
    crowd = User.objects.bulk_create(
        User(username=f"{slug}-{number}", password=password) for number in range(shape.crowd)
    )
    new, long = (User.objects.create(username=f"{slug}-{name}") for name in ("new", "long"))
    roles = {new.pk: "admin", long.pk: "admin"}  # reviewers and admins get audit re-votes too
    Membership.objects.bulk_create(
        Membership(project=project, user=user, role=roles.get(user.pk, "annotator"))
        for user in (*crowd, new, long)
    )
    version = Guideline.objects.get(project=project).version
    Annotator.objects.bulk_create(
        Annotator(project=project, user=user, acknowledged_version=version)
        for user in (*crowd, new, long)
    )
    values = {
        "project": project.pk,
        "n": n,
        "prompts": n // len(shape.pairs),
        "answers": shape.answers,
        "overlap": shape.overlap,
        "first_of_crowd": crowd[0].pk,
        "crowd": shape.crowd,
        "long": long.pk,
        "history": HISTORY,
        "voted": shape.voted,
        "topics": TOPICS,
        "models": MODELS,
        "pairs": str([list(pair) for pair in shape.pairs]).translate(str.maketrans("[]", "{}")),
    }
    words: Sequence[str] = ()
    rate = 0.0
    with connection.cursor() as cursor, _in_bulk(cursor, n * shape.overlap):
        if shape.texts:
            words = prompts_copy(cursor, project.pk, values["prompts"], shape.answers)
        else:
            for statement in (_PROMPTS, _RESPONSES):
                cursor.execute(statement, values)
        for statement in (_COMPARISONS, _SLOTS, _VOTES, _DECISIONS):
            cursor.execute(statement, values)
        if shape.texts:
            rate = _words_write(cursor, project.pk)
    with connection.cursor() as cursor:
        cursor.execute("vacuum analyze")
    return Built(project, new, long, crowd, words, rate)


@contextmanager
def _in_bulk(cursor: CursorWrapper, votes: int) -> Iterator[None]:
    """Past triggers and foreign keys: they were tested elsewhere, checking ten million rows is not
    the point here, and nothing below breaks them. Indexes of many rows are made once all are in."""
    cursor.execute("set session_replication_role = replica; set synchronous_commit = off")
    later = []
    if votes >= MANY:
        cursor.execute(
            "select indexrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index i"
            " where indrelid = any(%s::regclass[]) and not exists"
            " (select from pg_constraint where conindid = i.indexrelid)",
            [list(_INDEXED)],
        )
        later = cursor.fetchall()
        cursor.execute(f"drop index {', '.join(name for name, _ in later)}")
    yield
    cursor.execute("set maintenance_work_mem = '1GB'")
    for _, definition in later:
        cursor.execute(definition)
    cursor.execute("reset maintenance_work_mem; reset synchronous_commit")
    cursor.execute("set session_replication_role = default")


def _words_write(cursor: CursorWrapper, project: str) -> float:
    """The search documents of all comparisons, as a worker writes them; how many a second."""
    cursor.execute(
        "select min(id), max(id), count(*) from labeling_comparison where project_id = %s",
        [project],
    )
    first, last, n = cursor.fetchone()
    began = time.perf_counter()
    for start in range(first, last + 1, _PART):
        cursor.execute(
            "select concord_comparisons_index(array(select id from labeling_comparison"
            " where project_id = %s and id >= %s and id < %s))",
            [project, start, start + _PART],
        )
    return n / (time.perf_counter() - began)


_PROMPTS = """
insert into labeling_prompt (project_id, messages, text_hash, group_key, topic, language, source,
                             licence, metadata, created_at, updated_at)
select %(project)s,
       jsonb_build_array(jsonb_build_object('role', 'user', 'content', 'Question ' || i)),
       md5(%(project)s || i), md5(%(project)s || i), 'topic ' || i %% %(topics)s, 'en', 'benchmark',
       '', '{}', now(), now()
from generate_series(1, %(prompts)s) i
"""
_RESPONSES = """
insert into labeling_response (prompt_id, messages, text_hash, origin, origin_ref, metadata,
                               created_at, updated_at)
select p.id, jsonb_build_array(jsonb_build_object('role', 'assistant', 'content',
         'Answer ' || k || ' to ' || p.id)), md5(p.id || '/' || k), 'model',
       (%(models)s::text[])[1 + k %% cardinality(%(models)s::text[])], '{}', now(), now()
from labeling_prompt p, generate_series(1, %(answers)s) k where p.project_id = %(project)s
"""
# What becomes of a voted comparison, by its place in the shuffled order: a twentieth is split and
# waits for an extra vote, another one is split for good (contested, review, dropped); of the rest
# up to three in ten differ from what most say.
_FATE = """
cross join lateral (select c.shuffle < %(voted)s as voted,
                           (c.shuffle * 100000)::numeric %% 1 as fate) fates
cross join lateral (select voted and fate < 0.05 as extra, voted and fate < 0.10 as split,
                           case when c.id %% 50 = 7 then 'tie' when c.id %% 2 = 0 then 'a'
                                else 'b' end as truth,
                           %(overlap)s - case when fate < 0.10 then 0 else
                             floor(0.3 * %(overlap)s * fate * fate * fate)::int end as agreeing
                   ) said
"""
_COMPARISONS = f"""
with answers as (
  select prompt_id, array_agg(r.id order by r.id) as ids
  from labeling_response r join labeling_prompt p on p.id = r.prompt_id
  where p.project_id = %(project)s group by prompt_id
), drawn as materialized (
  select nextval(pg_get_serial_sequence('labeling_task', 'id')) as id, c.*
  from (
    select a.prompt_id, a.ids[(%(pairs)s::int[][])[k][1] + 1] as a,
           a.ids[(%(pairs)s::int[][])[k][2] + 1] as b,
           random() as shuffle, random() as luck, random() as priority,
           row_number() over (order by a.prompt_id, k) as number
    from answers a, generate_series(1, array_length(%(pairs)s::int[][], 1)) k
    order by a.prompt_id, k) c
)
insert into labeling_comparison (id, project_id, prompt_id, response_a_id, response_b_id,
  external_id, batch, state, stratum, priority, shuffle, overlap, gold, gold_explanation,
  review_reason, warning, n_votes, created_at, updated_at)
select c.id, %(project)s, prompt_id, a, b, 'q' || number, 'import ' || number * 40 / (%(n)s + 1),
       case when not voted or extra then 'open' when fate < 0.08 then 'contested'
            when fate < 0.09 then 'review' when fate < 0.10 then 'dropped' else 'decided' end,
       case when luck > 0.99 then 'gold' when luck > 0.97 then 'priority' else 'random' end,
       case when luck > 0.97 and luck <= 0.99 then priority else 0 end,
       shuffle, %(overlap)s + extra::int, case when luck > 0.99 then truth else '' end, '', '', '',
       case when voted then %(overlap)s else 0 end,
       timestamptz '2026-01-01' + number * interval '15 seconds', now()
from drawn c {_FATE}
"""  # noqa: S608
# A split comparison that waits has a free extra slot with a priority. The one with the long history
# took the second slot of the last comparisons that were voted on.
_SLOTS = """
with ordered as (
  select c.*, p.topic, p.language,
         row_number() over (order by c.shuffle >= %(voted)s, c.shuffle desc) as back
  from labeling_comparison c join labeling_prompt p on p.id = c.prompt_id
  where c.project_id = %(project)s
)
insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                           topic, language, annotator_id, leased_at, leased_until, left_is)
select %(project)s, c.id, k, 'regular', case when done then 'done' else 'free' end,
       case when k > %(overlap)s then c.priority + 1 else c.priority end, c.shuffle, c.topic,
       c.language,
       case when done then case when k = 2 and c.back <= %(history)s then %(long)s
            else %(first_of_crowd)s + (c.id + k * 67) %% %(crowd)s end end,
       case when done then now() - interval '1 day' end, null,
       case when done then case when (c.id + k) %% 2 = 0 then 'a' else 'b' end else '' end
from ordered c cross join lateral generate_series(1, c.overlap) k
cross join lateral (select c.shuffle < %(voted)s and k <= %(overlap)s) v(done)
order by c.id, k
"""
# In the order in which the queue was handed out, as votes come.
_VOTES = f"""
insert into labeling_vote (project_id, comparison_id, slot_id, annotator_id, choice, chosen_id,
  left_is, criteria, reasons, rationale, flags, guideline_id, active_ms, wall_ms, idempotency_key,
  source, revision, is_current, cast_at)
select %(project)s, c.id, s.id, s.annotator_id, choice,
       case choice when 'a' then c.response_a_id when 'b' then c.response_b_id end,
       s.left_is, '{{}}', '{{}}', '',
       case when s.id %% 200 = 0 then '{{unsafe}}'::text[] else '{{}}' end, g.id,
       2000 + (hashint8(s.id) & 16383), 3000 + (hashint8(s.id) & 16383), md5(s.id::text), 'page', 1,
       true, now() - interval '200 days' + s.shuffle * interval '199 days'
from labeling_slot s join labeling_comparison c on c.id = s.task_id
join labeling_guideline g on g.project_id = s.project_id
{_FATE}
cross join lateral (select case
  when split then (array['a', 'b', 'tie'])[1 + (s.position - 1) %% 3]
  when s.position <= agreeing then truth
  when s.position %% 3 = 0 then 'tie' when truth = 'a' then 'b' else 'a' end) v(choice)
where s.project_id = %(project)s and s.state = 'done'
order by s.shuffle
"""  # noqa: S608
_DECISIONS = """
insert into labeling_decision (comparison_id, project_id, outcome, winner, n_a, n_b, n_tie,
  n_both_bad, n_agreeing, share, rule, reason, created_at, updated_at)
select c.id, %(project)s,
       case c.state when 'open' then 'needs_votes' when 'decided' then 'accepted'
            when 'contested' then 'contested' when 'review' then 'needs_review'
            else 'dropped' end,
       case c.state when 'decided' then case greatest(n_a, n_b, n_tie) when n_a then 'a'
            when n_b then 'b' else 'tie' end else '' end,
       n_a, n_b, n_tie, 0, greatest(n_a, n_b, n_tie),
       greatest(n_a, n_b, n_tie) / c.n_votes::float, r.rule, '', now(), now()
from labeling_comparison c
join (select comparison_id, count(*) filter (where choice = 'a') as n_a,
             count(*) filter (where choice = 'b') as n_b,
             count(*) filter (where choice = 'tie') as n_tie
      from labeling_vote where project_id = %(project)s group by comparison_id
     ) v on v.comparison_id = c.id
cross join (select jsonb_build_object('least_votes', least_votes, 'least_agreeing', least_agreeing,
              'least_share', least_share, 'max_votes', max_overlap) as rule
            from labeling_labelingsettings where project_id = %(project)s) r
where c.project_id = %(project)s and c.n_votes > 0
"""
