"""Odd pairs: every line answers with a finding that JSON can hold, and none is green by default."""

import json
from dataclasses import replace

import numpy as np
import pytest

from measures.trust.bias import format_taste, length_matched, length_taste
from measures.trust.calibrated import calibration_line
from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.gaps import overfit, unseen_people
from measures.trust.leakage import metadata_only, prompt_only
from measures.trust.lines import LINES
from measures.trust.noise import label_noise
from measures.trust.right import accuracy, beats_length, beats_words
from measures.trust.slices import slices
from measures.trust.words import spurious_words
from tests.measures.trust_worlds import Faults, bare, part, world

CLEAN = world(500, seed=1)
ASKED = {
    "accuracy": lambda p: accuracy(p, words=p.margins),
    "beats_length": beats_length,
    "beats_words": lambda p: beats_words(p, np.zeros(len(p))),
    "overfit": lambda p: overfit(p, p),
    "unseen_people": lambda p: unseen_people(p, p),
    "slices": slices,
    "calibration": lambda p: calibration_line(p, p),
    "label_noise": label_noise,
    "length_taste": length_taste,
    "length_matched": length_matched,
    "format_taste": format_taste,
    "spurious_words": spurious_words,
    "prompt_only": lambda p: prompt_only(p, p.margins),
    "metadata_only": metadata_only,
}
ODD = {
    "no pairs": part(CLEAN, slice(0, 0)),
    "one pair": part(CLEAN, slice(0, 1)),
    "eleven pairs": part(CLEAN, slice(0, 11)),
    "nothing but texts": bare(CLEAN),
    "no units": replace(CLEAN, units=None),
    "one cluster": replace(CLEAN, units=None, clusters=["all"] * 500),
    "all ties of people": replace(CLEAN, confidence=np.full(500, 0.5)),
    "all ties of the model": world(500, faults=Faults(constant=True)),
    "always right": world(500, faults=Faults(memorised=True)),
    "always wrong": replace(CLEAN, chosen_scores=np.zeros(500), rejected_scores=np.ones(500)),
    "huge scores": replace(CLEAN, chosen_scores=1e6 * CLEAN.margins, rejected_scores=np.zeros(500)),
    "empty answers": replace(CLEAN, chosen_texts=[""] * 500, rejected_texts=[""] * 500),
    "the same answers": replace(CLEAN, rejected_texts=CLEAN.chosen_texts),
    "unknown columns": replace(
        CLEAN,
        groups=[""] * 500,
        annotators=[""] * 500,
        sources=[("", "")] * 500,
        times=np.full(500, np.nan),
        order=np.zeros(500),
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_pairs_are_answered(name: str):
    for line, ask in ASKED.items():
        found = ask(ODD[name])
        assert found.line == line
        assert line in LINES
        assert found.says.endswith("."), found.says
        assert "nan" not in found.says.lower().split(), found.says
        as_json = finding_to_json(found)
        assert finding_to_json(finding_from_json(json.loads(json.dumps(as_json)))) == as_json
        json.dumps(as_json, allow_nan=False)


@pytest.mark.parametrize("name", ["no pairs", "one pair", "eleven pairs", "all ties of people"])
def test_nothing_to_go_by_is_never_green(name: str):
    for ask in ASKED.values():
        assert ask(ODD[name]).verdict is not Verdict.GREEN


def test_scores_that_are_no_numbers_are_an_error_and_not_a_verdict():
    broken = replace(CLEAN, chosen_scores=np.full(500, np.nan))
    with pytest.raises(ValueError, match="NaN"):
        accuracy(broken)
