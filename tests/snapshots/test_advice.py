"""Which method is advised, branch by branch, and what happens when facts contradict each other."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.snapshots.advice import Advice, Facts, Kind, Method, Rules, Task, advise
from apps.snapshots.advice.choosing import HEADLINES
from measures.estimate import Interval


def at(value: float | None, low: float | None = None, high: float | None = None, n: int = 500):
    why = None if value is not None else "no rows"
    return Interval(value=value, low=low, high=high, n=n, undefined=why)


GOOD = Facts(
    agreement=at(0.72, 0.70, 0.74),
    alpha=at(0.44, 0.40, 0.48),
    pairs=12_000,
    prompts=300,
    annotators=40,
    tie_share=at(0.0, n=9_000),
    length_only=at(0.51, 0.48, 0.54),
    text_baseline=at(0.65, 0.62, 0.68),
    reward_accuracy=at(0.74, 0.70, 0.78),
    reward_gain=at(0.2, 0.15, 0.25),
    demonstrations=2_000,
    task=Task.OPEN,
    rules=Rules.NONE,
    latency_ms=2_000,
    baseline=0.6,
    exploration=False,
)


def advised(**changes: object) -> Advice:
    return advise(dataclasses.replace(GOOD, **changes))


def keys(advice: Advice, kind: Kind) -> list[str]:
    return [item.key for item in advice.items if item.kind is kind]


def test_with_everything_known_and_nothing_against_it_one_starts_with_dpo() -> None:
    found = advised()
    assert (found.method, found.provisional, found.unknown) == (Method.DPO, False, ())
    assert keys(found, Kind.METHOD) == ["default"]
    assert keys(found, Kind.CAUTION) == []
    assert "12,000 pairs" in found.items[0].evidence


@pytest.mark.parametrize(
    ("changes", "method", "reason"),
    [
        ({"baseline": 0.951}, Method.NOTHING, "baseline"),
        ({"baseline": 0.95}, Method.DPO, "default"),
        ({"rules": Rules.ALL}, Method.RULES, "rules"),
        ({"task": Task.FACTUAL}, Method.SFT, "factual"),
        ({"agreement": at(0.55, 0.52, 0.58)}, Method.CLEAN, "agreement"),
        ({"agreement": at(0.58, 0.55, 0.61)}, Method.DPO, "default"),
        ({"agreement": at(0.5, 0.3, 0.59, n=20)}, Method.DPO, "default"),  # too few to say
        ({"agreement": at(0.5)}, Method.DPO, "default"),  # no interval
        ({"alpha": at(0.02, -0.03, 0.07)}, Method.CLEAN, "agreement"),
        ({"alpha": at(-0.1, -0.5, -0.01)}, Method.CLEAN, "agreement"),
        ({"alpha": at(0.2, -0.1, 0.5)}, Method.DPO, "default"),  # too wide to tell
        ({"pairs": 0}, Method.COLLECT, "pairs"),
        ({"latency_ms": 99.9}, Method.DPO, "latency"),
        ({"latency_ms": 100.0}, Method.DPO, "default"),
        ({"reward_accuracy": at(0.52, 0.49, 0.55)}, Method.DPO, "reward_fails"),
        ({"reward_gain": at(0.03, -0.01, 0.07)}, Method.DPO, "reward_fails"),
        ({"exploration": True}, Method.PPO, "exploration"),
        ({"exploration": True, "reward_gain": None}, Method.DPO, "default"),
        ({"exploration": True, "reward_accuracy": None}, Method.DPO, "default"),
    ],
)
def test_each_branch_is_taken_at_its_mark(changes: dict, method: Method, reason: str) -> None:
    found = advised(**changes)
    assert found.method is method
    assert keys(found, Kind.METHOD)[0] == reason
    assert found.headline == HEADLINES[method]


# Every rule at once, in the documented order; taking the first away lets the next one through.
EVERYTHING = {
    "baseline": 0.99,
    "rules": Rules.ALL,
    "task": Task.FACTUAL,
    "agreement": at(0.5, 0.45, 0.55),
    "pairs": 0,
    "latency_ms": 50.0,
    "reward_gain": at(0.0, -0.1, 0.1),
    "exploration": True,
}


def test_contradictions_are_settled_in_the_documented_order() -> None:
    order = [Method.NOTHING, Method.RULES, Method.SFT, Method.CLEAN, Method.COLLECT, Method.DPO]
    left = dict(EVERYTHING)
    for method, name in zip(order, EVERYTHING, strict=False):
        assert advised(**left).method is method
        del left[name]
    assert keys(advised(**left), Kind.METHOD) == ["reward_fails"]
    del left["reward_gain"]
    assert advised(**left).method is Method.PPO


def test_what_is_overruled_is_still_listed_with_its_number() -> None:
    found = advised(latency_ms=50.0, exploration=True)
    assert found.method is Method.DPO
    assert keys(found, Kind.OVERRULED) == ["exploration"]
    (item,) = [item for item in found.items if item.kind is Kind.OVERRULED]
    assert "74.0 %" in item.evidence
    assert "Start with DPO" in item.reason
    both = advised(latency_ms=50.0, reward_gain=at(0.0, -0.1, 0.1))
    assert keys(both, Kind.METHOD) == ["latency", "reward_fails"]
    assert keys(both, Kind.OVERRULED) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Filter answers by the rules"),
        ({"exploration": True}, "part of the reward"),
        ({"task": Task.FACTUAL}, "Filter answers by the rules"),
    ],
)
def test_rules_for_a_part_are_combined_with_the_method(changes: dict, words: str) -> None:
    found = advised(rules=Rules.SOME, **changes)
    assert keys(found, Kind.HYBRID) == ["rules_too"]
    assert any(words in item.reason for item in found.items)


def test_ppo_without_demonstrations_is_told_to_begin_with_sft() -> None:
    assert keys(advised(exploration=True, demonstrations=0), Kind.HYBRID) == ["sft_first"]


@pytest.mark.parametrize(
    ("pairs", "title"), [(4_999, "Very little data"), (5_000, "Little data"), (10_000, None)]
)
@pytest.mark.parametrize("exploration", [True, False])
def test_little_data_is_said_at_its_marks(pairs: int, title: str | None, exploration: bool) -> None:
    found = advised(pairs=pairs, exploration=exploration)
    said = [item for item in found.items if item.key == "little_data"]
    assert [item.title for item in said] == ([title] if title else [])
    if said:
        assert ("KL penalty" in said[0].reason) == exploration
        assert f"{pairs:,} pairs" in said[0].evidence


@pytest.mark.parametrize(
    ("changes", "kind", "key", "words"),
    [
        ({"agreement": at(0.61, 0.58, 0.64)}, Kind.CAUTION, "agreement_unsure", "61.0 %"),
        ({"length_only": at(0.77, 0.75, 0.79)}, Kind.CAUTION, "length", "longer"),
        ({"length_only": at(0.3, 0.25, 0.35)}, Kind.CAUTION, "length", "shorter"),
        ({"text_baseline": at(0.51, 0.48, 0.54)}, Kind.CAUTION, "words", "51.0 %"),
        ({"annotators": 9}, Kind.IMPROVE, "people", "9 annotators"),
        ({"prompts": 3}, Kind.IMPROVE, "prompts", "3 groups"),
        ({"tie_share": at(0.2, n=9_000)}, Kind.IMPROVE, "ties", "20.0 %"),
        (
            {"exploration": True, "reward_accuracy": None},
            Kind.IMPROVE,
            "reward_model",
            "no reward model",
        ),
    ],
)
def test_what_would_spoil_or_improve_it_is_named_with_its_number(
    changes: dict, kind: Kind, key: str, words: str
) -> None:
    found = advised(**changes)
    assert key in keys(found, kind)
    (item,) = [item for item in found.items if item.key == key]
    assert words in f"{item.title} {item.evidence}"
    assert item.next_step


def test_votes_are_not_picked_at_where_they_teach_nothing() -> None:
    changes = {"length_only": at(0.77, 0.75, 0.79), "annotators": 2, "pairs": 100}
    for method in ({"rules": Rules.ALL}, {"task": Task.FACTUAL}, {"baseline": 0.99}):
        found = advised(**changes, **method)
        assert keys(found, Kind.CAUTION) == keys(found, Kind.IMPROVE) == []


def test_of_nothing_known_nothing_is_advised_and_everything_asked() -> None:
    found = advise(Facts())
    assert (found.method, found.items, found.provisional) == (Method.UNDECIDED, (), True)
    asked = {one.key for one in found.unknown}
    assert asked == {field.name for field in dataclasses.fields(Facts)} - {
        "alpha",
        "prompts",
        "annotators",
        "tie_share",
        "methods",
        "project",
    }


@pytest.mark.parametrize("name", ["baseline", "task", "rules", "agreement", "exploration"])
def test_an_unknown_fact_that_could_change_the_method_makes_it_provisional(name: str) -> None:
    found = advised(**{name: None})
    assert found.provisional
    assert [one.key for one in found.unknown] == [name]
    assert not advised(demonstrations=None).provisional


def test_a_statistic_without_a_value_is_unknown() -> None:
    found = advised(agreement=at(None))
    assert [one.key for one in found.unknown] == ["agreement"]
    assert found.provisional


@pytest.mark.parametrize("bad", [{"baseline": 1.2}, {"latency_ms": 0.0}])
def test_what_cannot_be_stated_is_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="is a"):
        Facts(**bad)


bounds = st.tuples(*[st.floats(0, 1)] * 3).map(sorted)
shares = st.none() | st.builds(
    lambda three, n: at(three[1], three[0], three[2], n=n), bounds, st.integers(1, 3_000)
)


@given(
    st.builds(
        Facts,
        agreement=shares,
        alpha=shares,
        pairs=st.none() | st.integers(0, 20_000),
        reward_accuracy=shares,
        reward_gain=shares,
        length_only=shares,
        task=st.none() | st.sampled_from(Task),
        rules=st.none() | st.sampled_from(Rules),
        latency_ms=st.none() | st.floats(1, 1_000),
        baseline=st.none() | st.floats(0, 1),
        exploration=st.none() | st.booleans(),
        demonstrations=st.none() | st.integers(0, 10),
    )
)
def test_advice_never_rests_on_what_is_not_known(facts: Facts) -> None:
    found = advise(facts)
    reasons = keys(found, Kind.METHOD)
    rests_on = {
        "baseline": [facts.baseline],
        "rules": [facts.rules],
        "factual": [facts.task],
        "agreement": [facts.agreement or facts.alpha],
        "pairs": [facts.pairs],
        "latency": [facts.latency_ms],
        "reward_fails": [facts.reward_accuracy or facts.reward_gain],
        "exploration": [facts.exploration, facts.reward_accuracy, facts.reward_gain],
        "default": [facts.pairs],
    }
    for reason in reasons:
        assert None not in rests_on[reason]
    assert bool(reasons) == (found.method is not Method.UNDECIDED)
    assert len({item.key for item in found.items}) == len(found.items)
    assert all(item.title and item.reason for item in found.items)
