"""Evidence as it is drawn: a block of a finding in, words and SVG geometry out.

Pages know blocks, not lines. A block that cannot be drawn, because its numbers do not fit together,
says so in its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from apps.common.report.axes import SHARE, TEXT, Axis, estimate, places_for, short, words
from apps.common.report.curves import LARGE, SMALL, CurveView, curve_view
from apps.common.report.histograms import HistogramView, histogram_view
from measures.blocks import Bars, Block, Curve, Example, Histogram, Intervals, Table, Texts
from workers.contract.reasons import reason_words

BAR = 200  # units of a row's drawing; its width on the page is the stylesheet's
LONG = 600  # characters of a text that are shown at once


@dataclass(frozen=True, slots=True)
class Cell:
    words: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class DotRow:
    """x, low, high: on the drawing, None where there is no such value."""

    label: str
    words: str
    bounds: str
    n: int
    x: float | None
    low: float | None
    high: float | None
    expected: float | None = None
    tone: str = ""

    @property
    def is_whole(self) -> bool:
        """`bounds` are figures that stay on one line, and no reason."""
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True)
class BarRow:
    """pieces: (x, width, number of the colour, words) of each part."""

    label: str
    words: str
    pieces: list[tuple[float, float, int, str]]


@dataclass(frozen=True, slots=True)
class TextView:
    """An example; `rest` of a long answer is folded away."""

    prompt: str
    answer: str
    rest: str
    score: str
    label: str
    other: str
    other_rest: str
    other_score: str


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of evidence; the fields that its kind does not have are empty."""

    kind: str
    title: str
    note: str = ""
    columns: list[Cell] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    dots: list[DotRow] = field(default_factory=list)
    bars: list[BarRow] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the parts of a bar
    ends: tuple[str, str] = ("", "")
    reference: float | None = None
    reference_words: str = ""
    histogram: HistogramView | None = None
    curve: CurveView | None = None
    texts: list[TextView] = field(default_factory=list)


def parts(blocks: Sequence[Block], *, small: bool = False) -> list[Part]:
    """`small` curves stand beside each other."""
    return [part_of(block, small=small) for block in blocks]


def part_of(block: Block, *, small: bool = False) -> Part:
    try:
        if isinstance(block, Table):
            return _table(block)
        if isinstance(block, Intervals):
            return _intervals(block)
        if isinstance(block, Histogram):
            return Part("histogram", block.title, block.note, histogram=histogram_view(block))
        if isinstance(block, Curve):
            view = curve_view(block, SMALL if small else LARGE)
            return Part("curve", block.title, block.note, curve=view)
        if isinstance(block, Bars):
            return _bars(block)
        return _texts(block)
    except (ArithmeticError, TypeError, ValueError, LookupError, AttributeError):
        return Part("undrawn", str(block.title))


def _table(block: Table) -> Part:
    formats = [*block.formats, *([TEXT] * len(block.columns))][: len(block.columns)]
    head = [
        Cell(str(name), form != TEXT) for name, form in zip(block.columns, formats, strict=True)
    ]
    rows = [
        [Cell(words(value, form), form != TEXT) for value, form in zip(row, formats, strict=True)]
        for row in block.rows
    ]
    return Part("table", block.title, block.note, columns=head, rows=rows)


def _intervals(block: Intervals) -> Part:
    known = [x for _, of in block.rows for x in (of.value, of.low, of.high) if x is not None]
    if block.reference is not None:
        known.append(block.reference)
    known += [x for x in block.expected if x is not None]
    axis = Axis(known, 0, BAR, unit=block.unit)
    places = places_for(axis.least, axis.most)
    told = [estimate(of, block.unit, places=places) for _, of in block.rows]
    dots = [
        DotRow(
            label=label,
            words=value or reason_words(of.undefined) or "—",
            bounds=spread,
            n=of.n,
            x=axis.at(of.value),
            low=axis.at(of.low),
            high=axis.at(of.high),
            expected=axis.at(expected),
            tone=tone,
        )
        for (label, of), (value, spread), expected, tone in zip(
            block.rows,
            told,
            block.expected or (None,) * len(told),
            block.tones or ("",) * len(told),
            strict=True,
        )
    ]
    said = ""
    if block.reference is not None:
        name, value = block.reference_label, words(block.reference, block.unit)
        known_by_name = any(sign.isdigit() for sign in name)
        said = f"Dashed line: {name if known_by_name else f'{name}, {value}' if name else value}."
    if block.expected:
        said = f"{said} Bar: {block.expected_label}.".strip()
    return Part(
        "intervals",
        block.title,
        block.note,
        dots=dots,
        ends=(_end(axis.least, block.unit), _end(axis.most, block.unit)),
        reference=axis.at(block.reference),
        reference_words=said,
    )


def _bars(block: Bars) -> Part:
    sums = [sum(amounts) for _, amounts in block.rows]
    most = max([*sums, block.reference or 0.0], default=0.0) or 1.0
    rows = []
    for k, (label, amounts) in enumerate(block.rows):
        pieces, x = [], 0.0
        for number, amount in enumerate(amounts, start=1):
            width = BAR * amount / most
            name = f"{block.parts[number - 1]}: " if block.parts else ""
            if width > 0:
                said = f"{name}{words(amount, block.unit)}"
                pieces.append((round(x, 1), round(width, 1), number, said))
            x += width
        behind = block.said[k] if block.said else words(sums[k], block.unit)
        rows.append(BarRow(label, behind, pieces))
    return Part(
        "bars",
        block.title,
        block.note,
        bars=rows,
        names=list(block.parts) if len(block.parts) > 1 else [],
        reference=None if block.reference is None else round(BAR * block.reference / most, 1),
        reference_words=f"Dashed line: {block.reference_label}." if block.reference_label else "",
    )


def _end(value: float, unit: str) -> str:
    return f"{100 * value:.0f} %".replace("-", "−") if unit == SHARE else short(value)


def _texts(block: Texts) -> Part:
    return Part("texts", block.title, block.note, texts=[text_view(one) for one in block.examples])


def text_view(one: Example) -> TextView:
    return TextView(
        prompt=_cut(one.prompt)[0] + ("…" if _cut(one.prompt)[1] else ""),
        answer=_cut(one.answer)[0],
        rest=_cut(one.answer)[1],
        score=words(one.score) if one.score is not None else "",
        label=one.label,
        other=_cut(one.other)[0],
        other_rest=_cut(one.other)[1],
        other_score=words(one.other_score) if one.other_score is not None else "",
    )


def _cut(text: str) -> tuple[str, str]:
    """The beginning, cut between words, and the rest."""
    text = str(text)
    if len(text) <= LONG * 1.2:
        return text, ""
    place = text.rfind(" ", LONG // 2, LONG)
    place = place if place > 0 else LONG
    return text[:place], text[place:]
