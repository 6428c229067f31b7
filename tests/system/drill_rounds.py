"""Every part of a site is killed in every step of a round, which ends with the same rows.

A small project generates pairs, people vote on them, a dataset is frozen, a reward model trained,
assessed and approved, a policy trained by DPO, evaluated and promoted. In each step the web server,
the event worker, the scheduler, the worker that moves rounds, the trainer and its worker are killed
by -9, those that there are. Then: each step is done once, by one run, one dataset or one decision;
nothing was launched beside.

Run: python -m tests.system.drill_rounds [--only STEP …]
"""

import argparse
import sys
import time
from collections import Counter

from tests.system.a_site import Site, kill, temporary_folder, wait_for

STEP_SECONDS = 420.0  # until a step is over after the kills; several starts of torch
PARTS: dict[str, tuple[str, ...]] = {
    "web": ("config.web",),
    "event worker": ("celery", "events@"),
    "scheduler": ("celery", "beat"),
    "worker that moves rounds": ("celery", "imports@"),
    "trainer": ("workers.train",),
    "training worker": ("celery", "train@"),
}
PEOPLE = 6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="*", default=[], help="steps in which to kill")
    only = arguments.parse_args().only
    with temporary_folder() as folder:
        with Site(folder / "var") as site:
            site.connect()
            faults = played(site, only)
        if left := site.still_there():
            faults.append(f"left behind: {left}")
    print("\n".join(["", *(faults or ["every step was done once"])]))  # noqa: T201
    sys.exit(bool(faults))


def played(site: Site, only: list[str]) -> list[str]:
    from apps.loop.models import Round
    from apps.loop.selectors.pipelines import current_step, round_steps
    from apps.loop.services.rounds import round_start

    pipeline, people, staff = world()
    row = round_start(pipeline=pipeline, user=staff[0])
    faults, seen = [], set()
    while True:
        fresh()
        row = Round.objects.get(pk=row.pk)
        step = current_step(round_steps(row))
        if step is None or not row.is_live:
            break
        if step.key not in seen:
            seen.add(step.key)
            if not wait_for_state(row, step.key, ("running", "waiting"), 90):
                faults.append(f"{step.key}: not begun")
            killed = kill_all(site) if not only or step.key in only else ["nothing"]
            print(f"{step.key}: killed {', '.join(killed)}")  # noqa: T201
            began = time.monotonic()
            site.wait_until_well(180)
        act(step.key, row, people, staff)
        if not wait_for_state(row, step.key, ("done", "failed"), STEP_SECONDS):
            return [*faults, f"{step.key}: not over after {STEP_SECONDS:.0f} s"]
        fresh()
        now = row.steps.get(key=step.key)
        print(f"{step.key}: {now.state} {time.monotonic() - began:.0f} s later")  # noqa: T201
        if now.state == "failed":
            return [*faults, f"{step.key}: {now.problem}"]
    return faults + checked(row)


def fresh() -> None:
    from django.db import close_old_connections, connection

    close_old_connections()
    connection.close()


def wait_for_state(row: object, key: str, states: tuple[str, ...], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        fresh()
        if row.steps.get(key=key).state in states:
            return True
        time.sleep(1)
    return False


def kill_all(site: Site) -> list[str]:
    """One process of each part that runs now, one second apart."""
    killed = []
    for name, words in PARTS.items():
        if found := site.processes(*words, str(site.var)) or site.processes(*words):
            kill(found[0])
            killed.append(name)
            time.sleep(1)
    return killed


def checked(row: object) -> list[str]:
    """What the round's rows must be, whatever was killed."""
    from apps.loop.models import Round
    from apps.snapshots.models import Snapshot
    from apps.training.models import Run

    steps = list(row.steps.order_by("place"))
    faults = [f"{one.key} is {one.state}" for one in steps if one.state != "done"]
    faults += [f"{one.key}: attempt {one.attempt}" for one in steps if one.attempt != 1]
    if row.state != Round.State.FINISHED:
        faults.append(f"the round is {row.state}: {row.reason}")
    runs = Run.objects.filter(launch_key__startswith=f"round:{row.pk}:")
    wanted = Counter(f"round:{row.pk}:{one.key}:1" for one in steps if one.kind == "run")
    if Counter(runs.values_list("launch_key", flat=True)) != wanted:
        faults.append(f"runs: {sorted(runs.values_list('launch_key', 'state'))}")
    frozen = Snapshot.objects.filter(project=row.project, name__startswith=str(row))
    if frozen.count() != 1:
        faults.append(f"datasets: {list(frozen.values_list('name', 'state'))}")
    if Round.objects.filter(pipeline=row.pipeline).count() != 1:
        faults.append("another round was started")
    attempts = {run.launch_key.split(":")[2]: run.attempts.count() for run in runs}
    print(f"attempts of the runs: {attempts}")  # noqa: T201
    return faults


# --- the project ---------------------------------------------------------------------------------


def world() -> tuple[object, list[object], list[object]]:
    """(pipeline, annotators, [an engineer, two admins])."""
    from apps.accounts.models import Role
    from apps.accounts.services import membership_set, user_create
    from apps.labeling.models import Guideline
    from apps.labeling.services import comparisons_import, project_create, votes_import
    from apps.labeling.services.eligibility import guideline_acknowledge
    from apps.loop.demo import SMALL
    from apps.loop.models import PipelineVersion
    from apps.loop.row_files import comparison_rows, demonstration_rows, vote_rows
    from apps.loop.selectors.pipelines import version_now
    from apps.loop.services.templates import pipeline_from_template
    from apps.snapshots.services.importing import snapshot_import
    from apps.training.models import Run
    from apps.training.selectors import checkpoint_for_use
    from apps.training.services import run_launch

    staff = [user_create(username=name)[0] for name in ("erik", "alma", "axel")]
    staff[1].is_superuser = True
    staff[1].save(update_fields=["is_superuser"])
    project = project_create(
        slug="rounds", name="Rounds", description="", created_by=staff[1], overlap=3, max_overlap=5
    )
    people = [user_create(username=f"voter-{n}")[0] for n in range(PEOPLE)]
    for user, role in [
        (staff[0], Role.ENGINEER),
        (staff[1], Role.ADMIN),
        (staff[2], Role.ADMIN),
        *((one, Role.ANNOTATOR) for one in people),
    ]:
        membership_set(project=project, user=user, role=role)
    newest = Guideline.objects.filter(project=project).order_by("-version").first()
    if newest is not None:
        for one in people:
            guideline_acknowledge(project=project, user=one, version=newest.version)
    rows = comparison_rows()[::4]
    comparisons_import(project=project, rows=rows, batch="past", identical_answers="warn")
    known = {row["id"] for row in rows}
    votes = [vote for vote in vote_rows() if vote["comparison"] in known]
    votes_import(project=project, rows=votes)
    shown = snapshot_import(
        project=project,
        kind="demonstrations",
        name="Shown",
        rows=demonstration_rows()[:80],
        user=staff[0],
    )
    prompts = snapshot_import(
        project=project,
        kind="prompts",
        name="Asked",
        rows=[{"prompt": f"Argue about plan {n}.", "group": f"plan-{n}"} for n in range(12)],
        user=staff[0],
    )
    sft = run_launch(
        project=project,
        kind="sft",
        name="Start",
        config={"preset": "demo"} | SMALL.settings["sft"],
        inputs={"data": shown},
        seed=1,
        queue="cpu",
        user=staff[0],
    )
    wait_for(lambda: Run.objects.get(pk=sft.pk).state == "finished", 300, "the first policy")
    made = pipeline_from_template(
        project=project,
        template="dpo",
        size="demo",
        policy=checkpoint_for_use(Run.objects.get(pk=sft.pk)),
        prompts=prompts,
        generates=True,
        name="Drill",
        user=staff[0],
    )
    version = version_now(made)
    quick = {**SMALL.settings, "generate": {"max_prompts": 10}, "dpo": {"max_steps": 2}}
    steps = [
        one | {"config": one["config"] | quick.get(one["run_kind"], {})} for one in version.steps
    ]
    freeze = next(one for one in steps if one["key"] == "freeze")
    freeze["recipe"]["split_by"] = "argument"  # all debates fall into the training split
    PipelineVersion.objects.create(
        pipeline=made, number=2, steps=steps, created_by=staff[0], trigger_at_hour=6
    )
    return made, people, staff


def act(key: str, row: object, people: list[object], staff: list[object]) -> None:
    """What people do in this step."""
    if key == "label":
        vote_all(row, people)
    elif key == "approve":
        from apps.training.models import Checkpoint

        step = row.steps.get(key="approve")
        Checkpoint.objects.filter(pk=step.checkpoint_id).update(status="approved")
    elif key == "promote":
        from apps.evaluation.services.promoting import promotion_reject, promotion_request

        step = row.steps.get(key="promote")
        asked = promotion_request(
            project=row.project,
            checkpoint_id=step.checkpoint_id,
            stage="staging",
            user=staff[0],
            reason="The drill's round has ended.",
        )
        promotion_reject(
            project=row.project, request_id=asked.pk, user=staff[2], reason="It is a drill."
        )


def vote_all(row: object, people: list[object]) -> None:
    """Everybody votes on what the queue hands them, until it hands out nothing more."""
    from apps.labeling.services import Lease, slot_lease_next, vote_cast
    from apps.loop.selectors.labeling import labeled

    wait_for(lambda: labeled(row).n > 0, 120, "the generated pairs in the queue")
    asked = list(people)
    while asked and labeled(row).voted < labeled(row).n:
        for person in list(asked):
            lease = slot_lease_next(project=row.project, annotator=person)
            if not isinstance(lease, Lease):
                print(f"nothing for {person}: {lease.code}")  # noqa: T201
                asked.remove(person)
                continue
            vote_cast(
                slot=lease.slot,
                annotator=person,
                idempotency_key=lease.key,
                lease_next=False,
                choice="a",
            )


if __name__ == "__main__":
    main()
