"""What a person wrote beside an answer may go when the person is erased."""

from django.db import migrations

FORWARD = """
create or replace function concord_keep_vote() returns trigger language plpgsql as $$
begin
  if concord_only_erased(to_jsonb(old), to_jsonb(new), array['rationale', 'criteria', 'idempotency_key']) then
    return new;
  end if;
  if (to_jsonb(new) - 'is_current') is distinct from (to_jsonb(old) - 'is_current')
     or (new.is_current and not old.is_current) then
    raise exception 'an answer is never overwritten: add a revision'
      using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
"""
BACKWARD = """
create or replace function concord_keep_vote() returns trigger language plpgsql as $$
begin
  if (to_jsonb(new) - 'is_current') is distinct from (to_jsonb(old) - 'is_current')
     or (new.is_current and not old.is_current) then
    raise exception 'an answer is never overwritten: add a revision'
      using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0008_audit_without_names"),
        ("labeling", "0018_label_budget"),
    ]

    operations = [
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
