"""Statistics return numbers and codes; what is said of them stands where pages are made."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "measures"
WORDS = 3  # from which a text is a sentence and no code or name
# Where sentences still stand, and how many. A number may fall; nothing may be added.
LEFT: dict[str, int] = {
    "agreement/clusters.py": 1,
    "agreement/coefficients.py": 3,
    "agreement/pairs.py": 5,
    "agreement/slices.py": 3,
    "annotators/sides.py": 1,
    "audit.py": 9,
    "baselines.py": 1,
    "bootstrap.py": 5,
    "calibration.py": 3,
    "ceiling.py": 17,
    "datasets/breadth.py": 4,
    "datasets/drift.py": 3,
    "drift.py": 5,
    "estimate.py": 1,
    "imitation.py": 7,
    "intervals.py": 5,
    "outcomes.py": 3,
    "position.py": 6,
    "splits.py": 4,
    "style.py": 9,
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
    "trust/probes.py": 79,
    "trust/ranges.py": 9,
    "trust/right.py": 26,
    "trust/shapes.py": 22,
    "trust/significance.py": 14,
    "trust/slices.py": 18,
    "trust/words.py": 19,
}


def sentences(tree: ast.AST) -> Iterator[str]:
    """Texts of several words outside docstrings and the messages of exceptions."""
    passed_over: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed_over.add(id(node.value))
        elif isinstance(node, ast.Raise | ast.Assert):
            passed_over |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = [word for word in node.value.split() if any(map(str.isalpha, word))]
            if id(node) not in passed_over and len(words) >= WORDS:
                yield node.value


def test_measures_hold_no_more_sentences_than_are_left() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): sum(1 for _ in sentences(ast.parse(path.read_text())))
        for path in sorted(ROOT.rglob("*.py"))
    }
    assert {name: n for name, n in found.items() if n} == LEFT


def test_a_sentence_is_found_and_an_exception_is_none() -> None:
    source = '"""Of a module."""\nraise ValueError("one row each")\nx = f"{y} is too few"'
    assert list(sentences(ast.parse(source))) == [" is too few"]
