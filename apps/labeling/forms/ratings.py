"""What the pages of rating tasks send."""

from typing import Any

from django import forms
from django.http import QueryDict

from apps.common.errors import DomainError
from apps.labeling.forms import Checked, SkipForm, plain_ends, sensible_time
from apps.labeling.models import MOST_RESPONSES, RatingTask
from apps.labeling.services.ratings import LONGEST_NOTE

__all__ = ["ChangeForm", "RatingForm", "SkipForm", "TasksFilter", "values_typed"]

LETTERS = "ABCDEFGHI"

VALUE = "value-"  # what the name of a card's field begins with
_LARGEST_KEY = 2**63 - 1


class ChangeForm(Checked):
    """One rating from the screen: a value for each of the `cards` responses, in the order shown."""

    key = forms.CharField(max_length=120)
    cards = forms.IntegerField(min_value=1, max_value=MOST_RESPONSES)
    note = forms.CharField(required=False, max_length=LONGEST_NOTE)
    active_ms = forms.IntegerField(required=False)
    wall_ms = forms.IntegerField(required=False)

    def rating(self) -> dict[str, Any]:
        """What the services take; an answer without a value is named by its letter."""
        data = self.cleaned_data
        values = values_typed(self.data, data["cards"])
        if None in values:
            letter = LETTERS[values.index(None)]
            raise DomainError(f"Answer {letter} has no value yet.", field="values")
        return {
            "idempotency_key": data["key"],
            "values": values,
            "note": plain_ends(data["note"]),
            "active_ms": sensible_time(data["active_ms"]),
            "wall_ms": sensible_time(data["wall_ms"]),
        }


class RatingForm(ChangeForm):
    """A rating of a task in hand."""

    slot = forms.IntegerField(min_value=1, max_value=_LARGEST_KEY)


def values_typed(data: QueryDict, n: int) -> list[int | None]:
    """The value of each card as it was sent; None where none, or no number, was."""
    sent = [data.get(f"{VALUE}{number}", "") for number in range(1, n + 1)]
    return [int(text) if text.lstrip("-").isdecimal() and len(text) < 6 else None for text in sent]


class TasksFilter(forms.Form):
    """The filter of the ratings page; lives in the query string."""

    q = forms.CharField(required=False, max_length=200, label="Search ids and prompts")
    kind = forms.ChoiceField(required=False, choices=[("", "all"), *RatingTask.Kind.choices])
    state = forms.ChoiceField(required=False, choices=[("", "all"), *RatingTask.State.choices])
    sort = forms.ChoiceField(
        required=False,
        label="Largest first by",
        choices=[
            ("", "newest"),
            ("mean", "mean grade"),
            ("spread", "difference between answers"),
            ("disagreement", "difference between people"),
            ("ratings", "ratings"),
        ],
    )
