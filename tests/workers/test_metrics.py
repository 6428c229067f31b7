"""One table of metrics: what it holds, what the pages say of it, and who may name a metric."""

import re
from pathlib import Path

import pytest

from apps.loop.report import CURVES
from tests.workers.recipes.language import Outcome
from workers.contract.guard_rules import RULES
from workers.contract.metrics import HEADLINES, METRICS, metric_of, metric_or_own
from workers.diagnosis.detectors import DETECTORS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
# Of this kind the loss is a surrogate, which has no unit.
OTHER_UNIT = {("grpo", "loss")}


def test_the_page_of_metrics_has_every_one_in_its_unit_and_no_other():
    units: dict[str, set[str]] = {}
    for part in PAGE.read_text().split("\n## ")[1:]:
        kind = part.partition("\n")[0]
        for name, unit in re.findall(r"^\| `([^`]+)` \| ([^|]+?) *\|", part, re.M):
            if (kind, name) not in OTHER_UNIT:
                units.setdefault(name, set()).add("" if unit == "–" else unit)
    assert units == {metric.name: {metric.unit} for metric in METRICS}


def test_a_metric_stands_in_the_table_once_with_a_title_of_its_own():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    titles = [metric.title for metric in METRICS if not metric.name.endswith(">")]
    assert sorted({title for title in titles if titles.count(title) > 1}) == []


def test_what_watches_sums_up_or_heads_a_run_names_registered_metrics_only():
    named = {name for rule in RULES for name in (rule.metric, *rule.beside)}
    named |= {name for detector in DETECTORS for name in detector.metrics}
    named |= {name for heads in HEADLINES.values() for head in heads for name in head.names}
    named |= {name for curves in CURVES.values() for name in curves}
    assert sorted(name for name in named if name and metric_of(name) is None) == []


@pytest.mark.parametrize("name", ["objective/scroes", "report/accuracy", "eval", ""])
def test_a_recipe_that_reports_an_unregistered_metric_fails_its_test(name):
    event = {"type": "Metrics", "event": {"steps": [1], "values": {name: [1.0]}}}
    with pytest.raises(AssertionError, match="not in workers/contract/metrics"):
        Outcome([event])


def test_one_of_several_goes_by_its_own_name_in_the_unit_of_all():
    component = metric_of("reward/component/helpful")
    assert (component.title, component.unit) == ("reward/component/helpful", "raw score")
    of_reference = metric_of("behaviour/phrase/good-dog/reference")
    assert of_reference.name == "behaviour/phrase/<phrase>/reference"
    assert metric_or_own("somebody/elses").title == "somebody/elses"
