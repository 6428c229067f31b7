"""What every app stands on: base models, typed requests, registries, embedded servers."""

from django.apps import AppConfig


class CommonConfig(AppConfig):
    name = "apps.common"
    label = "common"

    def ready(self) -> None:
        from apps.common import health, observability, web_tasks  # noqa: F401 - signs

        health.register()
        observability.start()
