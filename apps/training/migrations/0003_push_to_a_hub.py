from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("training", "0002_registered_models"),
    ]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="kind",
            field=models.CharField(
                choices=[
                    ("sft", "Supervised fine-tuning"),
                    ("reward", "Reward model"),
                    ("dpo", "DPO"),
                    ("ppo", "PPO"),
                    ("grpo", "GRPO"),
                    ("generate", "Generation"),
                    ("evaluate", "Evaluation"),
                    ("assess", "Assessment of a reward model"),
                    ("check", "Check"),
                    ("probe", "Probe"),
                    ("register_policy", "Registered policy"),
                    ("register_reward", "Registered reward model"),
                    ("register_encoder", "Registered encoder"),
                    ("push", "Push to a hub"),
                    ("imported", "Imported"),
                    ("drill", "Test run"),
                ],
                max_length=16,
            ),
        ),
    ]
