"""Rows that teach nothing or the wrong thing, counted before they are trained on. No torch."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from transformers import PreTrainedTokenizerBase

from measures.blocks import Table
from measures.duplicates import near_matches, normalise
from measures.messages import Messages, plain
from measures.splits import overlap_containment
from workers.assess.scores import held_out_split
from workers.context import RunContext
from workers.contract.events import RecipeError
from workers.data.batches import Encoded
from workers.data.snapshot import (
    TRAIN,
    Demonstration,
    JudgedAnswer,
    Preference,
    evaluation_splits,
    read_demonstrations,
    read_judged_answers,
    read_preferences,
)
from workers.preflight.findings import BLOCK, OK, UNKNOWN, WARN, Fault, Finding, plain_json

MANY = 0.01  # share of rows worth a warning
MOST_LOST = 0.5  # share of rows from which there is nothing left to train on
LEFT_OUT = 0.1  # share of rows too long that is worth a warning
SHOWN_CHARACTERS = 1_000  # of a part of a row
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


def answer_rows(rows: Sequence[JudgedAnswer]) -> Finding:
    """Single answers: empty ones, the same more than once, and the same answer under both labels;
    blocks where all have one label, from which KTO learns no difference."""
    judged = {True: set[str](), False: set[str]()}
    for row in rows:
        judged[row.desirable].add(normalise(f"{_asked(row.prompt)}\0{row.response}"))
    desirable = sum(row.desirable for row in rows)
    if rows and desirable in (0, len(rows)):
        label = "desirable" if desirable else "undesirable"
        return Finding(
            level=BLOCK,
            check="data",
            message=f"All {len(rows):,} answers are {label}: KTO learns from the difference "
            "between desirable and undesirable ones. Add the other label"
            + (", or imitate them in an SFT run." if desirable else "."),
            figures={"n": len(rows), "desirable": desirable},
            fault=Fault.DATA,
        )
    whole = [f"{row.desirable}\0{_asked(row.prompt)}\0{row.response}" for row in rows]
    found = _rows(
        "answer",
        len(rows),
        {
            "empty": _empty([row.response for row in rows]),
            "repeated": _repeated(whole),
            "contradicting": len(judged[True] & judged[False]),
        },
    )
    return replace(found, figures={**found.figures, "desirable": desirable})


WORDS = {
    "empty": ("hold an empty text", "Leave them out when freezing: an empty answer is learned."),
    "alike": ("hold the same answer twice", "They say nothing of a preference: leave them out."),
    "repeated": ("stand there more than once", "They count double: freeze without duplicates."),
    "contradicting": (
        "are desirable in one row and undesirable in another",
        "They teach nothing: decide them, or leave them out.",
    ),
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
        level=BLOCK if worst > MOST_LOST * n else WARN,
        check="data",
        message=" ".join(told),
        figures=figures,
        fault=Fault.DATA,
    )


def learnt_of(row: Encoded, tokenizer: PreTrainedTokenizerBase, changed: int) -> Finding:
    """A row of SFT as the model reads it, part by part: what it learns and what it only reads.
    `changed`: earlier answers of all rows that the template shows otherwise than the last one."""
    ids, start = row.ids, row.prompt_length
    pieces, at = [("read", ids[:start])], start
    for begin, end in row.others:
        pieces += [("learnt", ids[at:begin]), ("read", ids[begin:end])]
        at = end
    pieces.append(("learnt", ids[at:]))
    ends = tokenizer.eos_token_id in row.ids[at:]
    told = f"{row.response_length:,} of {len(ids):,} tokens of this row are learnt."
    if changed:
        told += (
            f" {changed:,} earlier answers of all rows are only read: the template shows them "
            "otherwise than the model writes them."
        )
    return Finding(
        level=OK,
        check="template",
        message=told,
        figures={"tokens": len(ids), "learnt": row.response_length, "end_token_learnt": ends},
        evidence=(
            plain_json(
                asdict(
                    Table(
                        title="A training row, as the model reads it",
                        columns=("Part", "Text"),
                        formats=("text", "text"),
                        rows=tuple(
                            (name, str(tokenizer.decode(part))[:SHOWN_CHARACTERS])
                            for name, part in pieces
                            if part
                        ),
                    )
                )
            ),
        ),
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
                f" and have no end: each pays missing_eos_penalty. Raise {name}."
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
    return plain(prompt)


def _empty(texts: Sequence[str]) -> int:
    return sum(not text.strip() for text in texts)


def _repeated(texts: Sequence[str]) -> int:
    """Rows that could go while one of each kind stays."""
    return len(texts) - len({normalise(text) for text in texts})


# Prompts that stand where they should not: held out and trained on, demonstrated and explored.
#
# No torch. Texts are compared in their normal form, near-duplicates by `measures.duplicates`.

TOO_MUCH = 0.3  # of RL prompts among the demonstrations (SPEC B); as on the snapshot's page
MOST_COMPARED = 5000  # texts of either side that are compared


def text_of(messages: Messages) -> str:
    """A prompt as one text."""
    return plain(messages)


def evaluation_overlap(
    training: Sequence[str], evaluation: Sequence[str], *, same_file: bool = False
) -> Finding:
    """Evaluation prompts that are trained on, or nearly. `same_file`: the snapshot holds nothing
    out, so the evaluation draws from the training file and its figures are no held-out ones."""
    check = "eval_overlap"
    if not evaluation or not training:
        return Finding(
            level=UNKNOWN,
            check=check,
            message="There is no evaluation file to compare with the training rows."
            if training
            else "There are no training rows to compare with.",
        )
    if same_file:
        return Finding(
            level=WARN,
            check=check,
            message=f"The snapshot has no evaluation file: the {len(evaluation):,} evaluation "
            "prompts are training prompts, and what is called held-out is not. Freeze a snapshot "
            "with a hold-out.",
            figures={"share": 1.0, "n": len(evaluation)},
        )
    both, near, n = _counted(training[:MOST_COMPARED], evaluation[:MOST_COMPARED])
    figures = {"equal": both, "near": near, "n": n, "share": near / n}
    if near:
        return Finding(
            level=WARN,
            check=check,
            message=f"{near:,} of {n:,} evaluation prompts ({100 * near / n:.1f} %) are trained on "
            f"too, or nearly; {both:,} of them are equal. Figures on these flatter the policy: "
            "freeze the snapshot again with the gate that keeps equal prompts together.",
            figures=figures,
        )
    return Finding(
        level=OK,
        check=check,
        message=f"None of {n:,} evaluation prompts is trained on, nearly equal ones included.",
        figures=figures,
    )


def demonstration_overlap(prompts: Sequence[str], demonstrated: Sequence[str]) -> Finding:
    """RL prompts whose answers the policy was shown: over 30 % it explores little."""
    check = "sft_overlap"
    if not demonstrated:
        return Finding(
            level=UNKNOWN,
            check=check,
            message="No demonstrations are among the inputs, so it is not known which prompts the "
            "policy was shown answers to.",
        )
    if not prompts:
        return Finding(level=UNKNOWN, check=check, message="There are no prompts.")
    both, near, n = _counted(demonstrated[:MOST_COMPARED], prompts[:MOST_COMPARED])
    share = near / n
    said = (
        f"{near:,} of {n:,} distinct prompts ({100 * share:.0f} %) stand in the demonstrations, or "
        f"nearly; {both:,} of them are equal."
    )
    figures = {"equal": both, "near": near, "n": n, "share": share}
    if share > TOO_MUCH:
        return Finding(
            level=WARN,
            check=check,
            message=f"{said} Over {100 * TOO_MUCH:.0f} % is too many: the policy was shown answers "
            "to these and explores little on them. Add prompts it has not seen.",
            figures=figures,
        )
    return Finding(level=OK, check=check, message=said, figures=figures)


def _counted(known: Sequence[str], asked: Sequence[str]) -> tuple[int, int, int]:
    """(equal, equal or nearly so, distinct texts asked for)."""
    exact = overlap_containment(known, asked)
    distinct = list({normalise(text): text for text in asked}.values())
    seen = {normalise(text) for text in known}
    near = near_matches(distinct, list(dict.fromkeys(known)))
    held = sum(
        row >= 0 or normalise(text) in seen for row, text in zip(near.row, distinct, strict=True)
    )
    return exact.n_both, held, len(distinct)


# Comparisons and demonstrations among a run's inputs, whatever their role.

COUNTED = 32  # rows whose tokens are counted
TEMPLATE_TOKENS = 32

Row = TypeVar("Row", Preference, Demonstration, JudgedAnswer)


@dataclass(frozen=True, slots=True)
class Material:
    """Rows of the inputs; `held_out`: the prompts of what a training on them does not see."""

    preferences: list[Preference] = field(default_factory=list)
    demonstrations: list[Demonstration] = field(default_factory=list)
    answers: list[JudgedAnswer] = field(default_factory=list)
    held_out: list[Messages] = field(default_factory=list)

    def replaced(
        self,
        preferences: Sequence[Preference] | None,
        demonstrations: Sequence[Demonstration] | None,
        answers: Sequence[JudgedAnswer] | None,
    ) -> "Material":
        """With the rows that a recipe has at hand, where it gives any."""
        return Material(
            self.preferences if preferences is None else list(preferences),
            self.demonstrations if demonstrations is None else list(demonstrations),
            self.answers if answers is None else list(answers),
            self.held_out,
        )

    def longest(self, tokenizer: PreTrainedTokenizerBase) -> int | None:
        """Tokens of the longest row, prompt and answer, among those with most characters; a little
        is added for what a chat template writes between them. None without rows."""
        texts = [
            (row.prompt, answer)
            for row in self.preferences
            for answer in (row.chosen, row.rejected)
        ]
        texts += [(row.prompt, row.response) for row in self.demonstrations]
        texts += [(row.prompt, row.response) for row in self.answers]
        whole = ["\n".join([plain(prompt), text]) for prompt, text in texts]
        most = sorted(whole, key=len, reverse=True)[:COUNTED]
        if not most:
            return None
        ids = tokenizer(most, add_special_tokens=False)["input_ids"]
        return max(len(row) for row in ids) + TEMPLATE_TOKENS


def material_of(context: RunContext, *, trained_on: bool) -> Material:
    """Comparisons and demonstrations of the training files, where a run is `trained_on` them.

    Else they are there to judge by, and comparisons come from the strictest evaluation file that
    has enough rows, for a reward model may have learned the others. A file that cannot be read here
    is passed over: whoever needs it says so."""
    found = Material()
    for ref in context.spec.inputs:
        if ref.kind != "snapshot":
            continue
        folder = context.input_path(ref.role)
        names = _first_row(folder / f"{TRAIN}.jsonl")
        try:
            if "chosen" in names:
                rows, apart = _both(folder, read_preferences)
                found.preferences.extend(rows if trained_on else apart or rows)
                found.held_out.extend(row.prompt for row in apart)
            elif "messages" in names:
                answers, held_out = _both(folder, read_demonstrations)
                found.demonstrations.extend(answers)
                found.held_out.extend(row.prompt for row in held_out)
            elif "completion" in names:
                judged, others = _both(folder, read_judged_answers)
                found.answers.extend(judged)
                found.held_out.extend(row.prompt for row in others)
        except RecipeError:
            continue
    return found


def _both(folder: Path, read: Callable[[Path, str], list[Row]]) -> tuple[list[Row], list[Row]]:
    """The training rows, and those of the strictest evaluation file that has enough."""
    files = {split: read(folder, split) for split in evaluation_splits(folder)}
    strictest = held_out_split({split: len(rows) for split, rows in files.items()})
    return read(folder, TRAIN), files[strictest] if strictest else []


def _first_row(path: Path) -> set[str]:
    """The fields of a file's first row; none where it holds no object."""
    try:
        with path.open(encoding="utf-8") as lines:
            row = json.loads(next(lines))
    except (OSError, StopIteration, ValueError):
        return set()
    return set(row) if isinstance(row, dict) else set()
