"""Prompts for reinforcement learning beside the demonstrations: overlap and breadth."""

from collections.abc import Sequence
from typing import Any

from apps.snapshots.reports.checks import (
    LOOK,
    OK,
    UNKNOWN,
    Check,
    check,
    examples,
    excerpt,
    percent,
    table,
)
from measures.datasets.breadth import Breadth, breadth, common_sample
from measures.duplicates import THRESHOLD, near_matches
from measures.estimate import Quantity
from measures.splits import overlap_containment
from measures.text import normalise

TOO_MUCH = 0.3
_SHOWN = 8


def prompts_build(
    rl: Sequence[str],
    rl_topics: Sequence[str],
    sft: Sequence[str],
    sft_topics: Sequence[str],
    *,
    sft_name: str = "",
) -> dict[str, Any]:
    """rl, sft: the prompts of each; topics: (n,) "" where unknown. sft may be empty."""
    checks = [_overlap(rl, sft, sft_name), _breadth(rl, rl_topics, sft, sft_topics, sft_name)]
    return {"version": 1, "n": len(rl), "looked_at": len(rl), "checks": checks}


def _overlap(rl: Sequence[str], sft: Sequence[str], name: str) -> Check:
    """|SFT ∩ RL| / |RL| over distinct prompts, equal and nearly equal ones."""
    title = "Overlap with the demonstrations"
    if not sft:
        return check(
            "overlap",
            title,
            UNKNOWN,
            "The project has no frozen demonstrations to compare with.",
            advice="Freeze or import the demonstrations that the policy starts from.",
        )
    exact = overlap_containment(sft, rl)
    if exact.containment is None:
        return check("overlap", title, UNKNOWN, f"Undefined: {exact.undefined}.")
    asked = list({normalise(text): text for text in rl}.values())
    known = list({normalise(text): text for text in sft}.values())
    near = near_matches(asked, known)
    seen = {normalise(text) for text in known}
    held = [row >= 0 or normalise(text) in seen for row, text in zip(near.row, asked, strict=True)]
    n_near, share = sum(held), sum(held) / len(asked)
    alike = [k for k, row in enumerate(near.row) if row >= 0 and near.similarity[k] < 1]
    return check(
        "overlap",
        title,
        LOOK if share > TOO_MUCH else OK,
        f"{n_near:,} of {len(asked):,} distinct prompts ({percent(share)}) stand in the "
        f"demonstrations “{name}”, or nearly so; {exact.n_both:,} of them are equal. Over "
        f"{100 * TOO_MUCH:.0f} % is too many.",
        advice="The policy has been shown answers to these prompts: it explores little on them, "
        "and what it gains there says little about others. Replace them, or keep them apart when "
        "measuring.",
        basis=f"Containment |SFT ∩ RL| / |RL| over distinct normalised texts. Nearly: at least "
        f"{THRESHOLD:g} of the runs of three words shared; candidates by MinHash, checked exactly.",
        evidence=[
            table(
                "Prompts that the demonstrations hold",
                ["How", "prompts", "of distinct prompts %"],
                [
                    ["equal", exact.n_both, exact.containment],
                    ["equal or nearly so", n_near, share],
                ],
            ),
            examples(
                "Nearly the same",
                (
                    {
                        "left": excerpt(asked[k], 240),
                        "right": excerpt(known[near.row[k]], 240),
                        "note": f"{100 * near.similarity[k]:.0f} % shared",
                    }
                    for k in alike[:_SHOWN]
                ),
                sides=("Here", "In the demonstrations"),
            ),
        ],
    )


def _breadth(
    rl: Sequence[str],
    rl_topics: Sequence[str],
    sft: Sequence[str],
    sft_topics: Sequence[str],
    name: str,
) -> Check:
    """Demonstrations should be varied; prompts for RL may be focused."""
    title = "Breadth of the prompts"
    if not rl:
        return check("breadth", title, UNKNOWN, "There are no prompts.")
    sample = common_sample(rl, sft) if sft else common_sample(rl)
    ours = breadth(rl, rl_topics, sample=sample)
    theirs = breadth(sft, sft_topics, sample=sample) if sft else None
    narrower = _narrower(ours, theirs)
    return check(
        "breadth",
        title,
        LOOK if narrower is False else OK if theirs else UNKNOWN,
        _sentence(ours, theirs, narrower),
        advice="Demonstrations teach many kinds of answer and want varied prompts; reinforcement "
        "learning sharpens a few. Where the demonstrations are the narrower list, add to them."
        if theirs
        else "Freeze demonstrations to compare with.",
        basis=f"Distinct words and distinct-2 are those expected in {sample:,} tokens drawn at "
        "random from each list, so that a longer list does not look more varied. Distance is 1 − "
        "the share of runs of three words that two random prompts have in common. The effective "
        "number of topics is exp(entropy).",
        evidence=[_figures(ours, theirs, name)],
    )


def _narrower(ours: Breadth, theirs: Breadth | None) -> bool | None:
    """Whether the RL prompts use fewer different words; None where that cannot be told."""
    if theirs is None or ours.vocabulary.value is None or theirs.vocabulary.value is None:
        return None
    return ours.vocabulary.value <= theirs.vocabulary.value * 1.1


def _sentence(ours: Breadth, theirs: Breadth | None, narrower: bool | None) -> str:
    words = _shown(ours.vocabulary, 0)
    said = f"{ours.n:,} prompts use {words} different words in {ours.sample:,} tokens"
    if theirs is None:
        return f"{said}; there are no demonstrations to set beside them."
    said += f", the {theirs.n:,} demonstrations {_shown(theirs.vocabulary, 0)}"
    ending = {
        True: "the demonstrations are as varied or more so, as they should be.",
        False: "the demonstrations are the narrower list.",
        None: "that cannot be compared.",
    }
    return f"{said}: {ending[narrower]}"


def _figures(ours: Breadth, theirs: Breadth | None, name: str) -> dict[str, Any] | None:
    rows: list[tuple[str, str, int]] = [
        ("Effective number of topics", "topics", 1),
        (f"Distinct words in {ours.sample:,} tokens", "vocabulary", 0),
        ("Distinct pairs of words (distinct-2)", "new_pairs", 3),
        ("Mean distance of two prompts", "distance", 3),
    ]
    made = [
        ["Prompts", f"{ours.n:,}", f"{theirs.n:,}" if theirs else "—"],
        ["Tokens", f"{ours.words:,}", f"{theirs.words:,}" if theirs else "—"],
    ]
    for label, field, places in rows:
        other = _shown(getattr(theirs, field), places) if theirs else "—"
        made.append([label, _shown(getattr(ours, field), places), other])
    return table("Side by side", ["", "these prompts", name or "demonstrations"], made)


def _shown(found: Quantity, places: int) -> str:
    return f"undefined: {found.undefined}" if found.value is None else f"{found.value:,.{places}f}"
