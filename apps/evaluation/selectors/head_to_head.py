"""Votes of a head-to-head as arrays, and what they say."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.urls import reverse

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.common.registry import PeopleRate
from apps.evaluation.models import HeadToHead, Look
from apps.evaluation.selectors.outputs import IS_FILE
from apps.labeling.models import Answer, Choice, Skip, Slot, Task
from apps.training.models import Artifact, Run
from measures.head_to_head import (
    Difference,
    Estimate,
    Habit,
    Plan,
    Result,
    Several,
    Standing,
    Stopping,
    Verdict,
    Votes,
    least_of,
    result_of,
)
from measures.messages import plain, plain_length
from measures.model_ranking import ModelVotes
from measures.several_systems import several_result
from workers.contract.protocol import StatedProtocol, content_sha256

_SCORES = {Choice.A: 1.0, Choice.B: 0.0, Choice.TIE: 0.5, Choice.BOTH_BAD: 0.5}
_LEFT = {"a": 1.0, "b": 0.0}  # response A is the first system's
MOST_EVALUATIONS = 200


def head_to_heads(*, project: Project) -> QuerySet[HeadToHead]:
    return HeadToHead.objects.filter(project=project).select_related(
        "project", "first__run", "second__run", "source", "created_by"
    )


def head_to_head_get(*, project: Project, head_to_head: str) -> HeadToHead:
    found = head_to_heads(project=project).filter(pk=head_to_head).first()
    if found is None:
        raise Missing("There is no such head-to-head.", field="head_to_head")
    return found


def plan_of(found: HeadToHead) -> Plan:
    return Plan(
        prompts=found.n_prompts,
        alike=found.n_alike,
        votes_each=found.votes_each,
        margin=found.margin,
        alpha=found.alpha,
        stopping=Stopping(found.stopping),
        pairs=found.n_pairs,
    )


def votes_of(found: HeadToHead) -> Votes:
    """Current answers; what was discarded with others of its person is none."""
    rows = list(_answers(found).values_list("choice", "left_is", "task__prompt_id", "annotator_id"))
    choices = [row[0] for row in rows]
    return Votes(
        score=np.array([_SCORES[Choice(choice)] for choice in choices], dtype=float),
        both_bad=np.array([choice == Choice.BOTH_BAD for choice in choices], dtype=bool),
        prompt=np.array([row[2] for row in rows], dtype=np.int64),
        person=np.array([row[3] for row in rows], dtype=np.int64),
        left=np.array([_LEFT.get(row[1], np.nan) for row in rows], dtype=float),
    )


def model_votes_of(found: HeadToHead) -> ModelVotes:
    """The same of several systems, which the id of a pair names by their places; lengths are
    characters of the answers."""
    columns = ("choice", "left_is", "task__prompt_id", "annotator_id", "task_id")
    rows = list(_answers(found).values_list(*columns))
    pairs = {}
    tasks = tasks_of(found).values_list(
        *("pk", "external_id", "response_a__brief", "response_b__brief")
    )
    for key, name, one, other in tasks:
        first, second = (int(place) for place in name.rsplit("-", 2)[1:])
        longer = max(plain_length(one), 1) / max(plain_length(other), 1)
        pairs[key] = first, second, math.log(longer)
    scores = _SCORES | {Choice.BOTH_BAD: np.nan}
    asked = [pairs[row[4]] for row in rows]
    return ModelVotes(
        n_models=len(found.systems),
        first=np.array([one[0] for one in asked], dtype=np.int64),
        second=np.array([one[1] for one in asked], dtype=np.int64),
        score=np.array([scores[Choice(row[0])] for row in rows], dtype=float),
        prompt=np.array([row[2] for row in rows], dtype=np.int64),
        person=np.array([row[3] for row in rows], dtype=np.int64),
        side=np.array([_LEFT.get(row[1], 0.5) - 0.5 for row in rows], dtype=float),
        length=np.array([one[2] for one in asked], dtype=float),
    )


def result_by_votes(found: HeadToHead, *, ended: bool = False) -> Result:
    """By the votes there are now, whatever was kept."""
    if found.is_several:
        return several_result(model_votes_of(found), plan_of(found), ended=ended)
    return result_of(votes_of(found), plan_of(found), ended=ended)


def votes_count(found: HeadToHead) -> int:
    return _answers(found).order_by().count()


def by_people(rows: QuerySet[HeadToHead]) -> QuerySet[HeadToHead]:
    """Those without a simulated vote."""
    simulated = Answer.objects.filter(
        is_current=True,
        source=Answer.Source.SIMULATED,
        task__project=OuterRef("project"),
        task__kind=Task.Kind.BLIND,
        task__gte=OuterRef("pairs__first_task"),
        task__lte=OuterRef("pairs__last_task"),
    )
    return rows.exclude(Exists(simulated))


def simulated_count(found: HeadToHead) -> int:
    """Votes that no person gave: they show how a comparison goes, and are evidence of nothing."""
    return _answers(found).order_by().filter(source=Answer.Source.SIMULATED).count()


def _answers(found: HeadToHead) -> QuerySet[Answer]:
    return Answer.objects.filter(
        is_current=True, slot__kind=Slot.Kind.REGULAR, task__in=tasks_of(found)
    ).order_by("pk")


def tasks_of(found: HeadToHead) -> QuerySet[Task]:
    return Task.objects.filter(
        project=found.project_id,
        kind=Task.Kind.BLIND,
        pk__gte=found.pairs.first_task,
        pk__lte=found.pairs.last_task,
    )


def result_now(found: HeadToHead) -> Result:
    """As it ended, else by the votes so far."""
    if found.result is not None:
        return result_from(found.result)
    return result_by_votes(found, ended=not found.pairs.is_open)


def result_to_json(result: Result) -> dict[str, Any]:
    return asdict(result) | {"verdict": str(result.verdict)}


def result_from(kept: dict[str, Any]) -> Result:
    estimate, several = kept["estimate"], kept.get("several")
    return Result(
        **kept
        | {
            "verdict": Verdict(kept["verdict"]),
            "estimate": Estimate(**estimate) if estimate else None,
            "several": _several_from(several) if several else None,
        }
    )


def _several_from(kept: dict[str, Any]) -> Several:
    return Several(
        **kept
        | {
            "standings": [Standing(**one) for one in kept["standings"]],
            "differences": [Difference(**one) for one in kept["differences"]],
            "habits": [Habit(**one) for one in kept["habits"]],
        }
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """Votes that are in and were planned, and people who gave them; how many of the votes are
    simulated; skips by which system stood left; pairs that are set aside; pairs that somebody
    holds; places for votes that are left."""

    n_votes: int
    n_simulated: int
    planned: int
    n_people: int
    skips_first_left: int
    skips_second_left: int
    n_aside: int
    n_held: int
    n_free: int

    @property
    def n_skips(self) -> int:
        return self.skips_first_left + self.skips_second_left


def progress_of(found: HeadToHead) -> Progress:
    answers = (
        _answers(found)
        .order_by()
        .aggregate(n=Count("pk"), people=Count("annotator", distinct=True))
    )
    sides = dict(
        Skip.objects.filter(task__in=tasks_of(found))
        .values_list("left_is")
        .annotate(n=Count("pk"))
        .order_by()
    )
    aside = tasks_of(found).filter(state__in=(Task.State.REVIEW, Task.State.DROPPED))
    asked = tasks_of(found).filter(state=Task.State.OPEN)
    slots = Slot.objects.filter(task__in=asked)
    return Progress(
        n_votes=answers["n"],
        n_simulated=simulated_count(found),
        planned=plan_of(found).votes,
        n_people=answers["people"],
        skips_first_left=sides.get("a", 0),
        skips_second_left=sides.get("b", 0),
        n_aside=aside.count(),
        n_held=slots.filter(state=Slot.State.LEASED).count(),
        n_free=slots.filter(state=Slot.State.FREE).count(),
    )


def looks_of(found: HeadToHead) -> list[Look]:
    """The widest of each number of votes, in order: what a curve shows."""
    return list(found.looks.order_by("n_votes", "pk").distinct("n_votes"))


def shared_get(key: str, *, now: Any) -> HeadToHead | None:
    if not key:
        return None
    return (
        HeadToHead.objects.filter(share_key=key, shared_until__gt=now)
        .select_related("project")
        .first()
    )


def overdue(*, project: Project, now: Any) -> list[HeadToHead]:
    """Those that were to be done again by now and were not: newest of the same systems only."""
    newest: dict[tuple[Any, ...], HeadToHead] = {}
    for one in head_to_heads(project=project).order_by("created_at"):
        pair = one.first_id or one.first_name, one.second_id or one.second_name
        newest[(*pair, *one.more_names)] = one
    return [one for one in newest.values() if one.due_at is not None and one.due_at < now]


def evaluations(*, project: Project) -> list[Run]:
    """Finished evaluations that kept their answers, newest first."""
    kept = Artifact.objects.filter(IS_FILE, run=OuterRef("pk"))
    found = Run.objects.filter(
        Exists(kept), project=project, kind=Run.Kind.EVALUATE, state=Run.State.FINISHED
    )
    return list(found.order_by("-created_at")[:MOST_EVALUATIONS])


def votes_rows(found: HeadToHead) -> Iterator[dict[str, Any]]:
    """For a file: each current vote in order, people as numbers of this comparison; of several
    systems with the names of the two that were shown."""
    people: dict[int, int] = {}
    rows = _answers(found).select_related("task__prompt")
    for answer in rows.iterator(chunk_size=500):
        shown = ("first", "second")
        if found.is_several:
            places = (answer.task.external_id or "").rsplit("-", 2)[1:]
            shown = (found.systems[int(places[0])], found.systems[int(places[1])])
        names = dict(zip((Choice.A, Choice.B), shown, strict=True)) | {
            Choice.TIE: "tie",
            Choice.BOTH_BAD: "both_bad",
        }
        yield {
            "prompt": plain(answer.task.prompt.messages),
            **({"one": shown[0], "other": shown[1]} if found.is_several else {}),
            "preferred": names[Choice(answer.choice)],
            "left": dict(zip("ab", shown, strict=True)).get(answer.left_is, ""),
            "person": people.setdefault(answer.annotator_id, len(people) + 1),
            "simulated": "yes" if answer.source == Answer.Source.SIMULATED else "",
            "seconds": "" if answer.active_ms is None else answer.active_ms / 1000,
            "cast_at": answer.cast_at.isoformat(),
        }


def people_rates(project: Project) -> dict[str, list[PeopleRate]]:
    """By run: of each run's model, the newest head-to-head with each opponent that has ended,
    newest first; also those that say nothing, by their verdict. Not those with simulated votes."""
    ended = by_people(head_to_heads(project=project)).filter(
        ended_at__isnull=False, first__isnull=False, more_names=[]
    )
    found: dict[str, dict[str, PeopleRate]] = {}
    for one in ended.select_related("pairs").order_by("-ended_at", "-pk"):
        assert one.first is not None  # noqa: S101 — asked for above
        opponent = one.second.run_id if one.second else one.second_name
        found.setdefault(one.first.run_id, {}).setdefault(opponent, _people_rate(one))
    return {run: list(rates.values()) for run, rates in found.items()}


def _people_rate(found: HeadToHead) -> PeopleRate:
    assert found.ended_at is not None  # noqa: S101 — asked for by the caller
    result = result_now(found)
    estimate, verdict = result.estimate, result.verdict
    least = None
    if verdict == Verdict.TOO_FEW_PEOPLE:
        least = result.people_needed or least_of(plan_of(found))[0]
    elif verdict == Verdict.TOO_FEW_PROMPTS:
        least = least_of(plan_of(found))[1]
    return PeopleRate(
        opponent=found.second_name,
        opponent_run=found.second.run_id if found.second else "",
        protocol=_asked_alike(found.protocol),
        ended_at=found.ended_at,
        url=reverse("evaluation:head_to_head", args=[found.project.slug, found.pk]),
        value=estimate.value if estimate else None,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        n=result.n,
        people=result.n_people,
        verdict=str(verdict),
        least=least,
    )


def _asked_alike(protocol: dict[str, Any]) -> StatedProtocol:
    """A protocol without what is the first system's alone: also to how many of the prompts it
    answered as the second did."""
    kept = {name: value for name, value in protocol.items() if name != "evaluation"}
    for name in ("answers", "systems"):
        kept[name] = {"second": protocol.get(name, {}).get("second")}
    plan = dict(protocol.get("plan", {}))
    plan["prompts"] = plan.get("prompts", 0) + plan.pop("alike", 0)
    kept["plan"] = plan
    return StatedProtocol(content_sha256(kept), kept)
