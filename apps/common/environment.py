"""Typed reading of environment variables; a value that does not parse stops the start."""

import contextlib
import os
import re
import secrets
import stat
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

ROOT = Path(__file__).resolve().parent.parent.parent
# What this process is, said before settings are read by the module that it begins with
# (config/wsgi.py, asgi.py, celery.py): "web", "tasks", or "command", which is everything else.
process = "command"


class BadEnvironment(SystemExit):
    """An environment variable whose value cannot be used; the text names it."""


_read: dict[str, str] = {}


def settings_read() -> dict[str, str]:
    """The variables that were read, with the values of those that cannot be secrets: numbers,
    switches and choices; of all others only whether they are set."""
    return dict(sorted(_read.items()))


def text(name: str, default: str = "") -> str:
    """The value; a variable that is set but empty counts as not set."""
    value = os.environ.get(name, "").strip()
    _read.setdefault(name, "(set)" if value else "(not set)")
    return value or default


def _open(name: str, value: object) -> None:
    if _read.get(name) != "(not set)":
        _read[name] = str(value)


def flag(name: str, default: bool = False) -> bool:
    raw = text(name).lower()
    if not raw:
        return default
    if raw in {"1", "true", "yes", "on"}:
        _open(name, 1)
        return True
    if raw in {"0", "false", "no", "off"}:
        _open(name, 0)
        return False
    raise BadEnvironment(f"{name}={raw!r}: use 1 or 0 (also true/false, yes/no, on/off)")


def number(name: str, default: int, *, low: int, high: int) -> int:
    raw = text(name)
    if not raw:
        return default
    try:
        value = int(raw)
    except ValueError:
        raise BadEnvironment(f"{name}={raw!r} is not a whole number") from None
    if not low <= value <= high:
        raise BadEnvironment(f"{name}={value} is outside {low}…{high}")
    _open(name, value)
    return value


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    raw = text(name, default)
    if raw not in allowed:
        raise BadEnvironment(f"{name}={raw!r} is not one of {', '.join(allowed)}")
    _open(name, raw)
    return raw


def words(name: str, default: str = "") -> list[str]:
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def token(name: str, *, least: int) -> str:
    """A secret of at least `least` characters, or empty; its value is never printed."""
    value = text(name)
    if value and (len(value) < least or not value.isascii()):
        raise BadEnvironment(f"{name} must be at least {least} ASCII characters")
    return value


ROLES = ("annotator", "reviewer", "engineer", "admin")
SITE_ADMIN, CREATE_PROJECTS = "site-admin", "create-projects"


def roles(name: str) -> frozenset[str]:
    """Comma-separated roles of projects; `site-admin` is one of them here."""
    found = frozenset(words(name))
    if unknown := found - {*ROLES, SITE_ADMIN}:
        allowed = ", ".join((*ROLES, SITE_ADMIN))
        raise BadEnvironment(f"{name}: {min(unknown)!r} is not one of {allowed}")
    return found


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """Whoever has `value` in `claim` has `right`: a role in `project`, or a right on the site where
    that is empty."""

    claim: str
    value: str
    project: str
    right: str


_CLAIM_RULE = re.compile(r"([\w.-]+):(.+)=(?:([\w-]+)/)?([\w-]+)", re.ASCII)


def claim_rules(name: str) -> list[ClaimRule]:
    """Rules such as `groups:leads=arguments/admin`, between semicolons or one a line."""
    found = []
    for rule in filter(None, map(str.strip, re.split(r"[;\n]", text(name)))):
        match = _CLAIM_RULE.fullmatch(rule)
        if match is None:
            raise BadEnvironment(
                f"{name}: {rule!r} is no rule, such as groups:leads=arguments/admin"
            )
        claim, value, project, right = match.groups(default="")
        allowed = ROLES if project else (SITE_ADMIN, CREATE_PROJECTS)
        if right not in allowed:
            raise BadEnvironment(f"{name}: {right!r} is not one of {', '.join(allowed)}")
        found.append(ClaimRule(claim, value.strip(), project, right))
    return found


def networks(name: str, default: str = "") -> list[IPv4Network | IPv6Network]:
    """Comma-separated addresses and networks, such as 10.0.0.0/8."""
    found = []
    for word in words(name, default):
        try:
            found.append(ip_network(word))
        except ValueError:
            raise BadEnvironment(f"{name}: {word!r} is no network, such as 10.0.0.0/8") from None
    return found


def syslog(name: str) -> str:
    """udp://host:514, tcp://host:601 or unix:///dev/log; empty for none."""
    value = text(name)
    parts = urlsplit(value)
    try:
        whole = {"udp": parts.hostname, "tcp": parts.hostname, "unix": parts.path}.get(parts.scheme)
        bool(parts.port)
    except ValueError:
        whole = None
    if value and not whole:
        raise BadEnvironment(
            f"{name}: {value!r} is none of udp://host:514, tcp://host:601, unix:///dev/log"
        )
    return value


def session_settings(options: str, **settings: str) -> dict[str, str]:
    """`options` of a connection to PostgreSQL that begins with these settings; what `options`
    itself says comes later and wins. Time limits of "0s" are left out: the server's own hold."""
    said = [f"-c {name}={value}" for name, value in settings.items() if value != "0s"]
    words = " ".join([*said, options]).strip()
    return {"options": words} if words else {}


def same_server(one: str, other: str, *, port: int = 6379) -> bool:
    """Whether two URLs name the same server, whatever the database, user or password; `port` where
    they name none."""

    def place(url: str) -> tuple[str, str, str]:
        parts = urlsplit(url)
        local = parts.path if not parts.hostname else ""
        named = dict(parse_qsl(parts.query))  # of PostgreSQL: postgresql://me@/site?host=/run
        if "host" in named:
            return named["host"].lower(), named.get("port") or str(parts.port or port), ""
        return (parts.hostname or "").lower(), str(parts.port or port), local

    return place(one) == place(other)


def var_dir() -> Path:
    """Where all state of this checkout lives; `VAR_DIR` moves it."""
    return Path(text("VAR_DIR") or ROOT / "var").expanduser().resolve()


def local_secret(folder: Path) -> str:
    """A secret made once for local use and kept, readable by its owner only, outside the code."""
    path = private_folder(folder) / "secret_key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(64))
    return path.read_text().strip()


def private_folder(folder: Path) -> Path:
    """Make the folder, for its owner alone, and let whatever this process makes be so too."""
    os.umask(0o077)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o067:
        folder.chmod(mode & 0o710)  # below root PostgreSQL's account, in our group, has to pass
    return folder


def make_private(folder: Path, *, leave: tuple[str, ...] = ()) -> int:
    """Take from everybody but the owner what they may do below `folder`, but for the entries of it
    named in `leave`; returns how many files and folders were open."""
    count = 0
    for entry in os.scandir(folder):
        if entry.name in leave or entry.is_symlink():
            continue
        with contextlib.suppress(FileNotFoundError):  # others work here meanwhile
            mode = stat.S_IMODE(entry.stat().st_mode)
            if mode & 0o077:
                Path(entry).chmod(mode & 0o700)
                count += 1
            if entry.is_dir():
                count += make_private(Path(entry))
    return count
