from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_save
from django.utils.translation import gettext_lazy as _

from apps.common.registry import (
    Bell,
    NavItem,
    RunTab,
    audit_subjects_add,
    bell_set,
    end_listener_add,
    home_set,
    nav_add,
    run_tab_add,
    translated,
)
from apps.common.transactions import after_commit
from workers.contract import wire


class LoopConfig(AppConfig):
    name = "apps.loop"
    label = "loop"

    def ready(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.loop.models import Pipeline
        from apps.loop.screens import bell_count
        from apps.loop.services import run_end_tell

        # Runs know nothing of the circle; it watches them. The work is done after the commit, and
        # again by a scheduled task or by the next start of the demo if this process dies in
        # between.
        post_save.connect(_run_saved, sender="training.Run", dispatch_uid="loop.run_saved")
        end_listener_add(run_end_tell)
        audit_subjects_add(("pipeline",), named_by(Pipeline, "name", "loop:pipeline"))
        everybody = frozenset({"annotator", "reviewer", "engineer", "admin"})
        overview = (_("Overview"), "loop:overview", "house", "overview")
        nav_add(NavItem(0, *overview, roles=everybody, tabs=everybody))
        staff = frozenset({"engineer", "admin"})
        nav_add(NavItem(60, _("Rounds"), "loop:pipelines", "rotate-ccw", "pipelines", staff))
        home_set("loop:overview")
        translated("loop:overview", "loop:progress", "loop:notifications")
        bell_set(Bell("loop:notifications", bell_count))
        run_tab_add(RunTab("pairs", "Pairs", "loop:pairs", when=lambda run: run.kind == "generate"))


def _run_saved(instance: Any, **kwargs: Any) -> None:
    if instance.state != "finished":
        return
    if instance.kind == "generate" and _to_people(instance):
        from apps.loop import services

        after_commit(services.fresh_pairs_try, run_id=instance.pk)
    if instance.kind in ("evaluate", "generate") and instance.launch_key.startswith("circle:"):
        from apps.labeling.dispatch import task_send

        after_commit(task_send, task=wire.TASK_END_ROUND, job=instance.pk)


def _to_people(run: Any) -> bool:
    return run.config.get("to_people") is True
