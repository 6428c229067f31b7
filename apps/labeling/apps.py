"""Prompts, responses, comparisons; handing out slots, taking votes, deciding."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_delete, post_save
from django.utils.translation import gettext_lazy as _

from apps.common.registry import (
    NavItem,
    ProjectQuestion,
    SetupStep,
    audit_subjects_add,
    deletion_step_add,
    heavy_add,
    last_export,
    nav_add,
    overview_set,
    person_erasure_add,
    project_copy_add,
    project_facts_add,
    project_question_add,
    setup_step_add,
    translated,
    upload_add,
    voting_add,
)
from apps.common.row_files import download_response
from apps.common.transactions import after_commit


class LabelingConfig(AppConfig):
    name = "apps.labeling"
    label = "labeling"

    def ready(self) -> None:
        # models are there only now
        from apps.accounts.selectors import named_by
        from apps.labeling.models import ImportJob, WritingBatch
        from apps.labeling.selectors.projects import (
            comparisons_named,
            has_guidelines,
            has_own_rule,
            has_tasks,
            project_facts,
        )
        from apps.labeling.selectors.ratings import has_rating_tasks
        from apps.labeling.selectors.writing import has_writing
        from apps.labeling.services.erasing import labeling_erase
        from apps.labeling.services.images import images_delete
        from apps.labeling.services.projects import (
            labeling_settings_copy,
            task_kind_set,
            task_kinds_of,
        )

        deletion_step_add(images_delete)
        for signal in (post_save, post_delete):
            signal.connect(
                _member_changed,
                sender="accounts.Membership",
                dispatch_uid="labeling.member_changed",
            )
        project_facts_add(project_facts)
        person_erasure_add(labeling_erase)
        audit_subjects_add(("comment", "comparison"), comparisons_named)
        audit_subjects_add(
            ("import", "comparisons"), named_by(ImportJob, "file_name", "labeling:import")
        )
        last_export("results", "Results", _results)
        last_export("votes", "Votes", _votes)
        project_copy_add(labeling_settings_copy)
        project_question_add(
            ProjectQuestion(
                "task_kind", "What people do", _task_kinds, task_kind_set, task_kinds_of
            )
        )
        for step in (
            SetupStep(10, _("File"), "labeling:imports", has_tasks, ("labeling:import",)),
            SetupStep(
                20,
                _("Guidelines"),
                "labeling:guideline_edit",
                has_guidelines,
                ("labeling:guidelines",),
            ),
            SetupStep(30, _("Rule"), "labeling:settings", has_own_rule),
        ):
            setup_step_add(step)

        labelers = frozenset({"annotator", "reviewer", "admin"})
        annotators = frozenset({"annotator"})
        importers = frozenset({"engineer", "admin"})
        readers = frozenset({"reviewer", "engineer", "admin"})
        for item in (
            NavItem(
                10, _("Label"), "labeling:label", "list-checks", "label", labelers, tabs=labelers
            ),
            NavItem(
                11,
                _("My answers"),
                "labeling:answers",
                "history",
                "answers",
                labelers,
                tabs=annotators,
            ),
            NavItem(11, _("Write"), "labeling:write", "pencil", "write", labelers, has_writing),
            NavItem(
                12,
                _("Guidelines"),
                "labeling:guidelines",
                "book-open",
                "guidelines",
                labelers,
                tabs=annotators,
            ),
            NavItem(
                42,
                _("Annotators"),
                "labeling:annotators",
                "clipboard-check",
                "annotators",
                frozenset({"admin"}),
            ),
            NavItem(
                20,
                _("Comparisons"),
                "labeling:comparisons",
                "scale",
                "comparisons",
                readers,
                tabs=frozenset({"reviewer", "admin"}),
            ),
            NavItem(22, _("Imports"), "labeling:imports", "upload", "imports", importers),
            NavItem(
                21,
                _("Ratings"),
                "labeling:rating_tasks",
                "chart-column",
                "ratings",
                readers,
                has_rating_tasks,
            ),
            NavItem(23, _("Writing"), "labeling:writing", "pencil", "writing", readers),
            NavItem(
                91, _("Settings"), "labeling:settings", "settings", "settings", frozenset({"admin"})
            ),
        ):
            nav_add(item)
        for role in labelers:
            overview_set(role, "work")
        audit_subjects_add(("writing",), named_by(WritingBatch, "name", "labeling:writing_batch"))
        upload_add("labeling:imports", "labeling:writing_new", "api:import_create")
        upload_add("labeling:images", "api:image_create")
        heavy_add(
            *(f"labeling:{name}" for name in ("results_file", "votes_file", "bulk", "ambiguous")),
            *("labeling:person_votes_discard", "labeling:discard_undo", "labeling:rating_pairs"),
            *(f"api:{name}" for name in ("results", "votes", "decisions", "comparisons_bulk")),
            *(f"api:{name}" for name in ("comparisons_import", "votes_import", "ratings_import")),
            *(f"api:{name}" for name in ("discard", "discard_undo", "ratings_pairs")),
        )
        translated(
            "work",
            *(
                f"labeling:{name}"
                for name in ("label", "vote", "skip", "hold", "part", "ask", "revise")
            ),
            *(
                f"labeling:{name}"
                for name in ("withdraw", "answers", "questions", "opt_outs", "hours")
            ),
            *(f"labeling:{name}" for name in ("guidelines", "acknowledge", "consent")),
            *(f"labeling:qualification{step}" for step in ("", "_start", "_answer")),
            *(f"labeling:{name}" for name in ("rate", "rate_submit", "rate_skip")),
            *(f"labeling:{name}" for name in ("ratings_mine", "rating_change")),
            *(f"labeling:write{step}" for step in ("", "_mine", "_text", "_draft", "_submit")),
            *(f"labeling:write_{step}" for step in ("skip", "preview", "review", "verdict")),
        )
        voting_add(
            *(f"labeling:{name}" for name in ("label", "vote", "skip", "hold", "who")),
            *(f"labeling:{name}" for name in ("rate", "rate_submit", "rate_skip")),
            *(f"api:{name}" for name in ("next_pair", "slot_vote", "slot_skip", "vote_revise")),
            *(f"api:{name}" for name in ("task_next", "task_rate", "task_skip", "task_revise")),
        )


def _task_kinds() -> dict[str, str]:
    from apps.labeling.forms.settings import TASK_KINDS

    return TASK_KINDS


def _member_changed(instance: Any, **_given: Any) -> None:
    """Somebody came, went, was paused or has another role: pairs may have nobody left, or somebody
    again."""
    from apps.labeling.services.exhausting import comparisons_settle
    from apps.labeling.services.writing import texts_of_absent_free

    after_commit(comparisons_settle, project=instance.project)
    after_commit(texts_of_absent_free, project=instance.project)


def _results(project: Any) -> Any:
    from apps.labeling.exports import results_export
    from apps.labeling.selectors.finding import Wanted

    return download_response(results_export(project=project, form="jsonl", wanted=Wanted()))


def _votes(project: Any) -> Any:
    from apps.labeling.exports import votes_export
    from apps.labeling.selectors.finding import Wanted

    sent = votes_export(
        project=project, form="jsonl", wanted=Wanted(), with_names=True, is_last=True
    )
    return download_response(sent)
