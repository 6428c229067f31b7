"""Who wins a comparison, by counting, by a model or by a ruling; and what becomes of ties."""

import datetime as dt
import random
from dataclasses import replace
from typing import Any

import pytest

from apps.common.errors import DomainError
from apps.snapshots.assembling.assembly import BY_LEFT_OUT, assemble
from apps.snapshots.assembling.material import (
    Assembly,
    CurrentVote,
    Judgement,
    Material,
    Pair,
    SplitLine,
)
from apps.snapshots.recipe import RecipeFilters, SnapshotRecipe, recipe_from_stored
from measures.splits import fold_of, split_of
from tests.snapshots.test_gathering import NOON, material, pair, reasons, recipe

LATER = NOON + dt.timedelta(days=1)


def line(made: Assembly, number: int, split: str = "train") -> SplitLine:
    return next(x for x in made.lines[split] if x.pair == number)


def crowd(n_pairs: int = 120, *, spammers: int = 2, seed: int = 1) -> Material:
    """Ten honest people, right in nine of ten cases, and people who always say a. Truth: even
    pairs a, odd pairs b. Each pair has its own group; five vote on it."""
    rng = random.Random(seed)
    pairs = [pair(n, f"g{n:03}", f"x{n}", f"y{n}") for n in range(1, n_pairs + 1)]
    votes = []
    for n in range(1, n_pairs + 1):
        truth, other = ("a", "b") if n % 2 == 0 else ("b", "a")
        for k, person in enumerate(rng.sample(range(10 + spammers), 5)):
            said = "a" if person >= 10 else truth if rng.random() < 0.9 else other
            votes.append(CurrentVote(1000 * n + k, n, person, f"user:{person}", said, NOON))
    return Material(tuple(pairs), tuple(votes))


def single(given: Material, **changes) -> Assembly:
    return assemble(given, recipe(decide_by="single_votes", ties="soft", **changes))


def lone_votes(n: int, *, person: int, choice: str = "a", start: int = 5_001) -> Material:
    """`n` pairs, each with one vote, all by this person."""
    pairs = [pair(k, f"g{k}", f"x{k}", f"y{k}") for k in range(start, start + n)]
    votes = [CurrentVote(1000 * p.id, p.id, person, f"user:{person}", choice, NOON) for p in pairs]
    return Material(tuple(pairs), tuple(votes))


def both(one: Material, other: Material) -> Material:
    return Material((*one.pairs, *other.pairs), (*one.votes, *other.votes))


def test_a_single_vote_is_a_row_that_no_number_of_the_rule_judges() -> None:
    pairs = [pair(n, "g", f"x{n}", f"y{n}") for n in range(1, 7)]
    given = material(pairs, {1: "a", 2: "b", 3: "t", 4: "", 5: "aab", 6: "ab"})
    bad = (CurrentVote(9000, 7, 1, "user:1", "both_bad", NOON),)
    given = replace(given, pairs=(*pairs, pair(7, "g", "x7", "y7")), votes=(*given.votes, *bad))
    made = single(given, least_votes=5, least_agreeing=5, least_share=1.0)
    rows = {x.pair: x for x in made.lines["train"]}
    assert {n: x.winner for n, x in rows.items()} == {1: "a", 2: "b", 3: "tie", 5: "a", 6: "a"}
    assert {n: x.by for n, x in rows.items()} == dict.fromkeys((1, 2, 3), "vote") | dict.fromkeys(
        (5, 6), "model"
    )
    assert rows[1].confidence == rows[2].confidence > rows[6].confidence > rows[3].confidence == 0.5
    even = single(material([pair(1, "g", "x", "y")], {1: "ab"})).lines["train"]
    assert [(x.winner, x.confidence) for x in even] == [("tie", 0.5)]
    assert reasons(made) == {4: "no votes left", 7: "decided: both bad"}
    assert made.counts["chance_keep_rate"] is None
    counted = assemble(given, recipe(least_votes=5, least_agreeing=5, ties="soft"))
    assert not counted.lines.get("train"), "the rule would have kept something by itself"


def test_a_single_vote_is_believed_as_its_voter_agrees_with_others() -> None:
    """People who always say a are right on half of what they share with others."""
    shared = both(crowd(300, spammers=1), lone_votes(200, person=10))
    given = both(shared, lone_votes(200, person=1, start=6_001))
    rows = {x.pair: x.confidence for x in single(given).lines["train"]}
    spammer, honest = rows[5_001], rows[6_001]
    assert 0.5 <= spammer < 0.62
    assert 0.85 < honest < 0.95
    # Two hundred lone votes agree with themselves and show nothing about who cast them.
    alone = both(crowd(300, spammers=1), lone_votes(1, person=10))
    assert single(alone).lines["train"][-1].confidence == spammer


def test_nobody_is_certain_and_whoever_shares_no_pair_counts_as_the_prior() -> None:
    rows = single(lone_votes(3, person=1)).lines["train"]
    assert [x.confidence for x in rows] == [0.727273] * 3  # Beta(4, 1.5)


def test_single_votes_need_soft_labels() -> None:
    with pytest.raises(DomainError, match="must be soft") as refused:
        recipe(decide_by="single_votes")
    assert refused.value.field == "ties"


@pytest.mark.parametrize("method", ["one_coin", "dawid_skene", "mace"])
def test_a_model_decides_by_its_posterior_and_the_row_carries_it(method: str) -> None:
    made = assemble(crowd(), recipe(decide_by=method, least_votes=2))
    rows = made.lines["train"]
    assert {x.by for x in rows} == {"model"}
    assert all(x.confidence == x.posterior >= 0.9 for x in rows)
    right = sum(x.winner == ("a" if x.pair % 2 == 0 else "b") for x in rows)
    assert right / len(rows) > 0.95
    assert set(reasons(made).values()) <= {"posterior too low", "vote tie"}
    assert 0 < made.counts["chance_keep_rate"] < 1


def test_a_model_sees_through_people_who_always_say_the_same() -> None:
    many = crowd(400, spammers=6, seed=3)
    counted = assemble(many, recipe(least_votes=3, least_agreeing=3))
    modelled = assemble(many, recipe(decide_by="dawid_skene", least_votes=3))

    def wrong(made: Assembly) -> float:
        rows = made.lines["train"]
        return sum(x.winner != ("a" if x.pair % 2 == 0 else "b") for x in rows) / len(rows)

    assert wrong(modelled) < wrong(counted) / 2


def test_the_same_votes_give_the_same_posteriors() -> None:
    wanted = recipe(decide_by="mace", least_votes=2, splits={"train": 0.5, "dev": 0.5})
    assert assemble(crowd(), wanted).lines == assemble(crowd(), wanted).lines


@pytest.mark.parametrize(
    "way",
    [{"decide_by": "one_coin", "least_votes": 2}, {"decide_by": "single_votes", "ties": "soft"}],
)
def test_no_vote_on_a_tested_comparison_moves_a_training_row(way: dict[str, Any]) -> None:
    wanted = recipe(**way, splits={"train": 0.5, "public_test": 0.5})
    before = crowd()
    tested = {
        p.id for p in before.pairs if split_of(p.group, wanted.shares, wanted.seed) != "train"
    }
    flip = {"a": "b", "b": "a"}
    after = replace(
        before,
        votes=tuple(
            replace(v, choice=flip[v.choice]) if v.pair in tested else v for v in before.votes
        ),
    )
    assert assemble(before, wanted).lines["train"] == assemble(after, wanted).lines["train"]
    assert (
        assemble(before, wanted).lines["public_test"]
        != assemble(after, wanted).lines["public_test"]
    )


def test_held_out_annotators_have_no_part_in_the_model() -> None:
    wanted = recipe(decide_by="one_coin", least_votes=2, heldout_annotators=0.3, seed="s")
    before = crowd()
    held = {p for p in range(12) if fold_of(f"user:{p}", 0.3, "s")}
    assert held
    noisy = replace(
        before,
        votes=tuple(replace(v, choice="b") if v.person in held else v for v in before.votes),
    )
    one, other = assemble(before, wanted), assemble(noisy, wanted)
    assert one.lines["train"] == other.lines["train"]
    assert not {v for x in one.lines["train"] for v in x.votes} & {
        v.id for v in before.votes if v.person in held
    }


# --- rulings -------------------------------------------------------------------------------------


def ruled(choice: str, **changes) -> Pair:
    said = Judgement(choice, "adjudicated, guideline gap", 99, "user:99", LATER)
    return pair(1, "g", "x", "y", ruling=replace(said, **changes))


def test_a_ruling_overrides_the_votes_and_names_them() -> None:
    made = assemble(material([ruled("b")], {1: "aaaab"}), recipe())
    row = line(made, 1)
    assert (row.winner, row.confidence, row.by) == ("b", 1.0, "ruling")
    assert row.share == pytest.approx(1 / 5)
    assert row.votes == (1001, 1002, 1003, 1004, 1005)
    assert row.reason == "adjudicated, guideline gap"
    assert made.counts["rulings"] == {"against the votes": 1, "used": 1}


def test_a_ruling_needs_no_votes_and_a_tie_of_it_follows_the_policy() -> None:
    assert line(assemble(material([ruled("a")], {1: ""}), recipe()), 1).votes == ()
    tie = material([ruled("tie")], {1: "aaa"})
    assert reasons(assemble(tie, recipe())) == {1: "decided: tie"}
    assert line(assemble(tie, recipe(ties="soft")), 1).confidence == 0.5


def test_a_ruling_stands_though_somebody_voted_after_it() -> None:
    base = material([ruled("b", at=NOON)], {1: "aaa"}, at=LATER)
    made = assemble(base, recipe())
    assert line(made, 1).winner == "b"
    assert made.counts["rulings"]["voted on since"] == 1


@pytest.mark.parametrize(
    ("changes", "wanted", "told"),
    [
        ({}, {"rulings": "ignore"}, "ignored, as the recipe says"),
        (
            {"person": 7},
            {"filters": RecipeFilters(left_out=(7,))},
            "set aside: by somebody who is left out",
        ),
        (
            {},
            {"filters": RecipeFilters(cast_before="2026-11-02T00:00:00+00:00")},
            "set aside: outside the time range",
        ),
    ],
)
def test_a_ruling_that_may_not_count_leaves_the_votes_to_decide(
    changes: dict, wanted: dict, told: str
) -> None:
    made = assemble(material([ruled("b", **changes)], {1: "aaa"}), recipe(**wanted))
    assert line(made, 1).winner == "a"
    assert made.counts["rulings"] == {told: 1}


def test_a_held_out_annotators_ruling_is_set_aside() -> None:
    held = next(n for n in range(100) if fold_of(f"user:{n}", 0.5, "concord"))
    others = [n for n in range(200, 400) if not fold_of(f"user:{n}", 0.5, "concord")][:3]
    votes = tuple(CurrentVote(n, 1, n, f"user:{n}", "a", NOON) for n in others)
    given = Material((ruled("b", person=held, person_key=f"user:{held}"),), votes)
    made = assemble(given, recipe(heldout_annotators=0.5))
    assert line(made, 1).winner == "a"
    assert [("held-out" in why, n) for why, n in made.counts["rulings"].items()] == [(True, 1)]


def test_what_waits_for_review_is_left_out_with_its_reason() -> None:
    waiting = pair(1, "g", "x", "y", review="It mentions a phone number.")
    made = assemble(material([waiting], {1: "aaa"}), recipe())
    assert reasons(made) == {1: "needs review"}
    assert made.drops[0].detail == waiting.review


def test_people_an_admin_left_out_are_counted_by_that_name() -> None:
    made = assemble(
        material([pair(1, "g", "x", "y")], {1: "aaab"}),
        recipe(filters=RecipeFilters(left_out=(4,))),
    )
    assert line(made, 1).share == 1.0
    assert made.counts["votes"]["refused"] == {BY_LEFT_OUT: 1}


# --- ties ----------------------------------------------------------------------------------------

OUTCOMES = {1: "aaaaa", 2: "aaatb", 3: "ttttt", 4: "aabbt", 5: "xxxxx", 6: "aabb"}


def with_ties(policy: str, **changes) -> Assembly:
    """One pair per outcome: sure, likely, tie, too little agreement, both bad, vote tie."""
    given = material(
        [pair(n, f"g{n}", f"x{n}", f"y{n}") for n in OUTCOMES],
        {n: letters.replace("x", "a") for n, letters in OUTCOMES.items()},
    )
    bad = tuple(replace(v, choice="both_bad") if v.pair == 5 else v for v in given.votes)
    least = {"least_agreeing": 2, "least_share": 0.5} | changes
    return assemble(replace(given, votes=bad), recipe(ties=policy, **least))


def test_ties_are_dropped_and_counted_by_default() -> None:
    made = with_ties("drop")
    assert [x.pair for x in made.lines["train"]] == [1, 2]
    assert reasons(made) == {
        3: "decided: tie",
        4: "too little agreement",
        5: "decided: both bad",
        6: "vote tie",
    }


def test_soft_labels_count_half_of_every_tie() -> None:
    made = with_ties("soft")
    # 5 of 5; 3 + ½ of 5; a tie; two against two.
    assert {x.pair: x.confidence for x in made.lines["train"]} == {1: 1.0, 2: 0.7, 3: 0.5, 6: 0.5}
    assert reasons(made) == {4: "too little agreement", 5: "decided: both bad"}


def test_a_tie_is_no_test_of_which_side_is_found() -> None:
    made = with_ties("soft", splits={"train": 0.01, "public_test": 0.99})
    assert [x.pair for x in made.lines["public_test"]] == [1, 2]
    assert reasons(made)[3] == "decided: tie"
    assert reasons(made)[6] == "vote tie"


def test_single_answers_keep_ties_and_both_bad() -> None:
    made = with_ties("kto")
    assert {x.pair: x.winner for x in made.lines["train"]} == {
        1: "a",
        2: "a",
        3: "tie",
        5: "both_bad",
    }
    assert made.counts["rows"]["train"] == 8  # two answers each
    assert made.counts["kept"] == 4


def test_an_answer_that_won_and_lost_is_said_to_have_both_labels() -> None:
    pairs = [pair(1, "g", "x", "y"), pair(2, "g", "y", "z")]
    made = assemble(material(pairs, {1: "aaa", 2: "aaa"}), recipe(ties="kto"))
    assert made.counts["labels"] == {"desirable": 2, "undesirable": 2, "contradicting": 1}
    assert any(said.startswith("1 answers") for said in made.warnings)


# --- anonymous imports ---------------------------------------------------------------------------


def imported(names: list[str]) -> Material:
    pairs = tuple(pair(n, f"g{n}", f"x{n}", f"y{n}") for n in range(len(names)))
    votes = tuple(CurrentVote(n, n, n, f"import:{name}", "a", NOON) for n, name in enumerate(names))
    return Material(pairs, votes)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["w1", "unknown", "w1"], "1 imported votes name nobody"),
        (["Anonymous"] * 3, "3 imported votes name nobody"),
        ([f"row-{n}" for n in range(30)], "each of the 30 imported votes has its own annotator"),
        (["crowd"] * 30, "all 30 imported votes carry one annotator's id"),
    ],
)
def test_annotators_of_an_anonymised_import_cannot_be_held_out(names: list[str], why: str) -> None:
    with pytest.raises(DomainError, match=why) as refused:
        assemble(imported(names), recipe(heldout_annotators=0.2))
    assert (refused.value.code, refused.value.field) == ("anonymous_votes", "heldout_annotators")
    one = {"least_votes": 1, "least_agreeing": 1}
    assert assemble(imported(names), recipe(**one)).lines["train"]  # without a hold-out all is well


def test_annotators_with_names_can_be_held_out() -> None:
    names = [f"{n % 3}" for n in range(30)]  # three people, called 0, 1 and 2
    one = {"least_votes": 1, "least_agreeing": 1, "heldout_annotators": 0.2}
    assert assemble(imported(names), recipe(**one)) is not None


def test_the_recipe_of_an_old_snapshot_still_reads() -> None:
    old = {
        "least_votes": 2,
        "ties": "drop",
        "splits": {"train": 0.9, "dev": 0.1},
        "colour": "red",
        "filters": {"groups": ["x"], "moods": []},
    }
    read = recipe_from_stored(old)
    assert (read.least_votes, read.decide_by, read.filters.groups) == (2, "votes", ("x",))
    assert isinstance(read, SnapshotRecipe)
