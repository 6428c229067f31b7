"""The demo's report as lines for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

Report = Mapping[str, Any]


def table_lines(report: Report) -> Iterator[str]:
    """Headed blocks of aligned names and values; what is missing is shown as —."""
    for heading, rows in _blocks(report):
        yield heading
        width = max(len(name) for name, _ in rows)
        yield from (f"  {name:<{width}}  {value}" for name, value in rows)
        yield ""


def _blocks(report: Report) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    yield "Votes and decisions", _votes(report)
    yield "Datasets", _datasets(report["datasets"])
    yield "Training", _training(report)
    yield "Seconds", _seconds(report["seconds"])


def _votes(report: Report) -> list[tuple[str, str]]:
    brought, found = report["import"], report["agreement"]
    gold = found["decisions"]["gold"] or {}
    return [
        ("comparisons", f"{brought['comparisons']:,}"),
        ("votes", f"{brought['votes']:,} of {brought['annotators']:,} annotators"),
        ("percent agreement", _interval(found["percent"], scale=100, unit=" %")),
        ("Krippendorff's alpha", _interval(found["alpha"])),
        (
            "kept by the rule",
            f"{found['decisions']['kept']:,} of {found['decisions']['n']:,} (coin-flippers: "
            f"{_number(found['chance_keep_rate']['two_way'], 100)} %)",
        ),
        ("majority equals gold", f"{_number(gold.get('majority'), 100)} % of {gold.get('n', 0):,}"),
        ("kept equals gold", _interval(gold.get("kept"), scale=100, unit=" %")),
    ]


def _datasets(datasets: Report) -> list[tuple[str, str]]:
    rows = [
        (name.replace("_", " "), ", ".join(f"{k} {n:,}" for k, n in part["counts"]["rows"].items()))
        for name, part in datasets.items()
        if "counts" in part
    ]
    shared = datasets["independence"]["shared"]
    overlap = datasets["prompt_overlap"]
    return [
        *rows,
        ("shared with the judge", ", ".join(f"{n} {name}" for name, n in shared.items())),
        ("RL prompts seen in SFT", f"{overlap['n_both']} of {overlap['n_rl']}"),
    ]


def _training(report: Report) -> list[tuple[str, str]]:
    runs = report["runs"]
    rows = [("SFT loss (nats/token)", _curve(runs["sft"], "loss"))]
    rows.append(("SFT held-out loss", _curve(runs["sft"], "eval/loss")))
    for stage, name in (("reward", "reward model"), ("judge", "judge")):
        for split, said in (report["reward_models"][stage] or {}).items():
            if split != "train":
                rows.append(
                    (
                        f"{name}, {split}",
                        f"{_interval(said['accuracy'], scale=100, unit=' %')}; longer wins "
                        f"{_interval(said['length_only'], scale=100, unit=' %')}",
                    )
                )
    rows += [
        ("DPO margin, held out", _curve(runs["dpo"], "eval/rewards/margins")),
        ("DPO KL (nats/sequence)", _curve(runs["dpo"], "objective/kl")),
        ("PPO reward", _curve(runs["ppo"], "eval/score")),
        ("PPO held-out reward", _curve(runs["ppo"], "eval/held_out_score")),
        ("PPO KL (nats/sequence)", _curve(runs["ppo"], "eval/kl")),
        ("PPO entropy (nats/sequence)", _curve(runs["ppo"], "objective/entropy")),
        ("PPO clip fraction", _curve(runs["ppo"], "policy/clipfrac_avg")),
    ]
    for by in ("reward", "judge"):
        wins = (report["evaluation"].get(by) or {}).get("win_rate")
        rows.append((f"PPO beats SFT, by the {by}", _interval(wins, scale=100, unit=" %")))
    rows.append(("reward model's page", _lines(report["assessment"])))
    fresh, audit = report["fresh_pairs"], report["audit_samples"]
    rows.append(("fresh pairs in the queue", f"{fresh['queued']} of {fresh['generated']}"))
    rows.append(
        ("audit samples", ", ".join(f"{k} {n}" for k, n in audit["buckets"].items()) or "—")
    )
    return rows


def _lines(assessment: Report) -> str:
    """How many lines are green, red and not measured, and which are red."""
    if "green" not in assessment:
        return "—"
    red = [name for name, verdict in assessment.get("lines", {}).items() if verdict == "red"]
    return (
        f"{assessment['green']} green, {assessment['red']} red, "
        f"{assessment['unmeasured']} not measured by the run"
        + (f"; red: {', '.join(red)}" if red else "")
    )


def _seconds(seconds: Report) -> list[tuple[str, str]]:
    parts = [*seconds["build"].items(), *seconds["runs"].items()]
    whole = seconds["circle_total"]
    return [(name, f"{value:.1f}") for name, value in parts] + [
        ("first run queued to last one ended", "—" if whole is None else f"{whole:.1f}")
    ]


def _curve(run: Report, name: str) -> str:
    ends = run["curves"].get(name)
    if ends is None:
        return "—"
    first, last = ends["first"], ends["last"]
    return (
        f"{_number(first['value'], digits=4)} → {_number(last['value'], digits=4)} "
        f"(steps {first['step']} to {last['step']})"
    )


def _interval(estimate: Report | None, *, scale: float = 1, unit: str = "") -> str:
    """0.71 (0.69 to 0.73), or the value and why it stands without bounds."""
    if not estimate or estimate.get("value") is None:
        return (estimate or {}).get("undefined") or "—"
    value = f"{_number(estimate['value'], scale)}{unit}"
    if estimate.get("low") is None:
        why = estimate.get("no_interval")
        return f"{value} ({why})" if why else value
    return f"{value} ({_number(estimate['low'], scale)} to {_number(estimate['high'], scale)})"


def _number(value: Any, scale: float = 1, *, digits: int = 3) -> str:
    if not isinstance(value, int | float):
        return "—" if value is None else str(value)
    return f"{value * scale:.{digits}g}"
