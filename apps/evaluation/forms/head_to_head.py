"""What is fixed when a head-to-head is opened."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from django import forms

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.evaluation.models import HeadToHead
from apps.evaluation.selectors.head_to_head import evaluations
from apps.evaluation.services.head_to_head import Asked
from measures.several_systems import MOST_SYSTEMS

LARGEST_FILE = 5_000_000  # bytes
_DEFAULTS = Asked(name="", first_name="", second_name="")


class HeadToHeadForm(forms.Form):
    """Answers of an evaluation, or of a file; the plan."""

    source = forms.ChoiceField(
        label="Evaluation",
        required=False,
        help_text="Its policy is the first system, its baseline the second.",
    )
    more_sources = forms.MultipleChoiceField(
        label="Further evaluations",
        required=False,
        help_text="Their policies are further systems. All by one protocol: the same prompts, "
        "sampling and baseline.",
        widget=forms.SelectMultiple({"size": 4}),
    )
    file = forms.FileField(
        label="Or a file of answers",
        required=False,
        help_text="JSON Lines or CSV with prompt, response_a (the first system's), response_b "
        "(response_c to response_h of further systems) and perhaps group; at most "
        f"{LARGEST_FILE // 10**6} MB.",
    )
    name = forms.CharField(max_length=120)
    first_name = forms.CharField(
        label="First system", max_length=80, help_text="The one that is hoped to be better."
    )
    second_name = forms.CharField(
        label="Second system", max_length=80, help_text="The baseline that others are set beside."
    )
    more_names = forms.CharField(
        label="Further systems",
        required=False,
        help_text=f"One name a line, at most {MOST_SYSTEMS - 2}, in the order of response_c, "
        "response_d …, or of the further evaluations, which else go by the names of their runs.",
        widget=forms.Textarea({"rows": 3}),
    )
    prompts = forms.IntegerField(
        label="Prompts at most", help_text="Drawn at random where there are more."
    )
    people = forms.IntegerField(
        label="People",
        help_text="How many share the votes. Nobody gives more than half as many again as an even "
        "share. More people tell more than more votes: with 8 no number of votes may be enough.",
    )
    votes_each = forms.IntegerField(
        label="Votes on a prompt",
        help_text="One is best for the comparison; more only where you want a verdict on each "
        "prompt.",
    )
    pairs_each = forms.IntegerField(
        label="Pairs of systems on a prompt",
        required=False,
        help_text="With further systems: how many different pairs of answers to one prompt are "
        "asked about. Every two systems meet about as often.",
    )
    margin_points = forms.FloatField(
        label="Smallest difference that matters, in points",
        help_text="5: a system that wins 45 to 55 % counts as no different.",
        widget=forms.NumberInput({"step": "any"}),
    )
    stopping = forms.ChoiceField(
        label="When the result may be looked at",
        choices=HeadToHead.Stopping.choices,
        help_text="At any time: it ends by itself as soon as it is decided. Once: a narrower "
        "interval, and no figure before the last vote.",
    )
    repeat_days = forms.IntegerField(
        label="Do it again after, days",
        required=False,
        help_text="For a system in service. Empty: not asked for again.",
    )
    priority = forms.FloatField(
        help_text="Over 0: people meet these pairs before all others.",
        widget=forms.NumberInput({"step": "any"}),
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        files: Any = None,
        *,
        project: Project,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        plan = {
            "prompts": _DEFAULTS.prompts,
            "people": _DEFAULTS.people,
            "votes_each": _DEFAULTS.votes_each,
            "pairs_each": _DEFAULTS.pairs_each,
            "margin_points": 100 * _DEFAULTS.margin,
            "stopping": _DEFAULTS.stopping,
            "priority": _DEFAULTS.priority,
        }
        super().__init__(data, files, initial=plan | dict(initial or {}))
        self.found = {run.pk: run for run in evaluations(project=project)}
        choices = [(run.pk, f"{run.name} · {run.pk}") for run in self.found.values()]
        self.fields["source"].choices = [("", "None: a file"), *choices]  # type: ignore[attr-defined] # a ChoiceField
        self.fields["more_sources"].choices = choices  # type: ignore[attr-defined] # as above
        self.has_evaluations = bool(choices)

    def clean_file(self) -> list[dict[str, Any]]:
        given = self.cleaned_data["file"]
        return rows_of_file(given.name, given.read(LARGEST_FILE + 1)) if given else []

    def clean_more_names(self) -> list[str]:
        return [
            line.strip() for line in self.cleaned_data["more_names"].splitlines() if line.strip()
        ]

    def clean_pairs_each(self) -> int:
        given = self.cleaned_data["pairs_each"]
        return _DEFAULTS.pairs_each if given is None else int(given)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if "file" in cleaned and bool(cleaned.get("source")) == bool(cleaned["file"]):
            shown = "source" if self.has_evaluations else "file"
            self.add_error(shown, "Choose an evaluation or a file, one of them.")
        if cleaned.get("more_sources") and not cleaned.get("source"):
            self.add_error("source", "Choose the evaluation that further ones are set beside.")
        return cleaned

    def asked(self) -> dict[str, Any]:
        """What `head_to_head_open` takes."""
        given = self.cleaned_data
        plan = {name: given[name] for name in Asked.__dataclass_fields__ if name in given}
        return {
            "asked": Asked(**plan, margin=given["margin_points"] / 100),
            "source": self.found.get(given["source"]),
            "more_sources": [self.found[key] for key in given["more_sources"]],
            "rows": given["file"],
        }

    def take(self, error: DomainError) -> None:
        """Say it at the field it is about."""
        field = {"margin": "margin_points", "rows": "file"}.get(error.field or "", error.field)
        self.add_error(field if field in self.fields else None, error.message)


def rows_of_file(name: str, content: bytes) -> list[dict[str, Any]]:
    """Rows of JSON Lines or CSV, told apart by the first character. Raises `ValidationError` naming
    the line."""
    if len(content) > LARGEST_FILE:
        raise forms.ValidationError(f"{name} is larger than {LARGEST_FILE // 10**6} MB.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise forms.ValidationError(f"{name} is not UTF-8 text.") from None
    if not text.lstrip().startswith("{"):
        try:
            read = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            return [{k or "": v for k, v in row.items() if v not in (None, "")} for row in read]
        except csv.Error as error:
            raise forms.ValidationError(f"{name}: {error}.") from None
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise forms.ValidationError(f"Line {number} is not JSON.") from None
        if not isinstance(row, dict):
            raise forms.ValidationError(f"Line {number} is not an object.")
        rows.append(row)
    return rows


class ShareForm(forms.Form):
    days = forms.IntegerField(label="Days", min_value=1, max_value=365, initial=14)
