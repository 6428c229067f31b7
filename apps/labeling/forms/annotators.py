"""What an admin sends about an annotator. Rules live in services; refusals land on their field."""

from collections.abc import Collection
from typing import Any

from django import forms

from apps.labeling.models import Annotator
from apps.labeling.services.eligibility import MOST_A_DAY

SORTS = ("name", "today", "votes", "seen")
STATES = {
    "": "all",
    "paused": "paused",
    "guideline": "guidelines not read",
    "unqualified": "not qualified",
    "limited": "with limits",
}


class AnnotatorsFilter(forms.Form):
    """The filter of the list; lives in the query string."""

    q = forms.CharField(required=False, max_length=200, label="Search")
    state = forms.ChoiceField(required=False, choices=list(STATES.items()), label="Show")
    sort = forms.ChoiceField(
        required=False,
        label="Sort by",
        choices=list(zip(SORTS, ("name", "answers today", "answers", "last seen"), strict=True)),
    )


class LimitsForm(forms.Form):
    """A person's share of the work; the choices are the project's, and what they have already."""

    daily_cap = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_A_DAY,
        label="Answers a day, at most",
        help_text="UTC days; 0 for no limit, empty for the project's.",
    )
    topics = forms.MultipleChoiceField(
        required=False,
        label="Topics",
        help_text="Only pairs of these; none chosen means all.",
        widget=forms.CheckboxSelectMultiple(attrs={"class": "many"}),
    )
    languages = forms.MultipleChoiceField(
        required=False,
        label="Languages",
        help_text="Only pairs in these; none chosen means all.",
        widget=forms.CheckboxSelectMultiple(attrs={"class": "many"}),
    )

    def __init__(
        self,
        data: Any = None,
        *,
        current: Annotator,
        topics: Collection[str],
        languages: Collection[str],
    ) -> None:
        initial = {name: getattr(current, name) for name in ("daily_cap", "topics", "languages")}
        super().__init__(data, initial=initial)
        for name, known in (("topics", topics), ("languages", languages)):
            values = sorted({*known, *getattr(current, name)})
            self.fields[name].choices = [(value, value) for value in values]
            if not values:
                del self.fields[name]


class PauseForm(forms.Form):
    reason = forms.CharField(
        max_length=300,
        label="Why",
        help_text="The person reads this instead of a pair.",
        widget=forms.TextInput({"autocomplete": "off"}),
    )
