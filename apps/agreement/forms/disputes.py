"""What the pages of disputes send."""

from django import forms

from apps.agreement.models import Ruling
from apps.agreement.selectors.disputes import SHOWN, Filters
from apps.labeling.models import Choice

ACTIONS = ("adjudicate", "send_again", "make_gold", "drop", "reopen")
_LARGEST_KEY = 2**63 - 1


class DisputesFilter(forms.Form):
    """The filters of the list, in the query string; what is malformed narrows nothing."""

    q = forms.CharField(required=False, max_length=200, label="Search prompts")
    show = forms.ChoiceField(required=False, choices=list(SHOWN.items()), label="Show")
    topic = forms.CharField(required=False, max_length=200, label="Topic")
    cause = forms.ChoiceField(
        required=False, choices=[("", "any"), *Ruling.Cause.choices], label="Cause"
    )
    ruled = forms.ChoiceField(
        required=False, choices=[("", "any"), ("yes", "yes"), ("no", "no")], label="Adjudicated"
    )

    def filters(self) -> Filters:
        self.is_valid()
        said = getattr(self, "cleaned_data", {})
        return Filters(
            show=said.get("show") or "unsettled",
            topic=said.get("topic", "").replace("\x00", ""),
            cause=said.get("cause", ""),
            ruled=said.get("ruled", ""),
            search=said.get("q", "").replace("\x00", ""),
        )


class RulingForm(forms.Form):
    """One ruling; whether cause, choice or note must be there depends on the action."""

    action = forms.ChoiceField(choices=[(name, name) for name in ACTIONS])
    choice = forms.ChoiceField(required=False, choices=[("", ""), *Choice.choices])
    cause = forms.ChoiceField(required=False, choices=[("", ""), *Ruling.Cause.choices])
    note = forms.CharField(required=False, max_length=1000)
    seen = forms.IntegerField(min_value=0, max_value=_LARGEST_KEY)
    version = forms.IntegerField(required=False, min_value=1, max_value=1_000_000)


class SendAgainForm(forms.Form):
    """Many comparisons at once, in the numbers that were confirmed."""

    cause = forms.ChoiceField(choices=Ruling.Cause.choices)
    note = forms.CharField(required=False, max_length=1000)
    version = forms.IntegerField(min_value=1, max_value=1_000_000)
    comparisons = forms.IntegerField(min_value=1, max_value=1_000_000)
    votes = forms.IntegerField(min_value=1, max_value=100_000_000)
