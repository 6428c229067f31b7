"""Regular expressions that people wrote, on text that a model wrote: none may take for ever."""

import regex

from workers.contract.events import (
    Fault,
    RecipeError,
)

SECONDS = 2.0  # for one text; a sane expression takes microseconds


class Expression:
    """A compiled expression; `where` is its path in the configuration, for errors."""

    def __init__(self, pattern: str, *, where: str, ignore_case: bool = False) -> None:
        self._compiled = regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
        self._where = where

    def search(self, text: str) -> "regex.Match[str] | None":
        return self._within(lambda: self._compiled.search(text, timeout=SECONDS))

    def fullmatch(self, text: str) -> "regex.Match[str] | None":
        return self._within(lambda: self._compiled.fullmatch(text, timeout=SECONDS))

    def last(self, text: str) -> "regex.Match[str] | None":
        """The last of the matches that do not overlap."""
        return self._within(
            lambda: next(iter(list(self._compiled.finditer(text, timeout=SECONDS))[-1:]), None)
        )

    def _within(self, look):  # type: ignore[no-untyped-def]
        try:
            return look()
        except TimeoutError as error:
            raise RecipeError(
                "slow_expression",
                Fault.CONFIGURATION,
                f"{self._where}: took over {SECONDS:g} s on one response. Avoid repeats inside "
                "repeats, such as (a+)+.",
            ) from error
