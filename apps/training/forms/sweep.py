"""Which settings a form sweeps, and over which values."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from apps.common.errors import DomainError
from apps.training.services.groups import MOST_RUNS, MOST_SWEPT, SWEPT_TYPES, sweep_check
from workers.config import SettingField


class SweepForm(forms.Form):
    """The part of a run's form about its sweep; `kind` and the `options` of its recipe are set, and
    the fields `c_<setting>` are there, before `add_sweep`."""

    kind: str
    options: dict[str, SettingField]

    def add_sweep(self) -> None:
        """Which settings a sweep varies, and the values of each as text."""
        names = [
            one.name
            for one in self.options.values()
            if one.type in SWEPT_TYPES and f"c_{one.name}" in self.fields
        ]
        for place in range(1, MOST_SWEPT + 1):
            self.fields[f"sweep_{place}"] = forms.ChoiceField(
                label="Setting" if place == 1 else "Second setting",
                required=False,
                choices=[("", "—"), *((name, name) for name in names)],
            )
            self.fields[f"values_{place}"] = forms.CharField(
                label="Values" if place == 1 else "Values of the second",
                required=False,
                max_length=500,
                help_text="Separated by commas, such as 1e-6, 3e-6, 1e-5."
                if place == 1
                else f"Every combination is a run; {MOST_RUNS} at most, seeds counted.",
            )

    def swept(self, cleaned: Mapping[str, Any]) -> dict[str, list[Any]]:
        """{setting: values}; what is wrong stands beside the values."""
        found: dict[str, list[Any]] = {}
        for place in range(1, MOST_SWEPT + 1):
            name, text = cleaned.get(f"sweep_{place}") or "", cleaned.get(f"values_{place}") or ""
            field = f"values_{place}"
            if not name:
                if text:
                    self.add_error(f"sweep_{place}", "Choose the setting that has these values.")
                continue
            if name in found:
                self.add_error(f"sweep_{place}", "This setting is swept already.")
                continue
            try:
                values = [self._value(name, one.strip()) for one in text.split(",") if one.strip()]
                sweep_check(kind=self.kind, sweep={name: values})
            except ValidationError as error:
                self.add_error(field, error)
            except DomainError as error:
                self.add_error(field, error.message)
            else:
                found[name] = values
        return found

    def _value(self, name: str, text: str) -> Any:
        """A value of a setting as it is typed."""
        option = self.options[name]
        if option.type == "bool":
            if text.lower() not in ("true", "false"):
                raise ValidationError(f"'{text}' is neither true nor false.")
            return text.lower() == "true"
        try:
            return self.fields[f"c_{name}"].clean(text)
        except ValidationError as error:
            raise ValidationError(f"'{text}': {' '.join(error.messages)}") from None

    def count_runs(self, cleaned: dict[str, Any]) -> None:
        """Put into `runs` how many are launched, seeds counted."""
        if self.errors:
            return
        try:
            made = sweep_check(kind=self.kind, sweep=cleaned["sweep"], seeds=cleaned["seeds"])
        except DomainError as error:
            self.add_error("values_1", error.message)
        else:
            cleaned["runs"] = len(made) * cleaned["seeds"]

    def swept_field(self, where: str) -> str:
        """The field of what a service refuses as `sweep` or `sweep.<setting>`; else empty."""
        if not where.startswith("sweep"):
            return ""
        swept = [self.cleaned_data.get(f"sweep_{i + 1}") for i in range(MOST_SWEPT)]
        setting = where.removeprefix("sweep.")
        return f"values_{swept.index(setting) + 1 if setting in swept else 1}"
