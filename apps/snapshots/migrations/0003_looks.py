"""Who read which split, how often that may be, and who let it be once more."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

FORWARD = """
create trigger snapshots_splitaccess_append_only before update or delete on snapshots_splitaccess
  for each row execute function concord_refuse_change();
create trigger snapshots_splitaccess_never_emptied before truncate on snapshots_splitaccess
  for each statement execute function concord_refuse_change();
"""
BACKWARD = """
drop trigger snapshots_splitaccess_never_emptied on snapshots_splitaccess;
drop trigger snapshots_splitaccess_append_only on snapshots_splitaccess;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0001_initial'),
        ('snapshots', '0002_published_labels'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SplitAccess',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('split', models.CharField(max_length=24)),
                ('purpose', models.CharField(help_text='kind of the run, or what a person did', max_length=20)),
                ('run', models.CharField(blank=True, help_text="its id; empty for a person's", max_length=16)),
                ('attempt', models.PositiveIntegerField(blank=True, null=True)),
                ('seq', models.BigIntegerField(blank=True, help_text='number of the event', null=True)),
                ('person_name', models.CharField(blank=True, max_length=150)),
                ('protocol_sha256', models.CharField(blank=True, max_length=64)),
                ('n_items', models.PositiveIntegerField(help_text='rows read')),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('person', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='accounts.project')),
                ('snapshot', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='accesses', to='snapshots.snapshot')),
            ],
            options={
                'ordering': ['id'],
                'constraints': [
                    models.UniqueConstraint(condition=models.Q(('run', ''), _negated=True), fields=('run', 'attempt', 'seq'), name='split_access_once_per_event'),
                    models.CheckConstraint(condition=models.Q(models.Q(('run', ''), _negated=True), ('person__isnull', False), _connector='OR'), name='split_access_has_a_reader'),
                ],
                'indexes': [
                    models.Index(fields=['snapshot', 'split', 'id'], name='split_access_by_split'),
                    models.Index(fields=['run'], name='split_access_by_run'),
                ],
            },
        ),
        migrations.CreateModel(
            name='SplitBudget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('split', models.CharField(max_length=24)),
                ('looks', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('set_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('snapshot', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='budgets', to='snapshots.snapshot')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('snapshot', 'split'), name='split_budget_once')],
            },
        ),
        migrations.CreateModel(
            name='SplitSignOff',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('split', models.CharField(max_length=24)),
                ('look', models.PositiveIntegerField()),
                ('reason', models.CharField(max_length=500)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('person', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('signed_by', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('snapshot', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sign_offs', to='snapshots.snapshot')),
            ],
            options={
                'ordering': ['id'],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('person', models.F('signed_by')), _negated=True), name='split_sign_off_by_another'),
                    models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='split_sign_off_says_why'),
                    models.UniqueConstraint(fields=('snapshot', 'split', 'look', 'person'), name='split_sign_off_once'),
                ],
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
