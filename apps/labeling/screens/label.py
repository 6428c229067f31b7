"""The label screen: the pair, its panes, the progress bar and the reasons to choose from."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, Literal, TypedDict

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language, gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from apps.accounts.models import Project, User
from apps.common.registry import vote_uses
from apps.labeling import selectors, services
from apps.labeling.forms import CRITERION
from apps.labeling.models import Guideline, RunAnswer
from apps.labeling.rendering import text_html, texts_html
from apps.labeling.rendering.maths import text_escaped
from apps.labeling.screens import runs
from apps.labeling.selectors.hours import completion_of
from apps.labeling.selectors.ratings import has_rating_tasks
from apps.labeling.services import FLAGS, Lease, NothingReason, Questions
from apps.labeling.services.answers import OUTCOME, OUTCOMES, Runs
from apps.labeling.services.results import Criterion
from measures.messages import Message, Messages, call_said

# A pair as its panes show it: turns of prompt and answers, as HTML and as they were written.

WHO = {"user": _("User"), "assistant": _("Assistant"), "system": _("System"), "tool": _("Tool")}


@dataclass(frozen=True, slots=True)
class Turn:
    """One message."""

    who: str
    role: str
    html: SafeString
    text: str
    thought: str = ""
    calls: tuple[SafeString, ...] = ()
    result: runs.Part | None = None

    @property
    def reads_the_same(self) -> bool:
        """Whether the HTML, without its tags, is what was written."""
        return self.html.replace("<br>", "") == f"<p>{text_escaped(self.text)}</p>\n"


def turns_shown(messages: Messages) -> list[Turn]:
    return turns_of([messages])[0]


def pair_shown(prompt: Messages, left: Messages, right: Messages) -> dict[str, Any]:
    """The context of `_panes.html`, with one request to the cache for all texts of the pair."""
    turns, left_turns, right_turns = turns_of([prompt, left, right])
    return {
        "prompt": turns,
        "conversation": len(turns) > 1,
        "panes": [
            _pane("left", "A", left_turns),
            _pane("right", "B", right_turns),
        ],
    }


def _pane(side: str, letter: str, turns: list[Turn]) -> dict[str, Any]:
    return {"side": side, "letter": letter, "turns": turns, "conversation": len(turns) > 1}


def turns_of(lists: Sequence[Messages]) -> list[list[Turn]]:
    """With one request to the cache for all texts."""
    every = iter(
        texts_html(m["content"] for messages in lists for m in messages if m["role"] != "tool")
    )
    return [[_turn(message, every) for message in messages] for messages in lists]


def _turn(message: Message, every: Iterator[SafeString]) -> Turn:
    """What a tool gave back is text and nothing else; calls stand below what was said."""
    role, text = message["role"], message["content"]
    if role == "tool":
        result = runs.result_part(message)
        if result.rest:
            text = f"{text}… ({result.summary})"
        return Turn(WHO[role], role, SafeString(), text, result=result)
    html = next(every)
    calls = tuple(runs.plain_html(call_said(call)) for call in message.get("tool_calls", ()))
    return Turn(WHO[role], role, html, text, message.get("reasoning_content", ""), calls)


STEP_TICKS = (
    ("left", "A", "1", "a"),
    ("tie", pgettext_lazy("short", "Same"), "0", ""),
    ("right", "B", "2", "b"),
)
# What is printed on the answers to the questions about a run: (value, words, key).
OUTCOME_TICKS = tuple(zip(OUTCOMES, (_("Yes"), _("No"), _("Unsure")), ("Y", "N", "U"), strict=True))


def runs_shown(
    got: Lease | selectors.AnsweredPair,
    project: Project,
    questions: Questions,
    costs: Mapping[str, Any],
    given: Runs,
) -> dict[str, Any]:
    """The context of `_runs.html`. costs: what is known of each side's totals, where they are
    shown."""
    slot = got.vote.slot_id if isinstance(got, selectors.AnsweredPair) else got.slot

    # Once for the page: there may be a thousand messages.
    before = reverse("labeling:part", args=[project.slug, slot, "prompt", 0])[: -len("prompt/0/")]

    def address(side: str, number: int) -> str:
        return f"{before}{side}/{number}/"

    left, right = runs.pair_shown(
        got.prompt,
        got.left,
        got.right,
        address,
        ask_steps=questions.steps,
        chosen=given.get("steps", {}),
    )
    errors, outcome = given.get("first_error", {}), given.get("outcome", {})
    return {
        "runs": [
            {
                "side": side,
                "letter": letter,
                "run": run,
                "totals": runs.totals_of(costs.get(side), len(run.numbers)) if costs else "",
                "first_error": errors.get(side),
                "outcome": outcome.get(side, {}),
            }
            for side, letter, run in (("left", "A", left), ("right", "B", right))
        ],
        "outcome_ticks": OUTCOME_TICKS,
        "prompt_run": runs.prompt_shown(got.prompt, address),
        "step_ticks": STEP_TICKS,
        "outcome": list(OUTCOME.items()) if questions.outcome else [],
        "ask_first_error": questions.first_error,
    }


# What a page shows beside a reason for having no pair: the text to read, the round to pass.


@dataclass(frozen=True, slots=True)
class Look:
    """How a reason is shown in a few words: an icon, a badge's tone, the words."""

    icon: str
    tone: str
    words: str


LOOKS = {
    "paused": Look("pause", "warn", _("paused")),
    "quota": Look("pause", "warn", _("no more answers for now")),
    "consent": Look("book-open", "warn", _("something to agree to")),
    "guideline": Look("book-open", "warn", _("guidelines to read")),
    "qualification": Look("clipboard-check", "warn", _("not qualified yet")),
    "daily_cap": Look("circle-check", "good", _("done for today")),
    "held": Look("hourglass", "", _("others are answering the rest")),
    "audits_done": Look("circle-check", "good", _("audits done")),
    "yours_done": Look("circle-check", "good", _("nothing left for you")),
    "all_done": Look("circle-check", "good", _("everything is labeled")),
    "empty": Look("inbox", "", _("nothing to label yet")),
}


def context_of(reason: NothingReason, *, project: Project, annotator: User) -> dict[str, Any]:
    """What the page needs besides the reason itself."""
    more: dict[str, Any] = {"look": LOOKS[reason.code], "rated": has_rating_tasks(project)}
    if reason.code == "consent":
        more["consent_version"] = selectors.settings_get(project=project).data_statement_version
    if reason.code == "guideline":
        more |= reading(project=project, user=annotator)
    if reason.code == "qualification":
        more["qualification"] = services.qualification_of(project=project, user=annotator)
    if reason.code == "daily_cap":
        more["opens_at"] = _next_day()
    return more


def _next_day() -> datetime:
    """When the caps of the day start again: midnight UTC."""
    now = timezone.now()
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def reading(*, project: Project, user: User) -> dict[str, Any]:
    """The current guidelines, and what changed since the version this person acknowledged."""
    current = selectors.guideline_current(project=project)
    read = selectors.guideline_read(project=project, user=user)
    if current is None:
        return {}
    return {
        "guideline": current,
        "guideline_html": text_html(current.body),
        "read_version": read.version if read else 0,
        "changes": changes_since(read, current),
    }


def changes_since(old: Guideline | None, new: Guideline) -> list[Any]:
    """Empty where there is nothing to compare with."""
    return changed_lines(old.body, new.body) if old is not None and old.pk != new.pk else []


# What the label screen shows, prepared for its template.
#
# Nothing of an answer's origin and nothing of other votes comes through here: the template cannot
# show what it is not given.

# What is stored, and the words for it; the reasons to choose from that a project has by default
# too. A project's own words are shown as they are.
SKIP_REASONS = {
    "Not my subject": _("Not my subject"),
    "Prompt is unclear": _("Prompt is unclear"),
    "A language I do not read": _("A language I do not read"),
    "Something is broken or cut off": _("Something is broken or cut off"),
}
REASONS = {
    "Correct": _("Correct"),
    "Complete": _("Complete"),
    "Clear": _("Clear"),
    "To the point": _("To the point"),
    "Honest about limits": _("Honest about limits"),
    "Safer": _("Safer"),
}


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence above the pair; `tone` is a note's class."""

    text: str
    tone: str = "warn"
    icon: str = "triangle-alert"


class Given(TypedDict, total=False):
    """What a person has entered so far, by the names of the form; criteria in sides."""

    answer: str
    criteria: dict[str, str]
    reasons: list[str]
    rationale: str
    flags: list[str]
    improvement: str
    runs: Runs


@dataclass(frozen=True, slots=True)
class CriterionTick:
    """One of the three answers to a criterion."""

    value: str
    letter: str
    key: str
    tone: str
    is_set: bool


@dataclass(frozen=True, slots=True)
class CriterionRow:
    name: str  # of the form's field
    label: str
    definition: str
    ticks: list[CriterionTick]


@dataclass(frozen=True, slots=True)
class Button:
    """A choice: what it sends, what it says, its keys (the first is printed on it)."""

    value: str
    label: str
    keys: str
    printed: str
    tone: str = ""
    short: str = ""


def context(
    got: Lease | NothingReason | selectors.AnsweredPair,
    *,
    project: Project,
    annotator: User,
    undo: str = "",
    notice: Notice | None = None,
    typed: Given | None = None,
    back_to: str = "",
) -> dict[str, Any]:
    """The context of `_pair.html`: a pair to judge, an answer to change, or why there is nothing.

    undo: the query string that takes back what the person did last; empty before they did anything.
    typed: what the person had entered, given back when it could not be stored.
    """
    common = {
        "notice": notice,
        "undo": undo,
        "page_title": gettext("Label"),
        "nav": "label",
        "back_to": back_to,
    }
    if isinstance(got, NothingReason):
        more = context_of(got, project=project, annotator=annotator)
        more["completion"] = completion_of(project=project, user=annotator, nothing=got.code)
        return common | more | {"nothing": got, "n_today": got.n_today}
    if isinstance(got, selectors.AnsweredPair):
        questions = Questions.of(selectors.settings_get(project=project))
        is_run = got.vote.task.of_agents
    else:
        questions, is_run = got.questions, got.of_agents
    if is_run:
        costs = selectors.run_totals(got) if questions.costs else {}
        said = (typed or {}).get("runs") or _runs_given(got)
        shown = runs_shown(got, project, questions, costs, said)
    else:
        shown = pair_shown(got.prompt, got.left, got.right)
    if isinstance(got, selectors.AnsweredPair):
        given = _given(got) | (typed or {})
        return (
            common
            | shown
            | answer_form(questions, given)
            | {
                "editing": got,
                "answer_id": f"vote-{got.vote.pk}",
                "key": f"revise.{got.vote.pk}.{got.vote.revision + 1}",
                "frozen_in": vote_uses([got.vote.pk]).get(got.vote.pk, 0),
            }
        )
    return (
        common
        | shown
        | answer_form(got.questions, typed or {})
        | {
            "lease": got,
            "answer_id": f"slot-{got.slot}",
            "number": got.n_today + 1,
            "n_today": got.n_today,
            "remaining": selectors.remaining_for(
                project=project, annotator=annotator, n_today=got.n_today
            ),
            "remaining_cap": selectors.REMAINING_CAP,
            "key": got.key,
            "skip_reasons": SKIP_REASONS,
            "completion": completion_of(
                project=project, user=annotator, wanted=got.questions.completion_votes
            ),
        }
    )


def answer_form(questions: Questions, given: Given) -> dict[str, Any]:
    """What the project asks about a pair, with what was given so far in its place."""
    reasons = given.get("reasons", ())
    return {
        "questions": questions,
        "buttons": buttons(questions),
        "chosen": given.get("answer", ""),
        "criteria": [_row(criterion, given) for criterion in questions.criteria],
        "reasons": [(one, REASONS.get(one, one), one in reasons) for one in questions.reasons],
        "flags": flags(given.get("flags", ())),
        "given": given,
    }


def _row(criterion: Criterion, given: Given) -> CriterionRow:
    chosen = given.get("criteria", {}).get(criterion.key)
    return CriterionRow(
        f"{CRITERION}{criterion.key}",
        criterion.label,
        criterion.definition,
        [
            CriterionTick(value, letter, key, tone, value == chosen)
            for value, letter, key, tone in (
                ("left", "A", "1", "a"),
                ("tie", pgettext("short", "Tie"), "0", ""),
                ("right", "B", "2", "b"),
            )
        ],
    )


def _given(answered: selectors.AnsweredPair) -> Given:
    """A stored answer as the form would have sent it."""
    vote = answered.vote
    mirrored = vote.left_is == "b"  # an imported vote may not know: then A stands left
    sides = {"a": "right" if mirrored else "left", "b": "left" if mirrored else "right"}
    return Given(
        answer=f"{answered.side}-{vote.strength}" if vote.strength else answered.side,
        criteria={key: sides.get(choice, choice) for key, choice in vote.criteria.items()},
        reasons=vote.reasons,
        rationale=vote.rationale,
        flags=vote.flags,
        improvement=vote.improvement.brief[-1]["content"] if vote.improvement else "",
    )


def _runs_given(got: Lease | selectors.AnsweredPair) -> Runs:
    """What a stored answer says about its runs, as the form would have sent it."""
    if not isinstance(got, selectors.AnsweredPair):
        return Runs()
    stored = selectors.run_answer(got.vote.pk)
    return as_seen(stored, got.vote.left_is) if stored else Runs()


def as_seen(stored: RunAnswer, left_is: str) -> Runs:
    sides = {"a": "right", "b": "left"} if left_is == "b" else {"a": "left", "b": "right"}
    turned = left_is == "b"
    return Runs(
        outcome={sides[side]: value for side, value in stored.outcome.items()},
        first_error={sides[side]: value for side, value in stored.first_error.items()},
        steps={
            "-".join(reversed(places.split("-"))) if turned else places: sides.get(value, value)
            for places, value in stored.steps.items()
        },
    )


def flags(chosen: Any) -> list[tuple[str, str, bool]]:
    """(name, words, set) of every flag."""
    return [(name, words, name in chosen) for name, words in FLAGS.items()]


def buttons(questions: Questions) -> list[Button]:
    """The choices in the order of the bar, with the keys that press them."""
    if questions.strength:
        left = [
            Button("left-2", gettext("A is much better"), "!", "⇧1", "a", gettext("A much")),
            Button("left-1", gettext("A is better"), "1 a ArrowLeft", "1", "a", "A"),
        ]
        right = [
            Button("right-1", gettext("B is better"), "2 b ArrowRight", "2", "b", "B"),
            Button("right-2", gettext("B is much better"), "@", "⇧2", "b", gettext("B much")),
        ]
    else:
        left = [Button("left", gettext("A is better"), "1 a ArrowLeft", "1", "a", "A")]
        right = [Button("right", gettext("B is better"), "2 b ArrowRight", "2", "b", "B")]
    tie = [Button("tie", gettext("Tie"), "t 0", "T", "", pgettext("short", "Tie"))]
    tie = tie if questions.tie else []
    bad = (
        [Button("both_bad", gettext("Both are bad"), "x", "X", "", gettext("Both bad"))]
        if questions.both_bad
        else []
    )
    return [*left, *tie, *right, *bad]


# What is the same on the label screen from pair to pair, made once: the bar and the addresses.
#
# A vote is answered with the next pair, hundreds of times a minute, and by far the most of its HTML
# is the bar of choices, flags and skip reasons below the texts. It depends on what the project asks
# and on nothing of the pair, so one made for the last pair is as good; only where undo leads
# is filled in. Making it was more than half of the template's work (docs/speed.md).

_PAGES = ("answers", "guidelines", "hold", "label", "vote", "who")
# Stands for that in what is kept. Nobody can write it into a text of a project.
_UNDO = f"undo-{secrets.token_hex(8)}"


def bar_html(*, slug: str, questions: Questions, undo: str) -> SafeString:
    """The bar below a fresh pair, nothing chosen or entered yet; `undo` as in `context`."""
    make = _bar.__wrapped__ if settings.DEBUG else _bar  # templates may change under DEBUG
    html = make(slug, questions, bool(undo), get_language())
    return mark_safe(html.replace(_UNDO, escape(undo)))  # noqa: S308 - escaped


@lru_cache(maxsize=512)
def _bar(slug: str, questions: Questions, has_undo: bool, _language: str) -> str:
    asked = answer_form(questions, {})
    return render_to_string(
        "labeling/_bar.html",
        asked
        | {
            "active_project": {"slug": slug},
            "skip_reasons": SKIP_REASONS,
            "undo": _UNDO if has_undo else "",
        },
    )


@lru_cache(maxsize=512)
def addresses(slug: str) -> dict[str, str]:
    """The addresses of a project's label screen, by the names of their patterns."""
    return {name: reverse(f"labeling:{name}", args=[slug]) for name in _PAGES}


# What changed between two versions of a text, line by line, for people to read.

CONTEXT = 2  # unchanged lines shown around a change


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a comparison; a gap stands for unchanged lines that are left out."""

    kind: Literal["same", "added", "removed", "gap"]
    text: str = ""

    @property
    def sign(self) -> str:
        return {"added": "+", "removed": "−", "gap": "⋯"}.get(self.kind, "")


def changed_lines(old: str, new: str) -> list[DiffLine]:
    """The changes with some lines around each; empty when the texts are the same.

    Lines are compared without trailing blanks, which nobody sees.
    """
    before = [line.rstrip() for line in old.splitlines()]
    after = [line.rstrip() for line in new.splitlines()]
    matcher = SequenceMatcher(a=before, b=after, autojunk=False)
    groups = list(matcher.get_grouped_opcodes(CONTEXT))
    lines: list[DiffLine] = []
    for number, group in enumerate(groups):
        if number or group[0][1]:
            lines.append(DiffLine("gap"))
        for tag, a, a_end, b, b_end in group:
            lines.extend(_lines(tag, before[a:a_end], after[b:b_end]))
    if groups and groups[-1][-1][2] < len(before):
        lines.append(DiffLine("gap"))
    return lines


def _lines(tag: str, before: list[str], after: list[str]) -> Iterator[DiffLine]:
    if tag == "equal":
        yield from (DiffLine("same", text) for text in before)
        return
    yield from (DiffLine("removed", text) for text in before)
    yield from (DiffLine("added", text) for text in after)
