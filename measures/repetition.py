"""How much a text repeats itself."""


def repeated_share(text: str, n: int = 4) -> float | None:
    """Share of the text's n-grams of words that stood in it before: 1 − distinct / all, 0 to 1.

    Words are what white space separates, without regard to case. None for a text of fewer than n
    words, which has no n-gram. The metric `response/repetition` is the same over token ids, so the
    two are near each other and not equal. Source: Welleck et al. 2020 (seq-rep-n).
    """
    words = text.lower().split()
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else None
