"""One question about a run that is in problem, answered from what it left, in a minute.

Inputs, by what the question needs: `rollouts` (the run's file rollouts.jsonl), `policy` (one of its
checkpoints), `reference`, `sft` (the model it began with), `reward`, `prompts`, `canaries`,
`reward_data`. The answer confirms or refutes a suspicion (workers.rules.experiments), or says
why it cannot; its data is the artifact check.json. docs/checks.md.
"""

import importlib
import json
from dataclasses import asdict
from typing import Any

from workers.checks.found import Cancelled, Found, Pace, jsonable
from workers.config import settings_for
from workers.config.inference import CheckSettings
from workers.context import RunContext
from workers.contract.reasons import in_words

CONFIG = CheckSettings
FILE, VERSION = "check.json", 1


def run(context: RunContext) -> dict[str, Any]:
    """Look, write down, tell. The work is in workers/checks, one file a question: only that one is
    imported, so that a question which needs no model loads no model library."""
    settings: CheckSettings = settings_for("check", context.spec.config)
    look = importlib.import_module(f"workers.checks.{settings.check_}").look
    try:
        found: Found = look(context, settings, Pace(context, max_seconds=settings.max_seconds))
    except Cancelled:
        return {"step": 0}
    told = jsonable(
        {
            "check": settings.check_,
            "outcome": found.outcome,
            "words": found.words,
            "n": found.n,
            "figures": found.figures,
        }
    )
    path = context.workdir / FILE
    evidence = [in_words(asdict(block)) for block in found.evidence]
    seen = {"details": found.details, "evidence": evidence}
    path.write_text(json.dumps({"version": VERSION, **told, **jsonable(seen)}, indent=1))
    context.save_artifact(path, media_type="application/json")
    context.log(f"{settings.check_} {found.outcome}: {found.words}")
    context.progress(1, 1, "done")
    return {"step": 1, **told}
