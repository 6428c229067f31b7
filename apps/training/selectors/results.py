"""What a project's finished runs came to, for pages of apps before this one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from django.db.models import F, Q, QuerySet
from django.urls import reverse

from apps.accounts.models import Project
from apps.common.json_limits import storable
from apps.common.registry import PeopleRate, RunResult, people_rates
from apps.snapshots.storage import artifact_store
from apps.training.models import Alert, Artifact, Run, RunEvent, RunInput, Sample
from apps.training.selectors.protocols import protocol_of
from apps.training.selectors.runs import attempt_ends
from workers.artifacts import ArtifactError

MOST_EVALUATIONS = 50
_TRAINED = (
    Run.Kind.SFT,
    Run.Kind.REWARD,
    Run.Kind.DPO,
    Run.Kind.KTO,
    Run.Kind.PPO,
    Run.Kind.GRPO,
)


def run_results(project: Project) -> list[RunResult]:
    """Finished training runs, newest first, each with the newest evaluation of its model; not the
    repetitions in small that only ask what broke in another."""
    runs = Run.objects.filter(
        project=project, kind__in=_TRAINED, state=Run.State.FINISHED, about=None
    )
    people = people_rates(project)
    return [_result(run, project, people.get(run.pk, ())) for run in runs.order_by("-ended_at")]


def is_suite(run: Run) -> bool:
    """Whether every prompt of an evaluation carries a check: what a judge says of these is not what
    it says of the prompts that the policy is for."""
    found = run.summary.get("regression")
    return isinstance(found, dict) and found.get("checks") == run.summary.get("prompts")


def _result(run: Run, project: Project, people: Sequence[PeopleRate]) -> RunResult:
    splits = run.summary.get("splits") if run.kind == Run.Kind.REWARD else None
    assert run.ended_at is not None  # noqa: S101 — finished, and a constraint
    return RunResult(
        run=run.pk,
        method=run.kind,
        method_words=run.get_kind_display(),
        name=run.name,
        url=_page(run, project),
        ended_at=run.ended_at,
        seconds=run.seconds,
        splits=splits if isinstance(splits, dict) else {},
        people=people,
        **_evaluated(run, project),
    )


def _evaluated(run: Run, project: Project) -> dict[str, Any]:
    """By the judge that the policy was not trained on; its own reward's opinion is no evidence, nor
    is what another project evaluated."""
    links = (
        RunInput.objects.filter(
            Q(checkpoint__run=run) | Q(upstream=run),
            role="policy",
            run__project=project,
            run__kind=Run.Kind.EVALUATE,
            run__state=Run.State.FINISHED,
        )
        .select_related("run")
        .order_by("-run__ended_at")
    )
    runs = [link.run for link in links[:MOST_EVALUATIONS]]
    asked = next((one for one in runs if not is_suite(one)), None)
    suite = next((one for one in runs if one.summary.get("regression")), None)
    found: dict[str, Any] = {"win_rate": None}
    if suite is not None:
        checks = suite.summary["regression"]
        over_all = checks["all"]
        found["checks"] = {name: over_all.get(name) for name in ("lost", "won", "difference")} | {
            name: checks[name] for name in ("checks", "standing")
        }
        parts = checks.get("categories") or {}
        found["checks"]["worse"] = {
            name: parts.get(name, {}).get("difference") for name in checks.get("worse") or ()
        }
        found["checks_url"] = _page(suite, project)
    if asked is None:
        return found
    judged, latency = asked.summary.get("judge"), asked.summary.get("latency")
    rate = judged.get("win_rate") if isinstance(judged, dict) else None
    alone = latency.get("without_score") if isinstance(latency, dict) else None
    return found | {
        "win_rate": rate if isinstance(rate, dict) else None,
        "protocol": protocol_of(asked),
        "judged_url": _page(asked, project),
        "latency_ms": alone.get("p50_ms") if isinstance(alone, dict) else None,
    }


def _page(run: Run, project: Project) -> str:
    return reverse("training:run", args=[project.slug, run.pk])


# JSON reports that a run left as files.
#
# A trainer wrote them, so nothing in them is taken on trust: one that is missing, too large,
# damaged or of another version is a sentence and never an error.

LARGEST = 8_000_000  # bytes; a page is no place for more
_UNREADABLE = (ValueError, TypeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Report:
    """`data` is empty where there is no such file, or where `problem` says why it is not shown."""

    data: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def report_read(run: Run, name: str, *, version: int | None = 1) -> Report:
    """The newest file of this name that the run left; `version` None for one that says none."""
    row = Artifact.objects.filter(run=run, name=name).order_by("-attempt", "-seq").first()
    if row is None:
        return Report()
    if row.size_bytes > LARGEST:
        return Report(problem=f"Its {name} is larger than {LARGEST // 10**6} MB.")
    try:
        text = artifact_store().read_bytes(row.uri, sha256=row.sha256)
        data = storable(json.loads(text))
    except ArtifactError as error:
        return Report(problem=f"Its {name} cannot be read: {error}.")
    except OSError:
        return Report(problem="The artifact store does not answer.")
    except _UNREADABLE:
        return Report(problem=f"Its {name} is damaged.")
    if not isinstance(data, dict) or data.get("version") != version:
        return Report(problem=f"Its {name} is not in a format this version can read.")
    return Report(data=data)


# What detectors found in a run, and which answers people must see: events that have no table.


@dataclass(frozen=True, slots=True)
class DetectorFinding:
    """A finding of a detector: `start_step` is when the problem began, `step` when it was found."""

    rule: str
    link: str
    step: int
    start_step: int
    value: float | None
    expected: str
    unit: str
    detail: str


@dataclass(frozen=True, slots=True)
class Review:
    """An answer that a person must see, and why."""

    step: int
    prompt: list[dict[str, Any]]
    response: str
    reason: str


def findings(run: Run) -> list[DetectorFinding]:
    """By step; of steps that count (see `attempt_ends`)."""
    found = []
    for body in _bodies(run, "Evidence"):
        step, start_step = body["step"], body.get("onset")
        value = body.get("value")
        found.append(
            DetectorFinding(
                rule=str(body.get("rule", "")),
                link=str(body.get("link", "")),
                step=step,
                start_step=min(start_step, step) if isinstance(start_step, int) else step,
                value=value if isinstance(value, int | float) else None,
                expected=str(body.get("expected") or ""),
                unit=str(body.get("unit") or ""),
                detail=str(body.get("detail") or ""),
            )
        )
    return sorted(found, key=lambda one: (one.step, one.start_step))


def reviews(run: Run) -> list[Review]:
    """Latest step first; of steps that count."""
    found = [
        Review(
            step=body["step"],
            prompt=[turn for turn in body.get("prompt") or [] if isinstance(turn, dict)],
            response=str(body.get("response", "")),
            reason=str(body.get("reason", "")),
        )
        for body in _bodies(run, "ReviewRequested")
    ]
    return sorted(found, key=lambda one: -one.step)


def alerts_that_count(run: Run) -> list[Alert]:
    """By step; without those of a past that a resumed attempt undid."""
    ends = attempt_ends(run)
    rows = Alert.objects.filter(run=run).order_by("step", "pk")
    return [row for row in rows if row.step <= ends.get(row.attempt, inf)]


def _bodies(run: Run, type_: str) -> list[dict[str, Any]]:
    ends = attempt_ends(run)
    rows = RunEvent.objects.filter(run=run, type=type_).order_by("attempt", "seq")
    return [
        body
        for attempt, body in rows.values_list("attempt", "body")
        if isinstance(body.get("step"), int) and body["step"] <= ends.get(attempt, inf)
    ]


# The answers that a run kept for people, found by what they are and by step.

FLAGGED = "flagged"
REVIEW = "review"  # asked for people by the trainer, and kept as no sample


@dataclass(frozen=True, slots=True)
class Kept:
    """A sample; `reason` is why people must see it. Without a row it is an answer that was sent to
    people and is no sample."""

    step: int
    sample: Sample | None
    review: Review | None = None

    @property
    def reason(self) -> str:
        return self.review.reason if self.review else ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an address asks for: `rows` in order, and the steps there are to choose from."""

    rows: list[tuple[int, int | None, Review | None]]  # step, sample's id, review
    steps: list[int]
    step: int | None
    counts: dict[str, int]


def samples_chosen(
    run: Run, *, bucket: str = "", step: int | None = None, until: int | None = None
) -> Chosen:
    """Latest step first; at a step the highest rewards first, of the lowest the lowest. `until`,
    or a `step` that kept none, chooses the last one up to it that did."""
    counted = _that_count(run)
    asked = reviews(run)
    keys = list(counted.values_list("step", "pk", "bucket"))
    said = {(one.step, one.response): one for one in asked}
    both = counted.filter(response__in={one.response for one in asked}) if asked else counted.none()
    why = {
        pk: said[at, response]
        for at, pk, response in both.values_list("step", "pk", "response")
        if (at, response) in said
    }
    apart = [one for one in asked if one not in why.values()]
    steps = sorted({key[0] for key in keys} | {one.step for one in apart}, reverse=True)
    if step not in steps:  # others link to steps without knowing which of them kept answers
        until = until if step is None else step
        step = None
    if step is None and until is not None and steps:
        step = next((one for one in steps if one <= until), steps[-1])
    rows: list[tuple[int, int | None, Review | None]] = [
        (one.step, None, one) for one in apart if bucket in ("", FLAGGED)
    ]
    rows += [
        (at, pk, why.get(pk))
        for at, pk, sort in keys
        if bucket in ("", sort) or (bucket == FLAGGED and pk in why)
    ]
    if step is not None:
        rows = [row for row in rows if row[0] == step]
    order = {pk: place for place, pk in enumerate(_ordered(counted, bucket))}
    rows.sort(key=lambda row: (-row[0], order.get(row[1], -1) if row[1] else -1))
    counts = dict.fromkeys(("high", "low", "random", FLAGGED), 0)
    for _, _, sort in keys:
        counts[sort] = counts.get(sort, 0) + 1
    counts[FLAGGED] += len(apart)
    return Chosen(rows, steps, step, counts)


def samples_of(rows: list[tuple[int, int | None, Review | None]]) -> list[Kept]:
    """A page of what was chosen, read."""
    found = Sample.objects.in_bulk([pk for _, pk, _ in rows if pk])
    return [Kept(step, found.get(pk) if pk else None, review) for step, pk, review in rows]


def _that_count(run: Run) -> QuerySet[Sample]:
    counts = Q()
    for attempt, end in attempt_ends(run).items():
        if end < inf:
            counts &= ~Q(attempt=attempt, step__gt=end)
    return Sample.objects.filter(counts, run=run)


def _ordered(samples: QuerySet[Sample], bucket: str) -> QuerySet[Sample, int]:
    reward = F("reward")
    by = reward.asc(nulls_last=True) if bucket == "low" else reward.desc(nulls_last=True)
    return samples.order_by("-step", by, "-pk").values_list("pk", flat=True)
