"""What a run needs of its machine, as the launch form asks for it; and the limits of a project."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django import forms

from apps.training.models import Run
from apps.training.services.kinds import SHORT
from apps.training.services.layouts import SPREAD, layouts_of_kind, needs_of
from apps.training.services.queueing import LIMITS, MOST_AT_ONCE
from workers.contract.jobs import EVERY_GPU, LAUNCHERS, LAYOUTS, MOST_PROCESSES, ONE, PLAIN
from workers.contract.wire import JOB_QUEUES, QUEUE_CPU, QUEUE_SHORT

LAYOUT_FIELDS = ("layout", "processes", "launcher")


class NeedsForm(forms.Form):
    """Machine class, layout, processes, launcher and priority."""

    queue = forms.ChoiceField(
        label="Machine class", help_text="The machines that may take it, by their queue."
    )
    layout = forms.ChoiceField(
        label="Layout",
        required=False,
        initial=ONE,
        help_text="What is split over the GPUs of its machine. The batch size stays that of the "
        "whole job.",
    )
    processes = forms.IntegerField(
        label="Processes",
        required=False,
        min_value=EVERY_GPU,
        max_value=MOST_PROCESSES,
        help_text="One for each GPU. 0: as many as its machine has; blank: what goes with the "
        "layout.",
    )
    launcher = forms.ChoiceField(
        label="Launcher",
        required=False,
        choices=[("", "by the layout"), *((name, name) for name in LAUNCHERS if name != PLAIN)],
        help_text="Who starts the processes: torchrun, unless accelerate shall.",
    )
    priority = forms.TypedChoiceField(
        label="Priority",
        required=False,
        coerce=int,
        empty_value=Run.Priority.NORMAL,
        choices=Run.Priority.choices,
        initial=Run.Priority.NORMAL,
        help_text="Among the runs that wait for this machine class.",
    )

    def ask_needs(
        self,
        kind: str,
        *,
        source: Run | None,
        needs: Mapping[str, Any],
        queues_heard: frozenset[str] | None,
    ) -> None:
        """Begin with what the cloned run needed, with `needs` in its place; a kind that is one
        process is asked for no layout."""
        queue = self.fields["queue"]
        names = [QUEUE_SHORT] if kind in SHORT else JOB_QUEUES  # where the service sends it
        queue.choices = [(name, _class_words(name, queues_heard)) for name in names]
        queue.initial = source.queue if source else QUEUE_SHORT if kind in SHORT else QUEUE_CPU
        known: dict[str, Any] = {}
        if source is not None:
            known["priority"] = source.priority
            if source.layout != ONE:
                known |= needs_of(source)
        for name, value in (known | dict(needs)).items():
            self.fields[name].initial = value
        if kind not in SPREAD:
            for name in LAYOUT_FIELDS:
                del self.fields[name]
        else:
            offered = layouts_of_kind(kind)
            self.fields["layout"].choices = [(name, LAYOUTS[name].title) for name in offered]

    def clean_needs(self, cleaned: dict[str, Any]) -> None:
        """Blank processes are those that go with the layout."""
        cleaned["layout"] = cleaned.get("layout") or ONE
        if cleaned.get("processes") is not None or "processes" in self.errors:
            return
        cleaned["processes"] = 1 if cleaned["layout"] == ONE else EVERY_GPU
        if cleaned["processes"] == EVERY_GPU and cleaned.get("queue") == QUEUE_CPU:
            self.add_error("processes", "Say how many: machines of class cpu have no GPUs.")


class QuotaForm(forms.Form):
    runs_at_once = forms.IntegerField(
        label="Runs at once",
        required=False,
        min_value=1,
        max_value=MOST_AT_ONCE,
        help_text="Of this project, over all machine classes; checks and probes do not count. "
        "Blank: no limit.",
    )
    gpu_hours = forms.IntegerField(
        label="GPU hours in 30 days",
        required=False,
        min_value=1,
        max_value=LIMITS["gpu_hours"][0],
        help_text="Hours times GPUs. Runs that have begun continue; others wait until enough of "
        "the hours are older. Blank: no limit.",
    )


class SpaceLimitsForm(forms.Form):
    space_gb = forms.DecimalField(
        label="Quota of disk space in GB",
        required=False,
        min_value=Decimal("0.001"),
        max_value=Decimal(1_000_000_000),
        decimal_places=3,
        help_text="Launches of runs that keep files are refused when models, files of runs and "
        "datasets have reached it. Runs that have begun continue. Blank: no limit.",
    )
    keep_days = forms.IntegerField(
        label="Days to keep intermediate files",
        required=False,
        min_value=1,
        max_value=LIMITS["keep_days"][0],
        help_text="So long after its end a run keeps its trainer state and its intermediate "
        "checkpoints, and a failed or cancelled one can be resumed. Blank: for ever.",
    )

    def limits(self) -> dict[str, int | None]:
        """As `quota_set` takes them."""
        given = self.cleaned_data["space_gb"]
        return {
            "space_bytes": None if given is None else int(given * 10**9),
            "keep_days": self.cleaned_data["keep_days"],
        }

    @classmethod
    def of(cls, space_bytes: int | None, keep_days: int | None) -> "SpaceLimitsForm":
        gb = None if space_bytes is None else Decimal(space_bytes) / 10**9
        shown = None if gb is None else f"{gb:.3f}".rstrip("0").rstrip(".")
        return cls(initial={"space_gb": shown, "keep_days": keep_days})


def _class_words(name: str, heard: frozenset[str] | None) -> str:
    if heard is None:
        return name
    return f"{name} — a worker is listening" if name in heard else f"{name} — no worker right now"
