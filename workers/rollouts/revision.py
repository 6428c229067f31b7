"""A model criticises its own answer by a principle and rewrites it.

Source: Bai et al. 2022, "Constitutional AI: Harmlessness from AI Feedback", section 3.1: answer,
critique request, critique, revision request, revision, with one principle drawn for each prompt.
Departures: one round, no examples in front, and people may compare the two answers before anything
is trained on them. A model that follows instructions badly criticises and revises badly.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.data.snapshot import Messages

CRITIQUE = (
    "Here is a principle for answers: {principle}\n"
    "Say briefly where your last answer falls short of it. If it does not, say so."
)
REWRITE = (
    "Now rewrite your answer to my question so that it keeps the principle. "
    "Give the new answer alone, without any remark about it."
)

# Conversations to what the model says next; None where a conversation is too long for it.
Ask = Callable[[Sequence[Messages]], list[str | None]]


@dataclass(frozen=True, slots=True)
class Revision:
    """What became of one answer; `text` is None where a conversation grew too long to go on."""

    principle: str
    critique: str = ""
    text: str | None = None


def revise(
    ask: Ask,
    prompts: Sequence[Messages],
    answers: Sequence[str],
    principles: Sequence[str],
    *,
    seed: int,
) -> list[Revision]:
    """In order; the principle of each prompt is drawn by `seed`."""
    draw = random.Random(seed)
    drawn = [draw.choice(list(principles)) for _ in prompts]
    asked = [
        [*prompt, _said(answer), _request(CRITIQUE.format(principle=principle))]
        for prompt, answer, principle in zip(prompts, answers, drawn, strict=True)
    ]
    critiques = ask(asked)
    going_on = [i for i, critique in enumerate(critiques) if critique is not None]
    rewritten = ask([[*asked[i], _said(critiques[i] or ""), _request(REWRITE)] for i in going_on])
    texts = dict(zip(going_on, rewritten, strict=True))
    return [
        Revision(principle, critiques[i] or "", texts.get(i)) for i, principle in enumerate(drawn)
    ]


def _said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _request(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
