"""What Concord decides by default, on crowds with a known truth and on real ones."""

from dataclasses import replace

import numpy as np
import pytest

from apps.agreement.reports.consensus import (
    caution_said,
    check_said,
    reason_said,
    trust_said,
)
from measures.consensus import (
    METHODS,
    Votes,
    compare,
    fit,
    leave_one_vote_out,
    majority,
    recommended,
    votes_from,
    wawa,
)
from measures.consensus.choosing import _chosen
from tests.measures.consensus.crowds import accuracy, coins, people, real_crowd, simulated


def test_on_rte_the_default_is_as_good_as_the_best_published():
    """Gold independent of the votes: majority 89.69, Dawid–Skene 92.75, MACE 92.38."""
    votes, gold = real_crowd("rte")
    found = compare(votes)
    scores = {method: accuracy(fit.posteriors, gold) for method, fit in found.fits.items()}
    scores |= {"majority": accuracy(majority(votes).shares, gold), "reference": 92.75}
    assert scores["majority"] == pytest.approx(89.69, abs=0.01)
    assert accuracy(recommended(votes, found).posteriors, gold) >= max(scores.values()) - 0.5


def test_on_the_argument_pairs_the_default_is_not_below_majority():
    """Gold derived from the votes: majority 90.73, plain Dawid–Skene 85.94."""
    votes, gold = real_crowd("ukp")
    assert accuracy(majority(votes).shares, gold) == pytest.approx(90.73, abs=0.01)
    assert accuracy(recommended(votes).posteriors, gold) >= 90.73


@pytest.mark.parametrize("seed", range(3))
def test_on_the_argument_pairs_with_fewer_votes_the_default_keeps_up_with_majority(seed):
    votes, gold = real_crowd("ukp")
    some = votes.subset(np.random.default_rng(seed).random(len(votes)) < 0.7)
    default = accuracy(recommended(some).posteriors, gold)
    assert default >= accuracy(majority(some).shares, gold) - 0.5


def left_and_right(n: int) -> np.ndarray:
    """(n, 2, 2) of people of whom half prefer A and half B when unsure."""
    left = np.array([[0.92, 0.08], [0.45, 0.55]])
    return np.stack([left if i % 2 else left[::-1, ::-1] for i in range(n)])


LIARS = coins(*[0.85] * 25, *[0.15] * 5)
CROWDS = {
    "dense": (people(1, 40), {}),
    "sparse": (people(2, 1_600), {"n_items": 1_600}),
    "three votes": (people(3, 60), {"per_item": 3}),
    "ten votes": (people(4, 60), {"per_item": 10, "n_items": 500}),
    "spammers 40 %": (np.concatenate([people(5, 30), coins(*[0.5] * 20)]), {}),
    "ties": (people(6, 40, k=3), {"balance": (0.4, 0.4, 0.2)}),
    "ties and both bad": (people(7, 40, k=4), {"balance": (0.4, 0.4, 0.12, 0.08)}),
    "mostly A": (people(8, 40), {"balance": (0.9, 0.1)}),
    "sides": (left_and_right(30), {}),
    "liars": (LIARS, {}),
    "experts and guessers": (coins(*[0.97] * 6, *[0.58] * 24), {}),
}


@pytest.mark.parametrize("name", CROWDS)
def test_the_default_is_near_the_best_on_crowds_it_has_never_seen(name):
    matrices, shape = CROWDS[name]
    regrets = []
    for seed in (51, 52):
        votes, truth = simulated(seed, matrices, **{"n_items": 1_500, **shape})
        found = compare(votes)
        scores = [accuracy(fit.posteriors, truth) for fit in found.fits.values()]
        scores += [accuracy(counted(votes).shares, truth) for counted in (majority, wawa)]
        regrets.append(max(scores) - accuracy(recommended(votes, found).posteriors, truth))
    assert np.mean(regrets) <= 0.5


def test_another_model_is_recommended_once_it_is_clearly_ahead():
    """Sparse people who differ in nothing but accuracy, over four choices: one coin is enough."""
    votes, _ = simulated(53, people(53, 400, k=4), n_items=1_500)
    found = compare(votes)
    assert found.method == "one_coin"
    assert found.lead > 0.01
    assert "better than Dawid–Skene" in reason_said(found)


def test_a_lead_within_the_noise_changes_nothing():
    votes, _ = simulated(54, people(54, 40), n_items=600)
    checks = compare(votes).checks
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1, size=checks["mace"].n_votes)
    noisy = checks["dawid_skene"].losses - 0.006 + noise - noise.mean()
    rival = replace(checks["mace"], losses=noisy)
    method, _ = _chosen({"dawid_skene": checks["dawid_skene"], "mace": rival})
    assert method == "dawid_skene"


def test_few_votes_are_counted():
    votes, _ = simulated(55, people(55, 8), n_items=35)
    found = recommended(votes)
    assert found.method == "votes"
    assert reason_said(compare(votes)).startswith("counting votes: 175 votes")
    assert found.posteriors == pytest.approx(majority(votes).shares)


def test_where_nobody_can_be_told_apart_from_a_coin_counting_stands():
    """Laplace's rule knows as much about pure noise as any model."""
    votes, _ = simulated(56, coins(*[0.5] * 30), n_items=600)
    found = compare(votes)
    gain = found.checks["dawid_skene"].gain
    assert (found.method == "votes") == (gain.value <= 0)


def test_a_tie_between_alike_people_stays_undecided():
    votes = votes_from(
        np.append(np.repeat(np.arange(150), 2), [150, 150]),
        np.tile([0, 1], 151),
        np.append(np.repeat(np.arange(150) % 2, 2), [0, 1]),
        n_items=152,
    )
    found = recommended(votes)
    assert found.method != "votes"
    assert found.winner[150] == -1  # one vote each
    assert found.winner[151] == -1  # none at all
    assert (found.winner[:150] == np.arange(150) % 2).all()


@pytest.mark.parametrize("n_items", [0, 2])
def test_no_votes_are_undecided(n_items):
    empty = np.zeros(0, dtype=int)
    found = recommended(votes_from(empty, empty, empty, n_items=n_items))
    assert (found.method, found.winner.tolist()) == ("votes", [-1] * n_items)


def test_a_model_is_proposed_from_five_hundred_votes_once_its_check_passes():
    votes, _ = simulated(57, people(57, 20), n_items=300)
    enough, fewer = compare(votes), compare(votes.subset(votes.items < 90))
    assert enough.trusted is fewer.trusted is None  # nothing is known of the truth
    assert enough.proposed
    assert not fewer.proposed


def test_known_answers_overrule_the_check():
    """One in eight comparisons misleads everybody: votes are predicted well, and are wrong."""
    votes, truth = simulated(60, people(60, 20), n_items=900)
    right = compare(votes, golds=truth)
    assert (right.trusted, right.proposed) == (True, True)
    assert "may be read as probabilities" in trust_said(right)
    misled = np.where(np.arange(900) % 8, truth, 1 - truth)
    wrong = compare(votes, golds=misled)
    assert wrong.checks[wrong.method].calibrated
    assert (wrong.trusted, wrong.proposed) == (False, False)
    assert "are not probabilities" in trust_said(wrong)
    few = np.where(np.arange(900) < 19, misled, -1)
    assert compare(votes, golds=few).trusted is None


def test_a_model_that_fails_its_check_is_not_proposed():
    votes, _ = real_crowd("ukp")
    found = compare(votes)
    assert found.method != "votes"
    assert not found.trusted
    assert not found.proposed


def test_overruling_clear_leads_is_said():
    """Four who nearly always agree against sixteen who mostly guess: experts, or a clique."""
    votes, _ = simulated(58, coins(*[0.98] * 4, *[0.51] * 16), n_items=600)
    found = compare(votes)
    assert found.overruled > 0.05
    assert "clique" in caution_said(found)
    calm, _ = simulated(59, coins(*[0.85] * 20), n_items=600)
    assert caution_said(compare(calm)) is None


# Leave one vote out: exact where it can be counted by hand, and its alarms.


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
    assert check.calibrated, check.fault
    assert check.slope.low < 1 < check.slope.high
    assert check.spread.low < 1 < check.spread.high
    assert check.gain.low > 0
    assert check.brier < check.counted_brier
    assert sum(bar.n for bar in check.bars) == 2 * check.n_votes


@pytest.mark.parametrize("method", ["one_coin", "dawid_skene"])
def test_the_right_model_passes_where_annotators_are_sparse(method):
    votes, _ = simulated(33, people(33, 800), n_items=1_500)
    check = leave_one_vote_out(fit(method, votes), votes)
    assert check.calibrated, check.fault


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
        assert check_said(check).startswith("not calibrated")


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
        assert not check.calibrated
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
    assert "differ in difficulty" in check_said(check)


def test_too_few_votes_are_said_to_be_too_few():
    votes, _ = simulated(38, people(38, 6), n_items=15)
    check = leave_one_vote_out(fit("mace", votes), votes)
    assert not check.calibrated
    assert check.log_loss is None
    assert "75 votes" in check_said(check)


def test_single_votes_cannot_be_judged():
    votes = votes_from(np.arange(500), np.arange(500) % 7, np.arange(500) % 2)
    check = leave_one_vote_out(fit("one_coin", votes), votes)
    assert (check.n_votes, check.calibrated) == (0, False)


def test_a_crowd_of_one_mind_has_no_spread_to_compare():
    votes = votes_from(np.repeat(np.arange(60), 3), np.tile(np.arange(3), 60), np.zeros(180, int))
    check = leave_one_vote_out(fit("dawid_skene", votes), votes)
    assert check.log_loss < 0.1
    assert np.isfinite(check.log_loss)
