"""The upload of a run trained elsewhere."""

from django import forms

from workers.diagnosis.reading import MOST_BYTES

KINDS = [
    ("ppo", "PPO, or another actor-critic"),
    ("grpo", "GRPO, or another without a critic"),
    ("dpo", "DPO"),
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
        choices=KINDS,
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
