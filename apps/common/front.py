"""What is settled about a request before anything reads its body: its form, size and turn."""

import json
import threading
from collections.abc import Callable
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.db import connections
from django.http import FileResponse, HttpRequest, HttpResponse, UnreadablePostError
from django.middleware.security import SecurityMiddleware
from django.utils import translation
from django.utils.translation import gettext
from structlog.contextvars import bind_contextvars, clear_contextvars

from apps.common import observability, rates, registry, turns
from apps.common.admission import (
    HEAVY,
    PAGE,
    STRANGERS,
    VOTE,
    Admission,
    Floods,
    Limits,
    Place,
    too_many,
)
from apps.common.errors import DomainError, TooLarge, TooMany, Unavailable
from apps.common.http import FileStream, peer_is_proxy
from apps.common.numbers import count
from apps.common.refusals import (
    API_ROOT,
    browser_language,
    error_body,
    log_denied,
    note_reason,
    refused,
)
from apps.common.transactions import long_statements
from apps.common.turns import Turn
from apps.common.views import livez, readyz
from workers import logs

Next = Callable[[HttpRequest], HttpResponse]

KB, MB = 1024, 1024 * 1024
ANONYMOUS_BYTES = 64 * KB  # a name and a password
ANONYMOUS_BODIES = 4  # read at once in a process: a slow body holds a thread until it ends
ENVELOPE_BYTES = MB  # what a form adds to the file in it
_REQUEST_ID = "HTTP_X_REQUEST_ID"
_FORWARDED = (
    *("HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO", "HTTP_X_FORWARDED_HOST"),
    _REQUEST_ID,
)
_DENIED = frozenset({400, 401, 403, 404, 408, 411, 413, 429})
_NOTHING = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'"
_PROBES = {"/livez": livez, "/readyz": readyz}
_HELD = "concord.held"  # of a request's META


admission = Admission(limits := Limits())
floods = Floods(most=limits.per_person + limits.waiting_per_person)
_anonymous_bodies = threading.BoundedSemaphore(ANONYMOUS_BODIES)


class EdgeMiddleware:
    """First of all: headers that only a proxy of ours may set, the request's id in every line of
    the log, floods, and the log of denials."""

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not peer_is_proxy(request):
            for name in _FORWARDED:
                request.META.pop(name, None)
        id = logs.request_id(request.META.get(_REQUEST_ID))
        clear_contextvars()
        bind_contextvars(request=id)
        try:
            with observability.request_span(request.method or "") as span:
                response = self._answer(request)
                match = request.resolver_match
                page = match.view_name if match else ""
                observability.name_span(span, request.method or "", page, response.status_code, id)
            if response.status_code in _DENIED:
                log_denied(request, response.status_code)
        finally:
            clear_contextvars()
        response["X-Request-ID"] = id
        return response

    def _answer(self, request: HttpRequest) -> HttpResponse:
        credential = request.META.get("HTTP_AUTHORIZATION") or request.COOKIES.get(
            settings.SESSION_COOKIE_NAME
        )
        if (refusal := refused_by_its_form(request)) is not None:
            log_denied(request, refusal.status_code)
            return refusal
        taken = rates.take_for(request, credential)
        if taken is not None and not taken.ok:
            response = refused_for_now(request, "rate", lambda: rates.too_often(taken))
        elif credential is None:
            response = self.get_response(request)
        elif not floods.enter(credential):
            response = refused_for_now(request, "flood", too_many)
        else:
            try:
                response = self.get_response(request)
            finally:
                floods.leave(credential)
        rates.said(response, taken)
        return response


def refused_by_its_form(request: HttpRequest) -> HttpResponse | None:
    """TRACE would send a request's own headers back. Programs are not led from HTTP to HTTPS, as
    browsers are: nobody would notice that a token goes over the wire in plain text."""
    if request.method in ("TRACE", "TRACK"):
        note_reason(request, "method")
        return as_every_answer(request, HttpResponse(status=405, headers={"Allow": "GET, POST"}))
    is_api = request.path_info.startswith(API_ROOT)
    if is_api and settings.SECURE_SSL_REDIRECT and not request.is_secure():
        note_reason(request, "https_required")
        said = "This address is asked by https:// only. Replace a token that was sent by http://."
        body = json.dumps(error_body("https_required", said))
        return as_every_answer(
            request, HttpResponse(body, status=403, content_type="application/json")
        )
    return None


def as_every_answer(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """With the headers that the middleware below gives to all others."""
    response.headers["Content-Security-Policy"] = _NOTHING
    response.headers["Cache-Control"] = "no-store"
    secured = SecurityMiddleware(lambda _: response).process_response(request, response)
    return cast(HttpResponse, secured)


def refused_for_now(request: HttpRequest, reason: str, make: Callable[[], TooMany]) -> HttpResponse:
    """Cheap on purpose: neither a session is read nor a template rendered."""
    note_reason(request, reason)
    is_api = request.path_info.startswith(API_ROOT)
    with browser_language(request):
        error, title = make(), gettext("Too many requests")
        language = translation.get_language()
    response = HttpResponse(
        json.dumps(error_body(error.code, error.message))
        if is_api
        else f'<!doctype html><html lang="{language}"><title>{title}</title><p>{error.message}',
        status=error.status,
        content_type="application/json" if is_api else "text/html",
        headers={"Retry-After": str(error.retry_after)},
    )
    return as_every_answer(request, response)


class ProbeMiddleware:
    """Before ALLOWED_HOSTS and sessions: a balancer asks by address and without cookies."""

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        probe = _PROBES.get(request.path_info)
        return probe(request) if probe else self.get_response(request)


class FrontMiddleware:
    """After the session is known and before CSRF protection reads a form."""

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # No id holds a NUL, and PostgreSQL refuses to look for one: let the address lead nowhere.
        request.path_info = request.path_info.replace("\x00", "\ufffd")
        try:
            response = self.get_response(request)
            if response.streaming and (held := request.META.pop(_HELD, None)):
                response = kept_until_sent(request, response, held)
            return response
        finally:
            turns.turn_end()
            if held := request.META.pop(_HELD, None):
                held.close()

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """Here the address is resolved, so that uploads and votes are known as such."""
        name = request.resolver_match.view_name if request.resolver_match else ""
        bind_contextvars(page=name)
        with browser_language(request):
            return self._settle(request, name)

    def _settle(self, request: HttpRequest, name: str) -> HttpResponse | None:
        try:
            check_form(request, name)
            if is_anonymous(request):
                read_small_body(request)
            if not registry.is_self_limited(name):
                self._enter(request, name)
        except DomainError as error:
            return refused(request, error)
        return None

    def _enter(self, request: HttpRequest, name: str) -> None:
        match = request.resolver_match
        voting, heavy = registry.is_voting(name), rates.is_heavy(request)
        place = Place(
            person_of(request),
            VOTE if voting else HEAVY if heavy else PAGE,
            str(match.kwargs.get("slug", "")) if match else "",
        )
        request.META[_HELD] = held = Held(place, of=admission)
        turns.turn_begin(held.turn)


class Held:
    """A request's place and what goes with it, until it is answered and its download is sent."""

    def __init__(self, place: Place, *, of: Admission) -> None:
        self._of = of
        self._place: Place | None = of.enter(place, before_waiting=give_connections_back)
        self.turn = Turn(place.kind, before_waiting=give_connections_back)
        long_statements(place.kind == HEAVY)

    def turn_into_file(self) -> None:
        long_statements(False)
        self.turn.give_back()
        if place := self._taken():
            self._place = self._of.turn_into_file(place)

    def close(self) -> None:
        long_statements(False)
        self.turn.give_back()
        if place := self._taken():
            self._of.leave(place)

    def _taken(self) -> Place | None:
        place, self._place = self._place, None
        return place


def kept_until_sent(request: HttpRequest, response: HttpResponse, held: Held) -> HttpResponse:
    """Rows are read while they are sent, so a download keeps its place until the server closes it;
    a file that is there already is counted among files."""
    if isinstance(response, FileResponse | FileStream):
        try:
            held.turn_into_file()
        except DomainError as error:
            response.close()
            return refused(request, error)
    close = response.close

    def closed() -> None:
        try:
            close()
        finally:
            held.close()

    response.close = closed
    return response


def check_form(request: HttpRequest, url_name: str) -> None:
    """Refuses by headers alone."""
    query = request.META.get("QUERY_STRING", "")
    if "%00" in query or "\x00" in query:
        raise DomainError(
            gettext("The part of the address after “?” holds a NUL character."),
            code="nul_character",
        )
    length = request.META.get("CONTENT_LENGTH") or ""
    if not length and request.META.get("HTTP_TRANSFER_ENCODING"):
        error = DomainError(
            "Say how long the body is: send Content-Length, not chunks.", code="length_required"
        )
        error.status = 411
        raise error
    most = body_limit(request, url_name)
    if length.isdecimal() and int(length) > most:
        raise TooLarge(
            (
                gettext("%(n)s bytes were sent; here at most %(most)s are accepted. Sign in first.")
                if is_anonymous(request)
                else gettext("%(n)s bytes were sent; here at most %(most)s are accepted.")
            )
            % {"n": count(int(length)), "most": count(most)}
        )


def body_limit(request: HttpRequest, url_name: str) -> int:
    """Bytes that this address accepts from whoever sends."""
    if is_anonymous(request):
        return ANONYMOUS_BYTES
    if registry.is_upload(url_name):
        return settings.IMPORT_MAX_MB * MB + ENVELOPE_BYTES
    return settings.DATA_UPLOAD_MAX_MEMORY_SIZE


def person_of(request: HttpRequest) -> str:
    """Whose requests are counted together. A token counts by itself before it is looked up."""
    if pk := request.session.get(SESSION_KEY):
        return f"user:{pk}"
    if token := _bearer(request):
        return f"token:{hash(token)}"
    return STRANGERS


def is_anonymous(request: HttpRequest) -> bool:
    """A token counts as a person where tokens are used: there it is checked before the body."""
    return person_of(request) == STRANGERS


def _bearer(request: HttpRequest) -> str:
    sent = request.META.get("HTTP_AUTHORIZATION", "")
    return sent if sent and request.path_info.startswith(API_ROOT) else ""


def read_small_body(request: HttpRequest) -> None:
    """Read at once, by few threads: however slowly strangers send, the others stay free."""
    if not request.META.get("CONTENT_LENGTH", "").strip("0"):
        return
    if not _anonymous_bodies.acquire(timeout=1):
        raise Unavailable(gettext("Too many sign-ins arrive at once. Try again in a few seconds."))
    try:
        request.body  # noqa: B018 - reading keeps it
    except UnreadablePostError:
        raise DomainError(gettext("The body did not arrive."), code="unreadable_body") from None
    finally:
        _anonymous_bodies.release()


def give_connections_back() -> None:
    """Who waits must not hold a connection of the pool that another request needs."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
