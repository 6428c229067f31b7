"""A model's sampled answers beside its demonstrations: does it imitate, or has it other habits?

RL starts from an SFT model: what that one does wrong in length, refusals or form, RL inherits and
is measured against. Asked at the end of an `sft` run, and before RL by whoever wants to know.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from measures.imitation import Trait, compare, traits_of
from workers.context import RunContext
from workers.contract.events import Alert, Evidence
from workers.data.encoding import encode_pair
from workers.data.snapshot import Demonstration
from workers.models.loading import readable_length
from workers.rollouts.answers import Answer, answer
from workers.rollouts.sampling import Sampling
from workers.trainers.samples import choose

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
_FORM = "The base model's habit, most likely: more passes, or demonstrations that show the wish."


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
        rows = [asdict(trait) | {"departs": trait.departs} for trait in self.traits]
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
        text = tokenizer.decode(ids[:limit], skip_special_tokens=True)
        shown.append(traits_of(text, tokens=min(len(ids), limit), ended=len(ids) <= limit))
    given = [traits_of(a.text, tokens=a.tokens, ended=a.ended) for a in answers]
    return Imitation(len(fitting), limit, compare(shown, given), answers)


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
                message=f"{trait.words}. Training by reward would start from this habit. "
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
                detail=trait.words,
            )
        )
