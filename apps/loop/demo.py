"""The demo workspace, built step by step from the shipped data.

Each step looks at what is there and does the rest, so the build can be killed anywhere and run
again. How long a step took is written into the audit log when it was done, for the report.
"""

import gzip
import json
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.services import audit_record, membership_set, user_create
from apps.agreement.selectors.votes import newest_vote_id, report_get
from apps.agreement.services.reports import report_refresh
from apps.common.errors import DomainError
from apps.labeling.models import Comparison, Vote
from apps.labeling.services import comparisons_import, project_create, votes_import
from apps.loop.services import CircleData, circle_start
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import DEV, TRAIN, RecipeFilters, SnapshotRecipe, in_order
from apps.snapshots.selectors.prompts import held_out_prompts, prompt_keys
from apps.snapshots.selectors.snapshots import comparison_counts
from apps.snapshots.services.freezing import snapshot_freeze
from apps.snapshots.services.importing import snapshot_import
from apps.training.models import Run

SLUG, NAME = "arguments", "Arguments"
DESCRIPTION = (
    "Which argument is more convincing? 2,200 pairs of web arguments with the votes of 2,134 "
    "people (UKPConvArg1, Habernal & Gurevych 2016, CC-BY 4.0)."
)
SIGN_INS = "demo-sign-ins.json"
PEOPLE = (
    ("ana", "Ana", Role.ANNOTATOR),
    ("rita", "Rita", Role.REVIEWER),
    ("emil", "Emil", Role.ENGINEER),
    ("ada", "Ada", Role.ADMIN),
)
PERSON, STAGE = "demo.person", "demo.stage"  # in the audit log
PRESET = "demo"
BATCH = "UKPConvArg1"
VOTES_PER_PAIR = 5
AUDIT_SHARE = 0.3  # of what reviewers get: a blind look at the crowd's votes
_VOTES_AT_ONCE = 2_000
_LOCK = 7_405_116  # of PostgreSQL: one build at a time

# Held out whole; the judge learns from it. Of the other three debates' six stances, each of which
# is one connected component of arguments, this seed puts five into training and one into dev.
HELDOUT_DEBATE = "ban-plastic-water-bottles"
SEED = "arguments-1"
MAIN = SnapshotRecipe(
    heldout_groups=(HELDOUT_DEBATE,),
    heldout_annotators=0.2,
    splits={TRAIN: 0.85, DEV: 0.15},
    filters=RecipeFilters(batches=(BATCH,)),
    seed=SEED,
)
NAMES = {
    "demonstrations": "Demonstrations",
    "prompts": "Debate prompts",
    "preferences": "Argument preferences",
    "judge_preferences": "Argument preferences for the judge",
}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a build leaves."""

    project: Project
    data: CircleData
    runs: dict[str, Run]


def demo_build(*, say: Say) -> Workspace:
    """Everything up to the queued runs; quick when it is all there already."""
    with _alone(say):
        people = _people(say)
        project = _project(people, say)
        with _nobody_labels(project):
            _comparisons(project, say)
            _votes(project, say)
        _agreement(project, say)
        data = _datasets(project, people["emil"], say)
        runs = circle_start(project=project, data=data, user=people["emil"], preset=PRESET, seed=1)
        say(f"runs: {len(runs)} in the queue, {', '.join(runs)}")
        return Workspace(project, data, runs)


# --- the steps -----------------------------------------------------------------------------------


def _people(say: Say) -> dict[str, User]:
    """The people of the demo; their passwords are made here and kept in VAR_DIR, for its owner."""
    known = _sign_ins_read()
    people, changed = {}, False
    for username, shown, _role in PEOPLE:
        user = User.objects.filter(username=username).first()
        if user is None:
            user, password = user_create(username=username, display_name=shown)
            audit_record(action=PERSON, actor=None, subject=username)
        elif username in known:
            people[username] = user
            continue
        elif AuditEvent.objects.filter(action=PERSON, subject=username).exists():
            # Ours, but the file with the password is gone: give them another.
            password = _password_renew(user)
        else:
            raise DomainError(
                f"There is a person called '{username}' who is not of the demo. Build the demo in "
                "a database of its own.",
                code="not_a_demo_database",
            )
        people[username], known[username], changed = user, password, True
    if changed:
        _sign_ins_write(known)
        say(f"people: {', '.join(people)}")
    return people


def _password_renew(user: User) -> str:
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    user.save(update_fields=["password"])
    return password


def sign_ins_path() -> Path:
    return Path(settings.VAR_DIR) / SIGN_INS


def _sign_ins_read() -> dict[str, str]:
    try:
        rows = json.loads(sign_ins_path().read_text())
        return {row["username"]: row["password"] for row in rows}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def _sign_ins_write(passwords: dict[str, str]) -> None:
    rows = [
        {"username": name, "password": passwords[name], "role": str(role)}
        for name, _shown, role in PEOPLE
    ]
    part = sign_ins_path().with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(rows, file, indent=1)
    part.replace(sign_ins_path())


def _project(people: dict[str, User], say: Say) -> Project:
    project = Project.objects.filter(slug=SLUG).first()
    if project is None:
        ada = people["ada"]
        if not ada.is_superuser:  # the first person of a site may make its first project
            ada.is_superuser = True
            ada.save(update_fields=["is_superuser"])
        project = project_create(
            slug=SLUG,
            name=NAME,
            description=DESCRIPTION,
            created_by=ada,
            overlap=VOTES_PER_PAIR,
            max_overlap=VOTES_PER_PAIR,
            audit_share=AUDIT_SHARE,
        )
        say(f"project: {NAME}")
    for username, _shown, role in PEOPLE:
        if not Membership.objects.filter(project=project, user=people[username]).exists():
            membership_set(project=project, user=people[username], role=role)
    return project


HOLD = "The crowd's past votes are being brought in. This takes about half a minute."


@contextmanager
def _nobody_labels(project: Project) -> Iterator[None]:
    """A vote cast now would take the room of one that is on its way in; say so and wait.

    A build that was killed leaves the hold, and the next build lifts it.
    """
    members = Membership.objects.filter(project=project, user__is_imported=False)
    members.filter(paused_reason="").update(paused_reason=HOLD)
    yield
    members.filter(paused_reason=HOLD).update(paused_reason="")


def _comparisons(project: Project, say: Say) -> None:
    rows = comparison_rows()
    if Comparison.objects.filter(project=project, batch=BATCH).count() >= len(rows):
        return
    with _stage(project, "import", say, f"importing {len(rows):,} comparisons"):
        # Two pairs hold one text twice, by two authors: real, and no snapshot takes them.
        comparisons_import(project=project, rows=rows, batch=BATCH, identical_answers="warn")


def _votes(project: Project, say: Say) -> None:
    rows = vote_rows()
    if Vote.objects.filter(project=project, source=Vote.Source.IMPORT).count() >= len(rows):
        return
    with _stage(project, "votes", say, f"replaying {len(rows):,} votes"):
        for start in range(0, len(rows), _VOTES_AT_ONCE):
            done = min(start + _VOTES_AT_ONCE, len(rows))
            votes_import(project=project, rows=rows[start:done])
            say(f"votes: {done:,} of {len(rows):,}")


def _agreement(project: Project, say: Say) -> None:
    report = report_get(project=project)
    if report is None or report.last_vote_id < newest_vote_id(project=project):
        with _stage(project, "agreement", say, "computing agreement"):
            report_refresh(project=project)


def _datasets(project: Project, user: User, say: Say) -> CircleData:
    killed = Snapshot.objects.filter(project=project, state=Snapshot.State.DRAFT, queued_at=None)
    killed.update(state=Snapshot.State.FAILED, error="Its process was killed.")
    with _stage(project, "datasets", say, "freezing datasets"):
        main = _frozen(project, "preferences") or snapshot_freeze(
            project=project, name=NAMES["preferences"], recipe=MAIN, user=user
        )
        given = {
            kind: _frozen(project, kind)
            or snapshot_import(project=project, kind=kind, name=NAMES[kind], rows=rows, user=user)
            for kind, rows in (
                ("demonstrations", demonstration_rows()),
                ("prompts", prompt_rows(held_out=set(held_out_prompts(main).tolist()))),
            )
        }
        judge = _frozen(project, "judge_preferences") or snapshot_freeze(
            project=project,
            name=NAMES["judge_preferences"],
            recipe=judge_recipe(project, main),
            user=user,
        )
    for snapshot in (main, judge):
        rows = in_order(snapshot.counts["rows"])
        say(f"dataset: {snapshot.name}: " + ", ".join(f"{k} {n:,}" for k, n in rows.items()))
    return CircleData(preferences=main, judge_preferences=judge, **given)


def judge_recipe(project: Project, main: Snapshot) -> SnapshotRecipe:
    """Other people on another debate: nobody who voted in the main training rows, and training on
    the debate that was held out there. The main debates are this one's held-out groups.

    Few people are left for each pair, so two who agree are enough here.
    """
    debates = (name for name, _ in comparison_counts(project=project, by="prompt__group_key"))
    return replace(
        MAIN,
        least_votes=2,
        least_agreeing=2,
        heldout_groups=tuple(sorted(set(debates) - {HELDOUT_DEBATE})),
        heldout_annotators=0.0,
        splits={TRAIN: 1.0},
        filters=RecipeFilters(without_annotators_of=(main.pk,), batches=(BATCH,)),
    )


def _frozen(project: Project, which: str) -> Snapshot | None:
    return (
        Snapshot.objects.filter(project=project, name=NAMES[which], state=Snapshot.State.FROZEN)
        .order_by("created_at")
        .first()
    )


# --- around the steps ----------------------------------------------------------------------------


@contextmanager
def _stage(project: Project, name: str, say: Say, what: str) -> Iterator[None]:
    """Say what is going on, and keep how long it took, unless it was kept before."""
    say(f"{name}: {what}")
    started = time.perf_counter()
    yield
    seconds = time.perf_counter() - started
    if name not in stage_seconds(project):
        audit_record(
            action=STAGE,
            actor=None,
            project=project,
            subject=name,
            details={"seconds": round(seconds, 2)},
        )
    say(f"{name}: done in {seconds:.1f} s")


def stage_seconds(project: Project) -> dict[str, float]:
    """{stage: seconds} of the build, in the order of doing."""
    events = AuditEvent.objects.filter(project=project, action=STAGE).order_by("pk")
    return {event.subject: event.details["seconds"] for event in events}


@contextmanager
def _alone(say: Say) -> Iterator[None]:
    """Hold a lock of the database, so that two builds do not run through each other."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_try_advisory_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            say("waiting for another build to end")
            cursor.execute("select pg_advisory_lock(%s)", [_LOCK])
        try:
            yield
        finally:
            cursor.execute("select pg_advisory_unlock(%s)", [_LOCK])


# The data in `data/`: public votes and texts that anyone may use (see data/LICENCES.md).


Row = dict[str, Any]

SOURCE, LICENCE = "UKPConvArg1", "CC-BY-4.0"
# The debates' prompts end with the first of these. Four ways to ask make 32 prompts of 8 stances,
# enough to answer at every evaluation, and none of them stands in a demonstration.
PHRASINGS = (
    "Write a convincing argument for this stance.",
    "Give one strong argument for this stance.",
    "Argue for this stance in a few sentences.",
    "Convince a sceptic of this stance.",
)


def _rows(name: str) -> Iterator[Row]:
    path = settings.BASE_DIR / "data" / f"{name}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def comparison_rows() -> list[Row]:
    """For `comparisons_import`: 2,200 pairs of arguments with their published labels."""
    rows = []
    for row in _rows("comparisons"):
        first, second = row["source"].split("_")  # ids of the two arguments at the source
        rows.append(
            {
                "id": row["item"],
                "prompt": row["prompt"],
                "response_a": row["response_a"],
                "response_b": row["response_b"],
                "gold": row["gold"],
                "group": row["debate"],
                "topic": row["topic"],
                "language": "en",
                "source": SOURCE,
                "licence": LICENCE,
                "origin": "human",
                "origin_ref_a": first,
                "origin_ref_b": second,
            }
        )
    return rows


def vote_rows() -> list[Row]:
    """For `votes_import`: 10,967 votes of 2,134 people."""
    return [
        {"comparison": row["item"], "annotator": row["annotator"], "choice": row["choice"]}
        for row in _rows("votes")
    ]


def demonstration_rows() -> list[Row]:
    """For `snapshot_import`: winning arguments of other debates, GSM8K, seed tasks."""
    return list(_rows("demonstrations"))


def prompt_rows(*, held_out: Collection[int] = ()) -> list[Row]:
    """For `snapshot_import`: the stances that were voted on, each asked in four ways. Stances whose
    prompts (as `prompt_keys`) are held out elsewhere are held out here."""
    rows = []
    for row in _rows("prompts"):
        if row["voted"]:
            (key,) = prompt_keys([[{"role": "user", "content": row["prompt"]}]]).tolist()
            about = {
                "group": row["topic"],
                "source": row["source"],
                "licence": row["licence"],
                "split": DEV if key in held_out else TRAIN,
            }
            asked = row["prompt"].removesuffix(PHRASINGS[0])
            rows += [{"prompt": asked + phrasing, **about} for phrasing in PHRASINGS]
    return rows
