"""A channel may hear which model each stage names."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='channel',
            name='tells',
            field=models.CharField(choices=[('incidents', 'incidents'), ('stages', 'models in service'), ('both', 'incidents and models in service')], default='incidents', max_length=9),
        ),
    ]
