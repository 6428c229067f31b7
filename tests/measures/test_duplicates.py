"""Near-duplicates: what counts as one, and that none is missed or invented."""

import random
import subprocess
import sys
import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from measures import duplicates
from measures.duplicates import jaccard, near_duplicates, near_families, near_matches

VOCABULARY = [f"word{n}" for n in range(3_000)]
QUESTION = "how do i ask for a day off when my manager is away and nobody else decides"


def text(rng: random.Random, n: int) -> str:
    return " ".join(rng.choices(VOCABULARY, k=n))


def edited(rng: random.Random, said: str, n: int) -> str:
    words = said.split()
    for place in rng.sample(range(len(words)), n):
        words[place] = rng.choice(VOCABULARY)
    return " ".join(words)


def plain_jaccard(one: str, other: str) -> float:
    a, b = ({tuple(w[i : i + 3]) for i in range(len(w) - 2)} for w in (one.split(), other.split()))
    return len(a & b) / len(a | b)


def test_similarity_is_what_counting_shared_triples_by_hand_gives():
    # abc bcd cde against abc bcd cdx: two shared, four in all.
    assert jaccard("a b c d e", "a b c d x") == 0.5


def test_case_blanks_and_punctuation_make_no_difference():
    assert jaccard("Please, tell  me WHY.", "please tell me why") == 1


def test_every_pair_that_brute_force_finds_is_found_and_no_other():
    rng = random.Random(1)
    texts = [text(rng, rng.randint(20, 120)) for _ in range(80)]
    texts += [edited(rng, rng.choice(texts), rng.randint(0, 6)) for _ in range(160)]
    found = near_duplicates(texts)
    pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    for i, j in combinations(range(len(texts)), 2):
        exact = plain_jaccard(texts[i], texts[j])
        if 0.8 <= exact < 1:
            # equal sets stand in for one another, so a pair may be named by its representatives
            assert found.family[i] == found.family[j]
        if (i, j) in pairs:
            assert exact >= 0.8
    for i, j, value in zip(found.first, found.second, found.similarity, strict=True):
        assert value == pytest.approx(plain_jaccard(texts[i], texts[j]))


def test_unrelated_texts_have_no_duplicates():
    rng = random.Random(2)
    found = near_duplicates([text(rng, 60) for _ in range(300)])
    assert len(found.first) == 0
    assert found.n_redundant == 0


def test_copies_are_paired_with_the_first_of_them_alone():
    found = near_duplicates([QUESTION, "something else", QUESTION.upper(), QUESTION + "?"])
    assert found.first.tolist() == [0, 0]
    assert found.second.tolist() == [2, 3]
    assert found.family.tolist() == [0, 1, 0, 0]
    assert found.n_redundant == 2


def test_short_questions_that_differ_in_one_word_are_different():
    asked = [f"What is the capital of {name}?" for name in ("France", "Spain", "Peru")]
    assert near_duplicates(asked).n_redundant == 0


def test_texts_under_three_words_match_their_equals_only():
    found = near_duplicates(["Yes.", "yes", "No.", "Yes indeed", "", " ", "!!!", "!!!"])
    assert found.family.tolist() == [0, 0, 2, 3, 4, 5, 6, 6]


def test_scripts_without_blanks_are_compared_by_character():
    said = "我认为每个人都应该有权利选择自己的生活方式而不受他人的干涉和限制这是基本的自由"
    assert near_duplicates([said, said + "吗", "完全不同的一句话在这里"]).family.tolist() == [
        0,
        0,
        2,
    ]


def test_a_large_family_of_slightly_edited_texts_hangs_together():
    rng = random.Random(3)
    root = text(rng, 200)
    family = near_duplicates([edited(rng, root, 2) for _ in range(300)]).family
    assert (family == 0).all()


def templated(n: int) -> list[str]:
    """As one program asks: most words are the template's."""
    body = QUESTION.split() * 3
    return [" ".join([f"Question {k} about topic {k % 7}:", *body[: 8 + k % 23]]) for k in range(n)]


def families_by_hand(texts: list[str], threshold: float = 0.8) -> list[int]:
    """Every text with every other; the lowest number of all that hang together."""
    family = list(range(len(texts)))
    for i, j in combinations(range(len(texts)), 2):
        if jaccard(texts[i], texts[j]) >= threshold:
            low, high = sorted((family[i], family[j]))
            family = [low if one == high else one for one in family]
    return family


@pytest.mark.parametrize("seed", range(3))
def test_families_alone_are_those_of_the_pairs_and_those_found_by_hand(seed: int):
    rng = random.Random(seed)
    texts = [text(rng, rng.randint(15, 60)) for _ in range(30)]
    texts += [edited(rng, rng.choice(texts), rng.randint(0, 2)) for _ in range(50)]
    texts += [*templated(30), "", "!!!", "yes", "Yes.", "", texts[3].upper()]
    rng.shuffle(texts)
    alone = near_families(texts)
    assert alone.tolist() == near_duplicates(texts).family.tolist()
    assert alone.tolist() == families_by_hand(texts)


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_families_alone_are_those_of_the_pairs_at_every_threshold(threshold: float):
    rng = random.Random(9)
    texts = [text(rng, 40) for _ in range(200)]
    texts += [edited(rng, rng.choice(texts), rng.randint(0, 6)) for _ in range(600)]
    texts += templated(900)
    alone = near_families(texts, threshold=threshold)
    assert alone.tolist() == near_duplicates(texts, threshold=threshold).family.tolist()
    assert near_families([]).tolist() == []


def test_no_pair_is_found_twice_though_it_agrees_in_many_bands():
    found = near_duplicates(templated(900))
    pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert len(pairs) == len(found.first)
    assert len(pairs) > 10_000


def test_what_is_known_to_be_of_one_family_is_not_compared_again(monkeypatch: pytest.MonkeyPatch):
    compared: list[int] = []
    jaccard_of = duplicates._Overlaps.jaccard

    def counted(self: duplicates._Overlaps, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        compared.append(len(low))
        return jaccard_of(self, low, high)

    monkeypatch.setattr(duplicates._Overlaps, "jaccard", counted)
    rng = random.Random(3)
    root = text(rng, 200)
    copies = [edited(rng, root, 2) for _ in range(300)]
    assert (near_families(copies) == 0).all()
    families = sum(compared)
    compared.clear()
    near_duplicates(copies)
    assert families < sum(compared) / 10


def test_memory_does_not_grow_with_the_pairs_that_are_looked_at():
    """Each text meets up to 64 others in each of 25 bands."""
    texts = templated(3_000)
    tracemalloc.start()
    near_families(texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6


def test_planted_matches_between_two_lists_are_found_with_their_rows():
    rng = random.Random(4)
    seen = [text(rng, 80) for _ in range(200)]
    asked = [edited(rng, seen[n], 1) if n < 35 else text(rng, 80) for n in range(100)]
    found = near_matches(asked, seen)
    assert found.n_matched == 35
    assert found.row[:35].tolist() == list(range(35))
    assert (found.row[35:] == -1).all()
    assert found.similarity[35:].max() == 0


def test_a_text_that_stands_in_both_lists_matches_with_similarity_one():
    found = near_matches([QUESTION, "yes", ""], ["no", QUESTION, QUESTION, ""])
    assert found.row.tolist() == [1, -1, -1]
    assert found.similarity.tolist() == [1, 0, 0]


def test_texts_alike_within_one_list_are_no_match_between_the_lists():
    assert near_matches([QUESTION, QUESTION], ["a wholly different thing to ask"]).n_matched == 0


def test_nothing_in_gives_nothing_out():
    assert len(near_duplicates([]).family) == 0
    assert near_matches([], []).n_matched == 0
    assert near_matches([QUESTION], []).n_matched == 0


def test_a_threshold_that_is_none_is_refused():
    with pytest.raises(ValueError, match="threshold"):
        near_duplicates([QUESTION], threshold=0)


def test_a_lower_threshold_finds_looser_pairs():
    rng = random.Random(5)
    root = text(rng, 60)
    loose = edited(rng, root, 5)
    assert 0.5 < plain_jaccard(root, loose) < 0.8
    assert near_duplicates([root, loose]).n_redundant == 0
    assert near_duplicates([root, loose], threshold=0.5).n_redundant == 1


def test_another_interpreter_finds_the_same():
    script = (
        "import random\n"
        "from tests.measures.test_duplicates import edited, text\n"
        "from measures.duplicates import near_duplicates\n"
        "rng = random.Random(6)\n"
        "texts = [text(rng, 40) for _ in range(30)]\n"
        "texts += [edited(rng, t, 2) for t in texts]\n"
        "print(*near_duplicates(texts).family)"
    )
    ran = [
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
        ).stdout
        for seed in ("1", "2")
    ]
    assert ran[0] == ran[1]
    assert len(set(ran[0].split())) < 60
