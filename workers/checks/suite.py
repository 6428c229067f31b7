"""Regression suites: prompts whose answers are checked without a model, before and after."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import regex

from measures.regression import Compared, Standing, compared
from workers.config.phrases import REFUSALS, Phrases, plain, refused
from workers.config.rewards import FINAL_STATE
from workers.config.suites import Check, read_check
from workers.contract.events import Fault, RecipeError
from workers.contract.reasons import in_words
from workers.data.snapshot import Prompt
from workers.evaluation.figures import clusters_of, right
from workers.rewards.rules import json_in, numbers

_REFUSALS = Phrases(REFUSALS)
_BLOCK = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)
_SECONDS = 2.0  # of one expression on one answer
SHOWN = 5  # lost answers of the report


def passes(check: Check, text: str, answer: str) -> bool:
    """Whether the answer is what `workers.config.suites.TESTS` says of the test."""
    text = text.strip()
    match check.test:
        case "equals":
            return right(text, answer, "normalised")
        case "contains":
            return right(text, answer, "contains")
        case "number":
            found = numbers(text)
            return bool(found) and abs(float(found[-1]) - float(answer)) <= 1e-6
        case "json":
            blocks = _BLOCK.findall(text)
            return json_in(text)[0] or (len(blocks) == 1 and json_in(blocks[0])[0])
        case "matches":
            try:
                return regex.search(str(check.value), text, timeout=_SECONDS) is not None
            except TimeoutError:
                return False
        case "words_at_most":
            return 1 <= len(text.split()) <= int(check.value)
        case "refuses":
            return refused(_REFUSALS, plain(text))
        case "answers":
            return bool(text) and not refused(_REFUSALS, plain(text))
    raise ValueError(f"no test {check.test}")


def regression(
    rows: Sequence[Prompt],
    policy: Sequence[str],
    baseline: Sequence[str],
    *,
    margin: float,
    replicates: int,
    seed: int,
) -> dict[str, Any]:
    """Of the prompts that carry a check: the shares passed by both models, paired, over all of them
    and by category. Empty where none does.

    Over all, a standing by the margin; of a category only whether it is worse by more than chance,
    since few prompts cannot show more. `lost`: checks that the baseline passed and the policy does
    not, a few of them with both answers. Raises `RecipeError` (bad_check) naming the prompt.
    """
    asked = [(i, _check(row)) for i, row in enumerate(rows) if row.columns.get("check")]
    if not asked:
        return {}
    before = [float(passes(check, baseline[i], rows[i].answer)) for i, check in asked]
    after = [float(passes(check, policy[i], rows[i].answer)) for i, check in asked]
    clusters = clusters_of([rows[i] for i, _ in asked])

    def found(where: Sequence[int]) -> Compared:
        return compared(
            [before[k] for k in where],
            [after[k] for k in where],
            clusters=[clusters[k] for k in where],
            margin=margin,
            replicates=replicates,
            seed=seed,
        )

    names = sorted({check.category for _, check in asked})
    places = {name: [k for k, (_, c) in enumerate(asked) if c.category == name] for name in names}
    parts = {name: found(where) for name, where in places.items()}
    over_all = found(range(len(asked)))
    worse = [name for name, one in parts.items() if one.standing == Standing.WORSE]
    lost = [i for k, (i, _) in enumerate(asked) if before[k] > after[k]]
    return {
        "margin": margin,
        "checks": len(asked),
        "standing": str(Standing.WORSE if worse else over_all.standing),
        "worse": worse,
        "all": _plain(over_all),
        "categories": {name: _plain(one) for name, one in parts.items()},
        "lost": [
            {"prompt": rows[i].messages, "policy": policy[i], "baseline": baseline[i]}
            for i in lost[:SHOWN]
        ],
    }


def _check(row: Prompt) -> Check:
    said = str(row.messages[-1]["content"])[:80]
    try:
        check = read_check(row.columns["check"], answer=row.answer)
    except ValueError as error:
        raise RecipeError("bad_check", Fault.DATA, f"the check of “{said}”: {error}") from None
    if check.test == FINAL_STATE:
        told = (
            "a final state is that of a run with tools (kind grpo, environment), not of an answer"
        )
        raise RecipeError("bad_check", Fault.DATA, f"the check of “{said}”: {told}")
    return check


def _plain(one: Compared) -> dict[str, Any]:
    shares = ("before", "after", "difference")
    told: dict[str, Any] = {name: in_words(asdict(getattr(one, name))) for name in shares}
    return told | {
        "lost": one.lost,
        "won": one.won,
        "lowest": one.lowest,
        "standing": str(one.standing),
    }
