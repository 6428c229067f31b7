"""Making a pipeline of a run, and changing one, without JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django import forms

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.common.models import longest
from apps.evaluation.models import Stage
from apps.loop.models import Pipeline, PipelineVersion
from apps.loop.recipe import FREEZE, LABEL, PREVIOUS, PROMOTE, RULE_NAMES, RUN, SELECT, Rules, Step
from apps.loop.screens.selecting import SelectPairsForm
from apps.loop.selectors.pipelines import steps_of
from apps.loop.selectors.rules import rules_of
from apps.loop.services.pipelines import (
    BASELINE,
    MOST,
    MOST_HOURS,
    NO_RULES,
    RULE_LIMITS,
    STEP_KINDS,
    StepChange,
    recipes_of,
)
from apps.loop.services.templates import SIZES, TEMPLATES
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run
from apps.training.services.kinds import POLICIES, PROMPTS, REPEATED

CHOICES = 100  # of runs in a list, the newest


def _runs(project: Project, kinds: frozenset[str]) -> list[tuple[str, str]]:
    rows = Run.objects.filter(
        project=project, kind__in=kinds, state=Run.State.FINISHED, archived_at=None
    )
    return [
        (row.pk, f"{row.name} · {row.get_kind_display()} · {row.pk}")
        for row in rows.order_by("-created_at")[:CHOICES]
    ]


def _number(label: str, help_text: str = "", *, name: str, whole: bool = True) -> forms.Field:
    low, high = next((low, high) for key, low, high in RULE_LIMITS if key == name)
    kind = forms.IntegerField if whole else forms.FloatField
    return kind(label=label, required=False, min_value=low, max_value=high, help_text=help_text)


class _PipelineForm(forms.Form):
    """What all forms of pipelines ask: the name and `Rules`."""

    name = forms.CharField(max_length=longest(Pipeline, "name"))
    trigger_pairs = _number(
        "After so many fresh accepted pairs",
        "Pairs accepted since its last dataset was frozen.",
        name="trigger_pairs",
    )
    trigger_age_days = _number(
        "When its newest reward model is so many days old", name="trigger_age_days"
    )
    trigger_every_days = _number("Every so many days", name="trigger_every_days")
    trigger_at_hour = forms.TypedChoiceField(
        label="At the hour, UTC",
        coerce=int,
        choices=[(hour, f"{hour:02}:00") for hour in range(24)],
        initial=NO_RULES.trigger_at_hour,
        required=False,
        empty_value=NO_RULES.trigger_at_hour,
        help_text="Of the schedule, from the next such hour on.",
    )
    trigger_drift = forms.BooleanField(
        label="When a model under watch differs from its baseline",
        required=False,
        help_text="Models under Monitoring, Watched models.",
    )
    budget_minutes = _number(
        "Wall time, minutes",
        "Of freezes and runs, waiting for a machine included and waiting for people not.",
        name="budget_minutes",
    )
    budget_votes = _number(
        "Votes",
        "On the pairs that the round generates; where it generates none, all that are cast while "
        "it lasts.",
        name="budget_votes",
    )
    budget_gpu_hours = _number("GPU hours", name="budget_gpu_hours", whole=False)
    price_vote = _number("Price of a vote", name="price_vote", whole=False)
    price_gpu_hour = _number("Price of a GPU hour", name="price_gpu_hour", whole=False)
    currency = forms.CharField(
        required=False, max_length=longest(PipelineVersion, "currency"), help_text="Such as EUR."
    )
    budget_money = _number(
        "Money", "Votes and GPU hours by their prices.", name="budget_money", whole=False
    )

    def refuse(self, error: DomainError) -> None:
        name = (error.field or "").replace("steps.", "copied_")
        self.add_error(name if name in self.fields else None, error.message)

    def rules(self) -> Rules:
        """After `is_valid`."""
        return Rules(**{name: self.cleaned_data[name] for name in RULE_NAMES})

    def starts(self) -> list[forms.BoundField]:
        return [self[name] for name in RULE_NAMES if name.startswith("trigger_")]

    def limits(self) -> list[forms.BoundField]:
        return [self[name] for name in RULE_NAMES if not name.startswith("trigger_")]


class PipelineNewForm(_PipelineForm):
    run = forms.ChoiceField(
        label="Repeat what led to this run",
        help_text="The runs behind it and the newest that followed from it give each step its "
        "settings. An evaluation of a policy gives most.",
    )
    as_round = forms.BooleanField(
        label="Show those runs as the first round", required=False, initial=True
    )

    def __init__(self, data: Any, *, project: Project, initial: Mapping[str, str]) -> None:
        super().__init__(data, initial=dict(initial))
        choices = _runs(project, REPEATED)
        self.has_runs = bool(choices)
        field = self.fields["run"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101
        field.choices = choices

    def first(self) -> list[forms.BoundField]:
        return [self[name] for name in ("run", "name", "as_round")]


class PipelineTemplateForm(_PipelineForm):
    template = forms.ChoiceField(choices=list(TEMPLATES.items()))
    size = forms.ChoiceField(
        label="Models and machine", choices=[(key, one.label) for key, one in SIZES.items()]
    )
    policy = forms.ChoiceField(
        label="Start from the language model",
        help_text="The reward model and the policy start from it, and the policy is compared "
        "with it.",
    )
    prompts = forms.ChoiceField(label="Prompts")
    generates = forms.BooleanField(
        label="In each round people first label fresh pairs of the policy", required=False
    )

    def __init__(self, data: Any, *, project: Project) -> None:
        super().__init__(data)
        models = Checkpoint.objects.filter(
            project=project, run__kind__in=POLICIES, run__state=Run.State.FINISHED
        ).select_related("run")
        datasets = Snapshot.objects.filter(
            project=project, kind__in=PROMPTS, state=Snapshot.State.FROZEN
        )
        choices = {
            "policy": [
                (one.pk, f"{one.run.name}, step {one.step:,} · {one.pk}")
                for one in models.order_by("-created_at")[:CHOICES]
            ],
            "prompts": [
                (one.pk, f"{one.name} · {one.get_kind_display()}")
                for one in datasets.order_by("-created_at")[:CHOICES]
            ],
        }
        for name, found in choices.items():
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField)  # noqa: S101
            field.choices = found
        self.lacks = [name for name, found in choices.items() if not found]

    def first(self) -> list[forms.BoundField]:
        names = ("name", "template", "size", "policy", "prompts", "generates")
        return [self[name] for name in names]


class PipelineForm(_PipelineForm):
    """Beside what every form asks, three fields of a step where it has them."""

    seen_version = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, data: Any, *, pipeline: Pipeline, version: PipelineVersion) -> None:
        self.steps = steps_of(version)
        super().__init__(
            data,
            initial={"name": pipeline.name, "seen_version": version.number}
            | asdict(rules_of(version)),
        )
        self.choosing: SelectPairsForm | None = None
        for step in self.steps:
            self._add(pipeline.project, step)
            if step.kind == SELECT:
                self.choosing = _choosing(data, step)

    def is_valid(self) -> bool:
        """With the plan of a selection, where it is switched on."""
        chosen = self.choosing is None or not self.choosing.is_on or self.choosing.plan()
        return super().is_valid() and bool(chosen)

    def _add(self, project: Project, step: Step) -> None:
        if step.may_be_off and step.kind != SELECT:
            self.fields[f"enabled_{step.key}"] = forms.BooleanField(
                label="Part of every round", required=False, initial=step.enabled
            )
        if step.kind == RUN:
            choices = _runs(project, STEP_KINDS[step.key])
            if not step.copied_from:
                choices.append(("", f"as they are, of the preset {step.config.get('preset', '')}"))
            elif step.copied_from not in dict(choices):
                choices.append((step.copied_from, f"as they are, of run {step.copied_from}"))
            self.fields[f"copied_{step.key}"] = forms.ChoiceField(
                label="Settings of the run",
                choices=choices,
                initial=step.copied_from,
                required=bool(step.copied_from),
            )
        if step.kind == FREEZE:
            datasets = [
                (one.pk, f"{one.name} · {one.pk}")
                for one in recipes_of(project)[:CHOICES]
                if not one.is_imported
            ]
            self.fields[f"copied_{step.key}"] = forms.ChoiceField(
                label="By the recipe of the dataset",
                choices=[("", "as it is"), *datasets],
                initial=step.copied_from,
                required=False,
            )
        if step.key in ("policy", "evaluate") and BASELINE in step.inputs:
            self.fields[f"previous_{step.key}"] = forms.ChoiceField(
                label="Start from" if step.key == "policy" else "Compare with",
                choices=[("", "the same model in every round"), ("1", "the round before’s policy")],
                initial="1" if step.inputs[BASELINE].origin == PREVIOUS else "",
                required=False,
            )
        if step.kind == LABEL:
            for name, field in _labeling(step).items():
                self.fields[f"{name}_{step.key}"] = field
        if step.kind == PROMOTE:
            self.fields["stage"] = forms.ChoiceField(choices=Stage.choices, initial=step.stage)

    def sections(self) -> list[tuple[Step, list[forms.BoundField]]]:
        """The fields of each step, in order."""
        return [
            (
                step,
                [
                    self[name]
                    for name in (
                        f"enabled_{step.key}",
                        f"copied_{step.key}",
                        f"previous_{step.key}",
                        *(f"{name}_{step.key}" for name in LABELING),
                        *(("stage",) if step.kind == PROMOTE else ()),
                    )
                    if name in self.fields
                ],
            )
            for step in self.steps
        ]

    def given(self) -> dict[str, Any]:
        """For `pipeline_change`; after `is_valid`."""
        found = self.cleaned_data
        changes = {
            step.key: StepChange(
                enabled=found.get(f"enabled_{step.key}"),
                copied_from=found.get(f"copied_{step.key}"),
                previous=bool(found[f"previous_{step.key}"])
                if f"previous_{step.key}" in found
                else None,
                **{
                    name: found[f"{name}_{step.key}"] or 0
                    for name in LABELING
                    if f"{name}_{step.key}" in found
                },
            )
            for step in self.steps
        }
        if self.choosing is not None:
            plan = self.choosing.plan() if self.choosing.is_on else None
            changes["select"] = StepChange(
                enabled=plan is not None, plan=plan.to_json() if plan else None
            )
        return {
            "seen_version": found["seen_version"],
            "name": found["name"],
            "rules": self.rules(),
            "stage": found.get("stage", ""),
            "steps": changes,
        }


def _choosing(data: Any, step: Step) -> SelectPairsForm:
    """The switch and the plan of a selection, as the step has them."""
    plan = dict(step.plan)
    shares = {name: 100 * plan[name] for name in ("measuring", "selected") if name in plan}
    return SelectPairsForm(data, prefix="select", initial={"choose": step.enabled} | plan | shares)


LABELING = ("share", "hours", "pairs")


def _labeling(step: Step) -> dict[str, forms.Field]:
    return {
        "share": forms.IntegerField(
            label="Percent of the pairs that must have their votes",
            min_value=1,
            max_value=100,
            initial=step.share,
        ),
        "hours": forms.IntegerField(
            label="Continue without the rest after so many hours",
            required=False,
            min_value=0,
            max_value=MOST_HOURS,
            initial=step.hours,
            help_text="Empty or 0: it waits.",
        ),
        "pairs": forms.IntegerField(
            label="Where nothing is generated: wait for so many fresh accepted pairs",
            required=False,
            min_value=1,
            max_value=MOST,
            initial=step.pairs,
        ),
    }
