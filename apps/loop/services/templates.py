"""Pipelines that are made of a template: for a project that has nothing trained yet to repeat."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.evaluation.models import Stage
from apps.loop.models import Pipeline
from apps.loop.recipe import (
    APPROVE,
    AUDIT,
    CHECKPOINT,
    DECIDE,
    FIXED,
    FREEZE,
    LABEL,
    PREVIOUS,
    PROMOTE,
    RUN,
    SNAPSHOT,
    STEP,
    Rules,
    Source,
    Step,
)
from apps.loop.services.pipelines import NO_RULES, pipeline_of_steps, select_step
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.snapshots import recipe_default
from apps.training.models import Checkpoint
from apps.training.services.kinds import POLICIES, PROMPTS
from workers.contract.jobs import ONE, PLAIN
from workers.contract.wire import QUEUE_CPU, QUEUE_GPU

REWARD, DPO, PPO = "reward", "dpo", "ppo"
TEMPLATES: Mapping[str, str] = {
    REWARD: "Retrain the reward model",
    DPO: "Reward model, then a policy by DPO",
    PPO: "Reward model, then a policy by PPO",
}
_DATA = Source(STEP, "freeze", SNAPSHOT)
_REWARD = Source(STEP, "reward", CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Size:
    """presets: {kind of run: its preset}; a kind that is not named takes its defaults."""

    label: str
    queue: str
    presets: Mapping[str, str]


SIZES: Mapping[str, Size] = {
    "lora": Size(
        "pretrained models, LoRA, on a GPU",
        QUEUE_GPU,
        {"reward": "lora", "dpo": "lora", "ppo": "lora"},
    ),
    "demo": Size(
        "the small models of the demo, on processors",
        QUEUE_CPU,
        dict.fromkeys(("reward", "dpo", "ppo", "generate", "evaluate", "assess"), "demo"),
    ),
}


@transaction.atomic
def pipeline_from_template(
    *,
    project: Project,
    template: str,
    size: str,
    policy: Checkpoint,
    prompts: Snapshot,
    name: str,
    user: User,
    generates: bool = False,
    rules: Rules = NO_RULES,
) -> Pipeline:
    """A pipeline of one of `TEMPLATES`, its runs by the presets of one of `SIZES`.

    policy: what reward model and policy start from, and what the policy is compared with; prompts:
    what it is asked. generates: each round has people label fresh pairs of the policy first.
    Raises `DomainError` naming the field (template, size, policy, prompts, name, or one of
    `Rules`); then nothing was stored.
    """
    if template not in TEMPLATES:
        raise DomainError(
            f"Choose a template: {', '.join(TEMPLATES)}.", code="bad_template", field="template"
        )
    if size not in SIZES:
        raise DomainError(f"Choose a size: {', '.join(SIZES)}.", code="bad_size", field="size")
    if policy.project_id != project.pk or policy.run.kind not in POLICIES:
        raise DomainError(
            "Choose a language model of this project.", code="wrong_kind", field="policy"
        )
    if prompts.project_id != project.pk or prompts.kind not in PROMPTS:
        raise DomainError(
            "Choose a dataset of this project with prompts.", code="wrong_kind", field="prompts"
        )
    steps = _steps(project, template, SIZES[size], policy, prompts, generates=generates)
    return pipeline_of_steps(project, name, steps, rules, user, template=template)


def _steps(
    project: Project,
    template: str,
    size: Size,
    policy: Checkpoint,
    prompts: Snapshot,
    *,
    generates: bool,
) -> list[Step]:
    start = Source(FIXED, "", CHECKPOINT, policy.pk)
    asked = Source(FIXED, "", SNAPSHOT, prompts.pk)

    def run(key: str, kind: str, **inputs: Source) -> Step:
        config: dict[str, Any] = {"preset": size.presets[kind]} if kind in size.presets else {}
        return Step(
            key,
            RUN,
            run_kind=kind,
            config=config,
            queue=size.queue,
            layout=ONE,
            launcher=PLAIN,
            inputs=inputs,
        )

    steps: list[Step] = []
    if generates:
        before = Source(PREVIOUS, "policy", CHECKPOINT, policy.pk)
        steps = [
            run("generate", "generate", prompts=asked, policy=before),
            select_step(),
            Step("label", LABEL),
            Step("decide", DECIDE, enabled=False),
        ]
    steps += [
        Step("freeze", FREEZE, recipe=recipe_default(project=project).to_json()),
        run("reward", "reward", data=_DATA, sft=start),
        run("assess", "assess", reward=_REWARD, data=_DATA, prompts=asked, policy=start),
        Step("approve", APPROVE, of="reward"),
    ]
    if template == REWARD:
        return steps
    if template == DPO:
        trained = run("policy", "dpo", data=_DATA, sft=start)
    else:
        trained = run("policy", "ppo", prompts=asked, sft=start, reward=_REWARD)
    own = Source(STEP, "policy", CHECKPOINT)
    return [
        *steps,
        trained,
        run("evaluate", "evaluate", prompts=asked, policy=own, sft=start, reward=_REWARD),
        Step("audit", AUDIT, enabled=False, of="policy"),
        Step("promote", PROMOTE, of="policy", stage=Stage.STAGING.value),
    ]
