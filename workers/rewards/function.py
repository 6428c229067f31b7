"""A reward that is a Python function of an installed package (docs/rewards.md)."""

import math
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

from workers.config.rewards import FUNCTIONS, FunctionSettings, installed_functions
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import Messages, Prompt, prompt_key
from workers.rewards.source import Scores


class FunctionReward:
    """`prompts`: whose rows the function is given beside each answer; {} for any other prompt. An
    answer that it gives None is withheld: it gives no gradient."""

    def __init__(
        self, settings: FunctionSettings, prompts: Sequence[Prompt] = (), *, where: str = "reward"
    ) -> None:
        """Raises `RecipeError`: no_function where it is not installed here or is none,
        reward_failed where its package does not load."""
        self._settings = settings
        self._where = f"{where}.name"
        self._rows = {prompt_key(one.messages): one.columns for one in prompts}
        self._call = self._loaded()

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        given = [[dict(message) for message in prompt] for prompt in prompts]
        rows = [dict(self._rows.get(prompt_key(prompt), {})) for prompt in prompts]
        answers = [str(text) for text in responses]
        found = self._returned(prompts=given, answers=answers, rows=rows)
        if len(found) != len(answers):
            raise self._failed(f"gave {len(found)} scores for {len(answers)} answers")
        values = [self._number(value, i, prompts[i]) for i, value in enumerate(found)]
        unknown = [value is None for value in values]
        scores = [0.0 if value is None else value for value in values]
        return Scores(
            scores, {self._settings.name: scores}, withheld=unknown if any(unknown) else None
        )

    def _returned(self, **asked: Any) -> list[Any]:
        """What the function gives, within the time it has. Nothing can end a thread from outside,
        so one that is late is left behind: the run fails, and the process ends with it."""
        found: list[Any] = []
        raised: list[BaseException] = []

        def call() -> None:
            try:
                found.extend(self._call(**asked, **dict(self._settings.options)))
            except BaseException as error:  # whatever it raises is the function's own
                raised.append(error)

        thread = threading.Thread(target=call, name=self._settings.name, daemon=True)
        thread.start()
        thread.join(self._settings.timeout_s)
        if thread.is_alive():
            n, seconds = len(asked["answers"]), self._settings.timeout_s
            raise self._failed(f"gave nothing within {seconds:g} s for {n} answers (timeout_s)")
        if raised:
            error = raised[0]
            raise self._failed(f"raised {type(error).__name__}: {error}") from error
        return found

    def _number(self, value: Any, i: int, prompt: Messages) -> float | None:
        if value is None:
            return None
        try:
            number = math.nan if isinstance(value, str) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            asked = prompt[-1]["content"] if prompt else ""
            raise self._failed(
                f"gave {value!r:.60} for row {i + 1}, which is no finite number "
                f"(prompt {asked[-80:]!r})"
            )
        return number

    def _loaded(self) -> Callable[..., Any]:
        name = self._settings.name
        found = [one for one in entry_points(group=FUNCTIONS) if one.name == name]
        if not found:
            known = ", ".join(installed_functions()) or "none"
            raise RecipeError(
                "no_function",
                Fault.CONFIGURATION,
                f"{self._where}: no reward function {name!r} is installed on this worker "
                f"(installed: {known})",
            )
        if len({one.value for one in found}) > 1:
            told = ", ".join(sorted(one.value for one in found))
            told = self._told(f"is declared by several packages ({told})")
            raise RecipeError("no_function", Fault.CONFIGURATION, told)
        try:
            loaded = found[0].load()
        except Exception as error:
            raise self._failed(f"does not load: {type(error).__name__}: {error}") from error
        if not callable(loaded):
            told = self._told(f"is no function ({found[0].value})")
            raise RecipeError("no_function", Fault.CONFIGURATION, told)
        call: Callable[..., Any] = loaded
        return call

    def _failed(self, what: str) -> RecipeError:
        return RecipeError("reward_failed", Fault.BUG, self._told(what))

    def _told(self, what: str) -> str:
        return f"{self._where}: the reward function {self._settings.name!r} {what}"
