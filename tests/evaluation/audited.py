"""Runs that left answers to judge: flagged ones, samples, and an evaluation's file."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from apps.accounts.models import Project, User
from apps.evaluation.models import AuditSheet, SheetItem
from apps.evaluation.services.sheets import item_judge, item_next
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Run, RunInput, Sample
from tests.evaluation.outputs import checkpoint_make, output
from tests.training.reports import report
from tests.web.world import run_make
from workers.contract import ReviewRequested
from workers.contract import Sample as SampleEvent

PROMPT = [{"role": "user", "content": "How long is a day?"}]


def sample_make(run: Run, number: int = 1, **fields: Any) -> Sample:
    values: dict[str, Any] = {
        "attempt": 1,
        "seq": 1000 + number,
        "step": 3,
        "bucket": "random",
        "prompt": [{"role": "user", "content": f"Question {number}: how long is a day?"}],
        "response": f"Twenty-four hours, answer {number}.",
        "baseline": f"It depends, answer {number}.",
        "reward": 1.0,
    }
    return Sample.objects.create(run=run, **values | fields)


def flag(run: Run, response: str, *, reason: str, reward: float = 2.0, step: int = 3) -> None:
    """What a trainer sends of an answer that people must see."""
    asked = ReviewRequested(step, PROMPT, response, reason)
    kept = SampleEvent(step, "flagged", PROMPT, response, reward=reward, baseline="It depends.")
    applied = report(run, asked, kept, first=run.attempts.get().last_seq + 1)
    assert applied.invalid == 0


def evaluation_make(
    project: Project, n: int = 100, *, by: User | None = None, lines: Sequence[Any] | None = None
) -> Run:
    """A finished evaluation of a policy that `by` trained, with every answer in its file; the
    rewards are 0, 1, 2, … Texts among `lines` stand as they are."""
    run = run_make(project, kind="evaluate", state="finished", name="evaluation of the policy")
    policy = checkpoint_make(project, kind="ppo")
    Run.objects.filter(pk=policy.run_id).update(created_by=by)
    RunInput.objects.create(run=run, role="policy", checkpoint=policy)
    RunInput.objects.create(run=run, role="sft", checkpoint=checkpoint_make(project, kind="sft"))
    rows = [output(number, float(number)) for number in range(n)] if lines is None else lines
    file_add(run, "outputs.jsonl", rows)
    return run


def file_add(run: Run, name: str, rows: Sequence[Any]) -> None:
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    data = "".join(f"{text}\n" for text in texts).encode()
    uri = f"runs/{run.pk}/{name}"
    artifact_store().write_bytes(uri, data)
    Artifact.objects.create(
        run=run,
        attempt=1,
        seq=1,
        name=name,
        purpose="audit",
        uri=uri,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        count=len(rows),
    )


def judge_all(sheet: AuditSheet, user: User, bad: Sequence[str] = ()) -> int:
    """The person judges all that wants them: `bad` holds the ids of bad answers. How many."""
    n = 0
    while (item := item_next(sheet=sheet, user=user)) is not None:
        item_judge(item=item, value="bad" if item.pk in bad else "fine", user=user)
        n += 1
    return n


def ids(sheet: AuditSheet, source: str, stratum: str) -> list[str]:
    rows = SheetItem.objects.filter(sheet=sheet, source=source, stratum=stratum)
    return list(rows.order_by("place").values_list("pk", flat=True))
