"""Verdicts of people on single answers, the inbox of flagged answers, blind audit sheets."""

import hashlib
import json
from datetime import timedelta

import apps.common.models
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.utils import timezone


# Answers that runs flagged before there was an inbox. Those of runs that ended long ago are kept as
# closed: nobody waits for them, and they can be judged among the run's samples.
RECENT = timedelta(days=30)


def kind_of(reason, run_kind):
    if run_kind in ("check", "probe"):
        return "probe"
    if reason.startswith("the members of the reward model disagree"):
        return "disagreement"
    return "rule" if reason.startswith("rule ") else "other" if reason else "guard"


def text_sha256(prompt, response):
    said = json.dumps(prompt, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(f"{said}\n{response}".encode()).hexdigest()


def flag(apps, schema_editor):
    """One entry for each distinct answer of a run; of the steps that asked for it, the first."""
    since = timezone.now() - RECENT
    for run in apps.get_model("training", "Run").objects.order_by("created_at").iterator():
        is_new = run.archived_at is None and (run.ended_at is None or run.ended_at > since)
        state = "waiting" if is_new else "closed"
        flag_run(apps, run, state)


def flag_run(apps, run, state):
    entry = apps.get_model("evaluation", "FlaggedAnswer")
    events = apps.get_model("training", "RunEvent").objects.filter(run=run, type="ReviewRequested")
    found = {}
    for body in events.order_by("attempt", "seq").values_list("body", flat=True):
        prompt, response = body.get("prompt"), body.get("response")
        step, reason = body.get("step"), str(body.get("reason") or "")
        if isinstance(prompt, list) and isinstance(response, str) and isinstance(step, int):
            row = entry(
                project_id=run.project_id,
                run_id=run.pk,
                kind=kind_of(reason, run.kind),
                reason=reason[:500],
                step=step,
                prompt=prompt,
                response=response,
                text_sha256=text_sha256(prompt, response),
                state=state,
            )
            found.setdefault(row.text_sha256, row)
    if not found:
        return
    samples = apps.get_model("training", "Sample").objects.filter(run=run, bucket="flagged")
    for pk, prompt, response in samples.order_by("pk").values_list("pk", "prompt", "response"):
        row = found.get(text_sha256(prompt, response))
        if row is not None and row.sample_id is None:
            row.sample_id = pk
    entry.objects.bulk_create(found.values(), batch_size=500)


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0006_notice_values'),
        ('evaluation', '0003_promotion'),
        ('training', '0007_served_models'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditSheet',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('seed', models.BigIntegerField(help_text='draws the answers and their order')),
                ('n_random', models.PositiveSmallIntegerField()),
                ('n_extreme', models.PositiveSmallIntegerField(help_text='of the highest, and of the lowest')),
                ('n_baseline', models.PositiveSmallIntegerField()),
                ('people', models.PositiveSmallIntegerField(default=1, help_text='verdicts wanted per answer')),
                ('n_answers', models.PositiveIntegerField(default=0, help_text='of the policy, to draw from')),
                ('high_reward', models.FloatField(blank=True, help_text="the 0.9 quantile of all the policy's rewards", null=True)),
                ('is_whole', models.BooleanField(default=True, help_text='the random answers were drawn from all, not from the middle only')),
                ('state', models.CharField(choices=[('open', 'open'), ('finished', 'finished'), ('withdrawn', 'withdrawn')], default='open', max_length=9)),
                ('reason', models.CharField(blank=True, help_text='why it was withdrawn', max_length=500)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('baseline', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='training.checkpoint')),
                ('checkpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='audit_sheets', to='training.checkpoint')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('ended_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='audit_sheets', to='accounts.project')),
                ('run', models.ForeignKey(help_text='the run whose answers these are', on_delete=django.db.models.deletion.CASCADE, related_name='audit_sheets', to='training.run')),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='FlaggedAnswer',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('claimed_until', models.DateTimeField(blank=True, null=True)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('disagreement', 'reward models disagree'), ('rule', 'rule or phrase'), ('guard', 'flagged without a reason'), ('probe', 'check or probe'), ('other', 'other reason')], max_length=12)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('step', models.BigIntegerField()),
                ('prompt', models.JSONField()),
                ('response', models.TextField()),
                ('text_sha256', models.CharField(help_text='of prompt and answer', max_length=64)),
                ('state', models.CharField(choices=[('waiting', 'waiting'), ('judged', 'judged'), ('closed', 'closed without a verdict')], default='waiting', max_length=7)),
                ('claimed_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='flagged_answers', to='accounts.project')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='flagged_answers', to='training.run')),
                ('sample', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='flagged', to='training.sample')),
            ],
        ),
        migrations.CreateModel(
            name='SheetItem',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(default=apps.common.models.short_id, editable=False, max_length=16, primary_key=True, serialize=False)),
                ('claimed_until', models.DateTimeField(blank=True, null=True)),
                ('place', models.PositiveSmallIntegerField(help_text='in the drawn order, from 1')),
                ('source', models.CharField(choices=[('policy', 'policy'), ('baseline', 'baseline')], max_length=8)),
                ('stratum', models.CharField(choices=[('high', 'highest rewards'), ('low', 'lowest rewards'), ('random', 'random')], max_length=6)),
                ('prompt', models.JSONField()),
                ('response', models.TextField(blank=True)),
                ('reward', models.FloatField(blank=True, null=True)),
                ('claimed_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('sheet', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='evaluation.auditsheet')),
            ],
            options={
                'ordering': ['sheet', 'place'],
            },
        ),
        migrations.CreateModel(
            name='Verdict',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('value', models.CharField(choices=[('fine', 'fine'), ('bad', 'bad'), ('unsafe', 'unsafe'), ('wrong_reward', 'wrong reward'), ('labeling', 'sent to labeling'), ('withdrawn', 'withdrawn')], max_length=12)),
                ('note', models.CharField(blank=True, max_length=500)),
                ('by_name', models.CharField(help_text='stays when the account goes', max_length=150)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('flagged', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='verdicts', to='evaluation.flaggedanswer')),
                ('item', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='verdicts', to='evaluation.sheetitem')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='verdicts', to='accounts.project')),
                ('sample', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='verdicts', to='training.sample')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddIndex(
            model_name='auditsheet',
            index=models.Index(fields=['checkpoint', '-ended_at'], name='audit_sheet_of_policy'),
        ),
        migrations.AddConstraint(
            model_name='auditsheet',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state', 'open')), models.Q(('ended_at__isnull', False), ('state__in', ['finished', 'withdrawn'])), _connector='OR'), name='audit_sheet_ended_has_time'),
        ),
        migrations.AddConstraint(
            model_name='auditsheet',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'withdrawn'), _negated=True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='audit_sheet_withdrawn_says_why'),
        ),
        migrations.AddConstraint(
            model_name='auditsheet',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('checkpoint',), name='audit_sheet_open_once'),
        ),
        migrations.AddIndex(
            model_name='flaggedanswer',
            index=models.Index(fields=['project', 'state', '-id'], name='flagged_answer_inbox'),
        ),
        migrations.AddConstraint(
            model_name='flaggedanswer',
            constraint=models.UniqueConstraint(fields=('run', 'text_sha256'), name='flagged_answer_once_a_run'),
        ),
        migrations.AddConstraint(
            model_name='sheetitem',
            constraint=models.UniqueConstraint(fields=('sheet', 'place'), name='sheet_item_place_once'),
        ),
        migrations.AddConstraint(
            model_name='sheetitem',
            constraint=models.CheckConstraint(condition=models.Q(('source', 'policy'), ('stratum', 'random'), _connector='OR'), name='sheet_item_baseline_is_random'),
        ),
        migrations.AddIndex(
            model_name='verdict',
            index=models.Index(fields=['project', 'by', '-id'], name='verdict_by_person'),
        ),
        migrations.AddConstraint(
            model_name='verdict',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('flagged__isnull', True), ('item__isnull', True), ('sample__isnull', False)), models.Q(('flagged__isnull', False), ('item__isnull', True), ('sample__isnull', True)), models.Q(('flagged__isnull', True), ('item__isnull', False), ('sample__isnull', True)), _connector='OR'), name='verdict_is_of_one_answer'),
        ),
        migrations.AddConstraint(
            model_name='verdict',
            constraint=models.CheckConstraint(condition=models.Q(('item__isnull', True), ('value__in', ['fine', 'bad', 'unsafe', 'withdrawn']), _connector='OR'), name='verdict_of_sheet_is_blind'),
        ),
        migrations.RunPython(flag, migrations.RunPython.noop),
    ]
