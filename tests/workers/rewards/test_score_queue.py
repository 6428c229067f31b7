"""Scoring in the background gives what scoring at once gives, to whom it belongs."""

import itertools
import threading

import pytest

from tests.workers.recipes.language import user
from tests.workers.rewards.sources import Lengths
from workers.rewards.source import Closed, ScoreQueue, Scores, join


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

    wrong = pytest.raises(RuntimeError, match="2 texts were scored with 1 scores")
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
