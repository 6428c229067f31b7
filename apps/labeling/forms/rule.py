"""What every form about a decision rule shares: presets by name, and units for people.

What is stored, and what programs send, are fractions, seconds and milliseconds; pages show and take
percent, minutes and seconds.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms

from apps.labeling.models import Consensus, DecideBy
from measures.consensus.choosing import LEAST_PROPOSED

CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Preset:
    """A rule by name; a form takes the values that it has fields for."""

    label: str
    values: Mapping[str, Any]


_COUNTED = {"decide_by": DecideBy.VOTES.value, "least_votes": 3, "overlap": 3}
MAJORITY_OF_3 = Preset(
    "Majority of 3: three votes, two agreeing",
    _COUNTED | {"max_overlap": 3, "least_agreeing": 2, "least_share": 0.6},
)
MAJORITY_OF_5 = Preset(
    "Majority of 5, ask more where split: three votes, up to five until three agree",
    _COUNTED | {"max_overlap": 5, "least_agreeing": 3, "least_share": 0.6},
)


def presets(project: str) -> dict[str, Preset]:
    """Those that the project can use: weighing needs a model that was fitted to enough votes."""
    found = {"majority_3": MAJORITY_OF_3, "majority_5": MAJORITY_OF_5}
    fitted = Consensus.objects.filter(project=project, n_votes__gte=LEAST_PROPOSED).first()
    if fitted is not None and fitted.method != DecideBy.VOTES:
        found["reliability"] = Preset(
            "Weigh by reliability: three votes, up to five until 90 % sure",
            {
                "decide_by": str(fitted.method),
                "least_votes": 3,
                "overlap": 3,
                "max_overlap": 5,
                "least_posterior": 0.9,
            },
        )
    return found


class PresetForm(forms.Form):
    """A form with a rule in it, which a preset can fill.

    A preset counts when another one than before is chosen: whoever only changes numbers has made a
    rule of their own.
    """

    def preset_add(
        self, project: str, current: Mapping[str, Any], more: Mapping[str, Preset] | None = None
    ) -> None:
        """current: the rule as it is, by the names of the fields; more: presets of this form alone.
        Call it when fields are there."""
        self.presets = presets(project) | dict(more or {})
        names = [key for key, one in self.presets.items() if _is(one, current)]
        field = forms.ChoiceField(
            required=False,
            label="Rule",
            widget=forms.RadioSelect,
            choices=[
                *((key, one.label) for key, one in self.presets.items()),
                (CUSTOM, "Custom: the numbers below"),
            ],
            initial=names[0] if names else CUSTOM,
        )
        field.hide_optional = True
        self.fields["preset"] = field
        self.order_fields(["preset"])

    def preset_values(self, also: Collection[str] = ()) -> dict[str, Any]:
        """What the preset that was chosen says of this form's fields and of `also`; errors of
        numbers that it replaces are taken back. Empty where the numbers hold."""
        said = self.data.get("preset", "")
        if said == self.fields["preset"].initial or said not in self.presets:
            return {}
        values = self.presets[said].values
        for name in values:
            self.errors.pop(name, None)
        return {name: v for name, v in values.items() if name in self.fields or name in also}

    @property
    def is_custom(self) -> bool:
        """Whether the numbers are to be seen: they are the rule, or one of them is wrong."""
        known = {name for one in self.presets.values() for name in one.values}
        wrong = any(self[name].errors for name in known if name in self.fields)
        return wrong or self["preset"].value() in (CUSTOM, "", None)


def _is(preset: Preset, current: Mapping[str, Any]) -> bool:
    return all(current[name] == value for name, value in preset.values.items() if name in current)


class UnitField(forms.FloatField):
    """A number that people give in their unit, of which `per` make one of what is stored.

    low, high: in what is stored; whole: what is stored is a whole number.
    """

    def __init__(
        self, *, per: float, low: float, high: float, whole: bool = False, **kwargs: Any
    ) -> None:
        self.per, self.low, self.high, self.whole = per, low, high, whole
        super().__init__(**kwargs)
        self.widget.attrs |= {"min": _short(low * per), "max": _short(high * per), "step": "any"}

    def bound_data(self, data: Any, initial: Any) -> Any:
        return None if data is None else str(data)

    def prepare_value(self, value: Any) -> Any:
        return _short(value * self.per) if isinstance(value, int | float) else value

    def to_python(self, value: Any) -> float | int | None:
        given = super().to_python(value)
        if given is None:
            return None
        stored = round(given / self.per, 12)
        if not self.low <= stored <= self.high:  # also what is no number at all
            least, most = (_short(end * self.per) for end in (self.low, self.high))
            raise forms.ValidationError(f"This must lie between {least} and {most}.", "bounds")
        return round(stored) if self.whole else stored

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return self.to_python(data) != initial
        except forms.ValidationError:
            return True


def percent(low: float = 0.0, high: float = 1.0, **kwargs: Any) -> UnitField:
    """A share, in percent."""
    return UnitField(per=100, low=low, high=high, **kwargs)


def _short(value: float) -> str:
    return f"{round(value, 9):.15g}"
