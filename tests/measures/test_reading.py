"""What an agreement figure is said to mean."""

import pytest

from measures.agreement import Level, krippendorff_alpha, percent_agreement, reading
from measures.estimate import Estimate, Statistic
from tests.measures.crowds import counts_of, crowd


def estimate(statistic, value, low, high, n_items=500, **rest) -> Estimate:
    return Estimate(
        statistic=statistic,
        value=value,
        low=low,
        high=high,
        n_items=n_items,
        n_votes=5 * n_items,
        **rest,
    )


PERCENT, ALPHA = Statistic.PERCENT_AGREEMENT, Statistic.KRIPPENDORFF_ALPHA


@pytest.mark.parametrize(
    ("given", "level"),
    [
        (estimate(PERCENT, 0.55, 0.52, 0.59), Level.BAD),
        (estimate(PERCENT, 0.58, 0.55, 0.60), Level.UNSURE),
        (estimate(PERCENT, 0.58, 0.55, 0.62), Level.UNSURE),
        (estimate(PERCENT, 0.65, 0.60, 0.70), Level.NO_ALARM),
        (estimate(PERCENT, 0.50, 0.40, 0.59, n_items=29), Level.TOO_FEW),
        (estimate(ALPHA, 0.02, -0.05, 0.09), Level.CRITICAL),
        (estimate(ALPHA, 0.02, 0.00, 0.09), Level.CRITICAL),
        (estimate(ALPHA, -0.2, -0.3, -0.1), Level.CRITICAL),
        (estimate(ALPHA, 0.15, -0.1, 0.4), Level.TOO_FEW),
        (estimate(ALPHA, 0.02, -0.05, 0.09, n_items=20), Level.TOO_FEW),
        (estimate(ALPHA, 0.30, 0.25, 0.35), Level.NO_ALARM),
        (estimate(ALPHA, 0.30, None, None, no_interval="because"), Level.UNSURE),
        (estimate(ALPHA, None, None, None, undefined="because"), Level.UNDEFINED),
    ],
)
def test_the_level_follows_the_interval_and_not_the_value(given, level):
    assert reading(given).level is level


def test_preferences_of_a_healthy_project_raise_no_alarm_far_under_the_textbook_mark():
    votes = crowd(1, 800, 5, 0.85)  # agreement 0.745, as InstructGPT's
    alpha = krippendorff_alpha(votes)
    assert alpha.high < 0.667
    assert reading(alpha).level is Level.NO_ALARM
    assert reading(percent_agreement(votes)).level is Level.NO_ALARM


def test_random_votes_raise_the_alarm_in_both_statistics():
    votes = crowd(2, 600, 5, 0.5)
    assert reading(krippendorff_alpha(votes)).level is Level.CRITICAL
    assert reading(percent_agreement(votes)).level is Level.BAD


def test_a_few_random_votes_are_too_few_to_say():
    for n_items in (3, 20):
        votes = crowd(3, n_items, 3, 0.5)
        for statistic in (percent_agreement, krippendorff_alpha):
            said = reading(statistic(votes))
            assert said.level is Level.TOO_FEW
            assert said.sentence.startswith("Too few to say")


def test_real_argument_pairs_are_bad_by_percent_and_better_than_chance():
    assert reading(percent_agreement(counts_of("ukp"))).level is Level.BAD
    assert reading(krippendorff_alpha(counts_of("ukp"))).level is Level.NO_ALARM


def test_sentences_carry_the_figures_and_read_as_text():
    said = reading(estimate(PERCENT, 0.5639, 0.5517, 0.5758, n_items=2200))
    assert str(said) == (
        "Two votes on the same comparison agree in 56.4 % (95 % interval 55.2 % to 57.6 %; 2200 "
        "comparisons): bad, the whole interval is under 60 %. Clean the data or the guideline "
        "before training on these votes."
    )
    critical = str(reading(estimate(ALPHA, 0.02, -0.05, 0.09)))
    assert "0.02 (95 % interval −0.05 to 0.09; 500 comparisons)" in critical
    undefined = reading(estimate(ALPHA, None, None, None, undefined="no comparison has two votes"))
    assert str(undefined) == ("Krippendorff's alpha is undefined: no comparison has two votes.")
    for level in (estimate(ALPHA, 0.3, 0.2, 0.4), estimate(ALPHA, 0.15, -0.1, 0.4)):
        assert "nan" not in str(reading(level)).lower()
        assert str(reading(level)).endswith(".")
