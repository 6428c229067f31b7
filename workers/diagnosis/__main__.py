"""`python -m workers.diagnosis FILE [--kind ppo]`: what broke first in a run, without a server.

Prints verdict, evidence and next checks. Ends with 0 when nothing was found, with 1 when something
was, with 2 when the file cannot be read.
"""

import argparse
import sys
from pathlib import Path

from workers.diagnosis.names import ours
from workers.diagnosis.reading import ReadingError, read
from workers.diagnosis.replay import Diagnosis, diagnose
from workers.rules.choices import needed_metrics
from workers.rules.diagnosis import Finding
from workers.rules.experiments import next_experiments
from workers.rules.rule import STAGES

KINDS = ("ppo", "grpo", "dpo", "kto", "sft", "reward")
MOST_CHECKS = 5000
FOUND, UNREADABLE = 1, 2


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.diagnosis", description=__doc__)
    parser.add_argument("file", type=Path, help="trainer_state.json, JSON Lines, CSV or tfevents")
    parser.add_argument("--kind", choices=KINDS, default="ppo", help="what was trained (ppo)")
    chosen = parser.parse_args(arguments)
    try:
        found = read(chosen.file.name, chosen.file.read_bytes())
    except OSError as error:
        return _refuse(chosen.file, [error.strerror or str(error)])
    except ReadingError as error:
        more = [f"and {error.more:,} more"] if error.more else []
        return _refuse(chosen.file, [*map(str, error.errors), *more])
    named = ours(found.series, chosen.kind)
    said = diagnose(named.series, kind=chosen.kind, most_checks=MOST_CHECKS)
    steps = sorted({step for points in named.series.values() for step, _ in points})
    lines = [
        f"{found.format}: {len(named.series):,} metrics over {len(steps):,} steps, "
        f"{steps[0]:,} to {steps[-1]:,}.",
        *found.notes,
    ]
    needed = set(needed_metrics(chosen.kind))
    lines += [
        f"{new} is {old} in the file." for new, old in sorted(named.taken.items()) if new in needed
    ]
    sys.stdout.write("\n".join([*lines, "", *lines_of(said)]) + "\n")
    return FOUND if said.verdict else 0


def _refuse(file: Path, reasons: list[str]) -> int:
    sys.stderr.write("".join(f"{file}: {reason}\n" for reason in reasons))
    return UNREADABLE


def lines_of(said: Diagnosis) -> list[str]:
    """The diagnosis in lines of text."""
    if said.verdict is None:
        text = [f"Nothing found. Looked at {', '.join(said.judged) or 'no figure'}."]
        return text + _unjudged(said)
    first = said.verdict.first
    text = [f"Broke first: {first.stage}, at step {first.start_step:,}.", *_finding(first)]
    for title, findings in (
        ("Began together with it:", said.verdict.alternatives),
        ("Came after it:", said.verdict.consequences),
    ):
        if findings:
            text += ["", title, *(line for one in findings for line in _finding(one))]
    text += ["", "The chain: " + " > ".join(_stage(said, stage) for stage in STAGES)]
    text += ["", "Next checks, in this order:"]
    for place, one in enumerate(next_experiments(first.stage, first=first.experiment), 1):
        text.append(f"{place}. {one.title}")
    text.append("What each result means: docs/playbook/next-checks.md")
    return text + _unjudged(said)


def _finding(one: Finding) -> list[str]:
    value = "" if one.value is None else f": {one.value:.4g} {one.unit}".rstrip()
    expected = f", expected {one.expected}" if one.expected else ""
    lines = [
        f"  {one.title} ({one.rule}, {one.evidence_class}), step {one.start_step:,}, found at "
        f"{one.step:,}{value}{expected}"
    ]
    return [*lines, f"    {one.detail}"] if one.detail else lines


def _stage(said: Diagnosis, stage: str) -> str:
    chain = said.verdict.chain if said.verdict else ()
    marks = {"first": "[BROKE FIRST]", "consequence": "[followed]", "unknown": "[not judged]"}
    state = next((one.state for one in chain if one.stage == stage), "unknown")
    return f"{stage} {marks[state]}" if state in marks else stage


def _unjudged(said: Diagnosis) -> list[str]:
    if not said.unjudged:
        return []
    rows = [
        f"  {title}: no {', '.join(missing)}" if missing else f"  {title}: too few steps"
        for title, missing in said.unjudged
    ]
    return ["", "Could not be judged:", *rows]


if __name__ == "__main__":
    sys.exit(main())
