"""The first stage: the data and the environment."""

from apps.monitoring.playbook.entry import Cause, Check, Entry, reads

ENTRIES = (
    Entry(
        slug="held-out-loss-rises",
        title="The held-out loss rises",
        sort="rule",
        symptom="The loss on rows the model never learns from passes its lowest value and keeps "
        "rising, while the training loss falls.",
        tags=("overfitting", "early stopping", "sft", "dpo", "reward model"),
        rules=("held_out_loss",),
        causes=(
            Cause("data", "Too few rows for so many passes: the model learns them by heart."),
            Cause("data", "Held-out rows come from elsewhere than the training rows."),
            Cause("numerics", "A step size so large that the model never settles."),
        ),
        checks=(
            Check(
                "Compare training and held-out loss in the charts.",
                reads(
                    ("They part slowly", "Learning by heart: stop at the lowest point."),
                    ("Both rise", "The step size: it is not overfitting."),
                ),
                tab="charts",
            ),
            Check("Open the dataset's report: near-copies, bias between splits, hold-outs."),
        ),
        fixes=(
            "Use the checkpoint tagged best.",
            "Fewer passes, a lower learning rate, or more varied rows.",
        ),
        see=("data-checks",),
    ),
    Entry(
        slug="labels-turned-round",
        title="The reward points the wrong way",
        sort="rule",
        symptom="Pairs whose better answer is known come out the wrong way round, at the first "
        "evaluation or from some step on. The policy dutifully learns to give worse answers.",
        tags=("sign", "labels", "swapped", "canaries", "chosen", "rejected", "inverted"),
        rules=(
            "labels_swapped",
            "reward_inverted",
            "reward_blind",
        ),
        causes=(
            Cause(
                "data",
                "Chosen and rejected were exchanged somewhere between the votes and the "
                "file: the reward model also fails on the pairs it learned from, taken as people "
                "meant them.",
            ),
            Cause(
                "reward",
                "The score enters with the wrong sign: the model agrees with its own "
                "training pairs, and the run uses it upside down.",
            ),
            Cause("reward", "It was trained on noise: it is right about half of the time."),
        ),
        checks=(
            Check(
                "Ask the reward model about pairs whose better answer is known.",
                reads(
                    ("Under half right, clearly", "Turned round. The next check says where."),
                    ("About half", "It knows nothing: look at its report, not at its sign."),
                    (
                        "Mostly right",
                        "Not this. A policy that does badly now has found a weakness.",
                    ),
                ),
                experiment="canaries",
            ),
            Check(
                "Read its accuracy on its own training pairs (eval/reward_data_accuracy).",
                reads(
                    (
                        "High there, low on canaries",
                        "Labels were swapped in the data: the model has learned them faithfully.",
                    ),
                    ("Low there too", "The sign is turned after the model."),
                ),
                tab="charts",
            ),
            Check("Read three of the training pairs by hand, with both answers."),
        ),
        fixes=(
            "Swapped labels: fix the import, freeze a new dataset, retrain the reward model.",
            "A sign: fix the reward's expression; the reward model itself is fine.",
            "Throw away what the policy learned under it.",
        ),
        see=("reward-hacking", "data-checks"),
    ),
    Entry(
        slug="masks-and-ends",
        title="Padding in the loss, a score in the wrong place, an end that is none",
        sort="rule",
        symptom="The run trains without an error, the curves move, and it learns something odd: to "
        "pad, to never end, or nothing. Or a contract stops it at its first steps.",
        tags=("mask", "padding", "done", "eos", "contract", "end of sequence"),
        rules=(
            "contract_mask",
            "contract_done",
            "contract_score_position",
            "contract_violation",
        ),
        causes=(
            Cause("data", "Tokens after the end, or of the prompt, count as part of the answer."),
            Cause("data", "The score lies on another token than the last real one."),
            Cause(
                "data",
                "A cut answer is taken for one that ended, or the other way round, so "
                "that values leak from one answer into the next.",
            ),
        ),
        checks=(
            Check(
                "Read which contract was broken and in which answer: the message counts tokens.",
                tab="logs",
            ),
            Check(
                "Repeat it in small.",
                reads(
                    (
                        "It comes back",
                        "A fault of the recipe or the tokenizer; now every change can be "
                        "tried in a minute.",
                    ),
                    (
                        "It does not",
                        "It needs the full data: look for rows longer than the limit, or "
                        "with special tokens in their text.",
                    ),
                ),
                experiment="minimal",
            ),
        ),
        fixes=(
            "No setting fixes this. Fix the code, the tokenizer or the rows, and start again: "
            "a contract never fires by chance.",
        ),
        see=("data-checks",),
    ),
    Entry(
        slug="data-checks",
        title="Before the first step: is the world real?",
        sort="walkthrough",
        symptom="A new dataset, a new environment, a new reward. Ten minutes here save a night.",
        tags=("before training", "environment", "sanity", "random policy", "preflight", "wiring"),
        causes=(
            Cause(
                "data",
                "Labels exchanged, signs turned, rows in both training and test, ends "
                "and padding mixed up.",
            ),
            Cause("reward", "A reward that does not tell a good answer from noise."),
        ),
        checks=(
            Check(
                "Read twenty rows as the model will see them, with the template and the special "
                "tokens, not as they lie in the file."
            ),
            Check(
                "Score real answers and random ones.",
                reads(
                    ("Real ones are not clearly better", "Do not train: the reward cannot tell."),
                    ("Clearly better", "Continue."),
                ),
                tab="checks",
            ),
            Check(
                "Score what a simple rule of your own would answer.",
                reads(
                    ("The rule wins outright", "The reward can be pleased by a trick you know of."),
                    ("Between random and real", "As it should be."),
                ),
            ),
            Check(
                "Look at the histogram of the rewards of the starting policy.",
                reads(
                    ("Nearly all at the bottom", "Too sparse: easier prompts, or partial credit."),
                    ("Nearly all at the top", "Too easy: nothing is left to learn."),
                    ("A hill with a few far out", "Clip, and read the ones far out."),
                ),
                experiment="reward_plot",
            ),
            Check("Fit the critic alone on one frozen batch.", experiment="critic_fit"),
            Check(
                "Open the dataset's report: overlap of prompts between fine-tuning and RL, "
                "near-copies, hold-outs of people."
            ),
        ),
        fixes=(
            "Concord does most of this before the first step of a run (preflight) and stops it "
            "when the answer is no.",
        ),
        see=("reward-histograms", "labels-turned-round", "masks-and-ends"),
    ),
)
