"""Two runs of agents beside each other: steps, what is folded, where they part.

Nothing of an answer's origin comes through here; totals do where the project shows them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, ngettext

from apps.accounts.models import Project, User
from apps.common.numbers import count
from apps.labeling import selectors
from apps.labeling.rendering import texts_html
from apps.labeling.rendering.maths import text_escaped, tricks_named
from measures.messages import Message, Messages, call_said, length_of, said
from measures.runs import Aligned, Step, aligned, steps_of

SHORT = 600  # characters of a result that stands open
FEW_LINES = 12
SENT = 200  # characters of a folded text that come with the page; the rest when it is opened
LONGEST_PROSE = 20_000  # characters of what an agent says that are rendered as Markdown
FEWEST_FOLDED = 2  # equal steps in a row that are folded together


@dataclass(frozen=True, slots=True)
class Part:
    """A call of a tool or its result as text: `letters` is all of it, or its beginning where `rest`
    says where the whole comes from. kind: call or result."""

    kind: str
    name: str
    letters: SafeString
    summary: str
    folded: bool
    rest: str = ""
    is_error: bool = False

    @property
    def html(self) -> SafeString:
        """Not a template: of a thousand on a page these take a tenth of the time."""
        failed = format_html(_FAILED, gettext("failed")) if self.is_error else ""
        if not self.folded:
            return format_html(_OPEN, self.kind, failed, self.letters)
        name = format_html("<code>{}</code> ", self.name) if self.name else ""
        loads = format_html(_LOADS, self.rest) if self.rest else ""
        link = format_html(_LINK, self.rest, gettext("All of it")) if self.rest else ""
        return format_html(
            _FOLDED, self.kind, name, failed, self.summary, loads, self.letters, link
        )


_FAILED = '<span class="badge bad">{}</span> '
_OPEN = '<div class="part {}">{}<pre class="letters" tabindex="0">{}</pre></div>'
_FOLDED = (
    '<details class="part {}" data-part><summary>{}{}<span class="faint">{}</span></summary>'
    '<pre class="letters" tabindex="0"{}>{}</pre>{}</details>'
)
_LOADS = (
    ' hx-get="{}" hx-target="this" hx-sync="this:drop"'
    ' hx-trigger="toggle from:closest details once" hx-swap="outerHTML"'
)
_LINK = '<noscript><a href="{}">{}</a></noscript>'


@dataclass(frozen=True, slots=True)
class StepShown:
    number: int
    role: str
    prose: SafeString | str
    thought: SafeString | str
    parts: SafeString  # its calls, and what they gave back
    beside: int | None = None  # the other run's step that does the same, or calls the same tools
    same: bool = False
    parts_here: bool = False  # the first step in which the runs differ
    ask: str = ""  # "3-4": which of the two, step 3 left and 4 right, is better is asked
    chosen: str = ""

    @property
    def title(self) -> str:
        if self.role == "assistant":
            return gettext("Step %(n)s") % {"n": self.number}
        return {"user": gettext("User"), "system": gettext("System")}.get(
            self.role, gettext("Tool")
        )

    @property
    def beside_words(self) -> str:
        return gettext("beside step %(n)s") % {"n": self.beside}

    @property
    def question(self) -> str:
        steps = {"a": self.number, "b": self.beside}
        return gettext("A’s step %(a)s or B’s step %(b)s?") % steps


@dataclass(frozen=True, slots=True)
class Group:
    """Steps in a row: those that both runs have alike may be folded."""

    steps: list[StepShown] = field(default_factory=list)
    folded: bool = False

    @property
    def words(self) -> str:
        n = len(self.steps)
        return ngettext("%(n)s equal step", "%(n)s equal steps", n) % {"n": count(n)}


@dataclass(frozen=True, slots=True)
class Run:
    groups: list[Group]
    first: int  # numbers of its steps
    last: int
    totals: str = ""

    @property
    def numbers(self) -> range:
        return range(self.first, self.last + 1)


# Where the whole text of a message comes from: (side, number of the message) → address.
Address = Callable[[str, int], str]


def prompt_shown(prompt: Messages, address: Address) -> Run:
    steps = steps_of(prompt)
    shown = _shown(prompt, steps, "prompt", address, {})
    return Run([Group(shown)], 1, len(steps))


def pair_shown(
    prompt: Messages,
    left: Messages,
    right: Messages,
    address: Address,
    *,
    ask_steps: bool = False,
    chosen: Mapping[str, str] | None = None,
) -> tuple[Run, Run]:
    begun = len(steps_of(prompt))
    runs = [steps_of(messages, first=begun + 1) for messages in (left, right)]
    rows = aligned(*runs)
    differ = next((row for row in rows if not row.same), None)
    asked = (chosen or {}) if ask_steps else None
    return (
        _run(left, runs[0], "left", rows, differ, address, runs[1], asked),
        _run(right, runs[1], "right", rows, differ, address, runs[0], None),
    )


def _run(
    messages: Messages,
    steps: list[Step],
    side: str,
    rows: Sequence[Aligned],
    differ: Aligned | None,
    address: Address,
    others: Sequence[Step],
    asked: Mapping[str, str] | None,
) -> Run:
    """asked: the answers so far about pairs of steps; None where nothing is asked."""
    other = "right" if side == "left" else "left"
    about: dict[int, dict[str, Any]] = {}
    for row in rows:
        here, there = getattr(row, side), getattr(row, other)
        if here is None:
            continue
        known: dict[str, Any] = {"same": row.same, "parts_here": row is differ}
        if there is not None:
            known["beside"] = others[there].number
            if asked is not None and not row.same:
                known["ask"] = f"{steps[here].number}-{others[there].number}"
                known["chosen"] = asked.get(known["ask"], "")
        about[here] = known
    shown = _shown(messages, steps, side, address, about)
    last = steps[-1].number if steps else 0
    return Run(_grouped(shown), steps[0].number if steps else 1, last)


def _grouped(steps: Sequence[StepShown]) -> list[Group]:
    groups: list[Group] = []
    for step in steps:
        if not groups or groups[-1].folded != step.same:
            groups.append(Group(folded=step.same))
        groups[-1].steps.append(step)
    return [Group(one.steps, one.folded and len(one.steps) >= FEWEST_FOLDED) for one in groups]


def _shown(
    messages: Messages,
    steps: Sequence[Step],
    side: str,
    address: Address,
    about: dict[int, dict[str, Any]],
) -> list[StepShown]:
    """With one request to the cache for all that is rendered."""
    places = {id(message): n for n, message in enumerate(messages)}

    def rest(message: Message) -> str:
        return address(side, places[id(message)])

    texts = [(_prose(step), _thought(step)) for step in steps]
    html = iter(texts_html(text for pair in texts for text in pair if text))
    shown = []
    for place, step in enumerate(steps):
        prose, thought = (next(html) if text else "" for text in texts[place])
        results = [result_part(message, rest(message)) for message in step.results]
        if len(long := step.message.get("reasoning_content", "")) > LONGEST_PROSE:
            results.append(_part("result", gettext("Reasoning"), long, rest(step.message), short=0))
        if step.message["role"] == "tool":
            results.append(result_part(step.message, rest(step.message)))
        elif len(step.message["content"]) > LONGEST_PROSE:
            text = step.message["content"]
            results.append(_part("result", "", text, rest(step.message), short=0))
        calls = [
            _part("call", call["function"]["name"], call_said(call), rest(step.message))
            for call in step.message.get("tool_calls", ())
        ]
        shown.append(
            StepShown(
                step.number,
                step.message["role"],
                prose,
                thought,
                format_html_join("", "{}", ((part.html,) for part in (*calls, *results))),
                **about.get(place, {}),
            )
        )
    return shown


def _prose(step: Step) -> str:
    """What is rendered of a message: nothing of a tool's, which is text and nothing else."""
    return "" if step.message["role"] == "tool" else _rendered(step.message["content"])


def _thought(step: Step) -> str:
    return _rendered(step.message.get("reasoning_content", ""))


def _rendered(text: str) -> str:
    """Longer ones are shown letter by letter, when they are opened."""
    return text if text.strip() and len(text) <= LONGEST_PROSE else ""


def result_part(message: Message, rest: str = "") -> Part:
    """What a tool gave back; rest: where the whole comes from, "" for a page that has all of it,
    but for a result that is stored apart."""
    if "cut" in message:
        rest = reverse("result", args=[message["cut"]["hash"]])
    return _part(
        "result",
        message.get("name", ""),
        message["content"],
        rest,
        is_error=message.get("error", False),
        length=length_of(message),
    )


def _part(
    kind: str,
    name: str,
    text: str,
    whole: str,
    *,
    is_error: bool = False,
    short: int = SHORT,
    length: int | None = None,
) -> Part:
    """length: of the whole, where `text` is its beginning."""
    length = len(text) if length is None else length
    folded = length > short or text.count("\n", 0, short + 1) > FEW_LINES
    sent = text[:SENT] if folded and whole else text
    return Part(
        kind,
        name,
        plain_html(sent),
        _summary(text, length) if folded else "",
        folded,
        whole if len(sent) < length else "",
        is_error,
    )


def plain_html(text: str) -> SafeString:
    """Text that is shown letter by letter: whatever it holds stays text."""
    return mark_safe(tricks_named(text_escaped(text)))  # noqa: S308 - escaped


def _summary(text: str, length: int) -> str:
    """The first words and how long it is."""
    begin = " ".join(text[:400].split())[:80]
    size = ngettext("%(n)s character", "%(n)s characters", length) % {"n": count(length)}
    return f"{begin}… ({size})" if begin else size


def part_html(*, project: Project, annotator: User, slot: int, side: str, number: int) -> str:
    """A message that a page of two runs showed the beginning of, whole. `Missing` as in
    `selectors.message_shown`."""
    message = selectors.message_shown(
        project=project, annotator=annotator, slot=slot, side=side, number=number
    )
    return letters_html(message["content"] if message["role"] == "tool" else said(message))


def letters_html(text: str) -> str:
    return format_html('<pre class="letters" tabindex="0">{}</pre>', plain_html(text))


def totals_of(about: Any, steps: int) -> str:
    """Steps, tokens and cost in words, of what an import knows of the run."""
    known = about if isinstance(about, dict) else {}
    words = [ngettext("%(n)s step", "%(n)s steps", steps) % {"n": count(steps)}]
    tokens = [known.get(name) for name in ("prompt_tokens", "completion_tokens")]
    numbers = [int(n) for n in tokens if isinstance(n, int | float)]
    if numbers:
        words.append(gettext("%(n)s tokens") % {"n": count(sum(numbers))})
    cost = known.get("cost_usd")
    if isinstance(cost, int | float):
        words.append(f"${cost:.4g}")
    return " · ".join(words)
