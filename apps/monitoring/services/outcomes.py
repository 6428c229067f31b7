"""What the world measures of a model in service: taken in, and laid beside each other and beside
the reward. Two that part are the sign of a model that pleases instead of helping."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.json_limits import storable
from apps.monitoring.models import Incident, Outcome, Watch
from apps.monitoring.selectors.outcomes import Scope, Series, outcome_series, reward_series
from apps.monitoring.services.incidents import incident_open
from apps.training.models import Checkpoint
from measures.outcomes import Change, change, opposed

RULE = "outcomes_diverge"
MOST_ROWS = 1000
MOST_NAMES = 20  # of one model; each pair of names is compared
_AHEAD = timedelta(hours=24)  # clocks differ, and days begin elsewhere earlier
_TOLD = 20  # errors that are told at once
_SAME = ("name", "value", "n", "deviation", "unit", "higher_is_better", "watch_id", "checkpoint_id")


@dataclass(slots=True)
class Recorded:
    created: list[int] = field(default_factory=list)  # their keys in the database
    known: int = 0
    incidents: int = 0  # opened because of them


def outcomes_record(
    *, project: Project, rows: Sequence[Mapping[str, Any]], user: User | None = None
) -> Recorded:
    """Store measurements, all or none, and compare them.

    A row has name and value, and may have n, deviation, unit, higher_is_better, at, watch or
    checkpoint (ids), source and key. A key that is known with the same content is the same
    measurement; with other content it is refused. Without a key, name, time and model are it.

    Raises `DomainError` (invalid_outcomes) with every row at fault in `details`.
    """
    if len(rows) > MOST_ROWS:
        raise DomainError(f"At most {MOST_ROWS:,} at once.", code="too_many", field="rows")
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        reader = _Reader(project)
        read: list[tuple[int, Outcome]] = []
        errors: list[dict[str, Any]] = []
        for number, row in enumerate(rows, 1):
            try:
                read.append((number, reader.read(row)))
            except DomainError as error:
                errors.append(_told(number, error))
        fresh, done = _fresh(project, reader, read, errors)
        if errors:
            raise _all_of(sorted(errors, key=lambda one: one["row"]), len(rows))
        done.created = [one.pk for one in Outcome.objects.bulk_create(fresh)]
        scopes = {Scope.of(one) for one in fresh}
        for scope in scopes:
            done.incidents += len(_judge_scope(project, scope))
        if done.created:
            audit_record(
                action="outcomes.recorded",
                actor=user,
                project=project,
                subject=", ".join(sorted({one.name for one in fresh})),
                details={"created": len(done.created), "known": done.known},
            )
    return done


def outcomes_judge(*, project: Project, watch: Watch) -> list[Incident]:
    """Compare what is known of a model in service, after a probe of it."""
    return _judge_scope(project, Scope(watch=watch.pk), watch=watch)


# --- reading ---


def _fresh(
    project: Project,
    reader: "_Reader",
    read: Sequence[tuple[int, Outcome]],
    errors: list[dict[str, Any]],
) -> tuple[list[Outcome], Recorded]:
    """What is not stored yet, each key once; adds to `errors`."""
    keys = [one.key for _, one in read]
    rows = Outcome.objects.filter(project=project, key__in=keys)
    known: dict[str, Outcome] = {row.key: row for row in rows}
    done, fresh = Recorded(), []
    for number, one in read:
        try:
            if one.key in known:
                _check_same(known[one.key], one)
                done.known += 1
                continue
            reader.check_name(one)
        except DomainError as error:
            errors.append(_told(number, error))
            continue
        known[one.key] = one
        fresh.append(one)
    return fresh, done


def _told(row: int, error: DomainError) -> dict[str, Any]:
    return {"row": row, "field": error.field, "message": error.message}


class _Reader:
    """Rows of one request, each against what the project knows."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._named: dict[str, tuple[str, bool] | None] = {}
        self._models: dict[tuple[str, str], Any] = {}

    def read(self, row: Mapping[str, Any]) -> Outcome:
        """An outcome that is not stored."""
        watch, checkpoint = self._subject(row)
        outcome = Outcome(
            project=self.project,
            watch=watch,
            checkpoint=checkpoint,
            name=_text(row, "name", 60, needed=True),
            value=_number(row, "value"),
            n=_count(row),
            deviation=_deviation(row),
            unit=_text(row, "unit", 20),
            higher_is_better=bool(row.get("higher_is_better", True)),
            at=_at(row),
            source=_text(row, "source", 60),
            key=_text(row, "key", 80),
        )
        outcome.key = outcome.key or _own_key(outcome)
        return outcome

    def _subject(self, row: Mapping[str, Any]) -> tuple[Watch | None, Checkpoint | None]:
        watch_id, checkpoint_id = row.get("watch") or "", row.get("checkpoint") or ""
        if watch_id and checkpoint_id:
            raise DomainError("Name the watch or the checkpoint, not both.", field="watch")
        if watch_id:
            watch = self._find(Watch, watch_id, "watch")
            return watch, watch.checkpoint
        if checkpoint_id:
            checkpoint = self._find(Checkpoint, checkpoint_id, "checkpoint")
            own = Watch.objects.filter(project=self.project, checkpoint=checkpoint, enabled=True)
            watches = list(own[:2])
            return (watches[0] if len(watches) == 1 else None), checkpoint
        return None, None

    def _find(self, model: Any, key: str, name: str) -> Any:
        cached = (name, key)
        if cached not in self._models:
            rows = model.objects.filter(project=self.project, pk=key.replace("\x00", ""))
            self._models[cached] = rows.first()
        if self._models[cached] is None:
            raise DomainError(f"There is no such {name} in this project.", field=name)
        return self._models[cached]

    def check_name(self, outcome: Outcome) -> None:
        """85 in per cent and 0.85 in one series would look like a collapse."""
        if outcome.name not in self._named:
            last = (
                Outcome.objects.filter(project=self.project, name=outcome.name)
                .order_by("-at")
                .first()
            )
            self._named[outcome.name] = (last.unit, last.higher_is_better) if last else None
        before = self._named[outcome.name]
        if before is None:
            self._check_names(outcome.name)
            self._named[outcome.name] = outcome.unit, outcome.higher_is_better
            return
        unit, higher = before
        if unit != outcome.unit:
            raise DomainError(
                f"'{outcome.name}' was measured in '{unit}' so far, and this is in "
                f"'{outcome.unit}'. Convert it, or give it another name.",
                field="unit",
            )
        if higher != outcome.higher_is_better:
            raise DomainError(
                f"Of '{outcome.name}', {'higher' if higher else 'lower'} values were better so far."
                " Give it another name.",
                field="higher_is_better",
            )

    def _check_names(self, name: str) -> None:
        names = set(
            Outcome.objects.filter(project=self.project)
            .order_by()
            .values_list("name", flat=True)
            .distinct()
        )
        if len(names | {name}) > MOST_NAMES:
            raise DomainError(
                f"A project holds at most {MOST_NAMES} different outcomes, since each is compared "
                "with each.",
                field="name",
            )


def _all_of(errors: list[dict[str, Any]], n_rows: int) -> DomainError:
    first = errors[0]
    others = len(errors) - 1
    tail = f" {others} more rows do not fit." if others else ""
    where = f"Row {first['row']}: " if n_rows > 1 else ""
    return DomainError(
        f"{where}{first['message']}{tail} Nothing was stored.",
        code="invalid_outcomes",
        field=first["field"],
        row=first["row"],
        details=errors[:_TOLD],
    )


def _text(row: Mapping[str, Any], name: str, most: int, *, needed: bool = False) -> str:
    value = storable(str(row.get(name) or "").strip())
    if needed and not value:
        raise DomainError("This is missing.", field=name)
    if len(value) > most:
        raise DomainError(f"At most {most} characters.", field=name)
    return value


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise DomainError("This must be a finite number.", field=name)
    return float(value)


def _count(row: Mapping[str, Any]) -> int | None:
    n = row.get("n")
    if n is None:
        return None
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n < 2**31:
        raise DomainError("How many cases: a whole number from 1.", field="n")
    return n


def _deviation(row: Mapping[str, Any]) -> float | None:
    if row.get("deviation") is None:
        return None
    value = _number(row, "deviation")
    if value < 0:
        raise DomainError("A standard deviation is not negative.", field="deviation")
    return value


def _at(row: Mapping[str, Any]) -> datetime:
    at = row.get("at")
    if at is None:
        return timezone.now()
    if not isinstance(at, datetime):
        raise DomainError("A time as in 2026-05-01T12:00:00Z.", field="at")
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    if at > timezone.now() + _AHEAD:
        raise DomainError("It lies in the future.", field="at")
    return at


def _own_key(outcome: Outcome) -> str:
    about = outcome.watch_id or outcome.checkpoint_id or ""
    told = f"{outcome.name}\n{outcome.at.isoformat()}\n{about}"
    return f"own:{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def _check_same(known: Outcome, sent: Outcome) -> None:
    names: tuple[str, ...] = _SAME
    # A watch may be about another model by now: the measurement is still the same.
    names = tuple(n for n in names if n != "checkpoint_id" or not sent.watch_id)
    for name in names:
        if getattr(known, name) != getattr(sent, name):
            shown = name.removesuffix("_id")
            raise Conflict(
                f"The key '{known.key}' is taken by another measurement: its {shown} differs.",
                code="key_taken",
                field="key",
            )


# --- comparing ---


def _judge_scope(project: Project, scope: Scope, *, watch: Watch | None = None) -> list[Incident]:
    """Open an incident for every pair that parts and has none open."""
    if watch is None and scope.watch:
        watch = Watch.objects.select_related("checkpoint").get(pk=scope.watch)
    series = outcome_series(project=project, scope=scope)
    found = []
    for one, other in combinations(series, 2):
        found.append(_judge_pair(project, scope, one, other, watch))
    reward = reward_series(watch) if watch is not None and series else None
    if reward is not None:
        for one in series:
            found.append(_judge_pair(project, scope, reward, one, watch, by_reward=True))
    return [incident for incident in found if incident is not None]


def _judge_pair(
    project: Project,
    scope: Scope,
    one: Series,
    other: Series,
    watch: Watch | None,
    *,
    by_reward: bool = False,
) -> Incident | None:
    key = pair_key(scope, one.name, other.name, by_reward=by_reward)
    before = Incident.objects.filter(project=project, key=key).order_by("-opened_at").first()
    if before is not None and before.state != Incident.State.RESOLVED:
        return None
    # What somebody has resolved is what is normal from then on.
    since = before.resolved_at if before is not None else None
    changes = [
        change(s.since(since).measured, higher_is_better=s.higher_is_better) for s in (one, other)
    ]
    if not opposed(*changes) or (by_reward and changes[0].direction < 0):
        return None
    pair = sorted(zip((one, other), changes, strict=True), key=lambda p: -p[1].direction)
    (better, up), (worse, down) = pair
    who = watch.name if watch is not None else "the model in service"
    return incident_open(
        project=project,
        key=key,
        link="reward" if by_reward else "evaluation",
        rule=RULE,
        title=f"{better.name} improves while {worse.name} gets worse",
        message=f"Of {who}: {_words(better, up)}; {_words(worse, down)}. "
        + (
            "The reward model prefers what people do not: read the answers it scores highest."
            if by_reward
            else "This is the pattern of a model that pleases instead of helping: read its answers "
            "before trusting either figure."
        ),
        severity="critical",
        checkpoint=watch.checkpoint if watch is not None else _checkpoint(scope),
        value=down.after,
    )


def pair_key(scope: Scope, one: str, other: str, *, by_reward: bool = False) -> str:
    """Of the pair's incident; a name may be too long for it."""
    names = [f"reward\n{other}"] if by_reward else sorted([one, other])
    digest = hashlib.sha256("\n\n".join(names).encode()).hexdigest()[:24]
    return f"outcomes:{scope.key}:{digest}"


def _checkpoint(scope: Scope) -> Checkpoint | None:
    return Checkpoint.objects.filter(pk=scope.checkpoint).first() if scope.checkpoint else None


def _words(series: Series, found: Change) -> str:
    unit = f" {series.unit}" if series.unit else ""
    return (
        f"{series.name} went from {_plain(found.before)} to {_plain(found.after)}{unit} "
        f"({_plain(found.low)} to {_plain(found.high)} of change, 95 %)"
    )


def _plain(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}".replace("-", "−")
