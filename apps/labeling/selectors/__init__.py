"""Reads of labeling: an annotator's own work, and what readers see of comparisons."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.cache import cache
from django.db import connection
from django.db.models import Count, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.template.loader import render_to_string
from django.utils import timezone

from apps.accounts.models import Membership, Project, User
from apps.common.errors import Missing
from apps.common.kept import kept_while_worth
from apps.labeling.models import (
    CLOSED_IDS,
    PAIRED,
    Annotator,
    Answer,
    Choice,
    Comparison,
    Decision,
    Guideline,
    LabelingSettings,
    Prompt,
    Response,
    RunAnswer,
    Skip,
    Slot,
    StoredImage,
    Task,
    ToolResult,
    Vote,
)
from measures.messages import Message, Messages, with_results

REMAINING_CAP = 1_000  # counting further would cost more than the number is worth
_REMAINING_SECONDS = 60


@dataclass(frozen=True, slots=True)
class AnsweredPair:
    """A pair an annotator has answered, on the sides it was shown: theirs to look at and change."""

    vote: Answer
    prompt: Messages
    left: Messages
    right: Messages

    @property
    def side(self) -> str:
        """left, right, tie or both_bad."""
        if self.vote.choice in (Choice.TIE, Choice.BOTH_BAD):
            return str(self.vote.choice)
        # an imported vote may not know which stood left: then A is shown there
        return "left" if self.vote.choice == (self.vote.left_is or Choice.A) else "right"


def settings_get(*, project: Project) -> LabelingSettings:
    """The project's labeling settings; the defaults where it has none."""
    return LabelingSettings.objects.filter(project=project).first() or LabelingSettings(
        project=project
    )


# Texts to begin guidelines with, in templates/labeling/guidelines/.
GUIDELINE_TEMPLATES = {
    "helpfulness": "Helpfulness",
    "harmlessness": "Harmlessness",
    "factual": "Factual accuracy",
    "code": "Code",
    "style": "Style",
}


def guideline_template(name: str) -> str:
    """The text of one; empty for a name that there is not."""
    if name not in GUIDELINE_TEMPLATES:
        return ""
    return render_to_string(f"labeling/guidelines/{name}.md")


def guideline_current(*, project: Project) -> Guideline | None:
    return Guideline.objects.filter(project=project).order_by("-version").first()


def guidelines_list(*, project: Project) -> QuerySet[Guideline]:
    return (
        Guideline.objects.filter(project=project).select_related("created_by").order_by("-version")
    )


def consent_of(*, project: Project, user: User) -> dict[str, Any]:
    """What answers are used for, and which version of it this person has agreed to."""
    settings = settings_get(project=project)
    mine = Annotator.objects.filter(project=project, user=user).first()
    return {
        "version": settings.data_statement_version,
        "statement": settings.data_statement,
        "consented_version": mine.consent_version if mine else 0,
    }


def pool_of(*, project: Project, voters: Collection[int]) -> dict[str, Any]:
    """Who these people are as far as a dataset may say: how many, by what they agreed to."""
    settings = settings_get(project=project)
    agreed = Annotator.objects.filter(
        project=project, user__in=voters, consent_version__gt=0, user__is_imported=False
    )
    return {
        "people": len(voters),
        "imported": User.objects.filter(pk__in=voters, is_imported=True).count(),
        "agreed": agreed.filter(consent_version=settings.data_statement_version).count(),
        "agreed_before": agreed.exclude(consent_version=settings.data_statement_version).count(),
        "statement": settings.data_statement,
        "statement_version": settings.data_statement_version,
        "remarks_licence": settings.remarks_licence,
    }


def guideline_read(*, project: Project, user: User) -> Guideline | None:
    """The version this person has acknowledged last; None when they have acknowledged none."""
    return Guideline.objects.filter(
        project=project,
        version__in=Annotator.objects.filter(project=project, user=user).values(
            "acknowledged_version"
        ),
    ).first()


def annotator_of(*, project: Project, user: User) -> Annotator:
    """The person's row, unsaved where there is none yet."""
    mine = Annotator.objects.filter(project=project, user=user).first()
    return mine or Annotator(project=project, user=user)


# --- an annotator's own work ---------------------------------------------------------------------


def remaining_for(*, project: Project, annotator: User, n_today: int) -> int:
    """How many pairs this annotator could still get, up to REMAINING_CAP; of an evaluation no more
    than one person may answer.

    Counted at most once a minute; in between, what the annotator has answered since is taken off.
    """
    key = f"labeling:remaining:{project.pk}:{annotator.pk}"
    known = cache.get(key)
    if known is None or known[1] > n_today:  # the second: a new day has begun
        with connection.cursor() as cursor:
            cursor.execute(
                _REMAINING,
                {"project": project.pk, "annotator": annotator.pk, "cap": REMAINING_CAP},
            )
            known = (int(cursor.fetchone()[0]), n_today)
        cache.set(key, known, _REMAINING_SECONDS)
    counted, then = known
    if counted >= REMAINING_CAP:  # that or more: nothing to take off from
        return REMAINING_CAP
    return max(0, counted - (n_today - then))


# Free pairs that are new to the person, once each. In the order of the index of free slots, so that
# reading ends with the last pair counted.
_FREE = """
  select distinct s.shuffle, s.task_id from labeling_slot s
  left join labeling_annotator w on w.project_id = s.project_id and w.user_id = %(annotator)s
  left join labeling_labelingsettings l on l.project_id = s.project_id
  where s.project_id = %(project)s and s.state = 'free' and s.kind in ('regular', 'gold')
    and (coalesce(cardinality(w.topics), 0) = 0 or s.topic = any(w.topics))
    and (coalesce(cardinality(w.languages), 0) = 0 or s.language = any(w.languages))
    and s.topic <> all(coalesce(w.avoids_topics, '{}'))
    and (closed.ids is null or not s.task_id <@ closed.ids)
    and not (coalesce(w.avoids_sensitive, false)
             and (s.topic = any(l.sensitive_topics)
                  or exists (select from labeling_task c
                             where c.id = s.task_id and c.warning <> '')))
    and not exists (select from labeling_slot mine
                    where mine.task_id = s.task_id
                      and mine.annotator_id = %(annotator)s and mine.kind <> 'former')
    and not exists (select from labeling_skip k
                    where k.task_id = s.task_id and k.annotator_id = %(annotator)s)
    and MORE
  order by s.shuffle, s.task_id limit %(cap)s"""

# Pairs outside evaluations, and of each open evaluation no more than the person may still answer.
_REMAINING = """
select least(%(cap)s, others.n + evaluations.n)
from (select CLOSED_IDS as ids) closed
cross join (select range_agg(int8range(first_task, last_task, '[]')) as ids
            from labeling_evaluationset where project_id = %(project)s and is_open) measured
cross join lateral (select count(*) as n from (FREE_OTHERS) pairs) others
cross join lateral (
  select coalesce(sum(least(e.most_each - given.n, pairs.n)), 0) as n
  from labeling_evaluationset e
  cross join lateral (select count(*) as n from labeling_slot mine
                      where mine.task_id between e.first_task and e.last_task
                        and mine.annotator_id = %(annotator)s
                        and mine.state in ('leased', 'done')) given
  cross join lateral (select count(*) as n from (FREE_OF_ONE) found) pairs
  where e.project_id = %(project)s and e.is_open and given.n < e.most_each) evaluations
"""
_REMAINING = (
    _REMAINING.replace("CLOSED_IDS", CLOSED_IDS.format(project="%(project)s", user="%(annotator)s"))
    .replace(
        "FREE_OTHERS",
        _FREE.replace("MORE", "(measured.ids is null or not s.task_id <@ measured.ids)"),
    )
    .replace("FREE_OF_ONE", _FREE.replace("MORE", "s.task_id between e.first_task and e.last_task"))
)


def answers_count(*, project: Project, annotator: User) -> int:
    """The answers a person has given here that stand; imported ones were not given here."""
    mine = Vote.objects.filter(project=project, annotator=annotator, is_current=True)
    return mine.exclude(source=Vote.Source.IMPORT).count()


def answers_of(
    *, project: Project, annotator: User, choice: str = "", search: str = ""
) -> QuerySet[Answer]:
    """The annotator's current answers to pairs, blind ones too, newest first; `choice` is canonical
    or left / right."""
    answers = (
        _own(project, annotator).select_related("slot", *_SHOWN_OF_PAIR).order_by("-cast_at", "-id")
    )
    if choice in ("left", "right"):
        same = Q(choice="a", left_is="a") | Q(choice="b", left_is="b")
        answers = answers.filter(choice__in=("a", "b"))
        answers = answers.filter(same) if choice == "left" else answers.exclude(same)
    elif choice:
        answers = answers.filter(choice=choice)
    if search:
        answers = answers.filter(task__prompt__brief__icontains=search)
    return answers


_SHOWN_OF_PAIR = ("task__prompt", "task__response_a", "task__response_b")


def _own(project: Project, annotator: User) -> QuerySet[Answer]:
    return Answer.objects.filter(
        project=project, annotator=annotator, is_current=True, kind__in=PAIRED
    )


def answers_today(*, project: Project, annotator: User) -> int:
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    return Answer.objects.filter(
        project=project,
        annotator=annotator,
        kind__in=PAIRED,
        revision=1,
        cast_at__gte=midnight,
    ).count()


# Answers on these slots are not changed any more: of an earlier round, or discarded.
CLOSED = (Slot.Kind.FORMER, Slot.Kind.DISCARD)


def undo_query(*, project: Project, annotator: User) -> str:
    """What the label page is asked for to take back the last answer or skip, whichever is newer:
    `answer=ID` of the vote or `unskip=ID` of the comparison; empty before there was any."""
    answer = (
        _own(project, annotator)
        .exclude(source=Vote.Source.IMPORT)
        .exclude(slot__kind__in=CLOSED)  # what counts no more stays as it is
        .order_by("-cast_at", "-id")
        .values_list("cast_at", "id")
        .first()
    )
    skip = (
        Skip.objects.filter(project=project, annotator=annotator)
        .order_by("-at", "-id")
        .values_list("at", "task")
        .first()
    )
    if skip and (answer is None or skip[0] > answer[0]):
        return f"unskip={skip[1]}"
    return f"answer={answer[1]}" if answer else ""


def answered_pair(*, project: Project, annotator: User, vote: int) -> AnsweredPair:
    """One current answer of this annotator. `Missing` when it is not theirs or not current, or its
    pair was sent to re-annotation since."""
    found = (
        _own(project, annotator)
        .filter(pk=vote)
        .exclude(slot__kind__in=CLOSED)
        .select_related(*_SHOWN_OF_PAIR)
        .first()
    )
    if found is None:
        raise Missing(
            "There is no such answer of yours, or it has been changed since, or its pair was sent "
            "to re-annotation."
        )
    return as_answered(found)


def as_answered(vote: Answer) -> AnsweredPair:
    task = vote.task
    if task.response_a is None or task.response_b is None:
        raise ValueError("not an answer to a pair")
    a, b = task.response_a.brief, task.response_b.brief
    left, right = (b, a) if vote.left_is == "b" else (a, b)
    return AnsweredPair(vote=vote, prompt=task.prompt.brief, left=left, right=right)


def image_for(*, user: User, sha256: str) -> StoredImage | None:
    """An image that a project of this person holds."""
    mine = Membership.objects.filter(user=user).values("project")
    return StoredImage.objects.filter(sha256=sha256, project__in=mine).first()


def result_for(*, user: User, sha256: str) -> str | None:
    """What a tool gave back in a run of a project of this person, by its hash, which who has seen
    the run knows."""
    mine = Membership.objects.filter(user=user).values("project")
    found = ToolResult.objects.filter(sha256=sha256).filter(
        Q(prompt__project__in=mine) | Q(response__prompt__project__in=mine)
    )
    return found.values_list("content", flat=True).first()


def with_whole_results(project: str, *conversations: Messages) -> list[Messages]:
    """Conversations as screens hold them, each long result of a tool whole: for programs, which
    open nothing afterwards."""
    hashes = {m["cut"]["hash"] for messages in conversations for m in messages if "cut" in m}
    if not hashes:
        return list(conversations)
    of_project = Q(prompt__project=project) | Q(response__prompt__project=project)
    found = ToolResult.objects.filter(of_project, sha256__in=hashes)
    texts = dict(found.values_list("sha256", "content"))
    return [
        with_results(
            messages, {n: texts[m["cut"]["hash"]] for n, m in enumerate(messages) if "cut" in m}
        )
        for messages in conversations
    ]


def image_in(*, project: str, sha256: str) -> StoredImage | None:
    return StoredImage.objects.filter(project=project, sha256=sha256).first()


def image_looks(*, project: Project) -> dict[str, int]:
    """64 bits of what each image looks like, by its hash."""
    return dict(StoredImage.objects.filter(project=project).values_list("sha256", "look"))


def images_of(*, project: Project) -> QuerySet[StoredImage]:
    """Newest first."""
    return StoredImage.objects.filter(project=project).order_by("-created_at", "-pk")


def image_uses(*, image: StoredImage) -> dict[str, int]:
    """How many prompts, answers and versions of the guidelines name it."""
    named = f"(image:{image.sha256})"

    def counted(rows: QuerySet[Any]) -> int:
        return rows.annotate(said=Cast("brief", TextField())).filter(said__contains=named).count()

    guidelines = Guideline.objects.filter(project=image.project_id, body__contains=named)
    return {
        "prompt": counted(Prompt.objects.filter(project=image.project_id)),
        "answer": counted(Response.objects.filter(prompt__project=image.project_id)),
        "version of the guidelines": guidelines.count(),
    }


def run_answer(answer: int) -> RunAnswer | None:
    """What an answer says about the runs of agents of its pair."""
    return RunAnswer.objects.filter(pk=answer).first()


def run_totals(got: Any) -> dict[str, Any]:
    """{left | right: tokens and cost of that run, as its import knows them}."""
    vote = getattr(got, "vote", None)
    task, left_is = (vote.task_id, vote.left_is) if vote else (got.task, got.left_is)
    a, b = Task.objects.values_list("response_a__metadata", "response_b__metadata").get(pk=task)
    known = [(one or {}).get("trajectory") or {} for one in (a, b)]
    return dict(zip(("right", "left") if left_is == "b" else ("left", "right"), known, strict=True))


def message_shown(
    *, project: Project, annotator: User, slot: int, side: str, number: int
) -> Message:
    """A message of a pair that this annotator holds or has answered: of its `prompt`, or of the
    answer that stood `left` or `right`. `Missing` for every other."""
    held = (
        Slot.objects.filter(pk=slot, project=project, annotator=annotator, task__kind__in=PAIRED)
        .values_list(
            *("left_is", "task__prompt__brief"),
            *("task__response_a__brief", "task__response_b__brief"),
        )
        .first()
    )
    if held is not None and side in ("prompt", "left", "right"):
        left_is, prompt, a, b = held
        right, left = (a, b) if left_is == "b" else (b, a)
        messages = {"prompt": prompt, "left": left, "right": right}[side]
        if number < len(messages):
            found: Message = messages[number]
            return found
    raise Missing("There is no such message of a pair of yours.")


# --- comparisons, for those who read results -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownVote:
    """A vote as readers see it: `who` is a number within the comparison, or a name for admins."""

    who: str
    choice: str
    choice_words: str
    left_is: str
    strength: int | None
    criteria: list[tuple[str, str]]  # (the project's label for it, A, tie or B)
    reasons: list[str]
    rationale: str
    flags: list[str]
    improvement: str
    active_ms: int | None
    source: str
    revision: int
    is_current: bool
    kind: str
    slot_kind: str
    guideline: int | None  # version it was cast under; imported votes have none
    cast_at: datetime
    runs: RunAnswer | None = None  # what it says about its runs of agents


def state_counts(*, project: Project) -> dict[str, int]:
    """Comparisons per state, every state present."""
    counted = dict(
        Comparison.objects.filter(project=project)
        .values_list("state")
        .annotate(n=Count("id"))
        .values_list("state", "n")
    )
    return {state: counted.get(state, 0) for state in Comparison.State.values}


def comparison_get(*, project: Project, comparison: int) -> Comparison:
    found = (
        Comparison.objects.filter(project=project, pk=comparison)
        .select_related("prompt", "response_a", "response_b", "decision")
        .first()
    )
    if found is None:
        raise Missing("There is no such comparison in this project.")
    return found


def votes_shown(*, comparison: Comparison, with_names: bool) -> list[ShownVote]:
    """Every vote and revision on a comparison, in the order they were cast.

    Without names annotators are numbered by their first vote on this comparison, so the numbers
    link nothing across comparisons.
    """
    votes = (
        Vote.objects.filter(comparison=comparison)
        .select_related("annotator", "slot", "improvement", "guideline")
        .order_by("id")
    )
    asked = settings_get(project=comparison.project).criteria
    labels = {criterion["key"]: criterion["label"] for criterion in asked}
    numbers: dict[int, int] = {}
    of_runs = RunAnswer.objects.in_bulk(
        RunAnswer.objects.filter(answer__task=comparison.pk).values_list("pk", flat=True)
    )
    shown = []
    for vote in votes:
        number = numbers.setdefault(vote.annotator_id, len(numbers) + 1)
        shown.append(
            ShownVote(
                who=str(vote.annotator) if with_names else f"Annotator {number}",
                choice=vote.choice,
                choice_words=vote.get_choice_display(),
                left_is=vote.left_is,
                strength=vote.strength,
                criteria=[
                    (labels.get(key, key), "tie" if choice == "tie" else choice.upper())
                    for key, choice in vote.criteria.items()
                ],
                reasons=vote.reasons,
                rationale=vote.rationale,
                flags=vote.flags,
                improvement=vote.improvement.brief[-1]["content"] if vote.improvement else "",
                active_ms=vote.active_ms,
                source=vote.get_source_display(),
                revision=vote.revision,
                is_current=vote.is_current,
                kind=vote.slot.get_kind_display(),
                slot_kind=vote.slot.kind,
                guideline=vote.guideline.version if vote.guideline else None,
                cast_at=vote.cast_at,
                runs=of_runs.get(vote.pk),
            )
        )
    return shown


def decisions_page(
    *, project: Project, after: int, limit: int, outcome: str = ""
) -> list[Decision]:
    """Up to `limit` decisions on comparisons with ids above `after`, in that order."""
    rows = Decision.objects.filter(project=project, comparison_id__gt=after)
    if outcome:
        rows = rows.filter(outcome=outcome.replace("\x00", ""))
    return list(rows.select_related("comparison").order_by("comparison_id")[:limit])


def open_count(*, project: Project) -> int:
    """Comparisons that another number of votes per comparison could be applied to."""
    return Comparison.objects.filter(
        project=project,
        state=Comparison.State.OPEN,
        stratum__in=(Comparison.Stratum.RANDOM, Comparison.Stratum.PRIORITY),
    ).count()


def queue_progress(*, project: Project) -> dict[str, Any]:
    """The project's queue in numbers: comparisons by state, slots by state, current votes."""
    slots = dict(
        Slot.objects.filter(project=project)
        .exclude(kind=Slot.Kind.WRITE)
        .values_list("state")
        .annotate(n=Count("id"))
        .values_list("state", "n")
    )
    states = state_counts(project=project)
    return {
        "comparisons": sum(states.values()),
        "states": states,
        "slots": {state: slots.get(state, 0) for state in Slot.State.values},
        "votes": Vote.objects.filter(project=project, is_current=True).count(),
    }


def progress(*, project: Project, staffing: Callable[..., Any]) -> dict[str, Any]:
    """`queue_progress` and what `staffing` finds. Where that takes long, with a million comparisons
    most of a second, it is kept for a hundred times as long."""
    return kept_while_worth(
        f"labeling:progress:{project.pk}",
        lambda: {
            "progress": queue_progress(project=project),
            "staffing": staffing(project=project).pairs_words,
        },
    )
