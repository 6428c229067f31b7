"""Votes and the decisions they lead to."""
# ruff: noqa: S608

from apps.labeling.services.statements.shared import (
    EXTRA_PRIORITY,
    OFFER_COLUMNS,
    POLICY_COLUMNS,
    STANDING_COLUMNS,
    STANDING_JOINS,
)

LOCK_FOR_VOTE = f"""
with me as materialized (
  select m.role, m.paused_reason from accounts_membership m
  where m.user_id = %(annotator)s
    and m.project_id = (select project_id from labeling_slot where id = %(slot)s)
  for no key update
)
select s.id, s.project_id, s.comparison_id, s.kind, s.state, s.annotator_id, s.left_is,
       s.leased_at, now(), c.response_a_id, c.response_b_id, c.overlap,
       -- the newest version they know: not one that waits to be acknowledged
       (select g.id from labeling_guideline g where g.project_id = s.project_id
        order by d.due is not null and g.version >= d.due, g.version desc limit 1),
       {STANDING_COLUMNS}, {OFFER_COLUMNS}, {POLICY_COLUMNS}
from labeling_slot s
join labeling_comparison c on c.id = s.comparison_id
left join labeling_labelingsettings l on l.project_id = s.project_id
left join labeling_consensus f on f.project_id = s.project_id
left join me m on true
{STANDING_JOINS.format(project="s.project_id")}
where s.id = %(slot)s
for no key update of s, c
"""

CHOICES = """
select v.choice from labeling_vote v join labeling_slot s on s.id = v.slot_id
where v.comparison_id = %(comparison)s and v.is_current and s.kind in ('regular', 'gold')
"""

# The votes that count, each with what is known of its annotator.
VOTERS = """
select v.choice, w.confusion
from labeling_vote v
join labeling_slot s on s.id = v.slot_id
left join labeling_annotator w on w.project_id = v.project_id and w.user_id = v.annotator_id
where v.comparison_id = %(comparison)s and v.is_current and s.kind in ('regular', 'gold')
"""

INSERT_VOTE = """
with written as (
  insert into labeling_vote (
    project_id, comparison_id, slot_id, annotator_id, choice, chosen_id, left_is, strength,
    criteria, reasons, rationale, flags, improvement_id, guideline_id, active_ms, wall_ms,
    idempotency_key, source, revision, supersedes_id, is_current, cast_at)
  values (
    %(project_id)s, %(comparison_id)s, %(slot_id)s, %(annotator_id)s, %(choice)s, %(chosen_id)s,
    %(left_is)s, %(strength)s, %(criteria)s, %(reasons)s, %(rationale)s, %(flags)s,
    %(improvement_id)s, %(guideline_id)s, %(active_ms)s, %(wall_ms)s, %(idempotency_key)s,
    %(source)s, %(revision)s, %(supersedes_id)s, true, %(cast_at)s)
  on conflict (annotator_id, idempotency_key) do nothing
  returning id
), closed as (
  update labeling_slot set state = 'done', leased_until = null where id = %(slot_id)s
), counted as (
  insert into labeling_annotator as w (project_id, user_id, acknowledged_version, topics, languages,
                                       votes_day, votes_of_day, created_at, updated_at)
  select %(project_id)s, %(annotator_id)s, 0, '{}', '{}', (now() at time zone 'utc')::date, 1,
         now(), now()
  from written where %(revision)s = 1 and %(source)s <> 'import'
  on conflict (project_id, user_id) do update set
    votes_day = excluded.votes_day,
    votes_of_day = case when w.votes_day = excluded.votes_day then w.votes_of_day else 0 end + 1
)
select (select id from written),
       count(*) filter (where v.choice = 'a'), count(*) filter (where v.choice = 'b'),
       count(*) filter (where v.choice = 'tie'), count(*) filter (where v.choice = 'both_bad')
from labeling_vote v join labeling_slot s on s.id = v.slot_id
where v.comparison_id = %(comparison_id)s and v.is_current and s.kind in ('regular', 'gold')
"""

# What a person has ruled, or has still to look at, votes do not move; their counts go on.
_KEPT = "d.outcome in ('adjudicated', 'dropped', 'needs_review')"
STORE_DECISION = f"""
with decided as (
  insert into labeling_decision as d (
    comparison_id, project_id, outcome, winner, n_a, n_b, n_tie, n_both_bad, n_agreeing, share,
    rule, reason, decided_by, posteriors, created_at, updated_at)
  select c.id, %(project)s,
         case c.state when 'review' then 'needs_review' when 'dropped' then 'dropped'
           else %(outcome)s end,
         case when c.state in ('review', 'dropped') then '' else %(winner)s end,
         %(n_a)s, %(n_b)s, %(n_tie)s, %(n_both_bad)s, %(n_agreeing)s, %(share)s, %(rule)s,
         case c.state when 'review' then 'needs review: ' || c.review_reason
           when 'dropped' then 'dropped' else %(reason)s end,
         %(decided_by)s, %(posteriors)s::float8[], now(), now()
  from labeling_comparison c where c.id = %(comparison)s
  on conflict (comparison_id) do update set
    outcome = case when {_KEPT} then d.outcome else excluded.outcome end,
    winner = case when {_KEPT} then d.winner else excluded.winner end,
    rule = case when {_KEPT} then d.rule else excluded.rule end,
    reason = case when {_KEPT} then d.reason else excluded.reason end,
    decided_by = case when {_KEPT} then d.decided_by else excluded.decided_by end,
    posteriors = excluded.posteriors,
    n_a = excluded.n_a, n_b = excluded.n_b, n_tie = excluded.n_tie,
    n_both_bad = excluded.n_both_bad, n_agreeing = excluded.n_agreeing, share = excluded.share,
    updated_at = now()
  returning d.outcome
), added as (
  insert into labeling_slot (project_id, comparison_id, position, kind, state, priority, shuffle,
                             topic, language, left_is)
  select %(project)s, c.id,
         (select max(position) + 1 from labeling_slot s where s.comparison_id = c.id),
         'regular', 'free', c.priority + {EXTRA_PRIORITY}, c.shuffle, p.topic, p.language, ''
  from labeling_comparison c join labeling_prompt p on p.id = c.prompt_id
  where c.id = %(comparison)s and %(extra)s = 1
    and exists (select from decided where outcome = 'needs_votes')
  returning comparison_id
), spared as (
  -- extra votes that were asked for and are no longer needed
  update labeling_slot s set state = 'withdrawn'
  where %(accepted)s and s.comparison_id = %(comparison)s and s.state = 'free'
    and s.kind = 'regular' and (s.position > %(base)s or %(stop)s)
  returning s.id
)
update labeling_comparison set
  n_votes = %(n_votes)s,
  state = case when state in ('review', 'dropped') then state
          when exists (select from decided where outcome = 'adjudicated') then state
          else %(state)s end,
  overlap = overlap + (select count(*) from added) - (select count(*) from spared),
  updated_at = now()
where id = %(comparison)s
"""
