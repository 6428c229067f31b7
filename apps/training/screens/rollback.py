"""Going back from a run that went wrong: where to, what changes, and why not elsewhere."""

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from apps.common.errors import Conflict
from apps.common.numbers import figure
from apps.training.guidance import advised_changes, rule_of
from apps.training.models import Checkpoint, Run
from apps.training.selectors.reference import (
    JudgedCheckpoint,
    checkpoints_judged,
    last_healthy,
    sft_of,
    started_from,
)
from apps.training.services.rollback import HEALTHY, START, START_ROLE, RollbackPlan, roll_back_plan
from workers.contract.metrics import metric_or_own

SHOWN_METRICS = 4  # of a checkpoint's figures that stand beside it


@dataclass(frozen=True, slots=True)
class Choice:
    """One place to go back to; `why_not` says why it is none."""

    value: str
    title: str
    about: str
    checked: bool = False
    why_not: str = ""
    changes: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A kept checkpoint in words: `uses` says what it is good for."""

    checkpoint: Checkpoint
    metrics: list[tuple[str, str]]
    doubt: str
    uses: str


@dataclass(frozen=True, slots=True)
class RollbackOffer:
    """What one click does; `target` is None where only the start is left, `why_not` says why."""

    target: Checkpoint | None
    start: str
    why_not: str


def rollback_offer(run: Run) -> RollbackOffer | None:
    """For a run that has ended and started from a model; None where there is nothing to go to."""
    if run.is_live or (run.kind not in START_ROLE and started_from(run) is None):
        return None
    found = _planned(run, HEALTHY)
    start = _planned(run, START)
    return RollbackOffer(
        target=None if isinstance(found, str) else found.target,
        start="" if isinstance(start, str) or started_from(run) is None else _start_words(run),
        why_not=found if isinstance(found, str) else "",
    )


def checkpoint_rows(run: Run) -> list[CheckpointRow]:
    judged = checkpoints_judged(run)
    return [
        CheckpointRow(one.checkpoint, _metrics(one.checkpoint), one.doubt, _uses(one))
        for one in judged
    ]


def _metrics(row: Checkpoint) -> list[tuple[str, str]]:
    """Evaluation figures first; they are why one checkpoint is kept rather than another."""
    names = sorted(row.metrics, key=lambda name: (not name.startswith("eval/"), name))
    names.sort(key=lambda name: name not in ("eval/held_out_score", "eval/score", "eval/loss"))
    return [
        (metric_or_own(name).title, figure(row.metrics[name])) for name in names[:SHOWN_METRICS]
    ]


def _uses(one: JudgedCheckpoint) -> str:
    tags = one.checkpoint.tags
    if one.doubt:
        return f"{one.doubt[0].upper()}{one.doubt[1:]}."
    if "best" in tags:
        return "Best on the held-out evaluation: use this one for evaluation and further training."
    if "final" in tags:
        return "Final checkpoint; runs that use this run as an input take it."
    return "Newest checkpoint; a resumed run continues from here."


def roll_back_context(run: Run) -> dict[str, Any]:
    """For the page: all choices, the default one marked."""
    choices = roll_back_choices(run)
    return {
        "choices": choices,
        "possible": any(not one.why_not for one in choices),
        "advised": [(name, value) for name, value in advised_changes(run).items()],
        "rule": rule_of(run),
        "key": secrets.token_urlsafe(16),
    }


def roll_back_choices(run: Run) -> list[Choice]:
    default = last_healthy(run)
    choices = []
    for one in checkpoints_judged(run):
        row = one.checkpoint
        found = _planned(run, row.pk)
        why = found if isinstance(found, str) else ""
        choices.append(
            Choice(
                value=row.pk,
                title=f"Step {row.step:,} ({', '.join(row.tags)})",
                about=", ".join(f"{name} {value}" for name, value in _metrics(row)),
                checked=row == default and not why,
                why_not=why,
                changes=[] if isinstance(found, str) else _changes(found),
            )
        )
    start = _planned(run, START)
    usable = any(one.checked for one in choices)
    choices.append(
        Choice(
            value=START,
            title=_start_words(run),
            about="Discards all steps of this run",
            checked=not usable and not isinstance(start, str),
            why_not=start if isinstance(start, str) else "",
            changes=[] if isinstance(start, str) else _changes(start),
        )
    )
    return choices


def _start_words(run: Run) -> str:
    started, sft = started_from(run), sft_of(run)
    if started is None:
        return "The start of the run"
    model = started[1]
    kind = "the SFT model" if sft is not None and model.pk == sft.pk else "the model"
    return f"The start: {kind} {model.run.name}, step {model.step:,}"


def _planned(run: Run, to: str) -> RollbackPlan | str:
    """The plan, or why there is none."""
    try:
        return roll_back_plan(run=run, to=to, advised=False)
    except Conflict as error:
        return error.message


def _changes(plan: RollbackPlan) -> list[tuple[str, str, str]]:
    return [(name, _value(before), _value(after)) for name, (before, after) in plan.changes.items()]


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
