"""The request our views get, and where it comes from, as far as proxies can be believed."""

import ipaddress
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import translation
from django_htmx.middleware import HtmxDetails

if TYPE_CHECKING:
    from apps.accounts.models import Project, User


class Request(HttpRequest):
    """A request that passed the middleware: `htmx` is set; in project views, so are the rest."""

    htmx: HtmxDetails
    user: "User | Any"
    project: "Project"
    role: str


def language_of(request: HttpRequest) -> str:
    """The language a person chose, else what the browser asks for among those there are."""
    user = getattr(request, "user", None)
    chosen = user.language if user is not None and user.is_authenticated else ""
    return chosen or translation.get_language_from_request(request)


class FileStream(StreamingHttpResponse):
    """The bytes of a file that is there already, which cost little to send."""


class MessageCookie(CookieStorage):
    """What the next page says once, in a cookie that is this host's alone."""

    cookie_name = f"{settings.COOKIE_PREFIX}concord_messages_{settings.PORT}"


# Where a request comes from, as far as the proxies in between can be believed.


def peer_is_proxy(request: HttpRequest) -> bool:
    """Whether the machine at the other end of the connection is listed in TRUSTED_PROXIES."""
    return _is_trusted(request.META.get("REMOTE_ADDR", ""))


def client_address(request: HttpRequest) -> str:
    """The peer, or, when that is one of our proxies, the last address of X-Forwarded-For that is
    not one of them. What stands before that address anybody could have written."""
    address = request.META.get("REMOTE_ADDR", "")
    hops = request.headers.get("X-Forwarded-For", "").split(",")
    while hops and _is_trusted(address):
        hop = hops.pop().strip()
        if not _parsed(hop):
            break
        address = hop
    return address


def _is_trusted(address: str) -> bool:
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in settings.TRUSTED_PROXIES)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None
