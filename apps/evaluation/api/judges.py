"""The API of judges: models that say which of two answers is better, what one is worth beside
people, and labels under a certificate. What a judge says is never a vote.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.models import Project
from apps.accounts.permissions import READERS, STAFF, project_for
from apps.common.errors import Missing
from apps.common.json_limits import json_check, storable
from apps.evaluation.models import (
    Judge,
    JudgeMeasurement,
    JudgeRun,
    JudgeVerdict,
    JudgeVersion,
    LabelCertificate,
)
from apps.evaluation.selectors import judges as reads
from apps.evaluation.services import certificates as labels
from apps.evaluation.services import judge_worth
from apps.evaluation.services import judges as services
from apps.evaluation.services.judge_worth import MOST_PROMPTS, SHARE
from apps.evaluation.services.judges import MOST_ATTACKED
from apps.labeling.models import Task
from apps.labeling.services import LABELERS
from apps.snapshots.api import SnapshotOut
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint
from workers.config.judging import LONGEST_PROMPT

router = Router(tags=["judges"])
ALL = "/projects/{slug}/judges"
ONE = f"{ALL}/{{judge_id}}"
VERSION = f"{ONE}/versions/{{number}}"
CERTIFICATES = "/projects/{slug}/certificates"
CERTIFICATE = f"{CERTIFICATES}/{{certificate_id}}"
_MOST_OFFSET = 10**9


class JudgeScopeIO(Schema):
    """Which pairs of the project."""

    kind: Literal["project", "batch", "head_to_head"]
    name: str = Field(
        "", max_length=200, description="of the batch, or the id of the head-to-head; else empty"
    )

    def scope(self) -> reads.Scope:
        return reads.Scope(self.kind, self.name)


def _everything() -> JudgeScopeIO:
    return JudgeScopeIO(kind="project", name="")


class JudgeIn(Schema):
    name: str = Field(max_length=200)
    model: str = Field(max_length=40, description="a reward model, a policy or a served model")
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="prompt, rubric, reads, parser, max_new_tokens, temperature …; the defaults "
        "are in docs/judges.md, and a reward model needs none",
    )


class JudgeVersionIn(Schema):
    model: str | None = Field(None, max_length=40, description="null: that of the newest version")
    config: dict[str, Any] = Field(
        default_factory=dict, description="what differs from the newest version's configuration"
    )
    note: str = Field("", max_length=300, description="what is different, for others")


class JudgeMeasureIn(Schema):
    scope: JudgeScopeIO = Field(default_factory=_everything)
    share: float = Field(SHARE, description="of the prompts, whose votes are the human sample")
    attacked: int = Field(
        0, description=f"pairs that each shipped attack is tried on, 0 to {MOST_ATTACKED}"
    )
    queue: str = Field("cpu", max_length=40, description="the machine class of the run")


class JudgeTrialIn(Schema):
    prompts: list[str] = Field(
        max_length=MOST_PROMPTS, description=f"2 to {MOST_PROMPTS}, each of which is a version"
    )
    scope: JudgeScopeIO = Field(default_factory=_everything)
    share: float = Field(1.0, description="of the prompts, whose votes are the human sample")


class JudgePresortIn(Schema):
    scope: JudgeScopeIO = Field(default_factory=_everything)
    measuring: float = Field(0.2, description="share of the pairs that keeps its random place")


class CertificateIn(Schema):
    scope: JudgeScopeIO = Field(
        default_factory=_everything, description="of the project or a batch"
    )
    error: float = Field(0.1, description="share of the labels that may be wrong, at most 0.5")
    failure: float = Field(
        0.05, description="probability that this does not hold, over all looks, at most 0.5"
    )
    against: str = Field(
        "decision",
        max_length=40,
        description="a label is wrong that differs from what people decided (decision), or from "
        "one vote of each pair (vote)",
    )
    audited: float = Field(0.1, description="share of the labels that people check")


class CertificateLabelIn(Schema):
    scope: JudgeScopeIO = Field(
        default_factory=_everything, description="of the project or a batch"
    )


class CertificateFreezeIn(Schema):
    name: str = Field("", max_length=120, description="of the dataset; empty: after the judge")


class CertificateStopIn(Schema):
    because: str = Field("", max_length=300, description="it stays with the certificate")


class JudgeMeasurementOut(Schema):
    id: int
    judge: int
    version: int = Field(description="its number")
    scope: JudgeScopeIO
    part: str = Field(description="of the human sample: all, tune, choose or certify")
    share: float = Field(description="of the prompts, that the human sample is")
    look: int = Field(description="how often the part kept apart was read, with this time")
    n_pairs: int = Field(description="of the sample, with a verdict and a vote")
    n_votes: int
    n_simulated: int = Field(description="votes that no person gave; evidence of nothing")
    figures: dict[str, Any] = Field(description="as kept; docs/judges.md explains each")
    refused: str = Field(description="why there are no figures; empty: there are")
    by: str | None
    at: datetime

    @classmethod
    def of(cls, row: JudgeMeasurement) -> "JudgeMeasurementOut":
        return cls(
            id=row.pk,
            judge=row.version.judge_id,
            version=row.version.number,
            scope=_scope_out(row.scope),
            part=row.part,
            share=row.share,
            look=row.look,
            n_pairs=row.n_pairs,
            n_votes=row.n_votes,
            n_simulated=row.n_simulated,
            figures=row.figures,
            refused=row.refused,
            by=str(row.by) if row.by else None,
            at=row.at,
        )


class JudgeWorthOut(Schema):
    """The figures that a version stands by, in short."""

    measurement: int = Field(description="id of the measurement that they are from")
    part: str
    n_pairs: int
    n_votes: int
    n_simulated: int
    agreement: float | None = Field(description="share of single votes that it agrees with")
    agreement_low: float | None
    agreement_high: float | None
    people: float | None = Field(description="share with which two people agree on these pairs")
    saved: float | None = Field(description="share of human votes that it spares at equal width")
    biases: list[str] = Field(description="of length, position, family, flips: those shown")

    @classmethod
    def of(cls, row: JudgeMeasurement | None) -> "JudgeWorthOut | None":
        if row is None or row.refused:
            return None
        agreement = row.figures.get("agreement") or {}
        return cls(
            measurement=row.pk,
            part=row.part,
            n_pairs=row.n_pairs,
            n_votes=row.n_votes,
            n_simulated=row.n_simulated,
            agreement=agreement.get("value"),
            agreement_low=agreement.get("low"),
            agreement_high=agreement.get("high"),
            people=(row.figures.get("people") or {}).get("value"),
            saved=(row.figures.get("ppi") or {}).get("saved"),
            biases=[one["name"] for one in row.figures.get("biases") or [] if one["is_shown"]],
        )


class JudgeVersionOut(Schema):
    judge: int
    number: int
    model: str
    config: dict[str, Any]
    sha256: str = Field(description="of model, configuration and fingerprint")
    fingerprint: str = Field(description="what its server said that it runs; empty: nothing")
    state: str = Field(
        description="measured, not_measured, or changed (its server answers otherwise)"
    )
    reads_alone: bool = Field(description="a reward model, which no order of answers can move")
    shaped: bool = Field(description="figures were seen before it: only the part kept apart counts")
    worth: JudgeWorthOut | None = Field(description="null: nothing was measured")
    note: str
    changed_at: datetime | None
    changed_because: str
    created_by: str | None
    created_at: datetime

    @classmethod
    def of(cls, row: JudgeVersion) -> "JudgeVersionOut":
        found = reads.measurement_of(row)
        shown = "measured" if reads.is_measured(row, found) else "not_measured"
        return cls(
            judge=row.judge_id,
            number=row.number,
            model=row.model_id,
            config=row.config,
            sha256=row.sha256,
            fingerprint=row.fingerprint,
            state="changed" if row.changed_at is not None else shown,
            reads_alone=row.reads_answers_alone,
            shaped=reads.is_shaped(row),
            worth=JudgeWorthOut.of(found),
            note=row.note,
            changed_at=row.changed_at,
            changed_because=row.changed_because,
            created_by=str(row.created_by) if row.created_by else None,
            created_at=row.created_at,
        )


class ModelJudgeOut(Schema):
    id: int
    name: str
    version: JudgeVersionOut = Field(description="the newest")
    created_at: datetime
    archived_at: datetime | None

    @classmethod
    def of(cls, version: JudgeVersion) -> "ModelJudgeOut":
        return cls(**_judge_fields(version))


class JudgeDetailOut(ModelJudgeOut):
    versions: list[JudgeVersionOut] = Field(description="the newest first")


class JudgeAskedOut(Schema):
    """Of the two one is there: the run whose verdicts are waited for, or what was measured."""

    run: str | None
    measurement: JudgeMeasurementOut | None


class JudgeMeasurementsOut(Schema):
    items: list[JudgeMeasurementOut]
    count: int


class JudgeVerdictOut(Schema):
    judge: str = Field(description="who said it: a judge and its version, no person")
    is_vote: Literal[False] = Field(False, description="no verdict counts as a vote, anywhere")
    comparison: int
    first: float | None = Field(
        description="P(the answer shown first is better), A shown first; null: unreadable"
    )
    second: float | None = Field(description="the same with B first")
    preference: float = Field(description="P(A is better), ½(first + 1 − second)")
    said: list[str] = Field(description="what it wrote in the two orders")

    @classmethod
    def of(cls, row: JudgeVerdict, version: JudgeVersion) -> "JudgeVerdictOut":
        return cls(
            judge=str(version),
            comparison=row.task_id,
            first=row.first,
            second=row.second,
            preference=row.preference,
            said=row.said,
        )


class JudgeVerdictsOut(Schema):
    items: list[JudgeVerdictOut]
    count: int


class JudgeTriedOut(Schema):
    """A prompt of a trial, by its version. The parts that were not read are null."""

    version: int
    note: str
    tune: JudgeMeasurementOut | None
    choose: JudgeMeasurementOut | None
    certify: JudgeMeasurementOut | None = Field(description="of the version that was chosen")


class JudgeTrialOut(Schema):
    key: str
    at: datetime
    live: bool = Field(description="runs of it are under way")
    scope: JudgeScopeIO
    versions: list[JudgeTriedOut]


class JudgeTrialKeyOut(Schema):
    key: str


class JudgePresortOut(Schema):
    moved: int = Field(description="pairs that go first, the least sure ones at the front")
    measuring: int = Field(description="pairs that keep their place, and measure")


class LabelAuditOut(Schema):
    """People's votes on the labels that were drawn to be checked."""

    n: int = Field(description="settled by people")
    wrong: float = Field(description="of them, a tie a half")
    low: float = Field(description="where the error lies, whenever one looks")
    high: float
    alarm_at: int | None = Field(description="labels after which it was contradicted; null: never")


class CertificateUseOut(Schema):
    dataset: str
    name: str
    n_labels: int


class CertificateOut(Schema):
    id: str
    judge: int
    version: int
    state: str = Field(description="valid, nothing_certified or stopped")
    scope: JudgeScopeIO
    against: str
    error: float
    failure: float
    audited: float
    look: int = Field(description="at the part kept apart, by versions of this judge")
    threshold: float | None = Field(description="least confidence of a label; null: none")
    temperature: float
    figures: dict[str, Any] = Field(description="as certified; docs/judges.md explains each")
    sha256: str
    stopped_at: datetime | None
    stopped_because: str
    created_by: str | None
    created_at: datetime


class CertificateDetailOut(CertificateOut):
    n_labels: int
    n_audited: int
    audit: LabelAuditOut
    uses: list[CertificateUseOut] = Field(description="datasets with its labels")


class CertificatesOut(Schema):
    items: list[CertificateOut]
    count: int


class CertificateLabelOut(Schema):
    run: str | None = Field(description="the judge is being asked; null: it had judged all of them")
    n_labels: int = Field(description="under this certificate now")


# --- what they are made of ---


def _scope_out(kept: Mapping[str, Any]) -> JudgeScopeIO:
    scope = reads.Scope.of(kept)
    return JudgeScopeIO.model_construct(kind=scope.kind, name=scope.name)


def _judge_fields(version: JudgeVersion) -> dict[str, Any]:
    judge = version.judge
    return {
        "id": judge.pk,
        "name": judge.name,
        "version": JudgeVersionOut.of(version),
        "created_at": judge.created_at,
        "archived_at": judge.archived_at,
    }


def _detail(judge: Judge) -> JudgeDetailOut:
    rows = list(
        judge.versions.select_related("judge__project", "model__run", "created_by").order_by(
            "-number"
        )
    )
    return JudgeDetailOut(
        **_judge_fields(rows[0]), versions=[JudgeVersionOut.of(one) for one in rows]
    )


def _certificate_fields(row: LabelCertificate) -> dict[str, Any]:
    state = "stopped" if row.stopped_at is not None else "valid"
    return {
        "id": row.pk,
        "judge": row.version.judge_id,
        "version": row.version.number,
        "state": "nothing_certified" if row.threshold is None else state,
        "scope": _scope_out(row.scope),
        "against": row.against,
        "error": row.error,
        "failure": row.failure,
        "audited": row.audited,
        "look": row.look,
        "threshold": row.threshold,
        "temperature": row.temperature,
        "figures": row.figures,
        "sha256": row.sha256,
        "stopped_at": row.stopped_at,
        "stopped_because": row.stopped_because,
        "created_by": str(row.created_by) if row.created_by else None,
        "created_at": row.created_at,
    }


def _certificate_detail(row: LabelCertificate) -> CertificateDetailOut:
    state = labels.audit_of(row)
    return CertificateDetailOut(
        **_certificate_fields(row),
        n_labels=row.labels.count(),
        n_audited=row.labels.filter(is_audited=True).count(),
        audit=LabelAuditOut(
            n=state.n, wrong=state.wrong, low=state.low, high=state.high, alarm_at=state.alarm_at
        ),
        uses=[
            CertificateUseOut(
                dataset=one.snapshot_id, name=one.snapshot.name, n_labels=one.n_labels
            )
            for one in row.uses.select_related("snapshot").order_by("snapshot__created_at")
        ],
    )


def _judge(
    request: HttpRequest, slug: str, judge_id: int, roles: frozenset[str] = READERS
) -> Judge:
    project, _ = project_for(request.user, slug, roles)
    return reads.judge_get(project=project, judge_id=judge_id)


def _version(
    request: HttpRequest,
    slug: str,
    judge_id: int,
    number: int,
    roles: frozenset[str] = READERS,
) -> JudgeVersion:
    return reads.version_get(judge=_judge(request, slug, judge_id, roles), number=number)


def _certificate(
    request: HttpRequest, slug: str, certificate_id: str, roles: frozenset[str] = READERS
) -> LabelCertificate:
    project, _ = project_for(request.user, slug, roles)
    return reads.certificate_get(project=project, certificate_id=certificate_id)


def _model(project: Project, key: str) -> Checkpoint:
    rows = Checkpoint.objects.filter(project=project, pk=key.replace("\x00", ""))
    found = rows.select_related("run").first()
    if found is None:
        raise Missing("There is no such model in this project.", field="model")
    return found


def _config(given: Mapping[str, Any]) -> dict[str, Any]:
    json_check(dict(given), field="config")
    return dict(storable(dict(given)))


# --- judges and versions ---


@router.get(ALL, auth=needs("read"), response=list[ModelJudgeOut], summary="Judges in use, by name")
def judge_list(request: HttpRequest, slug: str) -> list[ModelJudgeOut]:
    """Each with its newest version, its state and what it is worth in short."""
    project, _ = project_for(request.user, slug, READERS)
    return [ModelJudgeOut.of(one) for one in reads.versions_of(project=project)]


@router.post(ALL, auth=needs("write"), response={201: JudgeDetailOut}, summary="Make a judge")
def judge_make(request: HttpRequest, slug: str, payload: JudgeIn) -> Status[JudgeDetailOut]:
    """With its first version, of which nothing is known until it was measured. 409 `name_taken`,
    400 `wrong_model`, or `bad_config` naming the setting."""
    project, _ = project_for(request.user, slug, STAFF)
    made = services.judge_make(
        project=project,
        name=payload.name,
        model=_model(project, payload.model),
        config=_config(payload.config),
        user=request.user,
    )
    return Status(201, _detail(made.judge))


@router.get(ONE, auth=needs("read"), response=JudgeDetailOut, summary="A judge with its versions")
def judge_get(request: HttpRequest, slug: str, judge_id: int) -> JudgeDetailOut:
    """Also one that was archived."""
    return _detail(_judge(request, slug, judge_id))


@router.post(
    f"{ONE}/versions",
    auth=needs("write"),
    response={201: JudgeVersionOut},
    summary="Make a version of a judge",
)
def judge_version_make(
    request: HttpRequest, slug: str, judge_id: int, payload: JudgeVersionIn
) -> Status[JudgeVersionOut]:
    """The newest one with these changes. Where nothing but the note differs from a version that
    there is, that one is answered."""
    judge = _judge(request, slug, judge_id, STAFF)
    newest = reads.version_get(judge=judge)
    made = services.version_make(
        judge=judge,
        model=newest.model if payload.model is None else _model(judge.project, payload.model),
        config={**newest.config, **_config(payload.config)},
        note=payload.note,
        user=request.user,
    )
    return Status(201, JudgeVersionOut.of(made))


@router.post(
    f"{ONE}/archive", auth=needs("write"), response=JudgeDetailOut, summary="Archive a judge"
)
def judge_archive(request: HttpRequest, slug: str, judge_id: int) -> JudgeDetailOut:
    """It is asked nothing any more; what it said and its figures stay. Again changes nothing."""
    judge = _judge(request, slug, judge_id, STAFF)
    services.judge_archive(judge=judge, user=request.user)
    return _detail(judge)


# --- what a version is worth ---


@router.post(
    f"{VERSION}/measurements",
    auth=needs("train"),
    response={201: JudgeAskedOut},
    summary="Measure a version of a judge",
)
def judge_measure(
    request: HttpRequest, slug: str, judge_id: int, number: int, payload: JudgeMeasureIn
) -> Status[JudgeAskedOut]:
    """It is asked about the pairs that it has not judged, and measured once they are there; at once
    where it has judged them all. 409 `judge_changed` of a version that is served no longer."""
    version = _version(request, slug, judge_id, number, STAFF)
    made = judge_worth.judge_measure(
        version=version,
        scope=payload.scope.scope(),
        share=payload.share,
        attacked=payload.attacked,
        queue=payload.queue,
        user=request.user,
    )
    if isinstance(made, JudgeRun):
        return Status(201, JudgeAskedOut(run=made.run_id, measurement=None))
    return Status(201, JudgeAskedOut(run=None, measurement=JudgeMeasurementOut.of(made)))


@router.get(
    f"{VERSION}/measurements",
    auth=needs("read"),
    response=JudgeMeasurementsOut,
    summary="Measurements of a version, newest first",
)
def judge_measurements(
    request: HttpRequest,
    slug: str,
    judge_id: int,
    number: int,
    offset: int = Query(0, ge=0, le=_MOST_OFFSET),
    limit: int = Query(20, ge=1, le=100),
) -> JudgeMeasurementsOut:
    """The newest of a scope and part is the one that counts."""
    rows = _measurements(_version(request, slug, judge_id, number))
    return JudgeMeasurementsOut(
        items=[JudgeMeasurementOut.of(one) for one in rows[offset : offset + limit]],
        count=rows.count(),
    )


def _measurements(version: JudgeVersion) -> Any:
    return version.measurements.select_related("version", "by").order_by("-pk")


@router.get(
    f"{VERSION}/measurements/{{measurement_id}}",
    auth=needs("read"),
    response=JudgeMeasurementOut,
    summary="A measurement with its figures",
)
def judge_measurement(
    request: HttpRequest, slug: str, judge_id: int, number: int, measurement_id: int
) -> JudgeMeasurementOut:
    """As they were kept; docs/judges.md says what each is."""
    version = _version(request, slug, judge_id, number)
    found = _measurements(version).filter(pk=measurement_id).first()
    if found is None:
        raise Missing("This version has no such measurement.", field="measurement")
    return JudgeMeasurementOut.of(found)


@router.get(
    f"{VERSION}/verdicts",
    auth=needs("read"),
    response=JudgeVerdictsOut,
    summary="What a version said, pair by pair",
)
def judge_verdicts(
    request: HttpRequest,
    slug: str,
    judge_id: int,
    number: int,
    offset: int = Query(0, ge=0, le=_MOST_OFFSET),
    limit: int = Query(100, ge=1, le=1_000),
) -> JudgeVerdictsOut:
    """By pair. No verdict is a vote. Whoever may vote here gets only pairs that are no longer
    open, so that no vote is a copy of a verdict."""
    project, role = project_for(request.user, slug, READERS)
    judge = reads.judge_get(project=project, judge_id=judge_id)
    version = reads.version_get(judge=judge, number=number)
    rows = version.verdicts.order_by("task_id")
    if role in LABELERS:
        rows = rows.exclude(task__state=Task.State.OPEN)
    return JudgeVerdictsOut(
        items=[JudgeVerdictOut.of(one, version) for one in rows[offset : offset + limit]],
        count=rows.count(),
    )


# --- choosing a prompt, and sorting what people see ---


@router.post(
    f"{VERSION}/trials",
    auth=needs("train"),
    response={201: JudgeTrialKeyOut},
    summary="Try prompts of a judge",
)
def judge_trial_start(
    request: HttpRequest, slug: str, judge_id: int, number: int, payload: JudgeTrialIn
) -> Status[JudgeTrialKeyOut]:
    """Each becomes a version with the other settings of this one. The best on the part for choosing
    is measured once on the part that is kept apart."""
    version = _version(request, slug, judge_id, number, STAFF)
    key = judge_worth.judge_tune(
        version=version,
        prompts=[{"prompt": storable(one[: LONGEST_PROMPT + 1])} for one in payload.prompts],
        scope=payload.scope.scope(),
        share=payload.share,
        user=request.user,
    )
    return Status(201, JudgeTrialKeyOut(key=key))


@router.get(
    f"{ONE}/trials",
    auth=needs("read"),
    response=list[JudgeTrialOut],
    summary="Trials of prompts, newest first",
)
def judge_trials(request: HttpRequest, slug: str, judge_id: int) -> list[JudgeTrialOut]:
    """At most 10."""
    found = reads.trials_of(_judge(request, slug, judge_id))
    return [
        JudgeTrialOut(
            key=trial["key"],
            at=trial["at"],
            live=trial["live"],
            scope=_scope_out(trial["scope"]),
            versions=[_tried(row) for row in trial["rows"]],
        )
        for trial in found
    ]


def _tried(row: Mapping[Any, Any]) -> JudgeTriedOut:
    parts = {
        str(part): JudgeMeasurementOut.of(row[part]) if row[part] else None
        for part in (reads.Part.TUNE, reads.Part.CHOOSE, reads.Part.CERTIFY)
    }
    return JudgeTriedOut(version=row["version"].number, note=row["version"].note, **parts)


@router.post(
    f"{VERSION}/presort",
    auth=needs("write"),
    response=JudgePresortOut,
    summary="Put first what a judge is least sure of",
)
def judge_presort(
    request: HttpRequest, slug: str, judge_id: int, number: int, payload: JudgePresortIn
) -> JudgePresortOut:
    """Of open pairs without a vote. Nobody is shown a verdict. 409 `no_verdicts` where it was not
    asked about any of them."""
    version = _version(request, slug, judge_id, number, STAFF)
    moved, kept = judge_worth.pairs_presort(
        version=version,
        scope=payload.scope.scope(),
        measuring=payload.measuring,
        user=request.user,
    )
    return JudgePresortOut(moved=moved, measuring=kept)


# --- labels under a certificate ---


@router.post(
    f"{VERSION}/certificates",
    auth=needs("write"),
    response={201: CertificateDetailOut},
    summary="Certify labels of a judge",
)
def judge_certify(
    request: HttpRequest, slug: str, judge_id: int, number: int, payload: CertificateIn
) -> Status[CertificateDetailOut]:
    """Every try is a look at the part kept apart. One without a `threshold` allows no label, and
    `figures.undefined` says why."""
    version = _version(request, slug, judge_id, number, STAFF)
    given = payload.dict() | {"scope": payload.scope.scope()}
    made = labels.certificate_make(version=version, user=request.user, **given)
    return Status(201, _certificate_detail(made))


@router.get(
    CERTIFICATES,
    auth=needs("read"),
    response=CertificatesOut,
    summary="Certificates of labels, newest first",
)
def certificates(
    request: HttpRequest,
    slug: str,
    judge: int | None = Query(None, description="of one judge"),
    offset: int = Query(0, ge=0, le=_MOST_OFFSET),
    limit: int = Query(20, ge=1, le=100),
) -> CertificatesOut:
    """Also those under which nothing was certified, and those that have stopped."""
    project, _ = project_for(request.user, slug, READERS)
    rows = LabelCertificate.objects.filter(project=project)
    if judge is not None:
        rows = rows.filter(version__judge=judge)
    shown = rows.select_related("version", "created_by").order_by("-created_at", "-pk")
    return CertificatesOut(
        items=[
            CertificateOut(**_certificate_fields(one)) for one in shown[offset : offset + limit]
        ],
        count=rows.count(),
    )


@router.get(
    CERTIFICATE,
    auth=needs("read"),
    response=CertificateDetailOut,
    summary="A certificate with its audit and its uses",
)
def certificate(request: HttpRequest, slug: str, certificate_id: str) -> CertificateDetailOut:
    return _certificate_detail(_certificate(request, slug, certificate_id))


@router.post(
    f"{CERTIFICATE}/labels",
    auth=needs("train"),
    response={201: CertificateLabelOut},
    summary="Label pairs without a vote",
)
def certificate_label(
    request: HttpRequest, slug: str, certificate_id: str, payload: CertificateLabelIn
) -> Status[CertificateLabelOut]:
    """Those of which the judge is sure enough. 409 `not_certified` or `certificate_stopped` where
    nothing may be labelled."""
    found = _certificate(request, slug, certificate_id, STAFF)
    asked = labels.labels_ask(certificate=found, scope=payload.scope.scope(), user=request.user)
    return Status(
        201,
        CertificateLabelOut(run=asked.run_id if asked else None, n_labels=found.labels.count()),
    )


@router.post(
    f"{CERTIFICATE}/freeze",
    auth=needs("write"),
    response={201: SnapshotOut},
    summary="Freeze labels under a certificate as a dataset",
)
def certificate_freeze(
    request: HttpRequest, slug: str, certificate_id: str, payload: CertificateFreezeIn
) -> Status[Snapshot]:
    """Without the labels that people check. Every row says that a judge labelled it."""
    found = _certificate(request, slug, certificate_id, STAFF)
    name = payload.name.strip() or f"Labels by {found.version}"[:120]
    return Status(201, labels.labels_freeze(certificate=found, name=name, user=request.user))


@router.post(
    f"{CERTIFICATE}/stop",
    auth=needs("write"),
    response=CertificateDetailOut,
    summary="Stop a certificate",
)
def certificate_stop(
    request: HttpRequest, slug: str, certificate_id: str, payload: CertificateStopIn | None = None
) -> CertificateDetailOut:
    """Nothing more is labelled or frozen under it, for good. Again changes nothing."""
    found = _certificate(request, slug, certificate_id, STAFF)
    because = (payload.because.strip() if payload else "") or f"Stopped by {request.user}."
    labels.certificate_stop(certificate=found, because=because, by=request.user)
    return _certificate_detail(
        reads.certificate_get(project=found.project, certificate_id=found.pk)
    )
