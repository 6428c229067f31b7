"""What is labelled: imports, prompts, comparisons, slots, votes, decisions and rating tasks."""

import apps.common.models
import apps.labeling.models.settings
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
from django.conf import settings
from django.db import migrations, models

FORWARD = """
-- A vote is never overwritten: only is_current may change, and only to false.
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

create trigger labeling_vote_never_emptied before truncate on labeling_vote
  for each statement execute function concord_refuse_change();

-- A comparison never has more slots than its overlap, whoever writes the rows. Counted are regular
-- slots that are not withdrawn: gold slots, hidden repeats and audits measure people. They are
-- checked after each statement that adds some (transition tables: an import of 30,000 costs one
-- join), and when a withdrawn slot comes back or an overlap shrinks. The comparison's row is locked
-- first, so two writers cannot both find the last place free. The ids are joined as rows:
-- id = any(…) is compared one by one until the tables are analysed, which took 7 s of 8.
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

-- A rating is never overwritten.
create function concord_keep_rating() returns trigger language plpgsql as $$
begin
  if (to_jsonb(new) - 'is_current') is distinct from (to_jsonb(old) - 'is_current')
     or (new.is_current and not old.is_current) then
    raise exception 'a rating is never overwritten: add a revision'
      using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger labeling_rating_kept before update on labeling_rating
  for each row execute function concord_keep_rating();

-- One value for each response of the task, each on its scale.
create function concord_rating_fits() returns trigger language plpgsql as $$
declare
  task labeling_ratingtask;
  n_items int;
begin
  select * into task from labeling_ratingtask where id = new.task_id;
  select count(*) into n_items from labeling_ratingitem where task_id = new.task_id;
  if cardinality(new.values) <> n_items
     or exists (select from unnest(new.values) v where v is null or v < task.low or v > task.high)
  then
    raise exception 'rating task % takes % values from % to %',
      new.task_id, n_items, task.low, task.high
      using errcode = 'check_violation', constraint = 'labeling_rating_fits';
  end if;
  return new;
end $$;
create trigger labeling_rating_fits before insert on labeling_rating
  for each row execute function concord_rating_fits();

-- Positions are unique and run from 1, so this is also the number of slots.
create function concord_rating_slot_fits() returns trigger language plpgsql as $$
begin
  if new.position not between 1 and
     (select overlap from labeling_ratingtask where id = new.task_id) then
    raise exception 'rating task % would have more slots than its overlap', new.task_id
      using errcode = 'check_violation', constraint = 'labeling_rating_overlap_holds';
  end if;
  return new;
end $$;
create trigger labeling_rating_slot_fits before insert or update of position, task_id
  on labeling_ratingslot for each row execute function concord_rating_slot_fits();

create function concord_rating_overlap_stays() returns trigger language plpgsql as $$
begin
  if exists (select from labeling_ratingslot where task_id = new.id
             and position > new.overlap) then
    raise exception 'rating task % has more slots than the new overlap', new.id
      using errcode = 'check_violation', constraint = 'labeling_rating_overlap_holds';
  end if;
  return new;
end $$;
create trigger labeling_rating_overlap_stays before update of overlap on labeling_ratingtask
  for each row when (new.overlap < old.overlap) execute function concord_rating_overlap_stays();
"""
BACKWARD = """
drop trigger labeling_rating_overlap_stays on labeling_ratingtask;
drop trigger labeling_rating_slot_fits on labeling_ratingslot;
drop trigger labeling_rating_fits on labeling_rating;
drop trigger labeling_rating_kept on labeling_rating;
drop function concord_rating_overlap_stays();
drop function concord_rating_slot_fits();
drop function concord_rating_fits();
drop function concord_keep_rating();
drop trigger labeling_overlap_less on labeling_comparison;
drop trigger labeling_slot_back on labeling_slot;
drop trigger labeling_slots_added on labeling_slot;
drop function concord_overlap_less();
drop function concord_slot_back();
drop function concord_slots_added();
drop function concord_places_check(bigint[]);
drop trigger labeling_vote_never_emptied on labeling_vote;
drop trigger labeling_vote_kept on labeling_vote;
drop function concord_keep_vote();
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Consensus',
            fields=[
                ('project', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='consensus', serialize=False, to='accounts.project')),
                ('method', models.CharField(choices=[('votes', 'Counted votes'), ('one_coin', 'One-coin Dawid–Skene'), ('dawid_skene', 'Dawid–Skene'), ('mace', 'MACE')], max_length=12)),
                ('priors', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=4)),
                ('confusion', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=16)),
                ('n_votes', models.IntegerField(default=0)),
                ('last_vote_id', models.BigIntegerField(default=0)),
                ('fitted_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Guideline',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('version', models.PositiveIntegerField()),
                ('body', models.TextField(help_text='Markdown')),
                ('is_major', models.BooleanField(default=False)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='guidelines', to='accounts.project')),
            ],
        ),
        migrations.CreateModel(
            name='ImportJob',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('number', models.BigIntegerField(help_text='of its advisory lock', unique=True)),
                ('file_name', models.CharField(max_length=255)),
                ('file_size', models.BigIntegerField(help_text='bytes')),
                ('file_sha256', models.CharField(max_length=64)),
                ('file_deleted_at', models.DateTimeField(blank=True, null=True)),
                ('stage', models.CharField(choices=[('check', 'check'), ('import', 'import')], default='check', max_length=6)),
                ('state', models.CharField(choices=[('draft', 'needs column mapping'), ('queued', 'waiting for a worker'), ('running', 'running'), ('done', 'done'), ('failed', 'failed'), ('cancelled', 'cancelled'), ('interrupted', 'interrupted')], default='draft', max_length=11)),
                ('settings', models.JSONField(default=dict, help_text='container, layout, mapping, options')),
                ('preview', models.JSONField(default=dict, help_text='columns and first rows, as read with them')),
                ('attempt', models.PositiveIntegerField(default=0)),
                ('cancel_wanted', models.BooleanField(default=False)),
                ('queued_at', models.DateTimeField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.TextField(blank=True, help_text='why it failed, in words for the importer')),
                ('check_report', models.JSONField(blank=True, default=dict)),
                ('result', models.JSONField(blank=True, default=dict)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='imports', to='accounts.project')),
            ],
        ),
        migrations.CreateModel(
            name='LabelingSettings',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('project', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='labeling', serialize=False, to='accounts.project')),
                ('overlap', models.PositiveSmallIntegerField(default=3, help_text='votes per comparison')),
                ('max_overlap', models.PositiveSmallIntegerField(default=5)),
                ('least_votes', models.PositiveSmallIntegerField(default=3)),
                ('least_agreeing', models.PositiveSmallIntegerField(default=3)),
                ('least_share', models.FloatField(default=0.6)),
                ('decide_by', models.CharField(choices=[('votes', 'Counted votes'), ('one_coin', 'One-coin Dawid–Skene'), ('dawid_skene', 'Dawid–Skene'), ('mace', 'MACE')], db_default='votes', default='votes', help_text='counted votes, or the posterior of a model of the voters', max_length=12)),
                ('least_posterior', models.FloatField(db_default=0.9, default=0.9, help_text='to accept, and to ask for no further votes')),
                ('stop_early', models.BooleanField(db_default=False, default=False, help_text='ask for no further votes once the posterior is reached')),
                ('lease_seconds', models.PositiveIntegerField(default=900)),
                ('random_share', models.FloatField(default=0.5, help_text='of the queue drawn at random, never zero: agreement rests on it')),
                ('show_tie', models.BooleanField(default=True)),
                ('show_both_bad', models.BooleanField(default=True)),
                ('show_strength', models.BooleanField(default=False)),
                ('show_rationale', models.BooleanField(default=False)),
                ('require_rationale', models.BooleanField(default=False, help_text='a reason chip or a text with every vote')),
                ('reasons', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), blank=True, default=apps.labeling.models.settings.reason_chips, size=None)),
                ('criteria', models.JSONField(blank=True, default=list, help_text='[{"key": …, "label": …}, …]: a row A / tie / B each')),
                ('require_criteria', models.BooleanField(default=False)),
                ('show_flags', models.BooleanField(default=True)),
                ('show_improve', models.BooleanField(default=False, help_text='an editor for an improved version of the better answer')),
                ('gold_share', models.FloatField(default=0.0)),
                ('repeat_share', models.FloatField(default=0.0)),
                ('audit_share', models.FloatField(default=0.0, help_text='of what reviewers and admins get: blind re-votes')),
                ('audit_rate', models.FloatField(default=0.1, help_text='of votes, drawn by a seeded hash')),
                ('audit_days', models.PositiveSmallIntegerField(db_default=7, default=7, help_text='an audited vote is judged again within so many days')),
                ('fast_ms', models.PositiveIntegerField(db_default=2000, default=2000, help_text='answers faster than this were hardly read')),
                ('vote_price', models.FloatField(db_default=0.0, default=0.0, help_text='what one vote costs, in `currency`; 0: not stated')),
                ('currency', models.CharField(db_default='EUR', default='EUR', max_length=3)),
                ('skips_to_review', models.PositiveSmallIntegerField(default=3)),
                ('acknowledge_guidelines', models.BooleanField(default=True)),
                ('daily_cap', models.PositiveIntegerField(default=0, help_text='votes a person a day; 0: no cap')),
                ('qualification_pairs', models.PositiveSmallIntegerField(default=0, help_text='gold pairs to judge before real work; 0: no qualification')),
                ('qualification_pass', models.FloatField(default=0.8)),
                ('qualification_attempts', models.PositiveSmallIntegerField(default=3)),
                ('qualification_cooldown_minutes', models.PositiveIntegerField(default=60)),
                ('constraint_phrases', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, default=list, help_text='an answer that holds one goes to human review', size=None)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('gold_share__gte', 0), ('repeat_share__gte', 0), ('audit_share__gte', 0), ('gold_share__lte', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.Value(0.500001), '-', models.F('repeat_share')), '-', models.F('audit_share')))), name='labeling_shares_leave_work'), models.CheckConstraint(condition=models.Q(('overlap__gte', 1), ('max_overlap__gte', models.F('overlap'))), name='labeling_overlap_in_order'), models.CheckConstraint(condition=models.Q(('least_share__gt', 0), ('least_share__lte', 1)), name='labeling_share_is_a_share'), models.CheckConstraint(condition=models.Q(('least_posterior__gt', 0.5), ('least_posterior__lt', 1)), name='labeling_posterior_beyond_chance'), models.CheckConstraint(condition=models.Q(('random_share__gt', 0), ('random_share__lte', 1)), name='labeling_random_share_not_zero')],
            },
        ),
        migrations.CreateModel(
            name='Prompt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('messages', models.JSONField()),
                ('text_hash', models.CharField(help_text='of the normalised messages', max_length=64)),
                ('group_key', models.CharField(help_text='what splits go by: topic, debate or the prompt', max_length=200)),
                ('topic', models.CharField(blank=True, max_length=200)),
                ('language', models.CharField(blank=True, max_length=12)),
                ('source', models.CharField(blank=True, max_length=120)),
                ('licence', models.CharField(blank=True, max_length=60)),
                ('metadata', models.JSONField(blank=True, default=dict)),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='prompts', to='accounts.project')),
            ],
        ),
        migrations.CreateModel(
            name='Comparison',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('external_id', models.CharField(blank=True, max_length=120)),
                ('batch', models.CharField(blank=True, help_text='the import or run it came with', max_length=80)),
                ('state', models.CharField(choices=[('open', 'open'), ('decided', 'decided'), ('contested', 'contested'), ('review', 'needs review'), ('dropped', 'dropped')], default='open', max_length=9)),
                ('stratum', models.CharField(choices=[('random', 'normal'), ('priority', 'priority'), ('gold', 'gold'), ('practice', 'practice')], default='random', max_length=8)),
                ('priority', models.FloatField(default=0.0)),
                ('shuffle', models.FloatField(default=0.0, help_text='a seeded draw in [0, 1): the order of the random stratum')),
                ('overlap', models.PositiveSmallIntegerField(default=3)),
                ('gold', models.CharField(blank=True, choices=[('a', 'A is better'), ('b', 'B is better'), ('tie', 'Tie'), ('both_bad', 'Both are bad')], max_length=8)),
                ('gold_explanation', models.TextField(blank=True, db_default='', default='', help_text='why, for whoever is learning')),
                ('review_reason', models.CharField(blank=True, db_default='', default='', help_text='why a person must look at it', max_length=300)),
                ('n_votes', models.PositiveIntegerField(default=0, help_text='current votes, kept by vote_cast')),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='comparisons', to='accounts.project')),
                ('prompt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='comparisons', to='labeling.prompt')),
            ],
        ),
        migrations.CreateModel(
            name='QualificationAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('number', models.PositiveSmallIntegerField()),
                ('state', models.CharField(choices=[('running', 'running'), ('passed', 'passed'), ('failed', 'failed')], default='running', max_length=7)),
                ('pass_share', models.FloatField(help_text='the passing share when it began')),
                ('n_pairs', models.PositiveSmallIntegerField()),
                ('n_right', models.PositiveSmallIntegerField(default=0)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='QualificationAnswer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField()),
                ('left_is', models.CharField(choices=[('a', 'A'), ('b', 'B')], max_length=1)),
                ('choice', models.CharField(blank=True, choices=[('a', 'A is better'), ('b', 'B is better'), ('tie', 'Tie'), ('both_bad', 'Both are bad')], max_length=8)),
                ('is_right', models.BooleanField(blank=True, null=True)),
                ('answered_at', models.DateTimeField(blank=True, null=True)),
                ('comparison', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.comparison')),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='answers', to='labeling.qualificationattempt')),
            ],
        ),
        migrations.CreateModel(
            name='RatingTask',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('kind', models.CharField(choices=[('graded', 'graded'), ('ranking', 'ranking')], max_length=7)),
                ('external_id', models.CharField(blank=True, max_length=120)),
                ('state', models.CharField(choices=[('open', 'open'), ('rated', 'rated'), ('review', 'needs review'), ('dropped', 'dropped')], default='open', max_length=7)),
                ('low', models.SmallIntegerField(help_text='the lowest grade; of a ranking, 1: the best rank')),
                ('high', models.SmallIntegerField(help_text='the highest grade; of a ranking, K')),
                ('low_label', models.CharField(blank=True, max_length=40)),
                ('high_label', models.CharField(blank=True, max_length=40)),
                ('overlap', models.PositiveSmallIntegerField(default=3, help_text='ratings wanted')),
                ('priority', models.FloatField(default=0.0)),
                ('n_ratings', models.PositiveIntegerField(default=0, help_text='current ratings')),
                ('review_reason', models.CharField(blank=True, max_length=300)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rating_tasks', to='accounts.project')),
                ('prompt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rating_tasks', to='labeling.prompt')),
            ],
        ),
        migrations.CreateModel(
            name='RatingSlot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField()),
                ('state', models.CharField(choices=[('free', 'free'), ('leased', 'leased'), ('done', 'rated'), ('withdrawn', 'withdrawn')], default='free', max_length=9)),
                ('priority', models.FloatField(default=0.0)),
                ('shuffle', models.FloatField(default=0.0, help_text='a seeded draw in [0, 1)')),
                ('topic', models.CharField(blank=True, max_length=200)),
                ('language', models.CharField(blank=True, max_length=12)),
                ('leased_at', models.DateTimeField(blank=True, null=True)),
                ('leased_until', models.DateTimeField(blank=True, null=True)),
                ('shown', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), blank=True, default=list, help_text='positions of the responses as they are shown; one draw per annotator and task', size=None)),
                ('annotator', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='slots', to='labeling.ratingtask')),
            ],
        ),
        migrations.CreateModel(
            name='RatingSkip',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.CharField(blank=True, max_length=300)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('annotator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='skips', to='labeling.ratingtask')),
            ],
        ),
        migrations.CreateModel(
            name='Rating',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('values', django.contrib.postgres.fields.ArrayField(base_field=models.SmallIntegerField(), size=None)),
                ('shown', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), size=None)),
                ('note', models.TextField(blank=True)),
                ('active_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('wall_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('idempotency_key', models.CharField(max_length=120)),
                ('source', models.CharField(choices=[('page', 'rating screen'), ('api', 'API')], default='page', max_length=4)),
                ('revision', models.PositiveSmallIntegerField(default=1)),
                ('is_current', models.BooleanField(default=True)),
                ('rated_at', models.DateTimeField()),
                ('annotator', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ratings', to=settings.AUTH_USER_MODEL)),
                ('guideline', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='labeling.guideline')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='ratings', to='accounts.project')),
                ('supersedes', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='superseded_by', to='labeling.rating')),
                ('slot', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ratings', to='labeling.ratingslot')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ratings', to='labeling.ratingtask')),
            ],
        ),
        migrations.CreateModel(
            name='Response',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('messages', models.JSONField(help_text="the assistant's turn or turns")),
                ('text_hash', models.CharField(max_length=64)),
                ('origin', models.CharField(choices=[('import', 'imported'), ('human', 'written by a person'), ('model', 'generated by a model'), ('edit', "a person's improvement of an answer")], default='import', max_length=8)),
                ('origin_ref', models.CharField(blank=True, help_text='a checkpoint, a person, a file', max_length=80)),
                ('metadata', models.JSONField(blank=True, default=dict)),
                ('prompt', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='responses', to='labeling.prompt')),
            ],
        ),
        migrations.CreateModel(
            name='RatingItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField()),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='labeling.ratingtask')),
                ('response', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
            ],
        ),
        migrations.AddField(
            model_name='comparison',
            name='response_a',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response'),
        ),
        migrations.AddField(
            model_name='comparison',
            name='response_b',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response'),
        ),
        migrations.CreateModel(
            name='Skip',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.CharField(blank=True, max_length=300)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('annotator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('comparison', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='skips', to='labeling.comparison')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
            ],
        ),
        migrations.CreateModel(
            name='Slot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField()),
                ('kind', models.CharField(choices=[('regular', 'regular'), ('gold', 'gold'), ('repeat', 'hidden repeat'), ('audit', 'audit re-vote'), ('former', 'earlier round')], default='regular', max_length=8)),
                ('state', models.CharField(choices=[('free', 'free'), ('leased', 'leased'), ('done', 'voted'), ('withdrawn', 'withdrawn')], default='free', max_length=9)),
                ('priority', models.FloatField(default=0.0)),
                ('shuffle', models.FloatField(default=0.0)),
                ('topic', models.CharField(blank=True, db_default='', default='', max_length=200)),
                ('language', models.CharField(blank=True, db_default='', default='', max_length=12)),
                ('leased_until', models.DateTimeField(blank=True, null=True)),
                ('leased_at', models.DateTimeField(blank=True, null=True)),
                ('left_is', models.CharField(blank=True, choices=[('a', 'A'), ('b', 'B')], help_text='which response is shown left; drawn once per annotator and comparison', max_length=1)),
                ('annotator', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('comparison', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='slots', to='labeling.comparison')),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
            ],
        ),
        migrations.CreateModel(
            name='Vote',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('choice', models.CharField(choices=[('a', 'A is better'), ('b', 'B is better'), ('tie', 'Tie'), ('both_bad', 'Both are bad')], max_length=8)),
                ('left_is', models.CharField(blank=True, choices=[('a', 'A'), ('b', 'B')], help_text='which response stood left; empty when unknown (imports)', max_length=1)),
                ('strength', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('criteria', models.JSONField(blank=True, default=dict)),
                ('reasons', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), blank=True, default=list, size=None)),
                ('rationale', models.TextField(blank=True)),
                ('flags', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), blank=True, default=list, size=None)),
                ('active_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('wall_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('idempotency_key', models.CharField(max_length=80)),
                ('source', models.CharField(choices=[('page', 'label screen'), ('api', 'API'), ('import', 'imported')], default='page', max_length=6)),
                ('revision', models.PositiveSmallIntegerField(default=1)),
                ('is_current', models.BooleanField(default=True)),
                ('cast_at', models.DateTimeField()),
                ('annotator', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='votes', to=settings.AUTH_USER_MODEL)),
                ('chosen', models.ForeignKey(blank=True, help_text='the canonical response preferred; empty for tie and both bad', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
                ('comparison', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='votes', to='labeling.comparison')),
                ('guideline', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='labeling.guideline')),
                ('improvement', models.ForeignKey(blank=True, help_text='the better answer as this person would have it', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='votes', to='accounts.project')),
                ('slot', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='votes', to='labeling.slot')),
                ('supersedes', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='superseded_by', to='labeling.vote')),
            ],
        ),
        migrations.AddField(
            model_name='slot',
            name='measures',
            field=models.ForeignKey(blank=True, db_index=False, help_text='the vote that a hidden repeat or an audit re-vote is compared with', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='measured_by', to='labeling.vote'),
        ),
        migrations.CreateModel(
            name='Annotator',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('acknowledged_version', models.PositiveIntegerField(default=0)),
                ('acknowledged_at', models.DateTimeField(blank=True, null=True)),
                ('qualified_at', models.DateTimeField(blank=True, null=True)),
                ('daily_cap', models.PositiveIntegerField(blank=True, help_text="votes a day; empty: the project's", null=True)),
                ('topics', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, default=list, size=None)),
                ('languages', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=12), blank=True, default=list, size=None)),
                ('confusion', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), blank=True, help_text="P(vote | truth) in the project's consensus, row by row; written by agreement", null=True, size=16)),
                ('reliability', models.FloatField(blank=True, help_text='chance to vote for what is right, in the same model', null=True)),
                ('left_out_at', models.DateTimeField(blank=True, help_text='since when their votes enter no new dataset', null=True)),
                ('left_out_reason', models.CharField(blank=True, db_default='', default='', max_length=300)),
                ('votes_day', models.DateField(blank=True, help_text='UTC day of the last vote', null=True)),
                ('votes_of_day', models.PositiveIntegerField(default=0, help_text='votes cast on that day, counted as they are cast')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='annotators', to='accounts.project')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'user'), name='annotator_once_per_project')],
            },
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('comparison', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='decision', serialize=False, to='labeling.comparison')),
                ('outcome', models.CharField(choices=[('accepted', 'accepted'), ('contested', 'contested'), ('needs_votes', 'needs more votes'), ('needs_review', 'needs review'), ('adjudicated', 'adjudicated'), ('dropped', 'dropped')], max_length=12)),
                ('winner', models.CharField(blank=True, choices=[('a', 'A is better'), ('b', 'B is better'), ('tie', 'Tie'), ('both_bad', 'Both are bad')], max_length=8)),
                ('n_a', models.PositiveIntegerField(default=0)),
                ('n_b', models.PositiveIntegerField(default=0)),
                ('n_tie', models.PositiveIntegerField(default=0)),
                ('n_both_bad', models.PositiveIntegerField(default=0)),
                ('n_agreeing', models.PositiveIntegerField(default=0)),
                ('share', models.FloatField(default=0.0, help_text='agreeing ÷ all votes, ties included')),
                ('decided_by', models.CharField(choices=[('votes', 'Counted votes'), ('one_coin', 'One-coin Dawid–Skene'), ('dawid_skene', 'Dawid–Skene'), ('mace', 'MACE')], db_default='votes', default='votes', max_length=12)),
                ('posteriors', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), blank=True, help_text="P(truth | votes) of each choice by the project's consensus; empty without one", null=True, size=4)),
                ('rule', models.JSONField(default=dict)),
                ('reason', models.CharField(blank=True, max_length=300)),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
            ],
        ),
        migrations.AddConstraint(
            model_name='guideline',
            constraint=models.UniqueConstraint(fields=('project', 'version'), name='guideline_version_once'),
        ),
        migrations.AddIndex(
            model_name='importjob',
            index=models.Index(fields=['project', '-created_at'], name='import_by_project'),
        ),
        migrations.AddConstraint(
            model_name='prompt',
            constraint=models.UniqueConstraint(fields=('project', 'text_hash'), name='prompt_once_per_project'),
        ),
        migrations.AddConstraint(
            model_name='qualificationattempt',
            constraint=models.UniqueConstraint(fields=('project', 'user', 'number'), name='qualification_attempt_once'),
        ),
        migrations.AddConstraint(
            model_name='qualificationattempt',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'running')), fields=('project', 'user'), name='qualification_one_running'),
        ),
        migrations.AddConstraint(
            model_name='qualificationanswer',
            constraint=models.UniqueConstraint(fields=('attempt', 'comparison'), name='qualification_pair_once'),
        ),
        migrations.AddConstraint(
            model_name='qualificationanswer',
            constraint=models.UniqueConstraint(fields=('attempt', 'position'), name='qualification_position_once'),
        ),
        migrations.AddConstraint(
            model_name='qualificationanswer',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('answered_at__isnull', True), ('choice', ''), ('is_right__isnull', True)), models.Q(models.Q(('choice', ''), _negated=True), ('answered_at__isnull', False), ('is_right__isnull', False)), _connector='OR'), name='qualification_answered_wholly'),
        ),
        migrations.AddIndex(
            model_name='ratingtask',
            index=models.Index(fields=['project', 'state'], name='rating_task_by_state'),
        ),
        migrations.AddConstraint(
            model_name='ratingtask',
            constraint=models.UniqueConstraint(condition=models.Q(('external_id', ''), _negated=True), fields=('project', 'external_id'), name='rating_task_external_id_once'),
        ),
        migrations.AddConstraint(
            model_name='ratingtask',
            constraint=models.CheckConstraint(condition=models.Q(('high__gte', models.F('low')), ('high__lt', django.db.models.expressions.CombinedExpression(models.F('low'), '+', models.Value(11)))), name='rating_task_scale_in_order'),
        ),
        migrations.AddConstraint(
            model_name='ratingtask',
            constraint=models.CheckConstraint(condition=models.Q(('overlap__gte', 1), ('n_ratings__lte', models.F('overlap'))), name='rating_task_overlap_holds'),
        ),
        migrations.AddIndex(
            model_name='ratingslot',
            index=models.Index(condition=models.Q(('state__in', ['free', 'leased'])), fields=['project', '-priority', 'shuffle'], name='rating_slot_open'),
        ),
        migrations.AddIndex(
            model_name='ratingslot',
            index=models.Index(condition=models.Q(('state', 'leased')), fields=['annotator', 'project'], name='rating_slot_held_by'),
        ),
        migrations.AddConstraint(
            model_name='ratingslot',
            constraint=models.UniqueConstraint(fields=('task', 'position'), name='rating_slot_position_once'),
        ),
        migrations.AddConstraint(
            model_name='ratingslot',
            constraint=models.UniqueConstraint(condition=models.Q(('annotator__isnull', False)), fields=('task', 'annotator'), name='rating_slot_annotator_meets_task_once'),
        ),
        migrations.AddConstraint(
            model_name='ratingslot',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('annotator__isnull', True), ('state__in', ['free', 'withdrawn'])), models.Q(('annotator__isnull', False), ('state__in', ['leased', 'done'])), _connector='OR'), name='rating_slot_held_means_annotator'),
        ),
        migrations.AddConstraint(
            model_name='ratingslot',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'leased'), _negated=True), ('leased_until__isnull', False), _connector='OR'), name='rating_slot_lease_ends'),
        ),
        migrations.AddConstraint(
            model_name='ratingskip',
            constraint=models.UniqueConstraint(fields=('task', 'annotator'), name='rating_skip_once'),
        ),
        migrations.AddIndex(
            model_name='rating',
            index=models.Index(condition=models.Q(('is_current', True)), fields=['task'], name='rating_current'),
        ),
        migrations.AddIndex(
            model_name='rating',
            index=models.Index(fields=['project', 'annotator', '-rated_at'], name='rating_by_annotator'),
        ),
        migrations.AddConstraint(
            model_name='rating',
            constraint=models.UniqueConstraint(fields=('annotator', 'idempotency_key'), name='rating_submitted_once'),
        ),
        migrations.AddConstraint(
            model_name='rating',
            constraint=models.UniqueConstraint(condition=models.Q(('is_current', True)), fields=('slot',), name='rating_current_once_per_slot'),
        ),
        migrations.AddConstraint(
            model_name='rating',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('revision', 1), ('supersedes__isnull', True)), models.Q(('revision__gt', 1), ('supersedes__isnull', False)), _connector='OR'), name='rating_revisions_form_a_chain'),
        ),
        migrations.AddConstraint(
            model_name='rating',
            constraint=models.CheckConstraint(condition=models.Q(('values__len', models.F('shown__len'))), name='rating_values_for_all_shown'),
        ),
        migrations.AddConstraint(
            model_name='response',
            constraint=models.UniqueConstraint(fields=('prompt', 'text_hash', 'origin', 'origin_ref'), name='response_once'),
        ),
        migrations.AddConstraint(
            model_name='ratingitem',
            constraint=models.UniqueConstraint(fields=('task', 'position'), name='rating_item_position_once'),
        ),
        migrations.AddConstraint(
            model_name='ratingitem',
            constraint=models.UniqueConstraint(fields=('task', 'response'), name='rating_item_response_once'),
        ),
        migrations.AddConstraint(
            model_name='ratingitem',
            constraint=models.CheckConstraint(condition=models.Q(('position__gte', 1), ('position__lte', 9)), name='rating_item_at_most_nine'),
        ),
        migrations.AddIndex(
            model_name='comparison',
            index=models.Index(fields=['project', 'state', '-priority'], name='comparison_by_state'),
        ),
        migrations.AddIndex(
            model_name='comparison',
            index=models.Index(condition=models.Q(('stratum__in', ['gold', 'practice'])), fields=['project', 'stratum', 'shuffle'], name='comparison_controls'),
        ),
        migrations.AddConstraint(
            model_name='comparison',
            constraint=models.CheckConstraint(condition=models.Q(('response_a', models.F('response_b')), _negated=True), name='comparison_of_two_responses'),
        ),
        migrations.AddConstraint(
            model_name='comparison',
            constraint=models.UniqueConstraint(condition=models.Q(('external_id', ''), _negated=True), fields=('project', 'external_id'), name='comparison_external_id_once'),
        ),
        migrations.AddConstraint(
            model_name='skip',
            constraint=models.UniqueConstraint(fields=('comparison', 'annotator'), name='skip_once'),
        ),
        migrations.AddIndex(
            model_name='vote',
            index=models.Index(condition=models.Q(('is_current', True)), fields=['comparison'], name='vote_current'),
        ),
        migrations.AddIndex(
            model_name='vote',
            index=models.Index(fields=['project', 'annotator', '-cast_at'], name='vote_by_annotator'),
        ),
        migrations.AddIndex(
            model_name='vote',
            index=models.Index(models.F('project'), models.Func('id', models.Value(20161), function='hashint8extended'), condition=models.Q(('is_current', True)), name='vote_audit_sample'),
        ),
        migrations.AddConstraint(
            model_name='vote',
            constraint=models.UniqueConstraint(fields=('annotator', 'idempotency_key'), name='vote_submitted_once'),
        ),
        migrations.AddConstraint(
            model_name='vote',
            constraint=models.UniqueConstraint(condition=models.Q(('is_current', True)), fields=('slot',), name='vote_current_once_per_slot'),
        ),
        migrations.AddConstraint(
            model_name='vote',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('choice__in', ['a', 'b']), ('chosen__isnull', False)), models.Q(('choice__in', ['tie', 'both_bad']), ('chosen__isnull', True)), _connector='OR'), name='vote_names_what_it_chose'),
        ),
        migrations.AddConstraint(
            model_name='vote',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('revision', 1), ('supersedes__isnull', True)), models.Q(('revision__gt', 1), ('supersedes__isnull', False)), _connector='OR'), name='vote_revisions_form_a_chain'),
        ),
        migrations.AddIndex(
            model_name='slot',
            index=models.Index(condition=models.Q(('state', 'free')), fields=['project', 'shuffle'], name='slot_free_shuffled'),
        ),
        migrations.AddIndex(
            model_name='slot',
            index=models.Index(condition=models.Q(('priority__gt', 0), ('state', 'free')), fields=['project', '-priority', 'shuffle'], name='slot_free_prioritised'),
        ),
        migrations.AddIndex(
            model_name='slot',
            index=models.Index(condition=models.Q(('state', 'leased')), fields=['project', 'leased_until'], name='slot_leases_ending'),
        ),
        migrations.AddIndex(
            model_name='slot',
            index=models.Index(condition=models.Q(('state', 'leased')), fields=['annotator', 'project'], name='slot_held_by'),
        ),
        migrations.AddIndex(
            model_name='slot',
            index=models.Index(condition=models.Q(('state', 'free'), models.Q(('topic', ''), _negated=True)), fields=['project', 'topic', 'shuffle'], name='slot_free_by_topic'),
        ),
        migrations.AddIndex(
            model_name='slot',
            index=models.Index(condition=models.Q(('measures__isnull', False)), fields=['measures'], name='slot_measuring'),
        ),
        migrations.AddIndex(
            model_name='slot',
            index=models.Index(condition=models.Q(('kind__in', ['repeat', 'audit', 'former'])), fields=['project'], name='slot_undeciding'),
        ),
        migrations.AddConstraint(
            model_name='slot',
            constraint=models.UniqueConstraint(fields=('comparison', 'position'), name='slot_position_once'),
        ),
        migrations.AddConstraint(
            model_name='slot',
            constraint=models.UniqueConstraint(condition=models.Q(('annotator__isnull', False), models.Q(('kind__in', ['repeat', 'former']), _negated=True)), fields=('comparison', 'annotator'), name='slot_annotator_meets_comparison_once'),
        ),
        migrations.AddConstraint(
            model_name='slot',
            constraint=models.UniqueConstraint(condition=models.Q(('annotator__isnull', False), ('kind', 'repeat')), fields=('comparison', 'annotator'), name='slot_repeated_once'),
        ),
        migrations.AddConstraint(
            model_name='slot',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind__in', ['repeat', 'audit']), ('measures__isnull', False)), models.Q(('kind__in', ['regular', 'gold', 'former']), ('measures__isnull', True)), _connector='OR'), name='slot_measures_a_vote'),
        ),
        migrations.AddConstraint(
            model_name='slot',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('annotator__isnull', True), ('state__in', ['free', 'withdrawn'])), models.Q(('annotator__isnull', False), ('state__in', ['leased', 'done'])), _connector='OR'), name='slot_held_means_annotator'),
        ),
        migrations.AddConstraint(
            model_name='slot',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'leased'), _negated=True), ('leased_until__isnull', False), _connector='OR'), name='slot_lease_ends'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['project', 'outcome'], name='decision_by_outcome'),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
