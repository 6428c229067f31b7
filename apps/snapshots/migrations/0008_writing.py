"""Which versions of written texts are rows of a dataset."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("labeling", "0027_writing_checked"),
        ("snapshots", "0007_erasure"),
    ]

    operations = [
        migrations.CreateModel(
            name="SnapshotText",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("split", models.CharField(max_length=24)),
                ("ordinal", models.PositiveIntegerField()),
                (
                    "snapshot",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="texts",
                        to="snapshots.snapshot",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="labeling.writtenversion",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("snapshot", "version"), name="snapshot_text_once"
                    )
                ],
            },
        ),
    ]
