"""Can the critic learn at all? It is fitted to a rollout that does not change, and put back.

A critic whose head is frozen, whose gradient is cut or whose inputs say nothing cannot explain
even the returns it is shown over and over; in training that looks like noise (SPEC E11).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from workers.preflight.findings import BLOCK, OK, UNKNOWN, WARN, Critic, Finding
from workers.rl.losses import explained_variance, masked_sum

DEAD = 0.3  # explained variance after the fit, under which a critic counts as dead
ENOUGH = 0.5  # the fit ends here: that it can learn is shown
STEPS, SECONDS = 60, 8.0
HEAD_RATE, BODY_RATE = 3e-2, 1e-3
SMALL = 1_000_000  # parameters of a layer that is taken for a head: a wide model's value head


@dataclass(frozen=True, slots=True)
class FixedRollout:
    """What the critic is shown; shapes as in `Responses`. returns [B, R]."""

    prompt_ids: Tensor
    prompt_mask: Tensor
    response_ids: Tensor
    response_mask: Tensor
    returns: Tensor

    @property
    def sequences(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.prompt_ids, self.prompt_mask, self.response_ids, self.response_mask


@dataclass(frozen=True, slots=True)
class CriticFit:
    """Explained variance before and after; NaN where the returns do not vary. `gradient`: whether
    any reached the parameters; None where time was over before that was seen."""

    before: float
    after: float
    steps: int
    seconds: float
    out_of_time: bool
    gradient: bool | None


def fit_critic(
    critic: Critic,
    rollout: FixedRollout,
    *,
    steps: int = STEPS,
    max_seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> CriticFit:
    """Fit the critic to `rollout.returns` by Adam on half the squared error, until it explains half
    of their variance or the steps or seconds are over. Weights and gradients are then as before, to
    the last bit. Draws no random numbers."""
    parameters = [p for p in critic.parameters() if p.requires_grad]
    started = clock()
    explained: list[float] = []
    gradient: bool | None = None
    out_of_time = False
    with _put_back(parameters):
        optimizer = torch.optim.Adam(_groups(parameters)) if parameters else None
        for step in range(steps + 1):
            with torch.enable_grad():
                values = critic.values(*rollout.sequences).float()
                error = (values - rollout.returns) ** 2 / 2
                loss = masked_sum(error, rollout.response_mask) / rollout.response_mask.sum()
            explained.append(_explained(values, rollout))
            out_of_time = clock() - started > max_seconds
            if step == steps or out_of_time or not explained[-1] < ENOUGH:
                break
            if optimizer is None or not loss.requires_grad:
                gradient = False
                break
            grads = torch.autograd.grad(loss, parameters, allow_unused=True)
            gradient = gradient or any(g is not None and bool(g.any()) for g in grads)
            if not gradient:
                break
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.grad = grad
            optimizer.step()
    return CriticFit(
        before=explained[0],
        after=explained[-1],
        steps=len(explained) - 1,
        seconds=clock() - started,
        out_of_time=out_of_time,
        gradient=gradient,
    )


def critic_finding(fit: CriticFit, *, answers: int, level: str = WARN) -> Finding:
    """What a fit says. `level` is that of a dead critic: warn, or block by choice."""
    figures = {
        "explained_variance": fit.after,
        "before": fit.before,
        "steps": fit.steps,
        "seconds": round(fit.seconds, 2),
        "answers": answers,
        "least": DEAD,
    }
    if fit.after != fit.after:
        return Finding(
            level=UNKNOWN,
            check="critic",
            message=f"The returns of {answers} answers are all alike, so there is nothing for the "
            "critic to explain.",
            figures=figures,
        )
    said = (
        f"Fitted to {answers} answers that stay the same, the critic explains "
        f"{100 * fit.after:.0f} % of their returns' variance after {fit.steps} steps"
    )
    if fit.after >= DEAD:
        return Finding(level=OK, check="critic", message=f"{said}.", figures=figures)
    if fit.out_of_time and fit.gradient is not False:
        return Finding(
            level=UNKNOWN,
            check="critic",
            message=f"{said}, when its {fit.seconds:.0f} s were over: too few to tell a slow "
            "critic from a dead one.",
            figures=figures,
        )
    why = (
        "no gradient reaches its weights. Look whether its head is frozen or its states are "
        "detached."
        if not fit.gradient
        else "its states say nothing of the reward. Take a separate critic (critic: separate) or "
        "a better starting policy; critic_warmup_steps alone will not help."
    )
    least = f"{100 * DEAD:.0f} %"
    return Finding(
        level=level if level in (WARN, BLOCK) else WARN,
        check="critic",
        message=f"{said}, and a live one at least {least}: {why}",
        figures=figures,
    )


def _explained(values: Tensor, rollout: FixedRollout) -> float:
    return float(explained_variance(values.detach(), rollout.returns, rollout.response_mask))


def _groups(parameters: Sequence[nn.Parameter]) -> list[dict[str, object]]:
    """A value head is new and takes large steps; what was trained before takes small ones. The head
    is told by its shape: one row, or its bias."""
    heads = [p for p in parameters if p.shape[0] == 1 and p.numel() < SMALL]
    rest = [p for p in parameters if not any(p is head for head in heads)]
    groups = [{"params": heads, "lr": HEAD_RATE}, {"params": rest, "lr": BODY_RATE}]
    return [group for group in groups if group["params"]]


@contextmanager
def _put_back(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Weights and gradients of the parameters afterwards as they were before."""
    kept = [p.detach().clone() for p in parameters]
    gradients = [p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, weights, gradient in zip(parameters, kept, gradients, strict=True):
                parameter.copy_(weights)
                parameter.grad = gradient
