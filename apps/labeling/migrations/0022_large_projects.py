"""Indexes and vacuum for projects of ten million votes: the newest vote of a project has an index;
three that every vote wrote and nothing needed go, or keep the few rows that they are for; and the
tables that votes change are vacuumed and analysed before a fifth of a large one is dead.
"""

import django.db.models.deletion
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

_TABLES = ("labeling_answer", "labeling_slot", "labeling_task", "labeling_decision")
_SET = (
    "set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,"
    " autovacuum_analyze_scale_factor = 0.02)"
)
_RESET = (
    "reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor,"
    " autovacuum_analyze_scale_factor)"
)
_DROPPED = (  # (name, column); named when their table was labeling_vote
    ("labeling_vote_guideline_id_3f39e406", "guideline_id"),
    ("labeling_vote_improvement_id_0eb0c4e9", "improvement_id"),
)
_GUIDELINE = {"null": True, "blank": True, "to": "labeling.guideline"}
_IMPROVEMENT = {
    "null": True,
    "blank": True,
    "related_name": "+",
    "help_text": "the better answer as this person would have it",
    "to": "labeling.response",
}


class Migration(migrations.Migration):
    atomic = False  # indexes are made and dropped beside running votes

    dependencies = [("labeling", "0021_votes_quota")]

    operations = [
        # Of a try that was cut off: what is half built keeps its name, and is of no use.
        *(
            migrations.RunSQL(f"drop index concurrently if exists {name}", migrations.RunSQL.noop)
            for name in ("vote_newest", "answer_improved")
        ),
        AddIndexConcurrently(
            "answer",
            models.Index(fields=["project", "id"], condition=Q(kind="pair"), name="vote_newest"),
        ),
        AddIndexConcurrently(
            "answer",
            models.Index(
                fields=["improvement"],
                condition=Q(improvement__isnull=False),
                name="answer_improved",
            ),
        ),
        RemoveIndexConcurrently("answer", "vote_current"),
        # Not by AlterField in the database: that drops and checks the foreign keys again, too.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    f"drop index concurrently if exists {name}",
                    f"create index concurrently if not exists {name} on labeling_answer ({column})",
                )
                for name, column in _DROPPED
            ],
            state_operations=[
                migrations.AlterField(
                    model_name=model,
                    name=name,
                    field=models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, **options
                    ),
                )
                for model in ("answer", "vote")
                for name, options in (("guideline", _GUIDELINE), ("improvement", _IMPROVEMENT))
            ],
        ),
        *(
            migrations.RunSQL(f"alter table {table} {_SET}", f"alter table {table} {_RESET}")
            for table in _TABLES
        ),
    ]
