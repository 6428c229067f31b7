"""Rows that teach nothing or the wrong thing, counted before they are trained on. No torch."""

from collections.abc import Sequence
from typing import Any

from measures.text import normalise
from workers.data.snapshot import Demonstration, Preference
from workers.preflight.findings import BLOCK, OK, UNKNOWN, WARN, Fault, Finding

MANY = 0.01  # share of rows worth a warning
MOST = 0.5  # share of rows from which there is nothing left to train on
LEFT_OUT = 0.1  # share of rows too long that is worth a warning
UNFINISHED = 0.2  # share of answers that the length limit may cut


def prompt_rows(prompts: Sequence[str]) -> Finding:
    """Prompts of a policy run: empty ones, and the same more than once."""
    return _rows("prompt", len(prompts), {"empty": _empty(prompts), "repeated": _repeated(prompts)})


def demonstration_rows(rows: Sequence[Demonstration]) -> Finding:
    """Demonstrations: empty answers, and the same question and answer more than once."""
    whole = [f"{_asked(row.prompt)}\0{row.response}" for row in rows]
    return _rows(
        "demonstration",
        len(rows),
        {"empty": _empty([row.response for row in rows]), "repeated": _repeated(whole)},
    )


def preference_rows(rows: Sequence[Preference]) -> Finding:
    """Pairs: an empty answer, twice the same answer, the same pair more than once."""
    whole = ["\0".join([_asked(row.prompt), *sorted((row.chosen, row.rejected))]) for row in rows]
    return _rows(
        "pair",
        len(rows),
        {
            "empty": sum(not row.chosen.strip() or not row.rejected.strip() for row in rows),
            "alike": sum(normalise(row.chosen) == normalise(row.rejected) for row in rows),
            "repeated": _repeated(whole),
        },
    )


WORDS = {
    "empty": ("hold an empty text", "Leave them out when freezing: an empty answer is learned."),
    "alike": ("hold the same answer twice", "They say nothing of a preference: leave them out."),
    "repeated": ("stand there more than once", "They count double: freeze without duplicates."),
}


def _rows(noun: str, n: int, counts: dict[str, int]) -> Finding:
    if n == 0:
        return Finding(
            level=BLOCK,
            check="data",
            message=f"There are no {noun}s to train on.",
            fault=Fault.DATA,
        )
    told = [
        f"{count:,} of {n:,} {noun}s ({100 * count / n:.1f} %) {WORDS[name][0]}. {WORDS[name][1]}"
        for name, count in counts.items()
        if count > MANY * n or (name == "empty" and count)
    ]
    figures: dict[str, Any] = {"n": n, **counts}
    worst = max(counts["empty"], counts.get("alike", 0))
    if not told:
        clean = ", ".join(f"{counts[name]:,} {WORDS[name][0]}" for name in counts)
        return Finding(
            level=OK, check="data", message=f"Of {n:,} {noun}s {clean}.", figures=figures
        )
    return Finding(
        level=BLOCK if worst > MOST * n else WARN,
        check="data",
        message=" ".join(told),
        figures=figures,
        fault=Fault.DATA,
    )


def too_long(
    noun: str,
    rows: int,
    left_out: int,
    *,
    limit: str,
    tokens: int,
    cut: int = 0,
    unfinished: float | None = None,
    answer_limit: tuple[str, int] | None = None,
) -> Finding:
    """What the length limits do. `rows` fit, `left_out` did not, of those that fit `cut` were cut;
    `unfinished`: share of sampled answers that ran into `answer_limit` (setting, tokens)."""
    total = rows + left_out
    if total == 0:
        return Finding(level=UNKNOWN, check="lengths", message="There are no rows to look at.")
    told = [
        f"{left_out:,} of {total:,} {noun}s ({100 * left_out / total:.1f} %) are longer than "
        f"{limit} ({tokens} tokens) and are left out whole."
        if left_out
        else f"All {total:,} {noun}s fit {limit} ({tokens} tokens)."
    ]
    level = OK
    if left_out > LEFT_OUT * total:
        level = WARN
        told.append(f"Raise {limit}, or the run learns from the short ones only.")
    if cut:
        level = WARN
        told.append(
            f"{cut:,} are cut at {limit}: what is cut there has no end, and teaches not to end. "
            f"Raise {limit} or leave them out."
        )
    if unfinished is not None and answer_limit is not None:
        name, most = answer_limit
        told.append(
            f"{100 * unfinished:.0f} % of the starting policy's answers run into {name} ({most} "
            "tokens)"
            + (
                f" and have no end. Raise {name}, or set missing_eos_penalty."
                if unfinished > UNFINISHED
                else "."
            )
        )
        level = WARN if unfinished > UNFINISHED else level
    return Finding(
        level=level,
        check="lengths",
        message=" ".join(told),
        figures={
            "n": total,
            "left_out": left_out,
            "cut": cut,
            "limit": tokens,
            "unfinished_share": unfinished,
        },
        fault=Fault.DATA,
    )


def _asked(prompt: list[dict[str, str]]) -> str:
    return "\n".join(message["content"] for message in prompt)


def _empty(texts: Sequence[str]) -> int:
    return sum(not text.strip() for text in texts)


def _repeated(texts: Sequence[str]) -> int:
    """Rows that could go while one of each kind stays."""
    return len(texts) - len({normalise(text) for text in texts})
