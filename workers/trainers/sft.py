"""A model's sampled answers beside its demonstrations: does it imitate, or has it other habits?

RL starts from an SFT model: what that one does wrong in length, refusals or form, RL inherits and
is measured against. Asked at the end of an `sft` run, and before RL by whoever wants to know.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from trl import SFTConfig, SFTTrainer

from measures.imitation import Trait, compare, traits_of
from workers.config.training import SFTSettings
from workers.context import RunContext
from workers.contract.events import Alert, Evidence
from workers.contract.reasons import in_words
from workers.contract.traits import TRAITS
from workers.data.batches import Encoded, encode_pair
from workers.data.snapshot import Demonstration
from workers.layouts.shards import ALONE, Shares
from workers.models.loading import readable_length
from workers.rollouts.answer_tokens import (
    Batch,
    answer_length,
    batch_of,
    tokens_of_answers,
)
from workers.rollouts.drawing import Answer, answer
from workers.rollouts.local import Sampling
from workers.samples import choose
from workers.trainers.microbatch import PartedTRL
from workers.trainers.trainer_bridge import BelowTRL

# TRL's SFTTrainer with our forward passes: its loss and metrics, our rows and batches.
#
# Left to itself it projects prompts and padding on the vocabulary too (on processors), which costs
# more than twice the time (docs/sft.md), and pads every row of a step to the longest.


class StepCollator:
    """This rank's rows of one step as parts of at most the budget's tokens; `total` counts the
    answer tokens of the whole step."""

    def __init__(
        self,
        settings: SFTSettings,
        pad_id: int,
        shares: Shares = ALONE,
        *,
        row_length: int | None = None,
    ) -> None:
        """`row_length`: tokens of the longest row that several texts may share; None: none do."""
        self.settings = settings
        self.pad_id = pad_id
        self.shares = shares
        self.row_length = row_length

    def __call__(self, rows: Sequence[Encoded]) -> list[dict[str, Any]]:
        parts = self.shares.parts(
            [(len(row.ids),) for row in rows],
            budget=self.settings.max_tokens_per_batch,
            at_least=self.settings.gradient_accumulation,
            row_length=self.row_length,
        )
        total = torch.tensor(sum(map(answer_length, rows)))
        built = []
        for part in parts:
            batch, _ = batch_of(
                [rows[i] for i in part.rows],
                self.pad_id,
                self.shares.rectangles,
                row_length=self.row_length,
            )
            built.append(
                {
                    "rectangles": batch.rectangles,
                    "counts": batch.counts,
                    "answers": tokens_of_answers([rows[i] for i in part.rows]),
                    "total": total,
                    "taken": float(part.counts),
                }
            )
        return built


class DemonstrationTrainer(PartedTRL, SFTTrainer, BelowTRL):
    """Cross-entropy on the tokens of the answers, every token counting the same.

    Rows come in any order: steps of rows alike in length would weigh a short answer's tokens above
    a long one's, for the loss is a mean over the step's tokens. Rectangles inside a step save the
    padding too.
    """

    def __init__(
        self,
        *,
        model: Any,
        args: SFTConfig,
        settings: SFTSettings,
        train_rows: Sequence[Encoded],
        eval_rows: Sequence[Encoded],
        tokenizer: PreTrainedTokenizerBase,
        callbacks: list[Any] | None = None,
        shares: Shares = ALONE,
    ) -> None:
        nothing = Dataset.from_list([{"prompt_ids": [0]}])  # our rows are set afterwards
        args.dataset_kwargs = {"skip_prepare_dataset": True}
        args.average_tokens_across_devices = False  # our collator counts those of all ranks
        # Gives a step's parts, where the library's own give one batch.
        collator: Any = StepCollator(
            settings,
            tokenizer.pad_token_id,
            shares,
            row_length=args.max_length if settings.packing else None,
        )
        super().__init__(
            model=model,
            args=args,
            train_dataset=nothing,
            eval_dataset=nothing,
            processing_class=tokenizer,
            data_collator=collator,
            callbacks=callbacks,
        )
        self.take_rows(train_rows, eval_rows)

    def row_length(self, row: Encoded) -> int:
        return len(row.ids)

    def row_tokens(self, row: Encoded) -> int:
        return len(row.ids)

    def row_weight(self, row: Encoded) -> float:
        return float(answer_length(row))

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """A part's share of the step's loss, by TRL's formula."""
        batch = Batch(inputs["rectangles"], inputs["counts"])
        self.count_mask(inputs)
        tokens = self.answer_tokens(model, batch)
        read = {"attention_mask": tokens.label_mask.long()}
        with self.weighing(lambda name: inputs["taken"] * float(batch.counts.sum())):
            return super().compute_loss(
                lambda **_: tokens, read, num_items_in_batch=inputs["total"]
            )


WHOLE = 10**9  # tokens: nothing is cut
_END = (
    "Look at demonstrations that were cut (overlong: truncate teaches not to end), at a template "
    "whose end token is not learnt, and at too few passes."
)
_ADVICE = {
    "length": _END,
    "ended": _END,
    "refusal": "Look at the demonstrations' sources, and at a base model that refuses: more "
    "passes, or demonstrations of what should be answered.",
}
_FORM = "The base model's habit, most likely: more passes, or demonstrations that show the command."


@dataclass(frozen=True, slots=True)
class Imitation:
    """The comparison, on `prompts` held-out prompts, both sides cut at `limit` tokens."""

    prompts: int
    limit: int
    traits: list[Trait]
    answers: list[Answer]

    @property
    def departures(self) -> list[Trait]:
        return [trait for trait in self.traits if trait.departs]

    def summary(self) -> dict[str, Any]:
        """Plain values for a run's summary."""
        rows = [in_words(asdict(trait)) | {"departs": trait.departs} for trait in self.traits]
        return {"prompts": self.prompts, "limit": self.limit, "traits": rows}


def imitation_of(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    demonstrations: Sequence[Demonstration],
    *,
    prompts: int,
    seed: int,
    limit: int | None = None,
    batch_size: int = 32,
) -> Imitation | None:
    """One answer, sampled at temperature 1, to each of so many of the demonstrations' prompts.

    None where there is nothing to compare: no demonstrations, or no prompt that leaves room.
    """
    encoded = [
        encode_pair(tokenizer, d.prompt, d.response, max_length=WHOLE) for d in demonstrations
    ]
    if not encoded:
        return None
    lengths = sorted(row.response_length for row in encoded)
    wanted = limit or 2 * max(1, lengths[int(0.9 * (len(lengths) - 1))])
    readable = readable_length(model, tokenizer)
    # Long prompts leave no room: better to leave some of them out than to cut all answers short.
    limit = min(wanted, max(1, readable // 2))
    fitting = [row for row in encoded if row.prompt_length + limit <= readable]
    fitting = [fitting[i] for i in choose(len(fitting), prompts, seed)]
    if not fitting:
        return None
    was_training = model.training
    model.eval()
    answers = answer(
        model,
        tokenizer,
        [row.ids[: row.prompt_length] for row in fitting],
        Sampling(limit, seed=seed),
        batch_size=batch_size,
    )
    model.train(was_training)
    shown = []
    for row in fitting:
        ids = row.ids[row.prompt_length :]
        text = str(tokenizer.decode(ids[:limit], skip_special_tokens=True))
        shown.append(traits_of(text, tokens=min(len(ids), limit), ended=len(ids) <= limit))
    given = [traits_of(a.text, tokens=a.tokens, ended=a.ended) for a in answers]
    return Imitation(len(fitting), limit, compare(shown, given), answers)


def trait_words(trait: Trait) -> str:
    """The finding for a person."""
    d = trait.difference
    bounds = "" if d.low is None or d.high is None else f" (95 % {d.low:.2f} to {d.high:.2f})"
    if trait.name == "length":
        return (
            f"answers are {d.value or math.nan:.2f} times as long as the demonstrations"
            f"{bounds}: {trait.answers:.0f} tokens against {trait.demonstrations:.0f} on average"
        )
    return (
        f"{TRAITS[trait.name]}: {trait.answers:.0%} of the answers against "
        f"{trait.demonstrations:.0%} of the demonstrations, "
        f"difference {d.value or 0:+.2f}{bounds}"
    )


def report_departures(context: RunContext, step: int, imitation: Imitation) -> None:
    """A line for the log, and an alert with evidence for each trait that departs."""
    context.log(
        f"compared {imitation.prompts} answers with their demonstrations, both cut at "
        f"{imitation.limit} tokens: " + (", ".join(t.name for t in imitation.departures) or "alike")
    )
    for trait in imitation.departures:
        over = (trait.difference.value or 0.0) > trait.high
        rule = f"imitation_{trait.name}"
        context.emit(
            Alert(
                rule=rule,
                severity="warning",
                step=step,
                message=f"{trait_words(trait)}. Training by reward would start from this habit. "
                + _ADVICE.get(trait.name, _FORM),
                value=trait.difference.value,
                threshold=trait.high if over else trait.low,
            )
        )
        context.emit(
            Evidence(
                link="policy",
                rule=rule,
                evidence_class="probe",
                step=step,
                value=trait.difference.value,
                expected=f"{trait.low:.2f} to {trait.high:.2f}",
                unit="ratio" if trait.name == "length" else "share",
                detail=trait_words(trait),
            )
        )


# The base model that is built from the demonstrations when no other is named.
#
# A fresh machine may reach no model hub. So that the circle still closes there, `sft` trains a
# byte-level BPE tokenizer on the demonstrations and initialises a small Llama; saved, the two are
# a
# normal model folder, and any hub id or local folder can take their place (`base_model`).

PAD = "<|pad|>"  # not the end token: a mask made by "is not padding" must keep the end of an answer
END = "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class BaseShape:
    """Size of the model: about 12·layers·width² + vocabulary·width parameters."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    context: int  # tokens


def train_tokenizer(texts: Iterable[str], *, vocabulary: int, context: int):
    """A byte-level BPE tokenizer: every text can be encoded, nothing is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(ROLES),
        model_max_length=context,
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, shape: BaseShape, *, seed: int):
    """A freshly initialised Llama with tied embeddings, in float32."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        intermediate_size=-(-shape.width * 8 // 3 // 8) * 8,  # SwiGLU's 8/3, in steps of eight
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)
