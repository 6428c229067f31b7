"""Statistics return numbers and codes; what is said of them stands where pages are made."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "measures"
WORDS = 3  # from which a text is a sentence and no code or name
PATTERN = "(?:"  # a text that has this is a regular expression


def sentences(tree: ast.AST) -> Iterator[str]:
    """Texts of several words outside docstrings, the messages of exceptions and patterns."""
    passed_over: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed_over.add(id(node.value))
        elif isinstance(node, ast.Raise | ast.Assert):
            passed_over |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if PATTERN in node.value:
                continue
            words = [word for word in node.value.split() if any(map(str.isalpha, word))]
            if id(node) not in passed_over and len(words) >= WORDS:
                yield node.value


def test_measures_hold_no_sentence() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): list(sentences(ast.parse(path.read_text())))
        for path in sorted(ROOT.rglob("*.py"))
    }
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_a_sentence_is_found_and_an_exception_and_a_pattern_are_none() -> None:
    source = '"""Of a module."""\nraise ValueError("one row each")\nx = f"{y} is too few"'
    source += '\nz = re.compile("(?:not able|not allowed) to")'
    assert list(sentences(ast.parse(source))) == [" is too few"]
