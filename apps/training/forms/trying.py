"""Prompts and answers that a reward is tried on, typed beside the form of a new run."""

from typing import Any

from django import forms
from django.forms.formsets import BaseFormSet

FEW = 5


class AnswerForm(forms.Form):
    """A row that is left empty is none."""

    prompt = forms.CharField(required=False, widget=forms.Textarea({"rows": 2}))
    response = forms.CharField(
        required=False, label="Answer", widget=forms.Textarea({"rows": 2}), strip=False
    )
    answer = forms.CharField(
        required=False,
        label="Known to be right",
        help_text="For verifiers.",
        widget=forms.Textarea({"rows": 1}),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if any(str(value).strip() for value in cleaned.values()) and not cleaned.get("prompt"):
            self.add_error("prompt", "Say what was asked.")
        return cleaned


class _Answers(BaseFormSet):
    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows that are not empty, as the setting `answers` has them; none of what is wrong."""
        found = self.cleaned_data if self.is_valid() else []
        return [
            {name: value for name, value in row.items() if value}
            for row in found
            if row.get("prompt")
        ]


AnswersForm = forms.formset_factory(
    AnswerForm, formset=_Answers, extra=FEW, max_num=FEW, absolute_max=FEW
)
