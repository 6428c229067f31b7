"""What a check found, as its own page and the page of the run it is about show it. A trainer wrote
it, so nothing in it is taken on trust."""

from dataclasses import dataclass, field

from apps.common.drawing.blocks import Part, parts
from apps.common.templatetags.frame import figure
from apps.training.models import Run
from apps.training.selectors.reports import report_read
from measures.trust.findings import block_from_json
from workers.diagnosis.experiments import EXPERIMENTS

FILES = {Run.Kind.CHECK: "check.json", Run.Kind.PROBE: "probe.json"}
OUTCOMES = {
    "confirms": ("Suspicion confirmed", "bad", "circle-alert"),
    "refutes": ("Suspicion refuted", "good", "circle-check"),
    "undecided": ("Undecided", "warn", "circle-help"),
}
_MOST_DRAWN = 8
_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`meaning` says what an answer of this kind means; `figures` are (name, value, deviation, n)
    of a probe. `problem` says why nothing is drawn."""

    question: str = ""
    outcome: str = ""
    tone: str = ""
    icon: str = ""
    words: str = ""
    meaning: str = ""
    evidence: list[Part] = field(default_factory=list)
    figures: list[tuple[str, str, str, str]] = field(default_factory=list)
    problem: str = ""


def check_result(run: Run) -> CheckResult | None:
    """None for kinds of run that check nothing."""
    if run.kind == Run.Kind.CHECK:
        return _of_check(run)
    if run.kind == Run.Kind.PROBE:
        return CheckResult(
            question="What does the model answer today, to the questions it is always asked?",
            figures=_figures(run),
        )
    return None


def _of_check(run: Run) -> CheckResult:
    name = run.config.get("check", "reward_plot")
    experiment = EXPERIMENTS.get(name) if isinstance(name, str) else None
    question = experiment.question if experiment else ""
    outcome, words = str(run.summary.get("outcome")), run.summary.get("words")
    if run.state != Run.State.FINISHED or outcome not in OUTCOMES or not isinstance(words, str):
        return CheckResult(question=question)
    label, tone, icon = OUTCOMES[outcome]
    meanings = {
        "confirms": experiment.confirms if experiment else "",
        "refutes": experiment.refutes if experiment else "",
    }
    drawn, problem = _evidence(run)
    return CheckResult(
        question=question,
        outcome=label,
        tone=tone,
        icon=icon,
        words=words,
        meaning=meanings.get(outcome, ""),
        evidence=drawn,
        problem=problem,
    )


def _evidence(run: Run) -> tuple[list[Part], str]:
    report = report_read(run, FILES[Run.Kind.CHECK])
    found = []
    blocks = report.data.get("evidence")
    for block in blocks[:_MOST_DRAWN] if isinstance(blocks, list) else ():
        try:
            found.append(block_from_json(block))
        except _WRONG:
            continue
    return parts(found), report.problem


def _figures(run: Run) -> list[tuple[str, str, str, str]]:
    given = run.summary.get("figures")
    rows = []
    for name, one in given.items() if isinstance(given, dict) else ():
        try:
            rows.append(
                (
                    str(name),
                    str(figure(float(one["mean"]))),
                    str(figure(float(one["deviation"]))),
                    f"{int(one['n']):,}",
                )
            )
        except _WRONG:
            continue
    return rows
