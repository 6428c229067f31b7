"""The audit log for somebody outside: as lines that prove themselves, and to a syslog server.

A line is an event of the chain as JSON: what is hashed (`hashed`), the hash before and after it,
and the texts with their salts, as far as no erasure took them. Whoever has the lines can compute
every hash again without this site (`lines_verify`, docs/personal-data.md#the-file).
"""

import json
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.db import transaction

from apps.accounts.models import AuditCursor, AuditEvent, AuditLink, User
from apps.accounts.services.audit import audit_record
from apps.accounts.services.audit_chain import ERASED, FIRST, fits, hashed, line_sha256
from apps.common.errors import Unavailable

_READ = 1_000
SYSLOG = "syslog"  # the name of its cursor
MOST = 20_000  # events of one delivery
UDP_BYTES = 60_000  # what a datagram takes
PRIORITY = 13 * 8 + 5  # facility "log audit", severity "notice"
SECONDS = 10.0  # to connect, and for each send
Line = dict[str, Any]


def audit_jsonl(*, by: User | None, after: int = 0) -> Iterator[bytes]:
    """Every sealed event beyond a position of the chain, in its order; the export is an event."""
    n = AuditLink.objects.filter(position__gt=after).count()
    audit_record(action="audit.exported", actor=by, details={"events": n, "after": after})
    return (_text(line) + b"\n" for line in audit_chain_lines(after=after))


def audit_chain_lines(*, after: int = 0) -> Iterator[Line]:
    known = AuditLink.objects.filter(position=after).first()
    before = known.sha256 if known else FIRST
    while part := list(AuditLink.objects.filter(position__gt=after).order_by("position")[:_READ]):
        events = AuditEvent.objects.in_bulk([link.event for link in part])
        for link in part:
            event = events.get(link.event)
            yield {
                "position": link.position,
                "before": before,
                "sha256": link.sha256,
                "hashed": hashed(event) if event else None,
                "values": event.values if event else {},
                "salts": event.salts if event else {},
                "erased_by": event.erased_by if event else None,
            }
            before, after = link.sha256, link.position


def _text(line: Line) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def lines_verify(lines: Iterable[bytes]) -> tuple[int, list[str]]:
    """(how many lines, what is wrong with which), from the file alone. Texts may be gone where an
    erasure that stands in the file too took them."""
    wrong, n, last = [], 0, None
    erasures: set[int] = set()
    erased: list[tuple[int, dict[str, Any], int | None]] = []
    for n, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            said, position = line["hashed"], line["position"]
            if last is not None and (position, line["before"]) != (last[0] + 1, last[1]):
                wrong.append(f"line {n}: it does not follow the line before")
            elif position == 1 and line["before"] != FIRST:
                wrong.append(f"line {n}: it is not where a chain begins")
            if said is None:
                wrong.append(f"line {n}: the event was deleted")
            elif line_sha256(line["before"], said) != line["sha256"]:
                wrong.append(f"line {n}: event {said['id']} is not what was sealed")
            elif not (whole := fits(said["sealed"], line["values"], line["salts"])):
                if whole is None:
                    erased.append((n, said, line["erased_by"]))
                else:
                    wrong.append(f"line {n}: a text of event {said['id']} is not what was sealed")
            elif said["action"] in ERASED:
                erasures.add(said["id"])
            last = position, line["sha256"]
        except (ValueError, KeyError, TypeError, AttributeError):
            wrong.append(f"line {n}: it cannot be read")
    wrong += [
        f"line {n}: texts of event {said['id']} are gone, and no erasure in the file took them"
        for n, said, by in erased
        if by not in erasures
    ]
    return n, wrong


# --- to a syslog server ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Syslog:
    """Where to: `udp://host:514`, `tcp://host:601` or `unix:///dev/log`."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> "Syslog":
        """Of the setting, which was checked at start."""
        parts = urlsplit(url)
        ports = {"udp": 514, "tcp": 601, "unix": 0}
        port = parts.port or ports[parts.scheme]
        return cls(parts.scheme, parts.hostname or "", port, unquote(parts.path))

    def connect(self) -> socket.socket:
        if self.scheme == "unix":
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            made.settimeout(SECONDS)
            made.connect(self.path)
            return made
        if self.scheme == "tcp":
            return socket.create_connection((self.host, self.port), timeout=SECONDS)
        kind = socket.SOCK_DGRAM
        family, *_, address = socket.getaddrinfo(self.host, self.port, type=kind)[0]
        made = socket.socket(family, kind)
        made.settimeout(SECONDS)
        made.connect(address)
        return made

    def framed(self, message: bytes) -> bytes:
        """RFC 6587: on a stream each message says its length first."""
        return b"%d %s" % (len(message), message) if self.scheme == "tcp" else message


def syslog_message(line: Line) -> bytes:
    """RFC 5424. The message is the line of the export; its texts are left out where a datagram
    would be too long."""
    said = line["hashed"] or {}
    host = urlsplit(settings.SITE_URL).hostname or "-"
    head = f"<{PRIORITY}>1 {said.get('at', '-')} {host} concord - {said.get('action', '-')[:32]} - "
    text = _text(line)
    if len(text) > UDP_BYTES:
        text = _text(line | {"values": {}, "salts": {}, "cut": True})
    return head.encode() + b"\xef\xbb\xbf" + text


def audit_forward() -> int:
    """Sends what the chain has beyond the cursor; returns how many events. What could not be sent
    is sent next time: an event may come twice, and none is left out while TCP says what arrived.
    Raises `Unavailable` where nobody takes them; then the cursor stands where it stood."""
    if not settings.AUDIT_SYSLOG:
        return 0
    to = Syslog.of(settings.AUDIT_SYSLOG)
    with transaction.atomic():
        AuditCursor.objects.get_or_create(name=SYSLOG)
        cursor = AuditCursor.objects.select_for_update(skip_locked=True).filter(name=SYSLOG).first()
        if cursor is None:  # another worker is at it
            return 0
        n = 0
        try:
            for part in _parts(cursor.position):
                with to.connect() as there:
                    for line in part:
                        there.sendall(to.framed(syslog_message(line)))
                cursor.position, n = part[-1]["position"], n + len(part)
        except OSError as error:
            if n == 0:
                raise Unavailable(
                    f"The syslog server at {settings.AUDIT_SYSLOG} does not take events: {error}.",
                    code="syslog_unavailable",
                ) from error
        cursor.save(update_fields=["position"])
    return n


def _parts(after: int) -> Iterator[list[Line]]:
    part: list[Line] = []
    for n, line in enumerate(audit_chain_lines(after=after), start=1):
        part.append(line)
        if len(part) == _READ or n == MOST:
            yield part
            part = []
        if n == MOST:
            return
    if part:
        yield part
