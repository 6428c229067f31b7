"""The circle: snapshots in, a chain of runs, fresh pairs back into the label queue."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.urls import reverse

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services import audit_record, notice_give, notices_seen
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison, Response
from apps.labeling.services import batch_queue, batch_take_back
from apps.loop import selectors
from apps.monitoring.models import Channel
from apps.monitoring.services.notifications import page_url, project_tell
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import TRAIN
from apps.snapshots.storage import artifact_store
from apps.training.models import Run
from apps.training.services import run_launch
from apps.training.services.kinds import Input
from workers.artifacts import ArtifactError
from workers.config import recipe_config

log = logging.getLogger(__name__)
UNATTENDED = (
    "A round of the loop starts by itself: its reward model is trained in the same round, so "
    "nobody "
    "could approve it before."
)


@dataclass(frozen=True, slots=True)
class CircleData:
    """The frozen datasets of one round. The two of preferences share no annotator, group or
    argument in their training rows; `circle_start` refuses them otherwise."""

    demonstrations: Snapshot
    prompts: Snapshot
    preferences: Snapshot
    judge_preferences: Snapshot
    policy_preferences: Snapshot | None = None  # what DPO learns from, where not `preferences`
    hard: Snapshot | None = None  # pairs that the reward model learns from beside `preferences`
    suite: Snapshot | None = None  # prompts with checks, on which the policy is evaluated too


@dataclass(frozen=True, slots=True)
class Pretrained:
    """Folders of the worker, below its MODEL_FOLDERS: what the policy starts from, and the encoder
    of reward model and judge."""

    policy: str
    encoder: str


# The judge of a round on pretrained models: a head on what the encoder says of a text anyway.
JUDGE_HEAD = {"head_only": True, "learning_rate": 1e-3, "epochs": 2}
SUITE = {"max_prompts": 140, "draws": 1, "temperature": 0.0, "latency_requests": 0}


def circle_start(
    *,
    project: Project,
    data: CircleData,
    user: User | None = None,
    preset: str = "demo",
    queue: str = "cpu",
    seed: int = 0,
    round_number: int = 1,
    pretrained: Pretrained | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Run]:
    """Queue SFT, both reward models, DPO, PPO, its evaluations, the assessment of the reward model
    and generation; {stage: run}.

    With `pretrained` models these are registered first: SFT starts from the policy, the reward
    model from the encoder, and the judge is a head on the encoder as it is. Without, SFT builds a
    small model, from which both start. settings: {stage: what differs from the preset}.

    Each run names the runs it reads, so all but the first wait until those are finished. Starting
    the same round again returns the runs there are. `preset` is the recipes' preset of that name.
    Raises `NotIndependent`, or what `run_launch` raises.
    """
    selectors.independence_required(preferences=data.preferences, judge=data.judge_preferences)
    runs: dict[str, Run] = {}

    def launch(stage: str, name: str, inputs: Mapping[str, Input], **config: Any) -> None:
        runs[stage] = run_launch(
            project=project,
            kind=_KINDS.get(stage, stage),
            name=name if round_number == 1 else f"{name}, round {round_number}",
            config=config
            if stage in _REGISTERED
            else {"preset": preset} | config | dict((settings or {}).get(stage, {})),
            inputs=inputs,
            seed=seed,
            queue=queue,
            user=user,
            idempotency_key=selectors.launch_key(preset, data.preferences, stage, round_number),
            override_reason=UNATTENDED if stage == "ppo" else "",
        )

    start: dict[str, Input] = {}
    if pretrained is not None:
        launch("policy", "Pretrained policy", {}, model=pretrained.policy)
        launch("encoder", "Pretrained encoder", {}, model=pretrained.encoder)
        start = {"base": runs["policy"]}
    launch("sft", "SFT", {"data": data.demonstrations} | start)
    sft = runs["sft"]
    body: dict[str, Input] = {"base": runs["encoder"]} if pretrained else {"sft": sft}
    judging = JUDGE_HEAD if pretrained else {}
    hard: dict[str, Input] = {"hard": data.hard} if data.hard else {}
    # Pairs that other people decided are asked about and never learned from: they tell swapped
    # labels, and a reward that points the wrong way from one that the policy has outwitted.
    others: dict[str, Input] = {"canaries": data.judge_preferences}
    launch("reward", "Reward model", {"data": data.preferences} | hard | body | others)
    launch("judge", "Judge reward model", {"data": data.judge_preferences} | body, **judging)
    pairs = data.policy_preferences or data.preferences
    tuned: dict[str, Input] = {"data": pairs, "sft": sft}
    launch("dpo", "DPO", tuned | others)
    models: dict[str, Input] = {"reward": runs["reward"], "judge": runs["judge"]}
    known: dict[str, Input] = others | {"reward_data": data.preferences}
    launch("ppo", "PPO", {"prompts": data.prompts, "sft": sft, **models, **known})
    policy: dict[str, Input] = {"prompts": data.prompts, "policy": runs["ppo"], "sft": sft}
    launch("evaluate", "Evaluate PPO against SFT", policy | models)
    if data.suite:
        checks: dict[str, Input] = policy | models | {"prompts": data.suite}
        launch("suite", "Regression suite of PPO against SFT", checks, **SUITE)
    launch("assess", "Assess the reward model", policy | models | {"data": data.preferences})
    launch("generate", "Fresh pairs from PPO", policy, to_people=True, queue_priority=1.0)
    return runs


_REGISTERED = {"policy": "register_policy", "encoder": "register_encoder"}
_KINDS = _REGISTERED | {"judge": "reward", "suite": "evaluate"}


@dataclass(frozen=True, slots=True)
class FreshPairs:
    """What became of a run's generated pairs: `queued` are new comparisons, `known` were there,
    `refused` could not be compared (an empty answer, or the same answer twice)."""

    queued: int = 0
    known: int = 0
    refused: int = 0


def fresh_pairs_queue(
    *,
    run: Run,
    votes: int | None = None,
    priority: float | None = None,
    by: User | None = None,
) -> FreshPairs:
    """Put the pairs that a finished generation wrote into the label queue, each once.

    `votes` each and `priority` are the run's own where they are not given. The answers carry their
    origin (model, checkpoint id), which no annotator is shown. Raises `ArtifactError` when the file
    is gone or not what was reported, `DomainError` when the rows do not fit.
    """
    artifact = selectors.pairs_file(run)
    if run.state != Run.State.FINISHED or artifact is None:
        if by is not None:
            raise Conflict("The run has not finished with pairs to send.", code="no_pairs")
        return FreshPairs()
    asked = recipe_config(run.kind, run.config)
    votes = asked.get("votes_each") if votes is None else votes
    priority = asked.get("queue_priority", 0.0) if priority is None else priority
    text = artifact_store().read_bytes(artifact.uri, sha256=artifact.sha256).decode("utf-8")
    every = pair_rows(text, run=run)
    rows = rows_said(every)
    report = batch_queue(
        project=run.project,
        rows=rows,
        batch=selectors.batch_of(run),
        votes=votes,
        priority=priority,
    )
    n_refused = report.n_refused + len(every) - len(rows)
    found = FreshPairs(report.n_created, report.n_unchanged, n_refused)
    if found.queued or (by is None and run.pk in selectors.runs_awaiting_queueing()):
        audit_record(
            action=selectors.QUEUED,
            actor=by,
            project=run.project,
            subject=run.pk,
            details={"pairs": found.queued + found.known, "refused": found.refused},
        )
    return found


def fresh_pairs_take_back(*, run: Run, by: User) -> int:
    """Take a run's pairs out of the label queue, all of them; how many there were. They can be sent
    again. Raises `Conflict` once somebody has voted on one (`import_voted`) or something else
    refers to one (`import_used`)."""
    with transaction.atomic():
        n = batch_take_back(project=run.project, batch=selectors.batch_of(run))
        if n:
            audit_record(
                action=selectors.TAKEN_BACK,
                actor=by,
                project=run.project,
                subject=run.pk,
                details={"pairs": n},
            )
    return n


def fresh_pairs_try(*, run_id: str) -> None:
    """`fresh_pairs_queue` for one run, where nobody waits for the answer: a failure is logged and
    written into the audit log, and not tried again by itself."""
    run = Run.objects.select_related("project").get(pk=run_id)
    try:
        found = fresh_pairs_queue(run=run)
    except (ArtifactError, DomainError) as error:
        log.exception("the pairs of run %s cannot be queued", run_id)
        audit_record(
            action=selectors.REFUSED,
            actor=None,
            project=run.project,
            subject=run.pk,
            details={"error": str(error)[:500]},
        )
    else:
        log.info("run %s: %d fresh pairs queued", run_id, found.queued)


# What the bell tells, and how far people have looked.


def run_end_tell(run: Run) -> None:
    """Of a run that has just ended, to those who train; checks, probes and verdicts only look."""
    if run.kind in (Run.Kind.CHECK, Run.Kind.PROBE, Run.Kind.JUDGE):
        return
    notice_give(
        project=run.project,
        roles=(Role.ENGINEER, Role.ADMIN),
        kind=f"run.{run.state}",
        text=f"{run.name}: {run.get_state_display()}",
        path=reverse("training:run", args=[run.project.slug, run.pk]),
    )
    project_tell(
        project=run.project,
        about=Channel.Tells.RUNS,
        event=f"run.{run.state}",
        body={
            "run": {
                "id": run.pk,
                "name": run.name,
                "kind": run.kind,
                "state": run.state,
                "url": page_url("training:run", run.project.slug, run.pk),
            }
        },
    )


def bell_seen(*, membership: Membership, notice: int, needs: Mapping[str, int]) -> None:
    """The person has looked at the notifications of their project."""
    notices_seen(project=membership.project, user=membership.user, notice=notice, needs=needs)


# A generation's file of pairs, as rows for the label queue.


Row = dict[str, Any]


def pair_rows(text: str, *, run: Run) -> list[Row]:
    """Rows for `comparisons_import`. `text`: JSON Lines as the recipe `generate` writes them.

    The id is the run's and the line's, so that queueing twice adds nothing; the group is that of
    the prompt in the run's prompts, so that splits keep what belongs together. Raises
    `DomainError` naming the line of a file that is not of this form.
    """
    groups = _groups(run)
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            pair = json.loads(line)
            rows.append(_row(pair, run, number, groups))
        except (ValueError, KeyError, TypeError) as error:
            raise DomainError(
                f"Line {number} of the generated pairs is not as expected: {error!r}.",
                code="bad_pairs",
                row=number,
            ) from error
    return rows


def rows_said(rows: list[Row]) -> list[Row]:
    """A file may hold empty answers; a model's of ours that says nothing is not worth people's
    time."""
    return [row for row in rows if row["response_a"].strip() and row["response_b"].strip()]


def _row(pair: Row, run: Run, number: int, groups: dict[str, Row]) -> Row:
    about = groups.get(_key(pair["prompt"]), {})
    return {
        "id": f"{run.pk}-{number}",
        "prompt": pair["prompt"],
        "response_a": pair["response_a"]["text"],
        "response_b": pair["response_b"]["text"],
        "origin": Response.Origin.MODEL.value,
        "origin_ref_a": pair["response_a"]["origin"]["checkpoint"],
        "origin_ref_b": pair["response_b"]["origin"]["checkpoint"],
        "group": about.get("group", ""),
        "source": about.get("source", ""),
        "licence": about.get("licence", ""),
        # Out of the random stratum, on which agreement is computed: these pairs are chosen by being
        # new, and they are another kind of text.
        "stratum": Comparison.Stratum.PRIORITY.value,
    }


def _groups(run: Run) -> dict[str, Row]:
    """What the run's prompts say of themselves, by prompt."""
    link = run.inputs.filter(role="prompts", snapshot__isnull=False).select_related("snapshot")
    snapshot = next((row.snapshot for row in link), None)
    if snapshot is None:
        return {}
    rows = artifact_store().lines(f"{snapshot.uri}/{TRAIN}.jsonl")
    return {_key(row["prompt"]): row for row in rows if "prompt" in row}


def _key(messages: Any) -> str:
    return json.dumps(messages, sort_keys=True)
