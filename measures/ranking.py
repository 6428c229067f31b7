"""An order of several answers out of who beat whom.

Comparisons of one prompt often share answers: a beats b, b beats c. Read together they order more
than two. The order keeps every result that no cycle contradicts, and says where it had to choose.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components


@dataclass(frozen=True, slots=True)
class Ranking:
    """`order`: items, best first. `scores[k]`: wins − losses of `order[k]` (Copeland).

    cyclic: some results contradict each other (a beats b beats c beats a), so at least one of them
    is broken by the order. complete: every neighbour in the order beat the next one directly and
    nothing is cyclic, so no other order keeps all the results.
    """

    order: tuple[int, ...]
    scores: tuple[int, ...]
    cyclic: bool
    complete: bool


def groups_of(n_items: int, wins: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Items that comparisons connect, directly or through others; each list in ascending order.

    Only within such a group is there anything to order: nothing compares one group with another.
    """
    labels = _components(n_items, wins, "weak")
    found: dict[int, list[int]] = defaultdict(list)
    for item, label in enumerate(labels):
        found[label].append(item)
    return list(found.values())


def ranking_of(n_items: int, wins: Iterable[tuple[int, int]]) -> Ranking:
    """Order items 0 … n_items − 1 by results (winner, loser).

    A pair that met several times counts once, for whoever won it more often; evenly split results
    order nothing. Items that beat each other in a cycle form a block (a strongly connected
    component); blocks are sorted topologically, so a result between blocks is never broken. Within
    a block, and between blocks that no result orders, the higher Copeland score (Copeland 1951:
    pairs won − pairs lost) goes first, then the lower number. Scores compare items only as far as
    they met similar opponents: with few comparisons per item an order that is not `complete` is
    partly a guess.
    """
    net: dict[tuple[int, int], int] = defaultdict(int)
    for winner, loser in wins:
        if winner == loser or not (0 <= winner < n_items and 0 <= loser < n_items):
            raise ValueError(f"({winner}, {loser}) is no result between {n_items} items")
        net[min(winner, loser), max(winner, loser)] += 1 if winner < loser else -1
    edges = [(a, b) if n > 0 else (b, a) for (a, b), n in net.items() if n]
    scores = [0] * n_items
    for winner, loser in edges:
        scores[winner] += 1
        scores[loser] -= 1
    block_of = _components(n_items, edges, "strong")
    order = _topological(block_of, edges, scores)
    cyclic = len(set(block_of)) < n_items
    direct = set(edges)
    complete = not cyclic and all(pair in direct for pair in pairwise(order))
    return Ranking(tuple(order), tuple(scores[item] for item in order), cyclic, complete)


def _topological(
    block_of: Sequence[int], edges: Sequence[tuple[int, int]], scores: Sequence[int]
) -> list[int]:
    """Items with every block before those it beat (Kahn), the best score first among the free."""
    members: dict[int, list[int]] = defaultdict(list)
    for item, block in enumerate(block_of):
        members[block].append(item)
    below: dict[int, set[int]] = defaultdict(set)
    waiting: dict[int, int] = defaultdict(int)
    for winner, loser in edges:
        one, other = block_of[winner], block_of[loser]
        if one != other and other not in below[one]:
            below[one].add(other)
            waiting[other] += 1
    ranked = {
        block: sorted(items, key=lambda item: (-scores[item], item))
        for block, items in members.items()
    }

    def place(block: int) -> tuple[int, int, int]:
        best = ranked[block][0]
        return -scores[best], best, block

    free = [place(block) for block in members if not waiting[block]]
    heapq.heapify(free)
    order: list[int] = []
    while free:
        block = heapq.heappop(free)[2]
        order.extend(ranked[block])
        for later in sorted(below[block]):
            waiting[later] -= 1
            if not waiting[later]:
                heapq.heappush(free, place(later))
    return order


def _components(n_items: int, edges: Sequence[tuple[int, int]], connection: str) -> list[int]:
    if not n_items:
        return []
    rows, columns = zip(*edges, strict=True) if edges else ((), ())
    graph = csr_matrix((np.ones(len(edges)), (rows, columns)), shape=(n_items, n_items))
    _, labels = connected_components(graph, directed=True, connection=connection)
    return labels.tolist()
