"""Rows of datasets as other places have them: prompts, demonstrations, answers with a label.

What they mean is checked where datasets are made (`apps.snapshots.assembling.imported`);
preferences come by the layouts of comparisons.
"""

from collections.abc import Callable, Iterator

from apps.labeling.formats.mapping import Mapper
from apps.labeling.formats.records import Converted, Record

_ABOUT = ("id", "group", "source", "licence", "split", "metadata", "tools")
# By what is made: a row in words, the columns it is made of, and those that must be there.
SORTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "prompts": ("a prompt", ("prompt", "answer", "check"), ("prompt",)),
    "demonstrations": (
        "a prompt and its answer, or a conversation",
        ("messages", "prompt", "response"),
        ("response",),
    ),
    "unpaired": (
        "a prompt, an answer, and whether it is desirable (KTO)",
        ("prompt", "completion", "label"),
        ("completion", "label"),
    ),
    "stepwise": (
        "a prompt, the steps that followed, and whether each is right",
        ("prompt", "completions", "labels", "roles"),
        ("completions", "labels"),
    ),
}


def fields_of(sort: str) -> tuple[str, ...]:
    return (*SORTS[sort][1], *_ABOUT)


OWN = ("category", "split")  # of pairs for a dataset


def of_pairs(fields: tuple[str, ...]) -> tuple[str, ...]:
    """A category first: a column of that name is one, and no topic that splits go by."""
    return ("category", *fields, "split")


def with_own(
    convert: Callable[[int, Record, Mapper], Iterator[Converted]],
) -> Callable[[int, Record, Mapper], Iterator[Converted]]:
    """The same for a dataset, whose rows may name their category and their split."""

    def converted(number: int, record: Record, read: Mapper) -> Iterator[Converted]:
        own = {name: read.value(record, name) for name in OWN}
        known = {name: value for name, value in own.items() if value is not None}
        for made in convert(number, record, read):
            if made.comparison is not None:
                made.comparison.update(known)
            yield made

    return converted


def converter(sort: str) -> Callable[[int, Record, Mapper], Iterator[Converted]]:
    names = (*SORTS[sort][1], "split")

    def convert(number: int, record: Record, read: Mapper) -> Iterator[Converted]:
        said = {name: read.value(record, name) for name in names}
        known = {name: value for name, value in said.items() if value is not None}
        yield Converted(number, read.common(record) | known)

    return convert
