"""Sentry and OpenTelemetry, each against a server of the test on loopback."""

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.conf import settings

from apps.common import observability

PROGRAM = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
import django
django.setup()
from django.core.handlers.wsgi import WSGIHandler
from django.test import RequestFactory
request = RequestFactory().get("/livez?search=planted-query", HTTP_COOKIE="a=planted-cookie")
handler = WSGIHandler()
response = handler.get_response(request)
try:
    planted_local = "planted-local"
    raise ValueError("went wrong\\nDETAIL:  Failing row contains (planted-row).")
except ValueError:
    import logging
    logging.getLogger("concord").exception("planted %s", "error")
if "sentry_sdk" in sys.modules:
    import sentry_sdk
    sentry_sdk.flush(10)
from apps.common.observability import flush
flush()
print(response.status_code, "sentry_sdk" in sys.modules, "opentelemetry.sdk.trace" in sys.modules)
"""


class Heard(BaseHTTPRequestHandler):
    bodies: list[tuple[str, bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.bodies.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[str]:
    Heard.bodies = []
    server = HTTPServer(("127.0.0.1", 0), Heard)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def run(**environment: str) -> str:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=settings.BASE_DIR,
        env=os.environ | {"DATABASE_URL": "postgresql:///none"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_errors_reach_sentry_without_what_is_private(listener: str) -> None:
    assert run(SENTRY_DSN=f"http://public@{listener}/1").split()[1] == "True"
    sent = b"".join(body for _, body in Heard.bodies)
    assert b"went wrong" in sent
    assert b"ValueError" in sent
    for planted in (b"planted-query", b"planted-cookie", b"planted-local", b"planted-row"):
        assert planted not in sent, planted


def test_requests_become_spans_named_by_their_page(listener: str) -> None:
    assert run(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{listener}").split()[2] == "True"
    sent = [body for path, body in Heard.bodies if path == "/v1/traces"]
    assert sent
    assert b"http.response.status_code" in b"".join(sent)
    for planted in (b"planted-query", b"planted-cookie", b"livez?"):
        assert planted not in b"".join(sent)


def test_without_an_address_neither_is_loaded() -> None:
    assert run().split() == ["200", "False", "False"]


def test_an_event_keeps_the_error_alone() -> None:
    event = {
        "request": {"url": "https://host/invitations/token/", "query_string": "a"},
        "user": {"ip_address": "192.0.2.1"},
        "exception": {"values": [{"value": "x\nDETAIL: Key (email)=(a@b) exists."}]},
        "logentry": {"message": "Bearer abcdefghijkl", "params": ["a@b"]},
    }
    kept = observability.sentry_event(event)
    assert set(kept) == {"exception", "logentry"}
    assert "a@b" not in str(kept)
    assert "abcdefghijkl" not in str(kept)
