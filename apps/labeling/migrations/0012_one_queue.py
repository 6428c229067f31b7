"""One queue: comparisons become tasks of the kind pair, and what was graded or ranked in tables of
its own joins them. The pairs and the votes alone are views, `labeling_comparison` and
`labeling_vote`: a migration that gives one of the two tables a column that the view should have
drops the view and makes it again."""

from django.conf import settings
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models
from django.db.migrations.state import ModelState, ProjectState


class Replaced(migrations.CreateModel):
    """In the state alone: the model as it is from here on, whatever it was before."""

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        state.models[app_label, self.name_lower] = ModelState(
            app_label, self.name, list(self.fields), dict(self.options), tuple(self.bases),
            list(self.managers),
        )
        state._relations = None
        state.__dict__.pop("apps", None)


class RankedOutputsMoved(Replaced):
    """In the state alone: the outputs that people grade are tasks like any other."""

    def __init__(self) -> None:
        super().__init__("RankedOutput", [])

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        fields = state.models["evaluation", "rankedoutput"].fields
        fields["task"] = fields["task"].clone()
        fields["task"].remote_field.model = "labeling.task"
        state._relations = None
        state.__dict__.pop("apps", None)


TABLES = """
alter table labeling_comparison rename to labeling_task;
alter sequence labeling_comparison_id_seq rename to labeling_task_id_seq;
alter table labeling_task
  alter response_a_id drop not null,
  alter response_b_id drop not null,
  add kind varchar(5) not null default 'pair',
  add gold_values smallint[] not null default '{}',
  add low smallint,
  add high smallint,
  add low_label varchar(40) not null default '',
  add high_label varchar(40) not null default '',
  add constraint task_of_its_kind check (
    kind = 'pair' and response_a_id is not null and response_b_id is not null
      and low is null and high is null
    or kind in ('grade', 'rank') and response_a_id is null and response_b_id is null
      and low is not null and high is not null and gold = ''),
  add constraint task_scale_in_order check (kind = 'pair' or high >= low and high < low + 11);
drop index comparison_external_id_once;
create unique index comparison_external_id_once on labeling_task (project_id, external_id)
  where external_id <> '' and kind = 'pair';
create unique index task_external_id_once on labeling_task (project_id, external_id)
  where external_id <> '' and kind <> 'pair';
create index task_no_pair on labeling_task (project_id, id) where kind <> 'pair';

alter table labeling_slot rename comparison_id to task_id;
alter table labeling_slot add shown smallint[] not null default '{}';
alter index slot_annotator_meets_comparison_once rename to slot_annotator_meets_task_once;
alter table labeling_skip rename comparison_id to task_id;

alter table labeling_vote rename to labeling_answer;
alter sequence labeling_vote_id_seq rename to labeling_answer_id_seq;
alter table labeling_answer rename comparison_id to task_id;
alter table labeling_answer
  alter idempotency_key type varchar(120),
  add kind varchar(5) not null default 'pair',
  add "values" smallint[] not null default '{}',
  add shown smallint[] not null default '{}',
  drop constraint vote_names_what_it_chose,
  add constraint vote_names_what_it_chose check (
    choice in ('a', 'b') and chosen_id is not null
    or choice in ('tie', 'both_bad', '') and chosen_id is null),
  add constraint answer_of_its_kind check (
    kind = 'pair' and choice <> '' and "values" = '{}' and shown = '{}'
    or kind <> 'pair' and choice = '' and left_is = '' and improvement_id is null
      and "values" <> '{}' and cardinality("values") = cardinality(shown));
"""

VIEWS = """
create view labeling_comparison as
  select id, created_at, updated_at, project_id, prompt_id, response_a_id, response_b_id,
         external_id, batch, state, stratum, priority, shuffle, overlap, gold, gold_explanation,
         review_reason, warning, n_votes, metadata
  from labeling_task where kind = 'pair';
create view labeling_vote as
  select id, project_id, task_id as comparison_id, slot_id, annotator_id, choice, chosen_id,
         left_is, strength, criteria, reasons, rationale, flags, improvement_id, guideline_id,
         active_ms, wall_ms, idempotency_key, source, revision, supersedes_id, is_current, cast_at
  from labeling_answer where kind = 'pair';
"""

# The guards of the database, of tasks of every kind.
GUARDS = """
create or replace function concord_places_check(touched bigint[]) returns void
language plpgsql as $$
declare
  bad record;
begin
  perform from labeling_task c join unnest(touched) t(id) on t.id = c.id
  order by c.id for no key update of c;
  select c.id, c.overlap, g.n into bad
  from (
    select s.task_id, count(*) as n
    from unnest(touched) t(id)
    join labeling_slot s on s.task_id = t.id and s.kind = 'regular' and s.state <> 'withdrawn'
    group by s.task_id
  ) g
  join labeling_task c on c.id = g.task_id
  where g.n > c.overlap limit 1;
  if found then
    raise exception 'task % would have % places for answers; its overlap is %',
      bad.id, bad.n, bad.overlap
      using errcode = 'check_violation', constraint = 'labeling_overlap_holds';
  end if;
end $$;

create or replace function concord_slots_added() returns trigger language plpgsql as $$
begin
  perform concord_places_check(
    (select array_agg(distinct task_id) from added where kind = 'regular'));
  return null;
end $$;

create or replace function concord_slot_back() returns trigger language plpgsql as $$
begin
  perform concord_places_check(array[new.task_id]);
  return null;
end $$;

create or replace function concord_keep_vote() returns trigger language plpgsql as $$
begin
  if (to_jsonb(new) - 'is_current') is distinct from (to_jsonb(old) - 'is_current')
     or (new.is_current and not old.is_current) then
    raise exception 'an answer is never overwritten: add a revision'
      using errcode = 'restrict_violation';
  end if;
  return new;
end $$;

-- An answer is of the kind of its task. Asked of each row by itself, so that no plan reads the
-- table of tasks whole.
create function concord_answers_added() returns trigger language plpgsql as $$
declare
  bad bigint;
begin
  select a.task_id into bad from added a
  where a.kind <> (select t.kind from labeling_task t where t.id = a.task_id) limit 1;
  if found then
    raise exception 'task % is of another kind than its answer', bad
      using errcode = 'check_violation', constraint = 'labeling_answer_fits';
  end if;
  return null;
end $$;
create trigger labeling_answers_added after insert on labeling_answer
  referencing new table as added
  for each statement execute function concord_answers_added();

-- One value for each response, each on the task's scale.
create function concord_answer_fits() returns trigger language plpgsql as $$
declare
  task labeling_task;
  n_items int;
begin
  select * into task from labeling_task where id = new.task_id;
  select count(*) into n_items from labeling_taskitem where task_id = new.task_id;
  if cardinality(new.values) <> n_items
     or exists (select from unnest(new.values) v where v is null or v < task.low or v > task.high)
  then
    raise exception 'task % takes % values from % to %', new.task_id, n_items, task.low, task.high
      using errcode = 'check_violation', constraint = 'labeling_answer_fits';
  end if;
  return new;
end $$;
create trigger labeling_answer_fits before insert on labeling_answer
  for each row when (new.kind <> 'pair') execute function concord_answer_fits();
"""

MOVED = """
create temporary table moved_task on commit drop as
  select id as old, nextval(pg_get_serial_sequence('labeling_task', 'id')) as new
  from (select id from labeling_ratingtask order by id) t;
create temporary table moved_slot on commit drop as
  select id as old, nextval(pg_get_serial_sequence('labeling_slot', 'id')) as new
  from (select id from labeling_ratingslot order by id) s;
create temporary table moved_answer on commit drop as
  select id as old, nextval(pg_get_serial_sequence('labeling_answer', 'id')) as new
  from (select id from labeling_rating order by id) r;

insert into labeling_task (id, created_at, updated_at, project_id, prompt_id, kind, external_id,
  batch, state, stratum, priority, shuffle, overlap, gold, review_reason, n_votes, low, high,
  low_label, high_label)
select m.new, t.created_at, t.updated_at, t.project_id, t.prompt_id,
       case t.kind when 'graded' then 'grade' else 'rank' end, t.external_id, 'rating task ' || t.id,
       case t.state when 'rated' then 'decided' else t.state end,
       case when t.priority > 0 then 'priority' else 'random' end, t.priority,
       coalesce((select min(s.shuffle) from labeling_ratingslot s where s.task_id = t.id), 0),
       t.overlap, '', t.review_reason, t.n_ratings, t.low, t.high, t.low_label, t.high_label
from labeling_ratingtask t join moved_task m on m.old = t.id;

insert into labeling_taskitem (task_id, position, response_id)
select m.new, i.position, i.response_id
from labeling_ratingitem i join moved_task m on m.old = i.task_id;

insert into labeling_slot (id, project_id, task_id, position, kind, state, priority, shuffle,
  annotator_id, topic, language, leased_at, leased_until, left_is, shown)
select n.new, s.project_id, m.new, s.position, 'regular', s.state, s.priority, s.shuffle,
       s.annotator_id, s.topic, s.language, s.leased_at, s.leased_until, '', s.shown
from labeling_ratingslot s join moved_slot n on n.old = s.id
join moved_task m on m.old = s.task_id;

insert into labeling_skip (project_id, task_id, annotator_id, reason, at)
select t.project_id, m.new, k.annotator_id, k.reason, k.at
from labeling_ratingskip k join labeling_ratingtask t on t.id = k.task_id
join moved_task m on m.old = k.task_id;

insert into labeling_answer (id, project_id, task_id, kind, slot_id, annotator_id, choice,
  "values", shown, left_is, criteria, reasons, rationale, flags, guideline_id, active_ms, wall_ms,
  idempotency_key, source, revision, supersedes_id, is_current, cast_at)
select n.new, r.project_id, m.new, t.kind, s.new, r.annotator_id, '', r.values, r.shown, '', '{}',
       '{}', r.note, '{}', r.guideline_id, r.active_ms, r.wall_ms,
       case when exists (select from labeling_answer a where a.annotator_id = r.annotator_id
                         and a.idempotency_key = r.idempotency_key)
         then left('rating:' || r.idempotency_key, 120) else r.idempotency_key end,
       r.source, r.revision, b.new, r.is_current, r.rated_at
from labeling_rating r join moved_answer n on n.old = r.id
join moved_task m on m.old = r.task_id join labeling_task t on t.id = m.new
join moved_slot s on s.old = r.slot_id left join moved_answer b on b.old = r.supersedes_id;

do $$
declare
  name text;
begin
  for name in select conname from pg_constraint where contype = 'f'
    and conrelid = 'evaluation_rankedoutput'::regclass
    and confrelid = 'labeling_ratingtask'::regclass
  loop
    execute format('alter table evaluation_rankedoutput drop constraint %I', name);
  end loop;
end $$;
update evaluation_rankedoutput o set task_id = m.new from moved_task m where m.old = o.task_id;
set constraints all immediate;
set constraints all deferred;
alter table evaluation_rankedoutput add constraint evaluation_rankedoutput_task_id_fk
  foreign key (task_id) references labeling_task deferrable initially deferred;
drop table labeling_ratingskip, labeling_rating, labeling_ratingslot, labeling_ratingitem,
  labeling_ratingtask;
drop function concord_keep_rating();
drop function concord_rating_fits();
drop function concord_rating_slot_fits();
drop function concord_rating_overlap_stays();
"""

GONE = ("RatingSkip", "Rating", "RatingSlot", "RatingItem", "RatingTask")


class Migration(migrations.Migration):
    dependencies = [("labeling", "0011_show_gold"), ("evaluation", "0001_initial")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(TABLES), migrations.RunSQL(VIEWS)],
            state_operations=[
                Replaced(
                    name='Task',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('updated_at', models.DateTimeField(auto_now=True)),
                        ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='tasks', to='accounts.project')),
                        ('prompt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tasks', to='labeling.prompt')),
                        ('kind', models.CharField(choices=[('pair', 'pair'), ('grade', 'grading'), ('rank', 'ranking')], db_default='pair', default='pair', max_length=5)),
                        ('response_a', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
                        ('response_b', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
                        ('external_id', models.CharField(blank=True, max_length=120)),
                        ('batch', models.CharField(blank=True, help_text='the import or run it came with', max_length=80)),
                        ('state', models.CharField(choices=[('open', 'open'), ('decided', 'decided'), ('contested', 'contested'), ('review', 'needs review'), ('dropped', 'dropped')], default='open', max_length=9)),
                        ('stratum', models.CharField(choices=[('random', 'normal'), ('priority', 'priority'), ('gold', 'gold'), ('practice', 'practice')], default='random', max_length=8)),
                        ('priority', models.FloatField(default=0.0)),
                        ('shuffle', models.FloatField(default=0.0, help_text='a seeded draw in [0, 1): the order of the random stratum')),
                        ('overlap', models.PositiveSmallIntegerField(default=3)),
                        ('gold', models.CharField(blank=True, choices=[('a', 'A is better'), ('b', 'B is better'), ('tie', 'Tie'), ('both_bad', 'Both are bad')], max_length=8)),
                        ('gold_values', django.contrib.postgres.fields.ArrayField(base_field=models.SmallIntegerField(), blank=True, db_default=[], default=list, help_text='the right grades or ranks, by the stored places of the responses', size=None)),
                        ('gold_explanation', models.TextField(blank=True, db_default='', default='', help_text='why, for whoever is learning')),
                        ('review_reason', models.CharField(blank=True, db_default='', default='', help_text='why a person must look at it', max_length=300)),
                        ('warning', models.CharField(blank=True, db_default='', default='', help_text='what may upset whoever reads it; the label screen covers it until it is opened', max_length=80)),
                        ('n_votes', models.PositiveIntegerField(default=0, help_text='current answers')),
                        ('metadata', models.JSONField(blank=True, help_text="the row's own columns; null: only the prompt's are known", null=True)),
                        ('low', models.SmallIntegerField(blank=True, help_text='the lowest grade; the best rank', null=True)),
                        ('high', models.SmallIntegerField(blank=True, null=True)),
                        ('low_label', models.CharField(blank=True, db_default='', default='', max_length=40)),
                        ('high_label', models.CharField(blank=True, db_default='', default='', max_length=40)),
                    ],
                    options={
                        'indexes': [models.Index(fields=['project', 'created_at', 'id'], name='comparison_by_time'), models.Index(fields=['project', 'state', 'id'], name='comparison_by_state_id'), models.Index(fields=['project', 'n_votes', 'id'], name='comparison_by_votes'), models.Index(fields=['project', 'priority', 'id'], name='comparison_by_priority'), models.Index(condition=models.Q(('stratum__in', ['gold', 'practice'])), fields=['project', 'stratum', 'shuffle'], name='comparison_controls'), models.Index(condition=models.Q(('kind', 'pair'), _negated=True), fields=['project', 'id'], name='task_no_pair')],
                        'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('kind', 'pair'), ('response_a__isnull', False), ('response_b__isnull', False), ('high__isnull', True), ('low__isnull', True)), models.Q(('kind__in', ['grade', 'rank']), ('response_a__isnull', True), ('response_b__isnull', True), ('gold', ''), ('high__isnull', False), ('low__isnull', False)), _connector='OR'), name='task_of_its_kind'), models.CheckConstraint(condition=models.Q(('kind', 'pair'), models.Q(('high__gte', models.F('low')), ('high__lt', django.db.models.expressions.CombinedExpression(models.F('low'), '+', models.Value(11)))), _connector='OR'), name='task_scale_in_order'), models.CheckConstraint(condition=models.Q(('response_a', models.F('response_b')), _negated=True), name='comparison_of_two_responses'), models.UniqueConstraint(condition=models.Q(models.Q(('external_id', ''), _negated=True), ('kind', 'pair')), fields=('project', 'external_id'), name='comparison_external_id_once'), models.UniqueConstraint(condition=models.Q(models.Q(('external_id', ''), _negated=True), models.Q(('kind', 'pair'), _negated=True)), fields=('project', 'external_id'), name='task_external_id_once')],
                    },
                ),
                Replaced(
                    name='Comparison',
                    fields=[
                    ],
                    options={
                        'proxy': True,
                        'indexes': [],
                        'constraints': [],
                    },
                    bases=('labeling.task',),
                ),
                Replaced(
                    name='Slot',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                        ('task', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='slots', to='labeling.task')),
                        ('position', models.PositiveSmallIntegerField()),
                        ('kind', models.CharField(choices=[('regular', 'regular'), ('gold', 'gold'), ('repeat', 'hidden repeat'), ('audit', 'audit re-vote'), ('former', 'earlier round'), ('discard', 'discarded')], default='regular', max_length=8)),
                        ('state', models.CharField(choices=[('free', 'free'), ('leased', 'leased'), ('done', 'voted'), ('withdrawn', 'withdrawn')], default='free', max_length=9)),
                        ('priority', models.FloatField(default=0.0)),
                        ('shuffle', models.FloatField(default=0.0)),
                        ('annotator', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                        ('topic', models.CharField(blank=True, db_default='', default='', max_length=200)),
                        ('language', models.CharField(blank=True, db_default='', default='', max_length=12)),
                        ('measures', models.ForeignKey(blank=True, db_index=False, help_text='the answer that a hidden repeat or an audit is compared with', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='measured_by', to='labeling.answer')),
                        ('leased_until', models.DateTimeField(blank=True, null=True)),
                        ('leased_at', models.DateTimeField(blank=True, null=True)),
                        ('left_is', models.CharField(blank=True, choices=[('a', 'A'), ('b', 'B')], help_text='which response of a pair is shown left; drawn once per annotator and task', max_length=1)),
                        ('shown', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), blank=True, db_default=[], default=list, help_text='places of the responses as they are shown, where it is no pair; drawn likewise', size=None)),
                    ],
                    options={
                        'indexes': [models.Index(condition=models.Q(('state', 'free')), fields=['project', 'shuffle'], name='slot_free_shuffled'), models.Index(condition=models.Q(('priority__gt', 0), ('state', 'free')), fields=['project', '-priority', 'shuffle'], name='slot_free_prioritised'), models.Index(condition=models.Q(('state', 'leased')), fields=['project', 'leased_until'], name='slot_leases_ending'), models.Index(condition=models.Q(('state', 'leased')), fields=['annotator', 'project'], name='slot_held_by'), models.Index(condition=models.Q(('state', 'free'), models.Q(('topic', ''), _negated=True)), fields=['project', 'topic', 'shuffle'], name='slot_free_by_topic'), models.Index(condition=models.Q(('measures__isnull', False)), fields=['measures'], name='slot_measuring'), models.Index(condition=models.Q(('kind__in', ['repeat', 'audit', 'former', 'discard'])), fields=['project'], name='slot_undeciding')],
                        'constraints': [models.UniqueConstraint(fields=('task', 'position'), name='slot_position_once'), models.UniqueConstraint(condition=models.Q(('annotator__isnull', False), models.Q(('kind__in', ['repeat', 'former']), _negated=True)), fields=('task', 'annotator'), name='slot_annotator_meets_task_once'), models.UniqueConstraint(condition=models.Q(('annotator__isnull', False), ('kind', 'repeat')), fields=('task', 'annotator'), name='slot_repeated_once'), models.CheckConstraint(condition=models.Q(models.Q(('kind__in', ['repeat', 'audit']), ('measures__isnull', False)), models.Q(('kind__in', ['regular', 'gold', 'former', 'discard']), ('measures__isnull', True)), _connector='OR'), name='slot_measures_a_vote'), models.CheckConstraint(condition=models.Q(models.Q(('annotator__isnull', True), ('state__in', ['free', 'withdrawn'])), models.Q(('annotator__isnull', False), ('state__in', ['leased', 'done'])), _connector='OR'), name='slot_held_means_annotator'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'leased'), _negated=True), ('leased_until__isnull', False), _connector='OR'), name='slot_lease_ends')],
                    },
                ),
                Replaced(
                    name='Skip',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                        ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='skips', to='labeling.task')),
                        ('annotator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                        ('reason', models.CharField(blank=True, max_length=300)),
                        ('at', models.DateTimeField(auto_now_add=True)),
                    ],
                    options={
                        'constraints': [models.UniqueConstraint(fields=('task', 'annotator'), name='skip_once')],
                        'indexes': [],
                    },
                ),
                Replaced(
                    name='Answer',
                    fields=[
                        ('id', models.BigAutoField(primary_key=True, serialize=False)),
                        ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='%(class)ss', to='accounts.project')),
                        ('slot', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='%(class)ss', to='labeling.slot')),
                        ('annotator', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='%(class)ss', to=settings.AUTH_USER_MODEL)),
                        ('left_is', models.CharField(blank=True, choices=[('a', 'A'), ('b', 'B')], help_text='which response of a pair stood left; empty when unknown (imports)', max_length=1)),
                        ('strength', models.PositiveSmallIntegerField(blank=True, null=True)),
                        ('criteria', models.JSONField(blank=True, default=dict)),
                        ('reasons', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), blank=True, default=list, size=None)),
                        ('rationale', models.TextField(blank=True)),
                        ('flags', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), blank=True, default=list, size=None)),
                        ('guideline', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='labeling.guideline')),
                        ('active_ms', models.PositiveIntegerField(blank=True, null=True)),
                        ('wall_ms', models.PositiveIntegerField(blank=True, null=True)),
                        ('idempotency_key', models.CharField(max_length=120)),
                        ('source', models.CharField(choices=[('page', 'label screen'), ('api', 'API'), ('import', 'imported')], default='page', max_length=6)),
                        ('revision', models.PositiveSmallIntegerField(default=1)),
                        ('supersedes', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='superseded_by', to='labeling.answer')),
                        ('is_current', models.BooleanField(default=True)),
                        ('cast_at', models.DateTimeField()),
                        ('chosen', models.ForeignKey(blank=True, help_text='the canonical response preferred; empty for tie and both bad', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
                        ('improvement', models.ForeignKey(blank=True, help_text='the better answer as this person would have it', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
                        ('task', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='answers', to='labeling.task')),
                        ('kind', models.CharField(choices=[('pair', 'pair'), ('grade', 'grading'), ('rank', 'ranking')], db_default='pair', default='pair', max_length=5)),
                        ('choice', models.CharField(blank=True, choices=[('a', 'A is better'), ('b', 'B is better'), ('tie', 'Tie'), ('both_bad', 'Both are bad')], max_length=8)),
                        ('values', django.contrib.postgres.fields.ArrayField(base_field=models.SmallIntegerField(), blank=True, db_default=[], default=list, size=None)),
                        ('shown', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), blank=True, db_default=[], default=list, size=None)),
                    ],
                    options={
                        'indexes': [models.Index(condition=models.Q(('is_current', True)), fields=['task'], name='vote_current'), models.Index(fields=['project', 'annotator', '-cast_at'], name='vote_by_annotator'), models.Index(condition=models.Q(('is_current', True), models.Q(('flags', []), _negated=True)), fields=['project', 'task'], name='vote_flagged'), models.Index(models.F('project'), models.Func('id', models.Value(20161), function='hashint8extended'), condition=models.Q(('is_current', True)), name='vote_audit_sample')],
                        'constraints': [models.UniqueConstraint(fields=('annotator', 'idempotency_key'), name='vote_submitted_once'), models.UniqueConstraint(condition=models.Q(('is_current', True)), fields=('slot',), name='vote_current_once_per_slot'), models.CheckConstraint(condition=models.Q(models.Q(('choice__in', ['a', 'b']), ('chosen__isnull', False)), models.Q(('choice__in', ['tie', 'both_bad', '']), ('chosen__isnull', True)), _connector='OR'), name='vote_names_what_it_chose'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'pair'), ('shown', []), ('values', []), models.Q(('choice', ''), _negated=True)), models.Q(models.Q(('kind', 'pair'), _negated=True), models.Q(('values', []), _negated=True), ('choice', ''), ('improvement__isnull', True), ('left_is', ''), ('values__len', models.F('shown__len'))), _connector='OR'), name='answer_of_its_kind'), models.CheckConstraint(condition=models.Q(models.Q(('revision', 1), ('supersedes__isnull', True)), models.Q(('revision__gt', 1), ('supersedes__isnull', False)), _connector='OR'), name='vote_revisions_form_a_chain')],
                    },
                ),
                Replaced(
                    name='Vote',
                    fields=[
                        ('id', models.BigAutoField(primary_key=True, serialize=False)),
                        ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='%(class)ss', to='accounts.project')),
                        ('slot', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='%(class)ss', to='labeling.slot')),
                        ('annotator', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='%(class)ss', to=settings.AUTH_USER_MODEL)),
                        ('left_is', models.CharField(blank=True, choices=[('a', 'A'), ('b', 'B')], help_text='which response of a pair stood left; empty when unknown (imports)', max_length=1)),
                        ('strength', models.PositiveSmallIntegerField(blank=True, null=True)),
                        ('criteria', models.JSONField(blank=True, default=dict)),
                        ('reasons', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), blank=True, default=list, size=None)),
                        ('rationale', models.TextField(blank=True)),
                        ('flags', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), blank=True, default=list, size=None)),
                        ('guideline', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='labeling.guideline')),
                        ('active_ms', models.PositiveIntegerField(blank=True, null=True)),
                        ('wall_ms', models.PositiveIntegerField(blank=True, null=True)),
                        ('idempotency_key', models.CharField(max_length=120)),
                        ('source', models.CharField(choices=[('page', 'label screen'), ('api', 'API'), ('import', 'imported')], default='page', max_length=6)),
                        ('revision', models.PositiveSmallIntegerField(default=1)),
                        ('supersedes', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='superseded_by', to='labeling.vote')),
                        ('is_current', models.BooleanField(default=True)),
                        ('cast_at', models.DateTimeField()),
                        ('chosen', models.ForeignKey(blank=True, help_text='the canonical response preferred; empty for tie and both bad', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
                        ('improvement', models.ForeignKey(blank=True, help_text='the better answer as this person would have it', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
                        ('comparison', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='votes', to='labeling.comparison')),
                        ('choice', models.CharField(choices=[('a', 'A is better'), ('b', 'B is better'), ('tie', 'Tie'), ('both_bad', 'Both are bad')], max_length=8)),
                    ],
                    options={
                        'db_table': 'labeling_vote',
                        'managed': False,
                        'indexes': [],
                        'constraints': [],
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name='TaskItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='labeling.task')),
                ('position', models.PositiveSmallIntegerField()),
                ('response', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.response')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('task', 'position'), name='task_item_position_once'), models.UniqueConstraint(fields=('task', 'response'), name='task_item_response_once'), models.CheckConstraint(condition=models.Q(('position__gte', 1), ('position__lte', 9)), name='task_item_at_most_nine')],
                'indexes': [],
            },
        ),
        migrations.RunSQL(GUARDS),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(MOVED)],
            state_operations=[
                RankedOutputsMoved(),
                *(migrations.DeleteModel(name) for name in GONE),
            ],
        ),
    ]
