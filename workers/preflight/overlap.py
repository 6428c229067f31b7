"""Prompts that stand where they should not: held out and trained on, demonstrated and explored.

No torch. Texts are compared in their normal form, near-duplicates by `measures.duplicates`.
"""

from collections.abc import Sequence

from measures.duplicates import near_matches
from measures.splits import overlap_containment
from measures.text import normalise
from workers.data.snapshot import Messages
from workers.preflight.findings import OK, UNKNOWN, WARN, Finding

TOO_MUCH = 0.3  # of RL prompts among the demonstrations (SPEC B); as on the snapshot's page
MOST = 5000  # texts of either side that are compared


def text_of(messages: Messages) -> str:
    """A prompt as one text."""
    return "\n".join(message["content"] for message in messages)


def evaluation_overlap(
    training: Sequence[str], evaluation: Sequence[str], *, same_file: bool = False
) -> Finding:
    """Evaluation prompts that are trained on, or nearly. `same_file`: the snapshot holds nothing
    out, so the evaluation draws from the training file and its figures are no held-out ones."""
    check = "eval_overlap"
    if not evaluation or not training:
        return Finding(
            level=UNKNOWN,
            check=check,
            message="There is no evaluation file to compare with the training rows."
            if training
            else "There are no training rows to compare with.",
        )
    if same_file:
        return Finding(
            level=WARN,
            check=check,
            message=f"The snapshot has no evaluation file: the {len(evaluation):,} evaluation "
            "prompts are training prompts, and what is called held-out is not. Freeze a snapshot "
            "with a hold-out.",
            figures={"share": 1.0, "n": len(evaluation)},
        )
    both, near, n = _counted(training[:MOST], evaluation[:MOST])
    figures = {"equal": both, "near": near, "n": n, "share": near / n}
    if near:
        return Finding(
            level=WARN,
            check=check,
            message=f"{near:,} of {n:,} evaluation prompts ({100 * near / n:.1f} %) are trained on "
            f"too, or nearly; {both:,} of them are equal. Figures on these flatter the policy: "
            "freeze the snapshot again with the gate that keeps equal prompts together.",
            figures=figures,
        )
    return Finding(
        level=OK,
        check=check,
        message=f"None of {n:,} evaluation prompts is trained on, nearly equal ones included.",
        figures=figures,
    )


def demonstration_overlap(prompts: Sequence[str], demonstrated: Sequence[str]) -> Finding:
    """RL prompts whose answers the policy was shown: over 30 % it explores little."""
    check = "sft_overlap"
    if not demonstrated:
        return Finding(
            level=UNKNOWN,
            check=check,
            message="No demonstrations are among the inputs, so it is not known which prompts the "
            "policy was shown answers to.",
        )
    if not prompts:
        return Finding(level=UNKNOWN, check=check, message="There are no prompts.")
    both, near, n = _counted(demonstrated[:MOST], prompts[:MOST])
    share = near / n
    said = (
        f"{near:,} of {n:,} distinct prompts ({100 * share:.0f} %) stand in the demonstrations, or "
        f"nearly; {both:,} of them are equal."
    )
    figures = {"equal": both, "near": near, "n": n, "share": share}
    if share > TOO_MUCH:
        return Finding(
            level=WARN,
            check=check,
            message=f"{said} Over {100 * TOO_MUCH:.0f} % is too many: the policy was shown answers "
            "to these and explores little on them. Add prompts it has not seen.",
            figures=figures,
        )
    return Finding(level=OK, check=check, message=said, figures=figures)


def _counted(known: Sequence[str], asked: Sequence[str]) -> tuple[int, int, int]:
    """(equal, equal or nearly so, distinct texts asked for)."""
    exact = overlap_containment(known, asked)
    distinct = list({normalise(text): text for text in asked}.values())
    seen = {normalise(text) for text in known}
    near = near_matches(distinct, list(dict.fromkeys(known)))
    held = sum(
        row >= 0 or normalise(text) in seen for row, text in zip(near.row, distinct, strict=True)
    )
    return exact.n_both, held, len(distinct)
