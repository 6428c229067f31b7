"""Watching runs and models in service: incidents, diagnosis, probes, outcomes."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from apps.common.registry import (
    NavItem,
    RunTab,
    alert_listener_add,
    audit_subjects_add,
    end_listener_add,
    health_remark_add,
    nav_add,
    playbook_set,
    run_tab_add,
    run_uses_add,
    upload_add,
)


class MonitoringConfig(AppConfig):
    name = "apps.monitoring"
    label = "monitoring"

    def ready(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.monitoring import checks as _checks  # noqa: F401 - registers them
        from apps.monitoring.models import Incident
        from apps.monitoring.selectors.backups import health_remark
        from apps.monitoring.services.alerting import alert_take, end_take
        from apps.monitoring.services.checks import check_ended
        from apps.monitoring.services.probes import probe_ended
        from apps.monitoring.services.retention import run_uses

        upload_add("monitoring:run_import")
        health_remark_add("backups", health_remark)
        audit_subjects_add(("incident",), named_by(Incident, "title", "monitoring:incident"))
        alert_listener_add(alert_take)
        end_listener_add(end_take)
        end_listener_add(check_ended)
        end_listener_add(probe_ended)
        run_uses_add(run_uses)
        staff = frozenset({"engineer", "admin"})
        nav_add(NavItem(64, _("Monitoring"), "monitoring:overview", "gauge", "monitoring", staff))
        self._diagnosis()

    def _diagnosis(self) -> None:
        from apps.common.playbook import pages
        from apps.monitoring.screens.playbook import playbook_address
        from apps.monitoring.selectors.diagnosis import findings_waiting, trained_kind

        playbook_set(playbook_address)
        pages()  # a page that is not of its form is found here, not by a reader
        run_tab_add(
            RunTab(
                "diagnosis",
                "Diagnosis",
                "monitoring:diagnosis",
                badge=findings_waiting,
                when=lambda run: bool(trained_kind(run)),
            )
        )
