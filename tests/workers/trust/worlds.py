"""Worlds in which it is known what people like, what a reward model likes, and what is wrong.

A text is made of invented words with known worth, some formatting that nobody cares about, and now
and then a tag or a compliment. People choose between two texts by Bradley–Terry on what they like;
the clean model scores the same plus a little noise of its own, so it is right as often as can be,
as sure as it should be, and likes nothing that people do not. Every fault is one argument.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit

from measures.trust.significance import Pairs

Floats = np.ndarray

WORDS = 240
TAG = "zorgblat"
PRAISE = "you are amazing and i love you"
SHARPNESS = 1.7  # standard deviation of worth over texts, in log-odds
LENGTH = 0.35  # log-odds that people add for one standard deviation of log length
ANSWERS = 4  # of one prompt; each stands in two pairs
DAY = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What is wrong with people, labels or model; the defaults are a clean world."""

    swapped: float = 0.0  # share of labels that say the opposite
    length_raters: float = 0.0  # share of annotators who choose the longer one, whatever it says
    model_length: float = 0.0  # log-odds the model adds to what people add, a deviation of length
    tag_rate: float = 0.0  # of pairs, one answer of which carries the tag
    tag_on_chosen: float = 0.5  # how often that is the chosen one
    model_tag: float = 0.0  # log-odds the model adds for the tag
    praise_rate: float = 0.0  # of pairs, one answer of which ends in a compliment
    people_praise: float = 0.0  # log-odds people add for it
    model_praise: float = 0.0  # log-odds the model adds for it
    model_format: float = 0.0  # log-odds the model adds for a list
    overconfident: float = 1.0  # factor on the model's scores
    noise: float = 0.25  # standard deviation of the model's own error, in log-odds
    memorised: bool = False  # the scores are of training pairs known by heart
    blind: bool = False  # scores are noise alone
    constant: bool = False
    saturated: bool = False  # a sigmoid that is always at its upper end
    flipped: bool = False  # the score's sign is the wrong way round
    corrupted: str = ""  # this member of the ensemble gives noise
    prompt_leak: float = 0.0  # of pairs, where a word of the prompt tells that the first won
    order_leak: float = 0.5  # how often the chosen answer was stored first
    source_leak: float = 0.0  # of pairs, whose chosen answer is from the lab and other not


CLEAN = Faults()


@dataclass(frozen=True)
class Scorer:
    """What a reader of these texts gives them, in log-odds: people's taste, or a model's."""

    values: Floats = field(default_factory=lambda: np.random.default_rng(99).normal(size=WORDS))
    length: float = LENGTH
    tag: float = 0.0
    praise: float = 0.0
    lists: float = 0.0

    def __call__(self, text: str) -> float:
        words = [w for w in text.replace("-", " ").replace("*", " ").split() if w in NUMBER]
        worth = 0.0
        if words:
            known = self.values[[NUMBER[w] for w in words]]
            worth = SHARPNESS * float(known.sum()) / np.sqrt(len(words))
        deviations = (np.log(max(len(text), 1)) - MEAN_LOG) / SD_LOG
        return (
            worth
            + self.length * deviations
            + self.tag * (TAG in text)
            + self.praise * (PRAISE in text)
            + self.lists * ("\n- " in text)
        )


def world(
    n: int = 2_000,
    seed: int = 0,
    *,
    faults: Faults = CLEAN,
    votes: int = 1,
    split: str = "heldout_groups",
    annotators: int = 40,
    members: int = 0,
) -> Pairs:
    """n pairs. votes: how many people decide each pair; their share is its confidence."""
    rng = np.random.default_rng([seed, 20])
    texts, first, second = _texts(rng, n)
    people = Scorer(praise=faults.people_praise)
    extra = {
        "tag": _which(rng, n, faults.tag_rate),
        "praise": _which(rng, n, faults.praise_rate),
    }
    one = [texts[k] for k in first]
    two = [texts[k] for k in second]
    one = _with(one, f"\n{PRAISE}", extra["praise"] == 1)
    two = _with(two, f"\n{PRAISE}", extra["praise"] == -1)
    edge = np.array([people(a) - people(b) for a, b in zip(one, two, strict=True)])
    who = rng.integers(0, annotators, n)
    share = _votes(rng, edge, votes)
    longer = np.sign(np.array([len(a) - len(b) for a, b in zip(one, two, strict=True)]))
    by_length = (who < faults.length_raters * annotators) & (longer != 0)
    share = np.where(by_length, longer > 0, share)
    share = np.where(rng.random(n) < faults.swapped, 1 - share, share)
    first_won = share > 0.5
    if faults.tag_rate:
        tag_first = np.where(rng.random(n) < faults.tag_on_chosen, first_won, ~first_won)
        one = _with(one, f" {TAG}", (extra["tag"] != 0) & tag_first)
        two = _with(two, f" {TAG}", (extra["tag"] != 0) & ~tag_first)
    scores = _scores(rng, one, two, faults, people)
    prompts, order = _prompts_and_order(rng, first // ANSWERS, first_won, faults)
    sources = _sources(rng, n, first_won, faults)
    pairs = Pairs(
        split=split,
        chosen_scores=np.where(first_won, scores[0], scores[1]),
        rejected_scores=np.where(first_won, scores[1], scores[0]),
        chosen_texts=_pick(first_won, one, two),
        rejected_texts=_pick(~first_won, one, two),
        prompts=prompts,
        confidence=np.maximum(share, 1 - share),
        clusters=[f"prompt {k // ANSWERS}" for k in first],
        units=[
            (f"{a}", f"{b}") if won else (f"{b}", f"{a}")
            for a, b, won in zip(first, second, first_won, strict=True)
        ],
        groups=[f"topic {k // ANSWERS % 8}" for k in first],
        annotators=[f"annotator {k}" for k in who] if votes == 1 else [""] * n,
        sources=sources,
        times=1.76e9 + rng.uniform(0, 90 * DAY, n),
        order=order,
    )
    if faults.memorised:
        right = 3 + rng.normal(0, 1, n)
        pairs = replace(pairs, chosen_scores=right, rejected_scores=np.zeros(n))
    if members:
        pairs = replace(pairs, members=_members(rng, pairs, members, faults))
    return pairs


def turned(pairs: Pairs) -> Pairs:
    """Chosen and rejected changed places in every row."""
    return replace(
        pairs,
        chosen_scores=pairs.rejected_scores,
        rejected_scores=pairs.chosen_scores,
        chosen_texts=pairs.rejected_texts,
        rejected_texts=pairs.chosen_texts,
        units=None if pairs.units is None else [(b, a) for a, b in pairs.units],
        sources=[(b, a) for a, b in pairs.sources],
        order=-np.asarray(pairs.order),
        members={name: (b, a) for name, (a, b) in pairs.members.items()},
    )


def part(pairs: Pairs, rows: Floats) -> Pairs:
    """Those rows alone; rows: (n,) booleans or row numbers."""
    index = np.arange(len(pairs))[rows]

    def of(values):
        return [values[k] for k in index] if len(values) else values

    return replace(
        pairs,
        chosen_scores=np.asarray(pairs.chosen_scores)[index],
        rejected_scores=np.asarray(pairs.rejected_scores)[index],
        chosen_texts=of(pairs.chosen_texts),
        rejected_texts=of(pairs.rejected_texts),
        prompts=of(pairs.prompts),
        confidence=np.asarray(pairs.confidence)[index],
        clusters=of(pairs.clusters),
        units=None if pairs.units is None else of(pairs.units),
        groups=of(pairs.groups),
        annotators=of(pairs.annotators),
        sources=of(pairs.sources),
        times=np.asarray(pairs.times)[index] if len(pairs.times) else pairs.times,
        order=np.asarray(pairs.order)[index] if len(pairs.order) else pairs.order,
        members={
            name: (np.asarray(a)[index], np.asarray(b)[index])
            for name, (a, b) in pairs.members.items()
        },
    )


def bare(pairs: Pairs) -> Pairs:
    """The same pairs without anything but texts, scores and prompts."""
    return replace(
        pairs, groups=(), annotators=(), sources=(), times=np.zeros(0), order=np.zeros(0)
    )


def model_of(faults: Faults = CLEAN) -> Scorer:
    """The model's taste without its noise, for texts that are in no pair (probes)."""
    return Scorer(
        length=LENGTH + faults.model_length,
        tag=faults.model_tag,
        praise=faults.people_praise + faults.model_praise,
        lists=faults.model_format,
    )


# --- inside --------------------------------------------------------------------------------------


def _vocabulary() -> list[str]:
    rng = np.random.default_rng(98)
    found: dict[str, None] = {}
    while len(found) < WORDS:
        syllables = rng.integers(1, 4)
        word = "".join(
            rng.choice(list("bdfgklmnprstv")) + rng.choice(list("aeiou")) for _ in range(syllables)
        )
        found.setdefault(word, None)
    return list(found)


VOCABULARY = _vocabulary()
NUMBER = {word: k for k, word in enumerate(VOCABULARY)}


def _text(rng: np.random.Generator) -> str:
    size = int(np.clip(np.exp(rng.normal(3.2, 0.45)), 6, 90))
    words = [VOCABULARY[k] for k in rng.integers(0, WORDS, size)]
    look = rng.random(4)
    if look[0] < 0.4:
        words[rng.integers(0, size)] = f"**{words[0]}**"
    sentence = " ".join(words)
    if look[1] < 0.4:
        half = size // 2
        sentence = f"{' '.join(words[:half])}\n- {' '.join(words[half:])}"
    if look[2] < 0.4:
        sentence += "!"
    elif look[3] < 0.4:
        sentence += "?"
    return sentence


_SAMPLE = np.log([len(_text(np.random.default_rng([97, k]))) for k in range(400)])
MEAN_LOG, SD_LOG = float(_SAMPLE.mean()), float(_SAMPLE.std())


def _texts(rng: np.random.Generator, n: int) -> tuple[list[str], Floats, Floats]:
    """Four pairs of the four answers of each prompt: every answer recurs once."""
    prompts = -(-n // ANSWERS)
    texts = [_text(rng) for _ in range(prompts * ANSWERS)]
    a, b = np.array([0, 2, 0, 1]), np.array([1, 3, 2, 3])
    base = np.repeat(np.arange(prompts) * ANSWERS, ANSWERS)
    first, second = base + np.tile(a, prompts), base + np.tile(b, prompts)
    swap = rng.random(len(first)) < 0.5
    return texts, np.where(swap, second, first)[:n], np.where(swap, first, second)[:n]


def _which(rng: np.random.Generator, n: int, rate: float) -> Floats:
    """(n,) 1 first, −1 second, 0 neither."""
    return np.where(rng.random(n) < rate, np.where(rng.random(n) < 0.5, 1, -1), 0)


def _with(texts: list[str], ending: str, where: Floats) -> list[str]:
    return [text + ending if yes else text for text, yes in zip(texts, where, strict=True)]


def _votes(rng: np.random.Generator, edge: Floats, votes: int) -> Floats:
    """(n,) share of the votes for the first; an even number of votes may tie."""
    return rng.binomial(votes, expit(edge)) / votes


def _scores(
    rng: np.random.Generator, one: list[str], two: list[str], faults: Faults, people: Scorer
) -> tuple[Floats, Floats]:
    n = len(one)
    reader = model_of(faults)
    noise = {text: rng.normal(0, faults.noise / np.sqrt(2)) for text in [*one, *two]}
    scores = [np.array([reader(t) + noise[t] for t in texts]) for texts in (one, two)]
    if faults.blind:
        scores = [rng.normal(size=n), rng.normal(size=n)]
    if faults.flipped:
        scores = [-values for values in scores]
    if faults.saturated:
        scores = [np.round(expit(8 + values), 3) for values in scores]
    if faults.constant:
        scores = [np.full(n, 0.5), np.full(n, 0.5)]
    return scores[0] * faults.overconfident, scores[1] * faults.overconfident


def _prompts_and_order(
    rng: np.random.Generator, of: Floats, first_won: Floats, faults: Faults
) -> tuple[list[str], Floats]:
    order = np.where(rng.random(len(of)) < faults.order_leak, 1.0, -1.0)
    names = [
        "tell me about "
        + " ".join(VOCABULARY[k] for k in np.random.default_rng([96, prompt]).integers(0, 60, 6))
        for prompt in of
    ]
    told = rng.random(len(of)) < faults.prompt_leak
    order = np.where(told, 1.0, order)
    return [f"{name} please" if t else name for name, t in zip(names, told, strict=True)], order


def _sources(
    rng: np.random.Generator, n: int, first_won: Floats, faults: Faults
) -> list[tuple[str, str]]:
    kinds = np.array(["lab", "web", "staff"])
    drawn = kinds[rng.integers(0, 3, size=(n, 2))]
    told = rng.random(n) < faults.source_leak
    return [
        ("lab", "web") if t else (str(a), str(b)) for (a, b), t in zip(drawn, told, strict=True)
    ]


def _pick(first: Floats, one: list[str], two: list[str]) -> list[str]:
    return [a if yes else b for yes, a, b in zip(first, one, two, strict=True)]


def _members(
    rng: np.random.Generator, pairs: Pairs, count: int, faults: Faults
) -> dict[str, tuple[Floats, Floats]]:
    n = len(pairs)
    spread = float(np.std(np.concatenate([pairs.chosen_scores, pairs.rejected_scores])))
    found = {}
    for k in range(count):
        name = f"member-{k}"
        if name == faults.corrupted:
            found[name] = (rng.normal(0, spread, n), rng.normal(0, spread, n))
            continue
        error = rng.normal(0, 0.2 * spread, (2, n))
        found[name] = (pairs.chosen_scores + error[0], pairs.rejected_scores + error[1])
    return found
