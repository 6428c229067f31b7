"""Agreement that others have published, to show beside a project's own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Anchor:
    """A published agreement figure: fractions; margin as the source prints it (± or None)."""

    name: str
    agreement: float
    margin: float | None
    source: str


# They differ in task, in people and in whether ties count.
ANCHORS = (
    Anchor("InstructGPT, training labellers", 0.726, 0.015, "Ouyang et al. 2022"),
    Anchor("InstructGPT, held-out labellers", 0.773, 0.013, "Ouyang et al. 2022"),
    Anchor("Summarization, labeller and researcher", 0.77, 0.02, "Stiennon et al. 2020"),
    Anchor("Helpful and harmless dialogue", 0.63, None, "Bai et al. 2022"),
    Anchor("MT-bench, people without ties", 0.81, None, "Zheng et al. 2023"),
    Anchor("MT-bench, person and judge, with ties", 0.66, None, "Zheng et al. 2023"),
    Anchor("AlpacaFarm", 0.66, None, "Dubois et al. 2023"),
)
