"""Forms of reward models: how one is assessed, and what is decided about it; of audit sheets."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.evaluation.models import Stage
from apps.evaluation.models.promotion import LONGEST_REASON
from apps.evaluation.services.playground import DEFAULTS, LIMITS
from apps.evaluation.services.reviewing import LEAST_REASON
from apps.evaluation.services.sheets import MOST, MOST_PEOPLE, N_BASELINE, N_EXTREME, N_RANDOM
from apps.training.forms.launch import RunForm
from apps.training.models import Checkpoint, Run
from apps.training.selectors.pages import checkpoint_choices
from apps.training.services.kinds import ANSWERING
from workers.contract.asking import MAX_CHARACTERS

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


class PromotionForm(forms.Form):
    """Asking that a stage names a policy."""

    stage = forms.ChoiceField(choices=Stage.choices, initial=Stage.CANDIDATE)
    share = forms.IntegerField(
        label="Share of the traffic (%)",
        initial=100,
        min_value=0,
        max_value=100,
        help_text="Of production: under 100 the model before keeps the rest.",
    )
    reason = forms.CharField(
        max_length=LONGEST_REASON,
        required=False,
        widget=forms.Textarea({"rows": 3}),
        help_text="Why this model; it stays in the history.",
    )

    def refuse(self, error: DomainError) -> None:
        self.add_error(error.field if error.field in self.fields else None, error.message)


class QuestionForm(forms.Form):
    """What one or two models are asked by hand. `model`: one that is chosen beforehand, whatever
    tags it has; `earlier`: turns before this one."""

    model = forms.ChoiceField(label="Model A")
    other = forms.ChoiceField(label="Model B", required=False)
    system = forms.CharField(
        label="System prompt",
        required=False,
        max_length=MAX_CHARACTERS,
        widget=forms.Textarea({"rows": 2}),
    )
    prompt = forms.CharField(
        max_length=MAX_CHARACTERS, strip=False, widget=forms.Textarea({"rows": 5})
    )
    temperature = forms.FloatField(
        help_text="0 takes the likeliest token.", widget=forms.NumberInput({"step": "any"})
    )
    top_p = forms.FloatField(
        help_text="1 keeps every token.", widget=forms.NumberInput({"step": "any"})
    )
    max_new_tokens = forms.IntegerField(label="Longest answer", help_text="Tokens.")
    seed = forms.IntegerField(help_text="The same seed draws the same answer.")
    after = forms.CharField(required=False, widget=forms.HiddenInput)
    side = forms.ChoiceField(
        required=False, choices=[("", ""), ("a", "A"), ("b", "B")], widget=forms.HiddenInput
    )
    sampling = tuple(LIMITS)

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        project: Project,
        model: Checkpoint | None = None,
        initial: Mapping[str, Any] | None = None,
        has_earlier: bool = False,
    ) -> None:
        super().__init__(data, initial={**DEFAULTS, **(initial or {})})
        choices = [
            (key.partition(":")[2], words) for key, words in checkpoint_choices(project, ANSWERING)
        ]
        if model is not None and model.pk not in dict(choices):
            choices.insert(0, (model.pk, f"{model.run.name} · step {model.step:,} · {model.pk}"))
        self.has_models = bool(choices)
        fields: dict[str, Any] = self.fields
        fields["model"].choices = choices
        fields["other"].choices = [("", "None: ask one model"), *choices]
        for name, (low, high) in LIMITS.items():
            fields[name].min_value, fields[name].max_value = low, high
            fields[name].validators += [
                MinValueValidator(low),
                MaxValueValidator(high),
            ]
            fields[name].widget.attrs |= {"min": low, "max": high}
        if has_earlier:
            del fields["system"]

    @property
    def sampling_fields(self) -> list[Any]:
        return [self[name] for name in self.sampling]

    def asked(self, earlier: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """What `question_ask` takes, with the turns before."""
        given = self.cleaned_data
        system = given.get("system", "").strip()
        first = [{"role": "system", "content": system}] if system else []
        return {
            "models": [name for name in (given["model"], given["other"]) if name],
            "messages": [*first, *earlier, {"role": "user", "content": given["prompt"]}],
            **{name: given[name] for name in self.sampling},
        }

    def take(self, error: DomainError) -> None:
        """Say it at the field it is about."""
        field = {"models": "other" if self.data.get("other") else "model", "messages": "prompt"}
        name = field.get(error.field or "", error.field)
        self.add_error(name if name in self.fields else None, error.message)


class SheetForm(forms.Form):
    """What an audit sheet is drawn from, and how large it is."""

    run = forms.ChoiceField(help_text="A finished evaluation keeps every answer of both models.")
    n_random = forms.IntegerField(
        label="Random answers of the policy",
        initial=N_RANDOM,
        min_value=1,
        max_value=MOST,
        help_text="They set the bound: 60 without a bad one say “under 5 %”, 300 “under 1 %”.",
    )
    n_extreme = forms.IntegerField(
        label="Highest and lowest rewards",
        initial=N_EXTREME,
        min_value=0,
        max_value=MOST,
        help_text="So many of each: what the reward loves and people may not.",
    )
    n_baseline = forms.IntegerField(
        label="Random answers of the baseline",
        initial=N_BASELINE,
        min_value=0,
        max_value=MOST,
        help_text="Mixed among the others, to compare with.",
    )
    people = forms.IntegerField(
        label="People per answer",
        initial=1,
        min_value=1,
        max_value=MOST_PEOPLE,
        help_text="An answer counts once, by the worst verdict on it.",
    )

    def __init__(self, *args: Any, runs: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["run"]
        field.choices = runs

    def refuse(self, error: DomainError) -> None:
        self.add_error(error.field if error.field in self.fields else None, error.message)
