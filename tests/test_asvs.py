"""The table of docs/asvs.csv: every requirement once, and nothing claimed that is not there."""

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/asvs.md").read_text()
STATES = ("yes", "part", "no", "n/a")
with (ROOT / "docs/asvs.csv").open(newline="") as _file:
    TABLE = list(csv.DictReader(_file))
KNOWN = dict(
    line.split()
    for line in (ROOT / "tests/data/asvs_5.0.0.txt").read_text().splitlines()
    if not line.startswith("#")
)


def problems(row: dict[str, str]) -> list[str]:
    """What is claimed in a row and is not there."""
    found = []
    if row["state"] not in STATES:
        return [f"'{row['state']}' is no state"]
    if not row["title"]:
        found.append("no title")
    done = row["state"] in ("yes", "part")
    if done != bool(row["where"]) or done != bool(row["proof"]):
        found.append("a place and a proof, or neither")
    if row["state"] != "yes" and not row["remark"]:
        found.append("a gap without a reason")
    found += [path for path in row["where"].split() if not (ROOT / path).is_file()]
    for proof in row["proof"].split():
        path, _, name = proof.partition("::")
        if not (ROOT / path).is_file():
            found.append(proof)
        elif name:
            text = (ROOT / path).read_text()
            if not re.search(rf"^\s*def {re.escape(name)}\(", text, re.M):
                found.append(proof)
        elif not path.startswith("docs/"):
            found.append(f"{proof} is neither a test nor a page")
    return found


def test_every_requirement_of_levels_1_and_2_is_there_once_with_its_level() -> None:
    assert Counter(KNOWN.values()) == {"1": 70, "2": 183}
    assert [row["id"] for row in TABLE] == list(KNOWN)
    assert {row["id"]: row["level"] for row in TABLE} == KNOWN


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["id"])
def test_a_row_claims_only_what_is_there(row: dict[str, str]) -> None:
    assert not problems(row)


@pytest.mark.parametrize(
    "planted",
    [
        {"state": "done"},
        {"title": ""},
        {"where": ""},
        {"proof": ""},
        {"where": "apps/nowhere.py"},
        {"proof": "tests/test_asvs.py::test_that_nobody_wrote"},
        {"proof": "tests/nowhere.py::test_x"},
        {"proof": "config/settings.py"},
        {"state": "part", "remark": ""},
        {"state": "no"},
        {"state": "n/a", "where": "", "proof": "", "remark": ""},
    ],
)
def test_a_claim_that_is_not_true_is_found(planted: dict[str, str]) -> None:
    true = {
        "title": "A table that is read",
        "state": "yes",
        "where": "docs/asvs.csv",
        "proof": "tests/test_asvs.py::test_a_claim_that_is_not_true_is_found",
        "remark": "",
    }
    assert not problems(true)
    assert problems(true | planted)


def test_the_sums_of_the_page_are_those_of_the_table() -> None:
    wanted = {"all": Counter(row["state"] for row in TABLE)}
    for row in TABLE:
        for name in (row["id"].partition(".")[0], f"level {row['level']}"):
            wanted.setdefault(name, Counter())[row["state"]] += 1
    lines = re.findall(r"^\| (V\d+|level \d|all)[^|]*\| ([\d |]+) \|$", PAGE, re.M)
    said = {
        name: Counter(dict(zip(STATES, map(int, numbers.split(" | ")), strict=True)))
        for name, numbers in lines
    }
    assert said == wanted
    assert f"{len(TABLE)} requirements" in PAGE


# Proofs that belong to no other test.


def test_every_use_of_a_hash_or_cipher_is_in_the_inventory() -> None:
    page = (ROOT / "docs/security.md").read_text()
    inventory = page.partition("## Cryptography in use")[2].partition("\n## ")[0]
    pattern = re.compile(
        r"hashlib\.(?!file_digest)(\w+)|\b(AESGCM|AESCCM|AESSIV|ChaCha20\w*|Fernet|HKDF|crc32|hmac)\b"
        r"|^\s*(?:import|from) (\w*crypt\w*)\b",
        re.M,
    )
    known = {
        "sha256": "SHA-256",
        "blake2b": "BLAKE2b",
        "crc32": "CRC-32",
        "hmac": "HMAC",
        "AESGCM": "AESGCM",
        "Fernet": "Fernet",
        "HKDF": "HKDF",
        "cryptography": "library cryptography",
    }
    used = {
        next(filter(None, found))
        for folder in ("apps", "config", "measures", "workers")
        for path in (ROOT / folder).rglob("*.py")
        for found in pattern.findall(path.read_text())
    }
    assert {"sha256", "hmac", "AESGCM"} <= used
    assert used <= set(known), "an algorithm that docs/security.md does not list"
    assert not [name for name in used & set(known) if known[name] not in inventory]


def test_the_proxy_speaks_tls_1_2_and_1_3_alone() -> None:
    text = (ROOT / "docker/nginx/concord.conf.template").read_text()
    (protocols,) = re.findall(r"^\s*ssl_protocols (.*);$", text, re.M)
    assert protocols.split() == ["TLSv1.2", "TLSv1.3"]
    (suites,) = re.findall(r"^\s*ssl_ciphers (.*);$", text, re.M)
    for suite in suites.split(":"):
        assert suite.startswith("ECDHE-")
        assert re.search(r"GCM|CHACHA20", suite)


def allowed_in_images() -> set[str]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in lines if line and not line.startswith("#")) == "*"
    return {line[1:] for line in lines if line.startswith("!")}


def test_images_hold_no_source_control() -> None:
    assert not [name for name in allowed_in_images() if name.startswith((".", "docs"))]


def test_images_hold_neither_tests_nor_benchmarks() -> None:
    assert not allowed_in_images() & {"tests", "benchmarks", "examples", "clients", "docs"}
