"""A probe beside its watch's baseline: what has changed, and which of it somebody must hear of."""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from apps.common.numbers import is_number
from apps.monitoring.models import Watch
from apps.monitoring.probe_words import LATENCIES, is_share, label_of
from apps.monitoring.selectors.checks import REWARD, shift_of
from apps.training.models import Checkpoint, Run
from apps.training.selectors.results import report_read
from measures.drift import LEAST_N, Shift, paired_shift, speaks, unpaired_shift
from workers.contract.events import Fault
from workers.contract.protocol import KEY, StatedProtocol, differences, stated
from workers.contract.reasons import in_words

# What a probe brought back, and what of it is kept as a baseline.
#
# A trainer wrote it, so nothing in it is taken on trust: what cannot be used is a sentence.

FILE = "probe.json"
LONGEST = 600  # characters of a text that are kept
MOST_ROWS = 2000
_NEEDED = ("mean", "deviation", "n")


@dataclass(frozen=True, slots=True)
class Brought:
    """figures: {name: {mean, deviation, n}}; weights: {role: SHA-256}; rows: {prompt's id:
    {values: {name: number}, prompt, answer}}. `problem` says why there is nothing."""

    figures: Mapping[str, dict[str, float]] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    problem: str = ""
    server: Mapping[str, str] = field(default_factory=dict)  # `says` and `fingerprint`
    protocol: StatedProtocol | None = None  # what it was measured by, where the worker says so


def brought_by(run: Run) -> Brought:
    """Of a finished probe."""
    figures = _figures(run.summary.get("figures"))
    if not figures:
        return Brought(problem="The probe finished without metrics.")
    report = report_read(run, FILE)
    if report.problem or not report.data:
        return Brought(problem=report.problem or f"The probe left no {FILE}.")
    rows = report.data.get("prompts")
    return Brought(
        figures=figures,
        weights=_weights(run.summary.get("weights_sha256")),
        rows=_rows(rows if isinstance(rows, list) else [], figures),
        server=_server(run.summary.get("server")),
        protocol=stated(run.summary),
    )


def baseline_of(found: Brought) -> dict[str, Any]:
    """As a watch keeps it: whole, so that it stands when the run is gone."""
    return {
        "figures": dict(found.figures),
        "weights": dict(found.weights),
        "rows": {
            key: {name: row[name] for name in ("values", "answer", "greedy")}
            for key, row in found.rows.items()
        },
        "server": dict(found.server),
    } | ({KEY: _told(found.protocol)} if found.protocol else {})


def _told(protocol: StatedProtocol) -> dict[str, Any]:
    return {"sha256": protocol.sha256, "content": dict(protocol.content)}


def baseline_from(run: Run) -> dict[str, Any] | None:
    """None where the probe brought nothing that could be one."""
    found = brought_by(run)
    return None if found.problem else baseline_of(found)


def _figures(given: Any) -> dict[str, dict[str, float]]:
    """Those that are measured: a figure that is undefined this time has no mean."""
    found = {}
    for name, figure in given.items() if isinstance(given, Mapping) else ():
        values = [figure.get(key) for key in _NEEDED] if isinstance(figure, Mapping) else [None]
        if all(is_number(value) for value in values):
            found[str(name)[:80]] = {key: float(figure[key]) for key in _NEEDED}
    return found


def _weights(given: Any) -> dict[str, str]:
    """One hash, or one for each model that was asked."""
    if isinstance(given, str) and given:
        return {"model": given}
    if isinstance(given, Mapping):
        return {str(role): str(value) for role, value in given.items() if value}
    return {}


def _server(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        return {}
    return {name: str(given[name]) for name in ("says", "fingerprint") if given.get(name)}


def _rows(given: list[Any], figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each with its share in the figures, as far as it has one."""
    found: dict[str, dict[str, Any]] = {}
    for row in given[:MOST_ROWS]:
        if isinstance(row, Mapping) and row.get("id") is not None:
            found[str(row["id"])] = {
                "values": {name: float(row[name]) for name in figures if is_number(row.get(name))},
                "prompt": _text(row.get("prompt")),
                "answer": _text(row.get("response")),
                "greedy": str(row.get("greedy") or "")[:64],
            }
    return found


def _text(value: Any) -> str:
    """Messages are told by the last one's words."""
    if isinstance(value, list):
        value = value[-1].get("content", "") if value and isinstance(value[-1], Mapping) else ""
    text = value if isinstance(value, str) else ""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


WEIGHTS, SHIFTED, PROMPTS, FAILED = "probe_weights", "probe_shift", "probe_prompts", "probe_failed"
PROTOCOL = "probe_protocol"
SERVER, ANSWERS, LATENCY = "probe_server", "probe_answers", "probe_latency"
CHANGED = "answers_changed"
MOST_CHANGED = 0.25  # of the answers at temperature 0: a server's rounding changes a few
MOST_UNLIKE = 0.5  # of those of another engine, which rounds otherwise
SLOWER, MUCH_SLOWER, LEAST_SLOWER = 3.0, 10.0, 0.25  # times the baseline, and seconds over it
MOST_CHANGES = 20
STRONG = 0.5  # deviations; "medium" in Cohen (1988): from here on it is critical
_FAULT_LINKS: dict[str, str] = {
    Fault.DATA: "data",
    Fault.MACHINE: "resources",
    Fault.GUARD: "numerics",
}
_FEWEST_KEPT = 0.5  # of the baseline's prompts


@dataclass(frozen=True, slots=True)
class JudgedProbe:
    """As a ProbeResult keeps it."""

    figures: dict[str, Any]
    findings: list[dict[str, Any]]
    details: dict[str, Any]


def judge_first(watch: Watch, found: Brought) -> JudgedProbe:
    """What becomes the baseline is compared with what the model claims to be, and nothing else."""
    return JudgedProbe(dict(found.figures), _claim_findings(watch, found), _seen(found))


def _seen(found: Brought) -> dict[str, Any]:
    return {"weights": dict(found.weights), "server": dict(found.server)}


def judge(
    watch: Watch, found: Brought, before: Mapping[str, Any] | None, baseline: Mapping[str, Any]
) -> JudgedProbe:
    """`before`: the figures of the probe before this one, if it had the same baseline. A probe by
    another protocol than the baseline's is not compared with it, but for the weights."""
    if refused := _protocol_findings(found, baseline):
        findings = refused + _identity_findings(watch, found, baseline)
        return JudgedProbe(dict(found.figures), findings, _seen(found))
    known = {name: now for name, now in found.figures.items() if name in baseline["figures"]}
    figures: dict[str, Any] = {}
    findings = _identity_findings(watch, found, baseline) + _prompt_findings(found, baseline)
    changed = _changed_share(found.rows, baseline["rows"])
    if changed is not None:
        figures[CHANGED] = changed | {"baseline": 0.0}
        findings += _answer_findings(changed)
    for name, now in found.figures.items():
        then = baseline["figures"].get(name)
        if then is None:
            figures[name] = dict(now)
            continue
        if name in LATENCIES:
            figures[name] = now | {"baseline": then["mean"]}
            findings += _latency_findings(name, now, then, before)
            continue
        shift = _shift(now, then, _pairs(name, found, baseline), figures=len(known))
        earlier = _earlier(before, name)
        figures[name] = now | {"baseline": then["mean"], "shift": _plain(shift)}
        if speaks(shift, earlier):
            findings.append(_shift_finding(watch, name, now, then, shift))
    details = _seen(found) | {
        "paired": len(set(found.rows) & set(baseline["rows"])),
        "changes": _changes(found, baseline),
    }
    return JudgedProbe(figures, findings, details)


def judge_failure(run: Run, problem: str = "") -> JudgedProbe:
    """A probe that could not ask, or brought nothing back."""
    words = problem or run.failure_message or "It gave no reason."
    finding = {
        "rule": FAILED,
        "link": _FAULT_LINKS.get(run.fault, "data"),
        "severity": "critical",
        "title": "The model does not answer",
        "message": f"{words} ({run.failure_kind})" if run.failure_kind else words,
    }
    return JudgedProbe({}, [finding], {})


def judge_refusal(message: str) -> JudgedProbe:
    """A probe that could not even be launched."""
    finding = {
        "rule": FAILED,
        "link": "data",
        "severity": "critical",
        "title": "The model does not answer",
        "message": message,
    }
    return JudgedProbe({}, [finding], {})


def _earlier(before: Mapping[str, Any] | None, name: str) -> Shift | None:
    return shift_of((before or {}).get(name))


def _pairs(name: str, found: Brought, baseline: Mapping[str, Any]) -> list[tuple[float, float]]:
    """(now, then) of every prompt of which the figure is known both times."""
    pairs = []
    for key, row in found.rows.items():
        then = baseline["rows"].get(key)
        if then is not None and name in row["values"] and name in then["values"]:
            pairs.append((row["values"][name], then["values"][name]))
    return pairs


def _shift(
    now: Mapping[str, float],
    then: Mapping[str, float],
    pairs: list[tuple[float, float]],
    *,
    figures: int,
) -> Shift:
    """Prompt by prompt where enough are known both times, else by the means."""
    if pairs:
        paired = paired_shift(
            [pair[0] for pair in pairs],
            [pair[1] for pair in pairs],
            deviation=then["deviation"] or None,
            figures=figures,
        )
        if paired.undefined is None:
            return paired
    return unpaired_shift(
        mean=now["mean"],
        deviation=now["deviation"],
        n=int(now["n"]),
        baseline_mean=then["mean"],
        baseline_deviation=then["deviation"],
        baseline_n=int(then["n"]),
        figures=figures,
    )


def _plain(shift: Shift) -> dict[str, Any]:
    """JSON has no word for infinity, which is how far a figure without spread has moved."""
    kept = {
        key: math.copysign(1e9, value) if isinstance(value, float) and math.isinf(value) else value
        for key, value in in_words(asdict(shift)).items()
    }
    return kept | {"level": str(shift.level)}


def _identity_findings(
    watch: Watch, found: Brought, baseline: Mapping[str, Any]
) -> list[dict[str, Any]]:
    return (
        _weight_findings(watch, found, baseline)
        + _server_findings(found.server, baseline.get("server") or {})
        + _claim_findings(watch, found)
    )


def _server_findings(now: Mapping[str, str], then: Mapping[str, str]) -> list[dict[str, Any]]:
    """A name or a fingerprint that the server did not give at the baseline. One address may have
    several machines behind it: one fingerprint in common is enough."""
    findings = []
    said, before = now.get("says"), then.get("says")
    if said and before and said != before:
        findings.append(
            _server_finding(
                "critical",
                "The server names another model than at the baseline",
                f"It says it is {said:.80}; at the baseline it said {before:.80}.",
            )
        )
    prints, known = (set(one.get("fingerprint", "").split(",")) - {""} for one in (now, then))
    if prints and known and not prints & known:
        findings.append(
            _server_finding(
                "warning",
                "The server has another fingerprint than at the baseline",
                f"It gives {', '.join(sorted(prints)):.200}; at the baseline it gave "
                f"{', '.join(sorted(known)):.200}. Its software or its weights may have changed.",
            )
        )
    return findings


def _server_finding(severity: str, title: str, message: str) -> dict[str, Any]:
    return {
        "rule": SERVER,
        "figure": title,
        "link": "policy",
        "severity": severity,
        "title": title,
        "message": f"{message} If that was intended, reset the baseline.",
    }


def _claim_findings(watch: Watch, found: Brought) -> list[dict[str, Any]]:
    """Where the model claims to be a checkpoint of ours: the name it gives, and its answers at
    temperature 0 beside those of the newest baseline of that checkpoint with the same prompts."""
    if watch.claims is None:
        return []
    findings = []
    named = _named_checkpoint(watch, found.server.get("says", ""))
    if named is not None and named != watch.claims_id:
        findings.append(
            _server_finding(
                "critical",
                "The server names another model than it is said to be",
                f"It is said to be the checkpoint {watch.claims_id}, and the name that it gives "
                f"({found.server['says']:.80}) is that of {named}.",
            )
        )
    rows = Watch.objects.filter(checkpoint=watch.claims_id, prompts=watch.prompts_id)
    own = rows.exclude(baseline={}).order_by("-baseline_at").first()
    unlike = _changed_share(found.rows, own.baseline["rows"]) if own is not None else None
    if own is not None and unlike is not None and unlike["mean"] > MOST_UNLIKE:
        findings.append(
            _server_finding(
                "warning",
                "The answers are not those of the model it is said to be",
                f"At temperature 0 it gave other answers to {_plainly(unlike['mean'], True)} of "
                f"{unlike['n']:,} prompts than the checkpoint {watch.claims_id} itself "
                f"({own.name}). Another engine rounds otherwise; over "
                f"{_plainly(MOST_UNLIKE, True)} is more than that.",
            )
        )
    return findings


def _named_checkpoint(watch: Watch, says: str) -> str | None:
    """The checkpoint of the project whose id stands in the server's name for its model."""
    words = [word for word in re.split(r"[^a-z0-9]+", says) if word]
    rows = Checkpoint.objects.filter(project=watch.project_id, pk__in=words)
    return rows.values_list("pk", flat=True).first()


def _changed_share(
    rows: Mapping[str, Mapping[str, Any]], then: Mapping[str, Mapping[str, Any]]
) -> dict[str, float] | None:
    """{mean: share of prompts with another answer at temperature 0, deviation, n}; None where fewer
    than LEAST_N are known both times."""
    known = [
        row["greedy"] != then[key]["greedy"]
        for key, row in rows.items()
        if row["greedy"] and then.get(key, {}).get("greedy")
    ]
    if len(known) < LEAST_N:
        return None
    share = sum(known) / len(known)
    return {"mean": share, "deviation": math.sqrt(share * (1 - share)), "n": len(known)}


def _answer_findings(changed: Mapping[str, float]) -> list[dict[str, Any]]:
    if changed["mean"] <= MOST_CHANGED:
        return []
    return [
        {
            "rule": ANSWERS,
            "figure": CHANGED,
            "link": "policy",
            "severity": "critical",
            "value": changed["mean"],
            "title": "Other answers at temperature 0 than at the baseline",
            "message": f"{_plainly(changed['mean'], True)} of {int(changed['n']):,} answers are "
            f"others than at the baseline; a server's rounding changes a few, at most "
            f"{_plainly(MOST_CHANGED, True)}. If another model was put there on purpose, reset the "
            "baseline.",
        }
    ]


def _latency_findings(
    name: str,
    now: Mapping[str, float],
    then: Mapping[str, float],
    before: Mapping[str, Any] | None,
) -> list[dict[str, Any]]:
    """The median at once; the 99th percentile, which one slow answer decides, twice in a row."""
    earlier = (before or {}).get(name, {}).get("mean")
    if not _is_slower(now["mean"], then["mean"]) or min(now["n"], then["n"]) < LEAST_N:
        return []
    if name != LATENCIES[0] and (earlier is None or not _is_slower(earlier, then["mean"])):
        return []
    strong = now["mean"] >= MUCH_SLOWER * then["mean"]
    return [
        {
            "rule": LATENCY,
            "figure": name,
            "link": "resources",
            "severity": "critical" if strong else "warning",
            "value": now["mean"],
            "title": f"{label_of(name)} is {now['mean'] / then['mean']:.3g} times the baseline",
            "message": f"It was {then['mean']:.3g} s at the baseline and is {now['mean']:.3g} s "
            f"now, of {int(now['n']):,} prompts. Reported from {SLOWER:g} times the baseline and "
            f"{LEAST_SLOWER:g} s more on.",
        }
    ]


def _is_slower(now: float, then: float) -> bool:
    return now >= SLOWER * then and now - then >= LEAST_SLOWER


def _weight_findings(
    watch: Watch, found: Brought, baseline: Mapping[str, Any]
) -> list[dict[str, Any]]:
    findings = []
    for role, now in found.weights.items():
        then = baseline["weights"].get(role)
        if then is None or then == now:
            continue
        what = "the reward model's" if role == "reward" else "the model's"
        link = "reward" if role == "reward" or watch.kind == Watch.Kind.REWARD else "policy"
        findings.append(
            {
                "rule": WEIGHTS,
                "link": link,
                "severity": "critical",
                "title": "A different model than at the baseline",
                "message": f"The hash of {what} weights is {now[:12]}; at the baseline it was "
                f"{then[:12]}. If that was intended, reset the baseline; if not, somebody or "
                "something has replaced the model.",
            }
        )
    return findings


def _protocol_findings(found: Brought, baseline: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Nothing where neither says by what it was measured: a worker of before, and its baseline."""
    then = stated(baseline)
    if found.protocol is None or (then is not None and then.sha256 == found.protocol.sha256):
        return []
    if then is None:
        why = "The baseline is from before protocols were kept."
    else:
        lines = differences(then.content, found.protocol.content)
        told = [f"{path} was {one!s:.60} and is {other!s:.60}" for path, one, other in lines[:3]]
        more = f"; {len(lines) - 3} more lines differ" if len(lines) > 3 else ""
        why = "; ".join(told) + more + "."
    return [
        {
            "rule": PROTOCOL,
            "link": "evaluation",
            "severity": "warning",
            "title": "Measured by another protocol than the baseline",
            "message": f"{why} The metrics are not comparable: reset the baseline once the change "
            "is intended.",
        }
    ]


def _prompt_findings(found: Brought, baseline: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = set(baseline["rows"])
    kept = known & set(found.rows)
    if not known or len(kept) >= _FEWEST_KEPT * len(known):
        return []
    return [
        {
            "rule": PROMPTS,
            "link": "evaluation",
            "severity": "critical",
            "title": "Different prompts than at the baseline",
            "message": f"Of the baseline's {len(known):,} prompts {len(kept):,} were asked. The "
            "metrics are not comparable: check the dataset and the tokenizer.",
        }
    ]


def _shift_finding(
    watch: Watch, name: str, now: Mapping[str, float], then: Mapping[str, float], shift: Shift
) -> dict[str, Any]:
    effect = shift.effect or 0.0
    size = f"{abs(effect):.2g} deviations" if abs(effect) < 1000 else "where nothing ever varied"
    test = (
        f", {'t' if shift.paired else 'z'} = {_signed(shift.statistic)}" if shift.statistic else ""
    )
    pairs = "prompts in pairs" if shift.paired else "answers"
    label, share = label_of(name), is_share(name)
    moved = _signed(100 * (shift.value or 0)) + " points" if share else _signed(shift.value)
    return {
        "rule": SHIFTED,
        "link": "reward" if watch.kind == Watch.Kind.REWARD else "policy",
        "severity": "critical" if abs(effect) >= STRONG else "warning",
        "figure": name,
        "value": now["mean"],
        "title": f"{label} has moved from its baseline",
        "message": f"{label} was {_plainly(then['mean'], share)} at the baseline and is "
        f"{_plainly(now['mean'], share)} now: {moved} ({size}{test}, {shift.n:,} {pairs}).",
    }


def _changes(found: Brought, baseline: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The prompts whose score moved most, or whose answer is another one; largest first."""
    changed = []
    for key, row in found.rows.items():
        then = baseline["rows"].get(key)
        if then is None:
            continue
        score, before = row["values"].get(REWARD), then["values"].get(REWARD)
        difference = score - before if score is not None and before is not None else None
        if difference or row["answer"] != then["answer"]:
            changed.append(
                {
                    "id": key,
                    "prompt": row["prompt"],
                    "answer": row["answer"],
                    "before": then["answer"],
                    "score": score,
                    "score_before": before,
                    "difference": difference,
                }
            )
    changed.sort(key=lambda one: -abs(one["difference"] or 0.0))
    return changed[:MOST_CHANGES]


def _plainly(value: float, share: bool) -> str:
    text = f"{100 * value:.1f} %" if share else f"{value:.4g}"
    return text.replace("-", "−")


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3g}".replace("-", "−")
