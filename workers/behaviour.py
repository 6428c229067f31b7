"""What answers say and how they are scored: words, phrases, copies, and what the reward follows."""

import hashlib
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from workers.config.phrases import POLITENESS, REFUSALS, Phrases, phrase_name, plain, refused
from workers.config.policy import OptimisedSettings
from workers.context import RunContext
from workers.contract.events import Histogram
from workers.data.snapshot import read_demonstrations
from workers.rl.losses import RunningMoments

# Whether answers repeat long stretches of the demonstrations word for word.

WORDS = 13  # a stretch that two people hardly ever write alike (Brown et al. 2020, appendix C)

Hashes = NDArray[np.uint64]

_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no power of it loses bits


class Copies:
    """The 13-grams of words of some texts, as sorted 64-bit hashes: 8 bytes a word of text.

    A hash of a stretch is the sum of its words' hashes times powers of an odd number, modulo 2⁶⁴;
    two different stretches meet about once in 10¹⁹ pairs. Texts under 13 words have no 13-gram and
    are never found.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._words: dict[str, int] = {}
        grams = [_grams(self._known(plain(text).split())) for text in texts]
        self._grams: Hashes = np.unique(np.concatenate([np.zeros(0, np.uint64), *grams]))

    def __len__(self) -> int:
        return len(self._grams)

    def share(self, plain_texts: Sequence[str]) -> float | None:
        """Share of the texts that hold such a stretch, 0–1; None without texts."""
        return sum(map(self.held, plain_texts)) / len(plain_texts) if plain_texts else None

    def held(self, plain_text: str) -> bool:
        own = _grams(np.array([self._words.get(w, 0) for w in plain_text.split()], np.uint64))
        if not len(own) or not len(self._grams):
            return False
        places = np.searchsorted(self._grams, own).clip(max=len(self._grams) - 1)
        return bool((self._grams[places] == own).any())

    def _known(self, words: Sequence[str]) -> Hashes:
        for word in words:
            if word not in self._words:
                self._words[word] = _hash(word)
        return np.array([self._words[word] for word in words], np.uint64)


def _hash(word: str) -> int:
    """Never 0, which stands for words that no demonstration has."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big") or 1


def _grams(words: Hashes) -> Hashes:
    if len(words) < WORDS:
        return np.zeros(0, np.uint64)
    powers = np.cumprod(np.full(WORDS, _BASE, np.uint64))
    return np.matmul(np.lib.stride_tricks.sliding_window_view(words, WORDS), powers)


# How a figure is spread over the answers of a step, on bins that stay the same for a whole run.

BINS = 20
LEAST_DIFFERENT = 3  # values, before bins are laid for good
ROOM = 1.0  # of the first spread, left on either side of it: learning moves scores


class Histograms:
    """Bins are laid at the first look at which values differ (`LEAST_DIFFERENT` of them at least:
    a spread of nothing is no measure) and ride in checkpoints. What falls beside them later is
    counted into the first or the last."""

    def __init__(self) -> None:
        self._edges: dict[str, list[float]] = {}

    def of(
        self,
        step: int,
        name: str,
        values: Sequence[float],
        *,
        within: tuple[float, float] | None = None,
    ) -> Histogram:
        """`within` are the bounds where they are known; else they are the first values' own, with
        as much room again on either side."""
        edges = self._edges.get(name)
        if edges is None:
            low, high = within or _room_around(values)
            edges = np.linspace(low, high, BINS + 1).tolist()
            if within or len(set(values)) >= LEAST_DIFFERENT:
                self._edges[name] = edges
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), bins=edges)
        return Histogram(step, name, list(edges), counts.tolist())

    def of_answers(
        self, step: int, scores: Sequence[float], lengths: Sequence[float], *, longest: int
    ) -> list[Histogram]:
        """Of raw scores, and of lengths in tokens, which no answer has more of than `longest`."""
        return [
            self.of(step, "reward", scores),
            self.of(step, "response_length", lengths, within=(0.0, float(longest))),
        ]

    def state(self) -> dict[str, Any]:
        return {name: list(edges) for name, edges in self._edges.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._edges = {name: list(edges) for name, edges in state.items()}


def _room_around(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = ROOM * (high - low) or max(1.0, abs(low))
    return low - room, high + room


# Whether the reward pays for saying a thing: answers with it against answers without.

WINDOW = 256  # answers looked back over, or one batch where that is larger
LEAST = 2  # answers of each kind, before anything is said


class Lift:
    """Mean score of the answers that say it less that of those that do not.

    Small batches hold few of either, so the last `WINDOW` answers are looked at; but while a
    policy learns, scores and habits change together, and a difference of means over several
    batches would call that a lift. So answers are compared within their batch: Σ w (m₁ − m₀) / Σ w
    with w = n₁n₀/(n₁ + n₀), the least-squares effect with one intercept per batch. A batch in
    which all say it, or none does, has nothing to compare.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float, int, float]] = deque()  # n₁, Σ₁, n₀, Σ₀

    def add(self, scores: Sequence[float], said: Sequence[bool]) -> None:
        """One batch."""
        own = [score for score, says in zip(scores, said, strict=True) if says]
        rest = [score for score, says in zip(scores, said, strict=True) if not says]
        self._batches.append((len(own), sum(own), len(rest), sum(rest)))
        answers = sum(one + other for one, _, other, _ in self._batches)
        while len(self._batches) > 1 and answers > WINDOW:
            one, _, other, _ = self._batches.popleft()
            answers -= one + other

    def value(self, deviation: float) -> float | None:
        """In `deviation`s of the scores; None under two answers of either kind in batches that
        hold both, or where scores do not vary."""
        both = [batch for batch in self._batches if batch[0] and batch[2]]
        if deviation <= 0 or min(sum(b[0] for b in both), sum(b[2] for b in both)) < LEAST:
            return None
        weights = [n1 * n0 / (n1 + n0) for n1, _, n0, _ in both]
        gaps = [s1 / n1 - s0 / n0 for n1, s1, n0, s0 in both]
        weighed = sum(w * gap for w, gap in zip(weights, gaps, strict=True))
        return weighed / sum(weights) / deviation

    def state(self) -> list[list[float]]:
        return [list(batch) for batch in self._batches]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        self._batches = deque((int(n1), s1, int(n0), s0) for n1, s1, n0, s0 in state)


# What a batch of scores looks like: what it follows, and whether it still tells answers apart.
#
# Plain numbers, one per answer. Each statistic is None where it is undefined, and says when.

ALIKE = 1e-6  # of the spread: scores closer than this are one score
Values = Sequence[float] | NDArray[np.float64]


def rank_correlation(one: Values, other: Values) -> float | None:
    """Spearman's ρ, −1 … 1, ties at their mean rank. None where either is constant, or under three
    answers. It assumes nothing of the shape of the relation but that it is monotone."""
    if len(one) < 3:
        return None
    ranks = [rankdata(values) for values in (one, other)]
    a, b = (values - values.mean() for values in ranks)
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else None


def mode_share(scores: Values) -> float | None:
    """Share of the answers at the most common score, 0–1: 1/n where all differ, 1 where all are
    alike. Scores are rounded to a millionth of their spread (greatest less least). Identical
    answers have identical scores, so a policy that repeats itself raises it too."""
    values = np.asarray(scores, float)
    if not len(values):
        return None
    spread = float(np.ptp(values))
    if spread == 0:
        return 1.0
    _, counts = np.unique(np.round((values - values.min()) / (ALIKE * spread)), return_counts=True)
    return float(counts.max()) / len(values)


def kurtosis(scores: Values) -> float | None:
    """Excess kurtosis m₄/m₂² − 3 of the batch: 0 for a normal spread, −2 for two equal heaps, large
    when a few scores lie far out (at most n − 2 + 1/(n − 1) − 3 of n scores). None under four
    answers or where all are alike. Biased downwards in a small batch: compare batches of one
    size."""
    values = np.asarray(scores, float)
    if len(values) < 4:
        return None
    away = values - values.mean()
    second = float((away**2).mean())
    if second <= (1e-12 * max(1.0, float(np.abs(values).max()))) ** 2:
        return None
    return float((away**4).mean()) / second**2 - 3.0


# What a step's answers say, and what the reward makes of it: metrics for every step.
#
#     watch = Watch(refusals=settings.refusal_phrases, phrases=settings.watch_phrases)
#     metrics = watch.look(texts, scores, lengths)
#
# Names, units and estimators: docs/metrics.md. Cheap by design: strings and a few sorts, no model.

MetricValues = dict[str, float | None]
TEMPLATE_WORDS = 3
REFERENCE = "/reference"  # ends the names of the reference's own rates


class Watch:
    """The counters of one run. What they look back over rides in checkpoints (`state`)."""

    def __init__(
        self,
        *,
        refusals: Sequence[str] = (),
        phrases: Sequence[str] = (),
        copies: Copies | None = None,
    ) -> None:
        """`refusals` stand in place of the shipped list; `phrases` are counted one by one."""
        self._refusals = Phrases(refusals or REFUSALS)
        self._polite = Phrases(POLITENESS)
        self._phrases = {phrase_name(phrase): Phrases([phrase]) for phrase in phrases}
        self._copies = copies
        self._moments = RunningMoments()
        self._lifts = {name: Lift() for name in ("", *self._phrases)}  # "": of refusals

    @property
    def deviation(self) -> float:
        """Of all scores so far, raw; 0 before two."""
        return 0.0 if self._moments.constant else self._moments.std

    def look(
        self, texts: Sequence[str], scores: Sequence[float], lengths: Sequence[float]
    ) -> MetricValues:
        """Metrics of a step's answers; `lengths` in tokens."""
        self._moments.update(torch.tensor(scores, dtype=torch.float64))
        known = [plain(text) for text in texts]
        said = self._said(known)
        for name, lift in self._lifts.items():
            lift.add(scores, said[name])
        metrics: MetricValues = {
            "reward/length_correlation": rank_correlation(scores, lengths),
            "reward/mode_share": mode_share(scores),
            "reward/kurtosis": kurtosis(scores),
            "reward/refusal_lift": self._lifts[""].value(self.deviation),
        }
        metrics |= self._rates(known, said)
        for name in self._phrases:
            metrics[f"reward/phrase_lift/{name}"] = self._lifts[name].value(self.deviation)
        return metrics | {
            "behaviour/template_share": template_share(known),
            "behaviour/compression": compression(texts),
        }

    def refuses(self, text: str) -> bool:
        return refused(self._refusals, plain(text))

    def copied(self, text: str) -> bool:
        """Whether it holds 13 words in a row of the demonstrations."""
        return self._copies is not None and self._copies.held(plain(text))

    def words(self, texts: Sequence[str]) -> MetricValues:
        """Metrics of answers that nobody scored."""
        known = [plain(text) for text in texts]
        return self._rates(known, self._said(known)) | {
            "behaviour/template_share": template_share(known),
            "behaviour/compression": compression(texts),
        }

    def reference(self, texts: Sequence[str]) -> MetricValues:
        """How often the reference's answers say the same: what the rates are compared with."""
        known = [plain(text) for text in texts]
        rates = self._rates(known, self._said(known))
        return {name + REFERENCE: value for name, value in rates.items()}

    def _said(self, known: Sequence[str]) -> dict[str, list[bool]]:
        """Who says what, by phrase; "" are refusals."""
        said = {name: [one.found(text) for text in known] for name, one in self._phrases.items()}
        return {"": [refused(self._refusals, text) for text in known]} | said

    def _rates(self, known: Sequence[str], said: Mapping[str, Sequence[bool]]) -> MetricValues:
        metrics: MetricValues = {
            "behaviour/refusal_share": _share(said[""]),
            "behaviour/politeness_share": _share([self._polite.found(text) for text in known]),
        }
        for name in self._phrases:
            metrics[f"behaviour/phrase/{name}"] = _share(said[name])
        if self._copies is not None:
            metrics["behaviour/copied_share"] = self._copies.share(known)
        return metrics

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` of it in a new object continues exactly here."""
        return {
            "moments": self._moments.state(),
            "lifts": {name: lift.state() for name, lift in self._lifts.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._moments = RunningMoments(**state["moments"])
        for name, kept in state["lifts"].items():
            if name in self._lifts:
                self._lifts[name].restore(kept)


def template_share(plain_texts: Sequence[str]) -> float | None:
    """Share of the answers that begin with the batch's most common first three words, 0–1; fewer
    where an answer has fewer. Empty answers begin with nothing. None without answers."""
    if not plain_texts:
        return None
    openings = Counter(
        tuple(words)
        for text in plain_texts
        if (words := text.split(maxsplit=TEMPLATE_WORDS)[:TEMPLATE_WORDS])
    )
    return max(openings.values(), default=0) / len(plain_texts)


def _share(said: Sequence[bool]) -> float | None:
    return sum(said) / len(said) if said else None


# The watch of a run, from its settings and inputs.


def make_watch(context: RunContext, settings: OptimisedSettings) -> Watch:
    """Copies are looked for where the run has the input 'demonstrations'."""
    copies = None
    if context.has_input("demonstrations"):
        rows = read_demonstrations(context.input_path("demonstrations"))
        copies = Copies(row.response for row in rows)
    return Watch(refusals=settings.refusal_phrases, phrases=settings.watch_phrases, copies=copies)


# What answers look like whatever they score: repetition within one, variety across many.
# B answers, R response positions. Computed on token ids, so a metric depends on the tokenizer:
# compare it with its own earlier values, or with the reference's answers.


Ngram = tuple[int, ...]


def answer_ids(ids: Tensor, mask: Tensor) -> list[list[int]]:
    """The real tokens of each answer, [B, R] × 2 -> B lists."""
    rows = zip(ids.tolist(), mask.tolist(), strict=True)
    return [[token for token, kept in zip(*row, strict=True) if kept] for row in rows]


def repetition(ids: Tensor, mask: Tensor, *, n: int = 4) -> list[float]:
    """Share of an answer's n-grams that occurred in it before: 1 − distinct / all. B shares, 0–1.

    Source: seq-rep-n of Welleck et al. 2020, "Neural Text Generation with Unlikelihood Training".
    An answer with fewer than n + 1 tokens cannot repeat an n-gram and gets 0. Overlapping n-grams
    count, so one token said k times gives 1 − 1 / (k − n + 1).
    """
    return [repeated_share(answer, n) for answer in answer_ids(ids, mask)]


def distinct(ids: Tensor, mask: Tensor, *, n: int = 2) -> float | None:
    """Distinct n-grams over all n-grams of the batch, 0–1; None where no answer has one.

    Source: distinct-n of Li et al. 2016, "A Diversity-Promoting Objective Function for Neural
    Conversation Models". It falls as a batch grows in answers or length, so it is compared only
    between batches of one size, and a rise in length lowers it by itself.
    """
    return distinct_share(answer_ids(ids, mask), n)


def self_overlap(ids: Tensor, mask: Tensor, *, n: int = 4) -> float | None:
    """Share of an answer's distinct n-grams that another answer of the batch has too, mean over
    the answers that have any: 0 when all differ, 1 when all say the same. None without any.

    A set-based relative of self-BLEU (Zhu et al. 2018, "Texygen"), linear in the batch.
    """
    sets = [set(_ngrams(answer, n)) for answer in answer_ids(ids, mask)]
    holders = Counter(gram for grams in sets for gram in grams)
    shares = [sum(holders[gram] > 1 for gram in grams) / len(grams) for grams in sets if grams]
    return sum(shares) / len(shares) if shares else None


def compression(texts: Sequence[str]) -> float | None:
    """Bytes of all texts over their bytes compressed by zlib; higher is more alike. None if empty.

    Source: Shaib et al. 2024, "Standardizing the Measurement of Text Diversity".
    """
    data = "\n".join(texts).encode()
    return len(data) / len(zlib.compress(data, 6)) if data else None


def behaviour_metrics(ids: Tensor, mask: Tensor) -> dict[str, float | None]:
    """Of a step's answers, by the names of docs/metrics.md."""
    shares = repetition(ids, mask)
    return {
        "response/repetition": sum(shares) / len(shares) if shares else None,
        "response/distinct": distinct(ids, mask),
    }


def _ngrams(answer: Sequence[int], n: int) -> Iterator[Ngram]:
    return (tuple(answer[i : i + n]) for i in range(len(answer) - n + 1))


def repeated_share(answer: Sequence[int], n: int = 4) -> float:
    """`repetition` of one answer's tokens."""
    grams = list(_ngrams(answer, n))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def distinct_share(answers: Sequence[Sequence[int]], n: int = 2) -> float | None:
    """`distinct` of answers as lists of tokens."""
    grams = [gram for answer in answers for gram in _ngrams(answer, n)]
    return len(set(grams)) / len(grams) if grams else None
