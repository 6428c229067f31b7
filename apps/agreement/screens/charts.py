"""The cards of alarms, position bias and cost that several agreement pages have."""

from dataclasses import dataclass
from typing import Any

from apps.common.report.levels import Look, look_of
from apps.common.report.shares import interval_of, shares

# Cards of the agreement page: alarms, the pull of the left side, what labels cost.


@dataclass(frozen=True, slots=True)
class Note:
    look: Look
    sentence: str


def note_of(estimate: dict[str, Any]) -> Note:
    return Note(look_of(estimate["level"]), estimate["sentence"])


def alarms(statistics: dict[str, Any]) -> list[Note]:
    """What percent agreement says, and what alpha says where that is no reassurance."""
    notes = [note_of(statistics["percent"])]
    if statistics["alpha"]["level"] != "no_alarm":
        notes.append(note_of(statistics["alpha"]))
    return notes


def position_card(position: dict[str, Any]) -> dict[str, Any]:
    """The pull of the left side: its sentence, and the two shares as a chart."""
    rows = [
        ("Choices that fell on the left", interval_of(position["left_rate"]), "plain"),
        ("Left chosen, answers equally good", interval_of(position), "accent"),
    ]
    known = [row for row in rows if row[1].value is not None]
    return {
        "note": note_of(position),
        "chart": shares(
            known,
            line=0.5,
            line_label="no position bias",
            note="Sides are drawn at random, so without position bias both shares are 50 %. The "
            "second one compares votes on comparisons that people saw with sides swapped.",
        )
        if known
        else None,
        "n": position["n"],
        "n_flipped": position["n_flipped"],
    }


PURPOSES = {
    "first": "first votes on a comparison",
    "extra": "extra votes on contested comparisons",
    "round": "second rounds",
    "repeat": "hidden repeats",
    "audit": "audits",
    "gold": "on gold comparisons",
}


_COST_REASONS = {
    "no_times": "the active time of no vote is known",
    "no_price": "no price of a vote is stated",
    "none_kept": "no pair is kept yet",
}


def cost_reason(code: str | None) -> str:
    """Older reports have the words themselves."""
    return _COST_REASONS.get(code or "", code or "")


def cost_card(cost: dict[str, Any]) -> dict[str, Any]:
    """What labels cost, as rows of name and value; what is not known says why."""
    currency = cost["currency"]

    def shown(quantity: dict[str, Any], unit: str, places: int) -> str:
        if quantity["value"] is None:
            return f"not known: {cost_reason(quantity['undefined'])}"
        return f"{quantity['value']:,.{places}f} {unit}".strip()

    split = [
        f"{cost['by_purpose'][purpose]:,} {words}"
        for purpose, words in PURPOSES.items()
        if cost["by_purpose"][purpose]
    ]
    rows = [
        ("Votes", f"{cost['n_votes']:,}: {', '.join(split)}" if split else "none"),
        ("Accepted comparisons", f"{cost['n_kept']:,}"),
        ("Votes per accepted comparison", shown(cost["votes_per_kept"], "", 2)),
        ("Active time", shown(cost["hours"], "hours", 1)),
        ("Active time per accepted comparison", shown(cost["seconds_per_kept"], "s", 0)),
        ("Money", shown(cost["money"], currency, 2)),
        ("Cost per accepted comparison", shown(cost["money_per_kept"], currency, 2)),
    ]
    note = ""
    if cost["n_votes"] > cost["timed"] > 0:
        note = (
            f"The time of {cost['timed']:,} votes is known; the others are assumed to be similar."
        )
    return {"rows": rows, "note": note, "stated": cost["vote_price"] > 0}
