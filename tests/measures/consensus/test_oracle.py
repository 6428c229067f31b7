"""The models beside crowd-kit's, where they coincide: without priors and with the echo left in."""

import numpy as np
import pandas as pd
import pytest
from crowdkit.aggregation import MACE, DawidSkene, MajorityVote, OneCoinDawidSkene, Wawa

from measures.consensus import Votes, fit, majority, models, wawa
from measures.consensus.models import DawidSkene as OurDawidSkene
from measures.consensus.models import Mace, Model, OneCoin, cells_of, settle, vote_shares
from tests.measures.consensus.crowds import accuracy, coins, people, real_crowd, simulated

# pandas 3 warns about what crowd-kit 1.4 does.
pytestmark = pytest.mark.filterwarnings("ignore")

NONE = 1e-9
STEPS = 25


@pytest.fixture
def without_priors(monkeypatch):
    """Truths' priors straight from the posteriors, as the references have them."""
    monkeypatch.setattr(models, "PRIOR_ITEMS", 0.0)


def frame(votes: Votes) -> pd.DataFrame:
    """Votes as crowd-kit takes them, by annotator: its MACE mixes people up in any other order."""
    votes = votes.subset(np.lexsort((votes.choices, votes.annotators)))
    return pd.DataFrame({"task": votes.items, "worker": votes.annotators, "label": votes.choices})


def probabilities(found: pd.DataFrame, votes: Votes) -> np.ndarray:
    """(n_items, 4) from crowd-kit's table."""
    wide = np.zeros((votes.n_items, 4))
    for label in found.columns:
        wide[found.index.to_numpy(), label] = found[label].to_numpy()
    return wide


def plain(model: Model, votes: Votes, start: np.ndarray | None = None, steps: int = STEPS):
    """(n_items, K) posteriors of plain EM, from the shares of the votes unless told otherwise."""
    cells = cells_of(votes)
    first = vote_shares(votes, cells) if start is None else start[:, cells.classes]
    settled = settle(
        model, cells, first, alike=False, echo=True, tolerance=0, most_iterations=steps
    )
    return settled.posteriors


@pytest.mark.usefixtures("without_priors")
@pytest.mark.parametrize("k", [2, 3])
def test_dawid_skene_without_priors_is_crowd_kits(k):
    votes, _ = simulated(21, people(21, 10, k=k), n_items=150)
    reference = DawidSkene(n_iter=STEPS, tol=-1).fit_predict_proba(frame(votes))
    ours = plain(OurDawidSkene(NONE, NONE, NONE, levelled=False), votes)
    assert ours == pytest.approx(probabilities(reference, votes)[:, :k], abs=1e-6)


@pytest.mark.usefixtures("without_priors")
@pytest.mark.parametrize("k", [2, 3])
def test_one_coin_without_a_prior_is_crowd_kits(k):
    votes, _ = simulated(22, people(22, 12, k=k), n_items=250)
    reference = OneCoinDawidSkene(n_iter=STEPS, tol=-1).fit_predict_proba(frame(votes))
    assert plain(OneCoin(NONE, NONE, even=True), votes) == pytest.approx(
        probabilities(reference, votes)[:, :k], abs=1e-6
    )


@pytest.mark.usefixtures("without_priors")
def test_where_crowd_kits_mace_ends_ours_stays(monkeypatch):
    """Its EM has a smoothing of 0.01 / K votes per cell and even priors, and starts at random."""
    monkeypatch.setattr(models, "priors_from", lambda totals, *_, **__: np.full(len(totals), 0.5))
    votes, _ = simulated(23, coins(0.95, 0.9, 0.8, 0.8, 0.7, 0.6, 0.5), n_items=100)
    reference = MACE(method="em", n_restarts=1, n_iter=60).fit_predict_proba(frame(votes))
    start = probabilities(reference, votes)
    ours = plain(Mace(know_weight=0.01, habit_weight=0.01), votes, start, steps=300)
    assert ours == pytest.approx(start[:, :2], abs=0.01)


def test_majority_is_crowd_kits():
    votes, _ = simulated(24, people(24, 15, k=3), n_items=150)
    reference = probabilities(MajorityVote().fit_predict_proba(frame(votes)), votes)
    assert majority(votes).shares == pytest.approx(reference)


def test_wawa_is_crowd_kits_where_no_votes_tie():
    votes, _ = simulated(25, people(25, 15), n_items=150)
    reference = Wawa().fit(frame(votes))
    assert wawa(votes).weights == pytest.approx(reference.skills_.sort_index().to_numpy())
    assert wawa(votes).shares == pytest.approx(
        probabilities(reference.predict_proba(frame(votes)), votes)
    )


def test_on_rte_ours_are_as_good_as_crowd_kits():
    votes, gold = real_crowd("rte")
    references = [DawidSkene(n_iter=100), OneCoinDawidSkene(n_iter=100)]
    best = max(
        accuracy(probabilities(model.fit_predict_proba(frame(votes)), votes), gold)
        for model in references
    )
    assert best == pytest.approx(92.75)
    for method in ("one_coin", "dawid_skene", "mace"):
        assert accuracy(fit(method, votes).posteriors, gold) >= best - 0.5
