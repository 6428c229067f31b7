"""Model text becomes safe HTML, the same each time, and long texts stay whole."""

import re
import time

import pytest
from django.core.cache import cache

from apps.labeling import rendering
from apps.labeling.rendering import LONGEST_MARKDOWN, text_html, texts_html


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def test_markdown_is_rendered() -> None:
    html = text_html("# Plan\n\n1. *first*\n2. `second`\n\n|a|b|\n|-|-|\n|1|2|\n\n```\nx < 1\n```")
    assert "<h4>Plan</h4>" in html  # below the page's own headings
    assert "<em>first</em>" in html
    wrapper = re.search(r"<div ([^>]*)><table>", html)[1]
    assert set(wrapper.split()) == {'class="scroll"', 'tabindex="0"'}
    assert "<code>x &lt; 1\n</code>" in html


def test_line_breaks_are_kept_as_the_model_wrote_them() -> None:
    assert "one<br>" in text_html("one\ntwo")


def test_links_open_elsewhere_and_tell_nothing() -> None:
    html = text_html("[read](https://example.org/a?b=1 'title')")
    assert 'href="https://example.org/a?b=1"' in html
    assert 'rel="noopener noreferrer nofollow"' in html
    assert 'target="_blank"' in html


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
        "<div><table></div>",
    ],
)
def test_no_hostile_text_becomes_an_element_or_an_attribute(text: str) -> None:
    html = text_html(text)
    tags = set(_tags(html))
    assert tags <= {"p", "a", "pre", "code"}, html
    assert 'href="javascript' not in html
    assert 'href="data' not in html
    assert " onmouseover=" not in html.replace("&quot; onmouseover=", "")


def _tags(html: str) -> list[str]:
    return re.findall(r"<(\w+)", html)


def test_images_are_not_loaded() -> None:
    assert "<img" not in text_html("![x](https://example.org/pixel.png)")


def test_characters_that_reorder_text_are_named() -> None:
    assert "⟨right-to-left override⟩" in text_html("invoice\u202egpj.exe")


def test_right_to_left_languages_stay_as_they_are() -> None:
    assert text_html("שלום \u200fעולם") == "<p>שלום \u200fעולם</p>\n"


def test_a_text_too_long_for_markdown_is_shown_whole() -> None:
    text = "<b>word</b> " * LONGEST_MARKDOWN
    html = text_html(text)
    assert html.startswith('<div class="plain">')
    assert html.count("&lt;b&gt;word&lt;/b&gt;") == LONGEST_MARKDOWN


@pytest.mark.parametrize("pattern", ["[", "*a ", "> ", "`", "![](", "<", "- ", "|a", "**a", "~~"])
def test_the_worst_text_of_the_longest_length_takes_no_time_to_speak_of(pattern: str) -> None:
    text = (pattern * LONGEST_MARKDOWN)[:LONGEST_MARKDOWN]
    started = time.process_time()
    text_html(text)
    assert time.process_time() - started < 3.0  # the worst takes 0.3 s on an idle core


def test_a_text_is_rendered_once_and_then_read_from_the_cache(monkeypatch) -> None:
    first = texts_html(["*a*", "*b*"])
    monkeypatch.setattr(rendering, "_html", lambda text: pytest.fail(f"rendered {text!r} again"))
    assert texts_html(["*b*", "*a*", "*a*"]) == [first[1], first[0], first[0]]
