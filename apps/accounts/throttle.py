"""Failed sign-ins make the next try wait, longer each time. Counted in the cache, for 15 minutes.

Three counts: of a name at one address, of a name everywhere, and of an address for all names. An
office shares one address, so that count is far above what people mistype. Whoever has signed in
with a browser before carries a signed cookie that says so: such a browser waits for its own
failures only, and nobody can lock its owner out from elsewhere. While the cache is down signing in
still works, uncounted (`apps.common.cache`).
"""

import contextlib
import hashlib
from dataclasses import dataclass

from django.conf import settings
from django.core import signing
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext, ngettext

from apps.common.http import client_address

WINDOW_SECONDS = 15 * 60
FIRST_WAIT_SECONDS = 30
FREE_TRIES = 5  # of a name at one address, or in one browser
FREE_TRIES_OF_NAME = 20  # at all addresses
FREE_TRIES_AT_ADDRESS = 1000  # with any names
# Of somebody's failures these are written into the audit log: guessing cannot flood it.
_RECORDED = frozenset({1, 5, 10, 20, 50, 100})

DEVICE_COOKIE = f"{settings.COOKIE_PREFIX}concord_device_{settings.PORT}"
_DEVICE_SECONDS = 180 * 86_400
_DEVICE_SALT = "accounts.known-device"
_MOST_NAMES = 8  # of a browser that several people share


@dataclass(frozen=True, slots=True)
class Try:
    """A sign-in under way: the counts it falls under, with the failures each lets pass."""

    counts: dict[str, int]

    @classmethod
    def of(cls, request: HttpRequest, name: str) -> "Try":
        address = client_address(request)
        if _digest(name) in _known_names(request):
            cookie = request.COOKIES[DEVICE_COOKIE]
            return cls({f"sign-in:device:{_digest(name, cookie)}": FREE_TRIES})
        return cls(
            {
                f"sign-in:here:{_digest(name, address)}": FREE_TRIES,
                f"sign-in:name:{_digest(name)}": FREE_TRIES_OF_NAME,
                f"sign-in:address:{_digest(address)}": FREE_TRIES_AT_ADDRESS,
            }
        )

    @classmethod
    def of_second_factor(cls, person: int) -> "Try":
        """Of a code or passkey after the password: counted wherever it comes from."""
        return cls({f"second-factor:{person}": FREE_TRIES})

    def refuse_while_waiting(self) -> None:
        """Raises the `ValidationError` that a form shows."""
        if seconds := self.seconds_to_wait():
            words = gettext(
                "Too many failed tries. Wait %(time)s and try again, or ask an admin for a "
                "new password."
            )
            raise ValidationError(words % {"time": _duration(seconds)}, code="too_many_tries")

    def seconds_to_wait(self) -> int:
        """The wait that the last failure began, while it lasts; 0 where one may try."""
        return max(cache.get_many([_wait_key(key) for key in self.counts]).values(), default=0)

    def count_failure(self) -> int:
        """Returns how many failures there were with this name here, this one included."""
        numbers = []
        for key, free in self.counts.items():
            number = count_up(key)
            if wait := wait_after(number, free):
                cache.set(_wait_key(key), wait, wait)
            numbers.append(number)
        return numbers[0]

    def forget_failures(self) -> None:
        """After a success: the counts of that person start again, the address's does not."""
        own = [key for key in self.counts if not key.startswith("sign-in:address:")]
        cache.delete_many([*own, *map(_wait_key, own)])


def is_recorded(failures: int) -> bool:
    """Whether the failure that makes so many is written down."""
    return failures in _RECORDED


def wait_after(failures: int, free: int) -> int:
    """Seconds: none for the first `free - 1`, then 30, doubled with each, to 15 minutes."""
    if failures < free:
        return 0
    return min(FIRST_WAIT_SECONDS * 2 ** min(failures - free, 10), WINDOW_SECONDS)


def count_up(key: str) -> int:
    """One more in this quarter of an hour; returns the number."""
    if cache.add(key, 1, WINDOW_SECONDS):
        return 1
    with contextlib.suppress(ValueError):  # the window ended in between
        return cache.incr(key)
    return 1


def device_remember(request: HttpRequest, response: HttpResponse, name: str) -> None:
    """This browser has signed in as `name`."""
    names = [known for known in _known_names(request) if known != _digest(name)]
    response.set_cookie(
        DEVICE_COOKIE,
        signing.dumps([_digest(name), *names][:_MOST_NAMES], salt=_DEVICE_SALT),
        max_age=_DEVICE_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def _known_names(request: HttpRequest) -> list[str]:
    try:
        return signing.loads(
            request.COOKIES.get(DEVICE_COOKIE, ""), salt=_DEVICE_SALT, max_age=_DEVICE_SECONDS
        )
    except signing.BadSignature:
        return []


def _wait_key(key: str) -> str:
    return f"{key}:wait"


def _digest(name: str, more: str = "") -> str:
    return hashlib.sha256(f"{name.strip().casefold()}\n{more}".encode()).hexdigest()[:40]


def _duration(seconds: int) -> str:
    if seconds < 60:
        return ngettext("%(n)s second", "%(n)s seconds", seconds) % {"n": seconds}
    minutes = -(-seconds // 60)
    return ngettext("%(n)s minute", "%(n)s minutes", minutes) % {"n": minutes}
