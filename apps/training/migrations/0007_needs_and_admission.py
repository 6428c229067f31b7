"""What a run needs of its machines, and its place among those that wait for them."""

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import F


def admit_what_was_sent(apps, schema_editor):
    """Runs that were handed to the broker before there was an admission have their slot."""
    runs = apps.get_model("training", "Run").objects
    sent = runs.filter(state__in=["queued", "running", "stopping"], dispatched_at__isnull=False)
    sent.update(admitted_at=F("dispatched_at"))
    for run in runs.filter(state="queued", dispatched_at__isnull=True).only("created_at"):
        run.place = int(run.created_at.timestamp() * 1e6)
        run.save(update_fields=["place"])


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_append_only_audit'),
        ('training', '0006_points_into_blocks'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='RunQuota',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('runs_at_once', models.PositiveSmallIntegerField(validators=[django.core.validators.MinValueValidator(1)])),
            ],
        ),
        migrations.AddField(
            model_name='run',
            name='admitted_at',
            field=models.DateTimeField(blank=True, help_text='since when its attempt has a slot of its machine class', null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='goes_on',
            field=models.BooleanField(default=False, help_text='it had a slot and lost its machine: before all that wait'),
        ),
        migrations.AddField(
            model_name='run',
            name='launcher',
            field=models.CharField(default='plain', max_length=12),
        ),
        migrations.AddField(
            model_name='run',
            name='layout',
            field=models.CharField(default='one', max_length=10),
        ),
        migrations.AddField(
            model_name='run',
            name='place',
            field=models.BigIntegerField(default=0, help_text='among those that wait for a slot: the least goes first'),
        ),
        migrations.AddField(
            model_name='run',
            name='priority',
            field=models.PositiveSmallIntegerField(choices=[(0, 'low'), (1, 'normal'), (2, 'high')], default=1),
        ),
        migrations.AddField(
            model_name='run',
            name='processes',
            field=models.PositiveSmallIntegerField(default=1, help_text='over which the layout spreads it; 0: one for each GPU of its machine'),
        ),
        migrations.AlterField(
            model_name='run',
            name='queue',
            field=models.CharField(default='cpu', help_text='its machine class', max_length=10),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('state__in', ['queued', 'running', 'stopping'])), fields=['queue'], name='run_in_class'),
        ),
        migrations.AddField(
            model_name='runquota',
            name='project',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='run_quota', to='accounts.project'),
        ),
        migrations.AddConstraint(
            model_name='runquota',
            constraint=models.CheckConstraint(condition=models.Q(('runs_at_once__gte', 1)), name='run_quota_is_positive'),
        ),
        migrations.RunPython(admit_what_was_sent, migrations.RunPython.noop),
    ]
