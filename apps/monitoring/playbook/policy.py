"""The update of the policy: how far, how fast, from what."""

from apps.monitoring.playbook.entry import Cause, Check, Entry, reads

_SLOWER = Check(
    "Repeat a short run with a tenth of the learning rate.",
    reads(
        ("The problem is gone", "Steps were too large."),
        ("It stays", "The step size is not to blame."),
    ),
    experiment="slower",
)
_EPOCHS = Check(
    "Repeat it with one pass over each batch.",
    reads(
        ("The problem is gone", "Too many passes over the same answers."),
        ("It stays", "Look at the scale of the advantages."),
    ),
    experiment="fewer_epochs",
)
_REFERENCE = Check(
    "Recompute the divergence from the registered reference.",
    reads(
        ("Another number", "The run held another reference, or itself."),
        ("The same", "The policy has really moved this far."),
    ),
    experiment="kl_reference",
)

ENTRIES = (
    Entry(
        slug="update-cut-short",
        title="Updates stopped early (KL)",
        sort="rule",
        symptom="Within one update the policy moves past twice update_kl_target from the one that "
        "drew the answers, so the rest of the update is dropped. Once is the brake at work; three "
        "times in five is a trend.",
        tags=("kl", "early stopping", "trust region", "approxkl"),
        rules=(
            "update_kl",
            "update_too_large",
            "update_cut_short",
            "update_unusual",
        ),
        causes=(
            Cause("policy", "The learning rate is too high, or there are too many passes."),
            Cause("reward", "A jump in the reward's scale makes advantages sharper."),
            Cause(
                "freshness",
                "Answers of an older policy: the distance is there before the update begins.",
            ),
        ),
        checks=(_SLOWER, _EPOCHS),
        fixes=("Halve the learning rate; fewer update_epochs; larger batches.",),
        sources=("Schulman et al. 2017",),
        see=("reward-down-kl-spike", "clipped-away"),
    ),
    Entry(
        slug="far-from-reference",
        title="The policy is far from its reference",
        sort="rule",
        symptom="More than ten nats per answer lie between the policy and its reference, or the "
        "distance rises faster than the reward.",
        tags=("kl", "divergence", "drift", "kl_coef", "beta"),
        rules=(
            "reference_kl",
            "divergence_unpriced",
            "divergence_unusual",
        ),
        causes=(
            Cause("policy", "The price of divergence is low for what this reward pays, or zero."),
            Cause("reward", "The reward pays for something far out."),
            Cause("policy", "The reference is not the model that training started from."),
        ),
        checks=(
            _REFERENCE,
            Check(
                "Try four times the price in a short run.",
                reads(
                    ("It stays near", "The price was too low."),
                    ("It leaves all the same", "Steps are too large."),
                ),
                experiment="dearer_kl",
            ),
        ),
        fixes=(
            "Raise kl_coef (beta in DPO), or let it adapt to a target.",
            "Out here the reward means less: compare with people before you believe it.",
        ),
        notes=(
            "No single number of nats is right for every task: longer answers carry more. Read "
            "the divergence beside the held-out score.",
        ),
        sources=("Gao et al. 2022",),
        see=("kl-explodes", "held-out-falls"),
    ),
    Entry(
        slug="wrong-reference",
        title="The reference is not the reference",
        sort="rule",
        symptom="The divergence is not zero before the first step, or stays exactly zero however "
        "much the policy changes, or a contract about the reference stops the run.",
        tags=("reference", "aliased", "checkpoint", "kl zero", "hash"),
        rules=(
            "contract_reference_aliased",
            "contract_reference_trains",
            "contract_reference_changed",
            "contract_kl_at_start",
            "reference_off_at_start",
            "reference_moves_along",
        ),
        causes=(
            Cause("policy", "Another checkpoint was loaded as the reference."),
            Cause("policy", "Policy and reference share their weights, so that both learn."),
        ),
        checks=(
            Check(
                "Look at the divergence at step 0 and after ten steps.",
                reads(
                    ("Not 0 at step 0", "Another checkpoint."),
                    ("0 after ten steps although the policy changed", "Shared weights."),
                ),
                tab="charts",
            ),
            _REFERENCE,
            Check("Compare the hashes of the inputs.", tab="lineage"),
        ),
        fixes=(
            "Name the reference by its checkpoint and start again from the beginning: every "
            "price that was paid for divergence was wrong.",
        ),
        see=("kl-explodes",),
    ),
    Entry(
        slug="clipped-away",
        title="Most of the update is clipped away",
        sort="rule",
        symptom="Two fifths of the tokens or more have a ratio outside the clip range, in three of "
        "five updates. Clipped tokens give no gradient: the brake is on all the time.",
        tags=("clip fraction", "ppo", "epochs", "learning rate", "0.4", "0.5"),
        rules=(
            "clip_fraction",
            "clipped_often",
            "clipping_unusual",
        ),
        causes=(
            Cause("policy", "Too many passes over a batch, or too large a step."),
            Cause(
                "freshness", "Ratios begin far from one, because an older policy drew the answers."
            ),
        ),
        checks=(
            _EPOCHS,
            _SLOWER,
            Check(
                "Look whether ratios begin at one.",
                reads(
                    ("They do not", "Sampler and trainer differ."),
                    ("They do", "The update is too large."),
                ),
                experiment="sampler",
            ),
        ),
        fixes=("One pass less, then half the learning rate; one at a time.",),
        see=("update-cut-short", "not-the-same-model"),
    ),
    Entry(
        slug="minibatches-skipped",
        title="Minibatches were skipped for their ratio",
        sort="rule",
        symptom="The probability of an answer changed more than tenfold within one update, so its "
        "minibatch gave no gradient.",
        tags=("ratio", "ratio_limit", "importance"),
        rules=(
            "ratio",
            "contract_first_ratio",
        ),
        causes=(
            Cause("policy", "A step far too large."),
            Cause(
                "freshness",
                "Sampler and trainer disagree about the probability of the very same tokens.",
            ),
        ),
        checks=(
            Check(
                "Compare surprise and entropy on freshly drawn answers.",
                reads(
                    ("They differ", "Sampler and trainer are two models."),
                    ("They agree", "The step size."),
                ),
                experiment="sampler",
            ),
            _SLOWER,
        ),
        fixes=(
            "A lower learning rate; if it stays, look for another precision, temperature or "
            "adapter in the sampler.",
        ),
        see=("not-the-same-model",),
    ),
    Entry(
        slug="progress-turns",
        title="The reward rises, then falls back",
        sort="walkthrough",
        symptom="Progress turns round, or the curve swings up and down with growing strokes.",
        tags=("oscillation", "instability", "swing", "regression"),
        causes=(
            Cause("policy", "Steps so large that each overshoots."),
            Cause(
                "critic", "The critic lags behind, so advantages have the wrong sign for a while."
            ),
            Cause("freshness", "Answers are several versions old."),
        ),
        checks=(
            Check("See which moved first: explained variance, clip fraction or lag.", tab="charts"),
            _SLOWER,
            Check("Fit the critic alone.", experiment="critic_fit"),
        ),
        fixes=("Roll back to best; go on with smaller steps.",),
        see=("reward-down-kl-spike", "critic-explains-nothing"),
    ),
)
