"""What a run needs: how it spreads over processes, and its priority in the queue.

queue       the machine class
layout      what is split over the processes (`workers.contract.jobs`)
processes   how many; 0: one for each GPU of the machine that takes it
launcher    who starts them
"""

from typing import Any

from apps.common.errors import DomainError
from apps.training.models import Run
from workers.contract.jobs import EVERY_GPU, LAYOUTS, ONE, PLAIN, TORCHRUN, layout_problem

# Kinds whose recipes know layouts; the others look at a model, and one process does.
SPREAD = frozenset({"sft", "reward", "dpo", "kto", "ppo", "grpo", "drill"})


def launcher_of(layout: str) -> str:
    """Who starts the processes of a layout where nobody says."""
    return PLAIN if layout == ONE else TORCHRUN


def needs_of(
    run: Run, *, layout: str = "", processes: int | None = None, launcher: str = ""
) -> dict[str, Any]:
    """What a run like `run` needs; what is given replaces what it had."""
    layout = layout or run.layout
    same = (layout == ONE) == (run.layout == ONE)
    if processes is None:
        processes = run.processes if same else 1 if layout == ONE else EVERY_GPU
    return {
        "layout": layout,
        "processes": processes,
        "launcher": launcher or (run.launcher if same else launcher_of(layout)),
    }


def layouts_of_kind(kind: str) -> list[str]:
    """The layouts that the recipe of `kind` trains with."""
    return [name for name in LAYOUTS if name == ONE or kind in SPREAD]


def needs_check(*, kind: str, layout: str, processes: int, launcher: str, priority: int) -> None:
    """Raises `DomainError` naming the field that does not go with the others."""
    problem = layout_problem(launcher, layout, processes)
    if problem is not None:
        field, words = problem
        raise DomainError(f"{words[0].upper()}{words[1:]}.", code=f"bad_{field}", field=field)
    if layout != ONE and kind not in SPREAD:
        label = dict(Run.Kind.choices)[kind].lower()
        raise DomainError(
            f"A run of the kind '{label}' is one process; its layout is 'one'.",
            code="bad_layout",
            field="layout",
        )
    if priority not in Run.Priority.values:
        raise DomainError(
            f"There is no priority {priority!r}; there are: {', '.join(Run.Priority.labels)}.",
            code="bad_priority",
            field="priority",
        )
