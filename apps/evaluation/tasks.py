"""Work of the web side's workers."""

from celery import shared_task

from apps.evaluation.services.dialogues import answers_sweep
from apps.evaluation.services.head_to_head import head_to_heads_look
from apps.evaluation.services.judge_sweep import judges_sweep
from apps.evaluation.services.overlap import overlaps_check
from apps.evaluation.services.suites import suites_launch


@shared_task(name="apps.evaluation.tasks.look_at_head_to_heads")
def look_at_head_to_heads() -> int:
    """Every minute, by the scheduler: ends what is decided."""
    return head_to_heads_look()


@shared_task(name="apps.evaluation.tasks.check_overlaps")
def check_overlaps() -> int:
    """Every minute, by the scheduler: which prompts of new evaluations were trained on."""
    return overlaps_check()


@shared_task(name="apps.evaluation.tasks.launch_suites")
def launch_suites() -> int:
    """Every minute, by the scheduler: suites of policy runs whose end was missed."""
    return suites_launch()


@shared_task(name="apps.evaluation.tasks.sweep_judges")
def sweep_judges() -> int:
    """Every ten seconds, by the scheduler: verdicts, hourly probes, audits."""
    return judges_sweep()


@shared_task(name="apps.evaluation.tasks.keep_dialogue_answers")
def keep_dialogue_answers() -> int:
    """Every minute, by the scheduler: answers that wait for a choice, before they are forgotten."""
    return answers_sweep()
