"""What the pages of adversarial rounds print, without queries."""

from collections.abc import Sequence

from apps.common.drawing.blocks import TextView, text_view
from apps.evaluation.selectors.adversarial import RoundCounts, RoundPair
from apps.labeling.texts import plain
from measures.trust.findings import Example, percent


def fooled_words(counts: RoundCounts) -> str:
    """ "Fooled in 14 of 40 decided pairs (22.1–50.5 %)."."""
    share = counts.share
    if not counts.decided:
        return "No pair is decided yet."
    if share.low is None or share.high is None:
        return f"Fooled in {counts.fooled} of {counts.decided} decided pairs."
    return (
        f"Fooled in {counts.fooled} of {counts.decided} decided pairs "
        f"({100 * share.low:.1f}–{percent(share.high)})."
    )


def examples_shown(pairs: Sequence[RoundPair]) -> list[tuple[int, TextView]]:
    """(comparison, the pair to read) of those that fooled the model, highest score first."""
    return [
        (
            pair.comparison.pk,
            text_view(
                Example(
                    prompt=pair.prompt[-1]["content"],
                    answer=plain(pair.high),
                    score=pair.high_score,
                    label=pair.votes,
                    other=plain(pair.low),
                    other_score=pair.low_score,
                )
            ),
        )
        for pair in pairs
        if pair.is_fooled
    ]
