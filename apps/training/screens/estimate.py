"""An estimate in a sentence: how long, how much memory, and by which runs."""

from dataclasses import dataclass

from apps.common.numbers import duration, filesize
from apps.training.forms.launch import RunForm
from apps.training.models import Run
from apps.training.selectors.estimates import Estimate, run_estimate
from workers.contract.wire import QUEUE_CPU

NONE = "No run like this has finished yet, so its time and memory are not known."
_SCALED = {
    "": "as long as those took",
    "steps": "by their seconds per step × steps",
    "rows": "by their seconds per row × rows, for their batch sizes differ",
}


def estimate_words(found: Estimate, *, runs: int = 1) -> str:
    """ "About 25 min, 0.9 GB." for one run, "6 runs, about 2 h 30 min in all …" for several."""
    if found.seconds is None:
        return f"{runs} runs. {NONE}" if runs > 1 else NONE
    memory = f", {filesize(found.memory_bytes)} of memory" if found.memory_bytes else ""
    if runs > 1:
        return (
            f"{runs} runs, about {duration(found.seconds * runs)} in all if they run one after "
            f"the other ({duration(found.seconds)} each{memory})."
        )
    return f"About {duration(found.seconds)}{memory}."


def estimate_basis(found: Estimate) -> str:
    """What it rests on; empty where there is no estimate."""
    if found.seconds is None:
        return ""
    many = len(found.runs)
    where = "of this project" if found.own else "of other projects of this site"
    last = f"{many} runs" if many > 1 else "run"
    said = f"Like the last {last} {where}, {_SCALED[found.scaled_by]}."
    if found.limited:
        said += " It ends at its max_seconds."
    elif many > 1 and found.least is not None and found.greatest is not None:
        said += f" From {duration(found.least)} to {duration(found.greatest)}."
    if found.memory_bytes:
        said += " Memory is by the ledger of its preflight, not measured."
    return said


@dataclass(frozen=True, slots=True)
class Shown:
    """`runs` are those of this project that it rests on."""

    words: str
    basis: str = ""
    runs: tuple[Run, ...] = ()


def form_estimate(form: RunForm) -> Shown:
    """For a form as it was sent; what is wrong in it is said beside its fields
    when it is launched, so here it only takes the estimate away."""
    form.is_valid()
    data = form.cleaned_data
    asked = ("c_", "g_", "pasted", "seeds", "sweep_", "values_")
    wrong = [name for name in form.errors if name.startswith(asked)]
    if wrong or "config" not in data:
        return Shown("An estimate appears here once the settings are right.")
    found = run_estimate(
        project=form.project,
        kind=form.kind,
        config=data["config"],
        inputs=data["inputs"],
        queue=data.get("queue") or QUEUE_CPU,
        layout=data["layout"],
        processes=data.get("processes") or 1,
    )
    return Shown(
        estimate_words(found, runs=data.get("runs", data["seeds"])),
        estimate_basis(found),
        found.runs if found.own else (),
    )
