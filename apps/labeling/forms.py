"""What the pages of labeling send."""

from typing import Any

from django import forms

from apps.common.errors import DomainError
from apps.labeling.models import Comparison, LabelingSettings
from apps.labeling.services import FLAGS, LONGEST_RATIONALE, Answer

_LARGEST_KEY = 2**63 - 1
# The value of a button of the label screen, and the side and strength it stands for.
ANSWERS: dict[str, tuple[str, int | None]] = {
    "left": ("left", None),
    "left-1": ("left", 1),
    "left-2": ("left", 2),
    "right": ("right", None),
    "right-1": ("right", 1),
    "right-2": ("right", 2),
    "tie": ("tie", None),
    "both_bad": ("both_bad", None),
}


class Checked(forms.Form):
    """A form without a page of its own to show errors on: the first error is raised."""

    def check(self) -> None:
        for name, errors in self.errors.items():
            raise DomainError(f"{name}: {errors[0]}", field=name)


class AnswerForm(Checked):
    """One answer from the label screen."""

    key = forms.CharField(max_length=80)
    answer = forms.ChoiceField(choices=[(value, value) for value in ANSWERS])
    rationale = forms.CharField(required=False, max_length=LONGEST_RATIONALE)
    flags = forms.MultipleChoiceField(required=False, choices=list(FLAGS.items()))
    active_ms = forms.IntegerField(required=False)
    wall_ms = forms.IntegerField(required=False)

    def ballot(self) -> Answer:
        data = self.cleaned_data
        side, strength = ANSWERS[data["answer"]]
        return Answer(
            side=side,
            strength=strength,
            rationale=data["rationale"],
            flags=data["flags"],
            active_ms=_sensible(data["active_ms"]),
            wall_ms=_sensible(data["wall_ms"]),
        )


class VoteForm(AnswerForm):
    """An answer for a pair in hand."""

    slot = forms.IntegerField(min_value=1, max_value=_LARGEST_KEY)


class SkipForm(Checked):
    slot = forms.IntegerField(min_value=1, max_value=_LARGEST_KEY)
    reason = forms.CharField(required=False, max_length=300)


def _sensible(milliseconds: int | None) -> int | None:
    """A time the page measured, or None for what no page can have measured."""
    if milliseconds is None or not 0 <= milliseconds <= 7 * 86_400_000:
        return None
    return milliseconds


class AnswersFilter(forms.Form):
    """The filter of My answers; lives in the query string."""

    q = forms.CharField(required=False, max_length=200, label="Search prompts")
    choice = forms.ChoiceField(
        required=False,
        label="Your answer",
        choices=[
            ("", "all"),
            ("left", "A (left) is better"),
            ("right", "B (right) is better"),
            ("tie", "Tie"),
            ("both_bad", "Both are bad"),
        ],
    )


class ComparisonsFilter(forms.Form):
    q = forms.CharField(required=False, max_length=200, label="Search prompts or an id")
    state = forms.ChoiceField(
        required=False, choices=[("", "all"), *Comparison.State.choices], label="State"
    )
    stratum = forms.ChoiceField(
        required=False, choices=[("", "all"), *Comparison.Stratum.choices], label="Stratum"
    )
    winner = forms.ChoiceField(
        required=False,
        choices=[("", "all"), ("a", "A"), ("b", "B"), ("tie", "Tie"), ("both_bad", "Both bad")],
        label="Decision",
    )


class GuidelineForm(forms.Form):
    body = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 18}),
        label="Guidelines",
        help_text="Markdown. Annotators see them beside every pair.",
    )
    is_major = forms.BooleanField(
        required=False,
        label="A major change",
        help_text="What earlier votes were cast under differs in substance.",
    )


_LABELS = {
    "overlap": "Votes per comparison",
    "max_overlap": "Most votes per comparison",
    "least_votes": "Least votes",
    "least_agreeing": "Least agreeing",
    "least_share": "Least share",
    "random_share": "Share drawn at random",
    "lease_seconds": "A pair is held for (seconds)",
    "show_tie": "Offer “Tie”",
    "show_both_bad": "Offer “Both are bad”",
    "show_strength": "Ask how much better",
    "show_rationale": "Ask for a reason",
}
_HELP = {
    "overlap": "How many annotators judge each pair.",
    "max_overlap": "A pair that is not decided gets more annotators, up to this many.",
    "least_votes": "A decision needs at least this many votes of any kind.",
    "least_agreeing": "… this many of them for the winner …",
    "least_share": "… and this share of all votes, ties and both-bad included.",
    "random_share": "Of the queue; the rest goes by priority. Never zero: agreement is "
    "computed on what was drawn at random.",
    "lease_seconds": "After that an unanswered pair goes to others.",
}


class LabelingSettingsForm(forms.Form):
    """The rule and the distribution. The fields are the model's; that they fit together is for
    `services.labeling_settings_update` to say, in words and at the field."""

    def __init__(self, *args: Any, current: LabelingSettings, **kwargs: Any) -> None:
        super().__init__(*args, initial=forms.model_to_dict(current, list(_LABELS)), **kwargs)
        self.fields |= forms.fields_for_model(
            LabelingSettings, fields=list(_LABELS), labels=_LABELS, help_texts=_HELP
        )

    def changes(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in self.changed_data}
