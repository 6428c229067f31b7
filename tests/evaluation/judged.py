"""Projects with pairs and votes, judges, and runs that answered as a function says, without a
worker."""

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.evaluation.models import JudgeRun, JudgeVersion
from apps.evaluation.services.judge_sweep import judges_sweep
from apps.evaluation.services.judges import judge_make
from apps.labeling import services as labeling
from apps.labeling.models import LabelingSettings
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Checkpoint, Run
from tests.evaluation.outputs import checkpoint_make

FULL, SHORT = "A long and full answer, with an example and a reason", "Short"
# (pair as the run was given it, whether A is shown first) to P(the answer shown first is better).
Answer = Callable[[Mapping[str, Any], bool], float | None]


def words(number: int, side: str, *, is_long: bool, quality: float) -> str:
    """An answer that says how good it is, for judges of tests to read."""
    return f"{FULL if is_long else SHORT} {number}{side} quality={quality:.3f}"


def quality_of(text: str) -> float:
    return float(text.rsplit("quality=", 1)[1].split()[0])


def voted(
    project: Project,
    n: int,
    *,
    people: int = 8,
    votes: int = 2,
    seed: int = 0,
    start: int = 0,
    noise: float = 1.0,
    models: tuple[str, str] = ("", ""),
    unvoted: int = 0,
    prompts: int = 0,
) -> None:
    """n pairs with so many votes each and `unvoted` without. People prefer the better answer, with
    logistic noise, and care nothing for length; long and short is drawn apart from quality.
    prompts: so many that are asked again and again; 0: a prompt for each pair."""
    LabelingSettings.objects.update_or_create(project=project, defaults={})
    draw = random.Random(seed)
    rows, cast = [], []
    for number in range(start, start + n + unvoted):
        qualities = draw.gauss(0, 1), draw.gauss(0, 1)
        a_long = draw.random() < 0.5
        asked = number % prompts if prompts else number
        row: dict[str, Any] = {"id": f"pair-{number}", "prompt": f"Question {asked}: why?"}
        for side, quality, is_long in zip("ab", qualities, (a_long, not a_long), strict=True):
            row[f"response_{side}"] = words(number, side, is_long=is_long, quality=quality)
        for side, model in zip("ab", models, strict=True):
            if model:
                row |= {f"metadata_{side}": {"model": model}}
        rows.append(row)
        if number >= start + n:
            continue
        p = 1 / (1 + math.exp(-(qualities[0] - qualities[1]) / noise))
        for who in draw.sample(range(people), votes):
            choice = "a" if draw.random() < p else "b"
            cast.append({"comparison": row["id"], "annotator": f"w{who}", "choice": choice})
    labeling.comparisons_import(project=project, rows=rows)
    labeling.votes_import(project=project, rows=cast)


def judge_of(
    project: Project, user: User, *, kind: str = "served", name: str = "Judy", **config: Any
) -> JudgeVersion:
    """A judge; `kind` of the run that left its model."""
    return judge_make(
        project=project, name=name, model=model_of(project, kind), config=config, user=user
    )


def model_of(project: Project, kind: str = "served") -> Checkpoint:
    return checkpoint_make(project, kind=kind)


def right(sharpness: float = 2.0) -> Answer:
    """Knows what is better, and says how sure it is."""

    def answer(pair: Mapping[str, Any], a_first: bool) -> float:
        a, b = (quality_of(text_of(pair, side)) for side in "ab")
        p = 1 / (1 + math.exp(-sharpness * (a - b)))
        return p if a_first else 1 - p

    return answer


def longer_is_better(pair: Mapping[str, Any], a_first: bool) -> float:
    a, b = (len(text_of(pair, side)) for side in "ab")
    return 0.9 if (a > b) == a_first else 0.1


def first_is_better(pair: Mapping[str, Any], a_first: bool) -> float:
    return 0.9


def text_of(pair: Mapping[str, Any], side: str) -> str:
    return str(pair[f"response_{side}"][0]["content"])


def answered(
    asked: JudgeRun | None,
    answer: Answer,
    *,
    fingerprint: str = "",
    attacks: Mapping[str, Any] | None = None,
    sweep: bool = True,
) -> None:
    """The run has ended with these verdicts, and the scheduler has come by."""
    assert asked is not None
    pairs = list(artifact_store().lines(f"{asked.pairs.uri}/pairs.jsonl"))
    rows = [
        {
            "pair": pair["pair"],
            "first": answer(pair, True),
            "second": answer(pair, False),
            "said": ["A", "B"],
        }
        for pair in pairs
    ]
    summary = {"step": 1, "pairs": len(rows), "fingerprint": fingerprint}
    ended(asked.run, rows, summary | ({"attacks": dict(attacks)} if attacks else {}))
    if sweep:
        judges_sweep()


def ended(run: Run, rows: Iterable[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    uri = f"runs/{run.pk}/verdicts.jsonl"
    artifact_store().write_bytes(uri, data)
    Artifact.objects.create(
        run=run,
        attempt=1,
        seq=1,
        name="verdicts.jsonl",
        purpose="verdicts",
        uri=uri,
        sha256=_sha256(data),
        size_bytes=len(data),
        count=len(data.splitlines()),
        media_type="application/jsonl",
    )
    Run.objects.filter(pk=run.pk).update(
        state="finished", summary=dict(summary), ended_at=timezone.now()
    )


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def names(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {row["name"] for row in rows if row["is_shown"]}
