"""The critic, freshness, numerics and resources."""

from apps.monitoring.playbook.entry import Cause, Check, Entry, reads

_FIT = Check(
    "Fit the critic alone on one frozen batch.",
    reads(
        ("It cannot", "A dead head, a step size of nothing, or a return it cannot see."),
        ("It can", "The problem comes from a policy that moves under it."),
    ),
    experiment="critic_fit",
)
_SAMPLER = Check(
    "Draw answers again and compare their surprise with the entropy.",
    reads(
        ("They differ", "Temperature, a filter or old weights lie between sampler and trainer."),
        ("They agree", "One distribution: look at the update."),
    ),
    experiment="sampler",
)

ENTRIES = (
    Entry(
        slug="critic-explains-nothing",
        title="The critic explains nothing",
        sort="rule",
        symptom="Explained variance stays under zero: a constant would predict the returns better. "
        "Every untrained critic begins so; what counts is that it stays.",
        tags=("explained variance", "value head", "advantage", "value loss", "dead critic"),
        rules=(
            "explained_variance",
            "critic_dead",
            "critic_flat",
            "critic_unusual",
        ),
        causes=(
            Cause(
                "critic", "Its head does not learn: frozen, detached, or a step size of nothing."
            ),
            Cause("critic", "Values and returns are on different scales."),
            Cause("reward", "Returns are noise, so there is nothing to predict."),
        ),
        checks=(
            _FIT,
            Check(
                "Compare value_scale: deviation of values over that of returns.",
                reads(
                    ("Far under one", "It predicts next to nothing: its step size or its scale."),
                    ("Far over one", "It blows up: see that entry."),
                ),
                tab="charts",
            ),
            Check("Score kept answers again.", experiment="rescore"),
        ),
        fixes=(
            "Raise value_learning_rate or critic_warmup_steps; a separate critic; normalised "
            "returns.",
        ),
        see=("critic-table", "values-blow-up"),
    ),
    Entry(
        slug="values-blow-up",
        title="The critic's values leave the scale of the returns",
        sort="rule",
        symptom="Values vary five times as much as the returns they estimate.",
        tags=("value", "explosion", "scale", "value_clip"),
        rules=("value_blow_up",),
        causes=(
            Cause("critic", "A step size that is too high for the head."),
            Cause("reward", "The reward's scale jumped."),
            Cause("numerics", "Half precision overflows in the head."),
        ),
        checks=(
            Check("Did the reward's spread jump at the same step?", tab="charts"),
            _FIT,
        ),
        fixes=("Lower value_learning_rate, clip values, normalise returns.",),
        see=("critic-table",),
    ),
    Entry(
        slug="stale-answers",
        title="Answers of an older policy",
        sort="rule",
        symptom="The answers that are learned from were drawn some versions ago, or their recorded "
        "probabilities are not those of the policy that drew them.",
        tags=("stale", "lag", "off-policy", "asynchronous", "version", "relabelled"),
        rules=(
            "stale",
            "contract_stale_rollout",
            "answers_old",
        ),
        causes=(
            Cause("freshness", "Workers that draw are slower than the one that learns."),
            Cause("freshness", "A buffer that hands old answers out as new ones."),
            Cause("resources", "A slow reward model or tool holds answers back."),
        ),
        checks=(
            Check("Which version drew each answer, and which learns (rollout/lag)?", tab="charts"),
            _SAMPLER,
            Check("Where does the time go?", tab="charts"),
        ),
        fixes=(
            "Refuse answers that are more than one version old; bound the queue between "
            "drawing and learning.",
            "Make the slow part faster before anything is made asynchronous.",
        ),
        see=("not-the-same-model", "who-waits"),
    ),
    Entry(
        slug="not-the-same-model",
        title="Sampler and trainer are not the same model",
        sort="rule",
        symptom="The answers are more, or less, surprising to the policy than its own entropy says "
        "they should be.",
        tags=(
            "sampler",
            "temperature",
            "top-p",
            "vllm",
            "log-probability",
            "mismatch",
            "precision",
        ),
        rules=(
            "contract_sampler",
            "sampler_apart",
            "extreme_logprob",
        ),
        causes=(
            Cause(
                "freshness",
                "A temperature, a nucleus or a penalty in the sampler that the "
                "trainer does not know of.",
            ),
            Cause("freshness", "The sampler still holds older weights."),
            Cause("numerics", "Another precision or another attention kernel."),
        ),
        checks=(
            _SAMPLER,
            Check("Compare the sampler's settings with the configuration.", tab="config"),
            Check(
                "Reproduce it in small with the plain sampler.",
                reads(
                    ("Gone", "The fast sampler is at fault."),
                    ("Still there", "Settings or weights."),
                ),
                experiment="minimal",
            ),
        ),
        fixes=(
            "Draw at temperature 1 without filters, or divide the trainer's logits alike.",
            "Send weights after every update and check their version.",
        ),
        see=("stale-answers", "minibatches-skipped"),
    ),
    Entry(
        slug="not-a-number",
        title="A number is NaN or infinite",
        sort="rule",
        symptom="A loss, a gradient or a probability is no number. It is seldom the first sign: "
        "gradients, log-probabilities or rewards went to extremes some steps before.",
        tags=("nan", "inf", "overflow", "fp16", "bf16"),
        rules=(
            "non_finite",
            "numbers_none",
        ),
        causes=(
            Cause("numerics", "Half precision overflows (over 65,504 in float16)."),
            Cause("policy", "A step size at which weights explode."),
            Cause("reward", "An infinite or absurd reward."),
            Cause("data", "An empty answer: a mean over nothing."),
        ),
        checks=(
            Check(
                "Which was extreme in the fifty steps before: gradient, log-probability, reward "
                "or value?",
                tab="charts",
            ),
            Check(
                "Reproduce it in small in full precision.",
                reads(
                    ("Gone", "Precision."),
                    ("Still there", "The step size or the data."),
                ),
                experiment="minimal",
            ),
            Check("Try a tenth of the learning rate.", experiment="slower"),
        ),
        fixes=(
            "bfloat16 or float32 rather than float16; a lower learning rate; look at the rows "
            "of that step.",
            "Resume from last: weights with a NaN in them are never saved as last or best.",
        ),
        see=("numerics-table", "gradient-jumps"),
    ),
    Entry(
        slug="gradient-jumps",
        title="The gradient or the loss jumps",
        sort="rule",
        symptom="The norm of the gradient is ten times its usual maximum, or the training loss "
        "leaves its course.",
        tags=("gradient", "norm", "spike", "loss", "divergence", "warm-up"),
        rules=(
            "gradient",
            "loss_jump",
        ),
        causes=(
            Cause("numerics", "A step size too high for this model, or no warm-up."),
            Cause("data", "One strange row or answer."),
            Cause("reward", "An outlier among the rewards."),
        ),
        checks=(
            Check("Look at the answers or rows of that step.", tab="samples"),
            Check(
                "Once, or again and again?",
                reads(
                    ("Once", "It was clipped. A row, most likely."),
                    ("Again and again", "The step size."),
                ),
                tab="charts",
            ),
            Check("Try a tenth of the learning rate.", experiment="slower"),
        ),
        fixes=("Keep max_grad_norm; lower the learning rate; lengthen the warm-up.",),
        see=("numerics-table", "not-a-number"),
    ),
    Entry(
        slug="who-waits",
        title="A step takes too long: who waits for whom?",
        sort="rule",
        symptom="Steps grow slower, the graphics card idles, or memory runs out.",
        tags=("throughput", "slow", "oom", "memory", "bottleneck", "reward model", "queue"),
        rules=(
            "reward_slow",
            "out_of_memory",
        ),
        causes=(
            Cause("resources", "The reward model answers one text at a time."),
            Cause("resources", "Answers run to the limit, so drawing takes all the time."),
            Cause("resources", "Models, moments and activations do not fit together."),
        ),
        checks=(
            Check(
                "Read the shares of a step: drawing, scoring, waiting, updating.",
                reads(
                    (
                        "Waiting for scores",
                        "Batch the reward model, give it its own worker, or cache.",
                    ),
                    ("Drawing", "Shorter limits, larger batches, a fast sampler."),
                    ("Updating", "Micro batches and memory."),
                ),
                tab="checks",
            ),
            Check(
                "Score kept answers with the registered model, with times.", experiment="rescore"
            ),
        ),
        fixes=(
            "Out of memory: smaller micro batch and length first, then checkpointed "
            "activations, adapters, sharding.",
            "A part that grew slow makes answers stale when sampling is asynchronous: fix it "
            "before it becomes a matter of learning.",
        ),
        see=("memory-table", "stale-answers"),
    ),
)
