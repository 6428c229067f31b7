"""The API of datasets."""

from dataclasses import asdict
from datetime import date, datetime
from typing import Any, Literal

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Field, Query, Router, Schema, Status
from pydantic import ConfigDict

from apps.accounts.api_auth import needs
from apps.accounts.permissions import ADMIN, READERS, STAFF, project_for
from apps.accounts.selectors import person_named
from apps.common.errors import DomainError
from apps.common.row_files import download_response
from apps.snapshots import exports
from apps.snapshots.advice import Facts, Rules, Task, advise
from apps.snapshots.models import Snapshot, SplitAccess
from apps.snapshots.progress import progress_read
from apps.snapshots.recipe import PRIVATE_SPLITS
from apps.snapshots.screens.budget import budget_json
from apps.snapshots.selectors import comparing, lineage, looks, selection, snapshots
from apps.snapshots.services import freezing, mixing
from apps.snapshots.services.budget import Wanted, budget_of
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.services.improvements import JUDGED, WRITTEN
from apps.snapshots.services.looks import look_budget_set, look_sign
from apps.snapshots.services.readiness import gather
from apps.snapshots.services.selection import selection_replay_start
from apps.snapshots.services.suites import suite_add

router = Router(tags=["datasets"])


class SnapshotIn(Schema):
    model_config = ConfigDict(extra="forbid")  # a misspelt field would freeze by defaults

    name: str
    kind: Literal["preferences", "demonstrations", "prompts", "stepwise"] = "preferences"
    recipe: dict[str, Any] = Field(
        default_factory=dict,
        description="preferences only: rule, filters, hold-outs, splits, seed; what is not named "
        "is the project's default",
    )
    rows: list[dict[str, Any]] = Field(
        default_factory=list,
        description="demonstrations, prompts and stepwise only; stepwise without rows is frozen "
        "from the steps of runs that people judged",
    )
    from_improvements: bool = Field(
        False, description="demonstrations only: freeze the answers that annotators have improved"
    )
    from_writing: bool = Field(
        False, description="demonstrations and prompts: freeze accepted texts of writing work"
    )
    writing_batches: list[str] = Field(
        default_factory=list, description="with from_writing: only texts of these batches"
    )


class PartIn(Schema):
    model_config = ConfigDict(extra="forbid")

    snapshot: str
    weight: float = Field(1.0, description="share of the training rows, in any unit")


class MixtureIn(Schema):
    model_config = ConfigDict(extra="forbid")

    name: str
    parts: list[PartIn] = Field(
        description="frozen datasets of one kind, of this project or of another that you "
        "administer as you administer this one"
    )
    repeat: bool = Field(False, description="rows of a part that is too small for its weight recur")


class RecipeIn(Schema):
    model_config = ConfigDict(extra="forbid")

    recipe: dict[str, Any] = Field(default_factory=dict)


class SnapshotOut(Schema):
    id: str
    name: str
    kind: str
    state: str
    recipe: dict[str, Any]
    counts: dict[str, Any] = Field(description="rows by split, drops by reason, warnings")
    sha256: str = Field(description="of the manifest of all files")
    size_bytes: int
    error: str
    created_at: datetime
    frozen_at: datetime | None


class FileOut(Schema):
    name: str
    sha256: str


class SnapshotDetailOut(SnapshotOut):
    files: list[FileOut] = Field(default_factory=list)
    step: str = Field("", description="what its worker is at; empty where none is")


class SignOffOut(Schema):
    look: int
    person: str = Field(description="who may look")
    signed_by: str
    reason: str
    at: datetime


class SplitLooksOut(Schema):
    split: str
    rows: int
    looks: int = Field(description="taken: runs, and readings by people")
    budget: int | None = Field(description="looks that need no second person; null for any number")
    next_look: int
    next_alpha: float = Field(description="what the next one may be tested at")
    needs_second_person: bool = Field(description="whether the next one does")
    signed: list[SignOffOut] = Field(description="of the next look")


class ReadingOut(Schema):
    split: str
    purpose: str = Field(description="kind of the run, or what a person did")
    run: str = Field(description="empty where a person read it")
    person: str
    protocol_sha256: str
    items: int
    at: datetime

    @classmethod
    def of(cls, row: SplitAccess) -> "ReadingOut":
        return cls(
            split=row.split,
            purpose=row.purpose,
            run=row.run,
            person=row.person_name,
            protocol_sha256=row.protocol_sha256,
            items=row.n_items,
            at=row.at,
        )


class LooksOut(Schema):
    splits: list[SplitLooksOut]
    readings: list[ReadingOut] = Field(description="newest first")


class SignOffIn(Schema):
    model_config = ConfigDict(extra="forbid")

    split: str = Field(max_length=24)
    look: int = Field(ge=1, description="its number, as `next_look` says")
    person: str = Field(max_length=254, description="username of who may look; not your own")
    reason: str = Field(max_length=500)


class LookBudgetIn(Schema):
    model_config = ConfigDict(extra="forbid")

    split: str = Field(max_length=24)
    looks: int | None = Field(description="null for any number")


class LossOut(Schema):
    name: str = Field(description="the setting of the recipe")
    lost: int
    decided: int = Field(description="pairs that are kept where nothing is held out or filtered")


class PreviewOut(Schema):
    counts: dict[str, Any]
    warnings: list[str]
    losses: list[LossOut] = Field(
        description="settings that lose over a fifth of the decided pairs, each by itself"
    )


class RowOut(Schema):
    snapshot: str
    split: str = Field(description="empty where the comparison was dropped")
    dropped_because: str
    winner: str


class VoteLineageOut(Schema):
    vote: int
    rows: list[RowOut] = Field(description="what became of it in each dataset")
    runs: list[str] = Field(description="every run that stands on it, at any distance")
    checkpoints: list[str]


class FateOut(Schema):
    split: str = Field(description="empty where the comparison was left out")
    winner: str
    confidence: float | None
    votes: list[int] = Field(description="ids of the votes it was decided from")
    reason: str = Field(description="why it was left out")


class ChangeOut(Schema):
    comparison: int
    name: str
    held: bool = Field(description="whether this is the row of held-out annotators' votes")
    what: list[str] = Field(description="one or more of added, removed, flipped, moved…")
    before: FateOut | None
    after: FateOut | None
    came: list[int] = Field(description="votes behind the newer row only")
    gone: list[int] = Field(description="votes behind the older row only")


class MoveOut(Schema):
    old: str
    new: str
    n: int


class ChangesOut(Schema):
    old: str
    new: str
    counts: dict[str, int] = Field(description="comparisons by change; they may overlap")
    kept: int = Field(description="in a file of both")
    same: int = Field(description="of these, with nothing changed")
    added_from: dict[str, int] = Field(description="what the added ones were before")
    removed_to: dict[str, int] = Field(description="what the removed ones are now")
    moves: list[MoveOut]
    crossed: int = Field(description="moved between what is learned from and what is measured on")
    n: int = Field(description="comparisons that fit the filter")
    rows: list[ChangeOut]


class VerificationOut(Schema):
    ok: bool
    problem: str


@router.get(
    "/projects/{slug}/snapshots",
    auth=needs("read"),
    response=list[SnapshotOut],
    summary="Datasets, newest first",
)
def snapshot_list(request: HttpRequest, slug: str) -> Any:
    project, _role = project_for(request.user, slug, READERS)
    return snapshots.snapshot_list(project=project)


@router.post(
    "/projects/{slug}/snapshots",
    auth=needs("write"),
    response={201: SnapshotOut, 202: SnapshotOut},
    summary="Freeze decided pairs or what people wrote, or import demonstrations or prompts",
)
def snapshot_create(request: HttpRequest, slug: str, payload: SnapshotIn) -> Status:
    """Given rows are frozen in the answer (201). Pairs and what people wrote are frozen by a
    worker: the answer (202) is the draft, and `GET …/snapshots/{id}` says when its `state` is
    `frozen`, or `failed` with the reason in `error`. What is wrong with the request, and in a small
    project that nothing is left to train on, is refused at once."""
    project, _role = project_for(request.user, slug, STAFF)
    if payload.from_writing and payload.kind not in WRITTEN:
        raise DomainError("People write demonstrations and prompts.", field="kind")
    if payload.writing_batches and not payload.from_writing:
        raise DomainError("Batches are of written texts alone.", field="writing_batches")
    if payload.kind == Snapshot.Kind.PREFERENCES:
        if payload.rows:
            raise DomainError("Preferences are frozen from votes, not from rows.", field="rows")
        draft, _sent = freezing.snapshot_start(
            project=project,
            name=payload.name,
            recipe=snapshots.recipe_over_defaults(project=project, data=payload.recipe),
            user=request.user,
        )
        return Status(202, draft)
    if payload.from_writing:
        if payload.rows or payload.from_improvements:
            raise DomainError(
                "Written texts are frozen without rows of your own.", field="from_writing"
            )
        draft, _sent = freezing.demonstrations_start(
            project=project,
            name=payload.name,
            user=request.user,
            source=WRITTEN[payload.kind],
            batches=payload.writing_batches,
        )
        return Status(202, draft)
    if payload.kind == Snapshot.Kind.STEPWISE and not payload.rows:
        draft, _sent = freezing.demonstrations_start(
            project=project, name=payload.name, user=request.user, source=JUDGED
        )
        return Status(202, draft)
    if payload.from_improvements:
        if payload.kind != Snapshot.Kind.DEMONSTRATIONS or payload.rows:
            raise DomainError(
                "Improved answers become demonstrations, without rows of your own.",
                field="from_improvements",
            )
        draft, _sent = freezing.demonstrations_start(
            project=project, name=payload.name, user=request.user
        )
        return Status(202, draft)
    made = snapshot_import(
        project=project,
        kind=payload.kind,
        name=payload.name,
        rows=payload.rows,
        user=request.user,
    )
    return Status(201, made)


@router.post(
    "/projects/{slug}/snapshots/suite",
    auth=needs("write"),
    response=SnapshotOut,
    summary="Add the shipped regression suite: prompts with checks",
)
def snapshot_suite(request: HttpRequest, slug: str) -> Snapshot:
    """The dataset there is, where this version's was added before."""
    project, _role = project_for(request.user, slug, STAFF)
    return suite_add(project=project, user=request.user)[0]


@router.post(
    "/projects/{slug}/snapshots/mixtures",
    auth=needs("write"),
    response={202: SnapshotOut},
    summary="Mix datasets into one; a worker makes it",
)
def snapshot_mix(request: HttpRequest, slug: str, payload: MixtureIn) -> Status:
    project, _role = project_for(request.user, slug, STAFF)
    parts = mixing.parts_from(
        project=project,
        user=request.user,
        given=[(one.snapshot, one.weight) for one in payload.parts],
    )
    made, _sent = mixing.mixture_start(
        project=project,
        name=payload.name,
        parts=parts,
        user=request.user,
        repeat=payload.repeat,
    )
    return Status(202, made)


@router.post(
    "/projects/{slug}/snapshots/preview",
    auth=needs("read"),
    response=PreviewOut,
    summary="What a recipe would keep and drop now",
)
def snapshot_preview(request: HttpRequest, slug: str, payload: RecipeIn) -> dict[str, Any]:
    project, _role = project_for(request.user, slug, STAFF)
    recipe = snapshots.recipe_over_defaults(project=project, data=payload.recipe)
    look = freezing.snapshot_look(project=project, recipe=recipe)
    return {
        "counts": look.assembly.counts,
        "warnings": list(look.assembly.warnings),
        "losses": list(look.losses),
    }


@router.get(
    "/projects/{slug}/snapshots/{snapshot_id}",
    auth=needs("read"),
    response=SnapshotDetailOut,
    summary="A dataset with its files",
)
def snapshot_get(request: HttpRequest, slug: str, snapshot_id: str) -> Any:
    project, _role = project_for(request.user, slug, READERS)
    found = snapshots.snapshot_get(project=project, snapshot_id=snapshot_id)
    found.files = exports.file_list_or_none(found) or []
    if found.state == Snapshot.State.DRAFT:
        found.step = progress_read(found.pk).get("step", "")
    return found


@router.post(
    "/projects/{slug}/snapshots/{snapshot_id}/verify",
    auth=needs("read"),
    response=VerificationOut,
    summary="Compare every file with its hash",
)
def snapshot_verify(request: HttpRequest, slug: str, snapshot_id: str) -> Any:
    project, _role = project_for(request.user, slug, READERS)
    found = snapshots.snapshot_get(project=project, snapshot_id=snapshot_id)
    return freezing.snapshot_verify(snapshot=found)


@router.get(
    "/projects/{slug}/snapshots/{snapshot_id}/export",
    auth=needs("read"),
    summary="Download a split, or everything as a zip",
    openapi_extra={
        "responses": {
            200: {
                "description": "The file",
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                },
            }
        }
    },
)
def snapshot_export(
    request: HttpRequest,
    slug: str,
    snapshot_id: str,
    split: str = "",
    format: Literal["jsonl", "parquet", "csv", "zip"] = "jsonl",
    shape: str = Query(
        "", description="conversational, standard, implicit, kto, soft, ranking, votes…"
    ),
    scrub: bool = Query(False, description="with what looks like personal data taken out"),
) -> HttpResponseBase:
    project, _role = project_for(request.user, slug, STAFF)
    found = snapshots.snapshot_get(project=project, snapshot_id=snapshot_id)
    sent = exports.snapshot_export(
        snapshot=found, split=split, form=format, shape=shape, user=request.user, scrub=scrub
    )
    return download_response(sent)


LOOKS = "/projects/{slug}/snapshots/{snapshot_id}/looks"


def _split_looks(found: Snapshot) -> list[SplitLooksOut]:
    return [
        SplitLooksOut(
            split=one.split,
            rows=one.rows,
            looks=one.used,
            budget=one.budget,
            next_look=one.next_look,
            next_alpha=one.alpha,
            needs_second_person=one.needs_second_person,
            signed=[
                SignOffOut(
                    look=row.look,
                    person=row.person.username,
                    signed_by=row.signed_by.username,
                    reason=row.reason,
                    at=row.at,
                )
                for row in one.signed
            ],
        )
        for one in looks.looks_of(found)
    ]


@router.get(
    LOOKS, auth=needs("read"), response=LooksOut, summary="Who looked at its held-out splits"
)
def snapshot_looks(
    request: HttpRequest, slug: str, snapshot_id: str, limit: int = Query(100, ge=0, le=1000)
) -> LooksOut:
    """How often each may be looked at, and the newest readings."""
    project, _role = project_for(request.user, slug, READERS)
    found = snapshots.snapshot_get(project=project, snapshot_id=snapshot_id)
    rows = looks.accesses_of(found, most=limit)
    return LooksOut(splits=_split_looks(found), readings=[ReadingOut.of(row) for row in rows])


@router.post(
    LOOKS + "/sign", auth=needs("write"), response={201: SignOffOut}, summary="Sign one more look"
)
def snapshot_look_sign(
    request: HttpRequest, slug: str, snapshot_id: str, payload: SignOffIn
) -> Status:
    """Let somebody else take the next look at a split, beyond its budget, with a reason."""
    project, _role = project_for(request.user, slug, STAFF)
    found = snapshots.snapshot_get(project=project, snapshot_id=snapshot_id)
    person = person_named(payload.person)
    row = look_sign(
        snapshot=found,
        split=payload.split,
        look=payload.look,
        person=person,
        by=request.user,
        reason=payload.reason,
    )
    made = SignOffOut(
        look=row.look,
        person=row.person.username,
        signed_by=request.user.username,
        reason=row.reason,
        at=row.at,
    )
    return Status(201, made)


@router.put(
    LOOKS + "/budget",
    auth=needs("write"),
    response=list[SplitLooksOut],
    summary="How many looks are free",
)
def snapshot_look_budget(
    request: HttpRequest, slug: str, snapshot_id: str, payload: LookBudgetIn
) -> list[SplitLooksOut]:
    """Of a held-out split; null for any number. For admins."""
    project, _role = project_for(request.user, slug, frozenset({ADMIN}))
    found = snapshots.snapshot_get(project=project, snapshot_id=snapshot_id)
    look_budget_set(snapshot=found, split=payload.split, looks=payload.looks, by=request.user)
    return _split_looks(found)


@router.get(
    "/projects/{slug}/snapshots/{snapshot_id}/changes",
    auth=needs("read"),
    response=ChangesOut,
    summary="What changed since another dataset: added, removed, flipped, moved, and why",
)
def snapshot_changes(
    request: HttpRequest,
    slug: str,
    snapshot_id: str,
    since: str = Query(..., description="the older dataset"),
    change: str = "",
    split: str = "",
    search: str = "",
    offset: int = Query(0, ge=0),
    limit: int = Query(100, ge=0, le=5_000),
) -> dict[str, Any]:
    project, _role = project_for(request.user, slug, READERS)
    new = snapshots.snapshot_get(project=project, snapshot_id=snapshot_id)
    old = snapshots.snapshot_get(project=project, snapshot_id=since)
    summary = comparing.compare_summary(old=old, new=new)
    wanted = comparing.DiffFilter(change=change, split=split, search=search.replace("\x00", ""))
    rows = comparing.compare_rows(old=old, new=new, wanted=wanted, start=offset, most=limit)
    return {
        "old": old.pk,
        "new": new.pk,
        "counts": summary.counts,
        "kept": summary.kept,
        "same": summary.same,
        "added_from": dict(summary.added_from),
        "removed_to": dict(summary.removed_to),
        "moves": [{"old": before, "new": after, "n": n} for before, after, n in summary.moves],
        "crossed": summary.crossed,
        "n": comparing.compare_count(old=old, new=new, wanted=wanted),
        "rows": list(rows),
    }


class AdviceLinkOut(Schema):
    words: str
    url: str


class AdviceItemOut(Schema):
    key: str
    kind: Literal["method", "measured", "hybrid", "caution", "improve", "overruled"]
    title: str
    reason: str
    evidence: str = Field(description="the number behind it")
    next_step: str
    links: list[AdviceLinkOut] = Field(
        description="pages the evidence stands on; for reviewers without those of runs"
    )


class MissingFactOut(Schema):
    key: str
    name: str
    why: str
    how: str


class AdviceOut(Schema):
    method: str = Field(
        description="nothing, clean, collect, sft, rules, dpo, kto, grpo, ppo or undecided"
    )
    headline: str
    provisional: bool = Field(description="a missing fact could change the method")
    items: list[AdviceItemOut]
    unknown: list[MissingFactOut]


@router.get(
    "/projects/{slug}/advice",
    auth=needs("read"),
    response=AdviceOut,
    summary="Which method to use now, by the project's own results, and why",
)
def advice(
    request: HttpRequest,
    slug: str,
    task: Task | None = None,
    rules: Rules | None = None,
    baseline: float | None = Query(
        None, ge=0, le=1, description="share of tasks that the model in use does right"
    ),
    latency_ms: float | None = Query(None, gt=0, le=3_600_000, description="for one answer"),
    exploration: bool | None = Query(
        None, description="whether better answers exist than those in the data"
    ),
) -> dict[str, Any]:
    """The facts that the project does not know are stated in the address, as on the page of data
    readiness; nothing is stored."""
    project, role = project_for(request.user, slug, READERS)
    stated = {
        "task": task,
        "rules": rules,
        "baseline": baseline,
        "latency_ms": latency_ms,
        "exploration": exploration,
    }
    found = advise(Facts(**gather(project).facts | stated))
    items = [
        asdict(item)
        | {"links": [asdict(link) for link in item.links if role in STAFF or not link.is_run]}
        for item in found.items
    ]
    return {
        "method": found.method,
        "headline": found.headline,
        "provisional": found.provisional,
        "items": items,
        "unknown": [asdict(one) for one in found.unknown],
    }


class SelectionReplayIn(Schema):
    model_config = ConfigDict(extra="forbid")

    kind: str = Field(
        "selection",
        description="selection: which pairs to ask about; depth: one vote each on more pairs "
        "against several on fewer",
    )
    most_per_prompt: int | None = Field(
        None, description="chosen pairs of one prompt in a batch, 1 to 50; null for any number"
    )


class SelectionReplayOut(Schema):
    id: str
    kind: Literal["selection", "depth"]
    state: Literal["queued", "running", "finished", "failed"]
    most_per_prompt: int | None
    verdict: str = Field(
        description="saves, no_evidence, worse or refused; of a replay of kind depth: depth, "
        "breadth, no_evidence or refused; empty before the replay is finished"
    )
    words: str = Field(description="the verdict in a sentence")
    result: dict[str, Any] = Field(
        description="n, n_votes, n_groups, seeds, points, refused; and ridge, ridges, curves, or "
        "of kind depth: deepest, n_deep, room, cells"
    )
    error: str
    created_at: datetime
    ended_at: datetime | None


SELECTION = "/projects/{slug}/selection-replays"


@router.get(
    SELECTION,
    auth=needs("read"),
    response=list[SelectionReplayOut],
    summary="Replays of the project's votes: would choosing pairs, or fewer votes a pair, have "
    "saved some, newest first",
)
def selection_replay_list(
    request: HttpRequest, slug: str, kind: Literal["", "selection", "depth"] = ""
) -> Any:
    project, _role = project_for(request.user, slug, READERS)
    return [selection.replay_shown(row) for row in selection.replays_of(project, kind)]


@router.post(
    SELECTION,
    auth=needs("write"),
    response={202: SelectionReplayOut},
    summary="Replay the project's votes; a worker does it",
)
def selection_replay_create(request: HttpRequest, slug: str, payload: SelectionReplayIn) -> Status:
    """One of a kind at a time; the one that is under way, where it has the same limit."""
    project, _role = project_for(request.user, slug, STAFF)
    row = selection_replay_start(
        project=project,
        by=request.user,
        kind=payload.kind,
        most_per_prompt=payload.most_per_prompt,
    )
    return Status(202, selection.replay_shown(row))


class BudgetLineOut(Schema):
    way: str = Field(
        description="single, soft_3, majority_3, majority_4 or unanimous_4: votes a pair, and what "
        "they become"
    )
    votes: int
    pairs: int
    labelled: float | None = Field(
        description="share of the pairs that gets a label; null where it is not known"
    )
    money: float | None
    days: float | None = Field(description="until the votes are in, at the present pace")
    soonest: float | None = Field(description="days; the range is of resampled days")
    latest: float | None
    no_day: str = Field(
        description="no_votes, none_lately, few_votes or too_far where there is no day"
    )
    measured: dict[str, Any] | None = Field(
        description="the cell of the project's newest replay of kind depth that is nearest to "
        "these votes; null where nothing is measured"
    )


class LabelBudgetOut(Schema):
    words: str = Field(description="the recommendation; empty where nothing is measured")
    price: float | None = Field(description="of one vote; null where none is stated")
    currency: str
    lines: list[BudgetLineOut]
    per_day: float | None = Field(description="votes a day, over at most 28 days")
    per_day_low: float | None
    per_day_high: float | None
    seconds: float | None = Field(description="active time of a vote, the mean")
    agreement: float | None = Field(description="how often two votes on a pair agree")
    alpha: float | None
    people: int = Field(description="with votes that labels are made from")
    busiest: float | None = Field(description="share of the votes by the most active of them")
    effective_people: float | None
    between_people: float | None = Field(
        description="standard deviation between people of their agreement with the others; null "
        "where it is not known"
    )
    votes_by_day: float | None = Field(description="votes that are in at the end of the day `by`")
    notes: list[str]


@router.get(
    "/projects/{slug}/label-budget",
    auth=needs("read"),
    response=LabelBudgetOut,
    summary="What so many votes or pairs come to by each way of asking: pairs, money, days",
)
def label_budget(
    request: HttpRequest,
    slug: str,
    votes: int | None = None,
    pairs: int | None = None,
    price: float | None = Query(None, description="of one vote"),
    wage: float | None = Query(None, description="an hour; a vote costs its active time"),
    currency: str = "",
    by: date | None = None,
) -> dict[str, Any]:
    """From the project's own pace, agreement and people; `by` asks how many votes are in at the end
    of a day. Without votes and pairs it is of the votes
    that the queue wants; without a price there is no money. Nothing is stored."""
    project, _role = project_for(request.user, slug, STAFF)
    wanted = Wanted(
        votes=votes, pairs=pairs, price=price, wage=wage, currency=currency.strip(), by=by
    )
    return budget_json(budget_of(project=project, wanted=wanted))


@router.get(
    "/projects/{slug}/votes/{vote_id}/lineage",
    auth=needs("read"),
    response=VoteLineageOut,
    summary="The datasets, runs and checkpoints that a vote went into",
)
def vote_lineage(request: HttpRequest, slug: str, vote_id: int) -> dict[str, Any]:
    project, _role = project_for(request.user, slug, READERS)
    found = lineage.vote_lineage(snapshots.vote_get(project=project, vote_id=vote_id))
    return {
        "vote": vote_id,
        "rows": [
            {
                "snapshot": row.snapshot_id,
                "split": row.split,
                "dropped_because": row.dropped_because,
                "winner": "" if row.split in PRIVATE_SPLITS else row.winner,
            }
            for row in found.rows
        ],
        "runs": [run.pk for run in found.runs],
        "checkpoints": [checkpoint.pk for checkpoint in found.checkpoints],
    }
