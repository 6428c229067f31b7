"""The reward models that were used last, loaded when they are asked for."""

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from workers.artifacts import Store
from workers.contract.scores import ScoreRequest
from workers.rewards.cache import template_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.data.snapshot import Messages
    from workers.rewards.cache import Row
    from workers.rewards.source import Scores

KEPT = 2
BATCH = 64


class Source(Protocol):
    """A loaded model (workers.rewards: ModelReward, EnsembleReward)."""

    def encode(
        self, prompts: "Sequence[Messages]", responses: "Sequence[str]"
    ) -> "Sequence[tuple[Row, ...]]": ...

    def score_rows(self, texts: "Sequence[tuple[Row, ...]]") -> "Scores": ...


class Models:
    """The last `KEPT` models used, by content hash and precision."""

    def __init__(self, cache: Path, *, kept: int = KEPT) -> None:
        self._cache = cache
        self._kept = kept
        self._loaded: OrderedDict[tuple[str, str], tuple[Source, str]] = OrderedDict()

    def get(self, request: ScoreRequest, precision: str) -> tuple[Source, str]:
        """(model, hash of its chat templates). Loads, and lets go of the one unused longest."""
        key = (request.sha256, precision)
        if key not in self._loaded:
            while len(self._loaded) >= self._kept:
                self._loaded.popitem(last=False)
            self._loaded[key] = self._load(request, precision)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _load(self, request: ScoreRequest, precision: str) -> tuple[Source, str]:
        from workers.rewards.build import load_reward  # seconds of imports, not before they count

        store = Store(request.artifacts_url)
        folder = store.get_tree(request.uri, sha256=request.sha256, cache=self._cache)
        source = load_reward(folder, name="model", batch_size=BATCH, precision=precision)
        return source, template_version(each.chat_template for each in source.tokenizers)
