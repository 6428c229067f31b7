"""What a new snapshot is assembled from, read from the votes and rulings as they are now."""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.accounts.models import Project, User
from apps.agreement.models import Ruling
from apps.labeling.models import Comparison, Decision, Prompt, Response, Slot, Vote
from apps.snapshots.assembling.gate import RulingFacts, VoteFacts
from apps.snapshots.assembling.material import CurrentVote, Judgement, Material, Pair, person_key
from apps.snapshots.assembling.rows import argument_text, prompt_text, text_key
from apps.snapshots.recipe import JOIN, SnapshotRecipe
from apps.snapshots.selectors.snapshots import barred_by, parts
from measures.messages import said_length

_BATCH = 5_000
# Hidden repeats would count a person twice; audit re-votes check a decision and do not make it; the
# votes of an earlier round were replaced by those after it.
DECIDING_SLOTS = (Slot.Kind.REGULAR, Slot.Kind.GOLD)
_UNSAFE = "unsafe"
_RULED = (Ruling.Action.ADJUDICATED, Ruling.Action.MADE_GOLD)


def material_of(*, project: Project, recipe: SnapshotRecipe) -> Material:
    """Every comparison and current vote of the project, in order of id."""
    texts = _Texts(project, kept=recipe.near_duplicates == JOIN)
    rulings = rulings_of(project=project)
    rows = (
        Comparison.objects.filter(project=project)
        .order_by("pk")
        .values_list(
            *("pk", "prompt_id", "prompt__group_key", "prompt__topic", "batch", "stratum", "state"),
            *("review_reason", "response_a_id", "response_b_id", "decision__outcome", "gold"),
            *("slice", "inclusion_probability"),
        )
    )
    pairs = []
    for row in rows.iterator(_BATCH):
        pk, prompt, group, topic, batch, stratum, state, why, a, b, outcome, gold, *drawn = row
        pairs.append(
            Pair(
                pk,
                group,
                topic,
                batch,
                stratum,
                dropped=state == Comparison.State.DROPPED or outcome == Decision.Outcome.DROPPED,
                a=texts.answer[a],
                b=texts.answer[b],
                prompt=texts.prompt[prompt],
                length_a=texts.length[a],
                length_b=texts.length[b],
                review=_review(state, outcome, why),
                ruling=rulings.get(pk),
                gold=gold,
                slice=drawn[0],
                inclusion_probability=drawn[1],
            )
        )
    barred = barred_by(project=project, recipe=recipe)
    simulated = Vote.objects.filter(project=project, source=Vote.Source.SIMULATED)
    return Material(
        tuple(pairs),
        _current_votes(project),
        barred,
        texts.texts,
        frozenset(simulated.values_list("pk", flat=True)),
    )


def _review(state: str, outcome: str | None, why: str) -> str:
    """Why a person must look at it first; "" when nobody must, or somebody has ruled."""
    if outcome == Decision.Outcome.ADJUDICATED:
        return ""
    waits = state == Comparison.State.REVIEW or outcome == Decision.Outcome.NEEDS_REVIEW
    return (why or "It waits for review.") if waits else ""


def rulings_of(*, project: Project, pairs: Iterable[int] | None = None) -> dict[int, Judgement]:
    """What was ruled on each adjudicated comparison, with who ruled and when where that is known.

    pairs: only of these; None for all of the project.
    """
    decided = Decision.objects.filter(
        project=project, outcome=Decision.Outcome.ADJUDICATED
    ).exclude(winner="")
    if pairs is not None:
        decided = decided.filter(comparison__in=list(pairs))
    found = {pk: (winner, why) for pk, winner, why in decided.values_list("pk", "winner", "reason")}
    newest: dict[int, Any] = {}
    rows = Ruling.objects.filter(project=project, comparison__in=found, action__in=_RULED)
    for ruling in rows.select_related("by").order_by("at", "pk"):
        newest[ruling.comparison_id] = ruling
    return {pk: _judgement(*said, newest.get(pk)) for pk, said in found.items()}


def _judgement(winner: str, why: str, ruling: Ruling | None) -> Judgement:
    if ruling is None:
        return Judgement(winner, why)
    by = ruling.by
    return Judgement(
        winner,
        why or ruling.note,
        person=by.pk if by else None,
        person_key=person_key(by.pk, by.username, by.is_imported) if by else "",
        at=ruling.at,
    )


class _Texts:
    """Keys of prompts and answers by id, lengths of answers, and the texts where they are kept."""

    def __init__(self, project: Project, *, kept: bool) -> None:
        self.texts: dict[str, str] = {}
        self.prompt: dict[int, str] = {}
        self.answer: dict[int, str] = {}
        self.length: dict[int, int] = {}
        asked: Mapping[int, Any] = dict(
            Prompt.objects.filter(project=project).values_list("pk", "brief")
        )
        for pk, messages in asked.items():
            self.prompt[pk] = self._keep(prompt_text(messages), kept)
        rows = Response.objects.filter(prompt__project=project).values_list(
            "pk", "prompt_id", "brief"
        )
        for pk, of, said in rows.iterator(_BATCH):
            self.answer[pk] = self._keep(argument_text(asked[of], said), kept)
            self.length[pk] = sum(map(said_length, said))

    def _keep(self, text: str, kept: bool) -> str:
        key = text_key(text)
        if kept:
            self.texts[key] = text
        return key


def _current_votes(project: Project) -> tuple[CurrentVote, ...]:
    cast = Vote.objects.filter(project=project, is_current=True, slot__kind__in=DECIDING_SLOTS)
    people = _person_keys(cast.order_by().values("annotator"))
    flagged = set(cast.filter(flags__contains=[_UNSAFE]).values_list("pk", flat=True))
    rows = cast.order_by("pk").values_list(
        "pk", "comparison_id", "annotator_id", "choice", "cast_at", "strength"
    )
    return tuple(
        CurrentVote(pk, pair, person, people[person], choice, at, strength, pk in flagged)
        for pk, pair, person, choice, at, strength in rows.iterator(_BATCH)
    )


def _person_keys(people: Any) -> dict[int, str]:
    rows = User.objects.filter(pk__in=people).values_list("pk", "username", "is_imported")
    return {pk: person_key(pk, name, imported) for pk, name, imported in rows}


# --- for the gate, read again ---------------------------------------------------------------------


def vote_facts(votes: Iterable[int]) -> dict[int, VoteFacts]:
    facts: dict[int, VoteFacts] = {}
    for part in parts(votes):
        rows = Vote.objects.filter(pk__in=part, slot__kind__in=DECIDING_SLOTS).values_list(
            *("pk", "comparison_id", "annotator_id"),
            *("annotator__username", "annotator__is_imported"),
        )
        for pk, pair, person, name, imported in rows:
            facts[pk] = VoteFacts(pair, person, person_key(person, name, imported))
    return facts


def ruling_facts(project: Project, pairs: Iterable[int]) -> dict[int, RulingFacts]:
    found: dict[int, RulingFacts] = {}
    for part in parts(pairs):
        for pk, ruling in rulings_of(project=project, pairs=part).items():
            found[pk] = RulingFacts(ruling.choice, ruling.person, ruling.person_key)
    return found
