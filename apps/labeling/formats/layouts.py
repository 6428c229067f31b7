"""The layouts, in the order in which they are tried on a file's first records."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from apps.labeling.formats import (
    argilla,
    completions,
    label_studio,
    pairs,
    preference,
    transcripts,
)
from apps.labeling.formats.mapping import Mapper
from apps.labeling.formats.options import Options
from apps.labeling.formats.records import Converted, FormatError, Record, RecordFault
from apps.labeling.formats.tables import Table


@dataclass(frozen=True, slots=True)
class Layout:
    """How a record means a comparison.

    fields: what a column may fill; required: those without which no row can be made.
    """

    key: str
    label: str
    fields: tuple[str, ...]
    required: tuple[str, ...]
    fits: Callable[[Iterable[str], Iterable[Record]], bool]
    choices: Callable[[Iterable[Record], Iterable[str]], tuple[str, ...]]
    mapper: Callable[[Options, Iterable[str]], Mapper]
    convert: Callable[[int, Record, Mapper], Iterator[Converted]]

    def columns(self, table: Table) -> tuple[str, ...]:
        """What of this file may fill fields."""
        return self.choices(table.sample, table.columns)

    def mapping(self, table: Table, options: Options) -> dict[str, str]:
        """Field to column, as chosen and guessed."""
        return self.mapper(options, self.columns(table)).mapping

    def rows(self, table: Table, options: Options) -> Iterator[Converted]:
        """Every record of the file, converted. Raises FormatError where the file breaks off."""
        read = self.mapper(options, self.columns(table))
        for number, record in table.records():
            if isinstance(record, RecordFault):
                yield Converted(number, fault=record)
            else:
                yield from self.convert(number, record, read)


LAYOUTS: dict[str, Layout] = {
    module.KEY: Layout(
        key=module.KEY,
        label=module.LABEL,
        fields=module.FIELDS,
        required=module.REQUIRED,
        fits=module.fits,
        choices=module.choices,
        mapper=module.mapper,
        convert=module.convert,
    )
    for module in (label_studio, argilla, transcripts, preference, completions, pairs)
}


def layout_of(table: Table, key: str = "") -> Layout:
    """The layout named, else the first that fits; plain pairs when none does.

    Plain pairs always can be used: their columns are then chosen by hand. Raises FormatError for
    an unknown name.
    """
    if key:
        if key not in LAYOUTS:
            raise FormatError(f"There is no layout {key!r}; there are {', '.join(LAYOUTS)}.")
        return LAYOUTS[key]
    for layout in LAYOUTS.values():
        if layout.fits(table.columns, table.sample):
            return layout
    return LAYOUTS[pairs.KEY]
