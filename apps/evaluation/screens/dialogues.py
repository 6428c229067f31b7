"""What pages of live dialogues show: the turn at hand without whose answers they are, and a
campaign's result with the names of its systems."""

import uuid
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext

from apps.accounts.models import Project, User
from apps.common.registry import WorkOffer
from apps.evaluation.models import Conversation, DialogueCampaign, DialogueTurn
from apps.evaluation.selectors.dialogues import (
    dialogues_open,
    history,
    progress_of,
    result_of,
    systems_names,
    turns_of,
)
from apps.evaluation.services.dialogues import (
    LONGEST_MESSAGE,
    LONGEST_PROBLEM,
    MOST_TRIES,
    TurnNow,
    sides_of,
    turn_now,
)
from apps.labeling.screens.label import answer_form, pair_shown, turns_shown
from apps.labeling.selectors import settings_get
from apps.labeling.services import Questions
from measures.model_ranking import Rate
from workers.contract import asking

_SHOWN = ("left", "right")


def new_key() -> str:
    """Of a form: the same submit again is known by it."""
    return uuid.uuid4().hex


def conversation(talk: Conversation, typed: str = "", *, confirms: bool = False) -> dict[str, Any]:
    """The context of `_conversation.html`. typed: what the person wrote and could not be sent;
    confirms: whether they are asked to send it all the same."""
    turns = turns_of(talk)
    campaign = talk.campaign
    thread = [one for one in history(talk, turns) if one["role"] != "system"]
    last = turns[-1] if turns else None
    is_open = talk.ended_at is None
    context: dict[str, Any] = {
        "talk": talk,
        "campaign": campaign,
        "n_turns": len(turns),
        "left": campaign.most_turns - len(turns),
        "too_few": len(turns) < campaign.least_turns,
        "page_title": campaign.name,
        "nav": "conversations",
        "last": last,
        "longest": LONGEST_MESSAGE,
        "longest_problem": LONGEST_PROBLEM,
        "typed": typed,
        "confirms": confirms,
        "key": new_key(),
        "part": "compose" if is_open and campaign.is_open else "over",
    }
    if last is not None and last.state == DialogueTurn.State.ASKED and is_open:
        return context | _turn(talk, turns, turn_now(last))
    return context | {"turns": turns_shown(thread) if thread else []}


def _turn(talk: Conversation, turns: list[DialogueTurn], now: TurnNow) -> dict[str, Any]:
    turn, thread = now.turn, history(talk, turns)
    answers = [now.answers[side] for side in sides_of(turn)]
    if now.is_live:
        return {
            "part": "live",
            "turns": turns_shown(thread),
            "waits": now.waits,
            "streams": [
                {"side": side, "letter": letter, "text": one.text, "says": _says(one.state)}
                for side, letter, one in zip(_SHOWN, "AB", answers, strict=True)
            ],
        }
    if now.may_choose:
        questions = Questions.of(settings_get(project=talk.campaign.project))
        texts = [[{"role": "assistant", "content": one.text}] for one in answers]
        return {"part": "choose"} | pair_shown(thread, *texts) | answer_form(questions, {})
    came = [one for side, one in zip(sides_of(turn), answers, strict=True) if now.usable(side)]
    return {
        "part": "missing",
        "turns": turns_shown(thread),
        "came": turns_shown([{"role": "assistant", "content": came[0].text}]) if came else [],
        "may_try": turn.attempt < MOST_TRIES,
    }


def _says(state: str) -> str:
    if state in (asking.WAITING, asking.LOADING):
        return gettext("Waiting …")
    return gettext("Finished") if state in asking.FINAL else gettext("Writing …")


def work_offers(project: Project, user: User) -> list[WorkOffer]:
    """For My work: the campaigns in which somebody may talk."""
    return [
        WorkOffer(one.name, reverse("evaluation:conversations", args=[project.slug]))
        for one in dialogues_open(project=project, user=user)
    ]


def listed(campaign: DialogueCampaign) -> dict[str, Any]:
    return {
        "found": campaign,
        "progress": progress_of(campaign),
        "systems": ", ".join(systems_names(campaign)),
    }


def result(campaign: DialogueCampaign) -> dict[str, Any]:
    """Win shares with the names of the systems, best first."""
    found = result_of(campaign)
    names = systems_names(campaign)
    rows = [{"name": names[place], **_rate(rate)} for place, rate in enumerate(found.rates)]
    return {
        "rates": sorted(rows, key=lambda row: (row["value"] is None, -(row["value"] or 0))),
        "meetings": [
            {
                "first": names[one.first],
                "second": names[one.second],
                "wins": one.wins,
                "losses": one.losses,
                "ties": one.ties,
                "both_bad": one.both_bad,
                **_rate(one.rate),
            }
            for one in found.meetings
        ],
        "n_votes": len(found.votes),
    }


_WHY = {
    "no_votes": "no votes yet",
    "too_few_people": "no interval: fewer than 5 people",
    "too_few_prompts": "no interval: fewer than 20 conversations",
    "all_alike": "no interval: every vote is the same",
}


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "value": rate.value,
        "low": rate.low,
        "high": rate.high,
        "n": rate.n,
        "n_conversations": rate.n_prompts,
        "n_people": rate.n_people,
        "why": _WHY.get(rate.reason, rate.reason),
        "reason": rate.reason,
    }


def read(campaign: DialogueCampaign, talk: Conversation) -> list[dict[str, Any]]:
    """Both branches of every turn, for engineers."""
    names = systems_names(campaign)
    of = {"a": names[talk.first], "b": names[talk.second]}
    rows = []
    for turn in turns_of(talk):
        answers = [
            {
                "side": side,
                "name": of[side],
                "text": turn.answers[side]["text"],
                "state": turn.answers[side]["state"],
                "continues": turn.continued == side,
                "names_itself": turn.names_itself.get(side, ""),
                "was_left": turn.left_is == side,
            }
            for side in ("a", "b")
            if side in turn.answers
        ]
        rows.append({"turn": turn, "answers": answers, "said": _said(turn, of)})
    return rows


def _said(turn: DialogueTurn, names: dict[str, str]) -> str:
    if turn.state == DialogueTurn.State.ASKED:
        return turn.error or "not judged"
    if turn.state == DialogueTurn.State.PASSED:
        return "gone on without comparing: one answer did not come"
    if turn.choice in names:
        return f"{names[turn.choice]} was preferred"
    words = "a tie" if turn.choice == "tie" else "both bad"
    return f"{words}; {names[turn.continued]} was drawn to continue"
