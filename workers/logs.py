"""How every process logs: a line an event, as text or as JSON, with the request, task or run it
belongs to, and without secrets or what a row of the database holds.

LOG_FORMAT: `lines` (default) or `json`, one object a line. LOG_LEVEL as everywhere. Loggers are the
standard library's; structlog renders, and carries the context (`structlog.contextvars`).
"""

import logging.config
import os
import re
import uuid
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog
from celery.signals import before_task_publish, setup_logging, task_postrun, task_prerun

from workers.contract import wire
from workers.redaction import redacted

LINES, JSON = STYLES = ("lines", "json")
REQUEST_HEADER = "concord_request"  # of a message: the request that led to it
_REQUEST = re.compile(r"[A-Za-z0-9_-]{8,64}")
# PostgreSQL repeats the row that it refused: answers, addresses.
_ROWS = re.compile(
    r"^DETAIL:.*?(?=^(?:CONTEXT|HINT|SQLSTATE):|^The above exception|^During handling|\Z)",
    re.MULTILINE | re.DOTALL,
)


def cleaned(text: str) -> str:
    """Without secrets, and without the rows that an error of the database quotes."""
    return _ROWS.sub("DETAIL: [left out]\n", redacted(text, os.environ))


def request_id(given: str | None) -> str:
    """The id that a proxy of ours gave a request, or a new one."""
    return given if given and _REQUEST.fullmatch(given) else uuid.uuid4().hex


Event = MutableMapping[str, Any]


def _clean(_: Any, __: str, event: Event) -> Event:
    return {k: cleaned(v) if isinstance(v, str) else v for k, v in event.items()}


def _line(_: Any, __: str, event: Event) -> str:
    event = dict(event)
    trace = event.pop("exception", None)
    head = "{timestamp} {level:<7} {logger}: {event}".format(
        **{k: event.pop(k) for k in ("timestamp", "level", "logger", "event")}
    )
    context = " ".join(f"{k}={v}" for k, v in event.items())
    return "\n".join(filter(None, (f"{head} [{context}]" if context else head, trace)))


def configuration(
    *, level: str, style: str, loggers: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """For `logging.config.dictConfig` and Django's LOGGING."""
    shared = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last = structlog.processors.JSONRenderer(ensure_ascii=False) if style == JSON else _line
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "events": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": shared,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    _clean,
                    last,
                ],
            },
        },
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "events"}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": dict(loggers or {}),
    }


# Lines for every batch of events and every beat would drown the rest; failures are told.
QUIET = {
    "celery.beat": {"level": "WARNING"},
    "celery.worker.strategy": {"level": "WARNING"},
    "celery.app.trace": {"level": "WARNING"},
}


def start_logging() -> None:
    """For a process without Django. Raises `SystemExit` for a LOG_FORMAT that does not exist."""
    style = os.environ.get("LOG_FORMAT") or LINES
    if style not in STYLES:
        raise SystemExit(f"LOG_FORMAT={style!r} is not one of {', '.join(STYLES)}")
    level = os.environ.get("LOG_LEVEL") or "INFO"
    logging.config.dictConfig(configuration(level=level, style=style, loggers=QUIET))


def announce(*, with_django: bool) -> None:
    """Connect this process's Celery app: its log is ours, and each task's lines name task, run and
    the request that led to it. Called where the app is made; Django has set logging up already."""

    def set_up(**_: object) -> None:
        if not with_django:
            start_logging()

    setup_logging.connect(set_up, weak=False)
    task_prerun.connect(_begin, weak=False)
    task_postrun.connect(_end, weak=False)


@before_task_publish.connect
def _carry(headers: dict[str, Any], **_: Any) -> None:
    """A task that a request or another task sends goes by the same request."""
    if found := structlog.contextvars.get_contextvars().get("request"):
        headers[REQUEST_HEADER] = found


def _begin(task_id: str, task: Any, **_: object) -> None:
    structlog.contextvars.clear_contextvars()
    context = {"task": task.name, "task_id": task_id}
    if job := task.request.get(wire.JOB_HEADER):
        context["job"] = str(job)[:100]
    given = task.request.get(REQUEST_HEADER)
    if isinstance(given, str) and _REQUEST.fullmatch(given):
        context["request"] = given
    structlog.contextvars.bind_contextvars(**context)


def _end(**_: object) -> None:
    structlog.contextvars.clear_contextvars()
