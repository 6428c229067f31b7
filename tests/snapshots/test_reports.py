"""the bias report: every planted fault is found, and clean pairs are left alone."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from apps.snapshots.assembling.tally import few_pairs
from apps.snapshots.reports import (
    PARTS,
    ReportMaterial,
    labels,
    learning,
    prompts,
    prompts_build,
    report_build,
    skew,
    texts,
)
from apps.snapshots.reports.checks import OK, STOP, UNKNOWN, WARN
from apps.snapshots.reports.material import Frame
from apps.snapshots.screens.report import COLUMNS, csv_rows, report_view
from tests.snapshots.report_pairs import DAY, START, N, changed, clean, swapped


@pytest.fixture(scope="module")
def pairs() -> ReportMaterial:
    return clean()


@pytest.fixture(scope="module")
def report(pairs: ReportMaterial) -> dict:
    return report_build(pairs)


CHECKS = {
    "length": skew.length,
    "form": skew.form,
    "refusals": skew.refusals,
    "tone": skew.tone,
    "sources": skew.sources,
    "words": texts.words,
    "across": texts.across,
    "leakage": prompts.leakage,
    "swapped": labels.swapped,
    "drift": learning.drift,
    "ages": labels.ages,
    "annotators": labels.annotators,
    "reasons": learning.reasons,
    "criteria": learning.criteria,
}


def found(material: ReportMaterial, key: str) -> dict:
    """One check alone, to save the time of the others."""
    check = CHECKS[key](Frame(material))
    assert check["key"] == key
    return check


def table(check: dict, caption: str) -> dict:
    return next(part for part in check["evidence"] if part["caption"].startswith(caption))


def test_clean_pairs_raise_no_alarm_but_for_their_number(report: dict):
    alarms = {check["key"] for check in report["checks"] if check["level"] in (WARN, STOP)}
    # 800 are few; what people like here is words, and the audit names those; more data may help.
    assert alarms - {"growth"} == {"size", "words"}


@pytest.mark.parametrize(
    ("n", "level", "warned"),
    [
        (4_999, STOP, "under 5,000"),
        (5_000, WARN, "at least 10,000"),
        (9_999, WARN, "at least 10,000"),
        (10_000, OK, ""),
    ],
)
def test_few_pairs_are_said_from_the_marks_on(n: int, level: str, warned: str):
    check = learning.size(SimpleNamespace(n_frozen=n))
    assert check["level"] == level
    assert warned in check["verdict"]
    assert warned in few_pairs(n)
    assert ("learning curve" in check["advice"]) == bool(warned)


def test_a_report_is_plain_json_and_the_same_each_time(pairs: ReportMaterial, report: dict):
    first, second = (json.dumps(made, allow_nan=False) for made in (report, report_build(pairs)))
    assert first == second


def test_the_parts_make_up_the_whole(pairs: ReportMaterial, report: dict):
    whole = [check["key"] for check in report["checks"]]
    few = replace(pairs, pairs=pairs.pairs[:20])
    parts = [c["key"] for part in PARTS for c in report_build(few, parts=[part])["checks"]]
    assert parts == whole
    assert len(set(whole)) == len(whole)


def test_nothing_to_train_on_gives_no_checks():
    assert report_build(ReportMaterial((), {})) == {
        "version": 1,
        "n": 0,
        "looked_at": 0,
        "checks": [],
    }


def test_three_pairs_give_a_report_that_says_what_it_cannot_tell(pairs: ReportMaterial):
    few = replace(pairs, pairs=pairs.pairs[:3])
    levels = {check["key"]: check["level"] for check in report_build(few)["checks"]}
    assert levels["leakage"] == levels["drift"] == levels["growth"] == UNKNOWN
    assert levels["size"] == STOP


# --- length, form, tone, sources -----------------------------------------------------------------


def test_long_answers_chosen_in_95_percent_of_pairs_are_a_reason_to_stop(pairs: ReportMaterial):
    rng = np.random.default_rng(1)

    def lengthen(_, pair):
        more = " and more" * 20
        if rng.random() < 0.95:
            return replace(pair, chosen=pair.chosen + more)
        return replace(pair, rejected=pair.rejected + more)

    check = found(changed(pairs, lengthen), "length")
    assert check["level"] == STOP
    assert "answer is chosen in 9" in check["verdict"]
    strata = {row["label"]: row for row in table(check, "The longer answer")["rows"]}
    assert strata["topic topic 3"]["value"] > 0.85


def test_short_answers_chosen_far_more_often_are_named_as_such(pairs: ReportMaterial):
    check = found(changed(pairs, lambda k, p: replace(p, rejected=p.rejected * 2)), "length")
    assert check["level"] == STOP
    assert "shorter" in check["verdict"]
    assert "100.0 %" in check["verdict"]


def test_lists_that_win_are_found_and_rare_marks_are_not_made_much_of(pairs: ReportMaterial):
    def mark(k, pair):
        if k % 5 == 0:
            return replace(pair, chosen="- " + pair.chosen.replace(" ", "\n- ", 3))
        return replace(pair, rejected="# Title\n" + pair.rejected) if k < 12 else pair

    check = found(changed(pairs, mark), "form")
    assert check["level"] == STOP
    assert "a list" in check["verdict"] or "any Markdown" in check["verdict"]


def test_politeness_and_refusals_have_a_line_each(pairs: ReportMaterial):
    def speak(k, pair):
        if k % 4 == 0:
            pair = replace(pair, chosen=pair.chosen + " Thank you for asking.")
        if k % 6 == 0:
            pair = replace(pair, rejected="I cannot help with that. " + pair.rejected)
        return pair

    material = changed(pairs, speak)
    assert found(material, "tone")["level"] == STOP
    refusals = found(material, "refusals")
    assert refusals["level"] == STOP
    assert "chosen in 0.0 %" in refusals["verdict"]


def test_an_origin_that_wins_nearly_always_is_named(pairs: ReportMaterial):
    check = found(
        changed(pairs, lambda k, p: replace(p, chosen_from="tuned", rejected_from="base")),
        "sources",
    )
    assert check["level"] == STOP
    assert "“tuned”" in check["verdict"]


# --- words ---------------------------------------------------------------------------------------


def test_a_planted_word_is_named_first_with_its_shares(pairs: ReportMaterial):
    rng = np.random.default_rng(2)

    def plant(_, pair):
        if rng.random() < 0.15:
            pair = replace(pair, chosen=pair.chosen + " delightful")
        if rng.random() < 0.03:
            pair = replace(pair, rejected=pair.rejected + " delightful")
        return pair

    check = found(changed(pairs, plant), "words")
    assert check["level"] in (WARN, STOP)
    # every text holds the words that people like; the planted one must not hide among them
    ranked = [row[0] for row in table(check, "Chosen side")["rows"]]
    assert ranked[0] == "“delightful”"


def test_words_that_flatter_are_always_shown_even_where_nobody_says_them(pairs: ReportMaterial):
    rows = table(found(pairs, "words"), "Words that flatter")["rows"]
    assert [row[0] for row in rows] == ["“thank you”", "“please”", "“safe”", "“love”", "“sorry”"]
    assert {"too few" in row[-1] for row in rows} == {True}


# --- texts that stand twice ----------------------------------------------------------------------


def test_test_answers_that_stand_in_training_are_a_reason_to_stop(pairs: ReportMaterial):
    def copy(k, pair):
        return replace(pair, split="dev") if k >= N - 50 else pair

    def nearly(k, pair):
        twin = pairs.pairs[k - 100] if k >= N - 25 else pair
        return replace(pair, chosen=twin.chosen + " indeed")

    check = found(changed(changed(pairs, nearly), copy), "across")
    assert check["level"] == STOP
    assert "25 of 100 answers" in check["verdict"]
    assert found(changed(pairs, copy), "across")["level"] == OK


def test_texts_of_private_files_are_counted_and_not_shown(pairs: ReportMaterial):
    def hide(k, pair):
        return replace(pair, split="private_test", chosen=pairs.pairs[0].chosen) if k == 9 else pair

    check = found(changed(pairs, hide), "across")
    assert check["level"] in (WARN, STOP)
    assert all(part["kind"] != "examples" for part in check["evidence"])


# --- leaks and labels ----------------------------------------------------------------------------


def test_a_source_tag_that_gives_the_chosen_away_is_caught(pairs: ReportMaterial):
    tagged = changed(pairs, lambda k, p: replace(p, chosen_from="gpt") if k % 2 else p)
    check = found(tagged, "leakage")
    assert check["level"] == STOP
    assert "origin of" in check["verdict"] or "together" in check["verdict"]
    rows = {row["label"]: row for row in check["evidence"][0]["rows"]}
    assert rows["Origin of the answers"]["low"] > 0.6
    assert rows["Order in the store"]["low"] < 0.5


def test_winners_that_are_always_stored_first_are_caught(pairs: ReportMaterial):
    check = found(changed(pairs, lambda k, p: replace(p, won_first=True)), "leakage")
    assert check["level"] == STOP
    assert "100.0 %" in check["verdict"]


def test_all_labels_swapped_are_caught_by_known_answers(pairs: ReportMaterial):
    known = changed(pairs, lambda k, p: replace(p, gold=True) if k % 20 == 0 else p)
    assert found(known, "swapped")["level"] == OK
    check = found(changed(known, lambda k, p: swapped(p)), "swapped")
    assert check["level"] == STOP
    assert "0.0 %" in check["verdict"]


def test_one_label_in_ten_swapped_is_caught_without_any_known_answer():
    """Of 2,000 pairs; of 800 the interval of a tenth often contains a twentieth."""
    n = 2000
    bad = np.zeros(n, dtype=bool)
    bad[np.random.default_rng(51).permutation(n)[: n // 10]] = True
    planted = changed(clean(1, n), lambda k, p: swapped(p) if bad[k] else p)
    check = found(planted, "swapped")
    assert check["level"] == WARN
    listed = table(check, "The most doubtful")["rows"]
    assert np.mean([bad[row["comparison"]] for row in listed]) > 0.8


def test_a_batch_swapped_as_a_whole_is_named(pairs: ReportMaterial):
    named = changed(pairs, lambda k, p: replace(p, batch="June") if k % 5 == 0 else p)
    check = found(changed(named, lambda k, p: swapped(p) if k % 5 == 0 else p), "swapped")
    assert check["level"] == STOP
    assert "In batch June" in check["verdict"]


# --- people and time -----------------------------------------------------------------------------


def test_preferences_that_flip_half_way_are_seen(pairs: ReportMaterial):
    middle = START + 50 * DAY
    flipped = changed(pairs, lambda k, p: swapped(p) if pairs.votes[3 * k].at > middle else p)
    check = found(flipped, "drift")
    assert check["level"] == STOP
    assert "has changed" in check["verdict"]
    assert "gains +" in check["verdict"]


def test_votes_of_one_moment_leave_time_unknown(pairs: ReportMaterial):
    votes = {number: replace(vote, at=START) for number, vote in pairs.votes.items()}
    at_once = replace(pairs, votes=votes)
    assert found(at_once, "ages")["level"] == UNKNOWN
    assert found(at_once, "drift")["level"] == UNKNOWN


def test_votes_over_two_years_are_worth_a_look(pairs: ReportMaterial):
    votes = {k: replace(v, at=START + (v.at - START) * 7.3) for k, v in pairs.votes.items()}
    check = found(replace(pairs, votes=votes), "ages")
    assert check["level"] == WARN
    assert sum(row["n"] for row in check["evidence"][0]["rows"]) == 3 * N


def test_one_busy_person_is_a_reason_to_look_and_a_single_one_to_stop(pairs: ReportMaterial):
    half = {k: replace(v, person=0) if k % 3 else v for k, v in pairs.votes.items()}
    alone = {k: replace(v, person=0) for k, v in pairs.votes.items()}
    assert found(replace(pairs, votes=half), "annotators")["level"] == WARN
    assert found(replace(pairs, votes=alone), "annotators")["level"] == STOP


# --- right, or only pleasant ---------------------------------------------------------------------

CHIPS = ("Correct", "Clear", "Warm")


def test_winners_that_nobody_calls_correct_are_counted_and_listed(pairs: ReportMaterial):
    def vote(number, cast):
        chips = ("Warm",) if number // 3 % 4 == 0 else ("Correct", "Clear")
        return replace(cast, reasons=chips)

    votes = {number: vote(number, cast) for number, cast in pairs.votes.items()}
    check = found(replace(pairs, votes=votes, reasons=CHIPS), "reasons")
    assert check["level"] == WARN
    assert "25.0 %" in check["verdict"]
    assert {row["comparison"] % 4 for row in table(check, "Won without")["rows"]} == {0}


def test_no_reasons_leave_it_unknown_and_say_what_to_switch_on(pairs: ReportMaterial):
    check = found(replace(pairs, reasons=CHIPS), "reasons")
    assert check["level"] == UNKNOWN
    assert "labeling settings" in check["advice"]


def test_winners_that_are_less_correct_by_the_same_votes_are_found(pairs: ReportMaterial):
    votes = {
        number: replace(cast, criteria={"c1": "loser" if number // 3 % 5 == 0 else "winner"})
        for number, cast in pairs.votes.items()
    }
    check = found(replace(pairs, votes=votes, criteria={"c1": "Correctness"}), "criteria")
    assert check["level"] in (WARN, STOP)
    assert "20.0 %" in check["verdict"]


# --- prompts beside demonstrations ---------------------------------------------------------------


def question(rng: np.random.Generator, n: int) -> list[str]:
    return [" ".join(f"term{k}" for k in rng.integers(0, 900, size=30)) for _ in range(n)]


def overlap(rl: list[str], sft: list[str]) -> dict:
    made = prompts_build(rl, [""] * len(rl), sft, [""] * len(sft), sft_name="May")
    return next(check for check in made["checks"] if check["key"] == "overlap")


def test_35_percent_near_duplicates_among_the_prompts_warn():
    rng = np.random.default_rng(4)
    sft, rl = question(rng, 400), question(rng, 200)
    copied = [text + " please" if k < 70 else rl[k] for k, text in enumerate(sft[:200])]
    check = overlap(copied, sft)
    assert check["level"] == WARN
    assert "70 of 200 distinct prompts (35.0 %)" in check["verdict"]
    assert overlap(rl, sft)["level"] == OK


def test_no_demonstrations_and_no_prompts_are_said_and_divide_nothing():
    assert overlap(["one prompt to think about"], [])["level"] == UNKNOWN
    assert overlap([], ["one prompt to think about"])["level"] == UNKNOWN


def test_demonstrations_narrower_than_the_prompts_are_worth_a_look():
    rng = np.random.default_rng(5)
    varied = question(rng, 300)
    narrow = [" ".join(f"digit{k}" for k in rng.integers(0, 10, size=30)) for _ in range(300)]
    made = prompts_build(varied, ["a"] * 300, narrow, ["b"] * 300)
    assert {c["key"]: c["level"] for c in made["checks"]}["breadth"] == WARN
    made = prompts_build(narrow, ["a"] * 300, varied, ["b"] * 300)
    assert {c["key"]: c["level"] for c in made["checks"]}["breadth"] == OK


# --- what is printed -----------------------------------------------------------------------------


def test_the_worst_checks_come_first_and_drawings_stay_in_their_frame(report: dict):
    view = report_view(report)
    order = [STOP, WARN, UNKNOWN, OK]
    places = [order.index(check.level) for check in view.checks]
    assert places == sorted(places)
    assert sum(n for _, n in view.tallies) == len(view.checks)
    drawn = [one for check in view.checks for one in check.evidence if one.kind != "examples"]
    assert {"intervals", "bars", "table"} <= {one.kind for one in drawn}
    for part in drawn:
        for dot in part.dots:
            assert dot.x is None or 0 <= dot.x <= 200
            assert dot.low is None or 0 <= dot.low <= dot.x <= dot.high <= 200
        for bar in part.bars:
            assert all(0 <= x <= x + width <= 200.1 for x, width, *_ in bar.pieces)
        for point in part.curve.series[0].dots if part.curve else []:
            assert 0 <= (point.high or 0) <= point.y <= (point.low or 232) <= 232


def test_the_csv_holds_every_number(report: dict):
    rows = list(csv_rows(report))
    assert all(set(row) <= set(COLUMNS) for row in rows)
    length = next(check for check in report["checks"] if check["key"] == "length")
    shown = table(length, "The longer answer")["rows"][0]
    line = next(
        r for r in rows if r["figure"].startswith("The longer") and r["row"] == shown["label"]
    )
    assert (line["value"], line["low"], line["n"]) == (shown["value"], shown["low"], shown["n"])
