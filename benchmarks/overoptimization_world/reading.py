"""What the courses of a seed say: where gold was best, what was kept, when which rule spoke."""

from dataclasses import dataclass

from benchmarks.overoptimization_world.courses import Course, Point, Result

KEPT = 0.9  # share of the best gold that a stop, or a chosen checkpoint, has to keep
ONLY_SHIPPED_STOP = "held_out_down"  # the rule that stops a run without anybody's choice
PATIENCE = 3  # evaluations, of the guarded runs


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint held against the best one of all courses of its seed."""

    step: int
    gold: float  # points
    of_gain: float  # (gold − start) / (best − start): 1 keeps all, 0 nothing, negative harms
    of_level: float  # gold / best


@dataclass(frozen=True, slots=True)
class Reading:
    """start, best and last: gold reward of the SFT model, of the best checkpoint, and of the
    unguarded end, points. `proxy_rise` from the best checkpoint to that end, raw score."""

    seed: int
    start: float
    best: Point
    last: float
    fall: float  # share of the best gain that the unguarded run lost again
    proxy_rise: float
    stop: Kept
    stopped_by: str
    chosen: Kept
    # What other ways to stop would have left, read off the unguarded run: up to its end a run that
    # is stopped has the same course, for warnings change nothing.
    others: dict[str, tuple[Kept, Kept]]  # (where it stops, what it chooses)


def read_course(result: Result) -> Reading:
    free, held = result.courses["unguarded"], result.courses["guarded"]
    start, end = free.points[0], free.points[-1]
    best = max([*free.points, *held.points], key=lambda point: point.gold)
    gain = best.gold - start.gold

    def kept(step: int, gold: float) -> Kept:
        return Kept(step, gold, (gold - start.gold) / gain, gold / best.gold)

    others = {}
    for name, stop, evaluated in other_stops(free):
        seen = [p for p in free.points if p.step < stop or (evaluated and p.step == stop)]
        choice = max(seen, key=lambda point: point.judge)
        nearest = min(free.points, key=lambda point: abs(point.step - stop))
        others[name] = (kept(stop, nearest.gold), kept(choice.step, choice.gold))
    return Reading(
        seed=result.seed,
        start=start.gold,
        best=best,
        last=end.gold,
        fall=(best.gold - end.gold) / gain,
        proxy_rise=end.proxy - best.proxy,
        stop=kept(held.ended_at, held.gold_at_end),
        stopped_by=held.ended_by,
        chosen=kept(held.best, at(held, held.best).gold),
        others=others,
    )


def at(course: Course, step: int) -> Point:
    return next(point for point in course.points if point.step == step)


def other_stops(free: Course) -> list[tuple[str, int, bool]]:
    """(name, step, whether the evaluation of that step was still made)."""
    return [
        ("nothing set", _first(free, ONLY_SHIPPED_STOP), True),
        ("patience alone", _out_of_patience(free), True),
        ("reference_kl at 10", _first(free, "reference_kl"), False),
    ]


def _first(free: Course, rule: str) -> int:
    return min((step for step, spoke in free.alarms if spoke == rule), default=free.ended_at)


def _out_of_patience(free: Course) -> int:
    best, without = free.points[0].judge, 0
    for point in free.points[1:]:
        best, without = (point.judge, 0) if point.judge > best else (best, without + 1)
        if without == PATIENCE:
            return point.step
    return free.ended_at


def alarm_rows(results: list[Result]) -> list[dict[str, object]]:
    """Per rule: in how many unguarded runs it spoke, its first steps, and in how many of them that
    was before gold was best, when nothing was wrong yet."""
    rows: dict[str, list[tuple[int, bool]]] = {}
    for result in results:
        best = read_course(result).best.step
        first: dict[str, int] = {}
        for step, rule in result.courses["unguarded"].alarms:
            first.setdefault(rule, step)
        for rule, step in first.items():
            rows.setdefault(rule, []).append((step, step <= best))
    return [
        {
            "rule": rule,
            "runs": f"{len(seen)} of {len(results)}",
            "first at step": ", ".join(str(step) for step, _ in sorted(seen)),
            "up to the best gold": sum(early for _, early in seen),
        }
        for rule, seen in sorted(rows.items(), key=lambda row: min(row[1]))
    ]
