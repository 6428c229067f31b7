"""Would choosing pairs have saved votes here, or asking about more pairs with fewer votes each?
Replays of a project's votes: asked for, run, kept.

The row is the truth: the scheduler's beat runs what is queued. A replay is computed from the votes
alone, so one whose process ended is simply run again, three times at most, and only the try that
holds the row may write its result.
"""

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import CharField, Count, F, Q, Value
from django.db.models.functions import Cast, Coalesce, NullIf
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison, Decision, Vote
from apps.snapshots.assembling.material import Material
from apps.snapshots.assembling.rows import argument_text, prompt_text
from apps.snapshots.models import SelectionReplay
from apps.snapshots.recipe import JOIN, SnapshotRecipe
from apps.snapshots.services.gathering import DECIDING_SLOTS, material_of
from measures.depth import replay_depth
from measures.selection import LEAST_GROUPS, LEAST_PAIRS, Pool, Replay, pool_of, replay

log = logging.getLogger(__name__)
State, Kind = SelectionReplay.State, SelectionReplay.Kind
MOST_PAIRS = 20_000  # a random part of more says as much
CUT_OFF = timedelta(minutes=30)  # a try that is not done by then is taken for dead
MOST_TRIES = 3
MOST_PER_PROMPT = 50


def selection_replay_start(
    *,
    project: Project,
    by: User,
    kind: str = Kind.SELECTION,
    most_per_prompt: int | None = None,
) -> SelectionReplay:
    """A replay that the scheduler takes up within seconds. The one of its kind that is under way,
    if there is one with the same limit.

    Errors: `Conflict` (`replay_under_way`) where one with another limit is; `DomainError`
    (`few_voted_pairs`, `few_groups`) with the number that is needed, and by field (`kind`,
    `most_per_prompt`, which has no meaning for the depth).
    """
    if kind not in Kind.values:
        raise DomainError("A replay is of kind selection or depth.", code="bad_kind", field="kind")
    if kind == Kind.DEPTH and most_per_prompt is not None:
        raise DomainError(
            "A replay of depth against breadth chooses no pairs, so it has no limit.",
            code="bad_limit",
            field="most_per_prompt",
        )
    if most_per_prompt is not None and not 1 <= most_per_prompt <= MOST_PER_PROMPT:
        raise DomainError(
            f"A limit is 1 to {MOST_PER_PROMPT} pairs of a prompt, or none.",
            code="bad_limit",
            field="most_per_prompt",
        )
    code, words = voted_pairs(project).problem
    if code:
        raise DomainError(words, code=code)
    of_depth = kind == Kind.DEPTH
    action = "depth.replay_started" if of_depth else "selection.replay_started"
    try:
        with transaction.atomic():
            row = SelectionReplay.objects.create(
                project=project, kind=kind, most_per_prompt=most_per_prompt, created_by=by
            )
            audit_record(
                action=action,
                actor=by,
                project=project,
                subject=row.pk,
                details={} if of_depth else {"most_per_prompt": most_per_prompt},
            )
    except IntegrityError:
        of_kind = SelectionReplay.objects.filter(project=project, kind=kind, ended_at=None)
        running = of_kind.first()
        if running is None or running.most_per_prompt != most_per_prompt:
            raise Conflict(
                "A replay of this project is under way.", code="replay_under_way"
            ) from None
        return running
    return row


def selection_replays_run() -> int:
    """By the scheduler: run what is queued, and again what was cut off; how many were run."""
    dead = timezone.now() - CUT_OFF
    open_rows = SelectionReplay.objects.filter(ended_at=None)
    waiting = open_rows.filter(Q(started_at=None) | Q(started_at__lt=dead))
    return sum(selection_replay_run(replay_id=pk) for pk in waiting.values_list("pk", flat=True))


def selection_replay_run(*, replay_id: str) -> bool:
    """Run one; whether this call did. Harmless to call twice: the row is claimed once a try."""
    now = timezone.now()
    claimed = SelectionReplay.objects.filter(
        Q(started_at=None) | Q(started_at__lt=now - CUT_OFF), pk=replay_id, ended_at=None
    ).update(started_at=now, tries=F("tries") + 1, state=State.RUNNING)
    if not claimed:
        return False
    row = SelectionReplay.objects.select_related("project").get(pk=replay_id)
    if row.tries > MOST_TRIES:
        _end(row, State.FAILED, error="Its process ended three times before it was done.")
        return True
    try:
        verdict, result = _replayed(row)
    except Exception:
        log.exception("the replay %s failed", row.pk)
        _end(
            row, State.FAILED, error="The replay failed; the log of the web side's worker says why."
        )
        return True
    _end(row, State.FINISHED, verdict=verdict, result=result)
    return True


def _replayed(row: SelectionReplay) -> tuple[str, dict[str, Any]]:
    """The verdict, and what is kept."""
    pool = pool_of_project(row.project)
    if row.kind == Kind.DEPTH:
        depth = replay_depth(pool)
        return depth.verdict, depth.to_json()
    found = replay(pool, most_per_prompt=row.most_per_prompt)
    return found.verdict, kept(found)


def _end(row: SelectionReplay, state: str, **values: Any) -> None:
    """Written by the try that holds the row, and by no earlier one."""
    SelectionReplay.objects.filter(pk=row.pk, started_at=row.started_at, ended_at=None).update(
        state=state, ended_at=timezone.now(), **values
    )


def kept(found: Replay) -> dict[str, Any]:
    """As stored: the replay with the verdict of every strategy."""
    data = found.to_json()
    for curve, row in zip(found.curves, data["curves"], strict=True):
        row["verdict"] = curve.verdict
    return data


def pool_of_project(project: Project) -> Pool:
    """Pairs of this project with current votes for a side. Ties, hidden repeats, audits, dropped
    pairs and votes of heads-to-head are not in it, nor pairs that a model selected: the pool is to
    be like what the next pairs come from. Held out together: a pair's group, or prompt."""
    return _pool(_voted(project, most=MOST_PAIRS, selected=False))


def pool_with_fresh(project: Project, fresh: Sequence["Told"], *, most: int) -> tuple[Pool, int]:
    """At most so many pairs with votes, selected ones too, and after them the fresh ones, which
    have none, in one space of features; and how many have votes."""
    voted = _voted(project, most=most, selected=True)
    return _pool([*voted, *fresh]), len(voted)


@dataclass(frozen=True, slots=True)
class Told:
    """A pair as its texts are compared, and the votes for either answer."""

    prompt: str
    a: str
    b: str
    group: str = ""
    for_a: int = 0
    for_b: int = 0

    @classmethod
    def of(cls, prompt: Sequence[Mapping[str, str]], a: str, b: str) -> "Told":
        """A fresh one, by its messages and its two answers."""

        def text(answer: str) -> str:
            return argument_text(prompt, [{"role": "assistant", "content": answer}])

        return cls(prompt_text(prompt), text(a), text(b))


def _voted(project: Project, *, most: int, selected: bool) -> list[Told]:
    """A random part, where there are more."""
    material = material_of(project=project, recipe=SnapshotRecipe(near_duplicates=JOIN))
    votes, texts = _sides(material, selected=selected), material.texts
    pairs = [pair for pair in material.pairs if pair.id in votes]
    if len(pairs) > most:
        pairs = random.Random(0).sample(pairs, most)
    return [Told(texts[p.prompt], texts[p.a], texts[p.b], p.group, *votes[p.id]) for p in pairs]


def _pool(pairs: Sequence[Told]) -> Pool:
    numbers: dict[str, int] = {}
    first = [numbers.setdefault(pair.a, len(numbers)) for pair in pairs]
    second = [numbers.setdefault(pair.b, len(numbers)) for pair in pairs]
    return pool_of(
        list(numbers),
        first,
        second,
        [pair.for_a for pair in pairs],
        [pair.for_a + pair.for_b for pair in pairs],
        groups=[pair.group or pair.prompt for pair in pairs],
        prompts=[pair.prompt for pair in pairs],
        prompt_texts=[pair.prompt for pair in pairs],
    )


@dataclass(frozen=True, slots=True)
class VotedPairs:
    """Pairs that a replay would be of, those with two equal answers among them, and the groups (or
    prompts, of pairs without one) that are held out in turn."""

    n: int
    groups: int

    @property
    def problem(self) -> tuple[str, str]:
        """Code and sentence of what is in the way of a replay; empty where nothing is."""
        if self.n < LEAST_PAIRS:
            return "few_voted_pairs", (
                f"{self.n:,} pairs have a vote for one of their answers; a replay needs "
                f"{LEAST_PAIRS:,}."
            )
        if self.groups < LEAST_GROUPS:
            return "few_groups", (
                f"The pairs are of {self.groups} groups; a replay holds groups out in turn and "
                f"needs {LEAST_GROUPS}."
            )
        return "", ""


def voted_pairs(project: Project) -> VotedPairs:
    cast = Vote.objects.filter(
        project=project, is_current=True, slot__kind__in=DECIDING_SLOTS, choice__in=("a", "b")
    )
    people = cast.exclude(source=Vote.Source.SIMULATED)
    kept = people.exclude(comparison__state=Comparison.State.DROPPED).exclude(
        comparison__decision__outcome=Decision.Outcome.DROPPED
    )
    kept = kept.exclude(comparison__slice=Comparison.Slice.SELECTED)
    unit = Coalesce(
        NullIf("comparison__prompt__group_key", Value("")),
        Cast("comparison__prompt", CharField()),
    )
    counts = kept.order_by().aggregate(
        n=Count("comparison", distinct=True), groups=Count(unit, distinct=True)
    )
    return VotedPairs(**counts)


def _sides(material: Material, *, selected: bool) -> dict[int, list[int]]:
    """{pair: [people's votes for a, for b]}, of pairs not dropped whose answers differ; `selected`:
    of those too that a model chose."""
    usable = {
        pair.id
        for pair in material.pairs
        if not pair.dropped and pair.a != pair.b and (selected or not pair.is_selected)
    }
    found: dict[int, list[int]] = {}
    for vote in material.votes:
        if vote.choice in ("a", "b") and vote.pair in usable and vote.id not in material.simulated:
            found.setdefault(vote.pair, [0, 0])["ab".index(vote.choice)] += 1
    return found
