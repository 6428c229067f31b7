"""Failed sign-ins are counted per name and address, and per address, in the cache.

A name is not locked for everybody: whoever knows it could lock its owner out from anywhere.
While the cache is down signing in still works, uncounted (`apps.common.cache`).
"""

import contextlib
import hashlib

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest

WINDOW_SECONDS = 15 * 60
TRIES_PER_NAME = 10
TRIES_PER_ADDRESS = 100


def client_address(request: HttpRequest) -> str:
    """The peer, or what our own proxy saw when BEHIND_PROXY says there is one."""
    if settings.SECURE_PROXY_SSL_HEADER:
        forwarded = request.headers.get("X-Forwarded-For", "")
        if forwarded:
            return forwarded.rsplit(",", 1)[-1].strip()
    return request.META.get("REMOTE_ADDR", "")


def _keys(name: str, address: str) -> dict[str, int]:
    digest = hashlib.sha256(f"{name.strip().casefold()}\n{address}".encode()).hexdigest()
    return {
        f"sign-in:{digest}": TRIES_PER_NAME,
        f"sign-in-address:{hashlib.sha256(address.encode()).hexdigest()}": TRIES_PER_ADDRESS,
    }


def is_blocked(name: str, address: str) -> bool:
    limits = _keys(name, address)
    counts = cache.get_many(limits)
    return any(counts.get(key, 0) >= limit for key, limit in limits.items())


def count_failure(name: str, address: str) -> None:
    for key in _keys(name, address):
        if not cache.add(key, 1, WINDOW_SECONDS):
            with contextlib.suppress(ValueError):  # the window ended in between
                cache.incr(key)


def forget_failures(name: str, address: str) -> None:
    """After a success: that person's own count starts anew, the address's does not."""
    cache.delete(next(iter(_keys(name, address))))
