"""What a reward model was assessed by, as `workers.contract.protocol` states it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from measures import bootstrap
from measures.looks import FALSE_ALARM
from workers.assess import judging, measuring, scores
from workers.config.inference import AssessSettings
from workers.context import RunContext
from workers.contract.protocol import Protocol, code_sha256, texts_sha256
from workers.data.snapshot import Preference, Prompt
from workers.trust import (
    attack,
    best_of_n,
    bias,
    calibrated,
    ensembles,
    leakage,
    noise,
    out_of_domain,
    precision,
    probes,
    right,
    shapes,
    slices,
    words,
)

# Everything that makes the figures of the page.
_MEASURING = (
    *(judging, measuring, scores, bootstrap, attack, best_of_n, bias, calibrated, ensembles),
    *(leakage, noise, out_of_domain, precision, probes, right, shapes, slices, words),
)

# Settings that say how much was measured and how; those of answers stand under `sampling`.
_PLAN = (
    *("max_pairs", "probe_prompts", "effect_answers", "best_of", "best_of_prompts"),
    *("planned_kl", "check_precision"),
)


def assess_protocol(
    context: RunContext,
    settings: AssessSettings,
    *,
    rows: Mapping[str, Sequence[Preference]],
    other: Sequence[Preference],
    asked: Sequence[Prompt],
    engine: Mapping[str, Mapping[str, Any]],
    read: Mapping[str, tuple[str | None, Mapping[str, Any]]],
) -> Protocol:
    """The reward model is the system that is measured, and no part of it.

    rows: {file: rows} of the dataset; asked: what policy and SFT model answered; engine: {role: of
    whoever scored or answered}; read: {role: chat template, {sha256, count} of prompts as read}.
    """
    files = {name: texts_sha256(_texts(of)) for name, of in rows.items()}
    plan = asdict(settings)
    return Protocol(
        prompts={
            "count": sum(len(of) for of in rows.values()),
            "files": files,
            "other": texts_sha256(_texts(other)) if other else {},
            "asked": texts_sha256([row.messages for row in asked]) if asked else {},
        },
        rendered={role: dict(rendered) for role, (_, rendered) in read.items()},
        chat_template={role: template for role, (template, _) in read.items()},
        system_prompt="",
        sampling={
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "max_tokens": settings.max_new_tokens,
            "seed": context.spec.seed,
        },
        engine={role: dict(told) for role, told in engine.items()},
        baseline={role: context.spec.content_of(role) for role in ("policy", "sft") if asked},
        judge=context.spec.content_of("judge"),
        reward={},
        metric_code=_metric_code(),
        statistics={
            "estimand": "of every line of the page, over rows, prompts or draws",
            "alpha": FALSE_ALARM,
            "interval": "percentile bootstrap over clusters",
            "resamples": settings.bootstrap_replicates,
            "stopping": "fixed number of pairs and prompts",
        }
        | {name: plan[name] for name in _PLAN},
    )


def _texts(rows: Sequence[Preference]) -> list[Any]:
    return [
        [row.prompt, row.chosen, row.rejected, row.confidence, row.weight, row.cluster]
        for row in rows
    ]


@cache
def _metric_code() -> str:
    return code_sha256(*_MEASURING)
