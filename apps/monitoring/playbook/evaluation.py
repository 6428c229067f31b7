"""The evaluation protocol, and what it says of the model."""

from apps.monitoring.playbook.entry import Cause, Check, Entry, reads

ENTRIES = (
    Entry(
        slug="held-out-falls",
        title="The held-out score falls while the reward rises",
        sort="rule",
        symptom="The policy scores better and better by the reward it is trained on, and worse by "
        "another model that never trains, or by people.",
        tags=("overoptimisation", "goodhart", "hacking", "judge", "best checkpoint"),
        rules=("held_out_down",),
        causes=(
            Cause("reward", "The policy has found what this reward likes and people do not."),
            Cause(
                "policy",
                "It has gone further from its reference than the reward's training answers reach.",
            ),
            Cause("evaluation", "The judge is asked in another way than at the beginning."),
        ),
        checks=(
            Check(
                "Make sure that both checkpoints were asked alike.",
                reads(
                    ("They agree when asked alike", "The protocol changed, not the model."),
                    ("They do not", "The fall is real."),
                ),
                experiment="protocol",
            ),
            Check("Read the highest answers beside the baseline's.", tab="samples"),
            Check(
                "Ask the reward model about known pairs.",
                reads(
                    ("Mostly right", "Hacking: a weakness out of its range."),
                    ("Under half right", "A sign or labels, not hacking."),
                ),
                experiment="canaries",
            ),
        ),
        fixes=(
            "Use the checkpoint tagged best.",
            "Compare newest answers with people and retrain the reward model.",
            "An ensemble, its lowest member or its mean less its spread, holds out longer than "
            "one model.",
        ),
        sources=(
            "Gao et al. 2022",
            "Coste et al. 2023",
        ),
        see=("reward-up-benchmark-flat", "reward-hacking"),
    ),
    Entry(
        slug="protocol-changed",
        title="The evaluation is no longer the same evaluation",
        sort="rule",
        symptom="A score jumps from one evaluation to the next although nothing happened in "
        "training. Its number cannot be compared with the ones before.",
        tags=("temperature", "max tokens", "template", "test set", "seed", "prompts"),
        rules=(
            "protocol_changed",
            "evaluation_apart",
        ),
        causes=(
            Cause("evaluation", "Other prompts, another temperature, limit, template or seed."),
            Cause("evaluation", "Another judge, or another version of it."),
        ),
        checks=(
            Check(
                "Repeat the evaluation under the fixed protocol.",
                reads(
                    (
                        "First and last agree with their old numbers",
                        "Only the changed one is wrong.",
                    ),
                    ("They differ in the same way", "The model changed."),
                ),
                experiment="protocol",
            ),
            Check("Compare the configurations of the two evaluations.", tab="config"),
        ),
        fixes=(
            "Write down prompts, sampling, limit, template, tools, time limit and seed as one "
            "protocol, and give a changed one a new name.",
            "Measure the earlier checkpoints again under the new protocol before you compare.",
        ),
        sources=("Machado et al. 2018",),
        see=("splits-and-their-uses",),
    ),
    Entry(
        slug="not-reproducible",
        title="The same answer gets another score",
        sort="rule",
        symptom="Answers kept from the beginning are scored again at each evaluation. Their scores "
        "should be equal to the last digit, and are not.",
        tags=("reproducibility", "reward version", "dropout", "truncation", "service"),
        rules=("reward_not_reproducible",),
        causes=(
            Cause("reward", "The reward model was exchanged, or a service behind it was."),
            Cause("reward", "Dropout or sampling is on where it should be off."),
            Cause("reward", "The text is cut at another place: another limit or template."),
        ),
        checks=(
            Check(
                "Score kept answers with the registered model.",
                reads(
                    ("All moved by about the same", "Another normalisation or another model."),
                    ("Some moved, mostly long ones", "Truncation."),
                    ("All moved a little, at random", "Chance in the scorer."),
                ),
                experiment="rescore",
            ),
        ),
        fixes=(
            "Name the reward by its checkpoint, not by an address that may change.",
            "Restart from the last checkpoint before the change.",
        ),
        see=("reward-jumped",),
    ),
)
