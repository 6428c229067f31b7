"""The votes that decide, as arrays for the models of the voters."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.selectors.votes import newest_vote_id
from apps.common.columns import int_columns
from apps.labeling.models import Comparison, LabelingSettings
from measures.consensus import Votes, votes_from
from measures.voting import CHOICES

# Order of `CHOICES`. Gold pairs are voted on like others, and tell who is right how often.
_CODE = " ".join(f"when '{choice}' then {code}" for code, choice in enumerate(CHOICES))
_VOTES = f"""
select v.comparison_id, v.annotator_id::bigint, (case v.choice {_CODE} end)::bigint
from labeling_vote v
where v.project_id = %(project)s and v.is_current and not exists (
  select from labeling_slot s where s.id = v.slot_id and s.project_id = %(project)s
    and s.kind in ('repeat', 'audit', 'former'))
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Crowd:
    """`votes` number comparisons and people by their places in `ids` and `people`, both ascending.

    golds: (n_items,) index into `CHOICES` of the known answer, −1 without one.
    """

    votes: Votes
    ids: NDArray[np.int64]
    people: NDArray[np.int64]
    golds: NDArray[np.int64]
    last_vote_id: int


def crowd_of(*, project: Project) -> Crowd:
    """Every current vote that counts for a decision: regular and gold slots, all strata."""
    # Asked first: a vote cast while the others are read counts as newer, and is read next time.
    newest = newest_vote_id(project=project)
    comparison, person, choice = int_columns(_VOTES, {"project": project.pk}, n=3)
    ids, items = np.unique(comparison, return_inverse=True)
    people, annotators = np.unique(person, return_inverse=True)
    votes = votes_from(
        items,
        annotators,
        choice,
        n_items=len(ids),
        n_annotators=len(people),
        offered=choices_shown(project=project),
    )
    return Crowd(votes, ids, people, golds_of(project, ids), newest)


def choices_shown(*, project: Project) -> NDArray[np.bool_]:
    """(4,) what the label screen offers now."""
    settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    return np.array([True, True, settings.show_tie, settings.show_both_bad])


def golds_of(project: Project, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of these comparisons, ascending: index of the known answer in `CHOICES`, −1 without one."""
    places = {str(choice): place for place, choice in enumerate(CHOICES)}
    golds = np.full(len(ids), -1, dtype=np.int64)
    known = Comparison.objects.filter(project=project).exclude(gold="").values_list("pk", "gold")
    keys, words = zip(*known, strict=True) if known else ((), ())
    keys = np.array(keys, dtype=np.int64)
    place = np.searchsorted(ids, keys)
    here = place < len(ids)
    here[here] = ids[place[here]] == keys[here]
    golds[place[here]] = np.array([places[word] for word in words], dtype=np.int64)[here]
    return golds
