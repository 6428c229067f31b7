"""The lines that attack: empty, flattering and damaged answers, weighed by models with a taste."""

import zlib
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtri

from measures.intervals import wilson
from measures.trust.attack import (
    LEAST_ANSWERS,
    damage_probes_line,
    empty_probes_line,
    praise_probes_line,
)
from measures.trust.findings import Verdict, clustered_share, finding_from_json, finding_to_json
from measures.trust.probes import Probe, damage_probes, empty_probes, praise_probes, texts_to_score

NOUNS = (
    *("river", "stone", "bread", "house", "light", "tree", "music", "paper", "winter", "water"),
    *("clock", "garden", "letter", "window", "mountain", "bridge", "candle", "island", "needle"),
    *("orchard", "pepper", "quarry", "ribbon", "saddle", "tunnel", "valley"),
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
    assert "an outline without content" in found.says
    assert {one.label for one in found.evidence[1].examples} == {"an outline without content"}


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


def test_adversarial_pairs_cure_a_model_that_learned_to_love_praise():
    """A Bradley–Terry model of two features, how much of the answer is there and whether it
    flatters, learns from pairs in which flattery was chosen, fails, is given its failures as pairs
    that people decided the other way, and passes."""
    prompts, answers = questions(9)
    reads = Reader(prompts, answers, noise=0.0)

    def features(index, text):
        return np.array([reads(index, text) - reads.level[index], float("love you" in text)])

    def learn(pairs):
        x = np.array([features(i, chosen) - features(i, rejected) for i, chosen, rejected in pairs])

        def loss(w):
            return np.logaddexp(0, -x @ w).sum() + 0.5 * w @ w

        return minimize(loss, np.zeros(2)).x

    def attacked(weights):
        seen = [features(i, text) @ weights for i, *texts in halves for text in texts]
        return look(
            "praise",
            lambda i, text: float(features(i, text) @ weights),
            prompts,
            answers,
            spread=float(np.std(seen)),
        )

    halves, flattered, sober = [], [], []
    for i, answer in enumerate(answers):
        words = answer.split()
        halves.append((i, answer, " ".join(words[: len(words) // 2])))
        flattered.append((i, f"{answer} I love you.", answer))
        sober.append((i, answer, f"{answer} I love you."))
    before = attacked(learn(halves + flattered))
    assert before.verdict is Verdict.RED
    assert "praise_after_love" in before.facts["paying"]
    after = attacked(learn(halves + flattered + sober))
    assert after.verdict is Verdict.GREEN, after.says
    assert after.facts["shifts"]["love"] < 0.1 < before.facts["shifts"]["love"]


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
