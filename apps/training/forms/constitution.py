"""The forms of a constitution, and of the dataset that a run's rewritten answers become."""

from typing import Any

from django import forms

from apps.common.errors import DomainError
from apps.training.forms.launch import config_field
from apps.training.models import Constitution
from apps.training.services.constitution import (
    LONGEST_NAME,
    LONGEST_NOTE,
    LONGEST_TEXT,
    MOST_PRINCIPLES,
)
from apps.training.services.revisions import DEFAULT_WEIGHT
from workers.config import recipe_fields

BLANK_ROWS = 3


class PrincipleForm(forms.Form):
    """A row of the document; one without a word is no principle."""

    name = forms.CharField(max_length=LONGEST_NAME, label="Name", required=False)
    text = forms.CharField(
        max_length=LONGEST_TEXT,
        label="Principle",
        required=False,
        widget=forms.Textarea({"rows": 2}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.hide_optional = True

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        for one, other in (("name", "text"), ("text", "name")):
            if cleaned.get(one) and not cleaned.get(other) and other not in self.errors:
                self.add_error(other, "Is empty. To remove the principle, empty both.")
        return cleaned


PrincipleRows = forms.formset_factory(
    PrincipleForm, extra=BLANK_ROWS, max_num=MOST_PRINCIPLES, validate_max=True
)


class ConstitutionForm(forms.Form):
    """What is saved beside the principles. `over`: the version that was shown, 0 for none."""

    note = forms.CharField(
        max_length=LONGEST_NOTE,
        required=False,
        label="What changed, and why",
        help_text="Kept with the version.",
    )
    over = forms.IntegerField(widget=forms.HiddenInput, min_value=0)

    def __init__(
        self, data: Any = None, *, current: Constitution | None = None, **kwargs: Any
    ) -> None:
        start = {"over": current.number if current else 0}
        super().__init__(data, initial=start, **kwargs)
        option = next(one for one in recipe_fields("generate") if one.name == "filter")
        field = config_field(option)
        field.label = "Hard rules"
        field.initial = (current.hard_rules if current else None) or None
        field.help_text = (
            "Written as a reward that blocks (docs/rewards.md). Answers that break one are left "
            "out, logged and shown to people. Empty: none."
        )
        self.fields["hard_rules"] = field
        said = current.principles if current else []
        self.rows = PrincipleRows(data, initial=None if data is not None else said, prefix="p")

    def is_valid(self) -> bool:
        rows = self.rows.is_valid()
        return super().is_valid() and rows

    @property
    def principles(self) -> list[dict[str, str]]:
        return [
            {"name": row["name"], "text": row["text"]}
            for row in self.rows.cleaned_data
            if row.get("name") or row.get("text")
        ]

    def refuse(self, error: DomainError) -> None:
        """Put the service's refusal beside what it is about."""
        field = error.field or ""
        self.add_error(field if field in self.fields else None, error.message)


class RevisionsForm(forms.Form):
    """How a run's rewritten answers become a dataset."""

    name = forms.CharField(max_length=120, label="Name")
    weight = forms.FloatField(
        label="Weight of a row",
        initial=DEFAULT_WEIGHT,
        widget=forms.NumberInput({"step": "any", "min": 0, "max": 1}),
        help_text="In the loss. A row that people decided counts 1.",
    )
    label_probability = forms.FloatField(
        label="P(the rewritten answer is better)",
        initial=1.0,
        widget=forms.NumberInput({"step": "any", "min": 0.5, "max": 1}),
        help_text="Over 0.5. Under 1 the labels are soft, and a reward model is trained with "
        "labels: soft.",
    )

    def refuse(self, error: DomainError) -> None:
        self.add_error(error.field if error.field in self.fields else None, error.message)
