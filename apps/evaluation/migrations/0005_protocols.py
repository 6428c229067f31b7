import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0001_initial'),
        ('training', '0007_served_models'),
        ('evaluation', '0004_verdicts'),
    ]

    operations = [
        migrations.CreateModel(
            name='EvaluationProtocol',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('sha256', models.CharField(max_length=64)),
                ('content', models.JSONField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='evaluation_protocols', to='accounts.project')),
            ],
            options={
                'ordering': ['-created_at', '-id'],
                'constraints': [
                    models.UniqueConstraint(fields=('project', 'sha256'), name='evaluation_protocol_once_per_project'),
                    models.CheckConstraint(condition=models.Q(('sha256__regex', '^[0-9a-f]{64}$')), name='evaluation_protocol_has_hash'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ProtocolUse',
            fields=[
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='protocol_use', serialize=False, to='training.run')),
                ('protocol', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='uses', to='evaluation.evaluationprotocol')),
            ],
        ),
    ]
