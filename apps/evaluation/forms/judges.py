"""Forms of judges: making one, measuring it, trying prompts, certifying and giving labels."""

from typing import Any

from django import forms

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.evaluation.models import HeadToHead, JudgeVersion, LabelCertificate
from apps.evaluation.selectors.judges import (
    BATCH,
    HEAD_TO_HEAD,
    PROJECT,
    Scope,
    batches_of,
    could_judge,
)
from apps.evaluation.services.judge_worth import MOST_PROMPTS, SHARE
from apps.evaluation.services.judges import MOST_ATTACKED, MOST_PAIRS
from workers.config.judging import LAST_LINE, LETTER, LONGEST_PROMPT, PROMPT, RUBRIC

_LINES = forms.Textarea({"rows": 12, "spellcheck": "false", "class": "mono"})
SEPARATOR = "\n---\n"
# Of the configuration, that the form asks for.
ASKED = ("prompt", "rubric", "parser", "max_new_tokens", "temperature")


class _Refusing(forms.Form):
    def refuse(self, error: DomainError) -> None:
        self.add_error(error.field if error.field in self.fields else None, error.message)


def _choices(form: forms.Form, name: str, choices: list[tuple[str, str]]) -> None:
    field = form.fields[name]
    assert isinstance(field, forms.ChoiceField)  # noqa: S101
    field.choices = choices


class VersionForm(_Refusing):
    """A model and how it is asked. A reward model reads each answer alone and needs no prompt."""

    model = forms.ChoiceField(
        help_text="A served model or a policy is asked in words; a reward model scores each "
        "answer, and what stands below does not concern it.",
    )
    prompt = forms.CharField(
        widget=_LINES,
        max_length=LONGEST_PROMPT,
        initial=PROMPT,
        strip=False,
        help_text="{prompt}, {first}, {second} and {rubric} stand for the texts. Every pair is "
        "asked twice, with either answer first.",
    )
    rubric = forms.CharField(
        widget=forms.Textarea({"rows": 4}), max_length=LONGEST_PROMPT, initial=RUBRIC
    )
    parser = forms.ChoiceField(
        label="Where the verdict stands",
        choices=[
            (LETTER, "The first A, B or tie in the answer"),
            (LAST_LINE, "On the last line, after its reasons"),
        ],
    )
    max_new_tokens = forms.IntegerField(label="Longest answer, tokens", min_value=1, initial=8)
    temperature = forms.FloatField(
        initial=0.0, min_value=0.0, max_value=5.0, widget=forms.NumberInput({"step": "any"})
    )
    note = forms.CharField(
        max_length=300, required=False, help_text="What is different, for others."
    )

    def __init__(
        self, data: Any, *, project: Project, version: JudgeVersion | None = None, **kwargs: Any
    ) -> None:
        now = dict(kwargs.pop("initial", {}) or {})
        if version is not None:
            now |= {name: version.config[name] for name in ASKED if name in version.config}
            now["model"] = version.model_id
        super().__init__(data, initial=now or None, **kwargs)
        self.models = {one.pk: one for one in could_judge(project)}
        if version is not None:
            self.models.setdefault(version.model_id, version.model)
        names = [
            (pk, f"{one.run.name} · {one.run.get_kind_display()}, step {one.step:,}")
            for pk, one in self.models.items()
        ]
        _choices(self, "model", names)

    def given(self) -> dict[str, Any]:
        """For `judge_make` and `version_make`; after `is_valid`."""
        found = self.cleaned_data
        return {
            "model": self.models[found["model"]],
            "config": {name: found[name] for name in ASKED},
        }


class JudgeForm(VersionForm):
    """A judge and its first version."""

    name = forms.CharField(max_length=80)
    field_order = ("name", "model", *ASKED)

    def __init__(self, data: Any, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        del self.fields["note"]


class ScopedForm(_Refusing):
    """Which pairs."""

    scope = forms.ChoiceField(label="Pairs")

    def __init__(
        self, data: Any, *, project: Project, head_to_heads: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(data, **kwargs)
        choices = [(PROJECT, "All pairs of this project")]
        choices += [(f"{BATCH}:{one}", f"Batch {one}") for one in batches_of(project)]
        if head_to_heads:
            rows = HeadToHead.objects.filter(project=project, more_names=[]).order_by("-created_at")
            choices += [
                (f"{HEAD_TO_HEAD}:{one.pk}", f"Head-to-head {one.name}") for one in rows[:50]
            ]
        _choices(self, "scope", choices)

    def scope_given(self) -> Scope:
        kind, _, name = self.cleaned_data["scope"].partition(":")
        return Scope(kind, name)


class MeasureForm(ScopedForm):
    share = forms.FloatField(
        label="Human sample, % of prompts",
        min_value=1,
        max_value=100,
        initial=100 * SHARE,
        help_text="Drawn by the hash of each prompt. The votes of this share are the sample; the "
        "rest shows what the judge adds.",
    )
    attacked = forms.IntegerField(
        label="Pairs to attack",
        min_value=0,
        max_value=MOST_ATTACKED,
        initial=0,
        required=False,
        help_text="Each shipped prompt injection is put into an answer of so many pairs. It costs "
        "about two dozen questions a pair.",
    )

    most = forms.IntegerField(
        label="Pairs at most",
        min_value=1,
        max_value=MOST_PAIRS,
        initial=1_000,
        required=False,
        help_text="That it is asked about now, each twice; drawn by hash from those that it has "
        "not judged.",
    )
    field_order = ("scope", "most", "share", "attacked")

    def given(self) -> dict[str, Any]:
        found = self.cleaned_data
        return {
            "scope": self.scope_given(),
            "most": found["most"] or MOST_PAIRS,
            "share": found["share"] / 100,
            "attacked": found["attacked"] or 0,
        }


class TrialForm(ScopedForm):
    """Prompts to try, one after another between lines of three dashes."""

    prompts = forms.CharField(
        widget=forms.Textarea({"rows": 14, "spellcheck": "false", "class": "mono"}),
        strip=False,
        help_text=f"2 to {MOST_PROMPTS} prompts, with a line --- between them.",
    )
    share = forms.FloatField(
        label="Human sample, % of prompts", min_value=1, max_value=100, initial=100
    )

    def given(self) -> dict[str, Any]:
        found = self.cleaned_data
        texts = found["prompts"].replace("\r\n", "\n").split(SEPARATOR)
        return {
            "scope": self.scope_given(),
            "share": found["share"] / 100,
            "prompts": [{"prompt": text.strip("\n")} for text in texts if text.strip()],
        }


class CertifyForm(ScopedForm):
    error = forms.FloatField(
        label="Wrong labels at most, %", min_value=0.1, max_value=50, initial=10
    )
    failure = forms.FloatField(
        label="Probability that this does not hold, %", min_value=0.01, max_value=50, initial=5
    )
    against = forms.ChoiceField(
        label="A label is wrong that differs from", choices=LabelCertificate.Against.choices
    )
    audited = forms.FloatField(
        label="Labels that people check, %",
        min_value=0.1,
        max_value=100,
        initial=10,
        help_text="Drawn by hash; these pairs are asked first. Once their votes contradict the "
        "certificate it stops.",
    )

    def given(self) -> dict[str, Any]:
        found = self.cleaned_data
        shares = {name: found[name] / 100 for name in ("error", "failure", "audited")}
        return shares | {"scope": self.scope_given(), "against": found["against"]}


class PresortForm(ScopedForm):
    measuring = forms.FloatField(
        label="Pairs that keep their random place, %",
        min_value=1,
        max_value=99,
        initial=20,
        help_text="They measure. The others were chosen by a model, and only train.",
    )

    def given(self) -> dict[str, Any]:
        return {"scope": self.scope_given(), "measuring": self.cleaned_data["measuring"] / 100}


class FreezeForm(_Refusing):
    name = forms.CharField(label="Name of the dataset", max_length=120)
