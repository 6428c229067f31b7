"""Messages to people who are invited, and to those whom somebody mentions."""

import logging
import smtplib

from django.conf import settings
from django.core.mail import send_mail
from django.utils import timezone, translation
from django.utils.formats import date_format
from django.utils.translation import gettext

from apps.accounts.models import Invitation, Notice

logger = logging.getLogger(__name__)


def mails_go_out() -> bool:
    """Whether EMAIL_URL names a mail server; else links are shown to copy."""
    return bool(settings.EMAIL_URL)


def invitation_mail(invitation: Invitation, path: str) -> bool:
    """Whether the mail server took the message with the link at `path`."""
    host = invitation.created_by
    # Whom it reaches nobody knows yet: it is written in the language of who invites.
    with translation.override((host and host.language) or settings.LANGUAGE_CODE):
        subject = gettext("Invitation to %(project)s") % {"project": invitation.project.name}
        text = gettext(
            "%(host)s invites you to %(project)s on Concord, as %(role)s.\n\n%(link)s\n\n"
            "The link works once, until %(until)s."
        ) % {
            "host": host or gettext("An admin"),
            "project": invitation.project.name,
            "role": invitation.get_role_display(),
            "link": f"{settings.SITE_URL.rstrip('/')}{path}",
            "until": date_format(invitation.expires_at, "DATE_FORMAT"),
        }
    if not _sent(subject, text, invitation.email):
        return False
    Invitation.objects.filter(pk=invitation.pk).update(mailed_at=timezone.now())
    return True


def notice_mail(notice: Notice) -> None:
    """What the bell tells one person, by mail."""
    if notice.user is not None:
        with translation.override(notice.user.language or settings.LANGUAGE_CODE):
            said = notice.sentence
        text = f"{said}.\n\n{settings.SITE_URL.rstrip('/')}{notice.path}\n"
        _sent(f"{notice.project.name}: {said}", text, notice.user.email)


def _sent(subject: str, text: str, address: str) -> bool:
    """Whether the mail server took it."""
    try:
        send_mail(" ".join(subject.split()), text, None, [address])
    except (OSError, smtplib.SMTPException):
        logger.warning("the mail server did not take a message to a person")
        return False
    return True
