"""Model text as safe HTML: Markdown without HTML of its own, sanitised, cached by its hash.

Three walls, each enough by itself: the parser turns raw HTML into text, nh3 drops whatever is not
on the list below, and the site's content security policy runs no inline script. Images are not
loaded, since an address in an answer would tell its owner who reads it and when.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

import nh3
from django.core.cache import cache
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore

# Part of every cache key: raise it when the output for the same text changes.
VERSION = 2
CACHE_SECONDS = 7 * 24 * 3600
# Markdown's worst cases take 0.3 s at 30,000 characters; longer texts are shown as they are.
LONGEST_MARKDOWN = 20_000

_TAGS = {
    "p", "br", "hr", "strong", "em", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a",
    "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "div",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, "td": {"align"}, "th": {"align"}}
# Characters that force an order on the text around them, or hide text in no visible glyph.
_TRICKS = re.compile("[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def _headings_below_ours(state: StateCore) -> None:
    """A heading inside an answer is below the page's own three levels."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 3)}"


_markdown = (
    MarkdownIt("commonmark", {"html": False, "breaks": True})
    .enable(["table", "strikethrough"])
    .disable(["image", "html_block", "html_inline"])
)
_markdown.core.ruler.push("headings_below_ours", _headings_below_ours)


def texts_html(texts: Iterable[str]) -> list[SafeString]:
    """The HTML of each text, in order; one request to the cache for all of them."""
    texts = list(texts)
    keys = [_key(text) for text in texts]
    known = cache.get_many(set(keys))
    fresh = {key: _html(text) for key, text in zip(keys, texts, strict=True) if key not in known}
    if fresh:
        cache.set_many(fresh, CACHE_SECONDS)
    # Safe: what is stored under these keys came out of `_html`.
    return [mark_safe((known | fresh)[key]) for key in keys]  # noqa: S308


def text_html(text: str) -> SafeString:
    return texts_html([text])[0]


def _key(text: str) -> str:
    return f"md{VERSION}:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def _html(text: str) -> str:
    shown = _TRICKS.sub(_named, text)
    if len(shown) > LONGEST_MARKDOWN:
        return f'<div class="plain">{escape(shown)}</div>'
    return nh3.clean(
        _tables_can_scroll(_markdown.render(shown)),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={
            "a": {"target": "_blank"},
            # what scrolls sideways must be reachable by keyboard
            "div": {"class": "scroll", "tabindex": "0"},
            "pre": {"tabindex": "0"},
        },
    )


def _tables_can_scroll(html: str) -> str:
    """The parser's own table tags; text never holds any, since `<` in it is escaped."""
    return html.replace("<table>", "<div><table>").replace("</table>", "</table></div>")


def _named(match: re.Match[str]) -> str:
    """An invisible control character, made visible by its name."""
    name = unicodedata.name(match[0], f"U+{ord(match[0]):04X}")
    return f"⟨{name.lower()}⟩"
