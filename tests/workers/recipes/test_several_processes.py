"""Trainings on two processes beside the same on one: the same step, the same figures, one report.

All runs on two ranks share one start (`several.py`), since importing costs more than they do; what
one process gives for each is trained here.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.workers.recipes import several
from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import ROOT, Outcome, Workshop, assistant, user
from workers.contract.events import RecipeError
from workers.contract.jobs import (
    ACCELERATE,
    DATA,
    FSDP,
    TORCHRUN,
    ZERO2,
    ZERO3,
    JobSpec,
    spec_to_json,
)
from workers.launchers import Machine, rank_environment, trainer_argv

pytestmark = [
    pytest.mark.spread,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]

PAIRS = {
    "learning_rate": 1e-3,
    "batch_size": 8,
    "max_length": 32,
    "max_steps": 4,
    "epochs": 4,
    "log_every": 1,
    "eval_every": 2,
    "save_every": 2,
    "warmup_share": 0.0,
}
SFT = PAIRS | {"max_length": 64, "sample_prompts": 0, "imitation_prompts": 0}
DPO = PAIRS | {"sample_prompts": 2, "sample_max_new_tokens": 4}
GRPO = {
    "reward": {"type": "token_count", "token": "good"},
    "steps": 3,
    "batch_size": 16,
    "group_size": 4,
    "rollout_chunk": 4,
    "microbatch_size": 8,
    "max_prompt_length": 16,
    "max_new_tokens": 4,
    "lora_rank": 0,
    "learning_rate": 1e-3,
    "eval_every": 2,
    "eval_prompts": 4,
    "save_every": 2,
    "audit_samples": 1,
    "baseline_answers": 1,
    "reward_check": "off",
    "update_epochs": 1,
    "entropy_coef": 0.01,
}
RLOO = GRPO | {"loss_type": "rloo", "scale_rewards": "none", "entropy_coef": 0.0}
# One group, of which at some steps no answer has a token that is rewarded.
SILENT = GRPO | {
    "missing_eos_penalty": 0.0,
    "kl_coef": 0.0,
    "force_zero_kl": True,
    "entropy_coef": 0.0,
    "batch_size": 4,
    "rollout_chunk": 2,
    "microbatch_size": 2,
    "max_new_tokens": 2,
    "steps": 4,
}
INPUTS = {
    "sft": {"base": "base", "data": "uneven"},
    "reward": {"sft": "base", "data": "preferences"},
    "dpo": {"sft": "base", "data": "preferences"},
    "kto": {"sft": "base", "data": "answers"},
    "grpo": {"sft": "base", "prompts": "prompts"},
}


@dataclass(frozen=True)
class Job:
    """What runs on two ranks. `goes_on` from the first checkpoint of the job of that name."""

    kind: str
    layout: str
    config: Mapping[str, Any]
    goes_on: str | None = None
    seed: int = 0
    broken: int | None = None  # a step whose loss is no number on the second rank


JOBS = {
    # Odd batches in parts of unequal number: what is divided by what would show.
    "adapters": Job(
        "sft", DATA, SFT | {"lora_rank": 4, "batch_size": 5, "max_tokens_per_batch": 40}
    ),
    "packed": Job("sft", DATA, SFT | {"packing": True, "batch_size": 7, "lora_rank": 4}),
    "packed_fsdp": Job("sft", FSDP, SFT | {"packing": True, "batch_size": 7}),
    "packed_zero3": Job(
        "sft", ZERO3, SFT | {"packing": True, "batch_size": 7, "max_tokens_per_batch": 80}
    ),
    "groups": Job("grpo", DATA, GRPO),
    "groups_zero2": Job("grpo", ZERO2, GRPO),
    "groups_fsdp": Job("grpo", FSDP, GRPO),
    "groups_fsdp_again": Job("grpo", FSDP, GRPO, goes_on="groups_fsdp"),
    "groups_fsdp_adapters": Job("grpo", FSDP, GRPO | {"lora_rank": 4, "steps": 2}),
    "groups_zero3": Job("grpo", ZERO3, GRPO),
    "groups_zero3_adapters": Job("grpo", ZERO3, GRPO | {"lora_rank": 4}),
    "groups_zero3_again": Job(
        "grpo", ZERO3, GRPO | {"lora_rank": 4}, goes_on="groups_zero3_adapters"
    ),
    "leave_one_out": Job("grpo", DATA, RLOO),
    "leave_one_out_fsdp": Job("grpo", FSDP, RLOO),
    "answers": Job("kto", DATA, DPO | {"batch_size": 5, "max_tokens_per_batch": 60}),
    "answers_fsdp": Job("kto", FSDP, DPO | {"batch_size": 5, "max_tokens_per_batch": 60}),
    "answers_zero3": Job("kto", ZERO3, DPO | {"lora_rank": 4}),
    "silent_zero2": Job("grpo", ZERO2, SILENT, seed=7),
    "silent_zero3": Job("grpo", ZERO3, SILENT, seed=7),
    "reward_zero2": Job("reward", ZERO2, PAIRS | {"patience": 1}),
    "reward_zero3": Job("reward", ZERO3, PAIRS | {"lora_rank": 4, "patience": 1}),
    "dpo_zero2": Job("dpo", ZERO2, DPO | {"max_tokens_per_batch": 60}),
    "sft_zero3": Job("sft", ZERO3, SFT | {"batch_size": 5, "max_tokens_per_batch": 40}),
    "split": Job("dpo", FSDP, DPO | {"max_tokens_per_batch": 60}),
    "split_again": Job("dpo", FSDP, DPO | {"max_tokens_per_batch": 60}, goes_on="split"),
    "best": Job("reward", FSDP, PAIRS | {"patience": 1}),
    "broken_zero2": Job("sft", ZERO2, SFT, broken=3),
    "zero3": Job("dpo", ZERO3, DPO | {"lora_rank": 4}),
    "zero3_again": Job("dpo", ZERO3, DPO | {"lora_rank": 4}, goes_on="zero3"),
}


@pytest.fixture(scope="module")
def shop(workshop: Workshop) -> Workshop:
    rows = [
        {"messages": user(subject) + assistant(f"{subject} runs " * (1 + i % 3) + "a good dog")}
        for i, subject in enumerate(SUBJECTS)
    ]
    workshop.put_snapshot("uneven", train=rows[::2] + rows[1:8:2], dev=rows[9::2])
    return workshop


@pytest.fixture(scope="module")
def together(shop: Workshop) -> dict[str, Outcome]:
    """The jobs on two ranks, by name."""
    specs = {name: _put(shop, name, job) for name, job in JOBS.items()}
    for name, job in JOBS.items():
        folder = shop.folder(specs[name])
        if job.goes_on:
            (folder / several.RESUMES).write_text(str(shop.folder(specs[job.goes_on])))
        if job.broken:
            (folder / several.BROKEN).write_text(str(job.broken))
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    folders = [str(shop.folder(spec)) for spec in specs.values()]
    log = shop.root / "several.txt"
    with log.open("wb") as output:
        subprocess.run(
            [*start, "-m", "tests.workers.recipes.several", *folders],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=900,
        )
    return {name: _read(shop.folder(spec), log) for name, spec in specs.items()}


def _put(shop: Workshop, name: str, job: Job, run: str = "two") -> JobSpec:
    spec = shop.spec(f"{run}_{name}", job.kind, job.config, seed=job.seed, **INPUTS[job.kind])
    spec = replace(spec, layout=job.layout, processes=2, launcher=TORCHRUN)
    folder = shop.folder(spec)
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(spec_to_json(spec)))
    return spec


def _read(folder: Path, log: Path) -> Outcome:
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else ['{"type": "NeverStarted"}']
    return Outcome([json.loads(line) for line in lines], log.read_text())


def alone(shop: Workshop, name: str) -> Outcome:
    """The same on one process."""
    job = JOBS[name]
    spec = shop.spec(f"one_{name}", job.kind, job.config, seed=job.seed, **INPUTS[job.kind])
    if job.broken is None:
        return shop.run_here(spec)
    with several.broken_at(job.kind, job.broken):
        return shop.run_here(spec)


def differing(one: Outcome, two: Outcome, tolerance: float = 2e-5) -> Iterator[str]:
    """Metrics that are not those of one process, but for rounding."""
    for name in sorted(one.repeated_names() | two.repeated_names()):
        expected, found = numbers(one, name), numbers(two, name)
        if found != pytest.approx(expected, abs=tolerance, rel=tolerance, nan_ok=True):
            yield f"{name}: {expected} and {found}"


def numbers(outcome: Outcome, name: str) -> dict[int, float]:
    """A curve, also of what travels as a word (nan) or was not measured."""
    return {s: math.nan if v is None else float(v) for s, v in outcome.curve(name).items()}


def weights(shop: Workshop, outcome: Outcome) -> dict[str, torch.Tensor]:
    saved = outcome.all("CheckpointSaved")[-1]
    folder = shop.store.get_tree(saved["uri"], sha256=saved["sha256"], cache=shop.root / "cache")
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.goes_on is None])
def test_two_processes_take_the_steps_of_one(
    shop: Workshop, together: dict[str, Outcome], name: str
) -> None:
    one, two = alone(shop, name), together[name]
    assert two.summary["step"] == one.summary["step"]
    assert list(differing(one, two)) == []
    expected, found = weights(shop, one), weights(shop, two)  # a model folder, whole
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    layout = JOBS[name].layout
    lay = json.loads((shop.root / "work" / f"two_{name}" / "1" / several.LAY).read_text())
    assert lay == {FSDP: ["parted"], ZERO3: ["away"]}.get(layout, ["whole"])
    # One rank reports: every event comes once, and in one order.
    assert [e["seq"] for e in two.envelopes] == list(range(1, len(two.envelopes) + 1))
    told = [(e["type"], e["event"].get("step")) for e in one.envelopes if e["type"] != "Progress"]
    kinds = {"Alert", "Evidence", "Sample", "CheckpointSaved"}
    seen = [(e["type"], e["event"].get("step")) for e in two.envelopes]
    assert [t for t in seen if t[0] in kinds] == [t for t in told if t[0] in kinds]
    if JOBS[name].config.get("kl_coef") == 0:  # steps that taught something, and steps that did not
        assert set(numbers(one, "grpo/zero_variance_share").values()) == {0.0, 1.0}
    if JOBS[name].broken:
        assert [a["step"] for a in two.all("Alert") if a["rule"] == "non_finite"] == [3]


def test_accelerate_launch_gives_the_figures_of_torchrun(
    shop: Workshop, together: dict[str, Outcome]
) -> None:
    spec = replace(_put(shop, "split", JOBS["split"], "launched"), launcher=ACCELERATE)
    folder, here = shop.folder(spec), Machine(gpus=[])
    job, log = folder / "job.json", folder / "log.txt"
    job.write_text(json.dumps(spec_to_json(spec)))
    with (
        log.open("wb") as output,
        subprocess.Popen(
            trainer_argv(spec, job, folder, silence_s=900, here=here),
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | rank_environment(spec, here),
            stdin=subprocess.PIPE,  # at whose end trainers would leave
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as launched,
    ):
        try:
            assert launched.wait(timeout=600) == 0, log.read_text()
        finally:
            launched.kill()
    assert list(differing(together["split"], _read(folder, log), tolerance=1e-6)) == []


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.goes_on])
def test_a_training_whose_weights_are_split_goes_on_where_it_was(
    shop: Workshop, together: dict[str, Outcome], name: str
) -> None:
    whole, again = together[str(JOBS[name].goes_on)], together[name]
    assert again.summary["step"] == whole.summary["step"]
    for metric in sorted(again.repeated_names()):
        later = {s: v for s, v in numbers(whole, metric).items() if s > 2}
        assert numbers(again, metric) == pytest.approx(later, rel=1e-5, abs=1e-6), metric
    assert min(again.curve("loss")) == 3


@pytest.mark.parametrize("name", ["split", "broken_zero2"])
def test_one_process_goes_on_from_a_checkpoint_of_two(
    shop: Workshop, together: dict[str, Outcome], name: str
) -> None:
    job, two = JOBS[name], together[name]
    saved = two.all("CheckpointSaved")[0]
    first = Outcome([{"type": "CheckpointSaved", "event": saved}])
    spec = shop.spec(
        f"fewer_{name}", job.kind, job.config, resume=shop.resume(first), **INPUTS[job.kind]
    )
    if job.broken:
        with several.broken_at(job.kind, job.broken):
            again = shop.run_here(spec)
    else:
        again = shop.run_here(spec)
    for step in (3, 4):
        expected = pytest.approx(numbers(two, "loss")[step], rel=1e-5, nan_ok=True)
        assert numbers(again, "loss")[step] == expected


@pytest.mark.parametrize(
    ("kind", "layout", "config", "words"),
    [
        (
            "grpo",
            ZERO3,
            GRPO | {"lora_rank": 4, "gradient_checkpointing": "on"},
            "gradient_checkpointing: .*lora_rank.*'zero3'",
        ),
        (
            "sft",
            ZERO3,
            SFT | {"lora_rank": 4, "gradient_checkpointing": True},
            "gradient_checkpointing: .*lora_rank.*'zero3'",
        ),
    ],
)
def test_what_a_layout_cannot_do_is_refused_before_anything_is_trained(
    shop: Workshop, kind: str, layout: str, config: dict[str, Any], words: str
) -> None:
    spec = shop.spec(f"refused_{kind}_{layout}", kind, config, **INPUTS[kind])
    with pytest.raises(RecipeError, match=words) as raised:
        shop.run_here(replace(spec, layout=layout, processes=2, launcher=TORCHRUN))
    assert raised.value.kind == "bad_config"
