"""How far annotators agree, on an item × choice matrix of vote counts.

Compute these on the random stratum only: comparisons chosen because they are hard, or re-voted in
an audit, say nothing about the project's agreement.
"""

from measures.agreement.coefficients import (
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    percent_agreement,
)
from measures.agreement.counts import count_matrix
from measures.agreement.pairs import cohen_kappa
from measures.agreement.reading import Level, Reading, reading

__all__ = [
    "Level",
    "Reading",
    "cohen_kappa",
    "count_matrix",
    "fleiss_kappa",
    "gwet_ac1",
    "krippendorff_alpha",
    "percent_agreement",
    "reading",
]
