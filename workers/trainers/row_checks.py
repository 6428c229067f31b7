"""What is known of the rows of a training before its first step, and of those it asks about."""

from collections.abc import Hashable, Sequence
from statistics import fmean

from transformers import PreTrainedTokenizerBase

from measures.accuracy import pair_credit
from measures.duplicates import normalise
from measures.messages import Messages, plain
from workers.data.batches import encode_pair
from workers.data.snapshot import CutAnswer, answer_messages, tools_of
from workers.samples import choose

MOST_ROWS = 64  # of each kind, of those that are asked at every evaluation
MOST_KNOWN = 256  # pairs whose better answer is known
LEAST_UNEQUAL = 20  # pairs, before a share of them is said
MOST_LOOKED_AT = 256  # rows that are encoded to look at
AFTER_END = 2  # tokens that a template may put behind the end of an answer
WHOLE = 10**9  # tokens: nothing is cut


def leaked_share(
    training: Sequence[tuple[Messages, *tuple[str, ...]]],
    held_out: Sequence[tuple[Messages, *tuple[str, ...]]],
) -> dict[str, float]:
    """Share of the held-out rows (a prompt and its answers) that are training rows too, but for
    spelling."""
    if not training or not held_out:
        return {}
    known = {_key(*row) for row in training}
    return {"data/leaked_share": sum(_key(*row) in known for row in held_out) / len(held_out)}


def _key(prompt: Messages, *answers: str) -> Hashable:
    return normalise(plain(prompt)), *sorted(map(normalise, answers))


def row_figures(
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[tuple[Messages, str]],
    ends: Sequence[int],
    *,
    seed: int = 0,
) -> dict[str, float]:
    """Of some rows (a prompt and the answer to imitate), through the tokenizer's template: those
    whose answer ends with none of the tokens `ends`, by which a generation ends, and those whose
    prompt reads otherwise when an answer is asked for than where it stands before one."""
    looked = [rows[i] for i in choose(len(rows), MOST_LOOKED_AT, seed)]
    if not looked:
        return {}
    unended, otherwise = 0, 0
    for prompt, answer in looked:
        row = encode_pair(tokenizer, prompt, answer, max_length=WHOLE)
        last = row.ids[max(row.prompt_length, len(row.ids) - 1 - AFTER_END) :]
        unended += not isinstance(answer, CutAnswer) and not set(ends).intersection(last)
        otherwise += not _reads_alike(tokenizer, prompt, answer)
    return {
        "data/unended_share": unended / len(looked),
        "data/template_mismatch_share": otherwise / len(looked),
    }


def longer_chosen_share(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Share of (chosen, rejected) answers of unequal length, in characters, whose chosen one is the
    longer; nothing under twenty of them."""
    unequal = [len(a) > len(b) for a, b in pairs if len(a) != len(b)]
    return {"data/longer_chosen_share": fmean(unequal)} if len(unequal) >= LEAST_UNEQUAL else {}


def _reads_alike(tokenizer: PreTrainedTokenizerBase, prompt: Messages, answer: str) -> bool:
    """Whether the prompt that a generation is given stands before the answer letter by letter; the
    white space at its end may differ."""
    whole, tools = [*prompt, *answer_messages(answer)], tools_of(prompt)
    asked, read = (
        str(
            tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=ask, tools=tools
            )
        )
        for messages, ask in ((prompt, True), (whole, False))
    )
    return read.startswith(asked.rstrip())


def longer_excess(margins: Sequence[float], lengths: Sequence[tuple[int, int]]) -> float | None:
    """Share of pairs in which the longer answer scores higher, less the share in which people
    chose it, −1 … 1, over pairs of unequal length; a tie counts half. None under eight of them."""
    unequal = [(m, a - b) for m, (a, b) in zip(margins, lengths, strict=True) if a != b]
    if len(unequal) < 8:
        return None
    prefers = fmean(float(pair_credit([m if longer > 0 else -m])[0]) for m, longer in unequal)
    return prefers - fmean(longer > 0 for _, longer in unequal)
