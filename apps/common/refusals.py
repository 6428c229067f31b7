"""How a refusal reaches whoever asked: a page, JSON, and one line in the log."""

import errno
import logging
from typing import Any
from urllib.parse import quote

from django.contrib.auth import SESSION_KEY
from django.core.exceptions import (
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import DataError
from django.http import HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.shortcuts import render
from django.utils import translation
from django.utils.translation import gettext
from psycopg.errors import DiskFull, LockNotAvailable, QueryCanceled

from apps.common.errors import DomainError, Locked, StatementTooLong, TooLarge, Unavailable
from apps.common.http import client_address
from apps.common.transactions import database_away, said_by_database
from workers.artifacts import StoreUnreachable

logger = logging.getLogger("concord.denied")

API_ROOT = "/api/"
_REASON = "concord.denied.reason"  # of a request's META
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def error_body(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {"code": code, "message": message} | {"field": None, "row": None} | more


def browser_language(request: HttpRequest) -> Any:
    """A context in the browser's language, for refusals that must not ask who it is; English for
    programs."""
    is_api = request.path_info.startswith(API_ROOT)
    return translation.override("en" if is_api else translation.get_language_from_request(request))


def refused(request: HttpRequest, error: DomainError) -> HttpResponse:
    """The refusal in the form this address answers in."""
    note_reason(request, getattr(error, "reason", error.code))
    if request.path_info.startswith(API_ROOT):
        body = error_body(error.code, error.message, field=error.field, row=error.row)
        response: HttpResponse = JsonResponse(body, status=error.status)
    else:
        response = render(request, "refused.html", {"error": error}, status=error.status)
    if (seconds := getattr(error, "retry_after", None)) is not None:
        response["Retry-After"] = str(seconds)
    return response


def explain(error: Exception) -> DomainError | None:
    """An exception of the machine below us as a refusal; None for what is a fault of ours."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return _disk_full()
    said = said_by_database(error)
    if isinstance(said, DiskFull):
        return _disk_full()
    if isinstance(said, QueryCanceled):
        return StatementTooLong(
            gettext(
                "The database did not finish this in the time that it is given. Nothing was "
                "changed. Ask for less at once, such as by a filter or a shorter period, or try "
                "again when the site is less busy. If it stays so, tell whoever runs the site: "
                "they can allow more time."
            )
        )
    if isinstance(said, LockNotAvailable):
        return Locked(
            gettext(
                "Somebody else is changing the same things and has not finished. Nothing was "
                "changed. Try again in a moment."
            )
        )
    if database_away(error):
        return Unavailable(
            gettext("The database does not answer now. Try again in a moment."),
            code="database_unavailable",
        )
    if isinstance(error, StoreUnreachable):
        return Unavailable(
            gettext("The artifact store does not answer now. Try again in a moment."),
            code="store_unavailable",
        )
    if isinstance(error, DataError | ValueError) and "NUL (0x00)" in str(error):
        return DomainError(
            gettext("A NUL character cannot be stored or looked for."), code="nul_character"
        )
    return None


def log_known(log: logging.Logger, known: DomainError, cause: Exception, where: str) -> None:
    """What `explain` knows, for whoever runs the site: one line where the database only kept to the
    limits that it was given, else the traceback too."""
    if isinstance(known, StatementTooLong | Locked):
        log.warning("%s at %s: %s", known.code, where, str(cause).partition("\n")[0])
    else:
        log.error("%s at %s", known.code, where, exc_info=cause)


def unreadable(error: Exception) -> DomainError | None:
    """A body that cannot be taken apart, as a refusal."""
    if isinstance(error, RequestDataTooBig | TooManyFieldsSent | TooManyFilesSent):
        return TooLarge(
            gettext("More was sent than one request may hold: %(why)s") % {"why": error}
        )
    if isinstance(error, UnreadablePostError):
        return DomainError(gettext("The body did not arrive."), code="unreadable_body")
    if isinstance(error, MultiPartParserError):
        return DomainError(
            gettext("The form could not be read: %(why)s") % {"why": error}, code="bad_multipart"
        )
    if isinstance(error, SuspiciousOperation):
        return DomainError(gettext("The request could not be read."), code="bad_request")
    return None


def _disk_full() -> Unavailable:
    return Unavailable(
        gettext(
            "The disk of this server is full: nothing can be saved now. Whoever runs the site has "
            "to make room; then try again."
        ),
        code="disk_full",
    )


# --- the log of denials ---------------------------------------------------------------------------


def note_reason(request: HttpRequest, reason: str) -> None:
    """Keep why this request is refused, for its line in the log; the first reason stays."""
    request.META.setdefault(_REASON, reason)


def refusal_reason(request: HttpRequest) -> str:
    """The first reason that was noted; empty where none was."""
    return str(request.META.get(_REASON, ""))


def log_denied(request: HttpRequest, status: int, reason: str = "") -> None:
    """One line: who, from where, what, and why. Nothing in it can start another line."""
    reason = reason or request.META.get(_REASON, "")
    logger.warning(
        "%s user=%s address=%s %s %s %s",
        status,
        _person(request),
        quote(client_address(request), safe=":.") or "-",
        quote(request.method or "-"),
        quote(request.path),
        " ".join(reason.split())[:200] or "-",
    )


def _person(request: HttpRequest) -> str:
    session = getattr(request, "session", None)
    if session is not None and (pk := session.get(SESSION_KEY)):
        return str(pk)
    user = getattr(request, "user", None)  # a token's person, once the token was found good
    return str(user.pk) if user is not None and user.is_authenticated else "anonymous"
