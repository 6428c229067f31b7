"""How the rows of a step are dealt to ranks: pure, without any process."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.layouts.shares import Shares

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=12)


@settings(max_examples=40)
@given(
    LENGTHS,
    st.integers(2, 5),
    st.booleans(),
    st.none() | st.integers(16, 300),
    st.integers(1, 6),
)
def test_every_row_is_computed_once_by_some_rank_and_the_work_is_even(
    lengths: list[tuple[int, int]], world: int, even: bool, budget: int | None, at_least: int
) -> None:
    hands = [
        Shares(rank, world, even=even).parts(lengths, budget=budget, at_least=at_least)
        for rank in range(world)
    ]
    counted = [row for hand in hands for part in hand if part.counts for row in part.rows]
    assert sorted(counted) == list(range(len(lengths)))
    assert all(part.rows for hand in hands for part in hand)  # there is always something to compute
    assert all(hands)
    rows = [sum(len(part.rows) for part in hand if part.counts) for hand in hands]
    assert max(rows) - min(rows) <= 1
    if even:
        assert len({len(hand) for hand in hands}) == 1
        for part in (part for hand in hands for part in hand):
            longest = max(max(lengths[row]) for row in part.rows)
            padded = 2 * len(part.rows) * longest
            assert budget is None or len(part.rows) == 1 or padded <= budget


@settings(max_examples=40)
@given(LENGTHS, st.none() | st.integers(16, 300), st.integers(1, 6))
def test_a_rank_has_no_more_rows_at_once_than_one_process_would(
    lengths: list[tuple[int, int]], budget: int | None, at_least: int
) -> None:
    alone = Shares().parts(lengths, budget=budget, at_least=at_least)
    most = max(len(part.rows) for part in alone)
    for rank in range(2):
        hand = Shares(rank, 2).parts(lengths, budget=budget, at_least=at_least)
        assert max(len(part.rows) for part in hand) <= max(most, 1)


def test_ranks_take_turns_equally_often() -> None:
    assert [Shares(0, 3).rounds(count) for count in (1, 3, 4)] == [3, 3, 6]
    assert Shares().rounds(4) == 4
