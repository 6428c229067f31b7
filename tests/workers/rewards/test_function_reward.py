"""Rewards that are Python functions of installed packages."""

import time
from pathlib import Path

import pytest

from tests.workers.recipes.language import user
from workers.config.rewards import (
    FunctionSettings,
    functions_named,
    installed_functions,
    reward_errors,
)
from workers.contract.events import RecipeError
from workers.data.snapshot import Prompt
from workers.rewards.external import FunctionReward

EXAMPLE = Path(__file__).parents[3] / "examples" / "reward_function"
WRONG = """
nothing = "no function"
def breaks(prompts, answers, rows): raise KeyError("unit")
def short(prompts, answers, rows): return [1.0]
def nan(prompts, answers, rows): return [0.0, float("nan")]
def waits(prompts, answers, rows): __import__("time").sleep(90); return [0.0, 0.0]
def words(prompts, answers, rows): return ["1", 0]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two installed packages: the example's function, and functions that do wrong."""
    names = ("nothing", "breaks", "short", "nan", "words", "waits", "absent")
    declared = {"my_rewards": ("brevity",), "wrong_rewards": names}
    (tmp_path / "my_rewards.py").write_text((EXAMPLE / "my_rewards.py").read_text())
    (tmp_path / "wrong_rewards.py").write_text(WRONG)
    for module, functions in declared.items():
        info = tmp_path / f"{module}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        lines = [f"{name} = {module}:{name}" for name in functions]
        (info / "entry_points.txt").write_text("[concord.rewards]\n" + "\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)


PROMPTS = [Prompt(user("sun"), columns={"ignore": True}), Prompt(user("rain"))]
ASKED = [one.messages for one in PROMPTS]


@pytest.mark.usefixtures("install")
def test_a_function_is_given_prompts_answers_and_rows_and_none_withholds() -> None:
    assert "brevity" in installed_functions()
    settings = FunctionSettings(name="brevity", options={"most": 4})
    source = FunctionReward(settings, PROMPTS)
    scores = source.score([*ASKED, user("unknown")], ["a b", "a", ""])
    assert scores.values == [0.0, 0.75, 1.0]
    assert scores.withheld == [True, False, False]
    assert scores.parts == {"brevity": scores.values}
    assert source.score(ASKED[1:], ["a"]).withheld is None


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("breaks", "raised KeyError: 'unit'"),
        ("short", "gave 1 scores for 2 answers"),
        ("nan", "gave nan for row 2, which is no finite number (prompt 'rain')"),
        ("words", "gave '1' for row 1"),
    ],
)
def test_what_a_function_does_wrong_is_named_with_the_row(name: str, told: str) -> None:
    source = FunctionReward(FunctionSettings(name=name), PROMPTS, where="reward.parts[1].source")
    with pytest.raises(RecipeError) as raised:
        source.score(ASKED, ["a", "b"])
    start = f"reward.parts[1].source.name: the reward function '{name}' "
    assert raised.value.message.startswith(start + told)


@pytest.mark.usefixtures("install")
def test_a_function_that_takes_too_long_ends_the_run_in_time() -> None:
    source = FunctionReward(FunctionSettings(name="waits", timeout_s=0.2), PROMPTS)
    started = time.monotonic()
    with pytest.raises(RecipeError) as raised:
        source.score(ASKED, ["a", "b"])
    assert time.monotonic() - started < 80
    assert raised.value.kind == "reward_failed"
    assert "gave nothing within 0.2 s for 2 answers" in raised.value.message


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("brevty", "no reward function 'brevty' is installed on this worker (installed: absent, "),
        ("absent", "does not load: AttributeError"),
        ("nothing", "is no function (wrong_rewards:nothing)"),
    ],
)
def test_a_function_that_is_not_there_is_refused_by_name(name: str, told: str) -> None:
    with pytest.raises(RecipeError) as raised:
        FunctionReward(FunctionSettings(name=name))
    assert told in raised.value.message


def test_the_grammar_takes_a_name_and_options_and_finds_functions_in_sums() -> None:
    assert reward_errors({"type": "function", "name": "os.system"})[0].startswith("reward.name: ")
    assert reward_errors({"type": "function", "name": "a", "options": {"rows": 1}}) == [
        "reward.options.rows: is what every reward function is given"
    ]
    function = {"type": "function", "name": "brevity"}
    both = {"type": "sum", "parts": [{"name": "a", "source": {"type": "model"}}]}
    both["parts"].append({"name": "b", "source": function})
    assert functions_named(both) == [("reward.parts[1].source.name", "brevity")]
