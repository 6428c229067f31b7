"""The form of a new preference dataset; what it means is `SnapshotRecipe`'s business."""

from typing import Any

from django import forms

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.snapshots import selectors
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import DEV, PUBLIC_TEST, TRAIN, SnapshotRecipe
from apps.snapshots.recipe_json import recipe_from_json

_RULE = ("least_votes", "least_agreeing", "least_share")
_SPLITS = {"train_share": TRAIN, "dev_share": DEV, "test_share": PUBLIC_TEST}


class SnapshotForm(forms.Form):
    """Everything a recipe holds but single annotators, which the API can name."""

    name = forms.CharField(max_length=120, label="Name")
    least_votes = forms.IntegerField(min_value=1, max_value=1000, label="Least votes")
    least_agreeing = forms.IntegerField(
        min_value=1, max_value=1000, label="Least agreeing", help_text="for the winning side"
    )
    least_share = forms.FloatField(
        min_value=0.01, max_value=1, label="Least share", help_text="ties count in the whole"
    )
    heldout_groups = forms.MultipleChoiceField(
        required=False,
        label="Groups held out whole",
        help_text="Never trained on; measured in a file of their own.",
    )
    heldout_annotators = forms.FloatField(
        min_value=0,
        max_value=0.9,
        label="Share of annotators held out",
        help_text="Their votes decide no row and form their own evaluation file.",
    )
    groups = forms.MultipleChoiceField(required=False, label="Only these groups")
    batches = forms.MultipleChoiceField(required=False, label="Only these batches")
    without_annotators_of = forms.MultipleChoiceField(
        required=False,
        label="Without the annotators of",
        help_text="Leaves out everyone who voted in the training rows of these datasets.",
    )
    cast_from = forms.DateTimeField(
        required=False,
        label="Votes from",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
    )
    cast_before = forms.DateTimeField(
        required=False,
        label="Votes before",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
    )
    train_share = forms.FloatField(min_value=0.01, max_value=1, label="Train")
    dev_share = forms.FloatField(min_value=0, max_value=1, label="Dev")
    test_share = forms.FloatField(min_value=0, max_value=1, label="Public test")
    split_by = forms.ChoiceField(
        choices=[
            ("auto", "Groups, or arguments where groups are few"),
            ("group", "Groups"),
            ("argument", "Arguments"),
        ],
        label="Split by",
    )
    seed = forms.CharField(
        max_length=80, label="Seed", help_text="Another seed draws other splits and hold-outs."
    )

    def __init__(self, data: Any = None, *, project: Project) -> None:
        defaults = selectors.recipe_default(project=project)
        initial = {name: getattr(defaults, name) for name in (*_RULE, "split_by", "seed")} | {
            "heldout_annotators": defaults.heldout_annotators,
            **{name: defaults.shares[split] for name, split in _SPLITS.items()},
        }
        super().__init__(data, initial=initial)
        groups = selectors.comparison_counts(project=project, by="prompt__group_key")
        batches = selectors.comparison_counts(project=project, by="batch")
        self.fields["heldout_groups"].choices = _counted(groups)
        self.fields["groups"].choices = _counted(groups)
        self.fields["batches"].choices = _counted(batches)
        frozen = selectors.snapshot_list(project=project).filter(
            kind=Snapshot.Kind.PREFERENCES, state=Snapshot.State.FROZEN
        )
        self.fields["without_annotators_of"].choices = [
            (snapshot.pk, str(snapshot)) for snapshot in frozen
        ]

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        if not self.errors:
            try:
                data["recipe"] = self._recipe(data)
            except DomainError as error:
                self.refuse(error)
        return data

    def refuse(self, error: DomainError) -> None:
        """Put a service's refusal on the field it names."""
        name = (error.field or "").removeprefix("filters.")
        self.add_error(name if name in self.fields else None, error.message)

    def _recipe(self, data: dict[str, Any]) -> SnapshotRecipe:
        filters = {name: data[name] for name in ("groups", "batches", "without_annotators_of")}
        for name in ("cast_from", "cast_before"):
            filters[name] = data[name].isoformat() if data[name] else None
        copied = {name: data[name] for name in (*_RULE, "heldout_groups", "split_by", "seed")}
        return recipe_from_json(
            copied
            | {
                "filters": filters,
                "heldout_annotators": data["heldout_annotators"],
                "splits": {split: data[name] for name, split in _SPLITS.items()},
            }
        )


def _counted(rows: list[tuple[str, int]]) -> list[tuple[str, str]]:
    return [(value, f"{value} ({n:,})") for value, n in rows]
