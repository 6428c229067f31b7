from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0011_maintenance")]

    operations = [
        migrations.AddField(
            model_name="user",
            name="scim_external_id",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="by which the directory that made the account knows it",
                max_length=254,
            ),
        ),
        migrations.AddField(
            model_name="user",
            name="deprovisioned_at",
            field=models.DateTimeField(
                blank=True, help_text="the directory took them away", null=True
            ),
        ),
    ]
