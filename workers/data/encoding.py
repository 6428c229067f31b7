"""Messages to token ids, through the tokenizer's own chat template."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from workers.data.snapshot import Messages

# For tokenizers that bring no template. Ends each message so that an answer has an end to learn.
# Those that mark the beginning and the end of a text (encoders: [CLS] … [SEP]) get their marks too.
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
ENCODER_TEMPLATE = (
    "{{ cls_token }}"
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    "{{ sep_token if message['role'] == 'assistant' else '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of one conversation; the response begins at `prompt_length`."""

    ids: list[int]
    prompt_length: int
    truncated: bool = False
    cut: int = 0  # tokens of the whole that are not among the ids

    @property
    def response_length(self) -> int:
        return len(self.ids) - self.prompt_length


def encode_prompt(tokenizer: PreTrainedTokenizerBase, prompt: Messages) -> list[int]:
    """Ids of the prompt up to where the assistant begins to speak."""
    return _template(tokenizer, prompt, add_generation_prompt=True)


def encode_pair(
    tokenizer: PreTrainedTokenizerBase, prompt: Messages, response: str, *, max_length: int
) -> Encoded:
    """Ids of prompt and response, cut at the end to `max_length` tokens.

    The response starts where the prompt alone and the whole part ways, so a token that merges
    across the border belongs to the response.
    """
    prompt_ids = encode_prompt(tokenizer, prompt)
    whole = _template(tokenizer, [*prompt, {"role": "assistant", "content": response}])
    border = _common_prefix(prompt_ids, whole)
    cut = max(0, len(whole) - max_length)
    return Encoded(whole[:max_length], min(border, max_length), cut > 0, cut)


class PairEncoder:
    """`encode_pair` with a memory: in preference data prompts and answers recur many times."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._known: dict[tuple[str, str], Encoded] = {}

    def __call__(self, prompt: Messages, response: str) -> Encoded:
        key = (repr(prompt), response)
        if key not in self._known:
            self._known[key] = encode_pair(
                self._tokenizer, prompt, response, max_length=self._max_length
            )
        return self._known[key]


def truncated_share(rows: Iterable[Encoded]) -> float:
    """Share of the rows that were cut, 0–1."""
    flags = [row.truncated for row in rows]
    return sum(flags) / len(flags) if flags else 0.0


def _template(tokenizer: PreTrainedTokenizerBase, messages: Messages, **options: Any) -> list[int]:
    """Ids by the template. What looks like a control token inside a message stays plain text, so
    that nobody can end the prompt from within it; and lengths are ours to watch, hence no word
    from the tokenizer about them."""
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


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    length = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        length += 1
    return length
