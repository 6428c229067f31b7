"""Choosing which of a run's pairs go to people: what is asked, and what is said beside it."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.urls import reverse
from django.utils.formats import date_format

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.labeling.models import PairSelection
from apps.loop.plan import (
    LARGEST_SEED,
    LEAST_VOTES,
    MOST_PER_PROMPT,
    MOST_SELECTED,
    MOST_VOTES,
    SelectionPlan,
)
from apps.snapshots.selectors.selection import newest_replay, verdict_words
from measures.acquisition import D_OPTIMAL, DISAGREEMENT, ENTROPY

STRATEGIES = {
    D_OPTIMAL: "D-optimal: pairs unlike all that were asked",
    ENTROPY: "Entropy: in doubt, and far from what was asked",
    DISAGREEMENT: "Disagreement of an ensemble",
}


class SelectPairsForm(forms.Form):
    """The switch is off at first; what else is asked counts only where it is on."""

    use_required_attribute = False  # of fields that are hidden where it is off

    choose = forms.BooleanField(label="Choose which pairs people label", required=False)
    pairs = forms.IntegerField(label="Pairs in all", min_value=1)
    measuring = forms.FloatField(
        label="Measuring, % of them",
        min_value=0,
        max_value=100,
        initial=20,
        help_text="Drawn at random from all. Agreement, calibration and evaluation read these.",
        widget=forms.NumberInput({"step": "any"}),
    )
    measuring_votes = forms.IntegerField(
        label="Votes for each measuring pair",
        min_value=LEAST_VOTES,
        max_value=MOST_VOTES,
        initial=LEAST_VOTES,
        help_text="All other pairs get one vote.",
    )
    selected = forms.FloatField(
        label="Chosen by a model, % of them",
        min_value=0,
        max_value=100 * MOST_SELECTED,
        initial=0,
        help_text="At most half; 0 is none. They are trained on and never measured on.",
        widget=forms.NumberInput({"step": "any"}),
    )
    strategy = forms.ChoiceField(
        label="How the model chooses", choices=list(STRATEGIES.items()), initial=D_OPTIMAL
    )
    most_per_prompt = forms.IntegerField(
        label="Chosen pairs of one prompt, at most",
        min_value=1,
        max_value=MOST_PER_PROMPT,
        initial=2,
    )
    seed = forms.IntegerField(
        label="Seed of the draw", min_value=0, max_value=LARGEST_SEED, initial=0
    )

    @property
    def parts(self) -> list[forms.BoundField]:
        """All fields but the switch."""
        return [field for field in self if field.name != "choose"]

    @property
    def is_on(self) -> bool:
        return bool(self.data.get(self.add_prefix("choose")))

    def plan(self) -> SelectionPlan | None:
        """None where a field is marked."""
        if not self.is_valid():
            return None
        given = {name: value for name, value in self.cleaned_data.items() if name != "choose"}
        shares = {name: given[name] / 100 for name in ("measuring", "selected")}
        try:
            return SelectionPlan.from_json(given | shares)
        except DomainError as error:
            self.refuse(error)
            return None

    def refuse(self, error: DomainError) -> None:
        self.add_error(error.field if error.field in self.fields else None, error.message)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the newest replay of the project says of choosing pairs; `url` of the replays."""

    words: str
    url: str


def verdict_of(project: Project) -> Verdict:
    found = newest_replay(project)
    url = reverse("snapshots:selection", args=[project.slug])
    if found is None:
        return Verdict("Whether a model's choice saves votes here was not replayed yet.", url)
    day = date_format(found.created_at, "j M Y")
    return Verdict(f"{verdict_words(found).rstrip('.')} (replay of {day}).", url)


@dataclass(frozen=True, slots=True)
class SliceLine:
    name: str
    n: int
    said: str


def slices_of(found: PairSelection | None) -> list[SliceLine]:
    """What was chosen, a line a slice, and what was left."""
    if found is None:
        return []
    report: dict[str, Any] = found.report
    plan = SelectionPlan.from_json(found.plan)
    n = report["candidates"]

    def drawn(k: int) -> str:
        return f"drawn at random, each with probability {k / n:.3g}"

    lines = [
        SliceLine(
            "Measuring",
            report["measuring"],
            f"{drawn(report['measuring'])}; {plan.measuring_votes} votes each",
        ),
        SliceLine("Training", report["training"], f"{drawn(report['training'])}; one vote each"),
        SliceLine(
            "Chosen by a model",
            report["selected"],
            f"{STRATEGIES[plan.strategy]}; one vote each, never measured on",
        ),
        SliceLine("Left", report["left"], "not in the label queue"),
    ]
    return [line for line in lines if line.n]
