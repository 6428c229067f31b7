"""GRPO whose answers another engine draws. Where vLLM is installed it is vLLM's own; elsewhere a
stand-in with the calls that TRL makes: a copy of the model in bfloat16, whose weights are the
starting checkpoint's until others are put there."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trl.generation import vllm_generation

from tests.workers.recipes.language import Workshop, tiny_llama
from tests.workers.recipes.test_grpo import INPUTS, PLANTED
from workers.contract.events import RecipeError
from workers.grpo import engine as grpo_engine
from workers.grpo.engine import MergedWeights
from workers.models.loading import load_causal
from workers.models.lora import attach_policy_lora, merged
from workers.recipes import grpo

pytestmark = [
    pytest.mark.recipe,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # inside TRL
    pytest.mark.filterwarnings("ignore:TRL currently supports vLLM:UserWarning"),
]

CONFIG = PLANTED | {"rollout_engine": "vllm", "steps": 3, "eval_every": 3, "save_every": 3}
INSTALLED = importlib.util.find_spec("vllm") is not None


class StandIn:
    """What TRL calls of `vllm.LLM`."""

    made: list["StandIn"] = []
    off_by = 0.0  # added to the log-probabilities that are told: an engine that reads otherwise

    def __init__(self, model: str, **options: Any) -> None:
        self.model = load_causal(model).to(torch.bfloat16)
        self.options = options
        self.asked: list[SimpleNamespace] = []
        self.loads: list[set[str]] = [set()]
        runner = SimpleNamespace(model=self)
        executor = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        self.llm_engine = SimpleNamespace(model_executor=executor)
        self.made.append(self)

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        own = dict(self.model.named_parameters())
        for name, value in weights:
            own[name].copy_(value)
            self.loads[-1].add(name)

    def reset_prefix_cache(self) -> None:
        self.loads.append(set())

    @torch.no_grad()
    def generate(
        self, prompts: list[dict[str, list[int]]], sampling_params: Any, use_tqdm: bool
    ) -> list[SimpleNamespace]:
        self.asked.append(sampling_params)
        outputs = []
        for prompt in prompts:
            rows = [
                self._answer(prompt["prompt_token_ids"], sampling_params, sampling_params.seed + n)
                for n in range(sampling_params.n)
            ]
            outputs.append(SimpleNamespace(outputs=rows, **prompt))
        return outputs

    def _answer(self, ids: list[int], told: Any, seed: int) -> SimpleNamespace:
        generator = torch.Generator().manual_seed(seed)
        drawn: list[int] = []
        logprobs: list[dict[int, SimpleNamespace]] = []
        while len(drawn) < told.max_tokens and not {*drawn} & {*told.stop_token_ids}:
            logits = self.model(input_ids=torch.tensor([[*ids, *drawn]])).logits[0, -1].float()
            every = (logits / told.temperature).log_softmax(-1)
            token = int(torch.multinomial(every.exp(), 1, generator=generator))
            drawn.append(token)
            value = float(every[token]) + self.off_by
            logprobs.append({token: SimpleNamespace(logprob=value, rank=1)})
        return SimpleNamespace(token_ids=drawn, logprobs=logprobs)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[StandIn]]:
    """The stand-in in vLLM's place."""
    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    monkeypatch.setattr(vllm_generation, "LLM", StandIn, raising=False)
    monkeypatch.setattr(vllm_generation, "SamplingParams", SimpleNamespace, raising=False)
    monkeypatch.setattr(grpo_engine, "_engine_problem", lambda spec: None)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # TRL sets them
        if not os.environ[name]:
            monkeypatch.delenv(name)
    StandIn.made.clear()
    yield StandIn
    StandIn.made.clear()


@pytest.mark.parametrize(
    "trains", [{"lora_rank": 4, "frozen_weights": "bfloat16"}, {"lora_rank": 0}]
)
def test_every_batch_is_drawn_with_the_weights_of_the_policy(
    workshop: Workshop, engine: type[StandIn], trains: dict
) -> None:
    config = CONFIG | {"learning_rate": 3e-2, "temperature": 0.8} | trains
    spec = workshop.spec(f"engine_{trains['lora_rank']}", "grpo", config, **INPUTS)
    outcome = workshop.run_here(spec)
    (made,) = engine.made
    assert made.loads[:3] == [{name for name, _ in made.model.named_parameters()}] * 3
    assert [told.n for told in made.asked] == [8, 8, 8]
    assert len({told.seed for told in made.asked}) == 3
    assert {told.temperature for told in made.asked} == {0.8}
    # A policy that had moved on without its engine would be far from 1 by the third batch.
    mean = outcome.curve("rollout/importance_mean")
    assert sorted(mean) == [1, 2, 3]
    assert all(abs(value - 1) < 0.02 for value in mean.values()), mean
    assert all(value > 0 for value in outcome.curve("rollout/corrected_share").values())
    assert outcome.curve("objective/kl")[3] > 0.02  # it did move
    assert outcome.curve("eval/score")[3] > outcome.curve("eval/score")[0]


def test_what_the_engine_reads_otherwise_is_taken_off_up_to_the_cap(
    workshop: Workshop, engine: type[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "off_by", -0.5)
    config = CONFIG | {"steps": 1, "eval_every": 1}
    spec = workshop.spec("engine_off", "grpo", config, **INPUTS)
    mean = workshop.run_here(spec).curve("rollout/importance_mean")
    assert mean[1] == pytest.approx(1.6487, rel=0.02)  # e^½
    spec = workshop.spec("engine_cap", "grpo", config | {"importance_cap": 1.5}, **INPUTS)
    outcome = workshop.run_here(spec)
    assert outcome.curve("rollout/capped_share")[1] > 0.99
    assert outcome.curve("rollout/importance_mean")[1] == pytest.approx(1.5)


def test_adapters_are_added_without_touching_what_lies_below() -> None:
    adapted = attach_policy_lora(tiny_llama(3), rank=4, alpha=8)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(5))
    before = {name: value.clone() for name, value in adapted.state_dict().items()}
    found = dict(MergedWeights(adapted).named_parameters())
    expected = dict(merged(adapted).named_parameters())
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name])
    assert all(value.equal(before[name]) for name, value in adapted.state_dict().items())


@pytest.mark.skipif(INSTALLED, reason="vLLM is installed here")
def test_without_the_package_the_run_is_refused_by_name(workshop: Workshop) -> None:
    spec = workshop.spec("engine_none", "grpo", CONFIG, **INPUTS)
    with pytest.raises(RecipeError, match="rollout_engine: needs the package 'vllm'") as raised:
        workshop.run_here(spec)
    assert raised.value.kind == "bad_config"


REFUSED = """
from pathlib import Path
from types import SimpleNamespace
from workers.contract.events import RecipeError
from workers.grpo.engine import check_engine
try:
    check_engine(SimpleNamespace(kind="grpo", layout="one"), SimpleNamespace(rollout_engine="vllm"))
except RecipeError as error:
    print(error.kind, error.message)
"""


@pytest.mark.skipif(INSTALLED, reason="vLLM is installed here")
def test_a_version_that_trl_does_not_know_is_refused_in_its_words(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").touch()
    info = tmp_path / "vllm-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.1.0\n")
    (info / "top_level.txt").write_text("vllm\n")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    told = subprocess.run(
        [sys.executable, "-c", REFUSED],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.startswith("bad_config rollout_engine: TRL currently supports vLLM versions")
    assert "0.1.0" in told.stdout


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"loss_type": "rloo", "scale_rewards": "none"}, "rloo has no correction"),
        ({"base_4bit": True}, "switch base_4bit off"),
    ],
)
def test_what_it_does_not_go_with_is_refused_by_the_form(changed: dict, told: str) -> None:
    settings = grpo.CONFIG(**CONFIG | changed)
    assert [text for text in settings.check() if "rollout_engine" in text and told in text]


@pytest.mark.skipif(not INSTALLED, reason="needs vLLM")
def test_vllm_itself_draws_what_the_policy_would(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.cuda.is_available():  # a processor's packs weights away, unless it is kept from it
        monkeypatch.setattr(grpo_engine, "_engine_problem", lambda spec: None)
        monkeypatch.setattr(
            "vllm.model_executor.layers.utils.dispatch_cpu_unquantized_gemm",
            lambda layer, remove_weight: setattr(layer, "cpu_linear", nn.functional.linear),
        )
    workshop.put_model("wide", tiny_llama(0, width=128))
    config = CONFIG | {"learning_rate": 3e-2}
    spec = workshop.spec("engine_vllm", "grpo", config, sft="wide", prompts="prompts")
    outcome = workshop.run_here(spec)
    mean = outcome.curve("rollout/importance_mean")
    assert all(abs(value - 1) < 0.05 for value in mean.values()), mean
    assert outcome.curve("objective/kl")[3] > 0.02  # it did move
