"""What must hold after a drill, read from what people were told, the database and the files.

Each function takes plain values and returns sentences, one for each thing that is wrong.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_SHOWN = 9


@dataclass(frozen=True, slots=True)
class StoredVote:
    pk: int
    slot: int
    person: int
    comparison: int


def vote_faults(acknowledged: Sequence[int], stored: Collection[StoredVote]) -> list[str]:
    """acknowledged: the number in each answer that a vote was stored; everybody has had one for
    every vote they cast."""
    known = {vote.pk for vote in stored}
    by_slot = Counter(vote.slot for vote in stored)
    by_person = Counter((vote.person, vote.comparison) for vote in stored)
    return [
        *_wrong("votes acknowledged and not stored", set(acknowledged) - known),
        *_wrong("votes acknowledged twice", _several(Counter(acknowledged))),
        *_wrong("votes stored that were never acknowledged", known - set(acknowledged)),
        *_wrong("slots with two votes", _several(by_slot)),
        *_wrong("people with two votes on a comparison", _several(by_person)),
    ]


@dataclass(frozen=True, slots=True)
class StoredText:
    """A version of a text that somebody wrote; `prompt`: what it became when it was accepted."""

    text: int
    version: int
    words: str
    verdict: str
    prompt: int | None


def text_faults(
    acknowledged: Sequence[tuple[int, int, str]],
    accepted: Sequence[int],
    stored: Collection[StoredText],
) -> list[str]:
    """acknowledged: (text, version, words) of each answer that a text was stored; accepted: the
    texts that a reviewer was told are accepted. Nobody sends one back, so each has one version."""
    known = {(one.text, one.version, one.words) for one in stored}
    right = {one.text for one in stored if one.verdict == "accepted" and one.prompt is not None}
    made = Counter(one.prompt for one in stored if one.prompt is not None)
    return [
        *_wrong("texts acknowledged and not stored as sent", set(acknowledged) - known),
        *_wrong("texts stored that were never acknowledged", known - set(acknowledged)),
        *_wrong("texts with two versions", _several(Counter(one.text for one in stored))),
        *_wrong("words stored twice", _several(Counter(one.words for one in stored))),
        *_wrong("texts accepted and not a prompt", set(accepted) - right),
        *_wrong("prompts that are accepted and nobody was told", right - set(accepted)),
        *_wrong("prompts of two texts", _several(made)),
    ]


def step_faults(
    name: str, points: Sequence[tuple[int, float]], undisturbed: Sequence[float]
) -> list[str]:
    """points: (step, value) as charts show them; undisturbed: the values of as many steps of a run
    that nothing happens to."""
    steps = [step for step, _ in points]
    last = max(steps, default=0)
    changed = [
        step
        for step, value in points
        if 1 <= step <= len(undisturbed) and abs(value - undisturbed[step - 1]) > 1e-9
    ]
    return [
        *_wrong(f"{name}: steps lost", set(range(1, last + 1)) - set(steps)),
        *_wrong(f"{name}: steps doubled", _several(Counter(steps))),
        *([f"{name}: steps out of order"] if any(a > b for a, b in pairwise(steps)) else []),
        *_wrong(f"{name}: steps with another value than an undisturbed run's", changed),
        *([] if steps else [f"{name}: no step was stored"]),
    ]


def attempt_faults(name: str, said: int | None, stored: int) -> list[str]:
    """said: points in the file that the attempt's trainer wrote, None where there is none; stored:
    in the database."""
    doubled = said is not None and stored > said
    return [f"{name}: {stored} points stored of {said} that were said"] * doubled


def witness_faults(name: str, records: Iterable[Mapping[str, Any]]) -> list[str]:
    """records: what each trainer wrote at its start and end, under a lock that one alone holds."""
    met = [record["attempt"] for record in records if record["what"] == "overlap"]
    return _wrong(f"{name}: attempts that began while another trained", met)


@dataclass(frozen=True, slots=True)
class Import:
    """A file of `rows` rows: how its job ended, and how many of its rows there are."""

    job: str
    state: str
    rows: int
    found: int


def import_faults(imports: Iterable[Import]) -> list[str]:
    """All rows of a file, or none; and all where somebody was told that it is done."""
    return [
        f"import {one.job} is {one.state} and has {one.found} of {one.rows} rows"
        for one in imports
        if one.found != (one.rows if one.state == "done" else 0)
    ]


def unfinished(what: str, states: Mapping[str, str], ends: Collection[str]) -> list[str]:
    """Whatever hangs in a state that is no end."""
    return _wrong(f"{what} without an end", [k for k, state in states.items() if state not in ends])


def _several(counts: Counter[Any]) -> list[Any]:
    return [one for one, n in counts.items() if n > 1]


def _wrong(what: str, found: Collection[Any]) -> list[str]:
    if not found:
        return []
    shown = ", ".join(map(str, sorted(found)[:_SHOWN]))
    return [f"{what}: {len(found)} ({shown}{', …' if len(found) > _SHOWN else ''})"]
