"""Work of the web side's workers."""

from celery import shared_task

from apps.evaluation.services.head_to_head import head_to_heads_look


@shared_task(name="apps.evaluation.tasks.look_at_head_to_heads")
def look_at_head_to_heads() -> int:
    """Every minute, by the scheduler: ends what is decided."""
    return head_to_heads_look()
