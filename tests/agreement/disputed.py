"""Projects with comparisons that votes did not settle."""

from apps.accounts.models import Project, User
from apps.labeling import services as labeling
from apps.labeling.models import Comparison, Guideline, LabelingSettings
from tests.labeling.pairs import annotators_make, leased, rows_make


def disputed_make(
    project: Project, n: int = 1, votes: str = "ab", start: int = 1, **settings: object
) -> tuple[list[Comparison], list[User]]:
    """n comparisons on which person k cast the k-th of `votes`: "a", "b", "t" for tie.

    With as many votes as the project takes, and no majority, they are contested.
    """
    rule = {"overlap": len(votes), "max_overlap": len(votes), "least_votes": 2}
    rule |= {"least_agreeing": 2, "least_share": 0.6, "random_share": 1.0} | settings
    LabelingSettings.objects.update_or_create(project=project, defaults=rule)
    labeling.labeling_set_up(project=project)
    labeling.comparisons_import(project=project, rows=rows_make(n, start=start))
    people = annotators_make(project, len(votes))
    choices = {"a": "a", "b": "b", "t": "tie"}
    for person, choice in zip(people, votes, strict=True):
        for _ in range(n):
            cast(project, person, choices[choice])
    names = [f"pair-{number}" for number in range(start, start + n)]
    return list(Comparison.objects.filter(external_id__in=names).order_by("pk")), people


def cast(project: Project, person: User, choice: str) -> labeling.VoteResult:
    lease = leased(project, person)
    return labeling.vote_cast(
        slot=lease.slot,
        annotator=person,
        idempotency_key=lease.key,
        choice=choice,
        lease_next=False,
    )


def newer_guideline(project: Project, by: User, text: str = "A new sentence.") -> Guideline:
    return labeling.guideline_publish(project=project, body=text, by=by)
