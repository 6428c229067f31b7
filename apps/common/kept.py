"""Figures over all of a project, kept for as long as they are worth."""

import time
from collections.abc import Callable
from typing import Any

from django.core.cache import cache

TIMES = 100  # so many times as long as it took
SLOW_S = 0.2


def kept_while_worth(key: str, find: Callable[[], Any], *, least_s: int = 0) -> Any:
    """`find()`, or what it found before. What takes longer than SLOW_S is kept for a hundred times
    as long as it took; with `least_s`, everything for so many seconds at least. JSON keeps it:
    tuples come back as lists."""
    known = cache.get(key)
    if known is None:
        began = time.monotonic()
        known = find()
        took = time.monotonic() - began
        seconds = int(TIMES * took) if took > SLOW_S else 0
        if seconds or least_s:
            cache.set(key, known, max(seconds, least_s))
    return known
