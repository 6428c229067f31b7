"""Every line of a reward model's page, from texts to verdict: red under its fault, green without.

No model is trained and no torch is needed: the world of `judged_world` knows what each answer is
worth, so everything between a snapshot's rows and the page runs as it does in a run.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from measures.trust.findings import LINES, Finding, Verdict, finding_from_json, finding_to_json
from tests.workers.judged_world import (
    LENGTH_LOVER,
    PEOPLE,
    Ensemble,
    Model,
    Respondents,
    Taste,
    Unhurried,
    World,
    features,
    learned,
    respond,
)
from workers.assess import judging
from workers.assess.judging import ON_THE_WEB, judge
from workers.assess.measuring import STOPPED, Subject, look
from workers.config import settings_for
from workers.data.snapshot import Preference

pytestmark = pytest.mark.spread

BY_MACHINE = set(LINES) - ON_THE_WEB
SETTINGS = {
    "max_pairs": 1000,
    "probe_prompts": 50,
    "effect_answers": 15,
    "bootstrap_replicates": 300,
    "best_of": 32,
    "best_of_prompts": 40,
}
SEEDS = 20
MOST_ALARMS = 6
MET = [f"met-{i}" for i in range(40)]
NEW = [f"new-{i}" for i in range(40)]

Rows = Mapping[str, Sequence[Preference]]


def snapshot(world: World, n: int = 500, held_out: int = 900, **planted: float) -> Rows:
    return {
        "train": world.pairs(n, people=MET, group="t", **planted),
        "heldout_groups": world.pairs(held_out, people=MET, group="h", **planted),
        "dev": world.pairs(n, people=MET, group="d", **planted),
        "heldout_annotators": world.pairs(n, people=NEW, group="a", **planted),
    }


@cache
def clean_rows() -> Rows:
    return snapshot(World(0))


@cache
def clean_others() -> list[Preference]:
    return World(77).pairs(300)


def three(**corrupted: Model) -> Ensemble:
    members = {f"member-{k}": Model(salt=k, error=0.5) for k in range(3)}
    return Ensemble(members | {name.replace("_", "-"): m for name, m in corrupted.items()})


def subject(**changes: Any) -> Subject:
    """A clean model in a clean world, with everything that an assessment can be given."""
    given = {
        "reward": three(),
        "rows": clean_rows(),
        "other": clean_others(),
        "judge": Model(salt="judge", error=0.5),
        "answering": Respondents(),
        "threshold": 1.5,
    }
    given |= changes
    given.setdefault("lower", {"bfloat16": lambda: given["reward"]})
    return Subject(**given)


def alone(reward: Any, rows: Rows | None = None) -> Subject:
    """A model and the snapshot it is judged by, and nothing else."""
    return Subject(reward=reward, rows=clean_rows() if rows is None else rows)


def page(
    of: Subject, *, seed: int = 0, progress: Unhurried | None = None, **settings: object
) -> dict[str, Finding]:
    errors: list[str] = []
    material = look(
        of,
        settings_for("assess", SETTINGS | settings),
        seed=seed,
        progress=progress or Unhurried(),
    )
    findings = judge(material, log=lambda *lines, level: errors.extend(lines))
    assert errors == [], "\n".join(errors)
    return {finding.line: finding for finding in findings}


def lines(of: Mapping[str, Finding], verdict: Verdict) -> set[str]:
    return {name for name, finding in of.items() if finding.verdict is verdict}


def told(of: Mapping[str, Finding]) -> str:
    return "\n".join(f"{f.verdict.value} {f.line}: {f.says}" for f in of.values())


# --- the faults ---


def length_pays() -> World:
    """A world in which people like long answers."""
    return World(1, taste=Taste(worth=0.5, length=3.0))


def bag_of_words(prompt: str, answer: str) -> float:
    """Counts good words, wherever they stand."""
    return 1.2 * answer.count("helps") + answer.count("works") - answer.count("fails")


def backwards_on_long(prompt: str, answer: str) -> float:
    value = PEOPLE(prompt, answer)
    return 6 - value if features(prompt, answer)[1] > 1.7 else value


def fault(name: str) -> Subject:
    """One thing wrong, and beside the model only what shows it."""
    match name:
        case "a tenth of the labels is swapped":
            return alone(Model(), snapshot(World(3), n=200, swapped=0.1))
        case "all labels are swapped":
            return alone(Model(), snapshot(World(3), n=200, held_out=600, swapped=1.0))
        case "a model that learned from swapped labels":
            rows = snapshot(World(3), n=200, held_out=600, swapped=1.0)
            return alone(learned(rows["train"]), rows)
        case "a fifth of the raters, whom it never met, love length":
            world = World(4, tastes=dict.fromkeys(NEW, LENGTH_LOVER))
            return alone(Model(), snapshot(world, n=400, held_out=300))
        case "a model that loves length":
            return alone(Model(Taste(length=3.0)))
        case "a model that knows length alone, where length pays":
            rows = snapshot(length_pays(), n=200)
            return alone(Model(Taste(worth=0.0, length=3.0), error=0.4), rows)
        case "a tag that gives the winner away":
            return alone(Model(), snapshot(World(5), n=200, held_out=600, tagged=0.4))
        case "an order that gives the winner away":
            return alone(Model(), snapshot(World(2), n=200, held_out=600, in_order=0.75))
        case "pairs in which praise wins":
            world = World(6, taste=replace(PEOPLE, praise=2.5))
            rows = snapshot(world, n=400, held_out=400, praised=0.3)
            return alone(learned(rows["train"]), rows)
        case "logits four times too large":
            return alone(Model(shape=lambda value: 4 * value))
        case "500 pairs learned by heart":
            return alone(learned(clean_rows()["train"], by_heart=True))
        case "one corrupted member":
            return alone(three(member_1=Model(lambda prompt, answer: 0.0, error=2.0)))
        case "a saturated model":
            return alone(Model(shape=lambda v: 1 / (1 + math.exp(-3 * (v + 3)))))
        case "a constant model":
            return alone(Model(lambda prompt, answer: 0.0, error=0.0))
        case "a model of noise":
            return subject(reward=Model(lambda prompt, answer: 0.0, error=2.0))
        case "a model that loves lists":
            return alone(Model(replace(PEOPLE, lists=2.0)))
        case "a model that loves one word":
            return alone(Model(replace(PEOPLE, word=2.0)))
        case "a model that is backwards on long answers":
            return alone(Model(backwards_on_long))
        case "a model that counts words":
            return alone(Model(bag_of_words))
        case "a policy that says much more":
            long = {"policy": lambda prompt, rng: respond(prompt, rng, skill=1.0, told=12)}
            return subject(answering=Respondents(styles=long), judge=None)
        case "another dataset, where the short answer wins":
            short = World(8, taste=Taste(worth=0.5, length=-3.0)).pairs(300)
            rows = snapshot(length_pays(), n=200, held_out=500)
            return Subject(reward=Model(Taste(worth=0.5, length=3.0)), rows=rows, other=short)
        case "scores rounded to whole numbers":
            rounded = {"int8": lambda: Model(shape=lambda value: float(round(value)))}
            return Subject(reward=Model(), rows=clean_rows(), lower=rounded)
    raise KeyError(name)


@cache
def page_of(name: str) -> dict[str, Finding]:
    return page(fault(name))


FAULTS: dict[str, set[str]] = {
    "a tenth of the labels is swapped": {"label_noise"},
    "all labels are swapped": {"accuracy", "beats_length", "slices", "label_noise", "score_shape"},
    "a model that learned from swapped labels": {"empty_probes", "damage_probes"},
    "a fifth of the raters, whom it never met, love length": {"unseen_people"},
    "a model that loves length": {"length_taste"},
    "a model that knows length alone, where length pays": {"beats_length", "length_matched"},
    "a tag that gives the winner away": {"metadata_only"},
    "an order that gives the winner away": {"prompt_only", "metadata_only"},
    "pairs in which praise wins": {"praise_probes"},
    "logits four times too large": {"calibration"},
    "500 pairs learned by heart": {"overfit"},
    "one corrupted member": {"disagreement"},
    "a saturated model": {"score_shape"},
    "a constant model": {"accuracy", "score_shape", "empty_probes", "praise_probes"},
    "a model of noise": {"accuracy", "beats_length", "beats_words", "score_shape", "best_of_n"},
    "a model that loves lists": {"format_taste"},
    "a model that loves one word": {"spurious_words"},
    "a model that is backwards on long answers": {"slices"},
    "a model that counts words": {"damage_probes"},
    "a policy that says much more": {"policy_range"},
    "another dataset, where the short answer wins": {"other_domain"},
    "scores rounded to whole numbers": {"precision"},
}


def test_there_is_a_fault_for_every_line_that_a_machine_measures() -> None:
    assert set().union(*FAULTS.values()) == BY_MACHINE


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_turns_its_lines_red(name: str) -> None:
    found = page_of(name)
    assert FAULTS[name] <= lines(found, Verdict.RED), told(found)


def test_with_nothing_wrong_every_line_is_green() -> None:
    found = page(subject())
    assert lines(found, Verdict.GREEN) == BY_MACHINE, told(found)
    assert list(found) == [name for name in LINES if name in BY_MACHINE]
    for finding in found.values():
        assert finding_from_json(finding_to_json(finding)) == finding


def test_an_over_confident_model_is_told_by_how_much() -> None:
    found = page_of("logits four times too large")["calibration"]
    assert found.facts["temperature"] == pytest.approx(4, rel=0.35)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("all labels are swapped", "flipped"),
        ("a saturated model", "high"),
        ("a constant model", "constant"),
        ("a model of noise", "unrelated"),
    ],
)
def test_the_shape_of_broken_scores_is_named(name: str, shape: str) -> None:
    assert page_of(name)["score_shape"].facts["shape"] == shape


def test_clean_models_raise_few_false_alarms() -> None:
    """Twenty worlds of 23 lines each. At the 2.5 % that most lines may err, 11 alarms would be
    expected; corrections for many looks and thresholds that are not 0 leave fewer: two when
    this was written."""
    alarms: Counter[str] = Counter()
    measured = 0
    for seed in range(SEEDS):
        found = page(
            subject(
                rows=snapshot(World(100 + seed), n=200, held_out=400),
                other=World(1000 + seed).pairs(150),
            ),
            seed=seed,
            best_of_prompts=20,
            probe_prompts=36,
            effect_answers=10,
        )
        alarms.update(lines(found, Verdict.RED))
        measured += len(found) - len(lines(found, Verdict.UNMEASURED))
    assert measured >= 0.7 * SEEDS * len(BY_MACHINE)
    assert sum(alarms.values()) <= MOST_ALARMS, alarms


def test_a_line_without_data_is_not_measured_and_says_why() -> None:
    rows = {name: of for name, of in clean_rows().items() if name in ("train", "heldout_groups")}
    found = page(Subject(reward=Model(), rows=rows))
    missing = {
        "unseen_people",
        "other_domain",
        "policy_range",
        "disagreement",
        "best_of_n",
        "precision",
    }
    assert missing <= lines(found, Verdict.UNMEASURED), told(found)
    for line in missing:
        assert len(found[line].says) > 20


def test_nothing_is_green_where_nothing_is_held_out() -> None:
    found = page(Subject(reward=Model(), rows={"train": clean_rows()["train"]}))
    on_texts = {"empty_probes", "damage_probes"}  # these need answers, and no judgement
    assert lines(found, Verdict.GREEN) <= on_texts, told(found)
    assert "rows out" in found["accuracy"].says


def test_a_handful_of_pairs_makes_no_line_about_people_green() -> None:
    rows = {name: of[:12] for name, of in clean_rows().items()}
    found = page(Subject(reward=Model(), rows=rows))
    assert lines(found, Verdict.GREEN) == set(), told(found)


@pytest.mark.parametrize("phases", [0, 1, 4])
def test_what_a_stopped_run_did_not_reach_is_not_measured(phases: int) -> None:
    found = page(subject(), progress=Unhurried(ends=phases))
    left_out = {name for name, of in found.items() if STOPPED in of.says}
    assert {"best_of_n", "policy_range", "precision"} <= left_out
    assert ("accuracy" in left_out) is (phases == 0)
    assert left_out <= lines(found, Verdict.UNMEASURED)


def test_a_line_that_breaks_is_logged_and_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(material: object) -> Finding:
        raise IndexError("list index out of range")

    monkeypatch.setitem(judging.JUDGEMENTS, "slices", broken)
    material = look(alone(Model()), settings_for("assess", SETTINGS), seed=0, progress=Unhurried())
    said: list[tuple[str, str]] = []
    findings = judge(material, log=lambda *text, level: said.extend((level, line) for line in text))
    by_line = {finding.line: finding for finding in findings}
    assert by_line["slices"].verdict is Verdict.UNMEASURED
    assert "index out of" in by_line["slices"].says
    assert by_line["accuracy"].verdict is Verdict.GREEN
    assert {level for level, _ in said} == {"error"}
    assert any("broken" in line for _, line in said), "the traceback is in the log"
