"""Axes of the drawings: values to pixels, with round ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


def short(value: float) -> str:
    """A place on an axis: 0.5, 16, −1.25, 1,024."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−", 1) if value < 0 else text


class Axis:
    """Values to pixels; `ticks` are round. A logarithmic axis needs values over 0."""

    def __init__(
        self, values: Sequence[float], start: float, end: float, *, log: bool = False
    ) -> None:
        known = [float(x) for x in values if x is not None and math.isfinite(x)]
        self.log = log and bool(known) and min(known) > 0
        least, most = (min(known), max(known)) if known else (0.0, 1.0)
        if least == most:
            pad = abs(least) * 0.1 or 0.5
            least, most = (least / 2, most * 2) if self.log else (least - pad, most + pad)
        self.start, self.end = start, end
        self.least, self.most = least, most
        self._marks = self._logarithmic() if self.log else self._round()

    def at(self, value: float | None) -> float | None:
        if value is None or not math.isfinite(value) or (self.log and value <= 0):
            return None
        scale = math.log if self.log else float
        low, high = scale(self.least), scale(self.most)
        place = (scale(value) - low) / (high - low)
        return round(self.start + (self.end - self.start) * min(max(place, -0.02), 1.02), 1)

    @property
    def ticks(self) -> list[Tick]:
        return [Tick(self.at(x) or 0.0, _tick_words(x, self._marks)) for x in self._marks]

    def _round(self) -> list[float]:
        """About five multiples of 1, 2 or 5 × 10ᵏ; the range grows to the outer ones."""
        raw = (self.most - self.least) / 4
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
        first = math.floor(self.least / step + 1e-9)
        last = math.ceil(self.most / step - 1e-9)
        self.least, self.most = first * step, last * step
        return [k * step for k in range(first, last + 1)]

    def _logarithmic(self) -> list[float]:
        base = 2 if self.most / self.least <= 300 else 10
        first = math.floor(math.log(self.least, base) + 1e-9)
        last = math.ceil(math.log(self.most, base) - 1e-9)
        powers = [float(base) ** k for k in range(first, last + 1)]
        self.least, self.most = powers[0], powers[-1]
        return powers[:: max(1, math.ceil(len(powers) / 8))]


def _tick_words(value: float, marks: Sequence[float]) -> str:
    if value == 0:
        return "0"
    step = abs(marks[1] - marks[0]) if len(marks) > 1 else abs(value)
    if max(abs(m) for m in marks) >= 1e6 or step < 1e-4:
        return f"{value:.1e}".replace("-", "−", 1) if value < 0 else f"{value:.1e}"
    places = max(0, -math.floor(math.log10(step) + 1e-9)) if step < 1 else 0
    places += step * 10**places % 1 > 1e-6  # 0.25
    return f"{value:,.{places}f}".replace("-", "−")
