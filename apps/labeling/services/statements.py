"""The statements behind the path of a vote, written by hand: each does in one round trip what the
ORM would do in several, and says which rows it locks.

Values are always parameters; what is pasted into the texts are constants of this module.
"""

import re

from apps.labeling.models import (
    AUDIT_SEED,
    CLOSED_IDS,
    NOBODY_LEFT,
    ONE_VOTE,
    LabelingSettings,
)
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

# Comparisons of imports that others label, or that are being undone (`CLOSED_IDS`).
NOT_CLOSED = "not {comparison} <@ %(closed)s::int8multirange"

# Of whom one asks before handing out: `m` is their membership, `w` their Annotator row, `l` the
# settings, `d.due` the first major version of the guidelines they have not acknowledged.
ELIGIBILITY_COLUMNS = f"""
       m.role, m.paused_reason as paused, d.due as guideline_due, l.qualification_pairs,
       w.qualified_at, coalesce(w.daily_cap, l.daily_cap) as daily_cap,
       case when w.votes_day = (now() at time zone 'utc')::date then w.votes_of_day else 0 end
         as n_today,
       w.topics, w.languages, w.avoids_topics, w.avoids_sensitive, l.sensitive_topics,
       l.sensitive_cap, coalesce(l.votes_quota, 0) as votes_quota, closed.ids as closed_ids,
       case when l.data_statement <> ''
         and l.data_statement_version > coalesce(w.consent_version, 0)
         then l.data_statement end as consent_due,
       case when w.sensitive_day = (now() at time zone 'utc')::date then w.sensitive_of_day else 0
         end as n_sensitive, {", ".join(f"l.{name}" for name in MIX)}"""
ELIGIBILITY_JOINS = """
left join labeling_annotator w on w.project_id = {project} and w.user_id = %(annotator)s
left join lateral (
  select min(g.version) as due from labeling_guideline g
  where g.project_id = {project} and g.is_major
    and g.version > coalesce(w.acknowledged_version, 0)
    and coalesce(l.acknowledge_guidelines, true) and m.role <> 'admin'
) d on true
left join lateral (select CLOSED_IDS::text as ids) closed on true""".replace(
    "CLOSED_IDS", CLOSED_IDS.replace("{user}", "%(annotator)s")
)

# An extra slot goes before what is drawn at random: it is what a decision waits for.
EXTRA_PRIORITY = 1.0

# Which response stands left: a fair coin that always falls the same way for this person and pair.
SIDE = """case get_byte(sha256(convert_to(
    'side:' || %(annotator)s::text || ':' || {comparison}, 'UTF8')), 0) & 1
  when 0 then 'a' else 'b' end"""

# Of a blind pair it is the side on which its first system stood less often for this person, so that
# nobody's taste for a side counts for a system; a coin where both are even.
_EVEN = """(select coalesce(sum(case x.left_is when 'a' then 1 when 'b' then -1 end), 0)
    from labeling_evaluationset e join labeling_answer x
      on x.project_id = e.project_id and x.annotator_id = %(annotator)s and x.is_current
         and x.task_id between e.first_task and e.last_task
    where e.project_id = %(project)s and {comparison} between e.first_task and e.last_task)"""
SIDE_DRAWN = f"""case when {{kind}} <> 'blind' then {SIDE} else
    case sign({_EVEN}) when 1 then 'b' when -1 then 'a' else {SIDE} end end"""

# The order responses are shown in where the task is no pair, likewise.
ORDER = """coalesce((select array_agg(i.position order by sha256(convert_to('order:'
    || %(annotator)s::text || ':' || {task} || ':' || i.position, 'UTF8')), i.position)
  from labeling_taskitem i where i.task_id = {task}), '{{}}')"""

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
_MET = "exists (select from labeling_slot where task_id = {comparison}\
 and annotator_id = %(annotator)s{round})"
_SKIPPED = "exists (select from labeling_skip where task_id = {comparison}\
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
_SLOT_WARNS = """exists (select from labeling_task x
    where x.id = s.task_id and x.warning <> '')"""
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
  from taken t join labeling_task c on c.id = t.task_id
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
  and {NEW_TO_ME.format(comparison="s.task_id")}"""
DRAWN = f"""{DRAWN_BY_ALL} and {MINE_TO_DO.format(row="s")} and {CARE}
  and {NOT_CLOSED.format(comparison="s.task_id")}"""
LOCK = "for no key update of s skip locked"
HOLDS_ONE = """exists (select from labeling_slot h where h.project_id = %(project)s
  and h.annotator_id = %(annotator)s and h.state = 'leased' and h.kind <> 'write')"""

CAN_BE_SHOWN = "c.state not in ('review', 'dropped')"
# Leases outlast the dropping of their comparison; once they lapse nobody else gets them.
SHOWABLE = f"""exists (select from labeling_task c
  where c.id = s.task_id and {CAN_BE_SHOWN})"""

# What the screen shows of the slot in `taken`.
SHOWN = f"""
select t.*, c.kind, c.of_agents, p.messages prompt, a.messages a, b.messages b, {SETTINGS_COLUMNS},
       coalesce(nullif(c.warning, ''),
                case when p.topic = any(l.sensitive_topics) then p.topic end, '') as warning
from taken t
join labeling_task c on c.id = t.task_id
join labeling_prompt p on p.id = c.prompt_id
left join labeling_response a on a.id = c.response_a_id
left join labeling_response b on b.id = c.response_b_id
left join labeling_labelingsettings l on l.project_id = c.project_id
"""
# Reading two runs of agents takes longer than reading two answers.
PROLONG = """
update labeling_slot
set leased_until = greatest(leased_until, now() + make_interval(secs => %(seconds)s))
where id = %(slot)s returning leased_until
"""
# … and what it shows besides where the task is no pair.
ITEMS = """
select c.low, c.high, c.low_label, c.high_label,
       (select jsonb_agg(r.messages order by i.position) from labeling_taskitem i
        join labeling_response r on r.id = i.response_id where i.task_id = c.id) as responses
from labeling_task c where c.id = %(task)s
"""


# Slots made for one person: gold, hidden repeats, audit re-votes.
#
# Each picks a comparison nobody else is locking, and adds a slot that is leased from the start. Two
# who add to the same comparison at once are settled by the unique position: one finds nothing here
# and draws from the queue instead.


_ADDED = """
  insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                             topic, language, annotator_id, leased_at, leased_until, left_is,
                             shown, measures_id)
  select pick.project_id, pick.id,
         (select coalesce(max(o.position), 0) + 1 from labeling_slot o
          where o.task_id = pick.id),
         {kind}, 'leased', 0, pick.shuffle, pick.topic, pick.language, %(annotator)s, now(),
         now() + make_interval(secs => %(seconds)s), {side}, {order}, {measures}
  from pick
  on conflict (task_id, position) do nothing
  returning id, task_id, left_is, shown, leased_at, leased_until
"""
_SIDE_OF_PICK = SIDE.format(comparison="pick.id")
_ORDER_OF_PICK = ORDER.format(task="pick.id")
_KINDS = "(%(kinds)s::text[] is null or c.kind = any(%(kinds)s::text[]))"
_PICK_LOCK = "for no key update of c skip locked"
_PICKED = "c.id, c.project_id, c.shuffle, p.topic, p.language"

DRAW_GOLD = f"""
with pick as (
  select {_PICKED} from labeling_task c join labeling_prompt p on p.id = c.prompt_id
  where c.project_id = %(project)s and c.stratum = 'gold' and {CAN_BE_SHOWN}
    and {_KINDS} and {NEW_TO_ME.format(comparison="c.id")} and {MINE_TO_DO.format(row="p")}
    and {NOT_CLOSED.format(comparison="c.id")} and {CARE_OF_PAIR} and not {
    HOLDS_ONE
} and c.shuffle >= %(gold_from)s
  order by c.shuffle limit 1 {_PICK_LOCK}
), taken as ({
    _ADDED.format(kind="'gold'", measures="null", side=_SIDE_OF_PICK, order=_ORDER_OF_PICK)
}){EXPOSED}
{SHOWN}
"""

# An answer of this person, long enough ago, on the other side or in the opposite order this time;
# each task once.
DRAW_REPEAT = f"""
with earlier as (
  select v.id, v.task_id, v.slot_id, v.left_is, v.shown from labeling_answer v
  where v.project_id = %(project)s and v.annotator_id = %(annotator)s and v.is_current
  order by v.cast_at desc, v.id desc offset %(repeat_after)s limit 20
), pick as (
  select {_PICKED}, v.id as vote, case v.left_is when 'a' then 'b' else 'a' end as other_side,
         array(select place from unnest(v.shown) with ordinality u(place, n) order by n desc)
           as other_order
  from earlier v
  join labeling_slot s on s.id = v.slot_id and s.kind = 'regular'
  join labeling_task c on c.id = v.task_id and {CAN_BE_SHOWN}
  join labeling_prompt p on p.id = c.prompt_id
  where (v.left_is <> '' or c.kind <> 'pair') and c.kind <> 'blind' and {_KINDS} and {CARE_OF_PAIR}
    and not {HOLDS_ONE}
    and not exists (select from labeling_slot r where r.task_id = c.id
                    and r.annotator_id = %(annotator)s and r.kind = 'repeat')
  order by random() limit 1 {_PICK_LOCK}
), taken as (
  {
    _ADDED.format(
        kind="'repeat'", measures="pick.vote", side="pick.other_side", order="pick.other_order"
    )
}){EXPOSED}
{SHOWN}
"""

# An answer of somebody else from the audit sample to a task that answers decided, judged again
# without knowing it. What people adjudicated is settled by their eyes already.
_DECIDED = "c.state = 'decided' and c.stratum in ('random', 'priority')"
AUDITABLE = f"{_DECIDED} and d.outcome = 'accepted'"
DRAW_AUDIT = f"""
with sampled as (
  select v.id, v.task_id, hashint8extended(v.id, {AUDIT_SEED}) as hash
  from labeling_answer v
  join labeling_slot s on s.id = v.slot_id and s.kind = 'regular'
  join labeling_task c on c.id = v.task_id and {_DECIDED}
  left join labeling_decision d on d.comparison_id = c.id
  where v.project_id = %(project)s and v.is_current and v.annotator_id <> %(annotator)s
    and hashint8extended(v.id, {AUDIT_SEED}) >= %(audit_from)s
    and hashint8extended(v.id, {AUDIT_SEED}) < %(audit_below)s
    and (d.outcome = 'accepted' or c.kind in ('grade', 'rank')) and {_KINDS}
    and not exists (select from labeling_slot a where a.measures_id = v.id and a.kind = 'audit'
                    and (a.state = 'done' or a.leased_until > now()))
    and {NEVER_MET.format(comparison="v.task_id")}
  order by hashint8extended(v.id, {AUDIT_SEED}) limit 20
), pick as (
  select {_PICKED}, v.id as vote from sampled v
  join labeling_task c on c.id = v.task_id
  join labeling_prompt p on p.id = c.prompt_id
  where {CARE_OF_PAIR} and not {HOLDS_ONE}
  order by v.hash limit 1 {_PICK_LOCK}
), taken as ({
    _ADDED.format(kind="'audit'", measures="pick.vote", side=_SIDE_OF_PICK, order=_ORDER_OF_PICK)
}){EXPOSED}
{SHOWN}
"""


# Handing out slots of the queue, and saying why there is none.


_DRAW = """
with own as (
  select s.id from labeling_slot s
  where s.project_id = %(project)s and s.annotator_id = %(annotator)s and s.state = 'leased'
    {own}
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
      select id, slot_id, cast_at from labeling_answer
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
    leased_until = {until},
    leased_at = case when s.annotator_id = %(annotator)s then s.leased_at else now() end,
    left_is = case when s.annotator_id = %(annotator)s then s.left_is
              else {side} end,
    shown = case when s.annotator_id = %(annotator)s then s.shown else {order} end
  where s.id = (select id from early
                union all select id from top
                union all select id from ahead union all select id from behind)
  returning s.id, s.task_id, s.left_is, s.shown, s.leased_at, s.leased_until
){exposed}
{shown}
"""


_UNTIL = "now() + make_interval(secs => %(seconds)s)"


def _draw(drawn: str, exposed: str, own: str, until: str = _UNTIL) -> str:
    """One line without comments: psycopg keeps what it parsed of texts under 4,096 characters."""
    kind = "(select k.kind from labeling_task k where k.id = s.task_id)"
    side = SIDE_DRAWN.format(comparison="s.task_id", kind=kind)
    order = ORDER.format(task="s.task_id")
    text = _DRAW.format(
        drawn=drawn,
        lock=LOCK,
        side=side,
        order=order,
        shown=SHOWN,
        showable=SHOWABLE,
        exposed=exposed,
        own=own,
        until=until,
    )
    line = " ".join(re.sub("--.*", "", text).split())
    return line.replace("( ", "(").replace(" )", ")")


# Whoever can show some kinds alone gets those.
OF_KINDS = """exists (select from labeling_task k
  where k.id = s.task_id and k.kind = any(%(kinds)s::text[]))"""

# By whether the annotator is limited to topics, and to languages (said without "or", so that the
# index of topics serves), whether imports are closed to them, and whether there is anything to
# spare them.
_LIMITS = {
    (False, False): "",
    (True, False): " and s.topic <> '' and s.topic = any(%(topics)s::text[])",
    (False, True): " and s.language = any(%(languages)s::text[])",
}
_LIMITS[True, True] = _LIMITS[True, False] + _LIMITS[False, True]
_JUDGED = " and s.kind <> 'write'"  # what is held of the queue of judgements
_OPEN = f" and {NOT_CLOSED.format(comparison='s.task_id')}"
_CLOSABLE = {
    (*key, closed): limits + (_OPEN if closed else "")
    for key, limits in _LIMITS.items()
    for closed in (False, True)
}
DRAW = {
    (*key, careful, some_kinds): _draw(
        DRAWN_BY_ALL
        + limits
        + (f" and {CARE}" if careful else "")
        + (f" and {OF_KINDS}" if some_kinds else ""),
        _EXPOSED.replace("{unless}", "and not exists (select from own)") if careful else "",
        _JUDGED + (f" and {OF_KINDS}" if some_kinds else ""),
    )
    for key, limits in _CLOSABLE.items()
    for careful in (False, True)
    for some_kinds in (False, True)
}

# Places to write at, likewise. They stand behind all others in the shuffled order (from 1 on) and
# in the order in which they were made; a closed batch's tasks cannot be shown. Whoever has a text
# sent back has days for it, which drawing it again does not shorten.
_TO_WRITE = f"""s.project_id = %(project)s and s.kind = 'write' and s.shuffle >= 1
  and {NEW_TO_ME.format(comparison="s.task_id")} and {SHOWABLE}"""
DRAW_WRITING = {
    (*key, careful): _draw(
        _TO_WRITE + limits + (f" and {CARE}" if careful else ""),
        _EXPOSED.replace("{unless}", "and not exists (select from own)") if careful else "",
        " and s.kind = 'write'",
        "greatest(case when s.annotator_id = %(annotator)s then s.leased_until end, "
        + _UNTIL
        + ")",
    )
    for key, limits in _LIMITS.items()
    for careful in (False, True)
}
# How many places there are for this person, and how many are with others.
WRITING_LEFT = f"""
select count(*) filter (where s.state = 'free' or s.leased_until < now()) as n_free,
       count(*) filter (where s.state = 'leased' and s.leased_until >= now()) as n_held,
       min(s.leased_until) filter (where s.leased_until >= now()) as back_at, now() as now
from labeling_slot s
where s.state in ('free', 'leased') and {_TO_WRITE} and {MINE_TO_DO.format(row="s")} and {CARE}
"""

# A slot of one given comparison: the wanted one first, else any that is free or has lapsed, else a
# new one while the project allows more. The caller holds the comparison's row.
TAKE = f"""
with room as (
  select c.id, c.project_id, c.priority, c.shuffle, p.topic, p.language,
         greatest(c.overlap, coalesce(l.max_overlap, {DEFAULTS.max_overlap})) as most,
         case when c.of_agents then coalesce(l.run_lease_seconds, {DEFAULTS.run_lease_seconds})
              else coalesce(l.lease_seconds, {DEFAULTS.lease_seconds}) end as seconds,
         (select count(*) from labeling_slot s
          where s.task_id = c.id and s.state <> 'withdrawn'
            and s.kind in ('regular', 'gold')) as n_slots,
         (select coalesce(max(position), 0) from labeling_slot s
          where s.task_id = c.id) as last
  from labeling_task c join labeling_prompt p on p.id = c.prompt_id
  left join labeling_labelingsettings l on l.project_id = c.project_id
  where c.id = %(task)s
    and not {MET.format(comparison="c.id")}
    -- a pair that was sent to re-annotation meanwhile is another question than the one answered
    and not exists (select from labeling_slot w where w.id = %(slot)s and w.kind = 'former')
), open as (
  select s.id from labeling_slot s, room
  where s.task_id = room.id
    and s.kind in ('regular', 'gold')
    and (s.state = 'free' or (s.state = 'leased' and s.leased_until < now()))
  order by (s.id = %(slot)s) desc nulls last, s.state, s.position limit 1 {LOCK}
), taken as (
  update labeling_slot s set
    state = 'leased', annotator_id = %(annotator)s, leased_at = now(),
    leased_until = now() + make_interval(secs => (select seconds from room)),
    left_is = {SIDE.format(comparison="s.task_id")}, shown = {ORDER.format(task="s.task_id")}
  where s.id = (select id from open)
  returning s.id
), added as (
  insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                             topic, language, annotator_id, leased_at, leased_until, left_is,
                             shown)
  select project_id, id, last + 1, 'regular', 'leased', priority, shuffle, topic, language,
         %(annotator)s, now(), now() + make_interval(secs => seconds),
         {SIDE.format(comparison="room.id")}, {ORDER.format(task="room.id")}
  from room
  where not exists (select from open) and n_slots < most
  returning id
), widened as (
  update labeling_task c set overlap = c.overlap + 1
  where c.id = %(task)s and exists (select from added)
)
select id from taken union all select id from added
"""

WHY_NOT = f"""
select {MET.format(comparison="c.id")} as met,
       (select count(*) from labeling_slot s
        where s.task_id = c.id and s.state <> 'withdrawn'
          and s.kind in ('regular', 'gold')) as n_slots,
       l.max_overlap as most
from labeling_task c
left join labeling_labelingsettings l on l.project_id = c.project_id
where c.id = %(task)s
"""

RELEASE = """
update labeling_slot set state = case kind when 'former' then 'withdrawn' else 'free' end,
       annotator_id = null, leased_at = null, leased_until = null, left_is = '',
       shown = '{}'
where id = %(slot)s and annotator_id = %(annotator)s and state = 'leased'
returning id
"""

WHY_NOTHING = f"""
select exists (select from labeling_task c where c.project_id = %(project)s
               and c.stratum <> 'practice' and c.kind <> 'write' and {_KINDS}) as any_at_all,
       exists (select from labeling_slot s join labeling_task c on c.id = s.task_id and {_KINDS}
               where s.project_id = %(project)s and s.state = 'free'
               and s.kind in ('regular', 'gold')) as any_free,
       held.n as n_held, held.back_at, now() as now
from (
  -- a free slot that was not drawn is just being taken by somebody
  select count(*) as n,
         coalesce(min(s.leased_until),
                  now() + make_interval(secs => %(seconds)s)) as back_at
  from labeling_slot s
  where s.state in ('leased', 'free') and {DRAWN} and {SHOWABLE}
    and (%(kinds)s::text[] is null or {OF_KINDS})
) held
"""

# Whether there is anything for this person, and what they hold, without taking anything. In two
# questions, each with its index: as one with "or" every slot of the site may be read.
PROSPECT = f"""
select (select h.leased_until from labeling_slot h where h.project_id = %(project)s
        and h.annotator_id = %(annotator)s and h.state = 'leased' and h.kind <> 'write'
        order by h.leased_at limit 1) as leased_until,
       exists (select from labeling_slot s
               where s.state = 'free' and {DRAWN} and {SHOWABLE})
       or exists (select from labeling_slot s
                  where s.state = 'leased' and s.leased_until < now()
                    and {DRAWN} and {SHOWABLE}) as any_left
"""


# Votes and the decisions they lead to.


LOCK_FOR_VOTE = f"""
with me as materialized (
  select m.role, m.paused_reason from accounts_membership m
  where m.user_id = %(annotator)s
    and m.project_id = (select project_id from labeling_slot where id = %(slot)s)
  for no key update
)
select s.id as slot, s.project_id as project, s.task_id as task, c.kind as task_kind, s.kind,
       s.state, s.annotator_id as annotator, s.left_is, s.shown, s.leased_at, now() as now,
       c.response_a_id as response_a, c.response_b_id as response_b, c.low, c.high,
       c.overlap as slots,
       -- the newest version they know: not one that waits to be acknowledged
       (select g.id from labeling_guideline g where g.project_id = s.project_id
        order by d.due is not null and g.version >= d.due, g.version desc limit 1)
         as guideline,
       {ELIGIBILITY_COLUMNS}, {SETTINGS_COLUMNS}, {POLICY_COLUMNS}
from labeling_slot s
join labeling_task c on c.id = s.task_id
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

# One more answer of this person today.
_COUNT_TODAY = """
  insert into labeling_annotator as w (project_id, user_id, acknowledged_version, topics, languages,
                                       votes_day, votes_of_day, created_at, updated_at)
  select %(project_id)s, %(annotator_id)s, 0, '{}', '{}', (now() at time zone 'utc')::date, 1,
         now(), now()"""
_COUNTED = """
  on conflict (project_id, user_id) do update set
    votes_day = excluded.votes_day,
    votes_of_day = case when w.votes_day = excluded.votes_day then w.votes_of_day else 0 end + 1"""
COUNT_TODAY = _COUNT_TODAY + _COUNTED
INSERT_ANSWER = """
with written as (
  insert into labeling_answer (
    project_id, task_id, kind, slot_id, annotator_id, choice, chosen_id, "values", shown, left_is,
    strength, criteria, reasons, rationale, flags, improvement_id, guideline_id, active_ms,
    wall_ms, idempotency_key, source, revision, supersedes_id, is_current, cast_at)
  values (
    %(project_id)s, %(task_id)s, %(kind)s, %(slot_id)s, %(annotator_id)s, %(choice)s,
    %(chosen_id)s, %(values)s::smallint[], %(shown)s::smallint[], %(left_is)s, %(strength)s,
    %(criteria)s, %(reasons)s, %(rationale)s, %(flags)s, %(improvement_id)s, %(guideline_id)s,
    %(active_ms)s, %(wall_ms)s, %(idempotency_key)s, %(source)s, %(revision)s, %(supersedes_id)s,
    true, %(cast_at)s)
  on conflict (annotator_id, idempotency_key) do nothing
  returning id
), closed as (
  update labeling_slot set state = 'done', leased_until = null where id = %(slot_id)s
), counted as (
COUNTED_ONCE from written where %(revision)s = 1 and %(source)s <> 'import' COUNTED_AGAIN
)
select (select id from written) as answer, count(*) as n,
       count(*) filter (where v.choice = 'a') as a, count(*) filter (where v.choice = 'b') as b,
       count(*) filter (where v.choice = 'tie') as tie,
       count(*) filter (where v.choice = 'both_bad') as both_bad
from labeling_answer v join labeling_slot s on s.id = v.slot_id
where v.task_id = %(task_id)s and v.is_current and s.kind in ('regular', 'gold')
""".replace("COUNTED_ONCE", _COUNT_TODAY).replace("COUNTED_AGAIN", _COUNTED)

# A task without decisions is done once it has as many answers as it wants.
COUNT_ANSWERS = """
update labeling_task set
  n_votes = %(n)s, updated_at = now(),
  state = case when state = 'open' and %(n)s >= overlap then 'decided'
               when state = 'decided' and %(n)s < overlap then 'open' else state end
where id = %(task)s
"""
ANSWERS = """
select count(*) from labeling_answer v join labeling_slot s on s.id = v.slot_id
where v.task_id = %(task)s and v.is_current and s.kind in ('regular', 'gold')
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
  from labeling_task c where c.id = %(comparison)s
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
  insert into labeling_slot (project_id, task_id, position, kind, state, priority, shuffle,
                             topic, language, left_is)
  select %(project)s, c.id,
         (select max(position) + 1 from labeling_slot s where s.task_id = c.id),
         'regular', 'free', c.priority + {EXTRA_PRIORITY}, c.shuffle, p.topic, p.language, ''
  from labeling_task c join labeling_prompt p on p.id = c.prompt_id
  where c.id = %(comparison)s and %(extra)s = 1 and c.slice not in {ONE_VOTE}
    and exists (select from decided where outcome = 'needs_votes')
  returning task_id
), spared as (
  -- extra votes that were asked for and are no longer needed; pairs that measure keep theirs
  update labeling_slot s set state = 'withdrawn'
  from labeling_task c
  where %(accepted)s and s.task_id = %(comparison)s and s.state = 'free'
    and s.kind = 'regular' and (s.position > %(base)s or %(stop)s)
    and c.id = s.task_id and c.slice <> 'measuring'
  returning s.id
)
update labeling_task set
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
    "ANSWERS",
    "CHOICES",
    "COUNT_ANSWERS",
    "DRAW",
    "DRAW_AUDIT",
    "DRAW_GOLD",
    "DRAW_REPEAT",
    "ELIGIBILITY_LOCK",
    "INSERT_ANSWER",
    "ITEMS",
    "LABELERS_COUNT",
    "LOCK_FOR_VOTE",
    "LOOK",
    "MIX",
    "POLICY",
    "PROLONG",
    "PROSPECT",
    "RELEASE",
    "SIDE",
    "STORE_DECISION",
    "TAKE",
    "VOTERS",
    "WHY_NOT",
    "WHY_NOTHING",
]


# Comparisons that nobody is left to vote on, and those that somebody is left for again.

# Who labels: annotators, and reviewers and admins who have answered a pair, or are about to.
LABELERS = """
select m.user_id, coalesce(w.topics, '{}') as topics, coalesce(w.languages, '{}') as languages,
       coalesce(w.avoids_topics, '{}') as avoided, coalesce(w.avoids_sensitive, false) as spared,
       coalesce(l.sensitive_topics, '{}') as sensitive, CLOSED_IDS as closed
from accounts_membership m
left join labeling_labelingsettings l on l.project_id = m.project_id
join accounts_user u on u.id = m.user_id and u.is_active
left join labeling_annotator w on w.project_id = m.project_id and w.user_id = m.user_id
where m.project_id = %(project)s and m.role in ('annotator', 'reviewer', 'admin')
  and m.paused_reason = ''
  and (m.role = 'annotator' or m.user_id = %(joining)s::bigint
       or exists (select from labeling_vote v
                  where v.project_id = m.project_id and v.annotator_id = m.user_id))
""".replace("CLOSED_IDS", CLOSED_IDS.format(project="m.project_id", user="m.user_id"))
LABELERS_COUNT = f"select count(*) from ({LABELERS}) people"
