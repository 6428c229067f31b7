"""What every app stands on: base models, typed requests, registries, embedded servers."""

from django.apps import AppConfig


class CommonConfig(AppConfig):
    name = "apps.common"
    label = "common"

    def ready(self) -> None:
        from apps.common import health, observability
        from apps.common import web_tasks as web_tasks  # signs what this side sends

        health.register()
        observability.start()
