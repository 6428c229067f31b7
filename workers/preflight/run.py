"""The preflight of a run: every check that its parts allow, one report, an end where one blocks."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from workers import ranks
from workers.assess.scores import Scored, draw, pairs_of
from workers.config import settings_for
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import Demonstration, JudgedAnswer, Preference, evaluation_splits
from workers.memory.fitting import Room, layout_ledger, room
from workers.memory.ledger import Ledger
from workers.memory.plan import plan_for
from workers.memory.report import fits, message, tight, to_json
from workers.preflight.critic import FixedRollout, critic_finding, fit_critic
from workers.preflight.data import (
    Material,
    answer_rows,
    demonstration_overlap,
    demonstration_rows,
    evaluation_overlap,
    learnt_of,
    material_of,
    preference_rows,
    prompt_rows,
    text_of,
    too_long,
)
from workers.preflight.findings import BLOCK, OK, TITLES, UNKNOWN, WARN, Finding, Parts, Report
from workers.preflight.reward import (
    LEVEL_OF,
    Trial,
    draw_trial,
    kl_price,
    reward_against_chance,
    reward_and_people,
    reward_shape,
)
from workers.rewards.source import RewardSource
from workers.rl.losses import RunningMoments
from workers.rollouts.local import Sampling, derive_seed

# Whether a run fits its device, before its models are loaded.


def ledger_of(
    context: RunContext,
    kind: str,
    settings: Any,
    *,
    longest_prompt: int | None = None,
    longest_row: int | None = None,
) -> Ledger | None:
    """The ledger of one process of a run, from its inputs' configurations; None where there are
    none to read."""
    plan = plan_for(context, kind, settings, longest_prompt=longest_prompt, longest_row=longest_row)
    return None if plan is None else layout_ledger(plan, context.spec.layout, ranks.world())


def memory_finding(found: Ledger | None, settings: Any, here: Room | None = None) -> Finding:
    """Blocks where the peak is over what the device has; close to it is a warning."""
    if found is None:
        return Finding(
            level=UNKNOWN,
            check="memory",
            message="The memory cannot be estimated: no input holds a model's configuration, or "
            "its architecture cannot be read without its weights.",
        )
    here = here or room()
    level = BLOCK if not fits(found, here) else WARN if tight(found, here) else OK
    return Finding(
        level=level,
        check="memory",
        message=message(found, here, fields=names_of(settings)),
        figures={
            "peak_bytes": round(found.peak),
            "room_bytes": round(here.bytes),
            "share": found.peak / here.bytes,
        },
        fault=Fault.CONFIGURATION,
    )


def memory_json(found: Ledger, settings: Any, here: Room | None = None) -> dict[str, Any]:
    return to_json(found, here or room(), fields=names_of(settings))


def names_of(settings: Any) -> list[str]:
    return [field.name for field in fields(settings)]


FILE = "preflight.json"
PAIRS = 200  # of a snapshot that are scored
POLICIES = ("ppo", "grpo")  # which answer prompts; the others are trained on rows
FITTED = 16  # answers that the critic is fitted to


def run_preflight(context: RunContext, kind: str, settings: Any, parts: Parts) -> Report:
    """Look before the first step. Writes the artifact `preflight.json` and a log line per check.

    Raises `RecipeError` preflight_<check> where a check blocks, with every blocking message in it.
    Call it on a fresh start only, not on a resumed one. It seeds torch's global generator, as every
    sampling does, and leaves weights, gradients and modes as they were.
    """
    started = time.monotonic()
    material = material_of(context, trained_on=kind not in POLICIES)
    material = material.replaced(parts.preferences, parts.demonstrations, parts.answers)
    found = _ledger(context, kind, settings, parts, material)
    findings = [
        _configuration(kind),
        *_data(context, kind, settings, parts, material),
        memory_finding(found, settings),
    ]
    order = list(TITLES)
    report = Report(
        kind=kind,
        findings=tuple(sorted(findings, key=lambda finding: order.index(finding.check))),
        seconds=time.monotonic() - started,
        memory=None if found is None else memory_json(found, settings),
        changed=_changed(context, kind, settings),
    )
    publish(context, report)
    stop_if_blocked(report)
    return report


def check_memory(context: RunContext, kind: str, settings: Any) -> Ledger | None:
    """Before anything is loaded: ends a run that cannot fit, as `run_preflight` would."""
    found = ledger_of(context, kind, settings)
    finding = memory_finding(found, settings)
    if found is not None and finding.level == BLOCK:
        report = Report(
            kind=kind,
            findings=(_configuration(kind), finding),
            memory=memory_json(found, settings),
        )
        publish(context, report)
        stop_if_blocked(report)
    return found


def publish(context: RunContext, report: Report) -> None:
    """The artifact and the log lines."""
    path = context.workdir / FILE
    path.write_text(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    context.save_artifact(path, media_type="application/json")
    for finding in report.findings:
        context.log(finding.line, level="warning" if finding.level in (WARN, BLOCK) else "info")


def stop_if_blocked(report: Report) -> None:
    """`RecipeError` named after the first check that blocks."""
    if report.blocked:
        first = report.blocked[0]
        raise RecipeError(
            f"preflight_{first.check}",
            first.fault,
            " ".join(finding.message for finding in report.blocked),
        )


# --- the checks, by what they need ---


def _configuration(kind: str) -> Finding:
    return Finding(
        level=OK,
        check="configuration",
        message=f"Every field of this {kind} run is known and within its bounds.",
    )


def _changed(context: RunContext, kind: str, settings: Any) -> dict[str, list[Any]] | None:
    """What a minimal reproduction made smaller: before and after, by field."""
    if not getattr(settings, "minimal", False):
        return None
    meant = settings_for(kind, context.spec.config)
    both = {f.name: [getattr(meant, f.name), getattr(settings, f.name)] for f in fields(settings)}
    return {name: values for name, values in both.items() if values[0] != values[1]}


def _holds_nothing_out(context: RunContext) -> bool:
    """Whether the prompts come from a snapshot without an evaluation file."""
    return context.has_input("prompts") and not evaluation_splits(context.input_path("prompts"))


def _ledger(
    context: RunContext, kind: str, settings: Any, parts: Parts, material: Material
) -> Ledger | None:
    if parts.ledger is not None:
        return parts.ledger
    prompt = max((len(ids) for ids in parts.prompt_ids), default=None)
    row = None if kind in POLICIES else material.longest(parts.tokenizer)
    return ledger_of(context, kind, settings, longest_prompt=prompt, longest_row=row)


def _data(
    context: RunContext, kind: str, settings: Any, parts: Parts, material: Material
) -> Iterator[Finding]:
    """Rows, overlaps, and what needs answers: the reward and the critic."""
    preferences, demonstrations = material.preferences, material.demonstrations
    if kind not in POLICIES:
        noun, rows, finding = _trained_on(material)
        yield finding
        yield _lengths(settings, noun, max(0, len(rows) - parts.left_out), parts)
        if parts.example is not None:
            yield learnt_of(parts.example, parts.tokenizer, parts.changed_answers)
        yield evaluation_overlap(
            [text_of(row.prompt) for row in rows], [text_of(p) for p in material.held_out]
        )
        return
    texts = [text_of(prompt) for prompt in parts.prompts]
    yield evaluation_overlap(
        texts,
        [text_of(prompt) for prompt in parts.eval_prompts],
        same_file=_holds_nothing_out(context),
    )
    yield prompt_rows(texts)
    yield demonstration_overlap(texts, [text_of(row.prompt) for row in demonstrations])
    level = LEVEL_OF.get(getattr(settings, "reward_check", "block"))
    trial = None
    if level is not None:
        trial = draw_trial(
            parts,
            _sampling(context, settings),
            demonstrations=demonstrations,
            preferences=preferences,
        )
    yield _lengths(settings, "prompt", len(parts.prompts), parts, unfinished=_unfinished(trial))
    if level is None:
        yield _unknown("reward", "Switched off (reward_check): nothing was answered or scored.")
        yield _kl_price(settings, None)
    elif parts.reward is not None and trial is not None:
        yield from _reward(context, settings, parts, parts.reward, trial, preferences, level)
    else:
        yield _unknown("reward", "There are no answers to score, or nothing to score them.")


def _trained_on(
    material: Material,
) -> tuple[str, Sequence[Preference | Demonstration | JudgedAnswer], Finding]:
    """The rows of a run that learns from rows: what they are, they themselves, what is wrong."""
    if material.answers:
        return "answer", material.answers, answer_rows(material.answers)
    if material.preferences:
        return "pair", material.preferences, preference_rows(material.preferences)
    rows = material.demonstrations
    return "demonstration", rows, demonstration_rows(rows)


def _reward(
    context: RunContext,
    settings: Any,
    parts: Parts,
    reward: RewardSource,
    trial: Trial,
    preferences: Sequence[Preference],
    level: str,
) -> Iterator[Finding]:
    drawn_scores = [
        reward.score(prompts, responses.texts).values for prompts, responses in trial.drawn
    ]
    drawn = [value for values in drawn_scores for value in values]
    expert = drawn if trial.by_policy else reward.score(trial.prompts, trial.expert).values
    chance = reward.score(trial.prompts, trial.chance).values
    yield reward_against_chance(expert, chance, trial.keys, who=trial.who, level=level)
    yield reward_shape(
        drawn or expert,
        chance,
        who="starting policy" if drawn else "weak expert",
        level=level,
    )
    if preferences:
        rows = draw(preferences, PAIRS, derive_seed(context.spec.seed, "preflight", "pairs"))
        both = reward.score(
            [row.prompt for row in rows] * 2,
            [row.chosen for row in rows] + [row.rejected for row in rows],
        )
        pairs = pairs_of("preferences", rows, Scored(np.array(both.values)), replicates=1000)
        yield reward_and_people(pairs, level=level)
    yield _kl_price(settings, float(np.std(drawn)) if len(drawn) > 1 else None)
    if parts.critic is not None and trial.drawn:
        rollout, answers = _fixed(trial, drawn_scores[0])
        fit = fit_critic(parts.critic, rollout)
        yield critic_finding(fit, answers=answers)


def _kl_price(settings: Any, reward_std: float | None) -> Finding:
    """RLOO takes the divergence off the reward as it is."""
    raw = getattr(settings, "loss_type", "") == "rloo"
    return kl_price(_price(settings), reward_std, normalised=not raw)


def _fixed(trial: Trial, scores: Sequence[float]) -> tuple[FixedRollout, int]:
    """The first answers as a rollout; γ = 1 and no divergence yet, so that every token's return is
    its answer's normalised score."""
    _, responses = trial.drawn[0]
    rows = slice(0, min(FITTED, len(scores)))
    raw = torch.tensor(list(scores[rows]), device=responses.response_ids.device)
    moments = RunningMoments()
    moments.update(raw)
    normalised = moments.normalise(raw, clip=5.0)
    mask = responses.response_mask[rows]
    return (
        FixedRollout(
            responses.prompt_ids[rows],
            responses.prompt_mask[rows],
            responses.response_ids[rows],
            mask,
            normalised[:, None] * mask,
        ),
        len(raw),
    )


def _lengths(
    settings: Any, noun: str, rows: int, parts: Parts, *, unfinished: float | None = None
) -> Finding:
    limit = "max_prompt_length" if noun == "prompt" else "max_length"
    answers = _answer_limit(settings)
    return too_long(
        noun,
        rows,
        parts.left_out,
        limit=limit,
        tokens=getattr(settings, limit, 0) or 0,
        cut=parts.cut,
        unfinished=unfinished,
        answer_limit=(answers, getattr(settings, answers)) if answers else None,
    )


def _answer_limit(settings: Any) -> str | None:
    return next(
        (name for name in ("max_new_tokens", "max_completion_length") if hasattr(settings, name)),
        None,
    )


def _sampling(context: RunContext, settings: Any) -> Sampling:
    return Sampling(
        getattr(settings, _answer_limit(settings) or "", 128),
        temperature=getattr(settings, "temperature", 1.0),
        seed=derive_seed(context.spec.seed, "preflight"),
    )


def _price(settings: Any) -> float:
    value = getattr(settings, "kl_coef", None)
    return float(getattr(settings, "beta", 0.0) if value is None else value)


def _unfinished(trial: Trial | None) -> float | None:
    return None if trial is None or trial.ended is None else 1 - trial.ended


def _unknown(check: str, why: str) -> Finding:
    return Finding(level=UNKNOWN, check=check, message=why)
