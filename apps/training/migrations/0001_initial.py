"""Runs and all that they report."""

import apps.common.models
import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# Compressed bytes do not compress again.
STORAGE = """
alter table training_metricblock
  alter column body set storage external, alter column head set storage external;
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('snapshots', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Run',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=120)),
                ('kind', models.CharField(choices=[('sft', 'Supervised fine-tuning'), ('reward', 'Reward model'), ('dpo', 'DPO'), ('ppo', 'PPO'), ('grpo', 'GRPO'), ('generate', 'Generation'), ('evaluate', 'Evaluation'), ('assess', 'Assessment of a reward model'), ('check', 'Check'), ('probe', 'Probe'), ('imported', 'Imported'), ('drill', 'Test run')], max_length=10)),
                ('state', models.CharField(choices=[('waiting', 'waiting for its inputs'), ('queued', 'queued'), ('running', 'running'), ('stopping', 'stopping'), ('finished', 'finished'), ('failed', 'failed'), ('cancelled', 'cancelled')], default='queued', max_length=9)),
                ('queue', models.CharField(default='cpu', help_text='its machine class', max_length=10)),
                ('layout', models.CharField(default='one', max_length=10)),
                ('processes', models.PositiveSmallIntegerField(default=1, help_text='over which the layout spreads it; 0: one for each GPU of its machine')),
                ('launcher', models.CharField(default='plain', max_length=12)),
                ('priority', models.PositiveSmallIntegerField(choices=[(0, 'low'), (1, 'normal'), (2, 'high')], default=1)),
                ('place', models.BigIntegerField(default=0, help_text='among those that wait for a slot: the least goes first')),
                ('goes_on', models.BooleanField(default=False, help_text='it had a slot and lost its machine: before all that wait')),
                ('config', models.JSONField(default=dict)),
                ('seed', models.BigIntegerField(default=0)),
                ('code_version', models.CharField(blank=True, max_length=80)),
                ('attempt', models.PositiveSmallIntegerField(default=0, help_text='0 until first dispatched')),
                ('command', models.CharField(blank=True, choices=[('stop', 'stop and keep'), ('cancel', 'cancel')], max_length=6)),
                ('step', models.BigIntegerField(default=0)),
                ('total_steps', models.BigIntegerField(blank=True, null=True)),
                ('phase', models.CharField(blank=True, max_length=60)),
                ('eta_s', models.FloatField(blank=True, null=True)),
                ('summary', models.JSONField(default=dict)),
                ('fault', models.CharField(blank=True, max_length=14)),
                ('failure_kind', models.CharField(blank=True, max_length=60)),
                ('failure_message', models.TextField(blank=True)),
                ('launch_key', models.CharField(blank=True, help_text='the same key launches once, however often it is sent', max_length=80)),
                ('override_reason', models.CharField(blank=True, help_text='why it was launched although a check said no, such as a reward not approved', max_length=500)),
                ('group', models.CharField(blank=True, help_text='runs that differ in their seed only share it', max_length=40)),
                ('admitted_at', models.DateTimeField(blank=True, help_text='since when its attempt has a slot of its machine class', null=True)),
                ('dispatched_at', models.DateTimeField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('heard_at', models.DateTimeField(blank=True, help_text='last sign of life', null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('thinned_at', models.DateTimeField(blank=True, help_text='since when old points are kept as extremes only', null=True)),
                ('about', models.ForeignKey(blank=True, help_text='the run whose problem this check or experiment looks into', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='checks', to='training.run')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='accounts.project')),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='MetricBlock',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('attempt', models.PositiveSmallIntegerField()),
                ('first_seq', models.BigIntegerField(help_text='of the events whose points it holds')),
                ('last_seq', models.BigIntegerField()),
                ('first_step', models.BigIntegerField()),
                ('last_step', models.BigIntegerField()),
                ('points', models.IntegerField()),
                ('head', models.BinaryField(help_text='names, places in the body, last numbers')),
                ('body', models.BinaryField()),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='metric_blocks', to='training.run')),
            ],
        ),
        migrations.CreateModel(
            name='Checkpoint',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('attempt', models.PositiveSmallIntegerField()),
                ('step', models.BigIntegerField()),
                ('uri', models.CharField(max_length=200)),
                ('sha256', models.CharField(max_length=64)),
                ('size_bytes', models.BigIntegerField(default=0)),
                ('tags', models.JSONField(default=list)),
                ('metrics', models.JSONField(default=dict)),
                ('status', models.CharField(choices=[('candidate', 'candidate'), ('approved', 'approved'), ('rejected', 'rejected'), ('retired', 'retired')], default='candidate', max_length=9)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='checkpoints', to='accounts.project')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='checkpoints', to='training.run')),
            ],
            options={
                'ordering': ['run', 'step'],
            },
        ),
        migrations.CreateModel(
            name='Artifact',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('attempt', models.PositiveSmallIntegerField()),
                ('seq', models.BigIntegerField()),
                ('name', models.CharField(max_length=120)),
                ('purpose', models.CharField(blank=True, max_length=20)),
                ('uri', models.CharField(max_length=200)),
                ('sha256', models.CharField(max_length=64)),
                ('size_bytes', models.BigIntegerField(default=0)),
                ('count', models.IntegerField(blank=True, null=True)),
                ('media_type', models.CharField(blank=True, max_length=80)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='artifacts', to='training.run')),
            ],
        ),
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('attempt', models.PositiveSmallIntegerField()),
                ('seq', models.BigIntegerField()),
                ('step', models.BigIntegerField()),
                ('rule', models.CharField(max_length=60)),
                ('severity', models.CharField(max_length=8)),
                ('message', models.TextField()),
                ('value', models.FloatField(blank=True, null=True)),
                ('threshold', models.FloatField(blank=True, null=True)),
                ('raised_at', models.DateTimeField()),
                ('acknowledged_at', models.DateTimeField(blank=True, null=True)),
                ('acknowledged_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alerts', to='training.run')),
            ],
        ),
        migrations.CreateModel(
            name='RunAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveSmallIntegerField()),
                ('cause', models.CharField(choices=[('launch', 'launched'), ('retry', 'tried again after a failure'), ('resume', 'resumed by a person')], default='launch', max_length=6)),
                ('spec', models.JSONField(default=dict, help_text='the JobSpec as sent')),
                ('resumed_from_step', models.BigIntegerField(blank=True, null=True)),
                ('environment', models.JSONField(default=dict)),
                ('last_seq', models.BigIntegerField(default=0, help_text='all events up to here are in')),
                ('outcome', models.CharField(blank=True, max_length=12)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('opened_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='training.run')),
            ],
            options={
                'ordering': ['run', 'number'],
            },
        ),
        migrations.CreateModel(
            name='RunEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('attempt', models.PositiveSmallIntegerField()),
                ('seq', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('type', models.CharField(max_length=20)),
                ('body', models.JSONField()),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='training.run')),
            ],
        ),
        migrations.CreateModel(
            name='RunInput',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(max_length=20)),
                ('artifact', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='used_by', to='training.artifact')),
                ('checkpoint', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='used_by', to='training.checkpoint')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='inputs', to='training.run')),
                ('snapshot', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='used_by', to='snapshots.snapshot')),
                ('upstream', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='downstream', to='training.run')),
            ],
        ),
        migrations.CreateModel(
            name='RunQuota',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('runs_at_once', models.PositiveSmallIntegerField(validators=[django.core.validators.MinValueValidator(1)])),
                ('project', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='run_quota', to='accounts.project')),
            ],
        ),
        migrations.CreateModel(
            name='Sample',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('attempt', models.PositiveSmallIntegerField()),
                ('seq', models.BigIntegerField()),
                ('step', models.BigIntegerField()),
                ('bucket', models.CharField(max_length=10)),
                ('prompt', models.JSONField()),
                ('response', models.TextField()),
                ('baseline', models.TextField(blank=True)),
                ('reward', models.FloatField(blank=True, null=True)),
                ('parts', models.JSONField(default=dict)),
                ('kl', models.FloatField(blank=True, null=True)),
                ('tokens', models.IntegerField(blank=True, null=True)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='training.run')),
            ],
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(fields=['project', '-created_at'], name='run_by_project'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('group', ''), _negated=True), fields=['project', 'group'], name='run_by_group'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('state__in', ['waiting', 'queued', 'running', 'stopping'])), fields=['state'], name='run_live'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('state__in', ['queued', 'running', 'stopping'])), fields=['queue'], name='run_in_class'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', False), ('state__in', ['finished', 'failed', 'cancelled'])), models.Q(('ended_at__isnull', True), ('state__in', ['waiting', 'queued', 'running', 'stopping'])), _connector='OR'), name='run_ended_has_time'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'failed'), _negated=True), models.Q(('failure_kind', ''), _negated=True), _connector='OR'), name='run_failed_says_why'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.UniqueConstraint(condition=models.Q(('launch_key', ''), _negated=True), fields=('project', 'launch_key'), name='run_launched_once_per_key'),
        ),
        migrations.AddConstraint(
            model_name='metricblock',
            constraint=models.UniqueConstraint(fields=('run', 'attempt', 'first_seq'), name='block_once'),
        ),
        migrations.AddConstraint(
            model_name='checkpoint',
            constraint=models.UniqueConstraint(fields=('run', 'attempt', 'step', 'sha256'), name='checkpoint_once'),
        ),
        migrations.AddConstraint(
            model_name='artifact',
            constraint=models.UniqueConstraint(fields=('run', 'attempt', 'seq'), name='artifact_once'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=models.UniqueConstraint(fields=('run', 'attempt', 'seq'), name='alert_once'),
        ),
        migrations.AddConstraint(
            model_name='runattempt',
            constraint=models.UniqueConstraint(fields=('run', 'number'), name='attempt_number_once'),
        ),
        migrations.AddIndex(
            model_name='runevent',
            index=models.Index(fields=['run', 'type', 'attempt', 'seq'], name='event_by_type'),
        ),
        migrations.AddIndex(
            model_name='runevent',
            index=models.Index(condition=models.Q(('type', 'Parked')), fields=['run', 'attempt', 'seq'], name='event_parked'),
        ),
        migrations.AddConstraint(
            model_name='runevent',
            constraint=models.UniqueConstraint(fields=('run', 'attempt', 'seq'), name='event_once'),
        ),
        migrations.AddConstraint(
            model_name='runinput',
            constraint=models.UniqueConstraint(fields=('run', 'role'), name='run_input_role_once'),
        ),
        migrations.AddConstraint(
            model_name='runinput',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('artifact__isnull', True), ('checkpoint__isnull', True), ('snapshot__isnull', False), ('upstream__isnull', True)), models.Q(('artifact__isnull', False), ('checkpoint__isnull', True), ('snapshot__isnull', True), ('upstream__isnull', True)), models.Q(('artifact__isnull', True), ('snapshot__isnull', True), models.Q(('checkpoint__isnull', False), ('upstream__isnull', False), _connector='OR')), _connector='OR'), name='run_input_is_one_thing'),
        ),
        migrations.AddConstraint(
            model_name='runquota',
            constraint=models.CheckConstraint(condition=models.Q(('runs_at_once__gte', 1)), name='run_quota_is_positive'),
        ),
        migrations.AddIndex(
            model_name='sample',
            index=models.Index(fields=['run', 'bucket', '-step'], name='sample_by_bucket'),
        ),
        migrations.AddConstraint(
            model_name='sample',
            constraint=models.UniqueConstraint(fields=('run', 'attempt', 'seq'), name='sample_once'),
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
