"""Forms of reward models: how one is assessed, and what is decided about it."""

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.common.errors import DomainError
from apps.evaluation.services.reviewing import LEAST_REASON
from apps.training.forms.launch import RunForm
from apps.training.models import Checkpoint, Run

# What each input makes measurable, said where it is chosen.
INPUT_HELP = {
    "data": "Its held-out pairs measure accuracy, calibration, slices and shortcuts; its training "
    "pairs, how much was memorised.",
    "other": "Pairs of another kind show whether the model holds elsewhere, and whether length "
    "points the other way there.",
    "prompts": "With a policy: what it will be asked about. Nothing is generated without them.",
    "policy": "Its answers show whether scores stay in the range that the model knows, and what "
    "people should be asked to grade.",
    "sft": "Its answers are the baseline of the histograms and of best-of-n.",
    "judge": "A model of other annotators shows where more reward stops being better: the peak of "
    "best-of-n.",
}
INPUT_LABELS = {"data": "Dataset of comparisons"}
SETTING_LABELS = {
    "planned_kl": "Planned KL",
    "max_pairs": "Pairs scored of each file",
    "max_outputs": "Prompts to answer",
    "best_of": "Answers for each prompt of best-of-n",
}


class AssessForm(RunForm):
    """The run form with the model fixed; `source` is the assessment before, if there was one, and
    `defaults` are the inputs of a first one."""

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        checkpoint: Checkpoint,
        defaults: Mapping[str, str],
        **kwargs: Any,
    ) -> None:
        self.checkpoint, self.defaults = checkpoint, defaults
        super().__init__(data, project=checkpoint.project, kind=Run.Kind.ASSESS, **kwargs)

    def _add_inputs(self, source: Run | None) -> None:
        super()._add_inputs(source)
        del self.fields["input_reward"]
        for role, words in INPUT_HELP.items():
            field = self.fields[f"input_{role}"]
            field.help_text = words
            field.label = INPUT_LABELS.get(role, field.label)
            given = self.defaults.get(role, "")
            if source is None and given in _keys(field.choices):
                field.initial = given or field.initial

    def _group(self) -> None:
        for name, label in SETTING_LABELS.items():
            if f"c_{name}" in self.fields:
                self.fields[f"c_{name}"].label = label
        super()._group()

    def refuse(self, error: DomainError) -> None:
        """What is wrong with the model itself has no field here."""
        if error.field == "inputs.reward":
            self.add_error(None, error.message)
        else:
            super().refuse(error)


def _keys(choices: Any) -> list[str]:
    found: list[str] = []
    for value, label in choices:
        found += [key for key, _ in label] if isinstance(label, list | tuple) else [value]
    return found


class ReviewForm(forms.Form):
    """A decision; it carries what its page showed."""

    reason = forms.CharField(
        max_length=1000,
        required=False,
        label="Reason",
        widget=forms.Textarea({"rows": 3}),
    )
    seen_status = forms.CharField(widget=forms.HiddenInput, max_length=9)
    seen_sha256 = forms.CharField(widget=forms.HiddenInput, max_length=64)

    def __init__(self, *args: Any, status: str, n_open: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["reason"]
        if status != Checkpoint.Status.APPROVED:
            field.help_text = "Others read it on the model's page and in the audit log."
            field.hide_optional = True
        elif n_open:
            field.help_text = (
                f"At least {LEAST_REASON} characters: why the model may be optimised against all "
                "the same. It stays on the model's page and in the audit log."
            )
            field.hide_optional = True

    def refuse(self, error: DomainError) -> None:
        shown = error.field if error.field == "reason" else None
        self.add_error(shown, error.message)
