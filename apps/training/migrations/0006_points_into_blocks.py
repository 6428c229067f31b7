"""Metric points move from one JSON event each into blocks.

Not in one transaction: each batch of events becomes a block and goes in a transaction of its own,
so a site with many runs is not locked, and a migration that was cut continues where it stopped.
"""

from django.db import migrations, models, transaction

from apps.training.metric_blocks import block_fields, columns_of, gathered

EVENTS_AT_ONCE = 500
EVENT, BROKEN = "Metrics", "Invalid"


def move(apps, schema_editor):
    events = apps.get_model("training", "RunEvent").objects.filter(type=EVENT)
    while (first := events.order_by("run", "attempt", "seq").first()) is not None:
        with transaction.atomic():
            move_some(apps, events.filter(run=first.run_id, attempt=first.attempt))


def move_some(apps, events):
    """The first events of an attempt into one block. One that is malformed, which only a
    superseded attempt could store, is kept under the type of such events."""
    batch = list(events.order_by("seq")[:EVENTS_AT_ONCE])
    parts, broken = [], []
    for event in batch:
        try:
            parts.append(columns_of(event.body["steps"], event.body["values"]))
        except (ValueError, TypeError, OverflowError, KeyError, AttributeError):
            broken.append(event.pk)
    fields = block_fields(gathered(parts))
    if fields:
        apps.get_model("training", "MetricBlock").objects.create(
            run_id=batch[0].run_id,
            attempt=batch[0].attempt,
            first_seq=batch[0].seq,
            last_seq=batch[-1].seq,
            **fields,
        )
    events.filter(pk__in=broken).update(type=BROKEN)
    events.filter(pk__in=[event.pk for event in batch if event.pk not in broken]).delete()


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("training", "0005_checks_imports_and_blocks_of_metrics")]

    operations = [
        migrations.AddField(
            model_name="metricblock",
            name="head",
            field=models.BinaryField(help_text="names, places in the body, last numbers", default=b""),
            preserve_default=False,
        ),
        # Compressed bytes do not compress again.
        migrations.RunSQL(
            "ALTER TABLE training_metricblock ALTER COLUMN body SET STORAGE EXTERNAL, "
            "ALTER COLUMN head SET STORAGE EXTERNAL",
            migrations.RunSQL.noop,
        ),
        migrations.RunPython(move),
    ]
