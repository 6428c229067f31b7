import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('labeling', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AgreementReport',
            fields=[
                ('project', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='agreement', serialize=False, to='accounts.project')),
                ('computed_at', models.DateTimeField()),
                ('last_vote_id', models.BigIntegerField(default=0)),
                ('n_votes', models.IntegerField(default=0)),
                ('n_comparisons', models.IntegerField(default=0)),
                ('figures', models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name='ConsensusReport',
            fields=[
                ('project', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='consensus_report', serialize=False, to='accounts.project')),
                ('computed_at', models.DateTimeField()),
                ('last_vote_id', models.BigIntegerField(default=0)),
                ('n_votes', models.IntegerField(default=0)),
                ('figures', models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name='AnnotatorReport',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('computed_at', models.DateTimeField()),
                ('n_votes', models.IntegerField(default=0)),
                ('figures', models.JSONField(default=dict)),
                ('flags', models.JSONField(default=list, help_text='[{kind, sentence, …}], worst first')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'user'), name='annotator_report_once_per_project')],
            },
        ),
        migrations.CreateModel(
            name='Ruling',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('action', models.CharField(choices=[('adjudicated', 'adjudicated'), ('sent_again', 'sent to re-annotation'), ('dropped', 'dropped'), ('made_gold', 'made gold'), ('reopened', 'put back')], max_length=11)),
                ('cause', models.CharField(blank=True, choices=[('ambiguous_prompt', 'ambiguous prompt'), ('guideline_gap', 'guideline gap'), ('annotator_error', 'annotator error'), ('taste', 'genuine preference difference')], max_length=16)),
                ('choice', models.CharField(blank=True, choices=[('a', 'A is better'), ('b', 'B is better'), ('tie', 'Tie'), ('both_bad', 'Both are bad')], max_length=8)),
                ('note', models.CharField(blank=True, max_length=1000)),
                ('votes_before', models.JSONField(default=dict, help_text='{choice: current deciding votes} when it was ruled')),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('comparison', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rulings', to='labeling.comparison')),
                ('guideline', models.ForeignKey(blank=True, help_text='under which re-annotated votes are cast', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.guideline')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rulings', to='accounts.project')),
            ],
            options={
                'indexes': [models.Index(fields=['project', '-at'], name='ruling_newest')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('action__in', ['adjudicated', 'made_gold']), models.Q(('choice', ''), _negated=True)), models.Q(models.Q(('action__in', ['adjudicated', 'made_gold']), _negated=True), ('choice', '')), _connector='OR'), name='ruling_names_its_choice')],
            },
        ),
    ]
