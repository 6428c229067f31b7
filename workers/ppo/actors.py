"""What a PPO run has beyond its own process: actors that draw, actors that score."""

from dataclasses import dataclass, field

from workers import ranks
from workers.config.policy import PPOSettings
from workers.context import (
    RunContext,
)
from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.models.loading import stop_ids
from workers.ppo.ahead import Ahead, Submit
from workers.ppo.figures import Figures
from workers.ppo.rollout import Rollout
from workers.ppo.setup import Models
from workers.ray.cluster import Cluster
from workers.ray.drawer import RayDrawer
from workers.ray.reward_actor import RayReward
from workers.ray.weights import size_of
from workers.rl.importance import importance_figures
from workers.rollouts.drawing import Drawer

KEPT_VERSIONS = 3  # room in the object store: the one in use, the next, and what is still fetched


@dataclass
class Actors:
    """Open with `open_actors`, close when the run ends."""

    cluster: Cluster
    settings: PPOSettings
    drawer: RayDrawer | None
    reward: RayReward | None
    ahead: Ahead | None = None
    _told: dict[str, int] = field(default_factory=dict)

    def draw_ahead_by(self, submit: Submit) -> None:
        """One step off from now on, where the settings want that."""
        if self.drawer is not None and self.settings.rollout_lag:
            self.drawer.with_logprobs = True
            self.ahead = Ahead(self.drawer, submit, most_age=self.settings.oldest_rollout)

    def who_draws(self) -> Drawer | None:
        return self.ahead or self.drawer

    def figures(self, rollout: Rollout, version: int) -> Figures:
        """Of a step that learned from `rollout` as `version`, by the names of docs/metrics.md."""
        figures: Figures = {}
        if self.drawer is not None:
            figures |= {
                "time/broadcast_s": self.drawer.put_s + self.drawer.load_s,
                "rollout/redrawn": self._since("redrawn", self.drawer.pool.redone),
                "rollout/workers_replaced": self._since("drawers", self.drawer.pool.replaced),
            }
        if self.reward is not None:
            figures["reward/workers_replaced"] = self._since("scorers", self.reward.pool.replaced)
        if self.ahead is not None and rollout.importance is not None:
            cap = self.settings.importance_cap
            figures |= importance_figures(rollout.importance, rollout.mask, cap=cap)
            figures |= {
                "rollout/age": float(version - rollout.policy_version),
                "rollout/dropped": self._since("dropped", self.ahead.dropped),
            }
        return figures

    def _since(self, name: str, count: int) -> float:
        """Since the step before."""
        before, self._told[name] = self._told.get(name, 0), count
        return float(count - before)

    def stop(self) -> None:
        """Draw nothing ahead any more."""
        if self.ahead is not None:
            if self.drawer is not None:
                self.drawer.pool.stop()  # its thread may wait for an actor that hangs
            self.ahead.close()

    def close(self) -> None:
        """After `stop`, and after the last who asks for scores."""
        for each in (self.drawer, self.reward):
            if each is not None:
                each.close()
        self.cluster.close()


def open_actors(
    context: RunContext, settings: PPOSettings, models: Models, *, half: bool
) -> Actors:
    """Start or join a cluster and start the actors that the settings ask for."""
    if ranks.world() > 1:
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            "rollout_workers, reward_workers: go with the layout 'one'; a job of several "
            "processes shares drawing and scoring among its ranks. Set both to 0, or the layout "
            "to 'one'.",
        )
    policy = models.actor_critic.policy
    drawing, scoring = settings.rollout_workers, settings.reward_workers
    weights = size_of([*policy.parameters(), *policy.buffers()]) if drawing else 0
    cluster = Cluster.open(
        context.workdir,
        actors=drawing + scoring,
        gpus=settings.worker_gpus,
        store=KEPT_VERSIONS * weights + 2**26,
    )
    try:
        drawer = reward = None
        if drawing:
            adapted = settings.lora_rank > 0
            drawer = RayDrawer(
                cluster,
                policy,
                models.tokenizer,
                stop_ids(policy, models.tokenizer),
                workers=drawing,
                lora=(settings.lora_rank, settings.lora_alpha) if adapted else None,
                half=half,
                gpus=settings.worker_gpus,
                limit_s=settings.worker_timeout,
            )
        if scoring:
            reward = RayReward(
                cluster,
                context.spec,
                settings.reward,
                workers=scoring,
                batch_size=settings.reward_batch_size,
                gpus=settings.worker_gpus,
                limit_s=settings.worker_timeout,
            )
    except BaseException:
        cluster.close()
        raise
    return Actors(cluster, settings, drawer, reward)
