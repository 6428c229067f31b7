"""The form that launches a run: its inputs, and every field its recipe knows, with its limits."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from django import forms
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput
from django.http import QueryDict

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.common.json_limits import json_check
from apps.common.playbook import advice
from apps.labeling.selectors import settings_get
from apps.training.forms.needs import NeedsForm
from apps.training.forms.sweep import SweepForm
from apps.training.models import Run, RunInput
from apps.training.selectors import pages
from apps.training.selectors.queueing import reward_functions
from apps.training.services.groups import MOST_SEEDS
from apps.training.services.held_out import held_out_judges
from apps.training.services.kinds import KINDS, OPTIMISED, REWARDED, Role
from workers.config import (
    SettingField,
    SettingsError,
    as_trained,
    recipe_config,
    recipe_fields,
    recipe_presets,
    settings_for,
)
from workers.config.inference import ONLY_IN_TESTS, drill_folder
from workers.config.parsing import Section
from workers.config.reward_grammar import grammar
from workers.rules.choices import guard_errors, guardrails_of
from workers.rules.rule import Rule
from workers.rules.words import test_words

SECTION_HELP = {
    Section.MODEL: "What is trained (all weights or adapters) and in which precision.",
    Section.MEMORY: "Number formats and kernels, where memory or time is short.",
    Section.DATA: "Which rows are used, and how rows that are too long are handled.",
    Section.ROLLOUTS: "How the answers for each step are sampled.",
    Section.PEOPLE: "Whether people compare the pairs, and what that asks of them.",
    Section.ACTORS: "Answers and scores by Ray actors (docs/ray.md); all 0 needs no Ray.",
    Section.REWARD: "Where scores come from and how they are processed.",
    Section.REFERENCE: "KL penalty against the reference model.",
    Section.UPDATE: "Steps, learning rate and limits of an update.",
    Section.GUARDRAILS: "Automatic stops, and checks before the first step.",
    Section.BOOKKEEPING: "How often it evaluates, saves and reports, and how much is kept.",
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
    "critic": "Critic",
    "pairs": "Pairs without labels",
    "hard": "Hard pairs",
    "other": "Out-of-domain dataset",
    "rollouts": "Answers of a run",
    "canaries": "Canary pairs",
    "reward_data": "The reward model's pairs",
    "demonstrations": "Demonstrations",
    "general": "General demonstrations",
    "model": "Model",
    "licence": "What the copied model began as",
}
ROLE_HELP = {
    "judge": "A reward model from other annotators; it scores, and never trains.",
    "critic": "For the opponent revision: criticises and rewrites in the policy's place.",
    "reference": "What KL is measured against; the starting policy if none is chosen.",
    "base": "Continue from this model.",
    "hard": "Pairs that an earlier reward model got wrong; learned from beside the dataset.",
    "other": "Pairs of another kind, to test how the model generalises.",
    "canaries": "Decided pairs that it never learns from; how it ranks them tells swapped labels.",
    "reward_data": "What the reward model learned from, for the same check.",
    "demonstrations": "Texts that answers may copy; the share copied is tracked.",
    "general": "What it can do already and should not unlearn; asked about, never learned from.",
    "policy": "Whose answers are generated; in PPO and GRPO, where training starts.",
}


# Settings in the grammar of a reward, with the kinds of source that they do not take.
REWARDS = {"reward": "", "verifier": "", "filter": "model"}
_UNREADABLE = "Too deeply nested, or a number of too many digits."


class RunForm(SweepForm, NeedsForm):
    """`initial` comes from a preset, or from the run that is cloned, with `changes` to its settings
    and `needs` in the place of its own."""

    over_quota = False  # the project's, of disk space

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
        start = recipe_config(
            kind, as_trained(kind, source.config) if source else {"preset": preset}
        )
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
                label="Reason for using an unapproved reward model",
                help_text="Leave it empty with an approved one. Your reason is kept with the run "
                "and in the audit log.",
            )
        if "guards" in self.options:
            self.fields |= guard_fields(kind, start.pop("guards", None) or {})
        for option in self.options.values():
            if option.name == "guards":  # the table of rules stands for it
                continue
            field = config_field(option)
            default = None if option.option.chosen else option.default
            field.initial = _shown(option, start.pop(option.name, default))
            field.hide_optional = not option.optional  # blank means the default
            self.fields[f"c_{option.name}"] = field
        if "votes_each" in self.options:
            votes = settings_get(project=project).overlap
            self.fields[
                "c_votes_each"
            ].help_text += f" Here that is {votes}: 100 pairs ask people for {100 * votes} votes."
        self.add_sweep()
        if start:  # what this version's recipe does not know is not dropped silently
            self.fields["pasted"].initial = json.dumps(start, indent=2, ensure_ascii=False)
        self._group()

    def _add_inputs(self, source: Run | None) -> None:
        """A needed input with one thing to choose is chosen; of several, nobody but the person
        knows which. What is missing the service names, with what would do instead."""
        needs = {need.roles[0]: need for need in KINDS[self.kind].needs if len(need.roles) == 1}
        taken = _inputs_of(source) if source else {}
        judges = held_out_judges(self.project.pk) if self.kind in REWARDED else set()
        found: dict[tuple[Role, bool], Any] = {}  # several roles take the same things
        for role, rule in KINDS[self.kind].roles.items():
            if rule.by_service:
                continue
            key = (rule, role == "reward")
            if key not in found:
                found[key] = _role_choices(self.project, rule, judges if key[1] else set())
            groups = found[key]
            field = forms.ChoiceField(
                label=ROLE_LABELS.get(role, role),
                required=False,
                choices=[("", "Choose one" if role in needs else "—"), *groups],
                help_text=ROLE_HELP.get(role, ""),
            )
            offered = [value for _, group in groups for value, _ in group]
            sure = role in needs and not needs[role].instead  # nothing else could be meant
            only = offered[0] if sure and len(offered) == 1 else ""
            field.initial = taken.get(role, "") if source else only
            field.hide_optional = role in needs
            if role in needs and needs[role].unless is None:
                field.widget.attrs["required"] = True
            self.fields[f"input_{role}"] = field

    def _group(self) -> None:
        self.input_fields = [self[name] for name in self.fields if name.startswith("input_")]
        shown = [one for one in self.options.values() if f"c_{one.name}" in self.fields]
        self.main_fields = [self[f"c_{one.name}"] for one in shown if one.option.main]
        rest = [one for one in shown if not one.option.main]
        self.more_count = len(rest)
        found = [
            (title, [self[f"c_{one.name}"] for one in rest if one.option.section is title])
            for title in Section
        ]
        self.more_sections = [
            (title.value, SECTION_HELP.get(title, ""), fields) for title, fields in found if fields
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
    def guard_rows(self) -> list["GuardRow"]:
        """The rules of this kind; none for a kind that is not watched."""
        return guard_rows(self, self.kind) if "guards" in self.options else []

    @property
    def guards_changed(self) -> int:
        return sum(row.changed for row in self.guard_rows)

    @property
    def guards_are_open(self) -> bool:
        return any(row.errors for row in self.guard_rows)

    @cached_property
    def reward_grammar(self) -> dict[str, Any]:
        """What the form of a reward is made from; empty for a kind that has none."""
        if not any(f"c_{name}" in self.fields for name in REWARDS):
            return {}
        return grammar(sorted(reward_functions()))

    @property
    def reward_errors(self) -> list[str]:
        """What is wrong with the reward and the inputs that it reads; the rest does not matter."""
        names = ("c_reward", "input_reward", "input_prompts", "pasted")
        return [words for name in names for words in self.errors.get(name, ())]

    @property
    def more_is_open(self) -> bool:
        """Whether a hidden field has an error that must be seen."""
        hidden = [field for _, _, fields in self.more_sections for field in fields]
        return any(field.errors for field in [*hidden, self["pasted"]])

    def clean_pasted(self) -> dict[str, Any]:
        """An object; what it holds is checked with the fields."""
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
            json_check(value, field="pasted")  # before names are compared with the known ones
        except DomainError as error:
            raise ValidationError(error.message) from None
        return value

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        config = {}
        if "guards" in self.options:
            config["guards"] = guards_chosen(self.kind, cleaned)
        for name, option in self.options.items():
            if name in config:
                continue
            value = cleaned.get(f"c_{name}")
            if value in (None, "") and not option.option.chosen:
                value = option.default
            if value is not None:
                config[name] = value
        pasted = cleaned.get("pasted") or {}
        config |= pasted
        cleaned["sweep"] = self.swept(cleaned)
        config |= {name: values[0] for name, values in cleaned["sweep"].items()}
        cleaned["config"] = config
        try:
            settings_for(self.kind, config, new=True)
        except SettingsError as error:
            for text in error.errors:
                self._refuse_setting(text, pasted)
        self.clean_needs(cleaned)
        cleaned["seeds"] = cleaned.get("seeds") or 1
        self.count_runs(cleaned)
        cleaned["inputs"] = {
            name.removeprefix("input_"): pages.input_resolve(self.project, value)
            for name, value in cleaned.items()
            if name.startswith("input_") and value
        }
        return cleaned

    def _refuse_setting(self, text: str, pasted: Mapping[str, Any]) -> None:
        """Put "path: reason" beside the field it is about, unless that has an error of its own."""
        path, _, reason = text.partition(": ")
        name = re.split(r"[.\[]", path)[0]
        field = "pasted" if name in pasted else f"c_{name}"
        if name == "guards" and field != "pasted":
            field, reason = guard_complaint(text)
        if field == "pasted" or field not in self.fields or path != name:
            reason = text  # which name it is, the field does not say
        if field not in self.fields:
            field = "pasted"
        inside = path != name and field == f"c_{name}"  # of an object: each names its own field
        if field not in self.errors or field == "pasted" or inside:
            self.add_error(field, reason)

    def refuse(self, error: DomainError) -> None:
        """Put a service's refusal beside the field it is about."""
        self.over_quota = error.code == "space_quota_used"
        where = error.field or ""
        name = f"input_{where.removeprefix('inputs.')}" if where.startswith("inputs.") else where
        if where.startswith("config."):
            name = f"c_{where.removeprefix('config.')}"
            name = name if name in self.fields else "pasted"
        name = self.swept_field(where) or name
        name = {"config": "pasted", "idempotency_key": "key"}.get(name, name)
        self.add_error(name if name in self.fields else None, error.message)


def _idle(name: str) -> Any:
    return ONLY_IN_TESTS.get(name, object())


def _offered(kind: str) -> list[SettingField]:
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


def config_field(one: SettingField) -> forms.Field:
    """A form field of the setting's type; limits are checked by `settings_for`."""
    common = {"label": one.name, "required": False, "help_text": _help(one)}
    if one.type == "bool":
        return forms.BooleanField(**common)
    if one.option.choices:
        return forms.ChoiceField(choices=[(c, c) for c in one.option.choices], **common)
    if one.type in {"int", "float"}:
        bounds = {"min": one.option.minimum, "max": one.option.maximum}
        step = {"step": "any"} if one.type == "float" else {}
        attrs = step | {name: bound for name, bound in bounds.items() if bound is not None}
        cls = forms.IntegerField if one.type == "int" else forms.FloatField
        return cls(widget=forms.NumberInput(attrs), **common)
    if one.name in REWARDS:
        return _RewardField(one, **common)
    if one.type in {"object", "list"}:
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


class _RewardField(_JsonField):
    """Text that is large enough and formatted; static/js/reward.js makes a form of it."""

    def __init__(self, one: SettingField, **kwargs: Any) -> None:
        attrs = {"rows": 14, "class": "code", "spellcheck": "false", "data-reward": one.name}
        if REWARDS[one.name]:
            attrs["data-without"] = REWARDS[one.name]
        if not one.default:
            attrs["data-none"] = ""
        super().__init__(widget=forms.Textarea(attrs), **kwargs)

    def prepare_value(self, value: Any) -> Any:
        if not value or isinstance(value, InvalidJSONInput):
            return value or ""
        return json.dumps(value, ensure_ascii=False, indent=2)


def _help(one: SettingField) -> str:
    if one.option.chosen:
        return f"{one.option.doc} Presets have one; there is no default."
    if one.default == "":
        return one.option.doc
    default = "none" if one.default is None else json.dumps(one.default, ensure_ascii=False)
    unit = f" {one.option.unit}" if one.option.unit and one.default is not None else ""
    return f"{one.option.doc} Default {default}{unit}."


def _shown(option: SettingField, value: Any) -> Any:
    """JSON fields dump their own initial value."""
    return value if value is not None else ("" if option.type not in {"object", "list"} else None)


# The table of guardrails in the launch form: a limit, a number of checks and an action per rule.


PREFIX = "g_"
ACTION_WORDS = {
    "off": "off",
    "warn": "warn",
    "adjust": "adjust and go on",
    "stop": "stop and keep",
}
_WHERE = re.compile(r"guards\.(\w+)(?:\.(\w+))?: (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GuardRow:
    """One rule with its bound fields; `changed` where this form departs from the default."""

    rule: Rule
    test: str
    advice: str
    threshold: forms.BoundField | None
    patience: forms.BoundField | None
    action: forms.BoundField
    changed: bool

    @property
    def errors(self) -> list[str]:
        bound = (self.threshold, self.patience, self.action)
        return [error for field in bound if field is not None for error in field.errors]


def guard_fields(kind: str, chosen: Mapping[str, Any]) -> dict[str, forms.Field]:
    """The fields of every rule of `kind`, filled with what `chosen` (a setting `guards`) says."""
    sound = chosen if isinstance(chosen, Mapping) and not guard_errors(kind, chosen) else {}
    fields: dict[str, forms.Field] = {}
    for rule in guardrails_of(kind, sound):
        fields[f"{PREFIX}{rule.name}_action"] = forms.ChoiceField(
            label=f"What happens: {rule.title}",
            choices=[(action, ACTION_WORDS.get(action, action)) for action in rule.actions],
            initial=rule.action,
            required=False,
        )
        if not rule.has_limit:  # nothing of it can be chosen but the action
            continue
        fields[f"{PREFIX}{rule.name}_threshold"] = forms.FloatField(
            label=f"Limit: {rule.title}",
            initial=rule.limit,
            required=False,
            widget=forms.NumberInput({"step": "any"}),
        )
        fields[f"{PREFIX}{rule.name}_patience"] = forms.IntegerField(
            label=f"Looks: {rule.title}",
            initial=rule.patience[0],
            required=False,
            min_value=1,
            max_value=100,
        )
    return fields


def guard_rows(form: forms.Form, kind: str) -> list[GuardRow]:
    rows = []
    for default in guardrails_of(kind):
        name = f"{PREFIX}{default.name}"
        action = form[f"{name}_action"]
        has_limit = f"{name}_threshold" in form.fields
        threshold = form[f"{name}_threshold"] if has_limit else None
        patience = form[f"{name}_patience"] if has_limit else None
        changed = str(action.value() or default.action) != default.action or any(
            field is not None and not _same(field.value(), value)
            for field, value in ((threshold, default.limit), (patience, default.patience[0]))
        )
        rows.append(
            GuardRow(
                default,
                test_words(default),
                advice(default.name),
                threshold,
                patience,
                action,
                changed,
            )
        )
    return rows


def _same(shown: Any, value: float) -> bool:
    """Whether what stands in a field is `value`; an empty field means the default."""
    try:
        return shown in (None, "") or float(shown) == value
    except ValueError:
        return False


def guards_chosen(kind: str, cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """The setting `guards`: of each rule what differs from its default. A field left empty, or one
    that has an error, is as it is."""
    chosen: dict[str, Any] = {}
    for rule in guardrails_of(kind):
        name = f"{PREFIX}{rule.name}"
        given = {
            "threshold": cleaned.get(f"{name}_threshold"),
            "patience": cleaned.get(f"{name}_patience"),
            "action": cleaned.get(f"{name}_action") or None,
        }
        as_is = {
            "threshold": rule.limit,
            "patience": rule.patience[0],
            "action": rule.action,
        }
        own = {key: value for key, value in given.items() if value not in (None, as_is[key])}
        if own:
            chosen[rule.name] = own["action"] if set(own) == {"action"} else own
    return chosen


def guard_complaint(error: str) -> tuple[str, str]:
    """(form field, what is wrong with it) of an error of the setting `guards`."""
    parts = _WHERE.fullmatch(error)
    rule, part, words = parts.groups() if parts else ("", None, error)
    return f"{PREFIX}{rule}_{part or 'action'}", words
