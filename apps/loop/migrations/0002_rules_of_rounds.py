"""More that starts rounds and ends them; triggers are disarmed one by one."""

from django.db import migrations, models

COLUMNS = (
    "pipeline_id, number, steps, trigger_pairs, trigger_age_days, trigger_drift, "
    "trigger_every_days, trigger_at_hour, budget_minutes, budget_votes, budget_gpu_hours, "
    "budget_money, price_vote, price_gpu_hour, currency, created_at"
)
BEFORE = "pipeline_id, number, steps, trigger_pairs, budget_minutes, created_at"
TRIGGER = """
drop trigger loop_pipelineversion_kept on loop_pipelineversion;
create trigger loop_pipelineversion_kept before update of {columns}
  on loop_pipelineversion for each row execute function concord_keep_pipeline_version();
"""


def disarm(apps, schema_editor):
    rows = apps.get_model("loop", "Pipeline").objects.filter(armed=False)
    rows.update(disarmed=["pairs"])


class Migration(migrations.Migration):

    dependencies = [('loop', '0001_pipelines')]

    operations = [
        migrations.AddField('pipeline', 'disarmed', models.JSONField(default=list, help_text='names of triggers')),
        migrations.RunPython(disarm, migrations.RunPython.noop),
        migrations.RemoveField('pipeline', 'armed'),
        migrations.AddField('pipelineversion', 'trigger_age_days', models.PositiveIntegerField(null=True)),
        migrations.AddField('pipelineversion', 'trigger_drift', models.BooleanField(default=False)),
        migrations.AddField('pipelineversion', 'trigger_every_days', models.PositiveIntegerField(null=True)),
        migrations.AddField('pipelineversion', 'trigger_at_hour', models.PositiveSmallIntegerField(default=6)),
        migrations.AddField('pipelineversion', 'budget_votes', models.PositiveIntegerField(null=True)),
        migrations.AddField('pipelineversion', 'budget_gpu_hours', models.FloatField(null=True)),
        migrations.AddField('pipelineversion', 'budget_money', models.FloatField(null=True)),
        migrations.AddField('pipelineversion', 'price_vote', models.FloatField(null=True)),
        migrations.AddField('pipelineversion', 'price_gpu_hour', models.FloatField(null=True)),
        migrations.AddField('pipelineversion', 'currency', models.CharField(blank=True, max_length=8)),
        migrations.AlterField(
            'round', 'trigger',
            models.CharField(
                choices=[
                    ('hand', 'by hand'), ('api', 'by API'), ('pairs', 'by fresh pairs'),
                    ('age', 'by the age of the reward model'), ('drift', 'by a model that drifted'),
                    ('schedule', 'by its schedule'), ('past', 'of past runs'),
                ],
                max_length=8,
            ),
        ),
        migrations.RunSQL(TRIGGER.format(columns=COLUMNS), TRIGGER.format(columns=BEFORE)),
    ]
