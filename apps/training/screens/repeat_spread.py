"""What repeats of an evaluation tell: how far each headline figure moves without any change."""

from dataclasses import dataclass

from apps.training.models import Run
from apps.training.selectors.protocols import INSIDE, OUTSIDE, repeat_figures
from measures.repeats import least_difference

_FIGURES = {
    "policy": "score",
    "sft": "score of the SFT model",
    "difference": "score difference",
    "win_rate": "win rate",
}


def repeat_words(name: str) -> str:
    """The headline figure `reward.win_rate` in words: "Win rate, by the reward"."""
    source, _, figure = name.partition(".")
    if source == "factuality":
        words = {"policy": "right answers", "sft": "right answers of the SFT model"}
        return words.get(figure, "difference in right answers").capitalize()
    return f"{_FIGURES.get(figure, figure).capitalize()}, by the {source}"


@dataclass(frozen=True, slots=True)
class RepeatRow:
    """A headline figure, its deviation over repeats, and the least difference that is claimed."""

    label: str
    value: float
    sigma: float
    least: float
    claim: str


def repeat_rows(run: Run) -> list[RepeatRow]:
    """What repeats of an evaluation tell; empty where it was asked once."""
    return [
        RepeatRow(
            repeat_words(name),
            one.value,
            one.sigma,
            least_difference(one.sigma),
            "" if one.inside is None else INSIDE if one.inside else OUTSIDE,
        )
        for name, one in repeat_figures(run).items()
        if one.sigma is not None
    ]
