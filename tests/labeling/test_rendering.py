"""Model text becomes safe HTML, the same each time, and long texts stay whole."""

import hashlib
import html as html_module
import json
import re
import time
import unicodedata

import pytest
import redis
from django.conf import settings
from django.core.cache import cache
from hypothesis import given
from hypothesis import strategies as st

from apps.labeling import rendering
from apps.labeling.blindness import _PATTERN, self_naming
from apps.labeling.rendering import code, text_html, texts_html
from apps.labeling.rendering.code import CLASSES
from apps.labeling.rendering.maths import LONGEST_PIECE, LONGEST_WHOLE
from apps.labeling.texts import fingerprint, loose_key, loose_text, loosely_equal, messages_json
from tests.labeling import model_texts

ALIGNED = "\\begin{align}\na &= b\\\\\nc &= d\n\\end{align}"


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing kept, and time enough on any machine: the tests of the allowance bring a clock."""
    cache.clear()
    monkeypatch.setattr(rendering, "ALLOWANCE", 60.0)
    monkeypatch.setattr(rendering, "PAGE_ALLOWANCE", 60.0)


def _tags(html: str) -> list[str]:
    return re.findall(r"<(\w+)", html)


def _read(html: str) -> str:
    """What a person reads: the text without its tags."""
    return html_module.unescape(re.sub(r"<[^>]*>", "", html))


# --- Markdown -------------------------------------------------------------------------------------


def test_markdown_is_rendered() -> None:
    html = text_html("# Plan\n\n1. *first*\n2. `second`\n\n|a|b|\n|-|-|\n|1|2|\n\n```\nx < 1\n```")
    assert "<h4>Plan</h4>" in html  # below the page's own headings
    assert "<em>first</em>" in html
    wrapper = re.search(r"<div ([^>]*)><table>", html)[1]
    assert set(wrapper.split()) == {'class="scroll"', 'tabindex="0"'}
    assert "<code>x &lt; 1\n</code>" in html


def test_columns_are_aligned_as_written() -> None:
    html = text_html('|a|b|\n|:-|-:|\n|1|2 style="text-align:right"|')
    assert '<td align="left">1</td>' in html
    assert '<td align="right">2 style="text-align:right"</td>' in html


def test_line_breaks_are_kept_as_the_model_wrote_them() -> None:
    assert "one<br>" in text_html("one\ntwo")


def test_links_open_elsewhere_and_tell_nothing() -> None:
    html = text_html("[read](https://example.org/a?b=1 'title')")
    assert 'href="https://example.org/a?b=1"' in html
    assert 'rel="noopener noreferrer nofollow"' in html
    assert 'target="_blank"' in html


# --- hostile text ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<a href=javascript:alert(1)>x</a>",
        "[x](javascript:alert(1))",
        "[x](data:text/html,<script>1</script>)",
        "[x](vbscript:x)",
        "<javascript:alert(1)>",
        '[x](https://e.org "t\\" onmouseover=alert(1)")',
        "```<script>\nx\n```",
        '```python"onclick=alert(1)\nx = "</code></pre><script>"\n```',
        "```html\n<b onclick=alert(1)>x</b>\n```",
        "<div><table></div>",
        '$"><script>alert(1)</script>$',
        '$$\n</div><img src=x onerror="alert(1)">\n$$',
        "\\[ <svg onload=alert(1)> = 1 \\]",
    ],
)
def test_no_hostile_text_becomes_an_element_or_an_attribute(text: str) -> None:
    html = text_html(text)
    assert set(_tags(html)) <= {"p", "a", "pre", "code", "span", "div"}, html
    assert 'href="javascript' not in html
    assert 'href="data' not in html
    inside = " ".join(re.findall(r"<\w+([^>]*)>", html)).replace("&quot; onmouseover=", "")
    assert not re.search(r"\bon\w+=|style=", inside), html


def test_classes_of_the_site_cannot_be_worn_by_a_text() -> None:
    html = text_html(model_texts.HOSTILE + model_texts.CODE + model_texts.MATHS)
    worn = {name for names in re.findall(r'class="([^"]*)"', html) for name in names.split()}
    assert {"kw", "str", "math", "display"} <= worn  # it was looked for where there is some
    assert worn <= {*CLASSES, "math", "display", "scroll"}


def test_images_are_not_loaded() -> None:
    assert "<img" not in text_html("![x](https://example.org/pixel.png)")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("invoice\u202egpj.exe", "invoice⟨right-to-left override⟩gpj.exe"),
        ("&#8238;abc", "⟨right-to-left override⟩abc"),
        ("a\x1b[31m", "a⟨U+001B⟩[31m"),
        (
            "a" + "\u202e" * 900 + "\u2066b",
            "a⟨right-to-left override ×900, left-to-right isolate⟩b",
        ),
        ("`x\u202e`", "x⟨right-to-left override⟩"),
        ("$a\u202eb$", "a⟨right-to-left override⟩b"),
    ],
)
def test_characters_that_reorder_or_hide_text_are_named(text: str, shown: str) -> None:
    assert _read(text_html(text)).strip() == shown


def test_right_to_left_languages_stay_as_they_are() -> None:
    assert text_html("שלום \u200fעולם") == "<p>שלום \u200fעולם</p>\n"


# --- code -----------------------------------------------------------------------------------------


def test_code_of_a_named_language_is_highlighted() -> None:
    html = text_html("```python\ndef f():  # why\n    return 'x', 1\n```")
    assert '<span class="kw">def</span> <span class="fn">f</span>():' in html
    assert '<span class="com"># why</span>' in html
    assert '<span class="str">\'x\'</span>, <span class="num">1</span>' in html


@pytest.mark.parametrize("language", ["", "nosuchlanguage", "text", "pythonx", "../python"])
def test_code_of_no_known_language_is_plain_and_nothing_is_guessed(language: str) -> None:
    assert "<code>def f(): pass\n</code>" in text_html(f"```{language}\ndef f(): pass\n```")


@pytest.mark.parametrize("word", ["py", "C++", "js", "SH", "c#", "rs", "html", "sql", "diff"])
def test_the_words_people_put_after_a_fence_are_known(word: str) -> None:
    code = "class if SELECT 'a' <b c='d'> // 1\n+added\n"
    html = text_html(f"```{word}\n{code}```")
    assert "<span class=" in html
    assert _read(html) == f"{code}\n"  # and highlighting loses no character


# --- formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("so $x^2$ and $2x$, $n = 3$.", ["x^2", "2x", "n = 3"]),
        ("$x$ is 5", ["x"]),
        (r"\(a_1 * b_1\) and \(x\)", ["a_1 * b_1", "x"]),
        (r"a $$x_1$$ b", ["x_1"]),
        ("then\n$$\nx = 1\n- 2\n$$\nso", ["x = 1\n- 2"]),
        ("then\n\\[\n\\frac12\n\\]\nso", [r"\frac12"]),
        (r"\[ \sqrt2 \].", [r"\sqrt2."]),
        ("1. a\n   $$\n   x\n   = 1\n   $$\n2. b", ["x\n= 1"]),
        ("> $$y = 1$$", ["y = 1"]),
        (ALIGNED, [ALIGNED]),
        ("|a|\n|-|\n|$x_1$|", ["x_1"]),
        (r"$a\$b$", [r"a\$b"]),
    ],
)
def test_formulas_keep_their_source_whole(text: str, formulas: list[str]) -> None:
    found = re.findall(r'<(span|div) class="math[^"]*">(.*?)</\1>', text_html(text), re.DOTALL)
    assert [html_module.unescape(source) for _, source in found] == formulas


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $10.",
        "from $5 to $10, $1,000-$2,000, or 20$ to 30$ a day",
        "US$5 a$ year",
        "price $5 (or €4) vs US$ 7",
        "$5 million to win$ it",
        "export PATH=$HOME/bin:$PATH",
        "echo $HOME and $PATH",
        r"a footnote \[1\] and \[see there\] (as \(said before\))",
        "`$x$` and\n\n    $y$",
        "```\n$z$\n```",
        "$$ $$ $",
        "open $$\n\nand closed$$",
        "$ x $",
        r"\$5 and \$6",
    ],
)
def test_money_shells_and_escaped_brackets_are_no_formulas(text: str) -> None:
    assert "math" not in text_html(text)


# --- long texts -----------------------------------------------------------------------------------


def test_a_long_text_is_rendered_in_pieces_and_reads_the_same() -> None:
    section = "## Part\n\nSome *words* of it.\n\n- one\n- two\n\n```python\nx = 1\n\ny = 2\n```\n\n"
    times = 2 + LONGEST_WHOLE // len(section)
    assert text_html(section * times) == text_html(section) * times


def test_a_long_paragraph_is_shown_whole_as_it_was_written() -> None:
    text = "<b>word</b> " * LONGEST_WHOLE
    assert (
        text_html(text)
        == f'<div class="plain">{text.replace("<", "&lt;").replace(">", "&gt;")}</div>'
    )


def test_long_fenced_code_stays_code() -> None:
    code = "x = 1  # <\n\n" * LONGEST_PIECE
    html = text_html(f"Before\n\n```python\n{code}```\n\n*after*")
    assert html.startswith("<p>Before</p>")
    assert f"<code>{code.replace('<', '&lt;')}</code>" in html
    assert html.endswith("<p><em>after</em></p>\n")


def test_every_character_of_a_huge_answer_is_there() -> None:
    assert len(model_texts.HUGE) > 200_000
    assert _read(text_html(model_texts.HUGE)).split() == model_texts.HUGE.split()


@pytest.mark.parametrize("levels", [5, 10, 20, 21, 22, 42, 43, 44, 45, 500])
@pytest.mark.parametrize("marker", ["> ", "- ", "1. "])
def test_text_is_read_however_deeply_it_is_quoted_or_listed(marker: str, levels: int) -> None:
    assert "the point" in _read(text_html(marker * levels + "the point"))


def test_lists_of_many_levels_are_lists() -> None:
    text = "\n".join("  " * level + f"- level {level}" for level in range(20))
    assert text_html(text).count("<li>") == 20
    deeper = "\n".join("  " * level + f"- level {level}" for level in range(60))
    assert "level 59" in text_html(deeper)


def test_a_table_of_tens_of_thousands_of_cells_stays_text() -> None:
    html = text_html(model_texts.TABLE_BOMB)
    assert "<td" not in html
    assert len(html) < 2 * len(model_texts.TABLE_BOMB)


# --- time -----------------------------------------------------------------------------------------

PATTERNS = [
    "[",
    "*a ",
    "> ",
    "`",
    "![](",
    "<",
    "- ",
    "|a",
    "**a",
    "~~",
    "$",
    "$$a",
    "\\(",
    "\\[\n",
    "\\begin{align}\n",
    "a\n$$\n",
    "[a](",
    "|\n|-\n",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_worst_text_of_the_longest_length_takes_no_time_to_speak_of(pattern: str) -> None:
    text = (pattern * LONGEST_WHOLE)[:LONGEST_WHOLE]
    started = time.process_time()
    text_html(text)
    assert time.process_time() - started < 20.0  # the worst takes 0.5 s; quadratic takes minutes


class Clock:
    """Processor time that passes by being looked at, the same on every machine."""

    def __init__(self) -> None:
        self.looks = 0

    def thread_time(self) -> float:
        self.looks += 1
        return self.looks / 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """An allowance of 0.2 s is 200 looks."""
    found = Clock()
    monkeypatch.setattr(code, "time", found)
    monkeypatch.setattr(rendering, "ALLOWANCE", 0.2)
    return found


@pytest.mark.parametrize(
    ("language", "pattern"), [("cpp", "\n"), ("csharp", "a\n"), ("java", "\n"), ("css", '\\"')]
)
def test_highlighting_is_given_up_when_its_time_is_spent(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, language: str, pattern: str
) -> None:
    """Lexers of these languages are quadratic: the whole would take many seconds."""
    monkeypatch.setattr(rendering, "ALLOWANCE", 0.02)
    text = (pattern * 5_000)[:5_000] + "\nend"
    assert _read(text_html(f"```{language}\n{text}\n```")) == f"{text}\n\n"
    assert 20 < clock.looks < 40


def test_a_long_text_of_worst_paragraphs_stays_within_its_allowance(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "ALLOWANCE", 1.0)
    text = ("*a*" * 2000 + "\n\n") * 30  # 250 looks each
    html = text_html(text)
    assert 1000 < clock.looks < 1300
    assert html.startswith("<p><em>a")  # the beginning is rendered,
    assert html.endswith("*a*\n\n</div>")  # the rest is as it was written,
    assert html.count("a") >= text.count("a")  # and nothing is cut off


# Every line belongs to the innermost of 43 quotes, and each of them looks at all lines.
LAZY = "> " * 43 + "a\n" + "a\n" * 9_000


def test_a_text_that_takes_seconds_to_parse_is_given_up_within_its_allowance(clock: Clock) -> None:
    html = text_html(LAZY)
    assert 200 < clock.looks < 220
    assert html.startswith('<div class="plain">')
    assert _read(html) == LAZY


def test_the_texts_of_a_page_share_an_allowance_and_catch_up_later(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "PAGE_ALLOWANCE", 0.3)
    pages = texts_html([*(f"{LAZY}{n}" for n in range(9)), "*last*"])
    assert 300 < clock.looks < 400
    assert pages[-1] == '<div class="plain">*last*</div>'
    assert text_html("*last*") == "<p><em>last</em></p>\n"  # it was not kept as it was written


# --- cache ----------------------------------------------------------------------------------------


def test_a_text_is_rendered_once_and_then_read_from_the_cache(monkeypatch) -> None:
    first = texts_html(["*a*", "*b*"])
    monkeypatch.setattr(rendering, "_html", lambda text, _: pytest.fail(f"rendered {text!r} again"))
    assert texts_html(["*b*", "*a*", "*a*"]) == [first[1], first[0], first[0]]


def test_html_that_somebody_else_put_into_redis_is_not_shown() -> None:
    html, _ = texts_html(["*a*", "*b*"])
    ours, other = (cache.make_key(rendering._key(text)) for text in ("*a*", "*b*"))
    with redis.Redis.from_url(settings.CACHE_URL) as store:
        for planted in (b"<script>", b'"<script>"', store.get(other)):
            store.set(ours, planted)
            assert text_html("*a*") == html


# The quick ways of normalising and hashing give what their plain definitions give.


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
