"""What the pages of judges say: what one is worth, its faults by name and size, and its labels."""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.common.report.blocks import Part as ReportPart
from apps.common.report.blocks import part_of
from apps.evaluation.models import JudgeMeasurement, JudgeVersion, LabelCertificate
from apps.evaluation.selectors.judges import Part, Scope, is_calibrated, is_measured, measurement_of
from apps.evaluation.services.judge_beside import Beside
from apps.evaluation.services.judge_worth import FIRST
from measures.blocks import Curve, Intervals, Series
from measures.certificates import AuditState
from measures.estimate import Interval
from workers.contract.numbers import percent, plain, share
from workers.contract.reasons import reason_words

_BIASES = {
    "length": ("Length", "prefers the longer answer {size} more often than people do"),
    "position": (
        "Position",
        "chooses the answer shown first {size} of the time where both are equal",
    ),
    "family": ("Own family", "prefers answers of its own family {size} more often than people do"),
    "flips": ("Order", "turns its verdict round with the order on {size} of the pairs"),
}
_LESS = {
    "length": "prefers the longer answer {size} less often than people do",
    "family": "prefers answers of its own family {size} less often than people do",
}
STATES = {
    "changed": ("Changed", "bad"),
    "calibrated": ("Measured", "good"),
    "uncalibrated": ("Not measured", "warn"),
}


def state_of(version: JudgeVersion, found: JudgeMeasurement | None) -> tuple[str, str]:
    """(words, tone) of a badge; found: the measurement that counts."""
    if version.changed_at is not None:
        return STATES["changed"]
    return STATES["calibrated" if is_measured(version, found) else "uncalibrated"]


def row_of(version: JudgeVersion) -> dict[str, Any]:
    """Of the list."""
    found = measurement_of(version)
    figures = found.figures if found and not found.refused else {}
    ppi = figures.get("ppi") or {}
    words, tone = state_of(version, found)
    return {
        "version": version,
        "words": words,
        "tone": tone,
        "agreement": interval_words(figures.get("agreement")),
        "saved": "" if ppi.get("saved") is None else percent(ppi["saved"]),
        "measurement": found,
    }


def interval_of(found: Mapping[str, Any] | None) -> Interval | None:
    """Of what was kept as JSON; None where there is no value."""
    if not found or found.get("value") is None:
        return None
    return Interval(
        value=found["value"], low=found.get("low"), high=found.get("high"), n=found.get("n") or 0
    )


def interval_words(found: Mapping[str, Any] | None) -> str:
    """`61.2 % (55.0–67.1)`; empty where there is none."""
    known = interval_of(found)
    return "" if known is None else share(known)


def worth_context(found: JudgeMeasurement | None, version: JudgeVersion) -> dict[str, Any]:
    """What the section says; `worth` is None where nothing was measured."""
    if found is None or found.refused:
        return {"worth": None, "measurement": found}
    figures = found.figures
    ppi = figures.get("ppi") or {}
    return {
        "measurement": found,
        "scope_words": Scope.of(found.scope).words,
        "worth": figures,
        "part_words": "" if found.part == Part.ALL else found.get_part_display(),
        "estimand": "the first system's answer"
        if figures.get("estimand") == FIRST
        else "the longer answer",
        "tiles": _tiles(figures),
        "chart": _chart(figures),
        "intervals": {name: interval_words(ppi.get(name)) for name in ("people", "ppi", "judge")}
        | {"all": interval_words(figures.get("all_votes"))},
        "without_judge": reason_words(
            ppi.get("without_judge")
            or (ppi.get("ppi") or {}).get("no_interval")
            or ppi.get("undefined")
        ),
        "saving": _saving(figures),
        "more": _more(figures),
        "biases": _biases(figures, version),
        "calibration": _calibration(figures),
        "attacks": _attacks(figures),
    }


def measured_rows(found: Iterable[JudgeMeasurement]) -> list[dict[str, Any]]:
    """What was measured, a row for each set of pairs and part, the newest of each."""
    return [
        {
            "measurement": one,
            "scope": Scope.of(one.scope).words,
            "part": one.get_part_display(),
            "agreement": interval_words(one.figures.get("agreement")) or one.refused,
            "saved": percent(ppi["saved"])
            if (ppi := one.figures.get("ppi") or {}).get("saved") is not None
            and not ppi.get("without_judge")
            else "—",
        }
        for one in found
    ]


def _tiles(figures: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(title, value, basis)."""
    agreement, people = figures["agreement"], figures.get("people") or {}
    ceiling = figures.get("ceiling") or {}
    rows = [_tile("Agrees with a vote", agreement, f"n = {agreement['n']:,} votes")]
    if people.get("value") is not None:
        n = f"n = {people['n_items']:,} pairs with two votes or more"
        rows.append(_tile("Two people agree", people, n))
    else:
        why = reason_words(people.get("undefined")) or "no pair has two votes"
        rows.append(("Two people agree", "—", why))
    low, high = ceiling.get("low"), ceiling.get("high")
    if low is not None and high is not None:
        rows.append(
            (
                "Best that a judge could do",
                f"{100 * low:.0f} to {100 * high:.0f} %",
                "agreement with single votes, by how often people agree",
            )
        )
    ppi = figures.get("ppi") or {}
    alpha = (ppi.get("alpha") or {}).get("value")
    if ppi.get("saved") is not None and not ppi.get("without_judge"):
        most = "" if alpha is None else f"; no judge can save more than {percent(alpha)} here"
        rows.append(("Human votes saved", percent(ppi["saved"]), f"at the same width{most}"))
    return rows


def _tile(title: str, found: Mapping[str, Any], n: str) -> tuple[str, str, str]:
    low, high = found.get("low"), found.get("high")
    if found.get("value") is None:
        return title, "—", reason_words(found.get("undefined")) or n
    if low is None or high is None:
        return title, percent(found["value"]), n
    return title, percent(found["value"]), f"{100 * low:.1f}–{percent(high)}, {n}"


def _chart(figures: Mapping[str, Any]) -> ReportPart | None:
    ppi = figures.get("ppi") or {}
    names = (
        ("people", "People alone"),
        ("ppi", "People and judge (PPI)"),
        ("judge", "Judge alone: not an estimate"),
    )
    rows = [
        (label, one)
        for name, label in names
        if (one := interval_of(ppi.get(name))) is not None and one.low is not None
    ]
    if len(rows) < 2:
        return None
    return part_of(
        Intervals(
            title="Share of votes for it",
            rows=tuple(rows),
            reference=0.5,
            reference_label="no preference",
        )
    )


def _saving(figures: Mapping[str, Any]) -> str:
    ppi = figures.get("ppi") or {}
    if not ppi.get("saved") or not ppi.get("n_equivalent"):
        return ""
    units = "pairs" if figures.get("by_pair") else "prompts"
    return (
        f"{ppi['n_votes']:,} votes on {ppi['n_prompts']:,} {units}, with verdicts on "
        f"{ppi['n_unlabelled']:,} more, tell as much as {ppi['n_equivalent']:,.0f} votes alone."
    )


def _more(figures: Mapping[str, Any]) -> str:
    more = figures.get("more") or {}
    if more.get("one") is None:
        return ""
    words = (
        f"One more vote makes the interval {200 * more['one']:.3f} points narrower, a hundred "
        f"more {200 * (more.get('hundred') or 0):.2f}."
    )
    if more.get("half"):
        return f"{words} Half its width takes {more['half']:,} votes in all."
    return f"{words} No number of votes by these people halves it: more people would."


def _biases(figures: Mapping[str, Any], version: JudgeVersion) -> list[dict[str, Any]]:
    """A row for each bias: measured or not, with what it says."""
    known = {one["name"]: one for one in figures.get("biases") or []}
    rows = []
    for name, (title, words) in _BIASES.items():
        one = known.get(name)
        part = figures.get(name) or {}
        if one is None:
            told = part.get("difference", part) if name in ("length", "family") else part
            why = told.get("undefined") or told.get("no_interval") or "not measured"
            if version.reads_answers_alone and name in ("position", "flips"):
                why = "it reads each answer alone, so no order can move it"
            rows.append({"title": title, "says": why, "size": "", "tone": "", "shown": False})
            continue
        less = name in _LESS and one["size"] < 0
        says = _LESS[name] if less else words
        size = f"{100 * abs(one['size']):.1f} " + (
            "points" if name in ("length", "family") else "%"
        )
        rows.append(
            {
                "title": title,
                "says": says.format(size=size),
                "size": f"{plain(100 * one['low'], 1)} to {plain(100 * one['high'], 1)}",
                "tone": "bad" if one["is_shown"] else "good",
                "shown": one["is_shown"],
            }
        )
    return rows


def _calibration(figures: Mapping[str, Any]) -> dict[str, Any]:
    found, temperature = figures.get("calibration") or {}, figures.get("temperature") or {}
    bins = found.get("bins") or []
    part = None
    if bins:
        shown = [one for one in bins if one["n"]]
        series = Series(
            label="pairs",
            x=tuple(one["predicted"] for one in shown),
            y=tuple(one["observed"] for one in shown),
            points=True,
        )
        part = part_of(
            Curve(
                title="Calibration",
                series=(series,),
                x_label="probability that the judge claims",
                y_label="share of votes",
                diagonal=True,
                x_range=(0.0, 1.0),
                y_range=(0.0, 1.0),
            )
        )
    return {
        "ece": "" if found.get("ece") is None else percent(found["ece"]),
        "temperature": "" if temperature.get("value") is None else f"{temperature['value']:.2f}",
        "why": temperature.get("undefined") or found.get("undefined") or "",
        "part": part,
    }


def _attacks(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": one["name"].replace("_", " "),
            "moved": one["moved"],
            "n": one["n"],
            "share": interval_words(
                {"value": one["moved"] / one["n"], "low": one["low"], "high": one["high"]}
            )
            if one["n"]
            else "—",
        }
        for one in figures.get("attacks") or []
    ]


def beside_words(found: Beside) -> dict[str, Any]:
    """A judge beside the votes of a head-to-head."""
    one = found.estimate
    told = one.ppi.no_interval or one.undefined or one.without_judge or ""
    return {
        "version": found.version,
        "n_verdicts": found.n_verdicts,
        "n_votes": one.n_votes,
        "people": "" if one.people.value is None else share(one.people),
        "both": "" if found.held is None else share(found.held),
        "judge": "" if one.judge.value is None else share(one.judge),
        "saved": "" if not one.saved else percent(one.saved),
        "why": reason_words(told),
        "says": _says(found.held),
        "calibrated": is_calibrated(found.version),
    }


def _says(held: Interval | None) -> str:
    if held is None or held.low is None or held.high is None:
        return ""
    if held.low > 0.5:
        return "better"
    return "worse" if held.high < 0.5 else "not told apart"


def suite_words(found: dict[str, Any]) -> dict[str, Any]:
    """A judge beside people on a regression suite, by category."""
    rows = [
        {
            "name": row["name"],
            "n": row["n"],
            "votes": row["votes"],
            "people": share(row["people"]) if row["enough"] else "",
            "both": share(row["both"]) if row["enough"] else "",
            "judge": share(row["judge"]) if row["judge"].value is not None else "",
        }
        for row in found["rows"]
    ]
    return {**found, "rows": rows}


def trial_words(trial: dict[str, Any]) -> dict[str, Any]:
    """The same with agreement in words, empty where a part was not measured."""
    rows = [
        {
            "version": row["version"],
            **{
                str(part): interval_words(row[part].figures.get("agreement")) or row[part].refused
                if row[part]
                else ""
                for part in (Part.TUNE, Part.CHOOSE, Part.CERTIFY)
            },
        }
        for row in trial["rows"]
    ]
    return {**trial, "rows": rows}


def certificate_words(found: LabelCertificate) -> tuple[str, str]:
    """(words, tone) of a badge."""
    if found.threshold is None:
        return "Nothing certified", "warn"
    if found.stopped_at is not None:
        return "Stopped", "bad"
    return "Valid", "good"


def audit_words(state: AuditState, found: LabelCertificate) -> str:
    if not state.n:
        return "No audited label has been settled by people yet."
    return (
        f"People settled {state.n:,} audited labels; {state.wrong:g} were wrong "
        f"({percent(state.wrong / state.n)}). Whenever one looks, the error lies between "
        f"{100 * state.low:.1f} and {100 * state.high:.1f} %; at most {100 * found.error:g} % is "
        "certified."
    )
