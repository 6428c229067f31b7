"""The steps of a pipeline or a round as a drawing: one under the other, an arrow for what each
reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from apps.loop.models import RoundStep
from apps.loop.recipe import PREVIOUS, STEP, Step

WIDTH, HEIGHT, GAP = 300, 44, 20  # of a node, in px
LEFT, LANE = 30, 14  # room for arrows from the round before, and between two on the right


@dataclass(frozen=True, slots=True)
class Node:
    key: str
    number: int
    title: str
    note: str
    tone: str  # of badges, or "off"
    y: int

    @property
    def middle(self) -> int:
        return self.y + HEIGHT // 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """path: of SVG; is_earlier: from the round before."""

    path: str
    words: str
    is_earlier: bool


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    width: int
    height: int
    words: str


def graph(
    steps: Sequence[Step], done: Mapping[str, RoundStep] | None, tones: Mapping[str, str]
) -> Graph:
    """done: {key: step} of a round, whose states colour the nodes; None: of a pipeline, where those
    switched off are pale. tones: {state: tone}."""
    shown = [step for step in steps if done is None or step.key in done]
    nodes = tuple(_node(n, step, done, tones) for n, step in enumerate(shown))
    place = {node.key: n for n, node in enumerate(nodes)}
    arrows: list[Arrow] = []
    lanes = 0
    for n, step in enumerate(shown):
        for key, words, is_earlier in _reads(step):
            if is_earlier:
                y = nodes[n].middle
                arrows.append(Arrow(f"M4 {y} H{LEFT}", words, is_earlier=True))
            elif key in place and place[key] < n - 1:
                lanes += 1
                arrows.append(Arrow(_bow(nodes[place[key]], nodes[n], lanes), words, False))
    for above, below in pairwise(nodes):
        x = LEFT + WIDTH // 2
        arrows.append(Arrow(f"M{x} {above.y + HEIGHT} V{below.y}", "", is_earlier=False))
    return Graph(
        nodes,
        tuple(arrows),
        LEFT + WIDTH + LANE * (lanes + 1) + 4,
        len(nodes) * (HEIGHT + GAP) - GAP + 4,
        ", then ".join(f"{node.title} ({node.note})" for node in nodes),
    )


def _node(
    n: int, step: Step, done: Mapping[str, RoundStep] | None, tones: Mapping[str, str]
) -> Node:
    if done is not None:
        row = done[step.key]
        note, tone = row.get_state_display(), tones.get(row.state, "")
    else:
        note, tone = ("switched off", "off") if not step.enabled else (_note(step), "")
    number = done[step.key].place if done is not None else n + 1
    return Node(step.key, number, step.title, note, tone, 2 + n * (HEIGHT + GAP))


def _note(step: Step) -> str:
    if step.run_kind:
        return step.run_kind
    return step.stage or ("people" if step.kind not in ("freeze", "select") else "votes")


def _reads(step: Step) -> list[tuple[str, str, bool]]:
    """(step, words, whether it is the round before's) of each input that a step makes."""
    found = [
        (source.step, f"{role} of {source.step}", source.origin == PREVIOUS)
        for role, source in step.inputs.items()
        if source.origin in (STEP, PREVIOUS)
    ]
    if step.of:
        found.append((step.of, f"the model of {step.of}", False))
    return list(dict.fromkeys(found))


def _bow(source: Node, target: Node, lane: int) -> str:
    right, out = LEFT + WIDTH, LEFT + WIDTH + LANE * lane
    a, b = source.middle + 6, target.middle - 6
    down = f"Q{out} {a} {out} {a + 6} V{b - 6} Q{out} {b} {out - 6} {b}"
    return f"M{right} {a} H{out - 6} {down} H{right}"
