"""The one normal form in which texts are compared for being the same."""

import unicodedata


def normalise(text: str) -> str:
    """Text up to compatibility form, case and white space.

    NFKC(casefold(NFKC(casefold(NFD(text))))), which is Unicode's compatibility caseless match
    (The Unicode Standard, 3.13, D146), then every run of white space as one blank and none at the
    ends. Applying it twice changes nothing. Punctuation and zero-width characters stay.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
    folded = unicodedata.normalize("NFKC", folded.casefold())
    return " ".join(folded.split())
