"""What is fixed when a dialogue campaign is opened."""

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.evaluation.models.dialogues import MOST_SYSTEMS
from apps.evaluation.services.dialogues import CampaignAsked
from apps.training.selectors.pages import checkpoint_choices
from apps.training.services.kinds import ANSWERING

_DEFAULTS = CampaignAsked(name="", models=())
_NUMBERS = (
    "temperature",
    "top_p",
    "max_new_tokens",
    "answer_seconds",
    "least_turns",
    "most_turns",
    "per_person",
    "in_all",
    "others",
)


class DialogueForm(forms.Form):
    """A campaign: who answers, how, and how much people talk."""

    name = forms.CharField(max_length=120, help_text="Annotators read it under My work.")
    models = forms.MultipleChoiceField(
        label="Systems",
        help_text=f"2 to {MOST_SYSTEMS}, of runs, registered, or served by an OpenAI-compatible "
        "server. A conversation is with two of them; every two meet about as often.",
        widget=forms.SelectMultiple({"size": 6}),
    )
    system_prompt = forms.CharField(
        label="System prompt", required=False, widget=forms.Textarea({"rows": 2})
    )
    topics = forms.CharField(
        label="Suggested topics",
        required=False,
        help_text="One a line. Whoever begins may choose one or none.",
        widget=forms.Textarea({"rows": 3}),
    )
    temperature = forms.FloatField(widget=forms.NumberInput({"step": "any"}))
    top_p = forms.FloatField(widget=forms.NumberInput({"step": "any"}))
    max_new_tokens = forms.IntegerField(label="Longest answer", help_text="Tokens.")
    answer_seconds = forms.IntegerField(
        label="Time for an answer", help_text="Seconds. What takes longer did not come."
    )
    least_turns = forms.IntegerField(
        label="Fewest turns", help_text="Shorter conversations are counted apart."
    )
    most_turns = forms.IntegerField(label="Most turns", help_text="It ends by itself then.")
    per_person = forms.IntegerField(label="Conversations of one person")
    in_all = forms.IntegerField(label="Conversations in all")
    in_datasets = forms.BooleanField(
        label="Judged turns may enter datasets",
        required=False,
        help_text="Otherwise they measure the systems and nothing else.",
    )
    others = forms.IntegerField(
        label="Further people on each pair",
        help_text="0: nobody but the writer judges it. Else others meet the conversation up to "
        "there in the label queue.",
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        project: Project,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        names = (*_NUMBERS, "in_datasets")
        defaults = {name: getattr(_DEFAULTS, name) for name in names}
        super().__init__(data, initial=defaults | dict(initial or {}))
        choices = [
            (key.partition(":")[2], words) for key, words in checkpoint_choices(project, ANSWERING)
        ]
        self.has_models = len(choices) > 1
        self.fields["models"].choices = choices  # type: ignore[attr-defined] # a ChoiceField

    @property
    def sampling_fields(self) -> list[Any]:
        return [self[name] for name in _NUMBERS[:4]]

    @property
    def length_fields(self) -> list[Any]:
        return [self[name] for name in _NUMBERS[4:8]]

    def asked(self) -> CampaignAsked:
        given = self.cleaned_data
        topics = [one for one in given["topics"].splitlines() if one.strip()]
        return CampaignAsked(**given | {"topics": topics})

    def take(self, error: DomainError) -> None:
        """Say it at the field it is about."""
        name = error.field or ""
        self.add_error(name if name in self.fields else None, error.message)
