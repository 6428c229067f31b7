"""The name of a dataset and of who read it may go when a person is erased."""

from django.db import migrations

FORWARD = """
create or replace function concord_keep_snapshot() returns trigger language plpgsql as $$
begin
  if old.state = 'frozen' and not concord_only_erased(
    to_jsonb(old), to_jsonb(new), array['name', 'error']
  ) then
    raise exception 'snapshot % is frozen', old.id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create function concord_keep_split_access() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and concord_only_erased(
    to_jsonb(old), to_jsonb(new), array['person_name']
  ) then
    return new;
  end if;
  raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
drop trigger snapshots_splitaccess_append_only on snapshots_splitaccess;
create trigger snapshots_splitaccess_append_only before update or delete on snapshots_splitaccess
  for each row execute function concord_keep_split_access();
"""
BACKWARD = """
drop trigger snapshots_splitaccess_append_only on snapshots_splitaccess;
create trigger snapshots_splitaccess_append_only before update or delete on snapshots_splitaccess
  for each row execute function concord_refuse_change();
drop function concord_keep_split_access();
create or replace function concord_keep_snapshot() returns trigger language plpgsql as $$
begin
  if old.state = 'frozen' then
    raise exception 'snapshot % is frozen', old.id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0008_audit_without_names"),
        ("snapshots", "0006_pairs_without_labels"),
    ]

    operations = [
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
