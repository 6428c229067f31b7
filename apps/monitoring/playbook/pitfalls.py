"""What goes wrong again and again, by field."""

from apps.monitoring.playbook.entry import Cause, Check, Entry, Table, reads

ENTRIES = (
    Entry(
        slug="reward-hacking",
        title="Reward hacking: three signs that belong together",
        sort="pitfalls",
        symptom="The policy does exactly what it is paid for, and that is not what was meant. One "
        "sign alone proves nothing; three together do.",
        tags=("goodhart", "specification gaming", "triad", "audit"),
        causes=(
            Cause("reward", "The reward is a stand-in for people, and every stand-in has holes."),
            Cause("evaluation", "Nobody looked at a measure that is not trained on."),
        ),
        checks=(
            Check("First sign: the reward rises.", tab="charts"),
            Check(
                "Second: a side figure moves too, such as length, repetition, templates, "
                "refusals, courtesy, tool calls.",
                tab="charts",
            ),
            Check(
                "Third: people, or a held-out judge, see no gain or a loss.",
                reads(
                    ("All three", "Hacking."),
                    ("Only the first two", "A change of style; let people judge it."),
                    (
                        "Only the first and the third",
                        "Noise in one of the measures, or a protocol that changed.",
                    ),
                ),
                tab="charts",
            ),
            Check(
                "Rule out a turned sign or swapped labels.",
                reads(
                    ("Known pairs come out right", "Hacking stands."),
                    ("They come out wrong", "A fault of the data, with another remedy."),
                ),
                experiment="canaries",
            ),
            Check(
                "Audit samples: high reward and low human score, twice the baseline's length, "
                "a fifth repeated.",
                tab="samples",
            ),
        ),
        fixes=(
            "One more penalty moves the hole. Log parts apart, retrain on the newest answers, "
            "keep the policy near its reference, and let people gate what goes out.",
        ),
        sources=(
            "Amodei et al. 2016",
            "Gao et al. 2022",
        ),
        see=("reward-up-benchmark-flat", "format-hacking", "refusal-hacking"),
    ),
    Entry(
        slug="rlhf-pitfalls",
        title="Pitfalls of learning from people's preferences",
        sort="pitfalls",
        symptom="What looks like a fault of PPO is often older than the run.",
        tags=("rlhf", "preferences", "annotators", "sft", "ppo"),
        causes=(Cause("data", "Most silent faults come in with the comparisons."),),
        tables=(
            Table(
                "What to look for",
                ("pitfall", "how it shows", "what helps"),
                (
                    (
                        "Length counts as quality",
                        "The rule “longer wins” is nearly as accurate as the reward model",
                        "Pairs of equal length; length as a part of its own",
                    ),
                    (
                        "The same prompts in fine-tuning and in RL",
                        "Answers copy demonstrations word for word",
                        "Keep prompts apart; watch behaviour/copied_share",
                    ),
                    (
                        "The same people in training and in test",
                        "High accuracy, then people disagree with it",
                        "Hold annotators out, not only pairs",
                    ),
                    (
                        "Votes counted by heads",
                        "One careless person moves many labels",
                        "Weigh by measured reliability",
                    ),
                    (
                        "Ties and “both bad” thrown away",
                        "Confident scores on answers nobody could tell apart",
                        "Learn from soft labels",
                    ),
                    (
                        "A raw score read as a grade",
                        "“The reward is 4.2, so it is good”",
                        "Such scores have no origin: read differences, or calibrated ones",
                    ),
                    (
                        "A price of divergence taken from a paper",
                        "The policy leaves, or does not move",
                        "Price it in deviations of your reward",
                    ),
                    (
                        "The last checkpoint shipped",
                        "Held-out score was better before",
                        "Ship best, keep last and failed to learn from",
                    ),
                    ("One seed", "The gain is gone when it is repeated", "Three seeds at least"),
                ),
            ),
        ),
        see=("judge-pitfalls", "people-disagree", "reward-hacking"),
    ),
    Entry(
        slug="judge-pitfalls",
        title="Pitfalls of judges, people and models alike",
        sort="pitfalls",
        symptom="A win rate is only as good as who decides it.",
        tags=("judge", "llm as a judge", "position bias", "win rate", "self-preference"),
        causes=(Cause("evaluation", "The judge prefers something that is not worth."),),
        tables=(
            Table(
                "Biases of judges",
                ("bias", "how to see it", "what helps"),
                (
                    (
                        "The first answer wins",
                        "Swap the sides: the verdict swaps with them",
                        "Ask in both orders, count a pair only when both agree",
                    ),
                    (
                        "The longer answer wins",
                        "Win rate against length difference",
                        "Win rates matched for length",
                    ),
                    (
                        "Its own style wins",
                        "It prefers answers of its own family",
                        "A judge from another family, and people",
                    ),
                    (
                        "Confident tone wins",
                        "Wrong answers in a firm voice win",
                        "Questions with known answers among the rest",
                    ),
                    (
                        "Lists and headings win",
                        "The same words with and without formatting",
                        "Remove the formatting before judging",
                    ),
                    (
                        "It was trained on",
                        "It rises with the reward, always",
                        "Another judge; never the reward as its own judge",
                    ),
                    (
                        "It changed",
                        "Old pairs come out differently today",
                        "Fix its version; ask known pairs every time",
                    ),
                    (
                        "It is at chance",
                        "Known pairs come out half right",
                        "Report its accuracy beside every win rate",
                    ),
                ),
            ),
        ),
        checks=(
            Check(
                "Give the judge pairs whose better answer is known, in both orders.",
                reads(
                    ("Order decides", "Position: ask both ways."),
                    ("Right in both", "It may judge this task."),
                ),
                experiment="canaries",
            ),
            Check("Repeat the evaluation under the fixed protocol.", experiment="protocol"),
        ),
        see=("protocol-changed", "rlhf-pitfalls"),
    ),
    Entry(
        slug="format-hacking",
        title="Format hacking: the right form round a wrong answer",
        sort="pitfalls",
        symptom="The part of the reward for form rises to its end, the part for being right stays "
        "flat. Answers have the tags, the boxes, the steps, and the wrong result.",
        tags=("format", "rlvr", "grpo", "verifier", "boxed", "reasoning", "tags"),
        causes=(
            Cause("reward", "Form is easier than being right, and is paid for by itself."),
            Cause(
                "reward",
                "The verifier reads the form rather than the result: the first number "
                "it finds, an empty box, a restated question.",
            ),
        ),
        checks=(
            Check(
                "Draw the parts of the reward apart (reward/component/…).",
                reads(
                    ("Form up, correctness flat", "Format hacking."),
                    ("Both up", "It learns form first and then the task, as most runs do."),
                ),
                tab="charts",
            ),
            Check("Read answers with full marks for form and none for being right.", tab="samples"),
            Check(
                "Give the verifier a right answer in an unusual form and a wrong one in a perfect "
                "form.",
                reads(
                    ("It prefers the second", "Fix the verifier."),
                    ("It does not", "Lower the weight of form."),
                ),
            ),
        ),
        fixes=(
            "Pay for form only where the answer is right, or as a small gate.",
            "Test the verifier like code: a table of answers it must accept and refuse.",
        ),
        see=("agent-pitfalls", "reward-hacking"),
    ),
    Entry(
        slug="refusal-hacking",
        title="Refusal hacking: the answer that is never wrong",
        sort="pitfalls",
        symptom="“I cannot help with that” to harmless questions, with a good score. Complaints "
        "come from users, not from the dashboard.",
        tags=("refusal", "safety", "over-refusal", "i don't know", "helpfulness"),
        causes=(
            Cause("reward", "Mistakes cost more than help earns."),
            Cause(
                "data",
                "In the comparisons a refusal mostly won, since it stood against harmful "
                "or wrong answers.",
            ),
        ),
        checks=(
            Check(
                "Watch the share of refusals on harmless and on harmful prompts apart.",
                reads(
                    ("Up on both", "Refusal hacking."),
                    ("Up on harmful ones only", "As meant."),
                ),
                tab="charts",
            ),
            Check("Compare the mean score of refusals with that of other answers.", tab="charts"),
            Check(
                "Canary pairs: a helpful answer against a refusal to a harmless prompt.",
                experiment="canaries",
            ),
        ),
        fixes=(
            "Comparisons where plain help wins on harmless prompts.",
            "Two measures, helpful and harmless, each with its own line; never only their sum.",
        ),
        see=("refusals-rise", "reward-hacking"),
    ),
    Entry(
        slug="agent-pitfalls",
        title="Agents with tools: judge the world, not the words",
        sort="pitfalls",
        symptom="The transcript says “done”. The file is not there, the booking does not exist, or "
        "forty calls were made where three would do.",
        tags=("agent", "tools", "final state", "legality", "calls", "steps", "cost", "credit"),
        causes=(
            Cause("reward", "Reports are paid for, not states: saying it is done pays."),
            Cause("reward", "Each call earns something, so there are many."),
            Cause("data", "A tool failed and the failure was recorded as success."),
            Cause("freshness", "Long trajectories end many versions after they began."),
        ),
        tables=(
            Table(
                "Four things to measure of every episode",
                ("measure", "why", "an alarm looks like"),
                (
                    (
                        "Final state of the environment",
                        "The only proof that something was done",
                        "Claims of success rise, verified success does not",
                    ),
                    (
                        "Legality of calls",
                        "A forbidden call may reach the goal",
                        "Refused or malformed calls per episode rise",
                    ),
                    (
                        "Number of calls and steps",
                        "Effort that is paid for is produced",
                        "Calls double at the same success",
                    ),
                    (
                        "Cost",
                        "Tokens, time and money are part of the result",
                        "Cost per solved task rises",
                    ),
                ),
            ),
        ),
        checks=(
            Check(
                "Compare claimed with verified success.",
                reads(
                    ("They part", "Success is only claimed: reward the state."),
                    ("They agree", "Look at calls and cost."),
                ),
                tab="charts",
            ),
            Check("Read the highest episodes call by call.", tab="samples"),
            Check(
                "Replay an episode against a fresh environment.",
                reads(
                    (
                        "Another result",
                        "The environment keeps something between episodes, or a tool "
                        "depends on time.",
                    ),
                    ("The same", "The record can be trusted."),
                ),
            ),
        ),
        fixes=(
            "Reward the verified final state; subtract for illegal calls and for cost.",
            "Store a failed tool as a failure, with its message.",
            "Give credit at checkpoints of the task rather than only at its end.",
        ),
        see=("format-hacking", "stale-answers"),
    ),
)
