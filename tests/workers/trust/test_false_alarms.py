"""How often a line is red on clean worlds: a fault that must be shown errs at most 1 time in 40.

Counted over 20 worlds of 1,000 pairs each (600 for the leaks): every line is green in all of them,
but for prompt_only and metadata_only, each red in one. In 40 worlds of 1,500 pairs unseen_people
was red in 3 and metadata_only in 1; in 200 of 600 pairs unseen_people in 4. So one may be here.
"""

from collections import Counter
from functools import cache

import pytest

from measures.trust.findings import Verdict
from measures.trust.significance import Pairs
from tests.workers.trust.worlds import part, world
from workers.trust.bias import format_taste, length_matched, length_taste
from workers.trust.calibrated import calibration_line
from workers.trust.leakage import metadata_only, prompt_only
from workers.trust.noise import label_noise
from workers.trust.right import (
    accuracy,
    beats_length,
    beats_words,
    overfit,
    unseen_people,
    word_margins,
)
from workers.trust.slices import slices
from workers.trust.words import spurious_words

SEEDS = range(20)


@cache
def clean(seed: int) -> Pairs:
    return world(1_000, seed=seed)


def another(seed: int) -> Pairs:
    return clean((seed + 1) % len(SEEDS))


@cache
def counted_words(seed: int):
    return word_margins(another(seed), clean(seed))


LINES = {
    "accuracy": lambda seed: accuracy(clean(seed)),
    "beats_length": lambda seed: beats_length(clean(seed)),
    "beats_words": lambda seed: beats_words(clean(seed), counted_words(seed)),
    "overfit": lambda seed: overfit(another(seed), clean(seed)),
    "unseen_people": lambda seed: unseen_people(another(seed), clean(seed)),
    "slices": lambda seed: slices(clean(seed)),
    "calibration": lambda seed: calibration_line(clean(seed), another(seed)),
    "label_noise": lambda seed: label_noise(clean(seed)),
    "length_taste": lambda seed: length_taste(clean(seed)),
    "length_matched": lambda seed: length_matched(clean(seed)),
    "format_taste": lambda seed: format_taste(clean(seed)),
    "spurious_words": lambda seed: spurious_words(clean(seed)),
    "prompt_only": lambda seed: prompt_only(part(clean(seed), slice(0, 600))),
    "metadata_only": lambda seed: metadata_only(part(clean(seed), slice(0, 600))),
}


@pytest.mark.parametrize("line", LINES)
def test_clean_worlds_are_seldom_red(line: str):
    found = [LINES[line](seed) for seed in SEEDS]
    assert {finding.line for finding in found} == {line}
    verdicts = Counter(finding.verdict for finding in found)
    assert verdicts[Verdict.RED] <= 1, [f.says for f in found if f.verdict is Verdict.RED]
    # Not silent either: most clean worlds of this size are green.
    assert verdicts[Verdict.GREEN] >= 15, verdicts
