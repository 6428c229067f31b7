"""Sources of rewards, and the report on a reward model."""

import math
from pathlib import Path

import pytest
import torch

from tests.workers.recipes.language import Workshop, tiny_llama, user, word_tokenizer
from workers.contract.events import RecipeError
from workers.data.snapshot import Preference
from workers.models.loading import load_causal, load_scorer, load_tokenizer, save_model
from workers.rewards.model import ModelReward
from workers.rewards.source import TokenCount
from workers.samples import pick
from workers.trainers.reward_reports import pair_report
from workers.trainers.sft import BaseShape, build_model, train_tokenizer

PROMPTS = [user("the cat"), user("the small blue dog"), user("sun")]
RESPONSES = ["runs", "a good big dog sleeps", "rain good"]


def test_a_token_is_counted_as_a_whole_word_in_any_case_up_to_its_cap() -> None:
    texts = ["good Good, goodness (good)", "bad", ""]
    assert TokenCount("good").score(PROMPTS, texts).values == [3.0, 0.0, 0.0]
    assert TokenCount("good", cap=2).score(PROMPTS, texts).values == [2.0, 0.0, 0.0]


@pytest.fixture
def scorer_folder(tmp_path: Path) -> Path:
    tokenizer = word_tokenizer()
    save_model(load_scorer_from(tiny_llama(), tmp_path / "start"), tokenizer, tmp_path / "scorer")
    return tmp_path / "scorer"


def load_scorer_from(model, folder: Path):
    save_model(model, word_tokenizer(), folder)
    torch.manual_seed(1)
    return load_scorer(folder, word_tokenizer())


def test_a_score_depends_on_prompt_and_response_and_not_on_the_batch_around_it(
    scorer_folder: Path,
) -> None:
    together = ModelReward(scorer_folder, batch_size=3).score(PROMPTS, RESPONSES)
    alone = [
        ModelReward(scorer_folder, batch_size=1).score([prompt], [response]).values[0]
        for prompt, response in zip(PROMPTS, RESPONSES, strict=True)
    ]
    assert together.values == pytest.approx(alone, abs=1e-5)
    assert together.parts_of(1) == {"model": together.values[1]}
    other_prompt = ModelReward(scorer_folder).score([PROMPTS[2]], [RESPONSES[0]]).values[0]
    assert other_prompt != pytest.approx(alone[0], abs=1e-4)


def test_what_a_reward_model_could_not_read_to_the_end_is_counted(scorer_folder: Path) -> None:
    source = ModelReward(scorer_folder, max_length=8)
    assert source.score(PROMPTS, RESPONSES).truncated == 1


def test_a_reward_model_may_have_another_tokenizer_than_the_policy(workshop: Workshop) -> None:
    folder = workshop.root / "foreign"
    tokenizer = train_tokenizer(["the cat runs good"] * 3, vocabulary=270, context=64)
    shape = BaseShape(len(tokenizer), width=16, layers=1, heads=2, context=64)
    causal = build_model(tokenizer, shape, seed=0)
    save_model(causal, tokenizer, folder / "base")
    save_model(load_scorer(folder / "base", tokenizer), tokenizer, folder / "scorer")
    workshop._put("foreign", folder / "scorer", "checkpoint")
    spec = workshop.spec(
        "foreign_reward",
        "ppo",
        {
            "steps": 1,
            "batch_size": 8,
            "minibatch_size": 4,
            "max_prompt_length": 16,
            "max_new_tokens": 6,
            "eval_prompts": 4,
            "audit_samples": 1,
            "reward_check": "off",  # this one never learned what is better
        },
        sft="base",
        prompts="prompts",
        reward="foreign",
        judge="foreign",
    )
    outcome = workshop.run_here(spec)
    scores = outcome.curve("eval/held_out_score")
    assert scores[1] == pytest.approx(outcome.curve("eval/score")[1])  # one model in both roles
    assert math.isfinite(scores[1])


def test_a_folder_that_is_no_model_and_weights_that_are_no_numbers_are_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecipeError) as raised:
        load_causal(tmp_path / "empty")
    assert raised.value.kind == "model_unavailable"
    model = tiny_llama()
    with torch.no_grad():
        model.model.norm.weight[3] = torch.nan
    save_model(model, word_tokenizer(), tmp_path / "broken")
    with pytest.raises(RecipeError, match=r"model\.norm\.weight") as raised:
        load_causal(tmp_path / "broken")
    assert raised.value.kind == "non_finite_weights"


def test_a_tokenizer_without_pad_token_or_template_is_given_both(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.pad_token = None
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.pad_token == loaded.eos_token
    assert loaded.padding_side == "left"
    assert loaded.apply_chat_template(user("hi"), tokenize=False, add_generation_prompt=True) == (
        "user: hi\nassistant: "
    )


# --- the report ---


def _rows(n: int, clusters: int, **fields) -> list[Preference]:
    return [
        Preference(user("p"), "long answer", "short", cluster=f"c{i % clusters}", **fields)
        for i in range(n)
    ]


def _report(rows: list[Preference], margins: list[float], chosen: list[int], rejected: list[int]):
    return pair_report(
        rows,
        margins,
        chosen_lengths=chosen,
        rejected_lengths=rejected,
        truncated=0,
        replicates=200,
        seed=0,
    )


def test_ties_count_half_and_length_is_judged_on_the_same_rows() -> None:
    report = _report(_rows(4, 4), [1.0, -1.0, 0.0, 2.0], [9, 9, 1, 5], [1, 1, 9, 5])
    assert report.accuracy.value == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert report.length_only.value == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert report.difference.value == pytest.approx(0.0)
    # the model prefers the longer answer of the pairs that differ: yes, no, tie
    assert report.longer_preferred == pytest.approx((1 + 0 + 0.5) / 3)


def test_fewer_than_ten_clusters_are_too_few_and_it_says_so() -> None:
    few = _report(_rows(60, 9), [1.0, -1.0] * 30, [2] * 60, [1] * 60)
    assert few.accuracy.low is None
    assert few.accuracy.no_interval == "too_few unit=clusters n=9 least=10"
    enough = _report(_rows(60, 10), [1.0] * 41 + [-1.0] * 19, [2] * 60, [1] * 60)
    assert enough.accuracy.low is not None


def test_where_responses_recur_the_interval_is_over_them_and_not_over_rows() -> None:
    rows = [
        Preference(user("p"), "a", "b", cluster="one", units=(f"u{i % 12}", f"u{(i + 1) % 12}"))
        for i in range(60)
    ]
    report = _report(rows, [1.0, 1.0, -1.0] * 20, [2] * 60, [1] * 60)
    assert report.accuracy.n_clusters == 12
    assert report.accuracy.low is not None


# --- the audit ---


def test_the_audit_takes_highest_lowest_and_random_without_taking_any_twice() -> None:
    rewards = [float(i) for i in range(20)]
    picked = pick(rewards, 3, seed=0)
    assert [i for bucket, i in picked if bucket == "high"] == [19, 18, 17]
    assert [i for bucket, i in picked if bucket == "low"] == [0, 1, 2]
    assert len({i for _, i in picked}) == 9
    assert pick(rewards, 3, seed=0) == picked
    assert pick(rewards, 3, seed=1) != picked


@pytest.mark.parametrize("available", [1, 2, 3, 4])
def test_an_audit_of_few_answers_takes_what_there_is(available: int) -> None:
    picked = pick([0.5] * available, 5, seed=0)
    assert len({i for _, i in picked}) == len(picked) <= available
    assert picked[0][0] == "high"
