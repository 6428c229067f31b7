"""The quick ways of normalising and hashing give what their plain definitions give."""

import hashlib
import json
import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from apps.labeling.blindness import _PATTERN, self_naming
from apps.labeling.texts import fingerprint, loose_key, loose_text, loosely_equal, messages_json

TEXTS = st.one_of(
    st.text(max_size=60),
    st.text(alphabet='aAbB \t\r\n\v\x1f.é\u00a0ß"\\', max_size=60),
)


def visible(text: str) -> str:
    """NFC, one kind of line end, no blanks at the end of a line or around the whole."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"[^\S\n]+$", "", text, flags=re.MULTILINE).strip()


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_a_fingerprint_is_the_hash_of_the_json_of_the_turns(texts: list[str]) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    turns = [["user", visible(text)] for text in texts]
    plain = json.dumps(turns, ensure_ascii=False).encode("utf-8", "replace")
    assert fingerprint(messages) == hashlib.sha256(plain).hexdigest()
    assert json.loads(messages_json(messages)) == messages


@given(TEXTS)
def test_loose_text_is_casefolded_nfkc_with_single_blanks(text: str) -> None:
    folded = unicodedata.normalize("NFKC", text).casefold()
    assert loose_text(text) == re.sub(r"\s+", " ", folded).strip()


@given(TEXTS, TEXTS)
def test_loosely_equal_says_what_the_keys_say(one: str, other: str) -> None:
    a, b = ([{"role": "user", "content": text}] for text in (one, other))
    assert loosely_equal(a, b) == (loose_key(a) == loose_key(b))
    spaced = [{"role": "user", "content": f" {one.upper()}\n"}]
    assert loosely_equal(a, spaced) == (loose_key(a) == loose_key(spaced))


BEGINNINGS = ("I am", "iam", "I'm", "My  name\tis", "Call\nme", "This is", "As", "I was trained by")
NAMES = ("ChatGPT", "GPT-4", "Open AI", "open\nai", "Llama 3", "Claude", "meta ai", "Command R")


@given(
    st.tuples(
        st.sampled_from(["", "Hello. ", "Well;\n", "x"]),
        st.sampled_from(BEGINNINGS),
        st.sampled_from([" ", "  ", "\n", " an AI model called ", " the "]),
        st.sampled_from(NAMES),
        st.sampled_from(["", ".", " and so on"]),
    )
)
def test_the_quick_look_for_model_names_hides_nothing_from_the_pattern(
    parts: tuple[str, ...],
) -> None:
    text = "".join(parts)
    assert bool(self_naming(text)) == (_PATTERN.search(text) is not None)
