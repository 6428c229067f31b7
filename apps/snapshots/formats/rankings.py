"""Several answers to one prompt in order, where comparisons connect more than two of them."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from apps.snapshots.assembling.rows import Row
from apps.snapshots.formats.pairs import has_side
from measures.ranking import groups_of, ranking_of

LEAST_ANSWERS = 3


@dataclass(slots=True)
class _Asked:
    """A prompt, its distinct answers, and who beat whom in which comparison."""

    prompt: Any
    group: str
    answers: dict[str, int] = field(default_factory=dict)
    texts: list[Any] = field(default_factory=list)
    wins: list[tuple[int, int]] = field(default_factory=list)
    comparisons: list[str] = field(default_factory=list)

    def number(self, answer: Any) -> int:
        key = json.dumps(answer, sort_keys=True)
        if key not in self.answers:
            self.answers[key] = len(self.texts)
            self.texts.append(answer)
        return self.answers[key]


def ranking_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """A row per set of at least three connected answers, in the order of the file's prompts.

    Ties order nothing and are passed over.
    """
    asked: dict[str, _Asked] = {}
    for row in filter(has_side, rows):
        key = json.dumps(row["prompt"], sort_keys=True)
        here = asked.setdefault(key, _Asked(row["prompt"], row["group"]))
        here.wins.append((here.number(row["chosen"]), here.number(row["rejected"])))
        here.comparisons.append(row["comparison"])
    for one in asked.values():
        yield from _ranked(one)


def _ranked(asked: _Asked) -> Iterator[Row]:
    by_answer: dict[int, list[int]] = defaultdict(list)
    for number, (winner, _) in enumerate(asked.wins):
        by_answer[winner].append(number)
    for group in groups_of(len(asked.texts), asked.wins):
        if len(group) < LEAST_ANSWERS:
            continue
        place = {answer: k for k, answer in enumerate(group)}
        numbers = sorted(n for answer in group for n in by_answer[answer])
        wins = [(place[asked.wins[n][0]], place[asked.wins[n][1]]) for n in numbers]
        ranked = ranking_of(len(group), wins)
        yield {
            "prompt": asked.prompt,
            "responses": [asked.texts[group[k]] for k in ranked.order],
            "scores": list(ranked.scores),
            "cyclic": ranked.cyclic,
            "complete": ranked.complete,
            "comparisons": [asked.comparisons[n] for n in numbers],
            "group": asked.group,
        }
