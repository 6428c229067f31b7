"""A cache that may be down: every read is then a miss and every write is dropped, with a warning.

What is cached can be read elsewhere (sessions lie in the database too), so a page that is a little
slower beats a page that is an error. What must not be lost has no place in a cache.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)


def _or(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Call the client's method of the same name; when Redis fails, answer `answer(*arguments)`."""

    def decorate(stub: Callable[..., Any]) -> Callable[..., Any]:
        method = getattr(RedisCacheClient, stub.__name__)

        @wraps(method)
        def inner(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except (RedisError, OSError) as error:
                logger.warning("the cache does not answer %s: %s", stub.__name__, error)
                return answer(*args, **kwargs)

        return inner

    return decorate


def _no_key(key: Any, *_: Any, **__: Any) -> None:
    raise ValueError(f"Key '{key}' not found.")


class ForgivingClient(RedisCacheClient):
    """The methods RedisCache calls, each with what a missing cache amounts to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clients: dict[int, Any] = {}

    def get_client(self, key: Any = None, *, write: bool = False) -> Any:
        """One client per pool: Django makes a new one for each command, which costs a tenth of a
        millisecond, as much as the command itself."""
        pool = self._get_connection_pool(write)
        client = self._clients.get(id(pool))
        if client is None:
            client = self._clients[id(pool)] = self._client(connection_pool=pool)
        return client

    @_or(lambda *_a, **_k: True)
    def add(self) -> None: ...

    @_or(lambda _key, default=None: default)
    def get(self) -> None: ...

    @_or(lambda *_a, **_k: None)
    def set(self) -> None: ...

    @_or(lambda *_a, **_k: False)
    def touch(self) -> None: ...

    @_or(lambda *_a, **_k: False)
    def delete(self) -> None: ...

    @_or(lambda *_a, **_k: {})
    def get_many(self) -> None: ...

    @_or(lambda *_a, **_k: False)
    def has_key(self) -> None: ...

    @_or(_no_key)
    def incr(self) -> None: ...

    @_or(lambda *_a, **_k: None)
    def set_many(self) -> None: ...

    @_or(lambda *_a, **_k: None)
    def delete_many(self) -> None: ...

    @_or(lambda *_a, **_k: False)
    def clear(self) -> None: ...


class ForgivingRedisCache(RedisCache):
    def __init__(self, server: Any, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._class = ForgivingClient
