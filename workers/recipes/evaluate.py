"""The policy against its SFT model, on fixed prompts: did training help, and who says so?

Inputs: `policy`, `sft`, `prompts`, `reward` unless the reward is a rule, and `judge` where there is
one. A model answers here, or where it is served (`server`). The reward is what the policy was
trained to please; only the judge, which it never met, can say that it became better. Both models
answer the same prompts; differences are paired. The protocol that the figures were measured by is
part of the report (docs/evaluation.md); with `repeats` so is how far they move of themselves.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import set_seed

from workers.checks.suite import regression
from workers.config import settings_for
from workers.config.inference import EvaluateSettings
from workers.context import RunContext
from workers.contract.protocol import KEY
from workers.data.batches import encode_prompt
from workers.data.snapshot import Prompt, read_held_out_prompts
from workers.evaluation.answering import answered
from workers.evaluation.figures import compared, factuality, pass_at, repeat_report
from workers.evaluation.protocol import protocol_of
from workers.models.loading import freeze, load_causal, load_tokenizer
from workers.recipes.generate import sampling_of
from workers.rewards.build import build_judge, build_reward
from workers.rewards.source import RewardSource
from workers.rollouts.drawing import SCORE, Answer, answer, measure_latency, save_latency
from workers.rollouts.local import derive_seed
from workers.samples import Output, choose, emit_samples, publish_outputs
from workers.servers.answers import Served, fitting_prompts, served_inputs, summaries
from workers.servers.asking import Cancelled

CONFIG = EvaluateSettings
SHOWN = 8  # answers emitted as samples


def run(context: RunContext) -> dict[str, Any]:
    """Answer, score, compare; the report is the summary, an artifact and metric points."""
    settings: EvaluateSettings = settings_for("evaluate", context.spec.config)
    set_seed(context.spec.seed)
    served = served_inputs(context, settings.server)
    rows = _prompts(context, settings, served)
    try:
        answers = {
            role: answered(context, settings, rows, role, served) for role in ("policy", "sft")
        }
    except Cancelled:
        return {"step": 0}
    policy, sft = answers["policy"].first, answers["sft"].first
    sources = _sources(context, settings)
    rounds = [
        _scored(context, settings, rows, one, other, sources)
        for one, other in zip(answers["policy"].rounds, answers["sft"].rounds, strict=True)
    ]
    figures, scores, sft_scores = rounds[0]
    report: dict[str, Any] = {
        "prompts": len(rows),
        "policy": _behaviour(policy),
        "sft": _behaviour(sft),
        **summaries(served),
        **figures,
    }
    if found := pass_at(rows, policy, sft, settings, context.spec.seed):
        report["pass_at"] = found
    if found := regression(
        rows,
        [given.text for given in policy],
        [given.text for given in sft],
        margin=settings.regression_margin,
        replicates=settings.bootstrap_replicates,
        seed=context.spec.seed,
    ):
        report["regression"] = found
    report["repeats"] = repeat_report([found for found, _, _ in rounds])
    report[KEY] = protocol_of(context, settings, rows, answers, served).to_json()
    if settings.latency_requests:
        try:
            report["latency"] = _latency(context, settings, rows, served, sources["reward"])
        except Cancelled:
            return {"step": 0}
    _publish(context, report)
    publish_outputs(
        context,
        [
            Output(row.messages, given.text, score, None, other.text, other_score, *judged)
            for row, given, score, other, other_score, judged in zip(
                rows,
                policy,
                scores["reward"],
                sft,
                sft_scores["reward"],
                _judged(scores, sft_scores, len(rows)),
                strict=True,
            )
        ],
    )
    emit_samples(
        context,
        1,
        [row.messages for row in rows][:SHOWN],
        policy[:SHOWN],
        rewards=scores["reward"],
        baselines=sft,
    )
    context.progress(1, 1, "done")
    return {"step": 1, **report}


def _judged(
    scores: Mapping[str, Sequence[float]], others: Mapping[str, Sequence[float]], n: int
) -> list[tuple[float | None, float | None]]:
    """The judge's scores of both answers, row by row; None where there is no judge."""
    if "judge" not in scores:
        return [(None, None)] * n
    return list(zip(scores["judge"], others["judge"], strict=True))


def _sources(context: RunContext, settings: EvaluateSettings) -> dict[str, RewardSource]:
    """The reward, and the judge where there is one."""
    reward = build_reward(context, settings.reward, batch_size=settings.batch_size)
    judge = build_judge(context, batch_size=settings.batch_size)
    return {"reward": reward} | ({} if judge is None else {"judge": judge})


def _scored(
    context: RunContext,
    settings: EvaluateSettings,
    rows: Sequence[Prompt],
    policy: Sequence[Answer],
    sft: Sequence[Answer],
    sources: Mapping[str, RewardSource],
) -> tuple[dict[str, Any], dict[str, list[float]], dict[str, list[float]]]:
    """What each source says of one round of answers, the policy's scores and the baseline's."""
    seed = context.spec.seed
    found: dict[str, Any] = {}
    scores: dict[str, list[float]] = {}
    others: dict[str, list[float]] = {}
    for name, source in sources.items():
        scores[name], others[name] = _score(source, rows, policy), _score(source, rows, sft)
        found[name] = compared(scores[name], others[name], rows, settings, seed)
    judged = (sources["judge"], scores["judge"]) if "judge" in sources else None
    if known := factuality(rows, policy, sft, judged, settings, seed):
        found["factuality"] = known
    return found, scores, others


def _prompts(
    context: RunContext, settings: EvaluateSettings, served: Mapping[str, Served]
) -> list[Prompt]:
    """The same choice for every policy of this seed; `draws` copies of each prompt."""
    folder = context.input_path("prompts")
    rows = read_held_out_prompts(folder)
    asked = [row.messages for row in rows]
    fitting = fitting_prompts(context, served, "policy", asked, settings.max_prompt_length)
    rows = [row for row in rows if row.messages in fitting]
    chosen = [rows[i] for i in choose(len(rows), settings.max_prompts, context.spec.seed)]
    return [row for row in chosen for _ in range(settings.draws)]


def _latency(
    context: RunContext,
    settings: EvaluateSettings,
    rows: Sequence[Prompt],
    served: Mapping[str, Served],
    reward: RewardSource,
) -> dict[str, Any]:
    """The policy's answers timed where they are served, alone and with their score.

    Every request has a seed of its own, so no answer that was kept or scored before is timed.
    """
    context.progress(0, 1, "timing answers")
    asked = itertools.count()
    there = served.get("policy")
    here = None if there else freeze(load_causal(context.input_path("policy")))
    tokenizer = None if there else load_tokenizer(context.input_path("policy"))

    def answered(i: int) -> tuple[Prompt, Answer]:
        row = rows[i % len(rows)]
        seed = derive_seed(context.spec.seed, "latency", context.spec.attempt, next(asked))
        sampling = sampling_of(settings, seed)
        if there:
            return row, there.answer([row.messages], sampling, doing="timing answers")[0]
        assert here is not None  # noqa: S101 — one of the two answers
        assert tokenizer is not None  # noqa: S101
        return row, answer(here, tokenizer, [encode_prompt(tokenizer, row.messages)], sampling)[0]

    def alone(i: int) -> int:
        return answered(i)[1].tokens

    def scored(i: int) -> int:
        row, given = answered(i)
        _score(reward, [row], [given])
        return given.tokens

    found = measure_latency(alone, scored, requests=settings.latency_requests, what=SCORE)
    return save_latency(context, found)


def _score(source: RewardSource, rows: Sequence[Prompt], answers: Sequence[Answer]) -> list[float]:
    return source.score([row.messages for row in rows], [given.text for given in answers]).values


def _behaviour(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Mean tokens, share that ended, and nats from the SFT model, per answer."""
    kl = [given.kl for given in answers if given.kl is not None]
    return {
        "response_length": float(np.mean([given.tokens for given in answers])),
        "ended_share": float(np.mean([given.ended for given in answers])),
        "kl": float(np.mean(kl)) if kl else None,
    }


def _publish(context: RunContext, report: dict[str, Any]) -> None:
    values: dict[str, float | None] = {
        "eval/response_length": report["policy"]["response_length"],
        "eval/ended_share": report["policy"]["ended_share"],
        "eval/kl": report["policy"]["kl"],
        "eval/score": report["reward"]["policy"]["value"],
        "eval/win_rate_by_reward": report["reward"]["win_rate"]["value"],
    }
    if "judge" in report:
        values["eval/held_out_score"] = report["judge"]["policy"]["value"]
        values["eval/win_rate"] = report["judge"]["win_rate"]["value"]
    if "regression" in report:
        values["eval/checks_passed"] = report["regression"]["all"]["after"]["value"]
        values["eval/checks_difference"] = report["regression"]["all"]["difference"]["value"]
    if "factuality" in report:
        values["eval/factuality"] = report["factuality"]["policy"]["value"]
        values["eval/factuality_difference"] = report["factuality"]["difference"]["value"]
    context.metrics(1, values)
    path = context.workdir / "evaluation.json"
    path.write_text(json.dumps(report, indent=1))
    context.save_artifact(path, media_type="application/json")
