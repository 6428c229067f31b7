"""Answers to a list of prompts by a server, as `workers.rollouts.drawing` gives those of a model.

What a server does not say is left out: no log-probabilities, so no divergence from a reference.
"""

import importlib.util
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from measures.messages import Message, Messages
from workers.config.server import (
    CHAT,
    CRITIC,
    JUDGE,
    POLICY,
    SFT,
    EndpointSettings,
    ServedModelSettings,
    ServerSettings,
    read_server,
)
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.batches import encode_fitting
from workers.data.snapshot import as_drawn
from workers.models.loading import load_causal, load_tokenizer
from workers.rollouts.drawing import Answer
from workers.rollouts.local import Sampling, derive_seed
from workers.servers.asking import Asked, KeptAnswers, ask_all
from workers.servers.client import Given, Server

# A checkpoint's weights, sent to a vLLM server before it is asked, by TRL's client.
#
# The client tells the server over HTTP what comes and sends the tensors over NCCL, as one more
# rank
# of the server's workers: it wants vLLM and a GPU on this machine, and a server that was started
# with
# `VLLM_SERVER_DEV_MODE=1` and `--weight-transfer-config '{"backend": "nccl"}'`.
#
# Source: trl.generation.vllm_client.VLLMClient, TRL 1.16. Not run against a vLLM server so far.


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


class Served:
    """The input `role` behind a server. Its tokenizer counts where the server does not; a model
    that was registered by its server alone may have none."""

    def __init__(
        self,
        context: RunContext,
        settings: ServerSettings,
        tokenizer: PreTrainedTokenizerBase | None,
        *,
        has_weights: bool = True,
    ) -> None:
        self.role = settings.serves
        self.server = Server(settings)
        self.requests = 0  # answered or not, those that an earlier attempt made included
        self.failed = 0
        self._context = context
        self._settings = settings
        self.tokenizer = tokenizer
        self.has_weights = has_weights  # here too, beside the server
        self._kept = KeptAnswers(context)

    def answer(
        self, prompts: Sequence[Messages], sampling: Sampling, *, doing: str = "answering"
    ) -> list[Answer]:
        """An answer to each prompt, in order. The same prompt several times running is asked for
        in requests of up to `server.n` answers; each request has a seed of its own."""
        return [one for one in self._answers(prompts, sampling, doing, 0.0) if one is not None]

    def say(
        self, prompts: Sequence[Messages], sampling: Sampling, *, doing: str = "answering"
    ) -> list[Given]:
        """The same as the server tells it: how long it took, and no count of tokens but its own."""
        return [one for one in self._given(prompts, sampling, doing, 0.0) if one is not None]

    def answer_most(
        self, prompts: Sequence[Messages], sampling: Sampling, *, doing: str = "answering"
    ) -> list[Answer | None]:
        """The same; None where the server failed, as far as `server.failed_share` lets it."""
        return self._answers(prompts, sampling, doing, self._settings.failed_share)

    def send_weights(self, folder: Path) -> None:
        """Have the server answer as the checkpoint in `folder`."""
        send_weights(self._settings, folder, place=self.server.place)
        self._context.log(f"{self.server.place} was sent the weights of the input '{self.role}'")

    def as_summary(self) -> dict[str, Any]:
        """Who answered, as far as a server can be known. Its weights cannot be read, only sent."""
        told: dict[str, Any] = {
            "role": self.role,
            "at": self.server.place,
            "model": self._settings.model,
        }
        if self._settings.update_weights:
            told["weights_sent"] = True
        told |= {"says": self.server.model} if self.server.model else {}
        prints = self.server.fingerprint
        return told | ({"fingerprint": prints} if prints else {})

    def _answers(
        self, prompts: Sequence[Messages], sampling: Sampling, doing: str, share: float
    ) -> list[Answer | None]:
        return [
            None if one is None else Answer(one.text, token_count(one, self.tokenizer), one.ended)
            for one in self._given(prompts, sampling, doing, share)
        ]

    def _given(
        self, prompts: Sequence[Messages], sampling: Sampling, doing: str, share: float
    ) -> list[Given | None]:
        parts = _parts(prompts, self._settings.n)
        asked = [
            Asked(rows.start + 1, self._body(prompts[rows.start], rows, sampling)) for rows in parts
        ]
        given = ask_all(
            self._context,
            self.server,
            asked,
            kept=self._kept,
            doing=doing,
            allowed=math.floor(share * len(asked) + 1e-9),  # 0.29 * 100 is 28.999…
        )
        self.requests += len(asked)
        answers: list[Given | None] = []
        for rows, texts in zip(parts, given, strict=True):
            self.failed += texts is None
            answers += (
                [None] * (rows.stop - rows.start)
                if texts is None
                else [replace(one, text=as_drawn(one.text, one.ended)) for one in texts]
            )
        return answers

    def _body(self, prompt: Messages, rows: slice, sampling: Sampling) -> dict[str, Any]:
        own = replace(sampling, seed=derive_seed(sampling.seed, "served", rows.start))
        body = request_body(self._settings, self.tokenizer, prompt, own)
        return body | ({"n": rows.stop - rows.start} if rows.stop - rows.start > 1 else {})

    @property
    def needed_tokenizer(self) -> PreTrainedTokenizerBase:
        """Raises `RecipeError` where there is none."""
        return _needed(self.tokenizer)


def _needed(tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedTokenizerBase:
    if tokenizer is None:
        raise RecipeError(
            "no_tokenizer",
            Fault.CONFIGURATION,
            "This served model was registered without a tokenizer, and its tokens must be counted "
            "here; register it once more with one.",
        )
    return tokenizer


def token_count(given: Given, tokenizer: PreTrainedTokenizerBase | None) -> int:
    """Of an answer: as the server counts; where it does not, as the tokenizer does, the end token
    included. Raises `RecipeError` where there is none."""
    if given.tokens is not None:
        return given.tokens
    return len(_needed(tokenizer)(given.text, add_special_tokens=False)["input_ids"]) + given.ended


def request_body(
    settings: EndpointSettings,
    tokenizer: PreTrainedTokenizerBase | None,
    prompt: Messages,
    sampling: Sampling,
) -> dict[str, Any]:
    """What a server is asked for one answer. tokenizer: applies its chat template to the prompt
    where the server does not (`api`)."""
    body: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
    }
    if settings.api == CHAT:
        body["messages"] = [_for_server(message) for message in prompt]
    else:
        body["prompt"] = _needed(tokenizer).apply_chat_template(
            list(prompt), tokenize=False, add_generation_prompt=True
        )
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    if settings.stop:
        body["stop"] = list(settings.stop)
    return body | dict(settings.extra)


def _parts(prompts: Sequence[Messages], most: int) -> list[slice]:
    """Stretches of equal prompts, at most `most` long."""
    parts: list[slice] = []
    start = 0
    for _, same in itertools.groupby(prompts):
        end = start + sum(1 for _ in same)
        parts += [slice(at, min(at + most, end)) for at in range(start, end, most)]
        start = end
    return parts


# A model that is registered by its server: a checkpoint of this file, and of a tokenizer's if it
# has one.
SERVER_FILE, TOKENIZER = "server.json", "tokenizer_config.json"
INPUTS = (POLICY, SFT)


def write_served(
    folder: Path, settings: ServedModelSettings, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """The checkpoint of a model that is nothing but a server; `folder` is made."""
    folder.mkdir(parents=True)
    names = [field.name for field in fields(EndpointSettings)]
    values = {name: getattr(settings, name) for name in names}
    (folder / SERVER_FILE).write_text(json.dumps(values, indent=1))
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def is_served(folder: Path) -> bool:
    """Whether a checkpoint is nothing but a server."""
    return (folder / SERVER_FILE).is_file()


def read_served(
    folder: Path, role: str = POLICY
) -> tuple[ServerSettings, PreTrainedTokenizerBase | None]:
    """What `write_served` left in `folder`, to answer for the input `role`."""
    values = json.loads((folder / SERVER_FILE).read_text())
    settings = read_server(values)
    assert settings is not None  # noqa: S101 — it is not empty
    tokenizer = load_tokenizer(folder) if (folder / TOKENIZER).is_file() else None
    return replace(settings, serves=role), tokenizer


def served_inputs(
    context: RunContext, config: Mapping[str, Any], *, roles: Sequence[str] = INPUTS
) -> dict[str, Served]:
    """{input: who answers for it} of those inputs of `roles` that a server answers for: as
    `config`, the setting `server`, says, or because the model was registered by its server."""
    found: dict[str, Served] = {}
    for role in roles:
        if not context.has_input(role):
            continue
        folder = context.input_path(role)
        if is_served(folder):
            found[role] = Served(context, *read_served(folder, role), has_weights=False)
    settings = read_server(config)
    if settings is not None:
        role = settings.serves
        folder = context.input_path(role)
        if role in found:
            raise RecipeError(
                "served_already",
                Fault.CONFIGURATION,
                f"server.serves: the input '{role}' is a served model and has its server; empty "
                "the setting, or choose another input",
            )
        found[role] = Served(context, settings, load_tokenizer(folder))
        if settings.update_weights:
            found[role].send_weights(folder)
    return found


def summaries(served: Mapping[str, Served]) -> dict[str, Any]:
    """Who answered, for the summary of a run: `server`, and of two also `other_server`; a critic is
    `critic_server`."""
    asked = [role for role in (*INPUTS, JUDGE) if role in served]
    told = [served[role].as_summary() for role in asked]
    named = dict(zip(("server", "other_server"), told, strict=False))
    return named | ({"critic_server": served[CRITIC].as_summary()} if CRITIC in served else {})


def fitting_prompts(
    context: RunContext,
    served: Mapping[str, Served],
    role: str,
    prompts: Sequence[Messages],
    max_length: int,
) -> list[Messages]:
    """The prompts of at most `max_length` tokens of the input `role`; all of them where a served
    model has no tokenizer here, for it says itself what is too long."""
    if role in served:
        tokenizer = served[role].tokenizer
    else:
        tokenizer = load_tokenizer(context.input_path(role))
    return list(prompts) if tokenizer is None else encode_fitting(tokenizer, prompts, max_length)[0]


def _for_server(message: Message) -> Message:
    """A message as OpenAI's API has it: the arguments of a call are JSON text there."""
    if "tool_calls" not in message:
        return message
    calls = []
    for call in message["tool_calls"]:
        given = call["function"]["arguments"]
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    return {**message, "tool_calls": calls}
