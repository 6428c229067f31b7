"""Splits that never move, hold-outs, weights and overlap."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.duplicates import normalise
from measures.splits import (
    assign_splits,
    effective_sample_size,
    fold_of,
    overlap_containment,
    split_of,
    unit_hash,
)

SHARES = {"train": 0.7, "dev": 0.1, "test": 0.2}
PINNED_SPLITS = [
    "train",
    "train",
    "test",
    "test",
    "dev",
    "test",
    "test",
    "train",
    "test",
    "train",
    "train",
    "train",
]
PINNED_HELD_OUT = [11, 20, 23, 27, 36]
DIGEST_START = "22013da7bd368c11"
KEYS = [f"debate {i}" for i in range(4000)]


def test_assignments_are_pinned_so_that_no_release_ever_moves_them():
    """Changing one of these moves rows from test to train in every project: do not."""
    assert [split_of(f"debate {i}", SHARES, "salt") for i in range(12)] == PINNED_SPLITS
    assert [i for i in range(40) if fold_of(f"ana-{i}", 0.2, "salt")] == PINNED_HELD_OUT


def test_the_hash_is_the_first_53_bits_of_a_sha256():
    # printf '4:salt:debate' | sha256sum, first 16 hex digits, worked out outside Python.
    assert unit_hash("debate", "salt") == int(DIGEST_START, 16) // 2**11 / 2**53


def test_another_interpreter_with_another_hash_seed_assigns_the_same():
    script = (
        "from measures.splits import split_of\n"
        "shares = {'train': 0.7, 'dev': 0.1, 'test': 0.2}\n"
        "print(' '.join(split_of(f'debate {i}', shares, 's') for i in range(50)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "4711"},
    )
    assert ran.stdout.split() == [split_of(key, SHARES, "s") for key in KEYS[:50]]


def test_new_groups_move_no_old_one():
    before = assign_splits(KEYS[:100], SHARES, "salt").splits
    after = assign_splits(KEYS[::-1], SHARES, "salt").splits[::-1]
    assert after[:100] == before


def test_rows_of_one_group_stay_together():
    splits = assign_splits(KEYS[:20] * 5, SHARES, "salt").splits
    assert splits == splits[:20] * 5


def test_shares_come_out_about_right_over_many_groups():
    assignment = assign_splits(KEYS, SHARES, "salt")
    for split, share in SHARES.items():
        spread = math.sqrt(share * (1 - share) * len(KEYS))
        assert assignment.n_groups[split] == pytest.approx(share * len(KEYS), abs=4 * spread)
    assert assignment.warnings == ()


def test_another_salt_deals_anew():
    one = assign_splits(KEYS, SHARES, "salt").splits
    other = assign_splits(KEYS, SHARES, "pepper").splits
    same = sum(a == b for a, b in zip(one, other, strict=True)) / len(KEYS)
    assert same == pytest.approx(0.7**2 + 0.1**2 + 0.2**2, abs=0.04)


def test_salt_and_key_do_not_run_into_each_other():
    assert unit_hash("c", "ab") != unit_hash("bc", "a")


def test_a_split_of_few_groups_says_so():
    assignment = assign_splits(KEYS[:26], SHARES | {"test": 0.2}, "salt")
    assert sum(assignment.n_groups.values()) == 26
    for split, n in assignment.n_groups.items():
        warned = any(f"{split!r} has too few groups: {n} of" in w for w in assignment.warnings)
        assert warned == (n < 10)
    assert any("'dev'" in warning for warning in assignment.warnings)


def test_a_split_without_a_share_gets_nothing_and_no_warning():
    shares = {"train": 0.5, "none": 0.0, "test": 0.5, "last": 0.0}
    assignment = assign_splits(KEYS, shares, "salt")
    assert assignment.n_groups["none"] == assignment.n_groups["last"] == 0
    assert assignment.warnings == ()


@given(st.text(), st.text())
def test_every_text_has_a_place(key, salt):
    assert 0 <= unit_hash(key, salt) < 1
    assert split_of(key, SHARES, salt) in SHARES
    assert split_of(key, {"all": 1.0}, salt) == "all"


def test_even_a_broken_surrogate_has_a_place():
    assert 0 <= unit_hash("\ud800", "salt") < 1


@pytest.mark.parametrize(
    "shares", [{}, {"train": 0.7, "test": 0.2}, {"train": 1.2, "test": -0.2}, {"train": 80.0}]
)
def test_shares_that_do_not_sum_to_one_are_refused(shares):
    with pytest.raises(ValueError, match="shares must"):
        split_of("debate", shares, "salt")


def test_a_fifth_of_annotators_is_held_out_independently_of_the_splits():
    held = [fold_of(key, 0.2, "salt") for key in KEYS]
    assert sum(held) == pytest.approx(800, abs=4 * math.sqrt(4000 * 0.16))
    tested = [split_of(key, SHARES, "salt") == "test" for key in KEYS]
    both = sum(a and b for a, b in zip(held, tested, strict=True))
    assert both == pytest.approx(160, abs=4 * math.sqrt(160))


def test_holding_out_more_annotators_releases_nobody():
    for key in KEYS[:500]:
        held = [fold_of(key, share, "salt") for share in (0, 0.1, 0.2, 0.5, 1)]
        assert held == sorted(held)
        assert held[0] is False
        assert held[-1] is True
    with pytest.raises(ValueError, match="share must lie"):
        fold_of("ana", 20, "salt")


def test_effective_sample_size_by_hand():
    assert effective_sample_size([2, 2, 2]).value == pytest.approx(3)
    assert effective_sample_size([3, 1]).value == pytest.approx(16 / 10)
    assert effective_sample_size([1, 0, 0]).value == pytest.approx(1)


@given(st.lists(st.floats(0, 1e-200), min_size=1, max_size=20))
def test_effective_sample_size_lies_between_one_and_n_even_for_tiny_weights(weights):
    result = effective_sample_size(weights)
    if max(weights) == 0:
        assert result.undefined == "no row has a positive weight"
    else:
        assert 1 - 1e-9 <= result.value <= len(weights) + 1e-9


@pytest.mark.parametrize("weights", [[1, -1], [math.nan], [math.inf, 1]])
def test_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(ValueError, match="weights must"):
        effective_sample_size(weights)


def test_no_weights_have_no_size():
    assert effective_sample_size([]).undefined == "no row has a positive weight"


def test_overlap_counts_distinct_rl_prompts_seen_in_sft():
    overlap = overlap_containment(
        ["Write a poem.", "Sum 2+2", "Sum 2+2", "Other"],
        ["write  a POEM.", "Write a poem.", "ｓｕｍ 2+2", "New", "Newer"],
    )
    assert (overlap.n_sft, overlap.n_rl, overlap.n_both) == (3, 4, 2)
    assert overlap.containment == 0.5


def test_overlap_is_undefined_without_rl_prompts_and_zero_without_sft_ones():
    assert overlap_containment(["a"], []).undefined == "there are no RL texts"
    assert overlap_containment(["a"], []).containment is None
    assert overlap_containment([], ["a"]).containment == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I Love\u00a0You", "i love you"),
        ("ﬁne", "FINE"),
        ("STRASSE", "straße"),
        ("cafe\u0301", "CAFÉ"),
        ("  two\n\tlines ", "two lines"),
        ("Ⅷ", "viii"),
        ("🄰 ℡", "a tel"),  # capitals only after the compatibility form: folded a second time
    ],
)
def test_spellings_of_the_same_text_have_one_normal_form(one, other):
    assert normalise(one) == normalise(other)


def test_different_words_and_marks_stay_different():
    assert normalise("yes!") != normalise("yes")
    assert normalise("resume") != normalise("résumé")


@given(st.text())
def test_normalising_twice_changes_nothing(text):
    once = normalise(text)
    assert normalise(once) == once
