"""Why a statistic or its interval is undefined, as a code with the numbers that belong to it.

The words of each code stand in `workers.contract.reasons`.
"""


def reason(code: str, **about: float | str) -> str:
    """`few_groups n=4 least=10`; the code alone where nothing belongs to it."""
    return " ".join([code, *(f"{name}={value}" for name, value in about.items())])
