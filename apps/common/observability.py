"""Sentry and OpenTelemetry, each only where an address is set; nothing leaves the site otherwise.

SENTRY_DSN gets errors, OTEL_EXPORTER_OTLP_ENDPOINT a span for each request and task of the web
side. Neither gets names, addresses of people, query strings, paths (invitations are in them),
bodies, local variables or rows of the database: a request goes by its page's name.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from celery.signals import task_postrun, task_prerun

from apps.common import environment as env
from workers.contract.code_version import code_version
from workers.logs import cleaned

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

_EXTRA = "install the extra `observability`"
_tracer: "Tracer | None" = None
_provider: "TracerProvider | None" = None
_open: dict[str, Any] = {}  # spans of tasks at work


def start() -> None:
    """Called once when the apps are loaded. Raises `BadEnvironment` where a library is missing."""
    if dsn := env.text("SENTRY_DSN"):
        _start_sentry(dsn)
    if env.text("OTEL_EXPORTER_OTLP_ENDPOINT"):
        _start_tracing()


def _start_sentry(dsn: str) -> None:
    if importlib.util.find_spec("sentry_sdk") is None:
        raise env.BadEnvironment(f"SENTRY_DSN is set: {_EXTRA}")
    import sentry_sdk

    sentry_sdk.init(
        dsn=dsn,
        release=code_version(),
        environment=env.text("SENTRY_ENVIRONMENT", "production"),
        send_default_pii=False,
        max_request_body_size="never",
        include_local_variables=False,
        include_source_context=False,
        max_breadcrumbs=0,
        traces_sample_rate=None,
        before_send=sentry_event,
    )


def sentry_event(event: Any, _: Any = None) -> Any:
    """What Sentry is sent: the error, where it arose, and the page's name."""
    for name in ("request", "user", "extra", "breadcrumbs", "server_name", "modules"):
        event.pop(name, None)
    for one in (event.get("exception") or {}).get("values", ()):
        if isinstance(one.get("value"), str):
            one["value"] = cleaned(one["value"])
    entry = event.get("logentry") or {}
    for name in ("message", "formatted"):
        if isinstance(entry.get(name), str):
            entry[name] = cleaned(entry[name])
    entry.pop("params", None)
    return event


def _start_tracing() -> None:
    global _provider, _tracer
    if importlib.util.find_spec("opentelemetry.exporter") is None:
        raise env.BadEnvironment(f"OTEL_EXPORTER_OTLP_ENDPOINT is set: {_EXTRA}")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": env.text("OTEL_SERVICE_NAME", "concord")})
    _provider = TracerProvider(resource=resource)
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = _provider.get_tracer("concord")
    task_prerun.connect(_task_begins, weak=False)
    task_postrun.connect(_task_ends, weak=False)


def flush() -> None:
    """Send what waits; a process that ends sends it by itself."""
    if _provider:
        _provider.force_flush()


@contextmanager
def request_span(method: str) -> Iterator["Span | None"]:
    """Around a request; None where nobody wants spans."""
    with _tracer.start_as_current_span(method) if _tracer else nullcontext() as span:
        yield span


def name_span(span: "Span | None", method: str, page: str, status: int, request: str) -> None:
    """What is known once the address was resolved and answered."""
    if span is None:
        return
    span.update_name(f"{method} {page or 'unknown'}")
    span.set_attributes(
        {
            "http.request.method": method,
            "http.route": page,
            "http.response.status_code": status,
            "concord.request": request,
        }
    )


def _task_begins(task_id: str, task: Any, **_: object) -> None:
    if _tracer:
        _open[task_id] = _tracer.start_span(task.name, attributes={"concord.task": task_id})


def _task_ends(task_id: str, state: str | None = None, **_: object) -> None:
    if span := _open.pop(task_id, None):
        span.set_attribute("concord.state", state or "")
        span.end()
