"""A checkpoint's weights, sent to a vLLM server before it is asked, by TRL's client.

The client tells the server over HTTP what comes and sends the tensors over NCCL, as one more rank
of the server's workers: it wants vLLM and a GPU on this machine, and a server that was started with
`VLLM_SERVER_DEV_MODE=1` and `--weight-transfer-config '{"backend": "nccl"}'`.

Source: trl.generation.vllm_client.VLLMClient, TRL 1.16. Not run against a vLLM server so far.
"""

import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from workers.config.server import ServerSettings
from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.models.loading import load_causal


def send_weights(settings: ServerSettings, folder: Path, *, place: str) -> None:
    """Make the server at `settings.url` answer as the checkpoint in `folder`; `place` names it to
    people. Its remembered prompts are forgotten, since they were read by other weights.

    Raises `RecipeError`: missing_package or too_few_gpus where this machine cannot send, and
    inference_server_weights where the server cannot be reached or does not take them. What broke
    off in the middle leaves a server that is no checkpoint at all; the next attempt sends again.
    """
    gpu = _gpu()
    from trl.generation.vllm_client import VLLMClient

    try:
        client = VLLMClient(
            base_url=settings.url.rstrip("/").removesuffix("/v1"),
            connection_timeout=settings.timeout_s,
        )
        _send(client, folder, gpu)
    except Exception as error:  # the client raises bare `Exception` for every refusal
        raise RecipeError(
            "inference_server_weights",
            Fault.MACHINE,
            f"inference server {place}: its weights could not be set: "
            f"{type(error).__name__}: {str(error)[:500]}",
            retryable=isinstance(error, OSError),  # as those of requests are
        ) from error


def _send(client: Any, folder: Path, gpu: torch.device) -> None:
    client.init_communicator(device=gpu)
    try:
        client.update_model_params(load_causal(folder, device=gpu))
        client.reset_prefix_cache()
    finally:
        with suppress(Exception):  # what went wrong before is what is told
            client.close_communicator()


def _gpu() -> torch.device:
    """What weights are sent from."""
    if importlib.util.find_spec("vllm") is None:
        raise RecipeError(
            "missing_package",
            Fault.MACHINE,
            "This machine lacks the package 'vllm', which server.update_weights needs.",
        )
    if not torch.cuda.is_available():
        raise RecipeError(
            "too_few_gpus",
            Fault.MACHINE,
            "server.update_weights sends weights from GPU to GPU, and this machine has none.",
        )
    return torch.device("cuda")
