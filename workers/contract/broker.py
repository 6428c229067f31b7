"""Celery settings both sides share, so that a message means the same to either.

Standard library only: returns plain values; `REDIS_URL` names the broker.
"""

import os
from typing import Any

VISIBILITY_SECONDS = 7 * 86_400


def broker_url(redis_url: str | None = None) -> str:
    """Celery's spelling of a Redis address (`unix://` sockets are `redis+socket://` there)."""
    url = redis_url or os.environ.get("REDIS_URL", "")
    if not url:
        raise RuntimeError("REDIS_URL is not set: the broker's address is unknown")
    if url.startswith("unix://"):
        place, _, query = url.removeprefix("unix://").partition("?")
        database = next((p[3:] for p in query.split("&") if p.startswith("db=")), "0")
        return f"redis+socket://{place}?virtual_host={database}"
    return url


def broker_settings(redis_url: str | None = None, *, side: str = "web") -> dict[str, Any]:
    """side: `web` or `worker`, each with keys of its own for the messages it has in hand, so that
    neither needs to reach the other's (docker/redis/users.acl).

    At most once, one message at a time, no result store: the database is the truth of a run.

    `task_acks_late` would hand a long job to a second worker when the visibility timeout runs
    out; without `worker_disable_prefetch` a job waits behind a busy worker while another idles.
    """
    return {
        "broker_url": broker_url(redis_url),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,  # a worker outlives any absence of its broker
        "broker_transport_options": _transport(side),
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_acks_late": False,
        "task_ignore_result": True,
        "task_create_missing_queues": False,
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": True,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_send_task_events": False,
        "worker_hijack_root_logger": False,
        "worker_soft_shutdown_timeout": 5.0,
        "enable_utc": True,
    }


def sender_settings(redis_url: str | None = None, *, side: str = "web") -> dict[str, Any]:
    """For a Celery app that only sends: fails within about two seconds when the broker is away.

    Celery's own way is to try again for ever, which would hold up a page, or a supervisor that
    has a lease to keep. Both sides keep what was not sent (a run row, a spool) and send it later.
    """
    return broker_settings(redis_url) | {
        "broker_connection_timeout": 2.0,
        "broker_transport_options": _transport(side)
        | {
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0,
            "interval_max": 0,
            "connect_retries_timeout": 2.0,
            "socket_timeout": 2.0,
            "socket_connect_timeout": 2.0,
        },
        "task_publish_retry": False,
    }


def _transport(side: str) -> dict[str, Any]:
    return {
        "visibility_timeout": VISIBILITY_SECONDS,
        "unacked_key": f"{side}-unacked",
        "unacked_index_key": f"{side}-unacked-index",
        "unacked_mutex_key": f"{side}-unacked-mutex",
    }
