from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("labeling", "0020_consent")]

    operations = [
        migrations.AddField(
            model_name="labelingsettings",
            name="votes_quota",
            field=models.PositiveIntegerField(
                db_default=0, default=0, help_text="answers that are taken in 30 days; 0: no limit"
            ),
        ),
    ]
