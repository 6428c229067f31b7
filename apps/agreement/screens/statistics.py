"""The words around the statistics of agreement: what each is, on which votes, how sure."""

from dataclasses import dataclass
from typing import Any

from apps.agreement.models import AgreementReport
from apps.agreement.selectors.votes import REASONS

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
