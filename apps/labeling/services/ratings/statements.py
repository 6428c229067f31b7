"""The statements behind handing out rating tasks: one round trip each, and which rows they lock.

Who may rate, and what gates them, is read by `services.statements.SEAT`, as for pairs; it locks the
membership. Locks are taken in the order membership, slot, task.
"""
# ruff: noqa: S608

# The order responses are shown in: a shuffle that always falls the same for this person and task.
_SHOWN = """(
  select array_agg(i.position order by
           sha256(convert_to('order:' || %(annotator)s::text || ':' || s.task_id::text || ':'
                             || i.position::text, 'UTF8')), i.position)
  from labeling_ratingitem i where i.task_id = s.task_id)"""
_CAN_BE_TAKEN = """s.state in ('free', 'leased') and (s.state = 'free' or s.leased_until < now())"""
# Nobody gets a task they have rated or skipped or that was put aside, nor foreign topics.
_MINE_TO_DO = """
  not exists (select from labeling_ratingslot mine
              where mine.task_id = s.task_id and mine.annotator_id = %(annotator)s)
  and not exists (select from labeling_ratingskip k
                  where k.task_id = s.task_id and k.annotator_id = %(annotator)s)
  and exists (select from labeling_ratingtask t where t.id = s.task_id and t.state = 'open')
  and (cardinality(%(topics)s::text[]) = 0 or s.topic = any(%(topics)s::text[]))
  and (cardinality(%(languages)s::text[]) = 0 or s.language = any(%(languages)s::text[]))
"""
_HELD = """s.project_id = %(project)s and s.annotator_id = %(annotator)s and s.state = 'leased'"""

# The slot in hand, else the next: lapsed or free, by priority, then by the stored shuffle.
DRAW = f"""
with own as (
  select s.id from labeling_ratingslot s where {_HELD}
  order by s.leased_at limit 1 for no key update
), next as (
  select s.id from labeling_ratingslot s
  where not exists (select from own) and s.project_id = %(project)s
    and {_CAN_BE_TAKEN} and {_MINE_TO_DO}
  order by s.priority desc, s.shuffle, s.id limit 1 for no key update of s skip locked
)
update labeling_ratingslot s set
  state = 'leased',
  annotator_id = %(annotator)s,
  leased_until = now() + make_interval(secs => %(seconds)s),
  leased_at = case when s.annotator_id = %(annotator)s then s.leased_at else now() end,
  shown = case when s.annotator_id = %(annotator)s then s.shown else {_SHOWN} end
where s.id = (select id from own union all select id from next)
returning s.id, s.task_id, s.shown, s.leased_at, s.leased_until
"""

# Another slot of one task, for somebody whose lease went to others: the wanted one first.
TAKE = f"""
with open as (
  select s.id from labeling_ratingslot s
  where s.task_id = %(task)s and {_CAN_BE_TAKEN}
    and not exists (select from labeling_ratingslot mine
                    where mine.task_id = s.task_id and mine.annotator_id = %(annotator)s)
  order by (s.id = %(slot)s) desc, s.position limit 1 for no key update of s skip locked
)
update labeling_ratingslot s set
  state = 'leased', annotator_id = %(annotator)s, leased_at = now(), leased_until = now(),
  shown = {_SHOWN}
where s.id = (select id from open)
returning s.id
"""

# The slot and its task while we hold both rows.
LOCK = """
select s.id, s.project_id, s.task_id, s.state, s.annotator_id, s.shown, s.leased_at, now(),
       t.kind, t.low, t.high
from labeling_ratingslot s join labeling_ratingtask t on t.id = s.task_id
where s.id = %(slot)s
for no key update of s, t
"""

RELEASE = """
update labeling_ratingslot set state = 'free', annotator_id = null, leased_at = null,
       leased_until = null, shown = '{}'
where id = %(slot)s and annotator_id = %(annotator)s and state = 'leased'
returning task_id
"""

# A slot that is free and theirs, yet was not handed out, is being taken by somebody this moment.
WHY_NOTHING = f"""
select exists (select from labeling_ratingtask where project_id = %(project)s),
       exists (select from labeling_ratingslot where project_id = %(project)s and state = 'free'),
       held.n, held.back_at, now()
from (
  select count(*) as n,
         coalesce(min(s.leased_until), now() + make_interval(secs => %(seconds)s)) as back_at
  from labeling_ratingslot s
  where s.project_id = %(project)s and s.state in ('free', 'leased') and {_MINE_TO_DO}
) held
"""

# First ratings since midnight UTC; changes of one's mind are not new work.
RATED_TODAY = """
select count(*) from labeling_rating
where project_id = %(project)s and annotator_id = %(annotator)s and revision = 1
  and rated_at >= date_trunc('day', now(), 'UTC')
"""
