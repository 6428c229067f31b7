"""Contracts that end a run: by the stable code of its failure, which link they stand for."""

from workers.diagnosis.evidence import CONTRACT, Finding

# failure kind -> (link, title, what must hold, experiment)
CONTRACTS: dict[str, tuple[str, str, str, str]] = {
    "contract_mask": (
        *("policy", "The loss covers tokens that are no answer"),
        *("as many tokens under the mask as the answer has", "minimal"),
    ),
    "contract_score_position": (
        *("policy", "The score does not lie on the answer's last token"),
        *("the score on the last real token, nothing elsewhere", "minimal"),
    ),
    "contract_done": (
        *("policy", "An answer does not end its episode"),
        *("no value beyond the last token", "minimal"),
    ),
    "contract_kl_at_start": (
        *("policy", "The reference is not the model the policy began as"),
        *("no divergence before the first update", "kl_reference"),
    ),
    "contract_reference_aliased": (
        *("policy", "The reference is the policy itself"),
        *("two models with memory of their own", "kl_reference"),
    ),
    "contract_reference_trains": (
        *("policy", "The reference is being trained"),
        *("a frozen reference", "kl_reference"),
    ),
    "contract_reference_changed": (
        *("policy", "The reference's weights have changed"),
        *("the hash it was loaded with", "kl_reference"),
    ),
    "contract_first_ratio": (
        *("freshness", "The answers were drawn by another policy than the one that learns"),
        *("a ratio of 1 before the first step of an update", "sampler"),
    ),
    "contract_stale_rollout": (
        *("freshness", "The answers are of an older policy"),
        *("the present policy's answers", "sampler"),
    ),
    "contract_sampler": (
        *("freshness", "Answers come from another distribution than the one that learns"),
        *("surprise equal to entropy within four standard errors", "sampler"),
    ),
    "non_finite": (
        *("numerics", "A number is none"),
        *("finite losses, gradients and rewards", "minimal"),
    ),
}


def finding_of_failure(step: int, kind: str, message: str) -> Finding | None:
    """The finding behind a failed run; None for a failure that says nothing about the loop.

    A run that a guardrail stopped has said why before, by its evidence.
    """
    known = CONTRACTS.get(kind)
    if known is None:
        return None
    link, title, expected, experiment = known
    return Finding(
        link=link,
        rule=kind,
        evidence_class=CONTRACT,
        step=step,
        onset=step,
        title=title,
        expected=expected,
        detail=message,
        experiment=experiment,
    )
