"""Texts that stand twice: inside the training rows, and on both sides of a split."""

from collections.abc import Sequence

from apps.snapshots.recipe import PRIVATE_SPLITS, TRAIN
from apps.snapshots.reports.checks import (
    LOOK,
    OK,
    STOP,
    Check,
    check,
    examples,
    excerpt,
    percent,
    table,
)
from apps.snapshots.reports.frame import Frame
from apps.snapshots.reports.material import ReportPair
from measures.duplicates import THRESHOLD, Duplicates, near_duplicates, near_matches

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
        LOOK if worst > MANY else OK,
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
    level = STOP if share > MANY else LOOK if n_near["answers"] else OK
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
