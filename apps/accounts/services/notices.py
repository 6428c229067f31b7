"""Telling people of a project what concerns them, and remembering what they have seen."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from django.utils import timezone

from apps.accounts.models import Notice, NoticesSeen, Project, User
from apps.accounts.services.mails import mails_go_out, notice_mail
from apps.common.models import longest
from apps.common.transactions import after_commit


def notice_give(
    *,
    project: Project,
    kind: str,
    text: str,
    path: str,
    values: Mapping[str, Any] | None = None,
    user: User | None = None,
    roles: Collection[str] = (),
    by: User | None = None,
    every: timedelta | None = None,
    mail: bool = False,
) -> None:
    """Tell one person, or everybody of these roles, in the language of whoever reads it: `text`
    is marked by `gettext_noop` and filled with `values`: numbers, strings, or a list of one string
    that is a message itself. `every`: not when they heard of the same
    kind so shortly before, for what comes in many small parts. `mail`: by e-mail too, where there
    is a mail server and the person has an address."""
    told = Notice.objects.filter(project=project, kind=kind, user=user)
    if every is not None and told.filter(at__gt=timezone.now() - every).exists():
        return
    notice = Notice.objects.create(
        project=project,
        user=user,
        roles=sorted(roles),
        kind=kind,
        text=text[: longest(Notice, "text")],
        values=values or {},
        path=path,
        by=by,
    )
    if mail and user is not None and user.email and mails_go_out():
        after_commit(notice_mail, notice=notice)


def notices_seen(*, project: Project, user: User, notice: int, needs: Mapping[str, int]) -> None:
    """The person has looked: notices up to this one, and so many of each thing that waits."""
    NoticesSeen.objects.update_or_create(
        project=project, user=user, defaults={"notice": notice, "needs": dict(needs)}
    )
