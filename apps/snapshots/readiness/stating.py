"""What the data cannot know, as a form whose answers live in the address."""

from typing import Any

from django import forms

from measures.advice import Rules, Task

UNKNOWN = ("", "I do not know yet")


class StatedForm(forms.Form):
    """Every field may stay empty: what is not stated is unknown, and asked for."""

    task = forms.ChoiceField(
        required=False,
        label="What makes an answer good?",
        choices=[
            UNKNOWN,
            (Task.FACTUAL, "It is right: it can be checked"),
            (Task.OPEN, "People prefer it: several can be good"),
        ],
    )
    rules = forms.ChoiceField(
        required=False,
        label="Can rules list what must not happen?",
        choices=[
            UNKNOWN,
            (Rules.ALL, "Yes, and that is all I want"),
            (Rules.SOME, "Some of it"),
            (Rules.NONE, "No"),
        ],
    )
    baseline = forms.FloatField(
        required=False,
        min_value=0,
        max_value=100,
        label="Tasks the model in use does right (%)",
        help_text="Judged by people on a random sample.",
    )
    latency = forms.FloatField(
        required=False,
        min_value=0.1,
        max_value=3_600_000,
        label="An answer must come within (ms)",
        help_text="From question to whole answer.",
    )
    exploration = forms.ChoiceField(
        required=False,
        label="Are there better answers than those in the data?",
        choices=[UNKNOWN, ("yes", "Yes, and they can be told apart"), ("no", "No, or hardly")],
    )

    def stated(self) -> dict[str, Any]:
        """Keywords for `measures.advice.Facts`; a field with an error counts as not stated."""
        self.full_clean()
        given = {
            name: value for name, value in self.cleaned_data.items() if value not in ("", None)
        }
        facts: dict[str, Any] = {}
        if "task" in given:
            facts["task"] = Task(given["task"])
        if "rules" in given:
            facts["rules"] = Rules(given["rules"])
        if "baseline" in given:
            facts["baseline"] = given["baseline"] / 100
        if "latency" in given:
            facts["latency_ms"] = given["latency"]
        if "exploration" in given:
            facts["exploration"] = given["exploration"] == "yes"
        return facts
