"""Error rates from audits: planted errors are found, and what reviewers get wrong is taken out."""

import math

import numpy as np
import pytest

from measures.audit import (
    Rate,
    coincidence,
    corrected_rate,
    error_from_repeats,
    simple_rate,
    stratified_rate,
    weighted_rate,
)
from measures.intervals import wilson


def audit_once(
    rng: np.random.Generator,
    *,
    e: float = 0.2,
    r: float = 0.1,
    n_choices: int = 2,
    people: int = 12,
    votes: int = 3_000,
    rate: float = 0.1,
    reviewed: int = 150,
) -> tuple[Rate, Rate]:
    """Votes that are wrong in a share e, a tenth of them judged again by reviewers who err in a
    share r; r is learned from as many gold answers."""
    person = rng.integers(0, people, votes)
    person = np.where(rng.random(votes) < 0.3, 0, person)  # one of them voted a third
    own = np.clip(e + rng.normal(0, 0.08, people), 0.01, 0.6)
    own *= e / own[person].mean()
    vote = wrong_by(rng, rng.random(votes) < own[person], n_choices)
    judged = wrong_by(rng, rng.random(votes) < r, n_choices)
    sampled = rng.random(votes) < rate
    counts = [
        np.bincount(person, weights=w, minlength=people)
        for w in ((vote != judged) & sampled, sampled, np.ones(votes))
    ]
    return stratified_rate(*counts), simple_rate(int(rng.binomial(reviewed, r)), reviewed)


def wrong_by(rng: np.random.Generator, wrong: np.ndarray, n_choices: int) -> np.ndarray:
    """0 where right, else one of the other choices."""
    return np.where(wrong, rng.integers(1, n_choices, len(wrong)), 0)


@pytest.mark.parametrize("n_choices", [2, 4])
def test_a_fifth_of_corrupted_votes_is_found_although_reviewers_err(n_choices: int) -> None:
    """SPEC B5: the interval covers 0.2 in about 95 of 100 audits; uncorrected it does not."""
    rng = np.random.default_rng(20161)
    kappa = coincidence(np.ones(n_choices))
    covered = uncorrected = 0
    values = []
    runs = 400
    for _ in range(runs):
        differing, reviewers = audit_once(rng, n_choices=n_choices)
        found = corrected_rate(differing, reviewers, kappa=kappa).rate
        covered += found.low <= 0.2 <= found.high
        plain = differing.interval
        uncorrected += plain.low <= 0.2 <= plain.high
        values.append(found.value)
    assert 0.925 <= covered / runs <= 0.985
    assert uncorrected / runs < 0.5
    assert np.mean(values) == pytest.approx(0.2, abs=0.006)


def test_clean_votes_are_not_accused_of_the_reviewers_errors() -> None:
    rng = np.random.default_rng(7)
    n_zero = 0
    for _ in range(200):
        differing, reviewers = audit_once(rng, e=0.0001, r=0.1)
        assert differing.interval.low > 0.01  # what one would believe without correction
        n_zero += corrected_rate(differing, reviewers).rate.low < 0.005
    assert n_zero >= 190


def test_with_perfect_reviewers_nothing_is_taken_out() -> None:
    found = corrected_rate(simple_rate(40, 200), simple_rate(0, 100_000))
    assert found.rate.value == pytest.approx(0.2)
    reference = wilson(40, 200)
    assert found.rate.low == pytest.approx(reference.low, abs=0.004)
    assert found.rate.high == pytest.approx(reference.high, abs=0.004)


def test_the_two_way_case_by_hand() -> None:
    # d = e(1 − r) + (1 − e) r with e = 0.2, r = 0.1: 0.18 + 0.08 = 0.26
    found = corrected_rate(simple_rate(260, 1000), simple_rate(100, 1000)).rate
    assert found.value == pytest.approx(0.2)


def test_not_knowing_the_reviewers_well_widens_the_interval() -> None:
    d = simple_rate(260, 1000)
    widths = [
        (lambda x: x.high - x.low)(corrected_rate(d, simple_rate(n // 10, n)).rate)
        for n in (30, 300, 3000)
    ]
    assert widths[0] > 1.5 * widths[1] > 1.5 * widths[2] / 1.2


@pytest.mark.parametrize(
    ("differing", "reviewers", "why"),
    [
        (simple_rate(20, 100), simple_rate(1, 19), "few_answers n=19 least=20"),
        (simple_rate(20, 100), Rate(None, None, 0, "nobody knows"), "nobody knows"),
        (simple_rate(20, 100), simple_rate(45, 100), "reviewers_by_chance"),
        (simple_rate(2, 9), simple_rate(10, 100), "few_audits n=9"),
    ],
)
def test_where_it_cannot_be_corrected_it_says_so(
    differing: Rate, reviewers: Rate, why: str
) -> None:
    found = corrected_rate(differing, reviewers)
    assert found.not_corrected == why
    assert found.rate.value == differing.value


def test_without_audits_there_is_no_rate() -> None:
    nothing = stratified_rate([0, 0], [0, 0], [40, 2])
    assert nothing.value is None
    assert nothing.undefined == "no_audit"
    assert nothing.interval.undefined == "no_audit"
    assert simple_rate(0, 0).interval.value is None


def test_an_annotator_counts_by_their_votes_and_not_by_their_audits() -> None:
    # the careless one was audited nine times as much as their share of the votes
    rate = stratified_rate([30, 1], [60, 20], [100, 900])
    assert rate.value == pytest.approx(0.1 * 0.5 + 0.9 * 0.05)


def test_annotators_with_few_audits_are_one_stratum() -> None:
    alone = stratified_rate([10, 1, 0, 0], [50, 2, 1, 2], [500, 100, 50, 0 + 50])
    together = stratified_rate([10, 1], [50, 5], [500, 200])
    assert alone.value == pytest.approx(together.value)
    assert alone.effective == pytest.approx(together.effective)


def test_strata_that_were_sampled_alike_change_nothing_much() -> None:
    even = stratified_rate([20, 20, 20], [100, 100, 100], [1000, 1000, 1000])
    assert even.value == pytest.approx(0.2)
    assert even.effective == pytest.approx(297, rel=0.03)


def test_weights_cost_trials() -> None:
    assert weighted_rate([1, 0, 0, 0], [1, 1, 1, 1]).effective == pytest.approx(4)
    uneven = weighted_rate([1, 0, 0, 0], [9, 1, 1, 1])
    assert uneven.value == pytest.approx(0.75)
    assert uneven.effective == pytest.approx(144 / 84)


def test_two_wrong_answers_coincide_as_the_choices_allow() -> None:
    assert coincidence([0.6, 0.4]) == 1.0
    assert coincidence([0.25] * 4) == pytest.approx(1 / 3)
    assert coincidence([]) == 1.0
    # drawn: truth by the shares, two wrong answers among the others by the shares
    rng = np.random.default_rng(5)
    p = np.array([0.45, 0.35, 0.15, 0.05])
    truth, one, two = (rng.choice(4, 400_000, p=p) for _ in range(3))
    wrong = (one != truth) & (two != truth)
    drawn = [(one == two)[wrong & (truth == t)].mean() * (truth == t).mean() for t in range(4)]
    assert coincidence(p) == pytest.approx(sum(drawn), abs=0.004)


@pytest.mark.parametrize("kappa", [1.0, 1 / 3])
def test_ones_own_error_is_learned_from_answering_twice(kappa: float) -> None:
    r, n = 0.12, 4_000
    same = (1 - r) ** 2 + kappa * r**2
    found = error_from_repeats(round((1 - same) * n), n, kappa=kappa)
    assert found.value == pytest.approx(r, abs=0.001)
    assert n / 2 < found.effective <= 2 * n  # two looks at each pair
    assert error_from_repeats(50, 100).value is None  # a coin
    assert error_from_repeats(0, 40).value == 0.0


def test_intervals_from_repeats_hold_what_they_promise() -> None:
    rng, r, n = np.random.default_rng(2), 0.1, 150
    hits = 0
    for _ in range(600):
        differing = int(
            (wrong_by(rng, rng.random(n) < r, 2) != wrong_by(rng, rng.random(n) < r, 2)).sum()
        )
        interval = error_from_repeats(differing, n).interval
        hits += interval.low <= r <= interval.high
    assert 0.92 <= hits / 600 <= 0.985


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="wrong ≤ audited"):
        stratified_rate([2], [1], [5])
    with pytest.raises(ValueError, match="between 0 and n"):
        simple_rate(3, 2)
    assert math.isclose(simple_rate(1, 4).value, 0.25)
