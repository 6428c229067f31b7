from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_save

from apps.common.transactions import after_commit


class LoopConfig(AppConfig):
    name = "apps.loop"
    label = "loop"

    def ready(self) -> None:
        # Runs know nothing of the circle; it watches them. The work is done after the commit and
        # is repeated by a scheduled task if this process dies in between.
        post_save.connect(_run_saved, sender="training.Run", dispatch_uid="loop.run_saved")


def _run_saved(instance: Any, **kwargs: Any) -> None:
    if instance.kind == "generate" and instance.state == "finished":
        from apps.loop import services

        after_commit(services.fresh_pairs_try, run_id=instance.pk)
