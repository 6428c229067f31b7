"""The suite that every policy is evaluated on."""

from typing import Any

from django import forms

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.evaluation.models import AutomaticSuite
from apps.evaluation.selectors.suites import baselines_of, suites_of


class AutomaticSuiteForm(forms.Form):
    """A dataset with checks, a baseline, and how both models answer."""

    dataset = forms.ChoiceField(label="Suite", help_text="Prompts with checks.")
    baseline = forms.ChoiceField(
        help_text="Every policy is compared with it, prompt by prompt: the model in service, or "
        "the one that training began with."
    )
    max_new_tokens = forms.IntegerField(label="Longest answer, tokens", min_value=1, initial=256)
    temperature = forms.FloatField(
        initial=0.0,
        min_value=0.0,
        max_value=5.0,
        widget=forms.NumberInput({"step": "any"}),
        help_text="0 takes the likeliest token each time, so that chance is no part of the result.",
    )

    def __init__(self, data: Any, *, project: Project, row: AutomaticSuite | None) -> None:
        now = row and {
            "dataset": row.dataset_id,
            "baseline": row.baseline_id,
            "max_new_tokens": row.max_new_tokens,
            "temperature": row.temperature,
        }
        super().__init__(data, initial=now or None)
        suites = [
            (one.pk, f"{one.name}, {one.counts['checks']:,} checks") for one in suites_of(project)
        ]
        models = [(one.pk, f"{one.run.name}, step {one.step:,}") for one in baselines_of(project)]
        self.has_suites, self.has_models = bool(suites), bool(models)
        if row and row.baseline and row.baseline_id not in dict(models):
            models.append((row.baseline_id, f"{row.baseline.run.name}, step {row.baseline.step:,}"))
        for name, choices in (("dataset", suites), ("baseline", models)):
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField)  # noqa: S101
            field.choices = choices

    def given(self) -> dict[str, Any]:
        """For `automatic_suite_set`; after `is_valid`."""
        found = self.cleaned_data
        return {
            "dataset_id": found["dataset"],
            "baseline_id": found["baseline"],
            "max_new_tokens": found["max_new_tokens"],
            "temperature": found["temperature"],
        }

    def refuse(self, error: DomainError) -> None:
        self.add_error(error.field if error.field in self.fields else None, error.message)
