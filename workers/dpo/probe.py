"""While a DPO run goes on: answers to fixed held-out prompts, and how far from the reference."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from peft import PeftModel
from transformers import PreTrainedTokenizerBase, TrainerCallback

from workers.context import RunContext
from workers.data.snapshot import Messages
from workers.dpo.reference import on_device
from workers.recipes.samples import choose, emit_samples, encode_fitting
from workers.recipes.settings.preference import DPOSettings
from workers.reference import Reference
from workers.rollouts.answers import Answer, answer
from workers.rollouts.sampling import Sampling


class Probe(TrainerCallback):
    """At every evaluation: answers to fixed prompts, and how far they lie from the reference."""

    def __init__(
        self,
        context: RunContext,
        settings: DPOSettings,
        policy: Any,
        reference: Reference,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Messages],
        max_length: int,
        look: Callable[[int, Mapping[str, float]], None],
    ) -> None:
        """`look` has the guardrails look at the figures of a step."""
        self.look = look
        self.context = context
        # Adapters sit in the layers, so the model below them answers as the policy.
        self.policy = policy.get_base_model() if isinstance(policy, PeftModel) else policy
        self.reference = reference
        self.tokenizer = tokenizer
        self.sampling = Sampling(settings.sample_max_new_tokens, seed=context.spec.seed)
        fitting, ids = encode_fitting(
            tokenizer, prompts, max(1, max_length - settings.sample_max_new_tokens)
        )
        chosen = choose(len(fitting), settings.sample_prompts, context.spec.seed)
        self.prompts = [fitting[i] for i in chosen]
        self.ids = [ids[i] for i in chosen]
        self.answers: list[Answer] = []
        self.kl: float | None = None

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.ids:
            return
        self.policy.eval()
        with on_device(self.reference, self.policy.device) as reference:
            self.answers = answer(
                self.policy, self.tokenizer, self.ids, self.sampling, reference=reference
            )
        nats = [given.kl or 0.0 for given in self.answers]
        tokens = [given.tokens for given in self.answers]
        self.kl = sum(nats) / len(nats)
        figures = {
            "objective/kl": self.kl,
            "objective/kl_per_token": sum(nats) / sum(tokens),
            "response/length": sum(tokens) / len(tokens),
        }
        self.context.metrics(state.global_step, figures)
        self.look(state.global_step, figures)

    def show(self, step: int) -> None:
        """The last answers, each beside the reference's own."""
        if self.answers:
            with (
                on_device(self.reference, self.policy.device) as reference,
                reference.weights() as model,
            ):
                baselines = answer(model, self.tokenizer, self.ids, self.sampling)
            emit_samples(self.context, step, self.prompts, self.answers, baselines=baselines)
