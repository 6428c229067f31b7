"""How far the audit log has been sent elsewhere."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0008_audit_without_names"),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditCursor",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("position", models.BigIntegerField(default=0)),
            ],
        ),
    ]
