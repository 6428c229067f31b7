"""The web side's Celery app: applies events, sweeps runs, imports files, freezes datasets,
keeps the schedule.

It shares the broker with `workers.celery` and nothing else; both sides send by the task names in
`workers.contract.wire`.
"""

import os
from typing import Any

from celery import Celery
from celery.signals import worker_init
from kombu import Exchange, Queue

from apps.common import environment
from workers import logs
from workers.alive import announce
from workers.contract import wire
from workers.contract.broker import broker_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
environment.process = "tasks"
# A connection of its own for each batch of events would cost PostgreSQL more than the batch.
os.environ.setdefault("DATABASE_KEEP_SECONDS", "600")

app = Celery("concord", task_cls="apps.common.web_tasks.WebTask")
app.conf.update(broker_settings())
app.conf.update(
    task_default_queue=wire.QUEUE_DEFAULT,
    task_queues=[
        Queue(name, Exchange(name, type="direct"), routing_key=name)
        for name in (
            wire.QUEUE_EVENTS,
            wire.QUEUE_DEFAULT,
            wire.QUEUE_IMPORTS,
            wire.QUEUE_STATISTICS,
        )
    ],
    task_routes={
        wire.TASK_RECORD_EVENTS: {"queue": wire.QUEUE_EVENTS},
        wire.TASK_RUN_IMPORT: {"queue": wire.QUEUE_IMPORTS},
        wire.TASK_FREEZE: {"queue": wire.QUEUE_IMPORTS},
        wire.TASK_SCAN_ANSWERS: {"queue": wire.QUEUE_IMPORTS},
        wire.TASK_END_ROUND: {"queue": wire.QUEUE_IMPORTS},
    },
    beat_scheduler="apps.common.scheduling:LeadScheduler",
    beat_schedule={
        "launch-probes": {
            "task": "apps.monitoring.tasks.launch_probes",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 60.0},
        },
        "seal-audit-log": {
            "task": "apps.accounts.tasks.seal_audit_log",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 60.0},
        },
        "forward-audit-log": {
            "task": "apps.accounts.tasks.forward_audit_log",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 60.0},
        },
        "write-erasures": {
            "task": "apps.accounts.tasks.write_erasures",
            "schedule": 3600.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 3600.0},
        },
        "tell-activity": {
            "task": "apps.monitoring.tasks.tell_activity",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 60.0},
        },
        "look-at-projects": {
            "task": "apps.monitoring.tasks.look_at_projects",
            "schedule": 120.0,
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 120.0},
        },
        "look-at-head-to-heads": {
            "task": "apps.evaluation.tasks.look_at_head_to_heads",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 60.0},
        },
        "keep-dialogue-answers": {
            "task": "apps.evaluation.tasks.keep_dialogue_answers",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 60.0},
        },
        "sweep-judges": {
            "task": "apps.evaluation.tasks.sweep_judges",
            "schedule": 10.0,
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 10.0},
        },
        "check-overlaps": {
            "task": "apps.evaluation.tasks.check_overlaps",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 60.0},
        },
        "launch-suites": {
            "task": "apps.evaluation.tasks.launch_suites",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 60.0},
        },
        "queue-fresh-pairs": {
            "task": "apps.loop.tasks.queue_fresh_pairs",
            "schedule": 30.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 30.0},
        },
        "sweep-rounds": {
            "task": "apps.loop.tasks.sweep_rounds",
            "schedule": 15.0,
            # Before it freezes a round looks at the votes, which takes seconds.
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 15.0},
        },
        "refresh-agreement": {
            "task": "apps.agreement.tasks.refresh_reports",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 60.0},
        },
        "refresh-consensus": {
            "task": "apps.agreement.tasks.refresh_consensus",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 60.0},
        },
        "sweep-comparisons": {
            "task": "apps.labeling.tasks.sweep_comparisons",
            "schedule": 60.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 60.0},
        },
        "sweep-freezes": {
            "task": wire.TASK_SWEEP_FREEZES,
            "schedule": 10.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 10.0},
        },
        "replay-selections": {
            "task": "apps.snapshots.tasks.replay_selections",
            "schedule": 10.0,
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 10.0},
        },
        "sweep-scratch": {
            "task": "apps.common.tasks.sweep_scratch",
            "schedule": 3600.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 3600.0},
        },
        "index-comparisons": {
            "task": "apps.labeling.tasks.index_comparisons",
            "schedule": 10.0,
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 10.0},
        },
        "sweep-imports": {
            "task": wire.TASK_SWEEP_IMPORTS,
            "schedule": 10.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 10.0},
        },
        "send-deliveries": {
            "task": "apps.monitoring.tasks.send_deliveries",
            "schedule": 15.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 15.0},
        },
        "sweep-incidents": {
            "task": "apps.monitoring.tasks.sweep_incidents",
            "schedule": 15.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 15.0},
        },
        "thin-old-runs": {
            "task": "apps.monitoring.tasks.thin_old_runs",
            "schedule": 3600.0,
            # Among the slow ones, so that no event waits for it.
            "options": {"queue": wire.QUEUE_STATISTICS, "expires": 3600.0},
        },
        # Long, like imports; no second one begins while one is made.
        "make-backup": {
            "task": "apps.monitoring.tasks.make_backup",
            "schedule": 600.0,
            "options": {"queue": wire.QUEUE_IMPORTS, "expires": 600.0},
        },
        "prove-backup": {
            "task": "apps.monitoring.tasks.prove_backup",
            "schedule": 3600.0,
            "options": {"queue": wire.QUEUE_IMPORTS, "expires": 3600.0},
        },
        "sweep-runs": {
            "task": wire.TASK_SWEEP_RUNS,
            "schedule": 5.0,
            "options": {"queue": wire.QUEUE_DEFAULT, "expires": 5.0},
        },
    },
)
app.autodiscover_tasks()
announce(app)
logs.announce(with_django=True)


@worker_init.connect
def _behind_pages(sender: Any, **_: Any) -> None:
    """A long import or fit leaves the processor to those who label, where both need it."""
    if set(sender.app.amqp.queues.consume_from) <= {wire.QUEUE_IMPORTS, wire.QUEUE_STATISTICS}:
        os.nice(5)
