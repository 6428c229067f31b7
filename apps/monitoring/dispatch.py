"""Asking the default worker to send what waits. The rows are the truth; a message that is lost is
made up for by the beat."""

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
TASK_SEND = "apps.monitoring.tasks.send_deliveries"


@cache
def _sender(url: str) -> Celery:
    app = Celery("concord-monitoring", set_as_current=False, fixups=[])
    app.conf.update(sender_settings(url))
    name = wire.QUEUE_DEFAULT
    app.conf.task_queues = [Queue(name, Exchange(name, type="direct"), routing_key=name)]
    return app


def deliveries_send() -> bool:
    """True: the broker has taken the message; False within seconds when Redis does not answer."""
    try:
        _sender(settings.REDIS_URL).send_task(
            TASK_SEND, queue=wire.QUEUE_DEFAULT, expires=60, retry=False
        )
    except (KombuError, redis.RedisError, OSError) as error:
        log.warning("messages wait for the schedule, the broker is away: %s", error)
        return False
    return True
