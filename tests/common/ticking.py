"""config.celery with one quick task as its schedule, for schedulers that a test starts. Imported
in their processes alone: it changes the one app that there is."""

from kombu import Exchange, Queue

from config.celery import app
from tests.common.ticks import EVERY_S, EXPIRES_S, QUEUE

app.conf.task_queues = [Queue(QUEUE, Exchange(QUEUE, type="direct"), routing_key=QUEUE)]
app.conf.beat_schedule = {
    "tick": {
        "task": "tests.tick",
        "schedule": EVERY_S,
        "options": {"queue": QUEUE, "expires": EXPIRES_S},
    }
}
