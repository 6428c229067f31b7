"""The book of advice: the pages of docs/playbook, read once, found by name, by rule or by words.

A page is Markdown with front matter of `name: value` lines (title, sort, summary; tags, failures
and see with commas, sources with semicolons). Four sections have a form of their own:

    ## Causes     - **stage** how it would bring the symptom about
    ## Checks     1. what to do [check](check:EXPERIMENT), or [open](tab:TAB), and below it
                     - **outcome** what it tells
    ## Rules      - **rule** what it means and what to do when it fires
    ## Failures   - **failure kind, or finding of a probe** whose turn it is to do what

Everything else is shown as it is written. No advice stands in Python: pages quote these.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from workers.rules.choices import BY_NAME
from workers.rules.rule import STAGES
from workers.rules.table import RULES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "playbook"
START, CHECKS = "which-link-first", "next-checks"
SORTS = {
    "walkthrough": "Walkthroughs",
    "rule": "What an alert means",
    "failure": "When a run fails",
    "pitfalls": "Pitfalls",
    "reference": "Tables",
}
# How much a word counts by where it stands, and how much less when it only begins a word there.
_TITLE, _TAGS, _TEXT, _BEGINNING = 100, 20, 1, 0.5
_NAMED = re.compile(r"\*\*(?P<name>.+?)\*\* (?P<text>.+)")
_LINK = re.compile(r" \[\w+\]\((?P<sort>check|tab):(?P<name>\w+)\)$")
_NEW_LINE = re.compile(r"\s*(?:[-|>#]|\d+\. |$)")


class PageError(ValueError):
    """A page of the playbook is not of its form; names file and line."""


@dataclass(frozen=True, slots=True)
class Named:
    """`**name** text`: a cause by its stage, an outcome, a rule, a failure kind."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Check:
    """One step, in order. `experiment` is a key of `workers.rules.experiments`, `tab` a tab of the
    run's page: with a run at hand the step becomes a button or a link."""

    do: str
    readings: tuple[Named, ...] = ()
    experiment: str = ""
    tab: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`summary` is what one sees; `sections` are (title, Markdown) of what has no form of its own;
    `failures` are the kinds of failure that lead here."""

    slug: str
    title: str
    sort: str
    summary: str
    tags: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    causes: tuple[Named, ...] = ()
    checks: tuple[Check, ...] = ()
    advice: Mapping[str, str] = field(default_factory=dict)  # by rule
    next_steps: Mapping[str, str] = field(default_factory=dict)  # by failure kind
    sections: tuple[tuple[str, str], ...] = ()
    text: str = ""

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of rules and failure kinds that lead here, former names included."""
        own = [name for rule in RULES if rule.page == self.slug for name in rule.names]
        return tuple(dict.fromkeys((*own, *self.failures, *self.next_steps)))


@cache
def pages() -> Mapping[str, Page]:
    """All pages by slug, in the order of the book: by sort, then by stage, then by title."""
    read = [page_read(path.stem, path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.md"))]
    sorts = list(SORTS)
    return {
        one.slug: one for one in sorted(read, key=lambda one: (sorts.index(one.sort), _at(one)))
    }


def page_of(rule: str) -> Page | None:
    """The page about a rule, by any of its names, or about a kind of failure."""
    for name in (rule, rule.removeprefix("guard_")):
        known = BY_NAME.get(name)
        if known is not None:
            return pages()[known.page]
        if name in _by_failure():
            return _by_failure()[name]
    return None


def page_for(rule: str, stage: str = "") -> Page | None:
    """As `page_of`; what no page names leads to the order of checks, where its stage is known."""
    return page_of(rule) or (pages()[START] if stage in STAGES else None)


def advice(rule: str) -> str:
    """What a rule's firing means and what to do; the summary of its page where it has no sentence
    of its own; empty for a rule that is not known."""
    known, page = BY_NAME.get(rule), page_of(rule)
    if page is None:
        return ""
    said = page.advice.get(known.name if known else rule)
    return said or page.next_steps.get(rule, page.summary)


def next_step(kind: str, fault: str = "") -> str:
    """What to do about a run that failed so: by its kind, else by the group that its kind begins
    with (`contract_*`), else by whose fault it was; empty where nothing is known."""
    named = {name: text for page in pages().values() for name, text in page.next_steps.items()}
    groups = (f"{kind.partition('_')[0]}_*", f"{fault}_*")
    return next((named[name] for name in (kind, *groups) if name in named), "")


def experiment_words(name: str) -> Check:
    """What an experiment asks (`do`) and what its outcomes say (confirms, refutes)."""
    return next(check for check in pages()[CHECKS].checks if check.experiment == name)


def search(words: str, *, stage: str = "") -> list[Page]:
    """Pages that have every word somewhere: in the title first, then in tags and rules, then in the
    text. Without words all of them, in the order of the book. `stage` keeps those that name the
    stage among their causes."""
    wanted = _words(words)
    every = [
        one
        for one in pages().values()
        if stage not in STAGES or any(cause.name == stage for cause in one.causes)
    ]
    scored = [(_score(one, wanted), one) for one in every]
    scored.sort(key=lambda pair: -pair[0])
    return [one for score, one in scored if score > 0 or not wanted]


# --- one page ---


def page_read(slug: str, source: str) -> Page:
    """Raises `PageError` where front matter or a section is not of its form."""
    front, _, body = source.removeprefix("---\n").partition("\n---\n")
    given = dict(_pair(slug, line) for line in front.splitlines())
    sections = _sections(body)
    own = {name: sections.pop(name, ()) for name in ("Causes", "Checks", "Rules", "Failures")}
    try:
        if given["sort"] not in SORTS:
            raise PageError(f"{slug}.md: the sort {given['sort']!r} is none of {', '.join(SORTS)}")
        return Page(
            slug=slug,
            title=given["title"],
            sort=given["sort"],
            summary=given["summary"],
            tags=_split(given.get("tags", ""), ","),
            failures=_split(given.get("failures", ""), ","),
            see=_split(given.get("see", ""), ","),
            sources=_split(given.get("sources", ""), ";"),
            causes=tuple(_named(slug, line) for line in own["Causes"]),
            checks=tuple(_checks(slug, own["Checks"])),
            advice={one.name: one.text for one in (_named(slug, line) for line in own["Rules"])},
            next_steps={
                one.name: one.text for one in (_named(slug, line) for line in own["Failures"])
            },
            sections=tuple((title, "\n".join(lines)) for title, lines in sections.items()),
            text=body,
        )
    except KeyError as error:
        raise PageError(f"{slug}.md: the front matter has no {error.args[0]}") from error


def _pair(slug: str, line: str) -> tuple[str, str]:
    name, found, value = line.partition(": ")
    if not found:
        raise PageError(f"{slug}.md: {line!r} is no `name: value`")
    return name, value.strip()


def _split(text: str, at: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(at) if part.strip())


def _sections(body: str) -> dict[str, tuple[str, ...]]:
    """Lines by the heading above them; lines that were only wrapped are joined."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in body.splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
            found[title] = []
        elif title and found[title] and found[title][-1] and not _NEW_LINE.match(line):
            found[title][-1] += f" {line.strip()}"
        elif title and found[title] and line.startswith("> ") and found[title][-1][:2] == "> ":
            found[title][-1] += f" {line.removeprefix('> ')}"
        elif title:
            found[title].append(line)
    return {name: _stripped(lines, name) for name, lines in found.items()}


def _stripped(lines: list[str], name: str) -> tuple[str, ...]:
    formed = name in ("Causes", "Checks", "Rules", "Failures")
    return tuple(line for line in lines if line or not formed)


def _named(slug: str, line: str) -> Named:
    found = _NAMED.fullmatch(line.strip().removeprefix("- "))
    if found is None:
        raise PageError(f"{slug}.md: {line!r} is no `- **name** text`")
    return Named(found["name"], found["text"])


def _checks(slug: str, lines: tuple[str, ...]) -> Iterator[Check]:
    steps: list[tuple[str, list[Named]]] = []
    for line in lines:
        if line[0].isdigit():
            steps.append((line.partition(". ")[2], []))
        elif steps:
            steps[-1][1].append(_named(slug, line))
        else:
            raise PageError(f"{slug}.md: {line!r} stands before the first check")
    for text, readings in steps:
        link = _LINK.search(text)
        goal = {link["sort"]: link["name"]} if link else {}
        do = _LINK.sub("", text)
        yield Check(do, tuple(readings), goal.get("check", ""), goal.get("tab", ""))


# --- order and search ---


def _at(page: Page) -> tuple[int, str]:
    stage = page.causes[0].name if page.causes else ""
    return (STAGES.index(stage) if stage in STAGES else -1), page.title


@cache
def _by_failure() -> Mapping[str, Page]:
    return {
        kind: page
        for page in pages().values()
        for kind in (*page.next_steps, *page.failures)
        if not kind.endswith("*")
    }


def _score(page: Page, wanted: list[str]) -> float:
    """0 unless every word is found; each counts where it counts most."""
    places = (
        (_TITLE, _words(page.title)),
        (_TAGS, _words(" ".join((*page.tags, *page.rules)))),
        (_TEXT, _words(f"{page.summary} {page.text}")),
    )
    total = 0.0
    for word in wanted:
        best = max(weight * _hit(word, there) for weight, there in places)
        if not best:
            return 0.0
        total += best
    return total


def _hit(word: str, there: list[str]) -> float:
    if word in there:
        return 1.0
    return _BEGINNING if any(one.startswith(word) for one in there) else 0.0


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.findall(r"[a-z0-9]+", plain)
