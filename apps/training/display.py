"""Runs as pages show them: tones, progress, headline figures, whose turn it is. Nothing here
writes, and nothing here invents a number."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from apps.common.numbers import fixed
from apps.training.models import Run, RunAttempt
from workers.config import recipe_config
from workers.contract.jobs import ONE, TORCHRUN
from workers.contract.metrics import HEADLINES
from workers.contract.traits import TRAITS

TONES = {
    "waiting": "",
    "queued": "",
    "running": "live",
    "stopping": "warn",
    "finished": "good",
    "failed": "bad",
    "cancelled": "",
}
FAVICONS = {
    "running": "favicon-live.svg",
    "stopping": "favicon-live.svg",
    "finished": "favicon-good.svg",
    "failed": "favicon-bad.svg",
}


@dataclass(frozen=True, slots=True)
class RunProgress:
    """`percent` is None while the number of steps is unknown, `eta_s` while nothing tells it."""

    percent: int | None
    words: str
    tone: str
    eta_s: float | None = None


def progress(run: Run, attempt: RunAttempt | None = None) -> RunProgress:
    tone = {"finished": "good", "failed": "bad"}.get(run.state, "")
    if not run.total_steps:
        words = f"step {run.step:,}" if run.step else ""
        return RunProgress(100 if run.state == Run.State.FINISHED else None, words, tone)
    percent = min(100, int(100 * run.step / run.total_steps))
    words = f"step {run.step:,} of {run.total_steps:,}"
    if run.state == Run.State.FINISHED and run.step < run.total_steps:
        words += f", finished early{_why_early(run)}"
    return RunProgress(percent, words, tone, _eta(run, attempt))


def _why_early(run: Run) -> str:
    """What ended it before its last step, as far as its summary and settings tell."""
    if run.summary.get("stopped_early"):
        return ": stopped and kept"
    config = recipe_config(run.kind, run.config)
    patience = f"no better for {config.get('patience')} evaluations (patience)"
    if run.summary.get("stopped_by") == "patience":
        return f": {patience}"
    longest, took = config.get("max_seconds"), run.seconds
    told = [patience] if config.get("patience") else []
    if isinstance(longest, int | float) and took is not None and took >= longest:
        told.append(f"max_seconds ({longest:g}) reached")
    return f": {' or '.join(told)}" if told else ""


def _eta(run: Run, attempt: RunAttempt | None) -> float | None:
    """Seconds left: what the trainer says, else by the pace of this attempt so far."""
    if run.state != Run.State.RUNNING:
        return None
    if run.eta_s is not None:
        return run.eta_s
    if attempt is None or attempt.opened_at is None or run.heard_at is None:
        return None
    done = run.step - (attempt.resumed_from_step or 0)
    seconds = (run.heard_at - attempt.opened_at).total_seconds()
    return seconds / done * (run.total_steps - run.step) if done > 0 < seconds else None


def layout_words(run: Run) -> str:
    """ "fsdp over 4 processes"; empty for a run of one process."""
    if run.layout == ONE:
        return ""
    many = run.processes
    over = f"{many} process{'' if many == 1 else 'es'}" if many else "every GPU of its machine"
    by = f" by {run.launcher}" if run.launcher != TORCHRUN else ""
    return f"{run.layout} over {over}{by}"


def imported_from(run: Run) -> str:
    """The file that the figures of an imported run were read from."""
    return next(
        (str(run.config[key]) for key in ("file", "source") if run.config.get(key)), "a file"
    )


def title(run: Run) -> str:
    """Of the browser's tab: the state of the job first, since tabs are narrow."""
    shown = progress(run)
    if run.state == Run.State.RUNNING and shown.percent is not None:
        return f"{shown.percent} % · {run.name}"
    return f"{run.get_state_display()} · {run.name}"


def group_name(runs: Sequence[Run]) -> str:
    """What the names of a group's runs have in common."""
    names = [run.name.removesuffix(f", seed {run.seed}") for run in runs]
    if len(set(names)) == 1:
        return names[0]
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike).rpartition(",")[0] or names[0]


@dataclass(frozen=True, slots=True)
class MetricTile:
    """A figure with what it rests on; `spread` is its interval, `why` the reason for none."""

    label: str
    value: float | int | str | None
    basis: str
    spread: str = ""
    why: str = ""


def headline_tiles(run: Run, latest: dict[str, tuple[int, float]]) -> list[MetricTile]:
    """One tile for each headline that was measured; the figures of a report, which have intervals,
    take the place of what was measured on the way."""
    if reported := _reported_tiles(run):
        return reported
    tiles = []
    for headline in HEADLINES.get(run.trained_kind, ()):
        name = next((name for name in headline.names if name in latest), None)
        if name is not None:
            step, value = latest[name]
            basis = f"at step {step:,}" + (f", {headline.said}" if headline.said else "")
            value = round(value) if headline.is_count and math.isfinite(value) else value
            tiles.append(MetricTile(headline.title, value, basis))
    return tiles


def _reported_tiles(run: Run) -> list[MetricTile]:
    if run.kind == Run.Kind.REWARD:
        held_out = [split for split in reward_splits(run) if split["name"] != "train"]
        return [replace(row["accuracy"], label=f"Accuracy on {row['name']}") for row in held_out]
    if run.kind == Run.Kind.EVALUATE:
        tables = {table.title: dict(table.rows) for table in summary_parts(run.summary).tables}
        found = [
            (f"{words}, by the {who}", tables.get(who, {}).get(name))
            for name, words in (("win_rate", "Win rate"), ("difference", "Score difference"))
            for who in ("judge", "reward")
        ]
        return [replace(tile, label=label) for label, tile in found if tile is not None]
    return []


def interval_tile(label: str, interval: dict[str, Any]) -> MetricTile:
    """A statistic with its interval, or the reason why there is none."""
    value, low, high = (interval.get(key) for key in ("value", "low", "high"))
    basis = f"n = {interval.get('n', 0):,}"
    if value is None:
        return MetricTile(label, None, basis, why=interval.get("undefined") or "undefined")
    if low is None or high is None:
        return MetricTile(label, value, basis, why=interval.get("no_interval") or "no interval")
    return MetricTile(label, value, basis, spread=f"{fixed(low)} … {fixed(high)}")


def reward_splits(run: Run) -> list[dict[str, Any]]:
    """A reward model's report: each split's accuracy beside the length-only rule's, and apart of
    the pairs that people labelled where a model labelled others."""
    splits = run.summary.get("splits")
    if run.kind != Run.Kind.REWARD or not isinstance(splits, dict):
        return []
    found = []
    for name, report in sorted(splits.items(), key=lambda item: item[0] == "train"):
        if not isinstance(report, dict):
            continue
        found.append(_split(name, report) | {"nobody": report.get("by_people") == 0})
        if isinstance(own := report.get("people"), dict):
            found.append(_split(name, own) | {"people": True})
    return found


def peoples_splits(run: Run) -> list[dict[str, Any]]:
    """The same of held-out pairs, with what people labelled alone; empty where all of it is."""
    held = [one for one in reward_splits(run) if one["name"] != "train"]
    return [one for one in held if one.get("people") or one.get("nobody")]


def _split(name: str, report: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "rows": report.get("rows"),
        "accuracy": interval_tile("", report.get("accuracy") or {}),
        "length_only": interval_tile("", report.get("length_only") or {}),
        "difference": interval_tile("", report.get("difference") or {}),
        "ece": report.get("ece"),
    }


def imitation_traits(run: Run) -> list[dict[str, Any]]:
    """An SFT model's sampled answers beside its demonstrations, a row for each trait."""
    imitation = run.summary.get("imitation")
    if run.kind != Run.Kind.SFT or not isinstance(imitation, dict):
        return []
    return [
        {
            "name": TRAITS.get(trait["name"], trait["name"]),
            "demonstrations": _in_its_unit(trait["name"], trait["demonstrations"]),
            "answers": _in_its_unit(trait["name"], trait["answers"]),
            "difference": interval_tile("", trait["difference"]),
            "low": trait["low"],
            "high": trait["high"],
            "departs": trait["departs"],
        }
        for trait in imitation.get("traits", ())
    ]


def _in_its_unit(trait: str, value: float) -> str:
    return f"{value:.0f} tokens" if trait == "length" else f"{value:.1%}".replace("%", " %")


Facts = list[tuple[str, Any]]


def words(name: str) -> str:
    """A key of a summary in words; the file that it comes from keeps the key."""
    return SUMMARY.get(name) or name.replace("_", " ").replace(".", ": ").capitalize()


def _in_words(rows: Facts) -> Facts:
    return [(words(name), value) for name, value in rows]


def facts(values: dict[str, Any]) -> Facts:
    """(name, value) of plain values; nested ones under joined names."""
    found: Facts = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += [(f"{name}.{inner}", v) for inner, v in facts(value)]
        elif isinstance(value, list):
            found.append((name, ", ".join(str(item) for item in value[:20])))
        else:
            found.append((name, value))
    return found


SUMMARY = {
    "kl": "KL to the reference, nats per answer",
    "step": "Last step",
    "max_length": "Longest input, tokens",
    "train_rows": "Training rows",
    "dropped_rows": "Rows left out",
    "truncated_share": "Share of rows cut",
    "held_out_margin": "Held-out margin, nats × β",
    "held_out_accuracy": "Held-out accuracy",
    "reference_sha256": "Hash of the reference’s weights",
    "gap": "Training against held out",
    "stopped_at": "Where it stopped",
    "overfit": "Overfitted",
    "threshold": "Largest gap allowed",
    "train_minus_held_out": "Training minus held-out accuracy",
    "weights_of_step": "Step of the kept weights",
}
_READ = {
    "registered_as": "Registered as",
    "model": "Read from",
    "adapter": "With the adapter",
    "at": "Answers at",
    "served_model": "Model of the server",
    "says": "Says that it is",
    "said": "Its answer to “Say hello.”",
    "architecture": "Architecture",
    "parameters": "Parameters",
    "dtype": "Precision",
    "vocabulary": "Tokens of its vocabulary",
    "max_length": "Longest input, tokens",
    "chat_template": "Chat template",
    "end_token": "End token",
    "pad_token": "Pad token",
    "licence": "Licence",
    "weights_sha256": "Hash of its weights",
}


def read_of(run: Run) -> Facts:
    """What a registering run read of its model; empty of other runs."""
    if not run.kind.startswith("register_") and run.kind != Run.Kind.SERVED:
        return []
    return [(words, run.summary[name]) for name, words in _READ.items() if run.summary.get(name)]


@dataclass(frozen=True, slots=True)
class StatisticsTable:
    """Statistics that belong together; `why` is why none of them has an interval."""

    title: str
    rows: list[tuple[str, MetricTile]]
    why: str


@dataclass(frozen=True, slots=True)
class RunSummary:
    """`plain` figures, `groups` of nested ones, `tables` of statistics with intervals, and
    `change`: (name, first, last) rows."""

    plain: Facts
    groups: list[tuple[str, Facts]]
    tables: list[StatisticsTable]
    change: list[tuple[str, Any, Any]]


def summary_parts(summary: dict[str, Any], skip: frozenset[str] = frozenset()) -> RunSummary:
    """What a recipe returned at its end, by how it is best read."""
    kept = {name: value for name, value in summary.items() if name not in skip}
    first, last = kept.get("first"), kept.get("last")
    change = []
    if isinstance(first, dict) and isinstance(last, dict):
        kept = {name: value for name, value in kept.items() if name not in ("first", "last")}
        change = [(name, first.get(name), last.get(name)) for name in {**first, **last}]
    groups = {name: value for name, value in kept.items() if isinstance(value, dict) and value}
    measured = {n: g for n, g in groups.items() if all(_is_interval(v) for v in g.values())}
    return RunSummary(
        plain=_in_words(facts({name: value for name, value in kept.items() if name not in groups})),
        groups=[
            (words(name), _in_words(facts(value)))
            for name, value in groups.items()
            if name not in measured
        ],
        tables=[_table(name, value) for name, value in measured.items()],
        change=change,
    )


def _is_interval(value: Any) -> bool:
    return isinstance(value, dict) and {"value", "low", "high"} <= set(value)


def _table(title: str, group: dict[str, dict[str, Any]]) -> StatisticsTable:
    rows = [(name, interval_tile(name, interval)) for name, interval in group.items()]
    reasons = {tile.why for _, tile in rows}
    return StatisticsTable(title, rows, why=reasons.pop() if len(reasons) == 1 else "")


def config_diff(mine: dict[str, Any], other: dict[str, Any]) -> list[dict[str, Any]]:
    """Names whose values differ, with both values; None where one has no such name."""
    names = sorted({*mine, *other})
    return [
        {"name": name, "mine": mine.get(name), "other": other.get(name)}
        for name in names
        if mine.get(name) != other.get(name)
    ]


def metric_summary(name: str, points: list[tuple[int, Any]]) -> dict[str, Any]:
    """A curve in words and numbers, for those who do not see it and for pages without script."""
    numbers = [(step, value) for step, value in points if isinstance(value, int | float)]
    values = [value for _, value in numbers]
    return {
        "name": name,
        "group": name.rsplit("/", 1)[0] if "/" in name else "training",
        "n": len(points),
        "no_numbers": len(points) - len(numbers),
        "first": numbers[0] if numbers else None,
        "last": numbers[-1] if numbers else None,
        "least": min(values) if values else None,
        "greatest": max(values) if values else None,
    }


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def as_line(value: Any) -> Any:
    """Objects and lists as JSON on one line, everything else as it is."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def as_setting(value: Any) -> str:
    """A value as a configuration writes it: true, null, 0.05, "text" without its quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def speakable(value: Any) -> Any:
    """JSON has no NaN and no infinities: they become the words the contract uses."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
