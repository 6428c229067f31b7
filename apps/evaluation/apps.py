"""Judging models and their answers: what their numbers mean, who may be optimised against, and
what people say of single answers."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from apps.common.registry import (
    NavItem,
    SamplePanel,
    audit_subjects_add,
    flagged_listener_add,
    nav_add,
    run_uses_add,
    sample_panel_set,
    self_limited_add,
)


class EvaluationConfig(AppConfig):
    name = "apps.evaluation"
    label = "evaluation"

    def ready(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.evaluation.services.ranking import run_uses
        from apps.training.models import Checkpoint

        audit_subjects_add(
            ("model", "outputs", "adversarial"),
            named_by(Checkpoint, "pk", "evaluation:reward_model"),
        )
        run_uses_add(run_uses)
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
        self._verdicts()

    def _verdicts(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.evaluation.models import AuditSheet
        from apps.evaluation.screens.verdicts import sample_panels
        from apps.evaluation.services.flagging import answer_flag
        from apps.evaluation.services.sheets import run_uses
        from apps.training.models import Run

        flagged_listener_add(answer_flag)
        sample_panel_set(
            SamplePanel(
                "evaluation/_sample_verdicts.html",
                "evaluation/_verdict_keys.html",
                "js/verdicts.js",
                sample_panels,
            )
        )
        run_uses_add(run_uses)
        audit_subjects_add(("verdict", "inbox"), named_by(Run, "name", "training:run"))
        audit_subjects_add(("sheet",), named_by(AuditSheet, "pk", "evaluation:sheet"))
        readers = frozenset({"reviewer", "engineer", "admin"})
        for rank, label, page, icon in (
            (47, _("Inbox"), "inbox", "inbox"),
            (48, _("Audit sheets"), "sheets", "eye-off"),
        ):
            nav_add(NavItem(rank, label, f"evaluation:{page}", icon, page, readers))
