"""Handing out slots of the queue, and saying why there is none."""
# ruff: noqa: S608

import re

from apps.labeling.services.statements.shared import (
    DEFAULTS,
    DRAWN,
    DRAWN_BY_ALL,
    LOCK,
    MET,
    SHOWABLE,
    SHOWN,
    SIDE,
)

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
)
{shown}
"""


def _draw(drawn: str) -> str:
    """One line without comments: psycopg keeps what it parsed of texts under 4,096 characters."""
    side = SIDE.format(comparison="s.comparison_id")
    text = _DRAW.format(drawn=drawn, lock=LOCK, side=side, shown=SHOWN, showable=SHOWABLE)
    line = " ".join(re.sub("--.*", "", text).split())
    return line.replace("( ", "(").replace(" )", ")")


DRAW = _draw(DRAWN_BY_ALL)
# For annotators with topics or languages of their own; said without "or", so that the index of
# topics serves.
_TOPICS = "s.topic <> '' and s.topic = any(%(topics)s::text[])"
_LANGUAGES = "s.language = any(%(languages)s::text[])"
DRAW_TOPICS = _draw(f"{DRAWN_BY_ALL} and {_TOPICS}")
DRAW_LANGUAGES = _draw(f"{DRAWN_BY_ALL} and {_LANGUAGES}")
DRAW_BOTH = _draw(f"{DRAWN_BY_ALL} and {_TOPICS} and {_LANGUAGES}")

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
