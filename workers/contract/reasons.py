"""The words of the reasons that `measures` gives as codes."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

WORDS = {
    # rows, and what they share
    "no_rows": "no rows",
    "no_pairs": "no pairs",
    "no_trials": "no trials",
    "no_runs": "no runs",
    "too_few": "too few {unit}: {n} (an interval needs at least {least})",
    "rows_alike": "all rows are alike, so they show no variation",
    "one_run": "one run shows no variation over seeds",
    "runs_alike": "all runs are alike, so they show no variation",
    # resamples
    "no_resamples": "no resamples were asked for",
    "resamples_undefined": "the statistic is undefined in {share:.0%} of the resamples",
    "resamples_alike": "all {unit} are alike, so resampling them shows no variation",
    # agreement
    "one_group": "only 1 group, and groups need {least}",
    "few_groups": "only {n} groups, and groups need {least}",
    "one_category": "only one category was offered",
    "no_two_votes": "no comparison has two votes",
    "votes_alike": "every vote is for the same choice",
    "few_in_common": "no two people have {least} comparisons in common",
    "people_alike": "every two people made one and the same choice throughout",
    "none_in_common": "the two annotators have no comparison in common",
    "both_alike": "both annotators made the same choice throughout",
    "small_slice": "too few to compare",
    "small_rest": "too little beside it to compare with",
    "slice_alike": "all its comparisons are alike",
    "agreement_under_half": "agreement is {agreement:.1%}, under one half: independent two-way "
    "votes cannot agree less often, so the votes depend on each other or have more than two "
    "choices",
    "agreement_of_coins": "two votes agree in {agreement:.1%}, no more often than coins do",
    "no_decided_pair": "no pair was decided by A-or-B votes",
    # sides
    "no_known_side": "no vote has a known side",
    "no_choice_of_side": "no vote chose a side whose place is known",
    "sides_not_kept": "which answer stood left was not kept",
    "one_way_round": "no pair was judged both ways round",
    "no_side_twice": "no two people who saw a pair different ways round chose the same side of it",
    "few_pairs_tell": "too few pairs tell: {n} (an interval needs at least {least})",
    # selection of pairs
    "few_voted_pairs": "only {n} pairs have a vote for one of their answers, and a replay needs "
    "{least}",
    "few_to_replay": "only {n} votes can be replayed beside the groups that are held out, and "
    "{least} are needed",
    "no_signal_to_select": "the words of the answers do not predict the votes, so no strategy "
    "could be told from another",
    "random_under_tuned": "random is under-tuned: it does best at an end of the grid of "
    "regularisers, L2 = {ridge}, so a better one may lie beyond",
    # depth against breadth
    "few_deep_pairs": "only {n} pairs have {depth} votes for one of their answers, and a replay of "
    "depth against breadth needs {least}",
    "deep_pairs_chosen": "only {n} of the {twice} pairs with two votes have {depth}; where few "
    "pairs get further votes, those are mostly the ones on which the first differed, and harder",
    "few_distinct_pairs": "only {n} pairs differ from each other in their answers, and a replay "
    "needs {least}",
    "no_signal_to_compare": "the words of the answers do not predict the votes, so no way of "
    "spending them could be told from another",
    "single_under_tuned": "one vote each is under-tuned: it does best at an end of the grid of "
    "regularisers, L2 = {ridge}, so a better one may lie beyond",
    # audits
    "nothing_judged": "nothing was judged",
    "no_audit": "no audit has been done yet",
    "few_judged": "too few: {n} (an interval needs at least {least})",
    "few_audits": "{n} audits are too few",
    "repeats_by_chance": "they differ from themselves as often as chance would",
    "few_answers": "their own error is known from {n} answers only, and needs {least}",
    "reviewers_by_chance": "they may be no better than chance themselves",
    # judge models beside people
    "few_judged_prompts": "too few prompts with votes and verdicts: {n} (at least {least} are "
    "needed)",
    "few_judged_pairs": "too few pairs with votes and verdicts: {n} (at least {least} are needed)",
    "few_people": "too few people: {n} (an interval needs at least {least})",
    "all_pairs_voted": "every pair has votes, so the judge's verdicts add nothing",
    "verdicts_alike": "the judge's verdicts are all alike, so they tell nothing of the votes",
    "order_free": "the judge reads each answer by itself, in no order",
    "no_pair_differs": "no pair with a preferred answer differs in it",
    "few_to_certify": "the judge labels {n} of the pairs that people answered, and even without an "
    "error {least} would be needed",
    "error_not_certified": "{errors} of the {n} most confident labels are wrong, too many to "
    "certify the error",
    # two sides
    "side_empty": "one side has no rows",
    "side_alike": "one side does not vary",
    "side_without_interval": "one side has no interval",
    # models and texts
    "few_for_bins": "{n} pairs are fewer than {bins} bins",
    "margins_opposed": "the margins do not point towards the labels, so no T > 0 fits",
    "margins_separate": "the margins separate the labels, so every smaller T fits better",
    "no_length_differs": "no pair differs in length",
    "no_length": "a mean length is 0",
    # datasets
    "nothing_to_count": "there is nothing to count",
    "few_to_draw": "{n:,.0f} is fewer than the {sample:,} to draw",
    "no_topic": "no prompt has a topic",
    "few_texts": "fewer than two texts to compare",
    "few_pairs": "too few pairs: {n} (at least {least} are needed)",
    "one_time": "all votes carry the same time, as imported votes often do",
    "mostly_one_time": "most votes carry the same time, so there are no halves to compare",
    "no_weight": "no row has a positive weight",
    "no_rl_texts": "there are no RL texts",
    # models in service
    "few_prompts": "too few to say: n = {n}, and at least {least} are needed",
    "scores_not_finite": "some prompts have no finite score",
    "means_not_finite": "a mean or a deviation is not a finite number",
    "prompts_moved_alike": "every prompt moved alike, so there is no noise to measure it by",
    "no_measurement": "no measurement",
    "one_measurement": "too few to say: one measurement",
    "few_measurements": "too few to say: {n} before, and nobody said of how many cases",
}

# The keys under which reports hold reasons.
REASONS = frozenset({"undefined", "no_interval", "reason", "untested", "why"})


def fields_of(words: str) -> set[str]:
    """The names that a text of `WORDS` has places for."""
    return {name for _, name, _, _ in Formatter().parse(words) if name}


def reason_words(reason: str | None) -> str:
    """The words of a reason; a text that is no known code is itself, None is empty."""
    code, *about = (reason or "").split(" ")
    fields = dict(part.partition("=")[::2] for part in about)
    if code not in WORDS or fields.keys() != fields_of(WORDS[code]):
        return reason or ""
    return WORDS[code].format(**{name: _number(value) for name, value in fields.items()})


def in_words(found: Any) -> Any:
    """A report of dicts and lists with the words of its reasons in their place."""
    if isinstance(found, Mapping):
        return {
            key: reason_words(value)
            if key in REASONS and isinstance(value, str)
            else in_words(value)
            for key, value in found.items()
        }
    if isinstance(found, list | tuple):
        return [in_words(one) for one in found]
    return found


def _number(value: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
