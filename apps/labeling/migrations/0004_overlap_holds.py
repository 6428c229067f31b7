"""A comparison never has more places for votes than its overlap, whoever writes the rows.

Counted are regular slots that are not withdrawn. Gold slots (one for every annotator), hidden
repeats and audit re-votes measure people, not the comparison, and are not. Slots are checked after
each statement that adds some (transition tables: an import of 30,000 costs one join), and when a
withdrawn slot comes back or an overlap shrinks. The comparison's row is locked first, so two
writers cannot both find the last place free.

The ids are joined as rows: `id = any(…)` with the ten thousand ids of an import is compared one by
one until the tables have been analysed, which took 7 s of 8.
"""

from django.db import migrations

FORWARD = """
create function concord_places_check(touched bigint[]) returns void language plpgsql as $$
declare
  bad record;
begin
  perform from labeling_comparison c join unnest(touched) t(id) on t.id = c.id
  order by c.id for no key update of c;
  select c.id, c.overlap, g.n into bad
  from (
    select s.comparison_id, count(*) as n
    from unnest(touched) t(id)
    join labeling_slot s
      on s.comparison_id = t.id and s.kind = 'regular' and s.state <> 'withdrawn'
    group by s.comparison_id
  ) g
  join labeling_comparison c on c.id = g.comparison_id
  where g.n > c.overlap limit 1;
  if found then
    raise exception 'comparison % would have % places for votes; its overlap is %',
      bad.id, bad.n, bad.overlap
      using errcode = 'check_violation', constraint = 'labeling_overlap_holds';
  end if;
end $$;

create function concord_slots_added() returns trigger language plpgsql as $$
begin
  perform concord_places_check(
    (select array_agg(distinct comparison_id) from added where kind = 'regular'));
  return null;
end $$;
create trigger labeling_slots_added after insert on labeling_slot
  referencing new table as added
  for each statement execute function concord_slots_added();

create function concord_slot_back() returns trigger language plpgsql as $$
begin
  perform concord_places_check(array[new.comparison_id]);
  return null;
end $$;
create trigger labeling_slot_back after update on labeling_slot
  for each row when (old.state = 'withdrawn' and new.state <> 'withdrawn'
                     or old.comparison_id <> new.comparison_id)
  execute function concord_slot_back();

create function concord_overlap_less() returns trigger language plpgsql as $$
begin
  perform concord_places_check(array[new.id]);
  return null;
end $$;
create trigger labeling_overlap_less after update on labeling_comparison
  for each row when (new.overlap < old.overlap)
  execute function concord_overlap_less();
"""
BACKWARD = """
drop trigger labeling_overlap_less on labeling_comparison;
drop trigger labeling_slot_back on labeling_slot;
drop trigger labeling_slots_added on labeling_slot;
drop function concord_overlap_less();
drop function concord_slot_back();
drop function concord_slots_added();
drop function concord_places_check(bigint[]);
"""


class Migration(migrations.Migration):
    dependencies = [("labeling", "0003_what_labeling_asks")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
