"""What the form of a new dataset offers of writing work."""

from dataclasses import dataclass

from apps.accounts.models import Project
from apps.labeling.models import WritingBatch
from apps.labeling.selectors import writing as reads


@dataclass(frozen=True, slots=True)
class WrittenChoice:
    """A kind of texts with the batches that have accepted ones: (id, name, how many)."""

    kind: str
    title: str
    n: int
    batches: list[tuple[str, str, int]]


_TITLES = {
    WritingBatch.Kind.DEMONSTRATIONS: "Written demonstrations",
    WritingBatch.Kind.PROMPTS: "Written prompts",
}


def written_choices(project: Project) -> list[WrittenChoice]:
    """Of what anything is accepted."""
    every = reads.progress_of(reads.batches(project=project))
    found = []
    for kind, title in _TITLES.items():
        batches = [
            (one.batch.pk, one.batch.name, one.counts["accepted"])
            for one in every
            if one.batch.kind == kind and one.counts["accepted"]
        ]
        if batches:
            found.append(WrittenChoice(kind, title, sum(n for _, _, n in batches), batches))
    return found
