"""The form that launches a run: its inputs, and every field its recipe knows, with its limits."""

import difflib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.forms.fields import InvalidJSONInput
from django.http import QueryDict

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.common.json_limits import json_check
from apps.training.form_guards import (
    PREFIX,
    GuardRow,
    guard_complaints,
    guard_fields,
    guard_rows,
    guards_chosen,
)
from apps.training.form_needs import NeedsForm
from apps.training.form_sections import sections_of
from apps.training.models import Run, RunInput
from apps.training.selectors import pages
from apps.training.services.judges import REWARDED, held_out_judges
from apps.training.services.kinds import KINDS, OPTIMISED, Role
from apps.training.services.seeds import MOST_SEEDS
from workers.contract.drills import ONLY_IN_TESTS, drill_folder
from workers.contract.guards import guard_errors
from workers.contract.recipes import (
    RecipeField,
    recipe_config,
    recipe_fields,
    recipe_presets,
)

# Shown at once; the others wait behind "All settings".
MAIN_FIELDS: dict[str, tuple[str, ...]] = {
    "sft": ("learning_rate", "batch_size", "epochs", "max_steps", "max_length"),
    "reward": ("learning_rate", "batch_size", "epochs", "labels", "max_length"),
    "dpo": ("beta", "learning_rate", "batch_size", "epochs", "loss_type"),
    "ppo": ("steps", "batch_size", "learning_rate", "kl_coef", "max_new_tokens", "reward"),
    "grpo": (
        *("steps", "group_size", "batch_size", "learning_rate", "kl_coef"),
        *("max_new_tokens", "reward"),
    ),
    "generate": ("max_prompts", "max_new_tokens", "temperature", "opponent"),
    "evaluate": ("max_prompts", "max_new_tokens", "temperature"),
    "assess": ("planned_kl", "max_pairs", "max_outputs", "best_of"),
    "drill": ("steps", "step_seconds", "checkpoint_every", "sample_every", "fault"),
}
ROLE_LABELS = {
    "data": "Dataset",
    "prompts": "Prompts",
    "sft": "SFT model",
    "base": "Base model",
    "policy": "Policy",
    "reference": "Reference",
    "reward": "Reward model",
    "judge": "Held-out judge",
    "hard": "Hard pairs",
    "other": "Dataset from elsewhere",
    "rollouts": "Answers of a run",
    "canaries": "Canary pairs",
    "reward_data": "The reward model's pairs",
    "demonstrations": "Demonstrations",
}
ROLE_HELP = {
    "judge": "A reward model from other annotators; it scores, and never trains.",
    "reference": "What KL is measured against; the starting policy if none is chosen.",
    "base": "Continue from this model.",
    "hard": "Pairs that an earlier reward model got wrong; learned from beside the dataset.",
    "other": "Pairs of another kind, to see whether the model holds there.",
    "canaries": "Decided pairs that the reward model never saw; a check ranks them.",
    "reward_data": "What the reward model learned from, for the same check.",
    "demonstrations": "What answers may have been copied from; the share is watched.",
    "policy": "Whose answers are generated; in PPO and GRPO, where training starts.",
}


_UNREADABLE = "Too deeply nested, or a number of too many digits."


class RunForm(NeedsForm):
    """`initial` comes from a preset, or from the run that is cloned, with `changes` to its settings
    and `needs` in the place of its own."""

    name = forms.CharField(max_length=120, label="Name")
    seed = forms.IntegerField(
        min_value=0,
        max_value=2**63 - 1,
        initial=0,
        label="Seed",
        help_text="The same seed, data and code give the same run.",
    )
    seeds = forms.IntegerField(
        min_value=1,
        max_value=MOST_SEEDS,
        initial=1,
        required=False,
        label="Seeds",
        help_text="Runs to launch, with this seed and the ones after it, as one group. One seed is "
        "not a result: with three or more the group's page gives means with their intervals.",
    )
    key = forms.CharField(widget=forms.HiddenInput, max_length=80)
    pasted = forms.CharField(
        label="Configuration as JSON",
        required=False,
        help_text="Overrides the fields above, name by name.",
        widget=forms.Textarea({"rows": 5, "class": "code", "spellcheck": "false"}),
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        project: Project,
        kind: str,
        source: Run | None = None,
        preset: str = "",
        changes: Mapping[str, Any] | None = None,
        queues_heard: frozenset[str] | None = None,
        needs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data, **kwargs)
        self.project, self.kind, self.source = project, kind, source
        self.options = {option.name: option for option in _offered(kind)}
        start = recipe_config(kind, source.config if source else {"preset": preset})
        if start.get("preset") == "":
            del start["preset"]
        start |= changes or {}
        if kind == "drill":  # what is not offered here and asks for nothing
            start = {n: v for n, v in start.items() if n in self.options or v != _idle(n)}
        if source:
            self.fields["name"].initial = f"{source.name} (copy)"[:120]
            self.fields["seed"].initial = source.seed
        self.ask_needs(kind, source=source, needs=needs or {}, queues_heard=queues_heard)
        self._add_inputs(source)
        if kind in OPTIMISED:
            self.fields["override_reason"] = forms.CharField(
                max_length=500,
                required=False,
                label="Why a reward model that is not approved may be used",
                help_text="Leave it empty with an approved one. Your reason is kept with the run "
                "and in the audit log.",
            )
        if "guards" in self.options:
            self.fields |= guard_fields(kind, start.pop("guards", None) or {})
        for option in self.options.values():
            if option.name == "guards":  # the table of rules stands for it
                continue
            field = _config_field(option)
            field.initial = _shown(option, start.pop(option.name, option.default))
            field.hide_optional = not option.optional  # blank means the default
            self.fields[f"c_{option.name}"] = field
        if start:  # what this version's recipe does not know is not dropped silently
            self.fields["pasted"].initial = json.dumps(start, indent=2, ensure_ascii=False)
        self._group()

    def _add_inputs(self, source: Run | None) -> None:
        """A needed input with one thing to choose is chosen; of several, nobody but the person
        knows which. What is missing the service names, with what would do instead."""
        needs = {need.roles[0]: need for need in KINDS[self.kind].needs if len(need.roles) == 1}
        taken = _inputs_of(source) if source else {}
        judges = held_out_judges(self.project.pk) if self.kind in REWARDED else set()
        for role, rule in KINDS[self.kind].roles.items():
            groups = _role_choices(self.project, rule, judges if role == "reward" else set())
            field = forms.ChoiceField(
                label=ROLE_LABELS.get(role, role),
                required=False,
                choices=[("", "Choose one" if role in needs else "—"), *groups],
                help_text=ROLE_HELP.get(role, ""),
            )
            offered = [value for _, group in groups for value, _ in group]
            only = offered[0] if role in needs and len(offered) == 1 else ""
            field.initial = taken.get(role, "") if source else only
            field.hide_optional = role in needs
            if role in needs and needs[role].unless is None:
                field.widget.attrs["required"] = True
            self.fields[f"input_{role}"] = field

    def _group(self) -> None:
        main = MAIN_FIELDS.get(self.kind, ())
        self.input_fields = [self[name] for name in self.fields if name.startswith("input_")]
        self.main_fields = [self[f"c_{name}"] for name in main if name in self.options]
        rest = [
            option
            for name, option in self.options.items()
            if name not in main and f"c_{name}" in self.fields
        ]
        self.more_count = len(rest)
        self.more_sections = [
            (title, about, [self[f"c_{option.name}"] for option in options])
            for title, about, options in sections_of(self.kind, rest)
        ]

    @classmethod
    def with_preset(cls, sent: QueryDict, *, preset: str, of: str, **kwargs: Any) -> Self:
        """The form as it was sent, with the values of a preset in the fields of the configuration:
        name, seeds, machine and inputs stay what the person chose. Nothing is checked yet. `of` is
        the kind of run."""
        own = "guards" in recipe_presets(of).get(preset, {})
        settings = ("c_", "pasted", PREFIX) if own else ("c_", "pasted")
        kept = {name: value for name, value in sent.items() if not name.startswith(settings)}
        return cls(initial=kept, preset=preset, **kwargs)

    @cached_property
    def guard_rows(self) -> list[GuardRow]:
        """The rules of this kind; none for a kind that is not watched."""
        return guard_rows(self, self.kind) if "guards" in self.options else []

    @property
    def guards_changed(self) -> int:
        return sum(row.changed for row in self.guard_rows)

    @property
    def guards_are_open(self) -> bool:
        return any(row.errors for row in self.guard_rows)

    @property
    def more_is_open(self) -> bool:
        """Whether a hidden field has an error that must be seen."""
        hidden = [field for _, _, fields in self.more_sections for field in fields]
        return any(field.errors for field in [*hidden, self["pasted"]])

    def clean_pasted(self) -> dict[str, Any]:
        """An object whose names the recipe knows and whose values fit."""
        text = self.cleaned_data["pasted"].strip()
        if not text:
            return {}
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValidationError(
                f"Not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
            ) from None
        except (ValueError, RecursionError):
            raise ValidationError(_UNREADABLE) from None
        if not isinstance(value, dict):
            raise ValidationError('Expected an object such as {"learning_rate": 1e-5}.')
        try:
            json_check(
                value, field="pasted"
            )  # before each name is compared with all that are known
        except DomainError as error:
            raise ValidationError(error.message) from None
        problems = [problem for name in value if (problem := self._misfit(name, value[name]))]
        if problems:
            raise ValidationError(problems)
        return value

    def _misfit(self, name: str, value: Any) -> str | None:
        option = self.options.get(name)
        if option is None:
            close = difflib.get_close_matches(name, self.options, n=1)
            return f"{name}: is no field of this recipe" + (
                f" (is '{close[0]}' meant?)." if close else "."
            )
        if value is None:
            return None if option.optional else f"{name}: needs a value."
        if option.type in {"object", "list"}:
            fits = isinstance(value, dict if option.type == "object" else list)
            if fits and name == "guards":
                return "; ".join(guard_errors(self.kind, value)) or None
            return None if fits else f"{name}: expected {option.type}."
        try:
            _config_field(option).clean(value)
        except ValidationError as error:
            return f"{name}: {' '.join(error.messages)}"
        return None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        config = {}
        if "guards" in self.options:
            config["guards"] = guards_chosen(self.kind, cleaned)
            for name, words in guard_complaints(self.kind, config["guards"]):
                self.add_error(name, words)
        for name, option in self.options.items():
            if name in config:
                continue
            value = cleaned.get(f"c_{name}")
            value = option.default if value in (None, "") else value
            if value is not None:
                config[name] = value
        config |= {k: v for k, v in (cleaned.get("pasted") or {}).items() if v is not None}
        cleaned["config"] = config
        self.clean_needs(cleaned)
        cleaned["seeds"] = cleaned.get("seeds") or 1
        cleaned["inputs"] = {
            name.removeprefix("input_"): pages.input_resolve(self.project, value)
            for name, value in cleaned.items()
            if name.startswith("input_") and value
        }
        return cleaned

    def refuse(self, error: DomainError) -> None:
        """Put a service's refusal beside the field it is about."""
        where = error.field or ""
        name = f"input_{where.removeprefix('inputs.')}" if where.startswith("inputs.") else where
        if where.startswith("config."):
            name = f"c_{where.removeprefix('config.')}"
        name = {"config": "pasted", "idempotency_key": "key"}.get(name, name)
        self.add_error(name if name in self.fields else None, error.message)


def _idle(name: str) -> Any:
    return ONLY_IN_TESTS.get(name, object())


def _offered(kind: str) -> list[RecipeField]:
    """The fields of its recipe, without those that are for machines of tests alone."""
    fields = recipe_fields(kind)
    if kind != "drill" or drill_folder() is not None:
        return fields
    return [field for field in fields if field.name not in ONLY_IN_TESTS]


def _inputs_of(run: Run) -> dict[str, str]:
    rows = RunInput.objects.filter(run=run)
    return {
        row.role: f"snapshot:{row.snapshot_id}"
        if row.snapshot_id
        else f"run:{row.upstream_id}"
        if row.upstream_id
        else f"checkpoint:{row.checkpoint_id}"
        for row in rows
    }


def _role_choices(
    project: Project, rule: Role, without: set[str]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """What may play a role, without the models of the runs `without`."""
    groups = [
        ("Datasets", pages.snapshot_choices(project, rule.snapshots) if rule.snapshots else []),
        ("Runs (their final model)", pages.run_choices(project, rule.models, without)),
        ("Checkpoints", pages.checkpoint_choices(project, rule.models, without)),
    ]
    return [(title, choices) for title, choices in groups if choices]


def _config_field(option: RecipeField) -> forms.Field:
    """A form field with the option's type and limits."""
    common = {"label": option.name, "required": False, "help_text": _help(option)}
    if option.type == "bool":
        return forms.BooleanField(**common)
    if option.choices:
        return forms.ChoiceField(choices=[(c, c) for c in option.choices], **common)
    if option.type == "int":
        bounds = {"min_value": option.minimum, "max_value": option.maximum}
        return forms.IntegerField(**common, **bounds)
    if option.type == "float":
        validators = [_Above(option.above)] if option.above is not None else []
        if option.minimum is not None:
            validators.append(MinValueValidator(option.minimum))
        if option.maximum is not None:
            validators.append(MaxValueValidator(option.maximum))
        widget = forms.NumberInput({"step": "any"})
        return forms.FloatField(validators=validators, widget=widget, **common)
    if option.type in {"object", "list"}:
        return _JsonField(
            widget=forms.Textarea({"rows": 2, "class": "code", "spellcheck": "false"}), **common
        )
    return forms.CharField(**common)


class _JsonField(forms.JSONField):
    """Also what Python's reader gives up on is no value, and is shown as it was sent."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError):
            raise ValidationError(_UNREADABLE) from None

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)


class _Above:
    """Greater than a bound, which itself does not fit."""

    def __init__(self, bound: float) -> None:
        self.bound = bound

    def __call__(self, value: float) -> None:
        if value <= self.bound:
            raise ValidationError(f"Must be over {self.bound:g}.")


def _help(option: RecipeField) -> str:
    default = "none" if option.default is None else json.dumps(option.default, ensure_ascii=False)
    unit = f" {option.unit}" if option.unit and option.default is not None else ""
    return f"{option.doc} Default {default}{unit}."


def _shown(option: RecipeField, value: Any) -> Any:
    """JSON fields dump their own initial value."""
    return value if value is not None else ("" if option.type not in {"object", "list"} else None)
