"""The shipped nginx configuration in front of a running web server."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.urls import NoReverseMatch, reverse

from apps.common import registry
from apps.common.processes import stream_program

CONFIGURATION = Path(settings.BASE_DIR) / "docker/nginx/concord.conf.template"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(argv: list[str], port: int, **environment: str) -> Iterator[None]:
    process = subprocess.Popen(
        argv,
        env=os.environ | environment,
        cwd=settings.BASE_DIR,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert process.poll() is None, f"{argv[0]} ended at once"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)


def filled_in(**values: str) -> str:
    """The template as envsubst fills it in; a variable without a value, or one too many, is an
    error."""
    text = CONFIGURATION.read_text()
    text = text[text.index("upstream concord {") :]  # the comment above shows its variables
    assert set(re.findall(r"\$\{(\w+)\}", text)) == set(values)
    return re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], text)


def as_shipped(folder: Path, *, port: int, upstream: int, streams: int) -> str:
    """The configuration without certificates, on a port of the test, with a short patience."""
    text = filled_in(
        CONCORD_HOST="concord.example.org",
        CONCORD_WEB=f"127.0.0.1:{upstream}",
        CONCORD_STREAMS=f"127.0.0.1:{streams}",
        CONCORD_HTTP="80",
        CONCORD_HTTPS="443",
        CONCORD_TLS=str(folder),
        CONCORD_UPLOAD_MB="201",
        CONCORD_MONITORING="127.0.0.1",
    )
    text = re.sub(r".*(listen \[::\]|# plain|ssl_).*\n", "", text)
    text = re.sub(r"listen 443 .*", f"listen 127.0.0.1:{port};", text)
    text = re.sub(r"server \{\s+server_name.*?return 301.*?\n\}", "", text, flags=re.S)
    assert "client_header_timeout 10s;" in text
    text = text.replace("client_header_timeout 10s;", "client_header_timeout 1s;")
    # nginx of root starts workers of another person, who may not write into a test's folder.
    user = "user root;" if os.geteuid() == 0 else ""
    places = "".join(
        f"{name}_temp_path {folder};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"{user} daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;"
        "worker_processes 1; events { worker_connections 1024; }"
        f"http {{ access_log off; {places}\n{text}\n}}"
    )


def stream_argv(port: int) -> tuple[str, ...]:
    """As `manage.py up` starts event streams, on this port."""
    argv = list(stream_program(log_level="INFO", environment={}).argv)
    argv[argv.index("--port") + 1] = str(port)
    return tuple(argv)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of nginx; behind it a web server of four threads in one process."""
    if NGINX is None:
        if os.environ.get("CI"):
            pytest.fail("nginx is not installed: .ci/run installs Debian's nginx-light")
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    folder = tmp_path_factory.mktemp("nginx")
    port, upstream, streams = free_port(), free_port(), free_port()
    text = as_shipped(folder, port=port, upstream=upstream, streams=streams)
    (folder / "nginx.conf").write_text(text)
    web = [
        sys.executable,
        "-m",
        "config.web",
        "--interface",
        "wsgi",
        "config.wsgi:application",
        "--host",
        "127.0.0.1",
        "--port",
        str(upstream),
        "--workers",
        "1",
        "--blocking-threads",
        "4",
        "--no-ws",
    ]
    proxy = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    behind = {"DEBUG": "1", "BEHIND_PROXY": "1", "STREAM_PORT": str(streams)}
    with (
        running(web, upstream, **behind),
        running(list(stream_argv(streams)), streams, **behind),
        running(proxy, port),
    ):
        yield port


def status_of(port: int, path: str, *, method: str = "GET", **headers: str) -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", method=method, headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def sent(port: int, head: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 30)
    connection.sendall(head.encode())
    return connection


def head_of(path: str, length: int) -> str:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
        f"Cookie: concord_csrf_8000={'a' * 32}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    )


def test_forty_slow_bodies_stop_no_page(site):
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            slow = stack.enter_context(sent(site, head_of("/sign-in/", 4000)))
            slow.sendall(b"a")
        for _ in range(5):
            assert status_of(site, "/sign-in/") == 200


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        ("/sign-in/", 400_000_000, b"413"),
        ("/p/arguments/people/add/", 30_000_000, b"413"),
        ("/p/arguments/imports/", 300_000_000, b"413"),
        ("/api/v1/projects/arguments/imports", 300_000_000, b"413"),
    ],
)
def test_a_body_too_large_is_refused_before_it_is_sent(site, path, length, status):
    with sent(site, head_of(path, length)) as connection:
        assert status in connection.recv(100).split(b"\r\n")[0]


def test_a_head_that_does_not_arrive_is_cut(site):
    with sent(site, "GET /sign-in/ HTTP/1.1\r\nHost: local") as connection:
        try:
            answer = connection.recv(100)  # ends after client_header_timeout; else times out here
        except ConnectionResetError:
            answer = b""
    assert answer == b"" or b"408" in answer


def test_head_has_no_body_and_pages_pass(site):
    with sent(site, "HEAD /sign-in/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") as c:
        answer = b"".join(iter(lambda: c.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")
    assert status_of(site, "/static/css/base.css") == 200


def test_streams_have_a_process_of_their_own_and_the_page_beside_them_does_not(site):
    assert (
        status_of(site, "/p/arguments/runs/any/stream") == 401
    )  # a page would lead to the sign-in
    assert status_of(site, "/p/arguments/runs/any/") == 200  # the sign-in page
    assert status_of(site, "/p/arguments/runs/any/stream/more") == 404


def test_every_stream_address_is_led_to_the_streams():
    pattern = re.search(r"location ~ (\S+stream\$)", CONFIGURATION.read_text())[1]
    assert re.search(pattern, reverse("training:run_stream", args=["some-project", "some-id"]))


def test_forwarded_addresses_are_set_and_never_appended():
    text = CONFIGURATION.read_text()
    assert re.search(r"X-Forwarded-For\s+\$remote_addr;", text)
    assert "$proxy_add_x_forwarded_for" not in text


def test_every_upload_address_has_the_larger_limit():
    pattern = re.search(r"location ~ (\^/\(p/\S+)", CONFIGURATION.read_text())[1]
    for name in registry.upload_names():
        assert re.search(pattern, address_of(name)), name


def address_of(name: str) -> str:
    """The address of a page or an operation of a project, or of something that it holds."""
    for arguments in (["some-project"], ["some-project", "some-id"]):
        with contextlib.suppress(NoReverseMatch):
            return reverse(name, args=arguments)
    return pytest.fail(f"{name} takes more than a project and the id of something in it")
