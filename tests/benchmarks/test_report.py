"""The report every benchmark prints."""

import json
import platform

from benchmarks.report import print_report, versions


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
