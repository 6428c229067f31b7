"""Filling the inbox: every answer that a run says a person must see is one entry."""

import hashlib
import json
from typing import Any

from apps.common.models import longest
from apps.common.registry import Flagged
from apps.evaluation.models import FlaggedAnswer
from apps.training.models import Run
from workers.contract.events import BLOCKED_PHRASE, DISAGREE

_Kind = FlaggedAnswer.Kind
_RULE = "rule "  # workers.rewards.rules
_LOOKS = (Run.Kind.CHECK, Run.Kind.PROBE)
_MOST = longest(FlaggedAnswer, "reason")


def answer_flag(run: Run, flagged: Flagged) -> None:
    """A listener of flagged answers, inside the transaction of the event.

    The same answer of a run is one entry however often it is flagged: asked about and then kept as
    a sample, at two steps, or again after a resume.
    """
    key = text_sha256(flagged.prompt, flagged.response)
    if flagged.sample is not None:
        known = FlaggedAnswer.objects.filter(run=run, text_sha256=key)
        if known.filter(sample=None).update(sample=flagged.sample) or known.exists():
            return
    row = FlaggedAnswer(
        project_id=run.project_id,
        run=run,
        sample=flagged.sample,
        kind=kind_of(flagged.reason, run.kind),
        reason=flagged.reason[:_MOST],
        step=flagged.step,
        prompt=flagged.prompt,
        response=flagged.response,
        text_sha256=key,
    )
    FlaggedAnswer.objects.bulk_create([row], ignore_conflicts=True)


def answer_forget(run: Run, prompt: Any, response: str) -> None:
    """A listener: its entry and the verdicts on it are deleted, since consent was withdrawn."""
    key = text_sha256(prompt, response)
    FlaggedAnswer.objects.filter(run=run, sample=None, text_sha256=key).delete()


def text_sha256(prompt: Any, response: str) -> str:
    said = json.dumps(prompt, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(f"{said}\n{response}".encode()).hexdigest()


def kind_of(reason: str, run_kind: str) -> str:
    """By the words of those that flag: an ensemble, a rule, and what gives no reason."""
    if run_kind in _LOOKS:
        return _Kind.PROBE
    if not reason:
        return _Kind.GUARD
    if reason.startswith(DISAGREE):
        return _Kind.DISAGREEMENT
    return _Kind.RULE if reason.startswith((_RULE, BLOCKED_PHRASE)) else _Kind.OTHER
