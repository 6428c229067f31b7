"""The contract: what one side writes, the other reads back; what does not fit is named."""

import json
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.evaluation.lines import LINES
from apps.loop.report import CURVES
from tests.workers.recipes.language import Outcome
from workers.assess.judging import JUDGEMENTS, ON_THE_WEB
from workers.contract import (
    ContractError,
    Envelope,
    InputRef,
    JobSpec,
    Limits,
    Resume,
    envelope_from_json,
    envelope_to_json,
    spec_from_json,
    spec_to_json,
)
from workers.contract.events import EVENT_TYPES, Progress
from workers.contract.metrics import HEADLINES, METRICS, metric_of, metric_or_own
from workers.contract.signing import is_signed, signed
from workers.rules.table import RULES

text = st.text(max_size=20)
whole = st.integers(min_value=0, max_value=2**62)
number = st.floats(allow_nan=False, allow_infinity=False)
json_object = st.dictionaries(
    text,
    st.none() | st.booleans() | whole | number | text | st.lists(whole, max_size=3),
    max_size=4,
)
messages = st.lists(st.fixed_dictionaries({"role": text, "content": text}), max_size=3)

# One strategy per annotation, so that a field of a new type fails here until it has one.
STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    int: whole,
    float: number,
    bool: st.booleans(),
    str: text,
    int | None: st.none() | whole,
    float | None: st.none() | number,
    str | None: st.none() | text,
    list[int]: st.lists(whole, max_size=3),
    list[float]: st.lists(number, max_size=3),
    list[str]: st.lists(text, max_size=3),
}


def strategy_of(name: str, annotation: Any) -> st.SearchStrategy[Any]:
    if annotation in STRATEGIES:
        return STRATEGIES[annotation]
    if "Mapping[str, str]]" in str(annotation):
        return messages
    if "list[float | str | None]" in str(annotation):
        return st.dictionaries(
            text, st.lists(number | st.none() | st.sampled_from(["nan", "inf", "-inf"]), max_size=3)
        )
    if "Mapping[str, float]" in str(annotation):
        return st.dictionaries(text, number, max_size=3)
    if "Mapping[str" in str(annotation):
        return json_object
    raise AssertionError(f"no strategy for {name}: {annotation}")


events = st.one_of(
    [
        st.builds(cls, **{f.name: strategy_of(f.name, f.type) for f in fields(cls)})
        for cls in EVENT_TYPES.values()
    ]
)
envelopes = st.builds(
    Envelope,
    run=st.text(min_size=1, max_size=16),
    attempt=st.integers(1, 100),
    seq=st.integers(1, 2**60),
    at=st.floats(0, 2e9),
    event=events,
)


@given(envelopes)
def test_every_event_comes_back_as_it_was_sent(envelope: Envelope) -> None:
    assert envelope_from_json(json.loads(json.dumps(envelope_to_json(envelope)))) == envelope


@given(
    st.builds(
        JobSpec,
        run=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", fullmatch=True),
        attempt=st.integers(1, 100),
        kind=st.sampled_from(["sft", "drill"]),
        project=text,
        seed=whole,
        artifacts_url=st.text(min_size=1, max_size=20),
        config=json_object,
        inputs=st.lists(st.builds(InputRef, text, text, text, text, text), max_size=3).map(tuple),
        resume=st.none() | st.builds(Resume, text, text, whole),
        limits=st.builds(Limits, number, number, number),
        baseline=json_object,
        secret=text,
    )
)
def test_every_job_comes_back_as_it_was_sent(spec: JobSpec) -> None:
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec


@settings(max_examples=30)
@given(envelopes)
def test_a_signature_survives_the_wire_and_no_other_secret(envelope: Envelope) -> None:
    batch = {"run": envelope.run, "attempt": 1, "events": [envelope_to_json(envelope)]}
    came = json.loads(json.dumps(signed(batch, "one")))
    assert is_signed(came, "one")
    assert not is_signed(came, "two")
    assert not is_signed(came | {"attempt": 2}, "one")


@settings(max_examples=30)
@given(envelopes)
def test_fields_of_a_newer_peer_are_ignored(envelope: Envelope) -> None:
    data = envelope_to_json(envelope)
    data["colour"] = "blue"
    data["event"]["taste"] = "sour"
    assert envelope_from_json(data) == envelope


def sent(**changes: Any) -> dict[str, Any]:
    return envelope_to_json(Envelope("r", 1, 1, 0.0, Progress(step=3))) | changes


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_a_missing_field_is_named(name: str) -> None:
    required = [
        f.name
        for f in fields(EVENT_TYPES[name])
        if f.default is MISSING and f.default_factory is MISSING
    ]
    if required:
        with pytest.raises(ContractError, match=f"event {name}: missing field '{required[0]}'"):
            envelope_from_json(sent(type=name, event={}))
    else:
        envelope_from_json(sent(type=name, event={}))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 2}, "event: version 2 is not the version 1 read here"),
        ({"version": None}, "event: version None"),
        ({"type": "Nonsense"}, "event.type: 'Nonsense' is unknown"),
        ({"seq": "7"}, "event.seq: '7' does not fit"),
        ({"seq": 0}, "count from 1"),
        ({"attempt": True}, "event.attempt: True does not fit"),
        ({"at": None}, "event.at: None does not fit"),
        ({"run": 5}, "event.run: 5 does not fit"),
        ({"event": []}, "event Progress: expected an object, got list"),
    ],
)
def test_an_event_that_does_not_fit_is_refused_by_name(
    changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ContractError, match=complaint):
        envelope_from_json(sent(**changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 99}, "job: version 99 is not the version 1 read here"),
        ({"attempt": 0}, "job.attempt: 0 is not a number from 1"),
        ({"kind": ""}, "job.kind: must be a non-empty string"),
        ({"resume": {"uri": "x"}}, "job.resume: missing field 'sha256'"),
        ({"inputs": [{"role": "data"}]}, r"job.inputs\[0\]: missing field 'kind'"),
        ({"limits": 5}, "job.limits: expected an object, got int"),
    ],
)
def test_a_job_that_does_not_fit_is_refused_by_name(
    changes: dict[str, Any], complaint: str
) -> None:
    spec = JobSpec(run="r", attempt=1, kind="drill", project="p", seed=1, artifacts_url="/a")
    with pytest.raises(ContractError, match=complaint):
        spec_from_json(spec_to_json(spec) | changes)


# One table of metrics: what it holds, what the pages say of it, and who may name a metric.


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
    named = {name for rule in RULES for name in rule.metrics}
    named |= {name for heads in HEADLINES.values() for head in heads for name in head.names}
    named |= {name for curves in CURVES.values() for name in curves}
    assert sorted(name for name in named if name and metric_of(name) is None) == []


@pytest.mark.parametrize("name", ["objective/scroes", "report/accuracy", "eval", ""])
def test_a_recipe_that_reports_an_unregistered_metric_fails_its_test(name):
    event = {"type": "Metrics", "event": {"steps": [1], "values": {name: [1.0]}}}
    with pytest.raises(AssertionError, match="not in workers"):
        Outcome([event])


def test_one_of_several_says_which_it_is_in_the_unit_of_all():
    component = metric_of("reward/component/helpful")
    assert (component.title, component.unit) == ("Reward by component: helpful", "raw score")
    of_reference = metric_of("behaviour/phrase/good-dog/reference")
    assert of_reference.name == "behaviour/phrase/<phrase>/reference"
    assert metric_or_own("somebody/elses").title == "somebody/elses"


# What supervises trainers loads no model library and no Django, so it starts at once, anywhere.


# Where Django is installed, kombu's JSON looks at one harmless module of it; its settings and
# database must stay out.
HEAVY = ("torch", "transformers", "trl", "django.conf", "django.db", "psycopg", "apps", "config")
MODULES = (
    "workers.celery",
    "workers.tasks",
    "workers.supervisor",
    "workers.launchers",
    "workers.contract",
    "workers.contract.broker",
    "workers.contract.lease",
    "workers.train",
    "workers.recipes.drill",
)


@pytest.mark.parametrize("module", MODULES)
def test_it_imports_no_model_library_and_no_django(module: str) -> None:
    program = f"""
import importlib, sys
importlib.import_module({module!r})
print(*sorted(name for name in {HEAVY!r} if name in sys.modules))
"""
    environment = {
        "REDIS_URL": "unix:///nonexistent?db=0",
        # Set around real workers too; it must not make Celery load Django.
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == []


# docs/reward-models.md against the lines of the page.


ASSESS_PAGE = (Path(__file__).parents[2] / "docs" / "reward-models.md").read_text()


def test_the_table_of_rules_holds_every_line_by_name_and_title() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", ASSESS_PAGE.split("<!-- rules")[1], re.M)
    found = [(name, title) for name, title, _ in rows if name in LINES]
    assert found == [(line.name, line.title) for line in LINES.values()]


def test_every_line_is_explained_in_order() -> None:
    assert re.findall(r"^### (\w+)$", ASSESS_PAGE, re.M) == list(LINES)


def test_every_line_is_measured_by_the_recipe_or_by_the_web_side() -> None:
    assert set(JUDGEMENTS) == set(LINES) - ON_THE_WEB
