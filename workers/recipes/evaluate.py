"""The policy against its SFT model, on fixed prompts: did training help, and who says so?

Inputs: `policy`, `sft`, `prompts`, `reward` unless the reward is a rule, and `judge` where there is
one. A model answers here, or where it is served (`server`). The reward is what the policy was
trained to please; only the judge, which it never met, can say that it became better. Both models
answer the same prompts; differences are paired.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.special import expit
from transformers import set_seed

from measures.accuracy import pair_credit
from measures.estimate import Interval
from measures.intervals import mean_interval, paired_difference
from workers.checks.suite import regression
from workers.config import settings_for
from workers.config.inference import EvaluateSettings
from workers.context import RunContext
from workers.contract.reasons import in_words
from workers.data.batches import encode_prompt
from workers.data.snapshot import Prompt, read_held_out_prompts
from workers.models.forward import Reference
from workers.models.loading import freeze, load_causal, load_tokenizer
from workers.recipes.generate import sampling_of
from workers.rewards.build import build_judge, build_reward
from workers.rewards.rules import phrase_pattern, plain, same_text
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
        policy_answers = _answers(context, settings, rows, "policy", served)
        sft_answers = _answers(context, settings, rows, "sft", served)
    except Cancelled:
        return {"step": 0}
    sources: dict[str, RewardSource] = {
        "reward": build_reward(context, settings.reward, batch_size=settings.batch_size)
    }
    judge = build_judge(context, batch_size=settings.batch_size)
    if judge is not None:
        sources["judge"] = judge

    report: dict[str, Any] = {
        "prompts": len(rows),
        "policy": _behaviour(policy_answers),
        "sft": _behaviour(sft_answers),
    }
    report |= summaries(served)
    scores: dict[str, list[float]] = {}
    sft_scores: dict[str, list[float]] = {}
    for name, source in sources.items():
        scores[name] = _score(source, rows, policy_answers)
        sft_scores[name] = _score(source, rows, sft_answers)
        report[name] = _compare(scores[name], sft_scores[name], rows, settings, context.spec.seed)
    judged = None if judge is None else (judge, scores["judge"])
    if found := factuality(rows, policy_answers, sft_answers, judged, settings, context.spec.seed):
        report["factuality"] = found
    if found := regression(
        rows,
        [given.text for given in policy_answers],
        [given.text for given in sft_answers],
        margin=settings.regression_margin,
        replicates=settings.bootstrap_replicates,
        seed=context.spec.seed,
    ):
        report["regression"] = found
    if settings.latency_requests:
        try:
            report["latency"] = _latency(context, settings, rows, served, sources["reward"])
        except Cancelled:
            return {"step": 0}
    _publish(context, report)
    publish_outputs(
        context,
        [
            Output(row.messages, given.text, score, None, other.text, other_score)
            for row, given, score, other, other_score in zip(
                rows,
                policy_answers,
                scores["reward"],
                sft_answers,
                sft_scores["reward"],
                strict=True,
            )
        ],
    )
    emit_samples(
        context,
        1,
        [row.messages for row in rows][:SHOWN],
        policy_answers[:SHOWN],
        rewards=scores["reward"],
        baselines=sft_answers,
    )
    context.progress(1, 1, "done")
    return {"step": 1, **report}


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


def _answers(
    context: RunContext,
    settings: EvaluateSettings,
    rows: Sequence[Prompt],
    role: str,
    served: Mapping[str, Served],
) -> list[Answer]:
    """Answers of one model. The policy's carry their divergence from the SFT model where the whole
    distribution was sampled, which is when it can be measured; a server's never do."""
    context.progress(0, 1, f"answering as {role}")
    sampling = sampling_of(settings, derive_seed(context.spec.seed, "evaluate"))
    if role in served:
        return served[role].answer([row.messages for row in rows], sampling)
    tokenizer = load_tokenizer(context.input_path(role))
    ids = [encode_prompt(tokenizer, row.messages) for row in rows]
    whole = settings.temperature > 0 and settings.top_p == 1.0 and settings.top_k == 0
    known = "sft" not in served or served["sft"].has_weights
    reference = (
        Reference(freeze(load_causal(context.input_path("sft"))))
        if role == "policy" and whole and known
        else None
    )
    return answer(
        freeze(load_causal(context.input_path(role))),
        tokenizer,
        ids,
        sampling,
        batch_size=settings.batch_size,
        reference=reference,
    )


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


def _compare(
    policy: Sequence[float],
    sft: Sequence[float],
    rows: Sequence[Prompt],
    settings: EvaluateSettings,
    seed: int,
) -> dict[str, Any]:
    """Mean scores, their paired difference, the policy's win rate (ties ½), and the share of people
    who would prefer its answer if they chose as Bradley–Terry has it of these scores: σ of the
    difference, near ½ where the answers are nearly as good as each other."""
    clusters = [row.group or row.messages[-1]["content"] for row in rows]
    options: dict[str, Any] = {
        "clusters": clusters,
        "replicates": settings.bootstrap_replicates,
        "seed": seed,
    }
    ahead = np.subtract(policy, sft)
    results: dict[str, Interval] = {
        "policy": mean_interval(policy, **options),
        "sft": mean_interval(sft, **options),
        "difference": paired_difference(policy, sft, **options),
        "win_rate": mean_interval(pair_credit(ahead), **options),
        "people_win_rate": mean_interval(expit(ahead), **options),
    }
    return {name: in_words(asdict(interval)) for name, interval in results.items()}


def right(given: str, known: str, how: str) -> bool:
    """Whether an answer is the known one, by `how` of the setting `factuality`."""
    if how == "exact":
        return given == known
    if how == "contains":
        return phrase_pattern(known).search(plain(given)) is not None
    return same_text(given, known)


def factuality(
    rows: Sequence[Prompt],
    policy: Sequence[Answer],
    sft: Sequence[Answer],
    judged: tuple[RewardSource, Sequence[float]] | None,
    settings: EvaluateSettings,
    seed: int,
) -> dict[str, Any]:
    """On prompts whose right answer is known: the share of right answers of both models and their
    paired difference. judged: the judge and its scores of the policy's answers; then also the share
    of these that it scores at least as high as the right one, ties ½. Empty where no answer is
    known, or none is asked for."""
    known = [i for i, row in enumerate(rows) if row.answer]
    if settings.factuality == "off" or not known:
        return {}
    asked = [rows[i] for i in known]
    options: dict[str, Any] = {
        "clusters": [row.group or row.messages[-1]["content"] for row in asked],
        "replicates": settings.bootstrap_replicates,
        "seed": seed,
    }

    def rightly(answers: Sequence[Answer]) -> list[float]:
        pairs = [(answers[i].text, rows[i].answer) for i in known]
        return [float(right(text, answer, settings.factuality)) for text, answer in pairs]

    after, before = rightly(policy), rightly(sft)
    found = {
        "policy": mean_interval(after, **options),
        "sft": mean_interval(before, **options),
        "difference": paired_difference(after, before, **options),
    }
    if judged is not None:
        judge, scores = judged
        references = judge.score([row.messages for row in asked], [row.answer for row in asked])
        ahead = np.subtract([scores[i] for i in known], references.values)
        found["judge_against_right"] = mean_interval(pair_credit(ahead), **options)
    return {name: in_words(asdict(interval)) for name, interval in found.items()}


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
