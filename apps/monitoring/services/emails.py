"""An incident as an e-mail: plain text that a phone at night can show, by Django's mail backend."""

from collections.abc import Mapping
from smtplib import SMTPException
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from apps.monitoring.services.webhooks import SendError

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
    incident, run, alert = body["incident"], body["run"], body["alert"]
    head = _HEADLINES.get(body["event"], "")
    subject = f"[{project}] {head}{_line(incident['title'])}"
    if run:
        subject += f", in {_line(run['name'])}"
    lines = [incident["title"], ""]
    if incident["message"]:
        lines += [incident["message"], ""]
    lines += [f"Severity: {incident['severity']}", f"Link of the chain: {incident['link_name']}"]
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


def _line(text: str) -> str:
    """Without line breaks, which a subject must not hold."""
    return " ".join(text.split())
