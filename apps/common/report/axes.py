"""Axes of the drawings, values to pixels with round ticks; and numbers as drawings print them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils.timezone import localtime

from apps.common.numbers import figure, fixed, share
from measures.estimate import Interval
from workers.contract.reasons import reason_words

SHARE, COUNT, TEXT, NUMBER, TIME = "share", "count", "text", "number", "time"
NO_VALUE = "—"
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


def short(value: float) -> str:
    """A place on an axis: 0.5, 16, −1.25, 1,024."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−", 1) if value < 0 else text


class Axis:
    """Values to pixels; `ticks` are round, those of shares in per cent, those of seconds since 1970
    (`unit` time) in the reader's zone. A logarithmic axis needs values over 0."""

    def __init__(
        self,
        values: Sequence[float],
        start: float,
        end: float,
        *,
        log: bool = False,
        unit: str = "number",
    ) -> None:
        known = [float(x) for x in values if x is not None and math.isfinite(x)]
        self.log = log and bool(known) and min(known) > 0
        self.unit = unit
        least, most = (min(known), max(known)) if known else (0.0, 1.0)
        if least == most:
            pad = 1800.0 if unit == TIME else abs(least) * 0.1 or 0.5
            least, most = (least / 2, most * 2) if self.log else (least - pad, most + pad)
        self.start, self.end = start, end
        self.least, self.most = least, most
        if unit == TIME:
            self._marks = [least + (most - least) * k / 3 for k in range(4)]
        else:
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
        if self.unit == TIME:
            form = "%H:%M" if self.most - self.least < 2 * _DAY else "%-d %b"
            named = {f"{_local(x):{form}}": x for x in reversed(self._marks)}
            return [Tick(self.at(x) or 0.0, name) for name, x in reversed(named.items())]
        if self.unit == SHARE:
            hundreds = [100 * x for x in self._marks]
            said = [f"{_tick_words(x, hundreds)} %" for x in hundreds]
        else:
            said = [_tick_words(x, self._marks) for x in self._marks]
        return [Tick(self.at(x) or 0.0, name) for x, name in zip(self._marks, said, strict=True)]

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


# Numbers as drawings and their tables print them.


def _local(seconds: float) -> datetime:
    return localtime(datetime.fromtimestamp(seconds, UTC))


def words(value: Any, unit: str = NUMBER) -> str:
    """73.1 %, 1,204, 0.713, or the text itself."""
    if value is None or value == "":
        return NO_VALUE
    if unit == TEXT or isinstance(value, bool | str) or not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return str(figure(value))
    if unit == SHARE:
        return share(value)
    if unit == COUNT:
        return f"{value:,.0f}"
    if unit == TIME:
        return f"{_local(value):%-d %b %Y %H:%M %Z}"
    return str(figure(float(value)))


def places_for(low: float, high: float) -> int:
    """Decimals with which a range of this size is told: three digits of it."""
    spread = abs(high - low)
    if not math.isfinite(spread) or spread <= 0:
        return 3
    return min(6, max(0, 2 - math.floor(math.log10(spread))))


def estimate(of: Interval, unit: str = SHARE, *, places: int | None = None) -> tuple[str, str]:
    """(value, bounds) of an interval, both to the same decimals."""
    if of.value is None:
        return "", ""
    if unit == SHARE or of.low is None or of.high is None:
        value = fixed(of.value, places) if unit != SHARE and places is not None else None
        return value or words(of.value, unit), bounds(of, unit)
    to = places_for(of.low, of.high) if places is None else places
    return fixed(of.value, to), f"{fixed(of.low, to)} … {fixed(of.high, to)}"


def bounds(of: Interval, unit: str = SHARE) -> str:
    """69.5–76.6 %, 0.61 … 0.70, or why there is no interval; empty where there is no value."""
    if of.value is None:
        return ""
    if of.low is None or of.high is None:
        return reason_words(of.no_interval) or "no interval"
    if unit == SHARE and of.low >= 0:
        return f"{100 * of.low:.1f}–{100 * of.high:.1f} %"
    return f"{words(of.low, unit)} … {words(of.high, unit)}"


def headline(of: Interval | None, unit: str = SHARE) -> str:
    """73.1 % ± 3.6, n = 612: one figure of a list."""
    if of is None or of.value is None:
        return ""
    said = words(of.value, unit)
    if of.low is not None and of.high is not None:
        half = (of.high - of.low) / 2
        said += f" ± {100 * half:.1f}" if unit == SHARE else f" ± {words(half, unit)}"
    return f"{said}, n = {of.n:,}"
