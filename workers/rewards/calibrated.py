"""Scores with an origin and a unit, for alerts: c = σ((r − m)/T), SPEC F2.

Raw Bradley–Terry scores have neither, so a bound on them means nothing. c is the chance, as far as
the reward model is calibrated, that people prefer the answer to a typical one of the baseline: 0.5
is as good as it. Not for the update: far from the baseline it hardly moves.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]


def calibrate(
    scores: Sequence[float], baseline: Sequence[float] | float, temperature: float = 1.0
) -> Floats:
    """(n,) raw scores -> (n,) between 0 and 1.

    baseline: m, raw score: per answer the mean over what the baseline (SFT or reference) answers to
    the same prompt, four answers where they exist; one number where it is known over prompts only,
    which is coarser, as prompts differ in what their answers score. temperature: T, raw score, from
    the reward model's assessment, or 1. `ValueError` where T is not over 0.
    """
    if not temperature > 0:
        raise ValueError(f"a temperature of {temperature} does not calibrate")
    return expit((np.asarray(scores, float) - np.asarray(baseline, float)) / temperature)
