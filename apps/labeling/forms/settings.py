"""What admins send: the labeling settings, section by section, and one annotator's limits."""

import re
from collections.abc import Collection
from typing import Any

from django import forms
from django.utils.text import slugify
from django.utils.translation import gettext_lazy as _

from apps.labeling.forms.rule import PresetForm, UnitField
from apps.labeling.models import Annotator, LabelingSettings, Task
from apps.labeling.services.eligibility import MOST_A_DAY
from apps.labeling.services.projects import SHARES

_LABELS = {
    "task_kind": "Several answers to a prompt",
    "grade_low": "Grades from",
    "grade_high": "Grades to",
    "grade_low_label": "The lowest grade means",
    "grade_high_label": "The highest grade means",
    "overlap": "Votes per comparison",
    "max_overlap": "Maximum votes per comparison",
    "least_votes": "Minimum votes",
    "least_agreeing": "Minimum agreeing votes",
    "least_share": "Minimum share (%)",
    "least_posterior": "Minimum probability (%)",
    "stop_early": "Stop early when decided",
    "audit_days": "Audited within (days)",
    "fast_ms": "Flag answers faster than (seconds)",
    "vote_price": "Price of a vote",
    "label_budget": "Budget for votes",
    "votes_quota": "Most answers in 30 days",
    "currency": "Currency",
    "random_share": "Share drawn at random (%)",
    "gold_share": "Share of gold pairs (%)",
    "repeat_share": "Share of hidden repeats (%)",
    "audit_share": "Share of audit re-votes (%)",
    "audit_rate": "Share of votes audited (%)",
    "lease_seconds": "Reserve a pair for (minutes)",
    "run_lease_seconds": "Reserve a pair of agents' runs for (minutes)",
    "skips_to_review": "Send to review after this many skips",
    "judge_first": "Reviewers judge a dispute before they see its votes",
    "sensitive_cap": "Maximum pairs with a warning per person and day",
    "show_tie": "Offer “Tie”",
    "show_both_bad": "Offer “Both are bad”",
    "show_strength": "Ask how much better",
    "show_flags": "Offer flags",
    "show_improve": "Offer to improve the better answer",
    "ask_outcome": "Ask for the outcome of each run",
    "ask_first_error": "Ask for the first wrong step",
    "ask_steps": "Ask which of two steps is better",
    "show_costs": "Show steps, tokens and cost",
    "require_criteria": "Every criterion must be judged",
    "show_rationale": "Ask for a reason",
    "require_rationale": "A reason must be given",
    "acknowledge_guidelines": "A major version must be acknowledged",
    "data_statement": "What answers are used for",
    "remarks_licence": "Licence of what annotators write",
    "show_rulings": "Tell annotators of rulings",
    "show_gold": "Show annotators their gold pairs",
    "daily_cap": "Maximum votes per person and day",
    "completion_votes": "Answers for the completion code",
    "due_on": "Due on",
    "qualification_pairs": "Pairs of the qualification",
    "qualification_pass": "Share right to pass (%)",
    "qualification_attempts": "Attempts",
    "qualification_cooldown_minutes": "Pause between attempts (minutes)",
}
_HELP = {
    "task_kind": "What a file with more than two answers to a prompt becomes, unless its import "
    "says otherwise. Files of pairs stay pairs.",
    "overlap": "How many annotators judge each pair.",
    "max_overlap": "A pair that is not decided gets more annotators, up to this many.",
    "least_votes": "A decision needs at least this many votes of any kind.",
    "least_agreeing": "… this many of them for the winner …",
    "least_share": "… and this share of all votes, ties and both-bad included.",
    "least_posterior": "Where a model of the voters decides: how probable the winner must be.",
    "stop_early": "Also before all votes of the normal overlap are in. Agreement is then computed "
    "on pairs that stopped when they agreed, and looks better than it is.",
    "audit_days": "After that an audit that was not done counts as overdue.",
    "fast_ms": "Answers faster than this are counted on the annotators’ pages; 0: none.",
    "vote_price": "For the cost per accepted comparison; 0: not stated.",
    "label_budget": "In the same currency; an incident opens at 90 % of it. 0: not stated.",
    "votes_quota": "After so many nobody is given another pair until the oldest are 30 days old; "
    "pairs in people's hands can be answered. 0: no limit.",
    "currency": "Three letters, such as EUR.",
    "random_share": "Of the queue; the rest goes by priority. Never zero: agreement is "
    "computed on what was drawn at random.",
    "gold_share": "Pairs with a known answer, to see who is right how often.",
    "repeat_share": "A pair a person has judged comes again, mirrored, to see whether they agree "
    "with themselves.",
    "audit_share": "Of what reviewers and admins get: audited votes judged again, without "
    "seeing the first.",
    "audit_rate": "A fixed random sample of the votes, so nobody chooses which.",
    "lease_seconds": "After that an unanswered pair goes to others.",
    "skips_to_review": "So many different people passing on a pair take it out of the queue, "
    "for an admin to look at.",
    "judge_first": "Votes, labels and earlier rulings are shown after the ruling. A reviewer can "
    "have them shown first, which is recorded.",
    "sensitive_cap": "0: no cap. Counted when a pair is handed out, answered or not.",
    "show_strength": "Slightly or much; ⇧1 and ⇧2 say much.",
    "show_flags": "Unsafe, personal data, wrong language and so on.",
    "show_improve": "An editor with the better answer in it; what is written becomes a response "
    "by a person, usable as a demonstration.",
    "run_lease_seconds": "Reading a run takes minutes.",
    "ask_outcome": "Did it succeed, did it change anything it should not have, did it repeat "
    "itself: yes, no or unsure, of each run.",
    "ask_first_error": "Of each run; process reward models learn from it.",
    "ask_steps": "Of steps that differ and stand beside each other: A, same or B.",
    "show_costs": "People who see them judge them too; hide them where only the outcome counts.",
    "require_criteria": "Then a choice is marked first and Enter submits.",
    "show_rationale": "The reasons below as chips, and a free text.",
    "require_rationale": "A chip or a text with every answer; Enter submits.",
    "acknowledge_guidelines": "Nobody gets a pair before confirming that they have read it.",
    "data_statement": "Who labels agrees to this before the first pair, and again when you change "
    "it; who agreed when is recorded and stands in the card of datasets. Empty: nobody is asked.",
    "remarks_licence": "Such as CC-BY-4.0. Reasons, criteria and improved answers are exported "
    "under it; without one they stay here.",
    "show_rulings": "Whoever answered a pair on which a reviewer rules is told of the ruling.",
    "show_gold": "Under My progress, a day after the answer, with the known answer and its "
    "explanation. This gives known answers away: people may pass them on, and gold pairs then "
    "measure less. What was shown can no longer be changed.",
    "daily_cap": "0: no cap. A person can have a cap of their own.",
    "completion_votes": "Who has given so many, or all that were left for them, gets a code of "
    "their own to hand in, as crowd vendors ask for; check codes under Hours. 0: no code.",
    "due_on": "Shown to everybody who labels here. An import can have a day of its own.",
    "qualification_pairs": "Practice pairs to judge before real work; 0: no qualification.",
}


TASK_KINDS = {
    Task.Kind.PAIR.value: "Compare two answers",
    Task.Kind.RANK.value: "Rank several answers",
    Task.Kind.GRADE.value: "Grade each answer",
}

# Units of the page; what is stored are fractions, seconds and milliseconds.
_UNITS = {
    **{
        name: {"per": 100, "low": low, "high": high}
        for name, (low, high) in SHARES.items()
        if name not in ("vote_price", "label_budget")
    },
    "lease_seconds": {"per": 1 / 60, "low": 30, "high": 86_400, "whole": True},
    "run_lease_seconds": {"per": 1 / 60, "low": 30, "high": 86_400, "whole": True},
    "fast_ms": {"per": 1 / 1000, "low": 0, "high": 60_000, "whole": True},
}


class LinesField(forms.CharField):
    """A list of texts, one to a line; empty lines are nothing."""

    widget = forms.Textarea

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        return "\n".join(self.line(entry) for entry in value)

    def to_python(self, value: Any) -> list[Any]:
        lines = (line.strip() for line in super().to_python(value).splitlines())
        return [self.entry(line) for line in lines if line]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return data is not None and self.to_python(data) != list(initial)

    def line(self, entry: Any) -> str:
        return entry

    def entry(self, line: str) -> Any:
        return line


class CriteriaField(LinesField):
    """Criteria, `key: Label | definition` to a line; a label alone gets a key made from it."""

    def line(self, entry: dict[str, str]) -> str:
        more = f" | {entry['definition']}" if entry.get("definition") else ""
        return f"{entry['key']}: {entry['label']}{more}"

    def entry(self, line: str) -> dict[str, str]:
        named, _, definition = line.partition("|")
        more = {"definition": definition.strip()} if definition.strip() else {}
        key, colon, label = named.strip().partition(":")
        if colon:
            return {"key": key.strip(), "label": label.strip()} | more
        made = re.sub(r"[^a-z0-9]+", "_", slugify(key)).strip("_")[:32]
        return {"key": made, "label": key} | more


class LabelingSettingsForm(PresetForm):
    """The fields are the model's; that they fit together is for
    `services.labeling_settings_update` to say, in words and at the field."""

    criteria = CriteriaField(
        label="Criteria",
        help_text="One to a line: key: Label | definition. Each is a row A / tie / B under the "
        "answers; its definition, with examples of either side, is shown beside it. The key is "
        "what exports call it; keep it when you change the label.",
    )
    reasons = LinesField(label="Reasons", help_text="One to a line; each becomes a chip.")
    constraint_phrases = LinesField(
        label="Blocked phrases",
        help_text="One per line. A pair with such a phrase in an answer is held for review when it "
        "is imported, however it is spelled; earlier imports stay.",
    )

    sensitive_topics = LinesField(
        label="Sensitive topics",
        help_text="One per line. Their pairs are covered by a warning until the annotator opens "
        "them, and people can choose not to get them. So are pairs that were imported with a "
        "warning, and those that an annotator flagged as unsafe.",
    )

    def __init__(
        self, *args: Any, current: LabelingSettings, n_open: int = 0, **kwargs: Any
    ) -> None:
        """n_open: comparisons that another number of votes would hold for."""
        written = list(self.base_fields)
        initial = forms.model_to_dict(current, list(_LABELS)) | {
            name: getattr(current, name) for name in written
        }
        initial["due_on"] = current.due_on or ""
        super().__init__(*args, initial=initial, **kwargs)
        self.fields |= forms.fields_for_model(
            LabelingSettings, fields=list(_LABELS), labels=_LABELS, help_texts=_HELP
        )
        for name, unit in _UNITS.items():
            self.fields[name] = UnitField(
                label=_LABELS[name], help_text=_HELP.get(name, ""), **unit
            )
        self.fields["task_kind"].choices = list(TASK_KINDS.items())
        self.fields["due_on"].widget = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        self.preset_add(current.project_id, vars(current))
        for name in written:
            self.fields[name].widget.attrs["rows"] = 4
            self.fields[name].hide_optional = True
        if n_open:
            pairs = "open comparison" if n_open == 1 else "open comparisons"
            self.fields["apply_overlap"] = forms.BooleanField(
                required=False,
                initial=True,
                label=f"Apply to the {n_open:,} {pairs}",
                help_text="Where votes per comparison change: places for votes are added or "
                "withdrawn; votes that are in stay. Otherwise for what is imported from now on.",
            )

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        self.preset_values()  # takes back errors of numbers that a preset replaces
        return data

    def changes(self) -> dict[str, Any]:
        chosen = self.preset_values(also=["decide_by"])
        changed = {name: self.cleaned_data.get(name) for name in self.changed_data} | chosen
        changed.pop("preset", None)
        if "apply_overlap" in self.fields:
            changed["apply_overlap"] = self.cleaned_data["apply_overlap"]
        return changed


# What an admin sends about an annotator. Rules live in services; refusals land on their field.

SORTS = ("name", "today", "votes", "seen")
STATES = {
    "": "all",
    "paused": "paused",
    "guideline": "guidelines not read",
    "unqualified": "not qualified",
    "limited": "with limits",
}


class AnnotatorsFilter(forms.Form):
    """The filter of the list; lives in the query string."""

    q = forms.CharField(required=False, max_length=200, label="Search")
    state = forms.ChoiceField(required=False, choices=list(STATES.items()), label="Show")
    sort = forms.ChoiceField(
        required=False,
        label="Sort by",
        choices=list(zip(SORTS, ("name", "answers today", "answers", "last seen"), strict=True)),
    )


class LimitsForm(forms.Form):
    """A person's share of the work; the choices are the project's, and what they have already."""

    daily_cap = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_A_DAY,
        label="Answers a day, at most",
        help_text="UTC days; 0 for no limit, empty for the project's.",
    )
    topics = forms.MultipleChoiceField(
        required=False,
        label="Topics",
        help_text="Only pairs of these; none chosen means all.",
        widget=forms.CheckboxSelectMultiple(attrs={"class": "many"}),
    )
    languages = forms.MultipleChoiceField(
        required=False,
        label="Languages",
        help_text="Only pairs in these; none chosen means all.",
        widget=forms.CheckboxSelectMultiple(attrs={"class": "many"}),
    )

    def __init__(
        self,
        data: Any = None,
        *,
        current: Annotator,
        topics: Collection[str],
        languages: Collection[str],
    ) -> None:
        initial = {name: getattr(current, name) for name in ("daily_cap", "topics", "languages")}
        super().__init__(data, initial=initial)
        for name, known in (("topics", topics), ("languages", languages)):
            values = sorted({*known, *getattr(current, name)})
            self.fields[name].choices = [(value, value) for value in values]
            if not values:
                del self.fields[name]


class OptOutForm(forms.Form):
    """What somebody chooses not to get."""

    avoids_sensitive = forms.BooleanField(
        required=False,
        label=_("No pairs with a content warning"),
        help_text=_(
            "Imported with one, of a sensitive topic, or flagged as unsafe by an annotator."
        ),
    )
    avoids_topics = forms.MultipleChoiceField(
        required=False,
        label=_("No pairs of these topics"),
        widget=forms.CheckboxSelectMultiple(attrs={"class": "many"}),
    )

    def __init__(self, data: Any = None, *, current: Annotator, topics: Collection[str]) -> None:
        names = ("avoids_sensitive", "avoids_topics")
        super().__init__(data, initial={name: getattr(current, name) for name in names})
        values = sorted({*topics, *current.avoids_topics})
        self.fields["avoids_topics"].choices = [(value, value) for value in values]
        if not values:
            self.fields["avoids_topics"].widget = forms.MultipleHiddenInput()


class PauseForm(forms.Form):
    reason = forms.CharField(
        max_length=300,
        label="Why",
        help_text="The person reads this instead of a pair.",
        widget=forms.TextInput({"autocomplete": "off"}),
    )
