"""How rows become batches: padding, token budgets, the order of rows, folds."""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor
from torch.utils.data import Sampler
from transformers import PreTrainedTokenizerBase

from measures.messages import Messages
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import CutAnswer, Preference, Turns, answer_messages, tools_of

# Messages to token ids, through the tokenizer's own chat template.

_CALLS = (
    "{% for call in message['tool_calls'] or [] %}{{ '\n' + call['function']['name'] + '(' }}"
    "{% if call['function']['arguments'] is string %}{{ call['function']['arguments'] }}"
    "{% else %}{{ call['function']['arguments'] | tojson }}{% endif %}{{ ')' }}{% endfor %}"
)
# For tokenizers that bring no template. Ends each message so that an answer has an end to learn.
# Begins as texts of that model do, where they have a token for it; those that mark the beginning
# and the end of a text (encoders: [CLS] … [SEP]) get their marks too.
PLAIN_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    + _CALLS
    + "{{ eos_token if message['role'] == 'assistant' else '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
QUOTED = 300  # characters of a template that refuses
ENCODER_TEMPLATE = (
    "{{ cls_token }}"
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    + _CALLS
    + "{{ sep_token if message['role'] == 'assistant' else '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of one conversation; the response begins at `prompt_length`. `others`: of a
    conversation of several answers, from where to where somebody else speaks after the first."""

    ids: list[int]
    prompt_length: int
    truncated: bool = False
    cut: int = 0  # tokens of the whole that are not among the ids
    others: tuple[tuple[int, int], ...] = ()

    @property
    def response_length(self) -> int:
        return len(self.ids) - self.prompt_length - sum(b - a for a, b in self.others)


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, prompt: Messages, **variables: str
) -> list[int]:
    """Ids of the prompt up to where the assistant begins to speak."""
    tools = tools_of(prompt)
    return _template(tokenizer, prompt, add_generation_prompt=True, tools=tools, **variables)


def encode_fitting(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Messages], max_length: int
) -> tuple[list[Messages], list[list[int]]]:
    """The prompts of at most `max_length` tokens, and their ids."""
    encoded = [(prompt, encode_prompt(tokenizer, prompt)) for prompt in prompts]
    fitting = [(prompt, ids) for prompt, ids in encoded if len(ids) <= max_length]
    return [prompt for prompt, _ in fitting], [ids for _, ids in fitting]


def encode_pair(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Messages,
    response: str,
    *,
    max_length: int,
    **variables: str,
) -> Encoded:
    """Ids of prompt and response, cut at the end to `max_length` tokens. A `CutAnswer` has no end.
    variables: what the template reads beside the messages.

    The response starts where the prompt alone and the whole part ways, so a token that merges
    across the border belongs to the response.
    """
    messages, tools = [*prompt, *answer_messages(response)], tools_of(prompt)
    if isinstance(response, Turns):
        whole = _template(tokenizer, messages, tools=tools, **variables)
        spans, _ = _spans(tokenizer, messages, whole, len(prompt), tools=tools, **variables)
        return _encoded(whole, spans or [(len(whole), len(whole))], max_length)
    prompt_ids = whole = encode_prompt(tokenizer, prompt, **variables)
    if response or not isinstance(response, CutAnswer):
        open_end = {"continue_final_message": True} if isinstance(response, CutAnswer) else {}
        whole = _template(tokenizer, messages, tools=tools, **open_end, **variables)
    border = _common_prefix(prompt_ids, whole)
    return _encoded(whole, [(border, len(whole))], max_length)


END_OF_STEP = "\n"


def encode_step(tokenizer: PreTrainedTokenizerBase, text: str, role: str) -> list[int]:
    """Ids of one step as process reward models read it, its end among them. What looks like a
    control token inside it stays text."""
    said = text if role == "assistant" else f"{role}: {text}"
    ids: list[int] = tokenizer.encode(
        said + END_OF_STEP, add_special_tokens=False, split_special_tokens=True
    )
    return ids


MERGED = 2  # tokens at a border that the next message may change


def encode_turns(
    tokenizer: PreTrainedTokenizerBase, prompt: Messages, response: str, *, max_length: int
) -> tuple[Encoded, int]:
    """As `encode_pair`, with the earlier answers of the assistant in `prompt` among what is learnt;
    and how many of them are not, because the template shows an earlier answer otherwise than the
    last one (without its reasoning, for example): a model never writes what is shown there."""
    last = encode_pair(tokenizer, prompt, response, max_length=10**9)
    spans, left_out = _spans(tokenizer, prompt, last.ids, 0, tools=tools_of(prompt))
    spans.append((last.prompt_length, len(last.ids)))
    return _encoded(last.ids, spans, max_length), left_out


def _spans(
    tokenizer: PreTrainedTokenizerBase,
    messages: Messages,
    whole: Sequence[int],
    first: int,
    **options: Any,
) -> tuple[list[tuple[int, int]], int]:
    """From which to which token of `whole` each message of the assistant stands, of those from
    number `first` on; and how many do not stand there as the model would have written them."""
    spans, left_out = [], 0
    for i in range(first, len(messages)):
        if messages[i]["role"] != "assistant":
            continue
        before = (
            _template(tokenizer, messages[:i], add_generation_prompt=True, **options) if i else []
        )
        through = _template(tokenizer, messages[: i + 1], **options)
        start, end = _common_prefix(before, whole), _common_prefix(through, whole)
        if i and start >= len(before) - MERGED and end >= max(start + 1, len(through) - MERGED):
            spans.append((start, end))
        else:
            left_out += 1
    return spans, left_out


def _encoded(ids: Sequence[int], spans: Sequence[tuple[int, int]], max_length: int) -> Encoded:
    """The answer is what stands in `spans`; between them, and behind the last, others speak."""
    cut = max(0, len(ids) - max_length)
    ends = [*spans, (len(ids), len(ids))]
    others = tuple(
        (a[1], min(b[0], max_length)) for a, b in pairwise(ends) if a[1] < min(b[0], max_length)
    )
    return Encoded(list(ids[:max_length]), min(spans[0][0], max_length), cut > 0, cut, others)


class PairEncoder:
    """`encode_pair` with a memory: in preference data prompts and answers recur many times."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._known: dict[tuple[str, ...], Encoded] = {}

    def __call__(self, prompt: Messages, response: str, **variables: str) -> Encoded:
        key = (repr(prompt), repr(tools_of(prompt)), response, *variables.values())
        if key not in self._known:
            self._known[key] = encode_pair(
                self._tokenizer, prompt, response, max_length=self._max_length, **variables
            )
        return self._known[key]


def truncated_share(rows: Iterable[Encoded]) -> float:
    """Share of the rows that were cut, 0–1."""
    flags = [row.truncated for row in rows]
    return sum(flags) / len(flags) if flags else 0.0


def _template(tokenizer: PreTrainedTokenizerBase, messages: Messages, **options: Any) -> list[int]:
    """Ids by the template. What looks like a control token inside a message stays plain text, so
    that nobody can end the prompt from within it; and lengths are ours to watch, hence no word
    from the tokenizer about them. Raises `RecipeError` (bad_template) where it refuses, or where
    it would leave out calls of tools without a word."""
    calls = any("tool_calls" in message for message in messages)
    if calls and "tool_calls" not in str(tokenizer.chat_template):
        raise RecipeError(
            "bad_template",
            Fault.CONFIGURATION,
            "The chat template of the tokenizer writes no calls of tools (tool_calls), which this "
            "data has. Give the model's tokenizer a template that writes them.",
        )
    try:
        return list(
            tokenizer.apply_chat_template(
                messages,
                tokenize=True,
                return_dict=False,
                sanitize_control_tokens=True,
                tokenizer_kwargs={"verbose": False},
                **options,
            )
        )
    except TemplateError as error:
        template = str(tokenizer.chat_template)
        roles = ", ".join(message["role"] for message in messages)
        raise RecipeError(
            "bad_template",
            Fault.CONFIGURATION,
            f"The chat template of the tokenizer refuses a conversation of the roles {roles}: "
            f"{error}. Take these messages out of the data, or give the model's tokenizer a "
            f"template that takes them. It begins: {template[:QUOTED]}",
        ) from error


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    length = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        length += 1
    return length


# Batches of rows of similar length, so that little is padding.

BATCHES_PER_POOL = 8


class LengthGroupedSampler(Sampler[int]):
    """Row indices in which every run of `batch_size` has rows of similar length.

    Rows are shuffled, pooled by `BATCHES_PER_POOL` batches, sorted by length within the pool, and
    the batches shuffled again, so that neither their content nor their order follows the length.
    An incomplete batch comes last. The order depends on seed and epoch alone, so a resumed run
    continues where it was.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, *, seed: int) -> None:
        self.lengths = torch.as_tensor(list(lengths))
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator)
        batches = [
            batch
            for pool in order.split(self.batch_size * BATCHES_PER_POOL)
            for batch in pool[self.lengths[pool].argsort(stable=True)].split(self.batch_size)
        ]
        rest = [b for b in batches if len(b) < self.batch_size]
        whole = [b for b in batches if len(b) == self.batch_size]
        for i in torch.randperm(len(whole), generator=generator).tolist():
            yield from whole[i].tolist()
        for batch in rest:
            yield from batch.tolist()


class StepBatches(Sampler[list[int]]):
    """The rows of the steps from `first` on, up to `end`, by their numbers."""

    def __init__(self, rows_of: Callable[[int], list[int]], first: int, end: int) -> None:
        self.rows_of = rows_of
        self.steps = range(first, end)

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.rows_of, self.steps)


def padding_share(lengths: Sequence[int], order: Sequence[int], batch_size: int) -> float:
    """Share of padded positions when rows are batched in `order`: 0–1."""
    real = padded = 0
    for start in range(0, len(order), batch_size):
        batch = [lengths[i] for i in order[start : start + batch_size]]
        real += sum(batch)
        padded += max(batch) * len(batch)
    return 1 - real / padded if padded else 0.0


# Rows of token ids to rectangles.


def pad_left(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """(ids, mask), both [B, longest row]; for prompts, whose answers begin in one column."""
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def pad_right(rows: Sequence[Sequence[int]], pad_id: int, length: int = 0) -> tuple[Tensor, Tensor]:
    """(ids, mask), both [B, longest row], or `length` where that is more."""
    width = max([length, *map(len, rows)])
    ids = torch.tensor([list(row) + [pad_id] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return ids, mask


# A step of pairs in parts under a budget of tokens, each part in rectangles with little padding.
#
# A pair's loss needs both its scores, so a part holds whole pairs; inside a part every text goes
# to
# the rectangle of its length, wherever its partner goes.

# A text opens a rectangle of its own kind when it is this much shorter than the longest of the
# present one, and that has some rows: narrower rectangles save padding and cost calls.
_SHORTER = 0.8
_LEAST_ROWS = 4


def rectangles(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of texts in groups of similar length, longest first: every text in one of them."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    found: list[list[int]] = []
    for index in order:
        present = found[-1] if found else None
        if present is None or (
            len(present) >= _LEAST_ROWS and lengths[index] < _SHORTER * lengths[present[0]]
        ):
            found.append([index])
        else:
            present.append(index)
    return found


def shared_rows(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Indices of texts in rows of at most `row_length` tokens, about equally full, so that the
    rectangle they make has little padding: longest first, each to the emptiest row (Graham 1969,
    "Bounds on Multiprocessing Timing Anomalies"), in the fewest rows for which that fits."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    most = max(row_length, lengths[order[0]])
    for count in range(-(-sum(lengths) // most), len(lengths)):
        filled = [(0, row) for row in range(count)]
        rows: list[list[int]] = [[] for _ in filled]
        for index in order:
            tokens, row = filled[0]
            if tokens + lengths[index] > most:
                break
            rows[row].append(index)
            heapq.heapreplace(filled, (tokens + lengths[index], row))
        else:
            return rows
    return [[index] for index in order]


def row_tokens(rows: Iterable[Iterable[int]], lengths: Sequence[int]) -> int:
    """Tokens of the rectangle of rows that several texts may share, padding included."""
    filled = [sum(lengths[i] for i in row) for row in rows]
    return len(filled) * max(filled)


def padded_tokens(
    lengths: Sequence[int],
    *,
    one_rectangle: bool = False,
    packed: bool = False,
    row_length: int | None = None,
) -> int:
    """Tokens of the rectangles, or of a single one, padding included; `packed`: of rows that lie
    end to end. `row_length`: of `shared_rows` where that is less."""
    if packed:
        return sum(lengths)
    if one_rectangle:
        tokens = len(lengths) * max(lengths)
    else:
        tokens = sum(len(rows) * lengths[rows[0]] for rows in rectangles(lengths))
    if row_length is not None:
        tokens = min(tokens, row_tokens(shared_rows(lengths, row_length), lengths))
    return tokens


def parts_under(
    pairs: Sequence[tuple[int, ...]],
    *,
    budget: int | None,
    at_least: int = 1,
    most_rows: int | None = None,
    **layout: Any,
) -> list[list[int]]:
    """Indices of pairs (or single texts), given by the lengths of their texts, in parts of at most
    `budget` tokens, by `padded_tokens` of this `layout`, and `most_rows`, and at least so many
    parts; what is over it alone is a part by itself.

    Pairs come longest first, so the part that needs most memory is computed first.
    """
    order = sorted(range(len(pairs)), key=lambda i: (-max(pairs[i]), -min(pairs[i]), i))
    rows = min(-(-len(pairs) // at_least), most_rows or len(pairs))
    parts: list[list[int]] = []
    for index in order:
        trial = [*parts[-1], index] if parts else [index]
        lengths = [length for i in trial for length in pairs[i]]
        fits = not budget or padded_tokens(lengths, **layout) <= budget
        if parts and len(trial) <= rows and fits:
            parts[-1] = trial
        else:
            parts.append([index])
    return parts


# Orders in which training rows come: by length, in strata, or rare groups as often as large ones.
#
# Every order depends on seed and epoch alone, so a resumed run continues where it was.

LENGTH_STRATA = 4


class OrderSampler(Sampler[int]):
    """Row indices as `order(generator)` gives them, again for every epoch."""

    def __init__(self, order: Callable[[torch.Generator], list[int]], rows: int, *, seed: int):
        self.order = order
        self.rows = rows
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[int]:
        yield from self.order(torch.Generator().manual_seed(self.seed + self.epoch))


def length_strata(lengths: Sequence[int]) -> list[int]:
    """The quarter of the lengths that each row is in, 0–3; equal lengths share theirs."""
    ordered = sorted(lengths)
    bounds = [ordered[len(ordered) * i // LENGTH_STRATA] for i in range(1, LENGTH_STRATA)]
    return [sum(length >= bound for bound in bounds) for length in lengths]


def stratified_order(strata: Sequence[Hashable], generator: torch.Generator) -> list[int]:
    """Every row once, so that any stretch of the order holds about its share of every stratum.

    Rows of a stratum are shuffled and spread evenly over the epoch from a random start (systematic
    sampling; Cochran, Sampling Techniques (1977), chapter 8).
    """
    members: dict[Hashable, list[int]] = {}
    for index, stratum in enumerate(strata):
        members.setdefault(stratum, []).append(index)
    places: list[tuple[float, int]] = []
    for rows in members.values():
        start = float(torch.rand(1, generator=generator))
        shuffled = torch.randperm(len(rows), generator=generator).tolist()
        places += [((i + start) / len(rows), rows[j]) for i, j in enumerate(shuffled)]
    return [index for _, index in sorted(places)]


def inverse_frequency_order(groups: Sequence[Hashable], generator: torch.Generator) -> list[int]:
    """As many draws as rows, with replacement, every group as likely as every other."""
    sizes: dict[Hashable, int] = {}
    for group in groups:
        sizes[group] = sizes.get(group, 0) + 1
    weights = torch.tensor([1 / sizes[group] for group in groups], dtype=torch.float64)
    return torch.multinomial(weights, len(groups), replacement=True, generator=generator).tolist()


# Which rows are left out together: folds over people, else over what rows share. No torch.

ANNOTATOR, CLUSTER, PROMPT, ROW = "annotator", "cluster", "prompt", "row"
LEAST_LEFT = 0.2  # of the rows must be left to a fold's training


def annotator_folds(rows: Sequence[Preference], folds: int, *, seed: int) -> dict[str, int] | None:
    """The fold (0 … folds − 1) of everybody who voted.

    A fold trains on the rows that none of its people voted on. None where a row names nobody, fewer
    than `folds` people voted, or some fold would be left with less than `LEAST_LEFT` of the rows.
    """
    names = [name for row in rows for name, _ in row.voters]
    if not all(row.voters for row in rows) or len(set(names)) < folds:
        return None
    fold_of = dict(zip(names, assign_folds(names, folds, seed=seed), strict=True))
    met = [{fold_of[name] for name, _ in row.voters} for row in rows]
    left = min(sum(fold not in of for of in met) for fold in range(folds))
    return fold_of if left >= max(1, LEAST_LEFT * len(rows)) else None


def fold_keys(rows: Sequence[Preference], folds: int) -> tuple[str, list[Hashable]]:
    """(by what, one key a row): the cluster, else the prompt, else the row; the first of which
    there are at least `folds`.

    Rows with one key share a fold, so a model is tested on debates or prompts that it has not seen,
    and never on a row it was trained on.
    """
    candidates: list[tuple[str, list[Hashable]]] = [
        (CLUSTER, [row.cluster for row in rows]),
        (PROMPT, [repr(row.prompt) for row in rows]),
    ]
    for name, keys in candidates:
        if all(keys) and len(set(keys)) >= folds:
            return name, keys
    return ROW, list(range(len(rows)))


def assign_folds(keys: Sequence[Hashable], folds: int, *, seed: int) -> list[int]:
    """A fold (0 … folds − 1) for every row; equal keys get the same one.

    Keys are shuffled, then dealt largest first to the fold that has fewest rows so far, so folds
    are about equally large even where one annotator decided most.
    """
    sizes = Counter(keys)
    order = sorted(sizes, key=repr)
    random.Random(seed).shuffle(order)
    order.sort(key=lambda key: -sizes[key])  # stable: ties stay shuffled
    filled = [0] * folds
    fold_of: dict[Hashable, int] = {}
    for key in order:
        fold = min(range(folds), key=filled.__getitem__)
        fold_of[key] = fold
        filled[fold] += sizes[key]
    return [fold_of[key] for key in keys]
