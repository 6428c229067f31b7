"""Which results of evaluations may stand on one axis: those measured by one protocol."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from apps.common.numbers import is_number
from apps.common.registry import protocol_url
from apps.training.models import Run
from measures.repeats import inside_repeat_spread, least_difference
from workers.contract.protocol import Difference, StatedProtocol, differences, stated

# Of policies and of reward models; what they measure differs, so their protocols always do.
EVALUATIONS = (Run.Kind.EVALUATE, Run.Kind.ASSESS)
UNKNOWN = "was evaluated before protocols were kept, so it is compared with nothing"
SEED = "sampling.seed"  # the only line in which the runs of a group of seeds may differ
MOST_LINES = 12  # shown of one pair; the page of both protocols has all


@dataclass(frozen=True, slots=True)
class ProtocolPair:
    """Two runs under different protocols: the lines that differ, and how many more do."""

    one: Run
    other: Run
    lines: list[Difference]
    more: int
    url: str


@dataclass(frozen=True, slots=True)
class ProtocolRefusal:
    """Evaluations that may not be set side by side. `without`: runs whose protocol is unknown."""

    runs: list[Run]
    pairs: list[ProtocolPair] = field(default_factory=list)
    without: list[Run] = field(default_factory=list)

    @property
    def message(self) -> str:
        """One sentence, with the first line that differs."""
        if self.without:
            names = ", ".join(f"'{run.name}'" for run in self.without)
            return f"{names} {UNKNOWN}."
        pair = self.pairs[0]
        path, one, other = pair.lines[0]
        return (
            f"'{pair.one.name}' and '{pair.other.name}' were measured by different protocols: "
            f"{path} is {_short(one)} and {_short(other)}."
        )

    @property
    def ids(self) -> set[str]:
        return {run.pk for run in self.runs}


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def is_evaluation(run: Run) -> bool:
    """Whether the run has figures that a protocol belongs to."""
    return run.kind in EVALUATIONS and not run.is_live


def protocol_of(run: Run) -> StatedProtocol | None:
    """None for a run of another kind, and for one evaluated before protocols were kept."""
    return stated(run.summary) if run.kind in EVALUATIONS else None


def refusal_of(runs: Iterable[Run], *, over_seeds: bool = False) -> ProtocolRefusal | None:
    """Why the evaluations among these runs may not stand on one axis; None where they may, or where
    there is one at most. Those of policies and those of reward models share no figure and are asked
    about apart. `over_seeds`: of a group whose spread over seeds is what is asked for;
    then they may differ in `SEED` and in nothing else."""
    asked = [run for run in runs if is_evaluation(run)]
    without: list[Run] = []
    pairs: list[ProtocolPair] = []
    for kind in EVALUATIONS:
        of_kind = [run for run in asked if run.kind == kind]
        if len(of_kind) > 1:
            found = {run.pk: protocol_of(run) for run in of_kind}
            without += (unknown := [run for run in of_kind if found[run.pk] is None])
            pairs += [] if unknown else _differing(of_kind, found, over_seeds=over_seeds)
    if without:
        return ProtocolRefusal(asked, without=without)
    return ProtocolRefusal(asked, pairs) if pairs else None


def _differing(
    asked: Sequence[Run], found: Mapping[str, StatedProtocol | None], *, over_seeds: bool
) -> Iterator[ProtocolPair]:
    """The first beside one of each other protocol."""
    seen = {_stated(found[asked[0].pk]).sha256}
    for other in asked[1:]:
        theirs = _stated(found[other.pk])
        if theirs.sha256 in seen:
            continue
        seen.add(theirs.sha256)
        mine = _stated(found[asked[0].pk])
        lines = differences(mine.content, theirs.content)
        if not over_seeds or {line.path for line in lines} != {SEED}:
            yield _pair(asked[0], other, lines, mine.sha256, theirs.sha256)


def _stated(found: StatedProtocol | None) -> StatedProtocol:
    assert found is not None  # noqa: S101 — those without one were refused before
    return found


def _pair(
    one: Run, other: Run, lines: Sequence[Difference], mine: str, theirs: str
) -> ProtocolPair:
    url = protocol_url(one.project.slug, mine, theirs)
    return ProtocolPair(one, other, list(lines[:MOST_LINES]), max(0, len(lines) - MOST_LINES), url)


def same_protocol(run: Run, others: Sequence[Run], *, over_seeds: bool = False) -> list[Run]:
    """Those of `others` that may be drawn behind `run`; runs of other kinds stay."""
    return [other for other in others if refusal_of([run, other], over_seeds=over_seeds) is None]


# How far a figure moves without any change of the system, and what may be claimed beside it.

INSIDE = "inside the repeat spread, so no difference is claimed"
OUTSIDE = "outside the repeat spread"
NOT_MEASURED = "repeat spread not measured, so no difference is claimed; set repeats to 3"
_COMPARED = ("policy", "difference", "win_rate")  # of each source; the baseline is one and the same
_SOURCES = ("reward", "judge", "factuality")


@dataclass(frozen=True, slots=True)
class RepeatFigure:
    """A headline figure of an evaluation; sigma: its standard deviation over repeats of the
    unchanged system, None where it was asked once. `inside`: whether a difference of the policy and
    its baseline lies inside that spread; None where it is no difference."""

    value: float
    sigma: float | None
    inside: bool | None = None


def repeat_figures(run: Run) -> dict[str, RepeatFigure]:
    """{"reward.win_rate": …} of an evaluation, as far as they were measured."""
    told = run.summary.get("repeats")
    spreads = told.get("figures") if isinstance(told, dict) else None
    spreads = spreads if isinstance(spreads, dict) else {}
    found = {}
    for source in _SOURCES:
        part = run.summary.get(source)
        for name in _COMPARED:
            statistic = part.get(name) if isinstance(part, dict) else None
            value = statistic.get("value") if isinstance(statistic, dict) else None
            if not is_number(value):
                continue
            spread = spreads.get(f"{source}.{name}")
            spread = spread if isinstance(spread, dict) else {}
            sigma, inside = spread.get("sigma"), spread.get("inside")
            found[f"{source}.{name}"] = RepeatFigure(
                float(value),
                float(sigma) if is_number(sigma) else None,
                inside if isinstance(inside, bool) else None,
            )
    return found


def repeat_claim(one: RepeatFigure, other: RepeatFigure) -> str:
    """What may be said of the difference of a figure between two evaluations under one protocol,
    by the larger of their spreads."""
    sigmas = [figure.sigma for figure in (one, other) if figure.sigma is not None]
    if one.value == other.value:
        return INSIDE
    if not sigmas:
        return NOT_MEASURED
    sigma = max(sigmas)
    said = INSIDE if inside_repeat_spread(other.value - one.value, sigma) else OUTSIDE
    return f"{said} (±{least_difference(sigma):.3f})"
