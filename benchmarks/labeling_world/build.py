"""A project in the middle of its work, of any size, made by SQL in the database.

Rows are those an import and a few hundred annotators leave behind: half of the queue is voted on in
the order it is handed out, every twentieth voted comparison is contested and waits for an extra
vote, some of the rest has a priority, some pairs are gold. Texts are short, and ten comparisons
share a prompt and its five answers: what is handed out is read by key, so text length does not
change what is searched. Django must be set up before this is imported.
"""

from dataclasses import dataclass

from django.db import connection

from apps.accounts.models import Membership, Project, User
from apps.labeling import services
from apps.labeling.models import Annotator, Guideline

CROWD = 200  # annotators who cast the votes
HISTORY = 3000  # votes of the one with a long history
PAIRS_OF = [(a, b) for a in range(5) for b in range(a + 1, 5)]  # ten pairs of five answers
VOTED = 0.5  # of the shuffled order


@dataclass(frozen=True, slots=True)
class Built:
    """The project and two who label in it: one who has just come, one who has been here long."""

    project: Project
    new: User
    long: User


def project_build(slug: str, n: int) -> Built:
    """n comparisons, three slots each; n is a multiple of ten."""
    project = Project.objects.create(slug=slug, name=slug)
    services.labeling_set_up(project=project)
    crowd = [
        User.objects.create(username=f"{slug}-{number}", password="!")  # noqa: S106
        for number in range(CROWD)
    ]
    new, long = (User.objects.create(username=f"{slug}-{name}") for name in ("new", "long"))
    roles = {new.pk: "admin", long.pk: "admin"}  # reviewers and admins get audit re-votes too
    Membership.objects.bulk_create(
        Membership(project=project, user=user, role=roles.get(user.pk, "annotator"))
        for user in (*crowd, new, long)
    )
    version = Guideline.objects.get(project=project).version
    Annotator.objects.bulk_create(
        Annotator(project=project, user=user, acknowledged_version=version) for user in (new, long)
    )
    values = {
        "project": project.pk,
        "n": n,
        "prompts": n // 10,
        "first_of_crowd": crowd[0].pk,
        "crowd": CROWD,
        "long": long.pk,
        "history": HISTORY,
        "voted": VOTED,
        "pairs": str([list(pair) for pair in PAIRS_OF]).translate(str.maketrans("[]", "{}")),
    }
    with connection.cursor() as cursor:
        # Foreign keys and triggers were tested elsewhere; checking ten million rows is not the
        # point here, and nothing below breaks them.
        cursor.execute("set session_replication_role = replica")
        for statement in (_PROMPTS, _RESPONSES, _COMPARISONS, _SLOTS, _VOTES, _DECISIONS):
            cursor.execute(statement, values)
        cursor.execute("set session_replication_role = default")
        cursor.execute("vacuum analyze")
    return Built(project, new, long)


_PROMPTS = """
insert into labeling_prompt (project_id, messages, text_hash, group_key, topic, language, source,
                             licence, metadata, created_at, updated_at)
select %(project)s,
       jsonb_build_array(jsonb_build_object('role', 'user', 'content', 'Question ' || i)),
       md5(%(project)s || i), md5(%(project)s || i), 'topic ' || i %% 40, 'en', 'benchmark', '',
       '{}', now(), now()
from generate_series(1, %(prompts)s) i
"""
_RESPONSES = """
insert into labeling_response (prompt_id, messages, text_hash, origin, origin_ref, metadata,
                               created_at, updated_at)
select p.id, jsonb_build_array(jsonb_build_object('role', 'assistant', 'content',
         'Answer ' || k || ' to ' || p.id)), md5(p.id || '/' || k), 'import', '', '{}', now(), now()
from labeling_prompt p, generate_series(0, 4) k where p.project_id = %(project)s
"""
_COMPARISONS = """
with answers as (
  select prompt_id, array_agg(r.id order by r.id) as ids
  from labeling_response r join labeling_prompt p on p.id = r.prompt_id
  where p.project_id = %(project)s group by prompt_id
), drawn as (
  select a.prompt_id, a.ids[pair.a + 1] as a, a.ids[pair.b + 1] as b,
         random() as shuffle, random() as luck, random() as priority,
         row_number() over () as number
  from answers a, (
    select (%(pairs)s::int[][])[i][1] as a, (%(pairs)s::int[][])[i][2] as b
    from generate_series(1, 10) i) pair
)
insert into labeling_comparison (project_id, prompt_id, response_a_id, response_b_id, external_id,
  batch, state, stratum, priority, shuffle, overlap, gold, gold_explanation, review_reason, n_votes,
  created_at, updated_at)
select %(project)s, prompt_id, a, b, number::text, 'benchmark',
       case when shuffle >= %(voted)s then 'open' when luck < 0.05 then 'open' else 'decided' end,
       case when luck > 0.99 then 'gold' when luck > 0.97 then 'priority' else 'random' end,
       case when luck > 0.97 and luck <= 0.99 then priority else 0 end,
       shuffle, case when shuffle < %(voted)s and luck < 0.05 then 4 else 3 end,
       case when luck > 0.99 then 'a' else '' end, '', '',
       case when shuffle < %(voted)s then 3 else 0 end, now(), now()
from drawn
"""
# Three slots each; a contested comparison (overlap 4) has a free extra one with a priority. The one
# with the long history took the second slot of the last comparisons that were voted on.
_SLOTS = """
with ordered as (
  select c.*, p.topic, p.language,
         row_number() over (order by c.shuffle >= %(voted)s, c.shuffle desc) as back
  from labeling_comparison c join labeling_prompt p on p.id = c.prompt_id
  where c.project_id = %(project)s
)
insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                           topic, language, annotator_id, leased_at, leased_until, left_is)
select %(project)s, c.id, k, 'regular', case when voted then 'done' else 'free' end,
       case when k > 3 then c.priority + 1 else c.priority end, c.shuffle, c.topic, c.language,
       case when voted then case when k = 2 and c.back <= %(history)s then %(long)s
            else %(first_of_crowd)s + (c.id + k * 67) %% %(crowd)s end end,
       case when voted then now() - interval '1 day' end, null,
       case when voted then case when c.id %% 2 = 0 then 'a' else 'b' end else '' end
from ordered c cross join lateral generate_series(1, c.overlap) k
cross join lateral (select c.shuffle < %(voted)s and k <= 3) v(voted)
"""
_VOTES = """
insert into labeling_vote (project_id, comparison_id, slot_id, annotator_id, choice, chosen_id,
  left_is, criteria, reasons, rationale, flags, guideline_id, idempotency_key, source, revision,
  is_current, cast_at)
select %(project)s, s.task_id, s.id, s.annotator_id,
       case when contested and s.position = 3 then 'tie' when contested and s.position = 2 then 'b'
            else 'a' end,
       case when contested and s.position = 3 then null when contested and s.position = 2
            then c.response_b_id else c.response_a_id end,
       s.left_is, '{}', '{}', '', '{}', g.id, s.id::text, 'page', 1, true,
       now() - interval '30 days' + s.shuffle * interval '29 days'
from labeling_slot s join labeling_comparison c on c.id = s.task_id
join labeling_guideline g on g.project_id = s.project_id
cross join lateral (select c.overlap > 3) x(contested)
where s.project_id = %(project)s and s.state = 'done'
"""
_DECISIONS = """
insert into labeling_decision (comparison_id, project_id, outcome, winner, n_a, n_b, n_tie,
  n_both_bad, n_agreeing, share, rule, reason, created_at, updated_at)
select c.id, %(project)s, case when contested then 'needs_votes' else 'accepted' end,
       case when contested then '' else 'a' end, case when contested then 1 else 3 end,
       case when contested then 1 else 0 end, case when contested then 1 else 0 end, 0,
       case when contested then 1 else 3 end, case when contested then 0.33 else 1 end, '{}', '',
       now(), now()
from labeling_comparison c cross join lateral (select c.overlap > 3) x(contested)
where c.project_id = %(project)s and c.n_votes > 0
"""
