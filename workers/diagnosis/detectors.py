"""The table of detectors, from the outermost link of the chain inwards.

Limits without a baseline are wide, since every model and task has its own usual metrics; against
healthy runs of the same kind (`unusual`) they are narrow. How they were chosen and how often they
are wrong is measured: docs/diagnosis.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.diagnosis.verdict import CONTRACT, PROBE, TREND

# What a detector is: metrics, a test of them, and how often it must hold before it speaks.

POLICIES = ("ppo", "grpo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """One way of seeing one problem.

    `metrics` are the metrics it needs at a check; a step without one of them is no check. `test` (a
    key of `workers.diagnosis.diagnoser.TESTS`) with `given` says whether a check is off. It speaks
    when k of its last n checks were off (`patience`), not before `grace` checks, then is silent
    until ten checks in a row lay well inside and twenty have passed. Its start is the first check
    that was off; the true one may lie `slack` steps later.
    """

    rule: str
    link: str
    title: str
    metrics: tuple[str, ...]
    test: str
    unit: str
    given: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = POLICIES
    evidence_class: str = TREND
    patience: tuple[int, int] = (3, 5)
    grace: int = 0
    slack: int = 0
    suspects: tuple[str, ...] = ()
    experiment: str = ""
    of_models: bool = False  # says something of reward models only, not of rules and verifiers
    why: str  # what the figure means when it is off, for people


AT_ONCE = (1, 1)

DATA = (
    Detector(
        rule="labels_swapped",
        link="data",
        title="The labels are swapped",
        metrics=("eval/canary_accuracy",),
        test="canaries",
        given={"reads": "swapped"},
        unit="share of known pairs",
        evidence_class=PROBE,
        patience=AT_ONCE,
        experiment="canaries",
        why="The reward model agrees with the pairs it learned from and is wrong on pairs whose "
        "better answer is known: chosen and rejected changed places on the way.",
    ),
)

EVALUATION = (
    Detector(
        rule="protocol_changed",
        link="evaluation",
        title="The evaluation protocol changed",
        metrics=("eval/protocol",),
        test="changed",
        unit="identity",
        evidence_class=CONTRACT,
        patience=AT_ONCE,
        experiment="protocol",
        why="Prompts, sampling or limits of the evaluation are not those of the first one, so its "
        "curve compares different things.",
    ),
    Detector(
        rule="evaluation_apart",
        link="evaluation",
        title="The evaluation parted from the training",
        metrics=("eval/score", "objective/scores", "objective/scores_running_std"),
        test="gap",
        given={"z": 6.0, "least_effect": 0.5, "scale": "objective/scores_running_std"},
        unit="raw score",
        evidence_class=PROBE,
        patience=(2, 2),
        experiment="protocol",
        why="Answers to the fixed prompts score otherwise than before, and the answers the policy "
        "learns from do not: what changed is how it is asked.",
    ),
)

REWARD = (
    Detector(
        rule="reward_inverted",
        link="reward",
        title="The reward points the wrong way",
        metrics=("eval/canary_accuracy",),
        test="canaries",
        given={"reads": "inverted"},
        unit="share of known pairs",
        evidence_class=PROBE,
        patience=AT_ONCE,
        suspects=("data",),
        experiment="canaries",
        why="It prefers the worse answer of known pairs and of those it learned from: its sign.",
    ),
    Detector(
        rule="reward_blind",
        link="reward",
        title="The reward does not know better answers from worse",
        metrics=("eval/canary_accuracy",),
        test="canaries",
        given={"reads": "blind", "errors": 1.5},
        unit="share of known pairs",
        evidence_class=PROBE,
        patience=AT_ONCE,
        suspects=("data",),
        experiment="canaries",
        why="On pairs whose better answer is known it is right about as often as a coin.",
    ),
    Detector(
        rule="reward_not_reproducible",
        link="reward",
        title="The same answer gets another score",
        metrics=("eval/reproducibility",),
        test="level",
        given={"above": 1e-3},
        unit="deviations",
        evidence_class=CONTRACT,
        patience=AT_ONCE,
        experiment="rescore",
        why="Another model, a text cut at another place, or chance decides the reward.",
    ),
    Detector(
        rule="reward_follows_length",
        link="reward",
        title="The reward follows length",
        metrics=("reward/length_correlation",),
        test="average",
        given={"above": 0.7, "window": 10, "least": 5},
        unit="rank correlation",
        experiment="reward_plot",
        why="Within a batch longer answers score higher: the policy will learn to write on.",
    ),
    Detector(
        rule="reward_one_value",
        link="reward",
        title="Most answers get one and the same score",
        metrics=("reward/mode_share",),
        test="average",
        given={"above": 0.5, "window": 5, "least": 3},
        unit="share",
        of_models=True,
        experiment="reward_plot",
        why="A reward that is mostly one value teaches from a few answers only.",
    ),
    Detector(
        rule="reward_tail",
        link="reward",
        title="A few answers score far off all others",
        metrics=("objective/scores_std",),
        test="burst",
        given={"window": 10, "times": 4.0, "above": 1.0},
        unit="wild batches of ten",
        patience=AT_ONCE,
        experiment="reward_plot",
        why="Their advantages outweigh the rest of the batch; most such scores are errors.",
    ),
    Detector(
        rule="refusals_liked",
        link="reward",
        title="Refusals score above other answers",
        metrics=("reward/refusal_lift",),
        test="average",
        given={"above": 0.5, "window": 5, "least": 3},
        unit="deviations",
        experiment="reward_plot",
        why="The policy will take to refusing, for that is what is paid.",
    ),
    Detector(
        rule="refusals_rewarded",
        link="reward",
        title="Refusals are rewarded and grow",
        metrics=("behaviour/refusal_share", "reward/refusal_lift"),
        test="together",
        given={"limits": (0.2, 0.3)},
        unit="share",
        experiment="reward_plot",
        why="Answers that refuse score above the others, and the policy takes to refusing.",
    ),
)

POLICY = (
    Detector(
        rule="reference_off_at_start",
        link="policy",
        title="The reference is not the model the policy began as",
        metrics=("objective/kl_per_token",),
        test="at_start",
        given={"above": 1e-3},
        unit="nats per token",
        evidence_class=CONTRACT,
        patience=AT_ONCE,
        experiment="kl_reference",
        why="Before the first update the policy is its reference, so they cannot differ.",
    ),
    Detector(
        rule="reference_moves_along",
        link="policy",
        title="The reference moves with the policy",
        metrics=("objective/kl_per_token", "update/steps"),
        test="never_moves",
        given={"below": 1e-9, "after": 3},
        unit="nats per token",
        evidence_class=CONTRACT,
        patience=AT_ONCE,
        experiment="kl_reference",
        why="After updates the divergence is still exactly 0: both are one model.",
    ),
    Detector(
        rule="divergence_unpriced",
        link="policy",
        title="Nothing holds the policy to its reference",
        metrics=("kl_coef",),
        test="level",
        given={"below": 1e-9},
        unit="deviations per nat",
        patience=AT_ONCE,
        experiment="dearer_kl",
        why="The price of divergence is 0, so whatever the reward has not seen is free to change.",
    ),
    Detector(
        rule="clipped_often",
        link="policy",
        title="Too many ratios are clipped",
        metrics=("policy/clipfrac_avg",),
        test="average",
        given={"above": 0.4, "window": 3},
        unit="share",
        experiment="slower",
        why="The updates move the policy further than the clip allows: the step size or the number "
        "of passes is too large.",
    ),
    Detector(
        rule="update_too_large",
        link="policy",
        title="Single updates move the policy too far",
        metrics=("policy/approxkl_avg",),
        test="average",
        given={"above": 0.1, "window": 3},
        unit="nats per token",
        experiment="slower",
        why="An update should move by hundredths of a nat per token.",
    ),
    Detector(
        rule="update_cut_short",
        link="policy",
        title="Updates keep being cut short",
        metrics=("update/stopped_by_kl",),
        test="average",
        given={"above": 0.5, "window": 5},
        unit="share of steps",
        experiment="slower",
        why="Most updates pass twice their divergence target before they are done.",
    ),
    Detector(
        rule="clipping_unusual",
        link="policy",
        title="More ratios are clipped than in healthy runs",
        metrics=("policy/clipfrac_avg",),
        test="unusual",
        given={"z": 3.5, "side": 1, "effect": 0.02, "times": 1.5},
        unit="share",
        experiment="slower",
        why="Updates are larger than those of healthy runs at this step.",
    ),
    Detector(
        rule="update_unusual",
        link="policy",
        title="Updates are larger than in healthy runs",
        metrics=("policy/approxkl_avg",),
        test="unusual",
        given={"z": 3.5, "side": 1, "effect": 0.001, "times": 2.0},
        unit="nats per token",
        experiment="slower",
        why="Updates are larger than those of healthy runs at this step.",
    ),
    Detector(
        rule="divergence_unusual",
        link="policy",
        title="The policy is further away than healthy runs were",
        metrics=("objective/kl",),
        test="unusual",
        given={"z": 3.5, "side": 1, "effect": 0.5, "times": 2.0},
        unit="nats per sequence",
        experiment="kl_reference",
        why="At this step healthy runs were nearer to their reference.",
    ),
)

CRITIC = (
    Detector(
        rule="critic_flat",
        link="critic",
        title="The critic says the same of everything",
        metrics=("val/value_scale",),
        test="average",
        given={"below": 0.02, "window": 5},
        unit="× the returns' deviation",
        grace=2,
        experiment="critic_fit",
        why="Its values do not differ while the returns do: a head that does not learn.",
    ),
    Detector(
        rule="critic_dead",
        link="critic",
        title="The critic explains nothing",
        metrics=("val/explained_variance",),
        test="average",
        given={"below": 0.0, "window": 10, "unless_rising": 0.05},
        unit="explained variance",
        grace=25,
        experiment="critic_fit",
        why="After this many steps its values are worse than a constant, so advantages are noise.",
    ),
    Detector(
        rule="critic_unusual",
        link="critic",
        title="The critic explains less than in healthy runs",
        metrics=("val/explained_variance",),
        test="unusual",
        given={"z": 3.5, "side": -1, "effect": 0.2},
        unit="explained variance",
        grace=5,
        experiment="critic_fit",
        why="At this step the critics of healthy runs knew more of the returns.",
    ),
)

EXPLORATION = (
    Detector(
        rule="entropy_lost",
        link="exploration",
        title="The answers have lost their variety",
        metrics=("objective/entropy_per_token",),
        test="of_first",
        given={"below": 0.3},
        unit="× its first value",
        experiment="more_entropy",
        why="The policy has all but stopped trying other answers.",
    ),
)

FRESHNESS = (
    Detector(
        rule="answers_old",
        link="freshness",
        title="The policy learns from old answers",
        metrics=("rollout/lag",),
        test="level",
        given={"above": 1.0},
        unit="versions",
        evidence_class=CONTRACT,
        patience=AT_ONCE,
        experiment="sampler",
        why="The answers were drawn by a policy more than one version ago.",
    ),
    Detector(
        rule="sampler_apart",
        link="freshness",
        title="Answers come from another distribution than the one that learns",
        metrics=("rollout/sampler_z",),
        test="pooled",
        given={"window": 3, "above": 4.5},
        unit="standard errors",
        evidence_class=CONTRACT,
        patience=AT_ONCE,
        experiment="sampler",
        why="Their surprise is not the policy's entropy: a temperature, a filter or old weights.",
    ),
)

NUMERICS = (
    Detector(
        rule="numbers_none",
        link="numerics",
        title="NaN or infinity",
        metrics=("numerics/non_finite",),
        test="level",
        given={"above": 0.0},
        unit="0 or 1",
        kinds=("sft", "reward", "dpo", "ppo", "grpo"),
        evidence_class=CONTRACT,
        patience=AT_ONCE,
        experiment="minimal",
        why="A loss, a gradient or a figure is NaN or infinite.",
    ),
)

RESOURCES = (
    Detector(
        rule="reward_slow",
        link="resources",
        title="The run waits for its reward",
        metrics=("time/reward_wait_s", "time/step_s"),
        test="share_of",
        given={"above": 0.5},
        unit="share of a step",
        patience=(4, 5),
        experiment="rescore",
        why="More than half of each step is spent waiting for scores.",
    ),
)

DETECTORS = (
    *DATA,
    *EVALUATION,
    *REWARD,
    *POLICY,
    *CRITIC,
    *EXPLORATION,
    *FRESHNESS,
    *NUMERICS,
    *RESOURCES,
)
_BY_RULE = {one.rule: one for one in DETECTORS}


def detectors_of(kind: str, config: Mapping[str, Any] | None = None) -> list[Detector]:
    """Those of a kind of run. A rule may well give most answers one score: where `config` names
    another reward than a model, what only models do wrong is not looked for."""
    reward = (config or {}).get("reward")
    by_model = not isinstance(reward, Mapping) or reward.get("type", "model") == "model"
    return [one for one in DETECTORS if kind in one.kinds and (by_model or not one.of_models)]


def needed_metrics(kind: str) -> list[str]:
    """Every figure that a diagnosis of this kind of run reads."""
    beside = {"eval/reward_data_accuracy", "eval/canary_pairs"}
    return sorted(beside.union(*(one.metrics for one in detectors_of(kind))))


def compared_metrics(kind: str) -> list[str]:
    """The metrics that are compared with healthy runs: all that a baseline needs."""
    return sorted({one.metrics[0] for one in detectors_of(kind) if one.test == "unusual"})


def title_of(rule: str) -> str:
    """In words; of a rule that is none of ours, its name."""
    known = _BY_RULE.get(rule)
    return known.title if known is not None else rule.replace("_", " ").capitalize()
