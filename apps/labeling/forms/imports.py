"""How a file is to be read: the form of an import's page."""

from typing import Any

from django import forms

from apps.common.errors import DomainError
from apps.labeling.formats import CONTAINERS, PAIRINGS, Options
from apps.labeling.formats.layouts import (
    COMPARISONS,
    LAYOUTS_FOR,
    PREFERENCES,
    missing_refuse,
)
from apps.labeling.formats.records import TOGETHER

_LABELS = {
    "prompt": "Prompt",
    "response_a": "Answer A",
    "response_b": "Answer B",
    "chosen": "Chosen answer",
    "rejected": "Rejected answer",
    "completions": "List of answers",
    "gold": "Reference label (gold)",
    "model_a": "Model of A",
    "model_b": "Model of B",
    "chosen_model": "Model of the chosen",
    "rejected_model": "Model of the rejected",
    "chosen_score": "Score of the chosen",
    "rejected_score": "Score of the rejected",
    "id": "Id",
    "group": "Group (splits go by it)",
    "licence": "Licence",
    "explanation": "Why the label is right",
    "messages": "Conversation",
    "response": "Answer",
    "completion": "Answer",
    "label": "Desirable or not",
    "labels": "Right or not, by step",
    "roles": "Who each step is of",
    "answer": "Known answer, for verifiers",
    "split": "Split (train, dev, test)",
    "category": "Category (reported apart)",
    "check": "Check of the answer (JSON)",
    "annotator": "Who judged (a row is a vote)",
    "cast_at": "When they judged",
    "origin_ref_a": "Origin of A",
    "origin_ref_b": "Origin of B",
}
MAIN = (
    "messages",
    "prompt",
    "response",
    "completion",
    "label",
    "labels",
    "answer",
    "response_a",
    "response_b",
    "chosen",
    "rejected",
    "completions",
    "gold",
    "category",
    "id",
    "group",
    "topic",
)
_MAP = "map_"
TEST = "test"  # the split of every row of a suite
_ANSWERS = ("pairing", "grade_low", "grade_high", "grade_low_label", "grade_high_label")


class ImportSettingsForm(forms.Form):
    """Built from what was read of the file; its values are a job's settings."""

    layout = forms.ChoiceField(label="A row is")
    prompt_text = forms.CharField(
        required=False,
        label="The same prompt for every row",
        help_text="Where no column holds one.",
        max_length=4000,
    )
    by_heading = forms.BooleanField(
        required=False,
        label="Each answer column holds one model's answers, and its heading is the model's name",
        help_text="Results then says which of the two is better.",
    )
    pairing = forms.ChoiceField(
        label="The answers to a prompt become", choices=list(PAIRINGS.items())
    )
    grade_low = forms.IntegerField(label="Grades from", help_text="Where answers are graded.")
    grade_high = forms.IntegerField(label="Grades to")
    grade_low_label = forms.CharField(required=False, label="The lowest grade means", max_length=80)
    grade_high_label = forms.CharField(
        required=False, label="The highest grade means", max_length=80
    )
    preference = forms.BooleanField(
        required=False, label="Keep the file's preference as a reference label"
    )
    votes = forms.BooleanField(required=False, label="Import the existing annotations")
    rest = forms.ChoiceField(
        label="Columns that fill nothing",
        choices=[("metadata", "keep with the prompt"), ("drop", "leave out")],
    )
    identical_answers = forms.ChoiceField(
        label="Two answers with the same text",
        choices=[("refuse", "an error"), ("warn", "a warning, where their origins differ")],
    )
    half = forms.ChoiceField(
        required=False,
        label="Take",
        choices=[
            ("", "all rows"),
            ("first", "one half of the prompts, for a reward model"),
            ("second", "the other half, for its judge"),
        ],
    )
    held_out = forms.BooleanField(
        required=False,
        label="Hold every row out: a suite that measures reward models and trains none",
    )
    source = forms.CharField(required=False, label="Source of every row", max_length=120)
    licence = forms.CharField(required=False, label="Licence of every row", max_length=60)
    seed = forms.IntegerField(label="Seed of the draws", min_value=0, max_value=2**31 - 1)
    container = forms.ChoiceField(
        required=False, label="File format", choices=[("", "recognise"), *CONTAINERS.items()]
    )
    split = forms.ChoiceField(required=False, label="Split")
    encoding = forms.CharField(required=False, label="Text encoding", max_length=40)
    delimiter = forms.ChoiceField(
        required=False,
        label="Delimiter",
        choices=[
            ("", "recognise"),
            (",", "comma"),
            (";", "semicolon"),
            ("\t", "tab"),
            ("|", "bar"),
        ],
    )

    def __init__(
        self,
        *args: Any,
        preview: dict[str, Any],
        chosen: dict[str, Any],
        makes: str = COMPARISONS,
        **kwargs: Any,
    ):
        self.preview, self.makes = preview, makes
        super().__init__(*args, initial=self._initial(preview, chosen), **kwargs)
        layouts = LAYOUTS_FOR[makes].values()
        self.fields["layout"].choices = [(layout.key, layout.label) for layout in layouts]
        self.fields["split"].choices = [(s, s or "the only one") for s in preview["splits"] or [""]]
        columns = [("", "—"), *((name, name) for name in preview["columns"])]
        for name in preview["fields"]:
            self.fields[_MAP + name] = forms.ChoiceField(
                required=False,
                label=_LABELS.get(name, name.replace("_", " ").capitalize()),
                choices=columns,
                initial=preview["mapping"].get(name, ""),
            )
            self.fields[_MAP + name].hide_optional = True
        for name in set(self._unused()):
            del self.fields[name]

    def _initial(self, preview: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
        constants = chosen.get("constants", {})
        return {
            "layout": preview["layout"],
            "prompt_text": constants.get("prompt", ""),
            "by_heading": self._by_heading(preview, chosen),
            "source": constants.get("source", ""),
            "licence": constants.get("licence", ""),
            **{name: chosen.get(name, getattr(Options(), name)) for name in _ANSWERS},
            "preference": chosen.get("preference", True),
            "votes": chosen.get("votes", True),
            "rest": chosen.get("rest", "metadata"),
            "identical_answers": chosen.get("identical_answers", "refuse"),
            "half": chosen.get("half", ""),
            "held_out": constants.get("split") == TEST,
            "seed": chosen.get("seed", 0),
            "container": chosen.get("container", ""),
            "split": preview["split"],
            "encoding": chosen.get("encoding", ""),
            "delimiter": chosen.get("delimiter", ""),
        }

    @staticmethod
    def _by_heading(preview: dict[str, Any], chosen: dict[str, Any]) -> bool:
        """As chosen; at first where the headings are none that every such file has."""
        if chosen.get("mapping"):
            return "model_a" in chosen.get("constants", {})
        return "response_a" in preview.get("missing", [])

    def _unused(self) -> list[str]:
        """Questions that this file does not raise."""
        layout, container = self.preview["layout"], self.preview["container"]
        unused = []
        if layout != "completions":
            unused += _ANSWERS
        elif self.makes != COMPARISONS:
            unused += [name for name in _ANSWERS if name != "pairing"]
            self.fields["pairing"].choices = [
                one for one in PAIRINGS.items() if one[0] not in TOGETHER
            ]
        if self.makes not in (PREFERENCES, "unpaired"):
            unused.append("half")
        if self.makes != PREFERENCES:
            unused.append("held_out")
        if self.makes != COMPARISONS:
            unused += ["preference", "votes", "by_heading", "identical_answers", "prompt_text"]
            if self.makes != PREFERENCES:
                unused.append("seed")
        if layout not in ("preference", "transcripts", "pairs"):
            unused.append("preference")
        if not self.preview.get("has_votes", layout in ("label_studio", "argilla")):
            unused.append("votes")
        if layout != "pairs" or {"model_a", "model_b"} & set(self.preview["mapping"]):
            unused.append("by_heading")
        if "prompt" not in self.preview["fields"]:
            unused.append("prompt_text")
        if len(self.preview["splits"]) < 2:
            unused.append("split")
        if container != "csv":
            unused.append("delimiter")
        if container not in ("csv", "json", "jsonl"):
            unused.append("encoding")
        if container == "xlsx":
            self.fields["split"].label = "Sheet"
        return unused

    def main_columns(self) -> list[Any]:
        return [self[_MAP + name] for name in MAIN if _MAP + name in self.fields]

    def more_columns(self) -> list[Any]:
        names = [name for name in self.preview["fields"] if name not in MAIN]
        return [self[_MAP + name] for name in names]

    def settings(self) -> dict[str, Any]:
        """A job's settings; columns are chosen again when the layout has changed."""
        data = self.cleaned_data
        constants = {
            name: data[field]
            for name, field in (("prompt", "prompt_text"), ("source",) * 2, ("licence",) * 2)
            if data.get(field)
        }
        if data.get("held_out"):
            constants["split"] = TEST
        mapping = {
            name: data[_MAP + name]
            for name in self.preview["fields"]
            if data[_MAP + name] or name in self.preview["mapping"]
        }
        if data.get("by_heading") and not (mapping.get("model_a") or mapping.get("model_b")):
            for side in "ab":
                constants[f"model_{side}"] = mapping.get(f"response_{side}", "")
        same = data["layout"] == self.preview["layout"]
        plain = (
            *_ANSWERS,
            "preference",
            "votes",
            "rest",
            "identical_answers",
            "half",
            "seed",
            "container",
            "split",
            "encoding",
            "delimiter",
        )
        return {
            "layout": data["layout"],
            "mapping": mapping if same else {},
            "constants": constants,
        } | {name: data[name] for name in plain if name in data and data[name] != ""}

    @classmethod
    def asking(
        cls, *, preview: dict[str, Any], chosen: dict[str, Any], makes: str = COMPARISONS
    ) -> "ImportSettingsForm":
        """Not sent yet; the columns that have to be chosen are marked already."""
        form = cls(preview=preview, chosen=chosen, makes=makes)
        form.full_clean()
        form.cleaned_data = {}
        try:
            missing_refuse(preview.get("missing", []))
        except DomainError as error:
            form.refuse(error)
        return form

    def refuse(self, error: DomainError) -> None:
        """Put a refusal beside the field it names; one of missing columns beside each."""
        if error.code != "column_missing":
            self._place(error.field or "", error.message)
            return
        for one in error.details:
            self._place(one["field"], one["message"])

    def _place(self, field: str, message: str) -> None:
        for name in (_MAP + field, field, None):
            if name is None or name in self.fields:
                self.add_error(name, message)
                return
