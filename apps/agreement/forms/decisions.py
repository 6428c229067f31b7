"""The form of the decision rule: what it may be is for `measures.voting` and labeling to say."""

from typing import Any

from django import forms

from apps.labeling.models import DecideBy, LabelingSettings
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


class RuleForm(forms.Form):
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
    least_share = forms.FloatField(
        min_value=0.01,
        max_value=1,
        label="Minimum share",
        help_text="When counting: of all votes, ties and both-bad included",
    )
    least_posterior = forms.FloatField(
        min_value=0.51,
        max_value=0.999,
        label="Minimum probability",
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

    def clean(self) -> dict[str, Any]:
        data = super().clean()
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
        return Policy(overlap=self.current.overlap, **wanted)
