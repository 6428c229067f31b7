"""What is sent to the pages about annotators. Rules live in services."""

from django import forms

from apps.agreement.selectors.annotators import SHOWN, SORTS


class AnnotatorsFilter(forms.Form):
    """The filter of the list; lives in the query string."""

    q = forms.CharField(required=False, max_length=200, label="Search")
    show = forms.ChoiceField(required=False, choices=list(SHOWN.items()), label="Show")
    least = forms.IntegerField(
        required=False, min_value=0, max_value=1_000_000_000, label="Votes, at least"
    )
    sort = forms.ChoiceField(required=False, choices=list(SORTS.items()), label="Sort by")


class LeaveOutForm(forms.Form):
    reason = forms.CharField(
        max_length=300,
        label="Why",
        help_text="Kept with their row and in the audit log.",
        widget=forms.TextInput({"autocomplete": "off"}),
    )
