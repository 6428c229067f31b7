"""The answers that a run kept for people, found by what they are and by step."""

from dataclasses import dataclass
from math import inf

from django.db.models import F, Q, QuerySet

from apps.training.models import Run, Sample
from apps.training.selectors.checkpoints import attempt_ends
from apps.training.selectors.evidence import Review, reviews

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


def _ordered(samples: QuerySet[Sample], bucket: str) -> QuerySet[Sample]:
    reward = F("reward")
    by = reward.asc(nulls_last=True) if bucket == "low" else reward.desc(nulls_last=True)
    return samples.order_by("-step", by, "-pk").values_list("pk", flat=True)
