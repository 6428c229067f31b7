import apps.common.models
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('snapshots', '0001_initial'),
        ('training', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Channel',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('email', 'e-mail'), ('webhook', 'webhook')], max_length=8)),
                ('address', models.CharField(max_length=500)),
                ('secret', models.CharField(blank=True, help_text='signs what a webhook is sent', max_length=80)),
                ('least_severity', models.CharField(choices=[('info', 'info'), ('warning', 'warning'), ('critical', 'critical')], default='warning', max_length=8)),
                ('enabled', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='channels', to='accounts.project')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('key', models.CharField(help_text='such as run:<id>:reward or watch:<id>', max_length=120)),
                ('link', models.CharField(help_text='of the chain, see workers.rules.rule', max_length=12)),
                ('rule', models.CharField(help_text='what spoke first', max_length=60)),
                ('title', models.CharField(max_length=200)),
                ('message', models.TextField(blank=True)),
                ('severity', models.CharField(choices=[('info', 'info'), ('warning', 'warning'), ('critical', 'critical')], max_length=8)),
                ('state', models.CharField(choices=[('open', 'open'), ('acknowledged', 'acknowledged'), ('resolved', 'resolved')], default='open', max_length=12)),
                ('onset_step', models.BigIntegerField(blank=True, null=True)),
                ('alerts', models.PositiveIntegerField(default=0, help_text='how many it has raised')),
                ('opened_at', models.DateTimeField()),
                ('heard_at', models.DateTimeField(help_text='last alert')),
                ('acknowledged_at', models.DateTimeField(blank=True, null=True)),
                ('resolved_at', models.DateTimeField(blank=True, null=True)),
                ('symptom', models.TextField(blank=True)),
                ('assumption', models.TextField(blank=True)),
                ('root_cause', models.TextField(blank=True)),
                ('fix', models.TextField(blank=True)),
                ('lesson', models.TextField(blank=True)),
                ('acknowledged_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('checkpoint', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='training.checkpoint')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='accounts.project')),
                ('resolved_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('run', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='training.run')),
            ],
            options={
                'ordering': ['-opened_at'],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('event', models.CharField(max_length=14)),
                ('body', models.JSONField(default=dict)),
                ('state', models.CharField(choices=[('pending', 'pending'), ('sent', 'sent'), ('failed', 'given up')], default='pending', max_length=7)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('next_at', models.DateTimeField()),
                ('error', models.CharField(blank=True, max_length=300)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('channel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='monitoring.channel')),
                ('incident', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='monitoring.incident')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='IncidentEntry',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=14)),
                ('at', models.DateTimeField()),
                ('body', models.JSONField(default=dict)),
                ('alert', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='entry', to='training.alert')),
                ('by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('incident', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='monitoring.incident')),
            ],
            options={
                'ordering': ['at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Mute',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('link', models.CharField(blank=True, max_length=12)),
                ('rule', models.CharField(blank=True, max_length=60)),
                ('reason', models.CharField(blank=True, max_length=300)),
                ('until', models.DateTimeField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('ended_at', models.DateTimeField(blank=True, help_text='lifted before its time', null=True)),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='mutes', to='accounts.project')),
                ('run', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='training.run')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Watch',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('policy', 'Policy'), ('reward', 'Reward model')], max_length=6)),
                ('name', models.CharField(max_length=120)),
                ('config', models.JSONField(default=dict, help_text='of the probe')),
                ('every_minutes', models.PositiveIntegerField(default=60)),
                ('next_at', models.DateTimeField()),
                ('enabled', models.BooleanField(default=True)),
                ('state', models.CharField(choices=[('new', 'no probe yet'), ('steady', 'as at its baseline'), ('drifted', 'differs from its baseline'), ('broken', 'does not answer')], default='new', max_length=7)),
                ('baseline', models.JSONField(default=dict)),
                ('baseline_at', models.DateTimeField(blank=True, null=True)),
                ('baseline_run', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='training.run')),
                ('checkpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='watches', to='training.checkpoint')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('probe', models.ForeignKey(blank=True, help_text='under way, or ended and not looked at yet; none begins beside it', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='training.run')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='watches', to='accounts.project')),
                ('prompts', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='watches', to='snapshots.snapshot')),
                ('reward', models.ForeignKey(blank=True, help_text="that scores a policy's answers", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='training.checkpoint')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='ProbeResult',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('figures', models.JSONField(default=dict)),
                ('findings', models.JSONField(default=list)),
                ('details', models.JSONField(default=dict, help_text='what was asked (models, hashes) and the prompts that changed most')),
                ('fired', models.BooleanField(default=False)),
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='probe_result', to='training.run')),
                ('watch', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='results', to='monitoring.watch')),
            ],
            options={
                'ordering': ['-at'],
            },
        ),
        migrations.CreateModel(
            name='Outcome',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=60)),
                ('value', models.FloatField()),
                ('n', models.PositiveIntegerField(blank=True, null=True)),
                ('deviation', models.FloatField(blank=True, help_text='of single cases', null=True)),
                ('unit', models.CharField(blank=True, max_length=20)),
                ('higher_is_better', models.BooleanField(default=True)),
                ('at', models.DateTimeField()),
                ('source', models.CharField(blank=True, max_length=60)),
                ('key', models.CharField(help_text='the same key is the same measurement', max_length=80)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('checkpoint', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='outcomes', to='training.checkpoint')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='outcomes', to='accounts.project')),
                ('watch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='outcomes', to='monitoring.watch')),
            ],
            options={
                'ordering': ['-at'],
            },
        ),
        migrations.AddConstraint(
            model_name='channel',
            constraint=models.UniqueConstraint(fields=('project', 'kind', 'address'), name='channel_once'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['project', '-opened_at'], name='incident_by_project'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('state', 'resolved'), _negated=True), fields=['project', 'severity'], name='incident_open'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'resolved'), _negated=True), fields=('project', 'key'), name='incident_open_once'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('resolved_at__isnull', False), ('state', 'resolved')), models.Q(models.Q(('state', 'resolved'), _negated=True), ('resolved_at__isnull', True)), _connector='OR'), name='incident_resolved_has_time'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['next_at'], name='delivery_due'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(condition=models.Q(('incident__isnull', False)), fields=('channel', 'incident', 'event'), name='delivery_once'),
        ),
        migrations.AddIndex(
            model_name='incidententry',
            index=models.Index(fields=['incident', 'at'], name='entry_by_incident'),
        ),
        migrations.AddIndex(
            model_name='mute',
            index=models.Index(fields=['project', 'until'], name='mute_by_project'),
        ),
        migrations.AddIndex(
            model_name='watch',
            index=models.Index(condition=models.Q(('enabled', True)), fields=['next_at'], name='watch_due'),
        ),
        migrations.AddConstraint(
            model_name='watch',
            constraint=models.UniqueConstraint(fields=('project', 'name'), name='watch_name_once'),
        ),
        migrations.AddIndex(
            model_name='proberesult',
            index=models.Index(fields=['watch', '-at'], name='probe_by_watch'),
        ),
        migrations.AddIndex(
            model_name='outcome',
            index=models.Index(fields=['project', 'name', '-at'], name='outcome_by_name'),
        ),
        migrations.AddConstraint(
            model_name='outcome',
            constraint=models.UniqueConstraint(fields=('project', 'key'), name='outcome_once'),
        ),
    ]
