"""Rating tasks beside comparisons, and what the database holds about them."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
from django.conf import settings
from django.db import migrations, models

FORWARD = """
create function concord_keep_rating() returns trigger language plpgsql as $$
begin
  if (to_jsonb(new) - 'is_current') is distinct from (to_jsonb(old) - 'is_current')
     or (new.is_current and not old.is_current) then
    raise exception 'a rating is never overwritten: add a revision'
      using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger labeling_rating_kept before update on labeling_rating
  for each row execute function concord_keep_rating();

-- One value for each response of the task, each on its scale.
create function concord_rating_fits() returns trigger language plpgsql as $$
declare
  task labeling_ratingtask;
  n_items int;
begin
  select * into task from labeling_ratingtask where id = new.task_id;
  select count(*) into n_items from labeling_ratingitem where task_id = new.task_id;
  if cardinality(new.values) <> n_items
     or exists (select from unnest(new.values) v where v is null or v < task.low or v > task.high)
  then
    raise exception 'rating task % takes % values from % to %',
      new.task_id, n_items, task.low, task.high
      using errcode = 'check_violation', constraint = 'labeling_rating_fits';
  end if;
  return new;
end $$;
create trigger labeling_rating_fits before insert on labeling_rating
  for each row execute function concord_rating_fits();

-- Positions are unique and run from 1, so this is also the number of slots.
create function concord_rating_slot_fits() returns trigger language plpgsql as $$
begin
  if new.position not between 1 and
     (select overlap from labeling_ratingtask where id = new.task_id) then
    raise exception 'rating task % would have more slots than its overlap', new.task_id
      using errcode = 'check_violation', constraint = 'labeling_rating_overlap_holds';
  end if;
  return new;
end $$;
create trigger labeling_rating_slot_fits before insert or update of position, task_id
  on labeling_ratingslot for each row execute function concord_rating_slot_fits();

create function concord_rating_overlap_stays() returns trigger language plpgsql as $$
begin
  if exists (select from labeling_ratingslot where task_id = new.id
             and position > new.overlap) then
    raise exception 'rating task % has more slots than the new overlap', new.id
      using errcode = 'check_violation', constraint = 'labeling_rating_overlap_holds';
  end if;
  return new;
end $$;
create trigger labeling_rating_overlap_stays before update of overlap on labeling_ratingtask
  for each row when (new.overlap < old.overlap) execute function concord_rating_overlap_stays();
"""
BACKWARD = """
drop trigger labeling_rating_overlap_stays on labeling_ratingtask;
drop trigger labeling_rating_slot_fits on labeling_ratingslot;
drop trigger labeling_rating_fits on labeling_rating;
drop trigger labeling_rating_kept on labeling_rating;
drop function concord_rating_overlap_stays();
drop function concord_rating_slot_fits();
drop function concord_rating_fits();
drop function concord_keep_rating();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_append_only_audit"),
        ("labeling", "0005_importjob"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="RatingTask",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[("graded", "graded"), ("ranking", "ranking")], max_length=7
                    ),
                ),
                ("external_id", models.CharField(blank=True, max_length=120)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("rated", "rated"),
                            ("review", "needs review"),
                            ("dropped", "dropped"),
                        ],
                        default="open",
                        max_length=7,
                    ),
                ),
                (
                    "low",
                    models.SmallIntegerField(
                        help_text="the lowest grade; of a ranking, 1: the best rank"
                    ),
                ),
                ("high", models.SmallIntegerField(help_text="the highest grade; of a ranking, K")),
                ("low_label", models.CharField(blank=True, max_length=40)),
                ("high_label", models.CharField(blank=True, max_length=40)),
                (
                    "overlap",
                    models.PositiveSmallIntegerField(default=3, help_text="ratings wanted"),
                ),
                ("priority", models.FloatField(default=0.0)),
                ("n_ratings", models.PositiveIntegerField(default=0, help_text="current ratings")),
                ("review_reason", models.CharField(blank=True, max_length=300)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rating_tasks",
                        to="accounts.project",
                    ),
                ),
                (
                    "prompt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rating_tasks",
                        to="labeling.prompt",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RatingSlot",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("position", models.PositiveSmallIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("free", "free"),
                            ("leased", "leased"),
                            ("done", "rated"),
                            ("withdrawn", "withdrawn"),
                        ],
                        default="free",
                        max_length=9,
                    ),
                ),
                ("priority", models.FloatField(default=0.0)),
                ("shuffle", models.FloatField(default=0.0, help_text="a seeded draw in [0, 1)")),
                ("topic", models.CharField(blank=True, max_length=200)),
                ("language", models.CharField(blank=True, max_length=12)),
                ("leased_at", models.DateTimeField(blank=True, null=True)),
                ("leased_until", models.DateTimeField(blank=True, null=True)),
                (
                    "shown",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveSmallIntegerField(),
                        blank=True,
                        default=list,
                        help_text="positions of the responses as they are shown; one draw per annotator and task",
                        size=None,
                    ),
                ),
                (
                    "annotator",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.project",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="slots",
                        to="labeling.ratingtask",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RatingSkip",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("reason", models.CharField(blank=True, max_length=300)),
                ("at", models.DateTimeField(auto_now_add=True)),
                (
                    "annotator",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="skips",
                        to="labeling.ratingtask",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RatingItem",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("position", models.PositiveSmallIntegerField()),
                (
                    "response",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="labeling.response",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="items",
                        to="labeling.ratingtask",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Rating",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "values",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(), size=None
                    ),
                ),
                (
                    "shown",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveSmallIntegerField(), size=None
                    ),
                ),
                ("note", models.TextField(blank=True)),
                ("active_ms", models.PositiveIntegerField(blank=True, null=True)),
                ("wall_ms", models.PositiveIntegerField(blank=True, null=True)),
                ("idempotency_key", models.CharField(max_length=120)),
                (
                    "source",
                    models.CharField(
                        choices=[("page", "rating screen"), ("api", "API")],
                        default="page",
                        max_length=4,
                    ),
                ),
                ("revision", models.PositiveSmallIntegerField(default=1)),
                ("is_current", models.BooleanField(default=True)),
                ("rated_at", models.DateTimeField()),
                (
                    "annotator",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ratings",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "guideline",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="labeling.guideline",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ratings",
                        to="accounts.project",
                    ),
                ),
                (
                    "supersedes",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="superseded_by",
                        to="labeling.rating",
                    ),
                ),
                (
                    "slot",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ratings",
                        to="labeling.ratingslot",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ratings",
                        to="labeling.ratingtask",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="ratingtask",
            index=models.Index(fields=["project", "state"], name="rating_task_by_state"),
        ),
        migrations.AddConstraint(
            model_name="ratingtask",
            constraint=models.UniqueConstraint(
                condition=models.Q(("external_id", ""), _negated=True),
                fields=("project", "external_id"),
                name="rating_task_external_id_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingtask",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("high__gte", models.F("low")),
                    (
                        "high__lt",
                        django.db.models.expressions.CombinedExpression(
                            models.F("low"), "+", models.Value(11)
                        ),
                    ),
                ),
                name="rating_task_scale_in_order",
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingtask",
            constraint=models.CheckConstraint(
                condition=models.Q(("overlap__gte", 1), ("n_ratings__lte", models.F("overlap"))),
                name="rating_task_overlap_holds",
            ),
        ),
        migrations.AddIndex(
            model_name="ratingslot",
            index=models.Index(
                condition=models.Q(("state__in", ["free", "leased"])),
                fields=["project", "-priority", "shuffle"],
                name="rating_slot_open",
            ),
        ),
        migrations.AddIndex(
            model_name="ratingslot",
            index=models.Index(
                condition=models.Q(("state", "leased")),
                fields=["annotator", "project"],
                name="rating_slot_held_by",
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingslot",
            constraint=models.UniqueConstraint(
                fields=("task", "position"), name="rating_slot_position_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingslot",
            constraint=models.UniqueConstraint(
                condition=models.Q(("annotator__isnull", False)),
                fields=("task", "annotator"),
                name="rating_slot_annotator_meets_task_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingslot",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("annotator__isnull", True), ("state__in", ["free", "withdrawn"])),
                    models.Q(("annotator__isnull", False), ("state__in", ["leased", "done"])),
                    _connector="OR",
                ),
                name="rating_slot_held_means_annotator",
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingslot",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "leased"), _negated=True),
                    ("leased_until__isnull", False),
                    _connector="OR",
                ),
                name="rating_slot_lease_ends",
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingskip",
            constraint=models.UniqueConstraint(
                fields=("task", "annotator"), name="rating_skip_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingitem",
            constraint=models.UniqueConstraint(
                fields=("task", "position"), name="rating_item_position_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingitem",
            constraint=models.UniqueConstraint(
                fields=("task", "response"), name="rating_item_response_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="ratingitem",
            constraint=models.CheckConstraint(
                condition=models.Q(("position__gte", 1), ("position__lte", 9)),
                name="rating_item_at_most_nine",
            ),
        ),
        migrations.AddIndex(
            model_name="rating",
            index=models.Index(
                condition=models.Q(("is_current", True)), fields=["task"], name="rating_current"
            ),
        ),
        migrations.AddIndex(
            model_name="rating",
            index=models.Index(
                fields=["project", "annotator", "-rated_at"], name="rating_by_annotator"
            ),
        ),
        migrations.AddConstraint(
            model_name="rating",
            constraint=models.UniqueConstraint(
                fields=("annotator", "idempotency_key"), name="rating_submitted_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="rating",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_current", True)),
                fields=("slot",),
                name="rating_current_once_per_slot",
            ),
        ),
        migrations.AddConstraint(
            model_name="rating",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("revision", 1), ("supersedes__isnull", True)),
                    models.Q(("revision__gt", 1), ("supersedes__isnull", False)),
                    _connector="OR",
                ),
                name="rating_revisions_form_a_chain",
            ),
        ),
        migrations.AddConstraint(
            model_name="rating",
            constraint=models.CheckConstraint(
                condition=models.Q(("values__len", models.F("shown__len"))),
                name="rating_values_for_all_shown",
            ),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
