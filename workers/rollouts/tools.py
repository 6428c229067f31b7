"""Answers of several turns, in which the policy calls the tools of a world.

What TRL 1.16 does inside its trainer's own drawing (`tools=`, `environment_factory`) is done here
with its public parts: its parser of calls, its test of chat templates and, in the loss, its
`tool_mask`. Its loop is not used because it draws from the global generator, on one process, by the
model's own generation defaults (workers/grpo/trainer.py), and because its environments are
experimental and share one state between the answers of a batch's next turn.

A turn is drawn from the very tokens of the turns before it: nothing is encoded a second time. The
results of tools are put behind it as the chat template writes them, in which what looks like a
control token stays text; they are in the sequence and never in what is learnt.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.chat_template_utils import (
    add_response_schema,
    is_chat_template_prefix_preserving,
    parse_response,
    supports_tool_calling,
)

from measures.messages import Messages, written
from workers.config.grpo import PLAIN_TEMPLATE, GRPOSettings
from workers.contract.events import Fault, RecipeError
from workers.data.batches import encode_prompt, pad_left, pad_right
from workers.data.snapshot import Asked, CutAnswer, prompt_key
from workers.environments.worlds import WORLDS, Call, Episode, Task, World
from workers.rollouts.local import Responses, Sampling, derive_seed, generate

# How tools, calls and results are written for models whose own template knows none of them.
PLAIN = (
    "{{ bos_token }}"
    "{% if tools %}system: Tools, as JSON schemas:\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    'To call one write <tool_call> {"name": "…", "arguments": {…}} </tool_call>\n{% endif %}'
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ ' <tool_call> {\"name\": \"' + call['function']['name'] + '\", \"arguments\": ' }}"
    "{{ call['function']['arguments'] | tojson }}{{ '} </tool_call>' }}{% endfor %}"
    "{{ eos_token if message['role'] == 'assistant' else '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
CALL_OPENS, CALL_CLOSES = "<tool_call>", r"</tool_call>\s*"


def prepare_tokenizer(tokenizer: PreTrainedTokenizerBase, settings: GRPOSettings) -> None:
    """Give the tokenizer what writing and reading calls takes. Raises `RecipeError` (no_tools)
    where its chat template cannot: refused by name, before anything is drawn."""
    if settings.tool_template == PLAIN_TEMPLATE:
        tokenizer.chat_template = PLAIN
        tokenizer.response_template = {
            "defaults": {"role": "assistant"},
            "start_anchor": "assistant:",
            "fields": {
                "tool_calls": {
                    "open": CALL_OPENS,
                    "close_pattern": CALL_CLOSES,
                    "repeats": True,
                    "content": "json",
                    "transform": {"type": "function", "function": "{content}"},
                },
                "content": {
                    "close_pattern": re.escape(str(tokenizer.eos_token)) + r"\s*",
                    "content": "text",
                },
            },
        }
    if not supports_tool_calling(tokenizer):
        raise _no_tools("its chat template writes no tools: no calls, or no results")
    if getattr(tokenizer, "response_template", None) is None:
        try:
            add_response_schema(tokenizer)
        except ValueError:
            raise _no_tools("nobody knows how its chat template writes calls") from None
    if not is_chat_template_prefix_preserving(tokenizer):
        raise _no_tools("its chat template writes earlier messages otherwise once others follow")


def _no_tools(why: str) -> RecipeError:
    return RecipeError(
        "no_tools",
        Fault.CONFIGURATION,
        f"environment: this model cannot call tools: {why}. Take a model whose template knows "
        "tools, or set tool_template to plain.",
    )


@dataclass(slots=True)
class _Open:
    """An answer under way. `learnt`: 1 where the policy drew the token, 0 where a tool wrote it."""

    world: World
    ids: list[int] = field(default_factory=list)
    learnt: list[int] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    turns: int = 0
    closed: bool = False  # whether the last turn has an end
    malformed: bool = False  # whether a turn began a call that nobody can read
    ended: bool = False

    def add(self, ids: Sequence[int], *, learnt: bool) -> None:
        self.ids += ids
        self.learnt += [int(learnt)] * len(ids)

    def episode(self) -> Episode:
        kind = Episode if self.ended else CutEpisode
        found = kind(written(self.messages))
        found.task, found.files = self.world.task, dict(self.world.files)
        found.messages, found.calls = self.messages, tuple(self.calls)
        found.turns, found.ended, found.malformed = self.turns, self.ended, self.malformed
        found.tokens, found.all_tokens = sum(self.learnt), len(self.ids)
        return found


class CutEpisode(Episode, CutAnswer):
    """One that a limit cut, of tokens or of rounds."""


class ToolRollouts:
    """Draws answers in a world; called as `workers.rollouts.local.generate` is. `tasks` by
    `prompt_key`; `world` makes what the tools act on."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tasks: Mapping[str, Task],
        settings: GRPOSettings,
        *,
        world: type[World] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.tasks = tasks
        self.rounds = settings.max_tool_rounds
        self.environment = settings.environment
        self.world = world or WORLDS[settings.environment]
        self.schemas = [tool.schema for tool in self.world.tools]
        parts = (getattr(tokenizer, "response_template", None) or {}).get("fields", {})
        self._opens = parts.get("tool_calls", {}).get("open")  # a call, where it is a plain text
        self._task_of: dict[tuple[int, ...], Task] = {}
        self._between: dict[str, list[int]] = {}

    def encode(self, prompt: Messages) -> list[int]:
        """Ids of the prompt with the tools told, up to where the policy begins."""
        ids = encode_prompt(self.tokenizer, Asked(prompt, self.schemas))
        self._task_of[tuple(ids)] = self.tasks[prompt_key(prompt)]
        return ids

    @torch.no_grad()
    def __call__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        stop: Sequence[int],
    ) -> Responses:
        """`max_new_tokens` of `sampling` is for a whole answer, what tools wrote included."""
        answers = [_Open(self.world(self._task_of[tuple(ids)])) for ids in prompts]
        going = list(range(len(answers)))
        for turn in range(self.rounds + 1):
            room = {i: sampling.max_new_tokens - len(answers[i].ids) for i in going}
            going = [i for i in going if room[i] > 0]
            if not going:
                break
            seed = derive_seed(sampling.seed, "turn", turn) if turn else sampling.seed
            drawn = generate(
                model,
                tokenizer,
                [[*prompts[i], *answers[i].ids] for i in going],
                replace(sampling, seed=seed, max_new_tokens=max(room[i] for i in going)),
                stop=stop,
            )
            masks = drawn.response_mask.bool()
            for i, ids, mask in zip(going, drawn.response_ids, masks, strict=True):
                self._say(answers[i], prompts[i], ids[mask].tolist()[: room[i]], stop)
            last = turn == self.rounds
            going = [i for i in going if not last and self._act(answers[i], room=sampling)]
        return self._responses(prompts, answers, model)

    def _say(
        self, answer: _Open, prompt: Sequence[int], ids: list[int], stop: Sequence[int]
    ) -> None:
        """What the policy drew in a turn, read by the tokenizer's own template."""
        told: Any = self.schemas
        before = [*prompt, *answer.ids]
        message = parse_response(self.tokenizer, ids, prefix=before, tools=told)
        answer.add(ids, learnt=True)
        answer.turns += 1
        calls = [_called(call) for call in message.get("tool_calls") or ()]
        content = str(message.get("content") or "").strip()
        answer.malformed |= bool(self._opens) and self._opens in content
        answer.messages.append(
            {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
        )
        answer.closed = ids[-1] in stop
        answer.ended = answer.closed and not calls

    def _act(self, answer: _Open, *, room: Sampling) -> bool:
        """Carry out the calls of the last message; whether there is another turn. Results that
        do not fit end the answer, as if the policy had not ended."""
        calls = answer.messages[-1].get("tool_calls") or []
        if not answer.closed or not calls or len(answer.ids) >= room.max_new_tokens:
            return False
        results: list[dict[str, Any]] = []
        for wanted in calls:
            inner = wanted["function"]
            call = answer.world.call(inner["name"], inner["arguments"])
            answer.calls.append(call)
            failed = {"error": True} if call.error else {}
            results.append({"role": "tool", "name": call.name, "content": call.content} | failed)
        answer.messages += results
        ids = self.between(results)
        if len(answer.ids) + len(ids) >= room.max_new_tokens:
            return False
        answer.add(ids, learnt=False)
        return True

    def between(self, results: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids from behind the end token of a turn to where the next one begins: what the template
        adds to a conversation with these results. The same for any turn before them."""
        key = repr([(one["name"], one["content"]) for one in results])
        if key not in self._between:
            self._between[key] = self._suffix(results)
        return self._between[key]

    def _suffix(self, results: Sequence[Mapping[str, Any]]) -> list[int]:
        called = {"type": "function", "function": {"name": results[0]["name"], "arguments": {}}}
        before: list[dict[str, Any]] = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "tool_calls": [called]},
        ]
        told = [{"role": r["role"], "name": r["name"], "content": r["content"]} for r in results]
        start = self._written(before, add_generation_prompt=False)
        whole = self._written([*before, *told], add_generation_prompt=True)
        ends = [i for i, one in enumerate(start) if one == self.tokenizer.eos_token_id]
        start = start[: ends[-1] + 1] if ends else start
        if whole[: len(start)] != start:
            raise _no_tools("its chat template writes a turn otherwise once results follow")
        return whole[len(start) :]

    def _written(self, messages: list[dict[str, Any]], **options: Any) -> list[int]:
        return list(
            self.tokenizer.apply_chat_template(
                messages,
                tokenize=True,
                return_dict=False,
                sanitize_control_tokens=True,
                tokenizer_kwargs={"verbose": False},
                **options,
            )
        )

    def _responses(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[_Open], model: PreTrainedModel
    ) -> Responses:
        pad_id = self.tokenizer.pad_token_id
        prompt_ids, prompt_mask = pad_left(prompts, pad_id)
        ids, mask = pad_right([answer.ids for answer in answers], pad_id)
        learnt, _ = pad_right([answer.learnt for answer in answers], 0)
        device = model.device
        return Responses(
            prompt_ids.to(device),
            prompt_mask.to(device),
            ids.to(device),
            mask.to(device),
            torch.tensor([answer.ended for answer in answers], device=device),
            [answer.episode() for answer in answers],
            learnt=learnt.to(device),
        )


def _called(call: Mapping[str, Any]) -> dict[str, Any]:
    """As messages hold a call (docs/adr/0021)."""
    inner = call.get("function") or call
    told = {"name": str(inner.get("name")), "arguments": inner.get("arguments")}
    return {"type": "function", "function": told}
