"""What is asked before pairs that models made go to people."""

from typing import Any

from django import forms

from apps.labeling.services import HIGHEST_PRIORITY


class SendPairsForm(forms.Form):
    """`votes` starts at what the run or the project asks for."""

    priority = forms.FloatField(
        label="Priority",
        min_value=0,
        max_value=HIGHEST_PRIORITY,
        help_text="Over 0: people meet these pairs before all others. 0: in line with them.",
        widget=forms.NumberInput({"step": "any"}),
    )

    def __init__(self, *args: Any, most: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        votes = forms.IntegerField(
            label="Votes for each pair",
            min_value=1,
            max_value=most,
            help_text=f"At most {most} in this project.",
        )
        self.fields = {"votes": votes, **self.fields}
