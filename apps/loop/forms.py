"""Making a pipeline of a run, and changing one, without JSON."""

from typing import Any

from django import forms

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.common.models import longest
from apps.evaluation.models import Stage
from apps.loop.models import Pipeline, PipelineVersion
from apps.loop.recipe import PREVIOUS, PROMOTE, RUN, Step
from apps.loop.selectors.pipelines import steps_of
from apps.loop.services.pipelines import (
    BASELINE,
    LONGEST_BUDGET,
    STEP_KINDS,
    StepChange,
)
from apps.training.models import Run
from apps.training.services.kinds import REPEATED

CHOICES = 100  # of runs in a list, the newest


def _runs(project: Project, kinds: frozenset[str]) -> list[tuple[str, str]]:
    rows = Run.objects.filter(
        project=project, kind__in=kinds, state=Run.State.FINISHED, archived_at=None
    )
    return [
        (row.pk, f"{row.name} · {row.get_kind_display()} · {row.pk}")
        for row in rows.order_by("-created_at")[:CHOICES]
    ]


class _PipelineForm(forms.Form):
    """What both forms ask."""

    name = forms.CharField(max_length=longest(Pipeline, "name"))
    trigger_pairs = forms.IntegerField(
        label="Start a round by itself after so many fresh accepted pairs",
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text="Pairs accepted since its last dataset was frozen. Empty: only people and "
        "programs start rounds.",
    )
    budget_minutes = forms.IntegerField(
        label="Budget of wall time for a round, minutes",
        required=False,
        min_value=1,
        max_value=LONGEST_BUDGET,
        help_text="Of its freezes and runs, waiting for a machine included and waiting for people "
        "not. When it is used up, the run under way saves and the round stops. Empty: no limit.",
    )

    def refuse(self, error: DomainError) -> None:
        name = (error.field or "").replace("steps.", "copied_")
        self.add_error(name if name in self.fields else None, error.message)


class PipelineNewForm(_PipelineForm):
    run = forms.ChoiceField(
        label="Repeat what led to this run",
        help_text="The runs behind it and the newest that followed from it give each step its "
        "settings. An evaluation of a policy gives most.",
    )
    field_order = ("run", "name", "trigger_pairs", "budget_minutes")

    def __init__(self, data: Any, *, project: Project, run: str = "") -> None:
        super().__init__(data, initial={"run": run})
        choices = _runs(project, REPEATED)
        self.has_runs = bool(choices)
        field = self.fields["run"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101
        field.choices = choices


class PipelineForm(_PipelineForm):
    """Beside what every form asks, three fields of a step where it has them."""

    seen_version = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, data: Any, *, pipeline: Pipeline, version: PipelineVersion) -> None:
        self.steps = steps_of(version)
        super().__init__(
            data,
            initial={
                "name": pipeline.name,
                "trigger_pairs": version.trigger_pairs,
                "budget_minutes": version.budget_minutes,
                "seen_version": version.number,
            },
        )
        for step in self.steps:
            self._add(pipeline.project, step)

    def _add(self, project: Project, step: Step) -> None:
        if step.may_be_off:
            self.fields[f"enabled_{step.key}"] = forms.BooleanField(
                label="Part of every round", required=False, initial=step.enabled
            )
        if step.kind == RUN:
            choices = _runs(project, STEP_KINDS[step.key])
            if step.copied_from not in dict(choices):
                choices.append((step.copied_from, f"as they are, of run {step.copied_from}"))
            self.fields[f"copied_{step.key}"] = forms.ChoiceField(
                label="Settings of the run", choices=choices, initial=step.copied_from
            )
        if step.key in ("policy", "evaluate") and BASELINE in step.inputs:
            self.fields[f"previous_{step.key}"] = forms.ChoiceField(
                label="Start from" if step.key == "policy" else "Compare with",
                choices=[("", "the same model in every round"), ("1", "the round before’s policy")],
                initial="1" if step.inputs[BASELINE].origin == PREVIOUS else "",
                required=False,
            )
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
            )
            for step in self.steps
        }
        return {
            "seen_version": found["seen_version"],
            "name": found["name"],
            "trigger_pairs": found["trigger_pairs"],
            "budget_minutes": found["budget_minutes"],
            "stage": found.get("stage", ""),
            "steps": changes,
        }
