"""Deciding many comparisons anew at once. The steps are those of `votes.STORE_DECISION`."""
# ruff: noqa: S608

from apps.labeling.services.statements.shared import EXTRA_PRIORITY

# Everything a decision rests on, but for what a person has ruled.
READ_DECISIONS = """
select d.comparison_id, d.n_a, d.n_b, d.n_tie, d.n_both_bad, c.overlap, d.outcome, d.winner,
       d.decided_by, d.posteriors, d.rule = %(rule)s::jsonb
from labeling_decision d
join labeling_comparison c on c.id = d.comparison_id
where d.project_id = %(project)s and d.outcome in ('accepted', 'contested', 'needs_votes')
order by d.comparison_id
"""

LOCK_COMPARISONS = """
select c.id from labeling_comparison c join unnest(%(ids)s::bigint[]) t(id) on t.id = c.id
order by c.id for no key update of c
"""

# Rows whose votes have changed since they were read are left as they are: their vote has decided
# them by the same rule.
STORE_DECISIONS = f"""
with given as materialized (
  select * from unnest(
    %(ids)s::bigint[], %(outcomes)s::text[], %(winners)s::text[], %(n_agreeing)s::int[],
    %(shares)s::float8[], %(reasons)s::text[], %(states)s::text[], %(extras)s::int[],
    %(n_a)s::int[], %(n_b)s::int[], %(n_tie)s::int[], %(n_both_bad)s::int[],
    %(posteriors)s::text[]
  ) as g(comparison, outcome, winner, n_agreeing, share, reason, state, extra,
         n_a, n_b, n_tie, n_both_bad, posteriors)
), decided as (
  update labeling_decision d set
    outcome = g.outcome, winner = g.winner, n_agreeing = g.n_agreeing, share = g.share,
    rule = %(rule)s::jsonb, reason = g.reason, decided_by = %(decided_by)s,
    posteriors = coalesce(g.posteriors::float8[], d.posteriors), updated_at = now()
  from given g
  where d.comparison_id = g.comparison
    and (d.n_a, d.n_b, d.n_tie, d.n_both_bad) = (g.n_a, g.n_b, g.n_tie, g.n_both_bad)
    and d.outcome in ('accepted', 'contested', 'needs_votes')
  returning d.comparison_id, g.state, g.extra, g.outcome
), added as (
  insert into labeling_slot (project_id, comparison_id, position, kind, state, priority, shuffle,
                             topic, language, left_is)
  select c.project_id, c.id,
         (select max(position) + 1 from labeling_slot s where s.comparison_id = c.id),
         'regular', 'free', c.priority + {EXTRA_PRIORITY}, c.shuffle, p.topic, p.language, ''
  from decided d join labeling_comparison c on c.id = d.comparison_id
  join labeling_prompt p on p.id = c.prompt_id
  where d.extra = 1 and c.state not in ('review', 'dropped')
  returning comparison_id
), spared as (
  update labeling_slot s set state = 'withdrawn'
  from decided d
  where d.outcome = 'accepted' and s.comparison_id = d.comparison_id and s.state = 'free'
    and s.kind = 'regular' and (s.position > %(base)s or %(stop)s)
  returning s.comparison_id
), counted as (
  select d.comparison_id, d.state,
         (select count(*) from added a where a.comparison_id = d.comparison_id) as more,
         (select count(*) from spared x where x.comparison_id = d.comparison_id) as fewer
  from decided d
)
update labeling_comparison c set
  state = case when c.state in ('review', 'dropped') then c.state else n.state end,
  overlap = c.overlap + n.more - n.fewer, updated_at = now()
from counted n where c.id = n.comparison_id
  and (c.state <> n.state and c.state not in ('review', 'dropped') or n.more + n.fewer > 0)
"""

# What was fitted since, where nothing but the posterior has moved.
MOVED_TABLE = """
create temporary table if not exists moved_posteriors
  (comparison bigint, n_a int, n_b int, n_tie int, n_both_bad int, posteriors float8[])
  on commit drop
"""
STORE_POSTERIORS = """
update labeling_decision d set posteriors = m.posteriors
from moved_posteriors m
where d.comparison_id = m.comparison
  and (d.n_a, d.n_b, d.n_tie, d.n_both_bad) = (m.n_a, m.n_b, m.n_tie, m.n_both_bad)
"""
