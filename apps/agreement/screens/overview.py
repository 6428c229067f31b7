"""What the agreement page prints: a stored report in, words and SVG geometry out."""

from dataclasses import dataclass
from typing import Any

from apps.agreement.models import AgreementReport
from apps.agreement.screens.charts import alarms, cost_card, cost_reason, position_card
from apps.agreement.screens.slices import worse_sentences
from apps.agreement.selectors.votes import REASONS
from apps.common.numbers import share as percent
from apps.common.report.blocks import Part, part_of
from apps.common.report.shares import interval_of, shares
from measures.agreement.reading import LEAST_AGREEMENT
from measures.blocks import Bars
from measures.estimate import Interval

# The words around the statistics of agreement: what each is, on which votes, how sure.

NAMES = {
    "percent": "Percent agreement",
    "cohen": "Cohen’s kappa, mean",
    "fleiss": "Fleiss’ kappa",
    "alpha": "Krippendorff’s alpha",
    "ac1": "Gwet’s AC1",
}
WHAT = {
    "percent": "How often two votes on the same comparison are the same. Coins agree in half.",
    "cohen": "Agreement beyond chance of two people with each other, averaged over all two who "
    "have ten comparisons in common; chance is what the habits of these two would give.",
    "fleiss": "Agreement beyond chance, where chance is everybody drawing from the project’s mix "
    "of choices. Comparisons weigh alike, however many votes they have.",
    "alpha": "As Fleiss, but comparisons with more votes weigh more and small samples are "
    "corrected. 0 is chance, 1 is perfect, under 0 is systematic disagreement.",
    "ac1": "Agreement beyond chance, where chance is small when nearly all votes fall on one "
    "choice. Far above alpha: look at the mix of choices.",
}


@dataclass(frozen=True, slots=True)
class StatisticRow:
    key: str
    name: str
    what: str
    value: str
    spread: str
    basis: str
    sentence: str


def statistic_rows(figures: dict[str, Any]) -> list[StatisticRow]:
    """Every statistic as a row of the table that says how to read it."""
    rows = []
    for key, name in NAMES.items():
        found = figures["statistics"][key]
        what = WHAT[key]
        if key == "cohen":
            used = figures["cohen_pairs"]["used"]
            what = f"{what} Here: {counted(used, 'pair')} of people."
        rows.append(
            StatisticRow(
                key=key,
                name=name,
                what=what,
                value="undefined" if found["value"] is None else _number(key, found["value"]),
                spread=_spread(key, found),
                basis=f"{found['n_items']:,}",
                sentence=_verdict(key, found["sentence"]),
            )
        )
    return rows


# Said once, beside alpha.
_TEXTBOOK = " Preferences are not held to"


def _verdict(key: str, sentence: str) -> str:
    """The sentence without the number, which stands beside it."""
    verdict = sentence.split("; ", 1)[-1].split("): ", 1)[-1]
    if key != "alpha":
        verdict = verdict.split(_TEXTBOOK, 1)[0]
    return verdict[:1].upper() + verdict[1:]


def _number(key: str, value: float) -> str:
    if key == "percent":
        return f"{100 * value:.1f} %"
    return f"{value:.3f}".replace("-", "−")


def _spread(key: str, found: dict[str, Any]) -> str:
    if found["low"] is None:
        return "—" if found["value"] is None else "none"
    if key == "percent":
        return f"{100 * found['low']:.1f}–{100 * found['high']:.1f} %"
    return f"{_number(key, found['low'])} to {_number(key, found['high'])}"


def interval_words(clustering: dict[str, Any]) -> str:
    """What intervals rest on, and whether that mattered."""
    by, wider = clustering["by"], clustering["wider"]
    factor = ""
    if wider is not None:
        factor = (
            f" That makes the interval of percent agreement {wider:.1f} times as wide as if each "
            "comparison stood alone."
        )
    if by == "groups":
        return (
            f"Intervals are 95 %, by resampling {clustering['n_groups']:,} groups (what splits go "
            f"by) whole, because comparisons of one group are alike.{factor}"
        )
    if by == "answers":
        n = clustering["n_groups"]
        groups = "one group" if n == 1 else f"{n} groups"
        return (
            f"Intervals are 95 % and allow for {clustering['n_answers']:,} answers that recur in "
            f"several comparisons.{factor} There {'is' if n == 1 else 'are'} only {groups}, too "
            "few to resample: the intervals hold for these, not for others like them."
        )
    if clustering["reason"]:
        return (
            "Intervals are 95 %, by resampling comparisons as if each stood alone: there is "
            f"{clustering['reason']}. They are too short if groups differ."
        )
    return "Intervals are 95 %, by resampling comparisons, each of which is a group of its own."


def counted(n: int, one: str, many: str = "") -> str:
    """ "1 vote", "10,967 votes"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def which_votes(report: AgreementReport) -> dict[str, Any]:
    """How many votes are in, and how many are left out for which reason."""
    kept = report.figures["counted"]
    left_out = kept["left_out"]
    return {
        "votes": counted(kept["n_votes"], "vote"),
        "comparisons": counted(kept["n_comparisons"], "comparison"),
        "people": counted(kept["n_annotators"], "person", "people"),
        "n_left_out": sum(left_out.values()),
        "left_out": [(n, REASONS[reason]) for reason, n in left_out.items()],
    }


STATISTICS_COLUMNS = (
    "statistic",
    "value",
    "low",
    "high",
    "comparisons",
    "votes",
    "undefined",
    "no_interval",
)


def statistics_csv_rows(report: AgreementReport) -> list[dict[str, Any]]:
    """Every number of the page, fractions as numbers."""
    figures = report.figures
    rows = [_csv_row(name, figures["statistics"][key]) for key, name in NAMES.items()]
    rows.append(_csv_row("Percent agreement, A or B votes only", figures["two_way"]["percent"]))
    for anchor in figures["anchors"]:
        value, margin = anchor["agreement"], anchor["margin"] or 0.0
        known = anchor["margin"] is not None
        bounds = {"low": value - margin, "high": value + margin} if known else {}
        rows.append(_csv_row(f"Published: {anchor['name']}", {"value": value} | bounds))
    position = figures["position"]
    rows.append(
        _csv_row("Left chosen, answers equally good", position)
        | {"comparisons": position["n_flipped"], "votes": position["n"]}
    )
    rate = position["left_rate"]
    rows.append(_csv_row("Choices that fell on the left", rate) | {"votes": rate["n"]})
    cost = figures["cost"]
    names = {
        "votes_per_kept": "Votes per accepted comparison",
        "hours": "Active hours",
        "seconds_per_kept": "Active seconds per accepted comparison",
        "money": f"Money ({cost['currency']})",
        "money_per_kept": f"Cost per accepted comparison ({cost['currency']})",
    }
    return rows + [
        _csv_row(name, cost[key]) | {"comparisons": cost["n_kept"], "votes": cost["n_votes"]}
        for key, name in names.items()
    ]


def _csv_row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    kept = ("value", "low", "high", "undefined", "no_interval")
    return (
        {"statistic": name}
        | {key: found.get(key) for key in kept}
        | {
            "comparisons": found.get("n_items"),
            "votes": found.get("n_votes"),
        }
    )


MOST_SPLITS = 14


@dataclass(frozen=True, slots=True)
class Tile:
    name: str
    value: str
    spread: str
    basis: str


def overview(report: AgreementReport) -> dict[str, Any]:
    """The template's context."""
    figures = report.figures
    statistics = figures["statistics"]
    return {
        "tiles": _tiles(report),
        "notes": alarms(statistics),
        "worse": worse_sentences(figures["slices"]),
        "statistics": statistic_rows(figures),
        "interval_words": interval_words(figures["clustering"]),
        "which_votes": which_votes(report),
        "rule": figures["rule"],
        "splits": split_chart(figures),
        "decisions": figures["decisions"],
        "chance": figures["chance"]
        | {
            "two_way_percent": percent(figures["chance"]["two_way"]),
            "with_ties_percent": percent(figures["chance"]["with_ties"]),
            "posterior_percent": percent(figures["chance"]["posterior"]),
            "accuracy_percent": percent(figures["chance"]["accuracy"]),
            "filters_nothing": figures["chance"]["two_way"] > 0.999,
        },
        "gold": _gold(figures["decisions"]["gold"]),
        "anchors": anchor_chart(figures),
        "ceiling": _ceiling(figures["two_way"]),
        "no_ceiling": (figures["two_way"].get("ceiling") or {}).get("undefined"),
        "position": position_card(figures["position"]),
        "cost": cost_card(figures["cost"]),
    }


def _tiles(report: AgreementReport) -> list[Tile]:
    figures = report.figures
    votes = Tile(
        "Votes",
        f"{report.n_votes:,}",
        "",
        f"{counted(figures['n_annotators'], 'person', 'people')}, "
        f"{counted(report.n_comparisons, 'comparison')}",
    )
    per_kept = figures["cost"]["votes_per_kept"]
    cost = Tile(
        "Votes per accepted comparison",
        "—" if per_kept["value"] is None else f"{per_kept['value']:.2f}",
        "",
        cost_reason(per_kept["undefined"])
        or f"n = {figures['cost']['n_kept']:,} accepted comparisons",
    )
    return [
        votes,
        *(
            _estimate_tile(NAMES[key], figures["statistics"][key], as_percent=key == "percent")
            for key in ("percent", "alpha")
        ),
        cost,
    ]


def _estimate_tile(name: str, estimate: dict[str, Any], *, as_percent: bool) -> Tile:
    if estimate["value"] is None:
        return Tile(name, "undefined", "", estimate["undefined"])

    def shown(value: float) -> str:
        return f"{100 * value:.1f}" if as_percent else f"{value:.3f}".replace("-", "−")

    unit = " %" if as_percent else ""
    spread, basis = "", f"n = {estimate['n_items']:,} comparisons"
    if estimate["no_interval"]:
        basis = f"{basis}; no interval: {estimate['no_interval']}"
    if estimate["low"] is not None:
        between = "–" if as_percent else " to "
        spread = f"{shown(estimate['low'])}{between}{shown(estimate['high'])}"
    return Tile(name, shown(estimate["value"]) + unit, spread, basis)


def _gold(gold: dict[str, Any] | None) -> dict[str, Any] | None:
    if gold is None:
        return None
    shown = {"n": gold["n"], "majority": percent(gold["majority"]), "kept_n": gold["kept_n"]}
    if gold["kept"] is not None:
        kept = gold["kept"]
        shown |= {"kept": percent(kept["value"]), "interval": kept["no_interval"]}
        if kept["low"] is not None:
            shown["interval"] = f"{100 * kept['low']:.1f}–{100 * kept['high']:.1f} %"
    return shown


def _ceiling(two_way: dict[str, Any]) -> dict[str, str] | None:
    ceiling = two_way.get("ceiling")
    if not ceiling or ceiling["annotator_accuracy"] is None:
        return None
    return {
        "agreement": percent(ceiling["agreement"]),
        "accuracy": percent(ceiling["annotator_accuracy"]),
    }


def split_chart(figures: dict[str, Any]) -> Part:
    """Vote patterns ("5", "4–1", …) as bars, most agreeing first; the rarest are left out."""
    splits, rule = figures["splits"], figures["rule"]
    total = sum(row["comparisons"] for row in splits)
    commonest = sorted(splits, key=lambda row: -row["comparisons"])[:MOST_SPLITS]
    shown = [row for row in splits if row in commonest]
    rarer = total - sum(row["comparisons"] for row in shown)
    return part_of(
        Bars(
            title="",
            rows=tuple(
                (row["pattern"], (row["accepted"], row["comparisons"] - row["accepted"]))
                for row in shown
            ),
            parts=(
                f"accepted by your rule: at least {rule['least_votes']} votes, "
                f"{rule['least_agreeing']} of them agreeing, and {percent(rule['least_share'])}",
                "not accepted",
            ),
            said=tuple(
                f"{row['comparisons']:,} ({percent(row['comparisons'] / total)})" for row in shown
            ),
            note=f"{rarer:,} comparisons with rarer splits are in the CSV." if rarer else "",
        )
    )


def anchor_chart(figures: dict[str, Any]) -> Part:
    """This project's percent agreement above published ones."""
    rows = [
        (label, interval_of(found), "accent")
        for label, found in (
            ("This project", figures["statistics"]["percent"]),
            ("This project, A or B votes only", figures["two_way"]["percent"]),
        )
        if found["value"] is not None
    ]
    for anchor in figures["anchors"]:
        value, margin = anchor["agreement"], anchor["margin"]
        low, high = (None, None) if margin is None else (value - margin, value + margin)
        published = Interval(value=value, low=low, high=high, n=0, no_interval="not published")
        rows.append((anchor["name"], published, "plain"))
    return shares(rows, line=LEAST_AGREEMENT, line_label="agreement under it is bad")
