"""Tasks of the web side run only when the web side has sent them.

Workers share the broker and put messages into the queue of events, where a message may name any
task. So every message that this side sends carries a signature by SECRET_KEY over task, id and
arguments, and a task without one is refused. What workers report is signed for itself
(`apps.training.signing`).
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from celery import Task
from celery.signals import before_task_publish
from django.conf import settings
from django.utils.crypto import constant_time_compare, salted_hmac

from workers.contract import wire

logger = logging.getLogger(__name__)

HEADER = "concord_web_signature"
FOR_WORKERS = frozenset({wire.TASK_RECORD_EVENTS})  # they send it, with a signature of their own
_SALT = "apps.common.web_tasks"


class WebTask(Task):
    """The class of every task of `config.celery`."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        request = self.request
        by_a_message = not (request.called_directly or request.is_eager)
        if by_a_message and self.name not in FOR_WORKERS:
            keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
            given = request.get(HEADER) or ""
            signed = (signature(key, self.name, request.id, args, kwargs) for key in keys)
            if not any(constant_time_compare(given, one) for one in signed):
                logger.warning("refused a task that the web side has not sent: %s", self.name)
                return None
        return super().__call__(*args, **kwargs)


def signature(key: str, task: str, id: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    text = json.dumps([task, id, list(args), dict(kwargs)], sort_keys=True)
    return salted_hmac(_SALT, text, secret=key, algorithm="sha256").hexdigest()


@before_task_publish.connect
def sign(headers: dict[str, Any], body: tuple[Any, ...], **_: Any) -> None:
    """Jobs for workers get one too; nobody there looks at it."""
    args, kwargs, *_rest = body
    headers[HEADER] = signature(settings.SECRET_KEY, headers["task"], headers["id"], args, kwargs)
