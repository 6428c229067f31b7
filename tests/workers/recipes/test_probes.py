"""What runs that learn from rows measure at each evaluation, and leave for people."""

from dataclasses import replace

import pytest

from tests.workers.recipes.conftest import SUBJECTS, preference_rows
from tests.workers.recipes.language import Outcome, Workshop, assistant, user
from workers.trainers.row_checks import leaked_share, longer_chosen_share, longer_excess

SMALL = {"batch_size": 8, "max_length": 32, "max_steps": 4, "eval_every": 2, "save_every": 100}
SAMPLED = {"sample_prompts": 6, "sample_max_new_tokens": 6}
ANSWERS = {
    "response/length",
    "response/length_to_rows",
    "response/repetition",
    "eval/ended_share",
    "behaviour/refusal_share",
    "behaviour/refusal_share/reference",
    "behaviour/template_share",
    "behaviour/compression",
    "behaviour/copied_share",
}


def demonstration(subject: str, text: str) -> dict:
    return {"messages": user(subject) + assistant(text)}


@pytest.fixture(scope="module")
def dpo(workshop: Workshop) -> Outcome:
    workshop.put_snapshot("probed_known", train=preference_rows(1))
    spec = workshop.spec(
        "probed_dpo",
        "dpo",
        SMALL | SAMPLED | {"learning_rate": 3e-3},
        sft="base",
        data="preferences",
        canaries="probed_known",
        general="demonstrations",
    )
    return workshop.run_here(spec)


def test_dpo_measures_answers_pairs_and_general_rows(dpo: Outcome) -> None:
    names = dpo.metric_names()
    assert names >= ANSWERS | {"objective/kl", "eval/trained_accuracy", "eval/general_loss"}
    assert next(iter(dpo.curve("eval/log_ratio_size").values())) == 0.0
    assert list(dpo.curve("eval/log_ratio_size").values())[-1] > 0.0
    assert next(iter(dpo.curve("eval/canary_pairs").values())) == len(preference_rows(1))
    assert set(dpo.curve("masks/answer_share").values()) == {1.0}
    assert dpo.curve("data/leaked_share") == {0: 0.0}


def test_dpo_keeps_high_low_and_random_answers_and_histograms(dpo: Outcome) -> None:
    buckets = {one["bucket"] for one in dpo.all("Sample")}
    assert buckets >= {"high", "low", "random"}
    by_bucket = {one["bucket"]: one["reward"] for one in dpo.all("Sample")}
    assert by_bucket["high"] >= by_bucket["low"]
    assert all(one["baseline"] is not None for one in dpo.all("Sample") if one["bucket"] == "high")
    assert {one["name"] for one in dpo.all("Histogram")} == {"margin", "response_length"}


def test_sft_is_told_what_is_wrong_with_its_rows_before_the_first_step(workshop: Workshop) -> None:
    same = [demonstration(s, f"{s} runs a good dog sleeps") for s in SUBJECTS]
    workshop.put_snapshot("probed_leaky", train=same, dev=same[:4])
    spec = workshop.spec("probed_sft", "sft", SMALL | SAMPLED, base="base", data="probed_leaky")
    outcome = workshop.run_here(spec)
    assert outcome.metric_names() >= ANSWERS | {"eval/trained_loss"}
    said = {one["rule"]: one for one in outcome.all("Evidence")}
    assert said["rows_leaked"]["step"] == 0
    assert said["rows_leaked"]["value"] == 1.0
    assert {one["bucket"] for one in outcome.all("Sample")} >= {"high", "low"}


def test_an_answer_with_a_blocked_phrase_is_flagged_first(workshop: Workshop) -> None:
    spec = workshop.spec("probed_blocked", "sft", SMALL | SAMPLED, base="base", data="probed_leaky")
    blocked = ("good", "bad", "dog", "cat", "sun", "rain", "runs", "sleeps", "a")
    outcome = workshop.run_here(replace(spec, phrases=blocked))
    asked = [one["reason"] for one in outcome.all("ReviewRequested")]
    assert asked
    assert asked[0].startswith("Blocked phrase")
    assert len(asked) <= 4


def test_shares_of_rows() -> None:
    rows = [(user("cat"), "one", "two"), (user("sun"), "three", "four")]
    turned = [(user("Cat "), "two", "one"), (user("sea"), "one", "two")]
    assert leaked_share(rows, turned) == {"data/leaked_share": 0.5}
    assert leaked_share([], turned) == {}
    assert longer_chosen_share([("long one", "short")] * 15 + [("a", "bb")] * 5) == {
        "data/longer_chosen_share": 0.75
    }
    assert longer_chosen_share([("a", "bb")] * 19) == {}


def test_length_that_is_preferred_beyond_what_people_do() -> None:
    lengths = [(9, 5)] * 4 + [(5, 9)] * 4  # people chose the longer one half of the time
    assert longer_excess([1.0] * 4 + [-1.0] * 4, lengths) == 0.5
    assert longer_excess([1.0] * 8, lengths) == 0.0
    assert longer_excess([1.0] * 7, lengths[:7]) is None
