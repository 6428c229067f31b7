"""Audit events are append-only: the database refuses to change or delete one."""

from django.db import migrations

FORWARD = """
create function concord_refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
create trigger accounts_auditevent_append_only before update or delete on accounts_auditevent
  for each row execute function concord_refuse_change();
"""
BACKWARD = """
drop trigger accounts_auditevent_append_only on accounts_auditevent;
drop function concord_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
