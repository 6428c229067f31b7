"""Pairs of runs of agents: what is asked about them, for how long they are reserved."""

import django.db.models.deletion
from django.db import migrations, models


# What was said about runs is kept like the answers it belongs to; it goes with them.
KEPT = """
create trigger labeling_runanswer_kept before update on labeling_runanswer
  for each row execute function concord_refuse_change();
create trigger labeling_runanswer_never_emptied before truncate on labeling_runanswer
  for each statement execute function concord_refuse_change();
"""
LET_GO = """
drop trigger labeling_runanswer_never_emptied on labeling_runanswer;
drop trigger labeling_runanswer_kept on labeling_runanswer;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('labeling', '0023_tools_offered'),
    ]

    operations = [
        migrations.CreateModel(
            name='RunAnswer',
            fields=[
                ('answer', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='runs', serialize=False, to='labeling.answer')),
                ('outcome', models.JSONField(default=dict)),
                ('first_error', models.JSONField(default=dict)),
                ('steps', models.JSONField(default=dict)),
                ('unopened', models.JSONField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name='labelingsettings',
            name='ask_first_error',
            field=models.BooleanField(db_default=True, default=True, help_text='the first wrong step of each run of an agent'),
        ),
        migrations.AddField(
            model_name='labelingsettings',
            name='ask_outcome',
            field=models.BooleanField(db_default=True, default=True, help_text='of each run of an agent: did it succeed, what else did it change, was it stuck'),
        ),
        migrations.AddField(
            model_name='labelingsettings',
            name='ask_steps',
            field=models.BooleanField(db_default=False, default=False, help_text='which of two aligned steps is better'),
        ),
        migrations.AddField(
            model_name='labelingsettings',
            name='run_lease_seconds',
            field=models.PositiveIntegerField(db_default=3600, default=3600, help_text='a pair of runs of agents is reserved for'),
        ),
        migrations.AddField(
            model_name='labelingsettings',
            name='show_costs',
            field=models.BooleanField(db_default=False, default=False, help_text='steps, tokens and cost of runs of agents stand above them'),
        ),
        migrations.AddField(
            model_name='task',
            name='of_agents',
            field=models.BooleanField(db_default=False, default=False, help_text='its answers are runs of agents, with steps'),
        ),
        migrations.RunSQL(KEPT, LET_GO),
    ]
