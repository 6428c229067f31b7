"""A file of another evaluation program."""

from django import forms

from apps.evaluation.formats.outside import LARGEST


class OutsideForm(forms.Form):
    """One file, whatever tasks it holds."""

    file = forms.FileField(
        help_text="results_*.json of lm-evaluation-harness, or a zip of its folder with "
        "samples_*.jsonl; a log of Inspect, .json or .eval. At most "
        f"{LARGEST // 10**6} MB.",
    )
