"""The arms of a seed: the rounds, the first round with chosen pairs, and people who love length."""

from dataclasses import asdict
from pathlib import Path

from apps.loop.models import Round
from apps.loop.selectors.pipelines import round_steps
from apps.training.models import Checkpoint, Run
from apps.training.selectors import checkpoint_for_use
from benchmarks.rounds_world.circle import Circle, Plan, circle_make, folder_of
from benchmarks.rounds_world.figures import RoundFigures
from benchmarks.rounds_world.gold_figures import reward_quality, wins
from benchmarks.rounds_world.people import Habits, measured
from measures.acquisition import D_OPTIMAL
from workers.rollouts.local import derive_seed

# A word more is worth twice a typical fact to them.
LENGTH_LOVERS = Plan(
    habits=Habits(per_word=(6.0, 1.0)),
    flips=None,
    pairs=80,
    padded=240,
    ppo=Plan().ppo | {"steps": 80, "kl_coef": 0.01},
)


def people_arm(seed: int, rounds: int, var: Path) -> tuple[Path, list[RoundFigures]]:
    """The first round by hand, the others by a pipeline made of it: (the starting policy's folder,
    figures of each)."""
    circle = circle_make(seed, "people", Plan(), var)
    circle.pairs_queue(circle.models["sft"])
    circle.vote()
    reward = circle.reward_train()
    run, evaluation = circle.pass_by_hand(reward)
    assert evaluation is not None, run.failure_message
    figures = [_figures(circle, reward, run, evaluation)]
    pipeline = circle.pipeline(evaluation)
    for _ in range(rounds - 1):
        policy = checkpoint_for_use(run)
        assert policy is not None
        circle.pairs_queue(policy)
        circle.vote()
        row = circle.round(pipeline)
        reward, run, evaluation = _made(row)
        figures.append(_figures(circle, reward, run, evaluation))
    return folder_of(circle.models["sft"]), figures


def _made(row: Round) -> tuple[Checkpoint, Run, Run]:
    steps = {step.key: step for step in round_steps(row)}
    assert row.state == Round.State.FINISHED, [
        (key, step.state, step.problem) for key, step in steps.items()
    ]
    reward, run, evaluation = steps["reward"].checkpoint, steps["policy"].run, steps["evaluate"].run
    assert reward is not None
    assert run is not None
    assert evaluation is not None
    return reward, run, evaluation


def selected_arm(seed: int, var: Path, start: Path) -> RoundFigures:
    """The reward model of the first round's candidates, chosen half D-optimally."""
    circle = circle_make(seed, "selected", Plan(), var, start=start, judged=False)
    circle.pairs_queue(circle.models["sft"], strategy=D_OPTIMAL)
    circle.vote()
    return _figures(circle, circle.reward_train(), None, None)


def length_arm(seed: int, var: Path, start: Path) -> RoundFigures:
    """The first round of people who love length."""
    circle = circle_make(seed, "length", LENGTH_LOVERS, var, start=start)
    circle.pairs_queue(circle.models["sft"])
    circle.padded_queue(circle.plan.padded)
    circle.vote()
    reward = circle.reward_train()
    run, evaluation = circle.pass_by_hand(reward)
    return _figures(circle, reward, run, evaluation)


def _figures(
    circle: Circle, reward: Checkpoint, run: Run | None, evaluation: Run | None
) -> RoundFigures:
    seed, start, asked = circle.seed, folder_of(circle.models["sft"]), circle.held_out()
    quality = reward_quality(
        circle.gold, asked, folder_of(reward), start, seed=derive_seed(seed, "reward pairs")
    )
    told = measured(circle.told[-1])
    found = RoundFigures(
        votes=told.votes,
        flips=told.flips,
        ties=told.ties,
        left=told.left,
        accepted=circle.decided().get("accepted", 0),
        reward_accuracy=quality.accuracy,
        reward_log_loss=quality.log_loss,
    )
    if run is not None:
        found.objections = asdict(circle.objections(run))
    if run is not None and (policy := checkpoint_for_use(run)) is not None:
        seen = wins(
            circle.gold, asked, folder_of(policy), start, seed=derive_seed(seed, run.pk, "gold")
        )
        found.gold, found.gain = seen.rate, seen.gain
        found.length_ratio = seen.words / seen.start_words
    if evaluation is not None:
        judged = evaluation.summary["judge"]["win_rate"]
        found.judge, found.judge_low = judged["value"], judged["low"]
        found.kl = evaluation.summary["policy"]["kl"]
    return found
