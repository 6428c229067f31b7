"""The demo workspace, built step by step from the shipped data.

Each step looks at what is there and does the rest, so the build can be killed anywhere and run
again. How long a step took is written into the audit log when it was done, for the report.
"""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.transaction import atomic

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.services import audit_record, membership_set, user_create
from apps.agreement.selectors.votes import newest_vote_id, report_get
from apps.agreement.services.reports import report_refresh
from apps.common.errors import DomainError
from apps.common.locks import lock_held
from apps.labeling.models import Comparison, Vote
from apps.labeling.selectors.writing import has_writing
from apps.labeling.services import Lease, comparisons_import, project_create, votes_import
from apps.labeling.services.leasing import writing_lease_next
from apps.labeling.services.writing import (
    text_of_lease,
    text_review,
    text_submit,
    writing_batch_create,
)
from apps.loop.row_files import (
    JUDGE_DEBATES,
    comparison_rows,
    demonstration_rows,
    pair_rows,
    prompt_rows,
    reward_debates,
    short_argument_rows,
    short_prompt_rows,
    spoiled_rows,
    vote_rows,
)
from apps.loop.services import CircleData, Pretrained, circle_start
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import DEV, TRAIN, RecipeFilters, SnapshotRecipe, in_order
from apps.snapshots.selectors.prompts import held_out_prompts
from apps.snapshots.selectors.snapshots import comparison_counts
from apps.snapshots.services.freezing import snapshot_freeze
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.services.suites import suite_add
from apps.training.models import Run
from workers.contract import pretrained

SLUG, NAME = "arguments", "Arguments"
DESCRIPTION = (
    "Which argument is more convincing? 2,200 pairs of web arguments with the votes of 2,134 "
    "people (UKPConvArg1, Habernal & Gurevych 2016, CC-BY 4.0)."
)
# What people are asked to write, and what Ada wrote and Rita said of it: ours, CC0.
ASKED = (
    "Should shops be closed on Sundays?",
    "Should pupils wear a school uniform?",
    "Is it right to keep animals in zoos?",
    "Should voting be compulsory?",
    "Should cities ban private cars from their centres?",
)
WRITTEN: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "Shops should stay closed on Sundays. A common day off lets families and clubs meet, which "
        "no shift plan can replace. Who needs bread can buy it on Saturday.",
        {"verdict": "accepted"},
    ),
    (
        "A uniform hides who can afford what. Pupils then quarrel about less, for exampel about "
        "the price of shoes.",
        {
            "verdict": "edited",
            "body": "A uniform hides who can afford what. Pupils then quarrel about less, for "
            "example about the price of shoes.",
        },
    ),
    (
        "A good zoo keeps species alive that have no home left. The Arabian oryx was bred in zoos, "
        "and lives in the desert again.",
        {},
    ),
    ("Everybody should vote.", {"verdict": "rejected", "reason": "Give a reason and an example."}),
)
SIGN_INS = "demo-sign-ins.json"
PEOPLE = (
    ("ana", "Ana", Role.ANNOTATOR),
    ("rita", "Rita", Role.REVIEWER),
    ("emil", "Emil", Role.ENGINEER),
    ("ada", "Ada", Role.ADMIN),
)
PERSON, STAGE = "demo.person", "demo.stage"  # in the audit log
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


@dataclass(frozen=True, slots=True)
class Size:
    """How much of the circle on pretrained models is done. pairs: rows of each file at most;
    settings: {stage: what differs from its preset}."""

    name: str = ""
    pairs: int | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


# A few steps of every stage: whether it works, not what it reaches.
SMALL = Size(
    name=", small",
    pairs=48,
    settings={
        "sft": {"max_steps": 3, "imitation_prompts": 4, "sample_prompts": 1},
        "reward": {"max_steps": 2, "batch_size": 8},
        "judge": {"max_steps": 3, "batch_size": 8},
        "dpo": {"max_steps": 2, "batch_size": 4, "sample_prompts": 1},
        "ppo": {
            "steps": 2,
            "critic_warmup_steps": 1,
            "batch_size": 4,
            "minibatch_size": 2,
            "eval_prompts": 4,
        },
        "evaluate": {"max_prompts": 4},
        "suite": {"max_prompts": 4},
        "assess": {
            "max_pairs": 50,
            "max_outputs": 2,
            "probe_prompts": 10,
            "effect_answers": 10,
            "best_of_prompts": 0,
        },
        "generate": {"max_prompts": 2},
    },
)
FULL = Size()
# Of DPO, which reads every pair with policy and reference: some five CPU seconds for each.
SHORT_PAIRS, SHORT_PAIR_WORDS = 160, 60
# Of the reward model, which liked length and missed empty and damaged answers without them.
SPOILED_PAIRS = 1_500

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a build leaves."""

    project: Project
    data: CircleData
    runs: dict[str, Run]


def pretrained_models() -> Pretrained | None:
    """What `make models` left in VAR_DIR, if it did."""
    folder = (Path(settings.VAR_DIR) / "models").absolute()
    if not pretrained.installed(folder):
        return None
    return Pretrained(str(folder / pretrained.POLICY), str(folder / pretrained.ENCODER))


def demo_build(*, say: Say, real: Size | None = None) -> Workspace:
    """Everything up to the queued runs; quick when it is all there already.

    real: the circle runs on the models of `make models`, in this size; None: on a small one that it
    builds itself. Raises `DomainError` where the models are missing.
    """
    models = pretrained_models() if real is not None else None
    if real is not None and models is None:
        raise DomainError(
            f"There are no models in {settings.VAR_DIR}/models. Run `make models` first.",
            code="no_models",
        )
    with alone(say):
        people = _people(say)
        project = _project(people, say)
        with _nobody_labels(project):
            _comparisons(project, say)
            _votes(project, say)
        _agreement(project, say)
        _writing(project, people, say)
        emil = people["emil"]
        data = _published(project, emil, say, real) if real else _datasets(project, emil, say)
        runs = circle_start(
            project=project,
            data=data,
            user=emil,
            preset="real" if real else "demo",
            seed=1,
            pretrained=models,
            settings=real.settings if real else None,
        )
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
            audit_record(action=PERSON, actor=None, subject=user)
        elif username in known:
            people[username] = user
            continue
        elif AuditEvent.objects.filter(action=PERSON, about=user).exists():
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
    with stage_timed(project, "import", say, f"importing {len(rows):,} comparisons"):
        # Two pairs hold one text twice, by two authors: real, and no snapshot takes them.
        comparisons_import(project=project, rows=rows, batch=BATCH, identical_answers="warn")


def _votes(project: Project, say: Say) -> None:
    rows = vote_rows()
    if Vote.objects.filter(project=project, source=Vote.Source.IMPORT).count() >= len(rows):
        return
    with stage_timed(project, "votes", say, f"replaying {len(rows):,} votes"):
        for start in range(0, len(rows), _VOTES_AT_ONCE):
            done = min(start + _VOTES_AT_ONCE, len(rows))
            votes_import(project=project, rows=rows[start:done])
            say(f"votes: {done:,} of {len(rows):,}")


def _agreement(project: Project, say: Say) -> None:
    report = report_get(project=project)
    if report is None or report.last_vote_id < newest_vote_id(project=project):
        with stage_timed(project, "agreement", say, "computing agreement"):
            report_refresh(project=project)


def _writing(project: Project, people: dict[str, User], say: Say) -> None:
    """A few texts to write in every state: free, waiting for a review, accepted and sent back."""
    if has_writing(project):
        return
    with atomic():
        batch = writing_batch_create(
            project=project,
            by=people["emil"],
            kind="demonstrations",
            name="Short arguments",
            instruction="Three sentences at most: the claim, a reason, an example.",
            prompts=[{"prompt": prompt} for prompt in ASKED],
            licence="CC0-1.0",
            most_characters=2_000,
        )
        for body, verdict in WRITTEN:
            got = writing_lease_next(project=project, annotator=people["ada"])
            if not isinstance(got, Lease):  # an admin has no guidelines to read first
                break
            text = text_of_lease(got)
            text_submit(
                text=text.pk,
                author=people["ada"],
                body=body,
                idempotency_key=f"demo.{text.pk}",
                source=Vote.Source.SIMULATED,
            )
            if verdict:
                text_review(text=text.pk, reviewer=people["rita"], version=1, **verdict)
    say(f"writing: {batch.texts.count()} texts asked for")


def _published(project: Project, user: User, say: Say, size: Size) -> CircleData:
    """Datasets of the published pairs, whose labels nobody gave here. The four debates on which the
    project has votes are held out of all of them; reward model and judge share no debate."""
    _end_killed(project)
    learned = reward_debates()
    short = min(SHORT_PAIRS, size.pairs or SHORT_PAIRS)
    given: dict[str, tuple[str, str, Callable[[], list[dict[str, Any]]]]] = {
        "preferences": (
            "Published argument pairs",
            "preferences",
            lambda: pair_rows(learned, most=size.pairs),
        ),
        "judge_preferences": (
            "Published argument pairs for the judge",
            "preferences",
            lambda: pair_rows(JUDGE_DEBATES, most=size.pairs),
        ),
        "policy_preferences": (
            "Published pairs of short arguments",
            "preferences",
            lambda: pair_rows(learned, words=SHORT_PAIR_WORDS, most=short),
        ),
        "hard": (
            "Arguments beside spoiled ones",
            "preferences",
            lambda: spoiled_rows(learned, most=min(SPOILED_PAIRS, size.pairs or SPOILED_PAIRS)),
        ),
        "demonstrations": ("Short arguments", "demonstrations", short_argument_rows),
        "prompts": ("Short debate prompts", "prompts", short_prompt_rows),
    }
    with stage_timed(project, f"published{size.name}", say, "importing published pairs"):
        made = {}
        for part, (name, kind, rows) in given.items():
            name += size.name
            made[part] = _frozen(project, name) or snapshot_import(
                project=project, kind=kind, name=name, rows=rows(), user=user
            )
        suite, _new = suite_add(project=project, user=user)
    for snapshot in made.values():
        _say_rows(snapshot, say)
    return CircleData(**made, suite=suite)


def _end_killed(project: Project) -> None:
    killed = Snapshot.objects.filter(project=project, state=Snapshot.State.DRAFT, queued_at=None)
    killed.update(state=Snapshot.State.FAILED, error="Its process was killed.")


def _say_rows(snapshot: Snapshot, say: Say) -> None:
    rows = in_order(snapshot.counts["rows"])
    say(f"dataset: {snapshot.name}: " + ", ".join(f"{k} {n:,}" for k, n in rows.items()))


def _datasets(project: Project, user: User, say: Say) -> CircleData:
    _end_killed(project)
    with stage_timed(project, "datasets", say, "freezing datasets"):
        main = _frozen(project, NAMES["preferences"]) or snapshot_freeze(
            project=project, name=NAMES["preferences"], recipe=MAIN, user=user
        )
        given = {
            kind: _frozen(project, NAMES[kind])
            or snapshot_import(project=project, kind=kind, name=NAMES[kind], rows=rows, user=user)
            for kind, rows in (
                ("demonstrations", demonstration_rows()),
                ("prompts", prompt_rows(held_out=set(held_out_prompts(main).tolist()))),
            )
        }
        judge = _frozen(project, NAMES["judge_preferences"]) or snapshot_freeze(
            project=project,
            name=NAMES["judge_preferences"],
            recipe=judge_recipe(project, main),
            user=user,
        )
        suite, _new = suite_add(project=project, user=user)
    for snapshot in (main, judge):
        _say_rows(snapshot, say)
    return CircleData(preferences=main, judge_preferences=judge, suite=suite, **given)


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


def _frozen(project: Project, name: str) -> Snapshot | None:
    return (
        Snapshot.objects.filter(project=project, name=name, state=Snapshot.State.FROZEN)
        .order_by("created_at")
        .first()
    )


# --- around the steps ----------------------------------------------------------------------------


@contextmanager
def stage_timed(project: Project, name: str, say: Say, what: str) -> Iterator[None]:
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
def alone(say: Say) -> Iterator[None]:
    """Hold a lock of the database, so that two builds do not run through each other."""
    with lock_held("%s", [_LOCK]) as free:
        if free:
            yield
            return
    say("waiting for another build to end")
    with lock_held("%s", [_LOCK], wait=True):
        yield
