"""Watching runs and models in service: incidents, diagnosis, probes, outcomes."""

from django.apps import AppConfig

from apps.common.registry import alert_listener_add, end_listener_add


class MonitoringConfig(AppConfig):
    name = "apps.monitoring"
    label = "monitoring"

    def ready(self) -> None:
        from apps.monitoring.services.alerting import alert_take, end_take

        alert_listener_add(alert_take)
        end_listener_add(end_take)
