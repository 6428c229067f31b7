"""Redis for somebody who waits for a page: it answers in seconds, or says at once that it is away.

The library's own clients try again with growing pauses, three to four seconds for each command.
"""

from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

SECONDS = 2.0


def redis_now(url: str = "", **more: Any) -> redis.Redis:
    """A client of `url`, by default that of REDIS_URL, that never tries again."""
    return redis.Redis.from_url(
        url or settings.REDIS_URL,
        socket_timeout=SECONDS,
        socket_connect_timeout=SECONDS,
        retry=Retry(NoBackoff(), 0),
        **more,
    )
