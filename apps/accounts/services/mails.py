"""Messages to people who are invited."""

import logging
import smtplib

from django.conf import settings
from django.core.mail import send_mail
from django.utils import timezone

from apps.accounts.models import Invitation

logger = logging.getLogger(__name__)


def mails_go_out() -> bool:
    """Whether EMAIL_URL names a mail server; else links are shown to copy."""
    return bool(settings.EMAIL_URL)


def invitation_mail(invitation: Invitation, path: str) -> bool:
    """Whether the mail server took the message with the link at `path`."""
    host = invitation.created_by
    text = (
        f"{host or 'An admin'} invites you to {invitation.project.name} on Concord, as "
        f"{invitation.get_role_display()}.\n\n"
        f"{settings.SITE_URL.rstrip('/')}{path}\n\n"
        f"The link works once, until {invitation.expires_at:%d %B %Y}."
    )
    try:
        send_mail(f"Invitation to {invitation.project.name}", text, None, [invitation.email])
    except (OSError, smtplib.SMTPException):
        logger.warning("invitation %s: the mail server did not take it", invitation.pk)
        return False
    Invitation.objects.filter(pk=invitation.pk).update(mailed_at=timezone.now())
    return True
