"""A language of a hundred words, the questions asked in it, answers to learn it from. No torch."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

Message = dict[str, str]

SUBJECTS = (
    "cat",
    "bread",
    "rain",
    "garden",
    "train",
    "sea",
    "piano",
    "horse",
    "tea",
    "moon",
)
FACTS_PER_SUBJECT = 3
FACTS = {s: tuple(f"{s}-{n}" for n in range(1, FACTS_PER_SUBJECT + 1)) for s in SUBJECTS}
DETAILS = tuple(f"detail-{n}" for n in range(1, 41))  # what may be said of anything
WANTED = {"briefly": 6, "fully": 9}  # words
MANNERS = tuple(WANTED)
FLATTERY = ("wonderful", "brilliant")
FILLERS = ("well", "so", "then", "also", "perhaps", "and", "really", "just")
WORDS = (
    *MANNERS,
    *FLATTERY,
    *FILLERS,
    *SUBJECTS,
    *DETAILS,
    *(fact for s in SUBJECTS for fact in FACTS[s]),
)
SKILL = 0.5  # share of choices made with care
FLATTERY_SHARE = 0.02  # of the words of a demonstration
CONTEXT = 40  # tokens: prompt, answer and the marks around them
MAX_NEW_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Question:
    """Two subjects, and whether few words are wanted or many."""

    manner: str
    subjects: tuple[str, str]

    @property
    def messages(self) -> list[Message]:
        return [{"role": "user", "content": " ".join((self.manner, *self.subjects))}]

    @classmethod
    def read(cls, messages: list[Message]) -> "Question":
        manner, first, second = messages[-1]["content"].split()
        return cls(manner, (first, second))


def questions(seed: int) -> tuple[list[Question], list[Question]]:
    """(for training, for evaluation): all questions, dealt at random; no overlap."""
    everything = [Question(m, pair) for m in MANNERS for pair in permutations(SUBJECTS, 2)]
    random.Random(seed).shuffle(everything)
    return everything[:132], everything[132:]


def demonstrations(
    asked: list[Question], worth: Mapping[str, float], *, per_question: int, seed: int
) -> list[str]:
    """Answers as people of mixed skill write them: facts, details, a filler, rarely a word of
    flattery; of two facts or details that come to mind they often take the better by `worth`.
    `per_question` for each question, in order."""
    draw = random.Random(seed)
    return [_demonstration(q, worth, draw) for q in asked for _ in range(per_question)]


def _demonstration(question: Question, worth: Mapping[str, float], draw: random.Random) -> str:
    def pick(words: Sequence[str]) -> str:
        first, second = draw.choice(words), draw.choice(words)
        return max(first, second, key=worth.__getitem__) if draw.random() < SKILL else first

    words: list[str] = []
    for _ in range(WANTED[question.manner] + draw.choice((-1, 0, 0, 0, 1))):
        kind = draw.random()
        if kind < 0.30:
            words.append(pick(FACTS[draw.choice(question.subjects)]))
        elif kind < 0.40:
            words.append(pick(FACTS[draw.choice(SUBJECTS)]))
        elif kind < 0.78:
            words.append(pick(DETAILS))
        elif kind < 0.78 + FLATTERY_SHARE:
            words.append(draw.choice(FLATTERY))
        elif kind < 0.90:
            words.append(draw.choice(FILLERS))
        else:
            words.append(draw.choice(question.subjects))
    return " ".join(words)
