"""A crowd whose votes are known by construction.

Twelve debates of four arguments each; every argument of a debate meets every other (six pairs), so
a debate is one connected component. Twenty people vote, five on each pair, always for the longer
argument, but for the planted exceptions.
"""

import datetime as dt
import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from apps.accounts.models import Project, User
from apps.labeling.models import Answer, Comparison, Prompt, Response, Slot, Vote
from apps.labeling.texts import fingerprint
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import private_folder_of, read_rows
from tests.database import Rows, rows_read, rows_write

CAST_AT = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
N_DEBATES, N_ARGUMENTS, N_PEOPLE, N_VOTES = 12, 4, 20, 5
WORDS = "one says that this matters more than it seems because of what follows from it later on and"


def argument(debate: int, number: int) -> str:
    """Longer with its number; long enough to be recognised wherever it stands, and in an order of
    words that no other argument shares."""
    words = random.Random(100 * debate + number).choices(WORDS.split(), k=18 * (number + 2))
    return f"debate {debate} argument {number}: " + " ".join(words)


_people: Rows | None = None
_made: dict[tuple[int, int, float], tuple[str, int, list[Rows]]] = {}


def crowd_make(
    project: Project, *, debates: int = N_DEBATES, start: int = 0, longer: float = 1.0
) -> list[Comparison]:
    """Comparisons with their votes: the longer argument wins 5 to 0 everywhere, or each vote with
    the probability `longer`. Made once in a process; later tests get the same rows, in their own
    project."""
    people, key = people_make(), (debates, start, longer)
    made_in, first, tables = _made.get(key, ("", 0, []))
    if not tables or Comparison.objects.filter(pk=first).exists():  # of another project here
        comparisons = _crowd_built(project, people, debates, start, longer)
        asked = Prompt.objects.filter(pk__in={one.prompt_id for one in comparisons})
        pairs = Comparison.objects.filter(pk__in=[one.pk for one in comparisons])
        read = (
            asked,
            Response.objects.filter(prompt__in=asked),
            pairs,
            Slot.objects.filter(task__in=pairs),
            Answer.objects.filter(slot__task__in=pairs),
        )
        if not tables:
            first = comparisons[0].pk
            _made[key] = project.pk, first, [rows_read(table) for table in read]
        return comparisons
    for rows in tables:
        rows_write(rows._replace(text=rows.text.replace(made_in, project.pk)))
    found = Comparison.objects.filter(project=project, pk__gte=first).order_by("pk")
    return list(found.select_related("prompt", "response_a", "response_b", "project"))


def _crowd_built(
    project: Project, people: list[User], debates: int, start: int, longer: float
) -> list[Comparison]:
    prompts = Prompt.objects.bulk_create(_prompt(project, n) for n in range(start, start + debates))
    responses = Response.objects.bulk_create(
        _response(prompt, start + k, number)
        for k, prompt in enumerate(prompts)
        for number in range(N_ARGUMENTS)
    )
    comparisons = Comparison.objects.bulk_create(
        Comparison(
            project=project, prompt=prompt, response_a=a, response_b=b, n_votes=N_VOTES, overlap=5
        )
        for k, prompt in enumerate(prompts)
        for a, b in combinations(responses[k * N_ARGUMENTS : (k + 1) * N_ARGUMENTS], 2)
    )
    slots = Slot.objects.bulk_create(
        Slot(
            project=project,
            task=comparison,
            position=k + 1,
            state="done",
            annotator=people[(row * 7 + k * 3) % N_PEOPLE],
        )
        for row, comparison in enumerate(comparisons)
        for k in range(N_VOTES)
    )
    rng = random.Random(0)
    Vote.objects.bulk_create(_vote(slot, "b" if rng.random() < longer else "a") for slot in slots)
    return comparisons


def people_make() -> list[User]:
    global _people
    found = User.objects.filter(username__startswith="crowd-").order_by("username")
    if not found.exists():
        if _people is None:
            names = [f"crowd-{n:02}" for n in range(N_PEOPLE)]
            User.objects.bulk_create(
                User(username=n, is_imported=True, is_active=False, password="!") for n in names
            )
            _people = rows_read(found)
        else:
            rows_write(_people)
    return list(found.all())


def _prompt(project: Project, debate: int) -> Prompt:
    asked = [{"role": "user", "content": f"Argue for the side of debate {debate}."}]
    return Prompt(
        project=project,
        messages=asked,
        text_hash=fingerprint(asked),
        group_key=f"debate-{debate:02}",
        topic=f"debate-{debate:02}_yes",
        source="a test",
        licence="CC-BY-4.0",
    )


def _response(prompt: Prompt, debate: int, number: int) -> Response:
    said = [{"role": "assistant", "content": argument(debate, number)}]
    return Response(prompt=prompt, messages=said, text_hash=fingerprint(said))


def _vote(slot: Slot, choice: str) -> Vote:
    """Past the services: their rules are tested where they live."""
    comparison = slot.task
    return Vote(
        project=slot.project,
        comparison=comparison,
        slot=slot,
        annotator=slot.annotator,
        choice=choice,
        chosen={"a": comparison.response_a, "b": comparison.response_b}.get(choice),
        idempotency_key=f"{slot.pk}",
        source="import",
        cast_at=CAST_AT,
    )


def revote(comparison: Comparison, choices: list[str], **more: Any) -> None:
    """Replace the comparison's votes by revisions with these choices, in order of id. more: what
    else each of them says, such as a strength."""
    for vote, choice in zip(
        Vote.objects.filter(comparison=comparison, is_current=True).order_by("pk"),
        choices,
        strict=True,
    ):
        Vote.objects.filter(pk=vote.pk).update(is_current=False)
        chosen = {"a": comparison.response_a, "b": comparison.response_b}.get(choice)
        Vote.objects.create(
            project=vote.project,
            comparison=comparison,
            slot=vote.slot,
            annotator=vote.annotator,
            choice=choice,
            chosen=chosen,
            idempotency_key=f"{vote.slot_id}-r",
            source="import",
            revision=2,
            supersedes=vote,
            **{"cast_at": vote.cast_at} | more,
        )


@pytest.fixture
def crowd(project: Project) -> list[Comparison]:
    return crowd_make(project)


@pytest.fixture
def votes_of() -> Callable[[Comparison], dict[int, User]]:
    def read(comparison: Comparison) -> dict[int, User]:
        current = Vote.objects.filter(comparison=comparison, is_current=True)
        ordered = current.select_related("annotator").order_by("pk")
        return {vote.pk: vote.annotator for vote in ordered}

    return read


@pytest.fixture
def private_folder() -> Callable[[Snapshot], Path]:
    return lambda snapshot: Path(settings.ARTIFACTS_URL) / private_folder_of(snapshot.pk)


@pytest.fixture
def lines_of(private_folder: Callable[[Snapshot], Path]) -> Callable[..., dict[str, list[dict]]]:
    """Rows by split as they lie on the disk, of the public tree or the private one."""

    def read(snapshot: Snapshot, *, private: bool = False) -> dict[str, list[dict]]:
        public = Path(settings.ARTIFACTS_URL) / snapshot.uri
        folder = private_folder(snapshot) if private else public
        return {path.stem: list(read_rows(path)) for path in sorted(folder.glob("*.jsonl"))}

    return read
