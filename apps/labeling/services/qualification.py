"""The qualification round: gold pairs with explanations, judged before real work.

Answers here are no votes: practice is not work, and nothing of it enters a decision. The pairs of
an attempt are drawn when it begins, so a reload or a lost connection finds it as it was.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext, ngettext

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing
from apps.labeling.models import (
    Annotator,
    Choice,
    LabelingSettings,
    QualificationAnswer,
    QualificationAttempt,
    Task,
)
from apps.labeling.selectors import settings_get
from apps.labeling.services.answers import SIDES
from apps.labeling.services.eligibility import annotator_lock
from apps.labeling.services.kinds import agree, canonical

Running = QualificationAttempt.State.RUNNING


@dataclass(frozen=True, slots=True)
class Qualification:
    """How a person stands with a project's qualification.

    `attempt` is the one that is going on, else the last one. `may_start_at` is set while a failed
    attempt cools down. `n_ready` of `n_pairs` practice pairs can be used.
    """

    n_pairs: int
    n_ready: int
    pass_share: float
    most_attempts: int
    n_attempts: int
    qualified_at: datetime | None
    attempt: QualificationAttempt | None
    may_start_at: datetime | None

    @property
    def running(self) -> bool:
        return self.attempt is not None and self.attempt.state == Running

    @property
    def ready(self) -> bool:
        return 0 < self.n_pairs <= self.n_ready

    @property
    def n_needed(self) -> int:
        """Right answers that pass an attempt begun now."""
        return pairs_needed(self.n_pairs, self.pass_share)

    @property
    def used_up(self) -> bool:
        return self.n_attempts >= self.most_attempts

    @property
    def n_left(self) -> int:
        return max(0, self.most_attempts - self.n_attempts)

    @property
    def may_start(self) -> bool:
        open_to_them = self.qualified_at is None and not self.running and not self.used_up
        return open_to_them and self.ready and self.may_start_at is None


def pairs_needed(n_pairs: int, pass_share: float) -> int:
    """The fewest right answers of n_pairs that reach the mark (a share, up to rounding)."""
    return math.ceil(pass_share * n_pairs - 1e-9)


def qualification_of(*, project: Project, user: User) -> Qualification:
    """Read only; for somebody who has begun nothing it is the project's settings."""
    settings = settings_get(project=project)
    attempts = list(
        QualificationAttempt.objects.filter(project=project, user=user).order_by("-number")
    )
    last = attempts[0] if attempts else None
    cooling_until = None
    if last is not None and last.state == QualificationAttempt.State.FAILED and last.finished_at:
        until = last.finished_at + timedelta(minutes=settings.qualification_cooldown_minutes)
        cooling_until = until if until > timezone.now() else None
    annotator = Annotator.objects.filter(project=project, user=user).first()
    return Qualification(
        n_pairs=settings.qualification_pairs,
        n_ready=practice_pairs(project=project, settings=settings).count(),
        pass_share=settings.qualification_pass,
        most_attempts=settings.qualification_attempts,
        n_attempts=len(attempts),
        qualified_at=annotator.qualified_at if annotator else None,
        attempt=last,
        may_start_at=cooling_until,
    )


def practice_pairs(*, project: Project, settings: LabelingSettings) -> QuerySet[Task]:
    """The tasks an attempt may draw, of every kind: not put aside, and with a right answer, of a
    pair one that has a button."""
    offered = [Choice.A, Choice.B]
    offered += [Choice.TIE] if settings.show_tie else []
    offered += [Choice.BOTH_BAD] if settings.show_both_bad else []
    known = Q(kind=Task.Kind.PAIR, gold__in=offered) | Q(gold_values__len__gt=0)
    return Task.objects.filter(known, project=project, stratum=Task.Stratum.PRACTICE).exclude(
        state__in=(Task.State.REVIEW, Task.State.DROPPED)
    )


@transaction.atomic
def attempt_start(*, project: Project, user: User) -> QualificationAttempt:
    """Begin an attempt, or return the one that is going on.

    `Conflict` says why not: `qualification_passed`, `qualification_not_ready` (too few practice
    pairs), `qualification_used_up`, `qualification_cooling_down`. `Missing` and `Refused` as for
    any page of labeling.
    """
    annotator_lock(project=project, user=user)
    state = qualification_of(project=project, user=user)
    if state.attempt is not None and state.running:
        return state.attempt
    if state.qualified_at is not None:
        raise Conflict(gettext("You have qualified already."), code="qualification_passed")
    if state.used_up:
        raise Conflict(
            ngettext(
                "The one attempt is used. An admin can grant another.",
                "All %(n)s attempts are used. An admin can grant another.",
                state.most_attempts,
            )
            % {"n": state.most_attempts},
            code="qualification_used_up",
        )
    if state.may_start_at is not None:
        raise Conflict(
            gettext("The next attempt can begin at %(time)s.")
            % {"time": f"{timezone.localtime(state.may_start_at):%H:%M}"},
            code="qualification_cooling_down",
        )
    return _begin(project, user, state)


@transaction.atomic
def attempt_grant(*, project: Project, user: User, by: User) -> QualificationAttempt:
    """Give somebody one attempt beyond those the project allows, without waiting.

    It begins at once and waits for them. One that is going on is returned.
    """
    annotator_lock(project=project, user=user)
    state = qualification_of(project=project, user=user)
    if state.attempt is not None and state.running:
        return state.attempt
    if state.qualified_at is not None:
        raise Conflict(f"{user} has qualified already.", code="qualification_passed")
    attempt = _begin(project, user, state)
    audit_record(
        action="qualification.granted",
        actor=by,
        project=project,
        subject=user,
        details={"attempt": attempt.number},
    )
    return attempt


def _begin(project: Project, user: User, state: Qualification) -> QualificationAttempt:
    if not state.ready:
        raise Conflict(
            gettext(
                "The qualification is not ready: %(ready)s of the %(all)s practice pairs it asks "
                "for are there. An admin imports the others."
            )
            % {"ready": state.n_ready, "all": state.n_pairs}
            if state.n_pairs
            else gettext("This project asks for no qualification."),
            code="qualification_not_ready",
        )
    number = state.n_attempts + 1
    drawn = _draw(project, user, number)[: state.n_pairs]
    attempt = QualificationAttempt.objects.create(
        project=project,
        user=user,
        number=number,
        pass_share=state.pass_share,
        n_pairs=len(drawn),
    )
    QualificationAnswer.objects.bulk_create(
        QualificationAnswer(
            attempt=attempt,
            comparison_id=pk,
            position=position,
            left_is="" if places else "ab"[_hash(f"side:{user.pk}:{number}:{pk}") & 1],
            shown=_order(f"order:{user.pk}:{number}:{pk}", places),
        )
        for position, (pk, places) in enumerate(drawn, start=1)
    )
    return attempt


def _draw(project: Project, user: User, number: int) -> list[tuple[int, int]]:
    """(task, how many responses it has, 0 of a pair): those the person has met least first,
    otherwise in an order of this attempt's own."""
    pool = practice_pairs(project=project, settings=settings_get(project=project))
    answers = QualificationAnswer.objects.filter(
        attempt__project=project, attempt__user=user, answered_at__isnull=False
    )
    met = dict(answers.values("comparison").annotate(n=Count("id")).values_list("comparison", "n"))
    return sorted(
        pool.annotate(places=Count("items")).values_list("pk", "places"),
        key=lambda row: (met.get(row[0], 0), _hash(f"draw:{user.pk}:{number}:{row[0]}")),
    )


def _order(name: str, places: int) -> list[int]:
    """The stored places as this person sees them."""
    return sorted(range(1, places + 1), key=lambda place: _hash(f"{name}:{place}"))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


@transaction.atomic
def attempt_answer(
    *, project: Project, user: User, answer: int, side: str = "", values: Sequence[int] = ()
) -> QualificationAnswer:
    """Judge one task of one's attempt: `side` of a pair as seen (left, right, tie, both_bad), else
    `values`, one for each response in the order shown.

    The first answer stands: sending it again, or another one, changes nothing. After the last pair
    the attempt is passed or failed, and passing opens the queue.
    """
    found = QualificationAnswer.objects.filter(
        pk=answer, attempt__project=project, attempt__user=user
    ).values_list("attempt_id", flat=True)
    if not found:
        raise Missing(gettext("There is no such pair in your qualification."), field="answer")
    annotator_lock(project=project, user=user)
    attempt = QualificationAttempt.objects.select_for_update(no_key=True).get(pk=found[0])
    row = attempt.answers.select_related("comparison").get(pk=answer)
    if row.answered_at is None:
        task = row.comparison
        if task.kind == Task.Kind.PAIR:
            if side not in SIDES:
                known = ", ".join(SIDES)
                raise DomainError(f"The side {side!r} is unknown; one of {known}.", field="side")
            row.choice = {
                "left": row.left_is,
                "right": "b" if row.left_is == "a" else "a",
            }.get(side, side)
            row.is_right = row.choice == task.gold
        else:
            row.values = canonical(values, _Shown(task.kind, row.shown, task.low, task.high))
            steps = (task.high or 0) - (task.low or 0)
            row.is_right = agree(task.kind, row.values, task.gold_values, steps)
        row.answered_at = timezone.now()
        row.save(update_fields=["choice", "values", "is_right", "answered_at"])
        _count(attempt)
    return row


@dataclass(frozen=True, slots=True)
class _Shown:
    """What values are checked against."""

    task_kind: str
    shown: list[int]
    low: int | None
    high: int | None


def _count(attempt: QualificationAttempt) -> None:
    """Bring the attempt's counts up to date, and end it after its last pair."""
    counts = attempt.answers.aggregate(
        right=Count("id", filter=Q(is_right=True)),
        left=Count("id", filter=Q(answered_at__isnull=True)),
    )
    attempt.n_right = counts["right"]
    if counts["left"] == 0:
        passed = attempt.n_right >= pairs_needed(attempt.n_pairs, attempt.pass_share)
        attempt.state = (
            QualificationAttempt.State.PASSED if passed else QualificationAttempt.State.FAILED
        )
        attempt.finished_at = timezone.now()
        if passed:
            Annotator.objects.filter(
                project_id=attempt.project_id, user_id=attempt.user_id, qualified_at__isnull=True
            ).update(qualified_at=attempt.finished_at, updated_at=attempt.finished_at)
        audit_record(
            action="qualification.passed" if passed else "qualification.failed",
            actor=attempt.user,
            project=attempt.project,
            subject=attempt.user,
            details={
                "attempt": attempt.number,
                "right": attempt.n_right,
                "of": attempt.n_pairs,
                "mark": attempt.pass_share,
            },
        )
    attempt.save(update_fields=["n_right", "state", "finished_at", "updated_at"])
