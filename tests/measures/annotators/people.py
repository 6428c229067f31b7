"""Simulated teams: honest people who differ, and one with a habit among them."""

import numpy as np

from measures.annotators import Work

TIE = 2


def team(
    seed,
    *,
    people=8,
    pairs=600,
    votes=3,
    habit="",
    longer_wins=0.65,
    ties=True,
    accuracy=(0.6, 0.95),
    best=None,
):
    """A project's `Work`; person 0 has the habit.

    Everybody else is right in 60 to 95 % of clear pairs, has a median time of 5 to 30 s and a taste
    for ties of their own; a quarter of the pairs are nearly a toss-up; the longer answer is the
    better one in `longer_wins` of the pairs. `best`: how often person 0 is right, if stated.
    """
    rng = np.random.default_rng(seed)
    a_is_right = rng.random(pairs) < 0.5
    a_is_longer = np.where(rng.random(pairs) < longer_wins, a_is_right, ~a_is_right)
    close = rng.random(pairs) < 0.25
    right = rng.uniform(*accuracy, people)
    right[0] = right[0] if best is None else best
    speed = np.log(1000 * rng.lognormal(np.log(12), 0.4, people))
    taste = rng.uniform(0.02, 0.25, people) if ties else np.zeros(people)

    pair = np.repeat(np.arange(pairs), votes)
    who = np.argsort(rng.random((pairs, people)), axis=1)[:, :votes].ravel()
    order = rng.permutation(len(pair))  # as they were cast
    pair, who, n = pair[order], who[order], len(pair)
    a_left = rng.random(n) < 0.5
    is_right = rng.random(n) < np.where(close[pair], 0.55, right[who])
    left = np.where(is_right, a_is_right[pair], ~a_is_right[pair]) == a_left
    tie = rng.random(n) < taste[who] * np.where(close[pair], 3, 0.33)
    ms = rng.lognormal(speed[who], 0.6)

    mine, often = who == 0, rng.random(n) < 0.85
    coin = rng.random(n) < 0.5
    if habit in ("left", "right"):
        left = np.where(mine & often, habit == "left", left)
    elif habit == "length":
        left = np.where(mine & often, a_is_longer[pair] == a_left, left)
    elif habit == "speed":
        ms, left = np.where(mine, rng.lognormal(7.1, 0.5, n), ms), np.where(mine, coin, left)
    elif habit == "reverse":
        left = np.where(mine, a_is_right[pair] != a_left, left)
    elif habit == "ties":
        tie = np.where(mine, coin, tie)
    elif habit == "coin":
        left = np.where(mine, coin, left)
    elif habit == "tired":
        sharp = a_is_right[pair] == a_left
        left = np.where(mine, np.where(np.arange(n) < n / 2, sharp, coin), left)
    if habit not in ("", "ties"):
        tie &= ~mine
    chose_a = left == a_left
    return Work(
        who=who,
        pair=pair,
        choice=np.where(tie, TIE, np.where(chose_a, 0, 1)),
        left=np.where(tie, -1, left),
        longer=np.where(tie, -1, chose_a == a_is_longer[pair]),
        active_ms=ms.astype(np.int64),
        gold=np.where((rng.random(pairs) < 0.08) & ~close, np.where(a_is_right, 0, 1), -1)[pair],
        random=np.ones(n, dtype=bool),
        n_people=people,
    )


def work_of(rows, *, n_people=None, **columns):
    """rows: (who, pair, choice) each; other columns unknown unless given."""
    who, pair, choice = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    empty = np.full(len(who), -1)
    given = {name: np.array(values) for name, values in columns.items()}
    return Work(
        who=who,
        pair=pair,
        choice=choice,
        left=given.get("left", empty),
        longer=given.get("longer", empty),
        active_ms=given.get("active_ms", empty),
        gold=given.get("gold", empty),
        random=given.get("random", np.ones(len(who), dtype=bool)),
        n_people=n_people or int(who.max()) + 1,
    )
