"""Slots made for one person: gold, hidden repeats, audit re-votes.

Each picks a comparison nobody else is locking, and adds a slot that is leased from the start. Two
who add to the same comparison at once are settled by the unique position: one finds nothing here
and draws from the queue instead.
"""
# ruff: noqa: S608

from apps.labeling.models import AUDIT_SEED
from apps.labeling.services.statements.shared import (
    CAN_BE_SHOWN,
    HOLDS_ONE,
    MINE_TO_DO,
    NEVER_MET,
    NEW_TO_ME,
    SHOWN,
    SIDE,
)

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
    and not {HOLDS_ONE} and c.shuffle >= %(gold_from)s
  order by c.shuffle limit 1 {_PICK_LOCK}
), taken as ({
    _ADDED.format(kind="'gold'", measures="null", side=SIDE.format(comparison="pick.id"))
})
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
  where v.left_is <> '' and not {HOLDS_ONE}
    and not exists (select from labeling_slot r where r.comparison_id = c.id
                    and r.annotator_id = %(annotator)s and r.kind = 'repeat')
  order by random() limit 1 {_PICK_LOCK}
), taken as ({_ADDED.format(kind="'repeat'", measures="pick.vote", side="pick.other_side")})
{SHOWN}
"""

# A vote of somebody else from the audit sample on a comparison that votes have decided, judged anew
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
  where not {HOLDS_ONE}
  order by v.hash limit 1 {_PICK_LOCK}
), taken as ({
    _ADDED.format(kind="'audit'", measures="pick.vote", side=SIDE.format(comparison="pick.id"))
})
{SHOWN}
"""
