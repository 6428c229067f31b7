"""Telling a worker of an import. The job's row is the truth; the message is a hint that may be lost
or doubled, and is sent again by the sweep."""

import logging
from functools import cache

import redis
from celery import Celery
from django.conf import settings
from kombu import Exchange, Queue
from kombu.exceptions import KombuError

from workers.contract import wire
from workers.contract.broker import sender_settings

log = logging.getLogger(__name__)


@cache
def _sender(url: str) -> Celery:
    app = Celery("concord-imports", set_as_current=False, fixups=[])
    app.conf.update(sender_settings(url))
    name = wire.QUEUE_IMPORTS
    app.conf.task_queues = [Queue(name, Exchange(name, type="direct"), routing_key=name)]
    return app


def import_send(job: str) -> bool:
    """Offer an import to the workers that may take minutes; what is returned: see `task_send`."""
    return task_send(wire.TASK_RUN_IMPORT, job)


def task_send(task: str, job: str) -> bool:
    """Offer any job to the import workers. True: the broker has taken the message; False within a
    few seconds when Redis does not answer."""
    try:
        _sender(settings.REDIS_URL).send_task(
            task, args=[job], queue=wire.QUEUE_IMPORTS, retry=False
        )
    except (KombuError, redis.RedisError, OSError) as error:
        log.warning("%s of %s stays queued, the broker is away: %s", task, job, error)
        return False
    return True
