"""A cache in front of a source: never another text's score, and never asked twice."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import redis
import torch

from tests.workers.recipes.language import WORDS, tiny_gpt2, tiny_llama, user, word_tokenizer
from tests.workers.rewards.sources import Lengths
from tests.workers.scored import emptied
from workers.contract.events import RecipeError
from workers.data.batches import Encoded
from workers.models.loading import load_scorer, save_model
from workers.rewards.cache import CachedReward, Hits, ScoreCache, cache_of
from workers.rewards.ensemble import EnsembleLayout
from workers.rewards.model import EnsembleReward, ModelReward, batches_of, padded
from workers.rewards.source import Closed, ScoreQueue, Scores, join

client = pytest.fixture(emptied)


@dataclass
class Letters:
    """Reads a letter as a token; its score is the sum of the letters, times `scale`."""

    scale: float = 1.0
    asked: list[str] = field(default_factory=list)

    def encode(self, prompts, responses) -> list[tuple[Encoded, ...]]:
        texts = zip([p[-1]["content"] for p in prompts], responses, strict=True)
        return [(Encoded([ord(c) for c in p + r], len(p), len(r) > 6),) for p, r in texts]

    def score_rows(self, texts) -> Scores:
        self.asked += ["".join(map(chr, row.ids)) for (row,) in texts]
        values = [self.scale * sum(row.ids) for (row,) in texts]
        spread = [value / 2 for value in values]
        return Scores(values, {"sum": values}, disagreement=spread)


def cached(source: Letters, cache: ScoreCache | None = None, version: str = "1") -> CachedReward:
    return CachedReward(source, version, ScoreCache(None) if cache is None else cache)


def ask(source: CachedReward, *pairs: tuple[str, str]) -> Scores:
    return source.score([user(prompt) for prompt, _ in pairs], [r for _, r in pairs])


def test_a_text_is_asked_for_once_and_its_score_comes_back_whole() -> None:
    letters = Letters()
    source = cached(letters)
    first = ask(source, ("why", "because"), ("who", "me"), ("why", "because"))
    assert letters.asked == ["whybecause", "whome"]
    assert first.known == [False, False, True]
    again = ask(source, ("who", "me"), ("why", "because"))
    assert letters.asked == ["whybecause", "whome"]
    assert again.values == [first.values[1], first.values[0]]
    assert again.parts == {"sum": again.values}
    assert again.disagreement == [value / 2 for value in again.values]
    assert (again.cut, again.truncated) == ([False, True], 1)  # the row says it, known or not
    assert (again.asked, again.cache_hits, source.hit_rate) == (2, 2, 3 / 5)


@pytest.mark.parametrize(
    "pair", [("why not", "because"), ("why", "because "), ("whyb", "ecause"), ("why", "Because")]
)
def test_the_same_response_to_another_prompt_and_other_white_space_are_other_texts(
    pair: tuple[str, str],
) -> None:
    source = cached(Letters())
    ask(source, ("why", "because"))
    assert ask(source, pair).known == [False]


def test_another_version_of_the_model_or_template_knows_nothing_of_the_first() -> None:
    cache = ScoreCache(None)
    old, new = Letters(), Letters(scale=2.0)
    before = ask(cached(old, cache, "sha-1:float32"), ("why", "because"))
    after = ask(cached(new, cache, "sha-2:float32"), ("why", "because"))
    assert after.known == [False]
    assert after.values == [2 * before.values[0]]
    other = CachedReward(Letters(), "sha-1:float32", cache, template="another")
    assert ask(other, ("why", "because")).known == [False]


def test_what_is_no_number_is_told_and_not_remembered() -> None:
    letters = Letters(scale=float("nan"))
    source = cached(letters)
    assert str(ask(source, ("why", "x")).values) == "[nan]"
    letters.scale = 1.0
    assert ask(source, ("why", "x")).values == [sum(map(ord, "whyx"))]


def test_a_cache_that_is_full_forgets_what_was_used_longest_ago() -> None:
    letters = Letters()
    source = cached(letters, ScoreCache(None, entries=2))
    for name in ("a", "b", "a", "c"):
        ask(source, ("", name))
    assert ask(source, ("", "a"), ("", "b"), ("", "c")).known == [True, False, True]


def test_two_trainers_share_what_they_know_through_redis(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    kwargs = client.connection_pool.connection_kwargs
    monkeypatch.setenv("SCORE_CACHE_URL", f"unix://{kwargs['path']}")
    letters = Letters()
    first = ask(cached(Letters(), cache_of(entries=9, seconds=60)), ("why", "because"))
    second = cached(letters, cache_of(entries=9, seconds=60))
    assert ask(second, ("why", "because")) == Scores(
        first.values, first.parts, 1, first.disagreement, [True], known=[True]
    )
    assert letters.asked == []
    for key in client.scan_iter("concord:score:cache:*"):
        client.set(key, b"from another version")
    assert ask(cached(letters, cache_of(entries=9, seconds=60)), ("why", "because")) == replace(
        first, known=[False]
    )


def test_an_address_that_is_none_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORE_CACHE_URL", "redis.example")
    with pytest.raises(RecipeError, match="SCORE_CACHE_URL: ") as raised:
        cache_of(entries=9, seconds=60)
    assert raised.value.kind == "bad_setting"


def test_without_redis_it_remembers_in_the_process_and_a_dead_redis_costs_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url in ("", "unix:///nowhere/redis.sock"):
        monkeypatch.setenv("SCORE_CACHE_URL", url)
        cache = cache_of(entries=9, seconds=60)
        source = cached(Letters(), cache)
        ask(source, ("a", "b"))
        assert ask(source, ("a", "b")).known == [True]
        assert cache.hits == Hits(memory=1, misses=1)


# --- real models: the same bits, however a text came to be scored ---


def put_scorer(folder: Path, model, seed: int) -> Path:
    save_model(model, word_tokenizer(), folder / "base")
    torch.manual_seed(seed)
    save_model(load_scorer(folder / "base", word_tokenizer()), word_tokenizer(), folder / "scorer")
    return folder / "scorer"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["llama", "gpt2", "ensemble"])
def source(request, tmp_path_factory) -> ModelReward | EnsembleReward:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param != "ensemble":
        make = tiny_llama if request.param == "llama" else tiny_gpt2
        return ModelReward(put_scorer(folder, make(), 0))
    for seed in (0, 1):
        put_scorer(folder / f"m{seed}", tiny_llama(seed), seed).rename(folder / f"member-{seed}")
    names = ("member-0", "member-1")
    EnsembleLayout.fitted(names, [[0.0, 1.0], [0.0, 2.0]]).write(folder)
    return EnsembleReward(folder)


def conversation(count: int) -> tuple[list, list[str]]:
    """Answers of 1 to 40 words, many of them twice; some as long as what is padded to."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 41, (count,), generator=generator).tolist()
    lengths[:4] = [7, 7, 11, 27]
    draws = [torch.randint(0, len(WORDS), (n,), generator=generator).tolist() for n in lengths]
    texts = [" ".join(WORDS[i] for i in row) for row in draws]
    texts[-count // 3 :] = texts[: count // 3 + 1][: len(texts[-count // 3 :])]
    return [user(WORDS[i % 3]) for i in range(count)], texts


def test_a_text_scores_the_same_bit_by_bit_alone_together_in_the_background_and_remembered(
    source: ModelReward | EnsembleReward,
) -> None:
    prompts, texts = conversation(24)
    at_once = source.score(prompts, texts)
    alone = [source.score([p], [t]).values[0] for p, t in zip(prompts, texts, strict=True)]
    assert at_once.values == alone
    cached = CachedReward(source, "1", ScoreCache(None))
    for asked in (source, cached, cached):
        with ScoreQueue(asked, batch_size=10) as queue:
            pending = [queue.submit(prompts[i : i + 7], texts[i : i + 7]) for i in range(0, 24, 7)]
            behind = join([one.result() for one in pending])
        assert behind.values == at_once.values
        assert behind.parts == at_once.parts
        assert behind.disagreement == at_once.disagreement
    assert behind.known == [True] * 24


def test_rows_share_a_batch_only_where_they_are_padded_alike_and_never_beyond_the_model() -> None:
    rows = [(0,) * n for n in (3, 16, 17, 30, 60, 63, 64)]
    found = [
        ([len(row) for row in batch], n) for batch, n in batches_of(rows, batch_size=2, most=62)
    ]
    assert found == [([3, 16], 16), ([17, 30], 32), ([60], 62), ([63], 63), ([64], 64)]
    assert [n for _, n in batches_of(rows, batch_size=4, most=0)] == [30, 64]
    assert all(padded(n, 10**6) - n < max(16, n / 8) for n in range(1, 3000))


# Scoring in the background gives what scoring at once gives, to whom it belongs.


def chunk(*texts: str) -> tuple[list, list[str]]:
    return [user("why?")] * len(texts), list(texts)


def texts(start: int, stop: int) -> list[str]:
    return [("x" * (i % 11)) + str(i) for i in range(start, stop)]


def test_every_submission_gets_its_own_scores_in_order_whatever_batches_they_shared() -> None:
    source = Lengths()
    sizes = [5, 1, 0, 40, 17, 64, 3]
    starts = list(itertools.accumulate([0, *sizes]))
    pieces = [texts(a, b) for a, b in itertools.pairwise(starts)]
    with ScoreQueue(source, batch_size=64) as queue:
        pending = [queue.submit(*chunk(*piece)) for piece in pieces]
        scores = [one.result() for one in pending]
    for piece, found in zip(pieces, scores, strict=True):
        assert found.values == [float(len(text)) for text in piece]
        assert found.truncated == sum(len(text) > 8 for text in piece)
    whole = join(scores)
    assert whole == Lengths().score(*chunk(*texts(0, starts[-1])))
    assert [text for batch in source.batches for text in batch] == texts(0, starts[-1])


def test_batches_hold_32_to_64_texts_until_somebody_waits_for_the_rest() -> None:
    source = Lengths()
    with ScoreQueue(source, batch_size=64) as queue:
        pending = [queue.submit(*chunk(*texts(8 * i, 8 * i + 8))) for i in range(13)]
        pending.append(queue.submit(*chunk(*texts(200, 300))))
        for one in pending:
            one.result()
    sizes = [len(batch) for batch in source.batches]
    assert all(32 <= size <= 64 for size in sizes[:-1])
    assert sum(sizes) == 204


def test_which_texts_share_a_batch_does_not_depend_on_how_fast_anyone_is() -> None:
    def batches(shut: bool) -> list[list[str]]:
        source = Lengths(gate=threading.Event())
        if not shut:
            source.gate.set()
        with ScoreQueue(source, batch_size=8) as queue:
            pending = [queue.submit(*chunk(*texts(3 * i, 3 * i + 3))) for i in range(9)]
            source.gate.set()
            pending[4].result()
            pending.append(queue.submit(*chunk(*texts(90, 95))))
            for one in pending:
                one.result()
        return source.batches

    assert batches(shut=True) == batches(shut=False)


def test_generation_does_not_wait_for_the_scores() -> None:
    """Everything is handed in while the source has not answered once."""
    source = Lengths(gate=threading.Event())
    with ScoreQueue(source, batch_size=4) as queue:
        pending = [queue.submit(*chunk(*texts(4 * i, 4 * i + 4))) for i in range(6)]
        assert not any(one.done() for one in pending)
        source.gate.set()
        assert [len(one.result().values) for one in pending] == [4] * 6


class Ticks:
    """A clock by hand; `source` moves it by what it pretends to take."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_says_who_waited_for_whom() -> None:
    """Two batches of 5 s each; the caller spends 7 s of its own, then waits for the rest."""
    clock = Ticks()
    entered, leave = threading.Event(), threading.Event()

    class Slow(Lengths):
        def score(self, prompts, responses) -> Scores:
            entered.set()
            assert leave.wait(10)
            clock.now += 5.0
            return super().score(prompts, responses)

    with ScoreQueue(Slow(), batch_size=2, clock=clock) as queue:
        first = queue.submit(*chunk("a", "b"))
        assert entered.wait(10)
        assert queue.waited_s == 0.0
        threading.Timer(0.05, leave.set).start()
        first.result()
        assert (queue.waited_s, queue.worked_s) == (5.0, 5.0)
        clock.now += 7.0  # the caller generates
        second = queue.submit(*chunk("c", "d"))
        while not second.done():
            pass
        second.result()
        assert queue.waited_s == 5.0
    assert queue.worked_s == 10.0


def test_what_the_source_raises_comes_out_of_result_for_those_it_concerns_alone() -> None:
    with ScoreQueue(Lengths(fails_on="bad"), batch_size=2) as queue:
        good, bad, after = (queue.submit(*chunk(a, b)) for a, b in ("ab", ("bad", "c"), "de"))
        assert good.result().values == [1.0, 1.0]
        with pytest.raises(ValueError, match="cannot read bad"):
            bad.result()
        with pytest.raises(ValueError, match="cannot read bad"):
            bad.result()
        assert after.result().values == [1.0, 1.0]


def test_a_source_that_answers_too_little_is_an_error_and_not_a_wait_for_ever() -> None:
    class Short(Lengths):
        def score(self, prompts, responses) -> Scores:
            return Scores([1.0])

    wrong = pytest.raises(RuntimeError, match=r"2 texts .* 1 scores")
    with ScoreQueue(Short(), batch_size=4) as queue, wrong:
        queue.submit(*chunk("a", "b")).result()


def test_closing_ends_the_thread_and_fails_what_was_not_scored() -> None:
    before = threading.active_count()
    source = Lengths(gate=threading.Event())
    queue = ScoreQueue(source, batch_size=2)
    running, waiting, unfilled = (queue.submit(*chunk(*t)) for t in ("ab", "cd", ""))
    lonely = ScoreQueue(Lengths(), batch_size=64)
    pending = lonely.submit(*chunk("a"))
    threading.Timer(0.05, source.gate.set).start()
    queue.close()
    lonely.close()
    queue.close()  # again, and nothing happens
    assert threading.active_count() <= before + 1  # the timer
    assert unfilled.result() == Scores([])
    for one in (waiting, pending):
        with pytest.raises(Closed):
            one.result()
    with pytest.raises(Closed):
        queue.submit(*chunk("e"))
    assert source.batches in ([], [["a", "b"]])
    assert running.done()
