"""Statistics return numbers and codes; what is said of them stands where pages are made."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "measures"
WORDS = 3  # from which a text is a sentence and no code or name
PATTERN = "(?:"  # a text that has this is a regular expression
# Where sentences still stand, and how many. A number may fall; nothing may be added.
LEFT: dict[str, int] = {
    "trust/attack.py": 34,
    "trust/best_of_n.py": 26,
    "trust/bias.py": 32,
    "trust/calibrated.py": 17,
    "trust/ensembles.py": 12,
    "trust/gaps.py": 11,
    "trust/leakage.py": 20,
    "trust/noise.py": 20,
    "trust/out_of_domain.py": 29,
    "trust/people.py": 2,
    "trust/precision.py": 10,
    "trust/probes.py": 78,
    "trust/ranges.py": 9,
    "trust/right.py": 26,
    "trust/shapes.py": 22,
    "trust/significance.py": 14,
    "trust/slices.py": 18,
    "trust/words.py": 19,
}


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


def test_measures_hold_no_more_sentences_than_are_left() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): sum(1 for _ in sentences(ast.parse(path.read_text())))
        for path in sorted(ROOT.rglob("*.py"))
    }
    assert {name: n for name, n in found.items() if n} == LEFT


def test_a_sentence_is_found_and_an_exception_and_a_pattern_are_none() -> None:
    source = '"""Of a module."""\nraise ValueError("one row each")\nx = f"{y} is too few"'
    source += '\nz = re.compile("(?:not able|not allowed) to")'
    assert list(sentences(ast.parse(source))) == [" is too few"]
