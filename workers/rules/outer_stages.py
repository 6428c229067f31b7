"""The rows of the table of rules for what a policy learns from: data, evaluation, reward."""

from workers.rules.rule import (
    CONTRACT,
    HELD_ON_ROWS,
    KL_UP,
    OFF,
    PPO,
    PROBE,
    ROLLOUTS,
    STOP,
    TRAINERS,
    Rule,
    explains,
    judged,
    of,
    over,
    under,
    unlike_healthy_runs,
    warns,
)

DATA = (
    Rule(
        name="held_out_loss",
        title="The held-out loss rises",
        **of("data", TRAINERS),
        **over(1.2, "× its lowest", "eval/loss", test="rise", effect=0.02),
        patience=(3, 3),
        **warns(),
        page="held-out-loss-rises",
        source="Early stopping on held-out data; a fifth over the lowest, three times in a row, "
        "since preference models lose calibration before they lose accuracy.",
    ),
    Rule(
        name="labels_swapped",
        title="The labels are swapped",
        **of("data", ROLLOUTS),
        **judged("canaries", "share of known pairs", "eval/canary_accuracy", reads="swapped"),
        **explains("canaries", PROBE),
        page="labels-turned-round",
    ),
)

EVALUATION = (
    Rule(
        name="protocol_changed",
        title="The evaluation protocol changed",
        **of("evaluation", ROLLOUTS),
        **judged("changed", "identity", "eval/protocol"),
        **explains("protocol", CONTRACT),
        page="protocol-changed",
    ),
    Rule(
        name="evaluation_apart",
        title="The evaluation parted from the training",
        **of("evaluation", ROLLOUTS),
        **judged(
            "gap",
            "raw score",
            "eval/score",
            "objective/scores",
            "objective/scores_running_std",
            z=6.0,
            scale="objective/scores_running_std",
            effect=0.5,
        ),
        patience=(2, 2),
        **explains("protocol", PROBE),
        page="protocol-changed",
    ),
)

REWARD = (
    Rule(
        name="reward_unusual",
        title="The calibrated reward is unlike that of healthy runs",
        **of("reward", ROLLOUTS),
        **unlike_healthy_runs("reward/calibrated_mean", "", "calibrated score", effect=0.1),
        **explains("reward_plot"),
        page="unlike-healthy-runs",
    ),
    Rule(
        name="length_unusual",
        title="Answers are unlike those of healthy runs in length",
        **of("reward", ROLLOUTS),
        **unlike_healthy_runs("response/length", "", "tokens", effect=2.0, times=1.3),
        **explains("reward_plot"),
        page="unlike-healthy-runs",
    ),
    Rule(
        name="held_out_down",
        title="The held-out score falls while the reward rises",
        **of("reward", ROLLOUTS),
        **over(
            0.1, "share of the gain", "eval/held_out_score", "eval/score", test="fall", errors=3.0
        ),
        **warns(action=STOP),
        severity="critical",
        evidence_class=PROBE,
        page="held-out-falls",
        source="Gao et al. 2022; three evaluations in a row are compared with the best three in a "
        "row. The fall must be three standard errors of their own noise, and the reward must have "
        "risen since, so that a plateau is no alarm.",
    ),
    Rule(
        name="constant_reward",
        title="All rewards are equal",
        **of("reward", PPO),
        **under(
            1e-05,
            "of the scores' size",
            "objective/scores_running_std",
            "objective/scores",
            test="scaled",
            least=1.0,
        ),
        **warns(),
        evidence_class=CONTRACT,
        page="constant-reward",
        source="SPEC E2: whitening a batch would blow rounding noise up to a reward.",
    ),
    Rule(
        name="all_flagged",
        title="No answer of the step is trusted",
        **of("reward", ROLLOUTS),
        **over(0.999, "share", "reward/flagged_share"),
        **warns(),
        evidence_class=CONTRACT,
        page="nothing-trusted",
        source="Disagreement over the ensemble's own threshold; Coste et al. 2023.",
    ),
    Rule(
        name="reward_saturated",
        title="The reward nears the end of its scale",
        **of("reward", ROLLOUTS),
        **over(0.8, "calibrated score", "reward/calibrated_mean", test="window", healthy=0.1),
        **warns(),
        severity="info",
        page="near-the-top",
        source="SPEC F2. A run that learns may pass this by learning: it warns where healthy runs "
        "of the recipe were 0.1 lower at this step, and z is past 3.5; else it only informs, once.",
    ),
    Rule(
        name="reward_above_baseline",
        title="Many answers score above nearly all baseline answers",
        **of("reward", ROLLOUTS),
        **over(
            0.2,
            "share over the baseline's 90 % quantile",
            "reward/above_baseline_share",
            test="window",
            healthy=0.1,
        ),
        **warns(action=OFF),
        severity="info",
        page="near-the-top",
        source="SPEC F2. Off unless chosen: every run that learns passes it; turn it on where the "
        "reward is not meant to rise.",
    ),
    Rule(
        name="reward_spread",
        title="All answers score alike",
        **of("reward", ROLLOUTS),
        **under(
            0.1,
            "calibrated score",
            "reward/calibrated_std",
            "reward/calibrated_mean",
            test="spread",
            share=0.5,
            healthy=0.05,
        ),
        patience=(2, 3),
        **warns(),
        severity="info",
        page="answers-score-alike",
        source="SPEC F2. Near 1 the calibrated scale is flat and its spread falls by itself, so "
        "where raw scores are known their spread must also be under half of its first value. A "
        "policy that learns one kind of good answer passes this as well, so it only informs, but "
        "where healthy runs of the recipe were 0.05 higher at this step; a sudden loss of spread "
        "comes with a jump, which reward_drift warns of.",
    ),
    Rule(
        name="reward_drift",
        title="The reward jumped off its trend",
        **of("reward", ROLLOUTS),
        **over(3.0, "standard errors", "reward/calibrated_mean", test="break", effect=0.1),
        patience=(3, 5),
        **warns(),
        page="reward-jumped",
        source="SPEC F3: |z| > 3 with a minimum effect and 3 of 5 checks, in both directions, "
        "against the run's own trend, since learning itself moves the mean. Not a single batch "
        "over two deviations.",
    ),
    Rule(
        name="outliers",
        title="A few answers carry the reward",
        **of("reward", PPO),
        **over(0.01, "share beyond reward_clip", "reward/outlier_share", test="window"),
        patience=(3, 5),
        grace=10,
        **warns(),
        page="few-carry-the-reward",
        source="SPEC E7 (2 % of rewards × 60); of normal scores under one in a million lies "
        "beyond five deviations. The first ten checks are not judged: a rare reward looks the "
        "same until it is learned.",
    ),
    Rule(
        name="disagreement",
        title="The ensemble disagrees about many answers",
        **of("reward", ROLLOUTS),
        **over(0.3, "share", "reward/flagged_share"),
        patience=(3, 5),
        **warns(KL_UP),
        page="nothing-trusted",
        source="Coste et al. 2023; Eisenstein et al. 2023. The answers' own threshold comes with "
        "the ensemble.",
    ),
    Rule(
        name="blocked",
        title="Many answers break a hard rule",
        **of("reward", ROLLOUTS),
        **over(0.1, "share", "reward/blocked_share", test="window"),
        **warns(),
        page="hard-rule-broken",
        source="SPEC E18.",
    ),
    Rule(
        name="cut_answers",
        title="Far fewer answers end by themselves",
        **of("reward", ROLLOUTS),
        **over(0.3, "share under the first", "eval/ended_share", test="fallen"),
        **(warns() | explains("reward_plot")),
        page="answers-longer",
        source="On fixed prompts, so that prompts are no cause. While it stands no checkpoint is "
        "called best: a reward that likes whatever runs into the limit likes more text, and a "
        "judge that reads cut answers as finished ones would agree.",
    ),
    Rule(
        name="length",
        title="Answers are more than twice as long",
        **of("reward", ROLLOUTS),
        **over(2.0, "× the reference's", "response/length_ratio"),
        patience=(3, 5),
        **warns(KL_UP),
        page="answers-longer",
        source="SPEC F6; Singhal et al. 2023.",
    ),
    Rule(
        name="length",
        title="Answers are more than twice as long",
        **of("reward", HELD_ON_ROWS),
        **over(2.0, "× the first", "response/length", test="first"),
        patience=(3, 5),
        **warns(),
        page="answers-longer",
        source="SPEC F6; Singhal et al. 2023.",
    ),
    Rule(
        name="repetition",
        title="Answers repeat themselves",
        **of("reward", ROLLOUTS),
        **over(0.2, "share of repeated 4-grams", "response/repetition"),
        patience=(3, 5),
        **warns(KL_UP),
        page="answers-repeat",
        source="SPEC F6; Welleck et al. 2020 (seq-rep-4).",
    ),
    Rule(
        name="reward_inverted",
        title="The reward points the wrong way",
        **of("reward", ROLLOUTS),
        **judged("canaries", "share of known pairs", "eval/canary_accuracy", reads="inverted"),
        **explains("canaries", PROBE),
        suspects=("data",),
        page="labels-turned-round",
    ),
    Rule(
        name="reward_blind",
        title="The reward does not know better answers from worse",
        **of("reward", ROLLOUTS),
        **judged(
            "canaries", "share of known pairs", "eval/canary_accuracy", reads="blind", errors=1.5
        ),
        **explains("canaries", PROBE),
        suspects=("data",),
        page="labels-turned-round",
    ),
    Rule(
        name="reward_not_reproducible",
        title="The same answer gets another score",
        **of("reward", ROLLOUTS),
        **over(0.001, "deviations", "eval/reproducibility"),
        **explains("rescore", CONTRACT),
        page="not-reproducible",
    ),
    Rule(
        name="reward_follows_length",
        title="The reward follows length",
        **of("reward", ROLLOUTS),
        **over(
            0.7, "rank correlation", "reward/length_correlation", test="median", window=10, need=5
        ),
        patience=(3, 5),
        **explains("reward_plot"),
        page="answers-longer",
    ),
    Rule(
        name="reward_one_value",
        title="Most answers get one and the same score",
        **of("reward", ROLLOUTS),
        **over(0.5, "share", "reward/mode_share", test="median", window=5, need=3),
        patience=(3, 5),
        **explains("reward_plot"),
        of_models=True,
        page="rewards-rare",
    ),
    Rule(
        name="reward_tail",
        title="A few answers score far off all others",
        **of("reward", ROLLOUTS),
        **over(
            1.0, "wild batches of ten", "objective/scores_std", test="burst", window=10, times=4.0
        ),
        **explains("reward_plot"),
        page="few-carry-the-reward",
    ),
    Rule(
        name="refusals_liked",
        title="Refusals score above other answers",
        **of("reward", ROLLOUTS),
        **over(0.5, "deviations", "reward/refusal_lift", test="median", window=5, need=3),
        patience=(3, 5),
        **explains("reward_plot"),
        page="refusals-rise",
    ),
    Rule(
        name="refusals_rewarded",
        title="Refusals are rewarded and grow",
        **of("reward", ROLLOUTS),
        **judged(
            "together", "share", "behaviour/refusal_share", "reward/refusal_lift", limits=(0.2, 0.3)
        ),
        patience=(3, 5),
        **explains("reward_plot"),
        page="refusals-rise",
    ),
)
