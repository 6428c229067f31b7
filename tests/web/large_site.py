"""A project of thousands of people and a hundred thousand comparisons, written in seconds."""

from django.db import connection

from apps.accounts.models import Project
from tests.database import as_superuser

PEOPLE = 5_000
COMPARISONS = 100_000
VOTES = 3  # on each comparison

# Each table is analysed before a statement joins it: an autovacuum that comes by before the
# transaction ends counts no rows in it, and a plan made then reads all of it for every row.
# Everything is random by its number, so that every run meets the same site. A third of the people
# were imported; every fiftieth comparison is still open, and every twentieth contested.
_STATEMENTS = """
insert into accounts_user (password, is_superuser, username, first_name, last_name, email, is_staff,
                           is_active, date_joined, display_name, is_imported, theme,
                           may_create_projects)
select '!', false, 'person-' || k, '', '', 'person-' || k || '@example.org', false, k %% 3 > 0,
       now(), 'Person ' || k, k %% 3 = 0, 'system', false
from generate_series(1, %(people)s) k;

insert into accounts_membership (created_at, updated_at, role, paused_reason, project_id, user_id)
select now() - interval '90 days', now(), 'annotator',
       case when k %% 97 = 0 then 'away' else '' end, %(project)s, u.id
from generate_series(1, %(people)s) k join accounts_user u on u.username = 'person-' || k;

create temporary table person on commit drop as
select k as n, u.id from generate_series(1, %(people)s) k
join accounts_user u on u.username = 'person-' || k;
create index on person (n);
analyze person;

insert into labeling_annotator (created_at, updated_at, acknowledged_version, topics, languages,
                                left_out_reason, votes_of_day, project_id, user_id)
select now(), now(), n %% 2, '{}', '{}', '', 0, %(project)s, id from person;

insert into labeling_prompt (created_at, updated_at, messages, text_hash, group_key, topic,
                             language, source, licence, metadata, project_id)
select now(), now(),
       jsonb_build_array(jsonb_build_object('role', 'user', 'content',
                                            'Question ' || k || ': how long is a day?')),
       'large-' || k, 'group ' || k %% 400, 'topic ' || k %% 40, 'en', '', '', '{}', %(project)s
from generate_series(1, %(comparisons)s) k;

create temporary table asked on commit drop as
select id, substr(text_hash, 7)::int as n from labeling_prompt
where project_id = %(project)s and text_hash like 'large-%%';
create index on asked (n);
analyze asked;

insert into labeling_response (created_at, updated_at, messages, text_hash, origin, origin_ref,
                               metadata, prompt_id)
select now(), now(),
       jsonb_build_array(jsonb_build_object('role', 'assistant', 'content',
                                            'Answer ' || side || ' to question ' || n)),
       side, 'model', 'model-' || side, '{}', id
from asked, unnest(array['a', 'b']) side;
analyze labeling_response;

insert into labeling_comparison (created_at, updated_at, external_id, batch, state, stratum,
                                 priority, shuffle, overlap, gold, gold_explanation, review_reason,
                                 n_votes, project_id, prompt_id, response_a_id, response_b_id)
select now(), now(), 'pair-' || q.n, 'large',
       case when q.n %% 50 = 0 then 'open' when q.n %% 20 = 1 then 'contested' else 'decided' end,
       'random', 0, random(), %(votes)s, '', '', '',
       case when q.n %% 50 = 0 then 1 else %(votes)s end, %(project)s, q.id, a.id, b.id
from asked q
join labeling_response a on a.prompt_id = q.id and a.text_hash = 'a'
join labeling_response b on b.prompt_id = q.id and b.text_hash = 'b';
analyze labeling_task;

create temporary table compared on commit drop as
select c.id, c.response_a_id as a, c.response_b_id as b, c.shuffle,
       substr(c.external_id, 6)::int as n
from labeling_comparison c where c.project_id = %(project)s and c.batch = 'large';
create index on compared (n);
analyze compared;

insert into labeling_slot (position, kind, state, priority, shuffle, topic, language, left_is,
                           task_id, project_id, annotator_id)
select v, 'regular', case when c.n %% 50 = 0 and v > 1 then 'free' else 'done' end, 0, c.shuffle,
       'topic ' || c.n %% 40, 'en', '', c.id, %(project)s,
       case when c.n %% 50 = 0 and v > 1 then null else p.id end
from compared c cross join generate_series(1, %(votes)s) v
join person p on p.n = 1 + (c.n * 7 + v * 1999) %% %(people)s;
analyze labeling_slot;

insert into labeling_vote (choice, chosen_id, left_is, criteria, reasons, rationale, flags,
                           idempotency_key, source, revision, is_current, cast_at, active_ms,
                           annotator_id, comparison_id, project_id, slot_id)
select case when (c.n * 13 + s.position * 5) %% 10 < 6 then 'a' else 'b' end,
       case when (c.n * 13 + s.position * 5) %% 10 < 6 then c.a else c.b end,
       case when (c.n + s.position) %% 2 = 0 then 'a' else 'b' end, '{}', '{}', '', '{}',
       c.n || '-' || s.position, case when p.n %% 3 = 0 then 'import' else 'page' end, 1, true,
       now() - make_interval(mins => c.n %% 80000), 9000, s.annotator_id, c.id, %(project)s, s.id
from compared c join labeling_slot s on s.task_id = c.id and s.state = 'done'
join person p on p.id = s.annotator_id;
analyze labeling_answer;

insert into labeling_decision (created_at, updated_at, outcome, winner, n_a, n_b, n_tie, n_both_bad,
                               n_agreeing, share, decided_by, rule, reason, comparison_id,
                               project_id)
select now(), now(),
       case when c.n %% 50 = 0 then 'needs_votes' when c.n %% 20 = 1 then 'contested'
            else 'accepted' end,
       case when c.n %% 50 = 0 or c.n %% 20 = 1 then '' when v.a >= v.b then 'a' else 'b' end,
       v.a, v.b, 0, 0, greatest(v.a, v.b), greatest(v.a, v.b) / (v.a + v.b)::float8, 'votes', '{}',
       'votes', c.id, %(project)s
from compared c join lateral (
  select count(*) filter (where choice = 'a') as a, count(*) filter (where choice = 'b') as b
  from labeling_vote where comparison_id = c.id
) v on true;

insert into accounts_auditevent (at, action, subject, details, project_id, actor_id)
select now() - make_interval(mins => k), 'membership.added', 'person-' || 1 + k %% %(people)s,
       '{"role": "annotator"}', %(project)s, null
from generate_series(1, 20000) k;

insert into accounts_notice (roles, kind, text, "values", path, at, project_id)
select '{annotator,admin}', 'work', 'Pairs came in', '{}', '/', now(), %(project)s
from generate_series(1, 5000) k;

insert into labeling_comment (created_at, updated_at, kind, text, author_id, comparison_id,
                              project_id)
select now(), now(), 'question', 'Why?', p.id, c.id, %(project)s
from compared c join person p on p.n = c.n where c.n <= 3000;
"""


def large_site_write(project: Project) -> None:
    """Past the triggers, which would look at every row by itself; then counts the tables anew."""
    values = {
        "project": project.pk,
        "people": PEOPLE,
        "comparisons": COMPARISONS,
        "votes": VOTES,
    }
    with as_superuser(), connection.cursor() as cursor:
        for statement in filter(str.strip, _STATEMENTS.split(";\n")):
            cursor.execute(statement, values)
        cursor.execute("analyze")
