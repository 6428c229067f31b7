"""Batches off the broker, which everybody writes to who reaches it."""

import logging
from typing import Any

from apps.training import dispatch
from apps.training.services.applying import Applied, events_apply, has_address
from apps.training.signing import is_from_its_worker

log = logging.getLogger(__name__)


def batch_receive(*, batch: Any) -> Applied:
    """Apply a batch that the worker of its attempt has signed. Any other is logged and counted, and
    changes nothing."""
    if has_address(batch) and not is_from_its_worker(batch):
        name = f"{batch['run']!r:.40}/{batch['attempt']}"
        log.warning("refused a batch of %s: it is not signed by its worker", name)
        dispatch.refusal_count()
        return Applied(run=batch["run"], attempt=batch["attempt"], refused=True)
    return events_apply(batch=batch)
