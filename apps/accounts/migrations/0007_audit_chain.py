"""A chain of hashes over the audit log, append-only as the log is."""

from django.db import migrations, models

FORWARD = """
create trigger accounts_auditlink_append_only before update or delete on accounts_auditlink
  for each row execute function concord_refuse_change();
create trigger accounts_auditlink_never_emptied before truncate on accounts_auditlink
  for each statement execute function concord_refuse_change();
"""
BACKWARD = """
drop trigger accounts_auditlink_never_emptied on accounts_auditlink;
drop trigger accounts_auditlink_append_only on accounts_auditlink;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0006_notice_values'),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditLink',
            fields=[
                ('position', models.BigIntegerField(primary_key=True, serialize=False)),
                ('event', models.BigIntegerField(unique=True)),
                ('sha256', models.CharField(max_length=64)),
                ('sealed_at', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
