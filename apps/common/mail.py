"""The mail server, as one address in the environment."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from apps.common.environment import BadEnvironment

_FILES = "django.core.mail.backends.filebased.EmailBackend"
_CONSOLE = "django.core.mail.backends.console.EmailBackend"
_SMTP = "django.core.mail.backends.smtp.EmailBackend"
_PORTS = {"smtp": 25, "smtp+tls": 587, "smtps": 465}


def email_settings(url: str, var_dir: Path) -> dict[str, Any]:
    """Django's settings for EMAIL_URL: `smtps://name:password@host:465`, `smtp+tls://…` (STARTTLS),
    `smtp://…`, `console:`; empty: one file for each message below VAR_DIR/mail."""
    if not url:
        return {"EMAIL_BACKEND": _FILES, "EMAIL_FILE_PATH": str(var_dir / "mail")}
    if url == "console:":
        return {"EMAIL_BACKEND": _CONSOLE}
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadEnvironment("EMAIL_URL: its port is no number") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise BadEnvironment(
            "EMAIL_URL: use smtps://name:password@host:465, smtp+tls://…, smtp://… or console:"
        )
    return {
        "EMAIL_BACKEND": _SMTP,
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": port or _PORTS[parts.scheme],
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp+tls",
        "EMAIL_TIMEOUT": 5,
    }


def host_of(url: str) -> str:
    return urlsplit(url).hostname or "localhost"
