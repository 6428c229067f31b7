"""What answers look like whatever they score: repetition within one, variety across many.

B answers, R response positions. Computed on token ids, so a figure depends on the tokenizer:
compare it with its own earlier values, or with the reference's answers.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from torch import Tensor

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
    return [_repeated(answer, n) for answer in answer_ids(ids, mask)]


def distinct(ids: Tensor, mask: Tensor, *, n: int = 2) -> float | None:
    """Distinct n-grams over all n-grams of the batch, 0–1; None where no answer has one.

    Source: distinct-n of Li et al. 2016, "A Diversity-Promoting Objective Function for Neural
    Conversation Models". It falls as a batch grows in answers or length, so it is compared only
    between batches of one size, and a rise in length lowers it by itself.
    """
    grams = [gram for answer in answer_ids(ids, mask) for gram in _ngrams(answer, n)]
    return len(set(grams)) / len(grams) if grams else None


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


def _repeated(answer: Sequence[int], n: int) -> float:
    grams = list(_ngrams(answer, n))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
