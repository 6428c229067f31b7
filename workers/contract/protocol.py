"""What an automatic evaluation was measured by, as canonical JSON with its SHA-256.

Two results may stand on one axis only where these hashes are the same: a warmer temperature, one
byte of a chat template or another version of the engine changes what a figure means. The system
that is measured is no part of it; the baseline, the judge and the reward are. Standard library
only: whoever measures and whoever compares read the same functions.
"""

import ast
import hashlib
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

VERSION = 1  # of the fields below
ABSENT = "(absent)"
KEY = "protocol"  # under which a summary and a report hold {sha256, content}
LONGEST = 400_000  # characters of canonical JSON that are read back


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One object per subject; `{role: …}` by the input that was asked (policy, sft).

    prompts: {sha256, count} of what was asked, with known answers and clusters; rendered: {role:
    {sha256, count}} of each prompt as that model reads it; chat_template: {role: its text, None
    where a server applies its own}; system_prompt: the one before every prompt, empty for none;
    tools: schemas that were offered; sampling: temperature, top_p, top_k, max_tokens, stop, seed,
    answers_per_prompt; engine: {role: kind, version, dtype …}; baseline, judge, reward: content
    hashes, and the prompt of a judge that has one; metric_code: hash of what computes the figures;
    statistics: estimand, margin, alpha, ties, stopping.
    """

    prompts: Mapping[str, Any]
    rendered: Mapping[str, Any]
    chat_template: Mapping[str, Any]
    system_prompt: Any
    sampling: Mapping[str, Any]
    engine: Mapping[str, Any]
    baseline: Mapping[str, Any]
    judge: Mapping[str, Any]
    reward: Mapping[str, Any]
    metric_code: str
    statistics: Mapping[str, Any]
    tools: Sequence[Any] = field(default_factory=list)
    version: int = VERSION

    @property
    def content(self) -> dict[str, Any]:
        """As plain JSON types."""
        return json.loads(canonical(asdict(self)))

    @property
    def sha256(self) -> str:
        return content_sha256(self.content)

    def to_json(self) -> dict[str, Any]:
        """As summaries and reports hold it; `stated` reads it."""
        return {"sha256": self.sha256, "content": self.content}


def canonical(content: Any) -> bytes:
    """Sorted keys, no white space, UTF-8. Raises `ValueError` for NaN and infinities."""
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8", "surrogatepass")


def content_sha256(content: Any) -> str:
    """Hexadecimal, of the canonical JSON."""
    return hashlib.sha256(canonical(content)).hexdigest()


def texts_sha256(texts: Sequence[Any]) -> dict[str, Any]:
    """{sha256, count}: one hash over the hashes of each, in order."""
    each = [content_sha256(text) for text in texts]
    return {"sha256": content_sha256(each), "count": len(each)}


@dataclass(frozen=True, slots=True)
class StatedProtocol:
    """A protocol as a trainer stated it: the hash is that of the content."""

    sha256: str
    content: Mapping[str, Any]


def stated(report: Any) -> StatedProtocol | None:
    """The protocol in a summary or report; None where there is none, or one whose hash is not that
    of its content. A trainer wrote it, so nothing in it is taken on trust."""
    found = report.get(KEY) if isinstance(report, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    content = found.get("content")
    if not isinstance(content, Mapping) or not content:
        return None
    try:
        text = canonical(content)
    except (ValueError, TypeError, RecursionError):
        return None
    sha256 = hashlib.sha256(text).hexdigest()
    if len(text) > LONGEST or found.get("sha256") != sha256:
        return None
    return StatedProtocol(sha256, content)


class Difference(NamedTuple):
    """A line in which two protocols differ; `path` names it from the outside in."""

    path: str
    one: Any
    other: Any


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """Every line that differs between two contents, by path. Of a text of several lines (a chat
    template) only the lines that differ, with their number in the first."""
    return list(_differing("", one, other))


def _differing(path: str, one: Any, other: Any) -> Iterator[Difference]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in sorted({*one, *other}):
            inner = f"{path}.{name}" if path else str(name)
            yield from _differing(inner, one.get(name, ABSENT), other.get(name, ABSENT))
    elif isinstance(one, str) and isinstance(other, str) and ("\n" in one or "\n" in other):
        yield from _lines(path, one.split("\n"), other.split("\n"))
    elif canonical(one) != canonical(other):
        yield Difference(path, one, other)


def _lines(path: str, one: Sequence[str], other: Sequence[str]) -> Iterator[Difference]:
    for what, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if what != "equal":
            left = "\n".join(one[a:b]) if b > a else ABSENT
            right = "\n".join(other[c:d]) if d > c else ABSENT
            yield Difference(f"{path} line {a + 1}", left, right)


def code_sha256(*parts: Any) -> str:
    """Of the code of these functions, classes and modules: comments, docstrings and layout apart,
    so that it changes where what they compute may have changed."""
    trees = [ast.parse(textwrap.dedent(inspect.getsource(part))) for part in parts]
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False):
                node.body = node.body[1:] or [ast.Pass()]
    return texts_sha256([ast.unparse(tree) for tree in trees])["sha256"]


_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
