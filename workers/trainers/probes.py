"""What is measured at every evaluation of a policy that learns from fixed rows (SFT, DPO, KTO).

Answers to fixed held-out prompts say how it behaves. Fixed rows say what it has learned: how it
ranks pairs that it learns from, held-out ones and pairs whose better answer is known, and how
likely it finds rows that it learns from and general ones. Everything is the same at every
evaluation, so a change is the policy's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainerCallback

from measures.accuracy import pair_credit
from measures.messages import Messages
from workers import ranks
from workers.behaviour import Copies, Histograms, Watch, distinct_share, repeated_share
from workers.config.training import SampledSettings, SFTSettings
from workers.context import RunContext
from workers.data.batches import Encoded, encode_fitting, encode_pair
from workers.data.snapshot import read_demonstrations, read_every
from workers.models.forward import LOGITS_CHUNK, Reference
from workers.models.lora import body_of
from workers.rollouts.answer_tokens import answer_length, answer_tokens, batch_of
from workers.rollouts.drawing import Answer, answer
from workers.rollouts.local import Sampling
from workers.samples import AuditSample, blocked_answers, choose, flag_answer, pick, publish
from workers.trainers.dpo import Pair, logprobs_of, on_device, sequence_logprobs
from workers.trainers.row_checks import MOST_KNOWN, MOST_ROWS, longer_excess

SHOWN = 8  # answers of each bucket at the end
FLAGGED = 4
REPEATED = 0.2  # share of repeated 4-grams from which an answer is flagged
TRAINED, HELD_OUT, KNOWN, GENERAL = "trained", "held_out", "known", "general"

MetricValues = dict[str, float | None]
Asked = tuple[Messages, str]  # a prompt, and the answer that the rows have to it


@dataclass(frozen=True, slots=True)
class FixedRows:
    """Rows to ask about: `pairs` under trained, held_out and known, `texts` under trained and
    general."""

    pairs: Mapping[str, Sequence[Pair]] = field(default_factory=dict)
    texts: Mapping[str, Sequence[Encoded]] = field(default_factory=dict)

    @classmethod
    def drawn(
        cls,
        seed: int,
        *,
        pairs: Mapping[str, Sequence[Pair]] | None = None,
        texts: Mapping[str, Sequence[Encoded]] | None = None,
    ) -> "FixedRows":
        """At most `MOST_ROWS` of each by seed, `MOST_KNOWN` of those that are known."""

        def some(name: str, rows: Sequence[Any]) -> list[Any]:
            most = MOST_KNOWN if name == KNOWN else MOST_ROWS
            return [rows[i] for i in choose(len(rows), most, seed)]

        return cls(
            {name: some(name, rows) for name, rows in (pairs or {}).items() if rows},
            {name: some(name, rows) for name, rows in (texts or {}).items() if rows},
        )


class Probe(TrainerCallback):
    """Answers and fixed rows at every evaluation; samples for people at the end."""

    def __init__(
        self,
        context: RunContext,
        settings: SampledSettings | SFTSettings,
        policy: Any,
        tokenizer: PreTrainedTokenizerBase,
        asked: Sequence[Asked],
        max_length: int,
        look: Callable[[int, Mapping[str, float | None], Any], None],
        *,
        reference: Reference | None = None,
        rows: FixedRows | None = None,
        copies: Copies | None = None,
        beta: float = 1.0,
    ) -> None:
        """`asked`: held-out prompts, of which some are chosen. `look` has the guardrails look at
        the metrics of a step, and stop the training. `beta` times the log-ratio to `reference` is
        an answer's implicit reward. `copies` of the rows that are learned from."""
        self.look = look
        self.context = context
        self.max_length = max_length
        # The policy as one, to be asked, or None on a rank that need not: `GuardedTrainer.whole`.
        self.whole: Callable[[], AbstractContextManager[Any]] = lambda: nullcontext(policy)
        self.reference = reference
        self.tokenizer = tokenizer
        self.sampling = Sampling(settings.sample_max_new_tokens, seed=context.spec.seed)
        self.rows = rows or FixedRows()
        self.beta = beta
        self.watch = Watch(copies=copies)
        self.histograms = Histograms()
        self.answers: list[Answer] = []
        self.kl: float | None = None
        self.of_reference: dict[str, Tensor] = {}  # its log-probabilities of the fixed pairs
        self._choose(asked, settings, max_length)
        self.of_rows = self.watch.reference(self.own)  # what the rows' own answers are like

    def _choose(
        self, asked: Sequence[Asked], settings: SampledSettings | SFTSettings, max_length: int
    ) -> None:
        by_prompt = {repr(prompt): (prompt, own) for prompt, own in reversed(asked)}
        known = list(reversed(by_prompt.values()))
        room = max(1, max_length - settings.sample_max_new_tokens)
        fitting, ids = encode_fitting(self.tokenizer, [prompt for prompt, _ in known], room)
        chosen = choose(len(fitting), settings.sample_prompts, self.context.spec.seed)
        self.prompts = [fitting[i] for i in chosen]
        self.ids = [ids[i] for i in chosen]
        self.own = [by_prompt[repr(prompt)][1] for prompt in self.prompts]
        # As many tokens as a sampled answer may have, its end among them.
        self.own_tokens = [
            min(len(ids) + 1, settings.sample_max_new_tokens) for ids in self._ids(self.own)
        ]

    # --- at an evaluation ---

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.ids and not self.rows.pairs and not self.rows.texts:
            return
        metrics: MetricValues = {}
        with self.whole() as policy:
            if policy is not None:
                metrics = self._measured(policy, state.global_step)
        metrics = ranks.from_first(metrics)
        self.kl = metrics.get("objective/kl")
        self.context.metrics(state.global_step, metrics)
        self.look(state.global_step, metrics, control)

    def _measured(self, policy: Any, step: int) -> MetricValues:
        body = body_of(policy)
        body.eval()
        metrics = self._of_texts(body)
        with self._reference_of(policy) as reference:
            metrics |= self._of_pairs(body, reference, step)
            if not self.ids:
                return metrics
            self.answers = answer(
                body, self.tokenizer, self.ids, self.sampling, reference=reference
            )
        return metrics | self._of_answers(step) | self.of_rows

    @contextmanager
    def _reference_of(self, policy: Any) -> Iterator[Reference | None]:
        """What `policy`, or a copy of it, is compared with."""
        if self.reference is None:
            yield None
        elif self.reference.adapted is not None and self.reference.adapted is not policy:
            yield Reference.below_adapters(policy)
        else:
            with on_device(self.reference, body_of(policy).device) as reference:
                yield reference

    def _of_answers(self, step: int) -> MetricValues:
        tokens = [given.tokens for given in self.answers]
        ids = self._ids([given.text for given in self.answers])
        metrics: MetricValues = {
            "response/length": fmean(tokens),
            "response/length_to_rows": sum(tokens) / sum(self.own_tokens),
            "response/repetition": fmean(map(repeated_share, ids)),
            "response/distinct": distinct_share(ids),
            "eval/ended_share": fmean(given.ended for given in self.answers),
        }
        if self.reference is not None:
            nats = [given.kl or 0.0 for given in self.answers]
            metrics |= {
                "objective/kl": fmean(nats),
                "objective/kl_per_token": sum(nats) / sum(tokens),
            }
        longest = float(self.sampling.max_new_tokens)
        self.context.emit(
            self.histograms.of(step, "response_length", tokens, within=(0.0, longest))
        )
        return metrics | self.watch.words([given.text for given in self.answers])

    @torch.no_grad()
    def _of_pairs(self, body: Any, reference: Reference | None, step: int) -> MetricValues:
        if reference is None or not self.rows.pairs:
            return {}
        if not self.of_reference:
            self.of_reference = self._logprobs(
                lambda batch: sequence_logprobs(reference, batch), body
            )
        chunk = None if body.device.type == "cpu" else LOGITS_CHUNK
        now = self._logprobs(
            lambda batch: answer_tokens(body, batch, chunk=chunk).log_probs.sum(1), body
        )
        ratios = {name: values - self.of_reference[name] for name, values in now.items()}
        margins = {name: self.beta * (r[:, 0] - r[:, 1]) for name, r in ratios.items()}
        if HELD_OUT in margins:
            self.context.emit(self.histograms.of(step, "margin", margins[HELD_OUT].tolist()))
        return pair_metrics(self.rows.pairs, ratios, margins)

    def _logprobs(self, ask: Callable[[Any], Tensor], body: Any) -> dict[str, Tensor]:
        pad = self.tokenizer.pad_token_id
        return logprobs_of(ask, self.rows.pairs, pad_id=pad, device=body.device, budget=None)

    @torch.no_grad()
    def _of_texts(self, body: Any) -> MetricValues:
        """Mean −log π of an answer's token, of rows that are learned from and of general ones."""
        found: MetricValues = {}
        chunk = None if body.device.type == "cpu" else LOGITS_CHUNK
        for name, texts in self.rows.texts.items():
            nats, tokens = 0.0, 0
            for start in range(0, len(texts), 16):
                some = texts[start : start + 16]
                batch, _ = batch_of(some, self.tokenizer.pad_token_id)
                said = answer_tokens(body, batch.to(body.device), chunk=chunk)
                nats -= float(said.log_probs.sum())
                tokens += sum(map(answer_length, some))
            found[f"eval/{name}_loss"] = nats / tokens if tokens else None
        return found

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]

    # --- at the end ---

    def show(self, step: int) -> None:
        """The last answers, the highest, the lowest and some others: by implicit reward, beside the
        reference's own; without a reference by how likely the row's answer is to the same prompt,
        beside that. What looks wrong is flagged for people."""
        if not self.ids:
            return
        with self.whole() as policy:
            if policy is None or not self.answers:
                return
            beside = self.own
            with self._reference_of(policy) as reference:
                if reference is None:
                    name, rewards = "row_logprob_per_token", self._likelihoods(body_of(policy))
                else:
                    name, rewards = (
                        "implicit_reward",
                        [self.beta * (a.kl or 0.0) for a in self.answers],
                    )
                    with reference.weights() as model:
                        given = answer(model, self.tokenizer, self.ids, self.sampling)
                    beside = [one.text for one in given]
        publish(self.context, self._audit(name, rewards, beside), step=step)
        self._flag(step, beside)

    def _audit(
        self, name: str, rewards: Sequence[float], beside: Sequence[str]
    ) -> list[AuditSample]:
        return [
            AuditSample(
                bucket=bucket,
                prompt=self.prompts[i],
                response=self.answers[i].text,
                reward=rewards[i],
                parts={name: rewards[i]},
                kl=self.answers[i].kl,
                tokens=self.answers[i].tokens,
                baseline=beside[i],
                baseline_reward=None,
            )
            for bucket, i in pick(rewards, SHOWN, seed=self.context.spec.seed)
        ]

    @torch.no_grad()
    def _likelihoods(self, body: Any) -> list[float]:
        """Mean log π of a token of the row's answer, by prompt."""
        body.eval()
        found = []
        for prompt, own in zip(self.prompts, self.own, strict=True):
            text = encode_pair(self.tokenizer, prompt, own, max_length=self.max_length)
            batch, _ = batch_of([text], self.tokenizer.pad_token_id)
            tokens = max(1, answer_length(text))
            found.append(float(answer_tokens(body, batch.to(body.device)).log_probs.sum()) / tokens)
        return found

    def _flag(self, step: int, beside: Sequence[str]) -> None:
        """At most `FLAGGED` answers, as samples and in people's inbox, those with a blocked phrase
        first."""
        blocked = blocked_answers(self.context, [given.text for given in self.answers])
        flagged = 0
        for i in sorted(range(len(self.answers)), key=lambda i: i not in blocked):
            given = self.answers[i]
            why = blocked.get(i) or self._wrong(given, beside[i])
            if why and flagged < FLAGGED:
                flag_answer(self.context, step, self.prompts[i], given.text, why)
                flagged += 1

    def _wrong(self, given: Answer, beside: str) -> str:
        [ids] = self._ids([given.text])
        if (share := repeated_share(ids)) > REPEATED:
            return f"rule repetition: {share:.0%} of its 4-grams came before"
        refuses, refused = (self.watch.refuses(text) for text in (given.text, beside))
        if refuses and not refused:
            return "rule refusals_learned: it refuses where the answer beside it does not"
        if self.watch.copied(given.text):
            return "rule rows_recited: 13 words in a row are of the rows it learned from"
        return ""


def general_rows(
    context: RunContext, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> list[Encoded]:
    """Rows of the input 'general', that a training should not unlearn; none without it."""
    if not context.has_input("general"):
        return []
    rows = read_every(context.input_path("general"), read_demonstrations)
    encoded = [encode_pair(tokenizer, r.prompt, r.response, max_length=max_length) for r in rows]
    return [row for row in encoded if answer_length(row) > 0]


def pair_metrics(
    pairs: Mapping[str, Sequence[Pair]], ratios: Mapping[str, Tensor], margins: Mapping[str, Tensor]
) -> MetricValues:
    """Of log-ratios [n, 2] and margins [n] by kind of pair."""
    sizes = [
        abs(ratio) / max(1, answer_length(side))
        for name, rows in pairs.items()
        for pair, both in zip(rows, ratios[name].tolist(), strict=True)
        for side, ratio in zip((pair.chosen, pair.rejected), both, strict=True)
    ]
    found: MetricValues = {"eval/log_ratio_size": fmean(sizes)}
    if TRAINED in margins:
        found["eval/trained_accuracy"] = float(pair_credit(margins[TRAINED]).mean())
    if KNOWN in margins:
        found["eval/canary_accuracy"] = float(pair_credit(margins[KNOWN]).mean())
        found["eval/canary_pairs"] = float(len(margins[KNOWN]))
    if HELD_OUT in margins:
        lengths = [(answer_length(p.chosen), answer_length(p.rejected)) for p in pairs[HELD_OUT]]
        found["eval/longer_excess"] = longer_excess(margins[HELD_OUT].tolist(), lengths)
    return found
