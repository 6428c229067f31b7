"""The form of a new preference dataset; what it means is `SnapshotRecipe`'s business. And those of
looks at held-out splits."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django import forms
from django.http import QueryDict

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.labeling.forms.rule import CUSTOM, Preset, PresetForm, UnitField, percent
from apps.snapshots.display import LossLine
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import (
    DEV,
    FIRST,
    HUMAN_AUDIT,
    PRIVATE_TEST,
    PUBLIC_TEST,
    PUBLISHED,
    SECOND,
    SINGLE,
    SMOKE,
    SOFT,
    TRAIN,
    SnapshotRecipe,
    recipe_from_json,
)
from apps.snapshots.selectors import snapshots
from apps.snapshots.services.budget import Wanted
from apps.snapshots.services.looks import MOST_LOOKS

_SPLITS = {
    "train_share": TRAIN,
    "smoke_share": SMOKE,
    "dev_share": DEV,
    "test_share": PUBLIC_TEST,
    "private_share": PRIVATE_TEST,
    "audit_share": HUMAN_AUDIT,
}
SINGLE_VOTES = Preset(
    "Single votes, soft labels: every pair with a vote, as probable as its voter is reliable",
    {"decide_by": SINGLE, "ties": SOFT},
)
# Fields of the recipe that have one here under the same name.
_SAME = (
    "decide_by",
    "least_votes",
    "least_agreeing",
    "least_share",
    "least_posterior",
    "rulings",
    "ties",
    "heldout_groups",
    "heldout_annotators",
    "split_by",
    "near_duplicates",
    "duplicate_similarity",
    "balance",
    "weight_cap",
    "most_train_rows",
    "half_life_days",
    "reliability_weights",
    "name_annotators",
    "seed",
)
_FILTERS = ("groups", "half", "batches", "topics", "without_annotators_of")
_TIMES = ("cast_from", "cast_before")
# The part that is folded until somebody wants it.
_ADVANCED = (
    *("heldout_groups", "heldout_annotators", "name_annotators", *_SPLITS),
    *("split_by", "seed", "near_duplicates", "duplicate_similarity"),
)
# Where losing nothing is another value than the project's own.
_WAY_OUT = {"heldout_annotators": "0", "ties": "soft", "include_left_out": "on"}


def _share(label: str, help_text: str = "") -> UnitField:
    field = percent(required=False, label=label, help_text=help_text)
    field.hide_optional = True
    return field


def _time(label: str) -> forms.DateTimeField:
    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
    return forms.DateTimeField(required=False, label=label, widget=widget)


class SnapshotForm(PresetForm):
    """Everything a recipe holds but single annotators, which the API can name.

    What is not sent has the project's default, so that a program may post only what it wants.
    """

    name = forms.CharField(max_length=120, label="Name")
    decide_by = forms.ChoiceField(
        label="Decided by",
        choices=[
            ("votes", "Counted votes"),
            ("one_coin", "One-coin Dawid–Skene"),
            ("dawid_skene", "Dawid–Skene"),
            ("mace", "MACE"),
            (SINGLE, "Single votes: every pair with a vote, with soft labels"),
            (PUBLISHED, "Published labels: what imported pairs came with, whoever voted"),
        ],
        help_text="Counting asks for the three numbers below. A model weighs each vote by how "
        "reliable its annotator is, and asks for votes and a probability.",
    )
    least_votes = forms.IntegerField(min_value=1, max_value=1000, label="Minimum votes")
    least_agreeing = forms.IntegerField(
        min_value=1, max_value=1000, label="Minimum agreeing votes", help_text="counting only"
    )
    least_share = percent(0.01, label="Minimum share (%)", help_text="counting only; ties in whole")
    least_posterior = percent(
        0.5, 0.999999, label="Minimum probability (%)", help_text="models only"
    )
    rulings = forms.ChoiceField(
        label="Rulings on disputes",
        choices=[("override", "Override the votes"), ("ignore", "Are ignored: votes decide")],
    )
    ties = forms.ChoiceField(
        label="Ties and “both are bad”",
        widget=forms.RadioSelect,
        choices=[
            ("drop", "Left out: only pairs with a winner"),
            ("soft", "Soft labels: every row says how probable its winner is, a tie one half"),
            ("kto", "Single answers, each desirable or not (for KTO); ties and both-bad stay in"),
        ],
        help_text="Single votes are frozen as soft labels, whatever is chosen here.",
    )
    heldout_groups = forms.MultipleChoiceField(
        required=False,
        label="Groups held out whole",
        help_text="Never trained on; evaluated in a separate file.",
    )
    heldout_annotators = percent(
        0.0,
        0.9,
        label="Share of annotators held out (%)",
        help_text="Their votes decide no row and form a separate evaluation file. 0: nobody.",
    )
    groups = forms.MultipleChoiceField(required=False, label="Only these groups")
    half = forms.ChoiceField(
        required=False,
        label="Half of the groups",
        choices=[("", "All groups"), (FIRST, "First half"), (SECOND, "Second half")],
        help_text="Where nobody can be held out: one half for the reward model, the other for the "
        "judge. Runs that use both are marked “same annotators”.",
    )
    topics = forms.MultipleChoiceField(required=False, label="Only these topics")
    batches = forms.MultipleChoiceField(required=False, label="Only these batches")
    include_left_out = forms.BooleanField(
        required=False, label="Include votes of annotators that an admin excluded"
    )
    without_annotators_of = forms.MultipleChoiceField(
        required=False,
        label="Without the annotators of",
        help_text="Excludes everyone who voted in the training rows of these datasets.",
    )
    cast_from = _time("Votes from")
    cast_before = _time("Votes before")
    train_share = _share("Train (%)")
    smoke_share = _share("Smoke (%)", "a quick check that a run works")
    dev_share = _share("Dev (%)", "steers training")
    test_share = _share("Public test (%)")
    private_share = _share("Private test (%)", "hidden from runs and readers")
    audit_share = _share("Human audit (%)", "kept for people to judge")
    split_by = forms.ChoiceField(
        choices=[
            ("auto", "Groups; answers if there are few groups"),
            ("group", "Groups"),
            ("argument", "Arguments"),
        ],
        label="Split by",
    )
    near_duplicates = forms.ChoiceField(
        label="Near-duplicates",
        choices=[
            ("join", "Stay on one side"),
            ("refuse", "Stop the freeze"),
        ],
    )
    duplicate_similarity = percent(
        0.5,
        label="Similarity threshold (%)",
        help_text="share of three-word runs in common; 100: the same words",
    )
    balance = forms.MultipleChoiceField(
        required=False,
        label="Count evenly, by weights",
        widget=forms.CheckboxSelectMultiple,
        choices=[
            ("length", "Longer, similar and shorter answer chosen"),
            ("topic", "Topics"),
            ("unsafe", "Flagged unsafe or not"),
        ],
    )
    weight_cap = forms.FloatField(
        min_value=1, max_value=1000, label="Largest weight", help_text="times the mean"
    )
    most_train_rows = forms.IntegerField(
        min_value=0,
        label="Maximum training rows",
        help_text="0: all. Otherwise drawn evenly over what is ticked above.",
    )
    half_life_days = forms.FloatField(
        min_value=0.01,
        required=False,
        label="Votes count half after (days)",
        help_text="empty: age does not matter",
    )
    reliability_weights = forms.BooleanField(
        required=False, label="Rows of more reliable annotators count more"
    )
    name_annotators = forms.BooleanField(
        required=False,
        label="Rows name who voted",
        help_text="By pseudonyms of this dataset, so that a reward run can cross-validate over "
        "annotators (folds).",
    )
    seed = forms.CharField(
        max_length=80, label="Seed", help_text="Another seed draws other splits and hold-outs."
    )

    def __init__(
        self, data: Any = None, *, project: Project, like: SnapshotRecipe | None = None
    ) -> None:
        """like: a recipe to start from instead of the project's defaults."""
        self.project = project
        self.defaults = snapshots.recipe_default(project=project)
        self.losses: Sequence[LossLine] = ()
        shown = like or self.defaults
        if data is not None and (name := data.get("relax")):
            data = self._relaxed(data.copy(), name)
        super().__init__(data, initial=_initial(shown))
        current = {name: getattr(shown, name) for name in _SAME}
        self.preset_add(project.pk, current, {"single_votes": SINGLE_VOTES})
        for name in (*_SAME, *_FILTERS):
            self.fields[name].required = False
            self.fields[name].hide_optional = name not in ("heldout_groups", *_FILTERS)
        groups = snapshots.comparison_counts(project=project, by="prompt__group_key")
        self.fields["heldout_groups"].choices = _counted(groups)
        self.fields["groups"].choices = _counted(groups)
        for name, by in (("topics", "prompt__topic"), ("batches", "batch")):
            counts = snapshots.comparison_counts(project=project, by=by)
            self.fields[name].choices = _counted(counts)
        frozen = snapshots.snapshot_list(project=project).filter(
            kind__in=(Snapshot.Kind.PREFERENCES, Snapshot.Kind.UNPAIRED),
            state=Snapshot.State.FROZEN,
        )
        self.fields["without_annotators_of"].choices = [
            (snapshot.pk, str(snapshot)) for snapshot in frozen
        ]
        self.n_left_out = len(self.defaults.filters.left_out)

    def _relaxed(self, data: QueryDict, name: str) -> QueryDict:
        """The same with one setting as it loses nothing: the way out beside a loss."""
        if name == "half":
            data[name] = ""
        elif name in (*_FILTERS, "heldout_groups"):
            data.setlist(name, [])
        elif name in _TIMES:
            data[name] = ""
        elif name in _WAY_OUT:
            data[name] = _WAY_OUT[name]
        elif name in _SAME:
            data["preset"] = CUSTOM
            data[name] = str(self.base_fields[name].prepare_value(getattr(self.defaults, name)))
        return data

    def losses_show(self, lines: Sequence[LossLine]) -> None:
        """Put each sentence beside its field."""
        for line in lines:
            self[line.field].loss = line
        self.losses = lines

    @property
    def lossy(self) -> list[forms.BoundField]:
        """The fields that may lose pairs, of those that the page shows."""
        names = [*_SAME[: _SAME.index("split_by")], *_FILTERS, *_TIMES]
        return [self[name] for name in names + ["include_left_out"] * bool(self.n_left_out)]

    @property
    def is_custom(self) -> bool:
        """Also where a number of the rule loses pairs, with its way out beside it."""
        rule = {"decide_by", *(name for name in _SAME if name.startswith("least_"))}
        return super().is_custom or any(line.field in rule for line in self.losses)

    @property
    def has_advanced(self) -> bool:
        """Whether the folded part about hold-outs and splits holds an error, or a loss."""
        named = {line.field for line in self.losses}
        return any(self[name].errors or name in named for name in _ADVANCED)

    @property
    def has_weights(self) -> bool:
        """Whether the folded part about weights holds anything but the defaults, or an error."""
        names = ("balance", "most_train_rows", "half_life_days", "reliability_weights")
        return any(self[name].value() or self[name].errors for name in names) or bool(
            self["weight_cap"].errors
        )

    @property
    def has_filters(self) -> bool:
        names = (*_FILTERS, *_TIMES, "include_left_out")
        return any(self[name].value() or self[name].errors for name in names)

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        chosen = self.preset_values()
        if not self.errors:
            try:
                data["recipe"] = self._recipe(data, chosen)
            except DomainError as error:
                self.refuse(error)
        return data

    def refuse(self, error: DomainError) -> None:
        """Put a service's refusal on the field it names."""
        name = (error.field or "").removeprefix("filters.")
        if name == "splits":
            total = math.fsum(self.cleaned_data.get(share) or 0.0 for share in _SPLITS)
            wrong = f"The splits add up to {100 * total:g} %; they must add up to 100 %."
            message = error.message if math.isclose(total, 1) else wrong
            return self.add_error("train_share", message)
        return self.add_error(name if name in self.fields else None, error.message)

    def _recipe(self, data: dict[str, Any], chosen: dict[str, Any]) -> SnapshotRecipe:
        """chosen: the rule of a preset, over the numbers."""
        filters: dict[str, Any] = {name: data[name] for name in _FILTERS}
        filters |= {name: data[name].isoformat() if data[name] else None for name in _TIMES}
        left_out = () if data["include_left_out"] else self.defaults.filters.left_out
        sent = {name: data[name] for name in _SAME if name in self.data or _is_many(data[name])}
        given = {name: value for name, value in sent.items() if value not in (None, "")}
        given |= {name: data[name] for name in ("reliability_weights", "name_annotators")}
        given |= {"filters": filters | {"left_out": list(left_out)}, "splits": self._splits(data)}
        base = replace(self.defaults, half_life_days=None).to_json()
        return recipe_from_json(base | given | chosen)

    def _splits(self, data: dict[str, Any]) -> dict[str, float]:
        """As they were typed; the defaults where none was."""
        if not any(name in self.data for name in _SPLITS):
            return dict(self.defaults.splits)
        return {split: data[name] or 0.0 for name, split in _SPLITS.items()}


def _initial(recipe: SnapshotRecipe) -> dict[str, Any]:
    return (
        {name: getattr(recipe, name) for name in _SAME}
        | {name: getattr(recipe.filters, name) for name in (*_FILTERS, *_TIMES)}
        | {name: recipe.shares[split] for name, split in _SPLITS.items()}
    )


def _is_many(value: Any) -> bool:
    return isinstance(value, list)


def _counted(rows: list[tuple[str, int]]) -> list[tuple[str, str]]:
    return [(value, f"{value} ({n:,})") for value, n in rows]


# Looks at held-out splits.


class LookSignForm(forms.Form):
    """A second person's yes to one more look."""

    split = forms.CharField(max_length=24)
    look = forms.IntegerField(min_value=1)
    person = forms.ModelChoiceField(User.objects.none())
    reason = forms.CharField(max_length=500)

    def __init__(self, *args: Any, people: list[User], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ids = [one.pk for one in people]
        self.fields["person"].queryset = User.objects.filter(pk__in=ids)


class SelectionForm(forms.Form):
    most_per_prompt = forms.TypedChoiceField(
        label="Chosen pairs of one prompt in a batch",
        required=False,
        coerce=int,
        empty_value=None,
        choices=[("", "any number"), ("1", "at most 1"), ("2", "at most 2"), ("5", "at most 5")],
    )


class BudgetForm(forms.Form):
    """Of a label budget; every field may stay empty, and the service says what is not possible."""

    votes = forms.IntegerField(
        required=False,
        label="Votes I can afford",
        help_text="Empty, without pairs either: the votes that the queue wants.",
        widget=forms.NumberInput({"min": 1}),
    )
    pairs = forms.IntegerField(
        required=False,
        label="Or pairs wanted",
        help_text="The votes follow from the votes a pair.",
        widget=forms.NumberInput({"min": 1}),
    )
    price = forms.FloatField(
        required=False,
        label="Price of a vote",
        widget=forms.NumberInput({"min": 0, "step": "any"}),
    )
    wage = forms.FloatField(
        required=False,
        label="Or hourly wage",
        help_text="A vote then costs its active time, as it was measured here.",
        widget=forms.NumberInput({"min": 0, "step": "any"}),
    )
    currency = forms.CharField(
        required=False, label="Currency", help_text="Such as EUR.", strip=True
    )
    by = forms.DateField(
        required=False,
        label="Needed by",
        help_text="How many votes will be in by the end of that day (UTC)?",
        widget=forms.DateInput({"type": "date"}, format="%Y-%m-%d"),
    )

    def wanted(self) -> Wanted:
        """What was stated, of the fields that could be read."""
        stated = self.cleaned_data if self.is_bound and not self.errors else {}
        return Wanted(**{name: value for name, value in stated.items() if value is not None})


class LookBudgetForm(forms.Form):
    """How many looks at a split are free; empty for any number."""

    split = forms.CharField(max_length=24)
    looks = forms.IntegerField(min_value=0, max_value=MOST_LOOKS, required=False)
