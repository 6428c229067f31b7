"""Statements over many comparisons at once: decided again, sent round again, set aside,
brought in. Those of a single vote or lease are in `statements`."""

from apps.labeling.models import NOBODY_LEFT, ONE_VOTE
from apps.labeling.services.statements import DEFAULTS, EXTRA_PRIORITY, LABELERS, LOCK

# ruff: noqa: S608

# What past votes need of the comparisons they belong to, and the slots that are there for them. The
# caller has locked the comparisons.
PLACES_OF = f"""
select c.id, c.project_id, c.overlap, c.response_a_id, c.response_b_id, c.priority, c.shuffle,
       p.topic, p.language, greatest(c.overlap, coalesce(l.max_overlap, {DEFAULTS.max_overlap}))
         as most,
       (select count(*) from labeling_slot s where s.task_id = c.id
          and s.state <> 'withdrawn' and s.kind in ('regular', 'gold')) as n_slots,
       (select coalesce(max(position), 0) from labeling_slot s where s.task_id = c.id) as last
from unnest(%(ids)s::bigint[]) t(id)
join labeling_task c on c.id = t.id
join labeling_prompt p on p.id = c.prompt_id
left join labeling_labelingsettings l on l.project_id = c.project_id
"""
OPEN_SLOTS = f"""
select s.id, s.task_id from unnest(%(ids)s::bigint[]) t(id)
join labeling_slot s on s.task_id = t.id
where s.kind in ('regular', 'gold')
  and (s.state = 'free' or (s.state = 'leased' and s.leased_until < now()))
order by s.task_id, s.state, s.position {LOCK}
"""


# Deciding many comparisons again at once. The steps are those of `votes.STORE_DECISION`.


# Everything a decision rests on, but for what a person has ruled.
READ_DECISIONS = """
select d.comparison_id, d.n_a, d.n_b, d.n_tie, d.n_both_bad, c.overlap, d.outcome, d.winner,
       d.decided_by, d.posteriors, d.rule = %(rule)s::jsonb as same_rule,
       c.state = 'contested' and c.review_reason = '{nobody}' as used_up
from labeling_decision d
join labeling_task c on c.id = d.comparison_id
where d.project_id = %(project)s and d.outcome in ('accepted', 'contested', 'needs_votes')
  and (%(only)s::bigint[] is null or d.comparison_id = any(%(only)s::bigint[]))
order by d.comparison_id
""".replace("{nobody}", NOBODY_LEFT)

# The same, comparisons that a rule cannot tell apart as one row with their number.
READ_PATTERNS = """
select d.n_a, d.n_b, d.n_tie, d.n_both_bad, c.overlap, d.winner, c.gold,
       c.state = 'contested' and c.review_reason = '{nobody}' as used_up, count(*) as n
from labeling_decision d
join labeling_task c on c.id = d.comparison_id
where d.project_id = %(project)s and d.outcome in ('accepted', 'contested', 'needs_votes')
group by 1, 2, 3, 4, 5, 6, 7, 8
""".replace("{nobody}", NOBODY_LEFT)

LOCK_COMPARISONS = """
select c.id from labeling_task c join unnest(%(ids)s::bigint[]) t(id) on t.id = c.id
order by c.id for no key update of c
"""

# The votes of comparisons counted again, where many have come or gone at once; what is decided of
# them follows (`redeciding.decisions_redo`), which an empty rule asks for.
COUNTS_STORE = f"""
with counted as (
  select c.id, c.project_id, c.state, c.review_reason, count(v.choice) as n,
         count(*) filter (where v.choice = 'a') as n_a,
         count(*) filter (where v.choice = 'b') as n_b,
         count(*) filter (where v.choice = 'tie') as n_tie,
         count(*) filter (where v.choice = 'both_bad') as n_both_bad
  from unnest(%(ids)s::bigint[]) t(id)
  join labeling_task c on c.id = t.id
  left join (
    labeling_vote v join labeling_slot s on s.id = v.slot_id and s.kind in ('regular', 'gold')
  ) on v.comparison_id = c.id and v.is_current
  group by c.id
), stored as (
  insert into labeling_decision as d (
    comparison_id, project_id, outcome, winner, n_a, n_b, n_tie, n_both_bad, n_agreeing, share,
    rule, reason, created_at, updated_at)
  select id, project_id,
         case state when 'review' then 'needs_review' when 'dropped' then 'dropped'
           else 'needs_votes' end,
         '', n_a, n_b, n_tie, n_both_bad, greatest(n_a, n_b, n_tie, n_both_bad),
         coalesce(greatest(n_a, n_b, n_tie, n_both_bad)::float8 / nullif(n, 0), 0), '{{}}',
         case state when 'review' then 'needs review: ' || review_reason
           when 'dropped' then 'dropped' else '' end, now(), now()
  from counted
  on conflict (comparison_id) do update set
    n_a = excluded.n_a, n_b = excluded.n_b, n_tie = excluded.n_tie,
    n_both_bad = excluded.n_both_bad, n_agreeing = excluded.n_agreeing, share = excluded.share,
    rule = case when d.outcome in ('adjudicated', 'dropped', 'needs_review') then d.rule
           else excluded.rule end,
    updated_at = now()
)
update labeling_task c set
  n_votes = n.n, updated_at = now(),
  review_reason = case c.review_reason when '{NOBODY_LEFT}' then '' else c.review_reason end
from counted n where c.id = n.id
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
  insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                             topic, language, left_is)
  select c.project_id, c.id,
         (select max(position) + 1 from labeling_slot s where s.task_id = c.id),
         'regular', 'free', c.priority + {EXTRA_PRIORITY}, c.shuffle, p.topic, p.language, ''
  from decided d join labeling_task c on c.id = d.comparison_id
  join labeling_prompt p on p.id = c.prompt_id
  where d.extra = 1 and c.state not in ('review', 'dropped') and c.slice not in {ONE_VOTE}
  returning task_id
), spared as (
  update labeling_slot s set state = 'withdrawn'
  from decided d join labeling_task c on c.id = d.comparison_id
  where d.outcome = 'accepted' and s.task_id = d.comparison_id and s.state = 'free'
    and s.kind = 'regular' and (s.position > %(base)s or %(stop)s) and c.slice <> 'measuring'
  returning s.task_id
), counted as (
  select d.comparison_id, d.state,
         (select count(*) from added a where a.task_id = d.comparison_id) as more,
         (select count(*) from spared x where x.task_id = d.comparison_id) as fewer
  from decided d
)
update labeling_task c set
  state = case when c.state in ('review', 'dropped') then c.state else n.state end,
  review_reason = case when n.state <> 'contested' and c.review_reason = '{NOBODY_LEFT}' then ''
                  else c.review_reason end,
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


# A new round of votes on comparisons that were sent to re-annotation.
#
# The caller holds the rows of the comparisons and of their slots.


# Places of the earlier round go up to a thousand of their own, so that the new ones count from 1
# again; what stands above already (earlier rounds, extra votes, audits since) stays there. Whoever
# has a lease in hand keeps it; what had no taker, or none any more, is withdrawn.
_LOST = """s.kind in ('regular', 'gold')
  and (s.state = 'free' or s.state = 'leased' and s.leased_until < now())"""
OLD_SLOTS = f"""
update labeling_slot s set
  position = case when s.position < 1000 then s.position + o.by else s.position end,
  kind = case when s.kind in ('regular', 'gold') then 'former' else s.kind end,
  state = case when {_LOST} then 'withdrawn' else s.state end,
  annotator_id = case when {_LOST} then null else s.annotator_id end,
  leased_until = case when {_LOST} then null else s.leased_until end
from (
  select task_id, (max(position) / 1000 + 1) * 1000 as by
  from labeling_slot where task_id = any(%(ids)s) group by task_id
) o
where s.task_id = o.task_id
"""

NEW_SLOTS = f"""
insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                           topic, language, left_is)
select c.project_id, c.id, place, 'regular', 'free', c.priority + {EXTRA_PRIORITY}, c.shuffle,
       p.topic, p.language, ''
from labeling_task c
join labeling_prompt p on p.id = c.prompt_id
cross join generate_series(1, %(base)s) place
where c.id = any(%(ids)s)
"""
_ANYBODY_LEFT = """exists (select from people
  where (cardinality(people.topics) = 0 or p.topic = any(people.topics))
    and (cardinality(people.languages) = 0 or p.language = any(people.languages))
    and p.topic <> all(people.avoided)
    and not (people.spared and (c.warning <> '' or p.topic = any(people.sensitive)))
    and (people.closed is null or not c.id <@ people.closed)
    and not exists (select from labeling_slot s where s.task_id = c.id
                    and s.annotator_id = people.user_id and s.kind <> 'former'
                    and s.state = 'done')
    and not exists (select from labeling_skip k
                    where k.task_id = c.id and k.annotator_id = people.user_id))"""


def _looked_at(where: str) -> str:
    return f"""
with people as materialized ({LABELERS}), found as (
  select c.id from labeling_task c join labeling_prompt p on p.id = c.prompt_id
  where c.project_id = %(project)s and c.kind = 'pair'
    and (%(only)s::bigint[] is null or c.id = any(%(only)s::bigint[]))
    and {where}
  for no key update of c skip locked
)"""


_HAS_NOBODY = f"""c.state = 'open' and c.n_votes > 0 and c.stratum <> 'practice'
    and c.slice not in {ONE_VOTE}
    and not exists (select from labeling_slot s where s.task_id = c.id
                    and s.state = 'leased' and s.leased_until > now())
    and not {_ANYBODY_LEFT}"""
_HAS_SOMEBODY = f"""c.state = 'contested' and c.review_reason = '{NOBODY_LEFT}'
    and {_ANYBODY_LEFT}"""
NOBODY_LEFT_MARK = f"""{_looked_at(_HAS_NOBODY)}, withdrawn as (
  update labeling_slot s set state = 'withdrawn' from found
  where s.task_id = found.id and s.state = 'free' and s.kind in ('regular', 'gold')
)
update labeling_task c set state = 'contested', review_reason = '{NOBODY_LEFT}',
       updated_at = now()
from found where c.id = found.id returning c.id
"""
NOBODY_LEFT_CLEAR = f"""{_looked_at(_HAS_SOMEBODY)}
update labeling_task c set review_reason = '' from found
where c.id = found.id returning c.id
"""

# Another number of votes per comparison, for the open ones whose number was not planned. A pair
# that has so many already, and is undecided with nobody at it, keeps one place for the next vote.
OVERLAP_APPLIED = """
with wanted as materialized (
  select c.id, n.live, n.free,
         greatest(%(base)s, n.live + case when n.live >= %(base)s and n.leased = 0
                                          and n.live < %(most)s then 1 else 0 end) as places
  from labeling_task c
  cross join lateral (
    select count(*) filter (where s.state in ('leased', 'done')) as live,
           count(*) filter (where s.state = 'leased') as leased,
           count(*) filter (where s.state = 'free') as free
    from labeling_slot s where s.task_id = c.id and s.kind = 'regular'
  ) n
  where c.project_id = %(project)s and c.kind = 'pair' and c.state = 'open'
    and c.stratum in ('random', 'priority') and c.slice = ''
  for no key update of c
), withdrawn as (
  update labeling_slot s set state = 'withdrawn'
  from (
    select s.id, w.free - (w.places - w.live) as surplus,
           row_number() over (partition by w.id order by s.position desc) as place
    from wanted w join labeling_slot s
      on s.task_id = w.id and s.kind = 'regular' and s.state = 'free'
  ) o
  where s.id = o.id and o.place <= o.surplus
  returning s.id
), added as (
  insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                             topic, language, left_is)
  select c.project_id, c.id,
         (select coalesce(max(position), 0) from labeling_slot s where s.task_id = c.id) + k,
         'regular', 'free', c.priority, c.shuffle, p.topic, p.language, ''
  from wanted w join labeling_task c on c.id = w.id
  join labeling_prompt p on p.id = c.prompt_id
  cross join lateral generate_series(1, (w.places - w.live - w.free)::int) k
  returning id
), widened as (
  update labeling_task c set overlap = w.places, updated_at = now()
  from wanted w where c.id = w.id and c.overlap <> w.places
)
select (select count(*) from wanted), (select count(*) from added),
       (select count(*) from withdrawn)
"""

# As many withdrawn slots as open comparisons still want votes: of these comparisons, or of all that
# people vote on in the project (a late answer may have opened one whose places were withdrawn).
PLACES_BACK = """
update labeling_slot set state = 'free' where id in (
  select id from (
    select s.id, s.state,
           c.overlap - count(*) filter (where s.state <> 'withdrawn')
             over (partition by c.id) as room,
           row_number() over (partition by c.id, s.state = 'withdrawn' order by s.position) as place
    from labeling_task c
    join labeling_slot s on s.task_id = c.id and s.kind in ('regular', 'gold')
    where c.project_id = %(project)s and c.kind = 'pair' and c.state = 'open'
      and (c.id = any(%(ids)s::bigint[])
           or %(ids)s::bigint[] is null and c.n_votes > 0 and c.stratum in ('random', 'priority'))
  ) places
  where state = 'withdrawn' and place <= room
)
"""


# Votes that are discarded, and that count again. The caller holds the slots and the comparisons.

# What open comparisons lack of the places they should have.
PLACES_MORE = f"""
insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                           topic, language, left_is)
select c.project_id, c.id, n.last + k, 'regular', 'free', c.priority + {EXTRA_PRIORITY}, c.shuffle,
       p.topic, p.language, ''
from labeling_task c
join labeling_prompt p on p.id = c.prompt_id
cross join lateral (
  select max(s.position) as last,
         count(*) filter (where s.kind in ('regular', 'gold') and s.state <> 'withdrawn') as live
  from labeling_slot s where s.task_id = c.id
) n
cross join lateral generate_series(1, (c.overlap - n.live)::int) k
where c.id = any(%(ids)s) and c.state = 'open' and c.stratum in ('random', 'priority')
"""

# Room for votes that come back: places that nobody has taken go, and where that is too little the
# comparison takes more votes.
DISCARD_UNDO_PLACES = """
with back as materialized (
  select v.comparison_id as id, count(*) as n
  from labeling_discardedvote d
  join labeling_vote v on v.id = d.vote_id
  where d.discard_id = %(discard)s and d.was = 'regular'
  group by v.comparison_id
), places as (
  select s.id, s.task_id, back.n,
         row_number() over (partition by s.task_id, s.state = 'free'
                            order by s.position desc) as place,
         s.state = 'free' as is_free
  from back join labeling_slot s on s.task_id = back.id
  where s.kind = 'regular' and s.state <> 'withdrawn'
), withdrawn as (
  update labeling_slot s set state = 'withdrawn' from places p
  where s.id = p.id and p.is_free and p.place <= p.n
), wanted as (
  select task_id as id, n + count(*) filter (where not is_free or place > n) as places
  from places group by task_id, n
  union all
  select id, n from back where id not in (select task_id from places)
)
update labeling_task c set overlap = w.places, updated_at = now()
from wanted w where c.id = w.id and c.overlap < w.places
"""


# What is done to many comparisons at once, whose rows and slots the caller has locked.

PRIORITY_SET = """
update labeling_slot s set priority = s.priority - c.priority + %(value)s
from unnest(%(ids)s::bigint[]) t(id) join labeling_task c on c.id = t.id
where s.task_id = c.id and s.state in ('free', 'leased') and s.kind in ('regular', 'gold')
"""
PRIORITIES_SET = """
update labeling_slot s set priority = s.priority - c.priority + t.value
from unnest(%(ids)s::bigint[], %(values)s::float8[]) t(id, value)
join labeling_task c on c.id = t.id
where s.task_id = c.id and s.state in ('free', 'leased') and s.kind in ('regular', 'gold')
"""
PAIRS_PRIORITIES_SET = """
update labeling_task c set priority = t.value, updated_at = now()
from unnest(%(ids)s::bigint[], %(values)s::float8[]) t(id, value) where c.id = t.id
"""
PLACES_ADDED = """
insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                           topic, language, left_is)
select c.project_id, c.id,
       (select coalesce(max(position), 0) from labeling_slot s where s.task_id = c.id) + k,
       'regular', 'free', c.priority, c.shuffle, p.topic, p.language, ''
from unnest(%(ids)s::bigint[]) t(id) join labeling_task c on c.id = t.id
join labeling_prompt p on p.id = c.prompt_id cross join generate_series(1, %(n)s) k
"""

# Out of the queue, dropped or for a person to look at: no further votes are asked for; leases that
# are out may still be answered.
SET_ASIDE = """
with withdrawn as (
  update labeling_slot s set state = 'withdrawn' from unnest(%(ids)s::bigint[]) t(id)
  where s.task_id = t.id and s.state = 'free' and s.kind in ('regular', 'gold')
), moved as (
  update labeling_task c set state = %(state)s, updated_at = now(),
         review_reason = case %(state)s when 'review' then left(%(reason)s, 300)
                         else c.review_reason end
  from unnest(%(ids)s::bigint[]) t(id) where c.id = t.id
  returning c.id, c.project_id, c.kind
)
insert into labeling_decision as d (comparison_id, project_id, outcome, winner, n_a, n_b, n_tie,
  n_both_bad, n_agreeing, share, rule, reason, created_at, updated_at)
select id, project_id, %(outcome)s, '', 0, 0, 0, 0, 0, 0, '{}', left(%(words)s, 300), now(), now()
from moved where kind = 'pair'
on conflict (comparison_id) do update set outcome = excluded.outcome, winner = '',
  reason = excluded.reason, updated_at = now()
"""
