"""Live dialogues: campaigns opened and closed, and a person's conversation turn by turn.

No request waits for a model: a turn is stored, asked through the playground's line, and its answers
are read from there until somebody says which is better; only then are they stored with it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count
from django.utils import timezone
from django.utils.translation import gettext

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing, Unavailable
from apps.common.models import longest, one_line
from apps.common.registry import ErasureWish
from apps.evaluation import dispatch
from apps.evaluation.models import Conversation, DialogueCampaign, DialogueSystem, DialogueTurn
from apps.evaluation.models.dialogues import MOST_SYSTEMS
from apps.evaluation.selectors.dialogues import group_of, history, turns_of
from apps.evaluation.services.playground import (
    USABLE,
    models_ask,
    policies_named,
    question_get,
    question_stop,
    sampling_checked,
)
from apps.labeling.blindness import self_naming
from apps.labeling.personal_data import personal_data
from apps.labeling.selectors import settings_get
from apps.labeling.services import AnswerFields, Questions, RowsRefused
from apps.labeling.services.answers import answer_from, offered_check
from apps.labeling.services.leasing import closed_reason
from apps.labeling.services.live_pairs import live_pair_store
from workers.contract import asking
from workers.contract.asking import Answer
from workers.contract.protocol import content_sha256

SOURCE = "dialogue"  # of the questions and of the prompts
STATISTICS = 1  # raised whenever the same votes would give other figures
LONGEST_MESSAGE = 8_000
LONGEST_PROBLEM = 2_000
MOST_TURNS = 24  # a question holds 50 messages
MOST_TRIES = 6  # of one turn
MOST_TOPICS = 50
KEPT = timedelta(seconds=asking.KEPT_SECONDS)
_WHOLE = {
    "answer_seconds": (5, int(asking.ANSWER_SECONDS)),
    "least_turns": (1, MOST_TURNS),
    "most_turns": (1, MOST_TURNS),
    "per_person": (1, 10_000),
    "in_all": (1, 1_000_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignAsked:
    """What is fixed when a campaign is opened. models: ids of two to eight that answer; others: so
    many further people are asked about each pair."""

    name: str
    models: Sequence[str]
    system_prompt: str = ""
    topics: Sequence[str] = ()
    temperature: float = 0.7
    top_p: float = 1.0
    max_new_tokens: int = 512
    answer_seconds: int = 60
    least_turns: int = 2
    most_turns: int = 10
    per_person: int = 10
    in_all: int = 1000
    in_datasets: bool = True
    others: int = 0


def dialogue_open(
    *, project: Project, user: User, asked: CampaignAsked, seed: int | None = None
) -> DialogueCampaign:
    """Raises `DomainError` or `Missing` naming the field; then nothing is opened."""
    _asked_check(project, asked)
    policies = policies_named(project, asked.models, least=2, most=MOST_SYSTEMS)
    drawn = {name: getattr(asked, name) for name in ("temperature", "top_p", "max_new_tokens")}
    sampling_checked(drawn)
    made = DialogueCampaign(
        project=project,
        created_by=user,
        **{
            name: value for name, value in asdict(asked).items() if name not in ("models", "topics")
        },
        topics=[one_line(topic) for topic in asked.topics if topic.strip()],
    )
    made.name, made.system_prompt = one_line(asked.name), asked.system_prompt.strip()
    if seed is not None:
        made.seed = seed
    systems = [
        DialogueSystem(
            campaign=made,
            place=place,
            checkpoint=one,
            name=f"{one.run.name}, step {one.step:,}"[: longest(DialogueSystem, "name")],
        )
        for place, one in enumerate(policies)
    ]
    made.protocol = _protocol(made, systems)
    made.protocol_sha256 = content_sha256(made.protocol)
    with transaction.atomic():
        made.save(force_insert=True)
        DialogueSystem.objects.bulk_create(systems)
        audit_record(
            action="dialogue.opened",
            actor=user,
            project=project,
            subject=made.pk,
            details={"systems": len(systems), "protocol": made.protocol_sha256},
        )
    return made


def _asked_check(project: Project, asked: CampaignAsked) -> None:
    most = longest(DialogueCampaign, "name")
    if not asked.name.strip() or len(asked.name) > most:
        raise DomainError(f"From 1 to {most} characters.", field="name")
    if len(asked.system_prompt) > LONGEST_MESSAGE:
        raise DomainError(f"At most {LONGEST_MESSAGE:,} characters.", field="system_prompt")
    for field in ("name", "system_prompt"):
        if "\x00" in getattr(asked, field):
            raise DomainError("A NUL character cannot be stored.", field=field)
    if len(asked.topics) > MOST_TOPICS or any(len(one.strip()) > 200 for one in asked.topics):
        raise DomainError(f"At most {MOST_TOPICS}, each of at most 200 characters.", field="topics")
    for field, (low, high) in _WHOLE.items():
        value = getattr(asked, field)
        if type(value) is not int or not low <= value <= high:
            raise DomainError(f"A whole number from {low:,} to {high:,}.", field=field)
    if asked.most_turns < asked.least_turns:
        raise DomainError("Not fewer than the least turns.", field="most_turns")
    highest = settings_get(project=project).max_overlap - 1
    if not 0 <= asked.others <= highest:
        raise DomainError(
            f"From 0 to {highest}: a comparison gets at most {highest + 1} votes here.",
            field="others",
        )
    if asked.others and not asked.in_datasets:
        raise DomainError(
            "Pairs that no dataset may hold are judged by whoever wrote them alone.",
            field="others",
        )


def _protocol(made: DialogueCampaign, systems: Sequence[DialogueSystem]) -> dict[str, Any]:
    return {
        "kind": "dialogue",
        "statistics": STATISTICS,
        "systems": [
            {"model": one.checkpoint.pk, "sha256": one.checkpoint.sha256} for one in systems
        ],
        "system_prompt": made.system_prompt,
        "sampling": {
            "temperature": made.temperature,
            "top_p": made.top_p,
            "max_new_tokens": made.max_new_tokens,
        },
        "answer_seconds": made.answer_seconds,
        "turns": [made.least_turns, made.most_turns],
        "others": made.others,
        "in_datasets": made.in_datasets,
        "topics": list(made.topics),
        "seed": made.seed,
        "draws": "sha256 of 'SEED CONVERSATION TURN WHAT'",
    }


@transaction.atomic
def dialogue_set_open(*, campaign: DialogueCampaign, by: User, is_open: bool) -> DialogueCampaign:
    """Closed: nobody begins or continues; the turn at hand can still be judged. Setting it to what
    it is changes nothing."""
    found = DialogueCampaign.objects.select_for_update(no_key=True).get(pk=campaign.pk)
    if found.is_open != is_open:
        found.is_open = is_open
        found.save(update_fields=["is_open", "updated_at"])
        audit_record(
            action="dialogue.reopened" if is_open else "dialogue.closed",
            actor=by,
            project=found.project,
            subject=found.pk,
        )
    return found


# One person's conversation.


def draw(campaign: DialogueCampaign, conversation: str, turn: int, what: str) -> int:
    """A number below 2**31 that the record gives again: of the campaign's seed and the names."""
    text = f"{campaign.seed} {conversation} {turn} {what}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) & asking.MAX_SEED


def side_drawn(campaign: DialogueCampaign, conversation: str, turn: int, what: str) -> str:
    """a or b, each as often."""
    return "ab"[draw(campaign, conversation, turn, what) >> 16 & 1]


@transaction.atomic
def conversation_start(
    *, campaign: DialogueCampaign, user: User, key: str, topic: str = ""
) -> Conversation:
    """The person's conversation: the one that is open, that this key began, or a new one. Raises
    `Conflict` where the campaign is closed or has enough, with a `NothingReason`'s code where the
    person may not label."""
    found = DialogueCampaign.objects.select_for_update(no_key=True).get(pk=campaign.pk)
    mine = Conversation.objects.filter(campaign=found, annotator=user)
    known = mine.filter(ended_at__isnull=True).first() or mine.filter(start_key=key).first()
    if known is not None:
        return known
    if not 1 <= len(key) <= longest(Conversation, "start_key"):
        raise DomainError("Send the key of the form.", field="key")
    _may_go_on(found, user)
    if mine.count() >= found.per_person:
        raise Conflict(
            gettext("You have had as many conversations here as one person may."),
            code="enough_of_yours",
        )
    if Conversation.objects.filter(campaign=found).count() >= found.in_all:
        raise Conflict(gettext("There are enough conversations here."), code="enough")
    if topic and topic not in found.topics:
        raise DomainError(gettext("Choose one of the topics, or none."), field="topic")
    made = Conversation(campaign=found, annotator=user, start_key=key, topic=topic, first=0)
    made.first, made.second = _systems_drawn(found, made.key)
    made.save(force_insert=True)
    return made


def _systems_drawn(campaign: DialogueCampaign, conversation: str) -> tuple[int, int]:
    """The two systems that have met least often, by lot among equals."""
    n = campaign.systems.count()
    held = Conversation.objects.filter(campaign=campaign).order_by().values_list("first", "second")
    met = {(first, second): n for first, second, n in held.annotate(n=Count("pk"))}
    pairs = [(one, other) for one in range(n) for other in range(one + 1, n)]
    return min(
        pairs, key=lambda pair: (met.get(pair, 0), draw(campaign, conversation, 0, f"{pair}"))
    )


def _may_go_on(campaign: DialogueCampaign, user: User) -> None:
    if not campaign.is_open:
        raise Conflict(gettext("These conversations are closed."), code="closed")
    if (nothing := closed_reason(project=campaign.project, annotator=user)) is not None:
        raise Conflict(f"{nothing.title}. {nothing.text}", code=nothing.code)


def message_send(
    *, conversation: Conversation, user: User, text: str, key: str, confirmed: bool = False
) -> DialogueTurn:
    """Store what the person writes and ask both systems. The same submit again changes nothing.

    Raises `Conflict` (`turn_open`) while the turn before is not judged, (`personal_data`) where the
    text holds what looks like personal data and that was not `confirmed`; where nobody answers the
    turn is kept all the same and says so.
    """
    text = text.replace("\r\n", "\n")
    if not text.strip() or len(text) > LONGEST_MESSAGE or "\x00" in text:
        raise DomainError(
            gettext("From 1 to %(n)s characters.") % {"n": f"{LONGEST_MESSAGE:,}"}, field="message"
        )
    found = personal_data(text)
    with transaction.atomic():
        held = _held(conversation, user)
        turns = turns_of(held)
        for turn in turns:
            if turn.key == key:
                return turn
        if not 1 <= len(key) <= longest(DialogueTurn, "key"):
            raise DomainError("Send the key of the form.", field="key")
        if turns and turns[-1].state == DialogueTurn.State.ASKED:
            raise Conflict(
                gettext("First say which of the two answers is better."), code="turn_open"
            )
        _goes_on_check(held, turns, user)
        if found and not confirmed:
            words = ", ".join(one.words for one in found)
            raise Conflict(
                gettext("Your message %(why)s. Take it out, or send it all the same.")
                % {"why": words},
                code="personal_data",
                field="message",
            )
        number = len(turns) + 1
        campaign = held.campaign
        turn = DialogueTurn.objects.create(
            conversation=held,
            annotator=user,
            number=number,
            key=key,
            message=text,
            personal=[one.kind for one in found],
            seed=draw(campaign, held.key, number, "seed"),
            left_is=side_drawn(campaign, held.key, number, "left"),
            protocol_sha256=campaign.protocol_sha256,
        )
    return turn_ask(conversation=conversation, user=user, number=turn.number)


def _goes_on_check(held: Conversation, turns: Sequence[DialogueTurn], user: User) -> None:
    if held.ended_at is not None:
        raise Conflict(gettext("This conversation has ended."), code="ended")
    if len(turns) >= held.campaign.most_turns:
        raise Conflict(
            gettext("This conversation is as long as it may get. End it, and begin another."),
            code="enough_turns",
        )
    said = sum(len(one["content"]) for one in history(held, turns))
    if said > asking.MAX_CHARACTERS - 2 * LONGEST_MESSAGE:
        raise Conflict(
            gettext("This conversation has become too long for the models. End it."),
            code="enough_turns",
        )
    _may_go_on(held.campaign, user)


def turn_ask(*, conversation: Conversation, user: User, number: int) -> DialogueTurn:
    """Ask both systems (again). Tries that have no end yet are given up; what they had written is
    kept beside the turn. Raises `Conflict` where the turn is judged or was tried too often."""
    with transaction.atomic():
        held = _held(conversation, user)
        turn = _turn(held, number)
        if turn.state != DialogueTurn.State.ASKED:
            raise Conflict(gettext("This turn is judged already."), code="judged")
        if held.ended_at is not None:
            raise Conflict(gettext("This conversation has ended."), code="ended")
        if turn.attempt and not turn_now(turn).may_try_again:
            return turn  # pressed twice, or answered meanwhile
        if turn.attempt >= MOST_TRIES:
            raise Conflict(
                gettext("This was tried %(n)s times. Go on without comparing, or end it.")
                % {"n": MOST_TRIES},
                code="tried_often",
            )
        if turn.question:
            now = turn_now(turn)
            turn.earlier = [*turn.earlier, {"question": turn.question, "answers": now.told()}]
            _stop(held, turn)
        turn.attempt += 1
        turn.question, turn.error, turn.asked_at = "", "", timezone.now()
        campaign = held.campaign
        systems = systems_of(held)
        try:
            turn.question = models_ask(
                project=campaign.project,
                models=[systems[side].checkpoint for side in sides_of(turn)],
                messages=history(held, turns_of(held)),
                sampling={
                    "temperature": campaign.temperature,
                    "top_p": campaign.top_p,
                    "max_new_tokens": campaign.max_new_tokens,
                    "seed": (turn.seed + turn.attempt - 1) & asking.MAX_SEED,
                },
                person=f"{SOURCE} {held.key} {number} {turn.attempt}",
                source=SOURCE,
                answer_seconds=float(campaign.answer_seconds),
            )
        except DomainError as error:
            turn.error = error.message[: longest(DialogueTurn, "error")]
        turn.save()
    return turn


def sides_of(turn: DialogueTurn) -> tuple[str, str]:
    """The answers as they stand on the screen; the left one is asked for first, whosever it is."""
    return ("a", "b") if turn.left_is == "a" else ("b", "a")


def systems_of(conversation: Conversation) -> dict[str, DialogueSystem]:
    found = {
        one.place: one
        for one in conversation.campaign.systems.select_related("checkpoint__run").all()
    }
    return {"a": found[conversation.first], "b": found[conversation.second]}


@dataclass(frozen=True, slots=True)
class TurnNow:
    """A turn with its answers as they are now, by a and b. is_live: more is to come; waits: why it
    may take long."""

    turn: DialogueTurn
    answers: Mapping[str, Answer]
    is_live: bool
    waits: str = ""

    def usable(self, side: str) -> bool:
        one = self.answers[side]
        return one.state in USABLE and bool(one.text.strip())

    @property
    def n_usable(self) -> int:
        return self.usable("a") + self.usable("b")

    @property
    def may_choose(self) -> bool:
        return (
            self.turn.state == DialogueTurn.State.ASKED and not self.is_live and self.n_usable == 2
        )

    @property
    def may_try_again(self) -> bool:
        return (
            self.turn.state == DialogueTurn.State.ASKED and not self.is_live and self.n_usable < 2
        )

    def told(self) -> dict[str, Any]:
        """As it is stored. Of what went wrong its code: messages name servers."""
        return {
            side: asdict(one) | {"error": {"code": one.error["code"]} if one.error else None}
            for side, one in self.answers.items()
        }


def turn_now(turn: DialogueTurn) -> TurnNow:
    """Reads only: stored answers, else what has been written so far. A turn whose time is over, or
    whose question was forgotten, is not live any more."""
    if turn.answers:
        kept = {side: Answer(**said) for side, said in turn.answers.items()}
        return TurnNow(turn, kept, is_live=False)
    none = {side: Answer(asking.FAILED) for side in "ab"}
    if not turn.question or turn.asked_at is None:
        return TurnNow(turn, none, is_live=False)
    campaign = turn.conversation.campaign
    try:
        asked = question_get(project=campaign.project, question_id=turn.question, source=SOURCE)
    except Missing:
        return TurnNow(turn, none, is_live=False)
    except Unavailable:
        waiting = {side: Answer() for side in "ab"}
        return TurnNow(turn, waiting, not _is_over(turn), gettext("The queue does not answer."))
    # Left was asked first; a model that was deleted meanwhile has no answer any more.
    said = dict(zip(sides_of(turn), asked.answers, strict=False))
    is_live = asked.is_live and not _is_over(turn)
    answers = {side: said.get(side, none[side]) for side in "ab"}
    if not is_live:
        answers = {
            side: one if one.state in asking.FINAL else Answer(asking.OUT_OF_TIME, one.text)
            for side, one in answers.items()
        }
    return TurnNow(turn, answers, is_live, asked.note if is_live else "")


def _is_over(turn: DialogueTurn) -> bool:
    """Both answers may take their time one after the other, and a model is loaded before."""
    seconds = 2 * turn.conversation.campaign.answer_seconds + 30
    return turn.asked_at is None or timezone.now() - turn.asked_at > timedelta(seconds=seconds)


def turn_judge(
    *, conversation: Conversation, user: User, number: int, answer: AnswerFields
) -> DialogueTurn:
    """Store which answer is better, and both of them; the better one continues the thread, of
    neither the one that is drawn. The same choice again changes nothing. Raises `Conflict`
    (`judged`) where it was judged otherwise."""
    with transaction.atomic():
        held = _held(conversation, user)
        turn = _turn(held, number)
        checked = answer_from(**answer)
        choice = checked.canonical(turn.left_is)
        if turn.state != DialogueTurn.State.ASKED:
            if turn.choice == choice:
                return turn
            raise Conflict(
                gettext("You have judged this turn already, in another tab perhaps."), code="judged"
            )
        now = turn_now(turn)
        if not now.may_choose:
            raise Conflict(gettext("Two answers must be there first."), code="not_answered")
        offered_check(checked, choice, Questions.of(settings_get(project=held.campaign.project)))
        prompt = history(held, turns_of(held))
        _answers_keep(held, turn, now)
        turn.state, turn.choice, turn.judged_at = DialogueTurn.State.JUDGED, choice, timezone.now()
        turn.is_drawn = choice not in ("a", "b")
        turn.continued = (
            side_drawn(held.campaign, held.key, number, "tie") if turn.is_drawn else choice
        )
        _pair_store(held, turn, user, prompt, answer)
        turn.save()
        _end_if_long(held, number)
    return turn


def _pair_store(
    held: Conversation,
    turn: DialogueTurn,
    user: User,
    prompt: Sequence[Mapping[str, str]],
    answer: AnswerFields,
) -> None:
    campaign, systems = held.campaign, systems_of(held)
    name = f"{SOURCE}-{held.key}-{turn.number}"
    row = {
        "id": name,
        "prompt": [dict(one) for one in prompt],
        "response_a": turn.answers["a"]["text"],
        "response_b": turn.answers["b"]["text"],
        "origin_ref_a": systems["a"].checkpoint.pk,
        "origin_ref_b": systems["b"].checkpoint.pk,
        "group": group_of(held),
        "topic": held.topic,
        "source": SOURCE,
        "metadata": {
            "dialogue": campaign.pk,
            "conversation": held.key,
            "turn": turn.number,
            "seed": turn.seed,
            "protocol": turn.protocol_sha256,
        },
    }
    try:
        stored = live_pair_store(
            project=campaign.project,
            annotator=user,
            row=row,
            batch=campaign.batch,
            others=campaign.others,
            in_datasets=campaign.in_datasets,
            left_is=turn.left_is,
            shown_at=turn.asked_at or timezone.now(),
            key=name,
            answer=answer,
        )
    except RowsRefused as refused:  # two equal answers of one origin, an image that is not here
        why = "; ".join(f"{one.field} {one.message}" for one in refused.problems)
        turn.no_pair = why[: longest(DialogueTurn, "no_pair")] or "refused"
        return
    turn.task_id = stored


def turn_pass(*, conversation: Conversation, user: User, number: int) -> DialogueTurn:
    """Go on with the one answer that came, without comparing. Again changes nothing."""
    with transaction.atomic():
        held = _held(conversation, user)
        turn = _turn(held, number)
        if turn.state != DialogueTurn.State.ASKED:
            return turn
        now = turn_now(turn)
        if now.is_live or now.n_usable != 1:
            raise Conflict(
                gettext("That needs one answer, and that no other one came."), code="not_passable"
            )
        _answers_keep(held, turn, now)
        turn.state, turn.judged_at = DialogueTurn.State.PASSED, timezone.now()
        turn.continued = "a" if now.usable("a") else "b"
        turn.save()
        _end_if_long(held, number)
    return turn


def _answers_keep(held: Conversation, turn: DialogueTurn, now: TurnNow) -> None:
    turn.answers = now.told()
    systems = systems_of(held)
    named = {
        side: self_naming(now.answers[side].text, systems[side].checkpoint.run.name)
        for side in "ab"
    }
    turn.names_itself = {side: words for side, words in named.items() if words}


def _end_if_long(held: Conversation, number: int) -> None:
    if number >= held.campaign.most_turns:
        held.ended_at = timezone.now()
        held.save(update_fields=["ended_at", "updated_at"])


@transaction.atomic
def conversation_end(
    *, conversation: Conversation, user: User, problem: str | None = None
) -> Conversation:
    """End it, or with `problem` report one, which ends nothing. A turn that was not judged stays as
    it is, with what its models had written."""
    held = _held(conversation, user)
    if problem is not None:
        if not problem.strip() or len(problem) > LONGEST_PROBLEM or "\x00" in problem:
            raise DomainError(
                gettext("From 1 to %(n)s characters.") % {"n": f"{LONGEST_PROBLEM:,}"},
                field="problem",
            )
        held.problem = problem.replace("\r\n", "\n").strip()
        held.save(update_fields=["problem", "updated_at"])
        audit_record(
            action="dialogue.problem",
            actor=user,
            project=held.campaign.project,
            subject=held.campaign.pk,
            details={"conversation": held.key},
        )
        return held
    if held.ended_at is None:
        open_turn = held.turns.filter(state=DialogueTurn.State.ASKED).first()
        if open_turn is not None:
            now = turn_now(open_turn)
            if now.is_live:
                _stop(held, open_turn)
            _answers_keep(held, open_turn, now)
            open_turn.save(update_fields=["answers", "names_itself", "updated_at"])
        held.ended_at = timezone.now()
        held.save(update_fields=["ended_at", "updated_at"])
    return held


def _stop(held: Conversation, turn: DialogueTurn) -> None:
    """The answerer need not go on with it; where Redis is away it ends by itself."""
    try:
        asked = question_get(
            project=held.campaign.project, question_id=turn.question, source=SOURCE
        )
        if asked.is_live:
            question_stop(question=asked)
    except (Missing, Unavailable):
        return


def _held(conversation: Conversation, user: User) -> Conversation:
    """The row, locked. Raises `Missing` for anybody but its person."""
    found = (
        Conversation.objects.select_for_update(no_key=True, of=("self",))
        .select_related("campaign__project")
        .filter(pk=conversation.pk, annotator=user)
        .first()
    )
    if found is None:
        raise Missing(gettext("There is no such conversation of yours."))
    return found


def _turn(held: Conversation, number: int) -> DialogueTurn:
    found = held.turns.filter(number=number).first()
    if found is None:
        raise Missing(gettext("There is no such turn."))
    found.conversation = held
    return found


def answers_sweep() -> int:
    """Every minute: store the answers of turns that nobody has judged yet, before the line forgets
    them; how many."""
    n = 0
    waiting = DialogueTurn.objects.filter(
        state=DialogueTurn.State.ASKED,
        answers={},
        asked_at__gt=timezone.now() - KEPT,
        conversation__ended_at__isnull=True,
    ).exclude(question="")
    for pk in waiting.values_list("pk", flat=True):
        with transaction.atomic():
            turn = (
                DialogueTurn.objects.select_for_update(no_key=True, of=("self",), skip_locked=True)
                .select_related("conversation__campaign__project")
                .filter(pk=pk, state=DialogueTurn.State.ASKED, answers={})
                .first()
            )
            if turn is None:
                continue
            now = turn_now(turn)
            if now.may_choose:
                _answers_keep(turn.conversation, turn, now)
                turn.save(update_fields=["answers", "names_itself", "updated_at"])
                n += 1
    return n


def dialogues_erase(user: User, by: User | None, wish: ErasureWish) -> dict[str, int]:
    """A person's reports go where remarks go, and what they wrote that became no pair. Prompts and
    answers of pairs are material and stay, as improved answers do; votes go as any other."""
    if not wish.removes:
        return {}
    Conversation.objects.filter(annotator=user, ended_at__isnull=True).update(
        ended_at=timezone.now()
    )
    n = Conversation.objects.filter(annotator=user).exclude(problem="").update(problem="(removed)")
    mine = DialogueTurn.objects.filter(annotator=user, task__isnull=True)
    n += mine.update(message="(removed)", answers={}, earlier=[], names_itself={})
    return {"dialogues": n}


def answerer_alive() -> bool:
    """For pages that say so before somebody begins."""
    try:
        return dispatch.answerer_alive()
    except Unavailable:
        return False
