"""Deciding which row goes where: pure, in milliseconds."""

import datetime as dt
from collections import Counter

import pytest

from apps.snapshots.assembling.assembly import assemble
from apps.snapshots.assembling.material import Assembly, Ballot, Material, Pair
from apps.snapshots.recipe import Filters, SnapshotRecipe

NOON = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)


def pair(number: int, group: str, a: str, b: str, **changes) -> Pair:
    values = {"topic": group, "batch": "", "stratum": "random", "dropped": False} | changes
    return Pair(number, group, a=a, b=b, **values)


def material(pairs: list[Pair], votes: dict[int, str], at: dt.datetime = NOON) -> Material:
    """votes: pair → one letter a vote (a, b, t for tie), by persons 1, 2, 3 …"""
    words = {"t": "tie"}
    ballots = [
        Ballot(1000 * number + k, number, k, f"user:{k}", words.get(letter, letter), at)
        for number, letters in votes.items()
        for k, letter in enumerate(letters, start=1)
    ]
    return Material(tuple(pairs), tuple(ballots))


def recipe(**changes) -> SnapshotRecipe:
    return SnapshotRecipe(**{"heldout_annotators": 0.0, "splits": {"train": 1.0}} | changes)


def reasons(made: Assembly) -> dict[int, str]:
    return {drop.pair: drop.reason for drop in made.drops}


def test_each_way_of_not_being_decided_has_its_own_reason() -> None:
    pairs = [pair(n, "g", f"x{n}", f"y{n}") for n in range(1, 8)]
    votes = {1: "", 2: "aa", 3: "aabb", 4: "abt", 5: "ttt", 6: "aaa", 7: "aabbt"}
    made = assemble(
        material(pairs, votes), recipe(least_votes=3, least_agreeing=2, least_share=0.5)
    )
    assert reasons(made) == {
        1: "no votes left",
        2: "too few votes",
        3: "vote tie",
        4: "too little agreement",
        5: "decided: tie",
        7: "too little agreement",
    }
    assert [line.pair for line in made.lines["train"]] == [6]


def test_filters_take_out_comparisons_by_what_they_are() -> None:
    pairs = [
        pair(1, "g", "x1", "y1", topic="t1"),
        pair(2, "g", "x2", "y2", batch="may"),
        pair(3, "g", "x3", "y3", stratum="gold"),
        pair(4, "g", "x4", "y4", dropped=True),
        pair(5, "h", "x5", "y5"),
        pair(6, "g", "x6", "y6"),
    ]
    made = assemble(
        material(pairs, dict.fromkeys(range(1, 7), "aaa")),
        recipe(
            filters=Filters(
                without_groups=("h",), without_topics=("t1",), batches=("",), strata=("random",)
            )
        ),
    )
    assert reasons(made) == {
        1: "left out by topic",
        2: "left out by batch",
        3: "left out by stratum",
        4: "the comparison was dropped",
        5: "left out by group",
    }


def test_only_the_comparisons_that_were_picked_enter() -> None:
    pairs = [pair(1, "g", "x1", "y1"), pair(2, "h", "x2", "y2"), pair(3, "i", "x3", "y3")]
    made = assemble(
        material(pairs, dict.fromkeys(range(1, 4), "aaa")),
        recipe(filters=Filters(comparisons=(1, 3))),
    )
    assert reasons(made) == {2: "not among the pairs that were picked"}
    assert sorted(line.pair for lines in made.lines.values() for line in lines) == [1, 3]


def test_votes_outside_the_time_range_do_not_count() -> None:
    pairs = [pair(1, "g", "x", "y")]
    early = material(pairs, {1: "aaa"}, NOON)
    late = material(pairs, {1: "bbbb"}, NOON + dt.timedelta(days=1))
    both = Material(
        early.pairs,
        early.ballots
        + tuple(Ballot(v.id + 50, 1, v.person + 9, "late", v.choice, v.at) for v in late.ballots),
    )
    before = recipe(filters=Filters(cast_before="2026-11-02T00:00:00+00:00"))
    assert assemble(both, before).lines["train"][0].winner == "a"
    assert assemble(both, before).counts["votes"]["refused"] == {"outside the time range": 4}
    since = recipe(filters=Filters(cast_from="2026-11-02T00:00:00+00:00"))
    assert assemble(both, since).lines["train"][0].winner == "b"


def test_with_few_groups_no_argument_stands_in_two_splits() -> None:
    # Two debates, each of 20 unconnected chains of three arguments.
    pairs, votes = [], {}
    for chain in range(40):
        group = f"debate-{chain % 2}"
        for step in range(2):
            number = 2 * chain + step + 1
            pairs.append(pair(number, group, f"{chain}-{step}", f"{chain}-{step + 1}"))
            votes[number] = "aaa"
    made = assemble(
        material(pairs, votes), recipe(splits={"train": 0.5, "dev": 0.3, "public_test": 0.2})
    )
    assert made.counts["split_by"] == "argument"
    assert made.counts["components"] == 40
    places: dict[str, set[str]] = {}
    for split, lines in made.lines.items():
        for line in lines:
            for text in (made.pairs[line.pair].a, made.pairs[line.pair].b):
                places.setdefault(text, set()).add(split)
    assert Counter(len(splits) for splits in places.values()) == {1: 120}
    assert len(made.lines) == 3
    assert any("Only 2 groups are left" in text for text in made.warnings)


def test_groups_that_share_an_argument_stay_on_one_side() -> None:
    pairs = [pair(n, f"g{n:02}", f"x{n}", f"y{n}") for n in range(1, 31)]
    pairs.append(pair(99, "g01", "x1", "x30"))  # ties g01 to g30
    votes = dict.fromkeys([*range(1, 31), 99], "aaa")
    for seed in range(20):
        made = assemble(
            material(pairs, votes),
            recipe(splits={"train": 0.5, "dev": 0.5}, seed=f"s{seed}"),
        )
        place = {line.pair: split for split, lines in made.lines.items() for line in lines}
        assert made.counts["split_by"] == "group"
        assert place[1] == place[30] == place[99]


def test_a_pair_that_shares_an_argument_with_a_held_out_group_is_dropped() -> None:
    pairs = [pair(1, "g", "x", "y"), pair(2, "h", "x", "z"), pair(3, "g", "y", "w")]
    made = assemble(material(pairs, dict.fromkeys((1, 2, 3), "aaa")), recipe(heldout_groups=("h",)))
    assert reasons(made) == {1: "shares an argument with a held-out group"}
    assert [line.pair for line in made.lines["heldout_groups"]] == [2]
    assert [line.pair for line in made.lines["train"]] == [3]


def test_the_coin_flip_rate_is_that_of_the_votes_there_are() -> None:
    pairs = [pair(1, "g", "x1", "y1"), pair(2, "g", "x2", "y2"), pair(3, "g", "x3", "y3")]
    made = assemble(
        material(pairs, {1: "aaaab", 2: "aab", 3: ""}),
        recipe(least_votes=3, least_agreeing=3, least_share=0.6),
    )
    # Five coins always hold three alike (1); three coins are all alike in 1 of 4; none, never.
    assert made.counts["chance_keep_rate"] == pytest.approx((1 + 1 / 4 + 0) / 3)


def test_few_pairs_and_few_arguments_are_said() -> None:
    pairs = [pair(1, "g", "x", "y"), pair(2, "h", "z", "w")]
    made = assemble(material(pairs, {1: "aaa", 2: "aaa"}), recipe(heldout_groups=("h",)))
    text = " ".join(made.warnings)
    assert "Only 1 training pairs: under 5,000" in text
    assert "heldout_groups: too few clusters (2 arguments)" in text
    assert "No annotators are held out" in text


def test_a_pair_that_was_asked_twice_is_said() -> None:
    pairs = [pair(1, "g", "x", "y"), pair(2, "g", "y", "x"), pair(3, "g", "x", "z")]
    made = assemble(material(pairs, dict.fromkeys((1, 2, 3), "aaa")), recipe())
    assert made.counts["repeated_pairs"] == 1
    assert "1 training rows repeat the two texts of another row." in made.warnings


def test_a_pair_of_one_text_is_no_preference() -> None:
    made = assemble(
        material([pair(1, "g", "x", "x"), pair(2, "g", "x", "y")], {1: "aaa", 2: "aaa"}), recipe()
    )
    assert reasons(made) == {1: "both answers are the same"}
