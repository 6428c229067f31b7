"""A vote is never overwritten: only `is_current` may change, and only to false."""

from django.db import migrations

FORWARD = """
create function concord_keep_vote() returns trigger language plpgsql as $$
begin
  if (to_jsonb(new) - 'is_current') is distinct from (to_jsonb(old) - 'is_current')
     or (new.is_current and not old.is_current) then
    raise exception 'a vote is never overwritten: add a revision'
      using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger labeling_vote_kept before update on labeling_vote
  for each row execute function concord_keep_vote();
"""
BACKWARD = """
drop trigger labeling_vote_kept on labeling_vote;
drop function concord_keep_vote();
"""


class Migration(migrations.Migration):
    dependencies = [("labeling", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
