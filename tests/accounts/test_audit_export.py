"""The audit log leaves the site: as a file that proves itself, and to a real syslog socket."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditCursor, AuditEvent, AuditLink, Project, User
from apps.accounts.services import audit_record, people, person_erase, token_create
from apps.accounts.services.audit_chain import SETTLED, audit_seal
from apps.accounts.services.audit_export import audit_forward, audit_jsonl, lines_verify
from apps.common.environment import BadEnvironment, syslog
from apps.common.errors import Unavailable
from tests.accounts.second_factors import stale


@pytest.fixture(autouse=True)
def _artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = tmp_path.as_uri()


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create_user("boss", password="x", is_superuser=True)


@pytest.fixture
def sealed(project: Project, ada: User) -> int:
    for n in range(4):
        audit_record(action="test.done", actor=ada, project=project, details={"n": n, "why": "ü"})
    return audit_seal(now=timezone.now() + SETTLED + timedelta(seconds=1))


def lines_of(answer: Any) -> list[bytes]:
    return b"".join(answer.streaming_content).splitlines()


# --- the file -------------------------------------------------------------------------------------


def test_the_file_is_verified_without_the_database(
    sealed: int, boss: User, signed_in: Any, tmp_path: Path
) -> None:
    lines = lines_of(signed_in(boss).get("/site/audit-log.jsonl"))
    assert lines_verify(lines) == (sealed, [])
    assert AuditEvent.objects.filter(action="audit.exported", actor=boss).count() == 1
    path = tmp_path / "log.jsonl"
    call_command("audit_export", str(path))
    assert path.read_bytes().splitlines() == lines
    call_command("audit_verify", file=str(path))
    path.write_bytes(path.read_bytes().replace(b'"why": "', b'"why":"').replace("ü".encode(), b"u"))
    with pytest.raises(CommandError, match="things"):
        call_command("audit_verify", file=str(path))


@pytest.mark.parametrize(
    ("number", "change", "found"),
    [
        (1, lambda line: line["values"].update({"details.n": 9}), "a text"),
        (1, lambda line: line["hashed"].update(actor=None), "is not what was sealed"),
        (1, lambda line: line.update(hashed=None), "was deleted"),
        (2, lambda line: line.update(before="0" * 64), "does not follow"),
        (0, lambda line: line.update(before="1" * 64), "not where a chain begins"),
        (1, lambda line: line.update(salts={}, values={}), "a text"),
    ],
)
def test_a_changed_line_is_named(
    number: int, change: Any, found: str, sealed: int, boss: User
) -> None:
    lines = [json.loads(text) for text in audit_jsonl(by=boss)]
    change(lines[number])
    _, wrong = lines_verify(json.dumps(line).encode() for line in lines)
    assert wrong[0].startswith(f"line {number + 1}: ")
    assert found in wrong[0]
    assert lines_verify([b"[]", b"no"])[1] == [
        "line 1: it cannot be read",
        "line 2: it cannot be read",
    ]


def test_texts_may_be_gone_where_an_erasure_in_the_file_took_them(
    boss: User, ana: User, emil: User
) -> None:
    audit_record(action="test.done", actor=boss, subject=ana, details={"address": "203.0.113.9"})
    named = audit_record(action="test.done", actor=boss, subject="ana@example.org")
    person_erase(user=ana, by=boss, votes="keep", remarks="keep")
    audit_seal(now=timezone.now() + SETTLED + timedelta(seconds=1))
    lines = [json.loads(text) for text in audit_jsonl(by=boss)]
    assert [one["hashed"]["id"] for one in lines if one["erased_by"]][-1:] == [named.pk]
    texts = [json.dumps(line).encode() for line in lines]
    assert lines_verify(texts)[1] == []
    at = next(n for n, one in enumerate(lines) if one["hashed"]["id"] == named.pk)
    other = dict(lines[at]) | {"erased_by": named.pk}
    forged = [*texts[:at], json.dumps(other).encode(), *texts[at + 1 :]]
    assert lines_verify(forged)[1] == [
        f"line {at + 1}: texts of event {named.pk} are gone, and no erasure in the file took them"
    ]


@pytest.mark.usefixtures("fresh_sign_in_counts")
def test_the_log_is_only_given_to_a_browser_that_signed_in_just_now(
    sealed: int, boss: User, client: Client
) -> None:
    client.force_login(boss)
    stale(client)
    assert client.get("/site/audit-log.jsonl").status_code == 302
    said = client.get("/api/v1/audit-log")
    assert (said.status_code, said.json()["code"]) == (403, "sign_in_again")


def test_a_line_that_is_left_out_is_noticed(sealed: int, boss: User) -> None:
    lines = list(audit_jsonl(by=boss))
    assert lines_verify(lines[:1] + lines[2:])[1] == ["line 2: it does not follow the line before"]


def test_programs_of_administrators_read_on_from_where_they_were(
    sealed: int, boss: User, ada: User
) -> None:
    def asked(user: User, after: int) -> Any:
        _, token = token_create(user=user, name="log", scopes=["admin"], days=1)
        return Client().get(
            f"/api/v1/audit-log?after={after}", headers={"authorization": f"Bearer {token}"}
        )

    assert asked(ada, 0).status_code == 403
    assert [json.loads(line)["position"] for line in lines_of(asked(boss, 2))] == [
        *range(3, sealed + 1)
    ]


# --- syslog ---------------------------------------------------------------------------------------

RFC_5424 = re.compile(
    rb"<109>1 \d{4}-\d\d-\d\dT[\d:.]+\+00:00 127\.0\.0\.1 concord - [\w.]+ - \xef\xbb\xbf(\{.*\})"
)


def received(messages: list[bytes]) -> list[dict[str, Any]]:
    found = []
    for message in messages:
        match = RFC_5424.fullmatch(message)
        assert match, message
        found.append(json.loads(match[1]))
    return found


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(20)
        yield made


def test_events_arrive_by_udp_once_and_in_order(
    sealed: int, udp: socket.socket, settings: Settings
) -> None:
    settings.SITE_URL = "http://127.0.0.1:8000"
    settings.AUDIT_SYSLOG = f"udp://127.0.0.1:{udp.getsockname()[1]}"
    assert audit_forward() == sealed
    said = received([udp.recv(70_000) for _ in range(sealed)])
    assert [line["position"] for line in said] == [*range(1, sealed + 1)]
    assert lines_verify(json.dumps(line).encode() for line in said) == (sealed, [])
    assert audit_forward() == 0


def test_events_arrive_at_a_unix_socket(
    sealed: int, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SITE_URL = "http://127.0.0.1:8000"
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind("log")
        there.settimeout(20)
        settings.AUDIT_SYSLOG = f"unix://{tmp_path}/log"
        with suppress(OSError):
            assert audit_forward() == sealed
        assert len(received([there.recv(70_000) for _ in range(sealed)])) == sealed


def test_nothing_is_lost_while_the_server_is_away(sealed: int, settings: Settings) -> None:
    settings.SITE_URL = "http://127.0.0.1:8000"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings.AUDIT_SYSLOG = f"tcp://127.0.0.1:{port}"
    with pytest.raises(Unavailable, match="does not take events"):
        audit_forward()
    assert not AuditCursor.objects.filter(position__gt=0).exists()
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.AUDIT_SYSLOG = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert audit_forward() == sealed  # the kernel takes what fits its buffer
        there, _ = server.accept()
        with there:
            there.settimeout(20)
            data = b""
            while part := there.recv(65_536):
                data += part
    messages = []
    while data:
        length, _, rest = data.partition(b" ")
        messages.append(rest[: int(length)])
        data = rest[int(length) :]
    assert len(received(messages)) == sealed
    assert AuditCursor.objects.get().position == AuditLink.objects.count()


def test_a_long_event_is_a_datagram_without_its_texts(
    ada: User, udp: socket.socket, settings: Settings
) -> None:
    settings.SITE_URL = "http://127.0.0.1:8000"
    audit_record(action="test.long", actor=ada, details={"why": "x" * 70_000})
    n = audit_seal(now=timezone.now() + SETTLED + timedelta(seconds=1))
    settings.AUDIT_SYSLOG = f"udp://127.0.0.1:{udp.getsockname()[1]}"
    assert audit_forward() == n
    [*_, last] = received([udp.recv(70_000) for _ in range(n)])
    assert (last["cut"], last["values"], last["hashed"]["action"]) == (True, {}, "test.long")


@pytest.mark.parametrize("value", ["log.example.org", "http://x:1", "udp://", "unix:", "tcp://h:x"])
def test_an_address_that_is_none_stops_the_start(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDIT_SYSLOG", value)
    with pytest.raises(BadEnvironment, match="AUDIT_SYSLOG"):
        syslog("AUDIT_SYSLOG")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh_sign_in_counts")
def test_who_is_refused_is_recorded_with_what_and_why(
    project: Project, ana: User, olga: User, signed_in: Any
) -> None:
    client = signed_in(ana)
    for _ in range(7):
        assert client.get("/p/arguments/people/").status_code == 403
    assert signed_in(olga).get("/p/arguments/people/").status_code == 404
    Client().get("/api/v1/me", headers={"authorization": "Bearer ccd_no"})
    events = AuditEvent.objects.filter(action="access.refused").order_by("pk")
    assert [(one.actor, one.project, one.details["times"]) for one in events] == [
        (ana, project, 1),
        (ana, project, 5),
        (olga, project, 1),
        (None, None, 1),
    ]
    assert events[0].details["what"] == "GET accounts:people"
    assert (events[2].details["status"], events[2].details["reason"]) == (404, "outsider")
    assert "127.0.0.1" not in json.dumps([one.sealed for one in events])


@pytest.mark.usefixtures("fresh_sign_in_counts")
def test_refusals_do_not_fill_the_log(project: Project, ana: User) -> None:
    for number in range(people.MOST_FAILURES_RECORDED + 50):
        people.access_refused(
            person=ana,
            project=project,
            what=f"GET {number}",
            status=403,
            reason="role",
            address="203.0.113.5",
        )
    refused = AuditEvent.objects.filter(action="access.refused")
    assert refused.count() == people.MOST_FAILURES_RECORDED


def test_a_changed_profile_is_recorded_without_its_values(
    project: Project, ana: User, signed_in: Any
) -> None:
    signed_in(ana).post(
        "/account/profile/",
        {"display_name": "Ana K.", "email": "a@example.org", "language": "", "time_zone": ""},
    )
    event = AuditEvent.objects.get(action="user.profile_changed")
    assert event.details == {"fields": "display_name, email"}
