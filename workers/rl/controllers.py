"""How strongly the policy is held to its reference."""

from dataclasses import dataclass


@dataclass
class FixedKL:
    """The coefficient stays what it was."""

    coef: float

    def update(self, kl: float, samples: int) -> None:
        """Nothing follows from `kl` (nats per sequence) over `samples` sequences."""


@dataclass
class AdaptiveKL:
    """The coefficient moves so that the sequence KL approaches `target`.

        β ← β·(1 + clip(KL/target − 1, ±0.2)·n/horizon)

    `target` in nats per sequence, `horizon` in sequences: after one horizon of samples far from
    the target the coefficient has changed by a factor e^±0.2. A horizon far above the planned
    samples never moves; a tenth of them is a good start.
    Source: Ziegler et al. 2019, "Fine-Tuning Language Models from Human Preferences", section
    2.2. (Not to be taken for an early stop of the update, which bounds another KL.)
    """

    coef: float
    target: float
    horizon: float

    def update(self, kl: float, samples: int) -> None:
        """Move by the sequence KL measured over `samples` sequences."""
        error = min(max(kl / self.target - 1.0, -0.2), 0.2)
        self.coef *= 1.0 + error * samples / self.horizon
