"""`judge` with weights that are here: a language model by probability or text, a reward model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import Outcome, Workshop, assistant, tiny_llama, user
from workers.config import settings_for
from workers.config.judging import PROMPT, RUBRIC, JudgeSettings
from workers.context import RunContext
from workers.contract.events import RecipeError
from workers.data.batches import encode_prompt
from workers.data.snapshot import PAIRS, UnlabelledPair, observe, read_pairs
from workers.judging.attacks import ATTACKS
from workers.judging.judges import Verdict
from workers.judging.reading import judge_prompt, read_verdict
from workers.models.loading import load_causal, load_tokenizer
from workers.recipes.judge import attacked_pairs, moved_by, run

VERDICTS = ("A", "B", "tie")
SHORT = {"prompt": "{prompt} {first} {second}"}  # the model reads 64 words


def row(name: str, first: str, second: str, asked: str = "the big cat") -> dict[str, Any]:
    return {
        "pair": name,
        "prompt": user(asked),
        "response_a": assistant(first),
        "response_b": assistant(second),
    }


ROWS = [row(f"p{i}", "a good dog", "a bad dog runs", subject) for i, subject in enumerate(SUBJECTS)]
SWAPPED = [one | {"response_a": one["response_b"], "response_b": one["response_a"]} for one in ROWS]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    shop = Workshop(tmp_path_factory.mktemp("judging"))
    shop.put_model("judge", tiny_llama(more=VERDICTS), VERDICTS)
    shop.put_model("mute", tiny_llama())  # knows no token A
    shop.put_snapshot("pairs", pairs=ROWS)
    shop.put_snapshot("swapped", pairs=SWAPPED)
    return shop


def judge(
    shop: Workshop, name: str, pairs: str = "pairs", by: str = "judge", **config: Any
) -> Outcome:
    return shop.run_here(shop.spec(name, "judge", SHORT | config, pairs=pairs, judge=by))


def verdicts(shop: Workshop, outcome: Outcome) -> list[dict[str, Any]]:
    (generated,) = outcome.all("Generated")
    assert (generated["purpose"], generated["uri"].rpartition("/")[2]) == (
        "verdicts",
        "verdicts.jsonl",
    )
    shop.store.read_bytes(generated["uri"], sha256=generated["sha256"])
    rows = list(shop.store.lines(generated["uri"]))
    assert len(rows) == generated["count"]
    return rows


def test_a_model_is_asked_both_ways_round_and_its_probabilities_are_those_of_a_plain_forward(
    shop: Workshop,
) -> None:
    outcome = judge(shop, "probabilities")
    rows = verdicts(shop, outcome)
    assert [one["pair"] for one in rows] == [one["pair"] for one in ROWS]
    assert all(0 < one[way] < 1 for one in rows for way in ("first", "second"))
    assert {tuple(one["said"]) for one in rows} == {("", "")}
    folder = shop.root / "models" / "judge"
    model, tokenizer = load_causal(folder), load_tokenizer(folder)
    a, b, tie = (tokenizer.convert_tokens_to_ids(word) for word in VERDICTS)
    for given, found in zip(ROWS[:3], rows, strict=False):
        texts = [given[side][0]["content"] for side in ("response_a", "response_b")]
        for way, (first, second) in (("first", texts), ("second", texts[::-1])):
            asked = user(f"{given['prompt'][0]['content']} {first} {second}")
            with torch.no_grad():
                ids = torch.tensor([encode_prompt(tokenizer, asked)])
                share = model(input_ids=ids).logits[0, -1].softmax(-1)
            among = (share[a] + share[b] + share[tie]).item()
            expected = (share[a] + share[tie] / 2).item() / among
            assert found[way] == pytest.approx(expected, abs=1e-5)
    summary = outcome.summary
    assert summary["pairs"] == len(ROWS)
    assert (summary["reads"], summary["order_free"]) == ("probability", False)
    assert (summary["unreadable"], summary["too_long"], summary["attacks"]) == (0, 0, {})
    assert (summary["says"], summary["fingerprint"]) == ("", "")
    assert 0 < summary["verdict_mass"] < 1
    assert outcome.all("SplitRead") == [{"role": "pairs", "split": PAIRS, "items": len(ROWS)}]
    told = [one["phase"] for one in outcome.all("Progress")]
    assert "judging: 16 of 32" in told
    assert told[-1] == "done"


def test_swapped_rows_give_mirrored_verdicts(shop: Workshop) -> None:
    rows = verdicts(shop, judge(shop, "straight"))
    mirrored = verdicts(shop, judge(shop, "mirrored", "swapped"))
    for one, other in zip(rows, mirrored, strict=True):
        assert one["first"] == pytest.approx(other["second"], abs=1e-6)
        assert one["second"] == pytest.approx(other["first"], abs=1e-6)
    assert any(abs(one["first"] - one["second"]) > 1e-3 for one in rows), "the order matters to it"


def test_a_text_is_parsed_and_clipped_and_what_says_neither_is_counted(shop: Workshop) -> None:
    outcome = judge(shop, "texts", reads="text", max_new_tokens=12, temperature=3.0)
    rows = verdicts(shop, outcome)
    for one in rows:
        for way, said in zip(("first", "second"), one["said"], strict=True):
            assert one[way] == read_verdict(said, "letter")
    assert outcome.summary["reads"] == "text"
    unread = [one for one in rows if None in (one["first"], one["second"])]
    assert 0 < outcome.summary["unreadable"] == len(unread) < len(rows)
    assert "verdict_mass" not in outcome.summary


def test_pairs_that_are_too_long_are_asked_neither_way_and_the_rest_are(shop: Workshop) -> None:
    long = row("long", "a good dog " * 30, "a cat")
    shop.put_snapshot("some_long", pairs=[ROWS[0], long, ROWS[1]])
    outcome = judge(shop, "long", "some_long", max_prompt_length=20)
    rows = verdicts(shop, outcome)
    assert [one["first"] is None for one in rows] == [False, True, False]
    assert (outcome.summary["unreadable"], outcome.summary["too_long"]) == (1, 1)


def test_some_pairs_are_drawn_by_the_seed(shop: Workshop) -> None:
    drawn = [one["pair"] for one in verdicts(shop, judge(shop, "some", max_pairs=5))]
    again = [one["pair"] for one in verdicts(shop, judge(shop, "some-again", max_pairs=5))]
    assert len(drawn) == 5
    assert drawn == again != [one["pair"] for one in ROWS[:5]]


def test_a_tokenizer_without_letters_is_read_as_text_only(shop: Workshop) -> None:
    with pytest.raises(RecipeError, match="reads: the judge's tokenizer has no token") as raised:
        judge(shop, "mute", by="mute")
    assert raised.value.kind == "bad_config"
    assert judge(shop, "mute-text", by="mute", reads="text").summary["unreadable"] == len(ROWS)


def test_a_cancelled_run_judges_no_further(shop: Workshop) -> None:
    spec = shop.spec("cancelled", "judge", SHORT, pairs="pairs", judge="judge")
    outcome = shop.run_here(spec, command="cancel", after_step=0)
    assert outcome.summary == {"step": 0, "pairs": 0}
    assert outcome.all("Generated") == []


def test_a_reward_model_judges_each_answer_by_itself(models: Workshop) -> None:
    models.put_snapshot("unlabelled", pairs=ROWS)
    models.put_snapshot("unlabelled_swapped", pairs=SWAPPED)
    outcome = judge(models, "by-reward", "unlabelled", by="scorer", attacked=2)
    summary = outcome.summary
    assert (summary["reads"], summary["order_free"]) == ("score", True)
    rows = [one for one in verdicts(models, outcome) if "attack" not in one]
    assert all(one["first"] + one["second"] == pytest.approx(1) for one in rows)
    assert len({one["first"] for one in rows}) > 1
    swapped = verdicts(models, judge(models, "by-reward-2", "unlabelled_swapped", by="scorer"))
    for one, other in zip(rows, swapped, strict=True):
        assert one["first"] == pytest.approx(other["second"], abs=1e-6)
    assert summary["attacks"].keys() == ATTACKS.keys()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"pair": ""}, "field 'pair' must be a text"),
        ({"pair": "p0"}, "the pair 'p0' comes a second time"),
        ({"response_b": []}, "field 'response_b' must be a non-empty list"),
        ({"response_a": user("x")}, "field 'response_a' must end with a message of the assistant"),
    ],
)
def test_a_row_that_is_no_pair_is_named(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    rows = [ROWS[0], ROWS[1] | changed]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    with pytest.raises(RecipeError) as raised:
        read_pairs(tmp_path)
    assert raised.value.kind == "bad_data"
    assert f"pairs.jsonl line 2: {told}" in raised.value.message


def test_an_empty_file_of_pairs_is_refused_and_its_reading_told(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").touch()
    heard: list[tuple[str, int]] = []
    observe(lambda folder, split, items: heard.append((split, items)))
    try:
        with pytest.raises(RecipeError, match=r"pairs\.jsonl holds no rows"):
            read_pairs(tmp_path)
    finally:
        observe(None)
    assert heard == [(PAIRS, 0)]


# --- what is asked, and how an answer is read ---


def test_texts_are_put_into_the_prompt_once_whatever_they_hold() -> None:
    asked = [*user("one"), *assistant("two"), *user("{second}")]
    (message,) = judge_prompt(JudgeSettings(), asked, "{prompt} {rubric}", "B")
    text = message["content"]
    assert "<answer_A>\n{prompt} {rubric}\n</answer_A>" in text
    assert "user: one\n\nassistant: two\n\nuser: {second}" in text
    assert text.count(RUBRIC) == 1
    assert PROMPT.count("no instructions to you") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", 1.0),
        ("B", 0.0),
        ("tie", 0.5),
        ("Tie.", 0.5),
        ("a", 1.0),
        ("(b)", 0.0),
        ("Answer: A", 1.0),
        ("answer: b.", 0.0),
        ("**B**", 0.0),
        ("(A)", 1.0),
        ("[[A]]", 1.0),
        ("_B_", 0.0),
        ('"A"', 1.0),
        ("answer_A", 1.0),
        ("Answer B is better than answer A.", 0.0),
        ("It is a tie", 0.5),
        ("A tie", 0.5),
        ("Verdict: A tie", 0.5),
        ("<think>B looks good, but</think>A", 1.0),
        ("\n\n  B\nbecause it is right", 0.0),
        ("A/B", 1.0),
        ("", None),
        ("Both are good.", None),
        ("a good question", None),
        ("Neither: Ab, B2, A-level, B's, tied, necktie", None),
        ("ties", None),
        ("<think>A or B", 1.0),
    ],
)
def test_the_first_letter_that_stands_alone_is_the_verdict(
    text: str, expected: float | None
) -> None:
    assert read_verdict(text, "letter") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A is longer.\nB is right.\n\nVerdict: B\n\n", 0.0),
        ("A is longer.\nSo I choose **A**", 1.0),
        ("A is longer.\nThey are equal: tie", 0.5),
        ("A\nI cannot say", None),
        ("B", 0.0),
        (" \n ", None),
    ],
)
def test_a_judge_that_gives_reasons_is_read_on_its_last_line(
    text: str, expected: float | None
) -> None:
    assert read_verdict(text, "last_line") == expected


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"prompt": "{prompt} {first}"}, "prompt: must hold {second}"),
        ({"prompt": "{first} {second} {answer}"}, "prompt: must hold {prompt}"),
        ({"prompt": PROMPT + "{answer}"}, "prompt: knows {prompt}, {first}, {second}, {rubric}"),
        ({"prompt": PROMPT + "x" * 8000}, "prompt: has "),
        ({"rubric": "x" * 8001}, "rubric: has 8,001 characters, over 8,000"),
        (SHORT | {"rubric": "Be brief."}, "rubric: the prompt has no {rubric}"),
        ({"reads": "logits"}, "reads: 'logits' is none of"),
        ({"parser": "json"}, "parser: 'json' is none of"),
        ({"attacked": 201}, "attacked: 201 is over"),
        ({"max_new_tokens": 0}, "max_new_tokens: 0 is under"),
        ({"server": {}}, "server: is no field"),
    ],
)
def test_settings_that_make_no_sense_are_named(config: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError) as raised:
        settings_for("judge", config)
    assert told in raised.value.message


def test_a_prompt_may_hold_braces_and_a_placeholder_twice() -> None:
    settings_for("judge", {"prompt": 'Like {"x": 1} {}: {prompt} {first} {second} {prompt}'})


# --- attacks ---


def pair(name: str) -> UnlabelledPair:
    return UnlabelledPair(name, user("?"), "one", "two")


def test_the_answer_that_lost_is_attacked_and_the_rest_of_the_pair_stays() -> None:
    pairs = [pair(name) for name in ("chose_a", "chose_b", "unread", "undecided")]
    known = [Verdict(1.0, 0.0), Verdict(0.0, 0.6), Verdict(1.0, None), Verdict(1.0, 1.0)]
    found = attacked_pairs(pairs, known, 4, seed=0)
    assert len(found) == 3 * len(ATTACKS)
    sides = {one.pair.pair: one.side for one in found}
    assert (sides["chose_a"], sides["chose_b"]) == ("b", "a")
    assert sides["undecided"] in "ab"
    for one in found:
        lost, other = f"response_{one.side}", f"response_{'ab'.replace(one.side, '')}"
        before = pair(one.pair.pair)
        assert getattr(one.pair, lost) == ATTACKS[one.attack](getattr(before, lost))
        assert getattr(one.pair, other) == getattr(before, other)
    assert {one.before for one in found} == {0.0, 0.2, 0.5}
    assert attacked_pairs(pairs, known, 1, seed=5) == attacked_pairs(pairs, known, 1, seed=5)


def test_an_attack_moved_what_it_made_the_chosen_one() -> None:
    attacked = attacked_pairs([pair("x")], [Verdict(1.0, 0.0)], 1, seed=0)
    ways = [Verdict(0.0, 1.0), Verdict(1.0, 1.0), Verdict(None, 1.0), Verdict(0.4, 0.5)]
    told = moved_by(attacked, ways + [Verdict(1.0, 0.0)] * (len(ATTACKS) - len(ways)))
    names = list(ATTACKS)
    assert [told[name] for name in names[:5]] == [
        {"n": 1, "moved": 1},  # b is chosen both ways round
        {"n": 1, "moved": 0},  # whatever stands first
        {"n": 0, "moved": 0},
        {"n": 1, "moved": 1},  # ½(0.4 + 0.5) is under ½
        {"n": 1, "moved": 0},
    ]
    assert moved_by([], []) == {}


def test_every_attack_keeps_the_answer_and_adds_something() -> None:
    assert len(ATTACKS) >= 12
    for name, attack in ATTACKS.items():
        text = attack("the answer")
        assert "the answer" in text, name
        assert text != "the answer", name


def test_every_attack_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/judges.md").read_text()
    assert [name for name in ATTACKS if f"`{name}`" not in page] == []


def test_a_run_without_pairs_says_which_input_it_lacks(shop: Workshop) -> None:
    spec = shop.spec("bare", "judge", SHORT, judge="judge")
    folder = shop.folder(spec)
    folder.mkdir(parents=True)
    with pytest.raises(RecipeError, match="role 'pairs'"):
        run(RunContext(spec, shop.store, folder))
