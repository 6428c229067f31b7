"""Tasks of the web side's workers, queue `default`."""

from celery import shared_task

from apps.accounts.services.audit_chain import audit_head_write, audit_seal
from apps.accounts.services.audit_export import audit_forward
from apps.accounts.services.erasure import erasures_missing_write


@shared_task(name="apps.accounts.tasks.seal_audit_log")
def seal_audit_log() -> int:
    """Every minute: new events into the chain, and once a day its head into the artifact store."""
    sealed = audit_seal()
    audit_head_write()
    return sealed


@shared_task(name="apps.accounts.tasks.forward_audit_log")
def forward_audit_log() -> int:
    """Every minute: sealed events to the syslog server, if there is one."""
    return audit_forward()


@shared_task(name="apps.accounts.tasks.write_erasures")
def write_erasures() -> int:
    """Every hour: what the artifact store did not take when somebody was erased."""
    return erasures_missing_write()
