"""`num_tokens`: how many tokens a run was trained on, counted here by what its model is given."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.workers.recipes.conftest import PLANTED_PPO
from tests.workers.recipes.language import Workshop
from tests.workers.recipes.test_guarded_trainings import CONFIGS, INPUTS, TRAINERS
from workers.artifacts import state_of
from workers.contract.jobs import Resume
from workers.grpo.trainer import Trainer as GroupTrainer
from workers.ppo import update
from workers.trainers.guarded_trainer import GuardedTrainer
from workers.trainers.kto import AnswerTrainer

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

ALL_CONFIGS = CONFIGS | {"kto": CONFIGS["dpo"]}
ALL_INPUTS = INPUTS | {"kto": {"sft": "base", "data": "answers"}}
ALL_TRAINERS = TRAINERS | {"kto": AnswerTrainer}
PPO = PLANTED_PPO | {"steps": 4, "eval_every": 2, "update_kl_target": 9.0, "update_epochs": 2}
PPO_INPUTS = {"sft": "base", "prompts": "prompts"}


def tokens_of(part: dict[str, Any]) -> int:
    """By the masks of what a model reads, each text as often as a row of the step has it."""
    if "completion_mask" in part:
        return int(part["prompt_mask"].sum() + part["completion_mask"].sum())
    read = [
        first["attention_mask"] if isinstance(first, dict) else rest[0]
        for first, *rest in part["rectangles"]
    ]
    lengths = [int(n) for mask in read for n in mask.sum(1)]
    places = part.get("places", range(len(lengths)))
    return sum(lengths[int(place)] for place in places)


@contextmanager
def counted(kind: str) -> Iterator[dict[int, int]]:
    """{step: tokens that its passes read}, while inside."""
    found: dict[int, int] = defaultdict(int)
    trainer = ALL_TRAINERS[kind]
    own = trainer.compute_loss

    def compute_loss(self: GuardedTrainer, model: Any, inputs: Any, *args: Any, **k: Any) -> Any:
        if model.training:
            found[self.state.global_step + 1] += tokens_of(inputs)
        return own(self, model, inputs, *args, **k)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "compute_loss", compute_loss)
        yield found


def up_to(found: dict[int, int], step: int) -> int:
    return sum(tokens for at, tokens in found.items() if at <= step)


@pytest.mark.parametrize("kind", sorted(ALL_TRAINERS))
def test_every_point_says_how_many_tokens_the_steps_before_it_read_without_padding(
    workshop: Workshop, kind: str
) -> None:
    config = ALL_CONFIGS[kind]
    with counted(kind) as found:
        outcome = workshop.run_here(workshop.spec(f"read_{kind}", kind, config, **ALL_INPUTS[kind]))
    curve = outcome.curve("num_tokens")
    assert curve == {step: up_to(found, step) for step in range(7)}
    assert len(set(found.values())) > 1  # texts of many lengths: padding would show
    for name in outcome.repeated_names():  # over tokens no point is without a place
        assert set(outcome.curve(name)) <= set(curve), name
    assert outcome.curve("epoch")[6] > 0


def test_a_resumed_run_counts_no_step_twice_nor_what_was_lost(workshop: Workshop) -> None:
    """Killed at step 5, it goes on from the checkpoint of step 4."""
    config, inputs = CONFIGS["sft"], INPUTS["sft"]
    whole = workshop.run_here(workshop.spec("tokens_whole", "sft", config, **inputs))
    first = workshop.run_here(workshop.spec("tokens_cut", "sft", config, **inputs))
    saved = next(one for one in first.all("CheckpointSaved") if one["step"] == 4)
    resume = Resume(saved["uri"], saved["sha256"], saved["step"])
    again = workshop.spec("tokens_cut", "sft", config, attempt=2, resume=resume, **inputs)
    second = workshop.run_here(again).curve("num_tokens")
    wanted = whole.curve("num_tokens")
    assert second == {step: wanted[step] for step in (5, 6)}


def older(workshop: Workshop, tmp_path: Path, saved: dict[str, Any], file: str) -> Resume:
    """A checkpoint as versions without a count left it."""
    cache, flat = tmp_path / "cache", tmp_path / "older"
    folder = workshop.store.get_tree(saved["uri"], sha256=saved["sha256"], cache=cache)
    shutil.copytree(folder, flat)
    path = state_of(flat) / file
    kept = json.loads(path.read_text())
    kept.pop("tokens", None)
    if "num_input_tokens_seen" in kept:
        kept["num_input_tokens_seen"] = 0
    path.write_text(json.dumps(kept))
    sha256, _ = workshop.store.put_tree(flat, f"older/{tmp_path.name}")
    return Resume(f"older/{tmp_path.name}", sha256, saved["step"])


@pytest.mark.parametrize(
    ("kind", "file"), [("dpo", "trainer_state.json"), ("ppo", "training_state.json")]
)
def test_a_run_whose_first_steps_nobody_counted_reports_no_count_ever_after(
    workshop: Workshop, tmp_path: Path, kind: str, file: str
) -> None:
    config = PPO | {"save_every": 1} if kind == "ppo" else CONFIGS[kind]
    inputs = PPO_INPUTS if kind == "ppo" else INPUTS[kind]
    name = f"uncounted_{kind}"
    first = workshop.run_here(workshop.spec(name, kind, config, **inputs), after_step=2)
    resume = older(workshop, tmp_path, first.all("CheckpointSaved")[-1], file)
    spec = workshop.spec(name, kind, config, attempt=2, resume=resume, **inputs)
    second = workshop.run_here(spec, after_step=3)
    spec = workshop.spec(name, kind, config, attempt=3, resume=workshop.resume(second), **inputs)
    third = workshop.run_here(spec)
    assert second.curve("epoch")
    assert third.curve("epoch")
    assert second.curve("num_tokens") == third.curve("num_tokens") == {}


def test_the_members_of_an_ensemble_count_on(workshop: Workshop) -> None:
    config = CONFIGS["reward"] | {"members": 2, "max_steps": 3}
    spec = workshop.spec("tokens_members", "reward", config, **INPUTS["reward"])
    with counted("reward") as found:
        outcome = workshop.run_here(spec)
    whole = outcome.curve("num_tokens")
    assert whole[6] == sum(found.values())
    assert sorted(whole.values()) == list(whole.values())
    saved = next(one for one in outcome.all("CheckpointSaved") if one["step"] == 5)
    resume = Resume(saved["uri"], saved["sha256"], saved["step"])
    spec = workshop.spec(
        "tokens_members", "reward", config, attempt=2, resume=resume, **INPUTS["reward"]
    )
    assert workshop.run_here(spec).curve("num_tokens") == {6: whole[6]}


def test_answers_of_a_batch_count_once_for_each_step_that_reads_them(workshop: Workshop) -> None:
    config = CONFIGS["grpo"] | {"update_epochs": 2, "eval_every": 2}
    spec = workshop.spec("tokens_twice", "grpo", config, **INPUTS["grpo"])
    curve = workshop.run_here(spec).curve("num_tokens")
    each = [curve[step] - curve.get(step - 1, 0) for step in range(1, 7)]
    assert each[0::2] == each[1::2]
    assert GroupTrainer.step_tokens is not GuardedTrainer.step_tokens


def test_ppo_counts_what_its_passes_over_the_answers_read(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    own = update._Learner.gradients

    def gradients(self: Any, rows: Tensor) -> Any:
        given = self.rollout.responses
        read = zip(
            given.prompt_mask[rows].tolist(), given.response_mask[rows].tolist(), strict=True
        )
        found.append(sum(sum(prompt) + sum(answer) for prompt, answer in read))
        return own(self, rows)

    monkeypatch.setattr(update._Learner, "gradients", gradients)
    outcome = workshop.run_here(workshop.spec("tokens_ppo", "ppo", PPO, **PPO_INPUTS))
    curve = outcome.curve("num_tokens")
    assert curve[0] == 0
    assert curve[4] == sum(found)
    assert len(found) == 4 * 2 * 2  # steps, passes, minibatches
    assert outcome.curve("epoch") == {step: step * 32 / 16 for step in range(5)}
