"""Watching runs and models in service: incidents, diagnosis, probes, outcomes."""

from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "apps.monitoring"
    label = "monitoring"
