"""The table of rules, from the outermost stage inwards; of one stage what acts stands first. The
rows of the outer stages are in `workers.rules.outer_stages`, those of projects in
`workers.rules.people`.

Thresholds are those of the literature and of the product's specification; where one of them, read
literally, would alarm on a run that learns as it should, `source` says how the rule departs. Limits
without a baseline are wide, since every model and task has its own usual metrics; against healthy
runs of the same kind (`unusual`) they are narrow. How often healthy runs alarm is measured:
docs/guardrails.md, docs/diagnosis.md.
"""

from workers.rules.on_rows import ROWS_DATA, ROWS_POLICY, ROWS_REWARD
from workers.rules.on_steps import STEPS_DATA, STEPS_REWARD
from workers.rules.on_tools import TOOLS_DATA, TOOLS_REWARD, VERIFIER_REWARD
from workers.rules.outer_stages import DATA, EVALUATION, REWARD
from workers.rules.people import PEOPLE
from workers.rules.rule import (
    ALL,
    CONTRACT,
    FEWER_EPOCHS,
    KL_UP,
    MORE_ENTROPY,
    OFF,
    POLICIES,
    PPO,
    PROBE,
    ROLLOUTS,
    SLOWER,
    TRAINERS,
    Rule,
    explains,
    of,
    over,
    stops,
    under,
    unlike_healthy_runs,
    warns,
)

POLICY = (
    Rule(
        name="update_kl",
        title="Updates are cut short because the policy moved too far",
        **of("policy", PPO),
        **over(0.5, "0 or 1", "update/stopped_by_kl"),
        patience=(3, 5),
        **warns(SLOWER),
        diagnoses=True,
        experiment="slower",
        formerly=("update_cut_short",),
        page="update-cut-short",
        source="SPEC E5. A single cut update is the limit doing its work; three of five, a trend.",
    ),
    Rule(
        name="reference_kl",
        title="The policy is far from its reference",
        **of("policy", POLICIES),
        **over(10.0, "nats per sequence", "objective/kl"),
        patience=(2, 3),
        **warns(KL_UP),
        page="far-from-reference",
        source="SPEC E5; Gao et al. 2022.",
    ),
    Rule(
        name="clip_fraction",
        title="Most of the update is clipped away",
        **of("policy", ROLLOUTS),
        **over(0.4, "share of tokens", "policy/clipfrac_avg"),
        patience=(3, 5),
        **warns(FEWER_EPOCHS, SLOWER),
        diagnoses=True,
        experiment="slower",
        formerly=("clipped_often",),
        page="clipped-away",
        source="SPEC E6.",
    ),
    Rule(
        name="ratio",
        title="Minibatches were skipped for their ratio",
        **of("policy", PPO),
        **over(0.5, "minibatches", "update/skipped_minibatches"),
        patience=(3, 5),
        **warns(SLOWER),
        page="minibatches-skipped",
        source="SPEC E7; TRL's ratio_threshold of 10. One token of one minibatch passes it in "
        "healthy runs as well, so once is none.",
    ),
    Rule(
        name="reference_off_at_start",
        title="The reference is not the model the policy began as",
        **of("policy", ROLLOUTS),
        **over(0.001, "nats per token", "objective/kl_per_token", test="at_start"),
        **explains("kl_reference", CONTRACT),
        page="wrong-reference",
    ),
    Rule(
        name="reference_moves_along",
        title="The reference moves with the policy",
        **of("policy", ROLLOUTS),
        **under(
            1e-09,
            "nats per token",
            "objective/kl_per_token",
            "update/steps",
            test="never_moves",
            after=3,
        ),
        **explains("kl_reference", CONTRACT),
        page="wrong-reference",
    ),
    Rule(
        name="divergence_unpriced",
        title="Nothing holds the policy to its reference",
        **of("policy", ROLLOUTS),
        **under(1e-09, "deviations per nat", "kl_coef"),
        **explains("higher_kl"),
        page="far-from-reference",
    ),
    Rule(
        name="update_too_large",
        title="Single updates move the policy too far",
        **of("policy", ROLLOUTS),
        **over(0.1, "nats per token", "policy/approxkl_avg", test="median", window=3),
        patience=(3, 5),
        **explains("slower"),
        page="update-cut-short",
    ),
    Rule(
        name="clipping_unusual",
        title="More ratios are clipped than in healthy runs",
        **of("policy", ROLLOUTS),
        **unlike_healthy_runs("policy/clipfrac_avg", "above", "share", effect=0.02, times=1.5),
        **explains("slower"),
        page="clipped-away",
    ),
    Rule(
        name="update_unusual",
        title="Updates are larger than in healthy runs",
        **of("policy", ROLLOUTS),
        **unlike_healthy_runs(
            "policy/approxkl_avg", "above", "nats per token", effect=0.001, times=2.0
        ),
        **explains("slower"),
        page="update-cut-short",
    ),
    Rule(
        name="divergence_unusual",
        title="The policy is further away than healthy runs were",
        **of("policy", ROLLOUTS),
        **unlike_healthy_runs("objective/kl", "above", "nats per sequence", effect=0.5, times=2.0),
        **explains("kl_reference"),
        page="far-from-reference",
    ),
)

CRITIC = (
    Rule(
        name="explained_variance",
        title="The critic explains nothing",
        **of("critic", PPO),
        **under(
            0.0,
            "share of the returns' variance",
            "val/explained_variance",
            test="median",
            window=10,
            unless_rising=0.05,
        ),
        patience=(3, 5),
        grace=25,
        **warns(SLOWER),
        diagnoses=True,
        experiment="critic_fit",
        formerly=("critic_dead",),
        page="critic-explains-nothing",
        source="SPEC E11. An untrained critic is under 0 in every run, so the first 25 checks are "
        "not judged, nor is one that rises.",
    ),
    Rule(
        name="value_blow_up",
        title="The critic's values leave the scale of the returns",
        **of("critic", PPO),
        **over(5.0, "× the returns' deviation", "val/value_scale"),
        patience=(3, 5),
        **warns(SLOWER),
        page="values-blow-up",
        source="SPEC E10, E11: values are estimates of returns and cannot vary more than they.",
    ),
    Rule(
        name="critic_flat",
        title="The critic says the same of everything",
        **of("critic", ROLLOUTS),
        **under(0.02, "× the returns' deviation", "val/value_scale", test="median", window=5),
        patience=(3, 5),
        grace=2,
        **explains("critic_fit"),
        page="critic-explains-nothing",
    ),
    Rule(
        name="critic_unusual",
        title="The critic explains less than in healthy runs",
        **of("critic", ROLLOUTS),
        **unlike_healthy_runs("val/explained_variance", "below", "explained variance", effect=0.2),
        grace=5,
        **explains("critic_fit"),
        page="critic-explains-nothing",
    ),
)

EXPLORATION = (
    Rule(
        name="entropy_unusual",
        title="Entropy is unlike that of healthy runs",
        **of("exploration", ROLLOUTS),
        **unlike_healthy_runs(
            "objective/entropy_per_token", "", "nats per token", effect=0.1, times=1.3
        ),
        **explains("more_entropy"),
        page="unlike-healthy-runs",
    ),
    Rule(
        name="entropy_floor",
        title="The policy has stopped exploring",
        **of("exploration", ROLLOUTS),
        **under(0.1, "nats per token", "objective/entropy_per_token", test="floor", share=0.3),
        patience=(3, 5),
        **warns(MORE_ENTROPY, KL_UP),
        diagnoses=True,
        experiment="more_entropy",
        formerly=("entropy_lost",),
        page="stopped-exploring",
        source="SPEC E6: 0.1 nats or 30 % of step 0, whichever is higher; where step 0 itself is "
        "under 0.1 only the share counts.",
    ),
    Rule(
        name="entropy_rise",
        title="The policy dissolves",
        **of("exploration", ROLLOUTS),
        **over(1.5, "× the first", "objective/entropy_per_token", test="first"),
        patience=(3, 5),
        **warns(SLOWER),
        page="dissolves",
        source="SPEC E6, the quadrant where entropy stays high.",
    ),
    Rule(
        name="diverse_without_progress",
        title="The policy explores and learns nothing",
        **of("exploration", ROLLOUTS),
        **under(
            0.02,
            "calibrated score gained",
            "reward/calibrated_mean",
            "objective/entropy_per_token",
            test="flat",
            share=0.9,
        ),
        patience=(10, 10),
        grace=60,
        **warns(),
        severity="info",
        page="explores-and-learns-nothing",
        source="SPEC E6, the quadrant diverse without progress.",
    ),
    Rule(
        name="uniform_high_reward",
        title="Answers grow alike while the reward is high",
        **of("exploration", ROLLOUTS),
        **under(
            0.5,
            "× the first",
            "response/distinct",
            "reward/calibrated_mean",
            test="uniform",
            reward_over=0.65,
        ),
        patience=(3, 5),
        **warns(MORE_ENTROPY, KL_UP),
        page="template",
        source="SPEC E6, the quadrant uniform with high reward; distinct-2 of Li et al. 2016.",
    ),
    Rule(
        name="zero_variance",
        title="Groups of answers all get the same reward",
        **of("exploration", ("grpo",)),
        **over(0.8, "share of groups", "grpo/zero_variance_share"),
        patience=(3, 5),
        **warns(),
        page="silent-groups",
        source="SPEC E1; Yu et al. 2025 (DAPO), section 3.2.",
    ),
)

FRESHNESS = (
    Rule(
        name="stale",
        title="Rollouts of an older policy",
        **of("freshness", ROLLOUTS),
        **over(1.0, "policy versions", "rollout/lag"),
        **stops(),
        diagnoses=True,
        experiment="sampler",
        formerly=("answers_old",),
        page="stale-answers",
        source="SPEC E9.",
    ),
    Rule(
        name="sampler_apart",
        title="Answers come from another distribution than the one that learns",
        **of("freshness", ROLLOUTS),
        **over(4.5, "standard errors", "rollout/sampler_z", test="pooled", window=3),
        **explains("sampler", CONTRACT),
        page="not-the-same-model",
    ),
)

NUMERICS = (
    Rule(
        name="non_finite",
        title="A number is NaN or infinite",
        **of("numerics", ALL),
        **over(0.5, "0 or 1", "numerics/non_finite", test="finite"),
        patience=(2, 2),
        **stops(),
        diagnoses=True,
        experiment="minimal",
        formerly=("numbers_none",),
        page="not-a-number",
        source="SPEC E10. The first step is skipped, weights and moments untouched; the next in a "
        "row, or a third within fifty, stops.",
    ),
    Rule(
        name="gradient",
        title="The gradient jumped",
        **of("numerics", PPO),
        **over(10.0, "× its 95 % quantile", "grad_norm_max", test="jump", effect=1.0),
        **warns(SLOWER),
        page="gradient-jumps",
        source="SPEC E10: largest against the 95 % quantile.",
    ),
    Rule(
        name="gradient",
        title="The gradient jumped",
        **of("numerics", (*TRAINERS, "grpo")),
        **over(10.0, "× its 95 % quantile", "grad_norm", test="jump", effect=1.0),
        **warns(SLOWER),
        page="gradient-jumps",
        source="SPEC E10: largest against the 95 % quantile.",
    ),
    Rule(
        name="loss_jump",
        title="The training loss jumped",
        **of("numerics", TRAINERS),
        **over(3.0, "× its lowest, or half its first", "loss", test="rise", effect=0.1, share=0.5),
        patience=(2, 3),
        **warns(SLOWER),
        page="gradient-jumps",
        source="A loss over its own start is divergence; rows differ, so a loss under half of its "
        "start is not compared with a lower one.",
    ),
    Rule(
        name="extreme_logprob",
        title="The policy gave a token that it holds to be impossible",
        **of("numerics", ROLLOUTS),
        **under(-30.0, "nats", "policy/logprob_min"),
        **warns(),
        evidence_class=CONTRACT,
        page="not-the-same-model",
        source="SPEC E10. All tokens under −30 nats together have a probability of at most 10⁻⁸ "
        "even with 100,000 of them, so sampling hardly ever draws one.",
    ),
)

RESOURCES = (
    Rule(
        name="reward_slow",
        title="The run waits for its reward",
        **of("resources", ROLLOUTS),
        **over(0.5, "share of a step", "time/reward_wait_s", "time/step_s", test="scaled"),
        patience=(4, 5),
        **explains("rescore"),
        page="who-waits",
    ),
)

DIAGNOSIS = (
    Rule(
        name="cause_found",
        title="The diagnosis names what broke first",
        **of("reward", ROLLOUTS),
        test="diagnosed",
        metrics=(),
        unit="stages",
        **warns(action=OFF),
        severity="critical",
        evidence_class=PROBE,
        page="which-link-first",
        source="SPEC F5. Off unless chosen: a finding tells people, and one that is wrong must "
        "not end a long run unasked.",
    ),
)

RULES: tuple[Rule, ...] = (
    *DATA,
    *ROWS_DATA,
    *STEPS_DATA,
    *TOOLS_DATA,
    *EVALUATION,
    *REWARD,
    *ROWS_REWARD,
    *STEPS_REWARD,
    *TOOLS_REWARD,
    *VERIFIER_REWARD,
    *POLICY,
    *ROWS_POLICY,
    *CRITIC,
    *EXPLORATION,
    *FRESHNESS,
    *NUMERICS,
    *RESOURCES,
    *DIAGNOSIS,
    *PEOPLE,
)
