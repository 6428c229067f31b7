"""Runs: launching, applying their events, checkpoints, the live pages."""

from django.apps import AppConfig

from apps.common.registry import NavItem, home_set, nav_add, run_results_add


class TrainingConfig(AppConfig):
    name = "apps.training"
    label = "training"

    def ready(self) -> None:
        staff = frozenset({"engineer", "admin"})
        nav_add(NavItem(40, "Runs", "training:runs", "activity", "runs", staff))
        nav_add(NavItem(41, "Models", "training:models", "box", "models", staff))
        nav_add(NavItem(42, "Machines", "training:fleet", "cpu", "fleet", staff))
        home_set("engineer", "training:runs")

        from apps.training.selectors.results import run_results

        run_results_add(run_results)
