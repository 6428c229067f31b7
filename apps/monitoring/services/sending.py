"""Posting a signed message to an address that somebody typed in.

The address could be anything, so the guard is strict: http or https only, a name is resolved first
and every address it has must be public, the connection goes to an address that was checked (a name
that changes its mind in between leads nowhere else), redirects are not followed, the answer is read
up to a limit, and all of it has a deadline. `WEBHOOK_HOSTS` lists the hosts that may be private.
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import json
import logging
import secrets
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from smtplib import SMTPException
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

# Sending beside the tasks, not in them.
#
# The default queue shares its one process with the events of all trainers, and a receiver that does
# not answer costs seconds. So the task only wakes a thread of its process, which sends until
# nothing is due. If the process ends meanwhile, what the thread had claimed is due again after its
# lease.

log = logging.getLogger(__name__)


CONNECT_SECONDS = 5.0  # of each wait for the other side
TOTAL_SECONDS = 10.0
MOST_SENT = 64 * 1024
MOST_READ = 16 * 1024
AGENT = "Concord-Webhook/1"
PREFIX = "whsec_"
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class SendError(Exception):
    """Nothing was taken. `final`: trying again would not help; `gone`: the receiver wants nothing
    more."""

    def __init__(self, message: str, *, final: bool = False, gone: bool = False) -> None:
        super().__init__(message)
        self.final = final
        self.gone = gone


@dataclass(frozen=True, slots=True)
class Address:
    """Where to post; `host` as it was typed, without brackets."""

    scheme: str
    host: str
    port: int
    path: str
    header: str  # Host, as it was typed


def address_of(url: str) -> Address:
    """Take an address apart. Raises `SendError`, final, with what is wrong with it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise SendError("This is no address of a webhook.", final=True) from None
    if parts.scheme not in ("http", "https"):
        raise SendError("The address must begin with https:// or http://.", final=True)
    if not parts.hostname:
        raise SendError("The address names no host.", final=True)
    if parts.username is not None or parts.password is not None:
        raise SendError(
            "The address must hold no name or password: messages are signed.", final=True
        )
    if any(ord(letter) <= 32 or ord(letter) == 127 for letter in url):
        raise SendError("The address holds a space or a control character.", final=True)
    try:
        host = parts.hostname.encode("idna").decode() if parts.hostname else ""
    except UnicodeError:
        raise SendError("The host's name cannot be resolved.", final=True) from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii():
        raise SendError("Letters beyond ASCII must be percent-encoded.", final=True)
    port = port or (443 if parts.scheme == "https" else 80)
    shown = f"[{host}]" if ":" in host else host
    usual = port == (443 if parts.scheme == "https" else 80)
    return Address(parts.scheme, host, port, path, shown if usual else f"{shown}:{port}")


def checked_address(where: Address) -> str:
    """The IP address to connect to. Raises `SendError`: final where the guard refuses it, to be
    tried again where the name does not resolve now."""
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise SendError("The host's name does not resolve.") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise SendError("The host's name does not resolve.")
    if not _is_allowed(where) and not all(map(_is_public, addresses)):
        raise SendError(
            "The host is inside a private network, and WEBHOOK_HOSTS does not name it.", final=True
        )
    return addresses[0]


def post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Post, or raise `SendError`. Any answer of 200 to 299 is a thank-you."""
    if len(body) > MOST_SENT:
        raise SendError("The message is too long.", final=True)
    where = address_of(url)
    address = checked_address(where)
    connection: http.client.HTTPConnection = (
        _Secure(where, address) if where.scheme == "https" else _Plain(where, address)
    )
    deadline = threading.Timer(TOTAL_SECONDS, _cut, [connection])
    deadline.daemon = True
    deadline.start()
    try:
        connection.request(
            "POST",
            where.path,
            body=body,
            headers={
                "Host": where.header,
                "Content-Type": "application/json",
                "User-Agent": AGENT,
                **headers,
            },
        )
        answer = connection.getresponse()
        answer.read(MOST_READ)
    except TimeoutError:
        raise SendError("The receiver did not answer in time.") from None
    except ssl.SSLCertVerificationError as error:
        raise SendError(f"The certificate is not valid: {error.verify_message}.") from None
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        # AttributeError: the deadline took the socket away while it was read.
        raise SendError(f"The connection failed: {type(error).__name__}.") from None
    finally:
        deadline.cancel()
        connection.close()
    if 300 <= answer.status < 400:
        raise SendError(f"The receiver redirects ({answer.status}); redirects are not followed.")
    if answer.status == http.HTTPStatus.GONE:
        raise SendError("The receiver answered 410: it wants no more.", final=True, gone=True)
    if not 200 <= answer.status < 300:
        raise SendError(f"The receiver answered {answer.status}.")


def secret_make() -> str:
    """32 random bytes in base64, with the prefix of Standard Webhooks."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,` and the HMAC-SHA256 of `id.timestamp.body` in base64, by Standard Webhooks 1.0."""
    key = _key_of(secret)
    mac = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


def _key_of(secret: str) -> bytes:
    """Secrets made before 0.3 may hold letters outside of base64, which are left out as libraries
    do; where none could read the rest, the letters themselves are the key."""
    try:
        return base64.b64decode(secret.removeprefix(PREFIX) + "==")
    except ValueError:
        return secret.encode()


def _signature_before(secret: str, timestamp: int, body: bytes) -> str:
    """`v1=` and the hexadecimal HMAC-SHA256 of `timestamp.body`: for receivers of before 0.3."""
    mac = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1={mac.hexdigest()}"


def signed(
    keys: Sequence[str], *, delivery: str, event: str, body: Any, timestamp: int
) -> tuple[bytes, dict[str, str]]:
    """(body, headers) of a message, signed with each of `keys`: the channel's secret, then the one
    before it while that still counts. The id is that of the delivery, the same at every try."""
    raw = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    message_id = f"msg_{delivery}"
    return raw, {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(key, message_id, timestamp, raw) for key in keys),
        # Until 0.4: what receivers of before 0.3 verify.
        "X-Concord-Delivery": delivery,
        "X-Concord-Event": event,
        "X-Concord-Timestamp": str(timestamp),
        "X-Concord-Signature": _signature_before(keys[0], timestamp, raw),
    }


def _is_allowed(where: Address) -> bool:
    listed = {entry.lower().strip("[]") for entry in settings.WEBHOOK_HOSTS}
    return bool({where.host.lower(), f"{where.host.lower()}:{where.port}"} & listed)


def _is_public(text: str) -> bool:
    """Whether an address lies in the open internet, also when it is wrapped in another one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address.teredo is not None:
            inner = address.teredo[1]
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            address = inner
    return address.is_global and not address.is_multicast and not address.is_reserved


def _cut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


class _Plain(http.client.HTTPConnection):
    """Connects to the address that was checked, whatever the name says by then."""

    def __init__(self, where: Address, address: str) -> None:
        super().__init__(where.host, where.port, timeout=CONNECT_SECONDS)
        self._checked = address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._checked, self.port), CONNECT_SECONDS)


class _Secure(http.client.HTTPSConnection):
    """The same; the certificate must be the name's."""

    def __init__(self, where: Address, address: str) -> None:
        self._context_used = ssl.create_default_context()
        super().__init__(
            where.host, where.port, timeout=CONNECT_SECONDS, context=self._context_used
        )
        self._checked = address

    def connect(self) -> None:
        raw = socket.create_connection((self._checked, self.port), CONNECT_SECONDS)
        self.sock = self._context_used.wrap_socket(raw, server_hostname=self.host)


# An incident as an e-mail: plain text that a phone at night can show, by Django's mail backend.

SECONDS = 5
_HEADLINES = {
    "incident.opened": "",
    "incident.alert": "Again: ",
    "incident.escalated": "Now critical: ",
    "incident.resolved": "Resolved: ",
    "test": "",
}


def email_send(to: str, body: Mapping[str, Any], *, delivery: str) -> None:
    """Raises `SendError`. A second copy after a crash has the same Message-ID."""
    if not settings.MAIL_READY:
        raise SendError("No mail server is configured: set EMAIL_URL.", final=True)
    subject, text = email_text(body)
    host = urlsplit(settings.SITE_URL).hostname or "concord"
    mail = EmailMessage(
        subject=subject,
        body=text,
        to=[to],
        headers={
            "Message-ID": f"<delivery-{delivery}@{host}>",
            "Auto-Submitted": "auto-generated",
            "X-Concord-Delivery": delivery,
        },
        connection=get_connection(timeout=SECONDS) if settings.MAIL_IS_SMTP else None,
    )
    try:
        mail.send()
    except (SMTPException, OSError) as error:
        raise SendError(f"The mail server refused it: {type(error).__name__}.") from None
    except ValueError as error:  # such as a line break in an address
        raise SendError(f"The message is not valid: {error}.", final=True) from None


def email_text(body: Mapping[str, Any]) -> tuple[str, str]:
    """(subject, text)."""
    project = _line(body["project"]["name"])
    if body["event"] == "test":
        text = (
            f"This is a test of a channel of the project {project}. Incidents will arrive here "
            f"like this.\n\nChannels: {body['url']}\n"
        )
        return f"[{project}] Test of an alert channel", text
    if body["event"] == "stage.changed":
        return _stage_text(project, body)
    if "round" in body:
        return _round_text(project, body)
    if "incident" not in body:
        return _other_text(project, body)
    incident, run, alert = body["incident"], body["run"], body["alert"]
    head = _HEADLINES.get(body["event"], "")
    subject = f"[{project}] {head}{_line(incident['title'])}"
    if run:
        subject += f", in {_line(run['name'])}"
    lines = [incident["title"], ""]
    if incident["message"]:
        lines += [incident["message"], ""]
    lines += [f"Severity: {incident['severity']}", f"Stage: {incident['link_name']}"]
    if run:
        since = incident["onset_step"]
        lines.append(f"Run: {run['name']}" + (f", since step {since:,}" if since else ""))
    if alert and alert["message"] and alert["message"] != incident["message"]:
        lines += ["", f"Latest alert: {alert['message']}"]
    if body["event"] == "incident.resolved":
        lines += [""] + [
            f"{words}: {incident[name]}"
            for name, words in (("root_cause", "Root cause"), ("fix", "Fix"))
            if incident[name]
        ]
    lines += ["", f"Incident: {incident['url']}"]
    lines += [f"Run: {run['url']}"] if run else []
    return subject[:200], "\n".join(lines) + "\n"


def _stage_text(project: str, body: Mapping[str, Any]) -> tuple[str, str]:
    """(subject, text) of what a stage names now."""
    stage, model = body["stage"], body["model"]
    share = "" if stage["share"] == 100 else f" ({stage['share']} % of the traffic)"
    lines = [f"{stage['label']} names {model['name']}{share}, by {stage['by']}."]
    if body["rest"]:
        lines.append(f"The rest of the traffic stays with {body['rest']['name']}.")
    if body["before"] and body["before"]["id"] != model["id"]:
        lines.append(f"Before: {body['before']['name']}.")
    if stage["reason"]:
        lines += ["", f"Reason: {stage['reason']}"]
    lines += ["", f"Models in service: {stage['url']}", f"Model: {model['url']}"]
    subject = f"[{project}] {stage['label']}: {_line(model['name'])}"
    if stage["cause"] == "revert":
        subject += " (reverted)"
    return subject[:200], "\n".join(lines) + "\n"


def _round_text(project: str, body: Mapping[str, Any]) -> tuple[str, str]:
    """(subject, text) of a round that waits, finished or was stopped."""
    row, wait = body["round"], body["waits_for"]
    name = f"{_line(row['pipeline']['name'])}, round {row['number']}"
    head = body["event"].removeprefix("round.")
    lines = [f"{name}: {wait['words']}" if wait else f"{name}: {head}."]
    if wait:
        lines.append(f"Whose turn: {wait['who']}.")
    elif row["reason"]:
        lines.append(f"Reason: {row['reason']}")
    lines += ["", f"Round: {row['url']}"]
    return f"[{project}] {name}: {head}"[:200], "\n".join(lines) + "\n"


def _other_text(project: str, body: Mapping[str, Any]) -> tuple[str, str]:
    """(subject, text) of anything else: what it is about, field by field."""
    event = body["event"].replace(".", " ")
    about = next(
        (value for name, value in body.items() if name != "project" and isinstance(value, dict)), {}
    )
    name = _line(str(about.get("name", "")))
    lines = [f"{name}: {event}" if name else event.capitalize(), ""]
    lines += [
        f"{field.replace('_', ' ').capitalize()}: {value}"
        for field, value in about.items()
        if field not in ("id", "name") and not isinstance(value, dict | list)
    ]
    return f"[{project}] {f'{name}: ' if name else ''}{event}"[:200], "\n".join(lines) + "\n"


def _line(text: str) -> str:
    """Without line breaks, which a subject must not hold."""
    return " ".join(text.split())
