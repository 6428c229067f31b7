"""What gives the winner away without reading is found; clean columns are not accused."""

from dataclasses import replace

import numpy as np
import pytest

from measures.trust.findings import Verdict
from measures.trust.leakage import metadata_only, prompt_only
from tests.measures.trust_worlds import Faults, bare, part, turned, world

N = 600


@pytest.fixture(scope="module")
def clean():
    return world(N, seed=1)


def test_a_prompt_that_says_which_was_stored_first_and_won_is_caught():
    found = prompt_only(world(N, faults=Faults(prompt_leak=0.4)))
    assert found.verdict is Verdict.RED
    assert found.facts["accuracy"] > 0.6
    assert "the prompt and the order" in found.says


def test_winners_stored_first_are_caught():
    found = metadata_only(world(N, faults=Faults(order_leak=0.65)))
    assert found.verdict is Verdict.RED
    assert "order in which they were stored" in found.says


def test_one_origin_for_winners_is_caught():
    found = metadata_only(world(N, faults=Faults(source_leak=0.4)))
    assert found.verdict is Verdict.RED
    assert "the origin of the answers" in found.facts["giving"]


def test_an_annotator_who_always_takes_the_first_is_caught():
    pairs = world(1_200, annotators=5)
    mine = np.array(pairs.annotators) == "annotator 2"
    found = metadata_only(replace(pairs, order=np.where(mine, 1.0, pairs.order)))
    assert found.verdict is Verdict.RED
    assert "topic, annotator and month, with the order" in found.facts["giving"]


def test_clean_columns_tell_what_a_coin_does(clean):
    assert prompt_only(clean).verdict is Verdict.GREEN
    assert metadata_only(clean).verdict is Verdict.GREEN


def test_changing_sides_changes_nothing(clean):
    for line in (prompt_only, metadata_only):
        one, other = line(clean).facts["accuracy"], line(turned(clean)).facts["accuracy"]
        assert other == pytest.approx(one)


def test_without_columns_nothing_is_measured(clean):
    for line in (prompt_only, metadata_only):
        found = line(bare(clean))
        assert found.verdict is Verdict.UNMEASURED
        assert "does not say" in found.says or "says neither" in found.says


def test_origins_alone_can_be_looked_at(clean):
    found = metadata_only(replace(clean, order=np.zeros(0)))
    assert found.verdict is Verdict.GREEN
    assert found.facts["giving"] == []


def test_few_pairs_are_not_measured(clean):
    for line in (prompt_only, metadata_only):
        assert line(part(clean, slice(0, 60))).verdict is Verdict.UNMEASURED


def test_what_the_model_keeps_without_the_prompt_is_stated_and_does_not_decide(clean):
    half = np.where(np.arange(N) % 2 == 0, clean.margins, -clean.margins)
    found = prompt_only(clean, half)
    assert found.verdict is Verdict.GREEN
    assert found.facts["with_prompt"] == pytest.approx(clean.credit().mean())
    # Half of the rows turned over: accuracy a on one half, 1 − a on the other, so about nothing.
    assert found.facts["kept"] == pytest.approx(0, abs=0.12)
    assert "under another one" in found.says
    assert prompt_only(clean, clean.margins).facts["kept"] == pytest.approx(1)


def test_the_models_taste_for_an_origin_stands_beside_peoples(clean):
    (table,) = [block for block in metadata_only(clean).evidence if block.kind == "table"]
    origins = {row[0]: row for row in table.rows}
    assert set(origins) == {"lab", "web", "staff"}
    assert origins["lab"][3] == pytest.approx(0.5, abs=0.1)
