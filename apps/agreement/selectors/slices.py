"""What agreement may depend on: topic, language, lengths, sources, people, prompts."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from django.db import connection
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Window
from django.db.models.functions import Length, RowNumber
from numpy.typing import NDArray

from apps.accounts.models import Project, User
from apps.agreement.selectors.votes import int_columns, newest_vote_id, selected
from apps.labeling.models import MODEL_NAME, Comparison, Response, Vote
from measures.consensus import Votes, votes_from
from measures.voting import CHOICES

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Comparisons of the random stratum that have votes, by id; one entry each in every array.

    group: of what splits go by (the prompt, or a topic or debate where texts recur); answer_a,
    answer_b: of the texts; topic, language, source_a, source_b: keys of `names`; prompt_length,
    length_a, length_b: characters.
    """

    ids: Ints
    prompt: Ints
    group: Ints
    answer_a: Ints
    answer_b: Ints
    topic: Ints
    language: Ints
    source_a: Ints
    source_b: Ints
    model_a: Ints
    model_b: Ints
    prompt_length: Ints
    length_a: Ints
    length_b: Ints
    names: dict[int, str]

    def rows_of(self, ids: Ints) -> Ints:
        """Where these comparisons stand; each must be there."""
        return np.searchsorted(self.ids, ids)


def _length(messages: str) -> str:
    return (
        "(select coalesce(sum(coalesce((m #>> '{cut,length}')::bigint,"  # noqa: S608
        " length(m ->> 'content'))), 0)"
        f" from jsonb_array_elements({messages}) m)"
    )


def _hash(text: str) -> str:
    """A name as a whole number; two of a project's names alike by chance: one in 10¹²."""
    return f"hashtextextended({text}, 0)"


_SOURCE = "{0}.origin || '/' || {0}.origin_ref"
_COLUMNS = {
    "ids": "c.id",
    "prompt": "c.prompt_id",
    "group": _hash("p.group_key"),
    "answer_a": _hash("a.text_hash"),
    "answer_b": _hash("b.text_hash"),
    "topic": _hash("p.topic"),
    "language": _hash("p.language"),
    "source_a": _hash(_SOURCE.format("a")),
    "source_b": _hash(_SOURCE.format("b")),
    "model_a": _hash(MODEL_NAME.format("a")),
    "model_b": _hash(MODEL_NAME.format("b")),
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
union
select distinct {_hash(MODEL_NAME.format("r"))}, {MODEL_NAME.format("r")} from labeling_response r
join labeling_prompt p on p.id = r.prompt_id where p.project_id = %(project)s
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


# People of the matrix, and the comparisons on which two of them chose differently.

MOST_FOUND = 20


def voters(*, project: Project) -> QuerySet[User]:
    """Everybody who has a current vote in the project."""
    theirs = Vote.objects.filter(project=project, annotator=OuterRef("pk"), is_current=True)
    return User.objects.filter(Exists(theirs))


def people_known(*, project: Project, people: Collection[int]) -> dict[int, User]:
    """Those of these people who have voted in the project."""
    return voters(project=project).in_bulk(list(people))


def people_found(
    *, project: Project, search: str, without: Collection[int], with_names: bool
) -> list[User]:
    """Some voters who fit a search, to be added; without names only numbers can be searched."""
    number = search.removeprefix("Annotator").removeprefix("annotator").strip()
    wanted = Q(pk=int(number)) if number.isdecimal() and len(number) < 10 else Q(pk__in=[])
    if with_names:
        wanted |= Q(display_name__icontains=search) | Q(username__icontains=search)
    found = voters(project=project).filter(wanted).exclude(pk__in=without)
    return list(found.order_by("username")[:MOST_FOUND])


def votes_of_two(
    *, comparisons: Sequence[int], first: int, second: int
) -> list[tuple[Comparison, Vote, Vote]]:
    """Each comparison with the two people's votes, in the order given."""
    found = Comparison.objects.filter(pk__in=comparisons).select_related(
        "prompt", "response_a", "response_b"
    )
    by_key = {comparison.pk: comparison for comparison in found}
    cast: dict[tuple[int, int], Vote] = {}
    votes = Vote.objects.filter(
        comparison__in=comparisons,
        annotator__in=(first, second),
        is_current=True,
        slot__kind__in=("regular", "former"),
    )
    for vote in votes.order_by("id"):
        cast.setdefault((vote.comparison_id, vote.annotator_id), vote)
    return [
        (by_key[key], cast[key, first], cast[key, second])
        for key in comparisons
        if key in by_key and (key, first) in cast and (key, second) in cast
    ]


# The votes that decide, as arrays for the models of the voters.

# Order of `CHOICES`. Gold pairs are voted on like others, and tell who is right how often.
_CODE = " ".join(f"when '{choice}' then {code}" for code, choice in enumerate(CHOICES))
_VOTES = f"""
select v.comparison_id, v.annotator_id::bigint, (case v.choice {_CODE} end)::bigint
from labeling_vote v
where v.project_id = %(project)s and v.is_current and not exists (
  select from labeling_slot s where s.id = v.slot_id and s.project_id = %(project)s
    and s.kind in ('repeat', 'audit', 'former', 'discard'))
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Crowd:
    """`votes` number comparisons and people by their places in `ids` and `people`, both ascending.

    golds: (n_items,) index into `CHOICES` of the known answer, −1 without one.
    """

    votes: Votes
    ids: NDArray[np.int64]
    people: NDArray[np.int64]
    golds: NDArray[np.int64]
    last_vote_id: int


def crowd_of(*, project: Project) -> Crowd:
    """Every current vote that counts for a decision: regular and gold slots, all strata."""
    # Asked first: a vote cast while the others are read counts as newer, and is read next time.
    newest = newest_vote_id(project=project)
    comparison, person, choice = int_columns(_VOTES, {"project": project.pk}, n=3)
    ids, items = np.unique(comparison, return_inverse=True)
    people, annotators = np.unique(person, return_inverse=True)
    votes = votes_from(
        items,
        annotators,
        choice,
        n_items=len(ids),
        n_annotators=len(people),
    )
    return Crowd(votes, ids, people, golds_of(project, ids), newest)


def golds_of(project: Project, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of these comparisons, ascending: index of the known answer in `CHOICES`, −1 without one."""
    places = {str(choice): place for place, choice in enumerate(CHOICES)}
    golds = np.full(len(ids), -1, dtype=np.int64)
    known = Comparison.objects.filter(project=project).exclude(gold="").values_list("pk", "gold")
    pks, words = zip(*known, strict=True) if known else ((), ())
    keys = np.array(pks, dtype=np.int64)
    place = np.searchsorted(ids, keys)
    here = place < len(ids)
    here[here] = ids[place[here]] == keys[here]
    golds[place[here]] = np.array([places[word] for word in words], dtype=np.int64)[here]
    return golds


# What annotators wrote about prompts: the reasons and texts beside their votes.

MOST_WORDS = 4  # of one prompt; the longest texts say most


def words_about(*, project: Project, prompts: Collection[int]) -> dict[int, list[Vote]]:
    """Current votes with a text, a reason or a flag, by prompt; no word of who cast them."""
    said = (
        Vote.objects.filter(project=project, comparison__prompt__in=prompts, is_current=True)
        .filter(~Q(rationale="") | ~Q(reasons=[]) | ~Q(flags=[]))
        .annotate(prompt=F("comparison__prompt_id"))
        .annotate(
            place=Window(
                RowNumber(), partition_by="prompt", order_by=[Length("rationale").desc(), "-id"]
            )
        )
        .filter(place__lte=MOST_WORDS)
        .order_by("prompt", "place")
    )
    found: dict[int, list[Vote]] = defaultdict(list)
    for vote in said:
        found[vote.prompt].append(vote)
    return dict(found)
