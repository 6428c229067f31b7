"""Texts that people write: batches, texts, versions, drafts; tasks and slots of the kind `write`."""

import apps.common.models
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
from django.conf import settings
from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models


FORWARD = """
-- Of a version only the verdict is written later, once; words of an erased person may go.
create function concord_keep_written() returns trigger language plpgsql as $$
declare
  verdict constant text[] := array['verdict', 'reviewed_by_id', 'reviewed_at', 'reason'];
begin
  if concord_only_erased(to_jsonb(old), to_jsonb(new), array['body', 'reason', 'warnings']) then
    return new;
  end if;
  if (to_jsonb(new) - verdict) is distinct from (to_jsonb(old) - verdict)
     or old.verdict <> '' and to_jsonb(new) is distinct from to_jsonb(old)
  then
    raise exception 'a written text is never overwritten: add a version'
      using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger labeling_writtenversion_kept before update on labeling_writtenversion
  for each row execute function concord_keep_written();
create trigger labeling_writtenversion_never_emptied before truncate on labeling_writtenversion
  for each statement execute function concord_refuse_change();
"""
BACKWARD = """
drop trigger labeling_writtenversion_never_emptied on labeling_writtenversion;
drop trigger labeling_writtenversion_kept on labeling_writtenversion;
drop function concord_keep_written();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0012_provisioning"),
        ("labeling", "0025_stored_images"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="WritingBatch",
            fields=[
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "id",
                    models.CharField(
                        default=apps.common.models.short_id,
                        editable=False,
                        max_length=16,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="writing_batches",
                        to="accounts.project",
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("demonstrations", "answers to prompts"), ("prompts", "prompts")],
                        max_length=14,
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                ("instruction", models.TextField(blank=True, help_text="Markdown")),
                ("topic", models.CharField(blank=True, max_length=200)),
                ("language", models.CharField(blank=True, max_length=12)),
                (
                    "licence",
                    models.CharField(blank=True, help_text="of what is written", max_length=60),
                ),
                ("per_task", models.PositiveSmallIntegerField(default=1)),
                ("least_characters", models.PositiveIntegerField(default=1)),
                ("most_characters", models.PositiveIntegerField()),
                (
                    "review",
                    models.CharField(
                        choices=[
                            ("staff", "reviewers, engineers and admins"),
                            ("peers", "annotators too"),
                            ("none", "nobody: what is submitted is accepted"),
                        ],
                        default="staff",
                        max_length=5,
                    ),
                ),
                ("is_open", models.BooleanField(default=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("most_characters__gte", models.F("least_characters"))),
                        name="writing_batch_lengths_in_order",
                    )
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="WrittenText",
            fields=[
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.project",
                    ),
                ),
                (
                    "batch",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="texts",
                        to="labeling.writingbatch",
                    ),
                ),
                (
                    "slot",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="text",
                        to="labeling.slot",
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("waiting", "waiting for review"),
                            ("accepted", "accepted"),
                            ("rejected", "rejected"),
                            ("withdrawn", "withdrawn"),
                        ],
                        default="open",
                        max_length=9,
                    ),
                ),
                (
                    "author",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("n_versions", models.PositiveSmallIntegerField(default=0)),
                ("submitted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "made_prompt",
                    models.ForeignKey(
                        blank=True,
                        help_text="what an accepted prompt became",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="labeling.prompt",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["batch", "state", "id"], name="written_text_by_state"),
                    models.Index(
                        condition=models.Q(("state", "waiting")),
                        fields=["project", "submitted_at"],
                        name="written_text_waiting",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("author__isnull", True), ("state", "open")),
                            models.Q(
                                models.Q(("state", "open"), _negated=True),
                                ("author__isnull", False),
                                ("n_versions__gte", 1),
                            ),
                            _connector="OR",
                        ),
                        name="written_text_has_an_author",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="WrittenVersion",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.project",
                    ),
                ),
                (
                    "text",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="labeling.writtentext",
                    ),
                ),
                ("number", models.PositiveSmallIntegerField()),
                (
                    "author",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("body", models.TextField()),
                (
                    "edits",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="edited_as",
                        to="labeling.writtenversion",
                    ),
                ),
                (
                    "warnings",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=200),
                        blank=True,
                        default=list,
                        help_text="what the scans found when it was submitted: kind:excerpt, phrase:phrase",
                        size=None,
                    ),
                ),
                (
                    "guideline",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="labeling.guideline",
                    ),
                ),
                ("consent_version", models.PositiveIntegerField(default=0)),
                ("active_ms", models.PositiveIntegerField(blank=True, null=True)),
                ("wall_ms", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "source",
                    models.CharField(
                        choices=[
                            ("page", "label screen"),
                            ("api", "API"),
                            ("import", "imported"),
                            ("sim", "simulated"),
                        ],
                        default="page",
                        max_length=6,
                    ),
                ),
                ("idempotency_key", models.CharField(max_length=120)),
                ("submitted_at", models.DateTimeField()),
                (
                    "verdict",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("accepted", "accepted"),
                            ("edited", "accepted with an edit"),
                            ("rejected", "sent back"),
                        ],
                        default="",
                        max_length=8,
                    ),
                ),
                (
                    "reviewed_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("reviewed_at", models.DateTimeField(blank=True, null=True)),
                ("reason", models.CharField(blank=True, default="", max_length=1000)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("text", "number"), name="written_version_once"),
                    models.UniqueConstraint(
                        fields=("author", "idempotency_key"), name="written_version_submitted_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("author", models.F("reviewed_by")), _negated=True),
                        name="written_version_reviewed_by_another",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("reviewed_at__isnull", True),
                                ("reviewed_by__isnull", True),
                                ("verdict", ""),
                            ),
                            models.Q(
                                models.Q(("verdict", ""), _negated=True),
                                ("reviewed_at__isnull", False),
                                ("reviewed_by__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="written_version_reviewed_wholly",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("reason", ""), ("verdict", "rejected"), _negated=True),
                        name="written_version_rejected_why",
                    ),
                ],
                "indexes": [],
            },
        ),
        migrations.CreateModel(
            name="WrittenDraft",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "text",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drafts",
                        to="labeling.writtentext",
                    ),
                ),
                (
                    "author",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("body", models.TextField(blank=True)),
                ("number", models.PositiveIntegerField(default=1)),
                ("editor", models.CharField(blank=True, max_length=40)),
                ("saved_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("text", "author"), name="written_draft_once")
                ],
                "indexes": [],
            },
        ),
        migrations.RemoveConstraint(
            model_name="slot",
            name="slot_measures_a_vote",
        ),
        migrations.RemoveConstraint(
            model_name="task",
            name="task_of_its_kind",
        ),
        migrations.RemoveConstraint(
            model_name="task",
            name="task_scale_in_order",
        ),
        migrations.AlterField(
            model_name="answer",
            name="kind",
            field=models.CharField(
                choices=[
                    ("pair", "pair"),
                    ("grade", "grading"),
                    ("rank", "ranking"),
                    ("blind", "blind pair"),
                    ("write", "writing"),
                ],
                db_default="pair",
                default="pair",
                max_length=5,
            ),
        ),
        migrations.AlterField(
            model_name="discardedvote",
            name="was",
            field=models.CharField(
                choices=[
                    ("regular", "regular"),
                    ("gold", "gold"),
                    ("repeat", "hidden repeat"),
                    ("audit", "audit re-vote"),
                    ("former", "earlier round"),
                    ("discard", "discarded"),
                    ("write", "writing"),
                ],
                max_length=8,
            ),
        ),
        migrations.AlterField(
            model_name="labelingsettings",
            name="task_kind",
            field=models.CharField(
                choices=[
                    ("pair", "pair"),
                    ("grade", "grading"),
                    ("rank", "ranking"),
                    ("write", "writing"),
                ],
                db_default="pair",
                default="pair",
                help_text="what files with several answers to a prompt become, where they do not say",
                max_length=5,
            ),
        ),
        migrations.AlterField(
            model_name="slot",
            name="kind",
            field=models.CharField(
                choices=[
                    ("regular", "regular"),
                    ("gold", "gold"),
                    ("repeat", "hidden repeat"),
                    ("audit", "audit re-vote"),
                    ("former", "earlier round"),
                    ("discard", "discarded"),
                    ("write", "writing"),
                ],
                default="regular",
                max_length=8,
            ),
        ),
        migrations.AlterField(
            model_name="task",
            name="kind",
            field=models.CharField(
                choices=[
                    ("pair", "pair"),
                    ("grade", "grading"),
                    ("rank", "ranking"),
                    ("blind", "blind pair"),
                    ("write", "writing"),
                ],
                db_default="pair",
                default="pair",
                max_length=5,
            ),
        ),
        AddConstraintNotValid(
            model_name="slot",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind__in", ["repeat", "audit"]), ("measures__isnull", False)),
                    models.Q(
                        ("kind__in", ["regular", "gold", "former", "discard", "write"]),
                        ("measures__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="slot_measures_a_vote",
            ),
        ),
        AddConstraintNotValid(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("kind", "pair"),
                        ("response_a__isnull", False),
                        ("response_b__isnull", False),
                        ("high__isnull", True),
                        ("low__isnull", True),
                    ),
                    models.Q(
                        ("gold", ""),
                        ("kind", "blind"),
                        ("response_a__isnull", False),
                        ("response_b__isnull", False),
                        ("high__isnull", True),
                        ("low__isnull", True),
                    ),
                    models.Q(
                        ("kind__in", ["grade", "rank"]),
                        ("response_a__isnull", True),
                        ("response_b__isnull", True),
                        ("gold", ""),
                        ("high__isnull", False),
                        ("low__isnull", False),
                    ),
                    models.Q(
                        ("kind", "write"),
                        ("response_a__isnull", True),
                        ("response_b__isnull", True),
                        ("gold", ""),
                        ("high__isnull", True),
                        ("low__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="task_of_its_kind",
            ),
        ),
        AddConstraintNotValid(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("kind__in", ["pair", "blind", "write"]),
                    models.Q(
                        ("high__gte", models.F("low")),
                        (
                            "high__lt",
                            django.db.models.expressions.CombinedExpression(
                                models.F("low"), "+", models.Value(11)
                            ),
                        ),
                    ),
                    _connector="OR",
                ),
                name="task_scale_in_order",
            ),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
