"""Judging models: what their numbers mean, and who may be optimised against."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from apps.common.registry import (
    NavItem,
    RunTab,
    audit_subjects_add,
    end_listener_add,
    nav_add,
    protocol_pages_set,
    run_tab_add,
    run_uses_add,
    self_limited_add,
)


class EvaluationConfig(AppConfig):
    name = "apps.evaluation"
    label = "evaluation"

    def ready(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.evaluation.services.protocols import evaluation_ended
        from apps.evaluation.services.ranking import run_uses
        from apps.evaluation.views.protocols import protocol_address
        from apps.training.models import Checkpoint

        audit_subjects_add(
            ("model", "outputs", "adversarial"),
            named_by(Checkpoint, "pk", "evaluation:reward_model"),
        )
        run_uses_add(run_uses)
        end_listener_add(evaluation_ended)
        protocol_pages_set(protocol_address)
        run_tab_add(
            RunTab(
                "protocol",
                "Protocol",
                "evaluation:run_protocol",
                when=lambda run: run.kind == "evaluate",
            )
        )
        self_limited_add("api:score")  # two requests wait for scores in a process, no more
        staff = frozenset({"engineer", "admin"})
        nav_add(
            NavItem(
                62,
                _("Reward models"),
                "evaluation:reward_models",
                "percent",
                "reward_models",
                staff,
            )
        )
