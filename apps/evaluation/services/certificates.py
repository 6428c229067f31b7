"""Labels by a judge under a certified error, frozen as datasets, and watched by people's votes.

A certificate is made on pairs that people voted on and that shaped nothing. Under it pairs that
nobody has voted on are labelled; a share of them, drawn by hash, goes to people all the same. Each
of their votes is laid beside the label, and once they contradict the certificate it stops: nothing
more is labelled or frozen under it, and every dataset and model that stands on it says so.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.models import longest
from apps.evaluation.models import (
    CertificateUse,
    CertifiedLabel,
    Judge,
    JudgeRun,
    JudgeVersion,
    LabelCertificate,
)
from apps.evaluation.selectors.judges import (
    AUDIT_SALT,
    BATCH,
    HEAD_TO_HEAD,
    SCORES,
    Judged,
    Part,
    Scope,
    certify_looks,
    judged,
    outcome_for,
    pairs_are_units,
    scope_check,
    tasks_in,
)
from apps.evaluation.services.judge_worth import as_judged, plain_figures
from apps.evaluation.services.judges import pairs_ask
from apps.labeling.models import Answer, Choice, Decision, Slot, Task
from apps.labeling.services.batches import pairs_order
from apps.labeling.services.bulk import HIGHEST_PRIORITY
from apps.monitoring.services.incidents import incident_open
from apps.snapshots.models import Snapshot
from apps.snapshots.services.ai_feedback import ai_feedback_freeze
from measures.certificates import AuditState, audit, certify
from measures.judging import confidence, worth
from measures.splits import unit_hash

log = logging.getLogger(__name__)
Against = LabelCertificate.Against
LEAST_TUNED = 20  # pairs with votes that a temperature is fitted on
RULE = "labels_contradicted"


@transaction.atomic
def certificate_make(
    *,
    version: JudgeVersion,
    scope: Scope,
    error: float,
    failure: float,
    against: str,
    audited: float,
    user: User | None,
) -> LabelCertificate:
    """Certify on the pairs of the scope that are kept apart, which have verdicts already; each try
    is a look. A certificate without a threshold says why none was found. `DomainError` names the
    field."""
    for field, value in (("error", error), ("failure", failure), ("audited", audited)):
        if not 0 < value <= (1 if field == "audited" else 0.5):
            most = 1 if field == "audited" else 0.5
            raise DomainError(f"Over 0, and at most {most}.", code="bad_share", field=field)
    if against not in Against.values:
        raise DomainError(f"One of {', '.join(Against.values)}.", field="against")
    # Looks are counted in line, those of measurements too, and no version changes meanwhile.
    Judge.objects.select_for_update(no_key=True).get(pk=version.judge_id)
    version.refresh_from_db(fields=["changed_at", "changed_because"])
    if version.changed_at is not None:
        raise Conflict(f"This version has changed: {version.changed_because}", code="judge_changed")
    project = version.judge.project
    _scope_check(project, scope)
    found = judged(version=version, scope=scope)
    temperature = temperature_of(found)
    look = certify_looks(version.judge, scope) + 1
    rows = certifiable(found, against=against)
    sure = confidence(found.first, found.second, temperature)
    result = certify(sure[rows.place], rows.wrong, error=error, failure=failure, look=look)
    content = {
        "version": version.sha256,
        "scope": scope.to_json(),
        "against": against,
        "error": error,
        "failure": failure,
        "look": look,
        "temperature": temperature,
        "pairs": found.task[rows.place].tolist(),
        "result": plain_figures(result),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    made = LabelCertificate.objects.create(
        version=version,
        project=project,
        scope=scope.to_json(),
        against=against,
        error=error,
        failure=failure,
        audited=audited,
        look=look,
        threshold=result.threshold,
        temperature=temperature,
        figures=content["result"]
        | {
            "simulated": int(found.only(found.part(Part.CERTIFY)).simulated.sum()),
            "person_right": person_right_in(found),
            "prompts": _few_prompts(found, scope, project),
        },
        sha256=digest,
        created_by=user,
    )
    audit_record(
        action="judge.certified",
        actor=user,
        project=project,
        subject=str(version.judge_id),
        details={"name": version.judge.name, "certificate": made.pk, "look": look},
    )
    return made


def _few_prompts(found: Judged, scope: Scope, project: Project) -> list[int] | None:
    """Prompts of pairs that were units of their own: the only ones of which anything was certified.
    None where prompts were the units."""
    if not pairs_are_units(project=project, scope=scope):
        return None
    rows = Task.objects.filter(pk__in=found.task.tolist()).order_by("prompt_id")
    return list(rows.values_list("prompt_id", flat=True).distinct())


def _scope_check(project: Project, scope: Scope) -> None:
    if scope.kind == HEAD_TO_HEAD:
        raise Conflict(
            "The pairs of a head-to-head are labelled by people alone, and become no dataset.",
            code="random_order",
            field="scope",
        )
    scope_check(project=project, scope=scope)


class Certifiable:
    """place: (n,) of the pairs that a certificate is made on, one a prompt; wrong: (n,) whether the
    judge's label is."""

    def __init__(self, place: Sequence[int], wrong: Sequence[bool]) -> None:
        self.place = np.array(place, dtype=np.int64)
        self.wrong = np.array(wrong, dtype=bool)


def certifiable(found: Judged, *, against: str) -> Certifiable:
    """Pairs of the part kept apart that may measure and have votes, one of each prompt, drawn by
    hash. Against decisions a pair that people decided for neither answer counts as a wrong label,
    and so does one that its votes leave undecided: it is no chance on which pairs people disagree.
    Against votes one vote of each pair is drawn by hash, and a tie counts as wrong."""
    usable = found.part(Part.CERTIFY) & found.voted & found.measuring
    if against == Against.DECISION:
        usable &= np.array([bool(one) for one in found.decided], dtype=bool)
    first: dict[int, list[int]] = {}
    for place, vote in enumerate(found.pair.tolist()):
        first.setdefault(vote, []).append(place)
    chosen: dict[int, int] = {}
    for place in np.flatnonzero(usable).tolist():
        prompt = int(found.prompt[place])
        key = unit_hash(str(int(found.task[place])), AUDIT_SALT)
        if prompt not in chosen or key < unit_hash(
            str(int(found.task[chosen[prompt]])), AUDIT_SALT
        ):
            chosen[prompt] = place
    places = sorted(chosen.values())
    wrong = []
    for place in places:
        label = label_of(found, place)
        if against == Against.DECISION:
            wrong.append(found.decided[place] != label)
            continue
        votes = first[place]
        task = str(int(found.task[place]))
        drawn = votes[int(unit_hash(task, "judge vote") * len(votes))]
        wrong.append(found.score[drawn] != (1.0 if label == "a" else 0.0))
    return Certifiable(places, wrong)


def temperature_of(found: Judged) -> float:
    """Fitted on the votes of the parts for tuning and choosing; 1 where they are too few, or
    cannot tell."""
    rest = found.only(found.part(Part.TUNE, Part.CHOOSE) & found.voted & found.measuring)
    if len(rest) < LEAST_TUNED:
        return 1.0
    fitted = worth(as_judged(rest), tune=np.ones(len(rest), dtype=bool)).temperature.value
    return fitted or 1.0


def label_of(found: Judged, place: int) -> str:
    return "a" if found.preference[place] > 0.5 else "b"


# --- labels under it ---


def labels_ask(
    *, certificate: LabelCertificate, scope: Scope, user: User | None
) -> JudgeRun | None:
    """Have the judge asked about the pairs of a scope that it has not judged, and label what it is
    sure of; None where it has judged them all, and the labels are there."""
    valid_check(certificate)
    _scope_check(certificate.project, scope)
    certified = Scope.of(certificate.scope)
    if certified.kind == BATCH and scope != certified:
        raise Conflict(
            f"It was certified on pairs of {certified.words}, and says nothing of others.",
            code="other_scope",
            field="scope",
        )
    wanted = {"certificate": certificate.pk}
    asked = pairs_ask(
        version=certificate.version,
        scope=scope,
        purpose=JudgeRun.Purpose.LABEL,
        wanted=wanted,
        user=user,
    )
    if asked is None:
        labels_give(certificate=certificate, scope=scope)
    return asked


def valid_check(certificate: LabelCertificate) -> None:
    """Raises `Conflict` for one under which nothing may be labelled."""
    if certificate.threshold is None:
        raise Conflict("Nothing was certified: no label may be given.", code="not_certified")
    if certificate.stopped_at is not None:
        raise Conflict(
            f"This certificate has stopped: {certificate.stopped_because}",
            code="certificate_stopped",
        )


@transaction.atomic
def labels_give(*, certificate: LabelCertificate, scope: Scope) -> int:
    """Label pairs of the scope without a vote where the judge is sure enough; a share of them,
    drawn by hash, goes to the front of the queue. How many were added."""
    certificate = LabelCertificate.objects.select_for_update(of=("self",)).get(pk=certificate.pk)
    valid_check(certificate)
    assert certificate.threshold is not None  # noqa: S101 — just checked
    found = judged(version=certificate.version, scope=scope)
    sure = confidence(found.first, found.second, certificate.temperature)
    known = set(certificate.labels.values_list("task_id", flat=True))
    rows = tasks_in(project=certificate.project, scope=scope).filter(state=Task.State.OPEN)
    prompts = certificate.figures.get("prompts")
    if prompts is not None:
        rows = rows.filter(prompt__in=prompts)
    open_ones = set(rows.values_list("pk", flat=True))
    labels = [
        CertifiedLabel(
            certificate=certificate,
            task_id=task,
            label=label_of(found, place),
            probability=float(sure[place]),
            is_audited=unit_hash(f"{certificate.pk} {task}", AUDIT_SALT) < certificate.audited,
        )
        for place in np.flatnonzero((sure >= certificate.threshold) & ~found.voted).tolist()
        if (task := int(found.task[place])) not in known and task in open_ones
    ]
    CertifiedLabel.objects.bulk_create(labels, batch_size=2_000, ignore_conflicts=True)
    # They were chosen by a judge that is sure of them: they measure nothing but the certificate.
    audited = {one.task_id: HIGHEST_PRIORITY / 2 for one in labels if one.is_audited}
    pairs_order(project=certificate.project, priorities=audited, measuring=0, salt="", again=True)
    return len(labels)


def labels_freeze(*, certificate: LabelCertificate, name: str, user: User) -> Snapshot:
    """A dataset of its labels, without the audited ones, whose votes people give, and without pairs
    that have been voted on, dropped or held back since. Weights are of calibrated probabilities,
    and never above a person's, which is 1."""
    valid_check(certificate)
    rows = list(
        certificate.labels.filter(is_audited=False)
        .filter(task__state=Task.State.OPEN, task__n_votes=0)
        .select_related("task__prompt", "task__response_a", "task__response_b")
        .order_by("task_id")
    )
    if not rows:
        raise Conflict("There are no labels under this certificate yet.", code="no_labels")
    best = person_right(certificate)
    version = certificate.version

    def used(made: Snapshot) -> None:
        now = LabelCertificate.objects.select_for_update(of=("self",)).get(pk=certificate.pk)
        valid_check(now)  # it may have stopped while files were written
        CertificateUse.objects.create(snapshot=made, certificate=now, n_labels=len(rows))

    return ai_feedback_freeze(
        project=certificate.project,
        name=name,
        rows=[_row(one, best) for one in rows],
        about={
            "certificate": certificate.pk,
            "certificate_sha256": certificate.sha256,
            "judge": str(version),
            "judge_sha256": version.sha256,
            "runs": asked_in(certificate),
            "run_name": str(version),
            "error": certificate.error,
            "failure": certificate.failure,
        },
        user=user,
        labelled_by=f"ai:{version}",
        finish=used,
    )


def asked_in(certificate: LabelCertificate) -> list[str]:
    """Ids of the runs in which the judge said what the labels are."""
    runs = certificate.labels.values_list("task__verdicts_of_judges__run", flat=True).filter(
        task__verdicts_of_judges__version=certificate.version
    )
    return sorted({run for run in runs if run})


def person_right_in(found: Judged) -> float | None:
    """P(a person is right) that people's agreement on the measured pairs allows for; None where
    too few pairs have two votes."""
    kept = found.only(found.voted & found.measuring)
    told = worth(as_judged(kept)).ceiling
    return told.annotator_accuracy if told else None


def person_right(certificate: LabelCertificate) -> float:
    """P(a person's label is right), which a judge's is cut to; 1 − error where nobody knows."""
    told = certificate.figures.get("person_right")
    return float(told) if isinstance(told, int | float) else 1 - certificate.error


def _row(label: CertifiedLabel, best: float) -> dict[str, Any]:
    task = label.task
    won, lost = task.response_a, task.response_b
    if label.label == "b":
        won, lost = lost, won
    assert won is not None  # noqa: S101 — a pair has both
    assert lost is not None  # noqa: S101
    p = min(label.probability, best)
    return {
        "prompt": task.prompt.messages,
        "chosen": won.messages,
        "rejected": lost.messages,
        "label_probability": max(p, 0.5 + 1e-6),
        "weight": min(p / best, 1.0),
        "group": task.prompt.group_key,
        "comparison": str(task.pk),
        "sources": [won.model_name, lost.model_name],
    }


# --- the audit ---


def audit_of(certificate: LabelCertificate) -> AuditState:
    """The audited labels beside what people say of them."""
    return audit(audit_errors(certificate), error=certificate.error, failure=certificate.failure)


def audit_errors(certificate: LabelCertificate) -> list[float]:
    """Of audited labels that people have settled since: 1 where the label is wrong, ½ where a vote
    is a tie. As the certificate was made: against decisions, of which one for neither answer
    contradicts a label, or against the first vote on each pair. In the order in which each pair was
    first voted on, which no later decision, vote or withdrawal moves."""
    labels = dict(certificate.labels.filter(is_audited=True).values_list("task_id", "label"))
    votes = Answer.objects.filter(
        project=certificate.project_id, task__in=list(labels), slot__kind=Slot.Kind.REGULAR
    ).order_by("pk")
    first: dict[int, int] = {}
    seen: dict[int, float] = {}
    for number, (task, choice, is_current) in enumerate(
        votes.values_list("task_id", "choice", "is_current")
    ):
        first.setdefault(task, number)
        if is_current and task not in seen:
            score = SCORES[Choice(choice)]
            seen[task] = 1 - score if labels[task] == "a" else score
    if certificate.against == Against.DECISION:
        rows = Decision.objects.filter(comparison__in=list(labels))
        told = rows.values_list("comparison_id", "outcome", "winner")
        settled = {task: outcome_for(outcome, winner) for task, outcome, winner in told}
        seen = {task: float(said != labels[task]) for task, said in settled.items() if said}
    return [seen[task] for task in sorted(seen, key=lambda task: (first.get(task, -1), task))]


def audits_look() -> int:
    """The scheduler's: certificates that people's votes contradict are stopped; how many."""
    stopped = 0
    rows = LabelCertificate.objects.filter(threshold__isnull=False, stopped_at__isnull=True)
    for found in rows.select_related("version__judge", "project"):
        try:
            stopped += _audit_look(found)
        except Exception:
            log.exception("the audit of certificate %s", found.pk)  # others are looked at
    return stopped


def _audit_look(found: LabelCertificate) -> bool:
    state = audit_of(found)
    return state.alarm_at is not None and certificate_stop(
        certificate=found,
        because=f"Of {state.alarm_at} audited labels so many are wrong that the error is "
        f"over {100 * found.error:g} %, whenever one looks.",
        by=None,
    )


@transaction.atomic
def certificate_stop(*, certificate: LabelCertificate, because: str, by: User | None) -> bool:
    """Nothing more is labelled or frozen under it. False where it had stopped before."""
    found = LabelCertificate.objects.select_for_update(of=("self",)).get(pk=certificate.pk)
    if found.stopped_at is not None:
        return False
    found.stopped_at = timezone.now()
    found.stopped_because = because[: longest(LabelCertificate, "stopped_because")]
    found.save(update_fields=["stopped_at", "stopped_because", "updated_at"])
    version = certificate.version
    audit_record(
        action="judge.certificate_stopped",
        actor=by,
        project=certificate.project,
        subject=str(version.judge_id),
        details={"name": version.judge.name, "certificate": found.pk, "because": because[:300]},
    )
    if by is None:
        used = found.uses.count()
        incident_open(
            project=certificate.project,
            key=f"certificate:{found.pk}",
            link="data",
            rule=RULE,
            title=f"Labels by {version} are wrong more often than certified",
            message=f"{because} {used} datasets hold labels under this certificate; their page and "
            "that of every model trained on them say so. Freeze them again without these labels.",
            severity="critical",
            threshold=found.error,
        )
    return True
