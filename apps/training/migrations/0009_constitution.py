"""Versions of a project's constitution, which never change; and which ended runs' answers were
scanned for blocked phrases."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

FORWARD = """
create function concord_keep_constitution() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    perform from accounts_project p where p.id = old.project_id and p.archived_at is not null;
    if found then
      return old;
    end if;
  end if;
  raise exception 'version % of a constitution is append-only', old.number
    using errcode = 'restrict_violation';
end $$;
create trigger training_constitution_kept
  before update of id, project_id, number, principles, hard_rules, note, created_name, created_at
  or delete on training_constitution for each row execute function concord_keep_constitution();
create trigger training_constitution_never_emptied before truncate on training_constitution
  for each statement execute function concord_refuse_change();
"""
BACKWARD = """
drop trigger training_constitution_never_emptied on training_constitution;
drop trigger training_constitution_kept on training_constitution;
drop function concord_keep_constitution();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0006_notice_values'),
        ('training', '0008_judge_runs'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Constitution',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('principles', models.JSONField(help_text='[{name, text}], in order')),
                ('hard_rules', models.JSONField(default=dict, help_text='a reward that blocks, or nothing')),
                ('note', models.CharField(blank=True, max_length=500)),
                ('created_name', models.CharField(help_text='stays when the account goes', max_length=150)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='constitutions', to='accounts.project')),
            ],
            options={
                'ordering': ['project', '-number'],
                'constraints': [models.UniqueConstraint(fields=('project', 'number'), name='constitution_number_once')],
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.AddField(
            model_name='run',
            name='scanned_at',
            field=models.DateTimeField(blank=True, help_text='when the files of its last attempt were looked through for blocked phrases', null=True),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('ended_at__isnull', False), ('scanned_at__isnull', True)), fields=['ended_at'], name='run_unscanned'),
        ),
        # What ended before was watched by nobody, and would come up in the inbox all at once.
        migrations.RunSQL(
            "update training_run set scanned_at = ended_at where ended_at is not null",
            migrations.RunSQL.noop,
        ),
    ]
