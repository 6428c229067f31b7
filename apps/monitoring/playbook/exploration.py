"""Exploration: too certain, too random, or busy without a result."""

from apps.monitoring.playbook.entry import Cause, Check, Entry, reads

_RANDOM = Check(
    "Read random answers to different prompts.",
    reads(
        ("One template", "A mode has won; see whether it is paid for."),
        ("Word salad", "The policy is dissolving."),
        ("Sensible and different", "Only the number fell: certainty can be earned."),
    ),
    tab="samples",
)
_ENTROPY = Check(
    "Try a small bonus on entropy in a short run.",
    reads(
        ("Variety comes back", "Exploration had no price."),
        ("It does not", "The reward itself wants one answer."),
    ),
    experiment="more_entropy",
)

ENTRIES = (
    Entry(
        slug="stopped-exploring",
        title="The policy has stopped exploring",
        sort="rule",
        symptom="Entropy has fallen to a tenth of a nat per token, or to under a third of where it "
        "began.",
        tags=("entropy", "collapse", "certainty", "deterministic", "mode"),
        rules=(
            "entropy_floor",
            "entropy_lost",
        ),
        causes=(
            Cause("exploration", "Nothing pays for variety, and the reward is steep."),
            Cause("policy", "Updates so large that the first good answer wins for ever."),
            Cause("reward", "One answer scores best on every prompt."),
            Cause(
                "freshness", "Answers are drawn at a lower temperature than the one that learns."
            ),
        ),
        checks=(
            _RANDOM,
            Check(
                "See whether divergence or clip fraction moved before entropy.",
                reads(
                    ("They did", "The update is the cause."),
                    ("Entropy came first", "Exploration or the reward."),
                ),
                tab="charts",
            ),
            _ENTROPY,
        ),
        fixes=(
            "A bonus on entropy (entropy_coef), a higher KL penalty, a lower learning rate.",
            "Roll back: a policy without variety cannot find its way out by itself.",
        ),
        notes=(
            "A task with one right answer ends with low entropy and rightly so: read the share "
            "of step 0 and the held-out score together.",
        ),
        see=("exploration-table", "template"),
    ),
    Entry(
        slug="dissolves",
        title="The policy dissolves",
        sort="rule",
        symptom="Entropy rises to half as much again as at the start, and answers become random.",
        tags=("entropy", "random", "nonsense", "noise"),
        rules=("entropy_rise",),
        causes=(
            Cause("reward", "The sign of the reward is turned: what was likely is punished."),
            Cause("policy", "Steps too large, or a bonus on entropy that outweighs the reward."),
            Cause("critic", "Advantages are noise."),
        ),
        checks=(
            Check("Ask the reward model about known pairs.", experiment="canaries"),
            _RANDOM,
            Check("Try a tenth of the learning rate.", experiment="slower"),
        ),
        fixes=("Lower entropy_coef or the learning rate; check the sign first.",),
        see=("labels-turned-round", "exploration-table"),
    ),
    Entry(
        slug="explores-and-learns-nothing",
        title="The policy explores and learns nothing",
        sort="rule",
        symptom="After many steps neither the reward nor the policy has moved.",
        tags=("flat", "no progress", "noise", "sparse"),
        rules=("diverse_without_progress",),
        causes=(
            Cause("reward", "Rewards are noise, or too rare to be met."),
            Cause("policy", "The step is too small, or the KL penalty too high."),
            Cause("critic", "Advantages say nothing."),
        ),
        checks=(
            Check("Plot the rewards.", experiment="reward_plot"),
            Check(
                "Score kept answers again.",
                reads(
                    ("Other scores", "The reward is chance."),
                    ("The same", "There is a signal; look at the update."),
                ),
                experiment="rescore",
            ),
            Check("Fit the critic alone.", experiment="critic_fit"),
            Check("Reproduce it in small.", experiment="minimal"),
        ),
        fixes=("Easier prompts or partial credit; a higher learning rate; a lower kl_coef.",),
        see=("rewards-rare", "accurate-reward-no-progress"),
    ),
    Entry(
        slug="template",
        title="Answers grow alike while the reward is high",
        sort="rule",
        symptom="The share of distinct word pairs has halved and the calibrated reward is high: "
        "most answers begin alike, praise alike, end alike.",
        tags=("template", "uniform", "diversity", "distinct", "mode collapse"),
        rules=("uniform_high_reward",),
        causes=(
            Cause("reward", "A form of words is paid for, whatever it says."),
            Cause("exploration", "The first template that worked was never left again."),
        ),
        checks=(
            Check("Read the highest answers side by side.", tab="samples"),
            Check("Ask the reward model about known pairs.", experiment="canaries"),
            _ENTROPY,
        ),
        fixes=(
            "Comparisons of the template with plain answers; then retrain the reward model.",
            "Entropy or divergence priced higher until then.",
        ),
        sources=("Li et al. 2016 (distinct-n)",),
        see=("reward-hacking", "format-hacking"),
    ),
    Entry(
        slug="silent-groups",
        title="Groups of answers all get the same reward",
        sort="rule",
        symptom="In GRPO an answer is measured against the others to its prompt. Where all of them "
        "earn the same, the group teaches nothing; here that is four in five.",
        tags=("grpo", "zero variance", "group", "dapo"),
        rules=("zero_variance",),
        causes=(
            Cause("data", "Prompts are solved already, or hopeless."),
            Cause("exploration", "All answers of a group are the same text."),
            Cause("reward", "Right or wrong only, on a hard task."),
        ),
        checks=(
            Check(
                "Are the silent groups all right or all wrong?",
                reads(
                    ("All right", "Harder prompts."),
                    ("All wrong", "Easier ones, or partial credit."),
                    ("Equal texts", "A higher temperature."),
                ),
                tab="samples",
            ),
            Check("Plot the rewards.", experiment="reward_plot"),
        ),
        fixes=("Leave solved and hopeless prompts out; larger groups; a higher temperature.",),
        sources=("Yu et al. 2025 (DAPO)",),
        see=("rewards-rare",),
    ),
)
