"""Fresh pairs of answers for people to compare.

Inputs: `policy`, `prompts`, and for the opponent "baseline" also `sft`. Writes candidates.jsonl,
one pair a line, and announces it; the web side puts the pairs into the label queue. Which of the
two stands first is settled there, per person.
"""

from typing import Any

from transformers import set_seed

from workers.artifacts import file_sha256
from workers.audit import write_lines
from workers.context import RunContext
from workers.contract.events import Generated
from workers.contract.jobs import InputRef
from workers.data.encoding import encode_prompt
from workers.data.snapshot import TRAIN, read_prompts
from workers.models import freeze, load_causal, load_tokenizer
from workers.recipes.samples import choose, encode_fitting
from workers.recipes.settings import settings_for
from workers.recipes.settings.sampling import AnsweringSettings, GenerateSettings
from workers.rollouts.answers import Answer, answer
from workers.rollouts.sampling import Sampling, derive_seed

CONFIG = GenerateSettings


def run(context: RunContext) -> dict[str, Any]:
    """Answer the prompts twice, write the pairs, return counts."""
    settings: GenerateSettings = settings_for("generate", context.spec.config)
    set_seed(context.spec.seed)
    seed = context.spec.seed
    rows = read_prompts(context.input_path("prompts"), TRAIN)
    roles = ("policy", "policy") if settings.opponent == "self" else ("policy", "sft")
    tokenizer = load_tokenizer(context.input_path("policy"))
    prompts, _ = encode_fitting(
        tokenizer, [row.messages for row in rows], settings.max_prompt_length
    )
    prompts = [prompts[i] for i in choose(len(prompts), settings.max_prompts, seed)]

    answers: dict[str, list[Answer]] = {}
    for side, role in zip("ab", roles, strict=True):
        context.progress(len(answers), 2, f"answering as {role}")
        folder = context.input_path(role)
        own_tokenizer = load_tokenizer(folder)
        ids = [encode_prompt(own_tokenizer, prompt) for prompt in prompts]
        answers[side] = answer(
            freeze(load_causal(folder)),
            own_tokenizer,
            ids,
            sampling_of(settings, derive_seed(seed, "candidates", side)),
            batch_size=settings.batch_size,
        )
        if context.should_stop() == "cancel":
            return {"step": len(answers), "pairs": 0}

    pairs = [
        {
            "prompt": prompt,
            "response_a": {"text": a.text, "origin": _origin(context, roles[0])},
            "response_b": {"text": b.text, "origin": _origin(context, roles[1])},
            "sampling": {
                "temperature": settings.temperature,
                "top_p": settings.top_p,
                "top_k": settings.top_k,
                "max_new_tokens": settings.max_new_tokens,
                "seed": seed,
            },
        }
        for prompt, a, b in zip(prompts, answers["a"], answers["b"], strict=True)
        if a.text.strip() != b.text.strip()  # nothing to choose between
    ]
    path = context.workdir / "candidates.jsonl"
    write_lines(path, pairs)
    uri = context.save_artifact(path, media_type="application/x-ndjson")
    context.emit(Generated(uri, file_sha256(path), len(pairs), "candidates"))
    context.progress(2, 2, "done")
    return {"step": 2, "pairs": len(pairs), "identical": len(prompts) - len(pairs)}


def sampling_of(settings: AnsweringSettings, seed: int) -> Sampling:
    return Sampling(
        settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        seed=seed,
    )


def _origin(context: RunContext, role: str) -> dict[str, str]:
    """Which checkpoint wrote a response, for lineage; hidden from whoever compares."""
    ref: InputRef | None = context.spec.input(role)
    assert ref is not None  # noqa: S101 — its folder was read before
    return {"role": role, "checkpoint": ref.id, "sha256": ref.sha256, "run": context.spec.run}
