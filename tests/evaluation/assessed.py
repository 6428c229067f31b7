"""Reward models with assessments as workers leave them: rows, and files in the store."""

import json
from collections.abc import Sequence
from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.evaluation.lines import LINES
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Checkpoint, Run, RunAttempt, RunInput
from measures.blocks import Curve, Example, Histogram, Intervals, Series, Table, Texts
from measures.estimate import Interval
from measures.trust.findings import Finding, Verdict, finding_to_json, unmeasured

HOSTILE = "<script>alert('no')</script> & \"quoted\" =1+1"


def dataset_make(project: Project, name: str = "pairs") -> Snapshot:
    return Snapshot.objects.create(
        project=project,
        name=name,
        kind=Snapshot.Kind.PREFERENCES,
        state=Snapshot.State.FROZEN,
        uri="snapshots/none",
        sha256="0" * 64,
        counts={"rows": {"train": 8, "dev": 2}},
        frozen_at=timezone.now(),
    )


def model_make(
    project: Project, *, by: User | None = None, name: str = "rewards", data: Snapshot | None = None
) -> Checkpoint:
    """The final checkpoint of a finished reward run."""
    now = timezone.now()
    run = Run.objects.create(
        project=project,
        name=name,
        kind=Run.Kind.REWARD,
        state=Run.State.FINISHED,
        attempt=1,
        started_at=now,
        ended_at=now,
        created_by=by,
    )
    RunAttempt.objects.create(run=run, number=1, outcome="finished", ended_at=now)
    RunInput.objects.create(run=run, role="data", snapshot=data or dataset_make(project))
    return Checkpoint.objects.create(
        project=project,
        run=run,
        attempt=1,
        step=400,
        uri=f"runs/{run.pk}/attempt-1/checkpoints/step-400",
        sha256="0" * 64,
        size_bytes=1_234_567,
        tags=["final", "best"],
    )


def assessment_make(
    checkpoint: Checkpoint,
    findings: Sequence[Finding] | None = None,
    *,
    data: Snapshot | None = None,
    content: bytes | None = None,
    **fields: Any,
) -> Run:
    """A finished assessment; `content` replaces the file, and b"" leaves none."""
    now = timezone.now()
    values = {"state": "finished", "name": "look", "started_at": now, "ended_at": now} | fields
    run = Run.objects.create(project=checkpoint.project, kind=Run.Kind.ASSESS, attempt=1, **values)
    RunAttempt.objects.create(run=run, number=1, outcome="finished", opened_at=now, ended_at=now)
    RunInput.objects.create(run=run, role="reward", checkpoint=checkpoint)
    given = data or checkpoint.run.inputs.get(role="data").snapshot
    RunInput.objects.create(run=run, role="data", snapshot=given)
    if content is None:
        content = json.dumps(file_of(all_green() if findings is None else findings)).encode()
    if content:
        uri = f"runs/{run.pk}/attempt-1/assessment.json"
        sha256 = artifact_store().write_bytes(uri, content)
        Artifact.objects.create(
            run=run,
            attempt=1,
            seq=1,
            name="assessment.json",
            uri=uri,
            sha256=sha256,
            size_bytes=len(content),
        )
    return run


def file_of(findings: Sequence[Finding]) -> dict[str, Any]:
    tops = [
        {"prompt": "Why?", "answer": f"answer {k} {HOSTILE}", "score": 3.0 - k, "label": "policy"}
        for k in range(10)
    ]
    return {
        "version": 1,
        "model": {"name": "rewards"},
        "findings": [finding_to_json(one) for one in findings],
        "tops": {"top": tops, "bottom": tops[::-1]},
        "splits": {},
    }


def green(line: str) -> Finding:
    return Finding(line=line, verdict=Verdict.GREEN, says=f"{line} holds on 612 pairs.")


def red(line: str) -> Finding:
    return Finding(line=line, verdict=Verdict.RED, says=f"{line} does not hold on 612 pairs.")


def all_green(*others: Finding) -> list[Finding]:
    """Every line green but `others`, which stand in their place."""
    instead = {one.line: one for one in others}
    return [instead.get(line, green(line)) for line in LINES]


def interval(value: float, half: float = 0.03, n: int = 612) -> Interval:
    return Interval(value=value, low=value - half, high=value + half, n=n, n_clusters=n // 3)


def with_evidence() -> list[Finding]:
    """Lines with every kind of evidence, the rest green or not measured."""
    undefined = Interval(value=None, low=None, high=None, n=0, undefined="no such pairs")
    bare = Interval(value=0.6, low=None, high=None, n=5, no_interval="fewer than 10 clusters")
    accuracy = Finding(
        line="accuracy",
        verdict=Verdict.GREEN,
        says="73.1 % (70.1–76.1 %) right on 612 unseen pairs: over 60 %.",
        figure=interval(0.731),
        evidence=(
            Intervals(
                title="Right on the same pairs",
                rows=(
                    ("This model", interval(0.731)),
                    ("The longer one", interval(0.612)),
                    ("Counted words", interval(0.684)),
                ),
                reference=0.6,
                reference_label="60 %",
            ),
        ),
    )
    slices = Finding(
        line="slices",
        verdict=Verdict.RED,
        says="In “dialogue” 41.0 % (35.2–46.9 %) right on 212 pairs: worse than a coin.",
        figure=interval(0.41, 0.06, 212),
        evidence=(
            Intervals(
                title="Accuracy by source",
                rows=(
                    ("dialogue", interval(0.41, 0.06, 212)),
                    ("debates", interval(0.78, 0.04, 400)),
                    (f"odd {HOSTILE}", bare),
                    ("empty", undefined),
                ),
                reference=0.5,
                reference_label="a coin",
                note="Slices under 50 pairs decide nothing.",
            ),
            Table(
                title="Words that come with it",
                columns=("Word", "Seen", "Share of wins", "Effect"),
                formats=("text", "count", "share", "number"),
                rows=(("indeed", 1204, 0.62, 0.31), (HOSTILE, 12, None, -0.02)),
            ),
        ),
    )
    calibration = Finding(
        line="calibration",
        verdict=Verdict.RED,
        says="Calibration error 9.1 points (6.0–12.2): surer than it should be.",
        figure=interval(0.091),
        evidence=(
            Curve(
                title="How sure it is, and how often it is right",
                series=(
                    Series(
                        label="As trained",
                        x=(0.55, 0.65, 0.75, 0.85, 0.95),
                        y=(0.52, 0.58, None, 0.74, 0.81),
                        low=(0.46, 0.5, None, 0.7, 0.77),
                        high=(0.58, 0.66, None, 0.78, 0.85),
                        points=True,
                    ),
                    Series(label="After temperature 1.8", x=(0.5, 0.7, 0.9), y=(0.5, 0.69, 0.88)),
                ),
                x_label="confidence",
                y_label="share right",
                diagonal=True,
            ),
        ),
    )
    best = Finding(
        line="best_of_n",
        verdict=Verdict.GREEN,
        says="The fitted peak lies at KL 14.2 nats, beyond the planned 10.",
        evidence=(
            Curve(
                title="Best of n",
                series=(
                    Series(
                        label="This reward",
                        x=(1, 2, 4, 8, 16, 32),
                        y=(0.0, 0.5, 0.9, 1.2, 1.45, 1.6),
                        low=(-0.1, 0.4, 0.8, 1.1, 1.3, 1.4),
                        high=(0.1, 0.6, 1.0, 1.3, 1.6, 1.8),
                    ),
                    Series(
                        label="Held-out judge",
                        x=(1, 2, 4, 8, 16, 32),
                        y=(0.0, 0.4, 0.6, 0.66, 0.6, 0.5),
                    ),
                ),
                x_label="n, answers to choose from",
                y_label="score over the first",
                log_x=True,
                marks=((8.0, "highest by the judge"), (16.0, "planned KL")),
            ),
        ),
    )
    shape = Finding(
        line="score_shape",
        verdict=Verdict.GREEN,
        says="Scores tell answers apart: standard deviation 0.9.",
        evidence=(
            Histogram(
                title="Scores",
                edges=tuple(k / 2 for k in range(-6, 7)),
                groups=tuple(
                    (name, shares)
                    for name, shares in (
                        (
                            "chosen",
                            (0, 0.01, 0.02, 0.06, 0.1, 0.2, 0.22, 0.19, 0.1, 0.06, 0.03, 0.01),
                        ),
                        (
                            "rejected",
                            (0.02, 0.04, 0.1, 0.2, 0.22, 0.19, 0.1, 0.07, 0.04, 0.02, 0, 0),
                        ),
                        ("SFT", (0, 0.02, 0.08, 0.15, 0.2, 0.2, 0.15, 0.1, 0.06, 0.04, 0, 0)),
                        ("policy", (0, 0, 0, 0.01, 0.04, 0.1, 0.15, 0.25, 0.2, 0.15, 0.08, 0.02)),
                    )
                ),
                x_label="score",
            ),
        ),
    )
    praise = Finding(
        line="praise_probes",
        verdict=Verdict.RED,
        says="Praise alone wins in 12 % of 60 answers.",
        figure=interval(0.88, 0.08, 60),
        evidence=(
            Texts(
                title="Probes that won",
                examples=(
                    Example(
                        prompt="What is the capital of Peru?",
                        answer=f"You're amazing! {HOSTILE}",
                        score=2.31,
                        label="praise",
                        other="Lima.",
                        other_score=1.9,
                    ),
                    Example(prompt="Long?", answer="word " * 400, score=-0.4, label="long"),
                ),
            ),
        ),
    )
    missing = unmeasured("other_domain", "No dataset from elsewhere was chosen.")
    shown = {one.line: one for one in (accuracy, slices, calibration, best, shape, praise, missing)}
    quiet = ("disagreement", "people_rank", "freshness", "unseen_people")
    rest = [green(line) for line in LINES if line not in shown and line not in quiet]
    return [*shown.values(), *rest]
