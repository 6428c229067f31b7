"""Runs: launching, applying their events, checkpoints, the live pages."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from apps.common.registry import (
    NavItem,
    audit_subjects_add,
    deletion_check_add,
    deletion_step_add,
    heavy_add,
    nav_add,
    project_figures_add,
    run_results_add,
)


class TrainingConfig(AppConfig):
    name = "apps.training"
    label = "training"

    def ready(self) -> None:
        staff = frozenset({"engineer", "admin"})
        nav_add(NavItem(60, _("Runs"), "training:runs", "activity", "runs", staff, tabs=staff))
        nav_add(
            NavItem(
                61,
                _("Models"),
                "training:models",
                "box",
                "models",
                staff,
                tabs=frozenset({"engineer"}),
            )
        )
        nav_add(
            NavItem(
                61,
                _("Constitution"),
                "training:constitution",
                "scroll-text",
                "constitution",
                staff,
            )
        )
        nav_add(NavItem(63, _("Machines"), "training:fleet", "cpu", "fleet", staff))

        from apps.accounts.selectors import named_by
        from apps.training.models import Run
        from apps.training.selectors.behind import behind_figures
        from apps.training.selectors.results import run_results
        from apps.training.selectors.runs import no_run_goes_on
        from apps.training.services.sharing import project_copies_release

        heavy_add("api:freeze_revisions")
        run_results_add(run_results)
        project_figures_add(behind_figures)
        audit_subjects_add(("alert", "pairs", "run"), named_by(Run, "name", "training:run"))
        deletion_check_add(no_run_goes_on)
        deletion_step_add(project_copies_release)
