"""What the pages of agreement send: a decision rule, rulings on disputes, filters.

Rules live in services; what a decision rule may be is for `measures.voting` and labeling to say.
"""

from typing import Any

from django import forms

from apps.agreement.models import Ruling
from apps.agreement.selectors.annotators import SHOWN, SORTS
from apps.agreement.selectors.disputes import SHOWN as DISPUTES_SHOWN
from apps.agreement.selectors.disputes import Filters
from apps.labeling.forms.rule import PresetForm, percent
from apps.labeling.models import Choice, DecideBy, LabelingSettings
from apps.labeling.services.deciding import Policy
from apps.labeling.services.projects import too_few_votes

FIELDS = (
    "decide_by",
    "least_votes",
    "least_agreeing",
    "least_share",
    "least_posterior",
    "max_overlap",
    "stop_early",
)


class RuleForm(PresetForm):
    """A decision rule to preview or to apply."""

    decide_by = forms.ChoiceField(
        choices=DecideBy.choices,
        label="Decide by",
        help_text="Counting needs nothing; a model weighs each vote by how reliable its annotator "
        "has proved to be.",
    )
    least_votes = forms.IntegerField(min_value=1, max_value=50, label="Minimum votes")
    least_agreeing = forms.IntegerField(
        min_value=1,
        max_value=50,
        label="Minimum agreeing votes",
        help_text="When counting: for the winner",
    )
    least_share = percent(
        0.01,
        label="Minimum share (%)",
        help_text="When counting: of all votes, ties and both-bad included",
    )
    least_posterior = percent(
        0.51,
        0.999,
        label="Minimum probability (%)",
        help_text="With a model: how probable the winner must be",
    )
    max_overlap = forms.IntegerField(
        min_value=1,
        max_value=50,
        label="Maximum votes",
        help_text="A pair that is not decided gets more annotators, up to this many",
    )
    stop_early = forms.BooleanField(
        required=False,
        label="Stop early when decided",
        help_text="Also before all votes of the normal overlap are in. Fewer votes, but agreement "
        "is then computed on pairs that stopped when they agreed, and looks better than it is",
    )

    def __init__(self, data: Any = None, *, current: LabelingSettings) -> None:
        self.current = current
        super().__init__(data, initial={name: getattr(current, name) for name in FIELDS})
        self.preset_add(current.project_id, vars(current))

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        data |= self.preset_values(also=["overlap"])
        data.pop("preset", None)
        if not self.errors:
            needed = max(data["least_votes"], data["least_agreeing"])
            if data["max_overlap"] < needed:
                self.add_error("max_overlap", too_few_votes(data["max_overlap"], needed))
                return data
            try:
                policy = self.policy()
                # A model counts, too, where it has no posterior yet.
                policy.rule(), policy.posterior_rule()
            except ValueError as error:
                self.add_error("max_overlap", f"This rule cannot work: {error}.")
        return data

    def policy(self) -> Policy:
        """The rule as labeling decides by it, without a fit; unbound, the current one."""
        given = self.cleaned_data if self.is_bound else self.initial
        wanted = {name: given[name] for name in FIELDS}
        return Policy(overlap=given.get("overlap", self.current.overlap), **wanted)


# What the pages of disputes send.

ACTIONS = ("adjudicate", "send_again", "make_gold", "drop", "reopen")
_LARGEST_KEY = 2**63 - 1


class DisputesFilter(forms.Form):
    """The filters of the list, in the query string; what is malformed narrows nothing."""

    q = forms.CharField(required=False, max_length=200, label="Search prompts")
    show = forms.ChoiceField(required=False, choices=list(DISPUTES_SHOWN.items()), label="Show")
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


# What is sent to the pages about annotators. Rules live in services.


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
