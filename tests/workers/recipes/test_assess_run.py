"""An assessment as it is run: a trained reward model, a job file, a process, and what it leaves."""

import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from measures.trust.findings import LINES, Finding, Verdict, finding_from_json
from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import WORDS, Outcome, Workshop, assistant, tiny_llama, user
from workers.assess.judging import ON_THE_WEB
from workers.assess.scores import Scored, same_comparisons
from workers.contract.events import RecipeError
from workers.contract.protocol import StatedProtocol, differences, stated
from workers.data.snapshot import Preference
from workers.trust import right
from workers.trust.probes import NEUTRAL, PRAISE

SMALL = {
    "probe_prompts": 40,
    "effect_answers": 10,
    "max_outputs": 12,
    "best_of": 8,
    "best_of_prompts": 12,
    "max_prompt_length": 16,
    "max_new_tokens": 6,
    "bootstrap_replicates": 200,
}
FILLED = {"prompts": "prompts", "policy": "speaker", "sft": "base", "other": "elsewhere"}


def held_out_rows(count: int, *, seed: int) -> list[dict[str, Any]]:
    """The planted preference again, in words that training did not put together."""
    rng = random.Random(seed)
    words = ("sun", "rain", "cat", "runs", "red", "blue", "big")
    rows = []
    for i in range(count):
        said = rng.sample(words, 3)
        place = rng.randrange(4)
        subject = rng.choice(SUBJECTS)
        good, bad = [*said], [*said]
        good[place:place] = ["good"] * rng.randint(1, 2)
        bad[place:place] = ["bad"] * rng.randint(1, 2)
        rows.append(
            {
                "prompt": user(subject),
                "chosen": assistant(" ".join(good)),
                "rejected": assistant(" ".join(bad)),
                "cluster": f"{seed}/{i}",
                "group": subject,
                "comparison": f"{seed}/{i}",
            }
        )
    return rows


@pytest.fixture(scope="module")
def shop(workshop: Workshop, planted: dict[str, Outcome]) -> Workshop:
    workshop.adopt("learned", planted["reward"])
    workshop.put_model("speaker", tiny_llama(seed=7))
    train = held_out_rows(200, seed=1)
    workshop.put_snapshot("judged", train=train, heldout_groups=held_out_rows(240, seed=2))
    workshop.put_snapshot("elsewhere", train=held_out_rows(60, seed=3))
    return workshop


@pytest.fixture(scope="module")
def assessed(shop: Workshop) -> Outcome:
    spec = shop.spec(
        "assessed", "assess", SMALL, reward="learned", judge="learned", data="judged", **FILLED
    )
    return shop.run(spec)


def artifact(shop: Workshop, outcome: Outcome, name: str) -> bytes:
    saved = {event["name"]: event for event in outcome.all("ArtifactSaved")}[name]
    return shop.store.read_bytes(saved["uri"], sha256=saved["sha256"])


def findings(report: dict[str, Any]) -> dict[str, Finding]:
    found = [finding_from_json(one) for one in report["findings"]]
    return {finding.line: finding for finding in found}


def test_an_assessment_leaves_a_finding_for_every_line_that_a_machine_measures(
    shop: Workshop, assessed: Outcome
) -> None:
    assert assessed.ending == "Finished", assessed.log[-3000:]
    assert [log["lines"] for log in assessed.all("Log") if log["level"] == "error"] == []
    report = json.loads(artifact(shop, assessed, "assessment.json"))
    assert report["version"] == 1
    found = findings(report)
    assert list(found) == [name for name in LINES if name not in ON_THE_WEB]
    assert found["accuracy"].verdict is Verdict.GREEN, found["accuracy"].says
    assert found["unseen_people"].verdict is Verdict.UNMEASURED
    agreement = found["precision"].facts["agreement"]
    assert set(agreement) == {"bfloat16", "int8"}
    assert min(agreement.values()) >= 0.99, agreement
    assert report["model"]["members"] == 1
    assert report["model"]["truncated_share"] == 0.0
    assert report["splits"]["heldout_groups"] == {
        "rows": 240,
        "scored": 240,
        "used_for": ["held out"],
    }
    assert len(report["tops"]["top"]) == len(report["tops"]["bottom"]) > 0
    top, bottom = report["tops"]["top"], report["tops"]["bottom"]
    assert min(one["score"] for one in top) >= max(one["score"] for one in bottom)


def test_the_summary_counts_what_the_report_says(shop: Workshop, assessed: Outcome) -> None:
    found = findings(json.loads(artifact(shop, assessed, "assessment.json")))
    summary = assessed.summary
    assert summary["lines"] == {name: str(one.verdict) for name, one in found.items()}
    for verdict in Verdict:
        assert summary[verdict] == sum(one.verdict is verdict for one in found.values())
        assert assessed.curve(f"assess/{verdict}") == {1: summary[verdict]}
    accuracy = found["accuracy"].figure
    assert accuracy is not None
    assert summary["figures"]["accuracy"]["value"] == accuracy.value
    assert assessed.curve("assess/line/accuracy") == {1: accuracy.value}


def test_the_policys_answers_lie_ready_for_people_beside_those_of_the_sft_model(
    shop: Workshop, assessed: Outcome
) -> None:
    lines = [
        json.loads(line) for line in artifact(shop, assessed, "outputs.jsonl").decode().splitlines()
    ]
    assert len(lines) == 12
    assert all(line["prompt"][-1]["role"] == "user" for line in lines)
    assert all(isinstance(line["score"], float) for line in lines)
    assert {line["disagreement"] for line in lines} == {None}
    assert any(line["response"] != line["other_response"] for line in lines)
    generated = assessed.all("Generated")
    assert [(one["purpose"], one["count"]) for one in generated] == [("audit", 12)]
    samples = assessed.all("Sample")
    assert {sample["bucket"] for sample in samples} == {"high", "low", "random"}


def test_an_assessment_states_its_protocol_of_which_the_reward_model_is_no_part(
    shop: Workshop, assessed: Outcome
) -> None:
    found = stated(assessed.summary)
    assert set(found.content["prompts"]["files"]) == {"train", "heldout_groups"}
    assert found.content["prompts"]["files"]["heldout_groups"]["count"] == 240
    assert set(found.content["engine"]) == {"reward", "policy", "sft"}
    assert found.content["rendered"]["policy"]["count"] == 12

    def looked(name: str, reward: str = "learned", **changed: Any) -> StatedProtocol:
        spec = shop.spec(name, "assess", SMALL | changed, reward=reward, data="judged")
        return stated(shop.run_here(spec, command="stop", after_step=0).summary)

    settings = {"batch_size": 16, "max_length": 32, "max_steps": 1}
    other = shop.spec("swayed", "reward", settings, sft="base", data="judged", seed=5)
    shop.adopt("swayed", shop.run_here(other))
    one = looked("by-one")
    assert looked("by-another", reward="swayed").sha256 == one.sha256
    (line,) = differences(one.content, looked("by-fewer", max_pairs=60).content)
    assert line == ("statistics.max_pairs", 3000, 60)


def test_progress_is_told_by_phase(assessed: Outcome) -> None:
    phases = list(dict.fromkeys(event["phase"] for event in assessed.all("Progress")))
    assert phases[0].startswith("fetching the input")
    assert "scoring the pairs" in phases
    assert phases[-1] == "done"
    last = assessed.all("Progress")[-1]
    assert last["step"] == last["total_steps"]


def test_a_stopped_assessment_keeps_what_it_measured(shop: Workshop) -> None:
    spec = shop.spec("assessed_stopped", "assess", SMALL, reward="learned", data="judged")
    outcome = shop.run_here(spec, command="stop", after_step=0)
    assert outcome.summary["unmeasured"] == len(LINES) - len(ON_THE_WEB)


def test_a_cancelled_assessment_leaves_nothing(shop: Workshop) -> None:
    spec = shop.spec("assessed_cancelled", "assess", SMALL, reward="learned", data="judged")
    outcome = shop.run_here(spec, command="cancel", after_step=0)
    assert outcome.all("ArtifactSaved") == []


def test_a_dataset_that_holds_nothing_out_is_refused(shop: Workshop) -> None:
    spec = shop.spec("assessed_nothing", "assess", SMALL, reward="learned", data="elsewhere")
    with pytest.raises(RecipeError, match="training rows only") as raised:
        shop.run_here(spec)
    assert raised.value.kind == "no_held_out_rows"


# Whether a gap between people is one of people: single votes against what several agreed on.


PROMPT = [{"role": "user", "content": "Which?"}]


def judged(seed: int, *, habit: float = 0.0, comparisons: int = 600) -> Finding:
    """Four people vote on each pair and one whom the model never met; all prefer the better answer
    as often, but the four have a habit too, and the model knows both."""
    rng = random.Random(seed)
    decided: list[Preference] = []
    single: list[Preference] = []
    margins: dict[str, float] = {}
    for i in range(comparisons):
        better, liked = rng.gauss(0, 1.5), rng.choice((-1.0, 1.0))
        margins[str(i)] = better + 2 * habit * liked

        def vote(taste: float) -> bool:
            return rng.random() < 1 / (1 + np.exp(-taste))

        votes = Counter(vote(better + 2 * habit * liked) for _ in range(4))
        single.append(_row(i, vote(better), 1.0, 1, f"person {i % 60}"))
        winner, n = votes.most_common(1)[0]
        if n >= 3:  # a snapshot drops what people do not agree on
            decided.append(_row(i, winner, n / 4, 4, ""))
    rows = {"heldout_groups": decided, "heldout_annotators": single}
    scored = {name: _scored(of, margins) for name, of in rows.items()}
    both = same_comparisons(rows, scored, replicates=200)
    assert both is not None
    return right.unseen_people(*both)


def _row(i: int, first: bool, share: float, votes: int, person: str) -> Preference:
    chosen, rejected = ("first", "second") if first else ("second", "first")
    return Preference(
        prompt=PROMPT,
        chosen=f"{chosen} {i}",
        rejected=f"{rejected} {i}",
        confidence=share,
        cluster=str(i),
        comparison=str(i),
        votes=votes,
        annotator=person,
    )


def _scored(rows: list[Preference], margins: dict[str, float]) -> Scored:
    sides = [row.chosen for row in rows] + [row.rejected for row in rows]
    names = [row.comparison for row in rows] * 2
    signs = [1 if side.startswith("first") else -1 for side in sides]
    return Scored(np.array([s * margins[n] / 2 for s, n in zip(signs, names, strict=True)]))


def test_single_votes_are_noisier_than_majorities_and_that_is_no_gap_between_people() -> None:
    found = [judged(seed).verdict for seed in range(12)]
    assert found.count(Verdict.RED) <= 1
    assert found.count(Verdict.GREEN) >= 6


@pytest.mark.parametrize("seed", range(3))
def test_a_habit_of_the_people_it_learned_from_is_a_gap(seed: int) -> None:
    assert judged(seed, habit=1.5, comparisons=1200).verdict is Verdict.RED


def test_both_sides_are_asked_about_the_same_pairs() -> None:
    rows = {
        "heldout_groups": [_row(i, True, 1.0, 3, "") for i in range(60)],
        "heldout_annotators": [_row(i, i % 2 == 0, 1.0, 1, "ana") for i in range(20, 90)],
    }
    margins = {str(i): float(i) for i in range(90)}
    scored = {name: _scored(of, margins) for name, of in rows.items()}
    assert same_comparisons(rows, scored, replicates=100) is None  # 40 pairs in common
    rows["heldout_groups"] += [_row(i, True, 1.0, 3, "") for i in range(60, 80)]
    scored["heldout_groups"] = _scored(rows["heldout_groups"], margins)
    seen, unseen = same_comparisons(rows, scored, replicates=100) or pytest.fail("60 in common")
    assert len(seen) == len(unseen) == 60
    assert list(seen.chosen_texts[:2]) == ["first 20", "first 21"]
    assert seen.margins[:2].tolist() == [20.0, 21.0]
    assert unseen.margins[:2].tolist() == [20.0, -21.0]
    assert seen.confidence[0] == pytest.approx(3.5 / 4)  # Jeffreys: three of three votes


# --- a weakness, found and unlearned by the shipped recipes ---

FLATTERY = sorted(
    {
        word
        for text in (*PRAISE.values(), *(one for texts in NEUTRAL.values() for one in texts))
        for word in text.split()
    }
    - set(WORDS)
)


def plain_and_praised(count: int, *, seed: int) -> list[tuple[dict[str, Any], str, str]]:
    """(row of a pair, its better answer, the same with a compliment after it)."""
    rows = held_out_rows(count, seed=seed)
    better = [row["chosen"][0]["content"] for row in rows]
    return [(row, text, f"{text} {PRAISE['love']}") for row, text in zip(rows, better, strict=True)]


def pair_of(row: dict[str, Any], chosen: str, rejected: str) -> dict[str, Any]:
    return row | {"chosen": assistant(chosen), "rejected": assistant(rejected)}


@pytest.mark.spread
def test_a_reward_model_that_loves_praise_is_found_and_cured_by_its_hard_pairs(
    workshop: Workshop,
) -> None:
    """Trained on pairs in which flattery was chosen it is red; trained on the same pairs and on
    those that fooled it, decided the other way, it is not."""
    workshop.put_model("listener", tiny_llama(more=FLATTERY), FLATTERY)
    flattered = plain_and_praised(80, seed=11)
    workshop.put_snapshot(
        "flattered",
        train=[row for row, _, _ in flattered]
        + [pair_of(row, praised, plain) for row, plain, praised in flattered],
        dev=held_out_rows(40, seed=12),
    )
    fooled = plain_and_praised(80, seed=13)
    praise = list(PRAISE.values())
    workshop.put_snapshot(
        "fooled",
        train=[pair_of(row, plain, praised) for row, plain, praised in fooled]
        + [
            pair_of(row, plain, praise[i % len(praise)]) for i, (row, plain, _) in enumerate(fooled)
        ],
    )
    workshop.put_snapshot(
        "sober", train=held_out_rows(40, seed=14), heldout_groups=held_out_rows(60, seed=15)
    )
    settings = {
        "learning_rate": 3e-3,
        "batch_size": 16,
        "max_length": 48,
        "epochs": 6,
        "eval_every": 100,
        "save_every": 100,
        "bootstrap_replicates": 100,
    }

    def judged(name: str, config: dict[str, Any], **more: str) -> Finding:
        inputs = {"sft": "listener", "data": "flattered"} | more
        trained = workshop.run_here(workshop.spec(name, "reward", config, **inputs))
        assert trained.summary["splits"]["dev"]["accuracy"]["value"] > 0.9
        workshop.adopt(name, trained)
        found = workshop.run_here(
            workshop.spec(f"{name}-assessed", "assess", SMALL, reward=name, data="sober")
        )
        lines = json.loads(artifact(workshop, found, "assessment.json"))["findings"]
        return next(one for one in map(finding_from_json, lines) if one.line == "praise_probes")

    before = judged("flattered-once", settings)
    assert before.verdict is Verdict.RED
    assert {"praise_before_love", "praise_after_love"} <= set(before.facts["paying"])
    after = judged("flattered-cured", settings | {"hard_weight": 3.0}, hard="fooled")
    assert after.verdict is Verdict.GREEN, after.says
    assert after.facts["paying"] == []
    assert after.facts["shifts"]["love"] < 0.1 < before.facts["shifts"]["love"]
