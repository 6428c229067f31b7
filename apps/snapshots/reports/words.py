"""The audit of spurious words: what stands on the chosen side far more often, and is it length?"""

import re
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from apps.snapshots.reports.checks import (
    LOOK,
    OK,
    STOP,
    UNKNOWN,
    Check,
    Evidence,
    check,
    percent,
    shares,
    table,
)
from apps.snapshots.reports.frame import Frame
from measures.bootstrap import LEAST_UNITS
from measures.corpus import Counts
from measures.datasets.shares import pair_share
from measures.estimate import Interval
from measures.text import normalise
from measures.tokens import TokenAudit, token_audit

# Always shown: words that a policy learns to flatter with.
POLITE = ("thank you", "please", "safe", "love", "sorry")
_COMMON_HOLDERS = 0.9  # of discordant pairs won, and
_COMMON_CHOSEN = 0.2  # of chosen texts: little else to learn


def words(frame: Frame) -> Check:
    title = "Words that stand out"
    counts = frame.corpus.counts(least_texts=LEAST_UNITS, pairs_of_words=True)
    audit = token_audit(counts, frame.chosen, frame.rejected, frame.corpus.lengths)
    polite = _polite(frame)
    evidence_polite = _table("Words that flatter, whatever they show", polite, range(len(POLITE)))
    if not audit.n_tested:
        return check(
            "words",
            title,
            UNKNOWN,
            f"No word stands in the {LEAST_UNITS} different answers that a test needs.",
            advice="Collect more pairs; the figures below are counts only.",
            evidence=[evidence_polite],
        )
    named, avoided = audit.ranked(most=25), audit.avoided(most=10)
    beyond = [k for k in named if not audit.marks_length_only(k)]
    n_beyond = int(
        (
            (audit.q < 0.05) & (audit.q_after < 0.05) & (audit.only_chosen > audit.only_rejected)
        ).sum()
    )
    n_named = int(((audit.q < 0.05) & (audit.only_chosen > audit.only_rejected)).sum())
    return check(
        "words",
        title,
        _level(audit, beyond),
        _verdict(audit, n_named, n_beyond, beyond),
        advice="Read a few pairs that hold these words. Where the word itself is what wins, "
        "balance the pairs that hold it, or let annotators judge answers with it taken out. Words "
        "that only mark longer answers go away with the skew in length.",
        basis=f"{audit.n_tested:,} words and pairs of words that stand in at least {LEAST_UNITS} "
        "different answers. Ranked by log-odds with an informative prior (Monroe, Colaresi & Quinn "
        "2008, a₀ = 500). Named where a paired test on which side holds the word, counting pairs "
        "that share an answer as related, stays under a false discovery rate of 5 %. “Beyond "
        "length” compares with how often the holder would win for being longer or shorter.",
        evidence=[
            _shares(frame, counts, audit, beyond or list(named)),
            _table("Chosen side, highest log-odds first", audit, named),
            _table("Rejected side, lowest log-odds first", audit, avoided),
            evidence_polite,
        ],
    )


def _level(audit: TokenAudit, beyond: Sequence[int]) -> str:
    if not len(beyond):
        return OK
    together = audit.only_chosen + audit.only_rejected
    extreme = [
        k
        for k in beyond
        if audit.only_chosen[k] >= _COMMON_HOLDERS * together[k]
        and audit.in_chosen[k] >= _COMMON_CHOSEN
    ]
    return STOP if extreme else LOOK


def _verdict(audit: TokenAudit, n_named: int, n_beyond: int, beyond: Sequence[int]) -> str:
    if not n_named:
        return "No word stands on the chosen side more often than chance explains."
    if not len(beyond):
        return (
            f"{n_named:,} {'words stand' if n_named > 1 else 'word stands'} on the chosen side "
            "more often, and none of them further than longer answers explain."
        )
    first = beyond[0]
    which = ", ".join(f"“{audit.names[k]}”" for k in beyond[:4])
    return (
        f"{which} {'stand' if len(beyond) > 1 else 'stands'} on the chosen side far more often, "
        f"length aside: “{audit.names[first]}” in {percent(float(audit.in_chosen[first]))} of "
        f"chosen answers and {percent(float(audit.in_rejected[first]))} of rejected ones. "
        f"{n_named:,} stand out in all, {n_beyond:,} beyond what length explains."
    )


def _polite(frame: Frame) -> TokenAudit:
    """The same figures for POLITE, however rare they are."""
    forms = [normalise(text) for text in frame.texts]
    columns = []
    for phrase in POLITE:
        pattern = re.compile(rf"\b{phrase}\b")
        columns.append([len(pattern.findall(form)) for form in forms])
    held = np.array(columns, dtype=np.float64).reshape(len(POLITE), len(forms)).T
    counts = Counts(POLITE, sparse.csr_matrix(held))
    return token_audit(counts, frame.chosen, frame.rejected, frame.corpus.lengths)


def _shares(
    frame: Frame, counts: Counts, audit: TokenAudit, rows: Sequence[int]
) -> Evidence | None:
    """Chosen, where only one side holds the word: as dots."""
    presence = counts.presence.tocsc()
    drawn: list[tuple[str, Interval]] = []
    for k in rows[:10]:
        held = np.asarray(presence[:, [k]].todense()).ravel() > 0
        won, lost = held[frame.chosen], held[frame.rejected]
        apart = won != lost
        found = pair_share(
            won[apart].astype(np.float64), frame.chosen[apart], frame.rejected[apart]
        )
        drawn.append((f"“{audit.names[k]}”", found))
    return shares("Chosen, where only one of the two answers holds the word", drawn)


def _table(caption: str, audit: TokenAudit, rows: Sequence[int]) -> Evidence | None:
    return table(
        caption,
        [
            *("Word", "of chosen %", "of rejected %", "only chosen", "only rejected"),
            *("log-odds z", "q", "q beyond length", "Reading"),
        ],
        [
            [
                f"“{audit.names[k]}”",
                float(audit.in_chosen[k]),
                float(audit.in_rejected[k]),
                int(audit.only_chosen[k]),
                int(audit.only_rejected[k]),
                f"{audit.z[k]:+.1f}".replace("-", "−"),
                _q(audit.q[k]),
                _q(audit.q_after[k]),
                _reading(audit, k),
            ]
            for k in rows
        ],
    )


def _q(value: float) -> str:
    if not np.isfinite(value):
        return "untested"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _reading(audit: TokenAudit, k: int) -> str:
    if not np.isfinite(audit.q[k]):
        return "in too few answers to test"
    if not audit.q[k] < 0.05:
        return "no more than chance"
    if audit.marks_length_only(k):
        return "marks longer answers" if audit.beta > 0 else "marks shorter answers"
    return "stands out, length aside"
