"""Numbers and lists as the sentences of findings print them, on the workers and on the web side."""

from typing import Protocol


class Bounded(Protocol):
    """`measures.estimate.Interval`, which this package may not import."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def percent(share: float) -> str:
    """0.731 as "73.1 %", with a real minus sign."""
    return f"{100 * share:.1f} %".replace("-", "−")


def signed(number: float, digits: int = 2) -> str:
    return f"{number:+.{digits}f}".replace("-", "−")


def plain(number: float, digits: int = 2) -> str:
    return f"{number:.{digits}f}".replace("-", "−")


def share(found: Bounded) -> str:
    """ "73.1 % (69.5–76.6 %)", or without bounds where there are none."""
    if found.value is None:
        return "undefined"
    if found.low is None or found.high is None:
        return percent(found.value)
    return f"{percent(found.value)} ({100 * found.low:.1f}–{percent(found.high)})".replace(
        "(-", "(−"
    )


def number(found: Bounded, digits: int = 2) -> str:
    """ "0.71 (0.58 to 0.79)": bounds may be negative, so they are joined by a word."""
    if found.value is None:
        return "undefined"
    if found.low is None or found.high is None:
        return plain(found.value, digits)
    low, high = plain(found.low, digits), plain(found.high, digits)
    return f"{plain(found.value, digits)} ({low} to {high})"


def listed(names: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
