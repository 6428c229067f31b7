"""Whether votes say who cast them: without that, nobody can be held out."""

from dataclasses import dataclass

from django.db.models import Count, Q

from apps.accounts.models import Project
from apps.labeling.models import Slot, Vote

_WORK = (Slot.Kind.REGULAR, Slot.Kind.GOLD)
# What files write for nobody.
NOBODY = ("anonymous", "anon", "unknown", "none", "null", "nobody", "n/a", "-", "?")
LEAST_TO_TELL = 20
MOST_ANONYMOUS = 0.1


@dataclass(frozen=True, slots=True)
class Anonymity:
    """How many votes name nobody, and why people cannot be held out; `reason` is empty if they can.

    share: of the votes that decide. A vote names nobody where the import gave a word such as
    "anonymous" for its annotator, or where every imported vote has an annotator of its own.
    """

    n_votes: int
    n_anonymous: int
    reason: str

    @property
    def share(self) -> float:
        return self.n_anonymous / self.n_votes if self.n_votes else 0.0


def anonymity_of(*, project: Project) -> Anonymity:
    """Whether votes say who cast them, which an evaluation on unseen annotators needs."""
    votes = Vote.objects.filter(project=project, is_current=True, slot__kind__in=_WORK)
    prefix = f"imported.{project.pk}."
    named_nobody = Q()
    for word in NOBODY:
        named_nobody |= Q(annotator__username__iexact=f"{prefix}{word}")
    counted = votes.aggregate(
        n=Count("pk"),
        nobody=Count("pk", filter=Q(annotator__is_imported=True) & named_nobody),
        imported=Count("pk", filter=Q(annotator__is_imported=True)),
        people=Count("annotator", filter=Q(annotator__is_imported=True), distinct=True),
    )
    n, nobody, imported = counted["n"], counted["nobody"], counted["imported"]
    if imported >= LEAST_TO_TELL and counted["people"] == imported:
        return Anonymity(
            n,
            imported,
            f"Every one of the {imported:,} imported votes has an annotator of its own, so nothing "
            "says which votes are one person’s: people cannot be held out.",
        )
    if n and nobody / n > MOST_ANONYMOUS:
        return Anonymity(
            n,
            nobody,
            f"{nobody:,} of {n:,} votes were imported without saying who cast them: people cannot "
            "be held out.",
        )
    return Anonymity(n, nobody, "")
