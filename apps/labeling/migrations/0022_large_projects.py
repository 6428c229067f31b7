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
        *(
            migrations.AlterField(
                model_name=model,
                name=name,
                field=models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, **options
                ),
            )
            for model in ("answer", "vote")
            for name, options in (("guideline", _GUIDELINE), ("improvement", _IMPROVEMENT))
        ),
        *(
            migrations.RunSQL(f"alter table {table} {_SET}", f"alter table {table} {_RESET}")
            for table in _TABLES
        ),
    ]
