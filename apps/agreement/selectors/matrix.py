"""People of the matrix, and the comparisons on which two of them chose differently."""

from collections.abc import Collection, Sequence

from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Vote

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
