"""What a PPO run has beyond its own process: actors that draw, actors that score."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workers import ranks
from workers.config.policy import PPOSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import Messages
from workers.models.loading import stop_ids
from workers.ppo.diagnostics import MetricValues
from workers.ppo.rollout import Rollout
from workers.ppo.setup import Models
from workers.ray.cluster import Cluster
from workers.ray.policy_actors import RayDrawer, size_of
from workers.ray.pool import RayReward
from workers.rewards.source import RankedPending
from workers.rl.advantages import importance_metrics
from workers.rollouts.drawing import Chunk, Drawer, Drawn

if TYPE_CHECKING:
    from workers.ray.policy_actors import RayDrawer


# One step off: the answers of the next step are drawn elsewhere while the policy learns here.

Submit = Callable[[Sequence[Messages], Sequence[str]], RankedPending]


@dataclass(slots=True)
class _Held:
    """Answers on their way, and their scores."""

    chunks: list[Chunk]
    version: int
    thread: threading.Thread | None = None
    drawn: list[Drawn] = field(default_factory=list)
    scores: list[RankedPending] = field(default_factory=list)
    error: BaseException | None = None


class AsyncRollout:
    """A `Drawer` that has the answers already where it was told what would be asked.

    `dropped`: chunks drawn ahead in vain, for they were over `most_age` optimizer steps old, or
    others were asked for.
    """

    def __init__(self, drawer: "RayDrawer", submit: Submit, *, most_age: int) -> None:
        self.dropped = 0
        self.most_age = most_age
        self._drawer = drawer
        self._submit = submit
        self._held: _Held | None = None
        self._scores: deque[RankedPending] = deque()
        self._closed = False

    def begin(self, chunks: Sequence[Chunk], *, version: int) -> None:
        """Draw `chunks` with the policy as it stands, and hand them in to be scored, while the
        caller continues. Nobody else may hand in until they are asked for."""
        self._drawer.publish(version)
        held = self._held = _Held(list(chunks), version)
        held.thread = threading.Thread(target=self._run, args=(held,), name="ahead", daemon=True)
        held.thread.start()

    def _run(self, held: _Held) -> None:
        try:
            for drawn in self._drawer.draw_published(held.chunks):
                if self._closed:
                    return
                held.scores.append(self._submit(drawn.chunk.messages, drawn.responses.texts))
                held.drawn.append(drawn)
        except BaseException as error:  # who asks for the answers must get it
            held.error = error

    def draw(self, chunks: Sequence[Chunk], *, version: int) -> Iterator[Drawn]:
        held = self._taken()
        if held is not None and held.error is not None:
            raise held.error
        fits = held and held.chunks == list(chunks) and version - held.version <= self.most_age
        if held is not None and fits:
            self._scores = deque(held.scores)
            yield from held.drawn
            return
        if held is not None:
            self.dropped += len(held.chunks)
        yield from self._drawer.draw(chunks, version=version)

    def scores_of(self, messages: Sequence[Messages], texts: Sequence[str]) -> RankedPending:
        """Of the answers drawn last, in their order: those handed in before, or handed in now."""
        return self._scores.popleft() if self._scores else self._submit(messages, texts)

    def _taken(self) -> _Held | None:
        """What was drawn ahead, once it is there."""
        held, self._held = self._held, None
        if held is not None and held.thread is not None:
            held.thread.join()
        return held

    def close(self) -> None:
        """Wait for the thread, which uses what is closed next."""
        self._closed = True
        self._taken()


KEPT_VERSIONS = 3  # room in the object store: the one in use, the next, and what is still fetched


@dataclass
class Actors:
    """Open with `open_actors`, close when the run ends."""

    cluster: Cluster
    settings: PPOSettings
    drawer: RayDrawer | None
    reward: RayReward | None
    async_rollout: AsyncRollout | None = None
    _told: dict[str, int] = field(default_factory=dict)

    def draw_ahead_by(self, submit: Submit) -> None:
        """One step off from now on, where the settings want that."""
        if self.drawer is not None and self.settings.rollout_lag:
            self.drawer.with_logprobs = True
            self.async_rollout = AsyncRollout(
                self.drawer, submit, most_age=self.settings.oldest_rollout
            )

    def who_draws(self) -> Drawer | None:
        return self.async_rollout or self.drawer

    def metrics(self, rollout: Rollout, version: int) -> MetricValues:
        """Of a step that learned from `rollout` as `version`, by the names of docs/metrics.md."""
        metrics: MetricValues = {}
        if self.drawer is not None:
            metrics |= {
                "time/broadcast_s": self.drawer.put_s + self.drawer.load_s,
                "rollout/redrawn": self._since("redrawn", self.drawer.pool.redone),
                "rollout/workers_replaced": self._since("drawers", self.drawer.pool.replaced),
            }
        if self.reward is not None:
            metrics["reward/workers_replaced"] = self._since("scorers", self.reward.pool.replaced)
        if self.async_rollout is not None and rollout.importance is not None:
            cap = self.settings.importance_cap
            metrics |= importance_metrics(rollout.importance, rollout.mask, cap=cap)
            metrics |= {
                "rollout/age": float(version - rollout.policy_version),
                "rollout/dropped": self._since("dropped", self.async_rollout.dropped),
            }
        return metrics

    def _since(self, name: str, count: int) -> float:
        """Since the step before."""
        before, self._told[name] = self._told.get(name, 0), count
        return float(count - before)

    def stop(self) -> None:
        """Draw nothing ahead any more."""
        if self.async_rollout is not None:
            if self.drawer is not None:
                self.drawer.pool.stop()  # its thread may wait for an actor that hangs
            self.async_rollout.close()

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
