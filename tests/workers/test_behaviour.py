"""Counters of what answers say, and what the reward follows, against values known by hand."""

import json
import random

import pytest
from scipy.stats import kurtosis as scipys_kurtosis
from scipy.stats import spearmanr

from workers.behaviour import (
    Copies,
    Histograms,
    Lift,
    Watch,
    kurtosis,
    mode_share,
    rank_correlation,
    template_share,
)
from workers.config.phrases import REFUSALS, Phrases, phrase_name, plain, refused

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


# --- phrases ---


@pytest.mark.parametrize(
    "text",
    [
        "I cannot do that.",
        "I can’t help with this.",  # the other apostrophe
        "I  CANNOT\nsay",  # spaces and case
        "ＡＳ ＡＮ ＡＩ model, no.",  # full-width letters
        "I'm sorry, but no.",
    ],
)
def test_a_refusal_is_seen_however_it_is_typed(text: str) -> None:
    assert refused(Phrases(REFUSALS), plain(text))


@pytest.mark.parametrize(
    "text",
    ["You can do that.", "Hi cannot opener fans", "It is a cannon.", "", "word " * 60 + "I cannot"],
)
def test_what_is_no_opening_refusal_is_not_counted(text: str) -> None:
    assert not refused(Phrases(REFUSALS), plain(text))


def test_a_phrase_becomes_the_end_of_a_metrics_name() -> None:
    assert phrase_name("As an AI, I…") == "as-an-ai-i"
    assert phrase_name("!?") == ""


# --- what the reward follows ---


def test_a_score_that_is_the_length_correlates_fully_whatever_its_scale() -> None:
    lengths = [3, 1, 4, 1, 5, 9, 2, 6]
    assert rank_correlation([n**3 for n in lengths], lengths) == pytest.approx(1.0)
    assert rank_correlation([-n for n in lengths], lengths) == pytest.approx(-1.0)


def test_ties_share_their_rank_as_in_scipy() -> None:
    rng = random.Random(0)
    one = [rng.randrange(4) for _ in range(50)]
    other = [rng.randrange(4) for _ in range(50)]
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)


def test_a_correlation_with_a_constant_is_undefined() -> None:
    assert rank_correlation([1.0, 1.0, 1.0], [1, 2, 3]) is None
    assert rank_correlation([1.0, 2.0], [1, 2]) is None


def test_the_commonest_score_is_counted_up_to_a_millionth_of_the_spread() -> None:
    assert mode_share([0.0, 0.0, 0.0, 1.0]) == 0.75
    assert mode_share([0.0, 1e-9, 1.0, 0.5]) == 0.5
    assert mode_share([1.0, 2.0, 3.0, 4.0]) == 0.25
    assert mode_share([2.0, 2.0]) == 1.0
    assert mode_share([1e6, 1e6 + 1, 1e6 + 2]) == pytest.approx(1 / 3)


def test_two_equal_heaps_are_flat_and_an_outlier_is_peaked() -> None:
    assert kurtosis([0.0, 0.0, 1.0, 1.0]) == pytest.approx(-2.0)
    values = [0.0] * 31 + [60.0]
    assert kurtosis(values) == pytest.approx(32 - 2 + 1 / 31 - 3)  # the most that 32 values can
    assert kurtosis([0.1 * i**2 for i in range(9)]) == pytest.approx(
        scipys_kurtosis([0.1 * i**2 for i in range(9)])
    )
    assert kurtosis([0.3] * 40) is None
    assert kurtosis([1.0, 2.0, 3.0]) is None


# --- lift ---


def test_a_lift_is_the_difference_of_the_means_in_deviations() -> None:
    lift = Lift()
    lift.add([3.0, 5.0, 1.0, 1.0, 2.0, 0.0], [True, True, False, False, False, False])
    assert lift.value(deviation=1.5) == pytest.approx((4 - 1) / 1.5)


def test_one_refusal_is_too_few_to_say_anything() -> None:
    lift = Lift()
    lift.add([3.0, 1.0, 2.0], [True, False, False])
    assert lift.value(1.0) is None
    lift.add([4.0, 1.0], [True, False])
    assert lift.value(1.0) == pytest.approx((1.5 * 2 / 3 + 3.0 * 1 / 2) / (2 / 3 + 1 / 2))


def test_scores_and_refusals_that_rise_together_are_no_lift() -> None:
    """Batches get better and refuse more; within each, a refusal earns what the others do."""
    lift, rng = Lift(), random.Random(0)
    for batch in range(10):
        said = [rng.random() < batch / 10 for _ in range(20)]
        lift.add([float(batch)] * 20, said)
    assert lift.value(1.0) == pytest.approx(0.0)


def test_a_lift_forgets_what_lies_far_back() -> None:
    lift = Lift()
    lift.add([9.0, 9.0, 0.0, 0.0], [True, True, False, False])
    for _ in range(8):
        lift.add([1.0, 0.0] * 32, [True, False] * 32)
    assert lift.value(1.0) == pytest.approx(1.0)


# --- texts ---


def test_three_of_four_answers_begin_alike() -> None:
    texts = ["the cat sat down", "the cat sat up", "the cat sat", "a dog"]
    assert template_share(texts) == 0.75
    assert template_share(["", ""]) == 0.0
    assert template_share([]) is None


def test_thirteen_words_in_a_row_are_a_copy_and_twelve_are_none() -> None:
    copies = Copies([f"Before. {LONG} after", "too short to count"])
    twelve = " ".join(LONG.split()[:12])
    assert copies.held(plain(f"so {' '.join(LONG.split()[:13])} then"))
    assert not copies.held(plain(f"so {twelve} then"))
    assert not copies.held(plain("too short to count"))
    assert not copies.held(plain(" ".join(reversed(LONG.split()))))
    assert copies.share([plain(LONG.upper()), "else"]) == 0.5


def test_demonstrations_without_long_stretches_are_copied_by_nobody() -> None:
    assert Copies(["a", ""]).share([plain(LONG)]) == 0.0


def test_a_step_tells_of_phrases_and_what_they_earn() -> None:
    watch = Watch(phrases=["good dog"], copies=Copies([LONG]))
    texts = ["I cannot say", "a good dog, thanks", "good dog", LONG]
    figures = watch.look(texts, [0.0, 4.0, 4.0, 0.0], [3, 4, 2, 14])
    assert figures["behaviour/refusal_share"] == 0.25
    assert figures["behaviour/politeness_share"] == 0.25
    assert figures["behaviour/phrase/good-dog"] == 0.5
    assert figures["behaviour/copied_share"] == 0.25
    assert figures["reward/refusal_lift"] is None
    assert figures["reward/phrase_lift/good-dog"] == pytest.approx(4 / (16 / 3) ** 0.5)
    reference = watch.reference(["good dog", "bad dog"])
    assert reference["behaviour/phrase/good-dog/reference"] == 0.5
    assert reference["behaviour/copied_share/reference"] == 0.0


def test_own_refusal_phrases_stand_in_place_of_the_shipped_ones() -> None:
    watch = Watch(refusals=["nein"])
    figures = watch.look(["Nein!", "I cannot"], [0.0, 1.0], [1, 2])
    assert figures["behaviour/refusal_share"] == 0.5


def test_a_watch_goes_on_exactly_from_its_state() -> None:
    rng = random.Random(3)

    def batch() -> tuple[list[str], list[float], list[int]]:
        texts = [rng.choice(["I cannot", "good dog runs", "yes"]) for _ in range(8)]
        return texts, [rng.random() for _ in texts], [len(t) for t in texts]

    whole, first = Watch(phrases=["good dog"]), Watch(phrases=["good dog"])
    before, after = [batch() for _ in range(5)], [batch() for _ in range(5)]
    for one in before:
        assert whole.look(*one) == first.look(*one)
    second = Watch(phrases=["good dog"])
    second.restore(json.loads(json.dumps(first.state())))
    assert [whole.look(*one) for one in after] == [second.look(*one) for one in after]


# --- histograms ---


def test_bins_stay_and_what_lies_beside_them_is_counted_at_the_ends() -> None:
    histograms = Histograms()
    first = histograms.of(0, "reward", [0.0, 1.0, 2.0])
    assert (first.edges[0], first.edges[-1], len(first.edges)) == (-2.0, 4.0, 21)
    assert sum(first.counts) == 3
    kept = Histograms()
    kept.restore(json.loads(json.dumps(histograms.state())))
    later = kept.of(10, "reward", [-50.0, 1.01, 50.0, 60.0])
    assert later.edges == first.edges
    assert (later.counts[0], later.counts[-1], sum(later.counts)) == (1, 2, 4)


def test_a_constant_reward_has_bins_too_but_not_for_good() -> None:
    histograms = Histograms()
    found = histograms.of(0, "reward", [3.0, 3.0])
    assert sum(found.counts) == 2
    assert found.edges[0] < 3.0 < found.edges[-1]
    assert histograms.of(1, "reward", [0.0, 4.0, 8.0]).edges[-1] == 16.0
    assert histograms.of(2, "reward", [0.0, 40.0, 80.0]).edges[-1] == 16.0


def test_lengths_lie_between_nothing_and_the_limit() -> None:
    lengths = Histograms().of_answers(1, [0.5], [8], longest=8)[1]
    assert (lengths.name, lengths.edges[0], lengths.edges[-1]) == ("response_length", 0.0, 8.0)
    assert lengths.counts[-1] == 1
