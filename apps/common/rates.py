"""How often one caller may ask: token buckets in Redis, shared by all web processes.

A bucket holds as many tokens as may be asked in a minute, and fills as evenly. Callers are a
credential (an API token or a session), the person behind it, or an address where there is neither.
What is heavy (exports, reports, imports, recomputation) takes from smaller buckets too: of the
credential, of the person and of all people of the project.
While Redis is away nobody is counted: labeling must not stop for that.
"""

import logging
import math
import re
from dataclasses import dataclass
from functools import cache

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext

from apps.common import registry
from apps.common.cache import hashed_key
from apps.common.errors import TooMany
from apps.common.http import client_address
from apps.common.redis_now import redis_now
from apps.common.refusals import API_ROOT

log = logging.getLogger(__name__)
MINUTE_S = 60.0
# A caller's own count: as much as two credentials may ask.
PERSON_TIMES = 2
_HEAVY_PATH = re.compile(r"(\.(csv|jsonl|parquet|zip|pdf)|/(export|exports|report|download)/?)$")
# KEYS: a bucket. ARGV: how many it holds, how many come in a second. Answers {taken, left × 1000}.
_TAKE = """
local size, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local kept = redis.call('HMGET', KEYS[1], 'left', 'at')
local left = tonumber(kept[1]) or size
left = math.min(size, left + math.max(0, now - (tonumber(kept[2]) or now)) * rate)
local taken = 0
if left >= 1 then
  left, taken = left - 1, 1
end
redis.call('HSET', KEYS[1], 'left', left, 'at', now)
redis.call('EXPIRE', KEYS[1], math.ceil(size / rate) + 1)
return {taken, math.floor(left * 1000)}
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a bucket of `limit` a minute said: whether there was a token, and how many are `left`,
    in fractions."""

    limit: int
    left: float
    ok: bool

    @property
    def retry_s(self) -> int:
        """Until there is a token again."""
        return max(1, math.ceil((1 - self.left) * MINUTE_S / self.limit)) if not self.ok else 0

    @property
    def headers(self) -> dict[str, str]:
        full_s = math.ceil((self.limit - self.left) * MINUTE_S / self.limit)
        said = {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(math.floor(self.left)),
            "RateLimit-Reset": str(self.retry_s or full_s),
        }
        return said | ({} if self.ok else {"Retry-After": str(self.retry_s)})


def take(caller: str, limit: int) -> Taken | None:
    """One token of a caller's bucket of `limit` a minute; None where nobody is counted (`limit` 0,
    or Redis is away)."""
    if not limit:
        return None
    name = hashed_key(caller, "rate", limit)
    try:
        taken, left = _script()(keys=[name], args=[limit, limit / MINUTE_S])
    except (redis.RedisError, OSError) as error:
        log.warning("requests are not counted, Redis is away: %s", type(error).__name__)
        return None
    return Taken(limit, left / 1000, bool(taken))


@cache
def _script() -> "redis.commands.core.Script":
    return redis_now(settings.CACHE_URL).register_script(_TAKE)


def take_for(request: HttpRequest, credential: str | None) -> Taken | None:
    """For a request to the API, or for what is expensive to make; None where neither is asked. The
    bucket that is emptier where both count."""
    found = []
    if request.path_info.startswith(API_ROOT):
        found.append(
            take(f"credential {credential}", settings.API_RATE)
            if credential
            else take_unknown(request)
        )
    if _HEAVY_PATH.search(request.path_info) and credential:
        found.append(take(f"heavy {credential}", settings.HEAVY_RATE))
    known = [one for one in found if one is not None]
    return min(known, key=lambda one: (one.ok, one.left / one.limit), default=None)


def take_unknown(request: HttpRequest) -> Taken | None:
    """For who shows no credential, or one that nobody has: each made-up token would otherwise have
    a bucket of its own."""
    return take(f"address {client_address(request)}", settings.API_RATE_UNKNOWN)


def take_person(person: int) -> Taken | None:
    """For whoever calls the API, with however many tokens and browsers."""
    return take(f"person {person}", PERSON_TIMES * settings.API_RATE)


LARGE_BODY_BYTES = 1_000_000  # parsing it stops the other threads of a process for a while


def is_heavy(request: HttpRequest) -> bool:
    """Whether much of a project is read or changed: downloads, reports, files that are taken, large
    bodies, and the addresses that apps name. To be asked once the address is resolved."""
    match = request.resolver_match
    name = match.view_name if match else ""
    uploads = request.method == "POST" and registry.is_upload(name)
    length = request.META.get("CONTENT_LENGTH") or ""
    large = length.isdecimal() and int(length) > LARGE_BODY_BYTES
    return (
        uploads or large or registry.is_heavy(name) or bool(_HEAVY_PATH.search(request.path_info))
    )


def take_heavy(*, person: int, project: int) -> None:
    """Raises `TooMany` where the person, or all of the project, have asked for what is heavy too
    often."""
    for caller, limit in (
        (f"heavy person {person}", settings.HEAVY_RATE),
        (f"heavy project {project}", settings.HEAVY_RATE_PROJECT),
    ):
        if (one := take(caller, limit)) is not None and not one.ok:
            raise too_often(one)


def too_often(taken: Taken) -> TooMany:
    error = TooMany(gettext("Too many requests in a short time. Wait a moment and try again."))
    error.retry_after = taken.retry_s
    return error


def said(response: HttpResponse, taken: Taken | None) -> HttpResponse:
    for name, value in (taken.headers if taken else {}).items():
        response.headers.setdefault(name, value)
    return response
