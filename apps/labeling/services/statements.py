"""The statements behind the path of a vote, written by hand: each does in one round trip what the
ORM would do in several, and says which rows it locks.

Values are always parameters; what is pasted into the texts are constants of this module.
"""

import re

from apps.labeling.models import AUDIT_SEED, NOBODY_LEFT, LabelingSettings
from apps.labeling.services.results import QUESTION_COLUMNS

# What several statements share: who asks, what is theirs to do, what the screen shows.

# ruff: noqa: S608


DEFAULTS = LabelingSettings()  # for projects without a settings row

POLICY = (
    "overlap",
    "max_overlap",
    "least_votes",
    "least_agreeing",
    "least_share",
    "decide_by",
    "least_posterior",
    "stop_early",
)
# What a fit has learned of the project's voters; nulls before the first.
CONSENSUS_COLUMNS = "f.method, f.priors, f.confusion"
MIX = ("lease_seconds", "random_share", "gold_share", "repeat_share", "audit_share", "audit_rate")
SETTINGS_COLUMNS = ", ".join(f"l.{name}" for name in QUESTION_COLUMNS)
POLICY_COLUMNS = ", ".join(f"l.{name}" for name in POLICY) + f", {CONSENSUS_COLUMNS}"

# Of whom one asks before handing out: `m` is their membership, `w` their Annotator row, `l` the
# settings, `d.due` the first major version of the guidelines they have not acknowledged.
ELIGIBILITY_COLUMNS = f"""
       m.role, m.paused_reason as paused, d.due as guideline_due, l.qualification_pairs,
       w.qualified_at, coalesce(w.daily_cap, l.daily_cap) as daily_cap,
       case when w.votes_day = (now() at time zone 'utc')::date then w.votes_of_day else 0 end
         as n_today,
       w.topics, w.languages, w.avoids_topics, w.avoids_sensitive, l.sensitive_topics,
       l.sensitive_cap,
       case when w.sensitive_day = (now() at time zone 'utc')::date then w.sensitive_of_day else 0
         end as n_sensitive, {", ".join(f"l.{name}" for name in MIX)}"""
ELIGIBILITY_JOINS = """
left join labeling_annotator w on w.project_id = {project} and w.user_id = %(annotator)s
left join lateral (
  select min(g.version) as due from labeling_guideline g
  where g.project_id = {project} and g.is_major
    and g.version > coalesce(w.acknowledged_version, 0)
    and coalesce(l.acknowledge_guidelines, true) and m.role <> 'admin'
) d on true"""

# An extra slot goes before what is drawn at random: it is what a decision waits for.
EXTRA_PRIORITY = 1.0

# Which response stands left: a fair coin that always falls the same way for this person and pair.
SIDE = """case get_byte(sha256(convert_to(
    'side:' || %(annotator)s::text || ':' || {comparison}, 'UTF8')), 0) & 1
  when 0 then 'a' else 'b' end"""

LOOK = f"""
select {ELIGIBILITY_COLUMNS}
from accounts_membership m
left join labeling_labelingsettings l on l.project_id = m.project_id
{ELIGIBILITY_JOINS.format(project="m.project_id")}
where m.project_id = %(project)s and m.user_id = %(annotator)s
"""
ELIGIBILITY_LOCK = f"{LOOK} for no key update of m"

# Nobody gets a comparison they hold, have voted on, or have skipped. Votes from before it was sent
# to re-annotation do not count: it is judged again, under newer guidelines.
_MET = "exists (select from labeling_slot where comparison_id = {comparison}\
 and annotator_id = %(annotator)s{round})"
_SKIPPED = "exists (select from labeling_skip where comparison_id = {comparison}\
 and annotator_id = %(annotator)s)"
MET = _MET.replace("{round}", " and kind <> 'former'")
NEW_TO_ME = f"not {MET} and not {_SKIPPED}"
# For looking at a vote with fresh eyes: not even those who judged an earlier round.
NEVER_MET = f"not {_MET.replace('{round}', '')} and not {_SKIPPED}"
# An annotator may be limited to topics and languages; no limit is an empty list.
MINE_TO_DO = """
  (cardinality(%(topics)s::text[]) = 0 or {row}.topic = any(%(topics)s::text[]))
  and (cardinality(%(languages)s::text[]) = 0 or {row}.language = any(%(languages)s::text[]))
"""
# Nobody gets what they chose not to see, nor more pairs with a warning than the cap of the day.
# `{topic}` and `{warning}` are of the pair; the count is read here, under the person's lock.
_SENSITIVE = "({topic} = any(%(sensitive)s::text[]) or {warning})"
_CARE = f"""
  {{topic}} <> all(%(avoided)s::text[])
  and (not {_SENSITIVE} or not exists (
    select from labeling_annotator e
    where e.project_id = %(project)s and e.user_id = %(annotator)s
      and (e.avoids_sensitive
           or %(cap)s > 0 and e.sensitive_day = (now() at time zone 'utc')::date
              and e.sensitive_of_day >= %(cap)s)))
"""
_SLOT_WARNS = """exists (select from labeling_comparison x
    where x.id = s.comparison_id and x.warning <> '')"""
CARE = _CARE.format(topic="s.topic", warning=_SLOT_WARNS)
CARE_OF_PAIR = _CARE.format(topic="p.topic", warning="c.warning <> ''")
# Counts the pair in `taken` against the cap; a lease that is only renewed was counted before.
_EXPOSED = f"""
, exposed as (
  insert into labeling_annotator as w (project_id, user_id, acknowledged_version, topics, languages,
                                       votes_of_day, sensitive_day, sensitive_of_day, created_at,
                                       updated_at)
  select %(project)s, %(annotator)s, 0, '{{}}', '{{}}', 0, (now() at time zone 'utc')::date, 1,
         now(), now()
  from taken t join labeling_comparison c on c.id = t.comparison_id
  join labeling_prompt p on p.id = c.prompt_id
  where {_SENSITIVE.format(topic="p.topic", warning="c.warning <> ''")} {{unless}}
  on conflict (project_id, user_id) do update set
    sensitive_day = excluded.sensitive_day,
    sensitive_of_day =
      case when w.sensitive_day = excluded.sensitive_day then w.sensitive_of_day else 0 end + 1
)"""
EXPOSED = _EXPOSED.replace("{unless}", "")
# Audit re-votes and hidden repeats belong to one person and are not drawn by others.
DRAWN_BY_ALL = f"""s.project_id = %(project)s and s.kind in ('regular','gold')
  and {NEW_TO_ME.format(comparison="s.comparison_id")}"""
DRAWN = f"{DRAWN_BY_ALL} and {MINE_TO_DO.format(row='s')} and {CARE}"
LOCK = "for no key update of s skip locked"
HOLDS_ONE = """exists (select from labeling_slot h where h.project_id = %(project)s
  and h.annotator_id = %(annotator)s and h.state = 'leased')"""

CAN_BE_SHOWN = "c.state not in ('review', 'dropped')"
# Leases outlast the dropping of their comparison; once they lapse nobody else gets them.
SHOWABLE = f"""exists (select from labeling_comparison c
  where c.id = s.comparison_id and {CAN_BE_SHOWN})"""

# What the screen shows of the slot in `taken`.
SHOWN = f"""
select t.*, p.messages prompt, a.messages a, b.messages b, {SETTINGS_COLUMNS},
       coalesce(nullif(c.warning, ''),
                case when p.topic = any(l.sensitive_topics) then p.topic end, '') as warning
from taken t
join labeling_comparison c on c.id = t.comparison_id
join labeling_prompt p on p.id = c.prompt_id
join labeling_response a on a.id = c.response_a_id
join labeling_response b on b.id = c.response_b_id
left join labeling_labelingsettings l on l.project_id = c.project_id
"""


# Slots made for one person: gold, hidden repeats, audit re-votes.
#
# Each picks a comparison nobody else is locking, and adds a slot that is leased from the start. Two
# who add to the same comparison at once are settled by the unique position: one finds nothing here
# and draws from the queue instead.


_ADDED = """
  insert into labeling_slot (project_id, comparison_id, position, kind, state, priority, shuffle,
                             topic, language, annotator_id, leased_at, leased_until, left_is,
                             measures_id)
  select pick.project_id, pick.id,
         (select coalesce(max(o.position), 0) + 1 from labeling_slot o
          where o.comparison_id = pick.id),
         {kind}, 'leased', 0, pick.shuffle, pick.topic, pick.language, %(annotator)s, now(),
         now() + make_interval(secs => %(seconds)s), {side}, {measures}
  from pick
  on conflict (comparison_id, position) do nothing
  returning id, comparison_id, left_is, leased_at, leased_until
"""
_PICK_LOCK = "for no key update of c skip locked"
_PICKED = "c.id, c.project_id, c.shuffle, p.topic, p.language"

DRAW_GOLD = f"""
with pick as (
  select {_PICKED} from labeling_comparison c join labeling_prompt p on p.id = c.prompt_id
  where c.project_id = %(project)s and c.stratum = 'gold' and {CAN_BE_SHOWN}
    and {NEW_TO_ME.format(comparison="c.id")} and {MINE_TO_DO.format(row="p")}
    and {CARE_OF_PAIR} and not {HOLDS_ONE} and c.shuffle >= %(gold_from)s
  order by c.shuffle limit 1 {_PICK_LOCK}
), taken as ({
    _ADDED.format(kind="'gold'", measures="null", side=SIDE.format(comparison="pick.id"))
}){EXPOSED}
{SHOWN}
"""

# A vote of this person, long enough ago, on the other side this time; each pair once.
DRAW_REPEAT = f"""
with earlier as (
  select v.id, v.comparison_id, v.slot_id, v.left_is from labeling_vote v
  where v.project_id = %(project)s and v.annotator_id = %(annotator)s and v.is_current
  order by v.cast_at desc, v.id desc offset %(repeat_after)s limit 20
), pick as (
  select {_PICKED}, v.id as vote, case v.left_is when 'a' then 'b' else 'a' end as other_side
  from earlier v
  join labeling_slot s on s.id = v.slot_id and s.kind = 'regular'
  join labeling_comparison c on c.id = v.comparison_id and {CAN_BE_SHOWN}
  join labeling_prompt p on p.id = c.prompt_id
  where v.left_is <> '' and {CARE_OF_PAIR} and not {HOLDS_ONE}
    and not exists (select from labeling_slot r where r.comparison_id = c.id
                    and r.annotator_id = %(annotator)s and r.kind = 'repeat')
  order by random() limit 1 {_PICK_LOCK}
), taken as (
  {_ADDED.format(kind="'repeat'", measures="pick.vote", side="pick.other_side")}){EXPOSED}
{SHOWN}
"""

# A vote of somebody else from the audit sample on a comparison that votes decided, judged again
# without knowing it. What people adjudicated is settled by their eyes already.
AUDITABLE = "c.state = 'decided' and c.stratum in ('random', 'priority') and d.outcome = 'accepted'"
DRAW_AUDIT = f"""
with sampled as (
  select v.id, v.comparison_id, hashint8extended(v.id, {AUDIT_SEED}) as hash
  from labeling_vote v
  join labeling_slot s on s.id = v.slot_id and s.kind = 'regular'
  join labeling_comparison c on c.id = v.comparison_id
  join labeling_decision d on d.comparison_id = c.id and {AUDITABLE}
  where v.project_id = %(project)s and v.is_current and v.annotator_id <> %(annotator)s
    and hashint8extended(v.id, {AUDIT_SEED}) >= %(audit_from)s
    and hashint8extended(v.id, {AUDIT_SEED}) < %(audit_below)s
    and not exists (select from labeling_slot a where a.measures_id = v.id and a.kind = 'audit'
                    and (a.state = 'done' or a.leased_until > now()))
    and {NEVER_MET.format(comparison="v.comparison_id")}
  order by hashint8extended(v.id, {AUDIT_SEED}) limit 20
), pick as (
  select {_PICKED}, v.id as vote from sampled v
  join labeling_comparison c on c.id = v.comparison_id
  join labeling_prompt p on p.id = c.prompt_id
  where {CARE_OF_PAIR} and not {HOLDS_ONE}
  order by v.hash limit 1 {_PICK_LOCK}
), taken as ({
    _ADDED.format(kind="'audit'", measures="pick.vote", side=SIDE.format(comparison="pick.id"))
}){EXPOSED}
{SHOWN}
"""


# Handing out slots of the queue, and saying why there is none.


_DRAW = """
with own as (
  select s.id from labeling_slot s
  where s.project_id = %(project)s and s.annotator_id = %(annotator)s and s.state = 'leased'
  order by s.leased_at limit 1 for no key update
), lapsed as (
  select s.id from labeling_slot s
  where not exists (select from own)
    and s.state = 'leased' and s.leased_until < now() and {drawn}
    and {showable}
  order by s.leased_until limit 1 {lock}
), early as (
  select id from own union all select id from lapsed
), top as (
  select s.id from labeling_slot s
  where %(by_priority)s and not exists (select from early)
    and s.priority > 0 and s.state = 'free' and {drawn}
  order by s.priority desc, s.shuffle limit 1 {lock}
), place as (
  -- where this annotator was in the shuffled order: the slot of their last vote drawn from it
  select coalesce((
    select s.shuffle from (
      select id, slot_id, cast_at from labeling_vote
      where project_id = %(project)s and annotator_id = %(annotator)s
      order by cast_at desc, id desc limit 20
    ) v join labeling_slot s on s.id = v.slot_id
    where s.priority <= 0 and s.kind = 'regular' order by v.cast_at desc, v.id desc limit 1
  ), 0) as shuffle
), ahead as (
  select s.id from labeling_slot s
  where not exists (select from early)
    and not exists (select from top)
    and s.shuffle >= (select shuffle from place) and s.state = 'free' and {drawn}
  order by s.shuffle limit 1 {lock}
), behind as (
  select s.id from labeling_slot s
  where not exists (select from early)
    and not exists (select from top) and not exists (select from ahead)
    and s.shuffle < (select shuffle from place) and s.state = 'free' and {drawn}
  order by s.shuffle limit 1 {lock}
), taken as (
  update labeling_slot s set
    state = 'leased',
    annotator_id = %(annotator)s,
    leased_until = now() + make_interval(secs => %(seconds)s),
    leased_at = case when s.annotator_id = %(annotator)s then s.leased_at else now() end,
    left_is = case when s.annotator_id = %(annotator)s then s.left_is
              else {side} end
  where s.id = (select id from early
                union all select id from top
                union all select id from ahead union all select id from behind)
  returning s.id, s.comparison_id, s.left_is, s.leased_at, s.leased_until
){exposed}
{shown}
"""


def _draw(drawn: str, exposed: str = "") -> str:
    """One line without comments: psycopg keeps what it parsed of texts under 4,096 characters."""
    side = SIDE.format(comparison="s.comparison_id")
    text = _DRAW.format(
        drawn=drawn, lock=LOCK, side=side, shown=SHOWN, showable=SHOWABLE, exposed=exposed
    )
    line = " ".join(re.sub("--.*", "", text).split())
    return line.replace("( ", "(").replace(" )", ")")


# By whether the annotator is limited to topics, and to languages (said without "or", so that the
# index of topics serves), and whether there is anything to spare them.
_LIMITS = {
    (False, False): "",
    (True, False): " and s.topic <> '' and s.topic = any(%(topics)s::text[])",
    (False, True): " and s.language = any(%(languages)s::text[])",
}
_LIMITS[True, True] = _LIMITS[True, False] + _LIMITS[False, True]
DRAW = {(*key, False): _draw(DRAWN_BY_ALL + limits) for key, limits in _LIMITS.items()} | {
    (*key, True): _draw(
        f"{DRAWN_BY_ALL}{limits} and {CARE}",
        _EXPOSED.replace("{unless}", "and not exists (select from own)"),
    )
    for key, limits in _LIMITS.items()
}

# A slot of one given comparison: the wanted one first, else any that is free or has lapsed, else a
# new one while the project allows more. The caller holds the comparison's row.
TAKE = f"""
with room as (
  select c.id, c.project_id, c.priority, c.shuffle, p.topic, p.language,
         greatest(c.overlap, coalesce(l.max_overlap, {DEFAULTS.max_overlap})) as most,
         coalesce(l.lease_seconds, {DEFAULTS.lease_seconds}) as seconds,
         (select count(*) from labeling_slot s
          where s.comparison_id = c.id and s.state <> 'withdrawn'
            and s.kind in ('regular', 'gold')) as n_slots,
         (select coalesce(max(position), 0) from labeling_slot s
          where s.comparison_id = c.id) as last
  from labeling_comparison c join labeling_prompt p on p.id = c.prompt_id
  left join labeling_labelingsettings l on l.project_id = c.project_id
  where c.id = %(comparison)s
    and not {MET.format(comparison="c.id")}
    -- a pair that was sent to re-annotation meanwhile is another question than the one answered
    and not exists (select from labeling_slot w where w.id = %(slot)s and w.kind = 'former')
), open as (
  select s.id from labeling_slot s, room
  where s.comparison_id = room.id
    and s.kind in ('regular', 'gold')
    and (s.state = 'free' or (s.state = 'leased' and s.leased_until < now()))
  order by (s.id = %(slot)s) desc nulls last, s.state, s.position limit 1 {LOCK}
), taken as (
  update labeling_slot s set
    state = 'leased', annotator_id = %(annotator)s, leased_at = now(),
    leased_until = now() + make_interval(secs => (select seconds from room)),
    left_is = {SIDE.format(comparison="s.comparison_id")}
  where s.id = (select id from open)
  returning s.id
), added as (
  insert into labeling_slot (project_id, comparison_id, position, kind, state, priority, shuffle,
                             topic, language, annotator_id, leased_at, leased_until, left_is)
  select project_id, id, last + 1, 'regular', 'leased', priority, shuffle, topic, language,
         %(annotator)s, now(), now() + make_interval(secs => seconds),
         {SIDE.format(comparison="room.id")}
  from room
  where not exists (select from open) and n_slots < most
  returning id
), widened as (
  update labeling_comparison c set overlap = c.overlap + 1
  where c.id = %(comparison)s and exists (select from added)
)
select id from taken union all select id from added
"""

# What past votes need of the comparisons they belong to, and the slots that are there for them. The
# caller has locked the comparisons.
PLACES_OF = f"""
select c.id, c.project_id, c.overlap, c.response_a_id, c.response_b_id, c.priority, c.shuffle,
       p.topic, p.language, greatest(c.overlap, coalesce(l.max_overlap, {DEFAULTS.max_overlap}))
         as most,
       (select count(*) from labeling_slot s where s.comparison_id = c.id
          and s.state <> 'withdrawn' and s.kind in ('regular', 'gold')) as n_slots,
       (select coalesce(max(position), 0) from labeling_slot s where s.comparison_id = c.id) as last
from unnest(%(ids)s::bigint[]) t(id)
join labeling_comparison c on c.id = t.id
join labeling_prompt p on p.id = c.prompt_id
left join labeling_labelingsettings l on l.project_id = c.project_id
"""
OPEN_SLOTS = f"""
select s.id, s.comparison_id from unnest(%(ids)s::bigint[]) t(id)
join labeling_slot s on s.comparison_id = t.id
where s.kind in ('regular', 'gold')
  and (s.state = 'free' or (s.state = 'leased' and s.leased_until < now()))
order by s.comparison_id, s.state, s.position {LOCK}
"""

WHY_NOT = f"""
select {MET.format(comparison="c.id")},
       (select count(*) from labeling_slot s
        where s.comparison_id = c.id and s.state <> 'withdrawn'
          and s.kind in ('regular', 'gold')),
       l.max_overlap
from labeling_comparison c
left join labeling_labelingsettings l on l.project_id = c.project_id
where c.id = %(comparison)s
"""

RELEASE = """
update labeling_slot set state = case kind when 'former' then 'withdrawn' else 'free' end,
       annotator_id = null, leased_at = null, leased_until = null, left_is = ''
where id = %(slot)s and annotator_id = %(annotator)s and state = 'leased'
returning id
"""

WHY_NOTHING = f"""
select exists (select from labeling_comparison where project_id = %(project)s
               and stratum <> 'practice'),
       exists (select from labeling_slot where project_id = %(project)s and state = 'free'
               and kind in ('regular', 'gold')),
       held.n, held.back_at, now()
from (
  -- a free slot that was not drawn is just being taken by somebody
  select count(*) as n,
         coalesce(min(s.leased_until),
                  now() + make_interval(secs => %(seconds)s)) as back_at
  from labeling_slot s
  where s.state in ('leased', 'free') and {DRAWN} and {SHOWABLE}
) held
"""

# Whether there is anything for this person, and what they hold, without taking anything.
PROSPECT = f"""
select (select h.leased_until from labeling_slot h where h.project_id = %(project)s
        and h.annotator_id = %(annotator)s and h.state = 'leased'
        order by h.leased_at limit 1),
       exists (select from labeling_slot s
               where (s.state = 'free' or (s.state = 'leased' and s.leased_until < now()))
                 and {DRAWN} and {SHOWABLE})
"""


# Deciding many comparisons again at once. The steps are those of `votes.STORE_DECISION`.


# Everything a decision rests on, but for what a person has ruled.
READ_DECISIONS = """
select d.comparison_id, d.n_a, d.n_b, d.n_tie, d.n_both_bad, c.overlap, d.outcome, d.winner,
       d.decided_by, d.posteriors, d.rule = %(rule)s::jsonb as same_rule,
       c.state = 'contested' and c.review_reason = '{nobody}' as used_up
from labeling_decision d
join labeling_comparison c on c.id = d.comparison_id
where d.project_id = %(project)s and d.outcome in ('accepted', 'contested', 'needs_votes')
  and (%(only)s::bigint[] is null or d.comparison_id = any(%(only)s::bigint[]))
order by d.comparison_id
""".replace("{nobody}", NOBODY_LEFT)

LOCK_COMPARISONS = """
select c.id from labeling_comparison c join unnest(%(ids)s::bigint[]) t(id) on t.id = c.id
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
  join labeling_comparison c on c.id = t.id
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
update labeling_comparison c set
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


# Votes and the decisions they lead to.


LOCK_FOR_VOTE = f"""
with me as materialized (
  select m.role, m.paused_reason from accounts_membership m
  where m.user_id = %(annotator)s
    and m.project_id = (select project_id from labeling_slot where id = %(slot)s)
  for no key update
)
select s.id as slot, s.project_id as project, s.comparison_id as comparison, s.kind, s.state,
       s.annotator_id as annotator, s.left_is, s.leased_at, now() as now,
       c.response_a_id as response_a, c.response_b_id as response_b, c.overlap as slots,
       -- the newest version they know: not one that waits to be acknowledged
       (select g.id from labeling_guideline g where g.project_id = s.project_id
        order by d.due is not null and g.version >= d.due, g.version desc limit 1)
         as guideline,
       {ELIGIBILITY_COLUMNS}, {SETTINGS_COLUMNS}, {POLICY_COLUMNS}
from labeling_slot s
join labeling_comparison c on c.id = s.comparison_id
left join labeling_labelingsettings l on l.project_id = s.project_id
left join labeling_consensus f on f.project_id = s.project_id
left join me m on true
{ELIGIBILITY_JOINS.format(project="s.project_id")}
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
  review_reason = case review_reason when '{NOBODY_LEFT}' then '' else review_reason end,
  overlap = overlap + (select count(*) from added) - (select count(*) from spared),
  updated_at = now()
where id = %(comparison)s
"""


__all__ = [
    "CHOICES",
    "COUNTS_STORE",
    "DISCARD_UNDO_PLACES",
    "DRAW",
    "DRAW_AUDIT",
    "DRAW_GOLD",
    "DRAW_REPEAT",
    "ELIGIBILITY_LOCK",
    "IMPORT_LOCK",
    "IMPORT_UNDO",
    "IMPORT_VOTES",
    "INSERT_VOTE",
    "LABELERS_COUNT",
    "LOCK_COMPARISONS",
    "LOCK_FOR_VOTE",
    "LOOK",
    "MIX",
    "MOVED_TABLE",
    "NOBODY_LEFT_CLEAR",
    "NOBODY_LEFT_MARK",
    "OPEN_SLOTS",
    "OVERLAP_APPLIED",
    "PLACES_ADDED",
    "PLACES_BACK",
    "PLACES_MORE",
    "PLACES_OF",
    "POLICY",
    "PRIORITY_SET",
    "PROSPECT",
    "READ_DECISIONS",
    "RELEASE",
    "SET_ASIDE",
    "SIDE",
    "STORE_DECISION",
    "STORE_DECISIONS",
    "STORE_POSTERIORS",
    "TAKE",
    "VOTERS",
    "WHY_NOT",
    "WHY_NOTHING",
]


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
  select comparison_id, (max(position) / 1000 + 1) * 1000 as by
  from labeling_slot where comparison_id = any(%(ids)s) group by comparison_id
) o
where s.comparison_id = o.comparison_id
"""

NEW_SLOTS = f"""
insert into labeling_slot (project_id, comparison_id, position, kind, state, priority, shuffle,
                           topic, language, left_is)
select c.project_id, c.id, place, 'regular', 'free', c.priority + {EXTRA_PRIORITY}, c.shuffle,
       p.topic, p.language, ''
from labeling_comparison c
join labeling_prompt p on p.id = c.prompt_id
cross join generate_series(1, %(base)s) place
where c.id = any(%(ids)s)
"""


# Comparisons that nobody is left to vote on, and those that somebody is left for again.

# Who labels: annotators, and reviewers and admins who have answered a pair, or are about to.
_LABELERS = """
select m.user_id, coalesce(w.topics, '{}') as topics, coalesce(w.languages, '{}') as languages,
       coalesce(w.avoids_topics, '{}') as avoided, coalesce(w.avoids_sensitive, false) as spared,
       coalesce(l.sensitive_topics, '{}') as sensitive
from accounts_membership m
left join labeling_labelingsettings l on l.project_id = m.project_id
join accounts_user u on u.id = m.user_id and u.is_active
left join labeling_annotator w on w.project_id = m.project_id and w.user_id = m.user_id
where m.project_id = %(project)s and m.role in ('annotator', 'reviewer', 'admin')
  and m.paused_reason = ''
  and (m.role = 'annotator' or m.user_id = %(joining)s::bigint
       or exists (select from labeling_vote v
                  where v.project_id = m.project_id and v.annotator_id = m.user_id))
"""
LABELERS_COUNT = f"select count(*) from ({_LABELERS}) people"
_ANYBODY_LEFT = """exists (select from people
  where (cardinality(people.topics) = 0 or p.topic = any(people.topics))
    and (cardinality(people.languages) = 0 or p.language = any(people.languages))
    and p.topic <> all(people.avoided)
    and not (people.spared and (c.warning <> '' or p.topic = any(people.sensitive)))
    and not exists (select from labeling_slot s where s.comparison_id = c.id
                    and s.annotator_id = people.user_id and s.kind <> 'former'
                    and s.state = 'done')
    and not exists (select from labeling_skip k
                    where k.comparison_id = c.id and k.annotator_id = people.user_id))"""


def _looked_at(where: str) -> str:
    return f"""
with people as materialized ({_LABELERS}), found as (
  select c.id from labeling_comparison c join labeling_prompt p on p.id = c.prompt_id
  where c.project_id = %(project)s
    and (%(only)s::bigint[] is null or c.id = any(%(only)s::bigint[]))
    and {where}
  for no key update of c skip locked
)"""


_HAS_NOBODY = f"""c.state = 'open' and c.n_votes > 0 and c.stratum <> 'practice'
    and not exists (select from labeling_slot s where s.comparison_id = c.id
                    and s.state = 'leased' and s.leased_until > now())
    and not {_ANYBODY_LEFT}"""
_HAS_SOMEBODY = f"""c.state = 'contested' and c.review_reason = '{NOBODY_LEFT}'
    and {_ANYBODY_LEFT}"""
NOBODY_LEFT_MARK = f"""{_looked_at(_HAS_NOBODY)}, withdrawn as (
  update labeling_slot s set state = 'withdrawn' from found
  where s.comparison_id = found.id and s.state = 'free' and s.kind in ('regular', 'gold')
)
update labeling_comparison c set state = 'contested', review_reason = '{NOBODY_LEFT}',
       updated_at = now()
from found where c.id = found.id returning c.id
"""
NOBODY_LEFT_CLEAR = f"""{_looked_at(_HAS_SOMEBODY)}
update labeling_comparison c set review_reason = '' from found
where c.id = found.id returning c.id
"""

# Another number of votes per comparison, for the open ones. A pair that has so many already, and is
# undecided with nobody at it, keeps one place for the next vote.
OVERLAP_APPLIED = """
with wanted as materialized (
  select c.id, n.live, n.free,
         greatest(%(base)s, n.live + case when n.live >= %(base)s and n.leased = 0
                                          and n.live < %(most)s then 1 else 0 end) as places
  from labeling_comparison c
  cross join lateral (
    select count(*) filter (where s.state in ('leased', 'done')) as live,
           count(*) filter (where s.state = 'leased') as leased,
           count(*) filter (where s.state = 'free') as free
    from labeling_slot s where s.comparison_id = c.id and s.kind = 'regular'
  ) n
  where c.project_id = %(project)s and c.state = 'open' and c.stratum in ('random', 'priority')
  for no key update of c
), withdrawn as (
  update labeling_slot s set state = 'withdrawn'
  from (
    select s.id, w.free - (w.places - w.live) as surplus,
           row_number() over (partition by w.id order by s.position desc) as place
    from wanted w join labeling_slot s
      on s.comparison_id = w.id and s.kind = 'regular' and s.state = 'free'
  ) o
  where s.id = o.id and o.place <= o.surplus
  returning s.id
), added as (
  insert into labeling_slot (project_id, comparison_id, position, kind, state, priority, shuffle,
                             topic, language, left_is)
  select c.project_id, c.id,
         (select coalesce(max(position), 0) from labeling_slot s where s.comparison_id = c.id) + k,
         'regular', 'free', c.priority, c.shuffle, p.topic, p.language, ''
  from wanted w join labeling_comparison c on c.id = w.id
  join labeling_prompt p on p.id = c.prompt_id
  cross join lateral generate_series(1, (w.places - w.live - w.free)::int) k
  returning id
), widened as (
  update labeling_comparison c set overlap = w.places, updated_at = now()
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
    from labeling_comparison c
    join labeling_slot s on s.comparison_id = c.id and s.kind in ('regular', 'gold')
    where c.project_id = %(project)s and c.state = 'open'
      and (c.id = any(%(ids)s::bigint[])
           or %(ids)s::bigint[] is null and c.n_votes > 0 and c.stratum in ('random', 'priority'))
  ) places
  where state = 'withdrawn' and place <= room
)
"""


# Votes that are discarded, and that count again. The caller holds the slots and the comparisons.

# What open comparisons lack of the places they should have.
PLACES_MORE = f"""
insert into labeling_slot (project_id, comparison_id, position, kind, state, priority, shuffle,
                           topic, language, left_is)
select c.project_id, c.id, n.last + k, 'regular', 'free', c.priority + {EXTRA_PRIORITY}, c.shuffle,
       p.topic, p.language, ''
from labeling_comparison c
join labeling_prompt p on p.id = c.prompt_id
cross join lateral (
  select max(s.position) as last,
         count(*) filter (where s.kind in ('regular', 'gold') and s.state <> 'withdrawn') as live
  from labeling_slot s where s.comparison_id = c.id
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
  select s.id, s.comparison_id, back.n,
         row_number() over (partition by s.comparison_id, s.state = 'free'
                            order by s.position desc) as place,
         s.state = 'free' as is_free
  from back join labeling_slot s on s.comparison_id = back.id
  where s.kind = 'regular' and s.state <> 'withdrawn'
), withdrawn as (
  update labeling_slot s set state = 'withdrawn' from places p
  where s.id = p.id and p.is_free and p.place <= p.n
), wanted as (
  select comparison_id as id, n + count(*) filter (where not is_free or place > n) as places
  from places group by comparison_id, n
  union all
  select id, n from back where id not in (select comparison_id from places)
)
update labeling_comparison c set overlap = w.places, updated_at = now()
from wanted w where c.id = w.id and c.overlap < w.places
"""


# Taking an import back. What refers to its comparisons from elsewhere is found by the foreign keys.

IMPORT_LOCK = """
with slots as materialized (
  select s.comparison_id from labeling_slot s join labeling_comparison c on c.id = s.comparison_id
  where c.project_id = %(project)s and c.batch = %(batch)s
  order by s.id for update of s
), waited as materialized (select count(*) as n from slots)
select c.id, c.prompt_id, c.response_a_id, c.response_b_id from labeling_comparison c, waited
where c.project_id = %(project)s and c.batch = %(batch)s and waited.n >= 0
order by c.id for update of c
"""
_OF_IMPORT = "(select unnest(%(ids)s::bigint[]))"
IMPORT_VOTES = f"""
select count(*) filter (where source <> 'import'), count(*) filter (where source = 'import')
from labeling_vote where comparison_id in {_OF_IMPORT}
"""
# Prompts and answers go where nothing else shows them.
IMPORT_UNDO = {
    "votes": f"delete from labeling_vote where comparison_id in {_OF_IMPORT}",
    "slots": f"delete from labeling_slot where comparison_id in {_OF_IMPORT}",
    "skips": f"delete from labeling_skip where comparison_id in {_OF_IMPORT}",
    "decisions": f"delete from labeling_decision where comparison_id in {_OF_IMPORT}",
    "comparisons": f"""
with forgotten as (
  delete from labeling_facet
  where project_id = %(project)s and kind = 'batch' and value = %(batch)s
)
delete from labeling_comparison where id in {_OF_IMPORT}""",
    "responses": """
delete from labeling_response r
where r.id in (select unnest(%(responses)s::bigint[]))
  and not exists (select from labeling_comparison c where c.prompt_id = r.prompt_id
                  and r.id in (c.response_a_id, c.response_b_id))
  and not exists (select from labeling_ratingitem i where i.response_id = r.id)
  and not exists (select from labeling_vote v join labeling_comparison c on c.id = v.comparison_id
                  where c.prompt_id = r.prompt_id and v.improvement_id = r.id)""",
    "prompts": """
delete from labeling_prompt p
where p.id in (select unnest(%(prompts)s::bigint[]))
  and not exists (select from labeling_comparison c where c.prompt_id = p.id)
  and not exists (select from labeling_ratingtask t where t.prompt_id = p.id)
  and not exists (select from labeling_response r where r.prompt_id = p.id)""",
}

# What is done to many comparisons at once, whose rows and slots the caller has locked.

PRIORITY_SET = """
update labeling_slot s set priority = s.priority - c.priority + %(value)s
from unnest(%(ids)s::bigint[]) t(id) join labeling_comparison c on c.id = t.id
where s.comparison_id = c.id and s.state in ('free', 'leased') and s.kind in ('regular', 'gold')
"""
PLACES_ADDED = """
insert into labeling_slot (project_id, comparison_id, position, kind, state, priority, shuffle,
                           topic, language, left_is)
select c.project_id, c.id,
       (select coalesce(max(position), 0) from labeling_slot s where s.comparison_id = c.id) + k,
       'regular', 'free', c.priority, c.shuffle, p.topic, p.language, ''
from unnest(%(ids)s::bigint[]) t(id) join labeling_comparison c on c.id = t.id
join labeling_prompt p on p.id = c.prompt_id cross join generate_series(1, %(n)s) k
"""

# Out of the queue, dropped or for a person to look at: no further votes are asked for; leases that
# are out may still be answered.
SET_ASIDE = """
with withdrawn as (
  update labeling_slot s set state = 'withdrawn' from unnest(%(ids)s::bigint[]) t(id)
  where s.comparison_id = t.id and s.state = 'free' and s.kind in ('regular', 'gold')
), moved as (
  update labeling_comparison c set state = %(state)s, updated_at = now(),
         review_reason = case %(state)s when 'review' then left(%(reason)s, 300)
                         else c.review_reason end
  from unnest(%(ids)s::bigint[]) t(id) where c.id = t.id
  returning c.id, c.project_id
)
insert into labeling_decision as d (comparison_id, project_id, outcome, winner, n_a, n_b, n_tie,
  n_both_bad, n_agreeing, share, rule, reason, created_at, updated_at)
select id, project_id, %(outcome)s, '', 0, 0, 0, 0, 0, 0, '{}', left(%(words)s, 300), now(), now()
from moved
on conflict (comparison_id) do update set outcome = excluded.outcome, winner = '',
  reason = excluded.reason, updated_at = now()
"""
