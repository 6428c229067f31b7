"""PPO in two processes is PPO in one: the same steps, to rounding, whatever is split.

One `torchrun` of two CPU processes does all jobs in turn; their counterparts in one process run
here.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.workers.recipes.conftest import PLANTED_PPO, SUBJECTS
from tests.workers.recipes.in_ranks import planted
from tests.workers.recipes.language import ROOT, Outcome, Workshop, tiny_llama, user
from workers.contract.jobs import (
    DATA,
    FSDP,
    ONE,
    PLAIN,
    TORCHRUN,
    ZERO2,
    ZERO3,
    JobSpec,
    Resume,
    spec_to_json,
)

pytestmark = pytest.mark.spread

ROUNDING = 1e-4  # relative, over three steps of sums in another order; seen: under 1e-6
SMALL = PLANTED_PPO | {
    "steps": 3,
    "batch_size": 12,
    "minibatch_size": 4,
    "update_epochs": 2,
    "rollout_chunk": 4,  # three chunks for two ranks
    "eval_every": 2,
    "eval_prompts": 4,
    "save_every": 2,
    "baseline_answers": 2,
    "kl_controller": "adaptive",
    "kl_target": 0.5,
}
# What is trained, by name: between them adapters and all weights, one trunk and two, a critic that
# learns alone at first, parts of which one rank has more than the other, and gradients that are
# dropped, before others of the same update (a ratio over its limit) or after all (the KL stop).
TRAINED = {
    "weights": {"lora_rank": 0, "max_tokens_per_batch": 40},
    "weights_two_trunks": {
        "lora_rank": 0,
        "critic": "separate",
        "gradient_checkpointing": "on",
        "ratio_limit": 1.15,
    },
    "adapters": {
        "lora_rank": 4,
        "critic_warmup_steps": 1,
        "max_tokens_per_batch": 40,
        "update_kl_target": 0.002,
    },
    "adapters_two_trunks": {"lora_rank": 4, "critic": "separate"},
}
RUNS = {  # what is trained to its end in which layout, and how
    "fsdp": ("weights", FSDP, ""),
    "data_two_trunks": ("weights_two_trunks", DATA, ""),
    "fsdp_adapters": ("adapters", FSDP, ""),
    "data_adapters": ("adapters_two_trunks", DATA, ""),
    "zero2": ("weights_two_trunks", ZERO2, ""),
    "zero2_adapters": ("adapters", ZERO2, ""),
    "zero3": ("weights_two_trunks", ZERO3, "small"),
    "zero3_adapters": ("adapters", ZERO3, "small"),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    shop = Workshop(tmp_path_factory.mktemp("ranks"))
    shop.put_model("base", tiny_llama(width=16))
    shop.put_snapshot("prompts", train=[{"prompt": user(subject)} for subject in SUBJECTS])
    return shop


def spec_of(shop: Workshop, run: str, layout: str, config: Mapping[str, Any]) -> JobSpec:
    spec = shop.spec(run, "ppo", SMALL | config, sft="base", prompts="prompts")
    several = layout != ONE
    return replace(
        spec,
        layout=layout,
        launcher=TORCHRUN if several else PLAIN,
        processes=2 if several else 1,
    )


@pytest.fixture(scope="module")
def in_one(shop: Workshop) -> dict[str, Outcome]:
    """The counterparts, by what is trained."""
    return {
        name: shop.run_here(spec_of(shop, f"{name}_one", ONE, config))
        for name, config in TRAINED.items()
    }


@pytest.fixture(scope="module")
def in_two(shop: Workshop) -> dict[str, Outcome]:
    """Everything that two ranks do in this file, by run."""
    jobs: list[dict[str, Any]] = []

    def add(run: str, layout: str, config: Mapping[str, Any], **more: Any) -> None:
        spec = spec_of(shop, run, layout, config)
        if "resumes" in more:
            spec = replace(spec, attempt=2)
        jobs.append({"spec": spec_to_json(spec), **more})

    for run, (name, layout, plant) in RUNS.items():
        add(run, layout, TRAINED[name], plant=plant)
    add("stopped", DATA, TRAINED["weights"], after=1)
    for layout in (FSDP, ZERO2, ZERO3):
        add(f"resumed_{layout}", layout, TRAINED["weights"], resumes="stopped")
    add("stopped_zero3", ZERO3, TRAINED["weights"], after=1)
    add("resumed_data", DATA, TRAINED["weights"], resumes="stopped_zero3")
    add("cancelled", DATA, TRAINED["adapters"], after=1, command="cancel")
    add("no_draw", DATA, TRAINED["weights"], plant="draw")
    add("apart", DATA, TRAINED["weights"], plant="apart")
    for layout in (ZERO2, ZERO3):
        add(f"overflow_{layout}", layout, TRAINED["adapters_two_trunks"], plant="gradient")
    add("refused", ONE, TRAINED["weights"])
    file = shop.root / "jobs.json"
    file.write_text(json.dumps(jobs))
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*argv, "-m", "tests.workers.recipes.in_ranks", str(shop.root), str(file)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    outcomes = {}
    for job in jobs:
        spec = job["spec"]
        folder = shop.root / "work" / spec["run"] / str(spec["attempt"])
        lines = (folder / "events.jsonl").read_text().splitlines()
        outcomes[spec["run"]] = Outcome([json.loads(line) for line in lines])
    return outcomes


def differing(wanted: Outcome, found: Outcome, *, after: int = -1) -> dict[str, Any]:
    """Figures of which a point from step `after` on is missing, too many, or off by more than
    rounding."""
    off = {}
    for name in wanted.repeated_names() | found.repeated_names():
        one, other = (
            {s: math.inf if v is None else v for s, v in outcome.curve(name).items() if s > after}
            for outcome in (wanted, found)
        )
        if one != pytest.approx(other, rel=ROUNDING, abs=ROUNDING, nan_ok=True):
            off[name] = (one, other)
    return off


@pytest.mark.parametrize("run", RUNS)
def test_two_ranks_take_the_steps_of_one(
    run: str, in_one: dict[str, Outcome], in_two: dict[str, Outcome]
) -> None:
    wanted, found = in_one[RUNS[run][0]], in_two[run]
    assert found.ending == "Finished", found.envelopes[-1]
    assert differing(wanted, found) == {}
    assert wanted.curve("update/steps")[3] > 0  # something was learned at all
    assert max(wanted.curve("objective/kl_per_token").values()) > 10 * ROUNDING
    assert found.summary["last"] == pytest.approx(wanted.summary["last"], rel=ROUNDING)
    both = [[event["step"] for event in o.all("CheckpointSaved")] for o in (wanted, found)]
    assert both[0] == both[1]


def test_gradients_were_dropped_before_others_that_stepped(in_one: dict[str, Outcome]) -> None:
    skipping, stopping = in_one["weights_two_trunks"], in_one["adapters"]
    assert skipping.curve("update/skipped_minibatches")[1] > 0
    assert skipping.curve("update/steps")[2] > 0
    assert stopping.curve("update/stopped_by_kl") == {1: 0.0, 2: 1.0, 3: 0.0}


@pytest.mark.parametrize("run", RUNS)
def test_a_checkpoint_of_two_ranks_is_whole(
    run: str, shop: Workshop, in_one: dict[str, Outcome], in_two: dict[str, Outcome]
) -> None:
    one, other = (
        Path(shop.store.local_path(outcome.all("CheckpointSaved")[-1]["uri"]))
        for outcome in (in_one[RUNS[run][0]], in_two[run])
    )
    files = {str(path.relative_to(one)) for path in one.rglob("*.safetensors")}
    assert files == {str(path.relative_to(other)) for path in other.rglob("*.safetensors")}
    assert "resume/training_state.safetensors" in files
    for file in files:
        wanted, found = load_file(one / file), load_file(other / file)
        assert wanted.keys() == found.keys(), file
        for tensor in wanted:
            # A step of AdamW is as long for a gradient of 1e-9 as for one of 1, so rounding may
            # turn a weight that hardly counts around: by less than the three steps' length.
            assert (wanted[tensor] - found[tensor]).abs().max() < 1e-3, (file, tensor)


@pytest.mark.parametrize(
    ("stopped", "resumed"),
    [
        ("stopped", "resumed_fsdp"),
        ("stopped", "resumed_zero2"),
        ("stopped", "resumed_zero3"),
        ("stopped_zero3", "resumed_data"),
    ],
)
def test_a_command_that_one_rank_sees_stops_all_and_another_layout_goes_on_from_there(
    stopped: str, resumed: str, in_one: dict[str, Outcome], in_two: dict[str, Outcome]
) -> None:
    at = in_two[stopped].all("CheckpointSaved")[-1]["step"]
    assert 0 < at < 3
    assert differing(in_one["weights"], in_two[resumed], after=at) == {}
    assert in_two[resumed].summary["step"] == 3


@pytest.mark.parametrize("run", ["fsdp", "zero2_adapters"])
def test_one_process_goes_on_from_what_was_split(
    run: str, shop: Workshop, in_one: dict[str, Outcome], in_two: dict[str, Outcome]
) -> None:
    name = RUNS[run][0]
    saved = in_two[run].all("CheckpointSaved")[0]
    assert saved["step"] < 3
    spec = spec_of(shop, f"alone_{run}", ONE, TRAINED[name])
    resume = Resume(saved["uri"], saved["sha256"], saved["step"])
    alone = shop.run_here(replace(spec, attempt=2, resume=resume))
    assert differing(in_one[name], alone, after=saved["step"]) == {}


def test_zero_splits_moments_and_zero3_weights_too(
    shop: Workshop, in_two: dict[str, Outcome]
) -> None:
    held = {
        run: [json.loads(file.read_text()) for file in (shop.root / "work" / run).rglob("held*")]
        for run in ("zero2", "zero3")
    }
    trained = in_two["zero2"].summary["trained_parameters"]
    assert [each["weights"] for each in held["zero2"]] == [trained, trained]
    assert [each["weights"] for each in held["zero3"]] == [0, 0], "no layer is at work"
    for each in (*held["zero2"], *held["zero3"]):  # a few more, for parts of one length
        assert trained / 2 <= each["moments"] < 0.51 * trained


def test_a_gradient_that_overflows_is_passed_over_and_leaves_nothing(
    shop: Workshop, in_two: dict[str, Outcome]
) -> None:
    with planted("gradient"):
        one = shop.run_here(spec_of(shop, "overflow", ONE, TRAINED["adapters_two_trunks"]))
    assert one.curve("numerics/non_finite") == {1: 0.0, 2: 1.0, 3: 0.0}
    for layout in (ZERO2, ZERO3):
        found = in_two[f"overflow_{layout}"]
        assert found.ending == "Finished", found.envelopes[-1]
        assert differing(one, found) == {}, layout


def test_a_cancelled_run_saves_where_it_was_and_looks_at_nothing_more(
    in_two: dict[str, Outcome],
) -> None:
    cancelled = in_two["cancelled"]
    assert cancelled.all("CheckpointSaved")[-1]["tags"] == ["last"]
    assert not cancelled.all("Generated")


def test_a_draw_that_fails_on_one_rank_is_passed_over_by_all(in_two: dict[str, Outcome]) -> None:
    found = in_two["no_draw"]
    assert found.ending == "Finished", found.envelopes[-1]
    assert found.curve("numerics/non_finite") == {1: 0.0, 2: 1.0, 3: 0.0}


def test_copies_that_are_not_alike_end_the_run(in_two: dict[str, Outcome]) -> None:
    last = in_two["apart"].envelopes[-1]
    assert (last["type"], last["event"]["kind"]) == ("Failed", "contract_ranks_apart")
    assert "rank 1" in last["event"]["message"]


def test_one_process_that_is_two_is_refused_before_anything_is_loaded(
    in_two: dict[str, Outcome],
) -> None:
    *before, only = in_two["refused"].envelopes
    assert "loading the models" not in [one["event"]["phase"] for one in before]
    assert (only["event"]["kind"], only["event"]["fault"]) == ("bad_config", "configuration")
    assert "layout" in only["event"]["message"]
    assert "started in 2" in only["event"]["message"]
