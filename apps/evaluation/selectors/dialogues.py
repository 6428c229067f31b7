"""Live dialogues read: what was said, who is where, and which system people prefer."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from apps.accounts.models import Project, User
from apps.common.errors import Missing
from apps.evaluation.models import Conversation, DialogueCampaign, DialogueTurn
from apps.labeling.models import Answer, Choice, Slot
from apps.training.models import Run
from measures.model_ranking import Meeting, ModelVotes, Rate, meetings, win_rates

_SCORES = {Choice.A: 1.0, Choice.B: 0.0, Choice.TIE: 0.5, Choice.BOTH_BAD: math.nan}
_SIDE = {"a": 0.5, "b": -0.5}


def dialogues(*, project: Project) -> QuerySet[DialogueCampaign]:
    return (
        DialogueCampaign.objects.filter(project=project)
        .select_related("project", "created_by")
        .prefetch_related("systems__checkpoint__run")
    )


def dialogue_get(*, project: Project, dialogue: str) -> DialogueCampaign:
    found = dialogues(project=project).filter(pk=dialogue[:16]).first()
    if found is None:
        raise Missing("There is no such dialogue campaign.", field="dialogue")
    return found


def dialogues_open(*, project: Project, user: User) -> list[DialogueCampaign]:
    """What this person can go on with or begin, and nothing of whose models answer."""
    campaigns = DialogueCampaign.objects.filter(project=project, is_open=True)
    mine = Conversation.objects.filter(campaign=OuterRef("pk"), annotator=user)
    counted = campaigns.annotate(
        n_mine=Count("conversations", filter=Q(conversations__annotator=user)),
        n_all=Count("conversations"),
        is_talking=Exists(mine.filter(ended_at__isnull=True)),
    )
    return [
        one
        for one in counted
        if one.is_talking or (one.n_mine < one.per_person and one.n_all < one.in_all)
    ]


def has_dialogues(project: Project) -> bool:
    return DialogueCampaign.objects.filter(project=project, is_open=True).exists()


def conversations_of(*, project: Project, user: User) -> QuerySet[Conversation]:
    return (
        Conversation.objects.filter(campaign__project=project, annotator=user)
        .select_related("campaign__project")
        .annotate(n_turns=Count("turns"))
    )


def conversation_get(*, project: Project, user: User, key: str) -> Conversation:
    """One's own; `Missing` for everybody else's."""
    found = conversations_of(project=project, user=user).filter(key=key[:32]).first()
    if found is None:
        raise Missing("There is no such conversation of yours.")
    return found


def systems_names(campaign: DialogueCampaign) -> list[str]:
    """By their places."""
    return [one.name for one in campaign.systems.all()]


def conversation_read(*, campaign: DialogueCampaign, key: str) -> Conversation:
    """Anybody's, for the engineers of the campaign."""
    found = Conversation.objects.filter(campaign=campaign, key=key[:32]).first()
    if found is None:
        raise Missing("There is no such conversation.")
    found.campaign = campaign
    return found


def turns_of(conversation: Conversation) -> list[DialogueTurn]:
    found = list(conversation.turns.order_by("number"))
    for turn in found:
        turn.conversation = conversation
    return found


def group_of(conversation: Conversation) -> str:
    """What splits and clusters go by: the group of its prompts, of which one that began alike may
    have had it first."""
    known = conversation.turns.filter(task__isnull=False).order_by("-number")
    return (
        known.values_list("task__prompt__group_key", flat=True).first()
        or f"dialogue {conversation.key}"
    )


def history(conversation: Conversation, turns: Sequence[DialogueTurn]) -> list[dict[str, str]]:
    """The thread as models are asked: what was chosen or drawn, and the last message."""
    prompt = conversation.campaign.system_prompt
    said = [{"role": "system", "content": prompt}] if prompt else []
    for turn in turns:
        said.append({"role": "user", "content": turn.message})
        if turn.continued:
            said.append({"role": "assistant", "content": turn.answers[turn.continued]["text"]})
    return said


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a campaign, in numbers."""

    conversations: int
    people: int
    turns: int
    judged: int
    passed: int
    unanswered: int
    drawn: int
    named: int
    problems: int
    short: int


def progress_of(campaign: DialogueCampaign) -> Progress:
    """named: turns with an answer that names its model; short: conversations that ended with fewer
    turns than wanted; unanswered: turns that ended without two answers."""
    talks = Conversation.objects.filter(campaign=campaign)
    found = talks.aggregate(
        conversations=Count("pk"),
        people=Count("annotator", distinct=True),
        problems=Count("pk", filter=~Q(problem="")),
    )
    states = DialogueTurn.State
    turns = DialogueTurn.objects.filter(conversation__campaign=campaign).aggregate(
        turns=Count("pk"),
        judged=Count("pk", filter=Q(state=states.JUDGED)),
        passed=Count("pk", filter=Q(state=states.PASSED)),
        unanswered=Count("pk", filter=Q(state=states.ASKED, conversation__ended_at__isnull=False)),
        drawn=Count("pk", filter=Q(is_drawn=True)),
        named=Count("pk", filter=~Q(names_itself={})),
    )
    ended = talks.filter(ended_at__isnull=False).annotate(n=Count("turns"))
    return Progress(**found, **turns, short=ended.filter(n__lt=campaign.least_turns).count())


@dataclass(frozen=True, slots=True)
class Result:
    """rates: of each system in its place against whatever it met; clusters are conversations."""

    votes: ModelVotes
    rates: Sequence[Rate]
    meetings: Sequence[Meeting]


def votes_of(campaign: DialogueCampaign) -> ModelVotes:
    """Current votes on its pairs, of whoever wrote and of others who were asked. `prompt` is the
    conversation: its turns hang together, and so do conversations that began alike."""
    turns = DialogueTurn.objects.filter(conversation__campaign=campaign, task__isnull=False)
    about = {
        task: rest
        for task, *rest in turns.values_list(
            "task_id",
            "conversation__first",
            "conversation__second",
            "task__prompt__group_key",
            "answers__a__text",
            "answers__b__text",
        )
    }
    rows = list(
        Answer.objects.filter(is_current=True, slot__kind=Slot.Kind.REGULAR, task__in=about)
        .order_by("pk")
        .values_list("task_id", "choice", "left_is", "annotator_id")
    )
    groups = {name: place for place, name in enumerate(sorted({a[2] for a in about.values()}))}
    asked = [about[row[0]] for row in rows]
    return ModelVotes(
        n_models=campaign.systems.count(),
        first=np.array([one[0] for one in asked], dtype=np.int64),
        second=np.array([one[1] for one in asked], dtype=np.int64),
        score=np.array([_SCORES[Choice(row[1])] for row in rows], dtype=float),
        prompt=np.array([groups[one[2]] for one in asked], dtype=np.int64),
        person=np.array([row[3] for row in rows], dtype=np.int64),
        side=np.array([_SIDE.get(row[2], 0.0) for row in rows], dtype=float),
        length=np.array(
            [math.log(max(len(one[3]), 1) / max(len(one[4]), 1)) for one in asked], dtype=float
        ),
    )


def result_of(campaign: DialogueCampaign) -> Result:
    votes = votes_of(campaign)
    return Result(votes, win_rates(votes), meetings(votes))


def conversations_rows(campaign: DialogueCampaign) -> Iterator[dict[str, Any]]:
    """For a file: a conversation a line, both branches of every turn, people as numbers."""
    names = {one.place: one.checkpoint_id for one in campaign.systems.all()}
    people: dict[int, int] = {}
    talks = Conversation.objects.filter(campaign=campaign).order_by("pk")
    for talk in talks.prefetch_related("turns").iterator(chunk_size=200):
        yield {
            "conversation": talk.key,
            "person": people.setdefault(talk.annotator_id, len(people) + 1),
            "topic": talk.topic,
            "group": group_of(talk),
            "systems": {"a": names[talk.first], "b": names[talk.second]},
            "system_prompt": campaign.system_prompt,
            "began_at": talk.created_at.isoformat(),
            "ended_at": talk.ended_at.isoformat() if talk.ended_at else None,
            "problem": talk.problem,
            "turns": [_turn_row(turn) for turn in talk.turns.all()],
        }


def _turn_row(turn: DialogueTurn) -> dict[str, Any]:
    return {
        "turn": turn.number,
        "message": turn.message,
        "answers": {
            side: {name: said.get(name) for name in ("state", "text", "tokens", "seconds")}
            for side, said in turn.answers.items()
        },
        "left": turn.left_is,
        "choice": turn.choice,
        "continued": turn.continued,
        "drawn": turn.is_drawn,
        "state": turn.state,
        "names_itself": turn.names_itself,
        "personal_data": turn.personal,
        "tries": turn.attempt,
        "seed": turn.seed,
        "protocol": turn.protocol_sha256,
        "comparison": turn.task_id,
        "no_pair": turn.no_pair,
        "judged_at": turn.judged_at.isoformat() if turn.judged_at else None,
    }


def run_uses(run: Run) -> list[str]:
    found = DialogueCampaign.objects.filter(systems__checkpoint__run=run).distinct()
    return [f"the dialogue campaign {one.name}" for one in found]
