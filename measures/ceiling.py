"""What the agreement of people implies for how good a model of their votes can get."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What two-way agreement a implies, all as fractions.

    annotator_accuracy: the most an annotator can be right, q; low, high: the range in which the
    accuracy of the best possible reward model against single votes lies, [a, q].
    """

    agreement: float
    annotator_accuracy: float | None
    low: float | None
    high: float | None
    undefined: str | None = None


@dataclass(frozen=True, slots=True)
class Anchor:
    """A published agreement figure: fractions; margin as the source prints it (± or None)."""

    name: str
    agreement: float
    margin: float | None
    source: str


# To show beside a project's own figure. They differ in task, in people and in whether ties count.
ANCHORS = (
    Anchor("InstructGPT, training labellers", 0.726, 0.015, "Ouyang et al. 2022"),
    Anchor("InstructGPT, held-out labellers", 0.773, 0.013, "Ouyang et al. 2022"),
    Anchor("Summarization, labeller and researcher", 0.77, 0.02, "Stiennon et al. 2020"),
    Anchor("Helpful and harmless dialogue", 0.63, None, "Bai et al. 2022"),
    Anchor("MT-bench, people without ties", 0.81, None, "Zheng et al. 2023"),
    Anchor("MT-bench, person and judge, with ties", 0.66, None, "Zheng et al. 2023"),
    Anchor("AlpacaFarm", 0.66, None, "Dubois et al. 2023"),
)


def ceiling_from_agreement(agreement: float) -> Ceiling:
    """q = (1 + √(2a − 1)) / 2 and the ceiling range [a, q].

    Two annotators who are right with probability q, independently given the pair, agree with
    a = q² + (1 − q)²; this solves it for q ≥ ½. A model that knows every right answer scores the
    mean of q over pairs against single votes. That is q where all pairs are equally hard, and a
    where each is either certain or a coin flip; every mixture lies between (Jensen's inequality).

    Assumes two-way votes (no ties, no both-bad) and equally good annotators. Against decided pairs
    the ceiling is another one: compare like with like. Undefined under a = ½, where no q fits:
    independent voters cannot agree less often than that.
    """
    if not 0 <= agreement <= 1:
        raise ValueError(f"agreement must lie between 0 and 1, not {agreement}")
    if agreement < 0.5:
        return Ceiling(
            agreement,
            None,
            None,
            None,
            f"agreement is {agreement:.1%}, under one half: independent two-way votes cannot agree "
            "less often, so the votes depend on each other or have more than two choices",
        )
    accuracy = (1 + math.sqrt(2 * agreement - 1)) / 2
    return Ceiling(agreement, accuracy, agreement, accuracy)
