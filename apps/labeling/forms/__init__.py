"""What the pages of labeling send."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.common.errors import DomainError
from apps.labeling.models import MOST_RESPONSES, Comparison, Task
from apps.labeling.selectors.finding import MOST_VALUES, NEWEST, Wanted
from apps.labeling.services import BULK_ROLES, FLAGS, LONGEST_RATIONALE, AnswerFields
from apps.labeling.services.answers import Runs
from apps.labeling.services.comments import LONGEST_COMMENT
from apps.labeling.texts import MOST_CHARACTERS

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
CRITERION = "criterion-"  # what the name of a criterion's field begins with


class Checked(forms.Form):
    """A form without a page of its own to show errors on: the first error is raised."""

    def check(self) -> None:
        for name, errors in self.errors.items():
            raise DomainError(f"{name}: {errors[0]}", field=name)


class CommentForm(forms.Form):
    """A comment; with `answers`, the answer to a question."""

    text = forms.CharField(
        label="Comment", max_length=LONGEST_COMMENT, widget=forms.Textarea({"rows": 6})
    )
    answers = forms.IntegerField(
        required=False, min_value=1, max_value=_LARGEST_KEY, widget=forms.HiddenInput
    )


class AskForm(Checked):
    """A question to the reviewers about the pair in hand."""

    slot = forms.IntegerField(min_value=1, max_value=_LARGEST_KEY)
    text = forms.CharField(max_length=LONGEST_COMMENT)


class AnswerForm(Checked):
    """One answer from the label screen.

    Reasons and criteria are the project's own; whether it offers them is for the service to say.
    """

    key = forms.CharField(max_length=80)
    answer = forms.ChoiceField(choices=[(value, value) for value in ANSWERS])
    rationale = forms.CharField(required=False, max_length=LONGEST_RATIONALE)
    improvement = forms.CharField(required=False, max_length=MOST_CHARACTERS)
    flags = forms.MultipleChoiceField(required=False, choices=list(FLAGS.items()))
    active_ms = forms.IntegerField(required=False)
    wall_ms = forms.IntegerField(required=False)

    def answer_fields(self) -> AnswerFields:
        data = self.cleaned_data
        side, strength = ANSWERS[data["answer"]]
        return AnswerFields(
            side=side,
            strength=strength,
            rationale=plain_ends(data["rationale"]),
            reasons=self.data.getlist("reasons"),
            flags=data["flags"],
            criteria=criteria_sent(self.data),
            improvement=plain_ends(data["improvement"]),
            runs=runs_sent(self.data),
            active_ms=sensible_time(data["active_ms"]),
            wall_ms=sensible_time(data["wall_ms"]),
        )


class VoteForm(AnswerForm):
    """An answer for a pair in hand."""

    slot = forms.IntegerField(min_value=1, max_value=_LARGEST_KEY)


class SkipForm(Checked):
    slot = forms.IntegerField(min_value=1, max_value=_LARGEST_KEY)
    reason = forms.CharField(required=False, max_length=300)


def criteria_sent(data: QueryDict) -> dict[str, str]:
    """{criterion: left | tie | right} of the rows that were answered."""
    return {
        name.removeprefix(CRITERION): value
        for name, value in data.items()
        if name.startswith(CRITERION) and value
    }


OUTCOME_FIELD, FIRST_ERROR_FIELD, STEP_FIELD = "outcome-", "first-error-", "step-"


def runs_sent(data: QueryDict) -> Runs:
    """What was said about two runs of agents; what is no number or no such field is left to the
    service to refuse."""
    runs = Runs()
    for name, value in data.items():
        if not value:
            continue
        if name.startswith(OUTCOME_FIELD):
            side, _, question = name.removeprefix(OUTCOME_FIELD).partition("-")
            runs.setdefault("outcome", {}).setdefault(side, {})[question] = value
        elif name.startswith(FIRST_ERROR_FIELD):
            step = int(value) if value.isdecimal() and len(value) < 6 else -1
            runs.setdefault("first_error", {})[name.removeprefix(FIRST_ERROR_FIELD)] = step
        elif name.startswith(STEP_FIELD):
            runs.setdefault("steps", {})[name.removeprefix(STEP_FIELD)] = value
    if unopened := data.get("unopened"):
        steps: dict[str, list[int]] = {"left": [], "right": []}
        for one in unopened.split():
            side, _, number = one.partition(":")
            if side in steps and number.isdecimal() and len(number) < 6:
                steps[side].append(int(number))
        runs["unopened"] = steps
    return runs


def plain_ends(text: str) -> str:
    """Browsers send the lines of a text field with CRLF; texts are stored with LF."""
    return text.replace("\r\n", "\n")


def sensible_time(milliseconds: int | None) -> int | None:
    """A time the page measured, or None for what no page can have measured."""
    if milliseconds is None or not 0 <= milliseconds <= 7 * 86_400_000:
        return None
    return milliseconds


class AnswersFilter(forms.Form):
    """The filter of My answers; lives in the query string."""

    q = forms.CharField(required=False, max_length=200, label=_("Search prompts"))
    choice = forms.ChoiceField(
        required=False,
        label=_("Your answer"),
        choices=[
            ("", _("all")),
            ("left", _("A (left) is better")),
            ("right", _("B (right) is better")),
            ("tie", _("Tie")),
            ("both_bad", _("Both are bad")),
        ],
    )
    only = forms.ChoiceField(
        required=False,
        label=_("Only"),
        choices=[
            ("", _("all")),
            ("noted", _("flagged or with a note")),
            ("improved", _("with an improved answer")),
            ("changed", _("changed since")),
        ],
    )


class ComparisonsFilter(Checked):
    """The filter of the comparisons; lives in the query string. `choices`: {field: (value, words)}
    of this project; a field with very many is typed."""

    q = forms.CharField(required=False, max_length=200, label="Search texts or an id")
    state = forms.ChoiceField(
        required=False, choices=[("", "all"), *Comparison.State.choices], label="State"
    )
    stratum = forms.ChoiceField(
        required=False, choices=[("", "all"), *Comparison.Stratum.choices], label="Queue"
    )
    winner = forms.ChoiceField(
        required=False,
        choices=[("", "all"), ("a", "A"), ("b", "B"), ("tie", "Tie"), ("both_bad", "Both bad")],
        label="Decision",
    )
    annotator = forms.IntegerField(
        required=False, min_value=1, max_value=_LARGEST_KEY, label="Voted on by"
    )
    batch = forms.CharField(required=False, max_length=80, label="Import")
    topic = forms.CharField(required=False, max_length=200, label="Topic")
    model = forms.CharField(required=False, max_length=200, label="Model of A or B")
    flag = forms.ChoiceField(
        required=False, choices=[("", "all"), *FLAGS.items()], label="Flagged by a voter"
    )
    votes = forms.IntegerField(required=False, min_value=0, max_value=32_767, label="Votes")
    since = forms.DateField(required=False, label="Imported from")
    until = forms.DateField(required=False, label="Imported until")

    def __init__(self, data: Any, choices: Mapping[str, Sequence[tuple[str, str]]] | None = None):
        super().__init__(data)
        for name, values in (choices or {}).items():
            if 0 < len(values) <= MOST_VALUES:
                self.fields[name].widget = forms.Select(choices=[("", "all"), *values])
        for name in ("since", "until"):
            self.fields[name].widget = forms.DateInput(attrs={"type": "date"})

    @property
    def more(self) -> list[forms.BoundField]:
        """What is folded away until it is used."""
        return [self[name] for name in self.fields if name not in ("q", "state", "winner")]

    @property
    def more_used(self) -> bool:
        return any(bound.value() or bound.errors for bound in self.more)

    def asked(self) -> dict[str, str]:
        """The same as part of an address: the fields that are good."""
        self.is_valid()
        return {
            name: str(value) for name, value in self.cleaned_data.items() if value not in ("", None)
        }

    def address(self, sort: str) -> str:
        """The query string of the list, in this order."""
        return urlencode(self.asked() | ({"sort": sort} if sort != NEWEST else {}))

    def wanted(self) -> Wanted:
        """What `comparisons_matching` filters by; a field that is no good narrows nothing."""
        self.is_valid()
        data = {name: value for name, value in self.cleaned_data.items() if value is not None}
        return Wanted(search=data.pop("q", ""), **data)

    def chips(self) -> list[tuple[str, str, str]]:
        """(field, its label, the value in words) of what narrows the list."""
        found = []
        for name, value in self.asked().items():
            field = self.fields[name]
            offered = getattr(field.widget, "choices", ())
            words = {str(key): text for key, text in offered}.get(value, value)
            label = "Search" if name == "q" else str(field.label)
            found.append((name, label, str(words)))
        return found


class BulkForm(forms.Form):
    """One action on the comparisons that were chosen; the service says what is missing."""

    action = forms.ChoiceField(choices=[(name, name) for name in BULK_ROLES])
    key = forms.CharField(max_length=80, widget=forms.HiddenInput)
    expected = forms.IntegerField(min_value=0, required=False, widget=forms.HiddenInput)
    value = forms.FloatField(required=False)
    reason = forms.CharField(required=False, max_length=250, label="Why")


class ViewForm(forms.Form):
    """A filter under a name."""

    name = forms.CharField(max_length=60)
    is_shared = forms.BooleanField(required=False)


class GuidelineForm(forms.Form):
    body = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 18}),
        label="Guidelines",
        help_text="Markdown. Annotators see them beside every pair.",
    )
    is_major = forms.BooleanField(
        required=False,
        label="A major change",
        help_text="The text differs in substance from the one that earlier votes were cast under.",
    )


# What the screen of tasks with several responses sends.

__all__ = ["ChangeForm", "RatingForm", "SkipForm", "TasksFilter", "values_typed"]

LETTERS = "ABCDEFGHI"

VALUE = "value-"  # what the name of a card's field begins with


class ChangeForm(Checked):
    """One rating from the screen: a value for each of the `cards` responses, in the order shown."""

    key = forms.CharField(max_length=120)
    cards = forms.IntegerField(min_value=1, max_value=MOST_RESPONSES)
    note = forms.CharField(required=False, max_length=LONGEST_RATIONALE)
    active_ms = forms.IntegerField(required=False)
    wall_ms = forms.IntegerField(required=False)

    def rating(self) -> dict[str, Any]:
        """What the services take; an answer without a value is named by its letter."""
        data = self.cleaned_data
        values = values_typed(self.data, data["cards"])
        if None in values:
            letter = LETTERS[values.index(None)]
            said = gettext("Answer %(letter)s has no value yet.") % {"letter": letter}
            raise DomainError(said, field="values")
        return {
            "idempotency_key": data["key"],
            "values": values,
            "rationale": plain_ends(data["note"]),
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


OLD_WORDS = {"graded": "grade", "ranking": "rank", "rated": "decided"}


class NamedBefore(forms.ChoiceField):
    """A choice that links from before may call by its old name."""

    def to_python(self, value: Any) -> str:
        return OLD_WORDS.get(value, super().to_python(value))


_RATED_KINDS = [(kind.value, kind.label) for kind in (Task.Kind.GRADE, Task.Kind.RANK)]


class TasksFilter(forms.Form):
    """The filter of the ratings page; lives in the query string."""

    q = forms.CharField(required=False, max_length=200, label="Search ids and prompts")
    kind = NamedBefore(required=False, choices=[("", "all"), *_RATED_KINDS])
    state = NamedBefore(required=False, choices=[("", "all"), *Task.State.choices])
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
