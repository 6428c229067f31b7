from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0010_erasure")]

    operations = [
        migrations.AddField(
            model_name="runquota",
            name="gpu_hours",
            field=models.PositiveIntegerField(
                blank=True, help_text="of the last 30 days, before runs on GPUs wait", null=True
            ),
        ),
    ]
