"""Leave one vote out: exact where it can be counted by hand, and its alarms."""

import numpy as np
import pytest

from measures.consensus import METHODS, Votes, fit, leave_one_vote_out, votes_from
from tests.measures.consensus.crowds import coins, people, real_crowd, simulated


def one_coin_predictions(votes: Votes, posteriors: np.ndarray, prior: float = 0.5) -> list[float]:
    """P(what was cast), vote by vote in plain Python: q of everybody from the other items only."""
    rows = list(
        zip(votes.items.tolist(), votes.annotators.tolist(), votes.choices.tolist(), strict=True)
    )

    right: dict[int, dict[int, float]] = {}
    on: dict[int, list[int]] = {}
    for number, (i, j, c) in enumerate(rows):
        right.setdefault(j, {})[i] = posteriors[i, c]
        on.setdefault(i, []).append(number)

    def accuracy(annotator: int, without: int) -> float:
        others = [p for item, p in right[annotator].items() if item != without]
        return (sum(others) + 4) / (len(others) + 5.5)

    found = []
    for number, (item, annotator, choice) in enumerate(rows):
        odds = [prior, 1 - prior]
        for other in on[item]:
            if other != number:
                _, j, c = rows[other]
                q = accuracy(j, item)
                odds = [w * (q if c == k else 1 - q) for k, w in enumerate(odds)]
        truths = [w / sum(odds) for w in odds]
        q = accuracy(annotator, item)
        found.append(sum(p * (q if choice == k else 1 - q) for k, p in enumerate(truths)))
    return found


def test_one_coin_predictions_equal_a_loop_over_votes():
    votes, _ = simulated(31, people(31, 6), n_items=400, per_item=3)
    found = fit("one_coin", votes)
    check = leave_one_vote_out(found, votes)
    # The check takes its posteriors without an echo, which moves them a little.
    expected = -np.log(one_coin_predictions(votes, found.posteriors))
    assert check.n_votes == 1_200
    assert check.log_loss == pytest.approx(expected.mean(), abs=0.001)
    assert np.abs(check.losses - expected).mean() < 0.01


def test_counting_by_hand():
    # Item 0: a a b; items 1 to 49: a b b. Left out, an a of "a a b" sees one a and one b: 2/4.
    items = np.repeat(np.arange(50), 3)
    choices = np.tile([0, 1, 1], 50)
    choices[:3] = 0, 0, 1
    votes = votes_from(items, np.arange(150) % 5, choices)
    check = leave_one_vote_out(fit("one_coin", votes), votes)
    lonely, paired = np.log(4), np.log(2)  # (0 + 1)/(2 + 2) and (1 + 1)/(2 + 2)
    assert check.counted_log_loss == pytest.approx((lonely + 2 * paired) / 3)
    assert check.counted_brier == pytest.approx((2 * 0.75**2 + 2 * 2 * 0.5**2) / 3)


def test_what_two_people_with_one_vote_each_said_is_no_evidence_for_them():
    """Everybody votes twice and all agree: nobody is predicted better than the prior allows."""
    n = 150
    items = np.repeat(np.arange(n), 2)
    annotators = np.arange(2 * n)
    choices = np.repeat(np.arange(n) % 2, 2)
    votes = votes_from(items, annotators, choices)
    check = leave_one_vote_out(fit("one_coin", votes), votes)
    q = 4 / 5.5
    assert check.log_loss == pytest.approx(-np.log(q * q + (1 - q) ** 2), abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_right_model_passes(method):
    votes, _ = simulated(32, people(32, 40), n_items=2_000)
    check = leave_one_vote_out(fit(method, votes), votes)
    assert check.calibrated, check.sentence
    assert check.slope.low < 1 < check.slope.high
    assert check.spread.low < 1 < check.spread.high
    assert check.gain.low > 0
    assert check.brier < check.counted_brier
    assert sum(bar.n for bar in check.bars) == 2 * check.n_votes


@pytest.mark.parametrize("method", ["one_coin", "dawid_skene"])
def test_the_right_model_passes_where_annotators_are_sparse(method):
    votes, _ = simulated(33, people(33, 800), n_items=1_500)
    check = leave_one_vote_out(fit(method, votes), votes)
    assert check.calibrated, check.sentence


def test_the_check_passes_on_nearly_every_crowd_it_should_pass_on():
    passed = 0
    for seed in range(20):
        votes, _ = simulated(seed, people(seed, 25), n_items=500)
        passed += leave_one_vote_out(fit("one_coin", votes), votes).calibrated
    assert passed >= 18


def test_items_that_differ_in_difficulty_are_noticed():
    """Half the items everybody sees, on the other half everybody flips a coin."""
    easy, _ = simulated(34, coins(*[0.97] * 30), n_items=1_000)
    hard, _ = simulated(35, coins(*[0.5] * 30), n_items=1_000)
    votes = votes_from(
        np.concatenate([easy.items, hard.items + 1_000]),
        np.concatenate([easy.annotators, hard.annotators]),
        np.concatenate([easy.choices, hard.choices]),
    )
    for method in METHODS:
        check = leave_one_vote_out(fit(method, votes), votes)
        assert not check.calibrated
        assert check.sentence.startswith("not calibrated")


def test_people_who_err_together_are_noticed():
    """A third of the crowd repeats one wrong answer on most items."""
    honest, truth = simulated(36, people(36, 30), n_items=1_500)
    rng = np.random.default_rng(0)
    lie = rng.random(1_500) < 0.6
    clique = honest.annotators < 9
    choices = np.where(clique & lie[honest.items], 1 - truth[honest.items], honest.choices)
    votes = votes_from(honest.items, honest.annotators, choices)
    for method in ("one_coin", "dawid_skene"):
        check = leave_one_vote_out(fit(method, votes), votes)
        assert not check.calibrated, check.sentence
        assert check.spread.low > 1.1


def test_a_model_of_one_coin_is_noticed_where_everybody_has_a_side():
    left = np.array([[0.99, 0.01], [0.5, 0.5]])
    matrices = np.stack([left, left[::-1, ::-1]] * 15)
    votes, _ = simulated(37, matrices, n_items=1_500)
    checks = {m: leave_one_vote_out(fit(m, votes), votes) for m in ("one_coin", "dawid_skene")}
    assert not checks["one_coin"].calibrated
    assert checks["dawid_skene"].log_loss < checks["one_coin"].log_loss - 0.05


def test_the_argument_pairs_are_said_to_differ_in_difficulty():
    votes, _ = real_crowd("ukp")
    check = leave_one_vote_out(fit("dawid_skene", votes), votes)
    assert not check.calibrated
    assert "differ in difficulty" in check.sentence


def test_too_few_votes_are_said_to_be_too_few():
    votes, _ = simulated(38, people(38, 6), n_items=15)
    check = leave_one_vote_out(fit("mace", votes), votes)
    assert not check.calibrated
    assert check.log_loss is None
    assert check.sentence.startswith("too few to say: 75 votes")


def test_single_votes_cannot_be_judged():
    votes = votes_from(np.arange(500), np.arange(500) % 7, np.arange(500) % 2)
    check = leave_one_vote_out(fit("one_coin", votes), votes)
    assert (check.n_votes, check.calibrated) == (0, False)


def test_a_crowd_of_one_mind_has_no_spread_to_compare():
    votes = votes_from(np.repeat(np.arange(60), 3), np.tile(np.arange(3), 60), np.zeros(180, int))
    check = leave_one_vote_out(fit("dawid_skene", votes), votes)
    assert check.log_loss < 0.1
    assert np.isfinite(check.log_loss)
