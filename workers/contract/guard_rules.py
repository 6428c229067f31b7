"""The table of guardrails, from the outermost link of the diagnosis inwards.

Thresholds are those of the literature and of the product's specification. Where one of them, read
literally, would alarm on a run that learns as it should, the rule says in `source` how it departs.
How often healthy runs alarm is measured (docs/guardrails.md).
"""

from dataclasses import dataclass

# What a guardrail is: a figure, a bound, how often it must be crossed, and what happens then.

OFF, WARN, ADJUST, STOP = "off", "warn", "adjust", "stop"
ACTIONS = (OFF, WARN, ADJUST, STOP)

# The links of the diagnosis, from the outside in: a problem further out explains those behind it.
LINKS = (
    "data",
    "evaluation",
    "reward",
    "policy",
    "critic",
    "exploration",
    "freshness",
    "numerics",
    "resources",
)

# How a rule's figure meets its threshold. What pages say of a limit begins with these words.
TESTS = {
    "level": "the figure itself",
    "scaled": "the figure over the size of another, 1 at least",
    "first": "the figure over its first value of the run",
    "floor": "the figure, against the higher of the threshold and a share of its first value",
    "window": "the mean over the last 1,000 answers, once there are 100",
    "spread": "the standard deviation over the last 1,000 answers, once there are 100",
    "jump": "the figure over the 95 % quantile of its last 50 looks",
    "break": "the distance from the run's own trend, in standard errors",
    "rise": "the figure over its lowest so far",
    "fall": "the share of the gain that is lost, while the optimised score rises",
    "flat": "the gain since the first checks, while the answers stay as varied",
    "uniform": "the variety over its first value, while the reward is high",
    "finite": "whether a loss, a gradient or a watched figure is NaN or infinite",
    "diagnosed": "whether the diagnosis names a link that broke first",
}


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One setting that `adjust` changes: value × times + plus, kept between least and most."""

    setting: str
    times: float = 1.0
    plus: float = 0.0
    least: float | None = None
    most: float | None = None

    def apply(self, value: float) -> float:
        """The new value; a whole number stays one where the result is whole. A value that is
        already past a bound is left where it is."""
        changed = value * self.times + self.plus
        if self.least is not None:
            changed = max(changed, min(self.least, value))
        if self.most is not None:
            changed = min(changed, max(self.most, value))
        return int(changed) if isinstance(value, int) and changed == int(changed) else changed

    @property
    def words(self) -> str:
        done = f"× {self.times:g}" if self.times != 1.0 else ""
        if self.plus:
            done = f"{done} {'+' if self.plus > 0 else '−'} {abs(self.plus):g}".strip()
        bounds = [f"at least {self.least:g}"] if self.least is not None else []
        bounds += [f"at most {self.most:g}"] if self.most is not None else []
        return f"{self.setting} {done}" + (f" ({', '.join(bounds)})" if bounds else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRule:
    """One guardrail.

    `kinds` are the recipes it watches. `metric` is the figure it reads, `beside` others it needs;
    a check without one of them is no check. `test` (a key of TESTS) says how the figure meets
    `threshold` on the side `bound`, in `unit`. It alarms when `patience` = (k, n) are met: k of
    the last n checks crossed the bound; checks before `grace` are not judged. `share` and `least`
    are the test's second parameters: a share of the first value, and the smallest effect that
    counts. `actions` are those an engineer may choose, `action` the one without a choice.
    `severity` is of a warning; a stop is always critical.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    link: str
    metric: str
    bound: str  # above | below
    threshold: float
    unit: str
    test: str = "level"
    beside: tuple[str, ...] = ()
    share: float = 0.0
    least: float = 0.0
    patience: tuple[int, int] = (1, 1)
    grace: int = 0
    severity: str = "warning"  # info | warning | critical
    actions: tuple[str, ...] = (OFF, WARN, STOP)
    action: str = WARN
    adjustment: tuple[Adjustment, ...] = ()
    evidence_class: str = "trend"  # contract | probe | trend
    advice: str
    source: str

    @property
    def has_limit(self) -> bool:
        """Whether there is a threshold that could be chosen, and not only an action."""
        return self.test not in ("finite", "diagnosed")

    @property
    def relative_to(self) -> str | None:
        """What the threshold is relative to, None where it is absolute."""
        return {
            "first": "first",
            "floor": "first",
            "uniform": "first",
            "flat": "first",
            "jump": "window",
            "break": "window",
            "rise": "best",
            "fall": "best",
        }.get(self.test)

    @property
    def adjustment_words(self) -> str:
        return ", ".join(change.words for change in self.adjustment)

    @property
    def patience_words(self) -> str:
        k, n = self.patience
        if n == 1:
            return "at once"
        return f"{k} checks in a row" if k == n else f"{k} of {n} looks"


PPO, ROLLOUTS = ("ppo",), ("ppo", "grpo")
POLICIES, TRAINERS = ("ppo", "grpo", "dpo"), ("sft", "reward", "dpo")
ALL = ("sft", "reward", "dpo", "ppo", "grpo")
ANY_ACTION = (OFF, WARN, ADJUST, STOP)

SLOWER = Adjustment("learning_rate", times=0.5)
DEARER_KL = Adjustment("kl_coef", times=1.5, most=1.0)
FEWER_EPOCHS = Adjustment("update_epochs", plus=-1, least=1)
MORE_ENTROPY = Adjustment("entropy_coef", plus=0.005, most=0.05)

DATA = (
    GuardRule(
        name="held_out_loss",
        title="The held-out loss rises",
        kinds=TRAINERS,
        link="data",
        metric="eval/loss",
        test="rise",
        bound="above",
        threshold=1.2,
        unit="× its lowest",
        least=0.02,  # nats
        patience=(3, 3),
        advice="The model learns its training rows by heart. Use the checkpoint tagged best; train "
        "fewer epochs, lower the learning rate, or bring more data.",
        source="Early stopping on held-out data; a fifth over the lowest, three times in a row, "
        "since preference models lose calibration before they lose accuracy.",
    ),
)

REWARD = (
    GuardRule(
        name="held_out_down",
        title="The held-out score falls while the reward rises",
        kinds=ROLLOUTS,
        link="reward",
        metric="eval/held_out_score",
        beside=("eval/score",),
        test="fall",
        bound="above",
        threshold=0.1,
        unit="share of the gain",
        least=3.0,  # standard errors of the evaluations' own noise
        severity="critical",
        action=STOP,
        evidence_class="probe",
        advice="This is overoptimisation: the policy has found what the reward likes and people do "
        "not. Use the checkpoint tagged best; collect comparisons of the newest answers, retrain "
        "the reward model, or raise kl_coef.",
        source="Gao et al. 2022; three evaluations in a row are compared with the best three in a "
        "row. The fall must be three standard errors of their own noise, and the reward must have "
        "risen since, so that a plateau is no alarm.",
    ),
    GuardRule(
        name="constant_reward",
        title="All rewards are equal",
        kinds=PPO,
        link="reward",
        metric="objective/scores_running_std",
        beside=("objective/scores",),
        test="scaled",
        bound="below",
        threshold=1e-5,
        unit="of the scores' size",
        evidence_class="contract",
        advice="There is nothing to learn from: the policy is not updated. Look at the reward's "
        "rule, or at whether the reward model can tell these answers apart.",
        source="SPEC E2: whitening a batch would blow rounding noise up to a reward.",
    ),
    GuardRule(
        name="all_flagged",
        title="No answer of the step is trusted",
        kinds=ROLLOUTS,
        link="reward",
        metric="reward/flagged_share",
        bound="above",
        threshold=0.999,
        unit="share",
        evidence_class="contract",
        advice="The ensemble's members disagree about every answer, so the policy was not updated. "
        "Have people compare these answers and retrain the reward model on them.",
        source="Disagreement over the ensemble's own threshold; Coste et al. 2023.",
    ),
    GuardRule(
        name="reward_saturated",
        title="The reward nears the end of its scale",
        kinds=ROLLOUTS,
        link="reward",
        metric="reward/calibrated_mean",
        test="window",
        bound="above",
        threshold=0.8,
        unit="calibrated score",
        severity="info",
        advice="Over 0.8 the calibrated scale is flat, so further gains say little. Read the "
        "highest answers and compare the held-out score before training on.",
        source="SPEC F2. A run that learns may pass this by learning, so it only informs, once.",
    ),
    GuardRule(
        name="reward_above_baseline",
        title="Many answers score above nearly all baseline answers",
        kinds=ROLLOUTS,
        link="reward",
        metric="reward/above_baseline_share",
        test="window",
        bound="above",
        threshold=0.2,
        unit="share over the baseline's 90 % quantile",
        severity="info",
        action=OFF,
        advice="Read the highest answers: are they better, or do they only please the reward?",
        source="SPEC F2. Off unless chosen: every run that learns passes it; turn it on where the "
        "reward is not meant to rise.",
    ),
    GuardRule(
        name="reward_spread",
        title="All answers score alike",
        kinds=ROLLOUTS,
        link="reward",
        metric="reward/calibrated_std",
        beside=("reward/calibrated_mean",),
        test="spread",
        bound="below",
        threshold=0.1,
        unit="calibrated score",
        share=0.5,
        patience=(2, 3),
        severity="info",
        advice="Either the policy gives one answer to everything, or the reward no longer tells "
        "answers apart. Read random answers; look at diversity and at the reward model's report.",
        source="SPEC F2. Near 1 the calibrated scale is flat and its spread falls by itself, so "
        "where raw scores are known their spread must also be under half of its first value. A "
        "policy that learns one kind of good answer passes this as well, so it only informs; a "
        "sudden loss of spread comes with a jump, which reward_drift warns of.",
    ),
    GuardRule(
        name="reward_drift",
        title="The reward jumped off its trend",
        kinds=ROLLOUTS,
        link="reward",
        metric="reward/calibrated_mean",
        test="break",
        bound="above",
        threshold=3.0,
        unit="standard errors",
        least=0.1,  # calibrated score
        patience=(3, 5),
        advice="A reward that learning moves, moves slowly. A jump is a new trick of the policy or "
        "another reward: compare answers before and after, and the reward's version.",
        source="SPEC F3: |z| > 3 with a minimum effect and 3 of 5 checks, in both directions, "
        "against the run's own trend, since learning itself moves the mean. Not a single batch "
        "over two deviations.",
    ),
    GuardRule(
        name="outliers",
        title="A few answers carry the reward",
        kinds=PPO,
        link="reward",
        metric="reward/outlier_share",
        test="window",
        bound="above",
        threshold=0.01,
        unit="share beyond reward_clip",
        grace=10,
        patience=(3, 5),
        advice="Their rewards are clipped, yet they decide the update. Read the highest and lowest "
        "answers: either a rule or a reward model gives them an absurd score, or hardly any answer "
        "earns anything yet, and easier prompts would teach faster.",
        source="SPEC E7 (2 % of rewards × 60); of normal scores under one in a million lies beyond "
        "five deviations. The first ten checks are not judged: a rare reward looks the same until "
        "it is learned.",
    ),
    GuardRule(
        name="disagreement",
        title="The ensemble disagrees about many answers",
        kinds=ROLLOUTS,
        link="reward",
        metric="reward/flagged_share",
        bound="above",
        threshold=0.3,
        unit="share",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(DEARER_KL,),
        advice="The policy has moved to where the reward model knows little. Have people compare "
        "the flagged answers and retrain it, or raise kl_coef.",
        source="Coste et al. 2023; Eisenstein et al. 2023. The answers' own threshold comes with "
        "the ensemble.",
    ),
    GuardRule(
        name="blocked",
        title="Many answers break a hard rule",
        kinds=ROLLOUTS,
        link="reward",
        metric="reward/blocked_share",
        test="window",
        bound="above",
        threshold=0.1,
        unit="share",
        advice="Read the blocked answers. Add a penalty for the rule, or start from a model that "
        "keeps it.",
        source="SPEC E18.",
    ),
    GuardRule(
        name="length",
        title="Answers are more than twice as long",
        kinds=ROLLOUTS,
        link="reward",
        metric="response/length_ratio",
        bound="above",
        threshold=2.0,
        unit="× the reference's",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(DEARER_KL,),
        advice="The reward may like length for itself: compare it on short and long answers of the "
        "same worth. Set length_penalty, or balance lengths in the comparisons.",
        source="SPEC F6; Singhal et al. 2023.",
    ),
    GuardRule(
        name="length",
        title="Answers are more than twice as long",
        kinds=("dpo",),
        link="reward",
        metric="response/length",
        test="first",
        bound="above",
        threshold=2.0,
        unit="× the first",
        patience=(3, 5),
        advice="The choice between pairs may favour length for itself. Balance lengths in the "
        "comparisons, or take a loss that counts per token.",
        source="SPEC F6; Singhal et al. 2023.",
    ),
    GuardRule(
        name="repetition",
        title="Answers repeat themselves",
        kinds=ROLLOUTS,
        link="reward",
        metric="response/repetition",
        bound="above",
        threshold=0.2,
        unit="share of repeated 4-grams",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(DEARER_KL,),
        advice="Read the highest answers. A reward that repetition pleases needs comparisons that "
        "say otherwise, or a rule against it.",
        source="SPEC F6; Welleck et al. 2020 (seq-rep-4).",
    ),
)

POLICY = (
    GuardRule(
        name="update_kl",
        title="Updates are cut short because the policy moved too far",
        kinds=PPO,
        link="policy",
        metric="update/stopped_by_kl",
        bound="above",
        threshold=0.5,
        unit="0 or 1",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(SLOWER,),
        advice="KL(old‖new) passed twice update_kl_target and the rest of the update was dropped. "
        "Lower the learning rate or update_epochs.",
        source="SPEC E5. A single cut update is the limit doing its work; three of five, a trend.",
    ),
    GuardRule(
        name="reference_kl",
        title="The policy is far from its reference",
        kinds=POLICIES,
        link="policy",
        metric="objective/kl",
        bound="above",
        threshold=10.0,
        unit="nats per sequence",
        patience=(2, 3),
        actions=ANY_ACTION,
        adjustment=(DEARER_KL,),
        advice="Rewards are learned from answers near the reference; out here they mean less. "
        "Raise kl_coef (beta in DPO), or stop and compare with people.",
        source="SPEC E5; Gao et al. 2022.",
    ),
    GuardRule(
        name="clip_fraction",
        title="Most of the update is clipped away",
        kinds=ROLLOUTS,
        link="policy",
        metric="policy/clipfrac_avg",
        bound="above",
        threshold=0.4,
        unit="share of tokens",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(FEWER_EPOCHS, SLOWER),
        advice="Use fewer update_epochs or a lower learning rate.",
        source="SPEC E6.",
    ),
    GuardRule(
        name="ratio",
        title="Minibatches were skipped for their ratio",
        kinds=PPO,
        link="policy",
        metric="update/skipped_minibatches",
        bound="above",
        threshold=0.5,
        unit="minibatches",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(SLOWER,),
        advice="π/π_old passed ratio_limit, so these minibatches gave no gradient. Lower the "
        "learning rate; if it stays, sampler and trainer disagree.",
        source="SPEC E7; TRL's ratio_threshold of 10. One token of one minibatch passes it in "
        "healthy runs as well, so once is none.",
    ),
)

CRITIC = (
    GuardRule(
        name="explained_variance",
        title="The critic explains nothing",
        kinds=PPO,
        link="critic",
        metric="val/explained_variance",
        bound="below",
        threshold=0.0,
        unit="share of the returns' variance",
        patience=(8, 10),
        grace=20,
        actions=ANY_ACTION,
        adjustment=(SLOWER,),
        advice="Advantages are noise while the values are worse than a constant. Raise "
        "value_learning_rate or critic_warmup_steps; check that returns are on the critic's scale.",
        source="SPEC E11. An untrained critic is under 0 in every run, so the first twenty checks "
        "are not judged.",
    ),
    GuardRule(
        name="value_blow_up",
        title="The critic's values leave the scale of the returns",
        kinds=PPO,
        link="critic",
        metric="val/value_scale",
        bound="above",
        threshold=5.0,
        unit="× the returns' deviation",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(SLOWER,),
        advice="Lower value_learning_rate, or clip values (value_clip).",
        source="SPEC E10, E11: values are estimates of returns and cannot vary more than they.",
    ),
)

EXPLORATION = (
    GuardRule(
        name="entropy_floor",
        title="The policy has stopped exploring",
        kinds=ROLLOUTS,
        link="exploration",
        metric="objective/entropy_per_token",
        test="floor",
        bound="below",
        threshold=0.1,
        share=0.3,
        unit="nats per token",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(MORE_ENTROPY, DEARER_KL),
        advice="Answers have become nearly certain. Raise entropy_coef or kl_coef; read random "
        "answers for a single template.",
        source="SPEC E6: 0.1 nats or 30 % of step 0, whichever is higher; where step 0 itself is "
        "under 0.1 only the share counts.",
    ),
    GuardRule(
        name="entropy_rise",
        title="The policy dissolves",
        kinds=ROLLOUTS,
        link="exploration",
        metric="objective/entropy_per_token",
        test="first",
        bound="above",
        threshold=1.5,
        unit="× the first",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(SLOWER,),
        advice="Answers become random rather than better. Lower entropy_coef or the learning rate; "
        "check the sign of the reward.",
        source="SPEC E6, the quadrant where entropy stays high.",
    ),
    GuardRule(
        name="diverse_without_progress",
        title="The policy explores and learns nothing",
        kinds=ROLLOUTS,
        link="exploration",
        metric="reward/calibrated_mean",
        beside=("objective/entropy_per_token",),
        test="flat",
        bound="below",
        threshold=0.02,
        share=0.9,
        unit="calibrated score gained",
        grace=60,
        patience=(10, 10),
        severity="info",
        advice="After many steps neither the reward nor the policy has moved. Raise the learning "
        "rate, lower kl_coef or entropy_coef, or look at whether the reward prefers anything here.",
        source="SPEC E6, the quadrant diverse without progress.",
    ),
    GuardRule(
        name="uniform_high_reward",
        title="Answers grow alike while the reward is high",
        kinds=ROLLOUTS,
        link="exploration",
        metric="response/distinct",
        beside=("reward/calibrated_mean",),
        test="uniform",
        bound="below",
        threshold=0.5,
        least=0.65,  # calibrated score
        unit="× the first",
        patience=(3, 5),
        actions=ANY_ACTION,
        adjustment=(MORE_ENTROPY, DEARER_KL),
        advice="A template that pleases the reward is the usual cause. Read the highest answers "
        "side by side; raise entropy_coef or kl_coef.",
        source="SPEC E6, the quadrant uniform with high reward; distinct-2 of Li et al. 2016.",
    ),
    GuardRule(
        name="zero_variance",
        title="Groups of answers all get the same reward",
        kinds=("grpo",),
        link="exploration",
        metric="grpo/zero_variance_share",
        bound="above",
        threshold=0.8,
        unit="share of groups",
        patience=(3, 5),
        advice="A group whose answers score alike teaches nothing. Use prompts that are neither "
        "solved nor hopeless, larger groups, or a higher temperature.",
        source="SPEC E1; Yu et al. 2025 (DAPO), section 3.2.",
    ),
)

FRESHNESS = (
    GuardRule(
        name="stale",
        title="Rollouts of an older policy",
        kinds=PPO,
        link="freshness",
        metric="rollout/lag",
        bound="above",
        threshold=1.0,
        unit="policy versions",
        severity="critical",
        actions=(STOP,),
        action=STOP,
        evidence_class="contract",
        advice="The rollout was refused. Nothing is learned from answers that another policy gave.",
        source="SPEC E9.",
    ),
)

NUMERICS = (
    GuardRule(
        name="non_finite",
        title="A number is NaN or infinite",
        kinds=ALL,
        link="numerics",
        metric="numerics/non_finite",
        test="finite",
        bound="above",
        threshold=0.5,
        unit="0 or 1",
        patience=(2, 2),
        severity="critical",
        actions=(STOP,),
        action=STOP,
        evidence_class="contract",
        advice="Lower the learning rate, use float32 or bfloat16 rather than float16, and look at "
        "the rows of that step.",
        source="SPEC E10. The first step is skipped, weights and moments untouched; the next in a "
        "row, or a third within fifty, stops.",
    ),
    GuardRule(
        name="gradient",
        title="The gradient jumped",
        kinds=PPO,
        link="numerics",
        metric="grad_norm_max",
        test="jump",
        bound="above",
        threshold=10.0,
        unit="× its 95 % quantile",
        least=1.0,
        actions=ANY_ACTION,
        adjustment=(SLOWER,),
        advice="It was clipped to max_grad_norm. Look at that step's answers and rewards; lower "
        "the learning rate if it comes again.",
        source="SPEC E10: largest against the 95 % quantile.",
    ),
    GuardRule(
        name="gradient",
        title="The gradient jumped",
        kinds=("sft", "reward", "dpo", "grpo"),
        link="numerics",
        metric="grad_norm",
        test="jump",
        bound="above",
        threshold=10.0,
        unit="× its 95 % quantile",
        least=1.0,
        actions=ANY_ACTION,
        adjustment=(SLOWER,),
        advice="It was clipped to max_grad_norm. Look at that step's rows; lower the learning rate "
        "if it comes again.",
        source="SPEC E10: largest against the 95 % quantile.",
    ),
    GuardRule(
        name="loss_jump",
        title="The training loss jumped",
        kinds=TRAINERS,
        link="numerics",
        metric="loss",
        test="rise",
        bound="above",
        threshold=3.0,
        unit="× its lowest, or half its first",
        least=0.1,  # nats
        share=0.5,
        patience=(2, 3),
        actions=ANY_ACTION,
        adjustment=(SLOWER,),
        advice="The step size is likely too high: divide the learning rate by three, or lengthen "
        "the warm-up.",
        source="A loss over its own start is divergence; rows differ, so a loss under half of its "
        "start is not compared with a lower one.",
    ),
    GuardRule(
        name="extreme_logprob",
        title="The policy gave a token that it holds to be impossible",
        kinds=ROLLOUTS,
        link="numerics",
        metric="policy/logprob_min",
        bound="below",
        threshold=-30.0,
        unit="nats",
        evidence_class="contract",
        advice="Sampler and trainer disagree: another temperature, precision, adapter or padding.",
        source="SPEC E10. All tokens under −30 nats together have a probability of at most "
        "10⁻⁸ even with 100,000 of them, so sampling hardly ever draws one.",
    ),
)

DIAGNOSIS = (
    GuardRule(
        name="cause_found",
        title="The diagnosis names what broke first",
        kinds=ROLLOUTS,
        link="reward",  # of the table; an alarm carries the link that was named
        metric="",
        test="diagnosed",
        bound="above",
        threshold=0.0,
        unit="links",
        action=OFF,
        severity="critical",
        evidence_class="probe",
        advice="The Diagnosis tab shows the evidence, what followed from it, and the next check. "
        "Mend that link before any setting further in is touched.",
        source="SPEC F5. Off unless chosen: a finding tells people, and one that is wrong must not "
        "end a long run unasked.",
    ),
)

RULES: tuple[GuardRule, ...] = (
    *DATA,
    *REWARD,
    *POLICY,
    *CRITIC,
    *EXPLORATION,
    *FRESHNESS,
    *NUMERICS,
    *DIAGNOSIS,
)
