"""Cards of the agreement page: alarms, the pull of the left side, what labels cost."""

from dataclasses import dataclass
from typing import Any

from apps.agreement.screens.charts import Estimate, whiskers

TONES = {
    "critical": ("bad", "circle-alert"),
    "bad": ("bad", "circle-alert"),
    "unsure": ("warn", "triangle-alert"),
    "too_few": ("", "info"),
    "undefined": ("", "info"),
    "no_alarm": ("good", "circle-check"),
}


@dataclass(frozen=True, slots=True)
class Note:
    tone: str
    icon: str
    sentence: str


def note_of(estimate: dict[str, Any]) -> Note:
    tone, icon = TONES[estimate["level"]]
    return Note(tone, icon, estimate["sentence"])


def alarms(statistics: dict[str, Any]) -> list[Note]:
    """What percent agreement says, and what alpha says where that is no reassurance."""
    notes = [note_of(statistics["percent"])]
    if statistics["alpha"]["level"] != "no_alarm":
        notes.append(note_of(statistics["alpha"]))
    return notes


def position_card(position: dict[str, Any]) -> dict[str, Any]:
    """The pull of the left side: its sentence, and the two shares as a chart."""
    rate = position["left_rate"]
    rows = []
    if rate["value"] is not None:
        rows.append(
            Estimate("Choices that fell on the left", rate["value"], rate["low"], rate["high"])
        )
    if position["value"] is not None:
        shares = (position["value"], position["low"], position["high"])
        rows.append(Estimate("Left chosen, answers equally good", *shares, tone="ours"))
    tone, icon = TONES[position["level"]]
    return {
        "note": Note(tone, icon, position["sentence"]),
        "chart": whiskers(rows, line=0.5) if rows else None,
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


def cost_card(cost: dict[str, Any]) -> dict[str, Any]:
    """What labels cost, as rows of name and value; what is not known says why."""
    currency = cost["currency"]

    def shown(quantity: dict[str, Any], unit: str, places: int) -> str:
        if quantity["value"] is None:
            return f"not known: {quantity['undefined']}"
        return f"{quantity['value']:,.{places}f} {unit}".strip()

    split = [
        f"{cost['by_purpose'][purpose]:,} {words}"
        for purpose, words in PURPOSES.items()
        if cost["by_purpose"][purpose]
    ]
    rows = [
        ("Votes", f"{cost['n_votes']:,}: {', '.join(split)}" if split else "none"),
        ("Comparisons kept", f"{cost['n_kept']:,}"),
        ("Votes for a kept one", shown(cost["votes_per_kept"], "", 2)),
        ("Active time", shown(cost["hours"], "hours", 1)),
        ("Active time for a kept one", shown(cost["seconds_per_kept"], "s", 0)),
        ("Money", shown(cost["money"], currency, 2)),
        ("Money for a kept one", shown(cost["money_per_kept"], currency, 2)),
    ]
    note = ""
    if cost["n_votes"] > cost["timed"] > 0:
        note = f"The time of {cost['timed']:,} votes is known; the others are taken to be alike."
    return {"rows": rows, "note": note, "stated": cost["vote_price"] > 0}
