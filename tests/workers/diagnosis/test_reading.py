"""Metrics files of other libraries: what is in them comes out, and what is wrong names its row."""

import json
import math
import struct
from pathlib import Path

import pytest

from workers.diagnosis import reading as reading_rows
from workers.diagnosis.__main__ import main
from workers.diagnosis.names import ours
from workers.diagnosis.reading import Read, ReadingError, masked_crc, read
from workers.diagnosis.replay import diagnose

# Written by the package tensorboard: six scalars over twelve steps, as plain values and as tensors
# of every kind, a histogram and a text; grad_norm is NaN at step 7.
EVENTS = (Path(__file__).parent / "files" / "scalars.tfevents").read_bytes()


def failed(name: str, text: str | bytes) -> ReadingError:
    with pytest.raises(ReadingError) as raised:
        read(name, text.encode() if isinstance(text, str) else text)
    return raised.value


def text(name: str, content: str) -> Read:
    return read(name, content.encode())


# --- TRL and transformers ---


def test_a_trainer_state_gives_its_history_and_what_it_says_of_the_run() -> None:
    history = [
        {"step": 10, "epoch": 0.1, "loss": 2.5, "grad_norm": 1.0},
        {"step": 10, "eval_loss": 2.25},
        {"step": 20, "epoch": 0.2, "loss": 2.0, "grad_norm": float("nan")},
    ]
    state = json.dumps({"max_steps": 20, "global_step": 20, "log_history": history})
    found = text("trainer_state.json", state)
    assert found.format == "trainer_state.json"
    assert found.config == {"max_steps": 20}
    assert found.series["loss"] == [(10, 2.5), (20, 2.0)]
    assert found.series["eval_loss"] == [(10, 2.25)]
    assert found.series["grad_norm"] == [(10, 1.0), (20, "nan")]


def test_a_log_history_alone_is_a_list() -> None:
    assert text("h.json", '[{"step": 1, "reward": 0.5}]').series == {"reward": [(1, 0.5)]}


def test_steps_in_any_order_are_sorted_and_the_last_word_on_a_step_counts() -> None:
    rows = '{"step": 3, "a": 1}\n{"step": 1, "a": 2}\n\n{"step": 3, "a": 4}\n'
    assert text("x.jsonl", rows).series["a"] == [(1, 2.0), (3, 4.0)]


def test_json_by_metric_is_read_too() -> None:
    found = text("metrics.json", '{"train/reward": {"1": 0.5, "2": 0.75}}')
    assert found.series["train/reward"] == [(1, 0.5), (2, 0.75)]


# --- CSV ---


def test_a_wide_csv_has_a_column_for_each_metric_and_holes_where_nothing_was_measured() -> None:
    found = text("m.csv", "Step,objective/kl,eval/score\n1,0.5,\n2,0.75,1.5\n3,inf,\n")
    assert found.format == "CSV"
    assert found.series == {
        "objective/kl": [(1, 0.5), (2, 0.75), (3, "inf")],
        "eval/score": [(2, 1.5)],
    }


def test_a_long_csv_has_a_value_a_row() -> None:
    found = text("m.csv", "step;metric;value\n1;kl;0.5\n2;kl;0.25\n1;reward;2\n")
    assert "one value" in found.format
    assert found.series == {"kl": [(1, 0.5), (2, 0.25)], "reward": [(1, 2.0)]}


def test_our_own_export_comes_back_as_it_was() -> None:
    """Names that a spreadsheet would run were guarded with an apostrophe."""
    found = text("run-metrics.csv", "step,'=odd,objective/kl\r\n1,2.0,0.5\r\n")
    assert set(found.series) == {"=odd", "objective/kl"}


# --- TensorBoard ---


def test_scalars_of_an_event_file_are_read_however_they_were_written() -> None:
    found = read("events.out.tfevents.1", EVENTS)
    assert found.format == "TensorBoard"
    steps = range(1, 13)
    assert found.series["objective/kl"] == [(s, 0.25 * s) for s in steps]
    assert found.series["policy/clipfrac_avg"] == [(s, 0.5 if s > 4 else 0.125) for s in steps]
    assert found.series["objective/scores"] == [(s, s / 8) for s in steps]
    assert found.series["val/ratio"] == [(s, 1 + s / 1024) for s in steps]
    assert found.series["update/steps"] == [(s, 4.0) for s in steps]
    assert found.series["grad_norm"][6] == (7, "nan")
    assert len(found.series) == 6  # neither the histogram nor the text


def test_the_checksum_is_crc_32c() -> None:
    """The check value of the Castagnoli polynomial, masked as TFRecord masks it."""
    crc = 0xE3069283  # of "123456789", published with the polynomial
    masked = ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32
    assert masked_crc(b"123456789") == masked


def test_a_flipped_bit_is_a_damaged_file_and_names_its_record() -> None:
    first = 12 + struct.unpack_from("<Q", EVENTS)[0] + 4
    damaged = bytearray(EVENTS)
    damaged[first + 30] ^= 1
    error = failed("x.tfevents", bytes(damaged))
    assert error.errors[0].row == 2
    assert "damaged" in error.errors[0].message


def test_a_file_that_is_still_being_written_gives_what_is_there() -> None:
    found = read("x.tfevents", EVENTS[:-20])
    assert len(found.series["objective/kl"]) == 11
    assert "breaks off" in found.notes[0]


def test_a_name_that_says_tensorboard_is_not_believed_without_its_checksum() -> None:
    assert "checksum" in str(failed("events.out.tfevents.1", b"\x00" * 64))


# --- what is wrong is said ---


def test_every_wrong_row_is_named() -> None:
    rows = '{"step": 1, "a": 1}\n{"a": 2}\nnonsense\n{"step": -1, "a": 3}\n{"step": 2, "a": "x"}\n'
    error = failed("x.jsonl", rows)
    assert [one.row for one in error.errors] == [2, 3, 4, 5]
    assert "no step" in error.errors[0].message
    assert "'x'" in error.errors[3].message


def test_rows_of_a_csv_are_numbered_as_an_editor_does() -> None:
    error = failed("x.csv", "step,a\n1,0.5\n2\n1.5,0.5\n")
    assert [one.row for one in error.errors] == [3, 4]
    assert "'1.5'" in error.errors[1].message


def test_more_errors_than_anybody_reads_are_counted() -> None:
    error = failed("x.jsonl", "{nonsense\n" * 50)
    assert len(error.errors) == 20
    assert error.more == 30


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"a,b\n1,2\n", "No column holds the step"),
        (b"step,a,a\n1,2,3\n", "Two columns"),
        (b"\xff\xfe\x00\x01", "neither text"),
        (b'[{"step": 1, "note": "hello"}]', "no figure with a step"),
        (b'[{"step": 1, "a": ', "breaks off"),
        (b"[1, 2]", "no object"),
    ],
)
def test_a_file_that_is_none_says_why(content: bytes, said: str) -> None:
    assert said in str(failed("x", content))


@pytest.mark.parametrize("number", ["9" * 5000, "[" * 50_000], ids=["digits", "depth"])
@pytest.mark.parametrize("text", ['[{"step": 1, "a": %s}]', '{"step": 1, "a": %s}'])
def test_numbers_and_nesting_beyond_measure_are_said(text: str, number: str) -> None:
    assert "digits" in str(failed("x.json", text % number)) or "deeply" in str(
        failed("x.json", text % number)
    )


def test_texts_are_left_out_and_said() -> None:
    found = text("x.jsonl", '{"step": 1, "a": 1, "note": "hello", "tags": ["x"]}')
    assert set(found.series) == {"a"}
    assert [note.endswith("note, tags.") for note in found.notes] == [True]


def test_a_file_with_too_much_in_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_rows, "MOST_POINTS", 3)
    assert "more than 3 points" in str(failed("x.csv", "step,a\n1,1\n2,1\n3,1\n4,1\n"))
    assert "1 to 200 characters" in str(failed("x.json", json.dumps([{"step": 1, "n" * 300: 1}])))


# --- names ---


def renamed(kind: str, **series: float) -> dict[str, float]:
    """Names with `__` for a slash."""
    points = {name.replace("__", "/"): [(1, value)] for name, value in series.items()}
    return {name: rows[0][1] for name, rows in ours(points, kind).series.items()}


def test_figures_of_grpo_get_our_names_and_direction() -> None:
    found = renamed(
        "grpo",
        train__reward=0.5,
        train__kl=0.01,
        train__completions__clipped_ratio=0.25,
        train__frac_reward_zero_std=0.125,
        train__rewards__accuracy__mean=0.75,
    )
    assert found == {
        "objective/scores": 0.5,
        "objective/kl_per_token": 0.01,
        "response/ended_share": 0.75,
        "grpo/zero_variance_share": 0.125,
        "reward/component/accuracy": 0.75,
    }


def test_figures_of_old_trl_verl_and_stable_baselines_get_our_names() -> None:
    old = renamed("ppo", ppo__mean_scores=1.5, ppo__policy__clipfrac=0.2, objective__kl_coef=0.1)
    assert old == {"objective/scores": 1.5, "policy/clipfrac_avg": 0.2, "kl_coef": 0.1}
    verl = renamed("ppo", actor__pg_clipfrac=0.1, critic__vf_explained_var=0.5, actor__ppo_kl=0.01)
    assert verl == {
        "policy/clipfrac_avg": 0.1,
        "val/explained_variance": 0.5,
        "policy/approxkl_avg": 0.01,
    }
    assert renamed("ppo", train__entropy_loss=-1.5) == {"objective/entropy_per_token": 1.5}


def test_figures_of_openrlhf_and_verl_runs_on_rows_get_our_names_by_kind() -> None:
    assert renamed(
        "dpo", chosen_reward=0.5, reject_reward=0.25, acc=0.75, eval__acc_mean=0.625
    ) == {
        "rewards/chosen": 0.5,
        "rewards/rejected": 0.25,
        "rewards/accuracies": 0.75,
        "eval/rewards/accuracies": 0.625,
    }
    assert renamed("reward", acc_mean=0.75, eval__acc_mean=0.625, eval__reward_mean=0.125) == {
        "accuracy": 0.75,
        "eval/accuracy": 0.625,
        "eval/mean_reward": 0.125,
    }
    assert renamed("sft", train__gpt_loss=2.0, train__lr=0.5) == {"loss": 2.0, "learning_rate": 0.5}
    assert renamed("sft", val__loss=2.0) == {"eval/loss": 2.0}
    assert renamed("dpo", val__loss=2.0) == {"val/loss": 2.0}


def test_a_name_of_ours_in_the_file_is_never_overwritten() -> None:
    found = renamed("ppo", objective__scores=1.0, reward=2.0)
    assert found == {"objective/scores": 1.0, "reward": 2.0}


def test_what_nobody_knows_is_kept_and_other_kinds_keep_their_names() -> None:
    assert renamed("ppo", my__own=1.0) == {"my/own": 1.0}
    dpo = renamed("dpo", rewards__margins=1.0, eval_loss=0.5, entropy=2.0, reward=3.0)
    assert dpo == {"rewards/margins": 1.0, "eval/loss": 0.5, "entropy": 2.0, "reward": 3.0}


def test_a_number_that_is_none_stays_one_when_turned_round() -> None:
    points = {"completions/clipped_ratio": [(1, "nan"), (2, 0.25)]}
    assert ours(points, "grpo").series["response/ended_share"] == [(1, "nan"), (2, 0.75)]


# --- the command line ---


def test_the_command_names_the_link_and_the_next_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verl's names, and from step 30 on most ratios are clipped."""
    rows = [
        {
            "step": step,
            "actor/pg_clipfrac": 0.1 + 0.02 * math.sin(step) if step < 30 else 0.6,
            "critic/vf_explained_var": 0.5,
            "actor/entropy": 2.0,
        }
        for step in range(1, 61)
    ]
    file = tmp_path / "run.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    assert main([str(file)]) == 1
    said = capsys.readouterr().out
    assert "policy, at step 3" in said
    assert "is actor/pg_clipfrac" in said
    assert "1. Try a" in said
    assert "policy [BROKE FIRST]" in said


def test_the_command_says_when_nothing_is_wrong_and_what_was_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.csv"
    file.write_text("step,policy/clipfrac_avg\n" + "\n".join(f"{s},0.1" for s in range(1, 40)))
    assert main([str(file), "--kind", "ppo"]) == 0
    said = capsys.readouterr().out
    assert "Nothing found." in said
    assert "eval/canary_accuracy" in said


def test_the_command_refuses_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text('{"step": 1, "a": 1}\nnonsense\n')
    assert main([str(file)]) == 2
    assert "Row 2" in capsys.readouterr().err
    assert main([str(tmp_path / "nothing.csv")]) == 2


def test_a_dpo_run_of_trl_is_judged_by_what_it_logged_and_says_what_is_missing() -> None:
    """Names as TRL's DPOTrainer writes them into trainer_state.json."""
    history: list[dict[str, float]] = []
    for step in range(1, 41):
        row = {"step": step, "loss": 0.69 + 0.02 * step, "rewards/margins": 0.5 * step}
        history.append(row | {"rewards/accuracies": 0.7, "logps/chosen": -80.0 - 3 * step})
        if step % 5 == 0:
            history.append({"step": step, "eval_logps/chosen": -80.0 - 3 * step})
    found = read("trainer_state.json", json.dumps({"log_history": history}).encode())
    named = ours(found.series, "dpo")
    said = diagnose(named.series, kind="dpo")
    rules = {one.rule for one in said.findings}
    assert rules >= {"loss_over_start", "preference_saturated", "likelihood_displaced"}
    missing = dict(said.unjudged)
    assert "eval/log_ratio_size" in missing["The policy is far from its reference on the pairs"]
