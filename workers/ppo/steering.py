"""What guardrails change while a run trains, and what a step reads of it."""

from collections.abc import Callable, Sequence

from workers.config.policy import PPOSettings
from workers.context import RunContext
from workers.guardrails.watch import Breach, first_stop, report
from workers.ppo.state import TrainingState
from workers.rl.controllers import AdaptiveKL, FixedKL


def make_controller(settings: PPOSettings, kl_coef: float) -> FixedKL | AdaptiveKL:
    """The price of divergence. An adaptive one acts over a tenth of the planned answers."""
    if settings.kl_controller == "fixed":
        return FixedKL(kl_coef)
    horizon = settings.kl_horizon or settings.steps * settings.batch_size / 10
    return AdaptiveKL(kl_coef, settings.kl_target, horizon)


class Steering:
    """Holds the price of divergence, and the settings that guardrails have changed. All of it
    lives in the training state, so a resumed run is steered as it was."""

    def __init__(self, context: RunContext, settings: PPOSettings, state: TrainingState) -> None:
        self.context = context
        self.settings = settings
        self.state = state
        self.controller = make_controller(settings, state.kl_coef)

    @property
    def kl_coef(self) -> float:
        return self.controller.coef

    @property
    def rate_factor(self) -> float:
        """What the scheduled step size is multiplied by."""
        return self.state.adjusted.get("learning_rate", 1.0)

    @property
    def epochs(self) -> int:
        return int(self.state.adjusted.get("update_epochs", self.settings.update_epochs))

    @property
    def entropy_coef(self) -> float:
        return self.state.adjusted.get("entropy_coef", self.settings.entropy_coef)

    def follow(self, kl: float, answers: int) -> None:
        """Let the controller see the divergence of a step, nats per sequence."""
        self.controller.update(kl, answers)
        self.state.kl_coef = self.controller.coef

    def heed(self, breaches: Sequence[Breach]) -> Breach | None:
        """Tell of what was crossed and change what is to be changed; the breach that ends the
        run, if one does."""
        report(self.context, breaches)
        for breach in breaches:
            for change in breach.adjustment:
                self._adjust(change.setting, change.apply)
        return first_stop(breaches)

    def _adjust(self, setting: str, change: Callable[[float], float]) -> None:
        adjusted = self.state.adjusted
        if setting == "kl_coef":
            self.controller.coef = self.state.kl_coef = change(self.controller.coef)
        elif setting == "learning_rate":
            peak = self.settings.learning_rate
            adjusted[setting] = change(peak * self.rate_factor) / peak
        else:
            adjusted[setting] = change(adjusted.get(setting, getattr(self.settings, setting)))
