"""A frozen snapshot never changes, nor do its rows."""

from django.db import migrations

FORWARD = """
create function concord_keep_snapshot() returns trigger language plpgsql as $$
begin
  if old.state = 'frozen' then
    raise exception 'snapshot % is frozen', old.id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger snapshots_snapshot_kept before update on snapshots_snapshot
  for each row execute function concord_keep_snapshot();

create function concord_keep_snapshot_row() returns trigger language plpgsql as $$
begin
  if (select state from snapshots_snapshot where id = new.snapshot_id) = 'frozen' then
    raise exception 'snapshot % is frozen', new.snapshot_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger snapshots_snapshotrow_kept before insert or update on snapshots_snapshotrow
  for each row execute function concord_keep_snapshot_row();
"""
BACKWARD = """
drop trigger snapshots_snapshotrow_kept on snapshots_snapshotrow;
drop function concord_keep_snapshot_row();
drop trigger snapshots_snapshot_kept on snapshots_snapshot;
drop function concord_keep_snapshot();
"""


class Migration(migrations.Migration):
    dependencies = [("snapshots", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
