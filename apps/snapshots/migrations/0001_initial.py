"""Snapshots, their rows and their triggers: what is frozen never changes."""

import apps.common.models
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

FORWARD = """
create function concord_keep_snapshot() returns trigger language plpgsql as $$
begin
  if old.state = 'frozen' then
    raise exception 'snapshot % is frozen', old.id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger snapshots_snapshot_kept before update on snapshots_snapshot
  for each row execute function concord_keep_snapshot();

create function concord_keep_snapshot_row() returns trigger language plpgsql as $$
begin
  if (select state from snapshots_snapshot where id = new.snapshot_id) = 'frozen' then
    raise exception 'snapshot % is frozen', new.snapshot_id using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger snapshots_snapshotrow_kept before insert or update on snapshots_snapshotrow
  for each row execute function concord_keep_snapshot_row();
"""
BACKWARD = """
drop trigger snapshots_snapshotrow_kept on snapshots_snapshotrow;
drop function concord_keep_snapshot_row();
drop trigger snapshots_snapshot_kept on snapshots_snapshot;
drop function concord_keep_snapshot();
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('labeling', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Snapshot',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=120)),
                ('kind', models.CharField(choices=[('preferences', 'preference pairs'), ('unpaired', 'single answers, desirable or not'), ('demonstrations', 'demonstrations'), ('prompts', 'prompts')], max_length=14)),
                ('state', models.CharField(choices=[('draft', 'draft'), ('frozen', 'frozen'), ('failed', 'failed')], default='draft', max_length=7)),
                ('recipe', models.JSONField(default=dict, help_text='rule, filters, hold-outs, splits, seed: everything it was made by')),
                ('counts', models.JSONField(default=dict, help_text='rows per split, drops by reason, votes, annotators')),
                ('uri', models.CharField(blank=True, max_length=200)),
                ('sha256', models.CharField(blank=True, max_length=64)),
                ('private_sha256', models.CharField(blank=True, db_default='', default='', max_length=64)),
                ('size_bytes', models.BigIntegerField(default=0)),
                ('error', models.TextField(blank=True)),
                ('frozen_at', models.DateTimeField(blank=True, null=True)),
                ('queued_at', models.DateTimeField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('cancel_wanted', models.BooleanField(db_default=False, default=False)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='snapshots', to='accounts.project')),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='SnapshotRow',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('split', models.CharField(blank=True, help_text='empty when dropped', max_length=24)),
                ('ordinal', models.PositiveIntegerField(blank=True, null=True)),
                ('winner', models.CharField(blank=True, max_length=8)),
                ('share', models.FloatField(blank=True, null=True)),
                ('confidence', models.FloatField(blank=True, help_text='P(the winner is preferred) as the file states it', null=True)),
                ('posterior', models.FloatField(blank=True, help_text='of the winner, where a model of the voters decided', null=True)),
                ('weight', models.FloatField(blank=True, help_text='in the loss; mean 1 over training', null=True)),
                ('decided_by', models.CharField(blank=True, db_default='', default='', help_text='votes, model, ruling, vote', max_length=8)),
                ('vote_ids', models.JSONField(default=list, help_text='the votes this row was decided from')),
                ('dropped_because', models.CharField(blank=True, max_length=60)),
                ('reason', models.CharField(blank=True, db_default='', default='', help_text='more words, where known', max_length=300)),
                ('comparison', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.comparison')),
                ('snapshot', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rows', to='snapshots.snapshot')),
            ],
        ),
        migrations.AddConstraint(
            model_name='snapshot',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'frozen'), _negated=True), models.Q(models.Q(('sha256', ''), _negated=True), models.Q(('uri', ''), _negated=True), ('frozen_at__isnull', False)), _connector='OR'), name='snapshot_frozen_has_hash'),
        ),
        migrations.AddConstraint(
            model_name='snapshotrow',
            constraint=models.CheckConstraint(condition=models.Q(('split', ''), ('dropped_because', ''), _connector='XOR'), name='snapshot_row_kept_or_dropped'),
        ),
        migrations.AddConstraint(
            model_name='snapshotrow',
            constraint=models.UniqueConstraint(fields=('snapshot', 'comparison', 'split'), name='snapshot_row_once_per_split'),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
