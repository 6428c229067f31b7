"""The demo's report: every figure read from the database or the event stream.

Nothing here computes what a run or a statistic should have said itself; where something is missing
the report holds None.
"""

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from django.db.models import Count
from django.utils import timezone

from apps.agreement.models import AgreementReport
from apps.evaluation.selectors.models import judgement_of
from apps.labeling.models import Comparison, Vote
from apps.loop import selectors
from apps.loop.demo import BATCH, Workspace, stage_seconds
from apps.loop.round_end import round_end_figures
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import HELDOUT_GROUPS, TRAIN, in_order
from apps.snapshots.selectors.prompts import prompt_overlap
from apps.snapshots.storage import artifact_store
from apps.training.models import Checkpoint, Run, Sample
from apps.training.selectors.metrics import metric_series
from apps.training.selectors.runs import checkpoint_for_use
from measures.blocks import Intervals
from workers.contract.reasons import in_words

CURVES: dict[str, tuple[str, ...]] = {
    "sft": ("loss", "eval/loss"),
    "reward": ("loss", "accuracy", "eval/accuracy"),
    "judge": ("loss", "accuracy", "eval/accuracy"),
    "dpo": (
        "loss",
        "rewards/margins",
        "eval/rewards/margins",
        "eval/rewards/accuracies",
        "objective/kl",
        "objective/kl_per_token",
    ),
    "ppo": (
        "objective/scores",
        "eval/score",
        "eval/held_out_score",
        "objective/kl",
        "objective/kl_per_token",
        "eval/kl",
        "objective/entropy",
        "policy/clipfrac_avg",
        "policy/approxkl_avg",
        "val/explained_variance",
        "response/length",
        "kl_coef",
    ),
}


SHOWN_ANSWERS = 12


def report_make(workspace: Workspace) -> dict[str, Any]:
    """A JSON object; see docs/demo.md for each part."""
    project, runs = workspace.project, workspace.runs
    for run in runs.values():
        run.refresh_from_db()
    return {
        "made_at": timezone.now().isoformat(),
        "project": project.slug,
        "machine": _machine(runs),
        "seconds": _seconds(workspace),
        "import": _imported(workspace),
        "agreement": _agreement(workspace),
        "datasets": _datasets(workspace),
        "runs": {stage: _run(stage, run) for stage, run in runs.items()},
        "reward_models": {
            stage: in_order(runs[stage].summary.get("splits", {})) for stage in ("reward", "judge")
        },
        "evaluation": runs["evaluate"].summary,
        "assessment": runs["assess"].summary,
        "round_end": round_end_figures(runs["evaluate"]),
        "fresh_pairs": _fresh_pairs(workspace),
        "audit_samples": _audit_samples(runs["ppo"]),
        "debates": _debates(workspace),
        "reward_page": _reward_page(runs["reward"]),
        "answers": list(
            Sample.objects.filter(run=runs["evaluate"])
            .order_by("seq")
            .values("prompt", "response", "baseline", "reward")[:SHOWN_ANSWERS]
        ),
    }


def _debates(workspace: Workspace) -> dict[str, list[str]]:
    """By what was done with them, as the frozen files have it."""
    store, data = artifact_store(), workspace.data

    def named(snapshot: Snapshot, split: str) -> list[str]:
        if split not in snapshot.counts["rows"]:
            return []
        rows = store.lines(f"{snapshot.uri}/{split}.jsonl")
        return sorted({row["group"] for row in rows})

    return {
        "held_out": named(data.preferences, HELDOUT_GROUPS),
        "reward": named(data.preferences, TRAIN),
        "judge": named(data.judge_preferences, TRAIN),
    }


def _reward_page(run: Run) -> dict[str, Any]:
    """What the reward model's page says: its comparison with length and counted words, on the same
    pairs, and each line's verdict in words."""
    checkpoint = checkpoint_for_use(run)
    if checkpoint is None:
        return {"accuracy": {}, "lines": {}}
    findings = {one.line: one for one in judgement_of(checkpoint, quick=True).findings}
    rows = [
        row
        for block in findings["accuracy"].evidence
        if isinstance(block, Intervals)
        for row in block.rows
    ]
    shown = ("accuracy", "beats_length", "beats_words", "overfit")
    return {
        "accuracy": {name: in_words(asdict(found)) for name, found in rows},
        "lines": {name: f"{findings[name].verdict}. {findings[name].says}" for name in shown},
    }


def _machine(runs: Mapping[str, Run]) -> dict[str, Any]:
    """The host as this process sees it, and the environment the first trainer reported."""
    attempt = runs["sft"].attempts.order_by("number").last()
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "trainer": attempt.environment if attempt else {},
    }


def _seconds(workspace: Workspace) -> dict[str, Any]:
    """Build stages as timed when they were done; runs from their first to their last event."""
    trained = {
        stage: round(run.seconds, 1)
        for stage, run in workspace.runs.items()
        if run.seconds is not None
    }
    build = stage_seconds(workspace.project)
    first = min((run.created_at for run in workspace.runs.values()), default=None)
    last = max((run.ended_at for run in workspace.runs.values() if run.ended_at), default=None)
    return {
        "build": build,
        "runs": trained,
        "build_total": round(sum(build.values()), 1),
        "circle_total": round((last - first).total_seconds(), 1) if first and last else None,
    }


def _imported(workspace: Workspace) -> dict[str, int]:
    votes = Vote.objects.filter(project=workspace.project, source=Vote.Source.IMPORT)
    return {
        "comparisons": Comparison.objects.filter(project=workspace.project, batch=BATCH).count(),
        "votes": votes.count(),
        "annotators": votes.aggregate(n=Count("annotator", distinct=True))["n"],
    }


def _agreement(workspace: Workspace) -> dict[str, Any]:
    stored = AgreementReport.objects.get(project=workspace.project)
    figures = stored.figures
    return {
        "n_votes": stored.n_votes,
        "n_comparisons": stored.n_comparisons,
        "percent": figures["statistics"]["percent"],
        "alpha": figures["statistics"]["alpha"],
        "decisions": figures["decisions"],
        "chance_keep_rate": figures["chance"],
    }


def _datasets(workspace: Workspace) -> dict[str, Any]:
    data = workspace.data
    overlap = prompt_overlap(sft=data.demonstrations, rl=data.prompts)
    independent = selectors.independence(preferences=data.preferences, judge=data.judge_preferences)
    return {
        "demonstrations": _dataset(data.demonstrations),
        "prompts": _dataset(data.prompts),
        "preferences": _dataset(data.preferences),
        "judge_preferences": _dataset(data.judge_preferences),
        "independence": independent.figures() | {"proved": independent.proved},
        "prompt_overlap": {
            "containment": overlap.containment,
            "n_both": overlap.n_both,
            "n_rl": overlap.n_rl,
        },
    }


def _dataset(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": snapshot.pk,
        "sha256": snapshot.sha256,
        "counts": snapshot.counts | {"rows": in_order(snapshot.counts["rows"])},
    }


def _run(stage: str, run: Run) -> dict[str, Any]:
    series = metric_series(run=run, names=CURVES[stage]) if stage in CURVES else {}
    return {
        "id": run.pk,
        "state": run.state,
        "steps": run.step,
        "attempts": run.attempt,
        "summary": run.summary,
        "curves": {name: _ends(points) for name, points in series.items()},
    }


def _ends(points: list[tuple[int, Any]]) -> dict[str, Any]:
    (first_step, first), (last_step, last) = points[0], points[-1]
    return {
        "points": len(points),
        "first": {"step": first_step, "value": first},
        "last": {"step": last_step, "value": last},
    }


def _fresh_pairs(workspace: Workspace) -> dict[str, Any]:
    run = workspace.runs["generate"]
    pairs = Comparison.objects.filter(project=workspace.project, batch=selectors.batch_of(run))
    references = {
        reference
        for row in pairs.values_list("response_a__origin_ref", "response_b__origin_ref")
        for reference in row
    }
    known = Checkpoint.objects.filter(pk__in=references)
    return {
        "generated": run.summary.get("pairs"),
        "queued": pairs.count(),
        "checkpoints": {point.pk: f"{point.run.name}, step {point.step}" for point in known},
    }


def _audit_samples(run: Run) -> dict[str, Any]:
    """Those that stand beside the reference's answer, by bucket, and the file they are also in."""
    rows = Sample.objects.filter(run=run).exclude(baseline="")
    audit = run.artifacts.filter(purpose="audit").order_by("seq").last()
    return {
        "buckets": {r["bucket"]: r["n"] for r in rows.values("bucket").annotate(n=Count("pk"))},
        "file": {"uri": audit.uri, "sha256": audit.sha256, "rows": audit.count} if audit else None,
    }


# The demo's report as lines for a terminal.


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
    yield "Datasets", _table_datasets(report["datasets"])
    yield "Training", _training(report)
    if report["round_end"]:
        yield "People, gate and card", _round_end(report["round_end"])
    yield "Seconds", _table_seconds(report["seconds"])


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
            f"{found['decisions']['kept']:,} of {found['decisions']['n']:,} (random voters: "
            f"{_number(found['chance_keep_rate']['two_way'], 100)} %)",
        ),
        ("majority equals gold", f"{_number(gold.get('majority'), 100)} % of {gold.get('n', 0):,}"),
        ("kept equals gold", _interval(gold.get("kept"), scale=100, unit=" %")),
    ]


def _table_datasets(datasets: Report) -> list[tuple[str, str]]:
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


def _round_end(end: Report) -> list[tuple[str, str]]:
    """The address of each page is below the site's."""
    rows = []
    if (suite := end["suite"]) and suite["checks"]:
        rows.append(
            (
                "regression suite",
                f"{str(suite['standing']).replace('_', ' ')}; of {suite['checks']:,} checks "
                f"{suite['lost']:,} lost, {suite['won']:,} won",
            )
        )
    if people := end["head_to_head"]:
        rows += [
            ("head-to-head", people["name"]),
            (
                "PPO preferred to SFT",
                f"{_interval(people, scale=100, unit=' %')} by {people['votes']:,} votes "
                f"({people['simulated']:,} simulated) of {people['people']:,} people on "
                f"{people['prompts']:,} prompts; {people['skips']:,} skipped",
            ),
            ("verdict", people["title"]),
            ("page", people["url"]),
        ]
    else:
        rows.append(("head-to-head", "none: too few prompts with two different answers"))
    for answer in end["gate"]:
        decided = f"{answer['decision']} by {' and '.join(answer['decided_by'])}"
        rows += [
            (
                f"gate of {answer['stage']}",
                f"{'open' if answer['open'] else 'closed'}; asked by {answer['asked_by']}, "
                f"{decided if answer['decision'] else 'waits'}",
            ),
            *(("closed by", f"{one['label']}: {one['says']}") for one in answer["closed_by"]),
            ("page", answer["url"]),
        ]
    return [*rows, ("card", end["model"]["url"])]


def _lines(assessment: Report) -> str:
    """How many lines are ok, bad and unknown, and which are bad."""
    if "green" not in assessment:
        return "—"
    red = [name for name, verdict in assessment.get("lines", {}).items() if verdict == "red"]
    return (
        f"{assessment['green']} ok, {assessment['red']} bad, "
        f"{assessment['unmeasured']} unknown to the run"
        + (f"; bad: {', '.join(red)}" if red else "")
    )


def _table_seconds(seconds: Report) -> list[tuple[str, str]]:
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


# The report of the circle on pretrained models, for people to read.


def markdown_lines(report: Report) -> Iterator[str]:
    """What was reached, as Markdown; a figure that is bad is printed as it is."""
    evaluation, page = report["evaluation"], report["reward_page"]
    yield "# The circle on pretrained models"
    yield ""
    yield (
        f"Made {report['made_at'][:16]} UTC on {report['machine']['cores']} cores. The policy is "
        "SmolLM2-135M-Instruct with adapters, the reward model all-MiniLM-L6-v2 fine-tuned for one "
        "pass, the judge a head on the frozen embeddings of all-MiniLM-L6-v2, trained on other "
        "debates. Held out by name before anything was trained: "
        + ", ".join(report["debates"]["held_out"])
        + "."
    )
    yield from _section("Minutes", ("stage", "minutes"), _minutes(report))
    yield from _section(
        "Right on pairs of unseen debates",
        ("who", "share right, 95 % interval"),
        [(name, _interval(found, scale=100, unit=" %")) for name, found in _accuracies(report)],
    )
    yield ""
    yield f"The reward model's page: {_lines(report['assessment'])}."
    yield from (f"- `{name}`: {said}" for name, said in page["lines"].items())
    yield from _section(
        f"PPO against SFT on {evaluation.get('prompts', 0)} prompts",
        ("figure", "value"),
        _compared(report),
    )
    if report["round_end"]:
        rows = _round_end(report["round_end"])
        yield from _section("People, gate and card", ("what", "found"), rows)
    yield ""
    yield "## Answers"
    for sample in report["answers"]:
        asked = sample["prompt"][-1]["content"].replace("\n", " / ")
        yield from ("", f"**{asked}**", "", f"- PPO: {_line(sample['response'])}")
        yield f"- SFT: {_line(sample['baseline'])}"


def _compared(report: Report) -> list[tuple[str, str]]:
    runs, evaluation = report["runs"], report["evaluation"]
    rows = [
        (
            f"{words}, by the {by}",
            _interval((evaluation.get(by) or {}).get(name), scale=100, unit=" %"),
        )
        for name, words in (("win_rate", "win rate"), ("people_win_rate", "share of people"))
        for by in ("judge", "reward")
    ]
    for name, words, scale in (
        ("response_length", "tokens per answer", 1),
        ("ended_share", "answers that ended (%)", 100),
        ("kl", "KL from SFT (nats per answer)", 1),
    ):
        for role in ("policy", "sft"):
            value = (evaluation.get(role) or {}).get(name)
            rows.append((f"{words}, {'PPO' if role == 'policy' else 'SFT'}", _number(value, scale)))
    return [
        *rows,
        ("SFT loss (nats/token)", _curve(runs["sft"], "loss")),
        ("DPO margin, held out", _curve(runs["dpo"], "eval/rewards/margins")),
        ("DPO KL (nats/sequence)", _curve(runs["dpo"], "objective/kl")),
        ("PPO reward", _curve(runs["ppo"], "eval/score")),
        ("PPO judge's score", _curve(runs["ppo"], "eval/held_out_score")),
    ]


def _section(title: str, heads: tuple[str, ...], rows: list[tuple[str, str]]) -> Iterator[str]:
    yield from ("", f"## {title}", "", f"| {' | '.join(heads)} |", "|---|---|")
    yield from (f"| {name} | {value} |" for name, value in rows)


def _minutes(report: Report) -> list[tuple[str, str]]:
    seconds = report["seconds"]
    parts = [*seconds["build"].items(), *seconds["runs"].items()]
    parts.append(("first run queued to last one ended", seconds["circle_total"] or 0.0))
    return [(name, f"{value / 60:.1f}") for name, value in parts]


def _accuracies(report: Report) -> Iterator[tuple[str, Any]]:
    """Of the held-out debates; the page's own comparison is on the pairs that it drew."""
    for stage in ("reward", "judge"):
        found = (report["reward_models"][stage] or {}).get("heldout_groups") or {}
        yield "reward model" if stage == "reward" else "judge", found.get("accuracy")
        if stage == "reward":
            yield "the longer one wins", found.get("length_only")
            yield "reward model − the longer one", found.get("difference")
    for name, found in report["reward_page"]["accuracy"].items():
        yield f"on the page: {name}", found


def _line(text: str) -> str:
    return " ".join(text.split())
