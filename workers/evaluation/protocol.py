"""The protocol of an evaluation, from what it really used (`workers.contract.protocol`)."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import measures.bootstrap
from measures.accuracy import pair_credit
from measures.intervals import mean_interval, paired_difference
from measures.looks import FALSE_ALARM
from measures.repeats import pass_at_k
from workers.config.inference import EvaluateSettings, ProbeSettings
from workers.config.rewards import needs_model
from workers.context import RunContext
from workers.contract.protocol import Protocol, code_sha256, content_sha256, texts_sha256
from workers.data.snapshot import Prompt
from workers.evaluation import figures
from workers.evaluation.answering import Answered, sampling_for
from workers.rewards.rules import phrase_pattern, plain, same_text
from workers.servers.answers import Served


def protocol_of(
    context: RunContext,
    settings: EvaluateSettings,
    rows: Sequence[Prompt],
    answered: Mapping[str, Answered],
    served: Mapping[str, Served],
) -> Protocol:
    """rows: each prompt `draws` times running; answered: {policy, sft}."""
    prompts = rows[:: settings.draws]
    sampling = sampling_for(settings, context.spec.seed)
    return Protocol(
        prompts=texts_sha256([[row.messages, row.answer, row.group] for row in prompts]),
        rendered={role: dict(one.rendered) for role, one in answered.items()},
        chat_template={role: one.chat_template for role, one in answered.items()},
        system_prompt=_system_prompt(prompts),
        sampling={
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "max_tokens": sampling.max_new_tokens,
            "stop": {role: list(one.stop) for role, one in answered.items()},
            "seed": context.spec.seed,
            "answers_per_prompt": settings.draws,
        },
        engine={role: dict(one.engine) for role, one in answered.items()},
        baseline=context.spec.content_of("sft") | _named(served),
        judge=context.spec.content_of("judge") | {"prompt": ""}
        if context.has_input("judge")
        else {},
        reward={"source": dict(settings.reward)}
        | (context.spec.content_of("reward") if needs_model(settings.reward) else {}),
        metric_code=metric_code(),
        statistics=statistics_plan(settings),
    )


def statistics_plan(settings: EvaluateSettings) -> dict[str, Any]:
    """What an automatic evaluation does: one look at prompts whose number is fixed before."""
    return {
        "estimand": "mean over prompts and draws, the policy's answer beside the baseline's",
        "ties": 0.5,
        "margin": None,
        "alpha": FALSE_ALARM,
        "interval": "percentile bootstrap over clusters",
        "clusters": "the group of a prompt, else the prompt",
        "resamples": settings.bootstrap_replicates,
        "right_answers": settings.factuality,
        "stopping": "fixed number of prompts",
    }


def probe_protocol(
    context: RunContext,
    settings: ProbeSettings,
    asked: Sequence[Any],
    *,
    seed: int,
    code: Sequence[Any],
    engine: Mapping[str, Any],
    chat_template: str | None,
    rendered: Mapping[str, Any],
) -> Protocol:
    """What a probe is measured by. asked: the prompts, or the fixed answers that are scored; code:
    what makes its figures. Where a reward model alone is probed it is the system, and no part."""
    has_policy = context.has_input("policy")
    reads = has_policy and needs_model(settings.reward)
    sampling: dict[str, Any] = {"seed": seed}
    if has_policy:
        sampling |= {
            "temperature": settings.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "max_tokens": settings.max_new_tokens,
            "answers_per_prompt": settings.draws,
        }
    return Protocol(
        prompts=texts_sha256(asked),
        rendered={"policy": dict(rendered)} if has_policy else {},
        chat_template={"policy": chat_template} if has_policy else {},
        system_prompt="",
        sampling=sampling,
        engine={"policy" if has_policy else "reward": dict(engine)},
        baseline={},
        judge={},
        reward={"source": dict(settings.reward)}
        | (context.spec.content_of("reward") if reads else {}),
        metric_code=code_sha256(*code),
        statistics={"estimand": "mean over prompts", "interval": "deviation over prompts"},
    )


@cache
def metric_code() -> str:
    """Of everything that makes the figures of answers and scores."""
    return code_sha256(
        figures.compared,
        figures.right,
        figures.factuality,
        figures.pass_at,
        figures.clusters_of,
        mean_interval,
        paired_difference,
        measures.bootstrap,
        pair_credit,
        pass_at_k,
        phrase_pattern,
        plain,
        same_text,
    )


def _named(served: Mapping[str, Served]) -> dict[str, str]:
    """Of a baseline behind a server, whose weights nobody can read: what it is called there. What
    the policy is called is what is measured, and so no part of the protocol."""
    if "sft" not in served:
        return {}
    server = served["sft"].server
    return {"model": server.settings.model, "says": server.model}


def _system_prompt(prompts: Sequence[Prompt]) -> Any:
    """The text before every prompt, empty for none; where prompts have several, how many, and the
    hash of all."""
    texts = [
        row.messages[0]["content"] if row.messages[0]["role"] == "system" else "" for row in prompts
    ]
    distinct = sorted(set(texts))
    if len(distinct) == 1:
        return distinct[0]
    return {"distinct": len(distinct), "sha256": content_sha256(distinct)} if distinct else ""
