"""The GPU side's Celery app. One worker per GPU (or per training that fits a machine):

    celery -A workers.celery worker -Q gpu -P prefork -c 1 --without-gossip --without-mingle

No Django here, and nothing that takes seconds to import: trainers are child processes.
"""

import mmap

from celery import Celery
from celery.signals import worker_process_init, worker_shutting_down
from kombu import Exchange, Queue

from workers import fleet, logs
from workers.alive import announce
from workers.contract import wire
from workers.contract.broker import broker_settings
from workers.supervisor.child import end_with_parent

# `DJANGO_SETTINGS_MODULE` may be set around us; Celery would load Django for it.
app = Celery("workers", fixups=[])
# Its own names for remote control: nobody here can speak to the web side's processes.
app.conf.update(
    broker_settings(side="worker") | {"control_exchange": "worker", "event_exchange": "workerev"}
)
app.conf.update(
    task_default_queue=wire.QUEUE_CPU,
    task_queues=[
        Queue(name, Exchange(name, type="direct"), routing_key=name) for name in wire.JOB_QUEUES
    ],
    imports=["workers.tasks"],
)
announce(app)
fleet.announce(app)
logs.announce(with_django=False)

# One byte shared with the forked pool processes: the main process hears that the worker is to
# shut down, the supervisor in the pool must know.
_leaving = mmap.mmap(-1, 1)


def worker_is_leaving() -> bool:
    return _leaving[0] == 1


@worker_shutting_down.connect
def _tell_pool(**_: object) -> None:
    _leaving[0] = 1


@worker_process_init.connect
def _end_with_main_process(**_: object) -> None:
    """`kill -9` of the main process ends the pool process, and that its trainer."""
    end_with_parent()
