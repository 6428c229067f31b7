from django.apps import AppConfig


class LabelingConfig(AppConfig):
    name = "apps.labeling"
    label = "labeling"
