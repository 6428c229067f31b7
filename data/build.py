"""Makes the compact data that Concord ships from the normalised source files.

    python data/build.py SOURCE_FOLDER

SOURCE_FOLDER holds items_ukp.jsonl, votes_ukp.jsonl, preferences_train.jsonl,
sft_demonstrations.jsonl and prompts.jsonl. Not needed at run time: the outputs lie beside this
file. They are compressed JSON Lines without a time stamp, so the same source gives the same bytes;
`manifest.json` names their hashes. The pairs repeat their texts far apart, which xz finds and gzip
does not. `LICENCES.md` says where each row comes from.

Only rows whose licence allows commercial use pass (`ALLOWED`); an unknown licence stops the build.
"""

import argparse
import gzip
import hashlib
import io
import json
import lzma
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ALLOWED = {"CC-BY-4.0", "MIT", "Apache-2.0"}
LEFT_OUT = {"CC-BY-NC-4.0"}
UKP = "CC-BY-4.0"

Row = dict[str, Any]


def debate_of(topic: str) -> str:
    """`debate_stance` names one side of a debate; the debate is what precedes the underscore."""
    return topic.split("_", 1)[0]


def comparisons(source: Path) -> list[Row]:
    """The 2,200 pairs of arguments, with the published label where there is one."""
    return [
        {
            "item": row["item_id"],
            "prompt": row["prompt"],
            "response_a": row["response_a"],
            "response_b": row["response_b"],
            "gold": (row["gold"] or "").lower(),
            "topic": row["topic"],
            "debate": debate_of(row["topic"]),
            "source": row["source_id"],
        }
        for row in _read(source / "items_ukp.jsonl")
    ]


def votes(source: Path) -> list[Row]:
    """Each crowd vote, in the source's order."""
    return [
        {"item": r["item_id"], "annotator": r["annotator_id"], "choice": r["choice"].lower()}
        for r in _read(source / "votes_ukp.jsonl")
    ]


def demonstrations(source: Path) -> list[Row]:
    """What the base model is trained on: winning arguments, then GSM8K and seed tasks.

    Arguments come from debates on which there are no shipped votes, so that no text of a preference
    pair is ever imitated. An argument wins when more of its pairs chose it than its rival.
    """
    voted = {row["debate"] for row in comparisons(source)}
    won, lost, first = Counter[str](), Counter[str](), {}
    for row in _read(source / "preferences_train.jsonl"):
        if debate_of(row["topic"]) in voted:
            continue
        won[row["chosen"]] += 1
        lost[row["rejected"]] += 1
        first.setdefault(row["chosen"], row)
    arguments = [
        {
            "prompt": row["prompt"],
            "response": text,
            "group": debate_of(row["topic"]),
            "source": row["source"],
            "licence": UKP,
        }
        for text, row in first.items()
        if won[text] > lost[text]
    ]
    others = [
        {
            "prompt": row["prompt"],
            "response": row["response"],
            "group": "",
            "source": row["source"],
            "licence": row["licence"],
        }
        for row in _permitted(_read(source / "sft_demonstrations.jsonl"))
    ]
    return arguments + others


def pairs(source: Path) -> list[Row]:
    """The 6,400 preferences of 13 debates, with the published winner. It had most of the
    four or five votes but in 584 pairs: the authors weigh votes, and some are for neither side."""
    return [
        {
            "item": row["id"],
            "prompt": row["prompt"],
            "chosen": row["chosen"],
            "rejected": row["rejected"],
            "topic": row["topic"],
            "debate": debate_of(row["topic"]),
            "votes": row["n_votes"],
            "votes_for_chosen": row["n_for_chosen"],
        }
        for row in _read(source / "preferences_train.jsonl")
    ]


def prompts(source: Path) -> list[Row]:
    """Things to answer: one prompt per side of a debate, and Arena-Hard's questions.

    `voted` marks the debates that the shipped votes are about.
    """
    topic_of = {
        row["prompt"]: row["topic"] for row in _read(source / "preferences_train.jsonl")
    } | {row["prompt"]: row["topic"] for row in comparisons(source)}
    voted = {row["debate"] for row in comparisons(source)}
    rows = []
    for row in _permitted(_read(source / "prompts.jsonl")):
        topic = topic_of.get(row["prompt"], "")
        rows.append(
            {
                "prompt": row["prompt"],
                "topic": topic,
                "group": debate_of(topic),
                "voted": debate_of(topic) in voted,
                "source": row["source"],
                "licence": row["licence"],
            }
        )
    return rows


def build(source: Path, target: Path) -> Row:
    """Write every file and the manifest below `target`; returns the manifest."""
    files = {
        "comparisons": comparisons(source),
        "votes": votes(source),
        "demonstrations": demonstrations(source),
        "prompts": prompts(source),
        "pairs": pairs(source),
    }
    manifest = {}
    for name, rows in files.items():
        lines = _lines(rows)
        data = lzma.compress(lines, preset=9) if name == "pairs" else _gzipped(lines)
        file = f"{name}.jsonl.{'xz' if name == 'pairs' else 'gz'}"
        (target / file).write_bytes(data)
        manifest[file] = {
            "rows": len(rows),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _permitted(rows: Iterable[Row]) -> Iterable[Row]:
    for row in rows:
        if row["licence"] in ALLOWED:
            yield row
        elif row["licence"] not in LEFT_OUT:
            raise SystemExit(f"{row['id']}: nobody has decided about licence {row['licence']!r}")


def _read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _lines(rows: Iterable[Row]) -> bytes:
    return b"".join(
        json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for row in rows
    )


def _gzipped(lines: bytes) -> bytes:
    buffer = io.BytesIO()
    # mtime=0 and no file name: nothing but the rows decides the bytes.
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0, filename="") as file:
        file.write(lines)
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="folder with the normalised source files")
    arguments = parser.parse_args()
    for name, entry in build(arguments.source, Path(__file__).resolve().parent).items():
        print(f"{name:<24} {entry['rows']:>6} rows {entry['bytes']:>9} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
