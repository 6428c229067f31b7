"""What the pages of writing work send."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.labeling.formats.prompts import lines_read, prompts_read
from apps.labeling.forms import Checked, plain_ends, sensible_time
from apps.labeling.models import WritingBatch, WrittenVersion
from apps.labeling.selectors import writing as reads
from apps.labeling.services.writing import LONGEST_REASON, MOST_PLACES, USUAL_MOST
from apps.labeling.texts import MOST_CHARACTERS

LINES, FILE, OWN = "lines", "file", "project"
_LARGEST = 2**31 - 1


class BatchForm(forms.Form):
    """New writing work. Which fields are needed follows from what is to be written, and from where
    its prompts come; the service says what is wrong with them."""

    name = forms.CharField(max_length=120, label="Name")
    kind = forms.ChoiceField(
        label="What is to be written",
        choices=[
            (WritingBatch.Kind.DEMONSTRATIONS, "Answers to prompts (demonstrations)"),
            (WritingBatch.Kind.PROMPTS, "Prompts"),
        ],
        widget=forms.RadioSelect,
        initial=WritingBatch.Kind.DEMONSTRATIONS,
    )
    instruction = forms.CharField(
        required=False,
        max_length=MOST_CHARACTERS,
        label="Instruction",
        help_text="Markdown, shown above the text field. For prompts: what is wanted.",
        widget=forms.Textarea({"rows": 4}),
    )
    source = forms.ChoiceField(
        required=False,
        label="Prompts from",
        choices=[(LINES, "The lines below"), (FILE, "A file"), (OWN, "This project")],
        widget=forms.RadioSelect,
        initial=LINES,
    )
    lines = forms.CharField(
        required=False, label="Prompts, one a line", widget=forms.Textarea({"rows": 5})
    )
    file = forms.FileField(
        required=False,
        label="File",
        help_text="Text with a prompt a line; CSV or JSON Lines with `prompt`, and perhaps "
        "`topic`, `language`, `licence`, `group` and `id`. UTF-8, up to 5 MB.",
    )
    own_topic = forms.ChoiceField(
        required=False,
        label="Of this topic",
        help_text="Prompts that no writing work has asked about yet, the oldest first.",
    )
    own_most = forms.IntegerField(
        required=False, min_value=1, max_value=MOST_PLACES, initial=100, label="At most"
    )
    n_prompts = forms.IntegerField(
        required=False, min_value=1, max_value=MOST_PLACES, initial=20, label="How many prompts"
    )
    per_task = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=100,
        initial=1,
        label="Answers per prompt",
        help_text="Each by another person.",
    )
    review = forms.ChoiceField(
        label="Who reviews",
        choices=[
            (WritingBatch.Review.STAFF, "Reviewers, engineers and admins"),
            (WritingBatch.Review.PEERS, "Annotators too, but never the author"),
            (WritingBatch.Review.NONE, "Nobody: what is submitted is accepted"),
        ],
        help_text="What holds a blocked phrase or looks like personal data is reviewed always.",
    )
    least_characters = forms.IntegerField(
        min_value=1, max_value=MOST_CHARACTERS, initial=1, label="Minimum characters"
    )
    most_characters = forms.IntegerField(
        min_value=1, max_value=MOST_CHARACTERS, initial=USUAL_MOST, label="Maximum characters"
    )
    topic = forms.CharField(required=False, max_length=200, label="Topic")
    language = forms.CharField(
        required=False, max_length=12, label="Language", help_text="A code such as en."
    )
    licence = forms.CharField(
        required=False, max_length=60, label="Licence", help_text="Of what is written."
    )

    def __init__(self, *args: Any, project: Project, topics: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.project = project
        for name in ("source", "lines", "file", "own_most", "n_prompts", "per_task"):
            self.fields[name].hide_optional = True  # needed or not by what is chosen above
        self.fields["own_topic"].choices = [("", "any"), *((one, one) for one in topics)]

    def fields_for_service(self) -> dict[str, Any]:
        """What the service takes; the prompts are read here. `DomainError` names a field."""
        data = dict(self.cleaned_data)
        source, lines, file = (data.pop(name) for name in ("source", "lines", "file"))
        topic, most = data.pop("own_topic"), data.pop("own_most") or 100
        data["per_task"] = data["per_task"] or 1
        data["n_prompts"] = data["n_prompts"] or 0
        if data["kind"] == WritingBatch.Kind.PROMPTS:
            return data
        if source == OWN:
            data["prompt_ids"] = reads.prompts_free(project=self.project, topic=topic, most=most)
            if not data["prompt_ids"]:
                raise DomainError("No prompt of the project is left to ask about.", field="source")
        elif source == FILE:
            if file is None:
                raise DomainError("Choose a file.", field="file")
            data["prompts"] = prompts_read(file.name, file.read())
        else:
            data["prompts"] = lines_read(lines)
            if not data["prompts"]:
                raise DomainError("Write a prompt a line.", field="lines")
        return data

    def refuse(self, error: DomainError) -> None:
        """Beside the field it is about."""
        name = error.field or ""
        if name == "prompts":
            name = {FILE: "file", OWN: "source"}.get(self.cleaned_data.get("source"), "lines")
        self.add_error(name if name in self.fields else None, error.message)


class DraftForm(Checked):
    """What was typed, and which draft the page has seen. `over` names a newer one that the writer
    has seen and replaces."""

    body = forms.CharField(required=False, max_length=MOST_CHARACTERS, strip=False)
    draft = forms.IntegerField(required=False, min_value=0, max_value=_LARGEST)
    over = forms.IntegerField(required=False, min_value=0, max_value=_LARGEST)
    editor = forms.CharField(required=False, max_length=40)

    def draft_fields(self) -> dict[str, Any]:
        data = self.cleaned_data
        number = data["draft"] if data["over"] is None else data["over"]
        return {
            "body": plain_ends(data["body"]),
            "number": number or 0,
            "editor": data["editor"],
        }


class SubmitForm(DraftForm):
    key = forms.CharField(max_length=120)
    confirmed = forms.BooleanField(required=False)
    active_ms = forms.IntegerField(required=False)
    wall_ms = forms.IntegerField(required=False)

    def submit_fields(self) -> dict[str, Any]:
        data = self.cleaned_data
        return self.draft_fields() | {
            "idempotency_key": data["key"],
            "confirmed": data["confirmed"],
            "active_ms": sensible_time(data["active_ms"]),
            "wall_ms": sensible_time(data["wall_ms"]),
        }


class PassOnForm(Checked):
    reason = forms.CharField(required=False, max_length=300)


class ReviewForm(Checked):
    version = forms.IntegerField(min_value=1, max_value=32_767)
    verdict = forms.ChoiceField(choices=WrittenVersion.Verdict.choices)
    body = forms.CharField(required=False, max_length=MOST_CHARACTERS, strip=False)
    reason = forms.CharField(required=False, max_length=LONGEST_REASON)


class TextsFilter(forms.Form):
    """The filter of a batch's texts; lives in the query string."""

    q = forms.CharField(required=False, max_length=200, label="Search prompts and texts")
    state = forms.ChoiceField(
        required=False, label="State", choices=[("", "all"), *reads.STATES.items()]
    )


PASS_ON_REASONS = {
    "Not my subject": _("Not my subject"),
    "Prompt is unclear": _("Prompt is unclear"),
    "A language I do not write": _("A language I do not write"),
    "I would rather not write about this": _("I would rather not write about this"),
}
