"""The cache: it may be down, and it may not be trusted.

Down: every read is then a miss and every write is dropped, with a warning. What is cached can be
read elsewhere (sessions lie in the database too), so a page that is a little slower beats a page
that is an error. What must not be lost has no place in a cache.

Not trusted: whoever reaches Redis may read and write what lies there. A value is JSON, signed
together with its key by SECRET_KEY, so nothing is unpickled, and what somebody else wrote, or moved
to another key, is a miss. Keys are hashed, so the name of a session cannot be read. Numbers that
`incr` counts stand as they are.
"""

import hashlib
import hmac
import json
import logging
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any

from django.conf import settings
from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

_DIGEST = 16  # bytes


@cache
def _secret(purpose: str) -> bytes:
    text = f"apps.common.cache {purpose} {settings.SECRET_KEY}"
    return hashlib.sha256(text.encode()).digest()


def hashed_key(key: str, key_prefix: str, version: int) -> str:
    """For `KEY_FUNCTION`."""
    digest = hashlib.blake2b(key.encode(), key=_secret("key"), digest_size=_DIGEST).hexdigest()
    return f"{key_prefix}:{version}:{digest}"


class AsItIs:
    """The serializer of a client that signs; a serializer never sees the key."""

    def dumps(self, value: bytes | int) -> bytes | int:
        return value

    def loads(self, value: bytes) -> bytes:
        return value


def _signature(key: str, text: bytes) -> bytes:
    sign = hashlib.blake2b(key=_secret("value"), digest_size=_DIGEST)
    sign.update(f"{len(key)}:{key}".encode())
    sign.update(text)
    return sign.digest()


def _signed(key: str, value: Any) -> bytes | int:
    if type(value) is int:
        return value
    written = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    text = written.encode("utf-8", "surrogatepass")  # as json.loads reads it back
    return _signature(key, text) + text


def _read(key: str, data: bytes, default: Any) -> Any:
    """`default` where this site has not written `data` under `key`."""
    if data.lstrip(b"-").isdigit():
        return int(data)
    signature, text = data[:_DIGEST], data[_DIGEST:]
    if not hmac.compare_digest(signature, _signature(key, text)):
        logger.warning("the cache holds a value that this site has not written: %s", key)
        return default
    return json.loads(text)


class SignedClient(RedisCacheClient):
    """Signs what it writes and reads what it has signed."""

    def __init__(self, servers: Any, **options: Any) -> None:
        super().__init__(servers, serializer=AsItIs, **options)

    def add(self, key: str, value: Any, timeout: int | None) -> bool:
        return super().add(key, _signed(key, value), timeout)

    def get(self, key: str, default: Any = None) -> Any:
        data = super().get(key, None)
        return default if data is None else _read(key, data, default)

    def set(self, key: str, value: Any, timeout: int | None) -> None:
        super().set(key, _signed(key, value), timeout)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        found = super().get_many(list(keys))
        read = {key: _read(key, data, _NOT_OURS) for key, data in found.items()}
        return {key: value for key, value in read.items() if value is not _NOT_OURS}

    def set_many(self, data: dict[str, Any], timeout: int | None) -> None:
        super().set_many({key: _signed(key, value) for key, value in data.items()}, timeout)


_NOT_OURS = object()


def _or(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Call the client's method of the same name; when Redis fails, answer `answer(*arguments)`."""

    def decorate(stub: Callable[..., Any]) -> Callable[..., Any]:
        method = getattr(SignedClient, stub.__name__)

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


class ForgivingClient(SignedClient):
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
