"""Tasks of the web side's workers, queue `default`."""

from celery import shared_task
from django.conf import settings

from apps.monitoring.selectors.backups import backup_due, proof_due
from apps.monitoring.services.activity import activity_tell
from apps.monitoring.services.alerting import incidents_sweep
from apps.monitoring.services.backups import backup_make, erasures_copy, restore_prove, target_of
from apps.monitoring.services.notifications import sender
from apps.monitoring.services.people import projects_look
from apps.monitoring.services.probes import probes_launch
from apps.monitoring.services.retention import points_thin
from apps.monitoring.services.traffic import traffic_expire


@shared_task(name="apps.monitoring.tasks.send_deliveries")
def send_deliveries() -> None:
    """After each commit that has something to tell, and every 15 seconds for what was missed.
    Returns at once: the sending continues beside the events that share this process."""
    sender.wake()


@shared_task(name="apps.monitoring.tasks.sweep_incidents")
def sweep_incidents() -> int:
    """Alerts whose incident was not settled, because a process ended between two commits."""
    return incidents_sweep()


@shared_task(name="apps.monitoring.tasks.launch_probes")
def launch_probes() -> int:
    """Every minute: Monitored models whose probe is due, and probes that ended unseen."""
    return probes_launch()


@shared_task(name="apps.monitoring.tasks.look_at_projects")
def look_at_projects() -> int:
    """Every two minutes: people and data of every project that is not archived."""
    return projects_look()


@shared_task(name="apps.monitoring.tasks.tell_activity")
def tell_activity() -> int:
    """Every minute: votes, decisions and datasets to the channels that ask for them."""
    return activity_tell()


@shared_task(name="apps.monitoring.tasks.thin_old_runs")
def thin_old_runs() -> int:
    """Every hour: what old runs measured becomes its extremes, a few runs a time; conversations
    past their days are deleted."""
    traffic_expire()
    return points_thin().runs


@shared_task(name="apps.monitoring.tasks.make_backup")
def make_backup() -> str:
    """Every ten minutes with BACKUP_TARGET: a backup where one is due, else new erasures."""
    if not settings.BACKUP_TARGET:
        return ""
    target = target_of(settings.BACKUP_TARGET, settings.BACKUP_KEY_FILE)
    if not backup_due():
        erasures_copy(target)
        return ""
    return backup_make(target=target, keep=settings.BACKUP_KEEP).name


@shared_task(name="apps.monitoring.tasks.prove_backup")
def prove_backup() -> str:
    """Every hour: the newest backup restored to see that it can be, where that is due."""
    if not proof_due():
        return ""
    return restore_prove(target=target_of(settings.BACKUP_TARGET, settings.BACKUP_KEY_FILE)).name
