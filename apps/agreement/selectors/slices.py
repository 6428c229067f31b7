"""What is known of a comparison that agreement may depend on: topic, language, lengths, sources."""

from dataclasses import dataclass

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.selectors.votes import selected
from apps.common.columns import int_columns
from apps.labeling.models import Response

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Comparisons of the random stratum that have votes, by id; one entry each in every array.

    group: of what splits go by (the prompt, or a topic or debate where texts recur); answer_a,
    answer_b: of the texts; topic, language, source_a, source_b: keys of `names`; prompt_length,
    length_a, length_b: characters.
    """

    ids: Ints
    group: Ints
    answer_a: Ints
    answer_b: Ints
    topic: Ints
    language: Ints
    source_a: Ints
    source_b: Ints
    prompt_length: Ints
    length_a: Ints
    length_b: Ints
    names: dict[int, str]

    def rows_of(self, ids: Ints) -> Ints:
        """Where these comparisons stand; each must be there."""
        return np.searchsorted(self.ids, ids)


def _length(messages: str) -> str:
    return (
        f"(select coalesce(sum(length(m ->> 'content')), 0)"  # noqa: S608
        f" from jsonb_array_elements({messages}) m)"
    )


def _hash(text: str) -> str:
    """A name as a whole number; two of a project's names alike by chance: one in 10¹²."""
    return f"hashtextextended({text}, 0)"


_SOURCE = "{0}.origin || '/' || {0}.origin_ref"
_COLUMNS = {
    "ids": "c.id",
    "group": _hash("p.group_key"),
    "answer_a": _hash("a.text_hash"),
    "answer_b": _hash("b.text_hash"),
    "topic": _hash("p.topic"),
    "language": _hash("p.language"),
    "source_a": _hash(_SOURCE.format("a")),
    "source_b": _hash(_SOURCE.format("b")),
    "prompt_length": _length("p.messages"),
    "length_a": _length("a.messages"),
    "length_b": _length("b.messages"),
}
_FROM = """
from labeling_comparison c
join labeling_prompt p on p.id = c.prompt_id
join labeling_response a on a.id = c.response_a_id
join labeling_response b on b.id = c.response_b_id
where c.project_id = %(project)s and c.stratum = 'random'
  and exists (select from labeling_vote v where v.comparison_id = c.id and v.is_current)
"""
_NAMES = f"""
select {_hash("topic")}, topic from labeling_prompt where project_id = %(project)s group by topic
union all
select {_hash("language")}, language from labeling_prompt where project_id = %(project)s
group by language
union all
select {_hash(_SOURCE.format("r"))}, {_SOURCE.format("r")} from labeling_response r
join labeling_prompt p on p.id = r.prompt_id where p.project_id = %(project)s
group by r.origin, r.origin_ref
"""  # noqa: S608


def comparisons_read(*, project: Project) -> Comparisons:
    read = int_columns(selected(_COLUMNS.values(), _FROM), {"project": project.pk}, n=len(_COLUMNS))
    order = np.argsort(read[0], kind="stable")
    columns = dict(zip(_COLUMNS, (values[order] for values in read), strict=True))
    with connection.cursor() as cursor:
        cursor.execute(_NAMES, {"project": project.pk})
        names = dict(cursor.fetchall())
    return Comparisons(**columns, names=names)


def source_words(name: str) -> str:
    """A response's source as people say it: the model's or file's name, or where it came from."""
    origin, _, reference = name.partition("/")
    if reference and origin != Response.Origin.EDIT and not reference.startswith("person "):
        return reference
    return str(Response.Origin(origin).label) if origin in Response.Origin.values else origin
