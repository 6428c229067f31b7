"""Making snapshots: freezing decided preferences and what people wrote, verifying.

A freeze is assembled, written and proved outside any transaction; one short transaction at its end
stores the rows and turns the draft into a frozen snapshot. Whatever fails before leaves the draft
as failed, with the reason, and no file behind.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import IO

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.transactions import after_commit
from apps.labeling.selectors.writing import batches as batches_of
from apps.snapshots import dispatch, progress
from apps.snapshots.assembling.assembly import assemble
from apps.snapshots.assembling.losses import Loss, losses_of
from apps.snapshots.assembling.material import Assembly
from apps.snapshots.formats.folder import write_folder
from apps.snapshots.models import IMPROVED, MIXTURE, TRIED_AGAIN, Snapshot
from apps.snapshots.recipe import KTO, PRIVATE_SPLITS, TRAIN, SnapshotRecipe, recipe_from_stored
from apps.snapshots.selectors import snapshots
from apps.snapshots.services.drafts import (
    CANCELLED,
    KILLED,
    at_work,
    draft_make,
    is_made,
    name_checked,
    seal,
)
from apps.snapshots.services.gathering import material_of
from apps.snapshots.services.improvements import (
    IMPROVEMENTS,
    SOURCES,
    demonstration_lineage,
    demonstrations_from,
    is_trained_on,
    text_lineage,
)
from apps.snapshots.services.looks import splits_read
from apps.snapshots.services.mixing import mixture_freeze, mixture_start_again
from apps.snapshots.services.reporting import report_store
from apps.snapshots.services.writing import card_of, preferences_write, rows_of
from apps.snapshots.storage import KEY, artifact_store, folder_of, private_folder_of, scratch
from workers.artifacts import ArtifactError

State = Snapshot.State
CHECKED_AT_ONCE = 20_000  # votes …
COMPARED_AT_ONCE = 5_000  # … and comparisons, whose texts are compared with each other
JUST_BEGUN = timedelta(seconds=15)
RESEND_AFTER = timedelta(seconds=20)  # a queued draft that nobody has taken is offered again


def snapshot_freeze(
    *, project: Project, name: str, recipe: SnapshotRecipe, user: User | None
) -> Snapshot:
    """Freeze the project's decided pairs as `recipe` says; returns the frozen snapshot.

    Errors: `DomainError` (nothing to train on, a name that is none, anonymous votes where
    annotators are held out), `LeakFound` when the gate refuses the files. The failed snapshot stays
    in the list with its reason.
    """
    snapshot = draft_make(
        project=project, name=name, kind=_kind_of(recipe), recipe=recipe.to_json(), user=user
    )
    with at_work(snapshot):
        _freeze(snapshot, recipe, progress.silent)
    return snapshot


def snapshot_start(
    *, project: Project, name: str, recipe: SnapshotRecipe, user: User | None
) -> tuple[Snapshot, bool]:
    """A draft that a worker freezes, and whether the broker has taken the message; if not, the
    draft is offered again by the sweep.

    Where votes and comparisons are few enough to be looked at in a moment, what would fail for want
    of rows fails here: errors as in `snapshot_freeze`, but for those of the files.
    """
    snapshot = _queued(project, name, recipe, user)
    return snapshot, dispatch.freeze_send(snapshot.pk)


def snapshot_queue(
    *, project: Project, name: str, recipe: SnapshotRecipe, user: User | None
) -> Snapshot:
    """As `snapshot_start`, inside a transaction of the caller: a worker hears of the draft after
    the commit, and from the sweep where that message was lost."""
    snapshot = _queued(project, name, recipe, user)
    after_commit(dispatch.freeze_send, snapshot=snapshot.pk)
    return snapshot


def _queued(project: Project, name: str, recipe: SnapshotRecipe, user: User | None) -> Snapshot:
    name = name_checked(name)  # before the work
    if is_looked_at_once(project):
        _require_rows(snapshot_preview(project=project, recipe=recipe))
    for named in recipe.filters.without_annotators_of:
        snapshots.snapshot_get(project=project, snapshot_id=named)
    return draft_make(
        project=project,
        name=name,
        kind=_kind_of(recipe),
        recipe=recipe.to_json(),
        user=user,
        queued=True,
    )


def snapshot_start_again(*, snapshot: Snapshot, user: User) -> tuple[Snapshot, bool]:
    """A new draft by the recipe of one that failed, which stays in the list."""
    if snapshot.state != State.FAILED or not TRIED_AGAIN & set(snapshot.recipe):
        raise Conflict("Only a freeze that failed can be tried again.", code="not_failed")
    if IMPROVED in snapshot.recipe:
        return demonstrations_start(
            project=snapshot.project,
            name=snapshot.name,
            user=user,
            source=snapshot.recipe[IMPROVED],
            batches=snapshot.recipe.get("batches", ()),
        )
    if MIXTURE in snapshot.recipe:
        return mixture_start_again(snapshot=snapshot, user=user)
    return snapshot_start(
        project=snapshot.project,
        name=snapshot.name,
        recipe=recipe_from_stored(snapshot.recipe),
        user=user,
    )


def snapshot_run(*, snapshot: str) -> str:
    """A worker's part: make a queued draft; returns its state afterwards. Harmless to call twice,
    and every way to fail ends in the draft's own state and words."""
    found = Snapshot.objects.select_related("project", "created_by").get(pk=snapshot)
    claimed = Snapshot.objects.filter(
        pk=snapshot, state=State.DRAFT, queued_at__isnull=False, started_at=None
    ).update(started_at=timezone.now(), updated_at=timezone.now())
    if claimed:
        found.refresh_from_db(fields=["started_at", "cancel_wanted"])
        with contextlib.suppress(Exception), at_work(found):
            _make(found, progress.teller(snapshot))
    return Snapshot.objects.values_list("state", flat=True).get(pk=snapshot)


def snapshot_cancel(*, snapshot: Snapshot, by: User) -> None:
    """Delete a draft: at once while nobody has it, otherwise at its maker's next step.

    `Conflict` when it is done already.
    """
    drafts = Snapshot.objects.filter(pk=snapshot.pk, state=State.DRAFT)
    waiting = drafts.filter(started_at=None).update(
        state=State.FAILED, error=CANCELLED, cancel_wanted=True, updated_at=timezone.now()
    )
    if not waiting and not drafts.update(cancel_wanted=True):
        raise Conflict("It is no longer being built.", code="not_a_draft")
    audit_record(
        action="snapshot.cancelled",
        actor=by,
        project=snapshot.project,
        subject=snapshot.pk,
        details={"name": snapshot.name},
    )


def snapshots_sweep() -> int:
    """Every few seconds: fail what was cut off, offer again what nobody took. How many it
    touched."""
    now, touched = timezone.now(), 0
    drafts = Snapshot.objects.filter(state=State.DRAFT)
    # A process that has just begun may not hold its lock yet.
    for draft in drafts.filter(started_at__lt=now - JUST_BEGUN):
        if not is_made(draft.pk):
            for folder in (folder_of(draft.pk), private_folder_of(draft.pk)):
                artifact_store().delete_tree(folder)
            error = CANCELLED if draft.cancel_wanted else KILLED
            touched += drafts.filter(pk=draft.pk).update(
                state=State.FAILED, error=error, updated_at=now
            )
    for draft in drafts.filter(started_at=None, queued_at__lt=now - RESEND_AFTER):
        drafts.filter(pk=draft.pk).update(queued_at=now)
        touched += dispatch.freeze_send(draft.pk)
    return touched


def is_looked_at_once(project: Project) -> bool:
    """Whether a request may look through the project: of a larger one a worker alone does."""
    return not snapshots.has_more_than(
        project=project, votes=CHECKED_AT_ONCE, comparisons=COMPARED_AT_ONCE
    )


def snapshot_preview(*, project: Project, recipe: SnapshotRecipe) -> Assembly:
    """What a freeze would keep and drop now; writes nothing. Errors as in `snapshot_freeze`, but
    for those of the files."""
    return assemble(material_of(project=project, recipe=recipe), recipe)


@dataclass(frozen=True, slots=True)
class Look:
    """What a recipe would keep and drop, and the settings that each lose much of it."""

    assembly: Assembly
    losses: tuple[Loss, ...]


def snapshot_look(*, project: Project, recipe: SnapshotRecipe) -> Look:
    """`snapshot_preview`, and what each setting costs by itself."""
    material = material_of(project=project, recipe=recipe)
    assembly = assemble(material, recipe)
    return Look(assembly, losses_of(material, recipe, snapshots.recipe_default(project=project)))


def demonstrations_start(
    *,
    project: Project,
    name: str,
    user: User | None,
    source: str = IMPROVEMENTS,
    batches: Sequence[str] = (),
) -> tuple[Snapshot, bool]:
    """A draft of what people wrote (`SOURCES`), that a worker freezes; and whether the broker has
    taken the message. batches: only these, of writing work.

    They are split by group as its preferences are, by the default seed and shares. `DomainError`
    (empty_snapshot) when there is nothing, or nothing of the training split; (unknown_batch) for a
    batch that is none of the project's of this kind.
    """
    recipe = SnapshotRecipe()
    of = SOURCES[source]
    if batches:
        known = {one.pk for one in batches_of(project=project) if one.kind == of.kind}
        if unknown := sorted(set(batches) - known):
            raise DomainError(
                f"There is no batch '{unknown[0]}' of {of.kind} here.",
                code="unknown_batch",
                field="writing_batches",
            )
    if not is_trained_on(project=project, recipe=recipe, source=source, batches=batches):
        raise _nothing_written(source)
    snapshot = draft_make(
        project=project,
        name=name,
        kind=of.kind,
        recipe={
            IMPROVED: source,
            **({"batches": sorted(set(batches))} if batches else {}),
            "seed": recipe.seed,
            "splits": dict(recipe.shares),
        },
        user=user,
        queued=True,
    )
    return snapshot, dispatch.freeze_send(snapshot.pk)


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether every file still has the content it was frozen with."""

    ok: bool
    problem: str = ""


def snapshot_verify(*, snapshot: Snapshot) -> Verification:
    """Read every file again and compare it with the manifest, and the manifest with our hash."""
    if snapshot.state != Snapshot.State.FROZEN:
        raise Conflict("Only a frozen dataset can be verified.", code="not_frozen")
    try:
        with scratch() as cache:
            artifact_store().get_tree(snapshot.uri, sha256=snapshot.sha256, cache=cache)
            if snapshot.private_sha256:
                apart = private_folder_of(snapshot.pk)
                artifact_store().get_tree(apart, sha256=snapshot.private_sha256, cache=cache)
    except ArtifactError as error:
        return Verification(False, str(error))
    return Verification(True)


def private_split_open(*, snapshot: Snapshot, split: str, by: User) -> IO[bytes]:
    """The file of a private split, with a look at it and a line in the audit log that `by` has read
    it. The caller closes the file. `Missing` for a split that is none of its private ones,
    `Conflict` (`look_needs_second_person`) beyond its budget."""
    if (
        snapshot.state != State.FROZEN
        or split not in PRIVATE_SPLITS
        or split not in snapshot.counts.get("rows", {})
    ):
        raise Missing(f"This dataset has no private split '{split}'.", field="split")
    with transaction.atomic():
        splits_read(snapshot=snapshot, splits=[split], purpose="private", person=by)
        audit_record(
            action="snapshot.private_read",
            actor=by,
            project=snapshot.project,
            subject=snapshot.pk,
            details={"name": snapshot.name, "split": split},
        )
        try:
            return artifact_store().open(f"{private_folder_of(snapshot.pk)}/{split}.jsonl")
        except ArtifactError as error:
            raise Conflict(f"The file is not there any more: {error}.", code="damaged") from error


# --- the steps -----------------------------------------------------------------------------------


def _kind_of(recipe: SnapshotRecipe) -> str:
    return Snapshot.Kind.UNPAIRED if recipe.ties == KTO else Snapshot.Kind.PREFERENCES


def _require_rows(assembly: Assembly) -> None:
    if not assembly.lines.get(TRAIN):
        raise DomainError(
            "Nothing is left to train on: no comparison of the training split is decided for "
            "a side under this recipe.",
            code="empty_snapshot",
            field="recipe",
        )


def _nothing_written(source: str) -> DomainError:
    of = SOURCES[source]
    return DomainError(of.none, code="empty_snapshot", field=of.field)


def _make(snapshot: Snapshot, tell: progress.Tell) -> None:
    if MIXTURE in snapshot.recipe:
        mixture_freeze(snapshot, tell)
    elif IMPROVED in snapshot.recipe:
        _demonstrations_freeze(snapshot, tell)
    else:
        _freeze(snapshot, recipe_from_stored(snapshot.recipe), tell)


def _freeze(snapshot: Snapshot, recipe: SnapshotRecipe, tell: progress.Tell) -> None:
    """Assemble, write, prove, seal; whatever goes wrong is raised before anything is kept."""
    tell(progress.READ)
    material = material_of(project=snapshot.project, recipe=recipe)
    tell(progress.DECIDE)
    assembly = assemble(material, recipe)
    _require_rows(assembly)
    with scratch() as folder:
        written = preferences_write(
            folder, snapshot, assembly, recipe, barred=material.barred, tell=tell
        )
        tell(progress.CHECK)
        report = report_store(snapshot=snapshot, assembly=assembly)
        tell(progress.STORE)
        snapshot.private_sha256 = written.private_sha256
        counts = {
            **assembly.counts,
            "warnings": list(assembly.warnings),
            "leak_gate": {k: v for k, v in asdict(written.proof).items() if k != "leaks"},
            **report,
            KEY: written.pseudonyms,
        }
        seal(snapshot, folder, counts=counts, rows=rows_of(snapshot, assembly, recipe))


def _demonstrations_freeze(snapshot: Snapshot, tell: progress.Tell) -> None:
    tell(progress.READ)
    usual = snapshots.recipe_default(project=snapshot.project)
    stored = snapshot.recipe
    source = stored[IMPROVED]
    made = demonstrations_from(
        project=snapshot.project,
        recipe=replace(usual, seed=stored["seed"], splits=stored["splits"]),
        source=source,
        batches=stored.get("batches", ()),
    )
    if not made.files.get(TRAIN):
        raise _nothing_written(source)
    tell(progress.WRITE)
    card = {
        "kind": str(snapshot.kind),
        "title": SOURCES[source].title,
        **made.about(snapshot.project),
    }
    with scratch() as folder:
        write_folder(folder, made.files, card_of(card, snapshot.recipe, made.counts))
        tell(progress.STORE)
        counts = made.counts | card | {KEY: made.pseudonyms}
        seal(
            snapshot,
            folder,
            counts=counts,
            rows=demonstration_lineage(snapshot, made),
            texts=text_lineage(snapshot, made),
        )
