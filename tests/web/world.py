"""A small project with one of everything an address may name."""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, Role, User
from apps.evaluation.models import (
    AuditSheet,
    FlaggedAnswer,
    JudgeVersion,
    LabelCertificate,
    SheetItem,
)
from apps.evaluation.services.judges import judge_make
from apps.labeling.models import Comparison, ImportJob
from apps.labeling.services import comparisons_import, import_job_create
from apps.monitoring.models import Channel, Incident, Mute, Watch
from apps.snapshots.models import Snapshot
from apps.training.models import Alert, Checkpoint, Run, RunAttempt, RunEvent, Sample
from apps.training.services import metrics_store
from tests.people import person_make


@dataclass
class World:
    """Ana annotates, Rita reviews, Emil engineers, Ada administers, Olga is an outsider."""

    project: Project
    ana: User
    rita: User
    emil: User
    ada: User
    olga: User
    cookies: dict[str, dict[str, str]] = field(default_factory=dict)  # of those signed in

    def persona(self, name: str) -> User | None:
        return {
            "annotator": self.ana,
            "reviewer": self.rita,
            "engineer": self.emil,
            "admin": self.ada,
            "outsider": self.olga,
            "anonymous": None,
        }[name]

    @cached_property
    def comparison(self) -> Comparison:
        """A pair nobody holds or has judged."""
        row = {"prompt": "Which?", "response_a": "This.", "response_b": "That."}
        comparisons_import(project=self.project, rows=[row])
        return Comparison.objects.get(project=self.project)

    @cached_property
    def import_job(self) -> ImportJob:
        """A file that waits to be checked."""
        row = b'{"prompt": "Which?", "response_a": "One.", "response_b": "Two."}'
        return import_job_create(
            project=self.project, by=self.emil, file_name="rows.jsonl", chunks=[row]
        )

    @cached_property
    def snapshot(self) -> Snapshot:
        return Snapshot.objects.create(
            project=self.project,
            name="pairs",
            kind=Snapshot.Kind.PREFERENCES,
            state=Snapshot.State.FROZEN,
            uri="snapshots/none",
            sha256="0" * 64,
            frozen_at=timezone.now(),
        )

    @cached_property
    def run(self) -> Run:
        """A finished drill."""
        now = timezone.now()
        run = Run.objects.create(
            project=self.project,
            name="drill",
            kind=Run.Kind.DRILL,
            state=Run.State.FINISHED,
            attempt=1,
            step=5,
            total_steps=5,
            started_at=now,
            ended_at=now,
        )
        RunAttempt.objects.create(run=run, number=1, outcome="finished", ended_at=now)
        return run

    @cached_property
    def seed(self) -> Run:
        """A finished drill of a group of seeds."""
        return Run.objects.create(
            project=self.project,
            name="drill, seed 1",
            kind=Run.Kind.DRILL,
            state=Run.State.FINISHED,
            seed=1,
            group="thegroup",
            ended_at=timezone.now(),
        )

    @cached_property
    def alert(self) -> Alert:
        return Alert.objects.create(
            run=self.run,
            attempt=1,
            seq=1,
            step=3,
            rule="kl",
            severity="warning",
            message="KL is over its target",
            raised_at=timezone.now(),
        )

    @cached_property
    def incident(self) -> Incident:
        now = timezone.now()
        return Incident.objects.create(
            project=self.project,
            key="watch:1",
            link="reward",
            rule="probe_drift",
            title="The reward model answers differently",
            severity="warning",
            opened_at=now,
            heard_at=now,
        )

    @cached_property
    def mute(self) -> Mute:
        until = timezone.now() + timedelta(hours=1)
        return Mute.objects.create(project=self.project, reason="a move", until=until)

    @cached_property
    def channel(self) -> Channel:
        return Channel.objects.create(
            project=self.project, kind="webhook", address="https://example.org/hook", secret="s"
        )

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint.objects.create(
            project=self.project,
            run=self.run,
            attempt=1,
            step=5,
            uri="runs/x/attempt-1/checkpoints/step-5",
            sha256="0" * 64,
            tags=["last", "best"],
        )

    @cached_property
    def reward_model(self) -> Checkpoint:
        """A candidate that nobody has assessed."""
        now = timezone.now()
        run = Run.objects.create(
            project=self.project,
            name="rewards",
            kind=Run.Kind.REWARD,
            state=Run.State.FINISHED,
            started_at=now,
            ended_at=now,
        )
        return Checkpoint.objects.create(
            project=self.project,
            run=run,
            attempt=1,
            step=5,
            uri="runs/y/attempt-1/checkpoints/step-5",
            sha256="1" * 64,
            tags=["final"],
        )

    @cached_property
    def flagged(self) -> FlaggedAnswer:
        """An answer of the drill that waits for a verdict, with its sample."""
        prompt = [{"role": "user", "content": "Why?"}]
        sample = Sample.objects.create(
            run=self.run, attempt=1, seq=1, step=3, bucket="flagged", prompt=prompt, response="So."
        )
        return FlaggedAnswer.objects.create(
            project=self.project,
            run=self.run,
            sample=sample,
            kind=FlaggedAnswer.Kind.RULE,
            reason="rule length: the answer is short",
            step=3,
            prompt=prompt,
            response="So.",
            text_sha256="0" * 64,
        )

    @cached_property
    def sheet(self) -> AuditSheet:
        """An open one with one answer, which nobody has judged."""
        sheet = AuditSheet.objects.create(
            project=self.project,
            checkpoint=self.reward_model,
            run=self.reward_model.run,
            seed=1,
            n_random=1,
            n_extreme=0,
            n_baseline=0,
        )
        prompt = [{"role": "user", "content": "Why?"}]
        SheetItem.objects.create(
            sheet=sheet, place=1, source="policy", stratum="random", prompt=prompt, response="So."
        )
        return sheet

    @cached_property
    def judge(self) -> JudgeVersion:
        """The reward model as a judge, which nobody has measured."""
        return judge_make(
            project=self.project, name="Judy", model=self.reward_model, config={}, user=self.emil
        )

    @cached_property
    def certificate(self) -> LabelCertificate:
        """Valid, and without a label."""
        return LabelCertificate.objects.create(
            version=self.judge,
            project=self.project,
            scope={"kind": "project", "name": ""},
            against="decision",
            error=0.1,
            failure=0.05,
            audited=0.1,
            look=1,
            threshold=0.9,
            figures={"n": 50, "n_labelled": 40, "errors": 0, "coverage": 0.8, "level": 0.03},
            sha256="2" * 64,
        )

    @cached_property
    def watch(self) -> Watch:
        """The reward model, in service."""
        return Watch.objects.create(
            project=self.project,
            kind=Watch.Kind.REWARD,
            name="judge",
            checkpoint=self.reward_model,
            prompts=self.snapshot,
            next_at=timezone.now(),
        )


def world_make() -> World:
    project = Project.objects.create(slug="arguments", name="Arguments")
    elsewhere = Project.objects.create(slug="elsewhere", name="Elsewhere")
    world = World(
        project=project,
        ana=person_make("Ana", project, Role.ANNOTATOR),
        rita=person_make("Rita", project, Role.REVIEWER),
        emil=person_make("Emil", project, Role.ENGINEER),
        ada=person_make("Ada", project, Role.ADMIN),
        olga=person_make("Olga", elsewhere, Role.ADMIN),
    )
    _ = world.comparison, world.snapshot, world.checkpoint, world.alert, world.import_job
    _ = world.reward_model, world.seed, world.incident, world.mute, world.channel
    _ = world.watch, world.flagged, world.sheet, world.judge, world.certificate
    return world


# Runs as their events leave them, without a worker.


def run_make(project: Project, *, by: User | None = None, **fields: Any) -> Run:
    """A running drill at step 40 of 100, unless told otherwise."""
    values: dict[str, Any] = {
        "name": "warm-up",
        "kind": "drill",
        "state": "running",
        "attempt": 1,
        "step": 40,
        "total_steps": 100,
        "config": {"steps": 100},
        "started_at": timezone.now(),
        "heard_at": timezone.now(),
    } | fields
    if values["state"] in Run.ENDED_STATES:
        values.setdefault("ended_at", timezone.now())
    if values["state"] == "failed":
        values.setdefault("failure_kind", "bad_data")
    run = Run.objects.create(project=project, created_by=by, **values)
    RunAttempt.objects.create(
        run=run, number=1, opened_at=timezone.now(), environment={"host": "box", "gpus": []}
    )
    return run


def event_add(run: Run, seq: int, type_: str, body: dict[str, Any], attempt: int = 1) -> RunEvent:
    _heard(run, seq, attempt)
    return RunEvent.objects.create(
        run=run, attempt=attempt, seq=seq, at=timezone.now(), type=type_, body=body
    )


def metrics_add(run: Run, seq: int, steps: list[int], **values: list[Any]) -> None:
    _heard(run, seq - 1, 1)
    series = {
        name.replace("__", "/"): list(zip(steps, points, strict=True))
        for name, points in values.items()
    }
    metrics_store(run=run, attempt=1, series=series)


def _heard(run: Run, seq: int, attempt: int) -> None:
    """The attempt's events up to `seq` are in, as after a batch."""
    RunAttempt.objects.filter(run=run, number=attempt, last_seq__lt=seq).update(last_seq=seq)
