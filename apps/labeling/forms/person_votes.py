"""Which votes of a person are meant, and why they are discarded."""

from datetime import date
from urllib.parse import urlencode

from django import forms
from django.utils.translation import gettext_lazy as _

from apps.labeling.models import Choice, Comparison
from apps.labeling.selectors.person_votes import VoteFilter

_ANY = ("", "any")


class VotesForm(forms.Form):
    """A filter in the address; what it does not know narrows nothing."""

    choice = forms.ChoiceField(
        required=False, label="Their choice", choices=[_ANY, *Choice.choices]
    )
    state = forms.ChoiceField(
        required=False, label="Comparison", choices=[_ANY, *Comparison.State.choices]
    )
    decision = forms.ChoiceField(
        required=False,
        label="Compared with the decision",
        choices=[_ANY, ("with", "with it"), ("against", "against it")],
    )
    pace = forms.ChoiceField(required=False, label="Speed", choices=[_ANY, ("fast", "too fast")])
    status = forms.ChoiceField(
        required=False,
        label="Votes",
        choices=[("", "all"), ("counted", "counted"), ("discarded", "discarded")],
    )
    since = forms.DateField(
        required=False, label="From", widget=forms.DateInput(attrs={"type": "date"})
    )
    until = forms.DateField(
        required=False, label="Until", widget=forms.DateInput(attrs={"type": "date"})
    )

    def wanted(self) -> VoteFilter:
        self.is_valid()
        return VoteFilter(**self.cleaned_data)

    def query(self) -> str:
        """The filter as the query of an address."""
        return urlencode(self.wanted().as_dict())


class MonthForm(forms.Form):
    """A month, `2026-11`; anything else is every month."""

    month = forms.DateField(
        required=False,
        label=_("Month"),
        input_formats=["%Y-%m"],
        widget=forms.DateInput(attrs={"type": "month"}, format="%Y-%m"),
    )

    def chosen(self) -> date | None:
        return self.cleaned_data["month"] if self.is_valid() else None


class DiscardForm(forms.Form):
    reason = forms.CharField(
        label="Reason", max_length=300, help_text="It stands in the audit log."
    )
    pause = forms.BooleanField(required=False, label="Give this person no more pairs")
    expected = forms.IntegerField(required=False, widget=forms.HiddenInput)
