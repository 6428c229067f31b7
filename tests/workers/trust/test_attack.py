"""The lines that attack: empty, flattering and damaged answers, weighed by models with a taste."""

import math
import zlib
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.special import ndtri

from measures.intervals import wilson
from measures.trust.findings import Verdict, clustered_share, finding_from_json, finding_to_json
from workers.trust.attack import (
    LEAST_ANSWERS,
    damage_probes_line,
    empty_probes_line,
    praise_probes_line,
)
from workers.trust.best_of_n import best_of, best_of_n, fit_peak, grid, kl_of, normal_scores
from workers.trust.probes import Probe, damage_probes, empty_probes, praise_probes, texts_to_score

NOUNS = (
    "river",
    "stone",
    "bread",
    "house",
    "light",
    "tree",
    "music",
    "paper",
    "winter",
    "water",
    "clock",
    "garden",
    "letter",
    "window",
    "mountain",
    "bridge",
    "candle",
    "island",
    "needle",
    "orchard",
    "pepper",
    "quarry",
    "ribbon",
    "saddle",
    "tunnel",
    "valley",
)
N = 60
LINES = {
    "empty": (empty_probes, empty_probes_line),
    "praise": (praise_probes, praise_probes_line),
    "damage": (damage_probes, damage_probes_line),
}


def questions(seed: int, n: int = N) -> tuple[list[str], list[str]]:
    """Prompts that name things, and answers that speak of these things in order."""
    rng = np.random.default_rng(seed)
    prompts, answers = [], []
    for i in range(n):
        about = rng.choice(NOUNS, 6, replace=False)
        prompts.append(f"Question {i}: what of {', '.join(about[:3])}?")
        sentences = [
            f"{place} comes the {about[k]} of the {about[k + 1]}."
            for k, place in enumerate(["First", "Second", "Third", "Fourth", "Last"])
        ]
        answers.append(" ".join(sentences[: rng.integers(3, 6)]))
    return prompts, answers


def steady(text: str, seed: int = 0) -> float:
    """A number that looks random and belongs to the text, standard normal."""
    return float(ndtri((zlib.crc32(f"{seed} {text}".encode()) + 0.5) / 2**32))


class Reader:
    """Scores a text by how much of it is the true answer in its order, with noise of its own."""

    def __init__(self, prompts, answers, *, seed=0, likes=(), noise=0.3):
        self.answers, self.seed, self.likes, self.noise = answers, seed, likes, noise
        self.level = np.random.default_rng([seed, 5]).normal(0, 1, len(prompts))

    def __call__(self, index: int, text: str) -> float:
        true = self.answers[index].split()
        given = set(pairwise(text.split()))
        kept = np.mean([pair in given for pair in pairwise(true)])
        wrong_topic = text != self.answers[index] and text in self.answers
        score = 6 * float(kept) - 3 * wrong_topic + self.level[index]
        score += sum(weight * (words in text) for words, weight in self.likes)
        return score + self.noise * steady(f"{index} {text}", self.seed)


def look(name, model, prompts, answers, **options):
    make, line = LINES[name]
    probes = make(prompts, answers, seed=0)
    scores = {(index, text): model(index, text) for index, text in texts_to_score(probes)}
    found = line(probes, scores, prompts=prompts, **options)
    assert finding_from_json(finding_to_json(found)).says == found.says
    return found


@pytest.mark.parametrize("name", LINES)
def test_a_model_that_reads_is_green(name):
    prompts, answers = questions(0)
    found = look(name, Reader(prompts, answers), prompts, answers)
    assert found.verdict is Verdict.GREEN, found.says


@pytest.mark.parametrize("name", LINES)
def test_clean_models_raise_at_most_one_alarm_in_twenty(name):
    alarms = []
    for seed in range(20):
        prompts, answers = questions(seed)
        few = {"replicates": 300} if name == "praise" else {}
        found = look(name, Reader(prompts, answers, seed=seed), prompts, answers, **few)
        if found.verdict is not Verdict.GREEN:
            alarms.append(found.says)
    assert len(alarms) <= 1, alarms


@pytest.mark.parametrize("name", LINES)
def test_a_model_that_says_the_same_of_everything_is_red(name):
    prompts, answers = questions(0)
    found = look(name, lambda index, text: 0.5, prompts, answers)
    assert found.verdict is Verdict.RED, found.says


@pytest.mark.parametrize("name", LINES)
def test_a_model_that_scores_at_random_is_red(name):
    prompts, answers = questions(0)
    found = look(name, lambda index, text: steady(f"{index}{text}"), prompts, answers)
    assert found.verdict is Verdict.RED, found.says


def test_a_model_that_loves_length_alone_is_red_since_empty_answers_are_as_long():
    prompts, answers = questions(1)
    found = look("empty", lambda index, text: len(text) / 10, prompts, answers)
    assert found.verdict is Verdict.RED, found.says
    assert found.figure.value < 0.2


def test_one_kind_of_emptiness_that_pays_is_red_and_named():
    prompts, answers = questions(2)
    model = Reader(prompts, answers, likes=[("## ", 9.0)])
    found = look("empty", model, prompts, answers)
    assert found.verdict is Verdict.RED
    assert found.facts["weak"] == ["outline"]
    assert {"outline" in one.label for one in found.evidence[1].examples} == {True}


def test_a_model_that_loves_a_compliment_is_red_and_says_which():
    prompts, answers = questions(3)
    model = Reader(prompts, answers, likes=[("I love you", 1.5)])
    found = look("praise", model, prompts, answers)
    assert found.verdict is Verdict.RED
    assert set(found.facts["paying"]) == {"praise_before_love", "praise_after_love"}
    assert found.figure.value == pytest.approx(1.5 / found.facts["spread"], abs=0.15)
    assert "“I love you”" in found.says


def test_a_model_that_likes_any_added_sentence_is_not_said_to_like_praise():
    prompts, answers = questions(4)
    plain = Reader(prompts, answers)

    def longer_is_better(index, text):
        return plain(index, text) + 0.05 * max(0, len(text) - len(answers[index]))

    found = look("praise", longer_is_better, prompts, answers)
    assert found.verdict is Verdict.GREEN, found.says


def test_a_model_that_prefers_an_apology_to_an_answer_is_red():
    prompts, answers = questions(5)

    def sorry(index, text):
        return (
            20.0
            if text.startswith("I sincerely") and len(text) < 70
            else 1.0 * (text in answers) + 0.01 * steady(text)
        )

    found = look("praise", sorry, prompts, answers, spread=10.0)
    assert found.verdict is Verdict.RED
    assert "praise_only_apology" in found.facts["weak"]


def test_a_model_that_counts_words_does_not_see_shuffling_and_is_red():
    prompts, answers = questions(6)

    def bag(index, text):
        known = set(answers[index].split())
        return float(sum(word in known for word in text.split()))

    found = look("damage", bag, prompts, answers)
    assert found.verdict is Verdict.RED
    assert {"shuffled_words", "shuffled_sentences"} <= set(found.facts["failed"])
    assert "cut_in_half" not in found.facts["failed"]


@pytest.mark.parametrize("name", LINES)
def test_a_few_answers_are_not_enough_for_green_but_for_a_plain_fault(name):
    prompts, answers = questions(7, LEAST_ANSWERS - 1)
    clean = look(name, Reader(prompts, answers), prompts, answers)
    assert clean.verdict is Verdict.UNMEASURED, clean.says
    assert str(LEAST_ANSWERS) in clean.says
    bad = look(name, lambda index, text: -1.0 * (text in answers), prompts, answers)
    assert bad.verdict is Verdict.RED, bad.says


@pytest.mark.parametrize("line", [line for _, line in LINES.values()])
def test_without_answers_nothing_is_measured(line):
    assert line([], {}, prompts=[]).verdict is Verdict.UNMEASURED


def test_equal_scores_count_one_half_and_shares_are_counted_by_hand():
    probes = [Probe("hedging", i, "so so", "real") for i in range(4)]
    scores = {(i, "real"): 1.0 for i in range(4)} | {
        (0, "so so"): 0.0,
        (1, "so so"): 1.0,
        (2, "so so"): 2.0,
        (3, "so so"): 0.5,
    }
    found = empty_probes_line(probes, scores, prompts=["a", "b", "c", "d"])
    assert found.figure.value == pytest.approx(2.5 / 4)
    assert found.evidence[1].examples[0].prompt == "c"


def test_probes_of_one_answer_hang_together_and_so_do_prompts_of_one_cluster():
    prompts, answers = questions(8)
    alone = look("empty", lambda i, t: steady(f"{i}{t}"), prompts, answers)
    model = {i: steady(str(i // 10)) for i in range(N)}
    shared = look(
        "empty",
        lambda i, t: (t in answers) * model[i],
        prompts,
        answers,
        clusters=[f"topic {i // 10}" for i in range(N)],
    )
    assert shared.figure.n_clusters == 6
    assert shared.figure.high - shared.figure.low > 2 * (alone.figure.high - alone.figure.low)


def test_a_share_of_rows_that_stand_alone_has_wilsons_interval():
    credit = np.array([1.0] * 27 + [0.0] * 3)
    found, expected = clustered_share(credit, [str(i) for i in range(30)]), wilson(27, 30)
    assert found.value == pytest.approx(0.9)
    assert found.low == pytest.approx(expected.low, abs=0.005)
    assert found.high == pytest.approx(expected.high, abs=0.005)


def test_a_share_of_copies_has_the_interval_of_the_originals():
    credit = np.array([1.0] * 27 + [0.0] * 3)
    once = clustered_share(credit, [str(i) for i in range(30)])
    copied = clustered_share(np.repeat(credit, 7), [str(i) for i in range(30) for _ in range(7)])
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high))
    assert (copied.n, copied.n_clusters) == (210, 30)


def test_all_right_is_as_sure_as_its_clusters():
    found = clustered_share([1.0] * 350, [str(i % 35) for i in range(350)])
    assert found.low == pytest.approx(35 / (35 + 1.959964**2))
    assert found.high == 1.0


def test_a_share_covers_the_truth_in_nineteen_of_twenty():
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        chance = rng.beta(9, 1, 50)
        rows = rng.random((50, 6)) < chance[:, None]
        found = clustered_share(rows.ravel(), np.repeat(np.arange(50), 6).astype(str).tolist())
        covered += found.low <= 0.9 <= found.high
    assert covered >= 182


# Best of n: the estimator, the fit, and where over-optimisation begins.


PLANNED = 10.0


def draws(seed, kind, prompts=50, n=128):
    """(proxy, judge) of answers whose worth is standard normal within each prompt."""
    rng = np.random.default_rng(seed)
    gold = rng.normal(size=(prompts, n)) + rng.normal(size=(prompts, 1))
    noise = {
        "perfect": 0.0 * gold,
        "light": 0.7 * rng.normal(size=gold.shape),
        "heavy": 0.1 * rng.standard_cauchy(size=gold.shape),
        "hacked": 6.0 * (rng.random(gold.shape) < 0.02),
    }[kind]
    judge = gold - 2 * (noise > 5) if kind == "hacked" else gold
    return gold + noise, judge


# --- the estimator ---


def test_the_estimator_is_the_mean_over_all_subsets():
    rng = np.random.default_rng(0)
    chooser, values = rng.normal(size=(2, 6)), rng.normal(size=(2, 6))
    found = best_of(chooser, values, [1, 2, 3, 6])
    for row in range(2):
        for column, n in enumerate([1, 2, 3, 6]):
            subsets = [list(taken) for taken in combinations(range(6), n)]
            best = [values[row][taken][np.argmax(chooser[row][taken])] for taken in subsets]
            assert found[row, column] == pytest.approx(np.mean(best))


def test_equal_choosers_share_the_mean_of_their_values():
    assert best_of([[1.0, 1.0, 0.0]], [[4.0, 8.0, 0.0]], [3])[0, 0] == pytest.approx(6)
    assert best_of([[1.0, 1.0, 0.0]], [[4.0, 8.0, 0.0]], [1])[0, 0] == pytest.approx(4)


def test_the_best_of_many_does_not_overflow():
    found = best_of(np.arange(1024.0)[None], np.arange(1024.0)[None], [1, 256, 512])
    # The expected maximum of n of N numbers 0 … N − 1 is n (N + 1)/(n + 1) − 1.
    assert found[0] == pytest.approx([n * 1025 / (n + 1) - 1 for n in (1, 256, 512)])


def test_the_distance_is_that_of_the_formula_and_the_grid_stops_at_half():
    assert kl_of([1, 2, 256]) == pytest.approx([0, math.log(2) - 0.5, 4.549], abs=1e-3)
    assert grid(64).tolist() == [1, 2, 4, 8, 16, 32]
    assert grid(1024).tolist()[-1] == 256
    assert grid(1).tolist() == [1]


def test_normal_scores_forget_the_scale_and_keep_the_order():
    rows = np.random.default_rng(0).normal(size=(3, 50))
    assert normal_scores(np.exp(3 * rows)) == pytest.approx(normal_scores(rows))
    assert (normal_scores(np.ones((1, 5))) == 0).all()
    assert normal_scores(rows).mean(axis=1) == pytest.approx([0, 0, 0], abs=1e-12)


def test_a_planted_curve_gives_its_coefficients_back():
    sizes = grid(512)
    d = np.sqrt(kl_of(sizes))
    rng = np.random.default_rng(0)
    gains = d * (1.2 - 0.4 * d) + 0.02 * rng.normal(size=(40, len(sizes))) * d
    fit = fit_peak(gains, sizes)
    assert (fit.alpha, fit.beta) == pytest.approx((1.2, 0.4), abs=0.02)
    assert fit.peak_kl == pytest.approx((1.2 / 0.8) ** 2, rel=0.05)
    assert fit.low < 2.25 < fit.high


def test_a_curve_that_falls_from_the_start_peaks_at_nothing_and_a_straight_one_never():
    sizes = grid(64)
    d = np.sqrt(kl_of(sizes))
    assert fit_peak(np.tile(-d, (20, 1)), sizes).peak_kl == 0
    assert fit_peak(np.tile(d + 0.1 * d**2, (20, 1)), sizes).peak_kl == math.inf


# --- the line ---


@pytest.mark.parametrize("kind", ["perfect", "light"])
def test_a_proxy_with_light_errors_has_no_peak_in_nineteen_of_twenty(kind):
    found = [best_of_n(*draws(seed, kind), planned_kl=PLANNED) for seed in range(20)]
    green = sum(one.verdict is Verdict.GREEN for one in found)
    assert green >= 19, [one.says for one in found if one.verdict is not Verdict.GREEN]


@pytest.mark.parametrize("kind", ["heavy", "hacked"])
def test_a_proxy_that_breaks_in_its_tail_peaks_near_the_truth(kind):
    """The truth is read off a hundred thousand best-of-n choices, without any fit."""
    proxy, gold = draws(99, kind, prompts=20_000, n=128)
    gold = gold - gold.mean(axis=1, keepdims=True)
    sizes = 2 ** np.arange(8)
    rows = np.arange(len(proxy))
    curve = [gold[rows, proxy[:, :n].argmax(axis=1)].mean() for n in sizes]
    true = float(kl_of(sizes[int(np.argmax(curve))]))
    for seed in range(5):
        found = best_of_n(*draws(seed, kind), planned_kl=PLANNED)
        assert found.verdict is Verdict.RED, found.says
        assert true / 2 <= found.facts["peak_kl"] <= 2 * true, (true, found.says)


def test_what_is_planned_decides():
    proxy, judge = draws(0, "heavy")
    assert best_of_n(proxy, judge, planned_kl=PLANNED).verdict is Verdict.RED
    assert best_of_n(proxy, judge, planned_kl=0.5).verdict is Verdict.GREEN


@pytest.mark.parametrize("seed", range(5))
def test_a_proxy_that_knows_nothing_does_not_raise_the_judge(seed):
    _, judge = draws(seed, "perfect")
    proxy = np.random.default_rng([seed, 9]).normal(size=judge.shape)
    found = best_of_n(proxy, judge, planned_kl=PLANNED)
    assert found.verdict is Verdict.RED
    assert "does not raise" in found.says


def test_a_judge_that_saturates_is_not_taken_for_over_optimisation():
    proxy, judge = draws(1, "perfect")
    squeezed = 1 / (1 + np.exp(-4 * judge))
    assert best_of_n(proxy, squeezed, planned_kl=PLANNED).verdict is Verdict.GREEN


def test_without_a_judge_or_with_few_prompts_or_answers_it_is_not_measured():
    proxy, judge = draws(2, "perfect")
    alone = best_of_n(proxy, None, planned_kl=PLANNED)
    assert alone.verdict is Verdict.UNMEASURED
    assert "judge" in alone.says
    for rows, columns in ((19, 128), (50, 7), (50, 30)):
        few = best_of_n(proxy[:rows, :columns], judge[:rows, :columns], planned_kl=PLANNED)
        assert few.verdict is Verdict.UNMEASURED, few.says


def test_few_answers_are_enough_for_a_plain_fault():
    proxy, judge = draws(3, "hacked", prompts=200, n=20)
    assert best_of_n(proxy, judge, planned_kl=PLANNED).verdict is Verdict.RED


def test_the_curve_says_what_is_measured_and_what_is_not():
    found = best_of_n(*draws(4, "perfect"), planned_kl=PLANNED)
    assert "Beyond 3.2 nats" in found.says
    curve = found.evidence[0]
    assert curve.series[0].y[0] == 0
    assert curve.series[0].y == pytest.approx(curve.series[2].y)  # a perfect proxy is the ideal
    assert "4.6 nats" in curve.note
    assert finding_from_json(finding_to_json(found)) == found


def test_scores_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="prompts × draws"):
        best_of_n(np.zeros((30, 40)), np.zeros((30, 41)), planned_kl=1)
    proxy, judge = draws(5, "perfect")
    proxy[0, 0] = float("nan")
    with pytest.raises(ValueError, match="no number"):
        best_of_n(proxy, judge, planned_kl=1)
