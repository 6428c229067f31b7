"""Model text as safe HTML: Markdown without HTML of its own, sanitised, cached by its hash.

Three walls, each enough by itself: the parser turns raw HTML into text, nh3 drops whatever is not
on the list below, and the site's content security policy runs no inline script. Images are not
loaded, since an address in an answer would tell its owner who reads it and when; but for those
that Concord holds itself (`image:` and a hash, see measures/messages.py).

Time is bounded: Markdown's worst cases are quadratic, so a long text is parsed in pieces, and each
text, and all texts of a page together, have an allowance of CPU seconds that the parser asks after
within a piece too. What comes after it is spent is shown as it was written; every text is shown
whole.

What comes back from the cache came out of here: its values are signed (`apps.common.cache`).
"""

import hashlib
import re
from collections.abc import Iterable
from html import escape

import nh3
from django.core.cache import cache
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from apps.labeling.rendering.code import CLASSES, Allowance, Spent, allowance_plugin, code_html
from apps.labeling.rendering.maths import Piece, maths_plugin, pieces_of, text_escaped, tricks_named
from apps.labeling.texts import EMPTY
from measures.messages import IMAGE

# Part of every cache key: raise it when the output for the same text changes.
VERSION = 7
CACHE_SECONDS = 7 * 24 * 3600
# CPU seconds a text may take. 200,000 characters of ordinary Markdown take 0.4 s.
ALLOWANCE = 1.0
# And all the texts of a page that are rendered for the first time.
PAGE_ALLOWANCE = 2.0
# A table of more cells is shown as it was written: few characters can make 65,536 of them.
MOST_CELLS = 4_000
# Quotes and lists within each other; the parser drops what is deeper, so such text is shown as it
# was written. A list within a list counts two.
DEEPEST = 44

_TAGS = {
    "p",
    "br",
    "hr",
    "strong",
    "em",
    "s",
    "code",
    "pre",
    "blockquote",
    "ul",
    "ol",
    "li",
    "a",
    "h4",
    "h5",
    "h6",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "div",
    "span",
    "img",
}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"src", "alt", "loading"},
    "ol": {"start"},
    "td": {"align"},
    "th": {"align"},
}
_STORED = re.compile(r"/images/[0-9a-f]{64}/")
_CLASSES = {"div": {"plain", "scroll", "math", "display"}, "span": {"math", "display", *CLASSES}}
# What scrolls sideways must be reachable by keyboard.
_VALUES = {"div": {"tabindex": {"0"}}}

# The parser aligns cells by a style, which neither the sanitiser nor the page's policy allows.
_ALIGNMENT = re.compile(r'style="text-align:(left|center|right)"')


def _headings_below_ours(state: StateCore) -> None:
    """A heading inside an answer is below the page's own three levels."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 3)}"


def _fence(
    self: RendererHTML, tokens: list[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    token = tokens[index]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    return f"<pre><code>{code_html(token.content, language, env['allowance'])}</code></pre>\n"


_markdown = (
    MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": DEEPEST})
    .enable(["table", "strikethrough"])
    .disable(["image", "html_block", "html_inline"])
    .use(maths_plugin)
    .use(allowance_plugin)
)


def _stored_image(state: StateInline, silent: bool) -> bool:
    """`![alternative text](image:<sha256>)`: an image of ours; all others stay text."""
    found = IMAGE.match(state.src, state.pos) if state.src[state.pos] == "!" else None
    if found is None:
        return False
    if not silent:
        token = state.push("stored_image", "img", 0)
        token.content, token.meta = found[1], {"sha256": found[2]}
    state.pos = found.end()
    return True


def _stored_image_html(
    self: RendererHTML, tokens: list[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    token = tokens[index]
    words = escape(re.sub(r"\\(.)", r"\1", token.content), quote=True)
    return f'<img src="/images/{token.meta["sha256"]}/" alt="{words}" loading="lazy">'


_markdown.inline.ruler.before("link", "stored_image", _stored_image)
_markdown.add_render_rule("stored_image", _stored_image_html)
_markdown.core.ruler.push("headings_below_ours", _headings_below_ours)
_markdown.add_render_rule("fence", _fence)


def texts_html(texts: Iterable[str]) -> list[SafeString]:
    """The HTML of each text of a page, in order; one request to the cache for all of them."""
    texts = list(texts)
    keys = [_key(text) for text in texts]
    known = cache.get_many(set(keys))
    page, fresh = Allowance(PAGE_ALLOWANCE), {}
    for key, text in zip(keys, texts, strict=True):
        if key not in known:
            allowance = page.part(ALLOWANCE)
            known[key] = _html(text, allowance)
            # What its neighbours left no time for is rendered when it is looked at again.
            if not (allowance.spent and allowance.is_short):
                fresh[key] = known[key]
    if fresh:
        cache.set_many(fresh, CACHE_SECONDS)
    # Safe: it came out of `_html`, just now or by way of the signed cache.
    return [mark_safe(known[key]) for key in keys]  # noqa: S308


def text_html(text: str) -> SafeString:
    return texts_html([text])[0]


def _key(text: str) -> str:
    return f"md{VERSION}:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def _html(text: str, allowance: Allowance) -> str:
    if not text.strip():
        return f'<p class="faint">{EMPTY}</p>'
    html = "".join(_piece_html(piece, allowance) for piece in pieces_of(text))
    # At the end, since Markdown's character references can spell such characters too.
    return tricks_named(html)


def _piece_html(piece: Piece, allowance: Allowance) -> str:
    plain = f'<div class="plain">{text_escaped(piece.text)}</div>'
    if piece.is_plain or allowance.spent:
        return plain
    env = {"allowance": allowance}
    try:
        tokens = _markdown.parse(piece.text, env)
    except Spent:
        return plain
    if any(token.level >= DEEPEST - 1 for token in tokens):
        return plain
    html = _markdown.renderer.render(tokens, _markdown.options, env)
    if html.count("<td") + html.count("<th") > MOST_CELLS:
        return plain
    return nh3.clean(
        _tables_can_scroll(html),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        tag_attribute_values=_VALUES,
        url_schemes={"http", "https", "mailto"},
        attribute_filter=_only_stored,
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}, "pre": {"tabindex": "0"}},
    )


def _only_stored(tag: str, attribute: str, value: str) -> str | None:
    """An image of anybody else's loses its address."""
    if tag == "img" and attribute == "src" and not _STORED.fullmatch(value):
        return None
    return value


def _tables_can_scroll(html: str) -> str:
    """The parser's own table tags; text never holds any, since `<` and `"` in it are escaped."""
    return (
        _ALIGNMENT.sub(r'align="\1"', html)
        .replace("<table>", '<div class="scroll" tabindex="0"><table>')
        .replace("</table>", "</table></div>")
    )
