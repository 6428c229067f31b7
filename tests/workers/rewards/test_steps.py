"""What a process reward model says of each step, as one score of an answer."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.workers.recipes.language import tiny_llama, user, word_tokenizer
from workers.config.rewards import STEPS, reward_errors
from workers.contract.events import RecipeError
from workers.data.snapshot import Turns
from workers.models.loading import load_scorer, load_step_scorer
from workers.rewards import build
from workers.rewards.build import build_reward, load_reward, without_cache
from workers.rewards.cache import CachedReward, Remembered
from workers.rewards.source import RewardSource
from workers.rewards.steps import NO_STEP, StepsReward, steps_of, together

CALLS = Turns.of(
    [
        {
            "role": "assistant",
            "content": "sun",
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "cat", "arguments": {"dog": 1}},
                }
            ],
        },
        {"role": "tool", "content": "bad\nbad", "tool_call_id": "1"},
        {"role": "assistant", "content": "good"},
    ]
)


def _saved(folder: Path, load: Any) -> Path:
    tiny_llama().save_pretrained(folder / "body")
    word_tokenizer().save_pretrained(folder / "body")
    model = load(folder / "body", word_tokenizer())
    torch.manual_seed(3)
    head: Any = model.score
    torch.nn.init.normal_(head.weight, std=2.0)
    model.save_pretrained(folder / "model")
    word_tokenizer().save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(tmp_path_factory.mktemp("steps"), load_step_scorer)


@pytest.fixture(scope="module")
def source(folder: Path) -> StepsReward:
    found = load_reward(folder, name="reward_model", batch_size=2)
    assert isinstance(found, StepsReward)
    return found


def test_steps_become_one_score_as_the_formulas_have_it() -> None:
    z = [2.0, -1.0, 0.5]
    p = [1 / (1 + math.exp(-one)) for one in z]

    def odds(chance: float) -> float:
        return math.log(chance / (1 - chance))

    expected = (-1.0, 0.5, odds(sum(p) / 3), odds(p[0] * p[1] * p[2]))
    for how, value in zip(STEPS, expected, strict=True):
        assert together(z, how) == pytest.approx(value)
        assert together([1.5], how) == pytest.approx(1.5)  # one step is what it is
        assert math.isfinite(together([900.0, -900.0], how))
        assert math.isfinite(together([900.0] * 3, how))
        assert math.isnan(together([0.0, float("nan")], how))
        assert together([], how) == NO_STEP


def test_lines_paragraphs_and_messages_are_steps_and_blank_ones_are_none() -> None:
    text = "sun runs\n\n  a dog\nbad  \n\n\n"
    assert [one for one, _ in steps_of(text, "lines")] == ["sun runs", "a dog", "bad"]
    assert [one for one, _ in steps_of(text, "paragraphs")] == ["sun runs", "a dog\nbad"]
    assert [role for _, role in steps_of(CALLS, "lines")] == ["assistant", "tool", "assistant"]
    assert steps_of(" \n ", "lines") == []


def test_a_step_is_scored_at_its_end_whatever_stands_behind_it_or_beside_it(
    source: StepsReward,
) -> None:
    prompts, answers = [user("sun")] * 3, ["a dog\nbad", "a dog", "a dog\nbad\nsun runs\ncat"]
    log_odds = source._log_odds(source.encode(prompts, answers))
    assert [len(one) for one in log_odds] == [2, 1, 4]
    assert log_odds[0][0] == pytest.approx(log_odds[1][0], abs=1e-5)
    assert log_odds[2][:2] == pytest.approx(log_odds[0], abs=1e-5)
    scored = source.score(prompts, answers)
    assert scored.values == [min(one) for one in log_odds]
    alone = [source.score(prompts[:1], [one]).values[0] for one in answers]
    assert alone == scored.values
    assert scored.reasons is not None
    worst = log_odds[2].index(min(log_odds[2]))
    told = f"step {worst + 1} of 4 is least likely to be right: "
    assert (scored.reasons[2] or "").startswith(told)


def test_results_of_tools_are_read_and_not_judged(source: StepsReward) -> None:
    (rows,) = source.encode([user("sun")], [CALLS])
    (steps,) = source._log_odds([rows])
    assert len(steps) == 2
    other = Turns.of(
        [CALLS.messages[0], {**CALLS.messages[1], "content": "sun"}, CALLS.messages[2]]
    )
    (changed,) = source._log_odds(source.encode([user("sun")], [other]))
    assert changed[0] == pytest.approx(steps[0], abs=1e-6)  # nothing behind it is known yet
    assert changed[1] != pytest.approx(steps[1], abs=1e-6)


def test_an_answer_without_a_step_is_not_the_best_and_a_long_one_is_counted(
    folder: Path, source: StepsReward
) -> None:
    scored = source.score([user("sun")], ["\n"])
    assert (scored.values, scored.reasons) == ([NO_STEP], ["no step to judge"])
    asked = len(source.encode([user("sun")], ["a dog"])[0][0].ids)
    short = load_reward(folder, name="reward_model", batch_size=2, max_length=asked + 4)
    scored = short.score([user("sun")] * 2, ["a dog\nbad bad bad bad", "a dog"])
    assert scored.cut == [True, False]
    assert scored.values[0] == scored.values[1]  # what was read of it


def _context(folder: Path) -> Any:
    given = SimpleNamespace(input=lambda role: SimpleNamespace(sha256="a" * 64))
    return SimpleNamespace(input_path=lambda role: folder, spec=given)


def _built(folder: Path, **fields: Any) -> RewardSource:
    return build_reward(_context(folder), {"type": "model", **fields}, batch_size=4)


def test_a_runs_reward_is_made_of_it_and_a_cache_tells_the_ways_apart(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = build.cache_of(entries=100, seconds=60.0)
    monkeypatch.setattr(build, "cache_of", lambda **_: shared)
    prompts, answers = [user("sun")] * 2, ["a dog\nbad\nsun", "cat"]
    told = {}
    for how in STEPS:
        cached = _built(folder, steps=how)
        assert isinstance(cached, CachedReward)
        first, again = cached.score(prompts, answers), cached.score(prompts, answers)
        assert (first.cache_hits, again.cache_hits) == (0, 2)
        assert first.values == again.values == without_cache(cached).score(prompts, answers).values
        assert first.reasons == again.reasons
        told[how] = first.values[0]
    assert len(set(told.values())) == len(STEPS)
    assert (
        _built(folder, steps="last", steps_end="paragraphs").score(prompts, answers).cache_hits == 0
    )


def test_what_a_cache_keeps_of_other_models_a_scorer_of_the_release_before_can_read() -> None:
    assert Remembered(1.0).to_json() == "[1.0, {}, null, false, false, null]"
    for one in (Remembered(1.0), Remembered(1.0, reason="step 1 of 2")):
        assert Remembered.from_json(one.to_json()) == one


@pytest.mark.parametrize("field", ["steps", "steps_end"])
def test_how_steps_are_taken_is_refused_by_name_where_the_model_has_none(
    tmp_path: Path, field: str
) -> None:
    plain = _saved(tmp_path, load_scorer)
    value = {"steps": "last", "steps_end": "lines"}[field]
    with pytest.raises(RecipeError, match=rf"reward\.{field}: .* no process reward model"):
        _built(plain, **{field: value})


def test_an_unknown_way_is_refused_with_its_path() -> None:
    (told,) = reward_errors({"type": "model", "steps": "sum"})
    assert told.startswith("reward.steps: ")
