"""Names in the history of promotions may go when a person is erased."""

from django.db import migrations

FORWARD = """
create or replace function concord_promotion_kept() returns trigger language plpgsql as $$
declare
  owner text;
begin
  if tg_op = 'UPDATE' and concord_only_erased(
    to_jsonb(old), to_jsonb(new),
    array['requested_name', 'by_name', 'decided_name', 'seconded_name', 'reason', 'evidence']
  ) then
    return new;
  end if;
  if tg_op = 'DELETE' then
    owner := to_jsonb(old) ->> 'project_id';
    if owner is null then
      select project_id::text into owner from evaluation_promotionrequest
      where id = to_jsonb(old) ->> 'request_id';
    end if;
    perform from accounts_project p where p.id::text = owner and p.archived_at is not null;
    if found then
      return old;
    end if;
  end if;
  raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
"""
BACKWARD = """
create or replace function concord_promotion_kept() returns trigger language plpgsql as $$
declare
  owner text;
begin
  if tg_op = 'DELETE' then
    owner := to_jsonb(old) ->> 'project_id';
    if owner is null then
      select project_id::text into owner from evaluation_promotionrequest
      where id = to_jsonb(old) ->> 'request_id';
    end if;
    perform from accounts_project p where p.id::text = owner and p.archived_at is not null;
    if found then
      return old;
    end if;
  end if;
  raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0008_audit_without_names"),
        ("evaluation", "0010_judges"),
    ]

    operations = [
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
