"""Reward runs: which pairs are trained on, in which order, in which batches."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.config import recipe_fields, settings_for
from workers.data.batches import (
    Encoded,
    OrderSampler,
    assign_folds,
    fold_keys,
    inverse_frequency_order,
    length_strata,
    padded_tokens,
    parts_under,
    rectangles,
    stratified_order,
)
from workers.data.snapshot import Preference
from workers.trainers.reward_data import (
    FOLD,
    EncodedPair,
    PairData,
    Part,
    Progress,
    Result,
    Scores,
    Watched,
    plan_parts,
)
from workers.trainers.reward_reports import cross_validation

LENGTHS = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=24)


def row(**values: object) -> Preference:
    return replace(Preference([{"role": "user", "content": "p"}], "a", "b"), **values)


# --- batches ---


@given(LENGTHS, st.integers(1, 400) | st.none(), st.integers(1, 6))
def test_parts_hold_every_pair_once_and_stay_under_the_budget(pairs, budget, at_least) -> None:
    parts = parts_under(pairs, budget=budget, at_least=at_least)
    assert sorted(i for part in parts for i in part) == list(range(len(pairs)))
    assert len(parts) >= min(at_least, -(-len(pairs) // -(-len(pairs) // at_least)))
    for part in parts:
        # counted by hand: every text is padded to the longest of its rectangle
        lengths = [n for i in part for n in pairs[i]]
        assert padded_tokens(lengths) >= sum(lengths)
        assert budget is None or len(part) == 1 or padded_tokens(lengths) <= budget


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60))
def test_rectangles_hold_every_text_once_and_never_pad_more_than_one_batch_would(lengths) -> None:
    groups = rectangles(lengths)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    assert padded_tokens(lengths) <= len(lengths) * max(lengths)


def test_a_long_text_among_short_ones_does_not_pad_them_all() -> None:
    # four of 100 tokens and twelve of 10: 400 + 120 instead of 1,600
    assert padded_tokens([100] * 4 + [10] * 12) == 520


# --- orders ---


def test_a_stratified_step_holds_its_share_of_every_group() -> None:
    groups = ["large"] * 80 + ["small"] * 20
    order = stratified_order(groups, torch.Generator().manual_seed(0))
    assert sorted(order) == list(range(100))
    for start in range(0, 100, 10):
        small = sum(groups[i] == "small" for i in order[start : start + 10])
        assert 1 <= small <= 3


def test_inverse_frequency_draws_rare_groups_as_often_as_large_ones() -> None:
    groups = ["large"] * 900 + ["small"] * 100
    order = inverse_frequency_order(groups, torch.Generator().manual_seed(0))
    drawn = Counter(groups[i] for i in order)
    assert len(order) == 1000
    assert 430 < drawn["small"] < 570  # 500 ± 4 standard deviations


def test_an_order_is_another_one_each_epoch_and_the_same_one_when_resumed() -> None:
    def sampler() -> OrderSampler:
        return OrderSampler(lambda g: stratified_order(["x"] * 50, g), 50, seed=3)

    first, resumed = sampler(), sampler()
    before = list(first)
    first.set_epoch(1)
    resumed.set_epoch(1)
    assert list(first) == list(resumed) != before


def test_length_strata_are_quarters_and_keep_equal_lengths_together() -> None:
    assert Counter(length_strata(list(range(100)))) == {0: 25, 1: 25, 2: 25, 3: 25}
    assert len(set(length_strata([7] * 10))) == 1


# --- folds ---


def voted(i: int, people: int, n: int = 3) -> Preference:
    """Person k of `n` in a row votes for the chosen answer, the last one for the other."""
    names = [f"person-{(i * 3 + k * (1 + i % 4)) % people}" for k in range(n)]
    votes = ["chosen"] * (n - 1) + ["rejected"]
    return row(cluster=f"c{i}", voters=tuple(zip(names, votes, strict=True)))


def test_a_fold_over_annotators_trains_on_no_row_that_one_of_its_people_voted_on() -> None:
    rows = [voted(i, 15) for i in range(120)]
    folds = plan_parts(settings_for("reward", {"folds": 5}), rows, seed=0)[:5]
    everybody = {name for one in rows for name, _ in one.voters}
    assert frozenset().union(*(part.people for part in folds)) == everybody
    assert sum(len(part.people) for part in folds) == len(everybody)  # each in one fold
    for part in folds:
        assert len(part.rows) >= 24
        assert not part.people & {name for i in part.rows for name, _ in rows[i].voters}
        assert all(part.people & {name for name, _ in rows[i].voters} for i in part.held_out)


def test_people_who_all_voted_on_everything_cannot_be_left_out() -> None:
    rows = [row(cluster=f"c{i}", voters=(("ana", "chosen"), ("bo", "tie"))) for i in range(20)]
    folds = plan_parts(settings_for("reward", {"folds": 2}), rows, seed=0)[:2]
    assert not any(part.people for part in folds)
    assert sorted(i for part in folds for i in part.held_out) == list(range(20))


def test_a_fifth_of_raters_who_love_length_is_seen_by_folds_over_annotators() -> None:
    """The fold's model has learned from those who love the short answer, and is right about them
    alone: of ten people two love the long one, and both are in the fold."""
    rows = []
    for i in range(60):
        short = [(f"short-{(i + k) % 8}", "chosen") for k in range(2)]
        rows.append(
            row(
                cluster=f"c{i}",
                voters=(*short, (f"long-{i % 2}", "rejected" if i % 5 else "chosen")),
            )
        )
    text = Encoded([1], [1], cut=0)
    data = PairData([EncodedPair(one, text, text) for one in rows], {})
    settings = settings_for("reward", {"folds": 2, "bootstrap_replicates": 100})
    held = list(range(60))
    fold = Part("fold-0", FOLD, 0, [], held, frozenset({"long-0", "long-1"}))
    empty = Part("fold-1", FOLD, 0, held)
    scores = {"fold": Scores([1.0] * 60, [0.0] * 60)}
    results = [Result("fold-0", FOLD, 0, 0, 1, "", 1, None, scores)]
    results.append(replace(results[0], name="fold-1", scores={"fold": Scores([], [])}))
    found = cross_validation(results, [fold, empty], data, settings, seed=0)
    assert found is not None
    assert (found["by"], found["rows"]) == ("annotator", 60)
    assert found["accuracy"]["value"] == pytest.approx(0.2)  # their votes, not the majority
    assert found["seen_minus_unseen"]["low"] > 0


def test_without_annotators_folds_are_over_clusters_then_prompts_then_rows() -> None:
    debates = [row(cluster=f"debate-{i % 5}") for i in range(20)]
    prompts = [
        row(cluster="one", prompt=[{"role": "user", "content": str(i % 4)}]) for i in range(8)
    ]
    assert fold_keys(debates, 5)[0] == "cluster"
    assert fold_keys(prompts, 4)[0] == "prompt"
    assert fold_keys([row(cluster="one")] * 6, 3)[0] == "row"


def test_one_annotator_who_decided_most_gets_a_fold_of_their_own() -> None:
    folds = assign_folds(["ana"] * 50 + ["bo", "cy", "di", "ed"] * 5, 2, seed=1)
    assert Counter(folds)[folds[0]] == 50


# --- parts ---


def test_members_differ_by_seed_and_rows_as_the_setting_says() -> None:
    rows = [row(cluster=f"c{i % 10}") for i in range(40)]

    def parts(**values: object):
        return plan_parts(settings_for("reward", values), rows, seed=5)

    assert [p.name for p in parts()] == ["model"]
    boot = parts(members=3)
    assert [p.seed for p in boot] == [5, 6, 7]
    assert all(len(p.rows) == 40 and len(set(p.rows)) < 40 for p in boot)
    left_out = parts(members=4, member_split="kfold")
    assert sorted(i for p in left_out for i in set(range(40)) - set(p.rows)) == list(range(40))
    assert all(p.rows == list(range(40)) for p in parts(members=2, member_split="seed"))
    folds = parts(folds=5, members=2)
    assert [p.kind for p in folds] == ["fold"] * 5 + ["member"] * 2
    assert sorted(i for p in folds[:5] for i in p.held_out) == list(range(40))
    assert all(not set(p.rows) & set(p.held_out) for p in folds[:5])


def test_progress_is_read_back_as_it_was_written(tmp_path) -> None:
    result = Result("fold-0", "fold", 1, 9, 4, "x", 4, 0.5, {"fold": Scores([1.0], [0.5])})
    progress = Progress([result], "fold-1", Watched(0.7, 0.6, 3, 1, 2, False), {"rows": {}})
    progress.write(tmp_path)
    assert Progress.read(tmp_path) == progress
    (tmp_path / "resume" / "training.json").write_text(json.dumps({"version": 1}))
    with pytest.raises(Exception, match=r"training\.json"):
        Progress.read(tmp_path)


def test_one_fold_is_refused() -> None:
    with pytest.raises(Exception, match="folds: 1"):
        settings_for("reward", {"folds": 1})


def test_every_option_of_reward_runs_is_explained() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reward-training.md").read_text()
    assert [f.name for f in recipe_fields("reward") if f"`{f.name}`" not in page] == []
