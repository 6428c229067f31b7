"""The audit of spurious words: planted ones are named, chance is not, length is told apart."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.ambiguity import vote_entropy
from measures.corpus import Corpus, token_count
from measures.imitation import (
    SHARES,
    Trait,
    Traits,
    compare,
    paired_shares,
    ratio_of_means,
    traits_of,
)
from measures.phrases import Phrases, normal_form
from measures.style import is_degenerate, marks_of
from measures.tokens import TokenAudit, length_slope, q_values, token_audit

VOCABULARY = np.array([f"word{n}" for n in range(300)])
WEIGHTS = 1 / np.arange(1, 301)
WEIGHTS /= WEIGHTS.sum()


def texts(rng: np.random.Generator, n: int, length: int = 40) -> list[str]:
    """Half to one and a half times as long as asked."""
    sizes = rng.integers(length // 2, length * 3 // 2, size=n)
    return [" ".join(rng.choice(VOCABULARY, size=size, p=WEIGHTS)) for size in sizes]


def audit(chosen: list[str], rejected: list[str]) -> TokenAudit:
    """Each text stands in one pair."""
    n = len(chosen)
    corpus = Corpus(chosen + rejected)
    counts = corpus.counts(least_texts=10, pairs_of_words=True)
    return token_audit(counts, np.arange(n), np.arange(n, 2 * n), corpus.lengths)


def test_tokens_are_words_and_single_signs():
    assert token_count("Well, isn't it (really)?") == 10


def test_pairs_of_words_do_not_reach_over_punctuation_or_texts():
    names = Corpus(["thank you, friend", "of mine"]).counts(pairs_of_words=True).names
    assert [name for name in names if " " in name] == ["thank you", "of mine"]


def test_a_word_on_ten_percent_of_chosen_and_three_of_rejected_ranks_first():
    rng = np.random.default_rng(1)
    chosen, rejected = texts(rng, 1500), texts(rng, 1500)
    chosen = [t + " absolutely" if rng.random() < 0.10 else t for t in chosen]
    rejected = [t + " absolutely" if rng.random() < 0.03 else t for t in rejected]
    found = audit(chosen, rejected)
    first = found.ranked()[0]
    assert found.names[first] == "absolutely"
    assert found.in_chosen[first] == pytest.approx(0.10, abs=0.025)
    assert found.in_rejected[first] == pytest.approx(0.03, abs=0.015)
    assert not found.marks_length_only(first)


def test_swapping_labels_at_random_names_a_word_in_at_most_one_run_of_twenty():
    rng = np.random.default_rng(2)
    corpus = Corpus(texts(rng, 800))
    counts = corpus.counts(least_texts=10, pairs_of_words=True)
    alarms = after = 0
    for _ in range(60):
        swapped = rng.random(400) < 0.5
        one = np.where(swapped, np.arange(400), np.arange(400, 800))
        other = np.where(swapped, np.arange(400, 800), np.arange(400))
        found = token_audit(counts, one, other, corpus.lengths)
        alarms += bool((found.q < 0.05).any())
        after += bool((found.q_after < 0.05).any())
    # 5 % of 60 is 3; 7 or more would come by chance once in thirty.
    assert alarms <= 6
    assert after <= 6


def test_strong_texts_that_recur_do_not_make_their_words_spurious():
    """40 texts meet in 780 pairs and some are simply better: their words had no part in it."""
    rng = np.random.default_rng(3)
    corpus = Corpus(texts(rng, 40, length=60))
    counts = corpus.counts(least_texts=10)
    one, other = np.triu_indices(40, 1)
    alarms = naive = 0
    for _ in range(40):
        strength = rng.normal(size=40) * 2
        wins = rng.random(len(one)) < 1 / (1 + np.exp(strength[other] - strength[one]))
        won, lost = np.where(wins, one, other), np.where(wins, other, one)
        found = token_audit(counts, won, lost, corpus.lengths)
        alarms += bool((found.q < 0.05).any())
        # what a sign test that takes every pair for new evidence would have said
        z = np.abs(found.only_chosen - found.only_rejected)
        naive += bool((z > 5 * np.sqrt(found.only_chosen + found.only_rejected)).any())
    assert naive > 20
    assert alarms <= 5


def test_words_that_only_mark_longer_answers_are_told_apart_from_those_that_do_more():
    rng = np.random.default_rng(4)
    longer, shorter = texts(rng, 1200, 60), texts(rng, 1200, 30)
    liked = rng.random(1200) < 0.8
    chosen = [a if y else b for a, b, y in zip(longer, shorter, liked, strict=True)]
    rejected = [b if y else a for a, b, y in zip(longer, shorter, liked, strict=True)]
    chosen = [t + " certainly" if rng.random() < 0.2 else t for t in chosen]
    rejected = [t + " certainly" if rng.random() < 0.05 else t for t in rejected]
    found = audit(chosen, rejected)
    word = found.names.index("certainly")
    common = found.names.index("word1")
    assert found.q[common] < 0.05
    assert found.marks_length_only(common)
    assert found.q_after[word] < 0.05


def test_log_odds_are_monroes_worked_by_hand():
    # "yes" 3 of 4 words chosen, 1 of 4 rejected; half of all words, so alpha is 250.
    corpus = Corpus(["yes yes yes no", "yes no no no"])
    found = token_audit(corpus.counts(), [0], [1], corpus.lengths)
    word = found.names.index("yes")
    assert found.log_odds[word] == pytest.approx(math.log(253 / 251) - math.log(251 / 253))
    assert found.z[word] == pytest.approx(found.log_odds[word] / math.sqrt(1 / 253 + 1 / 251))


def test_words_in_few_texts_are_not_tested():
    found = audit(["rare"] * 3 + ["other"] * 3, ["common"] * 6)
    assert found.n_tested == 0
    assert len(found.ranked()) == 0


def test_q_values_are_benjamini_and_hochbergs():
    # Worked by hand: p·m/rank, then the running minimum from the largest down.
    q = q_values([0.01, 0.04, 0.03, 0.5, math.nan])
    assert q[:4] == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert math.isnan(q[4])


def test_the_slope_of_length_is_recovered_and_stays_finite():
    rng = np.random.default_rng(5)
    x = rng.normal(size=20_000)
    wins = rng.random(20_000) < 1 / (1 + np.exp(-1.5 * x))
    assert length_slope(np.where(wins, x, -x)) == pytest.approx(1.5, abs=0.06)
    assert np.isfinite(length_slope(np.ones(500)))


def test_no_pairs_give_no_alarm():
    corpus = Corpus(["one text"])
    found = token_audit(corpus.counts(), [], [], corpus.lengths)
    assert found.n == 0
    assert found.n_tested == 0


# The entropy of votes: against draws from its posterior, and by what it must and must not do.


@pytest.mark.parametrize("counts", [(2, 1), (3, 3), (4, 1, 1), (1, 0), (2, 2, 1, 3)])
def test_it_is_the_mean_entropy_of_what_the_votes_leave_possible(counts: tuple[int, ...]) -> None:
    alpha = np.array(counts) + 1 / len(counts)
    p = np.random.default_rng(3).dirichlet(alpha, 200_000)
    drawn = -(p * np.log2(np.maximum(p, 1e-300))).sum(axis=1)
    assert vote_entropy([counts])[0] == pytest.approx(drawn.mean(), abs=0.003)


def test_with_many_votes_it_is_the_entropy_of_the_shares() -> None:
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    assert vote_entropy([80_000 * shares])[0] == pytest.approx(1.75, abs=0.001)


def test_more_evidence_for_the_same_split_ranks_higher() -> None:
    one, three, five = vote_entropy([[1, 1], [3, 3], [5, 5]])
    assert one < three < five < 1.0


def test_agreement_ranks_lower_the_more_agree() -> None:
    one, three, five = vote_entropy([[1, 0], [3, 0], [5, 0]])
    assert one > three > five > 0.0


def test_the_names_of_the_choices_do_not_matter() -> None:
    assert np.ptp(vote_entropy([[3, 1, 0, 1], [1, 3, 1, 0], [0, 1, 1, 3]])) < 1e-12


def test_choices_nobody_made_are_no_possibility_but_one() -> None:
    assert vote_entropy([[2, 1, 0, 0]]) == pytest.approx(vote_entropy([[2, 1]]))
    assert vote_entropy([[3, 0, 0, 0]]) == pytest.approx(vote_entropy([[3, 0]]))
    # so one against one is not more undecided than three against three, whatever is offered
    assert np.diff(vote_entropy([[1, 1, 0, 0], [3, 3, 0, 0], [2, 2, 2, 0]])).min() > 0


def test_without_votes_nothing_is_said() -> None:
    assert np.isnan(vote_entropy([[0, 0]])[0])
    with pytest.raises(ValueError, match="none negative"):
        vote_entropy([[-1, 2]])


# A phrase is found in whatever spelling, and its near-misses are left alone.


LOVE = Phrases(["I love you"])
SPELLINGS = [
    "I love you",
    "I LOVE YOU",
    "i  love\nyou",
    "I-love-you",
    "I_love_you",
    "i.love.you",
    "*I* **love** _you_",
    "I… love… you!",
    "I ❤️ love you",
    "“I love you,” she said",
    "ILoveYou",
    "I l.o.v.e you",
    "I l o v e y o u",
    "I looove youuu",
    "I\u00a0love\u2003you",
    "I lo\u200bve you",
    "I l\u00adove you",
    "I\u200d love\u2060you",
    "\u202eI love you\u202c",
    "Ｉ ｌｏｖｅ ｙｏｕ",
    "𝐈 𝐥𝐨𝐯𝐞 𝐲𝐨𝐮",
    "Ⓘ ⓛⓞⓥⓔ ⓨⓞⓤ",
    "I lоvе yоu",  # Cyrillic о and е
    "I lονe you",  # Greek ο and ν
    "I l̶o̶v̶e̶ you",
]
NEAR_MISSES = [
    "I loved you",
    "I love your dress",
    "I'll over youth clubs",
    "We glove you",
    "Hi love you",
    "I love it; you",
    "I lovey ou",
    "I really love you",
    "You love I",
    "alibi love you",
    "I love\n\n\n\n\n\n\n\nyou",
    "I lóve you",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_every_spelling_is_found(text: str) -> None:
    for place in (text, f"Well: {text}. So.", f"({text})"):
        found = LOVE.first_in(place)
        assert found is not None, place
        assert found.phrase == "I love you"


@pytest.mark.parametrize("text", NEAR_MISSES)
def test_near_misses_are_left_alone(text: str) -> None:
    assert LOVE.first_in(text) is None


def test_a_doubled_letter_is_not_a_single_one() -> None:
    phrases = Phrases(["god"])
    assert phrases.first_in("oh gooood heavens, g-o-d") is not None
    assert phrases.first_in("a good day") is None


def test_phrases_in_other_scripts_are_found() -> None:
    phrases = Phrases(["я тебя люблю", "愛してる", "Straße"])
    assert phrases.first_in("Он сказал: Я  ТЕБЯ люблю!").phrase == "я тебя люблю"
    assert phrases.first_in("彼は 愛してる と").phrase == "愛してる"
    assert phrases.first_in("in der STRASSE 5").phrase == "Straße"
    assert phrases.first_in("Я тебя не люблю") is None


def test_the_first_of_the_list_is_named_with_the_words_that_hold_it() -> None:
    found = Phrases(["nothing", "secret recipe", "recipe"]).first_in("Our SECRET - recipe!")
    assert (found.phrase, found.words) == ("secret recipe", "secret - recipe")


def test_an_empty_list_finds_nothing_and_a_phrase_of_signs_is_refused() -> None:
    assert not Phrases([])
    assert Phrases([]).first_in("anything") is None
    with pytest.raises(ValueError, match="no letter"):
        Phrases(["…"])


@given(
    st.text(max_size=40), st.text(max_size=40), st.sampled_from([" ", ", ", " — ", "\u200b ", "\n"])
)
def test_the_quick_look_never_hides_what_the_exact_search_finds(
    before: str, after: str, between: str
) -> None:
    text = f"{before} tap{between}water {after}"
    known = Phrases(["tap water"])
    exact = known._phrases[0].pattern.search(normal_form(text))
    assert (known.first_in(text) is not None) == (exact is not None)


@given(st.text(max_size=60))
def test_the_normal_form_is_reached_in_one_step(text: str) -> None:
    assert normal_form(normal_form(text)) == normal_form(text)


# Marks of style: what counts as one, and what only looks like it.


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Steps:\n1. Boil water\n2. Wait", "list"),
        ("Some points:\n- one\n- two", "list"),
        ("## Summary\nIt works.", "heading"),
        ("Use **care** here.", "bold"),
        ("Run `make test` first.", "code"),
        ("```python\nprint(1)\n```", "code"),
        ("| a | b |\n|---|---|", "table"),
        ("See [the manual](https://example.org).", "link"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("I cannot provide medical advice.", "refusal"),
        ("As an AI language model, I have no opinions.", "refusal"),
        ("I am unable to assist with this.", "refusal"),
        ("Thank you for asking.", "polite"),
        ("Please restart it.", "polite"),
        ("What a day!", "exclaims"),
        ("Which version do you use?", "asks_back"),
    ],
)
def test_a_mark_is_found(text: str, mark: str):
    assert mark in marks_of(text)


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("I cannot stress enough how well it works.", "refusal"),
        ("I can't help but smile.", "refusal"),
        ("I cannot recommend it highly enough.", "refusal"),
        ("I'm sorry to hear that.", "refusal"),
        ("3.5 litres are enough", "list"),
        ("well-known - and rightly so", "list"),
        ("2 * 3 * 4 is 24", "bold"),
        ("issue #12 is fixed", "heading"),
        ("The pleased crowd left.", "polite"),
        ("Why? Because it is cheap.", "asks_back"),
    ],
)
def test_what_only_looks_like_a_mark_is_none(text: str, mark: str):
    assert mark not in marks_of(text)


def test_any_markup_counts_as_markdown_and_plain_text_has_no_mark():
    assert "markdown" in marks_of("a **b** c")
    assert marks_of("Plain words, and nothing else.") == frozenset()


def test_an_empty_a_tiny_and_an_endlessly_repeating_answer_are_degenerate():
    assert is_degenerate("")
    assert is_degenerate("Yes.")
    assert is_degenerate("good " * 40)
    assert not is_degenerate("It works because the seal is new and the pump is not.")


# Answers beside demonstrations: other habits are told, chance is not.


PROMPTS = 64


def side(
    rng: np.random.Generator, wants: np.ndarray, *, longer: float = 1.0, refusals: float = 0.05
) -> list[Traits]:
    """Answers to prompts that ask for `wants` tokens each, cut at 200; three in ten have a list."""
    lengths = np.minimum(200, np.maximum(1, wants * longer * rng.lognormal(0, 0.4, PROMPTS)))
    lists, refuses = rng.random((2, PROMPTS))
    return [
        Traits(
            int(tokens),
            frozenset(
                name
                for name, has in (
                    ("ended", tokens < 200),
                    ("list", lists[i] < 0.3),
                    ("refusal", refuses[i] < refusals),
                )
                if has
            ),
        )
        for i, tokens in enumerate(lengths)
    ]


def world(seed: int, **answers: float) -> list[Trait]:
    rng = np.random.default_rng(seed)
    wants = rng.lognormal(4.0, 0.5, PROMPTS)
    return compare(side(rng, wants), side(rng, wants, **answers))


def departing(traits: list[Trait]) -> set[str]:
    return {trait.name for trait in traits if trait.departs}


def test_a_faithful_model_is_never_told_to_depart_and_a_verbose_one_always() -> None:
    for seed in range(20):
        assert departing(world(seed)) == set(), seed
        assert "length" in departing(world(seed, longer=1.8)), seed


def test_a_model_that_answers_in_half_as_much_departs_too() -> None:
    assert all("length" in departing(world(seed, longer=0.5)) for seed in range(20))


def test_a_model_that_refuses_two_prompts_of_five_departs_by_refusals_alone() -> None:
    found = [departing(world(seed, refusals=0.4)) for seed in range(20)]
    assert all(names == {"refusal"} for names in found)


def test_an_answer_that_never_ends_counts_as_long_and_unended_not_as_missing() -> None:
    demonstrations = [Traits(50, frozenset({"ended"}))] * 20
    traits = {t.name: t for t in compare(demonstrations, [Traits(100, frozenset())] * 20)}
    assert traits["length"].difference.value == pytest.approx(2.0)
    assert traits["ended"].difference.value == pytest.approx(-1.0)
    assert departing(list(traits.values())) == {"length", "ended"}


def test_the_difference_of_paired_shares_is_agresti_and_mins_by_hand() -> None:
    first = [True] * 5 + [False] + [True] * 2 + [False] * 2
    second = [False] * 5 + [True] + [True] * 2 + [False] * 2
    found = paired_shares(first, second)  # b = 5, c = 1, n = 10
    half = 1.959964 * (7 - 16 / 12) ** 0.5 / 12
    assert found.value == pytest.approx(0.4)
    assert (found.low, found.high) == pytest.approx((4 / 12 - half, 4 / 12 + half))
    alike = paired_shares([True] * 30, [True] * 30)
    assert alike.low < 0 < alike.high  # agreement on 30 rows is not certainty


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    held = np.zeros(2)
    for _ in range(400):
        shared = rng.lognormal(3, 0.5, 40)
        ratio = ratio_of_means(*(shared * rng.lognormal(0, 0.3, (2, 40))))
        share = paired_shares(rng.random(40) < 0.5, rng.random(40) < 0.3)
        held += [ratio.low < 1.0 < ratio.high, share.low < 0.2 < share.high]
    assert all(0.92 <= covered <= 0.985 for covered in held / 400), held / 400


def test_what_prompts_share_makes_the_interval_of_a_ratio_shorter() -> None:
    rng = np.random.default_rng(1)
    wants = rng.lognormal(3, 1.0, 60)
    one, other = wants * rng.lognormal(0, 0.1, 60), wants * rng.lognormal(0, 0.1, 60)
    paired, shuffled = ratio_of_means(one, other), ratio_of_means(one, rng.permutation(other))
    assert paired.high - paired.low < 0.3 * (shuffled.high - shuffled.low)


def test_too_few_rows_give_a_value_without_an_interval_and_never_depart() -> None:
    traits = compare([Traits(10, frozenset())] * 3, [Traits(90, frozenset({"refusal"}))] * 3)
    assert departing(traits) == set()
    assert traits[0].difference.value == pytest.approx(9.0)
    assert traits[0].difference.no_interval == "too_few unit=rows n=3 least=10"


def test_empty_answers_leave_the_ratio_undefined_and_say_why() -> None:
    found = ratio_of_means([0.0] * 20, [5.0] * 20)
    assert (found.value, found.undefined) == (None, "no_length")
    with pytest.raises(ValueError, match="per demonstration"):
        compare([Traits(1, frozenset())], [])


@pytest.mark.parametrize(
    ("text", "ended", "trait"),
    [
        ("- one\n- two", True, "list"),
        ("## Title\ntext", True, "heading"),
        ("```\nx = 1\n```", True, "code"),
        ("I'm sorry, but I can't help with that.", True, "refusal"),
        ('{"a": [1, 2]}', True, "json"),
        ('{"a": [1,', False, "json"),
    ],
)
def test_traits_are_read_from_the_text(text: str, ended: bool, trait: str) -> None:
    marks = traits_of(text, tokens=5, ended=ended).marks
    assert trait in marks
    assert ("ended" in marks) is ended
    assert marks <= SHARES.keys()


def test_a_bracket_that_is_no_json_is_none() -> None:
    assert "json" not in traits_of("[laughs] indeed", tokens=3, ended=True).marks
    assert "json" not in traits_of("{never} closed", tokens=3, ended=False).marks
