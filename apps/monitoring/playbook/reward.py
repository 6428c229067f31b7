"""The reward: does it say what people would say, and is there anything to learn from it?"""

from apps.monitoring.playbook.entry import Cause, Check, Entry, reads

_PLOT = Check(
    "Plot the rewards of the last 1,000 answers.",
    reads(
        ("One spike", "The reward does not tell these answers apart."),
        ("A few far from the rest", "Outliers carry the update: read them."),
        ("Ordered by length", "A bias for length."),
        ("A broad hill", "The reward has a shape; look at the policy."),
    ),
    experiment="reward_plot",
)
_CANARIES = Check(
    "Ask the reward model about pairs whose better answer is known.",
    reads(
        ("Mostly right", "It points the right way: the policy found a weakness."),
        ("Under half right", "Sign or labels."),
    ),
    experiment="canaries",
)
_READ = Check("Read the highest answers beside the baseline's.", tab="samples")

ENTRIES = (
    Entry(
        slug="constant-reward",
        title="All rewards are equal",
        sort="rule",
        symptom="Every answer earns the same. There is no direction, and the policy is not "
        "updated; otherwise rounding noise would be blown up to a reward.",
        tags=("constant", "zero variance", "verifier", "rule"),
        rules=("constant_reward",),
        causes=(
            Cause("reward", "A rule that never or always holds, a score that is cut at its end."),
            Cause("data", "The rule reads a field that the rows do not have."),
            Cause("exploration", "All answers are the same text."),
        ),
        checks=(
            Check(
                "Look at random answers: do they differ at all?",
                reads(
                    ("All the same", "Go to exploration."),
                    ("They differ", "The reward is at fault."),
                ),
                tab="samples",
            ),
            _PLOT,
            Check("Score two answers of clearly different worth by hand."),
        ),
        fixes=(
            "Fix the rule, or give partial credit.",
            "Take prompts at which the starting policy sometimes succeeds.",
        ),
        see=("rewards-rare", "stopped-exploring"),
    ),
    Entry(
        slug="rewards-rare",
        title="Hardly any answer earns anything",
        sort="rule",
        symptom="Nearly all rewards are equal and a few are not. Most steps teach nothing, then "
        "one answer moves everything.",
        tags=("sparse", "mode share", "curriculum", "verifier", "zero"),
        rules=("reward_one_value",),
        causes=(
            Cause("reward", "A reward for full success only, on prompts that are too hard."),
            Cause("data", "A broken verifier that refuses right answers."),
            Cause("exploration", "Too few answers for each prompt to meet a success."),
        ),
        checks=(
            _PLOT,
            Check(
                "Read some of the answers that earned nothing.",
                reads(
                    ("Some are right", "The verifier is wrong."),
                    ("None is", "The task is too hard for this policy."),
                ),
                tab="samples",
            ),
        ),
        fixes=(
            "Begin with easier prompts, and mix harder ones in as they are solved.",
            "Partial credit for steps that can be checked; more answers for each prompt.",
        ),
        sources=("Yu et al. 2025 (DAPO)",),
        see=("constant-reward", "silent-groups"),
    ),
    Entry(
        slug="nothing-trusted",
        title="No answer of the step is trusted",
        sort="rule",
        symptom="The members of the ensemble disagree about every answer, so none gives a gradient "
        "and the worst wait for people.",
        tags=("ensemble", "disagreement", "uncertainty"),
        rules=(
            "all_flagged",
            "disagreement",
        ),
        causes=(
            Cause("reward", "The policy has walked to where the reward models were never taught."),
            Cause("reward", "One member is broken or on another scale."),
        ),
        checks=(
            Check("Read the flagged answers.", tab="samples"),
            _CANARIES,
            Check("Recompute the divergence.", experiment="kl_reference"),
        ),
        fixes=(
            "Let people compare the flagged answers, then retrain all members.",
            "Raise kl_coef, so that the policy stays where the members know something.",
        ),
        sources=(
            "Coste et al. 2023",
            "Eisenstein et al. 2023",
        ),
        see=("far-from-reference",),
    ),
    Entry(
        slug="near-the-top",
        title="The reward nears the end of its scale",
        sort="rule",
        symptom="The calibrated score is over 0.8, or many answers score above nearly all of the "
        "baseline's. A run that learns may come here honestly.",
        tags=("saturated", "calibrated", "0.8", "baseline"),
        rules=(
            "reward_saturated",
            "reward_above_baseline",
        ),
        causes=(
            Cause(
                "reward",
                "Above 0.8 the scale is flat: further gains say little, whatever their cause.",
            ),
            Cause("reward", "The policy pleases the reward without being better."),
        ),
        checks=(
            _READ,
            Check(
                "Compare with the held-out score in the charts.",
                reads(
                    ("It rises too", "Learning. The note only informs."),
                    ("It is flat or falls", "Overoptimisation: follow that walkthrough."),
                ),
                tab="charts",
            ),
            _PLOT,
        ),
        fixes=("Nothing by itself. Stop when the held-out score no longer rises.",),
        see=("reward-up-benchmark-flat", "thresholds-read-literally"),
    ),
    Entry(
        slug="answers-score-alike",
        title="All answers score alike",
        sort="rule",
        symptom="The spread of the scores has fallen to a tenth of the calibrated scale and to "
        "under half of its first value.",
        tags=("spread", "std", "peaked", "collapse", "narrow"),
        rules=("reward_spread",),
        causes=(
            Cause("exploration", "The policy says one thing to everything."),
            Cause("reward", "The reward no longer tells these answers apart, though they differ."),
        ),
        checks=(
            Check(
                "Read random answers to different prompts.",
                reads(
                    ("One template", "Exploration has ended; the reward may want it so."),
                    ("Different answers", "The reward is blind here."),
                ),
                tab="samples",
            ),
            _PLOT,
        ),
        fixes=("A template: see that entry. Blindness: comparisons of answers that are close.",),
        see=("template", "accurate-reward-no-progress"),
    ),
    Entry(
        slug="reward-jumped",
        title="The reward jumped off its trend",
        sort="rule",
        symptom="Learning moves the reward slowly. Here its mean left the run's own trend within a "
        "few steps, up or down.",
        tags=("jump", "shift", "drift", "level", "scale", "z-score"),
        rules=("reward_drift",),
        causes=(
            Cause("reward", "Another reward model or another version answers."),
            Cause("policy", "The policy has just found a trick that pays."),
            Cause("data", "The prompts changed: a new part of the dataset, an easier topic."),
        ),
        checks=(
            Check(
                "Score answers kept from before the jump again.",
                reads(
                    ("Other scores than then", "The reward changed, not the policy."),
                    ("The same", "The policy or the prompts changed."),
                ),
                experiment="rescore",
            ),
            Check("Compare answers from before and after the jump.", tab="samples"),
            _CANARIES,
        ),
        fixes=(
            "A changed reward: go back to the checkpoint before it, and name the reward by its "
            "checkpoint.",
            "A trick: read “Reward hacking”.",
        ),
        see=("not-reproducible", "reward-hacking"),
    ),
    Entry(
        slug="few-carry-the-reward",
        title="A few answers carry the reward",
        sort="rule",
        symptom="Some scores lie many deviations from the rest. They are clipped, and still decide "
        "in which direction the update goes.",
        tags=("outliers", "long tail", "kurtosis", "clip", "noise"),
        rules=(
            "outliers",
            "reward_tail",
        ),
        causes=(
            Cause(
                "reward",
                "A rule or a model gives an absurd score to some texts: empty ones, "
                "very long ones, another script.",
            ),
            Cause(
                "reward",
                "Success is rare, so the few that succeed look like outliers. This "
                "passes as the policy learns.",
            ),
            Cause("numerics", "An overflow in the reward model's half precision."),
        ),
        checks=(
            Check(
                "Read the highest and the lowest answers.",
                reads(
                    ("Strange texts", "The reward is at fault on them."),
                    ("The few right ones", "Rare success: easier prompts teach faster."),
                ),
                tab="samples",
            ),
            _PLOT,
            Check("Score them again.", experiment="rescore"),
        ),
        fixes=("Clip rewards (reward_clip) and normalise them; add a rule for the strange texts.",),
        see=("rewards-rare",),
    ),
    Entry(
        slug="hard-rule-broken",
        title="Many answers break a hard rule",
        sort="rule",
        symptom="A tenth of the answers or more do what a rule of the reward forbids.",
        tags=("blocked", "constraint", "safety"),
        rules=("blocked",),
        causes=(
            Cause("reward", "What the rule forbids is what the reward pays for."),
            Cause("data", "The rule is too wide and hits honest answers."),
        ),
        checks=(
            Check(
                "Read blocked answers.",
                reads(
                    ("Honest ones among them", "Narrow the rule."),
                    ("Rightly blocked", "The reward and the rule want opposite things."),
                ),
                tab="samples",
            ),
        ),
        fixes=(
            "A penalty that the policy can learn from, rather than only a bar.",
            "Comparisons that show the rule being kept.",
        ),
    ),
    Entry(
        slug="answers-longer",
        title="Answers grow to twice their length",
        sort="rule",
        symptom="The mean length is over twice that of the reference's answers, and rising.",
        tags=("length", "verbosity", "padding", "length bias"),
        rules=(
            "length",
            "reward_follows_length",
        ),
        causes=(
            Cause(
                "reward",
                "Longer answers score higher whatever they say: people also tend to "
                "prefer the longer of two, and the reward model learns that first.",
            ),
            Cause(
                "data", "The end token is not rewarded or not seen, so answers run to the limit."
            ),
            Cause("policy", "A loss that is summed rather than averaged favours length."),
        ),
        checks=(
            Check(
                "Plot rewards against length.",
                reads(
                    ("They rise together within one batch", "A bias for length."),
                    ("No relation", "Look at the share of answers that end by themselves."),
                ),
                experiment="reward_plot",
            ),
            Check(
                "Look at response/ended_share.",
                reads(
                    ("Near zero", "Answers are cut at the limit: an end that is never learned."),
                    ("High", "They end by themselves; it is a preference for length."),
                ),
                tab="charts",
            ),
            _READ,
        ),
        fixes=(
            "Set length_penalty, or balance lengths in the comparisons.",
            "Look at the lines “beats length” and “matched for length” on the reward model's "
            "page before training against it again.",
        ),
        sources=("Singhal et al. 2023",),
        see=("reward-up-benchmark-flat", "reward-hacking"),
    ),
    Entry(
        slug="answers-repeat",
        title="Answers repeat themselves",
        sort="rule",
        symptom="A fifth of the four-token sequences of an answer, or more, already stood in it.",
        tags=("repetition", "loop", "degeneration", "compression"),
        rules=("repetition",),
        causes=(
            Cause("reward", "Saying it twice scores more than saying it once."),
            Cause("exploration", "Certainty has become so high that the text falls into a loop."),
        ),
        checks=(
            _READ,
            Check(
                "Read entropy and repetition together.",
                reads(
                    ("Entropy fell first", "Collapse; the loop is its effect."),
                    ("Repetition rose first", "It is paid for."),
                ),
                tab="charts",
            ),
            _PLOT,
        ),
        fixes=(
            "A rule against repetition until the reward model has learned better.",
            "A higher KL penalty: the reference does not loop.",
        ),
        sources=("Welleck et al. 2020",),
        see=("repetitive-or-nonsense", "stopped-exploring"),
    ),
    Entry(
        slug="refusals-rise",
        title="The policy refuses more and more",
        sort="rule",
        symptom="The share of answers that decline, apologise or give no information rises, and "
        "they score well.",
        tags=("refusal", "safety", "i don't know", "over-refusal", "apology"),
        rules=(
            "refusals_liked",
            "refusals_rewarded",
        ),
        causes=(
            Cause(
                "reward",
                "A refusal is never wrong, so a reward that punishes mistakes more "
                "than it pays for help prefers it.",
            ),
            Cause(
                "data",
                "In the comparisons refusals won against poor answers, also to harmless prompts.",
            ),
        ),
        checks=(
            Check(
                "Compare the scores of refusals and of others (reward/refusal_lift).",
                reads(
                    ("Refusals score higher", "They are paid for."),
                    ("Lower", "The policy refuses for another reason: look at the demonstrations."),
                ),
                tab="charts",
            ),
            Check(
                "Read refused prompts.",
                reads(
                    ("Harmless ones", "Over-refusal."),
                    ("Harmful ones", "As wanted; the prompts have changed."),
                ),
                tab="samples",
            ),
            _CANARIES,
        ),
        fixes=(
            "Comparisons in which help to a harmless prompt wins over a refusal.",
            "Measure help on harmless prompts and refusal on harmful ones apart; one number "
            "hides the trade.",
        ),
        see=("refusal-hacking", "reward-hacking"),
    ),
)
