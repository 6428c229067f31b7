"""What answers are used for, who agreed to it, and the licence of what annotators write."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("labeling", "0019_erasure"),
    ]

    operations = [
        migrations.AddField(
            model_name="labelingsettings",
            name="data_statement",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text="what answers are used for; whoever labels agrees to it first",
                max_length=2000,
            ),
        ),
        migrations.AddField(
            model_name="labelingsettings",
            name="data_statement_version",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="labelingsettings",
            name="remarks_licence",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="of what annotators write; without one it is in no export",
                max_length=80,
            ),
        ),
        migrations.AddField(
            model_name="annotator",
            name="consent_version",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="annotator",
            name="consented_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
