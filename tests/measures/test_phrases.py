"""A phrase is found in whatever spelling, and its near-misses are left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.phrases import Phrases, normal_form

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
