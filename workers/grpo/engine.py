"""A vLLM in the trainer's process that draws the answers, by TRL's `VLLMGeneration`."""

import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from trl.import_utils import is_vllm_available

from workers.config.grpo import GRPOSettings
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import WHOLE_WEIGHTS, JobSpec
from workers.environments.worlds import Episode


def check_engine(spec: JobSpec, settings: GRPOSettings) -> None:
    """Raises `RecipeError` (bad_config) where vLLM is asked for and this machine or the layout
    does not go with it."""
    problem = _engine_problem(spec) if settings.rollout_engine == "vllm" else None
    if problem is not None:
        raise RecipeError("bad_config", Fault.CONFIGURATION, problem)


def _engine_problem(spec: JobSpec) -> str | None:
    if spec.layout not in WHOLE_WEIGHTS:
        return (
            f"rollout_engine: vllm reads whole weights; the layout '{spec.layout}' splits them: "
            "use the layout 'one' or 'data'"
        )
    if importlib.util.find_spec("vllm") is None:
        return "rollout_engine: needs the package 'vllm' on the worker, and a GPU"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        is_vllm_available()
    unsupported = [str(one.message) for one in told if "support" in str(one.message)]
    if unsupported:
        return f"rollout_engine: {unsupported[0]}"
    if (
        not torch.cuda.is_available()
    ):  # vLLM 0.31 packs weights there and throws away what new ones are put into
        return "rollout_engine: vllm takes new weights on a GPU only, and this machine has none"
    return None


def engine_arguments(settings: GRPOSettings, *, on_gpu: bool) -> dict[str, Any]:
    """TRL's vLLM in the trainer's process. On a GPU it lets go of its memory between batches."""
    if settings.rollout_engine != "vllm":
        return {}
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": settings.vllm_memory,
        "vllm_enable_sleep_mode": on_gpu,
        "vllm_max_model_length": settings.max_prompt_length + settings.max_new_tokens,
        "vllm_importance_sampling_correction": True,
    }


@dataclass(frozen=True, slots=True)
class Answers:
    """Token ids of the answers, and where another engine drew them the log-probabilities (nats,
    tempered; None where it does not say one) with which it did."""

    ids: list[list[int]]
    logprobs: list[list[float | None]] | None = None
    # Of answers with tools: 1 where the policy drew the token, and what was said and done.
    learnt: list[list[int]] | None = None
    episodes: list[Episode] | None = None


class MergedWeights(nn.Module):
    """Adapters added into the weights below them, one after the other: what TRL's
    `VLLMGeneration.sync_weights` reads of a model. Its own way adds them in place and takes them
    off again, which leaves other weights below: of those in 16 bits most of an adapter is lost,
    and the reference is no longer the model that the run began from."""

    def __init__(self, adapted: PeftModel) -> None:
        super().__init__()
        self.of = (adapted,)  # no module within: it has no weights of its own

    @torch.no_grad()
    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """By the names of the model without adapters, in float32."""
        for name, value in self._merged():
            yield name, nn.Parameter(value, requires_grad=False)

    def _merged(self) -> Iterator[tuple[str, Tensor]]:
        below: nn.Module = self.of[0].get_base_model()
        layers = {n: part for n, part in below.named_modules() if isinstance(part, LoraLinear)}
        for name, parameter in below.named_parameters():
            of, _, kind = name.partition(".base_layer.")
            if of in layers and kind == "weight":
                delta = layers[of].get_delta_weight("default")
                yield f"{of}.{kind}", parameter.float() + delta.float()
            elif "lora_" not in name:
                yield name.replace(".base_layer", ""), parameter.float()
