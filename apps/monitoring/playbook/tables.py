"""Tables to look things up in."""

from apps.monitoring.playbook.entry import Cause, Check, Entry, Table, reads

ENTRIES = (
    Entry(
        slug="which-link-first",
        title="Which stage broke first? The order to check",
        sort="reference",
        symptom="A problem in an earlier stage explains those in later ones. Check in this "
        "order, and stop at the first broken stage; settings are the last thing to touch.",
        tags=("order", "chain", "links", "diagnosis", "start here", "method"),
        rules=("cause_found",),
        tables=(
            Table(
                "The nine stages",
                ("stage", "the question", "what speaks for it"),
                (
                    ("data / environment", "Is the world real?", "Labels, signs, masks, ends"),
                    (
                        "evaluation protocol",
                        "Is it the same measure as before?",
                        "A jump between two evaluations and none in training",
                    ),
                    (
                        "reward",
                        "Does it say what people would say, and tell answers apart?",
                        "Known pairs, histograms, answers with high scores",
                    ),
                    (
                        "policy update",
                        "Is each step of a sensible size, from the right reference?",
                        "Divergence, clip fraction, ratios",
                    ),
                    (
                        "critic",
                        "Are advantages more than noise?",
                        "Explained variance, value scale",
                    ),
                    (
                        "exploration",
                        "Is there something to choose from?",
                        "Entropy, distinct answers, silent groups",
                    ),
                    (
                        "freshness",
                        "Do the answers come from the policy that learns?",
                        "Lag, surprise against entropy",
                    ),
                    ("numerics", "Are these numbers?", "NaN, gradients, extreme probabilities"),
                    ("resources", "Who waits for whom?", "Seconds per part of a step, memory"),
                ),
            ),
        ),
        notes=(
            "The verdict of a run names the finding with the earliest start; where several began "
            "together, the earliest stage goes first and the others are listed as alternatives.",
            "Change one thing at a time, in a run of minutes. An experiment with two changes "
            "answers no question.",
        ),
        see=("data-checks", "during-a-run"),
    ),
    Entry(
        slug="reward-histograms",
        title="Shapes of the reward's histogram",
        sort="reference",
        symptom="The picture to draw before a run, and again whenever the reward is suspected.",
        tags=("histogram", "distribution", "sparse", "outliers", "saturated"),
        causes=(Cause("reward", "Its shape says what can be learned from it."),),
        tables=(
            Table(
                "What each shape means",
                ("shape", "means", "do"),
                (
                    (
                        "Nearly all at the lowest value",
                        "Success is too rare to be met",
                        "Partial credit, easier prompts, more answers per prompt",
                    ),
                    (
                        "Nearly all at the highest",
                        "Too easy, or hacked",
                        "Harder prompts; read the answers",
                    ),
                    (
                        "A narrow peak in between",
                        "It cannot tell these answers apart",
                        "Comparisons of close answers",
                    ),
                    (
                        "A hill and a long tail",
                        "A few decide the update",
                        "Clip, normalise, read them",
                    ),
                    (
                        "Two hills",
                        "Two kinds of prompts or answers: perhaps refusals and others",
                        "Look at them apart",
                    ),
                    (
                        "A broad hill, unrelated to people",
                        "It measures something else",
                        "Known pairs, then other comparisons",
                    ),
                    ("A broad hill that agrees with people", "As it should be", "Train"),
                ),
            ),
        ),
        checks=(Check("Draw it from this run's newest answers.", experiment="reward_plot"),),
        see=("data-checks", "rewards-rare"),
    ),
    Entry(
        slug="exploration-table",
        title="Entropy and progress: four corners",
        sort="reference",
        symptom="Entropy alone says little. Read it beside the reward, and beside how different "
        "the answers are.",
        tags=("entropy", "diversity", "quadrant"),
        causes=(Cause("exploration", "Two figures, four corners."),),
        tables=(
            Table(
                "What each corner means",
                ("what is seen", "likely cause", "try"),
                (
                    (
                        "Entropy falls fast",
                        "A steep reward, cheap divergence, large steps",
                        "A bonus on entropy, a higher KL penalty, a lower learning rate",
                    ),
                    (
                        "Entropy stays high, no progress",
                        "A sparse reward, small steps, noisy advantages",
                        "Partial credit, more answers, the critic",
                    ),
                    (
                        "Different answers, no progress",
                        "The reward does not tell them apart",
                        "Another reward, or prompts of graded difficulty",
                    ),
                    ("Like answers, high reward", "A template that pays", "Read them; known pairs"),
                    ("Entropy falls, held-out score rises", "Learning", "Nothing"),
                ),
            ),
        ),
        see=("stopped-exploring", "template", "explores-and-learns-nothing"),
    ),
    Entry(
        slug="critic-table",
        title="Signals of a critic",
        sort="reference",
        symptom="For PPO and other methods with a value head. GRPO has none: look at rewards "
        "within a group instead.",
        tags=("value", "explained variance", "advantage"),
        causes=(Cause("critic", "Its errors become the policy's direction."),),
        tables=(
            Table(
                "What each signal means",
                ("signal", "means", "do"),
                (
                    (
                        "Value loss does not fall",
                        "Returns are not being fitted",
                        "Fit it alone on a frozen batch",
                    ),
                    (
                        "Explained variance under 0 for long",
                        "A constant would do better",
                        "Its learning rate, its warm-up, its scale",
                    ),
                    (
                        "Explained variance near 1 at once",
                        "Returns can be read off the prompt: answers do not matter",
                        "Look at the reward",
                    ),
                    (
                        "Values far smaller than returns",
                        "Scale, or a step size of nothing",
                        "Normalise returns",
                    ),
                    ("Values far larger", "It blows up", "Lower its step size, clip"),
                    (
                        "Reward swings to and fro",
                        "The policy is pushed about by noise",
                        "Critic first, then smaller steps",
                    ),
                ),
            ),
        ),
        checks=(Check("Fit the critic alone on one frozen batch.", experiment="critic_fit"),),
        see=("critic-explains-nothing", "values-blow-up"),
    ),
    Entry(
        slug="numerics-table",
        title="Before a NaN: early signs",
        sort="reference",
        symptom="NaN hardly ever comes alone. These speak first.",
        tags=("nan", "overflow", "gradient", "precision"),
        causes=(Cause("numerics", "Something went to an extreme some steps before."),),
        tables=(
            Table(
                "Signs and remedies",
                ("sign", "look at", "remedy"),
                (
                    (
                        "Gradient far over its usual maximum",
                        "Largest and 95 % quantile of the norm",
                        "Clip; a lower learning rate",
                    ),
                    (
                        "Log-probabilities of −30 and below",
                        "Masks; sampler against trainer",
                        "Fix the mismatch; do not clamp it away",
                    ),
                    ("Loss scale falls and falls", "Steps skipped under float16", "bfloat16"),
                    ("A reward far from all others", "Its text", "Clip; fix the reward"),
                    ("Values grow without end", "Returns against values", "Normalise returns"),
                ),
            ),
        ),
        see=("not-a-number", "gradient-jumps"),
    ),
    Entry(
        slug="memory-table",
        title="Where memory goes",
        sort="reference",
        symptom="PPO holds up to four models at once, and what is in between is larger than it "
        "looks.",
        tags=("memory", "oom", "lora", "zero", "fsdp", "checkpointing"),
        causes=(Cause("resources", "Four accounts, each with its own remedy."),),
        tables=(
            Table(
                "Four accounts",
                ("what", "why it is large", "remedy"),
                (
                    (
                        "Weights",
                        "Policy, critic, reference and reward model together",
                        "Share a trunk, keep the frozen ones in half precision or elsewhere",
                    ),
                    (
                        "Moments of the optimiser",
                        "Two numbers for each weight that trains",
                        "Adapters, 8-bit moments, sharding",
                    ),
                    ("Gradients", "One number for each weight that trains", "Adapters, freezing"),
                    (
                        "Activations",
                        "Batch × length × layers",
                        "Smaller micro batch, shorter limit, checkpointing",
                    ),
                ),
            ),
        ),
        notes=("The memory ledger among a run's checks does this sum before the first step.",),
        see=("who-waits",),
    ),
    Entry(
        slug="splits-and-their-uses",
        title="Which set for what, and how often to use it",
        sort="reference",
        symptom="Every decision based on a test set trains on it a little.",
        tags=("splits", "contamination", "private test", "dev", "leakage"),
        causes=(Cause("evaluation", "A test set used for many decisions no longer tests."),),
        tables=(
            Table(
                "Five sets",
                ("set", "for", "used"),
                (
                    ("smoke", "Does it run at all?", "always"),
                    ("dev", "Choosing settings and rewards", "often, and it is written down"),
                    ("public test", "Comparison with others", "seldom"),
                    ("private test", "The gate before anything goes out", "once per release"),
                    ("audited by people", "Calibrating rewards and judges", "at intervals"),
                ),
            ),
        ),
        see=("protocol-changed", "judge-pitfalls"),
    ),
    Entry(
        slug="during-a-run",
        title="Before, during and after a run",
        sort="reference",
        symptom="Three lists to go through.",
        tags=("checklist", "before", "during", "after", "keep"),
        tables=(
            Table(
                "Before",
                ("look at", "ask"),
                (
                    ("Rows as the model sees them", "Template, ends, masks right?"),
                    ("Rewards of random, simple and real answers", "In this order, clearly apart?"),
                    ("Histogram of rewards", "Is there a hill?"),
                    ("Protocol", "Written down, with seed and prompts?"),
                    ("Memory", "Does the ledger fit?"),
                ),
            ),
            Table(
                "During",
                ("when you see", "do"),
                (
                    ("Divergence jumps", "Stop, roll back, smaller steps"),
                    ("Clip fraction stays high", "Fewer passes"),
                    ("Entropy falls fast", "Read random answers"),
                    ("Explained variance stays under 0", "Fit the critic alone"),
                    ("Reward up, held-out down", "Read the highest answers at once"),
                    ("Length doubles", "Rewards against length"),
                    ("Slower and slower", "Who waits for whom?"),
                ),
            ),
            Table(
                "After: what to keep",
                ("keep", "because"),
                (
                    ("best", "The last step is seldom the best one"),
                    ("last", "To go on, or to see how it ended"),
                    ("failed", "What it looked like before it broke"),
                    ("Audited answers", "Whether the reward was fooled"),
                    ("Several seeds", "One success may be luck"),
                    ("The lesson of each incident", "The next person on call"),
                ),
            ),
        ),
        see=("which-link-first", "data-checks"),
    ),
    Entry(
        slug="thresholds-read-literally",
        title="What well-known thresholds do when read literally",
        sort="reference",
        symptom="Guides give plain numbers: a z-score over 3, a mean over 0.8, entropy under 0.1, "
        "a batch two deviations off. Taken as they stand, they alarm on every run that learns.",
        tags=("thresholds", "false alarms", "z-score", "sigma", "3σ", "2σ", "alert fatigue"),
        causes=(
            Cause(
                "evaluation",
                "An alarm that always rings is switched off, also on the day it is right.",
            ),
        ),
        tables=(
            Table(
                "Why each fails, and what Concord does instead",
                ("rule as written", "what it does", "instead"),
                (
                    (
                        "A batch two deviations from the mean",
                        "Rings in pure noise: 11 times in 500 healthy batches of a simulation",
                        "Three of five evaluations, and an effect that matters",
                    ),
                    (
                        "|z| > 3 by the deviation of single answers",
                        "A mean of 64 answers is eight "
                        "times steadier than one answer: real shifts pass unseen",
                        "The error of the mean, of answers that are not independent",
                    ),
                    (
                        "|z| > 3 against the start",
                        "Learning itself moves the mean: every good run alarms",
                        "Against the run's own trend, or healthy runs at the same step",
                    ),
                    (
                        "Mean reward over 0.8",
                        "Raw scores have no origin: adding 10 to all of them "
                        "changes nothing and alarms",
                        "The calibrated score, and only as a note",
                    ),
                    (
                        "A fifth over the baseline's 90 % quantile",
                        "Passed by every run that learns",
                        "Off unless chosen",
                    ),
                    (
                        "Entropy under 0.1 nats",
                        "A task with one right answer ends there rightly",
                        "The higher of 0.1 and 30 % of the start",
                    ),
                    (
                        "Divergence over 10 nats",
                        "Per answer or per token? They differ by the length",
                        "Always with its unit, beside the held-out score",
                    ),
                    (
                        "Explained variance under 0",
                        "True of every critic at its start",
                        "After twenty evaluations, and for eight of ten",
                    ),
                    (
                        "Reward over 0.9 quantile",
                        "By definition a tenth of the answers",
                        "Only together with a low human score",
                    ),
                ),
            ),
        ),
        notes=(
            "How often healthy runs alarm here is measured, and printed in the documentation of "
            "the guardrails and of the diagnosis.",
        ),
        checks=(
            Check(
                "Before you tighten a threshold, ask it about a healthy run.",
                reads(
                    ("It alarms", "It measures learning, not a problem."),
                    ("It does not", "Plant the fault and see whether it alarms then."),
                ),
            ),
        ),
        sources=("Andrychowicz et al. 2020",),
        see=("which-link-first", "near-the-top"),
    ),
)
