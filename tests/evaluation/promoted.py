"""A policy whose every line of evidence holds, as its runs leave it; and how it is promoted."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from django.utils import timezone

from apps.accounts.models import Project, Role, User
from apps.evaluation.models import (
    AuditSheet,
    EvaluationProtocol,
    HeadToHead,
    ModelReview,
    PromotionDecision,
    PromotionRequest,
    ProtocolUse,
    SheetItem,
    StageChange,
    Verdict,
)
from apps.evaluation.selectors.head_to_head import result_to_json
from apps.evaluation.selectors.promotion import stage_now
from apps.evaluation.services.promoting import (
    promotion_approve,
    promotion_override,
    promotion_request,
)
from apps.labeling.models import EvaluationSet
from apps.monitoring.models import Incident
from apps.snapshots.models import Snapshot
from apps.training.models import Artifact, Checkpoint, Run, RunAttempt, RunInput
from measures.head_to_head import Plan, Votes, result_of
from tests.evaluation.assessed import model_make
from tests.people import person_make

Ask = Callable[..., PromotionRequest]
CHECKS = ("data", "template", "lengths", "reward", "reward_shape", "eval_overlap", "memory")
CONFIG = {"steps": 400}


def snapshot_made(project: Project, name: str = "questions") -> Snapshot:
    return Snapshot.objects.create(
        project=project,
        name=name,
        kind=Snapshot.Kind.PROMPTS,
        state=Snapshot.State.FROZEN,
        uri="snapshots/none",
        sha256="5" * 64,
        frozen_at=timezone.now(),
    )


def run_made(project: Project, kind: str, name: str, **fields: Any) -> Run:
    now = timezone.now()
    values = {
        "state": Run.State.FINISHED,
        "attempt": 1,
        "started_at": now,
        "ended_at": now,
        "code_version": "0.9.0",
    } | fields
    run = Run.objects.create(project=project, kind=kind, name=name, **values)
    RunAttempt.objects.create(
        run=run, number=1, outcome="finished", ended_at=now, spec={"kind": kind}
    )
    return run


def saved(run: Run, step: int = 400, **fields: Any) -> Checkpoint:
    values = {
        "sha256": f"{step:064d}",
        "size_bytes": 1_200_000_000,
        "tags": ["final", "best", "last"],
    } | fields
    return Checkpoint.objects.create(
        project=run.project,
        run=run,
        attempt=1,
        step=step,
        uri=f"runs/{run.pk}/attempt-1/checkpoints/step-{step}",
        **values,
    )


def reward_approved(project: Project, by: User | None = None) -> Checkpoint:
    reward = model_make(project)
    Run.objects.filter(pk=reward.run_id).update(code_version="0.9.0")
    ModelReview.objects.create(
        project=project,
        checkpoint=reward,
        status=Checkpoint.Status.APPROVED,
        by=by,
        by_name="Ada",
        state={},
        state_sha256="a" * 64,
    )
    Checkpoint.objects.filter(pk=reward.pk).update(status=Checkpoint.Status.APPROVED)
    reward.refresh_from_db()
    return reward


def policy_made(
    project: Project, name: str = "assistant", *, seeds: int = 3, evaluated: bool = True
) -> Checkpoint:
    """The final checkpoint of the first of `seeds` finished PPO runs."""
    prompts = snapshot_made(project, f"questions of {name}")
    base = saved(
        run_made(project, "register_policy", f"base of {name}", summary={"licence": "mit"}), 0
    )
    reward = reward_approved(project)
    runs = [
        run_made(
            project,
            "ppo",
            f"{name}, seed {seed}",
            seed=seed,
            group=f"g{name}"[:40],
            config=CONFIG,
            summary={"preflight": {"level": "ok", "checks": dict.fromkeys(CHECKS, "ok")}},
        )
        for seed in range(seeds)
    ]
    for run in runs:
        RunInput.objects.create(run=run, role="prompts", snapshot=prompts)
        RunInput.objects.create(run=run, role="sft", checkpoint=base)
        RunInput.objects.create(run=run, role="reward", checkpoint=reward)
    model = saved(runs[0])
    if evaluated:
        evaluation_made(model)
        suite_made(model)
        compared_by_people(model)
        audited(model)
    return model


def protocol_kept(run: Run) -> None:
    made, _ = EvaluationProtocol.objects.get_or_create(
        project=run.project, sha256="c" * 64, defaults={"content": {"engine": "tests"}}
    )
    ProtocolUse.objects.create(run=run, protocol=made)


def suite_made(model: Checkpoint, standing: str = "not_worse", worse: Sequence[str] = ()) -> Run:
    """An evaluation on a regression suite alone."""
    found = {"lost": 1, "won": 2, "lowest": -0.02}
    summary = {
        "prompts": 140,
        "judge": {"win_rate": {"value": 0.2, "low": 0.1, "high": 0.3, "n": 140}},
        "regression": {
            "checks": 140,
            "margin": 0.03,
            "standing": standing,
            "worse": list(worse),
            "all": found,
            "categories": {},
            "lost": [],
        },
    }
    run = run_made(model.project, "evaluate", f"suite of {model.pk}", summary=summary)
    RunInput.objects.create(run=run, role="policy", checkpoint=model)
    return run


def compared_by_people(
    model: Checkpoint,
    win: float = 1.0,
    *,
    people: int = 12,
    second: Checkpoint | None = None,
    n: int = 120,
    **fields: Any,
) -> HeadToHead:
    """People of one mind, on n prompts, of which the share `win` is won, spread evenly."""
    votes = Votes(
        score=np.diff(np.floor(np.arange(n + 1) * win + 1e-9)),
        both_bad=np.zeros(n, dtype=bool),
        prompt=np.arange(n),
        person=np.arange(n) % people,
        left=np.arange(n) % 2.0,
    )
    result = result_of(votes, Plan(prompts=n), ended=True)
    pairs = EvaluationSet.objects.create(
        project=model.project, first_task=1, last_task=n, most_each=15, is_open=False
    )
    values: dict[str, Any] = {
        "project": model.project,
        "name": "people",
        "first_name": "Assistant",
        "second_name": "Base",
        "first": model,
        "second": second,
        "pairs": pairs,
        "n_prompts": n,
        "protocol": {},
        "protocol_sha256": "b" * 64,
        "ended_at": timezone.now(),
        "verdict": result.verdict.value,
        "result": result_to_json(result),
    }
    return HeadToHead.objects.create(**values | fields)


def audited(model: Checkpoint, n: int = 60, bad: int = 0) -> AuditSheet:
    """n random answers of the policy, `bad` of them bad."""
    sheet = AuditSheet.objects.create(
        project=model.project,
        checkpoint=model,
        run=model.run,
        seed=1,
        n_random=n,
        n_extreme=0,
        n_baseline=0,
        state=AuditSheet.State.FINISHED,
        ended_at=timezone.now(),
    )
    for place in range(1, n + 1):
        item = SheetItem.objects.create(
            sheet=sheet,
            place=place,
            source="policy",
            stratum="random",
            prompt=[{"role": "user", "content": f"{place}?"}],
            response="Yes.",
        )
        Verdict.objects.create(
            project=model.project,
            item=item,
            value="bad" if place <= bad else "fine",
            by_name="Rita",
        )
    return sheet


def evaluation_made(
    model: Checkpoint, value: float = 0.62, half: float = 0.05, *, judged: bool = True
) -> Run:
    rate = {"value": value, "low": value - half, "high": value + half, "n": 512}
    summary: dict[str, Any] = {"prompts": 512, "reward": {"win_rate": rate | {"low": 0.9}}}
    if judged:
        summary["judge"] = {"win_rate": rate}
    summary["latency"] = {"without_score": {"requests": 20, "p50_ms": 210.0, "p99_ms": 400.0}}
    run = run_made(model.project, "evaluate", f"evaluation of {model.pk}", summary=summary)
    RunInput.objects.create(run=run, role="policy", checkpoint=model)
    prompts = model.run.inputs.get(role="prompts").snapshot
    RunInput.objects.create(run=run, role="prompts", snapshot=prompts)
    protocol_kept(run)
    Artifact.objects.create(
        run=run,
        attempt=1,
        seq=1,
        name="evaluation.json",
        uri="runs/x/evaluation.json",
        sha256="e" * 64,
        size_bytes=10,
    )
    return run


# Faults.


def evaluation_lost(model: Checkpoint) -> None:
    Run.objects.filter(kind="evaluate").exclude(summary__has_key="regression").delete()


def lower_end_under_half(model: Checkpoint) -> None:
    evaluation_made(model, 0.54)


def critical_incident(model: Checkpoint) -> None:
    now = timezone.now()
    Incident.objects.create(
        project=model.project,
        key="watch:1",
        checkpoint=model,
        rule="probe_weights",
        title="Other weights answer",
        severity="critical",
        opened_at=now,
        heard_at=now,
    )


def sign(request: PromotionRequest, user: User, reason: str = "urgent") -> Any:
    return promotion_override(
        project=request.project, request_id=request.pk, user=user, seen_change=0, reason=reason
    )


# People who promote it.


@pytest.fixture
def bea(project: Project) -> User:
    return person_make("Bea", project, Role.ADMIN)


@pytest.fixture
def model(project: Project) -> Checkpoint:
    return policy_made(project)


@pytest.fixture
def ask(project: Project, emil: User, model: Checkpoint) -> Ask:
    def make(
        given: Checkpoint | None = None, stage: str = "production", **more: Any
    ) -> PromotionRequest:
        found = given or model
        return promotion_request(
            project=project,
            checkpoint_id=found.pk,
            stage=stage,
            **({"user": emil} | more),
        )

    return make


@pytest.fixture
def serve(project: Project, ask: Ask, ada: User) -> Callable[..., StageChange]:
    """Asked by Emil, approved by Ada."""

    def make(model: Checkpoint, stage: str = "production", **more: Any) -> StageChange:
        request = ask(model, stage, **more)
        now = stage_now(project=project, stage=stage)
        promotion_approve(
            project=project,
            request_id=request.pk,
            user=ada,
            seen_change=now.number if now else 0,
        )
        made = stage_now(project=project, stage=stage)
        assert made is not None
        return made

    return make


def approve(request: PromotionRequest, user: User, seen: int = 0) -> PromotionDecision:
    return promotion_approve(
        project=request.project, request_id=request.pk, user=user, seen_change=seen
    )
