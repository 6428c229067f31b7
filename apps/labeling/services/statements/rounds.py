"""A new round of votes on comparisons that were sent to re-annotation.

The caller holds the rows of the comparisons and of their slots.
"""
# ruff: noqa: S608

from apps.labeling.services.statements.shared import EXTRA_PRIORITY

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
