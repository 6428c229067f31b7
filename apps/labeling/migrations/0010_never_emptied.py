"""Votes are never emptied away: TRUNCATE fires no trigger of a row, so it is refused here."""

from django.db import migrations

FORWARD = """
create trigger labeling_vote_never_emptied before truncate on labeling_vote
  for each statement execute function concord_refuse_change();
"""
BACKWARD = "drop trigger labeling_vote_never_emptied on labeling_vote;"


class Migration(migrations.Migration):
    dependencies = [
        ("labeling", "0009_undeciding_slots"),
        ("accounts", "0002_append_only_audit"),
    ]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
