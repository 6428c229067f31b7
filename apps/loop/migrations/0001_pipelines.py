"""Pipelines and rounds. A version of a pipeline never changes: a trigger refuses it."""

import apps.common.models
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

FORWARD = """
create function concord_keep_pipeline_version() returns trigger language plpgsql as $$
begin
  raise exception 'version % of a pipeline never changes', old.number
    using errcode = 'restrict_violation';
end $$;
create trigger loop_pipelineversion_kept
  before update of pipeline_id, number, steps, trigger_pairs, budget_minutes, created_at
  on loop_pipelineversion for each row execute function concord_keep_pipeline_version();
"""
BACKWARD = """
drop trigger loop_pipelineversion_kept on loop_pipelineversion;
drop function concord_keep_pipeline_version();
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0006_notice_values'),
        ('snapshots', '0003_looks'),
        ('training', '0007_served_models'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Pipeline',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80)),
                ('counted_pairs', models.PositiveIntegerField(default=0)),
                ('armed', models.BooleanField(default=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pipelines', to='accounts.project')),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='PipelineVersion',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('steps', models.JSONField()),
                ('trigger_pairs', models.PositiveIntegerField(null=True)),
                ('budget_minutes', models.PositiveIntegerField(null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('pipeline', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='loop.pipeline')),
            ],
            options={
                'ordering': ['pipeline', '-number'],
            },
        ),
        migrations.CreateModel(
            name='Round',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('running', 'running'), ('waiting', 'waiting for people'), ('paused', 'paused'), ('finished', 'finished'), ('stopped', 'stopped')], default='running', max_length=8)),
                ('trigger', models.CharField(choices=[('hand', 'by hand'), ('api', 'by API'), ('pairs', 'by fresh pairs')], max_length=5)),
                ('fresh_pairs', models.PositiveIntegerField(default=0, help_text='when it started')),
                ('reason', models.CharField(blank=True, help_text='why it was stopped', max_length=500)),
                ('spent_s', models.FloatField(default=0.0, help_text='of steps that were done again')),
                ('ended_at', models.DateTimeField(null=True)),
                ('paused_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('pipeline', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rounds', to='loop.pipeline')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rounds', to='accounts.project')),
                ('started_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rounds', to='loop.pipelineversion')),
            ],
            options={
                'ordering': ['-number'],
            },
        ),
        migrations.CreateModel(
            name='RoundStep',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('place', models.PositiveSmallIntegerField()),
                ('key', models.CharField(max_length=12)),
                ('kind', models.CharField(max_length=8)),
                ('state', models.CharField(choices=[('pending', 'not started'), ('running', 'running'), ('waiting', 'waiting for people'), ('done', 'done'), ('failed', 'failed'), ('skipped', 'skipped')], default='pending', max_length=7)),
                ('attempt', models.PositiveSmallIntegerField(default=1)),
                ('inputs', models.JSONField(default=dict)),
                ('decision', models.CharField(blank=True, max_length=12)),
                ('problem', models.TextField(blank=True, help_text='why it failed, and what to do about it')),
                ('reason', models.CharField(blank=True, help_text='of skipping it', max_length=500)),
                ('started_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('checkpoint', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='round_steps', to='training.checkpoint')),
                ('round', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='loop.round')),
                ('run', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='round_steps', to='training.run')),
                ('skipped_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('snapshot', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='round_steps', to='snapshots.snapshot')),
            ],
            options={
                'ordering': ['round', 'place'],
            },
        ),
        migrations.AddConstraint(
            model_name='pipeline',
            constraint=models.UniqueConstraint(fields=('project', 'name'), name='pipeline_name_once'),
        ),
        migrations.AddConstraint(
            model_name='pipelineversion',
            constraint=models.UniqueConstraint(fields=('pipeline', 'number'), name='pipeline_version_once'),
        ),
        migrations.AddConstraint(
            model_name='round',
            constraint=models.UniqueConstraint(fields=('pipeline', 'number'), name='round_number_once'),
        ),
        migrations.AddConstraint(
            model_name='round',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['running', 'waiting', 'paused'])), fields=('pipeline',), name='round_one_at_a_time'),
        ),
        migrations.AddConstraint(
            model_name='round',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', False), ('state__in', ['finished', 'stopped'])), models.Q(('ended_at__isnull', True), ('state__in', ['running', 'waiting', 'paused'])), _connector='OR'), name='round_ended_has_time'),
        ),
        migrations.AddConstraint(
            model_name='roundstep',
            constraint=models.UniqueConstraint(fields=('round', 'key'), name='round_step_once'),
        ),
        migrations.AddConstraint(
            model_name='roundstep',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'skipped'), _negated=True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='round_step_skipped_says_why'),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
