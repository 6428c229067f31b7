"""While a DPO run goes on: answers to fixed held-out prompts, and how far from the reference."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainerCallback

from workers import ranks
from workers.config.training import DPOSettings
from workers.context import RunContext
from workers.data.snapshot import Messages
from workers.dpo.reference import on_device
from workers.models.lora import body_of
from workers.models.reference import Reference
from workers.rollouts.answers import Answer, answer
from workers.rollouts.sampling import Sampling
from workers.trainers.samples import choose, emit_samples, encode_fitting


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
        # The policy as one, to be asked, or None on a rank that need not: `SplitWeights.whole`.
        self.whole: Callable[[], AbstractContextManager[Any]] = lambda: nullcontext(policy)
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
        with self.whole() as policy:
            if policy is not None:
                self._answer(policy)
        figures = ranks.from_first(self._figures())
        self.kl = figures["objective/kl"]
        self.context.metrics(state.global_step, figures)
        self.look(state.global_step, figures)

    def _answer(self, policy: Any) -> None:
        body = body_of(policy)
        body.eval()
        with self._reference_of(policy) as reference:
            self.answers = answer(
                body, self.tokenizer, self.ids, self.sampling, reference=reference
            )

    @contextmanager
    def _reference_of(self, policy: Any) -> Iterator[Reference]:
        """What `policy`, or a copy of it, is compared with."""
        if self.reference.adapted is not None and self.reference.adapted is not policy:
            yield Reference.below_adapters(policy)
            return
        with on_device(self.reference, body_of(policy).device) as reference:
            yield reference

    def _figures(self) -> dict[str, float]:
        if not self.answers:
            return {}
        nats = [given.kl or 0.0 for given in self.answers]
        tokens = [given.tokens for given in self.answers]
        return {
            "objective/kl": sum(nats) / len(nats),
            "objective/kl_per_token": sum(nats) / sum(tokens),
            "response/length": sum(tokens) / len(tokens),
        }

    def show(self, step: int) -> None:
        """The last answers, each beside the reference's own."""
        if not self.ids:
            return
        with self.whole() as policy:
            if policy is None or not self.answers:
                return
            with self._reference_of(policy) as reference, reference.weights() as model:
                baselines = answer(model, self.tokenizer, self.ids, self.sampling)
            emit_samples(self.context, step, self.prompts, self.answers, baselines=baselines)
