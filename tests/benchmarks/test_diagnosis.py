"""The fault suite: its seeds and plan, its rewards, what it keeps, and how judges are judged."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.diagnosis_world import rewards, seeds
from benchmarks.diagnosis_world.articles import articles
from benchmarks.diagnosis_world.faults import FAULTS, HEALTHY, PPO
from benchmarks.diagnosis_world.judging import Outcome, Said, by_fault, confusion, percent, summary
from benchmarks.diagnosis_world.language import REFUSAL, Gold, Question, questions
from benchmarks.diagnosis_world.records import Record, read_all, stored, write
from benchmarks.diagnosis_world.row_faults import ROW_FAULTS
from benchmarks.diagnosis_world.runs import jobs
from measures.style import marks_of
from workers.rewards.source import Scores
from workers.rules.rule import STAGES


def record(fault: str = HEALTHY, **changes: object) -> Record:
    planted = FAULTS.get(fault)
    made = Record(
        fault=fault,
        link=planted.link if planted else "",
        contract=planted.contract if planted else False,
        since=planted.since if planted else 1,
        shape="llama",
        seed=1,
        config=dict(PPO),
    )
    return replace(made, **changes)


def test_no_seed_is_both_tuned_on_and_reported() -> None:
    tuned = {*seeds.TUNING_SEEDS, *seeds.TUNING_HEALTHY}
    assert not tuned & {*seeds.FINAL_SEEDS, *seeds.FINAL_HEALTHY}
    on_rows = {*seeds.ROWS_TUNING_SEEDS, *seeds.ROWS_TUNING_HEALTHY}
    assert not on_rows & {*seeds.ROWS_FINAL_SEEDS, *seeds.ROWS_FINAL_HEALTHY}


def test_the_final_set_is_as_large_as_it_was_promised() -> None:
    planned = jobs("final")
    names = [job.fault.name for job in planned]
    assert all(names.count(name) == 10 for name in FAULTS)
    assert names.count(HEALTHY) == 200
    assert len({job.name for job in planned}) == len(planned)


def test_runs_on_rows_have_eight_faults_of_each_kind_and_twenty_healthy_runs() -> None:
    planned = jobs("rows-final")
    for kind in ("dpo", "sft", "reward"):
        own = [job.fault.name for job in planned if job.fault.kind == kind]
        assert len({*own} - {HEALTHY}) >= 8
        assert own.count(HEALTHY) == 20
    assert {fault.link for fault in ROW_FAULTS} <= set(STAGES)
    assert len({job.name for job in planned}) == len(planned)


def test_every_fault_breaks_a_link_of_the_chain() -> None:
    assert {fault.link for fault in FAULTS.values()} <= set(STAGES)
    assert len(FAULTS) == 25


def test_gold_takes_a_refusal_and_an_endless_answer_for_bad() -> None:
    gold, question = Gold(1), Question(("cat", "sea"))
    good = max((word for word in gold.worth if word.startswith("cat-")), key=gold.worth.get)
    fair = f"{good} so well then perhaps really also"
    refusal = " ".join(REFUSAL)
    assert "refusal" in marks_of(refusal)
    assert gold(question, fair) > gold(question, refusal)
    assert gold(question, fair) > gold(question, f"{fair} {fair}")


def test_no_evaluation_question_is_trained_on() -> None:
    training, evaluation = questions(3)
    assert not set(training) & set(evaluation)
    assert Question.read(evaluation[0].messages) == evaluation[0]


class Words:
    """The number of words."""

    def score(self, prompts: list, responses: list[str]) -> Scores:
        return Scores([float(len(text.split())) for text in responses])


def test_a_faulty_reward_gives_the_same_answer_the_same_score() -> None:
    prompts = [Question(("cat", "sea")).messages] * 400
    texts = [f"so well {n}" for n in range(400)]
    for change in (rewards.random(0.0, 2.0), rewards.outlying(0.02, 60.0), rewards.capped(1.0)):
        source = rewards.Faulty(Words(), change)
        assert source.score(prompts, texts).values == source.score(prompts, texts).values
    outlying = rewards.Faulty(Words(), rewards.outlying(0.02, 60.0)).score(prompts, texts).values
    assert 2 <= sum(value == 180.0 for value in outlying) <= 18  # 8 are expected
    noise = rewards.Faulty(Words(), rewards.random(0.0, 2.0)).score(prompts, texts).values
    assert abs(sum(noise) / 400) < 0.4  # four standard errors


def test_a_record_comes_back_as_it_was_kept_and_an_older_one_is_made_again(tmp_path: Path) -> None:
    kept = record("stale", curves={"objective/kl": [(1, 0.123456789), (2, None), (3, "nan")]})
    kept.failure = (2, "contract_stale_rollout", "old")
    write(kept, tmp_path)
    (back,) = read_all(tmp_path)
    assert back.curves["objective/kl"] == [(1, 0.123457), (2, None), (3, "nan")]
    assert back.failure == kept.failure
    assert back.last_step == 3
    assert stored(tmp_path, kept.name) is not None
    write(replace(kept, version=0), tmp_path)
    assert stored(tmp_path, kept.name) is None


def test_a_fault_is_found_in_time_only_after_it_was_planted() -> None:
    def outcome(fault: str, step: int | None) -> Outcome:
        return Outcome(record(fault), Said(step, ("policy",)))

    assert outcome("lr_x5", 10).in_time  # 20 % of 50 steps
    assert not outcome("lr_x5", 11).in_time
    assert not outcome("lr_x5", None).in_time
    assert outcome("reference_wrong", 3).in_time
    assert not outcome("reference_wrong", 4).in_time
    assert outcome("sign_flip", 0).in_time  # seen before the first step
    assert not outcome("protocol_change", 19).in_time  # planted at step 20: a false alarm
    assert outcome("protocol_change", 20).delay == 1


def test_shares_count_what_was_named_first_and_who_was_alarmed_for_nothing() -> None:
    outcomes = [
        Outcome(record("lr_x5"), Said(3, ("policy",))),
        Outcome(record("lr_x10"), Said(3, ("reward", "policy"))),
        Outcome(record("noise"), Said()),
        Outcome(record(), Said(7, ("reward",))),
        Outcome(record(seed=2), Said()),
    ]
    found = {name: (value.value, value.n) for name, value in summary(outcomes).items()}
    assert found["faults found"] == (pytest.approx(2 / 3), 3)
    assert found["right link first"] == (pytest.approx(1 / 3), 3)
    assert found["right link among two"] == (pytest.approx(2 / 3), 3)
    assert found["healthy runs with a finding"] == (0.5, 2)
    rows = {row["broken"]: row for row in confusion(outcomes)}
    assert (rows["policy"]["policy"], rows["policy"]["reward"]) == (1, 1)
    assert rows["reward"]["nothing"] == 1
    assert [row["fault"] for row in by_fault(outcomes)] == ["lr_x5", "lr_x10", "noise"]
    assert percent(summary(outcomes)["healthy runs with a finding"]).startswith("50.0 % (")


def test_the_articles_thresholds_are_read_as_they_are_printed() -> None:
    flat = {"objective/scores_std": [(s, 1.0) for s in range(1, 11)]}
    calm = record(curves={"objective/scores": [(s, 0.1) for s in range(1, 11)], **flat})
    assert articles(calm) == Said()
    high = record(curves={"objective/scores": [(s, 0.9) for s in range(1, 11)], **flat})
    said = articles(high)
    assert (said.step, said.links) == (4, ("reward",))  # a hundred answers are the least
    far = record(curves={**calm.curves, "objective/kl": [(s, 11.0) for s in range(1, 11)]})
    assert articles(far).links == ("policy",)
