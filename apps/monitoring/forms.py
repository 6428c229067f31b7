"""What the pages of models in service send."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.monitoring.models import TrafficSetting, Watch
from apps.monitoring.selectors.incidents import SORTS, STATES, IncidentFilters
from apps.monitoring.selectors.people import ProjectRule
from apps.monitoring.services.channels import PRESETS, preset_end
from apps.monitoring.services.incidents import LEARNED
from apps.monitoring.services.traffic import FIELDS
from apps.monitoring.services.watches import (
    HOURLY,
    LEAST_MINUTES,
    LONGEST_NAME,
    LONGEST_REASON,
    MOST_MINUTES,
    MOST_SECONDS,
)
from apps.monitoring.stages import STAGE_NAMES
from apps.training.models import Checkpoint, Run
from apps.training.selectors.pages import input_resolve, snapshot_choices
from apps.training.services.kinds import ANSWERING, KINDS, REWARDS
from workers.diagnosis.reading import MOST_BYTES
from workers.rules.rule import OFF
from workers.rules.words import condition

MOST_CHOICES = 200
SERVED = frozenset({Run.Kind.SERVED})
_SETTINGS = ("eval_prompts", "max_new_tokens", "max_seconds")


def model_choices(project: Project, kinds: frozenset[str]) -> list[tuple[str, str]]:
    """Checkpoints that may be in service, approved ones first, then the newest."""
    rows = (
        Checkpoint.objects.filter(project=project, run__kind__in=kinds, files_removed_at=None)
        .exclude(tags=[])
        .exclude(status__in=[Checkpoint.Status.REJECTED, Checkpoint.Status.RETIRED])
        .select_related("run")
        .order_by("-created_at")[:MOST_CHOICES]
    )
    ordered = sorted(rows, key=lambda row: row.status != Checkpoint.Status.APPROVED)
    return [
        (
            f"checkpoint:{row.pk}",
            f"{row.run.name} · step {row.step:,} · {row.get_status_display()} · {row.pk}",
        )
        for row in ordered
    ]


class _Asking(forms.Form):
    """Errors of a service go to the field they name."""

    def refuse(self, error: DomainError) -> None:
        self.add_error(error.field if error.field in self.fields else None, error.message)


class WatchForm(_Asking):
    """Putting a monitored model."""

    name = forms.CharField(
        label="Name",
        max_length=LONGEST_NAME,
        help_text="A descriptive name, such as assistant in production.",
    )
    checkpoint = forms.ChoiceField(
        label="Model in service",
        help_text="A policy, a model at a server or a reward model; approved ones come first.",
    )
    reward = forms.ChoiceField(
        label="Reward model that scores it",
        required=False,
        help_text="Of a policy: whose answers it scores. Leave it empty for a reward model.",
    )
    claims = forms.ChoiceField(
        label="Claims to be",
        required=False,
        help_text="Of a model at a server: the policy of this project that it is said to serve. "
        "Its name and its answers are compared with that one's.",
    )
    prompts = forms.ChoiceField(
        label="Fixed prompts",
        help_text="A frozen dataset; the same rows are asked every time. For a reward model, one "
        "with answers: comparisons or demonstrations.",
    )
    every_minutes = forms.IntegerField(
        label="Every (minutes)",
        initial=HOURLY,
        min_value=LEAST_MINUTES,
        max_value=MOST_MINUTES,
    )
    eval_prompts = forms.IntegerField(
        label="Prompts asked",
        initial=64,
        min_value=8,
        max_value=2000,
        help_text="More prompts detect smaller changes and take longer; at least 8.",
    )
    max_new_tokens = forms.IntegerField(
        label="Longest answer (tokens)",
        required=False,
        min_value=1,
        max_value=100_000,
        help_text="As in its training, if left empty.",
    )
    max_seconds = forms.FloatField(
        label="Time limit of a probe (seconds)",
        initial=300,
        min_value=1,
        max_value=MOST_SECONDS,
        help_text="A probe that takes longer fails, because a partial probe cannot be compared.",
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        project: Project,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        initial: dict[str, Any] = {}
        if checkpoint is not None:
            initial["checkpoint"] = f"checkpoint:{checkpoint.pk}"
            initial["name"] = f"{checkpoint.run.name}, step {checkpoint.step:,}"[:LONGEST_NAME]
        super().__init__(data, initial=initial)
        self.project = project
        policies = model_choices(project, ANSWERING - SERVED)
        served, rewards = model_choices(project, SERVED), model_choices(project, REWARDS)
        groups = [("At a server", served), ("Policies", policies), ("Reward models", rewards)]
        self.fields["checkpoint"].choices = [
            ("", "Choose a model"),
            *((name, rows) for name, rows in groups if rows),
        ]
        self.fields["reward"].choices = [("", "None"), *rewards]
        self.fields["claims"].choices = [("", "None"), *policies]
        self.has_served = bool(served)
        allowed = KINDS["probe"].roles["prompts"].snapshots
        self.snapshots = snapshot_choices(project, allowed)
        self.fields["prompts"].choices = [("", "Choose a dataset"), *self.snapshots]

    @property
    def missing(self) -> str:
        """What the project has to make first; empty when nothing is."""
        if len(self.fields["checkpoint"].choices) == 1:
            return "models"
        return "" if self.snapshots else "datasets"

    def given(self) -> dict[str, Any]:
        """For `watch_create`."""
        data = self.cleaned_data
        found = {
            name: input_resolve(self.project, data[name]) if data[name] else None
            for name in ("checkpoint", "reward", "claims", "prompts")
        }
        config = {name: data[name] for name in _SETTINGS if data[name] is not None}
        return found | {
            "name": data["name"],
            "every_minutes": data["every_minutes"],
            "config": config,
        }


class ChangeForm(_Asking):
    """Name and rhythm of a watch."""

    name = forms.CharField(label="Name", max_length=LONGEST_NAME)
    every_minutes = forms.IntegerField(
        label="Every (minutes)", min_value=LEAST_MINUTES, max_value=MOST_MINUTES
    )
    max_seconds = forms.FloatField(
        label="Time limit of a probe (seconds)", min_value=1, max_value=MOST_SECONDS
    )

    def __init__(self, data: Mapping[str, Any] | None = None, *, watch: Watch) -> None:
        initial = {
            "name": watch.name,
            "every_minutes": watch.every_minutes,
            "max_seconds": watch.config.get("max_seconds", 60),
        }
        super().__init__(data, initial=initial, prefix="change")


class TrafficForm(_Asking):
    """What of a model's traffic is taken."""

    enabled = forms.BooleanField(label="Take conversations", required=False)
    needs_consent = forms.BooleanField(
        label="Only with consent",
        required=False,
        help_text="Conversations without it are counted and not stored.",
    )
    share = forms.FloatField(
        label="Share sampled",
        min_value=0,
        max_value=1,
        help_text="From 0 to 1, by a hash of the conversation's id.",
    )
    random_share = forms.FloatField(
        label="Share kept at random",
        min_value=0,
        max_value=1,
        help_text="Of the sampled ones, whatever they say: so that people see what no rule finds.",
    )
    worst_rating = forms.FloatField(
        label="Rated badly at or under", required=False, help_text="Empty: ratings decide nothing."
    )
    least_logprob = forms.FloatField(
        label="Uncertain under",
        required=False,
        max_value=0,
        help_text="Mean log-probability of an answer's tokens (nats, such as -1.5), sent as "
        "mean_logprob. Empty: it decides nothing.",
    )
    fields_kept = forms.MultipleChoiceField(
        label="Kept beside the messages",
        required=False,
        choices=[(name, name) for name in FIELDS],
        widget=forms.CheckboxSelectMultiple,
    )
    keep_days = forms.IntegerField(label="Deleted after (days)", min_value=1, max_value=3650)

    def __init__(self, data: Mapping[str, Any] | None = None, *, setting: TrafficSetting) -> None:
        initial = {
            name: getattr(setting, name) for name in self.base_fields if name != "fields_kept"
        }
        super().__init__(data, initial=initial | {"fields_kept": setting.fields})

    def given(self) -> dict[str, Any]:
        """For `traffic_set`."""
        data = dict(self.cleaned_data)
        return data | {"fields": data.pop("fields_kept")}


class RebaseForm(_Asking):
    """Why what the model answers now is what is normal."""

    reason = forms.CharField(
        label="Why",
        max_length=LONGEST_REASON,
        help_text="Kept in the audit log, for example: release 2 was rolled out on purpose.",
    )

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, prefix="rebase")


class RetargetForm(_Asking):
    """Which model is in service from now on."""

    checkpoint = forms.ChoiceField(label="Model in service now")
    reason = forms.CharField(label="Why", max_length=LONGEST_REASON)

    def __init__(self, data: Mapping[str, Any] | None = None, *, watch: Watch) -> None:
        super().__init__(data, prefix="retarget")
        kinds = ANSWERING if watch.kind == Watch.Kind.POLICY else REWARDS
        current = f"checkpoint:{watch.checkpoint_id}"
        rows = [row for row in model_choices(watch.project, kinds) if row[0] != current]
        self.fields["checkpoint"].choices = [("", "Choose a model"), *rows]
        self.has_choices = bool(rows)


# What the pages of incidents, mutes and channels send. Malformed filters narrow nothing.


SEVERITIES = ("critical", "warning")
MOST_AT_ONCE = 200  # incidents of one bulk action


def filters_of(sent: QueryDict) -> IncidentFilters:
    def one_of(name: str, allowed: object) -> str:
        value = _text(sent, name, 60)
        return value if value in allowed else ""  # type: ignore[operator] # any container of strings

    return IncidentFilters(
        state=one_of("state", STATES),
        severity=one_of("severity", SEVERITIES),
        link=one_of("link", STAGE_NAMES),
        run=_text(sent, "run", 16),
        rule=_text(sent, "rule", 60),
        muted=one_of("muted", ("yes", "no")),
        search=_text(sent, "q", 200),
        sort=one_of("sort", SORTS),
    )


def learned_of(sent: QueryDict) -> tuple[dict[str, str], dict[str, str]]:
    """(what was typed, what the fields held when the page was opened), of fields that were sent."""
    typed = {name: _lines(sent.get(name, "")) for name in LEARNED if name in sent}
    seen = {name: _lines(sent[f"seen_{name}"]) for name in LEARNED if f"seen_{name}" in sent}
    return typed, seen


def mute_end(sent: QueryDict) -> datetime:
    """A preset, or a day or minute (of the reader's time zone) that was typed, which goes first."""
    typed = sent.get("until_date", "").strip()
    if not typed:
        return preset_end(sent.get("until", ""))
    try:
        at = parse_datetime(typed)
        day = None if at is not None else parse_date(typed)
    except ValueError:
        at = day = None
    if at is None and day is not None:
        at = datetime(day.year, day.month, day.day)
    if at is None:
        raise DomainError(
            "That is no date. Write it as 2026-01-31 or 2026-01-31T18:00.", field="until"
        )
    return at if at.tzinfo is not None else timezone.make_aware(at)


def chosen_of(sent: QueryDict) -> list[str]:
    """The incidents that were ticked."""
    chosen = [one[:16] for one in dict.fromkeys(sent.getlist("incident"))]
    if not chosen:
        raise DomainError("Select at least one incident.", field="incident")
    if len(chosen) > MOST_AT_ONCE:
        raise DomainError(f"At most {MOST_AT_ONCE} at once.", field="incident")
    return chosen


def presets() -> list[tuple[str, str]]:
    return [(name, words) for name, (words, _) in PRESETS.items()]


def _text(sent: QueryDict, name: str, longest: int) -> str:
    return sent.get(name, "").replace("\x00", "").strip()[:longest]


def _lines(text: str) -> str:
    """Browsers send line breaks as two characters; stored text has one."""
    return text.replace("\r\n", "\n").replace("\x00", "")


def text_of(sent: QueryDict) -> str:
    return _lines(sent.get("text", ""))


# The upload of a run trained elsewhere.


IMPORT_KINDS = [
    ("ppo", "PPO, or another actor-critic"),
    ("grpo", "GRPO, or another without a critic"),
    ("dpo", "DPO"),
    ("kto", "KTO"),
    ("sft", "Supervised fine-tuning"),
    ("reward", "Reward model"),
]


class RunImportForm(forms.Form):
    file = forms.FileField(
        label="Metrics file",
        help_text="trainer_state.json or a log history of TRL and transformers, JSON Lines with a "
        f"step in each row, CSV, or a TensorBoard event file; at most {MOST_BYTES // 2**20} MiB.",
    )
    trained_as = forms.ChoiceField(
        label="What was trained",
        choices=IMPORT_KINDS,
        help_text="Decides which detectors apply and how its metrics are named.",
    )
    name = forms.CharField(
        label="Name", max_length=120, required=False, help_text="The file's name, if left empty."
    )

    def clean_file(self) -> object:
        file = self.cleaned_data["file"]
        if file.size > MOST_BYTES:
            raise forms.ValidationError(
                f"The file has {file.size / 1e6:.0f} MB; at most {MOST_BYTES / 1e6:.0f} MB are "
                "read. Export fewer metrics, or every tenth step."
            )
        return file


class AlarmsForm(forms.Form):
    """Limit and on or off of every rule about people and data."""

    def __init__(self, *given: Any, rules: Sequence[ProjectRule], **more: Any) -> None:
        super().__init__(*given, **more)
        self.rules = rules
        for one in rules:
            name, title = one.rule.name, one.rule.title
            self.fields[f"limit_{name}"] = forms.FloatField(
                label=f"Limit ({one.rule.unit})",
                initial=f"{one.rule.limit:g}",
                min_value=0,
                max_value=1e9,
                help_text=f"Raised {condition(one.rule)}.",
                widget=forms.NumberInput(
                    attrs={"step": "any", "aria-label": f"Limit of “{title}” ({one.rule.unit})"}
                ),
            )
            self.fields[f"on_{name}"] = forms.BooleanField(
                label="Open incidents", initial=one.is_on, required=False
            )

    def changes(self) -> dict[str, dict[str, Any] | None]:
        """For `alarms_change`: what differs from a rule's own; None where nothing does."""
        found: dict[str, dict[str, Any] | None] = {}
        for one in self.rules:
            name, choice = one.rule.name, dict[str, Any]()
            if self.cleaned_data[f"limit_{name}"] != one.own_limit:
                choice["threshold"] = self.cleaned_data[f"limit_{name}"]
            if not self.cleaned_data[f"on_{name}"]:
                choice["action"] = OFF
            if one.patience:
                choice["patience"] = one.patience
            found[name] = choice or None
        return found
