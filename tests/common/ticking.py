"""config.celery with one quick task as its schedule, for schedulers that a test starts."""

from kombu import Exchange, Queue

from config.celery import app

QUEUE, EVERY_S, EXPIRES_S = "ticks", 0.2, 0.4

app.conf.task_queues = [Queue(QUEUE, Exchange(QUEUE, type="direct"), routing_key=QUEUE)]
app.conf.beat_schedule = {
    "tick": {
        "task": "tests.tick",
        "schedule": EVERY_S,
        "options": {"queue": QUEUE, "expires": EXPIRES_S},
    }
}
