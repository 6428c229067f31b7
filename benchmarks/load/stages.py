"""CPU time of the steps of a request, each without what the steps inside it take."""

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch


class Stages:
    """Functions by name, wrapped for the length of a measurement; times in milliseconds of CPU of
    the calling thread."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []  # what the steps inside each open step have taken

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            began = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                took = (time.thread_time() - began) * 1000
                self.spent[name] += took - self._inside.pop()
                if self._inside:
                    self._inside[-1] += took

        return run

    @contextmanager
    def wrapping(self, places: dict[str, tuple[str, ...]]) -> Iterator[None]:
        """Wrap the functions at these dotted places, by the name of their step."""
        with ExitStack() as stack:
            for name, paths in places.items():
                for path in paths:
                    owner, _, attribute = path.rpartition(".")
                    target = resolve_name(owner)
                    step = self.timed(name, getattr(target, attribute))
                    stack.enter_context(patch.object(target, attribute, step))
            yield
