"""Tasks of the web side's workers, queue `default`."""

from celery import shared_task

from apps.accounts.services.audit_chain import audit_head_write, audit_seal


@shared_task(name="apps.accounts.tasks.seal_audit_log")
def seal_audit_log() -> int:
    """Every minute: new events into the chain, and once a day its head into the artifact store."""
    sealed = audit_seal()
    audit_head_write()
    return sealed
