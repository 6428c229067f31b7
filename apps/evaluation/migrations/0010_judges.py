"""Models that judge pairs, their verdicts, and labels under a certificate.

A judge shares the sequence of people's ids. The triggers refuse it wherever a person is named, so
that no verdict is ever counted as a vote, whatever program writes it.
"""

import apps.common.models
import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

FORWARD = """
create function concord_no_judge() returns trigger language plpgsql as $$
begin
  perform from evaluation_judge j where j.id = case tg_table_name
    when 'accounts_user' then (to_jsonb(new) ->> 'id')::bigint
    else (to_jsonb(new) ->> 'user_id')::bigint end;
  if found then
    raise exception 'a judge is no person: % refuses its id', tg_table_name
      using errcode = 'integrity_constraint_violation', constraint = 'judge_is_no_person';
  end if;
  return new;
end $$;
create trigger accounts_user_no_judge before insert or update of id on accounts_user
  for each row execute function concord_no_judge();
create trigger accounts_membership_no_judge before insert or update of user_id
  on accounts_membership for each row execute function concord_no_judge();

-- One look for each statement: imports write thousands of answers. No answer changes its annotator.
create function concord_no_judges_vote() returns trigger language plpgsql as $$
begin
  perform from added a join evaluation_judge j on j.id = a.annotator_id;
  if found then
    raise exception 'a judge is no annotator: its verdicts are no votes'
      using errcode = 'integrity_constraint_violation', constraint = 'judge_is_no_annotator';
  end if;
  return null;
end $$;
create trigger labeling_answer_no_judge after insert on labeling_answer
  referencing new table as added for each statement execute function concord_no_judges_vote();

create function concord_judge_no_person() returns trigger language plpgsql as $$
begin
  perform from accounts_user u where u.id = new.id;
  if found then
    raise exception 'a person has this id' using errcode = 'integrity_constraint_violation',
      constraint = 'judge_is_no_person';
  end if;
  return new;
end $$;
create trigger evaluation_judge_no_person before insert or update of id on evaluation_judge
  for each row execute function concord_judge_no_person();
"""
BACKWARD = """
drop trigger evaluation_judge_no_person on evaluation_judge;
drop trigger labeling_answer_no_judge on labeling_answer;
drop trigger accounts_membership_no_judge on accounts_membership;
drop trigger accounts_user_no_judge on accounts_user;
drop function concord_judge_no_person();
drop function concord_no_judges_vote();
drop function concord_no_judge();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0006_notice_values'),
        ('evaluation', '0009_several_systems'),
        ('labeling', '0017_pair_slices'),
        ('snapshots', '0006_pairs_without_labels'),
        ('training', '0008_judge_runs'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Judge',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.BigIntegerField(editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80)),
                ('archived_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='judges', to='accounts.project')),
            ],
        ),
        migrations.CreateModel(
            name='JudgeVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('number', models.PositiveIntegerField()),
                ('config', models.JSONField(default=dict, help_text='of its runs: prompt, rubric, sampling …')),
                ('sha256', models.CharField(help_text='of model, configuration and fingerprint', max_length=64)),
                ('fingerprint', models.CharField(blank=True, default='', max_length=300)),
                ('note', models.CharField(blank=True, default='', max_length=300)),
                ('changed_at', models.DateTimeField(blank=True, null=True)),
                ('changed_because', models.CharField(blank=True, default='', max_length=300)),
                ('probe_at', models.DateTimeField(blank=True, help_text='of a served model: when it is asked the same again', null=True)),
                ('probe_answers', models.JSONField(blank=True, default=dict, help_text='{pair: [first, second]} of the first probe')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('judge', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='evaluation.judge')),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.RESTRICT, related_name='+', to='training.checkpoint')),
            ],
        ),
        migrations.CreateModel(
            name='JudgeVerdict',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('first', models.FloatField(blank=True, null=True)),
                ('second', models.FloatField(blank=True, null=True)),
                ('preference', models.FloatField()),
                ('said', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(blank=True, max_length=300), blank=True, default=list, size=None)),
                ('run', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='training.run')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='verdicts_of_judges', to='labeling.task')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='verdicts', to='evaluation.judgeversion')),
            ],
        ),
        migrations.CreateModel(
            name='JudgeRun',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='judging', serialize=False, to='training.run')),
                ('purpose', models.CharField(choices=[('measure', 'measure what it is worth'), ('tune', 'choose a prompt'), ('certify', 'certify labels'), ('label', 'label pairs'), ('probe', 'see whether it still answers alike')], max_length=8)),
                ('scope', models.JSONField(default=dict)),
                ('wanted', models.JSONField(default=dict)),
                ('acted', models.BooleanField(default=False)),
                ('taken_at', models.DateTimeField(blank=True, null=True)),
                ('problem', models.CharField(blank=True, default='', max_length=300)),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('pairs', models.ForeignKey(on_delete=django.db.models.deletion.RESTRICT, related_name='+', to='snapshots.snapshot')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='evaluation.judgeversion')),
            ],
        ),
        migrations.CreateModel(
            name='JudgeMeasurement',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('scope', models.JSONField(default=dict)),
                ('part', models.CharField(choices=[('all', 'all of the sample'), ('tune', 'the part for tuning'), ('choose', 'the part for choosing'), ('certify', 'the part for certifying')], max_length=7)),
                ('share', models.FloatField()),
                ('look', models.PositiveIntegerField(default=1)),
                ('n_pairs', models.PositiveIntegerField(help_text='with a verdict and a vote, in the sample')),
                ('n_votes', models.PositiveIntegerField()),
                ('n_simulated', models.PositiveIntegerField(default=0)),
                ('figures', models.JSONField()),
                ('refused', models.CharField(blank=True, default='', help_text='why no figures', max_length=300)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='measurements', to='evaluation.judgeversion')),
            ],
        ),
        migrations.CreateModel(
            name='LabelCertificate',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('scope', models.JSONField(default=dict)),
                ('against', models.CharField(choices=[('decision', 'what people decided'), ('vote', 'one vote of each pair')], max_length=8)),
                ('error', models.FloatField()),
                ('failure', models.FloatField()),
                ('audited', models.FloatField(help_text='share of the labels that people check')),
                ('look', models.PositiveIntegerField()),
                ('threshold', models.FloatField(blank=True, null=True)),
                ('temperature', models.FloatField(default=1.0, help_text='that confidences are calibrated by')),
                ('figures', models.JSONField(default=dict)),
                ('sha256', models.CharField(max_length=64)),
                ('stopped_at', models.DateTimeField(blank=True, null=True)),
                ('stopped_because', models.CharField(blank=True, default='', max_length=300)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.RESTRICT, related_name='+', to='evaluation.judgeversion')),
            ],
        ),
        migrations.CreateModel(
            name='CertifiedLabel',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('label', models.CharField(choices=[('a', 'A'), ('b', 'B')], max_length=1)),
                ('probability', models.FloatField()),
                ('is_audited', models.BooleanField(default=False)),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='labeling.task')),
                ('certificate', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='labels', to='evaluation.labelcertificate')),
            ],
        ),
        migrations.CreateModel(
            name='CertificateUse',
            fields=[
                ('snapshot', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='certificate_use', serialize=False, to='snapshots.snapshot')),
                ('n_labels', models.PositiveIntegerField()),
                ('certificate', models.ForeignKey(on_delete=django.db.models.deletion.RESTRICT, related_name='uses', to='evaluation.labelcertificate')),
            ],
        ),
        migrations.AddConstraint(
            model_name='judge',
            constraint=models.UniqueConstraint(fields=('project', 'name'), name='judge_name_once'),
        ),
        migrations.AddConstraint(
            model_name='judgeversion',
            constraint=models.UniqueConstraint(fields=('judge', 'number'), name='judge_version_number_once'),
        ),
        migrations.AddConstraint(
            model_name='judgeversion',
            constraint=models.UniqueConstraint(fields=('judge', 'sha256'), name='judge_version_once'),
        ),
        migrations.AddConstraint(
            model_name='judgeverdict',
            constraint=models.UniqueConstraint(fields=('version', 'task'), name='verdict_once_per_version'),
        ),
        migrations.AddConstraint(
            model_name='judgeverdict',
            constraint=models.CheckConstraint(condition=models.Q(('preference__gte', 0), ('preference__lte', 1), models.Q(('first__isnull', True), models.Q(('first__gte', 0), ('first__lte', 1)), _connector='OR'), models.Q(('second__isnull', True), models.Q(('second__gte', 0), ('second__lte', 1)), _connector='OR')), name='verdict_is_a_probability'),
        ),
        migrations.AddIndex(
            model_name='judgerun',
            index=models.Index(condition=models.Q(('acted', False)), fields=['run'], name='judge_run_due'),
        ),
        migrations.AddIndex(
            model_name='judgemeasurement',
            index=models.Index(fields=['version', '-id'], name='judge_measured_newest'),
        ),
        migrations.AddConstraint(
            model_name='labelcertificate',
            constraint=models.CheckConstraint(condition=models.Q(('error__gt', 0), ('error__lt', 1), ('failure__gt', 0), ('failure__lt', 1), ('audited__gt', 0), ('audited__lte', 1)), name='certificate_states_shares'),
        ),
        migrations.AddConstraint(
            model_name='certifiedlabel',
            constraint=models.UniqueConstraint(fields=('certificate', 'task'), name='certified_label_once'),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
