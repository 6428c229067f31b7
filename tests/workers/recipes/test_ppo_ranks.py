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
from tests.workers.recipes.language import ROOT, Outcome, Workshop, tiny_llama, user
from workers.contract.jobs import JobSpec, Resume, spec_to_json
from workers.contract.layouts import DATA, FSDP, ONE, PLAIN, TORCHRUN, ZERO3

pytestmark = pytest.mark.spread

CLOCKS = ("time/", "throughput/")  # what differs between any two runs
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
# learns alone at first, and parts of which one rank has more than the other.
TRAINED = {
    "weights": {"lora_rank": 0, "max_tokens_per_batch": 40},
    "weights_two_trunks": {"lora_rank": 0, "critic": "separate", "gradient_checkpointing": "on"},
    "adapters": {"lora_rank": 4, "critic_warmup_steps": 1, "max_tokens_per_batch": 40},
    "adapters_two_trunks": {"lora_rank": 4, "critic": "separate"},
}
WHOLE = {  # the layout that each is trained in to its end
    "weights": FSDP,
    "weights_two_trunks": DATA,
    "adapters": FSDP,
    "adapters_two_trunks": DATA,
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

    for name, layout in WHOLE.items():
        add(name, layout, TRAINED[name])
    add("stopped", DATA, TRAINED["weights"], after=1)
    add("resumed", FSDP, TRAINED["weights"], resumes="stopped")
    add("cancelled", DATA, TRAINED["adapters"], after=1, wish="cancel")
    add("no_draw", DATA, TRAINED["weights"], plant="draw")
    add("apart", DATA, TRAINED["weights"], plant="apart")
    add("refused", ZERO3, TRAINED["weights"])
    file = shop.root / "jobs.json"
    file.write_text(json.dumps(jobs))
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*argv, "-m", "tests.workers.recipes.in_ranks", str(shop.root), str(file)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
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
    for name in wanted.metric_names() | found.metric_names():
        if name.startswith(CLOCKS):
            continue
        one, other = (
            {s: math.inf if v is None else v for s, v in outcome.curve(name).items() if s > after}
            for outcome in (wanted, found)
        )
        if one != pytest.approx(other, rel=ROUNDING, abs=ROUNDING, nan_ok=True):
            off[name] = (one, other)
    return off


@pytest.mark.parametrize("name", TRAINED)
def test_two_ranks_take_the_steps_of_one(
    name: str, in_one: dict[str, Outcome], in_two: dict[str, Outcome]
) -> None:
    wanted, found = in_one[name], in_two[name]
    assert found.ending == "Finished", found.envelopes[-1]
    assert differing(wanted, found) == {}
    assert wanted.curve("update/steps")[3] > 0  # something was learned at all
    assert max(wanted.curve("objective/kl_per_token").values()) > 10 * ROUNDING
    assert found.summary["last"] == pytest.approx(wanted.summary["last"], rel=ROUNDING)
    both = [[event["step"] for event in o.all("CheckpointSaved")] for o in (wanted, found)]
    assert both[0] == both[1]


@pytest.mark.parametrize("name", TRAINED)
def test_a_checkpoint_of_two_ranks_is_whole(
    name: str, shop: Workshop, in_one: dict[str, Outcome], in_two: dict[str, Outcome]
) -> None:
    one, other = (
        Path(shop.store.local_path(outcome.all("CheckpointSaved")[-1]["uri"]))
        for outcome in (in_one[name], in_two[name])
    )
    files = {str(path.relative_to(one)) for path in one.rglob("*.safetensors")}
    assert files == {str(path.relative_to(other)) for path in other.rglob("*.safetensors")}
    assert "training_state.safetensors" in files
    for file in files:
        wanted, found = load_file(one / file), load_file(other / file)
        assert wanted.keys() == found.keys(), file
        for tensor in wanted:
            # A step of AdamW is as long for a gradient of 1e-9 as for one of 1, so rounding may
            # turn a weight that hardly counts around: by less than the three steps' length.
            assert (wanted[tensor] - found[tensor]).abs().max() < 1e-3, (file, tensor)


def test_a_wish_that_one_rank_sees_stops_all_and_another_layout_goes_on_from_there(
    in_one: dict[str, Outcome], in_two: dict[str, Outcome]
) -> None:
    at = in_two["stopped"].all("CheckpointSaved")[-1]["step"]
    assert 0 < at < 3
    assert differing(in_one["weights"], in_two["resumed"], after=at) == {}
    assert in_two["resumed"].summary["step"] == 3


def test_one_process_goes_on_from_what_split_weights_left(
    shop: Workshop, in_one: dict[str, Outcome], in_two: dict[str, Outcome]
) -> None:
    saved = in_two["weights"].all("CheckpointSaved")[0]
    assert saved["step"] < 3
    spec = spec_of(shop, "alone", ONE, TRAINED["weights"])
    resume = Resume(saved["uri"], saved["sha256"], saved["step"])
    alone = shop.run_here(replace(spec, attempt=2, resume=resume))
    assert differing(in_one["weights"], alone, after=saved["step"]) == {}


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


def test_zero_is_refused_before_anything_is_loaded(in_two: dict[str, Outcome]) -> None:
    [only] = in_two["refused"].envelopes
    assert (only["event"]["kind"], only["event"]["fault"]) == ("bad_config", "configuration")
    assert "layout" in only["event"]["message"]
    assert "fsdp" in only["event"]["message"]
