"""How far annotators agree, on an item × choice matrix of vote counts.

Compute these on the random stratum only: comparisons chosen because they are hard, or re-voted in
an audit, say nothing about the project's agreement.
"""

from measures.agreement.clusters import Clustering, clustering
from measures.agreement.coefficients import (
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    percent_agreement,
)
from measures.agreement.pairs import (
    LEAST_COMMON,
    MeanKappa,
    cohen_kappa,
    mean_cohen_kappa,
    pair_counts,
    pair_votes,
)
from measures.agreement.reading import Level, count_matrix, reading

__all__ = [
    "LEAST_COMMON",
    "Clustering",
    "Level",
    "MeanKappa",
    "clustering",
    "cohen_kappa",
    "count_matrix",
    "fleiss_kappa",
    "gwet_ac1",
    "krippendorff_alpha",
    "mean_cohen_kappa",
    "pair_counts",
    "pair_votes",
    "percent_agreement",
    "reading",
]
