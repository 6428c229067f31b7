"""N answers to each prompt, as in UltraFeedback: pairs are made of them, or one task of all.

Source: the dataset cards of openbmb/UltraFeedback (`instruction`, `completions` of `model`,
`response`, `overall_score`) and berkeley-nest/Nectar (`answers` of `answer`, `model`, `rank`).
The model's name goes to the answer's origin and its rating to the answer's metadata; neither is
ever shown to annotators. A rating is not taken as a preference between two answers.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apps.labeling.formats.conversations import content_from
from apps.labeling.formats.mapping import Mapper, mapping_of
from apps.labeling.formats.records import (
    COMMON,
    TOGETHER,
    BadValue,
    Converted,
    Options,
    Record,
    RecordFault,
    number_from,
)
from measures.splits import unit_hash

KEY, LABEL = "completions", "N answers to each prompt (UltraFeedback)"
FIELDS = ("prompt", "completions", *COMMON)
REQUIRED = ("prompt", "completions")
MOST_TOGETHER = 9  # answers of one task: what a screen shows and a digit chooses
_TEXT = ("response", "answer", "completion", "text", "content", "output", "generated_text")
_MODEL = ("model", "model_name", "generator", "source")
_SCORE = ("overall_score", "fine_grained_score", "fine-grained_score", "score", "rating", "reward")


@dataclass(frozen=True, slots=True)
class Completion:
    content: Any
    model: str = ""
    score: float | None = None  # higher is better; a rank counts downwards
    rating: Any = None  # as the file has it


def fits(columns: Iterable[str], sample: Iterable[Record]) -> bool:
    found = mapping_of(Options(), ("completions",), columns).get("completions")
    if found is None:
        return False
    values = [record.get(found) for record in sample]
    return bool(values) and all(isinstance(value, list) and len(value) > 1 for value in values)


def choices(sample: Iterable[Record], columns: Iterable[str]) -> tuple[str, ...]:
    return tuple(columns)


def mapper(options: Options, columns: Iterable[str]) -> Mapper:
    return Mapper(options, FIELDS, columns)


def convert(number: int, record: Record, read: Mapper) -> Iterator[Converted]:
    try:
        answers = _answers(record.get(read.mapping.get("completions", "")))
        prompt = read.value(record, "prompt")
        common = read.common(record, without=("models",))
        if read.options.pairing in TOGETHER:
            yield Converted(number, task_of(prompt, answers, common, read.options))
            return
        pairs = paired(answers, read.options, key=str(prompt))
    except BadValue as error:
        yield Converted(number, fault=RecordFault(error.field, error.message))
        return
    name = common.pop("id", None)
    for i, j in pairs:
        row = common | {"prompt": prompt}
        if name is not None:
            row["id"] = f"{name}:{i + 1}-{j + 1}"
        for side, answer in (("a", answers[i]), ("b", answers[j])):
            row[f"response_{side}"] = answer.content
            if answer.model:
                row[f"model_{side}"] = answer.model
            if answer.rating is not None:
                row[f"metadata_{side}"] = {"rating": answer.rating}
        yield Converted(number, row)


def task_of(
    prompt: Any, answers: list[Completion], common: dict[str, Any], options: Options
) -> dict[str, Any]:
    """One task with all answers, for `services.task_rows`."""
    if len(answers) > MOST_TOGETHER:
        many = f"has {len(answers)} answers; at most {MOST_TOGETHER} are judged together"
        raise BadValue("completions", many)
    row = common | {
        "prompt": prompt,
        "responses": [{"text": one.content, "model": one.model} for one in answers],
        "kind": options.pairing,
    }
    if options.pairing == "grade":
        row["scale"] = {
            "min": options.grade_low,
            "max": options.grade_high,
            "min_label": options.grade_low_label,
            "max_label": options.grade_high_label,
        }
    return row


def _answers(value: Any) -> list[Completion]:
    if not isinstance(value, list):
        raise BadValue("completions", "is not a list of answers")
    if len(value) < 2:
        raise BadValue("completions", f"has {len(value)} answer; a comparison needs two")
    return [_answer(entry, place) for place, entry in enumerate(value, start=1)]


def _answer(entry: Any, place: int) -> Completion:
    if isinstance(entry, str | list):
        return Completion(content_from(entry))
    if not isinstance(entry, Mapping):
        raise BadValue("completions", f"answer {place} is neither a text nor an object")
    given = [entry[name] for name in _TEXT if entry.get(name) is not None]
    content = next((value for value in given if value), given[0] if given else None)
    if content is None:
        raise BadValue("completions", f"answer {place} has no text ({', '.join(_TEXT)})")
    model = next((entry[name] for name in _MODEL if isinstance(entry.get(name), str)), "")
    rating = next((entry[name] for name in _SCORE if entry.get(name) is not None), None)
    score = number_from(rating)
    if rating is None and entry.get("rank") is not None:
        rating = entry["rank"]
        rank = number_from(rating)
        score = -rank if isinstance(rank, int | float) else None
    usable = isinstance(score, int | float) and not isinstance(score, bool)
    return Completion(content_from(content), model, float(score) if usable else None, rating)


def paired(answers: list[Completion], options: Options, *, key: str) -> list[tuple[int, int]]:
    """Index pairs, each in an order drawn by hash, so that A is not always the earlier or better.

    The draws depend on seed, prompt and answers only. Raises BadValue where ratings are wanted and
    there are none.
    """

    def draw(what: str) -> float:
        return unit_hash(f"{key}\0{what}", f"imported completions:{options.seed}")

    n = len(answers)
    if options.pairing == "all":
        chosen = list(itertools.combinations(range(n), 2))
    elif options.pairing == "random":
        every = list(itertools.combinations(range(n), 2))
        chosen = [every[int(draw("pair") * len(every))]]
    else:
        order = _by_score(answers)
        if options.pairing == "best_worst":
            chosen = [(order[0], order[-1])]
        else:
            rest = order[1:]
            chosen = [(order[0], rest[int(draw("other") * len(rest))])]
    return [(i, j) if draw(f"side {_digest(answers, i, j)}") < 0.5 else (j, i) for i, j in chosen]


def _by_score(answers: list[Completion]) -> list[int]:
    if any(answer.score is None for answer in answers):
        raise BadValue("completions", "an answer has no rating; choose a pairing without ratings")
    order = sorted(range(len(answers)), key=lambda i: (-(answers[i].score or 0.0), i))
    if answers[order[0]].score == answers[order[-1]].score:
        raise BadValue("completions", "all answers are rated alike, so none is the best")
    return order


def _digest(answers: list[Completion], i: int, j: int) -> str:
    """Of both texts in order, a zero byte between them; put together, long runs would take their
    memory twice."""
    first, other = sorted(str(answers[k].content) for k in (i, j))
    digest = hashlib.sha256(first.encode("utf-8", "replace"))
    digest.update(b"\0")
    digest.update(other.encode("utf-8", "replace"))
    return digest.hexdigest()
