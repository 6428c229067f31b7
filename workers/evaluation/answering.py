"""Who answers an evaluation's prompts, and by what: a model that is loaded here, or a server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from measures.messages import Messages
from workers.config.inference import EvaluateSettings
from workers.config.server import COMPLETIONS
from workers.context import RunContext
from workers.contract.protocol import texts_sha256
from workers.data.batches import encode_prompt
from workers.data.snapshot import Prompt
from workers.models.forward import Reference
from workers.models.loading import freeze, load_causal, load_tokenizer
from workers.rollouts.drawing import Answer, answer
from workers.rollouts.local import Sampling, derive_seed
from workers.servers.answers import Served


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers of one model, `rounds[i]` those of the i-th repeat, with what a protocol states
    of how they came about; `rendered` is {sha256, count} of the distinct prompts as it read them.
    """

    rounds: list[list[Answer]]
    engine: Mapping[str, Any]
    chat_template: str | None
    rendered: Mapping[str, Any]
    stop: Sequence[str] = field(default_factory=tuple)

    @property
    def first(self) -> list[Answer]:
        """Of the round whose figures are reported."""
        return self.rounds[0]


def sampling_for(settings: EvaluateSettings, seed: int, repeat: int = 0) -> Sampling:
    """How the answers of a repeat are drawn; repeat 0 is what an evaluation without any draws."""
    parts = ("evaluate",) if repeat == 0 else ("evaluate", "repeat", repeat)
    return Sampling(
        settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        seed=derive_seed(seed, *parts),
    )


def answered(
    context: RunContext,
    settings: EvaluateSettings,
    rows: Sequence[Prompt],
    role: str,
    served: Mapping[str, Served],
) -> Answered:
    """Answers of one model. The policy's carry their divergence from the SFT model where the whole
    distribution was sampled, which is when it can be measured; a server's never do."""
    context.progress(0, 1, f"answering as {role}")
    samplings = [sampling_for(settings, context.spec.seed, i) for i in range(settings.repeats)]
    asked = [row.messages for row in rows]
    if role in served:
        return _by_server(served[role], asked, samplings)
    tokenizer = load_tokenizer(context.input_path(role))
    ids = [encode_prompt(tokenizer, messages) for messages in asked]
    whole = settings.temperature > 0 and settings.top_p == 1.0 and settings.top_k == 0
    known = "sft" not in served or served["sft"].has_weights
    reference = (
        Reference(freeze(load_causal(context.input_path("sft"))))
        if role == "policy" and whole and known
        else None
    )
    model = freeze(load_causal(context.input_path(role)))
    rounds = [
        answer(
            model,
            tokenizer,
            ids,
            sampling,
            batch_size=settings.batch_size,
            reference=reference if i == 0 else None,
        )
        for i, sampling in enumerate(samplings)
    ]
    engine = engine_here(model, settings.batch_size)
    return Answered(rounds, engine, *read_by(tokenizer, asked))


def engine_here(model: PreTrainedModel | None, batch_size: int) -> dict[str, Any]:
    """Of this process, for a protocol: a batch has a seed of its own, and its padding moves the
    last bits of what is computed."""
    told: dict[str, Any] = {
        "kind": "transformers",
        "version": transformers.__version__,
        "torch": str(torch.__version__),
        "batch_size": batch_size,
    }
    if model is not None:
        told["device"] = model.device.type
        told["dtype"] = str(model.dtype).removeprefix("torch.")
    return told


def engine_there(served: Served) -> dict[str, Any]:
    """Of a server, as far as it says. Answers of one request have one seed."""
    own = served.server.settings
    return {
        "kind": "server",
        "version": served.server.version(),
        "api": own.api,
        "answers_per_request": own.n,
        "extra": dict(own.extra),
    }


def _by_server(
    served: Served, asked: Sequence[Messages], samplings: Sequence[Sampling]
) -> Answered:
    own = served.server.settings
    rounds = [served.answer(asked, sampling) for sampling in samplings]
    return Answered(rounds, engine_there(served), *read_there(served, asked), tuple(own.stop))


def read_there(served: Served, asked: Sequence[Messages]) -> tuple[str | None, dict[str, Any]]:
    """A server's template and the prompts as it reads them; where it applies a template of its own,
    which it does not tell, None and the prompts as they are sent."""
    if served.server.settings.api == COMPLETIONS:
        return read_by(served.needed_tokenizer, asked)
    return None, texts_sha256(_distinct(asked))


def read_by(
    tokenizer: PreTrainedTokenizerBase, asked: Sequence[Messages]
) -> tuple[str | None, dict[str, Any]]:
    """A tokenizer's template, and the prompts as it writes them."""
    texts = [
        tokenizer.apply_chat_template(list(one), tokenize=False, add_generation_prompt=True)
        for one in _distinct(asked)
    ]
    template = tokenizer.chat_template
    return template if isinstance(template, str) else None, texts_sha256(texts)


def _distinct(asked: Sequence[Messages]) -> list[Messages]:
    """Prompts are asked `draws` times running."""
    return [one for i, one in enumerate(asked) if i == 0 or one != asked[i - 1]]
