"""Everybody's votes as arrays, for the figures about single annotators."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.common.columns import int_columns
from measures.annotators import Repeats, Work
from measures.voting import CHOICES

Ints = NDArray[np.int64]

_CODE = " ".join(f"when '{choice}' then {code}" for code, choice in enumerate(CHOICES))
_SIDE = "when 'a' then 1 when 'b' then 0 else -1"

# Work is what was asked for: places that decide, and gold pairs. Times in milliseconds.
_VOTES = f"""
select v.comparison_id, v.annotator_id::bigint, (case v.choice {_CODE} end)::bigint,
  (case v.left_is {_SIDE} end)::bigint, coalesce(v.active_ms, -1)::bigint,
  (case c.gold {_CODE} else -1 end)::bigint, (c.stratum = 'random')::int::bigint,
  (extract(epoch from v.cast_at) * 1000)::bigint, v.id
from labeling_vote v
join labeling_slot s on s.id = v.slot_id
join labeling_comparison c on c.id = v.comparison_id
where v.project_id = %(project)s and v.is_current and s.kind in ('regular', 'gold')
"""  # noqa: S608

_REPEATS = f"""
select v.annotator_id::bigint, (case f.choice {_CODE} end)::bigint,
  (case v.choice {_CODE} end)::bigint, (case f.left_is {_SIDE} end)::bigint,
  (case v.left_is {_SIDE} end)::bigint
from labeling_slot s
join labeling_vote v on v.slot_id = s.id and v.is_current
join labeling_vote f on f.id = s.measures_id
where s.project_id = %(project)s and s.kind = 'repeat'
"""  # noqa: S608

# Characters of what an answer says, all its turns together.
_LENGTHS = """
with said as materialized (
  select r.id, coalesce(sum(length(turn ->> 'content')), 0) as n
  from labeling_response r
  join labeling_prompt p on p.id = r.prompt_id
  cross join lateral jsonb_array_elements(r.messages) turn
  where p.project_id = %(project)s
  group by r.id
)
select c.id, sign(coalesce(a.n, 0) - coalesce(b.n, 0))::bigint
from labeling_comparison c
left join said a on a.id = c.response_a_id
left join said b on b.id = c.response_b_id
where c.project_id = %(project)s
"""


@dataclass(frozen=True, slots=True)
class Crowd:
    """people: (J,) user ids, ascending, which `work.who` and `repeats.who` number."""

    people: Ints
    work: Work
    repeats: Repeats


def annotator_votes(*, project: Project) -> Crowd:
    """One read of the project's votes; rows in the order in which votes were cast."""
    values = {"project": project.pk}
    columns = int_columns(_VOTES, values, n=9)
    order = np.lexsort((columns[8], columns[7]))
    pair, person, choice, a_left, ms, gold, random, at, _ = (column[order] for column in columns)
    people, who = np.unique(person, return_inverse=True)
    ids, place = np.unique(pair, return_inverse=True)
    sign = _a_longer(values, ids)[place]
    chose = np.where(choice <= 1, choice == 0, -1)  # 1 A, 0 B, −1 neither
    work = Work(
        who=who,
        pair=place,
        choice=choice,
        left=_same(chose, a_left),
        longer=_same(chose, np.where(sign == 0, -1, sign > 0)),
        active_ms=ms,
        gold=gold,
        random=random == 1,
        n_people=len(people),
        ordered=_ordered(who, at, len(people)),
    )
    return Crowd(people, work, _repeats(values, people))


def _same(chose: Ints, a: Ints) -> Ints:
    """1 where the chosen answer is the one that `a` says of A (1 yes, 0 no), −1 where unknown."""
    return np.where((chose < 0) | (a < 0), -1, chose == a).astype(np.int64)


def _a_longer(values: dict[str, object], ids: Ints) -> Ints:
    """Of these comparisons: 1 where A is longer, −1 where B is, 0 where neither."""
    keys, signs = int_columns(_LENGTHS, values, n=2)
    order = np.argsort(keys)
    return signs[order][np.searchsorted(keys[order], ids)] if len(ids) else ids


def _ordered(who: Ints, at: Ints, n_people: int) -> NDArray[np.bool_]:
    """People whose votes have times of their own: an import without times gives all the same."""
    order = np.argsort(who, kind="stable")  # rows come by time, so each person's stay so
    person, moment = who[order], at[order]
    new = np.ones(len(who), dtype=bool)
    new[1:] = (person[1:] != person[:-1]) | (moment[1:] != moment[:-1])
    distinct = np.bincount(person[new], minlength=n_people)
    return 2 * distinct > np.bincount(who, minlength=n_people)


def _repeats(values: dict[str, object], people: Ints) -> Repeats:
    person, first, again, first_a, again_a = int_columns(_REPEATS, values, n=5)
    known = np.isin(person, people)
    who = np.searchsorted(people, person[known])
    first, again = first[known], again[known]

    def left(choice: Ints, a_left: Ints) -> Ints:
        return _same(np.where(choice <= 1, choice == 0, -1), a_left)

    return Repeats(who, first, again, left(first, first_a[known]), left(again, again_a[known]))
