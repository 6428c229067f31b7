"""Members that disagree, and one that stands apart."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from tests.workers.trust.worlds import Faults, world
from workers.trust.ensembles import auroc, disagreement, members_apart


def ensemble(seed, *, n=120, members=4, noise=0.5, corrupted=()):
    """Members who see one truth with noise of their own and speak on scales of their own."""
    rng = np.random.default_rng([seed, members])
    truth = rng.normal(size=n)
    found = {}
    for k in range(members):
        scores = truth + noise * rng.normal(size=n)
        if k in corrupted:
            scores = rng.normal(size=n)
        found[f"member-{k}"] = (k + 1) * scores + 10 * k
    return found


def usual(seed=1000, quantile=0.95):
    """The threshold a clean ensemble of the same kind would be given."""
    z = [(s - s.mean()) / s.std() for s in ensemble(seed, n=2000).values()]
    return float(np.quantile(np.std(z, axis=0), quantile))


def test_members_that_agree_are_green_in_nineteen_of_twenty():
    found = [disagreement(ensemble(seed), threshold=usual()) for seed in range(20)]
    green = sum(one.verdict is Verdict.GREEN for one in found)
    assert green >= 19, [one.says for one in found if one.verdict is not Verdict.GREEN]


@pytest.mark.parametrize("seed", range(5))
def test_one_corrupted_member_is_red_and_named(seed):
    found = disagreement(ensemble(seed, corrupted={2}), threshold=usual())
    assert found.verdict is Verdict.RED
    assert found.facts["apart"] == ["member-2"]
    assert found.says.startswith("member-2 stands apart")
    assert finding_from_json(finding_to_json(found)) == found


def test_a_corrupted_member_of_a_world_is_named_and_its_answers_are_flagged():
    """Positive: the answers as the corrupted ensemble scores them; negative: the same answers as
    the clean one does. The flag is the disagreement."""
    clean = world(400, 1, members=4)
    broken = world(400, 1, members=4, faults=Faults(corrupted="member-1"))
    scores = [
        {name: np.concatenate(of) for name, of in pairs.members.items()}
        for pairs in (clean, broken)
    ]
    assert members_apart(scores[0]) == []
    assert members_apart(scores[1]) == ["member-1"]
    spreads = [
        np.std([(s - s.mean()) / s.std() for s in of.values()], axis=0).tolist() for of in scores
    ]
    assert auroc(spreads[0] + spreads[1], [False] * 800 + [True] * 800) >= 0.8


def test_a_member_corrupted_on_some_answers_is_found_on_these():
    """Positive: the answers on which one member was corrupted, within one ensemble."""
    rng = np.random.default_rng(3)
    members = ensemble(3, n=1000, noise=0.3)
    hit = rng.random(1000) < 0.3
    members["member-0"] = np.where(hit, -members["member-0"] + 3, members["member-0"])
    z = [(s - s.mean()) / s.std() for s in members.values()]
    assert auroc(np.std(z, axis=0), hit) >= 0.8


def test_two_corrupted_members_are_both_named_and_of_two_nobody_can_say():
    assert set(members_apart(ensemble(4, members=5, corrupted={0, 3}))) == {"member-0", "member-3"}
    found = disagreement(ensemble(5, members=2, corrupted={0}), threshold=None)
    assert found.verdict is Verdict.RED
    assert set(found.facts["apart"]) == {"member-0", "member-1"}


def test_a_member_that_says_the_same_of_everything_stands_apart():
    members = ensemble(6) | {"member-1": np.full(120, 3.0)}
    assert disagreement(members, threshold=None).facts["apart"] == ["member-1"]


def test_too_much_disagreement_is_red_without_anybody_standing_apart():
    found = disagreement(ensemble(7), threshold=usual(quantile=0.6))
    assert found.verdict is Verdict.RED
    assert found.facts["apart"] == []
    assert found.facts["flagged"] == pytest.approx(0.4, abs=0.12)
    assert "too often" in found.says


def test_the_ensembles_own_disagreement_is_used_where_it_is_given():
    spread = np.zeros(120)
    spread[:60] = 1
    found = disagreement(ensemble(8), threshold=0.5, spread=spread)
    assert found.facts["flagged"] == 0.5
    assert found.verdict is Verdict.RED


def test_one_model_few_answers_or_no_threshold_are_not_measured():
    assert disagreement({"member-0": np.zeros(100)}, threshold=1).verdict is Verdict.UNMEASURED
    assert disagreement(ensemble(9, n=20), threshold=1).verdict is Verdict.UNMEASURED
    assert disagreement(ensemble(9), threshold=None).verdict is Verdict.UNMEASURED


def test_the_most_disputed_answers_are_shown():
    members = ensemble(10)
    members["member-0"][7] += 50
    found = disagreement(
        members,
        threshold=usual(),
        prompts=[f"p{i}" for i in range(120)],
        answers=[f"a{i}" for i in range(120)],
    )
    assert found.evidence[1].examples[0].answer == "a7"


def test_the_correlation_with_the_others_is_scipys():
    members = ensemble(11, members=3)
    found = disagreement(members, threshold=1.0)
    z = {name: (s - s.mean()) / s.std() for name, s in members.items()}
    expected = spearmanr(z["member-0"], z["member-1"] + z["member-2"]).statistic
    assert found.facts["correlations"]["member-0"] == pytest.approx(expected)


def test_the_area_under_the_curve_is_counted_by_hand():
    # 3 positives × 2 negatives: wins 3 > 1, 3 > 2, 2 > 1; ties 2 = 2; losses none but 1 = 1.
    assert auroc([3, 2, 1, 2, 1], [True, True, True, False, False]) == pytest.approx(4 / 6)
    assert auroc([1, 2], [True, True]) is None
