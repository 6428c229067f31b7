"""What does this reward say of a few answers? For trying one before a policy is trained on it."""

import json
from collections.abc import Sequence
from typing import Any

from measures.blocks import Table
from measures.messages import Messages
from workers.checks.asking import without_cache
from workers.checks.fixed import fixed_answers, names_of
from workers.checks.found import SCORED, Found, Pace
from workers.config.inference import CheckSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import TRAIN, Prompt, evaluation_splits, read_prompts
from workers.rewards.build import build_reward
from workers.rewards.source import Scores
from workers.samples import choose

FEW = 5
SHOWN = 400  # characters of a text, in the summary
Tried = tuple[Messages, str, str]  # prompt, response, what is known to be right


def look(context: RunContext, settings: CheckSettings, pace: Pace) -> Found:
    for _ in pace.parts(1, 1, "reading the answers"):
        pass
    tried = _given(settings) if settings.answers else _of_prompts(context)
    reward = build_reward(
        context,
        without_cache(settings.reward),
        batch_size=settings.reward_batch_size,
        prompts=_known(tried) if settings.answers else None,
    )
    prompts, responses = [prompt for prompt, *_ in tried], [text for _, text, _ in tried]
    scores = reward.score(prompts, responses)
    rows = [_row(scores, i, one) for i, one in enumerate(tried)]
    low, high = min(scores.values), max(scores.values)
    spread = f"from {low:.4g} to {high:.4g}" if low < high else f"{low:.4g}"
    said = f"{len(rows)} answers score" if len(rows) > 1 else "The answer scores"
    return Found(
        outcome=SCORED,
        words=f"{said} {spread}.",
        n=len(rows),
        figures={
            "rows": [
                row | {name: row[name][:SHOWN] for name in ("prompt", "response", "answer")}
                for row in rows
            ]
        },
        details={"rows": rows},
        evidence=(_table(rows, list(scores.parts)),),
    )


def _given(settings: CheckSettings) -> list[Tried]:
    return [
        (
            [{"role": "user", "content": str(one["prompt"])}],
            str(one.get("response", "")),
            str(one.get("answer", "")).strip(),
        )
        for one in settings.answers
    ]


def _known(tried: Sequence[Tried]) -> list[Prompt]:
    """Each prompt once. Raises `RecipeError` where one is given two right answers."""
    found: dict[str, Prompt] = {}
    for i, (prompt, _, answer) in enumerate(tried):
        key = json.dumps(prompt)
        if key in found and found[key].answer != answer:
            told = f"answers[{i}].answer: an earlier one has the same prompt and another answer"
            raise RecipeError("bad_config", Fault.CONFIGURATION, told)
        found[key] = Prompt(prompt, answer=answer, columns={"answer": answer} if answer else {})
    return list(found.values())


def _of_prompts(context: RunContext) -> list[Tried]:
    """Five answers of the input 'prompts': what people preferred and rejected, demonstrations, or
    what is known to be right, as if a policy had answered that."""
    folder, seed = context.input_path("prompts"), context.spec.seed
    splits = evaluation_splits(folder) or [TRAIN]
    names = names_of(folder / f"{splits[0]}.jsonl")
    asked = [one for name in splits if "prompt" in names for one in read_prompts(folder, name)]
    known = {json.dumps(one.messages): one.answer for one in asked}
    if names & {"chosen", "messages"}:
        rows = fixed_answers(folder, most=FEW, seed=seed)[:FEW]
        return [(one.prompt, one.response, known.get(json.dumps(one.prompt), "")) for one in rows]
    right = [(json.loads(key), answer, answer) for key, answer in known.items() if answer]
    if not right:
        raise RecipeError(
            "wrong_input",
            Fault.CONFIGURATION,
            "the input 'prompts' holds no answers to score: give prompts and answers yourself",
        )
    return [right[i] for i in choose(len(right), FEW, seed)]


def _row(scores: Scores, i: int, tried: Tried) -> dict[str, Any]:
    prompt, response, answer = tried
    notes = [
        words
        for words, said in (
            ("blocked", scores.blocked),
            ("gives no gradient", scores.withheld),
            ("not read to the end", scores.cut),
        )
        if said and said[i]
    ]
    notes += [str(said[i]) for said in (scores.reasons, scores.reviews) if said and said[i]]
    return {
        "prompt": prompt[-1]["content"],
        "response": str(response),
        "answer": answer,
        "score": scores.values[i],
        "parts": scores.parts_of(i),
        "disagreement": scores.disagreement[i] if scores.disagreement else None,
        "notes": "; ".join(notes),
    }


def _table(rows: Sequence[dict[str, Any]], parts: Sequence[str]) -> Table:
    """A single part that is the total itself is left out."""
    shown = [
        name
        for name in parts
        if len(parts) > 1 or any(r["parts"][name] != r["score"] for r in rows)
    ]
    has_answers, has_notes = any(r["answer"] for r in rows), any(r["notes"] for r in rows)
    columns = [
        "Prompt",
        "Answer",
        *(["Known to be right"] if has_answers else []),
        "Reward",
        *shown,
    ]
    texts = 3 if has_answers else 2
    formats = ["text"] * texts + ["number"] * (1 + len(shown))
    if has_notes:
        columns, formats = [*columns, "Notes"], [*formats, "text"]
    return Table(
        title="The reward of each answer, and its parts before their weights",
        columns=tuple(columns),
        formats=tuple(formats),
        rows=tuple(
            (
                row["prompt"][:SHOWN],
                row["response"][:SHOWN],
                *([row["answer"][:SHOWN]] if has_answers else []),
                row["score"],
                *(row["parts"][name] for name in shown),
                *([row["notes"]] if has_notes else []),
            )
            for row in rows
        ),
    )
