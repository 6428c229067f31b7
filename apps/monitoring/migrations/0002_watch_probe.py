"""The probe under way, what a probe asked, and which model in service an outcome is about."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("monitoring", "0001_initial"),
        ("training", "0005_checks_imports_and_blocks_of_metrics"),
    ]

    operations = [
        migrations.AddField(
            model_name="outcome",
            name="watch",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="outcomes",
                to="monitoring.watch",
            ),
        ),
        migrations.AddField(
            model_name="proberesult",
            name="details",
            field=models.JSONField(
                default=dict,
                help_text="what was asked (models, hashes) and the prompts that changed most",
            ),
        ),
        migrations.AddField(
            model_name="watch",
            name="probe",
            field=models.ForeignKey(
                blank=True,
                help_text="under way, or ended and not looked at yet; none begins beside it",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="training.run",
            ),
        ),
    ]
