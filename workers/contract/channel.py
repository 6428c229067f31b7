"""What a stream of requests in Redis is made of, whoever asks and whoever answers.

    stream    requests that wait or are being worked on; the group's pending list says by whom
    reply     the answer, set once: a request that was delivered twice still has one

Standard library only.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from workers.contract.wire import VERSION, ContractError

# KEYS reply, stream, stats; ARGV reply, seconds, group, entry. 1 answered, 0 it was already.
# The answer first, then the acknowledgement; both or neither, since a script is not interrupted.
ANSWER = """
local set = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2])
redis.call('XACK', KEYS[2], ARGV[3], ARGV[4])
redis.call('XDEL', KEYS[2], ARGV[4])
redis.call('HINCRBY', KEYS[3], set and 'answered' or 'answered_before', 1)
return set and 1 or 0
"""


@dataclass(frozen=True, slots=True)
class Channel:
    """`group`: those who answer; `sign`: the name under which they give signs of life. `read` makes
    a request of its JSON and raises `ContractError`; `refusal(id, code, message)` is a reply;
    `rows` are what a request weighs, and `fewest` and `most` of them make a batch."""

    stream: str
    group: str
    sign: str
    stats: str
    reply_key: Callable[[str], str]
    reply_seconds: int
    read: Callable[[str | bytes], Any]
    refusal: Callable[[str, str, str], Any]
    rows: Callable[[Any], int]
    fewest: int
    most: int


def to_json(message: Any) -> str:
    """Of a dataclass that is a request or a reply."""
    return json.dumps({"version": VERSION} | asdict(message), ensure_ascii=False)


def from_json(text: str | bytes, *, where: str) -> dict[str, Any]:
    """The object of our version. Raises `ContractError`."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ContractError(f"{where}: is no JSON ({error})") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ContractError(f"{where}: is not of version {VERSION}")
    return data
