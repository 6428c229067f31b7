"""The data in the repository: what it is, and that anyone may use it."""

import gzip
import hashlib
import json
import lzma
from collections import Counter
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "data"
MANIFEST = json.loads((DATA / "manifest.json").read_text())
COMMERCIAL = {"CC-BY-4.0", "MIT", "Apache-2.0"}


def rows(name: str) -> list[dict]:
    (path,) = DATA.glob(f"{name}.jsonl.*")
    reader = lzma if path.suffix == ".xz" else gzip
    with reader.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_every_file_is_the_one_the_manifest_names() -> None:
    assert {path.name for path in DATA.glob("*.jsonl.*")} == set(MANIFEST)
    for name, entry in MANIFEST.items():
        data = (DATA / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
        if name.endswith(".gz"):
            assert data[4:8] == bytes(4)  # its time stamp: the same source gives the same bytes


def test_the_shipped_files_stay_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir() if path.is_file()) < 3_000_000


@pytest.mark.parametrize("name", ["demonstrations", "prompts"])
def test_no_row_is_limited_to_non_commercial_use(name: str) -> None:
    licences = Counter(row["licence"] for row in rows(name))
    assert set(licences) == COMMERCIAL - ({"MIT"} if name == "prompts" else set())
    sources = " ".join({row["source"] for row in rows(name)}).lower()
    assert "alpaca" not in sources


def test_the_note_names_every_licence_and_every_source() -> None:
    note = (DATA / "LICENCES.md").read_text().lower()
    for name in ("demonstrations", "prompts"):
        for row in rows(name):
            assert row["licence"].replace("CC-BY-", "CC-BY ").lower() in note
    for source in ("UKPConvArg1", "UKPConvArg1Strict", "GSM8K", "self-instruct", "Arena-Hard"):
        assert source.lower() in note


def test_the_votes_are_the_published_ones() -> None:
    pairs, votes = rows("comparisons"), rows("votes")
    assert (len(pairs), len(votes)) == (2_200, 10_967)
    assert len({vote["annotator"] for vote in votes}) == 2_134
    assert {vote["item"] for vote in votes} == {pair["item"] for pair in pairs}
    assert {vote["choice"] for vote in votes} == {"a", "b", "tie"}
    assert Counter(pair["gold"] for pair in pairs) == {"b": 872, "a": 849, "tie": 356, "": 123}


def test_the_pairs_are_6400_of_13_debates_with_four_or_five_votes_each() -> None:
    pairs = rows("pairs")
    assert len(pairs) == len({pair["item"] for pair in pairs}) == 6_400
    assert len({pair["debate"] for pair in pairs}) == 13
    assert len({pair["topic"] for pair in pairs}) == 26
    assert all(0 < pair["votes_for_chosen"] <= pair["votes"] in (4, 5) for pair in pairs)


def test_nothing_that_is_judged_is_also_imitated() -> None:
    judged = {pair[side] for pair in rows("comparisons") for side in ("response_a", "response_b")}
    debates = {pair["debate"] for pair in rows("comparisons")}
    shown = rows("demonstrations")
    assert not judged & {row["response"] for row in shown}
    assert not debates & {row["group"] for row in shown}


def test_the_prompts_of_the_voted_debates_are_in_no_demonstration() -> None:
    asked = {row["prompt"] for row in rows("prompts") if row["voted"]}
    assert len(asked) == 8
    assert not asked & {row["prompt"] for row in rows("demonstrations")}
