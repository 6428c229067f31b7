from django.apps import AppConfig


class LoopConfig(AppConfig):
    name = "apps.loop"
    label = "loop"
