"""What is refused before a body is read, and how."""

import errno
from datetime import UTC, datetime, timedelta
from math import inf, nan

import psycopg
import pytest
from django.db import InternalError, OperationalError, connection, transaction
from django.test import Client, RequestFactory
from django.urls import get_resolver
from django.utils import timezone

from apps.common import front, numbers, registry
from apps.common.refusals import explain
from apps.common.templatetags import frame
from workers.artifacts import StoreUnreachable

pytestmark = pytest.mark.django_db
BOUNDARY = "multipart/form-data; boundary=b"


class Unread:
    """A body that must not be read."""

    def read(self, *_):
        raise AssertionError("the body was read")

    readline = read


def post(path: str, *, length: int | None, client: Client, **more: str):
    sent = {"wsgi.input": Unread(), "CONTENT_LENGTH": "" if length is None else str(length)}
    return client.generic("POST", path, content_type=BOUNDARY, **(more | sent))


def test_a_stranger_s_400_megabytes_to_the_sign_in_page_are_refused_unread(client):
    strict = Client(enforce_csrf_checks=True)
    strict.cookies["concord_csrf_8000"] = "a" * 32
    answer = post("/sign-in/", length=400_000_000, client=strict)
    assert answer.status_code == 413
    assert b"too_large" in answer.content


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        ("/p/arguments/people/invite/", 21 * 2**20, 413),
        ("/p/arguments/imports/", 202 * 2**20, 413),
        ("/api/v1/projects/arguments/imports", 202 * 2**20, 413),
        ("/api/v1/projects/arguments/votes/import", 21 * 2**20, 413),
    ],
)
def test_a_signed_in_body_is_measured_by_its_address(path, length, status, emil, signed_in):
    answer = post(path, length=length, client=signed_in(emil))
    assert answer.status_code == status
    if path.startswith("/api"):
        assert answer.json()["code"] == "too_large"


def test_an_upload_may_be_larger_than_a_form(emil, signed_in):
    client = signed_in(emil)
    client.raise_request_exception = False
    assert post("/p/arguments/imports/", length=100 * 2**20, client=client).status_code != 413


def test_a_bearer_header_makes_no_page_accept_more(client):
    answer = post("/sign-in/", length=10**6, client=client, HTTP_AUTHORIZATION="Bearer ccd_x")
    assert answer.status_code == 413


def test_chunks_without_a_length_are_refused(client, emil, signed_in):
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked"}
    assert post("/sign-in/", length=None, client=client, **chunked).status_code == 411
    answer = post(
        "/api/v1/projects/arguments/imports", length=None, client=signed_in(emil), **chunked
    )
    assert (answer.status_code, answer.json()["code"]) == (411, "length_required")


@pytest.mark.parametrize(
    "path",
    [
        "/p/arguments/people/?q=a%00b",
        "/p/arguments/audit-log/?q=%00",
        "/p/arguments/runs/?q=%00",
        "/p/arguments/models/?q=%00",
        "/p/arguments/runs/new/?from=%00",
        "/p/arguments/monitoring/playbook/?run=%00",
        "/api/v1/projects/arguments/runs?q=%00",
    ],
)
def test_a_nul_in_a_query_is_a_400(path, ada, signed_in):
    answer = signed_in(ada).get(path)
    assert answer.status_code == 400
    assert b"nul_character" in answer.content


def test_a_nul_in_a_path_leads_nowhere(ada, signed_in):
    assert signed_in(ada).get("/p/a%00b/people/").status_code == 404


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"x"),
        (BOUNDARY, b'--b\r\nContent-Disposition: form-data; name="a"\r\n' + b"h: x\r\n" * 99_999),
        (BOUNDARY, b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n' * 1_100),
        (
            BOUNDARY,
            b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nx\r\n' * 110,
        ),
    ],
    ids=["no boundary", "long header", "many fields", "many files"],
)
@pytest.mark.parametrize("path", ["/api/v1/projects/arguments/imports", "/p/arguments/imports/"])
def test_a_form_that_cannot_be_taken_apart_is_no_fault_of_ours(
    path, content_type, body, emil, signed_in
):
    client = signed_in(emil)
    client.raise_request_exception = False
    answer = client.post(path, body, content_type=content_type)
    assert answer.status_code in {400, 413, 422}
    if path.startswith("/api"):
        assert answer.json()["code"] != "internal"


def test_a_full_disk_is_a_503_that_says_so(ana, signed_in, monkeypatch):
    from apps.accounts.views import account

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(account, "tokens_of", full)
    answer = signed_in(ana).get("/account/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert b"disk_full" in answer.content


def test_a_full_disk_outside_a_view_is_a_503_too(ana, signed_in, monkeypatch):
    from django.contrib.messages.middleware import MessageMiddleware

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(MessageMiddleware, "process_request", full)
    client = signed_in(ana)
    client.raise_request_exception = False
    assert client.get("/account/").status_code == 503


def test_what_the_database_refuses_for_want_of_room_or_rest_is_named():
    from psycopg.errors import DiskFull

    error = OperationalError("no space")
    assert explain(error).code == "database_unavailable"
    error.__cause__ = DiskFull("no space")
    assert explain(error).code == "disk_full"
    # The first is what psycopg says of a session that was killed while it answered.
    cut = InternalError("received 2 results from command 'FETCH FORWARD 5000'")
    cut.__cause__ = psycopg.InternalError(str(cut))
    assert explain(cut).code == "database_unavailable"
    cut.__cause__ = psycopg.errors.InFailedSqlTransaction("current transaction is aborted")
    assert explain(cut) is None
    assert explain(StoreUnreachable("the artifact store failed")).code == "store_unavailable"
    assert explain(RuntimeError("ours")) is None
    # COPY raises psycopg's errors as they are.
    assert explain(DiskFull("no space")).code == "disk_full"
    assert explain(psycopg.OperationalError("gone")).code == "database_unavailable"
    assert explain(psycopg.errors.InFailedSqlTransaction("aborted")) is None


@pytest.mark.django_db
def test_a_copy_that_takes_too_long_is_refused_like_any_statement():
    def copied() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("set local statement_timeout = '50ms'")
            with cursor.copy("copy (select pg_sleep(20)) to stdout") as copy:
                list(copy)

    with pytest.raises(psycopg.errors.QueryCanceled) as raised:
        copied()
    assert explain(raised.value).code == "statement_too_long"


def test_addresses_with_room_of_their_own_exist():
    names = set()

    def walk(resolver, prefix=""):
        for pattern in resolver.url_patterns:
            if hasattr(pattern, "url_patterns"):
                space = f"{prefix}{pattern.namespace}:" if pattern.namespace else prefix
                walk(pattern, space)
            else:
                names.add(f"{prefix}{pattern.name}")

    walk(get_resolver())
    special = registry.voting_names() | registry.upload_names() | registry.self_limited_names()
    assert special | registry.heavy_names() <= names


@pytest.mark.parametrize("method", ["TRACE", "TRACK"])
def test_no_request_is_sent_back_by_trace(method, client):
    answer = client.generic(method, "/sign-in/", headers={"authorization": "Bearer secret"})
    assert answer.status_code == 405
    assert not answer.content
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_pages_lead_to_https_and_the_api_says_that_it_does_not(settings):
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_HSTS_SECONDS = 31_536_000
    page = Client().get("/sign-in/")
    assert (page.status_code, page.url[:8]) == (301, "https://")
    plain = Client().get("/api/v1/me", headers={"authorization": "Bearer concord_x"})
    assert (plain.status_code, plain.json()["code"]) == (403, "https_required")
    assert Client().get("/api/v1/me", secure=True).status_code == 401


def test_a_refusal_before_everything_carries_the_headers_of_every_answer(settings):
    settings.SECURE_HSTS_SECONDS = 31_536_000
    request = RequestFactory().get("/", secure=True)
    answer = front.refused_for_now(request, "flood", front.too_many)
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Strict-Transport-Security"].startswith("max-age=31536000")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Retry-After"]


def test_forwarded_headers_of_strangers_are_dropped(settings):
    from ipaddress import ip_network

    seen = {}

    def view(request):
        from django.http import HttpResponse

        from apps.common.http import client_address

        seen.update(address=client_address(request), secure=request.is_secure())
        return HttpResponse()

    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.0/8")]
    sent = {
        "HTTP_X_FORWARDED_FOR": "1.1.1.1, 203.0.113.9, 10.0.0.7",
        "HTTP_X_FORWARDED_PROTO": "https",
    }
    edge = front.EdgeMiddleware(view)
    edge(RequestFactory().get("/", REMOTE_ADDR="198.51.100.2", **sent))
    assert seen == {"address": "198.51.100.2", "secure": False}
    edge(RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", **sent))
    assert seen == {"address": "203.0.113.9", "secure": True}


def test_every_address_that_answers_get_answers_head(ada, signed_in):
    client = signed_in(ada)
    for path in ("/account/", "/p/arguments/people/", "/p/arguments/runs/", "/api/v1/me"):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (200, b""), path


def test_no_view_refuses_head_where_it_answers_get():
    from pathlib import Path

    from django.conf import settings

    for path in (Path(settings.BASE_DIR) / "apps").rglob("*.py"):
        text = path.read_text()
        assert "require_GET" not in text, path
        assert 'require_http_methods(["GET", "POST"])' not in text, path


# Times, durations, sizes and figures in words.


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.7131, "0.713"),
        (1.0, "1.00"),
        (12.345, "12.3"),
        (-0.5, "−0.500"),
        (-0.0000312, "−3.1e-05"),
        (-12, "−12"),
        (0.0, "0.000"),
        (0.001854, "0.00185"),
        (0.0000312, "3.1e-05"),
        (1204.4, "1,204"),
        (10967, "10,967"),
        (nan, "not a number"),
        (inf, "∞"),
        (None, "—"),
        ("soft", "soft"),
        (True, "True"),
    ],
)
def test_a_figure_keeps_what_was_measured_and_no_more(value, words):
    assert numbers.figure(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.00438, "0.004"),
        (-0.0621, "−0.062"),
        (-0.0001, "0.000"),
        (None, "—"),
        (nan, "not a number"),
    ],
)
def test_numbers_that_stand_in_a_column_align_on_the_point(value, words):
    assert numbers.fixed(value) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (48, "48 s"),
        (90, "1 min 30 s"),
        (720, "12 min"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
        (None, "—"),
    ],
)
def test_a_duration_is_said_as_people_say_it(seconds, words):
    assert numbers.duration(seconds) == words


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(seconds=2), "just now"),
        (timedelta(seconds=45), "45 s ago"),
        (timedelta(minutes=4), "4 min ago"),
        (timedelta(hours=5), "5 h ago"),
        (timedelta(days=3), "3 d ago"),
        (timedelta(hours=-2, minutes=-1), "in 2 h"),
    ],
)
def test_a_time_is_relative_with_the_exact_one_on_hover(age, words):
    at = timezone.now() - age
    text = frame.ago(at)
    assert f">{words}</time>" in text
    assert f"{at:%Y-%m-%d %H:%M:%S}" in text


def test_an_old_time_is_a_date():
    assert ">1 Mar 2020</time>" in frame.ago(datetime(2020, 3, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (999, "999 B"), (14_200, "14.2 kB"), (3_100_000, "3.1 MB")]
)
def test_a_size_has_its_unit(size, words):
    assert numbers.filesize(size) == words
