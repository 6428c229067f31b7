"""The cache of scores (SPEC D13): what it must never confuse, and what it must find again."""

import struct
from dataclasses import dataclass, replace

import pytest
import redis

from tests.workers.recipes.language import user
from tests.workers.scored import emptied
from workers.data.batches import Encoded, encode_pair
from workers.rewards.cache import Hits, Remembered, ScoreCache, score_key
from workers.trainers.sft import train_tokenizer

client = pytest.fixture(emptied)
TEXT = "the cat  runs\tgood\n and the dog sleeps "
TOKENIZER = train_tokenizer([TEXT] * 3, vocabulary=300, context=128)
VERSION = "sha256:float32"


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def key(
    response: str, *, prompt: str = "Why?", version: str = VERSION, template: str = "t"
) -> bytes:
    row = encode_pair(TOKENIZER, user(prompt), response, max_length=128)
    return score_key(version, template, [row])


def test_the_same_text_for_the_same_model_has_the_same_key() -> None:
    assert key("the cat") == key("the cat")


@pytest.mark.parametrize(
    "other",
    [
        key("the cat", prompt="Why not?"),  # the same response to another prompt
        key("the cat", version="other-sha256:float32"),  # another model
        key("the cat", version="sha256:int8"),  # the same model in another precision
        key("the cat", template="u"),  # another chat template
        key("the  cat"),  # white space is text
        key("the cat "),
        key("the cat\n"),
        key(" the cat"),
        key("The cat"),
    ],
)
def test_whatever_a_score_depends_on_makes_another_key(other: bytes) -> None:
    assert other != key("the cat")


def test_moving_the_border_between_prompt_and_response_makes_another_key() -> None:
    """The same ids in a row, as a score by position might read them differently."""
    row = Encoded([1, 2, 3, 4], prompt_length=2)
    assert score_key("v", "t", [row]) != score_key("v", "t", [replace(row, prompt_length=3)])
    # nor do two readings of one text run into each other
    one, two = Encoded([1, 2], 1), Encoded([1, 2, 1, 2], 1)
    assert score_key("v", "t", [one, one]) != score_key("v", "t", [two])


def test_a_hit_is_the_score_bit_by_bit_from_memory_and_from_redis(client) -> None:
    values = [0.1 + 0.2, -1e-17, 3.4028234663852886e38, 1 / 3]
    keys = [key(str(i)) for i in range(4)]
    first = ScoreCache(client)
    first.put(keys, [Remembered(v, {"model/member-0": v / 7}, v / 3) for v in values])
    for cache in (first, ScoreCache(client)):  # this process, and one that knows nothing yet
        for value, found in zip(values, cache.get(keys), strict=True):
            assert struct.pack("<d", found.score) == struct.pack("<d", value)
            assert found.parts == {"model/member-0": value / 7}
            assert found.disagreement == value / 3
    assert first.hits == Hits(memory=4)


def test_hits_and_misses_are_counted_where_they_happened(client) -> None:
    ScoreCache(client).put([key("a")], [Remembered(1.0)])
    cache = ScoreCache(client)
    assert cache.hits.rate is None
    cache.get([key("a"), key("b")])
    cache.get([key("a")])
    assert cache.hits == Hits(memory=1, shared=1, misses=1)
    assert cache.hits.rate == pytest.approx(2 / 3)


def test_the_entry_used_longest_ago_is_the_one_that_goes() -> None:
    cache = ScoreCache(None, entries=2)
    a, b, c = key("a"), key("b"), key("c")
    cache.put([a, b], [Remembered(1.0), Remembered(2.0)])
    cache.get([a])
    cache.put([c], [Remembered(3.0)])
    assert len(cache) == 2
    assert cache.get([a, b, c]) == [Remembered(1.0), None, Remembered(3.0)]


def test_an_entry_is_forgotten_after_an_hour_in_both_places(client) -> None:
    clock = Clock()
    cache = ScoreCache(client, clock=clock)
    cache.put([key("a")], [Remembered(1.0)])
    names = list(client.scan_iter("concord:score:cache:*"))
    assert len(names) == 1
    assert 3590 < client.ttl(names[0]) <= 3600
    client.delete(*names)
    clock.now = 3599
    assert cache.get([key("a")]) == [Remembered(1.0)]
    clock.now = 3601
    assert cache.get([key("a")]) == [None]


def test_a_redis_that_is_away_is_a_cache_that_knows_nothing() -> None:
    away = redis.Redis(unix_socket_path="/nonexistent/redis.sock", socket_timeout=0.1)
    cache = ScoreCache(away)
    assert cache.get([key("a")]) == [None]
    cache.put([key("a")], [Remembered(1.0)])
    assert cache.get([key("a")]) == [Remembered(1.0)]
