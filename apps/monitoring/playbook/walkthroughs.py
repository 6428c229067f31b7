"""Whole stories: a picture of several curves, followed from the outside in."""

from apps.monitoring.playbook.entry import Cause, Check, Entry, reads

ENTRIES = (
    Entry(
        slug="reward-up-benchmark-flat",
        title="Reward up, benchmark flat, answers longer",
        sort="walkthrough",
        symptom="The training reward climbs steadily. A benchmark or the held-out score does not "
        "follow, and answers grow by the week, or by the hour. It looks like a run that needs more "
        "time; it is usually a reward that pays for something else.",
        tags=("hacking", "overoptimisation", "length", "benchmark", "goodhart", "verbosity"),
        causes=(
            Cause(
                "evaluation",
                "The benchmark is asked in another way than before: another "
                "temperature, a lower limit on tokens that cuts the longer answers off, another "
                "template.",
            ),
            Cause(
                "reward",
                "The reward has a bias for length, lists or courtesy, and the policy has found it.",
            ),
            Cause(
                "policy",
                "The policy has left the region where the reward model was trained, so "
                "its scores there mean little.",
            ),
            Cause("exploration", "The policy has settled on one template that scores well."),
        ),
        checks=(
            Check(
                "Ask the first and the newest checkpoint again under one fixed protocol.",
                reads(
                    (
                        "They agree when asked alike",
                        "The protocol changed, not the model. Fix the "
                        "protocol, then read the curves again.",
                    ),
                    ("The gap stays", "It is real: go on."),
                ),
                experiment="protocol",
            ),
            Check(
                "Read the ten answers with the highest reward, beside the baseline's answers.",
                reads(
                    (
                        "Longer, emptier, alike",
                        "The reward pays for form. The next check says for which.",
                    ),
                    (
                        "Plainly better",
                        "Suspect the benchmark: it may not measure what you train for.",
                    ),
                ),
                tab="samples",
            ),
            Check(
                "Plot the rewards of the last thousand answers, and what they follow.",
                reads(
                    (
                        "They rise with length",
                        "A bias for length: compare the reward model on "
                        "pairs of equal length on its own page.",
                    ),
                    ("One value dominates", "One template has taken over."),
                    ("A broad hill, no relation", "Length is a side effect. Look at components."),
                ),
                experiment="reward_plot",
            ),
            Check(
                "Ask the reward model about pairs whose better answer is known.",
                reads(
                    (
                        "Mostly right",
                        "It points the right way on ordinary answers: the policy has "
                        "found a weakness out where it knows little.",
                    ),
                    (
                        "Under half right",
                        "Its sign or its labels are turned round. This is a fault "
                        "of data, not hacking.",
                    ),
                ),
                experiment="canaries",
            ),
            Check(
                "Read divergence and entropy in the charts.",
                reads(
                    ("Divergence keeps rising", "The price of leaving is too low for this reward."),
                    ("Entropy falls, answers alike", "The policy has collapsed onto one mode."),
                ),
                tab="charts",
            ),
            Check(
                "Run one short experiment with one change: a length penalty, or a higher "
                "divergence, and nothing else.",
                reads(
                    (
                        "Reward falls, held-out score rises",
                        "The old reward was wrong. Keep the change and retrain the reward model.",
                    ),
                    ("Both fall", "The change is too strong, or the reward was right."),
                ),
                experiment="dearer_kl",
            ),
        ),
        fixes=(
            "Use the checkpoint tagged best: it was chosen by the held-out score.",
            "Collect comparisons of the newest answers and retrain the reward model on them.",
            "Log the parts of the reward apart (correctness, form, length, safety), so that next "
            "time the part that moves is seen to move.",
        ),
        sources=(
            "Gao et al. 2022",
            "Singhal et al. 2023",
        ),
        see=("held-out-falls", "answers-longer", "reward-hacking"),
    ),
    Entry(
        slug="reward-down-kl-spike",
        title="Reward down, KL spike, clip fraction at 0.5",
        sort="walkthrough",
        symptom="The reward drops within a few steps, the divergence from the reference jumps, and "
        "half of the tokens of each update are clipped, step after step.",
        tags=("instability", "kl", "clip", "learning rate", "epochs", "collapse", "spike"),
        causes=(
            Cause(
                "policy",
                "Updates are too large: the learning rate, the number of passes over a "
                "batch, or a batch too small to say anything.",
            ),
            Cause(
                "reward",
                "The scale of the reward changed, so that advantages are many times "
                "what they were.",
            ),
            Cause("critic", "Advantages are noise, because the critic is worse than a constant."),
            Cause(
                "freshness",
                "The answers were drawn by an older policy, so ratios begin far from one.",
            ),
        ),
        checks=(
            Check(
                "Look which curve moved first: clip fraction and divergence, or the reward.",
                reads(
                    (
                        "Clip fraction and divergence first",
                        "The update is the cause, the reward its victim.",
                    ),
                    ("The reward's spread or scale first", "Go to the reward before any setting."),
                    ("Explained variance first", "Go to the critic."),
                ),
                tab="charts",
            ),
            Check(
                "Compare the answers' surprise with the policy's entropy.",
                reads(
                    (
                        "They differ",
                        "Sampler and trainer are not one model: stale weights, another "
                        "temperature, a filter. Nothing else can be judged before that is fixed.",
                    ),
                    ("They agree", "Data are fresh: go on."),
                ),
                experiment="sampler",
            ),
            Check(
                "Recompute the divergence from the registered reference.",
                reads(
                    ("Another number than the run's", "The run held the wrong reference."),
                    ("The same", "The policy has really moved this far."),
                ),
                experiment="kl_reference",
            ),
            Check(
                "Repeat a short run with a tenth of the learning rate.",
                reads(
                    (
                        "The problem is gone",
                        "Steps were too large. Go back to a healthy checkpoint "
                        "and go on with a third to a tenth.",
                    ),
                    ("It stays", "The step size is not to blame."),
                ),
                experiment="slower",
            ),
            Check(
                "Repeat it with one pass over each batch.",
                reads(
                    ("The problem is gone", "Too many passes over the same answers."),
                    (
                        "It stays",
                        "Look at advantages: are they normalised, is the reward's scale "
                        "what it was?",
                    ),
                ),
                experiment="fewer_epochs",
            ),
        ),
        fixes=(
            "Roll back to the last checkpoint from before the spike; weights that have dissolved "
            "seldom come back.",
            "Lower the learning rate, then the number of passes (update_epochs); one at a time.",
            "Keep update_kl_target on: it ends an update that has gone far enough.",
            "Check that rewards are normalised and clipped, and advantages whitened.",
        ),
        sources=(
            "Schulman et al. 2017",
            "Engstrom et al. 2020",
        ),
        see=("update-cut-short", "far-from-reference", "clipped-away"),
    ),
    Entry(
        slug="repetitive-or-nonsense",
        title="At night: answers repeat themselves or make no sense",
        sort="walkthrough",
        symptom="The model says one phrase to everything, a compliment, a refusal, an empty "
        "formula, while the dashboard is green.",
        tags=("2am", "repetition", "nonsense", "collapse", "compliments", "template", "on call"),
        causes=(
            Cause("reward", "A phrase earns a high score whatever it answers."),
            Cause("exploration", "Entropy is gone: only one answer is left to draw."),
            Cause("policy", "The policy has dissolved after updates that were too large."),
        ),
        checks=(
            Check(
                "Plot the rewards of the last 1,000 answers.",
                reads(
                    (
                        "Crowded at the top of the calibrated scale",
                        "The reward pays for the "
                        "phrase: hacking. Raw scores have no origin, so read calibrated ones or a "
                        "baseline.",
                    ),
                    ("Low and scattered", "Not paid for: the policy itself is broken."),
                ),
                experiment="reward_plot",
            ),
            Check(
                "Read the highest and the flagged answers, and look at the rate of the phrase "
                "under the policy and under the reference.",
                reads(
                    ("Common here, rare there", "The policy has learned it."),
                    ("Common in both", "The reference does it too: look at the demonstrations."),
                ),
                tab="samples",
            ),
            Check(
                "Ask the reward model about known pairs.",
                reads(
                    ("Right", "A weakness was found, not a wrong sign."),
                    ("Wrong or half right", "Sign, labels or a truncated text."),
                ),
                experiment="canaries",
            ),
        ),
        fixes=(
            "Put the previous approved model back in service first; look for causes afterwards.",
            "Let people compare the phrase with honest answers, retrain the reward model, and "
            "forbid the phrase by a rule until then.",
            "Raise kl_coef; with a phrase the reference also says now and then, a low price never "
            "stops it.",
        ),
        see=("reward-hacking", "stopped-exploring", "answers-repeat"),
    ),
    Entry(
        slug="kl-explodes",
        title="At night: divergence from the reference explodes",
        sort="walkthrough",
        symptom="The divergence passes ten nats per answer within the first hundred steps and "
        "keeps rising.",
        tags=("2am", "kl", "divergence", "reference", "on call"),
        causes=(
            Cause(
                "policy",
                "The reference is another checkpoint than the one the policy started "
                "from, so the distance was there before the first step.",
            ),
            Cause("policy", "The price of divergence is too low for the scale of this reward."),
            Cause("reward", "Something far away scores so well that any price is paid."),
        ),
        checks=(
            Check(
                "Look at the divergence at the very first step.",
                reads(
                    ("Not zero", "The wrong reference was loaded. Nothing learned from it counts."),
                    ("Zero", "The policy left on its own: go on."),
                ),
                tab="charts",
            ),
            Check(
                "Recompute it from the registered reference.",
                reads(
                    (
                        "Differs from the run's number",
                        "The reference changed or shares weights with the policy.",
                    ),
                    ("Agrees", "The distance is real."),
                ),
                experiment="kl_reference",
            ),
            Check(
                "Try four times the price in a short run.",
                reads(
                    (
                        "It stays near",
                        "The price was too low. Prices are per standard deviation of "
                        "the reward here, so they carry over between reward models.",
                    ),
                    ("It leaves all the same", "Steps are too large."),
                ),
                experiment="dearer_kl",
            ),
        ),
        fixes=(
            "Start again from the checkpoint before the rise, with the reference named explicitly.",
            "Raise kl_coef by factors of two, or let it adapt to a target.",
        ),
        see=("far-from-reference", "reward-down-kl-spike"),
    ),
    Entry(
        slug="accurate-reward-no-progress",
        title="At night: the reward model tests well, and the policy does not improve",
        sort="walkthrough",
        symptom="Held-out accuracy of the reward model is high. The policy trains for hours and "
        "people see no difference.",
        tags=("2am", "reward model", "accuracy", "saturated", "no progress", "on call"),
        causes=(
            Cause(
                "reward",
                "It tells easy pairs apart, and the policy's own answers, which are "
                "alike, not at all: scores crowd together.",
            ),
            Cause(
                "data",
                "The test pairs share prompts, people or near-copies with the training "
                "pairs, so accuracy says little.",
            ),
            Cause(
                "exploration", "All answers to a prompt are alike, so there is nothing to prefer."
            ),
            Cause(
                "policy",
                "The step size is too small or the KL penalty too high for anything to move.",
            ),
        ),
        checks=(
            Check(
                "Plot the rewards of the policy's newest answers.",
                reads(
                    (
                        "A narrow peak",
                        "The reward does not tell these answers apart. Compare the "
                        "spread with that on the training pairs.",
                    ),
                    ("A broad hill", "There is something to learn from: look at the update."),
                ),
                experiment="reward_plot",
            ),
            Check(
                "Score kept answers again.",
                reads(
                    ("Other scores", "Chance, truncation or another model decides the reward."),
                    ("The same", "It is at least reproducible."),
                ),
                experiment="rescore",
            ),
            Check(
                "Read clip fraction, divergence and entropy.",
                reads(
                    ("All near zero", "Nothing moves: raise the learning rate or lower kl_coef."),
                    ("They move, the reward does not", "Advantages may be noise: the critic next."),
                ),
                tab="charts",
            ),
            Check(
                "Fit the critic alone on a frozen batch.",
                reads(
                    ("It cannot", "Fix the critic before anything else."),
                    ("It can", "The signal is weak, not the critic."),
                ),
                experiment="critic_fit",
            ),
        ),
        fixes=(
            "Assess the reward model on pairs of the policy's own answers, compared by people it "
            "never learned from.",
            "Add comparisons of answers that are close in worth; they teach what is missing.",
        ),
        sources=("Lambert et al. 2024 (RewardBench)",),
        see=("answers-score-alike", "judge-pitfalls"),
    ),
    Entry(
        slug="people-disagree",
        title="At night: the people who compare answers agree less and less",
        sort="walkthrough",
        symptom="Agreement between annotators falls, and the newest reward model is worse than the "
        "one before although it learned from more.",
        tags=("2am", "annotators", "agreement", "labels", "guidelines", "on call"),
        causes=(
            Cause("data", "Prompts that allow two readings, so that both answers can be right."),
            Cause("data", "Guidelines that do not say what counts more: correct, brief or kind."),
            Cause("data", "One person, or a script, answers without reading."),
        ),
        checks=(
            Check(
                "Open the agreement page and sort by prompt and by annotator.",
                reads(
                    ("A few prompts disagree most", "Fix or drop these prompts."),
                    (
                        "One person disagrees with everybody",
                        "Look at times, sides and repeated pairs on their page, then talk to them.",
                    ),
                    ("Evenly everywhere", "The guideline: find the sentence that is missing."),
                ),
            ),
            Check(
                "Let an audit sample be judged by reviewers who do not see the votes.",
                reads(
                    ("Reviewers agree with each other", "The crowd can be taught."),
                    (
                        "They do not either",
                        "The question itself has no single answer; ask an easier "
                        "one, or accept ties.",
                    ),
                ),
            ),
            Check(
                "Ask the reward model about canary pairs.",
                reads(
                    (
                        "Worse than the model before",
                        "The new votes teach it wrong. Freeze a dataset without them and compare.",
                    ),
                    ("As good as before", "The problem has not reached the model yet."),
                ),
                experiment="canaries",
            ),
        ),
        fixes=(
            "Weigh votes by the measured reliability of each person rather than counting heads.",
            "Settle disputed pairs by review and leave out those that stay undecided; what a "
            "filter leaves out is counted on the dataset's page.",
        ),
        see=("rlhf-pitfalls", "data-checks"),
    ),
)
