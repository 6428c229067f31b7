import apps.common.models
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('labeling', '0001_initial'),
        ('training', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='OutputRanking',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('overlap', models.PositiveSmallIntegerField(default=3, help_text='grades wanted per output')),
                ('assessment', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='output_rankings', to='training.run')),
                ('checkpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='output_rankings', to='training.checkpoint')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='output_rankings', to='accounts.project')),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='RankedOutput',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('score', models.FloatField()),
                ('ranking', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='outputs', to='evaluation.outputranking')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='labeling.ratingtask')),
            ],
        ),
        migrations.CreateModel(
            name='AdversarialRound',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('batch', models.CharField(max_length=120)),
                ('n_pairs', models.PositiveIntegerField()),
                ('checkpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='adversarial_rounds', to='training.checkpoint')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='adversarial_rounds', to='accounts.project')),
                ('source', models.ForeignKey(help_text='the run whose answers were scored', on_delete=django.db.models.deletion.CASCADE, related_name='adversarial_rounds', to='training.run')),
            ],
            options={
                'ordering': ['-created_at'],
                'constraints': [models.UniqueConstraint(fields=('checkpoint', 'source'), name='adversarial_round_once'), models.UniqueConstraint(fields=('project', 'batch'), name='adversarial_batch_once')],
            },
        ),
        migrations.CreateModel(
            name='ModelReview',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('status', models.CharField(choices=[('candidate', 'candidate'), ('approved', 'approved'), ('rejected', 'rejected'), ('retired', 'retired')], max_length=9)),
                ('reason', models.CharField(blank=True, max_length=1000)),
                ('by_name', models.CharField(help_text='stays when the account goes', max_length=150)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('state', models.JSONField(default=dict, help_text='every line as it stood: findings as JSON')),
                ('state_sha256', models.CharField(blank=True, max_length=64)),
                ('assessment', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='training.run')),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('checkpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reviews', to='training.checkpoint')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='model_reviews', to='accounts.project')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['checkpoint', '-id'], name='model_review_newest')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['rejected', 'retired']), _negated=True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='model_review_says_why'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'approved'), _negated=True), models.Q(('state_sha256', ''), _negated=True), _connector='OR'), name='model_approval_keeps_its_page')],
            },
        ),
        migrations.AddConstraint(
            model_name='outputranking',
            constraint=models.UniqueConstraint(fields=('checkpoint', 'assessment'), name='output_ranking_sent_once'),
        ),
        migrations.AddConstraint(
            model_name='rankedoutput',
            constraint=models.UniqueConstraint(fields=('ranking', 'task'), name='ranked_output_once'),
        ),
    ]
