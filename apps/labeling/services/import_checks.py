"""What is odd about a row that can be imported all the same: found, named, and never in the way.

Only a constraint phrase has a consequence: its pair goes to human review instead of the queue."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from apps.labeling.blindness import self_naming
from apps.labeling.models import Response
from apps.labeling.personal_data import personal_data
from apps.labeling.services.images import BadImage, RowImages
from apps.labeling.services.loading import BadField, ComparisonRow, row_from
from apps.labeling.services.results import RowProblem
from apps.labeling.texts import loose_key, loosely_equal
from measures.messages import Messages, plain
from measures.phrases import Phrases

# What is odd about a row that can be imported, by kind.
WARNINGS = {
    "duplicate": "the same pair as another row",
    "identical": "two answers that read alike",
    "model_name": "an answer that names its model",
    "personal": "what looks like personal data or a secret",
    "phrase": "a blocked phrase: the pair is held for review",
    "group": "one prompt in two groups, which splits would tear apart",
}


_MODEL = Response.Origin.MODEL.value


@dataclass(frozen=True, slots=True)
class Scans:
    """What texts are looked through for; each can be left out where it was done before."""

    model_names: bool = True
    personal: bool = True
    phrases: Phrases = field(default_factory=lambda: Phrases(()))


class RowScanner:
    """What is odd about a row that can be imported; texts that recur are looked through once."""

    def __init__(self, scans: Scans, identical_answers: str) -> None:
        self.scans, self.identical_answers = scans, identical_answers
        self._prompts: dict[str, str] = {}  # prompt hash → group of the last row with it
        self._group_of: dict[str, tuple[str, int]] = {}  # loose key → (group, row)

    def at(self, row: ComparisonRow) -> list[RowProblem]:
        """Warnings; raises BadField where two identical answers may not be compared."""
        found = []
        if same := _identical(row, self.identical_answers):
            found.append(RowProblem(row.row, "response_b", same, "identical"))
        for name, answer in (("response_a", row.a), ("response_b", row.b)):
            text = plain(answer.messages)
            model = answer.origin_ref if answer.origin == _MODEL else ""
            if self.scans.model_names and (words := self_naming(text, model)):
                message = f"names its model: “{words[:80]}”"
                found.append(RowProblem(row.row, name, message, "model_name"))
            if self.scans.personal:
                found += [
                    RowProblem(row.row, name, p.words, "personal") for p in personal_data(text)
                ]
        return found + self._at_prompt(row)

    def _at_prompt(self, row: ComparisonRow) -> list[RowProblem]:
        known = self._prompts.get(row.prompt_hash)
        if known == row.group:
            return []
        found = []
        if known is None and self.scans.personal:
            found = [
                RowProblem(row.row, "prompt", p.words, "personal")
                for p in personal_data(plain(row.prompt))
            ]
        self._prompts[row.prompt_hash] = row.group
        key = row.group if row.has_own_group else loose_key(row.prompt)
        group, first = self._group_of.setdefault(key, (row.group, row.row))
        if group != row.group:
            message = (
                f"is {row.group!r}, but the same prompt is in {group!r} in row {first}: "
                "splits would tear it apart"
            )
            found.append(RowProblem(row.row, "group", message, "group"))
        return found

    def review_reason(self, row: ComparisonRow) -> tuple[str, str] | None:
        """(field, words) where an answer holds a constraint phrase."""
        for side, answer in (("a", row.a), ("b", row.b)):
            if found := self.scans.phrases.first_in(plain(answer.messages)):
                words = f"Answer {side.upper()} contains the blocked phrase “{found.phrase}”"
                if found.words.casefold() != found.phrase.casefold():
                    words += f" (as “{found.words[:60]}”)"
                return f"response_{side}", words
        return None


def _identical(row: ComparisonRow, identical_answers: str) -> str:
    """A warning about two answers that read the same; raises where they may not be compared."""
    if row.a.text_hash == row.b.text_hash:
        same_source = (row.a.origin, row.a.origin_ref) == (row.b.origin, row.b.origin_ref)
        if identical_answers == "refuse" or same_source:
            raise BadField("response_b", "is the same text as response_a")
        return "is the same text as response_a, from another origin"
    if loosely_equal(row.a.messages, row.b.messages):
        return "differs from response_a only in case or blanks"
    return ""


SIDES = ("prompt", "response_a", "response_b")


def with_images(given: Any, images: RowImages, names: Sequence[str] = SIDES) -> Any:
    """The row with the images that its texts bring along taken. Raises BadField."""
    if not isinstance(given, Mapping):
        return given
    changed = dict(given)
    for name in names:
        try:
            changed[name] = images.content(given.get(name))
        except BadImage as error:
            raise BadField(name, f"an image {error.message}") from None
    return changed


def images_check(images: RowImages, **texts: Messages) -> None:
    """That the project has the images that the named texts show. Raises BadField."""
    for name, messages in texts.items():
        if unknown := next(images.unknown(messages), None):
            raise BadField(name, f"names an image that this project does not have: {unknown[:12]}…")


# All rows of an import, checked: the good ones, and what is wrong or odd about each.

_TELL_EVERY = 500  # rows between two calls of `progress`


def rows_read(
    rows: Iterable[Any],
    *,
    max_overlap: int,
    identical_answers: str = "refuse",
    scans: Scans | None = None,
    numbers: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
    images: RowImages | None = None,
) -> tuple[list[ComparisonRow], list[RowProblem], list[RowProblem], int]:
    """(good rows, problems, warnings, number of rows read).

    numbers: what each row is called in problems, where that is not its place; progress is told how
    many rows have been read, every few hundred.
    """
    good: list[ComparisonRow] = []
    problems: list[RowProblem] = []
    warnings: list[RowProblem] = []
    look = RowScanner(scans or Scans(), identical_answers)
    ids: dict[str, int] = {}
    n = 0
    for n, given in enumerate(rows, start=1):
        number = numbers[n - 1] if numbers else n
        if progress and n % _TELL_EVERY == 0:
            progress(n)
        try:
            if images is not None:
                given = with_images(given, images)
            row = row_from(number, given, max_overlap)
            if images is not None:
                images_check(
                    images,
                    prompt=row.prompt,
                    response_a=row.a.messages,
                    response_b=row.b.messages,
                )
            if row.external_id:
                first = ids.setdefault(row.external_id, n)
                if first != n:
                    first = numbers[first - 1] if numbers else first
                    raise BadField("id", f"{row.external_id!r} is the id of row {first} too")
            warnings += look.at(row)
        except BadField as error:
            problems.append(RowProblem(number, error.name, error.message))
            continue
        if reason := look.review_reason(row):
            warnings.append(RowProblem(number, reason[0], reason[1], "phrase"))
            row = replace(row, review_reason=reason[1])
        good.append(row)
    return good, problems, warnings, n
