"""Texts that stand twice: inside the training rows, and on both sides of a split."""

import re
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from apps.common.numbers import share as percent
from apps.snapshots.recipe import PRIVATE_SPLITS, TRAIN
from apps.snapshots.reports.checks import (
    OK,
    STOP,
    UNKNOWN,
    WARN,
    Check,
    Evidence,
    check,
    examples,
    excerpt,
    shares,
    table,
)
from apps.snapshots.reports.material import Frame, ReportPair
from measures.bootstrap import LEAST_UNITS
from measures.corpus import Counts
from measures.datasets.drift import pair_share
from measures.duplicates import THRESHOLD, Duplicates, near_duplicates, near_matches, normalise
from measures.estimate import Interval
from measures.tokens import TokenAudit, token_audit

MANY = 0.05  # of the distinct texts
_SHOWN = 5


def repeats(frame: Frame) -> Check:
    """Near-duplicates among the distinct prompts and among the distinct answers of training."""
    prompts = list(dict.fromkeys(pair.prompt for pair in frame.rows))
    answers = list(frame.texts)
    asked, said = near_duplicates(prompts), near_duplicates(answers)
    rows = [
        _row("prompts", len(prompts), frame.n, asked),
        _row("answers", len(answers), 2 * frame.n, said),
    ]
    worst = max(
        (found.n_redundant / n if n else 0.0)
        for found, n in ((asked, len(prompts)), (said, len(answers)))
    )
    verdict = (
        f"{asked.n_redundant:,} of {len(prompts):,} distinct prompts and {said.n_redundant:,} of "
        f"{len(answers):,} distinct answers are nearly the same as an earlier one."
    )
    return check(
        "repeats",
        "Near-duplicates in training",
        WARN if worst > MANY else OK,
        verdict,
        advice="Nearly equal texts count several times and make intervals look shorter than they "
        "are. Keep one of each family, or weight the family as one.",
        basis=_HOW,
        evidence=[
            table(
                "Distinct texts",
                [
                    "What",
                    "distinct",
                    "in rows",
                    "nearly repeat another",
                    "share %",
                    "largest family",
                ],
                rows,
            ),
            _examples(prompts, asked, "Prompts that are nearly the same"),
            _examples(answers, said, "Answers that are nearly the same"),
        ],
    )


_HOW = (
    f"Shared runs of three words over all runs of three words, at least {THRESHOLD:g}; candidates "
    "by MinHash, each checked exactly. Texts under eleven words count only when they are equal."
)


def _row(name: str, n: int, uses: int, found: Duplicates) -> list[object]:
    sizes: dict[int, int] = {}
    for family in found.family.tolist():
        sizes[family] = sizes.get(family, 0) + 1
    share = found.n_redundant / n if n else 0.0
    return [name, n, uses, found.n_redundant, share, max(sizes.values(), default=0)]


def _examples(texts: Sequence[str], found: Duplicates, caption: str) -> dict[str, object] | None:
    return examples(
        caption,
        (
            {
                "left": excerpt(texts[one], 240),
                "right": excerpt(texts[other], 240),
                "note": f"{100 * value:.0f} % of their runs of three words are shared",
            }
            for one, other, value in list(
                zip(found.first, found.second, found.similarity, strict=True)
            )[:_SHOWN]
        ),
        sides=("One", "Another"),
    )


def across(frame: Frame) -> Check:
    """Texts of the other files that nearly stand in training."""
    title = "Near-duplicates across the splits"
    files: dict[str, list[ReportPair]] = {}
    for pair in frame.material.pairs:
        if pair.split != TRAIN:
            files.setdefault(pair.split, []).append(pair)
    if not files:
        return check("across", title, OK, "There is no other file than training to compare with.")
    seen = {
        "answers": list(frame.texts),
        "prompts": list(dict.fromkeys(pair.prompt for pair in frame.rows)),
    }
    rows, shown = [], []
    n_texts = {"answers": 0, "prompts": 0}
    n_near = {"answers": 0, "prompts": 0}
    for split, pairs in files.items():
        texts = {
            "answers": list(dict.fromkeys(t for p in pairs for t in (p.chosen, p.rejected))),
            "prompts": list(dict.fromkeys(pair.prompt for pair in pairs)),
        }
        for what, named in texts.items():
            found = near_matches(named, seen[what])
            n_texts[what] += len(named)
            n_near[what] += found.n_matched
            rows.append([split, what, len(named), found.n_matched, found.n_matched / len(named)])
            hits = [k for k, row in enumerate(found.row) if row >= 0][:_SHOWN]
            if what == "answers" and split not in PRIVATE_SPLITS:
                shown += [
                    {
                        "left": excerpt(named[k], 240),
                        "right": excerpt(seen[what][found.row[k]], 240),
                        "note": f"{split} and train share {100 * found.similarity[k]:.0f} %",
                    }
                    for k in hits
                ]
    share = n_near["answers"] / n_texts["answers"] if n_texts["answers"] else 0.0
    level = STOP if share > MANY else WARN if n_near["answers"] else OK
    verdict = (
        f"{n_near['answers']:,} of {n_texts['answers']:,} answers outside training "
        f"({percent(share)}) nearly stand in training, and {n_near['prompts']:,} of "
        f"{n_texts['prompts']:,} prompts."
    )
    return check(
        "across",
        title,
        level,
        verdict,
        advice="A model is then measured on what it has read. Split by a coarser group, or drop "
        "the repeats before freezing. Prompts may recur where the split goes by argument: then the "
        "figures hold for new arguments to known prompts only.",
        basis=_HOW,
        evidence=[
            table(
                "Texts that nearly stand in training",
                ["File", "What", "distinct", "in training", "share %"],
                rows,
            ),
            examples(
                "Answers on both sides",
                shown[:_SHOWN],
                sides=("In the other file", "In training"),
            ),
        ],
    )


# The audit of spurious words: what stands on the chosen side far more often, and is it length?

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
    return STOP if extreme else WARN


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
            "Word",
            "of chosen %",
            "of rejected %",
            "only chosen",
            "only rejected",
            "log-odds z",
            "q",
            "q beyond length",
            "Reading",
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
        return "indicates longer answers" if audit.beta > 0 else "indicates shorter answers"
    return "stands out, length aside"
