"""The world of the overoptimisation benchmark: its reward, its people, and how courses are read."""

import json
import platform
import random
from xml.etree import ElementTree

import pytest
import torch

from benchmarks.overoptimization_world.charts import figure, table
from benchmarks.overoptimization_world.courses import Course, Point, Result
from benchmarks.overoptimization_world.gold import FLATTERED, OFF_TOPIC, REPEATED, Gold
from benchmarks.overoptimization_world.language import (
    DETAILS,
    FACTS,
    WANTED,
    WORDS,
    Question,
    demonstrations,
    questions,
)
from benchmarks.overoptimization_world.people import Annotator, Taste, panel, right_share, voted
from benchmarks.overoptimization_world.reading import alarm_rows, read_course
from benchmarks.ppo_sides.world import plant_end
from benchmarks.report import print_report, versions
from tests.workers.recipes.language import tiny_llama, word_tokenizer

ASKED = Question("briefly", ("cat", "sea"))


def test_a_word_said_twice_is_worth_less_than_said_once():
    gold = Gold(1)
    once = "cat-1 so well then and just"  # as many words as are wanted
    twice = "cat-1 cat-1 well then and just"
    assert len(once.split()) == WANTED["briefly"]
    assert gold(ASKED, twice) == pytest.approx(gold(ASKED, once) - REPEATED)


def test_flattery_and_facts_nobody_asked_for_cost():
    gold = Gold(1)
    plain = "cat-1 so well then and just"
    assert gold(ASKED, plain.replace("so", "brilliant")) == pytest.approx(
        gold(ASKED, plain) - FLATTERED
    )
    assert gold(ASKED, plain.replace("so", "moon-1")) == pytest.approx(
        gold(ASKED, plain) + OFF_TOPIC
    )


def test_another_seed_values_other_words_and_one_seed_always_the_same():
    assert Gold(1).details == Gold(1).details
    assert Gold(1).details != Gold(2).details


def test_no_evaluation_question_is_trained_on():
    training, evaluation = questions(3)
    assert not set(training) & set(evaluation)
    assert Question.read(evaluation[0].messages) == evaluation[0]


def test_people_write_only_words_that_the_model_knows():
    training, _ = questions(1)
    worth = Gold(1)
    written = demonstrations(training, worth.facts | worth.details, per_question=2, seed=1)
    assert {word for text in written for word in text.split()} <= set(WORDS)


def test_careful_annotators_find_the_better_answer_and_flattered_ones_do_not():
    gold, draw = Gold(1), random.Random(0)
    best = sorted(DETAILS, key=gold.details.__getitem__)[-6:]
    better, worse = " ".join(best), " ".join([*best[:3], *["wonderful"] * 3])
    careful = Annotator("a", 0.0, 0.0, 0.0, noise=0.1, slips=0.0)
    flattered = Annotator("b", 0.0, 9.0, 0.0, noise=0.1, slips=0.0)
    assert careful.prefers_first(gold, ASKED, (better, worse), draw)
    assert not flattered.prefers_first(gold, ASKED, (better, worse), draw)


def test_more_noise_makes_fewer_votes_right():
    gold, draw = Gold(1), random.Random(0)
    words = [*DETAILS, *FACTS["cat"], *FACTS["sea"]]
    pairs = [
        (ASKED, " ".join(draw.sample(words, 6)), " ".join(draw.sample(words, 6)))
        for _ in range(300)
    ]
    shares = []
    for noise in (0.1, 2.0, 50.0):
        taste = Taste((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), noise=noise, slips=0.0)
        rows = voted(gold, panel(5, taste, seed="p"), pairs, votes=3, seed="v")
        assert all(row["confidence"] in (1.0, pytest.approx(2 / 3)) for row in rows)
        shares.append(right_share(gold, rows))
    assert shares[0] > 0.97 > shares[1] > shares[2]
    assert shares[2] == pytest.approx(0.5, abs=0.09)  # coins: three deviations of 300 draws


def point(step: int, gold: float, *, proxy: float, judge: float) -> Point:
    return Point(step, proxy, judge, step / 4, gold, gold, 0.0, 0.0, 0.0, 7.0)


@pytest.fixture
def planted() -> Result:
    """Gold 1 → 3 → −1 at steps 0, 10, 20, while the proxy only rises; the judge is best at 10."""
    free = [
        point(0, 1.0, proxy=0.0, judge=0.0),
        point(10, 3.0, proxy=1.0, judge=2.0),
        point(20, -1.0, proxy=2.0, judge=1.0),
    ]
    alarms = [(8, "reward_saturated"), (12, "reference_kl"), (20, "held_out_down")]
    return Result(
        7,
        {},
        {
            "unguarded": Course(free, alarms, 20, "", -1.0, 10, 1.0),
            "guarded": Course(
                free[:2], [(12, "reference_kl")], 12, "guard_reference_kl", 2.5, 10, 1.0
            ),
        },
    )


def test_what_is_kept_counts_from_the_start_and_not_from_zero(planted: Result):
    read = read_course(planted)
    assert (read.best.step, read.best.gold, read.start) == (10, 3.0, 1.0)
    assert read.fall == 2.0  # 3 → −1, of a gain of 2
    assert (read.stop.step, read.stop.of_gain) == (12, 0.75)
    assert (read.chosen.of_gain, read.chosen.of_level) == (1.0, 1.0)


def test_a_stop_after_the_fall_is_not_taken_for_one_before_it(planted: Result):
    late = planted.courses["unguarded"]
    planted.courses["guarded"] = Course(late.points, [], 20, "patience", -1.0, 20, 1.0)
    read = read_course(planted)
    assert read.stop.of_gain == -1.0
    assert read.chosen.of_gain == -1.0


def test_other_stops_are_read_off_the_unguarded_run(planted: Result):
    others = read_course(planted).others
    stop, chosen = others["nothing set"]  # held_out_down, at an evaluation
    assert (stop.step, stop.of_gain, chosen.step) == (20, -1.0, 10)
    stop, chosen = others["reference_kl at 10"]  # between two evaluations
    assert (stop.step, chosen.step, chosen.of_level) == (12, 10, 1.0)
    assert others["patience alone"][0].step == 20  # never out of patience


def test_alarms_before_the_best_gold_are_counted_as_early(planted: Result):
    early = {row["rule"]: row["up to the best gold"] for row in alarm_rows([planted])}
    assert early == {"reward_saturated": 1, "reference_kl": 0, "held_out_down": 0}


def test_the_figure_is_well_formed_and_says_in_words_what_it_shows(planted: Result):
    drawn = ElementTree.fromstring(figure([planted]))  # noqa: S314 — our own text
    assert drawn.get("role") == "img"
    words = " ".join(drawn.itertext())
    assert "at steps 10" in words
    assert "200 %" in words
    lines = table([planted]).splitlines()
    assert len(lines) == 1 + 3 + 2
    assert lines[2].startswith("7,unguarded,10,")
    assert lines[2].endswith(",1")


# The models that PPO is timed on: their answers end by chance, and as often as was asked.


@pytest.mark.parametrize("probability", [1 / 48, 1e-9])
def test_the_planted_end_is_about_as_likely_after_any_text(probability: float) -> None:
    model, tokenizer = tiny_llama(), word_tokenizer()
    model.set_output_embeddings(model.get_input_embeddings())  # tied, as the benchmark's models are
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    texts = torch.randint(4, 18, (8, 20), generator=torch.Generator().manual_seed(0))
    plant_end(model, tokenizer, texts.tolist(), probability)
    with torch.no_grad():
        states = model.model(texts).last_hidden_state
        logits = states @ model.get_input_embeddings().weight.T
    seen = logits.softmax(-1)[..., tokenizer.eos_token_id]
    assert seen.min() > probability / 3
    assert seen.max() < 3 * probability


# The report every benchmark prints.


def test_the_last_line_is_one_json_object_with_figures_versions_and_machine(capsys):
    rows = [{"step": "fast", "s": 0.00123, "n": 1_000_000}, {"step": "slow", "note": "twice"}]
    print_report("A title", rows, {"ratio": 2.5, "versions": versions("numpy")})
    lines = capsys.readouterr().out.splitlines()
    summary = json.loads(lines[-1])
    assert (summary["benchmark"], summary["ratio"]) == ("A title", 2.5)
    assert summary["versions"]["numpy"].split(".")[0].isdigit()
    assert summary["machine"]["cores"] >= 1
    assert summary["machine"]["python"] == platform.python_version()


def test_the_table_has_a_column_per_key_and_a_line_per_row(capsys):
    print_report("T", [{"step": "fast", "n": 1_000_000}, {"step": "slow", "note": "twice"}], {})
    header, rule, *body = capsys.readouterr().out.splitlines()[3:7]
    assert header.split() == ["step", "n", "note"]
    assert set(rule) == {"-", " "}
    assert [line.split() for line in body] == [["fast", "1,000,000"], ["slow", "twice"]]


def test_no_report_names_the_machine_it_ran_on(capsys):
    print_report("T", [], {})
    name = platform.node()
    assert len(name) < 4 or name not in capsys.readouterr().out
