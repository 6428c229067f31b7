"""A channel may hear of rounds, or of everything. What was sent is named as in its message."""

from django.db import migrations, models


def rename(apps, schema_editor):
    apps.get_model("monitoring", "Delivery").objects.filter(event="stage").update(
        event="stage.changed"
    )


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0002_channel_tells'),
    ]

    operations = [
        migrations.AlterField(
            model_name='channel',
            name='tells',
            field=models.CharField(choices=[('incidents', 'incidents'), ('stages', 'models in service'), ('both', 'incidents and models in service'), ('rounds', 'rounds'), ('all', 'everything')], default='incidents', max_length=9),
        ),
        migrations.AlterField(
            model_name='delivery',
            name='event',
            field=models.CharField(max_length=24),
        ),
        migrations.RunPython(rename, migrations.RunPython.noop, elidable=True),
    ]
