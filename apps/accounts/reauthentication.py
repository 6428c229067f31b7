"""Asking again who it is before what is hard to undo, and keeping what was sent meanwhile.

    @require_POST
    @project_page(READERS)
    @fresh_sign_in_required
    def promotion_decide(request): …

Pages go through this decorator, below `project_page`, so that nobody is asked who may not do it
anyway. `when` narrows it to some requests. The API asks browsers in `apps.accounts.api_auth`;
tokens are asked nothing.
"""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.selectors import needs_second_factor
from apps.common.http import Request

_FRESH = "fresh_sign_in"  # of the session: when the person last showed who they are
_SENT = "sent_before_signing_in"  # of the session: the form that waits
MOST_KEPT = 200_000  # characters of a form
_NOT_KEPT = {"csrfmiddlewaretoken"}
SECOND_FACTOR_ELSEWHERE = "second_factor_elsewhere"  # of the session: the provider asked for one

View = Callable[..., HttpResponse]


def fresh_sign_in_note(request: HttpRequest, at: float | None = None) -> None:
    """The person has shown who they are, by password, code, passkey or the provider: now, or when
    the provider says."""
    now = time.time()
    request.session[_FRESH] = int(now if at is None else min(at, now))


def lacks_second_factor(request: HttpRequest) -> bool:
    """Whether the person of this session has to set one up first. The provider's own one counts in
    the session that began with it."""
    if not settings.REQUIRE_SECOND_FACTOR or request.session.get(SECOND_FACTOR_ELSEWHERE):
        return False
    return request.user.is_authenticated and needs_second_factor(request.user)


def is_fresh(request: HttpRequest) -> bool:
    age = time.time() - request.session.get(_FRESH, 0)
    return age < settings.REAUTHENTICATE_MINUTES * 60


def fresh_sign_in_required(
    view: View | None = None, *, when: Callable[[Request], bool] = lambda _: True
) -> Any:
    """Decorator of views that need a sign-in, or one again, of the last REAUTHENTICATE_MINUTES."""

    def decorate(view: View) -> View:
        @wraps(view)
        def inner(request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
            if not is_fresh(request) and when(request):
                return ask_again(request)
            sent = sent_form(request) if request.method == "POST" else None
            if sent and sent["path"] == request.get_full_path():
                del request.session[_SENT]
            return view(request, *args, **kwargs)

        return inner

    return decorate(view) if view else decorate


def posted(request: Request) -> bool:
    """For `when`: a page is shown, and what it sends is asked for."""
    return request.method == "POST"


def ask_again(request: Request) -> HttpResponse:
    """To the page that asks, and from there back here: by a link, or with what was sent."""
    target = request.get_full_path()
    if request.method not in {"GET", "HEAD"}:
        _keep(request)
        target = reverse("accounts:sent_form")
    elif request.htmx:
        target = _page_of(request)
    where = f"{reverse('accounts:sign_in_again')}?{urlencode({'next': target})}"
    return HttpResponseClientRedirect(where) if request.htmx else redirect(where)


def sent_form(request: HttpRequest) -> dict[str, Any] | None:
    """What this person sent before they were asked: `path`, `fields`, `page` it came from, and
    whether `complete`: files and what is too long are not kept."""
    sent = request.session.get(_SENT)
    return sent if sent and sent["person"] == request.user.pk else None


def _keep(request: Request) -> None:
    fields = [
        (name, value)
        for name, values in request.POST.lists()
        for value in values
        if name not in _NOT_KEPT
    ]
    small = sum(len(value) for _, value in fields) <= MOST_KEPT
    request.session[_SENT] = {
        "person": request.user.pk,
        "path": request.get_full_path(),
        "fields": fields if small else [],
        "complete": small and not request.FILES,
        "page": _page_of(request),
    }


def _page_of(request: Request) -> str:
    """The page that the form stands on; home where the browser does not say."""
    page = request.headers.get("HX-Current-URL") or request.headers.get("Referer", "")
    safe = url_has_allowed_host_and_scheme(page, {request.get_host()})
    return urlsplit(page)._replace(scheme="", netloc="").geturl() if safe and page else "/"
