"""Every reason that a statistic gives has its words, and what is no reason is left as it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from measures.drift import paired_shift
from measures.estimate import reason
from measures.intervals import mean_interval
from workers.contract.reasons import WORDS, fields_of, in_words, reason_words

ROOT = Path(__file__).resolve().parents[2] / "measures"


def given() -> Iterator[tuple[str, set[str]]]:
    """(code, what belongs to it) of every reason in `measures`."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "reason":
                yield ast.literal_eval(node.args[0]), {str(word.arg) for word in node.keywords}


def test_every_reason_has_words_with_its_numbers_and_every_words_are_given() -> None:
    found = list(given())
    assert all(fields_of(WORDS[code]) == about for code, about in found)
    assert {code for code, _ in found} == set(WORDS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (reason("no_rows"), "no rows"),
        (reason("few_groups", n=4, least=10), "only 4 groups, and groups need 10"),
        (
            reason("few_to_draw", n=1234.0, sample=5000),
            "1,234 is fewer than the 5,000 to draw",
        ),
        (
            mean_interval([0.5, 1.0, 0.0]).no_interval,
            "too few rows: 3 (an interval needs at least 10)",
        ),
        (
            paired_shift([1.0, 2.0], [1.0, 2.0]).undefined,
            "too few to say: n = 2, and at least 8 are needed",
        ),
        (
            reason("resamples_undefined", share=0.0649),
            "the statistic is undefined in 6% of the resamples",
        ),
        ("too few clusters: 4", "too few clusters: 4"),  # of an earlier report
        ("few_groups n=4", "few_groups n=4"),
        ("none_kept", "none_kept"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_reason_is_told_in_words_and_another_text_as_it_is(text: str | None, words: str) -> None:
    assert reason_words(text) == words


def test_a_report_is_told_in_words_wherever_a_reason_stands_in_it() -> None:
    stored = {
        "undefined": None,
        "label": "no_rows",
        "rows": [{"value": 0.5, "no_interval": "one_run"}, {"untested": "small_rest"}],
    }
    assert in_words(stored) == {
        "undefined": None,
        "label": "no_rows",
        "rows": [
            {"value": 0.5, "no_interval": "one run shows no variation over seeds"},
            {"untested": "too little beside it to compare with"},
        ],
    }
