"""A channel hears of any of several things; a new secret leaves the one before it some time."""

import django.utils.timezone
import apps.monitoring.models
from django.db import migrations, models

HEARD = {
    "incidents": ["incidents"],
    "stages": ["stages"],
    "both": ["incidents", "stages"],
    "rounds": ["rounds"],
    "all": ["incidents", "stages", "rounds"],
}


def convert(known, schema_editor):
    for channel in known.get_model("monitoring", "Channel").objects.all():
        channel.tells = HEARD[channel.told]
        channel.save(update_fields=["tells"])


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0007_traffic_uncertain'),
    ]

    operations = [
        migrations.RenameField(model_name='channel', old_name='tells', new_name='told'),
        migrations.AddField(
            model_name='channel',
            name='tells',
            field=models.JSONField(default=apps.monitoring.models.tells_at_first, help_text='values of Tells'),
        ),
        migrations.RunPython(convert, migrations.RunPython.noop, elidable=True),
        migrations.RemoveField(model_name='channel', name='told'),
        migrations.AddField(
            model_name='channel',
            name='secret_before',
            field=models.CharField(blank=True, max_length=80),
        ),
        migrations.AddField(
            model_name='channel',
            name='secret_before_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='channel',
            name='told_until',
            field=models.DateTimeField(default=django.utils.timezone.now, help_text='of votes, decisions and datasets'),
        ),
    ]
