"""The contract: what one side writes, the other reads back; what does not fit is named."""

import json
from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from workers.contract.signing import is_signed, signed

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
