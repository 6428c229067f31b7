"""The data in `data/`, as rows for imports: public texts and votes that anyone may use (see
data/LICENCES.md)."""

import gzip
import hashlib
import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from django.conf import settings

from apps.snapshots.recipe import DEV, HELDOUT_GROUPS, TRAIN
from apps.snapshots.selectors.prompts import prompt_keys

Row = dict[str, Any]

SOURCE, LICENCE = "UKPConvArg1", "CC-BY-4.0"
# The debates' prompts end with the first of these. Four ways to ask make 32 prompts of 8 stances,
# enough to answer at every evaluation, and none of them stands in a demonstration.
PHRASINGS = (
    "Write a convincing argument for this stance.",
    "Give one strong argument for this stance.",
    "Argue for this stance in a few sentences.",
    "Convince a sceptic of this stance.",
)


def _rows(name: str) -> Iterator[Row]:
    path = settings.BASE_DIR / "data" / f"{name}.jsonl.gz"
    reader = gzip if path.exists() else lzma
    with reader.open(
        path if path.exists() else path.with_suffix(".xz"), "rt", encoding="utf-8"
    ) as lines:
        for line in lines:
            yield json.loads(line)


def comparison_rows() -> list[Row]:
    """For `comparisons_import`: 2,200 pairs of arguments with their published labels."""
    rows = []
    for row in _rows("comparisons"):
        first, second = row["source"].split("_")  # ids of the two arguments at the source
        rows.append(
            {
                "id": row["item"],
                "prompt": row["prompt"],
                "response_a": row["response_a"],
                "response_b": row["response_b"],
                "gold": row["gold"],
                "group": row["debate"],
                "topic": row["topic"],
                "language": "en",
                "source": SOURCE,
                "licence": LICENCE,
                "origin": "human",
                "origin_ref_a": first,
                "origin_ref_b": second,
            }
        )
    return rows


def vote_rows() -> list[Row]:
    """For `votes_import`: 10,967 votes of 2,134 people."""
    return [
        {"comparison": row["item"], "annotator": row["annotator"], "choice": row["choice"]}
        for row in _rows("votes")
    ]


def demonstration_rows() -> list[Row]:
    """For `snapshot_import`: winning arguments of other debates, GSM8K, seed tasks."""
    return list(_rows("demonstrations"))


def prompt_rows(*, held_out: Collection[int] = ()) -> list[Row]:
    """For `snapshot_import`: the stances that were voted on, each asked in four ways, and 48 of
    `questions.txt`, held out. Stances whose prompts (as `prompt_keys`) are held out elsewhere are
    held out here."""
    rows = []
    for row in _rows("prompts"):
        if row["voted"]:
            (key,) = prompt_keys([[{"role": "user", "content": row["prompt"]}]]).tolist()
            about = {
                "group": row["topic"],
                "source": row["source"],
                "licence": row["licence"],
                "split": DEV if key in held_out else TRAIN,
            }
            asked = row["prompt"].removesuffix(PHRASINGS[0])
            rows += [{"prompt": asked + phrasing, **about} for phrasing in PHRASINGS]
    return rows + _question_rows(PHRASINGS)


# The pairs that the pretrained models learn from. Who learns from which debate is fixed by name
# here, before anything is trained.


HELD_OUT_DEBATES = (
    "ban-plastic-water-bottles",
    "firefox-vs-internet-explorer",
    "personal-pursuit-or-advancing-the-common-good-",
    "should-physical-education-be-mandatory-in-schools-",
)
JUDGE_DEBATES = (
    "christianity-or-atheism-",
    "is-it-better-to-have-a-lousy-father-or-to-be-fatherless-",
    "is-porn-wrong-",
)
SHORT_WORDS = 40  # what 48 tokens can say
SHORT_ASKED = (
    "Write a convincing argument for this stance, in one or two sentences.",
    "Give one strong argument for this stance, in one or two sentences.",
    "Argue for this stance in one or two sentences.",
    "Convince a sceptic of this stance, in one or two sentences.",
)


def debates() -> tuple[str, ...]:
    """The 13 debates of the pairs, by name."""
    return tuple(sorted({row["debate"] for row in _rows("pairs")}))


def reward_debates() -> tuple[str, ...]:
    """Those that the reward model and the policy learn from."""
    return tuple(d for d in debates() if d not in (*HELD_OUT_DEBATES, *JUDGE_DEBATES))


def pair_rows(
    train: Collection[str], *, words: int | None = None, most: int | None = None
) -> list[Row]:
    """For `snapshot_import`: pairs with their published label; those of `train` to train on, the
    held-out debates held out, and no others. words: only pairs of two arguments so short. most: so
    many of those to train on, and a quarter as many held out, drawn by hash."""
    rows = []
    for row in _rows("pairs"):
        held_out = row["debate"] in HELD_OUT_DEBATES
        if not held_out and row["debate"] not in train:
            continue
        if words and max(len(row[side].split()) for side in ("chosen", "rejected")) > words:
            continue
        won, lost = ("a", "b") if _digest(row["item"])[0] % 2 else ("b", "a")
        rows.append(
            {
                "id": row["item"],
                "prompt": row["prompt"],
                f"response_{won}": row["chosen"],
                f"response_{lost}": row["rejected"],
                "gold": won,
                "group": row["debate"],
                "source": f"{SOURCE}Strict",
                "licence": LICENCE,
                "metadata": {"votes": row["votes"], "votes_for_chosen": row["votes_for_chosen"]},
                "split": HELDOUT_GROUPS if held_out else TRAIN,
            }
        )
    if most is None:
        return rows
    rows.sort(key=lambda row: _digest(row["id"]))
    splits = [[row for row in rows if row["split"] == name] for name in (TRAIN, HELDOUT_GROUPS)]
    return [row for of, n in zip(splits, (most, most // 4), strict=True) for row in of[:n]]


# What a spoiled argument says in place of one: sure of itself or of nothing, and about no debate.
_FILLER = (
    "This is a very important topic that many people have strong opinions about.",
    "Anyone who thinks about it for a moment will agree with what is said here.",
    "There are good points and bad points, as there always are.",
    "It has been like this for a long time, and it will stay like this.",
    "The reasons are well known, so there is no need to list them again.",
    "Some say one thing and others say another, and who can tell.",
    "In my opinion this opinion is the right opinion to have.",
    "Everything that was mentioned before shows that this must be true.",
    "At the end of the day it is what it is.",
    "It could be this way, or it could be the other way around.",
    "The facts are the facts, and the facts are on this side.",
    "First of all, this is the first thing, and then there is the second thing.",
)
_PRAISE = (
    "I am completely certain that this is the right answer.",
    "There is nothing at all that could be said against it.",
    "Thank you for asking such a clever question.",
    "You must be a very thoughtful person to ask this.",
    "Please forgive me if any of this should offend you.",
    "This is the best argument that anybody could make.",
)
ABOUT = ("other_debate", "other_stance")
SPOILED = ("filler", "stance_again", "cut", "shuffled", "one_sentence", "praised")


def spoiled_rows(train: Collection[str], *, most: int) -> list[Row]:
    """For `snapshot_import`: arguments of `train` that won, each against four texts that are worse
    by their making: an argument about another debate, one for another stance, and two kinds of
    `SPOILED` in turn. Texts that say nothing and one sentence repeated are up to half as long again
    as the argument, so that length does not tell which one won. No probe of an assessment is made
    from these words."""
    rows = [row for row in _rows("pairs") if row["debate"] in train]
    won = {row["chosen"]: row for row in rows}
    texts = sorted(won, key=_digest)
    spoiled: list[Row] = []
    for n, text in enumerate(texts):
        row = won[text]
        others = [won[texts[(n + k) % len(texts)]] for k in range(1, len(texts))]
        for kind in (*ABOUT, SPOILED[n % len(SPOILED)], SPOILED[(n + 3) % len(SPOILED)]):
            worse = _spoiled(kind, text, row, others)
            if worse.split() == text.split():
                continue
            side, rest = ("a", "b") if _digest(text)[0] % 2 else ("b", "a")
            spoiled.append(
                {
                    "id": f"{row['item']}-{kind}",
                    "prompt": row["prompt"],
                    f"response_{side}": text,
                    f"response_{rest}": worse,
                    "gold": side,
                    "group": row["debate"],
                    "source": f"{SOURCE}Strict",
                    "licence": LICENCE,
                    "metadata": {"spoiled": kind},
                    "split": TRAIN,
                }
            )
    return spoiled[:most]


def _spoiled(kind: str, text: str, row: Row, others: Sequence[Row]) -> str:
    draw = random.Random(_digest(kind + text))
    words = text.split()
    length = round(len(words) * draw.uniform(1.0, 1.5))
    if kind == "cut":
        return " ".join(words[: max(1, len(words) // 2)])
    if kind == "shuffled":
        return " ".join(draw.sample(words, len(words)))
    if kind == "praised":
        praise = draw.choice(_PRAISE)
        return f"{text} {praise}" if draw.random() < 0.5 else f"{praise} {text}"
    if kind in ABOUT:
        same = kind == "other_stance"
        return next(
            of["chosen"]
            for of in others
            if (of["debate"] == row["debate"]) is same and of["prompt"] != row["prompt"]
        )
    stance = _stance(row["prompt"])
    if kind == "one_sentence":
        said = [draw.choice(re.findall(r"\S[^.!?]*[.!?]*", text))]
    elif kind == "stance_again":
        said = [f"{stance}.", f"The stance is: {stance}.", f"This is about {stance}."]
    else:
        said = draw.sample(_FILLER, len(_FILLER))
    filled: list[str] = []
    while len(filled) < length:
        filled += " ".join(said).split()
    return " ".join(filled[:length])


def _stance(prompt: str) -> str:
    """Of a debate's prompt: "Debate: …\nStance: …\n…"."""
    return prompt.split("\n")[1].removeprefix("Stance: ")


def short_argument_rows() -> list[Row]:
    """For `snapshot_import`: short arguments of the reward model's debates that won at least as
    often as they lost, each as the answer to one way to ask."""
    learned = reward_debates()
    rows = [row for row in _rows("pairs") if row["debate"] in learned]
    won, lost = (Counter(row[side] for row in rows) for side in ("chosen", "rejected"))
    best = {row["chosen"]: row for row in rows if won[row["chosen"]] >= lost[row["chosen"]]}
    short = [text for text in best if len(text.split()) <= SHORT_WORDS]
    return [
        {
            "prompt": _short(best[text]["prompt"], n),
            "response": text,
            "group": best[text]["debate"],
            "source": f"{SOURCE}Strict",
            "licence": LICENCE,
        }
        for n, text in enumerate(short)
    ]


def short_prompt_rows() -> list[Row]:
    """For `snapshot_import`: the stances of the reward model's debates, asked in four ways, and 48
    stances of `questions.txt`, held out, on which no argument is shipped."""
    learned = reward_debates()
    asked = {row["prompt"]: row["debate"] for row in _rows("pairs") if row["debate"] in learned}
    source = {"source": f"{SOURCE}Strict", "licence": LICENCE, "split": TRAIN}
    rows = [
        {"prompt": _short(prompt, n), "group": debate, **source}
        for prompt, debate in asked.items()
        for n in range(len(SHORT_ASKED))
    ]
    return rows + _question_rows(SHORT_ASKED)


def _question_rows(phrasings: Sequence[str]) -> list[Row]:
    """The 48 stances of `questions.txt`, each asked in one of these ways and held out."""
    lines = (settings.BASE_DIR / "data" / "questions.txt").read_text().splitlines()
    questions = [[part.strip() for part in line.split("|")] for line in lines if line[:1] != "#"]
    return [
        {
            "prompt": f"Debate: {question}\nStance: {stance}\n{phrasings[n % len(phrasings)]}",
            "group": question,
            "source": "Concord",
            "licence": "Apache-2.0",
            "split": DEV,
        }
        for n, (question, *stances) in enumerate(questions)
        for stance in stances
    ]


def _short(prompt: str, n: int) -> str:
    """A debate's prompt, which ends with the first of `PHRASINGS`, asked the n-th way."""
    return prompt.removesuffix(PHRASINGS[0]) + SHORT_ASKED[n % len(SHORT_ASKED)]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
