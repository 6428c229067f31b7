"""May one optimise against this reward model? Every line of its page that a machine can measure.

Inputs: `reward`, and `data`, the preferences it was trained on (another snapshot will do, but then
"unseen" is not). Optional: `other`, pairs of another kind; `prompts` with `policy` and `sft`, whose
answers show what the model will be asked about; `judge`, another reward model for best-of-n. A line
for which nothing was given is not measured, and says so; nothing is green by default.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import set_seed

from workers.assess.answering import Models
from workers.assess.gather import splits_of
from workers.assess.judging import judge
from workers.assess.looking import Subject, look
from workers.assess.phases import Phases
from workers.assess.writing import publish
from workers.config import settings_for
from workers.config.inference import AssessSettings
from workers.context import (
    RunContext,
)
from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.data.snapshot import Preference
from workers.models.loading import parameter_count
from workers.rewards.build import build_judge, load_reward
from workers.rewards.ensemble import EnsembleReward, threshold_of
from workers.rewards.model import ModelReward
from workers.rewards.precision import BFLOAT16, INT8
from workers.rewards.source import RewardSource
from workers.servers.asking import Cancelled

CONFIG = AssessSettings
CHEAPER = (BFLOAT16, INT8)


def run(context: RunContext) -> dict[str, Any]:
    """Score, attack, draw, judge, write; the verdicts are the summary."""
    settings: AssessSettings = settings_for("assess", context.spec.config)
    set_seed(context.spec.seed)
    phases = Phases(context)
    rows = splits_of(context.input_path("data"))
    folder = context.input_path("reward")
    reward = load_reward(folder, name="reward_model", batch_size=settings.batch_size)
    models = Models(context, settings, drawn=phases.done)
    subject = Subject(
        reward=reward,
        rows=rows,
        other=_other(context),
        judge=build_judge(context, batch_size=settings.batch_size),
        answering=models,
        lower=_cheaper(folder, settings) if settings.check_precision else None,
        threshold=threshold_of(reward),
    )
    try:
        material = look(subject, settings, seed=context.spec.seed, progress=phases)
    except Cancelled:
        return {"step": 0}
    if context.should_stop() == "cancel":
        return {"step": 0}
    if material.held_out is None and not material.missing:
        raise RecipeError(
            "no_held_out_rows",
            Fault.DATA,
            "the dataset has training rows only: choose one with a held-out file, since rows that "
            "a model learned from cannot show whether it is right",
        )
    findings = judge(material, log=context.log)
    summary = publish(
        context,
        material,
        findings,
        model=_model(context, reward),
        rows={name: len(of) for name, of in rows.items()},
    )
    phases.finish()
    return summary | ({"server": models.served.as_summary()} if models.served else {})


def _other(context: RunContext) -> list[Preference]:
    """Rows of every file: the model learned from none of them."""
    if not context.has_input("other"):
        return []
    return [row for rows in splits_of(context.input_path("other")).values() for row in rows]


def _cheaper(folder: Path, settings: AssessSettings) -> Mapping[str, Callable[[], RewardSource]]:
    return {
        name: functools.partial(
            load_reward,
            folder,
            name="reward_model",
            batch_size=settings.batch_size,
            precision=name,
        )
        for name in CHEAPER
    }


def _model(context: RunContext, reward: ModelReward | EnsembleReward) -> dict[str, Any]:
    ref = context.spec.input("reward")
    members = reward.members if isinstance(reward, EnsembleReward) else [reward]
    return {
        "id": ref.id if ref else "",
        "sha256": ref.sha256 if ref else "",
        "members": len(members),
        "parameters": sum(parameter_count(member.model) for member in members),
        "max_length": min(member.max_length for member in members),
    }
