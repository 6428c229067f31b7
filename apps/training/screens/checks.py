"""What was looked at before the first step, what memory and time the run takes: from its reports.

The files are the trainer's. Each part is read by itself, so one that does not have the shape which
docs/preflight.md describes is left out with a sentence, and the others are shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.common.numbers import figure, filesize
from apps.common.playbook import experiment_words
from apps.common.report.blocks import Part, part_of, parts
from apps.common.report.levels import WORST_FIRST, Look, look_of
from apps.training.models import Run
from apps.training.selectors.results import report_read
from apps.training.services.layouts import layouts_of_kind
from measures.blocks import Bars, block_from_json
from workers.contract.jobs import LAYOUTS
from workers.rules.experiments import EXPERIMENTS

METRICS = (
    "time/rollout_s",
    "time/reward_s",
    "time/reward_wait_s",
    "time/update_s",
    "time/step_s",
    "reward/cache_hit_rate",
    "throughput/response_tokens_per_s",
)
PARTS = {
    "rollout": "Generation",
    "reward": "Waiting for the reward",
    "update": "Update",
    "other": "Everything else",
}
MOST = 200  # rows of any table
MOST_DRAWN = 6  # drawings of one finding
_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    title: str
    look: Look
    message: str
    figures: list[tuple[str, str]]
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Preflight:
    look: Look
    seconds: float | None
    findings: list[PreflightFinding]
    changed: list[tuple[str, str, str]]  # of a run in small: field, as it was, as it ran


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """A layout with its peak by number of processes: (processes, size, whether it fits)."""

    name: str
    title: str
    sizes: list[tuple[int, str, bool | None]]


@dataclass(frozen=True, slots=True)
class Memory:
    """`verdict` says whether it fits; `phases` are drawn; `lines` are all entries of the ledger."""

    verdict: str
    tone: str
    phases: Part
    models: list[tuple[str, str]]
    lines: list[tuple[str, str, str, str, str]]
    measures: list[tuple[str, str, str, str, str]]
    would_fit: str
    layouts: list[LayoutRow]


@dataclass(frozen=True, slots=True)
class Latency:
    rows: list[tuple[str, str, str, str, str]]
    message: str


@dataclass(frozen=True, slots=True)
class Waits:
    """`shares`: of the time of a step."""

    shares: Part
    message: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Checks:
    preflight: Preflight | None = None
    memory: Memory | None = None
    latency: Latency | None = None
    waits: Waits | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        parts = (self.preflight, self.memory, self.latency, self.waits)
        return not self.problems and not any(parts)


def checks_view(run: Run, latest: Mapping[str, tuple[int, float]]) -> Checks:
    problems: list[str] = []
    preflight = report_read(run, "preflight.json")
    latency = report_read(run, "latency.json")
    problems += [one.problem for one in (preflight, latency) if one.problem]

    def shown(what: str, make: Callable[[Any], Any], data: Any) -> Any:
        """None where there is nothing to show, or where it has another shape than it should."""
        if not data:
            return None
        try:
            return make(data)
        except _WRONG:
            problems.append(f"{what} is not in a format this version can read.")
            return None

    return Checks(
        preflight=shown("The preflight's report", _preflight, preflight.data),
        memory=shown(
            "The memory ledger",
            lambda found: _memory(found, run.kind),
            preflight.data.get("memory"),
        ),
        latency=shown("The latency report", _latency, latency.data),
        waits=shown(
            "The report on who waits for whom",
            lambda found: _waits(found, latest),
            _bottleneck(run, latest),
        ),
        problems=problems,
    )


# --- the preflight ---


def _preflight(data: Mapping[str, Any]) -> Preflight:
    findings = [_finding(one) for one in data["findings"][:MOST]]
    findings.sort(key=lambda one: WORST_FIRST.index(one.look.level))
    changed = data.get("changed") or {}
    return Preflight(
        look=look_of(str(data["level"])),
        seconds=_number(data.get("seconds")),
        findings=findings,
        changed=[(str(name), _shown(pair[0]), _shown(pair[1])) for name, pair in changed.items()],
    )


def _finding(one: Mapping[str, Any]) -> PreflightFinding:
    figures = one.get("figures") or {}
    return PreflightFinding(
        title=str(one["title"]),
        look=look_of(str(one["level"])),
        message=str(one["message"]),
        figures=[(str(name), _shown(value)) for name, value in figures.items()],
        parts=_drawn(one.get("evidence") or []),
    )


def _drawn(blocks: Sequence[Mapping[str, Any]]) -> list[Part]:
    """A block of another shape is left out: the words of its finding stand without it."""
    found = []
    for block in blocks[:MOST_DRAWN]:
        try:
            found.append(block_from_json(block))
        except _WRONG:
            continue
    return parts(found)


# --- memory ---


def _memory(data: Mapping[str, Any], kind: str) -> Memory:
    peak, room = _whole(data["peak_bytes"]), data.get("room")
    held = next((_whole(p["bytes"]) for p in data["phases"] if p["phase"] == "resident"), 0)
    phases = [
        (str(p["title"]), str(p["phase"]), _whole(p["bytes"]) + held * (p["phase"] != "resident"))
        for p in data["phases"]
        if _whole(p["bytes"])
    ]
    fits = data.get("fits")
    return Memory(
        verdict=_fits_words(peak, room, fits),
        tone={True: "good", False: "bad"}.get(fits, ""),
        phases=_phases(phases, str(data["peak_phase"]), room),
        models=[
            (str(one["model"]), filesize(_whole(one["bytes"]))) for one in data["models"][:MOST]
        ],
        lines=[
            (
                str(line["model"]),
                str(line["part"]),
                str(line["phase"]),
                filesize(_whole(line["bytes"])),
                str(line["how"]),
            )
            for line in data["lines"][:MOST]
        ],
        measures=[
            (
                str(one["title"]),
                str(one.get("field") or ""),
                filesize(_whole(one["saves_bytes"])),
                filesize(_whole(one["peak_bytes"])),
                {True: "fits", False: "does not fit"}.get(one.get("fits"), "unknown"),
            )
            for one in data["measures"][:MOST]
        ],
        would_fit=str((data.get("would_fit") or {}).get("message") or ""),
        layouts=layout_rows(data.get("layouts") or [], kind),
    )


# A room of more than so many peaks is not drawn: the bars would be slivers beside it.
_NEAR = 4


def _phases(
    phases: Sequence[tuple[str, str, int]], peak: str, room: Mapping[str, Any] | None
) -> Part:
    has = float(_whole(room["bytes"])) if room else 0.0
    near = 0 < has <= _NEAR * max((size for *_, size in phases), default=0)
    return part_of(
        Bars(
            title="",
            rows=tuple(
                (f"{title.capitalize()}{', the peak' if phase == peak else ''}", (float(size),))
                for title, phase, size in phases
            ),
            said=tuple(filesize(size) for _, _, size in phases),
            reference=has if near else None,
            reference_label=f"what {room['name']} has" if room and near else "",
        )
    )


def layout_rows(rows: Sequence[Mapping[str, Any]], kind: str) -> list[LayoutRow]:
    """The ledger's comparison of layouts, in the words of the form: of those that the recipe of
    `kind` trains with."""
    offered = layouts_of_kind(kind)
    found: dict[str, LayoutRow] = {}
    for row in rows[:MOST]:
        if row["layout"] not in offered:
            continue
        layout = LAYOUTS[row["layout"]]
        shown = found.setdefault(layout.name, LayoutRow(layout.name, layout.title, []))
        fits = row.get("fits")
        size = filesize(_whole(row["peak_bytes"]))
        shown.sizes.append((_whole(row["processes"]), size, fits if type(fits) is bool else None))
    return list(found.values())


def layouts_of(run: Run) -> list[LayoutRow]:
    """What the preflight of `run` said would fit; empty where it said nothing that can be read."""
    memory = report_read(run, "preflight.json").data.get("memory") or {}
    try:
        return layout_rows(memory.get("layouts") or [], run.kind)
    except _WRONG:
        return []


def _fits_words(peak: int, room: Mapping[str, Any] | None, fits: bool | None) -> str:
    if not room:
        return f"At its largest the run takes about {filesize(peak)}; the device is not known."
    size = _whole(room["bytes"])
    share = f" ({100 * peak / size:.0f} %)" if size else ""
    end = "" if fits else " It does not fit."
    return (
        f"At its largest the run takes about {filesize(peak)} of the {filesize(size)} of "
        f"{room['name']}{share}.{end}"
    )


# --- latency ---


_PATHS = {
    "without_value_head": "Without the value head",
    "with_value_head": "With the value head",
    "without_score": "Answer alone, as served",
    "with_score": "With the reward’s score",
}


def _latency(data: Mapping[str, Any]) -> Latency:
    return Latency(
        rows=[
            (
                title,
                f"{_whole(data[key]['requests']):,}",
                f"{figure(_number(data[key]['p50_ms']))} ms",
                f"{figure(_number(data[key]['p99_ms']))} ms",
                f"{figure(_number(data[key]['p50_ms_per_token']))} ms",
            )
            for key, title in _PATHS.items()
            if key in data
        ],
        message=str(data["message"]),
    )


# --- who waits for whom ---


def _bottleneck(run: Run, latest: Mapping[str, tuple[int, float]]) -> Mapping[str, Any]:
    """What the run found at its end; while it trains, the newest step's times."""
    found = run.summary.get("bottleneck") if isinstance(run.summary, dict) else None
    if isinstance(found, dict) and found:
        return found
    wait = "time/reward_wait_s" if "time/reward_wait_s" in latest else "time/reward_s"
    names = {"rollout": "time/rollout_s", "reward": wait, "update": "time/update_s"}
    seconds = {part: latest[name][1] for part, name in names.items() if name in latest}
    total = sum(seconds.values())
    if len(seconds) < len(names) or not total > 0:
        return {}
    step = latest[names["update"]][0]
    return {
        "shares": {part: value / total for part, value in seconds.items()},
        "message": f"Of step {step:,} alone; a finished run says it of all its steps.",
    }


def _waits(found: Mapping[str, Any], latest: Mapping[str, tuple[int, float]]) -> Waits:
    shares = {title: _number(found["shares"].get(part)) or 0.0 for part, title in PARTS.items()}
    if any(not 0 <= share <= 1.001 for share in shares.values()):
        raise ValueError(f"shares of {list(shares.values())}")
    drawn = Bars(
        title="",
        rows=tuple((title, (share,)) for title, share in shares.items() if share),
        unit="share",
    )
    return Waits(shares=part_of(drawn), message=str(found["message"]), facts=_speeds(found, latest))


def _speeds(
    found: Mapping[str, Any], latest: Mapping[str, tuple[int, float]]
) -> list[tuple[str, str]]:
    facts = []
    speed = _number(found.get("tokens_per_second"))
    if speed is None and "throughput/response_tokens_per_s" in latest:
        speed = latest["throughput/response_tokens_per_s"][1]
    if speed is not None:
        facts.append(("Answer tokens", f"{figure(speed)} per second"))
    if "time/reward_s" in latest and "time/reward_wait_s" in latest:
        step, worked = latest["time/reward_s"]
        waited = latest["time/reward_wait_s"][1]
        facts.append(
            (
                "Scoring",
                f"worked {_seconds(worked)} in step {step:,}; the step waited for it "
                f"{_seconds(waited)}",
            )
        )
    if "reward/cache_hit_rate" in latest:
        step, rate = latest["reward/cache_hit_rate"]
        facts.append(("Scores known before", f"{100 * rate:.1f} % of the answers of step {step:,}"))
    return facts


def _seconds(value: float) -> str:
    return f"{figure(value)} s" if value >= 1 else f"{1000 * value:.3g} ms"


# --- values of a file ---


def _number(value: Any) -> float | None:
    """None for what is no number; the words of NaN and infinity are none either."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"no size: {value!r}")
    return int(value)


def _shown(value: Any) -> str:
    return str(figure(value)) if isinstance(value, int | float | None) else str(value)


# What a check found, as its own page and the page of the run it is about show it. A trainer wrote
# it, so nothing in it is taken on trust.

FILES = {Run.Kind.CHECK: "check.json", Run.Kind.PROBE: "probe.json"}
OUTCOMES = {
    "confirms": "Suspicion confirmed",
    "refutes": "Suspicion refuted",
    "undecided": "Undecided",
    "scored": "Scored",
}
_MOST_DRAWN = 8


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`meaning` says what an answer of this kind means; `figures` are (name, value, deviation, n)
    of a probe. `problem` says why nothing is drawn."""

    question: str = ""
    outcome: str = ""
    look: Look | None = None
    words: str = ""
    meaning: str = ""
    evidence: list[Part] = field(default_factory=list)
    figures: list[tuple[str, str, str, str]] = field(default_factory=list)
    problem: str = ""


def check_result(run: Run) -> CheckResult | None:
    """None for kinds of run that check nothing."""
    if run.kind == Run.Kind.CHECK:
        return _of_check(run)
    if run.kind == Run.Kind.PROBE:
        return CheckResult(
            question="What does the model answer today, to the questions it is always asked?",
            figures=_figures(run),
        )
    return None


def _of_check(run: Run) -> CheckResult:
    name = run.config.get("check", "reward_plot")
    asked = experiment_words(name) if isinstance(name, str) and name in EXPERIMENTS else None
    question = asked.do if asked else ""
    outcome, words = str(run.summary.get("outcome")), run.summary.get("words")
    if run.state != Run.State.FINISHED or outcome not in OUTCOMES or not isinstance(words, str):
        return CheckResult(question=question)
    said = [one.text for one in asked.readings] if asked else ["", ""]
    meanings = dict(zip(("confirms", "refutes"), said, strict=True))
    drawn, problem = _evidence(run)
    return CheckResult(
        question=question,
        outcome=OUTCOMES[outcome],
        look=look_of(outcome),
        words=words,
        meaning=meanings.get(outcome, ""),
        evidence=drawn,
        problem=problem,
    )


def _evidence(run: Run) -> tuple[list[Part], str]:
    report = report_read(run, FILES[Run.Kind.CHECK])
    found = []
    blocks = report.data.get("evidence")
    for block in blocks[:_MOST_DRAWN] if isinstance(blocks, list) else ():
        try:
            found.append(block_from_json(block))
        except _WRONG:
            continue
    return parts(found), report.problem


def _figures(run: Run) -> list[tuple[str, str, str, str]]:
    given = run.summary.get("figures")
    rows = []
    for name, one in given.items() if isinstance(given, dict) else ():
        try:
            rows.append(
                (
                    str(name),
                    str(figure(float(one["mean"]))),
                    str(figure(float(one["deviation"]))),
                    f"{int(one['n']):,}",
                )
            )
        except _WRONG:
            continue
    return rows
