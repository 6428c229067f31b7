"""TRUNCATE fires no trigger of a row: it is refused by one of its own."""

from django.db import migrations

FORWARD = """
create trigger accounts_auditevent_never_emptied before truncate on accounts_auditevent
  for each statement execute function concord_refuse_change();
"""
BACKWARD = "drop trigger accounts_auditevent_never_emptied on accounts_auditevent;"


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_append_only_audit")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
