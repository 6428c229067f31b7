"""Names in a constitution may go when a person is erased."""

from django.db import migrations

FORWARD = """
create or replace function concord_keep_constitution() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and concord_only_erased(
    to_jsonb(old), to_jsonb(new), array['principles', 'hard_rules', 'note', 'created_name']
  ) then
    return new;
  end if;
  if tg_op = 'DELETE' then
    perform from accounts_project p where p.id = old.project_id and p.archived_at is not null;
    if found then
      return old;
    end if;
  end if;
  raise exception 'version % of a constitution is append-only', old.number
    using errcode = 'restrict_violation';
end $$;
"""
BACKWARD = """
create or replace function concord_keep_constitution() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    perform from accounts_project p where p.id = old.project_id and p.archived_at is not null;
    if found then
      return old;
    end if;
  end if;
  raise exception 'version % of a constitution is append-only', old.number
    using errcode = 'restrict_violation';
end $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0008_audit_without_names"),
        ("training", "0009_constitution"),
    ]

    operations = [
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
